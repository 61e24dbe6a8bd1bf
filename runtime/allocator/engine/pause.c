/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools whose memory is given back for a time. Blocks and free lists stay as they are, so that a paused
 * arena differs from others only in what the driver knows: no page is mapped in it. Its pages count neither as
 * reserved nor as releasable, and its blocks not as live: they are on no device, so that the highest live, by which
 * pages are made or moved, and what programs and snapshots are told speak of the same memory.
 */

#include "engine_int.h"

uint64_t plim__mv_each_page(struct plim_engine *e, struct arena *a, uint64_t until,
                            plim__mv_page_fn *fn)
{
    uint64_t at = a->base;
    for (uint32_t i = a->first; i && at < until; i = block_at(e, i)->next) {
        const struct block *b = block_at(e, i);
        uint64_t end = b->addr + b->size;
        if (b->state == PLIM_ENGINE_VOID) {
            continue;
        }
        at = at > b->addr ? at : b->addr; /* a page that two blocks share comes once */
        while (at < end && at < until) {
            uint64_t page = page_bytes(e, a, at);
            if (!fn(e, a, at, page)) {
                return at;
            }
            at += page;
        }
    }
    return until;
}

bool plim__mv_page_drop(struct plim_engine *e, struct arena *a, uint64_t at, uint64_t page)
{
    e->config.driver->unmap(e->config.ctx, at, page);
    e->config.driver->release(e->config.ctx, *handle_at(e, a, at), page);
    e->stats.reserved -= page;
    e->stats.released++;
    return true;
}

static bool page_back(struct plim_engine *e, struct arena *a, uint64_t at, uint64_t page)
{
    const struct plim_engine_driver *d = e->config.driver;
    uint64_t handle;
    if (e->stats.reserved + page > e->cap || d->create(e->config.ctx, page, &handle) != 0) {
        return false;
    }
    bool mapped = d->map(e->config.ctx, at, page, handle) == 0;
    if (!mapped || d->access(e->config.ctx, at, page) != 0) {
        if (mapped) {
            d->unmap(e->config.ctx, at, page);
        }
        d->release(e->config.ctx, handle, page);
        return false;
    }
    *handle_at(e, a, at) = handle;
    e->stats.created++;
    e->stats.reserved += page;
    return true;
}

/* Bytes of an arena's blocks that are counted as live while it is not paused. */
static struct plim_engine_stats live_of(const struct plim_engine *e, const struct arena *a)
{
    struct plim_engine_stats sum = {0};
    for (uint32_t i = a->first; i; i = block_at(e, i)->next) {
        const struct block *b = block_at(e, i);
        if (b->state == PLIM_ENGINE_LIVE || b->state == PLIM_ENGINE_PENDING) {
            sum.live += b->size;
            sum.requested += b->requested;
            sum.pending += b->state == PLIM_ENGINE_PENDING ? b->size : 0;
        }
    }
    return sum;
}

bool plim__mv_pool_paused(const struct plim_engine *e, const struct arena_key *key)
{
    uint32_t arena = plim__mv_arena_of(e, key);
    if (arena) {
        return arena_at(e, arena)->paused;
    }
    for (uint32_t i = 1; i < e->arenas.n; i++) { /* its first request: an arena will be opened */
        const struct arena *a = arena_at(e, i);
        if (a->key.pool == key->pool && a->paused && !a->gone) {
            return true;
        }
    }
    return false;
}

static void away(struct plim_engine *e, struct arena *a)
{
    struct plim_engine_stats sum = live_of(e, a);
    e->stats.live -= sum.live;
    e->stats.requested -= sum.requested;
    e->stats.pending -= sum.pending;
    plim__mv_each_page(e, a, a->base + a->size, plim__mv_page_drop);
    e->stats.releasable -= a->free_whole;
    a->paused = true;
}

uint64_t plim_engine_pause(struct plim_engine *e, uint64_t pool)
{
    uint64_t before = e->stats.reserved;
    for (uint32_t i = 1; i < e->arenas.n && pool; i++) {
        struct arena *a = arena_at(e, i);
        if (a->key.pool == pool && !a->paused) {
            away(e, a);
        }
    }
    return before - e->stats.reserved;
}

enum plim_engine_code plim_engine_resume(struct plim_engine *e, uint64_t pool)
{
    for (uint32_t i = 1; i < e->arenas.n && pool; i++) {
        struct arena *a = arena_at(e, i);
        if (a->key.pool != pool || !a->paused) {
            continue;
        }
        uint64_t end = a->base + a->size, at = plim__mv_each_page(e, a, end, page_back);
        if (at < end) {
            plim__mv_each_page(e, a, at, plim__mv_page_drop);
            plim_engine_pause(e, pool); /* those that are back already */
            return PLIM_ENGINE_NO_MEMORY;
        }
        note_reserved(e);
        struct plim_engine_stats sum = live_of(e, a);
        count_live(e, sum.live, sum.requested);
        e->stats.pending += sum.pending;
        e->stats.releasable += a->free_whole;
        a->paused = false;
    }
    return PLIM_ENGINE_OK;
}
