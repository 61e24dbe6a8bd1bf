/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments: one large reservation of addresses for each (half, stream), into which pages of
 * 2 MiB (small half) or of the large segment size are mapped as needed.
 *
 * A reservation is a chain of blocks like any segment; parts without memory are UNMAPPED blocks, which
 * begin and end on page boundaries. Growing always extends the lowest run of idle blocks that is long
 * enough, so holes left by unmapping are filled first.
 */

#include "alloc/torch_int.h"

static uint64_t page_of(const struct plim_torch *t, uint16_t half)
{
    return half & 1 ? PLIM_TORCH_SMALL_SEGMENT : t->conf.large_segment;
}

/* ---- reservations ------------------------------------------------------------------------------ */

static uint32_t es_slot(struct plim_torch *t)
{
    for (uint32_t i = 1; i < t->es.n; i++) {
        if (t->es.items[i].page == 0) {
            return i;
        }
    }
    if (plim_vec_push(&t->es, NULL, (struct plim__es){0}) != PLIM_OK) {
        t->broken = true;
        return 0;
    }
    return (uint32_t)t->es.n - 1;
}

/* Reserve addresses for nine eighths of the device: one unmapped block; 0 when that fails. */
static uint32_t es_make(struct plim_torch *t, const struct plim__request *rq)
{
    uint64_t page = page_of(t, rq->half);
    uint64_t total = t->device->config.total;
    uint64_t size = plim_round_up(total + total / 8, page);
    uint64_t addr = 0;
    if (plim_devmodel_reserve(t->device, size, &addr, NULL) != PLIM_OK) {
        t->broken = true;
        return 0;
    }
    uint32_t es = addr ? es_slot(t) : 0;
    uint32_t i = es ? plim__block_new(t) : 0;
    if (!i) {
        return 0;
    }
    t->es.items[es] = (struct plim__es){addr, size, page, rq->half, rq->stream};
    uint32_t serial = t->blocks[i].serial;
    t->blocks[i] = (struct plim__block){
        .addr = addr,
        .size = size,
        .serial = serial,
        .counter = ++t->counter,
        .es = es,
        .stream = rq->stream,
        .half = rq->half,
    };
    plim__unmapped_put(t, i);
    return i;
}

struct plim_range plim__expandable_pages(const struct plim_torch *t, const struct plim__block *b)
{
    const struct plim__es *es = &t->es.items[b->es];
    uint64_t from = b->addr - es->addr;
    return (struct plim_range){es->addr + (from + es->page - 1) / es->page * es->page,
                               es->addr + (from + b->size) / es->page * es->page};
}

/* ---- growing ----------------------------------------------------------------------------------- */

static bool idle(const struct plim__block *b)
{
    return b->state == PLIM__CACHED || b->state == PLIM__UNMAPPED;
}

/* The lowest run of idle blocks of `size` bytes that holds an unmapped one: its first block, or 0. */
static uint32_t find_run(struct plim_torch *t, const struct plim__request *rq)
{
    struct plim__half *h = plim__half_at(t, rq->half);
    struct plim__freeset *set = &h->unmapped[rq->stream];
    t->broken = !plim__freeset_settle(set, &t->chunks) || t->broken;
    for (struct plim__pos pos = plim__freeset_first(set); !plim__freeset_at_end(set, pos);
         pos = plim__freeset_next(set, &t->chunks, pos)) {
        uint32_t first = plim__freeset_id(set, &t->chunks, pos);
        uint32_t prev = t->blocks[first].prev;
        if (prev && idle(&t->blocks[prev])) {
            first = prev;
        }
        uint64_t sum = 0;
        for (uint32_t i = first; i && idle(&t->blocks[i]); i = t->blocks[i].next) {
            sum += t->blocks[i].size;
            if (sum >= rq->size) {
                return first;
            }
        }
    }
    return 0;
}

/* Map the first `want` bytes of an unmapped block, rounded up to pages; it becomes a cached block and
 * swallows cached neighbours. False when the device is out of memory: nothing changed. */
