/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading one failure's message from the lines that were collected for it: what is captured goes to
 * the event's facts. A message may be broken into lines by the program, by a mailer at blanks, or by a
 * terminal anywhere; so the text is read twice, with its line ends as blanks and without them, and the
 * reading that understands more counts.
 */

#include "format/oomtext_internal.h"

static const unsigned weights[] = {
#define PLIM__X(name, weight) weight,
    PLIM_OOM_MEANING_MAP(PLIM__X)
#undef PLIM__X
};

void plim__oom_weigh(struct plim_oom_event *event, const struct plim_oom_row *row)
{
    if (weights[row->meaning] > weights[event->meaning]) {
        event->meaning = row->meaning;
        event->family = row->family;
        event->format = row->format;
    }
}

bool plim__oom_vague(const struct plim_oom_event *event)
{
    return weights[event->meaning] <= weights[PLIM_OOM_MEANS_GENERIC_OOM];
}

/* The same figure, printed with more digits: "17.79G (19104890880 bytes)". */
static bool more_exact(const struct plim_oom_value *value, const struct plim_oom_value *than)
{
    uint64_t apart = value->n > than->n ? value->n - than->n : than->n - value->n;
    return value->slop < than->slop && apart <= than->slop;
}

void plim__oom_set_field(struct plim_oom_facts *facts, enum plim_oom_field field,
                         const struct plim_oom_value *value, uint64_t line, bool replace)
{
    struct plim_oom_value *slot = &facts->field[field];
    if (!slot->set || replace || more_exact(value, slot)) {
        *slot = *value;
        slot->line = line;
    }
}

void plim__oom_add_process(struct plim_oom_facts *facts, uint64_t pid, uint64_t bytes, bool listed)
{
    for (size_t i = 0; i < facts->processes; i++) {
        if (facts->process[i].pid == pid && facts->process[i].bytes == bytes) {
            return;
        }
    }
    if (facts->processes < PLIM_OOM_PROCESSES) {
        facts->process[facts->processes++] = (struct plim_oom_process){pid, bytes, listed};
    }
}

/* The captures of one match; a process and its pid go together. */
void plim__oom_set_captures(struct plim_oom_facts *facts, const struct plim__oom_match *match,
                            uint64_t line, bool replace)
{
    uint64_t pid = 0;
    for (size_t i = 0; i < match->captures; i++) {
        const struct plim__oom_capture *c = &match->capture[i];
        if (c->field == PLIM_OOM_PID) {
            pid = c->value.n;
        }
        if (c->field == PLIM_OOM_PROCESS || c->field == PLIM_OOM_SMI_PROCESS) {
            plim__oom_add_process(facts, pid, c->value.n, c->field == PLIM_OOM_SMI_PROCESS);
        } else {
            plim__oom_set_field(facts, c->field, &c->value, line, replace);
        }
    }
}

/* ---- one reading of the text ---- */

struct reading {
    struct plim_oom_event event;
    const struct plim_oom_row *version; /* the last row of the table that names versions */
    struct plim__oom_hits failures;
    size_t matched; /* bytes of failure rows */
};

static void visit_failure(void *ctx, const struct plim_oom_row *row,
                          const struct plim__oom_match *match)
{
    struct reading *reading = ctx;
    struct plim__oom_hits *hits = &reading->failures;
    if (row->role == PLIM_OOM_FAILURE && hits->n < PLIM__OOM_HITS) {
        hits->hit[hits->n++] = (struct plim__oom_hit){row, *match};
    }
}

static void visit_clause(void *ctx, const struct plim_oom_row *row,
                         const struct plim__oom_match *match)
{
    struct reading *reading = ctx;
    struct plim_oom_event *event = &reading->event;
    if (row->role != PLIM_OOM_CLAUSE ||
        (row->family != PLIM_OOM_FAMILY_ANY && row->family != event->family)) {
        return;
    }
    if (row->format && (!reading->version || row > reading->version)) {
        reading->version = row;
    }
    plim__oom_set_captures(&event->facts, match, event->line, false);
}

