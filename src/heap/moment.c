/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Undoing events does not need the allocator's own structure: at any moment the free blocks of a
 * segment are the gaps between its live blocks, because the allocator always merges free neighbours.
 * So the way back keeps two sets, live blocks and segments, and the partition is built once at the
 * wanted position.
 */

#include "heap/moment.h"

#include "base/num.h"
#include "heap/totals.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_UNIT       512u /* every block size is a multiple */
#define SMALL_SEGMENT    (2 * PLIM_MIB)
#define MOST_SMALL_PAGES (10 * PLIM_MIB) /* unmapped at once; pages of the large pool are larger */
#define MAX_UNSPLIT      PLIM_MIB        /* a larger remainder of a large block is split off */

struct rewind {
    const struct plim_trace *trace;
    PLIM_VEC(struct plim_block) live;
    PLIM_VEC(struct plim_segment) segments;
    struct plim_map live_at;    /* address -> index in live */
    struct plim_map segment_at; /* address -> index in segments */
    struct plim_moment_gaps gaps;
};

static void rewind_fini(struct rewind *r)
{
    plim_vec_fini(&r->live);
    plim_vec_fini(&r->segments);
    plim_map_fini(&r->live_at);
    plim_map_fini(&r->segment_at);
}

static uint64_t key_of(uint64_t addr)
{
    return addr == PLIM_MAP_NO_KEY ? 0 : addr;
}

static enum plim_status add_live(struct rewind *r, struct plim_block block, struct plim_err *err)
{
    PLIM_TRY(plim_map_put(&r->live_at, key_of(block.addr), r->live.n, err));
    return plim_vec_push(&r->live, err, block);
}

static struct plim_block *find_live(const struct rewind *r, uint64_t addr)
{
    uint64_t *at = plim_map_get(&r->live_at, key_of(addr));
    return at ? &r->live.items[*at] : NULL;
}

static enum plim_status remove_live(struct rewind *r, uint64_t addr, struct plim_err *err)
{
    uint64_t at;
    if (!plim_map_take(&r->live_at, key_of(addr), &at)) {
        r->gaps.unknown_allocs++;
        return PLIM_OK;
    }
    struct plim_block last = r->live.items[--r->live.n];
    if (at < r->live.n) {
        r->live.items[at] = last;
        return plim_map_put(&r->live_at, key_of(last.addr), at, err);
    }
    return PLIM_OK;
}

static enum plim_status add_segment(struct rewind *r, struct plim_segment segment,
                                    struct plim_err *err)
{
    PLIM_TRY(plim_map_put(&r->segment_at, key_of(segment.addr), r->segments.n, err));
    return plim_vec_push(&r->segments, err, segment);
}

static enum plim_status drop_segment(struct rewind *r, uint64_t addr, struct plim_err *err)
{
    uint64_t at;
    if (!plim_map_take(&r->segment_at, key_of(addr), &at)) {
        r->gaps.unknown_segments++;
        return PLIM_OK;
    }
    struct plim_segment last = r->segments.items[--r->segments.n];
    if (at < r->segments.n) {
        r->segments.items[at] = last;
        return plim_map_put(&r->segment_at, key_of(last.addr), at, err);
    }
    return PLIM_OK;
}

/* The segment that covers addr; expandable runs are few, so a walk over all is only done for them. */
static struct plim_segment *covering_run(const struct rewind *r, uint64_t addr)
{
    plim_vec_foreach (s, &r->segments) {
        if (s->expandable && addr >= s->addr && addr - s->addr < s->size) {
            return s;
        }
    }
    return NULL;
}

/* Undo segment_map: the range leaves the run that covers it, which may split in two. */
static enum plim_status unmap_range(struct rewind *r, const struct plim_event *e,
                                    struct plim_err *err)
{
    struct plim_segment *run = covering_run(r, e->addr);
    if (!run || e->addr + e->size > run->addr + run->size) {
        r->gaps.unknown_segments++;
        return PLIM_OK;
    }
    struct plim_segment before = *run, after = *run;
    before.size = e->addr - run->addr;
    after.addr = e->addr + e->size;
    after.size = run->addr + run->size - after.addr;
    PLIM_TRY(drop_segment(r, run->addr, err));
    if (before.size > 0) {
        PLIM_TRY(add_segment(r, before, err));
    }
    return after.size > 0 ? add_segment(r, after, err) : PLIM_OK;
}

