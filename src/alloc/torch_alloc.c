/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving a request: round, choose the pool, best fit among cached blocks, else the driver, else give
 * memory back and try again, else out of memory.
 *
 * The chain after a failed best fit: collect garbage (only under a cap), a new segment, overflow pools,
 * one large cached block for a new segment (only with max_split_size), everything cached for a new
 * segment. The free set is not searched again in between, so memory that events set free on the way is
 * given back to the driver, not reused.
 */

#include "alloc/torch_int.h"

/* ---- best fit ---------------------------------------------------------------------------------- */

/* What a block of an expandable segment could grow to: itself and the unmapped rest behind it. */
static uint64_t size_when_grown(const struct plim_torch *t, const struct plim__block *b)
{
    const struct plim__block *next = &t->blocks[b->next];
    return b->size + (b->next && next->state == PLIM__UNMAPPED ? next->size : 0);
}

/*
 * The first candidate belongs to an expandable segment: with expandable segments in force the one that
 * can grow least is wanted, otherwise none of them. False when the set is exhausted.
 */
static bool fit_among_expandable(const struct plim_torch *t, const struct plim__freeset *set,
                                 bool expandable, struct plim__pos *pos)
{
    const struct plim__block *b = &t->blocks[plim__freeset_id(set, &t->chunks, *pos)];
    if (!expandable) {
        do {
            *pos = plim__freeset_next(set, &t->chunks, *pos);
        } while (!plim__freeset_at_end(set, *pos) &&
                 t->blocks[plim__freeset_id(set, &t->chunks, *pos)].es);
        return !plim__freeset_at_end(set, *pos);
    }
    while (b->es) {
        struct plim__pos next = plim__freeset_next(set, &t->chunks, *pos);
        if (plim__freeset_at_end(set, next)) {
            break;
        }
        const struct plim__block *n = &t->blocks[plim__freeset_id(set, &t->chunks, next)];
        if (size_when_grown(t, n) >= size_when_grown(t, b)) {
            break;
        }
        *pos = next;
        b = n;
    }
    return true;
}

/* The candidate belongs to an expandable segment: find the place of the block that is wanted instead. */
PLIM__COLD static uint32_t fit_expandable(struct plim_torch *t, struct plim__freeset *set,
                                          const struct plim__request *rq, struct plim__pos *pos)
{
    t->broken = !plim__freeset_settle(set, &t->chunks) || t->broken;
    *pos = plim__freeset_lower(set, &t->chunks, plim__key_make(rq->size, -1, 0));
    if (plim__freeset_at_end(set, *pos) || !fit_among_expandable(t, set, rq->expandable, pos)) {
        return 0;
    }
    return plim__freeset_id(set, &t->chunks, *pos);
}

uint32_t plim__find_fit(struct plim_torch *t, const struct plim__request *rq)
{
    struct plim__half *h = plim__half_at(t, rq->half);
    if (t->count_lookups) {
        h->lookups++;
    }
    if (rq->stream >= h->n) {
        return 0;
    }
    struct plim__freeset *set = &h->free[rq->stream];
    struct plim__pos pos;
    uint32_t i = plim__freeset_best(set, &t->chunks, plim__key_make(rq->size, -1, 0), &pos);
    if (i && t->blocks[i].es) {
        i = fit_expandable(t, set, rq, &pos);
    }
    if (!i) {
        return 0;
    }
    struct plim__block *b = &t->blocks[i];
    if (rq->size < t->conf.max_split) {
        if (b->size >= t->conf.max_split) {
            return 0;
        }
    } else if (b->size >= plim_add_sat(rq->size, t->conf.max_non_split_rounding)) {
        return 0;
    }
    h->releasable -= plim__releasable(t, b);
    if (plim__freeset_at_end(set, pos)) {
        set->last = 0;
    } else {
        plim__freeset_remove_at(set, &t->chunks, pos);
    }
    b->state = PLIM__HELD;
    return i;
}

/* ---- handing out ------------------------------------------------------------------------------- */

static bool should_split(const struct plim_torch *t, const struct plim__block *b, uint64_t size,
                         bool expandable)
{
    uint64_t rest = b->size - size;
    if (t->pools[b->half >> 1].flags & PLIM_TORCH_POOL_NO_SPLIT) {
        return false;
    }
    bool fine = (b->half & 1) || (t->rules.expandable_by_request ? expandable : t->conf.expandable);
    if (fine) {
        return rest >= PLIM_TORCH_MIN_BLOCK;
    }
    return size < t->conf.max_split && rest > PLIM_TORCH_SMALL_SIZE;
}

