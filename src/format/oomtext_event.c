/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From lines with matches to events. A failure opens an event; what follows it within a few lines
 * belongs to the same incident: parts of its message, echoes by outer layers, stack frames. The
 * weightiest failure of an incident is its cause. When the event closes, the clauses of its family
 * are read from the joined text, so that it does not matter how the message was broken into lines.
 * Then it is compared with earlier ones: the same report printed twice, or by several ranks, is one.
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#define SMALL_LINES    400   /* in so short a text every fact concerns every failure */
#define SAME_LINES     400   /* a reprint of the same failure stands at most so far away */
#define SAME_MS        15000 /* ... and so much later */
#define RANK_LINES     4000  /* another rank's report of the same failure */
#define RANK_MS        120000
#define AFTER_LINES    12  /* stack frames below the message (C and C++ programs) */
#define EXCERPT_BEFORE 60  /* bytes in front of a match that its excerpt shows */
#define VERB_REACH     20  /* bytes in front of a match in which a word can have it as its object */
#define HEAD_KEPT      256 /* bytes kept in front of the failure on an overlong line */

static struct plim_oom_event *last_event(struct plim__oom_builder *b)
{
    return &b->out->events.items[b->out->events.n - 1];
}

/* ---- facts ---- */

/* Session facts: the latest value counts, but of several devices the fullest, and both extremes. */
static void set_session(struct plim__oom_builder *b, const struct plim__oom_hit *hit, uint64_t line)
{
    struct plim_oom_facts *facts = &b->out->session;
    for (size_t i = 0; i < hit->match.captures; i++) {
        const struct plim__oom_capture *c = &hit->match.capture[i];
        struct plim_oom_value *min = &facts->field[PLIM_OOM_BUFFER_MIN];
        struct plim_oom_value *max = &facts->field[PLIM_OOM_BUFFER_MAX];
        if (c->field == PLIM_OOM_SMI_USED && facts->field[c->field].set &&
            facts->field[c->field].n > c->value.n) {
            return;
        }
        if (c->field == PLIM_OOM_BUFFER) {
            plim__oom_set_field(facts, PLIM_OOM_BUFFER_MIN, &c->value, line,
                                !min->set || c->value.n < min->n);
            plim__oom_set_field(facts, PLIM_OOM_BUFFER_MAX, &c->value, line,
                                !max->set || c->value.n > max->n);
        }
    }
    plim__oom_set_captures(facts, &hit->match, line, true);
    if (hit->row->meaning != PLIM_OOM_MEANS_NOTHING) {
        facts->seen[hit->row->meaning] = line;
        b->held[hit->row->meaning] |=
            hit->row->role != PLIM_OOM_NEAR && hit->row->role != PLIM_OOM_BESIDE;
    }
}

/* What the event does not say itself, as far as the session knows it. */
static void fill_from_session(struct plim__oom_builder *b, struct plim_oom_event *event, bool all)
{
    const struct plim_oom_facts *session = &b->out->session;
    for (int f = 0; f < PLIM_OOM_FIELD_COUNT; f++) {
        if (!event->facts.field[f].set && session->field[f].set) {
            event->facts.field[f] = session->field[f];
        }
    }
    for (int m = 0; m < PLIM_OOM_MEANING_COUNT; m++) {
        if (session->seen[m] && (all || b->held[m]) && !event->facts.seen[m]) {
            event->facts.seen[m] = session->seen[m];
        }
    }
    for (size_t i = 0; i < session->processes; i++) {
        plim__oom_add_process(&event->facts, session->process[i].pid, session->process[i].bytes,
                              session->process[i].listed);
    }
}

/* ---- the same failure, reported again ---- */

static const enum plim_oom_field figures[] = {
    PLIM_OOM_REQUEST, PLIM_OOM_ALLOCATED,   PLIM_OOM_FREE,   PLIM_OOM_RESERVED,
    PLIM_OOM_CACHED,  PLIM_OOM_UNALLOCATED, PLIM_OOM_IN_USE, PLIM_OOM_OWN_PROCESS,
};

