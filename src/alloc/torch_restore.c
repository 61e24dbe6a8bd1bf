/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting in the middle: take over the segments and blocks of a snapshot.
 *
 * What a snapshot does not say is assumed as docs/design/allocator-model.md lists: segments were created
 * in the order of their addresses, nothing has aged, and the mapped runs of expandable segments of one
 * (half, stream) lie in one reservation that begins with the lowest of them. Runs that do not fit such a
 * reservation (no multiple of its page) become ordinary segments.
 */

#include "alloc/torch_int.h"

#include <inttypes.h>

struct restore {
    struct plim_torch *t;
    const struct plim_heap *heap;
    struct plim_torch_past past;
    const uint16_t *streams; /* heap's stream index -> model's */
    const uint16_t *pools;   /* heap's pool index -> model's */
    uint64_t *blocks;        /* out: handle of each heap block */
};

static uint16_t half_of(const struct restore *r, const struct plim_segment *s)
{
    return (uint16_t)(r->pools[s->pool] * 2 + (s->small ? 1 : 0));
}

/* The segment's blocks are consecutive, adjoin, and fill it. */
static enum plim_status segment_check(const struct restore *r, size_t k, struct plim_err *err)
{
    const struct plim_segment *s = &r->heap->segments.items[k];
    uint64_t at = s->addr;
    if (s->size > PLIM_DEVMODEL_MOST || s->n_blocks == 0 || s->n_blocks > r->heap->blocks.n ||
        s->first_block > r->heap->blocks.n - s->n_blocks ||
        s->size > UINT64_MAX / 2 - (s->addr < UINT64_MAX / 2 ? s->addr : UINT64_MAX / 2)) {
        return plim__fail(err, PLIM_E_DATA, "segment %zu has no sensible blocks", k);
    }
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        const struct plim_block *b = &r->heap->blocks.items[s->first_block + i];
        if (b->addr != at || b->size == 0 || b->size % 512 || at % 512 ||
            b->size > s->addr + s->size - at) {
            return plim__fail(err, PLIM_E_DATA, "block %u of segment %zu does not adjoin", i, k);
        }
        at += b->size;
    }
    if (at != s->addr + s->size) {
        return plim__fail(err, PLIM_E_DATA, "the blocks of segment %zu do not fill it", k);
    }
    return PLIM_OK;
}

/* Append a block behind `prev` (0 = none); idle neighbours alike are one block. */
static uint32_t chain(struct plim_torch *t, uint32_t prev, struct plim__block block)
{
    struct plim__block *p = &t->blocks[prev];
    bool idle = block.state == PLIM__CACHED || block.state == PLIM__UNMAPPED;
    if (prev && idle && p->state == block.state) {
        p->size += block.size;
        return prev;
    }
    uint32_t i = plim__block_new(t);
    if (i) {
        block.prev = prev;
        block.serial = t->blocks[i].serial;
        t->blocks[i] = block;
        if (prev) {
            t->blocks[prev].next = i;
        }
    }
    return i;
}

/* Statistics of one mapped block, as if it had come into being just now. */
static void count(struct plim_torch *t, const struct plim__block *b)
{
    unsigned small = b->half & 1;
    int64_t size = (int64_t)b->size;
    if (b->state == PLIM__CACHED) {
        if (!b->es && (b->prev || b->next)) {
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT, small, 1);
            plim__stat_add(t, PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES, small, size);
        }
        return;
    }
    plim__stat_add(t, PLIM_TORCH_STAT_ACTIVE, small, 1);
    plim__stat_add(t, PLIM_TORCH_STAT_ACTIVE_BYTES, small, size);
    plim__stat_add(t, PLIM_TORCH_STAT_REQUESTED_BYTES, small, (int64_t)b->requested);
    if (b->state == PLIM__ALLOCATED) {
        plim__stat_add(t, PLIM_TORCH_STAT_ALLOCATION, small, 1);
        plim__stat_add(t, PLIM_TORCH_STAT_ALLOCATED_BYTES, small, size);
        if (b->size >= t->conf.max_split) {
            plim__cell_add(&t->oversize_allocations, 1);
        }
    }
}

