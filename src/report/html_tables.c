/* SPDX-License-Identifier: Apache-2.0 */
/* Blame, pinned segments, leak suspects and contradictions as HTML tables. web/ makes them sortable. */

#include "report/html.h"

#include "base/bytes.h"
#include "base/num.h"

static void say(struct plim_buf *out, const char *text)
{
    plim_html_text(out, plim_str_from(text ? text : ""));
}

static void number(struct plim_buf *out, uint64_t v)
{
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%llu</td>", (unsigned long long)v,
                    (unsigned long long)v);
}

static void size(struct plim_buf *out, uint64_t v)
{
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%s</td>", (unsigned long long)v,
                    plim_bytes_format(text, v));
}

static void open_table(struct plim_buf *out, const char *id, const char *title, const char *note,
                       const char *const *heads, size_t n)
{
    plim_buf_printf(out,
                    "<section id=\"%s\" aria-labelledby=\"h-%s\"><h2 id=\"h-%s\">%s</h2>"
                    "<p class=\"note\">%s</p><div class=\"wide\" tabindex=\"0\" role=\"region\" "
                    "aria-label=\"%s, table\"><table class=\"sortable\"><thead><tr>",
                    id, id, id, title, note, title);
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "<th scope=\"col\">%s</th>", heads[i]);
    }
    plim_buf_text(out, "</tr></thead><tbody>\n");
}

static void close_table(struct plim_buf *out)
{
    plim_buf_text(out, "</tbody></table></div></section>\n");
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
        size(out, row->bytes);
        plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%.1f %%</td>",
                        (unsigned long long)row->bytes, 100.0 * (double)row->bytes / (double)live);
        number(out, row->blocks);
        number(out, row->allocs);
        number(out, row->frees);
        size(out, row->bytes_born);
        plim_buf_printf(out, "<td>%s</td><td>%s", plim_category_text(row->category),
                        row->suspect ? "<b class=\"suspect\">leak suspect</b> " : "");
        say(out, row->site);
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
        size(out, row->stranded);
        size(out, row->segment_size);
        size(out, row->live);
        number(out, row->live_blocks);
        size(out, row->block_size);
        if (row->before_trace) {
            plim_buf_text(out, "<td class=\"n\" data-v=\"0\">before the recording</td>");
        } else {
            number(out, row->age_events);
        }
        plim_buf_text(out, "<td>");
        say(out, row->site);
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
        size(out, row->excess);
        plim_buf_printf(out, "<td class=\"n\" data-v=\"%.3f\">%.0f %%</td><td>", row->confidence,
                        row->confidence * 100);
        say(out, row->why);
        plim_buf_text(out, "</td><td>");
        say(out, plim_site_text(snapshot, &d->sites.sites.items[row->site], &arena));
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
