/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as text for a terminal. See text.h. */

#include "report/text.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdio.h>

#define WIDTH_DEFAULT  80
#define WIDTH_LEAST    40
#define EVIDENCE_SHOWN 3
#define SIZE_COLUMN    10 /* "1023.9 MiB" */
#define SHARE_COLUMN   5  /* "100 %" */
#define BAR_LEAST      8
#define BAR_MOST       32

#define ANSI_RESET "\033[0m"
#define ANSI_BOLD  "\033[1m"
#define ANSI_DIM   "\033[2m"

static unsigned width_of(const struct plim_text_style *style)
{
    unsigned width = style->width == 0 ? WIDTH_DEFAULT : style->width;
    return width < WIDTH_LEAST ? WIDTH_LEAST : width;
}

static void ansi(struct plim_buf *out, const struct plim_text_style *style, const char *code)
{
    if (style->color) {
        plim_buf_text(out, code);
    }
}

static const char *class_color(enum plim_class cls)
{
    switch (cls) {
    case PLIM_CLASS_HEALTHY:
    case PLIM_CLASS_NOT_OOM:
        return "\033[1;32m";
    case PLIM_CLASS_UNKNOWN:
        return "\033[1;33m";
    default:
        return "\033[1;31m";
    }
}

static const char *owner_color(enum plim_owner owner)
{
    static const char *const colors[PLIM_OWNER_COUNT] = {
        [PLIM_OWNER_LIVE] = "\033[34m",
        [PLIM_OWNER_ROUNDING] = "\033[36m",
        [PLIM_OWNER_STRANDED] = "\033[31m",
        [PLIM_OWNER_RELEASABLE] = "\033[32m",
        [PLIM_OWNER_PRIVATE_FREE] = "\033[35m",
        [PLIM_OWNER_PROCESS_OTHER] = "\033[33m",
        [PLIM_OWNER_OTHER_PROCESSES] = "\033[33m",
        [PLIM_OWNER_DRIVER_RESERVED] = "\033[90m",
        [PLIM_OWNER_FREE] = "\033[32m",
        [PLIM_OWNER_UNACCOUNTED] = "\033[90m",
    };
    return colors[owner];
}

static const char *owner_label(enum plim_owner owner)
{
    static const char *const labels[] = {
#define PLIM__X(name, key, label) label,
        PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
    };
    return labels[owner];
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t plim_text_columns(struct plim_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += !continues(s.p[i]);
    }
    return n;
}

/* Printable bytes of s only: escape sequences from the input must not reach the terminal. */
static void add_clean(struct plim_buf *out, struct plim_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] >= 0x20 && s.p[i] != 0x7f) {
            plim_buf_char(out, s.p[i]);
        }
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The next word of *rest, without blanks around it; false at the end. */
static bool next_word(struct plim_str *rest, struct plim_str *word)
{
    while (rest->n > 0 && is_blank(rest->p[0])) {
        *rest = plim_str_skip(*rest, 1);
    }
    size_t n = 0;
    while (n < rest->n && !is_blank(rest->p[n])) {
        n++;
    }
    *word = (struct plim_str){rest->p, n};
    *rest = plim_str_skip(*rest, n);
    return n > 0;
}

void plim_text_wrap(struct plim_buf *out, const char *first, const char *text,
                    const struct plim_text_style *style)
{
    size_t indent = plim_text_columns(plim_str_from(first));
    size_t width = width_of(style), column = indent;
    struct plim_str rest = plim_str_from(text ? text : ""), word;
    bool line_empty = true;
    plim_buf_text(out, first);
    while (next_word(&rest, &word)) {
        size_t n = plim_text_columns(word);
        if (!line_empty && column + 1 + n > width) {
            plim_buf_char(out, '\n');
            plim_buf_repeat(out, " ", indent);
            column = indent;
            line_empty = true;
        }
        if (!line_empty) {
            plim_buf_char(out, ' ');
            column++;
        }
        add_clean(out, word);
        column += n;
        line_empty = false;
    }
    plim_buf_char(out, '\n');
}