static bool map_block(struct plim_torch *t, uint32_t block, uint64_t want)
{
    struct plim__es es = t->es.items[t->blocks[block].es];
    uint64_t addr = t->blocks[block].addr;
    uint64_t bytes = plim_round_up(want, es.page);
    if (!plim_devmodel_map(t->device, addr, es.page, bytes / es.page, t->rules.failure_asks_free)) {
        return false;
    }
    plim__unmapped_take(t, block);
    if (bytes < t->blocks[block].size) {
        uint32_t rest = plim__block_new(t);
        if (!rest) {
            return false;
        }
        struct plim__block *b = &t->blocks[block];
        struct plim__block *r = &t->blocks[rest];
        uint32_t serial = r->serial;
        *r = *b;
        r->serial = serial;
        r->requested = 0;
        r->addr += bytes;
        r->size -= bytes;
        r->prev = block;
        if (r->next) {
            t->blocks[r->next].prev = rest;
        }
        b->next = rest;
        b->size = bytes;
        plim__unmapped_put(t, rest);
    }
    plim__merge(t, block, t->blocks[block].prev);
    plim__merge(t, block, t->blocks[block].next);
    plim__cache(t, block);
    plim__driver_gain(t, (uint16_t)es.half, bytes);
    plim__emit(t, PLIM_ACTION_SEGMENT_MAP, addr, bytes, PLIM_TORCH_NONE, es.stream,
               (uint16_t)(es.half >> 1));
    return true;
}

uint32_t plim__expandable_alloc(struct plim_torch *t, const struct plim__request *rq)
{
    uint32_t c = find_run(t, rq);
    c = c ? c : es_make(t, rq);
    if (!c) {
        return 0;
    }
    if (t->blocks[c].state == PLIM__UNMAPPED &&
        !map_block(t, c, plim_min_u64(t->blocks[c].size, rq->size))) {
        return 0;
    }
    while (t->blocks[c].size < rq->size) {
        uint32_t next = t->blocks[c].next;
        uint64_t missing = rq->size - t->blocks[c].size;
        if (!next || !map_block(t, next, plim_min_u64(missing, t->blocks[next].size))) {
            return 0; /* what was mapped so far stays, cached */
        }
        c = next;
    }
    plim__uncache(t, c);
    return c;
}

/* ---- unmapping --------------------------------------------------------------------------------- */

/* Cut [addr, addr + size) off one end of a HELD block as a cached block of its own. */
static void cut_cached(struct plim_torch *t, uint32_t block, uint64_t addr, uint64_t size, bool low)
{
    uint32_t i = plim__block_new(t);
    if (!i) {
        return;
    }
    struct plim__block *b = &t->blocks[block];
    struct plim__block *n = &t->blocks[i];
    uint32_t serial = n->serial;
    *n = *b;
    n->serial = serial;
    n->requested = 0;
    n->addr = addr;
    n->size = size;
    if (low) {
        n->next = block;
        if (n->prev) {
            t->blocks[n->prev].next = i;
        }
        b->prev = i;
        b->addr += size;
    } else {
        n->prev = block;
        if (n->next) {
            t->blocks[n->next].prev = i;
        }
        b->next = i;
    }
    b->size -= size;
    plim__cache(t, i);
}

void plim__expandable_unmap(struct plim_torch *t, uint32_t block)
{
    struct plim_range pages = plim__expandable_pages(t, &t->blocks[block]);
    uint64_t lo = pages.lo;
    uint64_t hi = pages.hi;
    if (lo >= hi) {
        return;
    }
    uint32_t es_index = t->blocks[block].es;
    struct plim__es es = t->es.items[es_index];
    plim_devmodel_event_sync(t->device, t->streams[es.stream].handle, 0);
    plim_devmodel_unmap(t->device, lo, es.page, (hi - lo) / es.page);
    plim__uncache(t, block);
    struct plim__block b = t->blocks[block];
    if (lo > b.addr) {
        cut_cached(t, block, b.addr, lo - b.addr, true);
    }
    if (b.addr + b.size > hi) {
        cut_cached(t, block, hi, b.addr + b.size - hi, false);
    }
    t->blocks[block].state = PLIM__UNMAPPED;
    plim__merge(t, block, t->blocks[block].prev);
    plim__merge(t, block, t->blocks[block].next);
    plim__driver_loss(t, (uint16_t)es.half, hi - lo);
    plim__emit(t, PLIM_ACTION_SEGMENT_UNMAP, lo, hi - lo, PLIM_TORCH_NONE, es.stream,
               (uint16_t)(es.half >> 1));
    if (t->blocks[block].prev || t->blocks[block].next) {
        plim__unmapped_put(t, block);
        return;
    }
    if (plim_devmodel_unreserve(t->device, es.addr, NULL) != PLIM_OK) {
        t->broken = true;
    }
    t->es.items[es_index].page = 0;
    plim__block_drop(t, block);
}