/* Into the sets, when the chain is complete and neighbours are known. */
static void settle(struct plim_torch *t, uint32_t first)
{
    for (uint32_t i = first; i; i = t->blocks[i].next) {
        if (t->blocks[i].state == PLIM__UNMAPPED) {
            plim__unmapped_put(t, i);
            continue;
        }
        count(t, &t->blocks[i]);
        if (t->blocks[i].state == PLIM__CACHED) {
            plim__cache(t, i);
        }
    }
}

/* The blocks of one heap segment, appended behind `prev`. Gives the last block, 0 when memory is out. */
static uint32_t segment_chain(const struct restore *r, const struct plim_segment *s, uint32_t prev,
                              uint32_t es)
{
    struct plim_torch *t = r->t;
    for (uint32_t k = 0; k < s->n_blocks; k++) {
        uint32_t at = s->first_block + k;
        const struct plim_block *b = &r->heap->blocks.items[at];
        struct plim__block block = {
            .addr = b->addr,
            .size = b->size,
            .requested = b->requested,
            .counter = t->counter,
            .es = es,
            .stream = r->streams[s->stream],
            .half = half_of(r, s),
            .state = PLIM__CACHED,
        };
        if (b->state != PLIM_BLOCK_INACTIVE) {
            block.state = b->state == PLIM_BLOCK_ALLOCATED ? PLIM__ALLOCATED : PLIM__PENDING;
            block.deferred = block.state == PLIM__PENDING;
        }
        prev = chain(t, prev, block);
        r->blocks[at] = PLIM_TORCH_NONE;
        if (prev && block.state != PLIM__CACHED) {
            t->blocks[prev].serial = ++t->serial;
            r->blocks[at] = plim__handle(t, prev);
        }
        if (block.deferred) {
            t->deferred_live++;
            t->broken = plim_vec_push(&t->deferred, NULL, r->blocks[at]) != PLIM_OK || t->broken;
        }
    }
    return prev;
}

static enum plim_status ordinary(const struct restore *r, const struct plim_segment *s,
                                 struct plim_err *err)
{
    struct plim_torch *t = r->t;
    uint16_t half = half_of(r, s);
    PLIM_TRY(plim_devmodel_adopt(t->device, s->addr, s->size, false, 0, err));
    t->counter++;
    uint32_t last = segment_chain(r, s, 0, 0);
    uint32_t first = last;
    while (first && t->blocks[first].prev) {
        first = t->blocks[first].prev;
    }
    settle(t, first);
    t->pools[half >> 1].mallocs++;
    plim__driver_gain(t, half, s->size);
    plim__stat_add(t, PLIM_TORCH_STAT_SEGMENT, half & 1, 1);
    if (s->size >= t->conf.max_split) {
        plim__cell_add(&t->oversize_segments, 1);
    }
    return plim__torch_status(t, err);
}

/* Whether run k lies on pages of a reservation that starts at `base`. */
static bool on_pages(const struct restore *r, const struct plim_segment *s, uint64_t base)
{
    uint64_t page = s->small ? PLIM_TORCH_SMALL_SEGMENT : r->t->conf.large_segment;
    return (s->addr - base) % page == 0 && s->size % page == 0;
}

static bool same_reservation(const struct restore *r, const struct plim_segment *a,
                             const struct plim_segment *b)
{
    return b->expandable && half_of(r, a) == half_of(r, b) &&
           r->streams[a->stream] == r->streams[b->stream];
}

static uint32_t gap(struct plim_torch *t, uint32_t prev, uint64_t addr, uint64_t size, uint32_t es)
{
    struct plim__block block = {
        .addr = addr,
        .size = size,
        .counter = t->counter,
        .es = es,
        .stream = t->es.items[es].stream,
        .half = (uint16_t)t->es.items[es].half,
        .state = PLIM__UNMAPPED,
    };
    return size ? chain(t, prev, block) : prev;
}

/* All runs of one reservation, of which run `k` is the lowest. */
/* Where the reservation of run k begins: below it, when that is known and makes sense. */
static uint64_t base_of(const struct restore *r, size_t k, uint64_t page, uint64_t size)
{
    const struct plim_segment *s = &r->heap->segments.items[k];
    uint64_t base = r->past.bases ? r->past.bases[k] : s->addr;
    bool sensible = base <= s->addr && (s->addr - base) % page == 0 && s->addr - base < size;
    return sensible ? base : s->addr;
}

