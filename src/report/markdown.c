/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as Markdown. See markdown.h. */

#include "report/markdown.h"

#include "base/bytes.h"

#include <stdio.h>

void plim_markdown_escape(struct plim_buf *out, const char *text)
{
    for (const char *p = text ? text : ""; *p; p++) {
        switch (*p) {
        case '<':
            plim_buf_text(out, "&lt;");
            break;
        case '>':
            plim_buf_text(out, "&gt;");
            break;
        case '&':
            plim_buf_text(out, "&amp;");
            break;
        case '|':
        case '*':
        case '[':
        case ']':
        case '\\':
            plim_buf_char(out, '\\');
            plim_buf_char(out, *p);
            break;
        default:
            plim_buf_char(out, (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p);
        }
    }
}

static void item(struct plim_buf *out, const char *mark, const char *text)
{
    plim_buf_text(out, mark);
    plim_markdown_escape(out, text);
    plim_buf_char(out, '\n');
}

static void verdict(struct plim_buf *out, const struct plim_verdict *v)
{
    const char *sub = plim_subclass_text(v->subclass);
    plim_buf_printf(out, "**Verdict: `%s%s%s`** (confidence %.0f %%)\n\n", plim_class_text(v->cls),
                    *sub ? "/" : "", sub, v->confidence * 100);
    if (v->summary && *v->summary) {
        plim_markdown_escape(out, v->summary);
        plim_buf_text(out, "\n\n");
    }
}

static void ledger_row(struct plim_buf *out, const char *label, struct plim_amount amount,
                       struct plim_amount total)
{
    char size[PLIM_BYTES_TEXT];
    if (!plim_known(amount)) {
        return;
    }
    plim_buf_printf(out, "| %s | %s |", label, plim_bytes_format(size, amount.bytes));
    if (plim_known(total) && total.bytes > 0) {
        plim_buf_printf(out, " %.0f %%", 100.0 * (double)amount.bytes / (double)total.bytes);
    }
    plim_buf_printf(out, " | %s |\n", plim_how_text(amount.how));
}

/* What this process holds outside the allocator, most bytes first. */
static void ledger_parts(struct plim_buf *out, const struct plim_ledger *l)
{
    for (unsigned best = plim_ledger_part_after(l, UINT64_MAX, 0); best < PLIM_OWNERS;
         best = plim_ledger_part_after(l, l->part[best].bytes, best)) {
        char label[64];
        (void)snprintf(label, sizeof(label), "– %s", plim_ledger_part_label(best));
        ledger_row(out, label, l->part[best], l->total);
    }
}

static void ledger(struct plim_buf *out, const struct plim_ledger *l)
{
    static const char *const labels[] = {
#define PLIM__X(name, key, label) label,
        PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
    };
    struct plim_amount none = {0};
    bool any = plim_known(l->request) || plim_known(l->total);
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        any |= plim_known(l->owner[i]);
    }
    if (!any) {
        return;
    }
    plim_buf_printf(out,
                    "| memory%s%s | bytes | share | how known |\n| --- | ---: | ---: | --- |\n",
                    l->moment ? " " : "", l->moment ? l->moment : "");
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        ledger_row(out, labels[i], l->owner[i], l->total);
        if (i == PLIM_OWNER_PROCESS_OTHER) {
            ledger_parts(out, l);
        }
    }
    ledger_row(out, "**device**", l->total, none);
    if (plim_known(l->capacity) && l->capacity.bytes != l->total.bytes) {
        ledger_row(out, "**allowed**", l->capacity, none);
    }
    ledger_row(out, "**request**", l->request, l->total);
    plim_buf_char(out, '\n');
}

static void advice(struct plim_buf *out, const struct plim_finding_set *set)
{
    char size[PLIM_BYTES_TEXT];
    size_t number = 0;
    plim_buf_text(out, set->advice.n > 0 ? "What to do\n\n" : "");
    plim_vec_foreach (a, &set->advice) {
        plim_buf_printf(out, "%zu. **", ++number);
        plim_markdown_escape(out, a->action);
        plim_buf_text(out, "** ");
        plim_markdown_escape(out, a->why);
        if (plim_known(a->effect)) {
            plim_buf_printf(out, " Effect: %s (%s).", plim_bytes_format(size, a->effect.bytes),
                            plim_how_text(a->effect.how));
        }
        if (a->risk) {
            plim_buf_text(out, " Risk: ");
            plim_markdown_escape(out, a->risk);
        }
        if (a->applies_to) {
            plim_buf_text(out, " Applies to: ");
            plim_markdown_escape(out, a->applies_to);
        }
        plim_buf_char(out, '\n');
    }
    plim_buf_text(out, number > 0 ? "\n" : "");
}

void plim_markdown_finding(struct plim_buf *out, const char *title,
                           const struct plim_finding_set *set)
{
    static const char *const fits[] = {"- unknown: ", "- no: ", "- **yes**: "};
    if (title) {
        item(out, "### ", title);
        plim_buf_char(out, '\n');
    }
    verdict(out, &set->verdict);
    ledger(out, &set->ledger);
    plim_buf_text(out, set->counterfactuals.n > 0 ? "Would the request have fitted?\n\n" : "");
    plim_vec_foreach (c, &set->counterfactuals) {
        item(out, fits[c->fits], c->text);
    }
    plim_buf_text(out, set->counterfactuals.n > 0 ? "\n" : "");
    plim_buf_text(out, set->evidence.n > 0 ? "Evidence\n\n" : "");
    plim_vec_foreach (e, &set->evidence) {
        item(out, "- ", e->text);
    }
    plim_buf_text(out, set->evidence.n > 0 ? "\n" : "");
    advice(out, set);
    plim_buf_text(out, set->unknowns.n > 0 ? "Not known from this input\n\n" : "");
    plim_vec_foreach (u, &set->unknowns) {
        item(out, "- ", *u);
    }
}
