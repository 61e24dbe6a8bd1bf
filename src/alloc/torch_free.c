/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letting go of blocks: the free call, merging with idle neighbours, the sets, and the events that hold a
 * block back while other streams may still use it.
 *
 * A free completes at once when no other stream was recorded. Otherwise an event is recorded on each of
 * them; the queues of events are polled, oldest first for each stream, at the start of every request
 * (never by free itself), and waited for when everything cached is given back.
 */

#include "alloc/torch_int.h"

/* ---- sets -------------------------------------------------------------------------------------- */

void plim__cache(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    struct plim__half *h = plim__half_at(t, b->half);
    b->gc_base = (uint32_t)h->lookups;
    b->state = PLIM__CACHED;
    h->releasable += plim__releasable(t, b);
    if (!plim__freeset_insert(&h->free[b->stream], &t->chunks, plim__free_key(t, b), block)) {
        t->broken = true;
    }
}

void plim__uncache(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    struct plim__half *h = plim__half_at(t, b->half);
    h->releasable -= plim__releasable(t, b);
    plim__freeset_remove(&h->free[b->stream], &t->chunks, block);
    b->state = PLIM__HELD;
}

void plim__unmapped_put(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    struct plim__half *h = plim__half_at(t, b->half);
    b->state = PLIM__UNMAPPED;
    if (!plim__freeset_insert(&h->unmapped[b->stream], &t->chunks, b->addr, block)) {
        t->broken = true;
    }
}

void plim__unmapped_take(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    struct plim__half *h = plim__half_at(t, b->half);
    plim__freeset_remove(&h->unmapped[b->stream], &t->chunks, block);
    b->state = PLIM__HELD;
}

/* ---- merging ----------------------------------------------------------------------------------- */

uint64_t plim__merge(struct plim_torch *t, uint32_t dst, uint32_t src)
{
    struct plim__block *d = &t->blocks[dst];
    struct plim__block *s = &t->blocks[src];
    /* dst is HELD; HELD blocks are mapped unless the caller is unmapping, which passes UNMAPPED. */
    uint8_t wanted = d->state == PLIM__UNMAPPED ? PLIM__UNMAPPED : PLIM__CACHED;
    if (src == 0 || s->state != wanted) {
        return 0;
    }
    uint64_t gained = s->size;
    if (wanted == PLIM__UNMAPPED) {
        plim__unmapped_take(t, src);
    } else {
        plim__uncache(t, src);
    }
    if (d->prev == src) {
        d->addr = s->addr;
        d->prev = s->prev;
        if (d->prev) {
            t->blocks[d->prev].next = dst;
        }
    } else {
        d->next = s->next;
        if (d->next) {
            t->blocks[d->next].prev = dst;
        }
    }
    d->size += gained;
    plim__block_drop(t, src);
    return gained;
}

void plim__complete(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    unsigned small = b->half & 1;
    int64_t size = (int64_t)b->size;
    int64_t requested = (int64_t)b->requested;
    plim__emit(t, PLIM_ACTION_FREE_COMPLETED, b->addr, b->requested, plim__handle(t, block),
               b->stream, b->half >> 1);
    b->state = PLIM__HELD;
    int64_t count = 0;
    int64_t bytes = 0;
    for (int side = 0; side < 2; side++) {
        uint64_t gained = plim__merge(t, block, side == 0 ? b->prev : b->next);
        bytes -= (int64_t)gained;
        count -= gained > 0 ? 1 : 0;
    }
    plim__cache(t, block);
    if (!b->es) {
        if (b->prev || b->next) {
            count += 1;
            bytes += (int64_t)b->size;
        }
        if (count > 0) {
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT, small, count);
        } else if (count < 0) {
            plim__stat_sub(t, PLIM_TORCH_STAT_INACTIVE_SPLIT, small, -count);
        }
        if (bytes > 0) {
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small, bytes);
        } else if (bytes < 0) {
            plim__stat_sub(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small, -bytes);
        }
    }
    plim__stat_sub(t, PLIM_TORCH_STAT_ACTIVE, small, 1);
    plim__stat_sub(t, PLIM_TORCH_STAT_ACTIVE_BYTES, small, size);
    plim__stat_sub(t, PLIM_TORCH_STAT_REQUESTED_BYTES, small, requested);
}

/* ---- recorded streams -------------------------------------------------------------------------- */

enum plim_status plim_torch_record_stream(struct plim_torch *t, uint64_t block, uint16_t stream,
                                          struct plim_err *err)
{
    uint32_t i = plim__block_of(t, block, PLIM__ALLOCATED);
    if (!i || stream >= t->streams_n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "no such block or stream to record");
    }
    if (t->blocks[i].stream == stream) {
        return PLIM_OK;
    }
    uint32_t *link = &t->blocks[i].uses;
    while (*link) {
        struct plim__use *use = &t->uses.items[*link];
        if (use->stream == stream) {
            use->captured = use->captured || t->captures > 0;
            return PLIM_OK;
        }
        link = &use->next;
    }
    uint32_t fresh = t->uses_free;
    if (fresh) {
        t->uses_free = t->uses.items[fresh].next;
    } else {
        ptrdiff_t at = (char *)link - (char *)t->uses.items; /* the vector may move */
        bool inside = link != &t->blocks[i].uses;
        fresh = (uint32_t)t->uses.n;
        PLIM_TRY(plim_vec_push(&t->uses, err, (struct plim__use){0}));
        link = inside ? (uint32_t *)(void *)((char *)t->uses.items + at) : link;
    }
    t->uses.items[fresh] = (struct plim__use){0, stream, t->captures > 0};
    *link = fresh;
    return PLIM_OK;
}

