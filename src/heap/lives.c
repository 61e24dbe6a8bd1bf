/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs each allocation with its end; see lives.h. */

#include "heap/lives.h"

#include "base/num.h"
#include "heap/moment.h"
#include "heap/ranges.h"
#include "heap/totals.h"

#define BLOCK_UNIT 512u
#define BEFORE     (UINT64_C(1) << 63) /* an index into `before`, not an event */

struct pairing {
    struct plim_lives lives;
    const struct plim_event *events;
    struct plim_map live; /* address -> event or BEFORE | index, with the request in bits 32-62 */
    struct plim_ranges present; /* segments that exist; id: index in lives.segments */
    bool frees_are_requests;
};

static uint64_t key_of(uint64_t addr)
{
    return addr == PLIM_MAP_NO_KEY ? 0 : addr;
}

static uint64_t rounded(uint64_t size)
{
    return plim_round_up(plim_max_u64(size, 1), BLOCK_UNIT);
}

void plim_lives_fini(struct plim_lives *lives)
{
    free(lives->link);
    lives->link = NULL;
    plim_map_fini(&lives->sizes);
    plim_vec_fini(&lives->before);
    plim_vec_fini(&lives->segments);
}

static enum plim_status open_segment(struct pairing *p, struct plim_life life, struct plim_err *err)
{
    struct plim_addr_range range = {life.addr, life.size, p->lives.segments.n};
    life.requested = life.size;
    life.freed = life.end = PLIM_LIFE_OPEN;
    PLIM_TRY(plim_vec_push(&p->lives.segments, err, life));
    return plim_ranges_put(&p->present, range, err);
}

static enum plim_status start(struct pairing *p, const struct plim_heap *heap, struct plim_err *err)
{
    plim_vec_foreach (s, &heap->segments) {
        struct plim_life life = {.addr = s->addr,
                                 .size = s->size,
                                 .stack = s->stack,
                                 .stream = s->stream,
                                 .pool = s->pool,
                                 .small = s->small,
                                 .expandable = s->expandable};
        PLIM_TRY(open_segment(p, life, err));
    }
    plim_vec_foreach (b, &heap->blocks) {
        if (!plim_block_is_live(b)) {
            continue;
        }
        const struct plim_segment *s = &heap->segments.items[b->segment];
        struct plim_life life = {.addr = b->addr,
                                 .size = b->size,
                                 .requested = b->requested,
                                 .freed = PLIM_LIFE_OPEN,
                                 .end = PLIM_LIFE_OPEN,
                                 .stack = b->stack,
                                 .stream = s->stream,
                                 .pool = s->pool};
        PLIM_TRY(plim_map_put(&p->live, key_of(b->addr), BEFORE | p->lives.before.n, err));
        PLIM_TRY(plim_vec_push(&p->lives.before, err, life));
    }
    return PLIM_OK;
}

static void free_requested(struct pairing *p, uint32_t i)
{
    uint64_t *value = plim_map_get(&p->live, key_of(p->events[i].addr));
    if (value && (*value & BEFORE)) {
        p->lives.before.items[(uint32_t)*value].freed = i + 1;
    } else if (value) {
        *value |= (uint64_t)(i + 1 < INT32_MAX ? i + 1 : 0) << 32;
    }
}

/* The block at the address of event i ends with it: freed, or, in a trace with holes, allocated anew. */
static void end_block(struct pairing *p, uint32_t i)
{
    uint64_t value;
    if (!plim_map_take(&p->live, key_of(p->events[i].addr), &value)) {
        return;
    }
    if (value & BEFORE) {
        struct plim_life *life = &p->lives.before.items[(uint32_t)value];
        life->end = i + 1;
        life->freed = life->freed < life->end ? life->freed : life->end;
    } else {
        p->lives.link[(uint32_t)value] = i + 1;
        if (p->events[i].action != PLIM_ACTION_ALLOC) { /* whose link is its own end */
            p->lives.link[i] = (uint32_t)(value >> 32);
        }
    }
}

static void end_segment(struct pairing *p, const struct plim_addr_range *range, uint32_t i)
{
    p->lives.segments.items[range->id].end = i + 1;
    p->lives.segments.items[range->id].freed = i + 1;
}

static struct plim_life segment_of(const struct plim_event *e, uint32_t i, bool expandable)
{
    return (struct plim_life){.addr = e->addr,
                              .size = e->size,
                              .start = i + 1,
                              .stack = e->stack,
                              .stream = e->stream,
                              .pool = e->pool == PLIM_NO_POOL ? 0 : e->pool,
                              .small = e->size <= 2 * PLIM_MIB,
                              .expandable = expandable};
}

