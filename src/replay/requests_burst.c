/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose was a run of releases? See requests.h for the question; here is the answer.
 *
 * A run may hold several bursts, one behind the other (empty_cache, then an allocation that fails and
 * gives back what is left): it is cut where the stack changes. An allocation's own burst is always
 * followed by the memory it got (segment_alloc, segment_map) or by its failure (oom); a burst that is
 * not is the program's.
 */

#include "replay/requests_int.h"

#include "alloc/round.h"

static bool is_release(const struct plim_event *e)
{
    return e->action == PLIM_ACTION_SEGMENT_FREE || e->action == PLIM_ACTION_SEGMENT_UNMAP;
}

static bool is_gain(const struct plim_event *e)
{
    return e->action == PLIM_ACTION_SEGMENT_ALLOC || e->action == PLIM_ACTION_SEGMENT_MAP;
}

static bool is_noise(const struct plim_event *e)
{
    return e->action == PLIM_ACTION_SNAPSHOT || e->action == PLIM_ACTION_ANNOTATE ||
           e->action == PLIM_ACTION_UNKNOWN;
}

/* The allocation that got memory, or failed, right behind a run. */
struct taker {
    bool exists;
    uint32_t stack;
    uint64_t rounded; /* block bytes of the request; 0 when unknown */
    uint64_t gained;  /* bytes from the driver; of a failure: what it would have needed at least */
    uint16_t stream;
    uint16_t pool;
};

static struct taker taker_at(const struct plim__builder *b, size_t i)
{
    const struct plim_event *events = b->trace->events.items;
    size_t n = b->trace->events.n;
    struct taker t = {0};
    while (i < n && is_noise(&events[i])) {
        i++;
    }
    if (i >= n || !(is_gain(&events[i]) || events[i].action == PLIM_ACTION_OOM)) {
        return t;
    }
    t = (struct taker){true, events[i].stack, 0, 0, events[i].stream, events[i].pool};
    for (; i < n && is_gain(&events[i]); i++) {
        t.gained = plim_add_sat(t.gained, events[i].size);
    }
    if (i < n && (events[i].action == PLIM_ACTION_ALLOC || events[i].action == PLIM_ACTION_OOM) &&
        events[i].size > 0 && events[i].size < PLIM_TORCH_TOO_LARGE) {
        t.rounded = plim_round_request(events[i].size, b->q->conf.roundup);
        if (events[i].action == PLIM_ACTION_OOM) {
            t.gained = plim_round_segment(t.rounded, b->q->conf.large_segment);
        }
    }
    return t;
}

/* Would the request have taken this released segment from the cache, had it still been there? */
static bool would_fit(const struct plim__builder *b, const struct plim_event *e,
                      const struct taker *t)
{
    const struct plim_conf *conf = &b->q->conf;
    bool small = t->rounded <= PLIM_TORCH_SMALL_SIZE;
    bool small_segment = e->size == PLIM_TORCH_SMALL_SEGMENT;
    if (e->stream != t->stream || e->pool != t->pool || small != small_segment ||
        e->size < t->rounded) {
        return false;
    }
    return t->rounded < conf->max_split
               ? e->size < conf->max_split
               : e->size < plim_add_sat(t->rounded, conf->max_non_split_rounding);
}

/* A recorded stack with frames. */
static bool tells(uint32_t stack)
{
    return stack != PLIM_NO_STACK && stack != PLIM_STACK_EMPTY;
}

/* The releases [from, to) carry one stack. before: bytes reserved ahead of them. */
static bool made_by_program(struct plim__builder *b, size_t from, size_t to, const struct taker *t,
                            uint64_t before)
{
    const struct plim_event *events = b->trace->events.items;
    if (!t->exists) {
        return true;
    }
    if (tells(events[from].stack) && tells(t->stack)) {
        return events[from].stack != t->stack;
    }
    b->q->doubts.unsure_bursts++;
    uint64_t room = plim_min_u64(b->limit, b->cap);
    bool collects = b->q->conf.gc_threshold > 0 && before > b->gc_limit; /* without a failure */
    if (!collects && plim_add_sat(before, t->gained) <= room) {
        return true;
    }
    for (size_t i = from; i < to && t->rounded > 0; i++) {
        if (would_fit(b, &events[i], t)) {
            return true;
        }
    }
    return false;
}

/* Segments of private pools in a burst: nobody uses those pools any more. */
static enum plim_status drop_pools(struct plim__builder *b, size_t from, size_t to,
                                   uint16_t *only_pool, struct plim_err *err)
{
    const struct plim_event *events = b->trace->events.items;
    uint16_t last = 0;
    *only_pool = events[from].pool == PLIM_NO_POOL ? 0 : events[from].pool;
    for (size_t i = from; i < to; i++) {
        uint16_t pool = events[i].pool == PLIM_NO_POOL ? 0 : events[i].pool;
        *only_pool = pool == *only_pool ? pool : 0;
        if (pool == 0 || pool == last) {
            continue;
        }
        uint32_t lane;
        last = pool;
        PLIM_TRY(plim__request_lane(b, events[i].stream, pool, &lane, err));
        PLIM_TRY(plim__request_push(b, PLIM_REQUEST_POOL_DROP, 0, 0, lane, err));
    }
    return PLIM_OK;
}

static enum plim_status one_burst(struct plim__builder *b, size_t from, size_t to,
                                  const struct taker *t, struct plim_err *err)
{
    const struct plim_event *events = b->trace->events.items;
    uint64_t before = b->reserved;
    uint16_t pool;
    uint32_t lane;
    for (size_t i = from; i < to; i++) {
        b->reserved = plim_sub_sat(b->reserved, is_release(&events[i]) ? events[i].size : 0);
    }
    PLIM_TRY(drop_pools(b, from, to, &pool, err));
    if (!made_by_program(b, from, to, t, before)) {
        b->q->own_bursts++;
        return PLIM_OK;
    }
    b->q->user_bursts++;
    PLIM_TRY(plim__request_lane(b, events[from].stream, pool, &lane, err));
    return plim__request_push(b, PLIM_REQUEST_FLUSH, 0, 0, lane, err);
}

enum plim_status plim__request_burst(struct plim__builder *b, size_t at, size_t *end,
                                     struct plim_err *err)
{
    const struct plim_event *events = b->trace->events.items;
    size_t n = b->trace->events.n;
    size_t to = at;
    while (to < n && (is_release(&events[to]) || is_noise(&events[to]))) {
        to++;
    }
    struct taker none = {0};
    struct taker t = taker_at(b, to);
    for (size_t from = at; from < to;) {
        size_t cut = from + 1;
        while (cut < to && (is_noise(&events[cut]) || events[cut].stack == events[from].stack)) {
            cut++;
        }
        /* Only the last burst of a run can be the allocation's own; a last one without a taker is the
         * program's. */
        PLIM_TRY(one_burst(b, from, cut, cut == to ? &t : &none, err));
        from = cut;
    }
    *end = to;
    return PLIM_OK;
}
