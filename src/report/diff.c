/* SPDX-License-Identifier: Apache-2.0 */
/* See diff.h. */

#include "report/diff.h"

#include "base/bytes.h"

#include <stdio.h>

#define DEFAULT_ROWS 15u
#define SIGNED_BYTES (PLIM_BYTES_TEXT + 1)

static const char *signed_bytes(char buf[SIGNED_BYTES], uint64_t from, uint64_t to)
{
    buf[0] = to > from ? '+' : to < from ? '-' : ' ';
    plim_bytes_format(buf + 1, to > from ? to - from : from - to);
    return buf;
}

static void verdict_change(struct plim_buf *out, const struct plim_diff *diff)
{
    const struct plim_verdict *a = &diff->a.set.verdict, *b = &diff->b.set.verdict;
    plim_buf_printf(out, "%s %s -> %s %s", plim_class_text(a->cls), plim_subclass_text(a->subclass),
                    plim_class_text(b->cls), plim_subclass_text(b->subclass));
}

static void categories(struct plim_buf *out, const struct plim_diff *diff,
                       const struct plim_text_style *style)
{
    bool any = false;
    for (int c = 0; c < PLIM_CATEGORY_COUNT; c++) {
        uint64_t a = diff->a.by_category[c], b = diff->b.by_category[c];
        char from[PLIM_BYTES_TEXT], to[PLIM_BYTES_TEXT], change[SIGNED_BYTES];
        if (a == b) {
            continue;
        }
        if (!any) {
            plim_text_heading(out, "Live bytes by kind (a guess from names)", style);
            any = true;
        }
        plim_buf_printf(out, "  %-14s %11s -> %11s %12s\n",
                        plim_category_text((enum plim_category)c), plim_bytes_format(from, a),
                        plim_bytes_format(to, b), signed_bytes(change, a, b));
    }
}

static void segment_line(struct plim_buf *out, const struct plim_diff *diff)
{
    const struct plim_diff_segments *s = &diff->segments;
    char kept[PLIM_BYTES_TEXT], fresh[PLIM_BYTES_TEXT], gone[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "%u kept (%s), %u new (%s), %u gone (%s)", s->kept,
                    plim_bytes_format(kept, s->kept_bytes), s->new_,
                    plim_bytes_format(fresh, s->new_bytes), s->gone,
                    plim_bytes_format(gone, s->gone_bytes));
}

void plim_text_diff(struct plim_buf *out, const struct plim_diff *diff, uint32_t rows,
                    const struct plim_text_style *style)
{
    uint32_t shown = 0, most = rows ? rows : DEFAULT_ROWS;
    plim_text_wrap(out, "", diff->summary, style);
    plim_text_heading(out, "Live bytes by site", style);
    for (size_t i = 0; i < diff->rows.n && shown < most; i++) {
        const struct plim_diff_row *row = &diff->rows.items[i];
        char change[SIGNED_BYTES], first[64];
        if (!plim_diff_changed(row)) {
            continue;
        }
        snprintf(first, sizeof(first), "%12s %+7d blocks  ",
                 signed_bytes(change, row->bytes_a, row->bytes_b),
                 (int)(row->blocks_b - row->blocks_a));
        plim_text_wrap(out, first, row->site, style);
        shown++;
    }
    if (shown == 0) {
        plim_buf_text(out, "  no site changed\n");
    }
    categories(out, diff, style);
    plim_text_heading(out, "Segments", style);
    plim_buf_text(out, "  ");
    segment_line(out, diff);
    plim_buf_char(out, '\n');
    plim_text_heading(out, "Verdict", style);
    plim_buf_text(out, "  ");
    verdict_change(out, diff);
    plim_buf_char(out, '\n');
}

void plim_markdown_diff(struct plim_buf *out, const struct plim_diff *diff, uint32_t rows)
{
    uint32_t shown = 0, most = rows ? rows : DEFAULT_ROWS;
    plim_buf_text(out, "## GPU memory: what changed\n\n");
    plim_markdown_escape(out, diff->summary);
    plim_buf_text(out, "\n\nVerdict: ");
    verdict_change(out, diff);
    plim_buf_text(out, "\n\nSegments: ");
    segment_line(out, diff);
    plim_buf_text(out, "\n\n| change | before | after | looks like | allocated at |\n"
                       "| ---: | ---: | ---: | --- | --- |\n");
    for (size_t i = 0; i < diff->rows.n && shown < most; i++) {
        const struct plim_diff_row *row = &diff->rows.items[i];
        char change[SIGNED_BYTES], from[PLIM_BYTES_TEXT], to[PLIM_BYTES_TEXT];
        if (!plim_diff_changed(row)) {
            continue;
        }
        plim_buf_printf(out, "| %s | %s | %s | %s | ",
                        signed_bytes(change, row->bytes_a, row->bytes_b),
                        plim_bytes_format(from, row->bytes_a), plim_bytes_format(to, row->bytes_b),
                        plim_category_text(row->category));
        plim_markdown_escape(out, row->site);
        plim_buf_text(out, " |\n");
        shown++;
    }
}

static void side(struct plim_jsonw *w, const char *key, const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, key);
    plim_jsonw_object(w);
    plim_json_verdict(w, &d->set.verdict);
    plim_json_ledger(w, &d->set.ledger);
    plim_jsonw_end(w);
}

static void sites(struct plim_jsonw *w, const struct plim_diff *diff)
{
    plim_jsonw_key(w, "sites");
    plim_jsonw_array(w);
    plim_vec_foreach (row, &diff->rows) {
        if (!plim_diff_changed(row)) {
            continue;
        }
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "site", row->site);
        plim_jsonw_kv_text(w, "category_guess", plim_category_text(row->category));
        plim_jsonw_kv_u64(w, "bytes_before", row->bytes_a);
        plim_jsonw_kv_u64(w, "bytes_after", row->bytes_b);
        plim_jsonw_kv_u64(w, "blocks_before", row->blocks_a);
        plim_jsonw_kv_u64(w, "blocks_after", row->blocks_b);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_diff(struct plim_jsonw *w, const struct plim_diff *diff)
{
    const struct plim_diff_segments *s = &diff->segments;
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.diff/1");
    plim_jsonw_kv_text(w, "summary", diff->summary);
    side(w, "before", &diff->a);
    side(w, "after", &diff->b);
    sites(w, diff);
    plim_jsonw_key(w, "categories");
    plim_jsonw_array(w);
    for (int c = 0; c < PLIM_CATEGORY_COUNT; c++) {
        if (diff->a.by_category[c] != diff->b.by_category[c]) {
            plim_jsonw_object(w);
            plim_jsonw_kv_text(w, "category_guess", plim_category_text((enum plim_category)c));
            plim_jsonw_kv_u64(w, "bytes_before", diff->a.by_category[c]);
            plim_jsonw_kv_u64(w, "bytes_after", diff->b.by_category[c]);
            plim_jsonw_end(w);
        }
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "segments");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "kept", s->kept);
    plim_jsonw_kv_u64(w, "kept_bytes", s->kept_bytes);
    plim_jsonw_kv_u64(w, "new", s->new_);
    plim_jsonw_kv_u64(w, "new_bytes", s->new_bytes);
    plim_jsonw_kv_u64(w, "gone", s->gone);
    plim_jsonw_kv_u64(w, "gone_bytes", s->gone_bytes);
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
