/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging a scan: each event by its judge, then what several events say together (a second failure
 * with grown or identical live bytes), then one verdict for the whole text.
 */

#include "diagnose/message.h"

#include "diagnose/message_internal.h"

#define STRING_BUDGET (64 * PLIM_MIB) /* sentences of PLIM_OOM_EVENTS events need a few MiB */
#define HOUR_MS       3600000

static void judge_event(struct plim__case *c)
{
    plim__judge judge = plim__judge_of(c->event->meaning);
    if (judge) {
        judge(c);
    } else {
        plim__judge_fixed(c);
    }
    bool own_words = c->event->family == PLIM_OOM_FAMILY_TORCH; /* its figures are all shown */
    if (c->set->evidence.n == 0 || (c->set->evidence.n < 3 && !own_words)) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c, "Line %llu: %s", (unsigned long long)c->event->line,
                                 c->event->excerpt[0] ? c->event->excerpt : c->event->format));
    }
    if (c->event->ranks > 1) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c, "%u ranks or devices report it.", c->event->ranks));
    }
    int64_t first = c->scan->first_time_ms;
    if (c->event->time_ms != PLIM_OOM_NO_TIME && first != PLIM_OOM_NO_TIME &&
        c->event->time_ms - first >= HOUR_MS) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c,
                                 "It failed %.1f hours after the log's first line: start-up sizing "
                                 "was enough until then.",
                                 (double)(c->event->time_ms - first) / HOUR_MS));
    }
}

/* ---- the same failure again ---- */

static struct plim_amount live_of(const struct plim_finding_set *set)
{
    return set->ledger.owner[PLIM_OWNER_LIVE];
}