static void uses_drop(struct plim_torch *t, struct plim__block *b)
{
    while (b->uses) {
        uint32_t i = b->uses;
        b->uses = t->uses.items[i].next;
        t->uses.items[i].next = t->uses_free;
        t->uses_free = i;
    }
}

/* ---- events ------------------------------------------------------------------------------------ */

static void queue_push(struct plim_torch *t, uint16_t stream, uint32_t block)
{
    struct plim__stream *s = &t->streams[stream];
    struct plim__queued q = {plim_devmodel_event_record(t->device, s->handle), block};
    if (plim_vec_push(&s->queue.items, NULL, q) != PLIM_OK ||
        !plim__ska_put(&t->event_streams, s->hash, stream)) {
        t->broken = true;
        return;
    }
    t->blocks[block].events++;
}

/* One event on each recorded stream, in the order of PyTorch's set of them. */
static void events_insert(struct plim_torch *t, uint32_t block)
{
    struct plim__block *b = &t->blocks[block];
    uint32_t first = b->uses;
    if (first && t->uses.items[first].next == 0) {
        queue_push(t, t->uses.items[first].stream, block);
    } else {
        struct plim__ska set = {0};
        for (uint32_t i = first; i; i = t->uses.items[i].next) {
            uint16_t stream = t->uses.items[i].stream;
            t->broken = !plim__ska_put(&set, t->streams[stream].hash, stream) || t->broken;
        }
        for (uint32_t s = 0; s < plim__ska_end(&set); s++) {
            if (set.slots[s].distance >= 0) {
                queue_push(t, (uint16_t)set.slots[s].value, block);
            }
        }
        plim__ska_fini(&set);
    }
    uses_drop(t, b);
}

/* Frees made during a capture: forget the streams recorded in it, then proceed as any free. */
static void captured_resume(struct plim_torch *t)
{
    for (size_t k = 0; k < t->captured.n; k++) {
        struct plim__block *b = &t->blocks[t->captured.items[k]];
        uint32_t *link = &b->uses;
        while (*link) {
            uint32_t i = *link;
            if (t->uses.items[i].captured) {
                *link = t->uses.items[i].next;
                t->uses.items[i].next = t->uses_free;
                t->uses_free = i;
            } else {
                link = &t->uses.items[i].next;
            }
        }
        if (b->uses) {
            events_insert(t, t->captured.items[k]);
        } else {
            plim__complete(t, t->captured.items[k]);
        }
    }
    t->captured.n = 0;
}

static void event_done(struct plim_torch *t, uint32_t block)
{
    if (--t->blocks[block].events == 0) {
        plim__complete(t, block);
    }
}

/* Drop what is done from the front of a queue now and then. */
static void queue_compact(struct plim__queue *q)
{
    if (q->head == q->items.n) {
        q->head = q->items.n = 0;
    } else if (q->head > 64 && q->head * 2 > q->items.n) {
        q->items.n -= q->head;
        memmove(q->items.items, q->items.items + q->head, q->items.n * sizeof q->items.items[0]);
        q->head = 0;
    }
}

void plim__process_events(struct plim_torch *t)
{
    captured_resume(t);
    for (uint32_t s = 0; s < plim__ska_end(&t->event_streams);) {
        if (t->event_streams.slots[s].distance < 0) {
            s++;
            continue;
        }
        struct plim__stream *stream = &t->streams[t->event_streams.slots[s].value];
        struct plim__queue *q = &stream->queue;
        while (q->head < q->items.n) {
            struct plim__queued front = q->items.items[q->head];
            if (!plim_devmodel_event_query(t->device, stream->handle, front.ticket)) {
                break;
            }
            q->head++;
            event_done(t, front.block);
        }
        queue_compact(q);
        if (q->items.n == q->head) {
            plim__ska_remove_at(&t->event_streams, s);
        } else {
            s++;
        }
    }
}

static void sync_queue(struct plim_torch *t, struct plim__stream *stream, uint32_t pool)
{
    struct plim__queue *q = &stream->queue;
    size_t kept = 0;
    for (size_t k = q->head; k < q->items.n; k++) {
        struct plim__queued e = q->items.items[k];
        if (pool != UINT32_MAX && t->blocks[e.block].half >> 1 != pool) {
            q->items.items[kept++] = e;
            continue;
        }
        plim_devmodel_event_sync(t->device, stream->handle, e.ticket);
        event_done(t, e.block);
    }
    q->head = 0;
    q->items.n = kept;
}