void plim_text_heading(struct plim_buf *out, const char *title, const struct plim_text_style *style)
{
    plim_buf_char(out, '\n');
    ansi(out, style, ANSI_BOLD);
    plim_buf_text(out, title);
    ansi(out, style, ANSI_RESET);
    plim_buf_char(out, '\n');
}

void plim_text_verdict(struct plim_buf *out, const struct plim_verdict *verdict,
                       const struct plim_text_style *style)
{
    ansi(out, style, class_color(verdict->cls));
    for (const char *p = plim_class_text(verdict->cls); *p; p++) {
        plim_buf_char(out, *p == '_' ? ' ' : (*p >= 'a' && *p <= 'z') ? (char)(*p - 32) : *p);
    }
    ansi(out, style, ANSI_RESET);
    const char *sub = plim_subclass_text(verdict->subclass);
    if (*sub) {
        plim_buf_text(out, ", ");
        for (; *sub; sub++) {
            plim_buf_char(out, *sub == '_' ? ' ' : *sub);
        }
    }
    plim_buf_printf(out, " (confidence %.0f %%)\n", verdict->confidence * 100);
    if (verdict->summary && *verdict->summary) {
        plim_text_wrap(out, "  ", verdict->summary, style);
    }
}

/* What the bars are measured against: the device, or more when the figures exceed it. */
static uint64_t bar_scale(const struct plim_ledger *ledger)
{
    uint64_t sum = 0;
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        if (plim_known(ledger->owner[i])) {
            sum = plim_add_sat(sum, ledger->owner[i].bytes);
        }
    }
    return plim_known(ledger->total) ? plim_max_u64(sum, ledger->total.bytes) : sum;
}

static void add_bar(struct plim_buf *out, uint64_t bytes, uint64_t scale, size_t columns,
                    const struct plim_text_style *style)
{
    /* Eighths of a column, so that one percent of the device can still be seen. */
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double exact = scale == 0 ? 0 : (double)bytes / (double)scale * (double)columns;
    if (exact > (double)columns) {
        exact = (double)columns;
    }
    size_t full = (size_t)exact, used = full;
    if (style->unicode) {
        unsigned part = (unsigned)((exact - (double)full) * 8);
        part = full == 0 && part == 0 && bytes > 0 ? 1 : part;
        plim_buf_repeat(out, "█", full);
        plim_buf_text(out, eighths[part]);
        used += part > 0;
    } else {
        full += exact - (double)full >= 0.5 || (full == 0 && bytes > 0);
        plim_buf_repeat(out, "#", full);
        used = full;
    }
    plim_buf_repeat(out, " ", columns > used ? columns - used : 0);
}

static size_t bar_columns(size_t label_columns, const struct plim_text_style *style)
{
    size_t fixed = 2 + label_columns + 1 + 2 + SIZE_COLUMN + 2 + SHARE_COLUMN + 2;
    size_t width = width_of(style);
    size_t bar = width > fixed + BAR_LEAST ? width - fixed : BAR_LEAST;
    return bar > BAR_MOST ? BAR_MOST : bar;
}

static void ledger_share(struct plim_buf *out, const struct plim_ledger *ledger, uint64_t bytes)
{
    if (plim_known(ledger->total) && ledger->total.bytes > 0) {
        plim_buf_printf(out, "  %3.0f %%", 100.0 * (double)bytes / (double)ledger->total.bytes);
    }
}

static void ledger_row(struct plim_buf *out, enum plim_owner owner,
                       const struct plim_ledger *ledger, size_t label_columns,
                       const struct plim_text_style *style)
{
    char size[PLIM_BYTES_TEXT];
    struct plim_amount amount = ledger->owner[owner];
    size_t bar = bar_columns(label_columns, style);
    plim_buf_printf(out, "  %-*s ", (int)label_columns, owner_label(owner));
    ansi(out, style, owner_color(owner));
    add_bar(out, amount.bytes, bar_scale(ledger), bar, style);
    ansi(out, style, ANSI_RESET);
    plim_buf_printf(out, "  %*s", SIZE_COLUMN, plim_bytes_format(size, amount.bytes));
    ledger_share(out, ledger, amount.bytes);
    /* How a figure was obtained is said where it is not simply what somebody measured. */
    plim_buf_text(out, amount.how == PLIM_HOW_ESTIMATED ? " ~\n" : "\n");
}

