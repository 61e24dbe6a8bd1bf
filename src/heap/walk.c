/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of each event; see walk.h. */

#include "heap/walk.h"

#include "base/num.h"
#include "heap/moment.h"
#include "heap/totals.h"

#include <string.h>

#define BLOCK_UNIT 512u
#define SMALL_PAGE (2 * PLIM_MIB)
#define LARGE_PAGE (20 * PLIM_MIB)
#define MAX_PAGES  65536u /* a longer run is kept as one range */

void plim_walk_fini(struct plim_walk *walk)
{
    plim_ranges_fini(&walk->ranges);
    plim_vec_fini(&walk->segments);
    plim_vec_fini(&walk->unused);
}

/* Add (or with `sign` 1, subtract) what a segment contributes to the sums. Modulo 2^64. */
static void contribute(struct plim_walk *walk, const struct plim_walk_segment *s, bool subtract)
{
    uint64_t hole = plim_sub_sat(s->size, s->live);
    uint64_t *to = s->private_      ? &walk->now.private_free
                   : s->blocks == 0 ? &walk->now.releasable
                                    : &walk->now.stranded;
    *to += subtract ? 0 - hole : hole;
    walk->now.reserved += subtract ? 0 - s->size : s->size;
}

static enum plim_status add_range(struct plim_walk *walk, uint64_t addr, uint64_t size,
                                  bool private_, struct plim_err *err)
{
    uint32_t index;
    struct plim_walk_segment segment = {.size = size, .private_ = private_};
    if (walk->unused.n > 0) {
        index = walk->unused.items[--walk->unused.n];
        walk->segments.items[index] = segment;
    } else {
        index = (uint32_t)walk->segments.n;
        PLIM_TRY(plim_vec_push(&walk->segments, err, segment));
    }
    contribute(walk, &segment, false);
    return plim_ranges_put(&walk->ranges, (struct plim_addr_range){addr, size, index}, err);
}

static enum plim_status drop_range(struct plim_walk *walk, uint64_t addr,
                                   struct plim_addr_range *gone, struct plim_err *err)
{
    if (!plim_ranges_take(&walk->ranges, addr, gone)) {
        gone->size = 0;
        return PLIM_OK;
    }
    contribute(walk, &walk->segments.items[gone->id], true);
    return plim_vec_push(&walk->unused, err, (uint32_t)gone->id);
}

/* A run of an expandable segment, page by page. */
static enum plim_status add_pages(struct plim_walk *walk, uint64_t addr, uint64_t size,
                                  uint64_t page, bool private_, struct plim_err *err)
{
    if (size / page > MAX_PAGES) {
        return add_range(walk, addr, size, private_, err);
    }
    for (uint64_t at = 0; at < size; at += page) {
        uint64_t piece = plim_min_u64(page, size - at);
        PLIM_TRY(add_range(walk, addr + at, piece, private_, err));
    }
    return PLIM_OK;
}

static bool is_private(uint16_t pool)
{
    return pool != 0 && pool != PLIM_NO_POOL;
}

static enum plim_status map_pages(struct plim_walk *walk, const struct plim_event *e,
                                  struct plim_err *err)
{
    uint64_t page = e->size % LARGE_PAGE == 0 ? LARGE_PAGE : SMALL_PAGE;
    return add_pages(walk, e->addr, e->size, page, is_private(e->pool), err);
}

/* Ranges that begin in [addr, addr + size) go; what reaches beyond comes back as a shorter one. */
static enum plim_status unmap_pages(struct plim_walk *walk, const struct plim_event *e,
                                    struct plim_err *err)
{
    uint64_t at = e->addr, end = plim_add_sat(e->addr, e->size);
    while (at < end) {
        struct plim_addr_range *range = plim_ranges_find(&walk->ranges, at), gone;
        if (!range) {
            return PLIM_OK;
        }
        bool private_ = walk->segments.items[range->id].private_;
        PLIM_TRY(drop_range(walk, range->addr, &gone, err));
        uint64_t gone_end = plim_add_sat(gone.addr, gone.size);
        if (gone.addr < at) {
            PLIM_TRY(add_range(walk, gone.addr, at - gone.addr, private_, err));
        }
        if (gone_end > end) {
            PLIM_TRY(add_range(walk, end, gone_end - end, private_, err));
        }
        at = gone_end;
    }
    return PLIM_OK;
}

/* The block [addr, addr + size) comes or goes. */
static void change_block(struct plim_walk *walk, uint64_t addr, uint64_t size, bool comes)
{
    uint64_t at = addr, end = plim_add_sat(addr, size);
    while (at < end) {
        const struct plim_addr_range *range = plim_ranges_find(&walk->ranges, at);
        if (!range) {
            return;
        }
        struct plim_walk_segment *s = &walk->segments.items[range->id];
        uint64_t part = plim_min_u64(end, plim_add_sat(range->addr, range->size)) - at;
        contribute(walk, s, true);
        if (comes) {
            s->live += part;
            s->blocks++;
        } else {
            s->live = plim_sub_sat(s->live, part);
            s->blocks -= s->blocks > 0;
        }
        contribute(walk, s, false);
        at += part;
    }
}