static struct plim_segment segment_of_event(const struct plim_event *e, bool expandable)
{
    return (struct plim_segment){
        .addr = e->addr,
        .size = e->size,
        .stack = e->stack,
        .stream = e->stream,
        .pool = e->pool == PLIM_NO_POOL ? 0 : e->pool,
        .small = e->size <= SMALL_SEGMENT,
        .expandable = expandable,
    };
}

/* Undo segment_unmap: the range joins its neighbours of the same stream and pool, or stands alone. */
static enum plim_status map_range(struct rewind *r, const struct plim_event *e,
                                  struct plim_err *err)
{
    struct plim_segment run = segment_of_event(e, true);
    run.small = e->size <= MOST_SMALL_PAGES;
    struct plim_segment *left = e->addr > 0 ? covering_run(r, e->addr - 1) : NULL;
    if (left && left->stream == run.stream && left->pool == run.pool) {
        run.addr = left->addr;
        run.size += left->size;
        run.small = left->small;
        PLIM_TRY(drop_segment(r, left->addr, err));
    }
    struct plim_segment *right = covering_run(r, e->addr + e->size);
    if (right && right->stream == run.stream && right->pool == run.pool) {
        run.size += right->size;
        run.small = right->small;
        PLIM_TRY(drop_segment(r, right->addr, err));
    }
    return add_segment(r, run, err);
}

/* Undo a completed free: the block is there again, waiting for its free to complete. */
static enum plim_status undo_free(struct rewind *r, const struct plim_event *e,
                                  enum plim_block_state state, struct plim_err *err)
{
    struct plim_block *block = find_live(r, e->addr);
    if (block) {
        block->state = state;
        return PLIM_OK;
    }
    return add_live(r,
                    (struct plim_block){
                        .addr = e->addr,
                        .size = plim_round_up(plim_max_u64(e->size, 1), BLOCK_UNIT),
                        .requested = e->size,
                        .stack = e->stack,
                        .alloc_event = PLIM_NO_EVENT,
                        .state = state,
                    },
                    err);
}

static enum plim_status undo(struct rewind *r, const struct plim_event *e, struct plim_err *err)
{
    switch ((enum plim_action)e->action) {
    case PLIM_ACTION_ALLOC:
        return remove_live(r, e->addr, err);
    case PLIM_ACTION_FREE_COMPLETED:
        return undo_free(r, e,
                         r->trace->by_action[PLIM_ACTION_FREE_REQUESTED] ? PLIM_BLOCK_PENDING_FREE
                                                                         : PLIM_BLOCK_ALLOCATED,
                         err);
    case PLIM_ACTION_FREE_REQUESTED:
        return undo_free(r, e, PLIM_BLOCK_ALLOCATED, err);
    case PLIM_ACTION_SEGMENT_ALLOC:
        return drop_segment(r, e->addr, err);
    case PLIM_ACTION_SEGMENT_FREE:
        return add_segment(r, segment_of_event(e, false), err);
    case PLIM_ACTION_SEGMENT_MAP:
        return unmap_range(r, e, err);
    case PLIM_ACTION_SEGMENT_UNMAP:
        return map_range(r, e, err);
    case PLIM_ACTION_UNKNOWN:
    case PLIM_ACTION_SNAPSHOT:
    case PLIM_ACTION_OOM:
    case PLIM_ACTION_ANNOTATE:
    case PLIM_ACTION_COUNT:
        break;
    }
    return PLIM_OK;
}

