/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of blocks for mode pool, as text, JSON and the file that the allocator reads. */

#include "report/soak.h"

#include "base/bytes.h"

#include <inttypes.h>

void plim_blocks_file(struct plim_buf *out, const struct plim_blocks_choice *blocks)
{
    const struct plim_engine_rounding *r = &blocks->options.rounding;
    for (uint32_t i = 0; i < r->n_sizes; i++) {
        plim_buf_printf(out, "%" PRIu64 "\n", r->sizes[i]);
    }
}

void plim__text_blocks(struct plim_buf *out, const struct plim_soak_view *v,
                       const struct plim_text_style *style)
{
    const struct plim_blocks_choice *b = v->blocks;
    char reserved[PLIM_BYTES_TEXT], active[PLIM_BYTES_TEXT];
    if (!b) {
        return;
    }
    plim_text_heading(out, "Blocks of Plimsoll's allocator in mode pool", style);
    plim_buf_printf(out,
                    "  %u sizes for %" PRIu64 " that are asked for; rounding adds %.2f%% to all "
                    "requests together\n",
                    b->options.rounding.n_sizes, b->asked, 100 * b->added);
    plim_buf_printf(out, "  %s is reserved at the most, %s of it in use%s\n",
                    plim_bytes_format(reserved, b->result.most_reserved),
                    plim_bytes_format(active, b->result.most_active),
                    b->result.failed ? "; memory runs out" : "");
    if (v->sizes_file) {
        plim_buf_printf(out, "\n  PLIMSOLL_ALLOC_MODE=pool PLIMSOLL_ALLOC_SIZES=@%s\n",
                        v->sizes_file);
    }
}

void plim__json_blocks(struct plim_jsonw *w, const struct plim_soak_view *v)
{
    const struct plim_blocks_choice *b = v->blocks;
    if (!b) {
        return;
    }
    plim_jsonw_key(w, "pool");
    plim_jsonw_object(w);
    plim_jsonw_key(w, "sizes_bytes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < b->options.rounding.n_sizes; i++) {
        plim_jsonw_u64(w, b->options.rounding.sizes[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_kv_u64(w, "sizes_asked_for", b->asked);
    plim_jsonw_kv_real(w, "rounding_share", b->added);
    plim_jsonw_kv_u64(w, "peak_active_bytes", b->result.most_active);
    plim_jsonw_kv_u64(w, "peak_reserved_bytes", b->result.most_reserved);
    plim_jsonw_kv_bool(w, "failed", b->result.failed);
    plim_jsonw_end(w);
}