static void block_comes(struct plim_walk *walk, uint64_t addr, uint64_t size, uint64_t requested)
{
    walk->now.live += requested;
    walk->now.rounding += plim_sub_sat(size, requested);
    change_block(walk, addr, size, true);
}

static uint64_t rounded(uint64_t size)
{
    return plim_round_up(plim_max_u64(size & (UINT64_MAX >> 2), 1), BLOCK_UNIT);
}

static void block_goes(struct plim_walk *walk, const struct plim_event *e)
{
    uint64_t requested = e->size & (UINT64_MAX >> 2), size = rounded(e->size);
    walk->now.live = plim_sub_sat(walk->now.live, requested);
    walk->now.rounding = plim_sub_sat(walk->now.rounding, size - requested);
    change_block(walk, e->addr, size, false);
}

static enum plim_status start(struct plim_walk *walk, const struct plim_heap *heap,
                              struct plim_err *err)
{
    plim_vec_foreach (s, &heap->segments) {
        uint64_t page = !s->expandable ? plim_max_u64(s->size, 1)
                        : s->small     ? SMALL_PAGE
                                       : LARGE_PAGE;
        PLIM_TRY(add_pages(walk, s->addr, s->size, page, is_private(s->pool), err));
    }
    plim_vec_foreach (b, &heap->blocks) {
        if (plim_block_is_live(b)) {
            uint64_t requested = b->requested & (UINT64_MAX >> 2);
            block_comes(walk, b->addr, rounded(requested), requested);
        }
    }
    return PLIM_OK;
}

enum plim_status plim_walk_init(struct plim_walk *walk, const struct plim_device *device,
                                struct plim_err *err)
{
    struct plim_heap heap;
    struct plim_walk w = {.trace = &device->trace, .first_split = SIZE_MAX};
    w.frees_are_requests = device->trace.by_action[PLIM_ACTION_FREE_COMPLETED] == 0;
    PLIM_TRY(plim_heap_at(device, 0, NULL, &heap, NULL, err));
    enum plim_status st = start(&w, &heap, err);
    plim_heap_fini(&heap);
    if (st != PLIM_OK) {
        plim_walk_fini(&w);
        return st;
    }
    *walk = w;
    return PLIM_OK;
}

enum plim_status plim_walk_step(struct plim_walk *walk, struct plim_err *err)
{
    const struct plim_event *e = &walk->trace->events.items[walk->position++];
    struct plim_addr_range gone;
    uint64_t stranded = walk->now.stranded;
    switch ((int)e->action) {
    case PLIM_ACTION_ALLOC:
        block_comes(walk, e->addr, rounded(e->size), e->size & (UINT64_MAX >> 2));
        if (walk->first_split == SIZE_MAX && walk->now.stranded > stranded) {
            walk->first_split = walk->position;
        }
        break;
    case PLIM_ACTION_FREE_COMPLETED:
        block_goes(walk, e);
        break;
    case PLIM_ACTION_FREE_REQUESTED:
        if (walk->frees_are_requests) {
            block_goes(walk, e);
        }
        break;
    case PLIM_ACTION_SEGMENT_ALLOC:
        PLIM_TRY(drop_range(walk, e->addr, &gone, err)); /* of a trace with holes */
        return add_range(walk, e->addr, e->size, is_private(e->pool), err);
    case PLIM_ACTION_SEGMENT_FREE:
        return drop_range(walk, e->addr, &gone, err);
    case PLIM_ACTION_SEGMENT_MAP:
        return map_pages(walk, e, err);
    case PLIM_ACTION_SEGMENT_UNMAP:
        return unmap_pages(walk, e, err);
    default:
        break;
    }
    return PLIM_OK;
}

static enum plim_status copy_ranges(const struct plim_ranges *from, struct plim_ranges *to,
                                    struct plim_err *err)
{
    // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers are what is kept
    PLIM_TRY(plim_vec_reserve(&to->chunks, from->chunks.n, err));
    plim_vec_foreach (chunk, &from->chunks) {
        struct plim_ranges_chunk *copy = malloc(sizeof(*copy));
        if (!copy) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for a checkpoint of %zu ranges",
                              from->n);
        }
        *copy = **chunk;
        to->chunks.items[to->chunks.n++] = copy;
    }
    to->n = from->n;
    return PLIM_OK;
}

enum plim_status plim_walk_copy(const struct plim_walk *walk, struct plim_walk *out,
                                struct plim_err *err)
{
    struct plim_walk w = {
        .trace = walk->trace,
        .position = walk->position,
        .now = walk->now,
        .first_split = walk->first_split,
        .frees_are_requests = walk->frees_are_requests,
    };
    enum plim_status st = copy_ranges(&walk->ranges, &w.ranges, err);
    if (st == PLIM_OK) {
        st = plim_vec_reserve(&w.segments, walk->segments.n, err);
    }
    if (st == PLIM_OK) {
        st = plim_vec_reserve(&w.unused, walk->unused.n, err);
    }
    if (st != PLIM_OK) {
        plim_walk_fini(&w);
        return st;
    }
    plim_vec_foreach (s, &walk->segments) {
        w.segments.items[w.segments.n++] = *s;
    }
    plim_vec_foreach (u, &walk->unused) {
        w.unused.items[w.unused.n++] = *u;
    }
    *out = w;
    return PLIM_OK;
}