static enum plim_status start_at_end(struct rewind *r, const struct plim_device *device,
                                     struct plim_err *err)
{
    r->trace = &device->trace;
    plim_vec_foreach (segment, &device->heap.segments) {
        PLIM_TRY(add_segment(r, *segment, err));
    }
    plim_vec_foreach (block, &device->heap.blocks) {
        if (plim_block_is_live(block)) {
            struct plim_block live = *block;
            live.alloc_event = PLIM_NO_EVENT;
            PLIM_TRY(add_live(r, live, err));
        }
    }
    return PLIM_OK;
}

/* The allocation of each live block from the history's map. */
static void take_births(struct rewind *r, const struct plim_map *births)
{
    plim_vec_foreach (block, &r->live) {
        const uint64_t *birth = plim_map_get(births, key_of(block->addr));
        if (birth) {
            const struct plim_event *e = &r->trace->events.items[*birth];
            block->alloc_event = (uint32_t)*birth;
            block->stack = e->stack != PLIM_NO_STACK ? e->stack : block->stack;
        }
    }
}

/* Look further back for the allocation of each live block: its event and its stack. */
static void find_births(struct rewind *r, size_t position)
{
    size_t missing = r->live.n;
    for (size_t i = position; i-- > 0 && missing > 0;) {
        const struct plim_event *e = &r->trace->events.items[i];
        if (e->action != PLIM_ACTION_ALLOC) {
            continue;
        }
        struct plim_block *block = find_live(r, e->addr);
        if (block && block->alloc_event == PLIM_NO_EVENT) {
            block->alloc_event = (uint32_t)i;
            block->stack = e->stack != PLIM_NO_STACK ? e->stack : block->stack;
            missing--;
        }
    }
}