/* What the memory of this process outside the allocator is made of, most bytes first. */
static void ledger_parts(struct plim_buf *out, const struct plim_ledger *ledger,
                         size_t label_columns, const struct plim_text_style *style)
{
    uint64_t below = UINT64_MAX;
    unsigned last = 0;
    for (;;) {
        unsigned best = plim_ledger_part_after(ledger, below, last);
        if (best == PLIM_OWNERS) {
            return;
        }
        below = ledger->part[best].bytes;
        last = best;
        char size[PLIM_BYTES_TEXT];
        size_t bar = bar_columns(label_columns, style);
        plim_buf_printf(out, "    - %-*s %*s  %*s", (int)(label_columns - 4),
                        plim_ledger_part_label(best), (int)bar, "", SIZE_COLUMN,
                        plim_bytes_format(size, below));
        ledger_share(out, ledger, below);
        plim_buf_text(out, ledger->part[best].how == PLIM_HOW_ESTIMATED ? " ~\n" : "\n");
    }
}

static void ledger_title(struct plim_buf *out, const struct plim_ledger *ledger,
                         const struct plim_text_style *style)
{
    char title[160], total[PLIM_BYTES_TEXT];
    if (plim_known(ledger->total)) {
        snprintf(title, sizeof(title), "Where the %s of the device are",
                 plim_bytes_format(total, ledger->total.bytes));
    } else {
        snprintf(title, sizeof(title), "What is known of the device's memory");
    }
    plim_text_heading(out, title, style);
}

/* Owners of nothing are left out; free bytes are always worth a line. */
static bool is_shown(const struct plim_ledger *ledger, int owner)
{
    return plim_known(ledger->owner[owner]) &&
           (ledger->owner[owner].bytes > 0 || owner == PLIM_OWNER_FREE);
}

/* "request 194 MiB; allowed 7.20 GiB; at the failure; ~ estimated" */
static void ledger_note(struct plim_buf *out, const struct plim_ledger *ledger, bool estimated,
                        const struct plim_text_style *style)
{
    char size[PLIM_BYTES_TEXT];
    const char *sep = "  ";
    ansi(out, style, ANSI_DIM);
    if (plim_known(ledger->request)) {
        plim_buf_printf(out, "%srequest %s", sep, plim_bytes_format(size, ledger->request.bytes));
        sep = "; ";
    }
    if (plim_known(ledger->capacity) && plim_known(ledger->total) &&
        ledger->capacity.bytes != ledger->total.bytes) {
        plim_buf_printf(out, "%sallowed %s", sep, plim_bytes_format(size, ledger->capacity.bytes));
        sep = "; ";
    }
    if (ledger->moment) {
        plim_buf_printf(out, "%s%s", sep, ledger->moment);
        sep = "; ";
    }
    plim_buf_printf(out, "%s", estimated ? (*sep == ';' ? "; ~ estimated" : "  ~ estimated") : "");
    ansi(out, style, ANSI_RESET);
    plim_buf_text(out, *sep == ';' || estimated ? "\n" : "");
}

void plim_text_ledger(struct plim_buf *out, const struct plim_ledger *ledger,
                      const struct plim_text_style *style)
{
    size_t label_columns = 0;
    bool estimated = false;
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        if (is_shown(ledger, i)) {
            size_t n = strlen(owner_label((enum plim_owner)i));
            label_columns = n > label_columns ? n : label_columns;
            estimated |= ledger->owner[i].how == PLIM_HOW_ESTIMATED;
        }
    }
    if (label_columns == 0) {
        return;
    }
    ledger_title(out, ledger, style);
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        if (is_shown(ledger, i)) {
            ledger_row(out, (enum plim_owner)i, ledger, label_columns, style);
            if (i == PLIM_OWNER_PROCESS_OTHER) {
                ledger_parts(out, ledger, label_columns, style);
            }
        }
    }
    ledger_note(out, ledger, estimated, style);
}

