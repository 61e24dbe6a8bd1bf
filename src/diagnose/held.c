/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See held.h. The next attempt is known by its first request: it comes from the same line of the user's
 * code as an allocation before the failure, which then was the first of the attempt that failed. Or a
 * function that the failure went through has moved on to another line and called itself from there. When
 * what the attempt had when it failed is still live, nothing unwound it. What looks
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
    const struct plim_snapshot *snapshot;
    const struct plim_trace *trace;
    const struct plim_sites *sites;
    enum plim_action free_action; /* which of the two free events ends a life */
    struct plim_map live;         /* address -> event */
    size_t first;                 /* allocation with which the attempt began */
    bool first_lived;             /* its block was live when the attempt failed */
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

/* The frames of an event's stack; outermost last. */
static const uint32_t *stack_of(const struct watch *w, size_t event, size_t *n)
{
    return plim_stacks_frames(&w->snapshot->stacks, event_at(w, event)->stack, n);
}

/* How many of their outermost frames two stacks share. */
static size_t shared_frames(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n_a - 1 - n] == b[n_b - 1 - n]) {
        n++;
    }
    return n;
}

static bool contains(const uint32_t *frames, size_t n, uint32_t frame)
{
    for (size_t i = 0; i < n; i++) {
        if (frames[i] == frame) {
            return true;
        }
    }
    return false;
}

/*
 * The frames of the failure down to the function that caught it, as a number of outermost frames, when that
 * function has moved on to another line and called itself from there; else 0.
 */
static size_t depth_of_handler(const struct watch *w, size_t failure, size_t again)
{
    size_t n_failed, n_again;
    const uint32_t *failed = stack_of(w, failure, &n_failed);
    const uint32_t *now = stack_of(w, again, &n_again);
    size_t shared = shared_frames(failed, n_failed, now, n_again);
    if (shared >= n_failed || shared + 1 >= n_again) {
        return 0;
    }
    uint32_t left = failed[n_failed - 1 - shared];
    const struct plim_frame *was = &w->snapshot->stacks.frames.items[left];
    const struct plim_frame *is = &w->snapshot->stacks.frames.items[now[n_again - 1 - shared]];
    bool same_function = was->name == is->name && was->file == is->file && was->line != is->line;
    return same_function && contains(now, n_again - 1 - shared, left) ? shared + 1 : 0;
}

/* The first of the allocations right before the failure that were made under its outermost frames. */
static size_t first_under(const struct watch *w, size_t failure, size_t depth)
{
    size_t n_failed, n, first = failure;
    const uint32_t *failed = stack_of(w, failure, &n_failed);
    for (size_t i = failure; i-- > 0;) {
        if (event_at(w, i)->action != PLIM_ACTION_ALLOC) {
            continue;
        }
        const uint32_t *frames = stack_of(w, i, &n);
        if (shared_frames(failed, n_failed, frames, n) < depth) {
            break;
        }
        first = i;
    }
    return first;
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

/* Whether the first block is live now. */
static bool first_is_live(const struct watch *w)
{
    const uint64_t *birth = plim_map_get(&w->live, event_at(w, w->first)->addr);
    return birth && *birth == w->first;
}

/*
 * Whether an older live block is from the same line, or, with a depth, was made under the same so many
 * outermost frames: then this is one of many rounds that leave something, not a beginning.
 */
static bool is_one_of_many(const struct watch *w, size_t depth)
{
    size_t n_first, n, cursor = 0;
    const uint32_t *first = stack_of(w, w->first, &n_first);
    const struct plim_map_slot *slot;
    while ((slot = plim_map_next(&w->live, &cursor))) {
        const uint32_t *frames = stack_of(w, slot->value, &n);
        bool like = depth > 0 ? shared_frames(first, n_first, frames, n) >= depth
                              : line_of(w, slot->value) == line_of(w, w->first);
        if (slot->value < w->first && like) {
            return true;
        }
    }
    return false;
}

/* Add up the live blocks of the attempt; nothing when it was unwound. */
static void add_up(const struct watch *w, struct plim_held *out)
{
    bool first_lives = !w->first_lived;
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
    if (again == end) {
        return PLIM_OK;
    }
    size_t depth = depth_of_handler(w, failure, again);
    if (depth == 0 && line_of(w, again) == line_of(w, failure)) {
        return PLIM_OK;
    }
    out->stack = event_at(w, again)->stack;
    w->first =
        depth > 0 ? first_under(w, failure, depth) : last_like(w, line_of(w, again), failure);
    PLIM_TRY(follow(w, 0, failure, failure, err));
    if (w->first == failure || is_one_of_many(w, depth)) {
        return PLIM_OK;
    }
    w->first_lived = first_is_live(w);
    PLIM_TRY(follow(w, failure, to, failure, err));
    add_up(w, out);
    return PLIM_OK;
}

enum plim_status plim_held_find(const struct plim_snapshot *snapshot,
                                const struct plim_trace *trace, const struct plim_sites *sites,
                                size_t position, struct plim_held *out, struct plim_err *err)
{
    struct plim_held best = {.stack = PLIM_NO_STACK};
    uint32_t looked = 0;
    for (size_t i = 0; i < position && i < trace->events.n && looked < MOST_FAILURES; i++) {
        if (trace->events.items[i].action != PLIM_ACTION_OOM) {
            continue;
        }
        struct watch w = {
            .snapshot = snapshot,
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