static int by_block_addr(const void *a, const void *b)
{
    const struct plim_block *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static int by_segment_addr(const void *a, const void *b)
{
    const struct plim_segment *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static enum plim_status push_block(struct plim_heap *heap, struct plim_block block,
                                   struct plim_err *err)
{
    block.segment = (uint32_t)(heap->segments.n - 1);
    heap->segments.items[block.segment].n_blocks++;
    return plim_vec_push(&heap->blocks, err, block);
}

/* The gap [from, to) behind `before`: slack of that block when too small to be free, else a free block. */
static enum plim_status push_gap(struct plim_heap *heap, const struct plim_segment *segment,
                                 uint64_t from, uint64_t to, struct plim_err *err)
{
    struct plim_block *before = heap->segments.items[heap->segments.n - 1].n_blocks > 0
                                    ? &heap->blocks.items[heap->blocks.n - 1]
                                    : NULL;
    if (to <= from) {
        return PLIM_OK;
    }
    if (before && !segment->small && !segment->expandable && to - from <= MAX_UNSPLIT) {
        before->size += to - from;
        return PLIM_OK;
    }
    return push_block(heap,
                      (struct plim_block){.addr = from,
                                          .size = to - from,
                                          .stack = PLIM_NO_STACK,
                                          .alloc_event = PLIM_NO_EVENT,
                                          .state = PLIM_BLOCK_INACTIVE},
                      err);
}

/* One segment with the live blocks from *next on that lie in it. */
static enum plim_status build_segment(struct rewind *r, const struct plim_segment *source,
                                      size_t *next, struct plim_heap *heap, struct plim_err *err)
{
    struct plim_segment segment = *source;
    segment.first_block = (uint32_t)heap->blocks.n;
    segment.n_blocks = 0;
    PLIM_TRY(plim_vec_push(&heap->segments, err, segment));
    uint64_t end = plim_add_sat(segment.addr, segment.size), at = segment.addr;
    for (; *next < r->live.n && r->live.items[*next].addr < end; (*next)++) {
        struct plim_block block = r->live.items[*next];
        if (block.addr < at) { /* before the segment, or overlapping the block before */
            r->gaps.outside++;
            continue;
        }
        block.size = plim_min_u64(block.size, end - block.addr);
        PLIM_TRY(push_gap(heap, &segment, at, block.addr, err));
        PLIM_TRY(push_block(heap, block, err));
        at = block.addr + block.size;
    }
    return push_gap(heap, &segment, at, end, err);
}

static enum plim_status build(struct rewind *r, struct plim_heap *heap, struct plim_err *err)
{
    size_t next = 0;
    if (r->live.n > 0) {
        qsort(r->live.items, r->live.n, sizeof(r->live.items[0]), by_block_addr);
    }
    if (r->segments.n > 0) {
        qsort(r->segments.items, r->segments.n, sizeof(r->segments.items[0]), by_segment_addr);
    }
    plim_vec_foreach (segment, &r->segments) {
        PLIM_TRY(build_segment(r, segment, &next, heap, err));
    }
    r->gaps.outside += r->live.n - next;
    return PLIM_OK;
}

enum plim_status plim_heap_at(const struct plim_device *device, size_t position,
                              const struct plim_map *births, struct plim_heap *out,
                              struct plim_moment_gaps *gaps, struct plim_err *err)
{
    struct rewind r = {0};
    struct plim_heap heap = {0};
    size_t n = device->trace.events.n;
    if (position > n) {
        return plim__fail(err, PLIM_E_RANGE, "position %zu is behind the trace of %zu events",
                          position, n);
    }
    enum plim_status st = start_at_end(&r, device, err);
    for (size_t i = n; st == PLIM_OK && i > position; i--) {
        st = undo(&r, &device->trace.events.items[i - 1], err);
    }
    if (st == PLIM_OK) {
        if (births) {
            take_births(&r, births);
        } else {
            find_births(&r, position);
        }
        st = build(&r, &heap, err);
    }
    if (st == PLIM_OK) {
        *out = heap;
        if (gaps) {
            *gaps = r.gaps;
        }
    } else {
        plim_heap_fini(&heap);
    }
    rewind_fini(&r);
    return st;
}

/* The change that an event made to allocated (live) and to reserved bytes. */
static void change_of(const struct plim_event *e, bool frees_are_requests, int64_t *allocated,
                      int64_t *reserved)
{
    int64_t rounded = (int64_t)plim_round_up(e->size & (UINT64_MAX >> 2), BLOCK_UNIT);
    int64_t bytes = (int64_t)(e->size & (UINT64_MAX >> 2));
    *allocated = *reserved = 0;
    switch ((int)e->action) {
    case PLIM_ACTION_ALLOC:
        *allocated = rounded;
        break;
    case PLIM_ACTION_FREE_REQUESTED:
        *allocated = frees_are_requests ? -rounded : 0;
        break;
    case PLIM_ACTION_FREE_COMPLETED:
        *allocated = frees_are_requests ? 0 : -rounded;
        break;
    case PLIM_ACTION_SEGMENT_ALLOC:
    case PLIM_ACTION_SEGMENT_MAP:
        *reserved = bytes;
        break;
    case PLIM_ACTION_SEGMENT_FREE:
    case PLIM_ACTION_SEGMENT_UNMAP:
        *reserved = -bytes;
        break;
    default:
        break;
    }
}

struct plim_peaks plim_trace_peaks(const struct plim_device *device)
{
    const struct plim_trace *trace = &device->trace;
    struct plim_heap_totals end = plim_totals_of_heap(&device->heap);
    bool requests = trace->by_action[PLIM_ACTION_FREE_REQUESTED] > 0;
    size_t n = trace->events.n;
    struct plim_peaks peaks = {end.allocated, end.reserved, n, n, 0};
    uint64_t allocated = end.allocated, reserved = end.reserved;
    for (size_t i = n; i-- > 0;) {
        int64_t da, dr;
        change_of(&trace->events.items[i], requests, &da, &dr);
        allocated -= (uint64_t)da; /* modulo 2^64: a trace with holes may dip below zero */
        reserved -= (uint64_t)dr;
        if (allocated > peaks.allocated && allocated <= INT64_MAX) {
            peaks.allocated = allocated;
            peaks.allocated_at = i;
        }
        if (reserved > peaks.reserved && reserved <= INT64_MAX) {
            peaks.reserved = reserved;
            peaks.reserved_at = i;
        }
    }
    peaks.reserved_at_start = reserved <= INT64_MAX ? reserved : 0;
    return peaks;
}