static bool apart(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

/* Could both events be of one process that lived on in between? */
static bool same_process(const struct plim_oom_event *a, const struct plim_oom_event *b)
{
    uint64_t restarted = b->facts.seen[PLIM_OOM_MEANS_RESTARTED];
    const struct plim_oom_value *x = &a->facts.field[PLIM_OOM_DEVICE];
    const struct plim_oom_value *y = &b->facts.field[PLIM_OOM_DEVICE];
    return a->meaning == b->meaning && !apart(a->pid, b->pid) && !apart(a->rank, b->rank) &&
           !(x->set && y->set && x->n != y->n) && !(restarted > a->line && restarted < b->line);
}

static const char *between(struct plim__case *c, const struct plim_oom_event *earlier)
{
    if (earlier->time_ms == PLIM_OOM_NO_TIME || c->event->time_ms == PLIM_OOM_NO_TIME) {
        return plim__say(c, "line %llu and line %llu", (unsigned long long)earlier->line,
                         (unsigned long long)c->event->line);
    }
    return plim__say(c, "two failures %.0f s apart",
                     (double)(c->event->time_ms - earlier->time_ms) / 1000);
}

/*
 * The second failure of one process, compared with the one before. Grown live bytes are evidence of
 * a leak; identical ones are when nothing should be left from the first attempt.
 */
static void judge_repetition(struct plim__case *c, const struct plim_oom_event *earlier,
                             const struct plim_finding_set *before)
{
    struct plim_amount was = live_of(before), is = live_of(c->set);
    uint64_t slop = plim__slop(c, PLIM_OOM_ALLOCATED) * 2 + PLIM_MIB;
    enum plim_class cls = c->set->verdict.cls;
    if (!plim_known(was) || !plim_known(is) || is.bytes + slop < was.bytes || was.bytes == 0 ||
        (cls != PLIM_CLASS_CAPACITY && cls != PLIM_CLASS_UNKNOWN && cls != PLIM_CLASS_LEAK)) {
        return;
    }
    bool grown = is.bytes > was.bytes + plim_max_u64(slop, was.bytes / 100);
    bool known_leak = before->verdict.cls == PLIM_CLASS_LEAK;
    const char *when = between(c, earlier);
    c->set->advice.n = 0;
    plim__verdict(
        c, PLIM_CLASS_LEAK, PLIM_SUBCLASS_NONE, grown ? (known_leak ? 0.75 : 0.65) : 0.52,
        grown ? plim__say(c,
                          "Live bytes grew from %s to %s between %s: what the first attempt "
                          "used is still held.",
                          plim__size(c, was.bytes), plim__size(c, is.bytes), when)
              : plim__say(c,
                          "%s are live again at the second failure (%s). If the first "
                          "attempt was given up, its memory should be gone: something, for "
                          "example the caught exception, still holds it. If the same work "
                          "was simply repeated, read it as capacity.",
                          plim__size(c, is.bytes), when));
    plim__evidence_amount(
        c, is,
        plim__say(c, "live: %s, then %s.", plim__size(c, was.bytes), plim__size(c, is.bytes)));
    if (c->set->evidence.n > 1) {
        struct plim_evidence last = c->set->evidence.items[c->set->evidence.n - 1];
        memmove(c->set->evidence.items + 1, c->set->evidence.items,
                (c->set->evidence.n - 1) * sizeof(last));
        c->set->evidence.items[0] = last;
    }
    plim__advise_leak(c);
}

static void find_repetition(struct plim__case *c, struct plim_message *out, size_t index)
{
    for (size_t back = index; back > 0; back--) {
        const struct plim_oom_event *earlier = &c->scan->events.items[back - 1];
        if (same_process(earlier, c->event) && earlier->family == PLIM_OOM_FAMILY_TORCH) {
            judge_repetition(c, earlier, &out->sets.items[back - 1]);
            return;
        }
    }
}

/* ---- the whole text ---- */

/* How much a verdict tells: repeated growth first, then any known class, then unknown. */
static unsigned telling(const struct plim_finding_set *set)
{
    switch (set->verdict.cls) {
    case PLIM_CLASS_LEAK:
        return 4;
    case PLIM_CLASS_UNKNOWN:
        return 2;
    case PLIM_CLASS_NOT_OOM:
    case PLIM_CLASS_HEALTHY:
        return set->verdict.subclass == PLIM_SUBCLASS_WARNING_ONLY ? 0 : 1;
    default:
        return 3;
    }
}

static void choose_primary(const struct plim_oom_scan *scan, struct plim_message *out,
                           struct plim__case *c)
{
    out->primary = SIZE_MAX;
    for (size_t i = 0; i < out->sets.n; i++) {
        if (out->primary == SIZE_MAX ||
            telling(&out->sets.items[i]) > telling(&out->sets.items[out->primary])) {
            out->primary = i;
        }
    }
    if (out->primary != SIZE_MAX) {
        out->verdict = out->sets.items[out->primary].verdict;
        return;
    }
    out->verdict = (struct plim_verdict){
        PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_NONE, scan->bytes > 0 ? 0.8 : 0.5,
        plim__say(c, "No failure of memory was found in %llu line%s of text.",
                  (unsigned long long)scan->lines, scan->lines == 1 ? "" : "s")};
}

enum plim_status plim_message_judge(const struct plim_oom_scan *scan, struct plim_message *out,
                                    struct plim_err *err)
{
    *out = (struct plim_message){.primary = SIZE_MAX};
    plim_arena_init(&out->arena, STRING_BUDGET);
    PLIM_TRY(plim_vec_reserve(&out->sets, scan->events.n + 1, err));
    struct plim__case c = {.scan = scan, .arena = &out->arena, .err = err};
    for (size_t i = 0; i < scan->events.n && c.st == PLIM_OK; i++) {
        out->sets.items[out->sets.n++] = (struct plim_finding_set){0};
        c.set = &out->sets.items[i];
        c.event = &scan->events.items[i];
        c.facts = &c.event->facts;
        c.books = (struct plim__books){0};
        judge_event(&c);
        find_repetition(&c, out, i);
    }
    choose_primary(scan, out, &c);
    return c.st;
}

void plim_message_fini(struct plim_message *message)
{
    plim_vec_foreach (set, &message->sets) {
        plim_finding_set_fini(set);
    }
    plim_vec_fini(&message->sets);
    plim_arena_fini(&message->arena);
}