/* Deferred frees: the wait for their events is over too. */
static void sync_deferred(struct plim_torch *t, uint32_t pool)
{
    size_t kept = 0;
    for (size_t k = 0; k < t->deferred.n; k++) {
        uint64_t handle = t->deferred.items[k];
        uint32_t b = plim__block_of(t, handle, PLIM__PENDING);
        if (b && pool != UINT32_MAX && t->blocks[b].half >> 1 != pool) {
            t->deferred.items[kept++] = handle;
        } else if (b) {
            plim_devmodel_event_sync(t->device, t->streams[t->blocks[b].stream].handle, UINT64_MAX);
            t->blocks[b].deferred = false;
            t->deferred_live--;
            plim__complete(t, b);
        }
    }
    t->deferred.n = kept;
}

void plim__sync_events(struct plim_torch *t, uint32_t pool)
{
    t->num_sync_all_streams++;
    captured_resume(t);
    for (uint32_t s = 0; s < plim__ska_end(&t->event_streams);) {
        if (t->event_streams.slots[s].distance < 0) {
            s++;
            continue;
        }
        struct plim__stream *stream = &t->streams[t->event_streams.slots[s].value];
        sync_queue(t, stream, pool);
        if (stream->queue.items.n == 0) {
            plim__ska_remove_at(&t->event_streams, s);
        } else {
            s++;
        }
    }
    sync_deferred(t, pool);
}

enum plim_status plim_torch_poll(struct plim_torch *t, struct plim_err *err)
{
    plim__process_events(t);
    return plim__torch_status(t, err);
}

/* ---- the free call ----------------------------------------------------------------------------- */

static uint32_t free_begin(struct plim_torch *t, uint64_t handle, struct plim_err *err)
{
    uint32_t i = plim__block_of(t, handle, PLIM__ALLOCATED);
    if (!i) {
        plim__fail(err, PLIM_E_NOTFOUND, "invalid device pointer: block %llx is not handed out",
                   (unsigned long long)handle);
        return 0;
    }
    struct plim__block *b = &t->blocks[i];
    unsigned small = b->half & 1;
    b->state = PLIM__PENDING;
    plim__stat_sub(t, PLIM_TORCH_STAT_ALLOCATION, small, 1);
    plim__stat_sub(t, PLIM_TORCH_STAT_ALLOCATED_BYTES, small, (int64_t)b->size);
    plim__emit(t, PLIM_ACTION_FREE_REQUESTED, b->addr, b->requested, handle, b->stream,
               b->half >> 1);
    if (b->size >= t->conf.max_split) {
        plim__cell_sub(&t->oversize_allocations, 1);
    }
    return i;
}

enum plim_status plim_torch_free(struct plim_torch *t, uint64_t block, struct plim_err *err)
{
    uint32_t i = free_begin(t, block, err);
    if (!i) {
        return PLIM_E_NOTFOUND;
    }
    if (!t->blocks[i].uses) {
        plim__complete(t, i);
    } else if (plim__capturing(t, t->current_stream)) {
        t->broken = plim_vec_push(&t->captured, NULL, i) != PLIM_OK || t->broken;
    } else {
        events_insert(t, i);
    }
    return __builtin_expect(t->broken, 0) ? plim__torch_status(t, err) : PLIM_OK;
}

/* Keep the list of deferred frees in proportion to those that are pending. */
static void deferred_compact(struct plim_torch *t)
{
    size_t kept = 0;
    for (size_t k = 0; k < t->deferred.n; k++) {
        if (plim__block_of(t, t->deferred.items[k], PLIM__PENDING)) {
            t->deferred.items[kept++] = t->deferred.items[k];
        }
    }
    t->deferred.n = kept;
}

enum plim_status plim_torch_free_deferred(struct plim_torch *t, uint64_t block,
                                          struct plim_err *err)
{
    if (t->deferred.n > 64 && t->deferred.n > 2 * (size_t)t->deferred_live) {
        deferred_compact(t);
    }
    PLIM_TRY(plim_vec_reserve(&t->deferred, 1, err));
    uint32_t i = free_begin(t, block, err);
    if (!i) {
        return PLIM_E_NOTFOUND;
    }
    uses_drop(t, &t->blocks[i]);
    t->blocks[i].deferred = true;
    t->deferred.items[t->deferred.n++] = block;
    t->deferred_live++;
    return plim__torch_status(t, err);
}

enum plim_status plim_torch_complete(struct plim_torch *t, uint64_t block, struct plim_err *err)
{
    uint32_t i = plim__block_of(t, block, PLIM__PENDING);
    if (i && t->blocks[i].deferred) {
        t->blocks[i].deferred = false;
        t->deferred_live--;
        plim__complete(t, i);
    }
    return plim__torch_status(t, err);
}

enum plim_status plim_torch_empty_cache(struct plim_torch *t, uint16_t pool, struct plim_err *err)
{
    if (pool >= t->pools_n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "pool %u is unknown", (unsigned)pool);
    }
    plim__release_cached(t, pool, plim__capturing(t, t->current_stream));
    return plim__torch_status(t, err);
}