static enum plim_status reservation(const struct restore *r, size_t k, bool *done,
                                    struct plim_err *err)
{
    struct plim_torch *t = r->t;
    const struct plim_segment *low = &r->heap->segments.items[k];
    uint64_t page = low->small ? PLIM_TORCH_SMALL_SEGMENT : t->conf.large_segment;
    uint64_t total = t->device->config.total;
    uint64_t size = plim_round_up(total + total / 8, page);
    uint32_t es = (uint32_t)t->es.n;
    uint32_t last = 0;
    uint64_t base = base_of(r, k, page, size);
    uint64_t at = base;
    uint64_t backed = 0;
    PLIM_TRY(plim_vec_push(
        &t->es, err,
        (struct plim__es){base, size, page, half_of(r, low), r->streams[low->stream]}));
    t->counter++;
    for (size_t i = k; i < r->heap->segments.n; i++) {
        const struct plim_segment *s = &r->heap->segments.items[i];
        if (done[i] || !same_reservation(r, low, s) || !on_pages(r, s, base) ||
            s->addr - base > size || s->size > size - (s->addr - base)) {
            continue;
        }
        done[i] = true;
        last = gap(t, last, at, s->addr - at, es);
        last = segment_chain(r, s, last, es);
        at = s->addr + s->size;
        backed += s->size;
        t->pools[half_of(r, s) >> 1].mallocs++;
        plim__driver_gain(t, half_of(r, s), s->size);
    }
    last = gap(t, last, at, base + size - at, es);
    PLIM_TRY(plim_devmodel_adopt(t->device, base, size, true, backed, err));
    while (last && t->blocks[last].prev) {
        last = t->blocks[last].prev;
    }
    settle(t, last);
    return plim__torch_status(t, err);
}

static enum plim_status restore_all(const struct restore *r, bool *done, struct plim_err *err)
{
    for (size_t k = 0; k < r->heap->segments.n; k++) {
        const struct plim_segment *s = &r->heap->segments.items[k];
        PLIM_TRY(segment_check(r, k, err));
        if (k > 0 && s->addr < s[-1].addr + s[-1].size) {
            return plim__fail(err, PLIM_E_DATA, "segments %zu and %zu overlap or are not sorted",
                              k - 1, k);
        }
        if (!plim__half_room(r->t, half_of(r, s), r->streams[s->stream])) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for the allocator model");
        }
    }
    for (size_t i = 0; i < r->heap->segments.n; i++) {
        size_t k = r->past.order ? r->past.order[i] : i;
        const struct plim_segment *s = &r->heap->segments.items[k];
        if (done[k]) {
            continue;
        }
        if (s->expandable && on_pages(r, s, s->addr)) {
            PLIM_TRY(reservation(r, k, done, err));
        } else {
            done[k] = true;
            PLIM_TRY(ordinary(r, s, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_torch_restore(struct plim_torch *t, const struct plim_heap *heap,
                                    const struct plim_torch_past *past, const uint16_t *streams,
                                    const uint16_t *pools, uint64_t *blocks, struct plim_err *err)
{
    static const struct plim_torch_past nothing;
    struct restore r = {t, heap, past ? *past : nothing, streams, pools, blocks};
    for (size_t i = 0; r.past.order && i < heap->segments.n; i++) {
        if (r.past.order[i] >= heap->segments.n) {
            return plim__fail(err, PLIM_E_USAGE, "there is no segment %u to order",
                              r.past.order[i]);
        }
    }
    if (t->blocks_n != 1) {
        return plim__fail(err, PLIM_E_USAGE, "a snapshot is taken over by a fresh model only");
    }
    if (heap->blocks.n > UINT32_MAX / 4 ||
        !plim__blocks_room(t, (uint32_t)heap->blocks.n + 2 * (uint32_t)heap->segments.n + 8)) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu blocks", heap->blocks.n);
    }
    bool *done = calloc(heap->segments.n + 1, sizeof *done);
    if (!done) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu segments", heap->segments.n);
    }
    enum plim_status st = restore_all(&r, done, err);
    free(done);
    return st;
}