/* A match inside a larger one says nothing of its own. */
bool plim__oom_covered(const struct plim__oom_hits *hits, size_t i)
{
    const struct plim__oom_hit *hit = &hits->hit[i];
    for (size_t j = 0; j < hits->n; j++) {
        const struct plim__oom_hit *other = &hits->hit[j];
        bool inside = other->match.start <= hit->match.start && other->match.end >= hit->match.end;
        bool same = other->match.start == hit->match.start && other->match.end == hit->match.end;
        bool twin = same && j < i && hit->row->role == PLIM_OOM_FAILURE &&
                    other->row->role == PLIM_OOM_FAILURE;
        if (j != i && inside && (!same || twin)) {
            return true;
        }
    }
    return false;
}

/* Failure rows first: a line end may have hidden the one that says most; then the family's clauses. */
static void read_text(const struct plim__oom_builder *b, struct plim_str text,
                      struct reading *reading)
{
    struct plim_oom_event *event = &reading->event;
    struct plim_oom_event before = *event;
    event->meaning = PLIM_OOM_MEANS_NOTHING;
    plim__oom_find_each(b->heads, text, visit_failure, reading);
    for (size_t i = 0; i < reading->failures.n; i++) {
        const struct plim__oom_hit *hit = &reading->failures.hit[i];
        if (!plim__oom_covered(&reading->failures, i)) {
            plim__oom_weigh(event, hit->row);
            event->facts.seen[hit->row->meaning] = event->last_line;
            reading->matched += hit->match.end - hit->match.start;
        }
    }
    if (event->meaning == PLIM_OOM_MEANS_NOTHING) {
        *event = before;
    }
    plim__oom_find_each(b->parts, text, visit_clause, reading);
    for (size_t i = 0; i < reading->failures.n; i++) {
        if (!plim__oom_covered(&reading->failures, i)) {
            plim__oom_set_captures(&event->facts, &reading->failures.hit[i].match, event->line,
                                   false);
        }
    }
    event->versions = reading->version ? reading->version->format : NULL;
}

static unsigned fields_set(const struct plim_oom_facts *facts)
{
    unsigned n = 0;
    for (int f = 0; f < PLIM_OOM_FIELD_COUNT; f++) {
        n += facts->field[f].set;
    }
    return n + (unsigned)facts->processes;
}

/* The text without its line ends; *inside tells whether one stood inside a number. */
static size_t unwrap(struct plim_str text, size_t column, char *out, bool *inside)
{
    size_t k = 0;
    *inside = false;
    for (size_t i = 0; i < text.n; i++, column++) {
        if (text.p[i] != '\n') {
            out[k++] = text.p[i];
        } else {
            bool left = i > 0 && text.p[i - 1] != 0 && strchr("0123456789.", text.p[i - 1]);
            bool right =
                i + 1 < text.n && text.p[i + 1] != 0 && strchr("0123456789.", text.p[i + 1]);
            *inside |= left && right && column >= PLIM__OOM_WRAP_COLUMNS;
            column = 0;
        }
    }
    return k;
}

/* The text with one newline for each run of blanks that holds one. */
static size_t collapse(struct plim_str text, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '\n') {
            while (k > 0 && (out[k - 1] == ' ' || out[k - 1] == '\t')) {
                k--;
            }
        }
        out[k++] = text.p[i];
    }
    return k;
}

static bool better(const struct reading *a, const struct reading *b, bool tie)
{
    unsigned fields_a = fields_set(&a->event.facts), fields_b = fields_set(&b->event.facts);
    return fields_a != fields_b ? fields_a > fields_b
                                : a->matched > b->matched || (a->matched == b->matched && tie);
}

void plim__oom_read_message(struct plim__oom_builder *b, struct plim_oom_event *event)
{
    struct plim_str text = {b->text, b->text_n};
    size_t first_line = plim_str_find(text, PLIM_STR("\n"));
    bool inside = false;
    struct reading with = {.event = *event}, without = {.event = *event};
    read_text(b, (struct plim_str){b->clean, collapse(text, b->clean)}, &with);
    if (first_line != SIZE_MAX && first_line + b->text_column >= PLIM__OOM_WRAP_COLUMNS) {
        size_t n = unwrap(text, b->text_column, b->clean, &inside);
        read_text(b, (struct plim_str){b->clean, n}, &without);
        *event = better(&without, &with, inside) ? without.event : with.event;
    } else {
        *event = with.event;
    }
}
