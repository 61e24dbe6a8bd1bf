/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from and back to the driver: new segments, the memory cap, releasing cached segments, garbage
 * collection.
 *
 * An ordinary segment can go back only when it is one cached block. Releasing walks a half in the order
 * of its free sets (streams by handle, then size, age or address) and unmaps blocks of expandable
 * segments after the walk, in the same order.
 */

#include "alloc/torch_int.h"

/* ---- books ------------------------------------------------------------------------------------- */

void plim__driver_gain(struct plim_torch *t, uint16_t half, uint64_t bytes)
{
    struct plim__pool *pool = &t->pools[half >> 1];
    unsigned small = half & 1;
    t->held_bytes += bytes;
    t->num_device_alloc++;
    plim__stat_add(t, PLIM_TORCH_STAT_RESERVED_BYTES, small, (int64_t)bytes);
    if (half >= 2) {
        pool->had_memory = true;
        plim__cell_add(&pool->reserved[small], (int64_t)bytes);
        int64_t all = pool->reserved[0].current + pool->reserved[1].current;
        pool->reserved_peak = all > pool->reserved_peak ? all : pool->reserved_peak;
    }
}

void plim__driver_loss(struct plim_torch *t, uint16_t half, uint64_t bytes)
{
    struct plim__pool *pool = &t->pools[half >> 1];
    unsigned small = half & 1;
    t->held_bytes -= bytes;
    t->num_device_free++;
    plim__stat_sub(t, PLIM_TORCH_STAT_RESERVED_BYTES, small, (int64_t)bytes);
    if (half >= 2) {
        pool->mallocs--;
        plim__cell_sub(&pool->reserved[small], (int64_t)bytes);
    }
}

/* ---- a new segment ----------------------------------------------------------------------------- */

static uint32_t segment_make(struct plim_torch *t, const struct plim__request *rq)
{
    uint64_t addr = 0;
    if (plim_devmodel_malloc(t->device, rq->driver, &addr, NULL) != PLIM_OK) {
        t->broken = true;
        return 0;
    }
    if (addr == 0) {
        if (t->rules.failure_asks_free) {
            plim_devmodel_call(t->device, PLIM_DRIVER_MEM_GET_INFO, 0, true);
        }
        return 0;
    }
    uint32_t i = plim__block_new(t);
    if (!i) {
        return 0;
    }
    uint32_t serial = t->blocks[i].serial;
    t->blocks[i] = (struct plim__block){
        .addr = addr,
        .size = rq->driver,
        .serial = serial,
        .counter = ++t->counter,
        .stream = rq->stream,
        .half = rq->half,
        .state = PLIM__HELD,
    };
    t->pools[rq->half >> 1].mallocs++;
    plim__driver_gain(t, rq->half, rq->driver);
    plim__stat_add(t, PLIM_TORCH_STAT_SEGMENT, rq->half & 1, 1);
    if (rq->driver >= t->conf.max_split) {
        plim__cell_add(&t->oversize_segments, 1);
    }
    plim__emit(t, PLIM_ACTION_SEGMENT_ALLOC, addr, rq->driver, PLIM_TORCH_NONE, rq->stream,
               rq->half >> 1);
    return i;
}

uint32_t plim__segment_alloc(struct plim_torch *t, const struct plim__request *rq, bool retry,
                             bool *rejected)
{
    if (retry) {
        t->num_alloc_retries++;
    }
    uint64_t wanted = t->held_bytes + rq->driver;
    if (wanted > t->cap) {
        return 0;
    }
    if (t->conf.reject_early && t->rules.reject_option) {
        double limit = t->conf.memory_fraction * (double)t->device->config.total;
        if (wanted > (uint64_t)limit) {
            t->num_oom_rejections++;
            *rejected = true;
            return 0;
        }
    }
    if (!rq->expandable) {
        return segment_make(t, rq);
    }
    uint32_t b = plim__expandable_alloc(t, rq);
    if (b) {
        t->pools[rq->half >> 1].mallocs++;
    }
    return b;
}

