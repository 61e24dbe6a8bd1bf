/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See held.h. The next attempt is known by its first request: made with exactly the stack of an
 * allocation before the failure, which then was the first of the attempt that failed. When that very block is still
 * live although its line has run again, nothing unwound the attempt. A library that tries a smaller
 * workspace in place fails with the same stack again or goes on behind it, and a loop frees the first
 * block of a round at its end: neither passes.
 */

#include "diagnose/held.h"

#include "base/map.h"
#include "base/num.h"

#define MOST_FAILURES 8u /* earlier failures that are looked at: a bound on time */
/* Share of the attempt's bytes that may have been freed: more, and it was unwound in part. */
#define FREED_SHARE 0.10

struct watch {
    const struct plim_trace *trace;
    enum plim_action free_action; /* which of the two free events ends a life */
    struct plim_map live;         /* address -> event, blocks of the attempt */
    uint64_t freed;               /* bytes of the attempt that were freed after its failure */
};

static const struct plim_event *event_at(const struct watch *w, size_t i)
{
    return &w->trace->events.items[i];
}

/* The first request from `from` on, served or not, that has a stack; `end` when there is none. */
static size_t next_request(const struct watch *w, size_t from, size_t end)
{
    for (; from < end; from++) {
        const struct plim_event *e = event_at(w, from);
        bool asks = e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_OOM;
        if (asks && e->stack != PLIM_STACK_EMPTY && e->stack != PLIM_NO_STACK) {
            break;
        }
    }
    return from;
}

/* The last allocation before `before` with this stack, or `before`. */
static size_t last_like(const struct watch *w, uint32_t stack, size_t before)
{
    for (size_t i = before; i-- > 0;) {
        if (event_at(w, i)->action == PLIM_ACTION_ALLOC && event_at(w, i)->stack == stack) {
            return i;
        }
    }
    return before;
}

/* Follow blocks born in [from, failure) until `to`. */
static enum plim_status follow(struct watch *w, size_t from, size_t failure, size_t to,
                               struct plim_err *err)
{
    for (size_t i = from; i < to; i++) {
        const struct plim_event *e = event_at(w, i);
        uint64_t birth;
        if (e->action == PLIM_ACTION_ALLOC && i < failure && e->addr != PLIM_MAP_NO_KEY) {
            PLIM_TRY(plim_map_put(&w->live, e->addr, i, err));
        } else if (e->action == w->free_action && plim_map_take(&w->live, e->addr, &birth)) {
            w->freed += i > failure ? event_at(w, birth)->size : 0;
        }
    }
    return PLIM_OK;
}

static enum plim_status look_at(const struct plim_trace *trace, size_t failure, size_t to,
                                struct plim_held *out, struct plim_err *err)
{
    struct watch w = {
        .trace = trace,
        .free_action = trace->by_action[PLIM_ACTION_FREE_REQUESTED] ? PLIM_ACTION_FREE_REQUESTED
                                                                    : PLIM_ACTION_FREE_COMPLETED,
    };
    *out = (struct plim_held){.failure = (uint32_t)failure, .stack = PLIM_NO_STACK};
    size_t end = plim_min_u64(to + 1, trace->events.n); /* the judged failure is a request too */
    size_t again = next_request(&w, failure + 1, end);
    if (again == end || event_at(&w, again)->stack == event_at(&w, failure)->stack) {
        return PLIM_OK;
    }
    out->stack = event_at(&w, again)->stack;
    size_t from = last_like(&w, out->stack, failure);
    enum plim_status st = follow(&w, from, failure, to, err);
    bool first_lives = false;
    size_t cursor = 0;
    const struct plim_map_slot *slot;
    while (st == PLIM_OK && (slot = plim_map_next(&w.live, &cursor))) {
        out->bytes = plim_add_sat(out->bytes, event_at(&w, slot->value)->size);
        out->blocks++;
        first_lives |= slot->value == from;
    }
    if (!first_lives || (double)w.freed > FREED_SHARE * (double)out->bytes) {
        out->bytes = out->blocks = 0;
    }
    plim_map_fini(&w.live);
    return st;
}

enum plim_status plim_held_find(const struct plim_trace *trace, size_t position,
                                struct plim_held *out, struct plim_err *err)
{
    struct plim_held best = {.stack = PLIM_NO_STACK};
    uint32_t looked = 0;
    for (size_t i = 0; i < position && i < trace->events.n && looked < MOST_FAILURES; i++) {
        if (trace->events.items[i].action != PLIM_ACTION_OOM) {
            continue;
        }
        struct plim_held held;
        PLIM_TRY(look_at(trace, i, position, &held, err));
        best = held.bytes > best.bytes ? held : best;
        looked++;
    }
    *out = best;
    return PLIM_OK;
}
