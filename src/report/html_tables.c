/* SPDX-License-Identifier: Apache-2.0 */
/* Blame, pinned segments, leak suspects and contradictions as HTML tables. web/ makes them sortable. */

#include "report/html.h"

#include "base/num.h"

/* A section of one table. */
static void open_table(struct plim_buf *out, const char *id, const char *title, const char *note,
                       const char *const *heads, size_t n)
{
    plim_html_section_open(out, id, title);
    plim_html_note(out, note);
    plim_html_table_open(out, title, heads, n);
}

static void close_table(struct plim_buf *out)
{
    plim_html_table_close(out);
    plim_html_section_close(out);
}

static void blame(struct plim_buf *out, const struct plim_diagnosis *d)
{
    static const char *const heads[] = {"live bytes",     "share",       "blocks",
                                        "allocations",    "frees",       "born bytes",
                                        "kind (a guess)", "allocated by"};
    uint64_t live = plim_max_u64(d->set.ledger.allocated.bytes, 1);
    if (d->blame.n == 0) {
        return;
    }
    open_table(out, "blame", "Who holds the live bytes",
               "By place in the code, innermost first. Choose a row to see its blocks everywhere.",
               heads, PLIM_COUNT_OF(heads));
    plim_vec_foreach (row, &d->blame) {
        uint32_t site = plim_site_of(&d->sites, row->stack);
        plim_buf_printf(out, "<tr data-site=\"%u\">", site);
        plim_html_cell_bytes(out, row->bytes);
        plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%.1f %%</td>",
                        (unsigned long long)row->bytes, 100.0 * (double)row->bytes / (double)live);
        plim_html_cell_count(out, row->blocks);
        plim_html_cell_count(out, row->allocs);
        plim_html_cell_count(out, row->frees);
        plim_html_cell_bytes(out, row->bytes_born);
        plim_buf_printf(out, "<td>%s</td><td>%s", plim_category_text(row->category),
                        row->suspect ? "<b class=\"suspect\">leak suspect</b> " : "");
        plim_html_say(out, row->site);
        plim_buf_text(out, "</td></tr>\n");
    }
    close_table(out);
}

static void pins(struct plim_buf *out, const struct plim_diagnosis *d)
{
    static const char *const heads[] = {"stranded",    "segment",      "live",
                                        "live blocks", "oldest block", "age in events",
                                        "allocated by"};
    if (d->pins.n == 0) {
        return;
    }
    open_table(out, "pins", "What pins the stranded bytes",
               "Segments that cannot go back to the driver, and the oldest live block in each.",
               heads, PLIM_COUNT_OF(heads));
    plim_vec_foreach (row, &d->pins) {
        plim_buf_printf(out, "<tr data-addr=\"%llu\">", (unsigned long long)row->block_addr);
        plim_html_cell_bytes(out, row->stranded);
        plim_html_cell_bytes(out, row->segment_size);
        plim_html_cell_bytes(out, row->live);
        plim_html_cell_count(out, row->live_blocks);
        plim_html_cell_bytes(out, row->block_size);
        if (row->before_trace) {
            plim_buf_text(out, "<td class=\"n\" data-v=\"0\">before the recording</td>");
        } else {
            plim_html_cell_count(out, row->age_events);
        }
        plim_buf_text(out, "<td>");
        plim_html_say(out, row->site);
        plim_buf_text(out, "</td></tr>\n");
    }
    close_table(out);
}

static void suspects(struct plim_buf *out, const struct plim_snapshot *snapshot,
                     const struct plim_diagnosis *d)
{
    static const char *const heads[] = {"excess", "confidence", "why", "allocated by"};
    struct plim_arena arena;
    if (d->leaks.suspects.n == 0) {
        return;
    }
    plim_arena_init(&arena, 0);
    open_table(out, "suspects", "Leak suspects",
               "Places whose blocks accumulate all along the trace while the rest keeps freeing.",
               heads, PLIM_COUNT_OF(heads));
    plim_vec_foreach (row, &d->leaks.suspects) {
        plim_buf_printf(out, "<tr data-site=\"%u\">", row->site);
        plim_html_cell_bytes(out, row->excess);
        plim_buf_printf(out, "<td class=\"n\" data-v=\"%.3f\">%.0f %%</td><td>", row->confidence,
                        row->confidence * 100);
        plim_html_say(out, row->why);
        plim_buf_text(out, "</td><td>");
        plim_html_say(out, plim_site_text(snapshot, &d->sites.sites.items[row->site], &arena));
        plim_buf_text(out, "</td></tr>\n");
    }
    close_table(out);
    plim_arena_fini(&arena);
}

static void contradictions(struct plim_buf *out, const struct plim_snapshot *snapshot)
{
    if (snapshot->findings.n == 0) {
        return;
    }
    plim_buf_text(out, "<section id=\"contradictions\" aria-labelledby=\"h-con\">"
                       "<h2 id=\"h-con\">Contradictions in the snapshot</h2><ul>");
    plim_vec_foreach (f, &snapshot->findings) {
        plim_buf_text(out, "<li>");
        plim_html_text(out, plim_intern_str(&snapshot->strings, f->where));
        plim_buf_text(out, ": ");
        plim_html_text(out, plim_intern_str(&snapshot->strings, f->text));
        plim_buf_text(out, "</li>");
    }
    if (snapshot->findings_dropped > 0) {
        plim_buf_printf(out, "<li>and %llu more</li>",
                        (unsigned long long)snapshot->findings_dropped);
    }
    plim_buf_text(out, "</ul></section>\n");
}

void plim__html_tables(struct plim_buf *out, const struct plim_snapshot *snapshot,
                       const struct plim_diagnosis *d)
{
    blame(out, d);
    suspects(out, snapshot, d);
    pins(out, d);
    contradictions(out, snapshot);
}