/* ---- giving back ------------------------------------------------------------------------------- */

/* Return a whole, ordinary segment. The block leaves its set and is gone. */
static void segment_release(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    plim__uncache(t, block);
    plim__emit(t, PLIM_ACTION_SEGMENT_FREE, b->addr, b->size, PLIM_TORCH_NONE, b->stream,
               b->half >> 1);
    if (plim_devmodel_free(t->device, b->addr, NULL) != PLIM_OK) {
        t->broken = true;
    }
    plim__driver_loss(t, b->half, b->size);
    plim__stat_sub(t, PLIM_TORCH_STAT_SEGMENT, b->half & 1, 1);
    if (b->size >= t->conf.max_split) {
        plim__cell_sub(&t->oversize_segments, 1);
    }
    plim__block_drop(t, block);
}

/* A block that is a whole ordinary segment. */
static bool is_whole(const struct plim__block *b)
{
    return !b->es && !b->prev && !b->next;
}

/* What a walk over a half wants done, in the walk's order. */
struct harvest {
    PLIM_VEC(uint32_t) segments;
    PLIM_VEC(uint32_t) expandable;
};

static void harvest_half(struct plim_torch *t, struct plim__half *h, struct harvest *out)
{
    for (uint32_t k = 0; k < t->streams_n; k++) {
        uint16_t stream = t->stream_order[k];
        if (stream >= h->n) {
            continue;
        }
        struct plim__freeset *set = &h->free[stream];
        t->broken = !plim__freeset_settle(set, &t->chunks) || t->broken;
        for (struct plim__pos pos = plim__freeset_first(set); !plim__freeset_at_end(set, pos);
             pos = plim__freeset_next(set, &t->chunks, pos)) {
            uint32_t i = plim__freeset_id(set, &t->chunks, pos);
            const struct plim__block *b = &t->blocks[i];
            enum plim_status st = PLIM_OK;
            if (b->es) {
                st = plim_vec_push(&out->expandable, NULL, i);
            } else if (is_whole(b)) {
                st = plim_vec_push(&out->segments, NULL, i);
            }
            t->broken = st != PLIM_OK || t->broken;
        }
    }
}

void plim__release_half(struct plim_torch *t, uint16_t half)
{
    struct harvest out = {0};
    harvest_half(t, plim__half_at(t, half), &out);
    plim_vec_foreach (i, &out.segments) {
        segment_release(t, *i);
    }
    plim_vec_foreach (i, &out.expandable) {
        plim__expandable_unmap(t, *i);
    }
    plim_vec_fini(&out.segments);
    plim_vec_fini(&out.expandable);
}

static void release_private(struct plim_torch *t, uint16_t only)
{
    for (uint32_t s = 0; s < plim__ska_end(&t->freeable);) {
        if (t->freeable.slots[s].distance < 0) {
            s++;
            continue;
        }
        uint16_t pool = (uint16_t)t->freeable.slots[s].value;
        if (only != PLIM_TORCH_POOL_DEFAULT && pool != only) {
            s++;
            continue;
        }
        if (only != PLIM_TORCH_POOL_DEFAULT) {
            plim__sync_events(t, pool);
        }
        plim__release_half(t, (uint16_t)(pool * 2 + 1));
        plim__release_half(t, (uint16_t)(pool * 2));
        if (t->pools[pool].mallocs == 0) {
            t->pools[pool].alive = false;
            t->pools[pool].freeable = false;
            plim__ska_remove_at(&t->freeable, s);
        } else {
            s++;
        }
    }
}

void plim__release_cached(struct plim_torch *t, uint16_t pool, bool capturing)
{
    if (pool == PLIM_TORCH_POOL_DEFAULT && !capturing) {
        plim__sync_events(t, UINT32_MAX);
        plim__release_half(t, 0);
        plim__release_half(t, 1);
    }
    release_private(t, pool);
}

