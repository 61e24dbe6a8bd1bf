/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See held.h. The next attempt is known by its first request: it comes from the same line of the user's
 * code as an allocation before the failure, which then was the first of the attempt that failed. When
 * that very block is still live although its line has run again, nothing unwound the attempt. What looks
 * alike and is not: a library that tries a smaller workspace asks from the line that failed; a loop over
 * layers has live blocks of earlier layers from the same line; a loop over requests has freed the first
 * block of a round at its end.
 */

#include "diagnose/held.h"

#include "base/map.h"
#include "base/num.h"

#define MOST_FAILURES 8u /* earlier failures that are looked at: a bound on time */
/* Share of the attempt's bytes that may have been freed: more, and it was unwound in part. */
#define FREED_SHARE 0.10

struct watch {
    const struct plim_trace *trace;
    const struct plim_sites *sites;
    enum plim_action free_action; /* which of the two free events ends a life */
    struct plim_map live;         /* address -> event */
    size_t first;                 /* allocation with which the attempt began */
    uint64_t freed;               /* bytes of the attempt that were freed after its failure */
};

static const struct plim_event *event_at(const struct watch *w, size_t i)
{
    return &w->trace->events.items[i];
}

/* The line of code that a stack comes from, as a frame id; NO_STACK when it names none. */
static uint32_t line_of(const struct watch *w, size_t event)
{
    const struct plim_site *site =
        &w->sites->sites.items[plim_site_of(w->sites, event_at(w, event)->stack)];
    return site->n_frames > 0 ? site->frames[0] : PLIM_NO_STACK;
}

/* The first request from `from` on, served or not, that has a line; `end` when there is none. */
static size_t next_request(const struct watch *w, size_t from, size_t end)
{
    for (; from < end; from++) {
        enum plim_action action = (enum plim_action)event_at(w, from)->action;
        if ((action == PLIM_ACTION_ALLOC || action == PLIM_ACTION_OOM) &&
            line_of(w, from) != PLIM_NO_STACK) {
            break;
        }
    }
    return from;
}

/* The last allocation before `before` from this line, or `before`. */
static size_t last_like(const struct watch *w, uint32_t line, size_t before)
{
    for (size_t i = before; i-- > 0;) {
        if (event_at(w, i)->action == PLIM_ACTION_ALLOC && line_of(w, i) == line) {
            return i;
        }
    }
    return before;
}

/* Keep `live` up to date over the events [from, to); what is born behind `failure` is of no interest. */
static enum plim_status follow(struct watch *w, size_t from, size_t to, size_t failure,
                               struct plim_err *err)
{
    for (size_t i = from; i < to; i++) {
        const struct plim_event *e = event_at(w, i);
        uint64_t birth;
        if (e->action == PLIM_ACTION_ALLOC && i < failure && e->addr != PLIM_MAP_NO_KEY) {
            PLIM_TRY(plim_map_put(&w->live, e->addr, i, err));
        } else if (e->action == w->free_action && plim_map_take(&w->live, e->addr, &birth)) {
            w->freed += i > failure && birth >= w->first ? event_at(w, birth)->size : 0;
        }
    }
    return PLIM_OK;
}

/* Whether an older live block is from the same line: then it is one of many rounds, not a beginning. */
static bool is_one_of_many(const struct watch *w)
{
    size_t cursor = 0;
    const struct plim_map_slot *slot;
    while ((slot = plim_map_next(&w->live, &cursor))) {
        if (slot->value < w->first && line_of(w, slot->value) == line_of(w, w->first)) {
            return true;
        }
    }
    return false;
}

/* Add up the live blocks of the attempt; nothing when it was unwound. */
static void add_up(const struct watch *w, struct plim_held *out)
{
    bool first_lives = false;
    size_t cursor = 0;
    const struct plim_map_slot *slot;
    while ((slot = plim_map_next(&w->live, &cursor))) {
        first_lives |= slot->value == w->first;
        if (slot->value >= w->first) {
            out->bytes = plim_add_sat(out->bytes, event_at(w, slot->value)->size);
            out->blocks++;
        }
    }
    if (!first_lives || (double)w->freed > FREED_SHARE * (double)out->bytes) {
        out->bytes = out->blocks = 0;
    }
}

static enum plim_status look_at(struct watch *w, size_t failure, size_t to, struct plim_held *out,
                                struct plim_err *err)
{
    *out = (struct plim_held){.failure = (uint32_t)failure, .stack = PLIM_NO_STACK};
    size_t end = plim_min_u64(to + 1, w->trace->events.n); /* the judged failure is a request too */
    size_t again = next_request(w, failure + 1, end);
    if (again == end || line_of(w, again) == line_of(w, failure)) {
        return PLIM_OK;
    }
    out->stack = event_at(w, again)->stack;
    w->first = last_like(w, line_of(w, again), failure);
    PLIM_TRY(follow(w, 0, failure, failure, err));
    if (w->first == failure || is_one_of_many(w)) {
        return PLIM_OK;
    }
    PLIM_TRY(follow(w, failure, to, failure, err));
    add_up(w, out);
    return PLIM_OK;
}

enum plim_status plim_held_find(const struct plim_trace *trace, const struct plim_sites *sites,
                                size_t position, struct plim_held *out, struct plim_err *err)
{
    struct plim_held best = {.stack = PLIM_NO_STACK};
    uint32_t looked = 0;
    for (size_t i = 0; i < position && i < trace->events.n && looked < MOST_FAILURES; i++) {
        if (trace->events.items[i].action != PLIM_ACTION_OOM) {
            continue;
        }
        struct watch w = {
            .trace = trace,
            .sites = sites,
            .free_action = trace->by_action[PLIM_ACTION_FREE_REQUESTED]
                               ? PLIM_ACTION_FREE_REQUESTED
                               : PLIM_ACTION_FREE_COMPLETED,
        };
        struct plim_held held;
        enum plim_status st = look_at(&w, i, position, &held, err);
        plim_map_fini(&w.live);
        PLIM_TRY(st);
        best = held.bytes > best.bytes ? held : best;
        looked++;
    }
    *out = best;
    return PLIM_OK;
}