/* How many figures both have; *equal tells whether all of those are the same. */
static unsigned common_figures(const struct plim_oom_facts *a, const struct plim_oom_facts *b,
                               bool *equal)
{
    unsigned n = 0;
    *equal = true;
    for (size_t i = 0; i < PLIM_COUNT_OF(figures); i++) {
        const struct plim_oom_value *x = &a->field[figures[i]], *y = &b->field[figures[i]];
        if (x->set && y->set) {
            n++;
            *equal &= x->n == y->n;
        }
    }
    return n;
}

static bool differs(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

static bool from_elsewhere(const struct plim_oom_event *a, const struct plim_oom_event *b)
{
    const struct plim_oom_value *x = &a->facts.field[PLIM_OOM_DEVICE];
    const struct plim_oom_value *y = &b->facts.field[PLIM_OOM_DEVICE];
    return differs(a->rank, b->rank) || differs(a->pid, b->pid) ||
           (x->set && y->set && x->n != y->n);
}

static bool within(const struct plim_oom_event *a, const struct plim_oom_event *b, uint64_t lines,
                   int64_t ms)
{
    bool timed = a->time_ms != PLIM_OOM_NO_TIME && b->time_ms != PLIM_OOM_NO_TIME;
    return b->line - a->last_line <= lines &&
           (!timed || (b->time_ms - a->time_ms <= ms && b->time_ms >= a->time_ms - ms));
}

/* Several ranks of one job ask for the same and hold nearly the same. */
static bool alike(const struct plim_oom_facts *a, const struct plim_oom_facts *b)
{
    const struct plim_oom_value *x = &a->field[PLIM_OOM_ALLOCATED];
    const struct plim_oom_value *y = &b->field[PLIM_OOM_ALLOCATED];
    uint64_t apart = x->n > y->n ? x->n - y->n : y->n - x->n;
    return a->field[PLIM_OOM_REQUEST].n == b->field[PLIM_OOM_REQUEST].n &&
           (!x->set || !y->set || apart <= plim_max_u64(x->n, y->n) / 32);
}

static bool same_failure(const struct plim_oom_event *a, const struct plim_oom_event *b)
{
    bool equal;
    if (a->meaning != b->meaning || a->family != b->family) {
        return false;
    }
    unsigned common = common_figures(&a->facts, &b->facts, &equal);
    if (common == 0 || equal) {
        return within(a, b, from_elsewhere(a, b) ? RANK_LINES : SAME_LINES, SAME_MS);
    }
    return from_elsewhere(a, b) && alike(&a->facts, &b->facts) && within(a, b, RANK_LINES, RANK_MS);
}

/* Drop the last event when an earlier one is the same failure. */
static void merge_last(struct plim__oom_builder *b)
{
    struct plim_oom_event *last = last_event(b);
    size_t n = b->out->events.n - 1;
    for (size_t back = 1; back <= n && back <= 32; back++) {
        struct plim_oom_event *earlier = &b->out->events.items[n - back];
        if (same_failure(earlier, last)) {
            earlier->copies++;
            earlier->ranks += from_elsewhere(earlier, last);
            earlier->last_line = last->last_line;
            for (int f = 0; f < PLIM_OOM_FIELD_COUNT; f++) {
                if (!earlier->facts.field[f].set) {
                    earlier->facts.field[f] = last->facts.field[f];
                }
            }
            b->out->events.n--;
            return;
        }
    }
}

void plim__oom_builder_close(struct plim__oom_builder *b)
{
    if (!b->open) {
        return;
    }
    b->open = false;
    plim__oom_read_message(b, last_event(b));
    fill_from_session(b, last_event(b), false);
    merge_last(b);
}

/* ---- lines ---- */

static void collect(void *ctx, const struct plim_oom_row *row, const struct plim__oom_match *match)
{
    struct plim__oom_builder *b = ctx;
    struct plim__oom_hits *hits = &b->hits;
    bool wanted = row->role != PLIM_OOM_CLAUSE &&
                  (row->role != PLIM_OOM_TABLE || b->table_left > 0) &&
                  (row->role != PLIM_OOM_BESIDE || b->failing);
    if (wanted && hits->n < PLIM__OOM_HITS) {
        hits->hit[hits->n++] = (struct plim__oom_hit){row, *match};
    }
}

/* Offset of a lower-case word in the text, whatever the case; SIZE_MAX when it is not there. */
static size_t find_folded(struct plim_str text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++) {
        size_t k = 0;
        while (k < n && plim__oom_fold(text.p[i + k]) == word[k]) {
            k++;
        }
        if (k == n) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* "Fix CUDA out of memory", "if out-of-memory occurs": words that make an object or a case of it. */
static bool is_object(const struct plim__oom_hit *hit, struct plim_str line)
{
    static const char *const verbs[] = {"fix ",    "fixes ",        "fixed ",
                                        "fixing ", "handle ",       "handling ",
                                        "catch ",  "recover from ", "if "};
    size_t from = hit->match.start > VERB_REACH ? hit->match.start - VERB_REACH : 0;
    struct plim_str before = {line.p + from, hit->match.start - from};
    for (size_t i = 0; i < PLIM_COUNT_OF(verbs); i++) {
        if (find_folded(before, verbs[i]) != SIZE_MAX) {
            return true;
        }
    }
    return false;
}

/* `fail(err, "out of memory");`: a line of a program that would print it. */
static bool is_code(const struct plim__oom_hit *hit, struct plim_str line)
{
    size_t end = hit->match.end;
    while (end < line.n && strchr("\n.! ", line.p[end])) {
        end++;
    }
    return plim_str_starts(plim_str_skip(line, end), PLIM_STR("\");"));
}

/* "to avoid running out of memory", "except OutOfMemoryError": talk about it, not the thing. */
static bool only_talk(const struct plim__oom_hit *hit, struct plim_str line)
{
    static const char *const hedges[] = {
        "avoid",           "prevent",     "if you ",   "may run out", "might run out",
        "could run out",   "in case of",  "except ",   "raise ",      "will run out",
        "without running", "can run out", "may cause", "import ",     "if it ",
        "how to ",         "printf(",     "throw ",    "#define ",
    };
    bool vague = hit->row->meaning == PLIM_OOM_MEANS_GENERIC_OOM ||
                 (hit->row->meaning == PLIM_OOM_MEANS_TORCH_OOM && hit->match.captures == 0 &&
                  find_folded(line, "tried to allocate") == SIZE_MAX &&
                  find_folded(line, "error:") == SIZE_MAX);
    for (size_t i = 0; vague && i < PLIM_COUNT_OF(hedges); i++) {
        if (find_folded(line, hedges[i]) < hit->match.start) {
            return true;
        }
    }
    return vague && (is_object(hit, line) || is_code(hit, line));
}

static enum plim_status open_event(struct plim__oom_builder *b, const struct plim__oom_hit *hit,
                                   const struct plim__oom_prefix *prefix, uint64_t line,
                                   struct plim_err *err)
{
    const struct plim_oom_facts *session = &b->out->session;
    plim__oom_builder_close(b);
    if (b->out->events.n >= PLIM_OOM_EVENTS) {
        b->out->dropped += line != b->failure_line;
        b->failure_line = line;
        return PLIM_OK;
    }
    struct plim_oom_event event = {.meaning = hit->row->meaning,
                                   .family = hit->row->family,
                                   .format = hit->row->format,
                                   .line = line,
                                   .last_line = line,
                                   .time_ms = prefix->time_ms,
                                   .rank = prefix->rank,
                                   .pid = prefix->pid,
                                   .copies = 1,
                                   .ranks = 1};
    for (int m = 0; m < PLIM_OOM_MEANING_COUNT; m++) {
        if (session->seen[m] && line - session->seen[m] <= PLIM_OOM_NEAR_LINES) {
            event.facts.seen[m] = session->seen[m];
        }
    }
    PLIM_TRY(plim_vec_push(&b->out->events, err, event));
    b->open = true;
    b->opened_by = hit->row;
    b->text_n = b->before_n; /* a terminal may have broken the line before within the message */
    memcpy(b->text, b->before, b->before_n);
    b->text_column = b->before_n > 0 ? 0 : prefix->n;
    return PLIM_OK;
}

/* The words around a match, for people: from its line's message on, or from a little in front of it. */
static void keep_excerpt(struct plim_oom_event *event, struct plim_str line,
                         const struct plim__oom_match *match)
{
    size_t from = match->start, n = 0;
    while (from > 0 && line.p[from - 1] != '\n' && match->start - from < EXCERPT_BEFORE) {
        from--;
    }
    for (; n + 1 < PLIM_OOM_EXCERPT && from + n < line.n && line.p[from + n] != '\n'; n++) {
        event->excerpt[n] = line.p[from + n] == '\t' ? ' ' : line.p[from + n];
    }
    while (n > 0 && ((unsigned char)event->excerpt[n - 1] & 0x80)) {
        n--; /* never half a character */
    }
    event->excerpt[n] = 0;
}

/* A failure on this line: a new event, or more about the open one. */
static enum plim_status add_failure(struct plim__oom_builder *b, const struct plim__oom_hit *hit,
                                    const struct plim__oom_prefix *prefix, uint64_t line,
                                    struct plim_err *err)
{
    bool again = b->open && hit->row == b->opened_by && line != b->failure_line;
    if (!b->open || again) {
        PLIM_TRY(open_event(b, hit, prefix, line, err));
    }
    if (!b->open) {
        return PLIM_OK;
    }
    struct plim_oom_event *event = last_event(b);
    enum plim_oom_meaning before = event->meaning;
    plim__oom_weigh(event, hit->row);
    if (event->meaning != before || event->excerpt[0] == 0) {
        keep_excerpt(event, (struct plim_str){b->line, b->line_n}, &hit->match);
    }
    event->facts.seen[hit->row->meaning] = line;
    event->last_line = line;
    b->failure_line = line;
    plim__oom_set_captures(&event->facts, &hit->match, line, false);
    return PLIM_OK;
}

static enum plim_status apply(struct plim__oom_builder *b, const struct plim__oom_hit *hit,
                              const struct plim__oom_prefix *prefix, uint64_t line,
                              struct plim_err *err)
{
    switch (hit->row->role) {
    case PLIM_OOM_FAILURE:
        return add_failure(b, hit, prefix, line, err);
    case PLIM_OOM_HEADER:
        b->table_left = PLIM__OOM_TABLE_LINES;
        break;
    case PLIM_OOM_NEAR:
    case PLIM_OOM_BESIDE:
        if (b->open && line - last_event(b)->line <= AFTER_LINES) {
            last_event(b)->facts.seen[hit->row->meaning] = line;
        }
        break;
    case PLIM_OOM_CLAUSE:
    case PLIM_OOM_SESSION:
    case PLIM_OOM_TABLE:
        break;
    }
    set_session(b, hit, line);
    return PLIM_OK;
}

static void append_text(struct plim__oom_builder *b, struct plim_str body)
{
    size_t room = PLIM_OOM_TEXT - b->text_n;
    if (b->text_n > 0 && room > 0) {
        b->text[b->text_n++] = '\n';
        room--;
    }
    size_t n = body.n < room ? body.n : room;
    memcpy(b->text + b->text_n, body.p, n);
    b->text_n += n;
}

/* On an overlong line, the part that matters: from a little in front of the first failure. */
static struct plim_str body_part(const struct plim__oom_builder *b, struct plim_str line,
                                 size_t from)
{
    if (line.n - from > PLIM_OOM_TEXT / 2) {
        for (size_t i = 0; i < b->hits.n; i++) {
            size_t start = b->hits.hit[i].match.start;
            if (b->hits.hit[i].row->role == PLIM_OOM_FAILURE && start > from + HEAD_KEPT) {
                return plim_str_skip(line, start - HEAD_KEPT);
            }
        }
    }
    return plim_str_skip(line, from);
}

static void find_hits(struct plim__oom_builder *b, struct plim_str line)
{
    b->hits.n = 0;
    plim__oom_find_each(b->heads, line, collect, b);
    b->failing = false;
    for (size_t i = 0; i < b->hits.n; i++) {
        b->failing |= b->hits.hit[i].row->role == PLIM_OOM_FAILURE;
    }
    if (b->table_left > 0 || b->failing) {
        plim__oom_find_each(b->parts, line, collect, b);
    }
    b->table_left -= b->table_left > 0;
}

enum plim_status plim__oom_builder_line(struct plim__oom_builder *b, struct plim_str raw,
                                        uint64_t number, struct plim_err *err)
{
    struct plim_str clean = {b->clean, plim__oom_clean(raw, b->clean, &b->out->control_bytes)};
    struct plim__oom_prefix prefix = plim__oom_prefix(clean);
    memcpy(b->line, clean.p, prefix.n);
    b->line[prefix.n] = '\n';
    memcpy(b->line + prefix.n + 1, clean.p + prefix.n, clean.n - prefix.n);
    struct plim_str line = {b->line, clean.n + 1};
    b->line_n = line.n;
    if (prefix.time_ms != PLIM_OOM_NO_TIME && b->out->first_time_ms == PLIM_OOM_NO_TIME) {
        b->out->first_time_ms = prefix.time_ms;
    }
    find_hits(b, line);
    if (b->open && number - b->failure_line > PLIM__OOM_SPAN_LINES) {
        plim__oom_builder_close(b);
    }
    for (size_t i = 0; i < b->hits.n; i++) {
        if (!plim__oom_covered(&b->hits, i) && !only_talk(&b->hits.hit[i], line)) {
            PLIM_TRY(apply(b, &b->hits.hit[i], &prefix, number, err));
        }
    }
    struct plim_str body = plim_str_skip(line, prefix.n + 1);
    if (b->open) {
        append_text(b, body_part(b, line, prefix.n + 1));
    }
    bool full = body.n >= PLIM__OOM_WRAP_COLUMNS && body.n <= sizeof(b->before) && !b->failing;
    b->before_n = full ? body.n : 0;
    memcpy(b->before, body.p, b->before_n);
    return PLIM_OK;
}

bool plim__oom_builder_wants_lines(const struct plim__oom_builder *b)
{
    return b->open || b->table_left > 0;
}

/* Pasted statistics that count failures, without any message: an event of their own. */
static enum plim_status add_statistics(struct plim__oom_builder *b, uint64_t line,
                                       struct plim_err *err)
{
    struct plim_oom_event event = {.meaning = PLIM_OOM_MEANS_TORCH_OOM,
                                   .family = PLIM_OOM_FAMILY_TORCH,
                                   .format = "torch-statistics",
                                   .line = line,
                                   .last_line = line,
                                   .time_ms = PLIM_OOM_NO_TIME,
                                   .rank = -1,
                                   .pid = -1,
                                   .copies = 1,
                                   .ranks = 1};
    return plim_vec_push(&b->out->events, err, event);
}

enum plim_status plim__oom_builder_end(struct plim__oom_builder *b, struct plim_err *err)
{
    if (b->open) {
        last_event(b)->at_end = true;
    }
    plim__oom_builder_close(b);
    const struct plim_oom_value *ooms = &b->out->session.field[PLIM_OOM_STAT_OOMS];
    if (b->out->events.n == 0 && ooms->set && ooms->n > 0) {
        PLIM_TRY(add_statistics(b, ooms->line, err));
    }
    if (b->out->lines <= SMALL_LINES) {
        plim_vec_foreach (event, &b->out->events) {
            fill_from_session(b, event, true);
        }
    } else if (b->out->events.n > 0) {
        fill_from_session(b, last_event(b), false);
    }
    return PLIM_OK;
}