void plim_text_counterfactuals(struct plim_buf *out, const struct plim_finding_set *set,
                               const struct plim_text_style *style)
{
    static const char *const marks[] = {"  ?    ", "  no   ", "  yes  "};
    if (set->counterfactuals.n == 0) {
        return;
    }
    bool any_fits = false;
    plim_vec_foreach (c, &set->counterfactuals) {
        any_fits |= c->fits == PLIM_FITS_YES;
    }
    plim_text_heading(out, "Would the request have fitted?", style);
    plim_vec_foreach (c, &set->counterfactuals) {
        if (!any_fits ||
            c->fits == PLIM_FITS_YES) { /* what would not have helped only when nothing would */
            plim_text_wrap(out, marks[c->fits], c->text, style);
        }
    }
}

void plim_text_evidence(struct plim_buf *out, const struct plim_finding_set *set,
                        const struct plim_text_style *style)
{
    size_t most = style->evidence == 0 ? EVIDENCE_SHOWN : style->evidence;
    if (set->evidence.n == 0) {
        return;
    }
    plim_text_heading(out, "Evidence", style);
    for (size_t i = 0; i < set->evidence.n && i < most; i++) {
        plim_text_wrap(out, "  - ", set->evidence.items[i].text, style);
    }
}

static void advice_reason(struct plim_buf *out, const struct plim_advice *advice,
                          const struct plim_text_style *style)
{
    struct plim_buf why = {0};
    char size[PLIM_BYTES_TEXT];
    plim_buf_text(&why, advice->why ? advice->why : "");
    if (plim_known(advice->effect)) {
        plim_buf_printf(&why, " Effect: %s (%s).", plim_bytes_format(size, advice->effect.bytes),
                        plim_how_text(advice->effect.how));
    }
    if (advice->risk) {
        plim_buf_printf(&why, " Risk: %s", advice->risk);
    }
    if (advice->applies_to) {
        plim_buf_printf(&why, " Applies to: %s", advice->applies_to);
    }
    if (why.n > 0) {
        plim_text_wrap(out, "     ", why.p, style);
    }
    out->failed |= why.failed;
    plim_buf_fini(&why);
}

void plim_text_advice(struct plim_buf *out, const struct plim_finding_set *set,
                      const struct plim_text_style *style)
{
    if (set->advice.n == 0) {
        return;
    }
    plim_text_heading(out, "What to do", style);
    for (size_t i = 0; i < set->advice.n; i++) {
        char number[32];
        snprintf(number, sizeof(number), "  %zu. ", i + 1);
        ansi(out, style, ANSI_BOLD);
        plim_text_wrap(out, number, set->advice.items[i].action, style);
        ansi(out, style, ANSI_RESET);
        advice_reason(out, &set->advice.items[i], style);
    }
}

void plim_text_unknowns(struct plim_buf *out, const struct plim_finding_set *set,
                        const struct plim_text_style *style)
{
    if (set->unknowns.n == 0) {
        return;
    }
    plim_text_heading(out, "Not known from this input", style);
    plim_vec_foreach (unknown, &set->unknowns) {
        plim_text_wrap(out, "  - ", *unknown, style);
    }
}

void plim_text_finding(struct plim_buf *out, const struct plim_finding_set *set,
                       const struct plim_text_style *style)
{
    plim_text_verdict(out, &set->verdict, style);
    plim_text_ledger(out, &set->ledger, style);
    plim_text_counterfactuals(out, set, style);
    plim_text_evidence(out, set, style);
    plim_text_advice(out, set, style);
    plim_text_unknowns(out, set, style);
}