/* Pages go: each run that they are part of ends, and what is left of it begins. */
static enum plim_status unmap(struct pairing *p, uint32_t i, struct plim_err *err)
{
    uint64_t at = p->events[i].addr, end = plim_add_sat(at, p->events[i].size);
    while (at < end) {
        const struct plim_addr_range *found = plim_ranges_find(&p->present, at);
        if (!found) {
            return PLIM_OK;
        }
        struct plim_addr_range run = *found;
        uint64_t run_end = plim_add_sat(run.addr, run.size);
        struct plim_life rest = p->lives.segments.items[run.id];
        end_segment(p, &run, i);
        (void)plim_ranges_take(&p->present, run.addr, NULL);
        rest.start = i + 1;
        if (run.addr < at) {
            rest.addr = run.addr;
            rest.size = at - run.addr;
            PLIM_TRY(open_segment(p, rest, err));
        }
        if (run_end > end) {
            rest.addr = end;
            rest.size = run_end - end;
            PLIM_TRY(open_segment(p, rest, err));
        }
        at = run_end;
    }
    return PLIM_OK;
}

static enum plim_status pair_event(struct pairing *p, uint32_t i, struct plim_err *err)
{
    const struct plim_event *e = &p->events[i];
    struct plim_addr_range range;
    switch ((int)e->action) {
    case PLIM_ACTION_ALLOC:
        p->lives.allocations++;
        end_block(p, i);
        return plim_map_put(&p->live, key_of(e->addr), i, err);
    case PLIM_ACTION_FREE_REQUESTED:
        free_requested(p, i);
        if (p->frees_are_requests) {
            end_block(p, i);
        }
        return PLIM_OK;
    case PLIM_ACTION_FREE_COMPLETED:
        end_block(p, i);
        return PLIM_OK;
    case PLIM_ACTION_SEGMENT_ALLOC:
    case PLIM_ACTION_SEGMENT_MAP:
        if (plim_ranges_take(&p->present, e->addr, &range)) {
            end_segment(p, &range, i);
        }
        return open_segment(p, segment_of(e, i, e->action == PLIM_ACTION_SEGMENT_MAP), err);
    case PLIM_ACTION_SEGMENT_FREE:
        if (plim_ranges_take(&p->present, e->addr, &range)) {
            end_segment(p, &range, i);
        }
        return PLIM_OK;
    case PLIM_ACTION_SEGMENT_UNMAP:
        return unmap(p, i, err);
    default:
        return PLIM_OK;
    }
}

/* The heap at the end knows the true size of the blocks that are still live. */
static enum plim_status take_sizes(struct pairing *p, const struct plim_heap *heap,
                                   struct plim_err *err)
{
    plim_vec_foreach (b, &heap->blocks) {
        const uint64_t *value = plim_map_get(&p->live, key_of(b->addr));
        if (!value || !plim_block_is_live(b)) {
            continue;
        }
        if (*value & BEFORE) {
            p->lives.before.items[(uint32_t)*value].size = b->size;
        } else if (b->size != rounded(p->events[(uint32_t)*value].size)) {
            PLIM_TRY(plim_map_put(&p->lives.sizes, (uint32_t)*value, b->size, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status pair_all(struct pairing *p, const struct plim_device *device,
                                 struct plim_err *err)
{
    struct plim_heap heap;
    size_t n = device->trace.events.n;
    p->lives.link = calloc(n + 1, sizeof(uint32_t));
    if (!p->lives.link) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to pair %zu events", n);
    }
    PLIM_TRY(plim_heap_at(device, 0, NULL, &heap, NULL, err));
    enum plim_status st = start(p, &heap, err);
    plim_heap_fini(&heap);
    for (uint32_t i = 0; st == PLIM_OK && i < n; i++) {
        st = pair_event(p, i, err);
    }
    return st == PLIM_OK ? take_sizes(p, &device->heap, err) : st;
}

enum plim_status plim_lives_read(const struct plim_device *device, struct plim_lives *out,
                                 struct plim_err *err)
{
    struct pairing p = {.events = device->trace.events.items};
    if (device->trace.events.n >= PLIM_LIFE_OPEN) {
        return plim__fail(err, PLIM_E_RANGE, "a trace of %zu events is too long to be drawn",
                          device->trace.events.n);
    }
    p.lives.trace = &device->trace;
    p.frees_are_requests = device->trace.by_action[PLIM_ACTION_FREE_COMPLETED] == 0;
    enum plim_status st = pair_all(&p, device, err);
    plim_map_fini(&p.live);
    plim_ranges_fini(&p.present);
    if (st == PLIM_OK) {
        *out = p.lives;
    } else {
        plim_lives_fini(&p.lives);
    }
    return st;
}

struct plim_life plim_lives_of_event(const struct plim_lives *lives, uint32_t event)
{
    const struct plim_event *e = &lives->trace->events.items[event];
    const uint64_t *known = plim_map_get(&lives->sizes, event);
    uint32_t end = lives->link[event], request = 0;
    if (end > 0 && lives->trace->events.items[end - 1].action != PLIM_ACTION_ALLOC) {
        request = lives->link[end - 1];
    }
    return (struct plim_life){.addr = e->addr,
                              .size = known ? *known : rounded(e->size),
                              .requested = e->size,
                              .start = event + 1,
                              .freed = end == 0  ? PLIM_LIFE_OPEN
                                       : request ? request
                                                 : end,
                              .end = end == 0 ? PLIM_LIFE_OPEN : end,
                              .stack = e->stack,
                              .stream = e->stream,
                              .pool = e->pool == PLIM_NO_POOL ? 0 : e->pool};
}
