/* SPDX-License-Identifier: Apache-2.0 */
/* What changed between two snapshots as a part of the later one's page. */

#include "report/diff.h"
#include "report/html_parts.h"

static void verdicts(struct plim_buf *out, const struct plim_diff *diff)
{
    static const char *const labels[] = {"Before", "After"};
    const struct plim_verdict *sides[] = {&diff->a.set.verdict, &diff->b.set.verdict};
    for (size_t i = 0; i < 2; i++) {
        const char *sub = plim_subclass_text(sides[i]->subclass);
        plim_buf_printf(out, "<p>%s: <span class=\"class v-%s\">%s%s%s</span>. ", labels[i],
                        plim_class_text(sides[i]->cls), plim_class_text(sides[i]->cls),
                        *sub ? " / " : "", sub);
        plim_html_say(out, sides[i]->summary);
        plim_buf_text(out, "</p>\n");
    }
}

static void sites(struct plim_buf *out, const struct plim_diff *diff)
{
    static const char *const heads[] = {"change",        "before",       "after",
                                        "blocks before", "blocks after", "kind (a guess)",
                                        "allocated by"};
    size_t same = 0;
    plim_html_note(out,
                   "By place in the code, largest growth first. Places are matched by the names "
                   "in their stacks. Choose a row to see its blocks in the later snapshot.");
    plim_html_table_open(out, "What grew", heads, PLIM_COUNT_OF(heads));
    plim_vec_foreach (row, &diff->rows) {
        if (!plim_diff_changed(row)) {
            same++;
            continue;
        }
        if (row->site_b != PLIM_NO_ID) {
            plim_buf_printf(out, "<tr data-site=\"%u\">", row->site_b);
        } else {
            plim_html_row_open(out, NULL);
        }
        plim_html_cell_change(out, row->bytes_a, row->bytes_b);
        plim_html_cell_bytes(out, row->bytes_a);
        plim_html_cell_bytes(out, row->bytes_b);
        plim_html_cell_count(out, row->blocks_a);
        plim_html_cell_count(out, row->blocks_b);
        plim_html_cell_text(out, plim_category_text(row->category));
        plim_html_cell_text(out, row->site);
        plim_html_row_close(out);
    }
    plim_html_table_close(out);
    if (same > 0) {
        plim_buf_printf(out, "<p class=\"note\">%zu places hold the same as before.</p>\n", same);
    }
}

static void categories(struct plim_buf *out, const struct plim_diff *diff)
{
    static const char *const heads[] = {"kind (a guess)", "change", "before", "after"};
    plim_buf_text(out, "<h3>By kind</h3>\n");
    plim_html_table_open(out, "Live bytes by kind", heads, PLIM_COUNT_OF(heads));
    for (int c = 0; c < PLIM_CATEGORY_COUNT; c++) {
        uint64_t a = diff->a.by_category[c], b = diff->b.by_category[c];
        if (a == 0 && b == 0) {
            continue;
        }
        plim_html_row_open(out, NULL);
        plim_html_cell_text(out, plim_category_text((enum plim_category)c));
        plim_html_cell_change(out, a, b);
        plim_html_cell_bytes(out, a);
        plim_html_cell_bytes(out, b);
        plim_html_row_close(out);
    }
    plim_html_table_close(out);
}

static void segment_row(struct plim_buf *out, const char *what, uint32_t n, uint64_t bytes)
{
    plim_html_row_open(out, NULL);
    plim_html_cell_text(out, what);
    plim_html_cell_count(out, n);
    plim_html_cell_bytes(out, bytes);
    plim_html_row_close(out);
}

static void segments(struct plim_buf *out, const struct plim_diff_segments *s)
{
    static const char *const heads[] = {"segments", "number", "bytes"};
    plim_buf_text(out, "<h3>Segments</h3>\n");
    plim_html_note(out, "Matched by address and size: this means something within one run only.");
    plim_html_table_open(out, "Segments", heads, PLIM_COUNT_OF(heads));
    segment_row(out, "kept", s->kept, s->kept_bytes);
    segment_row(out, "new", s->new_, s->new_bytes);
    segment_row(out, "gone", s->gone, s->gone_bytes);
    plim_html_table_close(out);
}

void plim_html_diff(struct plim_buf *out, const void *view)
{
    const struct plim_diff *diff = view;
    plim_html_section_open(out, "diff", "What grew");
    plim_buf_text(out, "<p class=\"summary\">");
    plim_html_say(out, diff->summary);
    plim_buf_text(out, "</p>\n");
    verdicts(out, diff);
    sites(out, diff);
    categories(out, diff);
    segments(out, &diff->segments);
    plim_html_note(
        out, "Of the earlier snapshot this page holds the live bytes by stack and the verdict. "
             "Everything below is the later one.");
    plim_html_section_close(out);
}
