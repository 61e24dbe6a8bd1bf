/* SPDX-License-Identifier: Apache-2.0 */
/* A diagnosis for an issue tracker. */

#include "report/diagnosis.h"

#include "base/bytes.h"

#define ROWS 10u

static void blame(struct plim_buf *out, const struct plim_diagnosis *d)
{
    if (d->blame.n == 0) {
        return;
    }
    plim_buf_text(out,
                  "\n### Who holds the live bytes\n\n"
                  "| bytes | blocks | looks like | allocated at |\n| ---: | ---: | --- | --- |\n");
    for (size_t i = 0; i < d->blame.n && i < ROWS; i++) {
        const struct plim_blame_row *row = &d->blame.items[i];
        char bytes[PLIM_BYTES_TEXT];
        plim_buf_printf(out, "| %s | %u | %s%s | ", plim_bytes_format(bytes, row->bytes),
                        row->blocks, plim_category_text(row->category),
                        row->suspect ? ", **leak suspect**" : "");
        plim_markdown_escape(out, row->site);
        plim_buf_text(out, " |\n");
    }
}

static void pins(struct plim_buf *out, const struct plim_diagnosis *d)
{
    if (d->pins.n == 0) {
        return;
    }
    plim_buf_text(out, "\n### Segments with stranded bytes\n\n"
                       "| stranded | segment | live in it | oldest block from |\n"
                       "| ---: | ---: | ---: | --- |\n");
    for (size_t i = 0; i < d->pins.n && i < ROWS; i++) {
        const struct plim_pin_row *row = &d->pins.items[i];
        char stranded[PLIM_BYTES_TEXT], size[PLIM_BYTES_TEXT], live[PLIM_BYTES_TEXT];
        plim_buf_printf(out, "| %s | %s | %s | ", plim_bytes_format(stranded, row->stranded),
                        plim_bytes_format(size, row->segment_size),
                        plim_bytes_format(live, row->live));
        plim_markdown_escape(out, row->site ? row->site : "(no stack)");
        plim_buf_text(out, row->before_trace ? ", before the recording |\n" : " |\n");
    }
}

void plim_markdown_diagnosis(struct plim_buf *out, const struct plim_snapshot *snapshot,
                             const struct plim_diagnosis *d)
{
    (void)snapshot;
    plim_markdown_finding(out, "GPU memory diagnosis", &d->set);
    blame(out, d);
    pins(out, d);
}