/* Cut the low `size` bytes off as a new block; the old one keeps the rest and is cached. */
static uint32_t split(struct plim_torch *t, uint32_t old, uint64_t size)
{
    uint32_t low = plim__block_new(t);
    if (!low) {
        return old;
    }
    struct plim__block *rest = &t->blocks[old];
    struct plim__block *b = &t->blocks[low];
    *b = *rest;
    b->size = size;
    b->next = old;
    if (b->prev) {
        t->blocks[b->prev].next = low;
    }
    rest->prev = low;
    rest->addr += size;
    rest->size -= size;
    plim__cache(t, old);
    return low;
}

static inline __attribute__((always_inline)) uint64_t hand_out(struct plim_torch *t, uint32_t i,
                                                               const struct plim__request *rq)
{
    struct plim__block *b = &t->blocks[i];
    unsigned small = b->half & 1;
    bool was_split = b->prev || b->next;
    if (should_split(t, b, rq->size, rq->expandable)) {
        uint32_t rest = i;
        i = split(t, rest, rq->size);
        b = &t->blocks[i];
        if (!b->es && was_split) {
            plim__stat_sub(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small, (int64_t)b->size);
        } else if (!b->es) {
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small,
                           (int64_t)t->blocks[rest].size);
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT, small, 1);
        }
    } else if (was_split && !b->es) {
        plim__stat_sub(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small, (int64_t)b->size);
        plim__stat_sub(t, PLIM_TORCH_STAT_INACTIVE_SPLIT, small, 1);
    }
    b->state = PLIM__ALLOCATED;
    b->requested = rq->wanted;
    b->serial = ++t->serial;
    uint64_t handle = plim__handle(t, i);
    plim__emit(t, PLIM_ACTION_ALLOC, b->addr, rq->wanted, handle, b->stream, b->half >> 1);
    plim__stat_add(t, PLIM_TORCH_STAT_ALLOCATION, small, 1);
    plim__stat_add(t, PLIM_TORCH_STAT_ALLOCATED_BYTES, small, (int64_t)b->size);
    plim__stat_add(t, PLIM_TORCH_STAT_ACTIVE, small, 1);
    plim__stat_add(t, PLIM_TORCH_STAT_ACTIVE_BYTES, small, (int64_t)b->size);
    plim__stat_add(t, PLIM_TORCH_STAT_REQUESTED_BYTES, small, (int64_t)rq->wanted);
    if (b->size >= t->conf.max_split) {
        plim__cell_add(&t->oversize_allocations, 1);
    }
    return handle;
}

/* ---- when no cached block fits ----------------------------------------------------------------- */

/* Free bytes in all private pools: what the error text calls allocated in private pools. */
static uint64_t private_free_bytes(const struct plim_torch *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 1; i < t->blocks_n; i++) {
        const struct plim__block *b = &t->blocks[i];
        if (b->state == PLIM__CACHED && b->half >= 2) {
            sum += b->size;
        }
    }
    return sum;
}

PLIM__COLD static void fail_request(struct plim_torch *t, const struct plim__request *rq,
                                    enum plim_torch_failure_kind kind)
{
    t->failure = (struct plim_torch_failure){
        .kind = kind,
        .requested = rq->wanted,
        .rounded = rq->size,
        .driver = rq->driver,
        .device_total = t->device->config.total,
        .cap = t->cap,
        .stream = rq->stream,
        .pool = rq->half >> 1,
    };
    struct plim_torch_gauges g = plim_torch_gauges(t);
    t->failure.allocated = g.allocated;
    t->failure.reserved = g.reserved;
    if (kind == PLIM_TORCH_FAILED_OOM) {
        plim_devmodel_call(t->device, PLIM_DRIVER_MEM_GET_INFO, 0, true);
        t->failure.device_free = plim_devmodel_free_bytes(t->device);
        t->failure.private_free = t->pools_n > 1 ? private_free_bytes(t) : 0;
        plim__emit(t, PLIM_ACTION_OOM, t->failure.device_free, rq->size, PLIM_TORCH_NONE,
                   rq->stream, rq->half >> 1);
        t->num_ooms++;
    }
}

/* A free block of the pools that lend themselves when memory is out; it is then split as one of an
 * ordinary segment would be. */
static uint32_t overflow_fit(struct plim_torch *t, struct plim__request *rq)
{
    for (uint32_t s = 0; s < plim__ska_end(&t->overflow); s++) {
        if (t->overflow.slots[s].distance < 0) {
            continue;
        }
        struct plim__request other = *rq;
        other.half = (uint16_t)(t->overflow.slots[s].value * 2 + (rq->half & 1));
        other.expandable = false;
        uint32_t b = plim__find_fit(t, &other);
        if (b) {
            rq->expandable = false;
            return b;
        }
    }
    return 0;
}

