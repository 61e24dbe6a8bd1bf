/* SPDX-License-Identifier: Apache-2.0 */
/* The findings as HTML that needs no script: headings, lists, tables and one drawing. */

#include "report/html.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdio.h>

#define BAR_WIDTH  520.0 /* units of the drawing */
#define BAR_LEFT   300.0
#define BAR_RIGHT  110.0
#define ROW_HEIGHT 24u

static void amount_cell(struct plim_buf *out, struct plim_amount amount)
{
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%s</td>",
                    plim_known(amount) ? (unsigned long long)amount.bytes : 0ULL,
                    plim_known(amount) ? plim_bytes_format(text, amount.bytes) : "unknown");
}

static void verdict(struct plim_buf *out, const struct plim_verdict *v)
{
    const char *sub = plim_subclass_text(v->subclass);
    plim_buf_printf(out,
                    "<section id=\"verdict\" aria-labelledby=\"h-verdict\">"
                    "<h2 id=\"h-verdict\">Verdict: <span class=\"class v-%s\">%s%s%s</span></h2>",
                    plim_class_text(v->cls), plim_class_text(v->cls), *sub ? " / " : "", sub);
    plim_buf_text(out, "<p class=\"summary\">");
    plim_html_say(out, v->summary);
    plim_buf_printf(out, "</p><p class=\"confidence\">Confidence %.0f %%</p></section>\n",
                    v->confidence * 100);
}

static const char *const owner_keys[] = {
#define PLIM__X(name, key, label) key,
    PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const owner_labels[] = {
#define PLIM__X(name, key, label) label,
    PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
};

static uint64_t known_sum(const struct plim_ledger *l)
{
    uint64_t sum = 0;
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        sum = plim_add_sat(sum, plim_known(l->owner[i]) ? l->owner[i].bytes : 0);
    }
    return sum;
}

static void waterfall_row(struct plim_buf *out, const char *key, const char *label, uint64_t from,
                          uint64_t bytes, double per_byte, unsigned y)
{
    char text[PLIM_BYTES_TEXT];
    double x = BAR_LEFT + (double)from * per_byte, width = (double)bytes * per_byte;
    plim_buf_printf(out,
                    "<text x=\"%.0f\" y=\"%u\" class=\"label\">%s</text>"
                    "<rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%u\" class=\"o-%s\"/>"
                    "<text x=\"%.2f\" y=\"%u\" class=\"value\">%s</text>",
                    BAR_LEFT - 8, y + 16, label, x, y + 4, width < 1.0 && bytes ? 1.0 : width,
                    ROW_HEIGHT - 8, key, x + width + 6, y + 16, plim_bytes_format(text, bytes));
}

static void mark(struct plim_buf *out, const char *label, struct plim_amount at, double per_byte,
                 unsigned height)
{
    if (plim_known(at)) {
        double x = BAR_LEFT + (double)at.bytes * per_byte;
        plim_buf_printf(out,
                        "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"14\" y2=\"%u\" class=\"mark\"/>"
                        "<text x=\"%.2f\" y=\"11\" class=\"mark-label\">%s</text>",
                        x, x, height, x, label);
    }
}

static void waterfall(struct plim_buf *out, const struct plim_ledger *l)
{
    uint64_t sum = known_sum(l), from = 0;
    uint64_t most = plim_max_u64(plim_max_u64(sum, plim_known(l->total) ? l->total.bytes : 0), 1);
    double per_byte = BAR_WIDTH / (double)most;
    unsigned rows = plim_known(l->request) ? 1 : 0, y = 16;
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        rows += plim_known(l->owner[i]);
    }
    unsigned height = 16 + rows * ROW_HEIGHT;
    plim_buf_printf(out,
                    "<svg class=\"waterfall\" viewBox=\"0 0 %.0f %u\" role=\"img\" "
                    "aria-label=\"Waterfall of the ledger; the table below has its numbers\">",
                    BAR_LEFT + BAR_WIDTH + BAR_RIGHT, height + 4);
    /* The line first: the figures beside the bars stand on it. */
    mark(out, "capacity", l->capacity, plim_known(l->total) ? per_byte : 0, height);
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        if (plim_known(l->owner[i])) {
            waterfall_row(out, owner_keys[i], owner_labels[i], from, l->owner[i].bytes, per_byte,
                          y);
            from = plim_add_sat(from, l->owner[i].bytes);
            y += ROW_HEIGHT;
        }
    }
    if (plim_known(l->request)) {
        uint64_t bytes = plim_min_u64(l->request.bytes, most);
        waterfall_row(out, "request", "the failing request", 0, bytes, per_byte, y);
    }
    plim_buf_text(out, "</svg>\n");
}

static void ledger_row(struct plim_buf *out, const char *key, const char *label,
                       struct plim_amount amount, struct plim_amount total)
{
    if (!plim_known(amount)) {
        return;
    }
    plim_buf_printf(out, "<tr><th scope=\"row\"><i class=\"key o-%s\"></i>%s</th>", key, label);
    amount_cell(out, amount);
    if (plim_known(total) && total.bytes > 0) {
        plim_buf_printf(out, "<td class=\"n\">%.1f %%</td>",
                        100.0 * (double)amount.bytes / (double)total.bytes);
    } else {
        plim_buf_text(out, "<td class=\"n\"></td>");
    }
    plim_buf_printf(out, "<td>%s</td></tr>", plim_how_text(amount.how));
}