/*
 * With max_split_size, blocks of that size and more serve only requests of their own kind: give back the
 * smallest one that covers the request, or the largest ones until enough is back. A block of that size
 * is never a piece, unless the option was lowered at run time: PyTorch then frees an address in the middle
 * of a segment, which the driver refuses; here it is passed over.
 */
bool plim__release_available(struct plim_torch *t, const struct plim__request *rq)
{
    struct plim__half *h = plim__half_at(t, rq->half);
    uint64_t key = plim_max_u64(rq->size, t->conf.max_split);
    uint64_t released = 0;
    if (rq->stream >= h->n) {
        return false;
    }
    struct plim__freeset *set = &h->free[rq->stream];
    t->broken = !plim__freeset_settle(set, &t->chunks) || t->broken;
    struct plim__pos pos = plim__freeset_lower(set, &t->chunks, plim__key_make(key, -1, 0));
    if (!plim__freeset_at_end(set, pos)) {
        uint32_t i = plim__freeset_id(set, &t->chunks, pos);
        if (is_whole(&t->blocks[i])) {
            segment_release(t, i);
            return true;
        }
    }
    while (released < key && plim__freeset_prev(set, &t->chunks, &pos)) {
        uint32_t i = plim__freeset_id(set, &t->chunks, pos);
        const struct plim__block *b = &t->blocks[i];
        if (b->size < t->conf.max_split) {
            break;
        }
        if (is_whole(b)) {
            plim__key at = plim__free_key(t, b);
            released += b->size;
            segment_release(t, i);
            pos = plim__freeset_lower(set, &t->chunks, at);
        }
    }
    return released >= key;
}

/* ---- garbage collection ------------------------------------------------------------------------ */

static int32_t age_of(const struct plim__half *h, const struct plim__block *b)
{
    return (int32_t)((uint32_t)h->lookups - b->gc_base);
}

/* Release the unsplit ordinary blocks at least as old as the mean; true when any was. */
static bool gc_pass(struct plim_torch *t, struct plim__half *h, double *total_age, uint64_t *count,
                    uint64_t *reclaimed)
{
    struct harvest all = {0};
    double threshold = *total_age / (double)*count;
    bool any = false;
    harvest_half(t, h, &all);
    plim_vec_foreach (i, &all.segments) {
        const struct plim__block *b = &t->blocks[*i];
        int32_t age = age_of(h, b);
        if ((double)age >= threshold) {
            *reclaimed += b->size;
            *total_age -= age;
            *count -= 1;
            any = true;
            segment_release(t, *i);
        }
    }
    plim_vec_fini(&all.segments);
    plim_vec_fini(&all.expandable);
    return any;
}

void plim__collect_garbage(struct plim_torch *t)
{
    struct plim__half *h = &t->pools[0].half[0];
    struct harvest all = {0};
    uint64_t limit = (uint64_t)(t->conf.gc_threshold * (double)t->cap);
    if (t->held_bytes <= limit) {
        return;
    }
    uint64_t target = t->held_bytes - limit;
    double total_age = 0;
    harvest_half(t, h, &all);
    uint64_t count = all.segments.n;
    plim_vec_foreach (i, &all.segments) {
        total_age += age_of(h, &t->blocks[*i]);
    }
    plim_vec_foreach (i, &all.expandable) { /* counted, though none of them is ever released here */
        const struct plim__block *b = &t->blocks[*i];
        if (!b->prev && !b->next) {
            total_age += age_of(h, b);
            count++;
        }
    }
    plim_vec_fini(&all.segments);
    plim_vec_fini(&all.expandable);
    uint64_t reclaimed = 0;
    while (reclaimed < target && count > 0 && gc_pass(t, h, &total_age, &count, &reclaimed)) {
    }
}