PLIM__COLD static uint32_t serve_from_driver(struct plim_torch *t, struct plim__request *rq,
                                             bool *rejected)
{
    if (t->count_lookups) {
        plim__collect_garbage(t);
    }
    uint32_t b = plim__segment_alloc(t, rq, false, rejected);
    if (!b && !*rejected && rq->half < 2) {
        b = overflow_fit(t, rq);
    }
    if (!b && !*rejected && t->conf.max_split != UINT64_MAX && plim__release_available(t, rq)) {
        b = plim__segment_alloc(t, rq, false, rejected);
    }
    if (!b && !*rejected && !plim__capturing(t, rq->stream)) {
        plim__release_cached(t, PLIM_TORCH_POOL_DEFAULT, false);
        b = plim__segment_alloc(t, rq, true, rejected);
    }
    return b;
}

/* ---- the request ------------------------------------------------------------------------------- */

static uint16_t route(const struct plim_torch *t, uint16_t stream)
{
    for (size_t i = t->routes.n; i > 0; i--) {
        const struct plim__route *r = &t->routes.items[i - 1];
        if (r->stream == PLIM_TORCH_ANY_STREAM || r->stream == stream) {
            return r->pool;
        }
    }
    return PLIM_TORCH_POOL_DEFAULT;
}

static enum plim_status request_make(struct plim_torch *t, uint64_t size, uint16_t stream,
                                     uint16_t pool, struct plim__request *rq, struct plim_err *err)
{
    if (pool == PLIM_TORCH_POOL_ROUTED) {
        pool = route(t, stream);
    }
    if (stream >= t->streams_n || pool >= t->pools_n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "stream %u or pool %u is unknown", (unsigned)stream,
                          (unsigned)pool);
    }
    rq->wanted = size;
    rq->size = plim_round_request(size, t->conf.roundup);
    rq->driver = 0; /* until the driver is needed */
    rq->stream = stream;
    rq->half = (uint16_t)(pool * 2 + (rq->size <= PLIM_TORCH_SMALL_SIZE ? 1 : 0));
    rq->expandable = t->conf.expandable && !(t->pools[pool].flags & PLIM_TORCH_POOL_CUSTOM);
    return PLIM_OK;
}

/* No cached block fits: the driver, or a failure. */
PLIM__COLD static enum plim_status alloc_slow(struct plim_torch *t, struct plim__request *rq,
                                              uint64_t *block, struct plim_err *err)
{
    bool rejected = false;
    if (!plim__half_room(t, rq->half, rq->stream)) {
        t->broken = true;
        return plim__torch_status(t, err);
    }
    rq->driver = plim_round_segment(rq->size, t->conf.large_segment);
    uint32_t b = serve_from_driver(t, rq, &rejected);
    if (b) {
        *block = hand_out(t, b, rq);
    } else {
        fail_request(t, rq, rejected ? PLIM_TORCH_FAILED_REJECTED : PLIM_TORCH_FAILED_OOM);
        *block = PLIM_TORCH_NONE;
    }
    return plim__torch_status(t, err);
}

PLIM__COLD static enum plim_status alloc_refused(struct plim_torch *t, uint64_t size,
                                                 uint64_t *block)
{
    struct plim__request rq = {.wanted = size, .size = size, .driver = size};
    if (size > 0) {
        fail_request(t, &rq, PLIM_TORCH_FAILED_TOO_LARGE);
    }
    *block = PLIM_TORCH_NONE;
    return PLIM_OK;
}

enum plim_status plim_torch_alloc(struct plim_torch *t, uint64_t size, uint16_t stream,
                                  uint16_t pool, uint64_t *block, struct plim_err *err)
{
    struct plim__request rq;
    if (size - 1 >= PLIM_TORCH_TOO_LARGE - 1) {
        return alloc_refused(t, size, block);
    }
    PLIM_TRY(request_make(t, size, stream, pool, &rq, err));
    t->current_stream = stream;
    if ((t->event_streams.n || t->captured.n) && !plim__capturing(t, stream)) {
        plim__process_events(t);
    }
    uint32_t b = plim__find_fit(t, &rq);
    if (!b) {
        return alloc_slow(t, &rq, block, err);
    }
    *block = hand_out(t, b, &rq);
    return __builtin_expect(t->broken, 0) ? plim__torch_status(t, err) : PLIM_OK;
}