/* What this process holds outside the allocator, most bytes first. */
static void ledger_parts(struct plim_buf *out, const struct plim_ledger *l)
{
    for (unsigned best = plim_ledger_part_after(l, UINT64_MAX, 0); best < PLIM_OWNERS;
         best = plim_ledger_part_after(l, l->part[best].bytes, best)) {
        char label[64];
        (void)snprintf(label, sizeof(label), "– %s", plim_ledger_part_label(best));
        ledger_row(out, "none", label, l->part[best], l->total);
    }
}

static void ledger(struct plim_buf *out, const struct plim_ledger *l)
{
    plim_buf_text(out, "<section id=\"ledger\" aria-labelledby=\"h-ledger\">"
                       "<h2 id=\"h-ledger\">Where the bytes are, ");
    plim_html_say(out, l->moment ? l->moment : "at the end");
    plim_buf_text(out, "</h2>");
    waterfall(out, l);
    plim_buf_text(out, "<details><summary>The numbers</summary><table><thead><tr>"
                       "<th scope=\"col\">owner</th><th scope=\"col\">bytes</th>"
                       "<th scope=\"col\">of the device</th><th scope=\"col\">how known</th>"
                       "</tr></thead><tbody>");
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        ledger_row(out, owner_keys[i], owner_labels[i], l->owner[i], l->total);
        if (i == PLIM_OWNER_PROCESS_OTHER) {
            ledger_parts(out, l);
        }
    }
    ledger_row(out, "none", "device total", l->total, l->total);
    ledger_row(out, "none", "capacity of this process", l->capacity, l->total);
    ledger_row(out, "none", "allocated (live and rounding)", l->allocated, l->total);
    ledger_row(out, "none", "reserved by the allocator", l->reserved, l->total);
    ledger_row(out, "request", "the failing request", l->request, l->total);
    plim_buf_text(out, "</tbody></table></details></section>\n");
}

static void counterfactuals(struct plim_buf *out, const struct plim_finding_set *set)
{
    static const char *const fits[] = {"unknown", "no", "yes"};
    if (set->counterfactuals.n == 0) {
        return;
    }
    plim_html_section_open(out, "counterfactuals", "What would have saved it");
    plim_buf_text(out, "<table><thead><tr>"
                       "<th scope=\"col\">without</th><th scope=\"col\">it would fit</th>"
                       "<th scope=\"col\">gains</th></tr></thead><tbody>");
    plim_vec_foreach (c, &set->counterfactuals) {
        plim_buf_text(out, "<tr>");
        plim_html_element(out, "td", c->text);
        plim_buf_printf(out, "<td class=\"fits-%s\">%s</td>", fits[c->fits], fits[c->fits]);
        amount_cell(out, c->gains);
        plim_buf_text(out, "</tr>");
    }
    plim_buf_text(out, "</tbody></table>");
    plim_html_section_close(out);
}

static void evidence(struct plim_buf *out, const struct plim_finding_set *set)
{
    if (set->evidence.n == 0) {
        return;
    }
    plim_html_section_open(out, "evidence", "Evidence");
    plim_buf_text(out, "<ul>");
    plim_vec_foreach (e, &set->evidence) {
        plim_buf_text(out, "<li>");
        plim_html_say(out, e->text);
        plim_buf_printf(out, " <small>(%s)</small></li>", plim_how_text(e->how));
    }
    plim_buf_text(out, "</ul>");
    plim_html_section_close(out);
}

static void advice(struct plim_buf *out, const struct plim_finding_set *set)
{
    if (set->advice.n == 0) {
        return;
    }
    plim_html_section_open(out, "advice", "What to do");
    plim_buf_text(out, "<ol>");
    plim_vec_foreach (a, &set->advice) {
        char text[PLIM_BYTES_TEXT];
        plim_buf_text(out, "<li>");
        plim_html_element(out, "strong", a->action);
        plim_buf_char(out, ' ');
        plim_html_say(out, a->why);
        if (plim_known(a->effect)) {
            plim_buf_printf(out, " <span class=\"effect\">Gains %s (%s).</span>",
                            plim_bytes_format(text, a->effect.bytes), plim_how_text(a->effect.how));
        }
        if (a->risk) {
            plim_buf_text(out, " <span class=\"risk\">Risk: ");
            plim_html_say(out, a->risk);
            plim_buf_text(out, "</span>");
        }
        if (a->applies_to) {
            plim_buf_text(out, " <small>Applies to: ");
            plim_html_say(out, a->applies_to);
            plim_buf_text(out, "</small>");
        }
        plim_buf_text(out, "</li>");
    }
    plim_buf_text(out, "</ol>");
    plim_html_section_close(out);
}

static void unknowns(struct plim_buf *out, const struct plim_finding_set *set)
{
    if (set->unknowns.n == 0) {
        return;
    }
    plim_html_section_open(out, "unknowns", "What this input cannot tell");
    plim_buf_text(out, "<ul>");
    plim_vec_foreach (text, &set->unknowns) {
        plim_html_element(out, "li", *text);
    }
    plim_buf_text(out, "</ul>");
    plim_html_section_close(out);
}

void plim__html_findings(struct plim_buf *out, const struct plim_diagnosis *d)
{
    verdict(out, &d->set.verdict);
    ledger(out, &d->set.ledger);
    counterfactuals(out, &d->set);
    evidence(out, &d->set);
    advice(out, &d->set);
    unknowns(out, &d->set);
}
