/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that are there: which of them could serve elsewhere, and taking them away. A page is wholly free when
 * one FREE block covers it; it may be taken behind a fence that was recorded after the block's last free.
 */

#include "engine_int.h"

/* ---- fences --------------------------------------------------------------------------------------- */

static uint64_t fence_oldest(const struct arena *a)
{
    return a->fence.event[fences_done(a) % FENCES];
}

/* The oldest outstanding fence has completed. */
static void fence_passed(struct plim_engine *e, struct arena *a)
{
    e->config.driver->forget(e->config.ctx, fence_oldest(a));
    a->fence.n--;
}

static void fences_ask(struct plim_engine *e, struct arena *a)
{
    while (a->fence.n > 0 && e->config.driver->done(e->config.ctx, fence_oldest(a))) {
        fence_passed(e, a);
    }
}

void plim__mv_fence_record(struct plim_engine *e, struct arena *a)
{
    if (a->fence.n == FENCES) {
        return;
    }
    uint64_t event = e->config.driver->record(e->config.ctx, a->key.stream);
    if (event) {
        a->fence.event[a->fence.next % FENCES] = event;
        a->fence.next++;
        a->fence.n++;
    }
}

/* Wait until fence `number` is behind us. False: the driver would not. */
static bool fence_wait(struct plim_engine *e, struct arena *a, uint64_t number)
{
    fences_ask(e, a);
    while (fences_done(a) <= number) {
        if (a->fence.next <= number && a->fence.n < FENCES) {
            plim__mv_fence_record(e, a);
            if (a->fence.next <= number) {
                return false;
            }
            continue;
        }
        if (a->fence.n == 0) {
            return false;
        }
        e->config.driver->wait(e->config.ctx, fence_oldest(a));
        e->stats.waits++;
        fence_passed(e, a);
    }
    return true;
}

/* ---- the table of pages --------------------------------------------------------------------------- */

void plim__mv_page_set(const struct plim_engine *e, struct arena *a, uint64_t at, uint64_t size,
                       uint64_t handle)
{
    uint16_t *entry = entry_at(e, a, at);
    uint64_t n = size >> e->page_shift;
    *handle_at(e, a, at) = handle;
    entry[0] = (uint16_t)n;
    for (uint64_t i = 1; i < n; i++) {
        entry[i] = (uint16_t)(PAGE_REST | i);
    }
}

/* ---- taking pages away --------------------------------------------------------------------------- */

void plim__mv_unmap(struct plim_engine *e, struct arena *a, uint64_t lo, uint64_t hi,
                    struct loot *loot)
{
    e->config.driver->unmap(e->config.ctx, lo, hi - lo);
    for (uint64_t at = lo; at < hi;) {
        uint64_t size = page_bytes(e, a, at);
        loot->page[loot->n].handle = *handle_at(e, a, at);
        loot->page[loot->n++].size = size;
        for (uint64_t end = at + size; at < end; at += e->config.small_page) {
            *entry_at(e, a, at) = 0;
        }
    }
    loot->bytes += hi - lo;
}

struct wish {
    uint64_t most;  /* bytes of all together */
    unsigned pages; /* most, number */
    bool wait;      /* also those that are not idle yet */
};

/* The first pages in [*lo, *hi), one behind the other, that are no longer together than is wished for. */
static void stretch(const struct plim_engine *e, const struct arena *a, const struct wish *wish,
                    uint64_t *lo, uint64_t *hi)
{
    uint64_t at = *lo;
    while (at < *hi && page_bytes(e, a, at) > wish->most) {
        at += page_bytes(e, a, at);
    }
    *lo = at;
    for (unsigned n = 0; at < *hi && n < wish->pages; n++) {
        uint64_t end = at + page_bytes(e, a, at);
        if (end - *lo > wish->most) {
            break;
        }
        at = end;
    }
    *hi = at;
}

/* Take the pages [lo, hi) out of FREE block i (in its bin). */
static void take_pages(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t lo, uint64_t hi,
                       struct loot *loot)
{
    if (!plim__mv_blocks_spare(e, 2)) {
        return;
    }
    plim__mv_bin_take(e, a, i);
    plim__mv_unmap(e, a, lo, hi, loot);
    if (block_at(e, i)->addr + block_at(e, i)->size > hi) {
        plim__mv_bin_put(e, a, plim__mv_block_cut(e, i, hi - block_at(e, i)->addr));
    }
    if (block_at(e, i)->addr < lo) {
        uint32_t left = i;
        i = plim__mv_block_cut(e, i, lo - block_at(e, i)->addr);
        plim__mv_bin_put(e, a, left);
    }
    plim__mv_block_void(e, a, i);
}

/* Pages of one FREE block. */
static void loot_block(struct plim_engine *e, struct arena *a, uint32_t i, const struct wish *wish,
                       struct loot *loot)
{
    const struct block *b = block_at(e, i);
    struct wish rest = {wish->most - loot->bytes, wish->pages - loot->n, wish->wait};
    uint64_t lo, hi;
    plim__mv_whole_pages(e, a, b, &lo, &hi);
    stretch(e, a, &rest, &lo, &hi);
    if (lo < hi && (b->fence < fences_done(a) || (wish->wait && fence_wait(e, a, b->fence)))) {
        take_pages(e, a, i, lo, hi, loot);
    }
}

static bool is_met(const struct wish *wish, const struct loot *loot)
{
    return loot->n == wish->pages || loot->bytes == wish->most;
}

/* Free pages of an arena, the smallest runs first: what is torn there is of least use to others. Runs that are
 * shorter than any page, of which there may be millions, are not looked at. */
static void loot_arena(struct plim_engine *e, struct arena *a, const struct wish *wish,
                       struct loot *loot)
{
    unsigned row, col;
    fences_ask(e, a);
    plim__mv_cell(e->config.small_page, &row, &col);
    for (; row < BIN_ROWS && !is_met(wish, loot) && a->free_whole > 0; row++) {
        for (col = 0; col < BIN_COLS && !is_met(wish, loot); col++) {
            uint32_t next;
            for (uint32_t i = a->bin[row][col]; i && !is_met(wish, loot); i = next) {
                next = block_at(e, i)->forth;
                e->stats.looked++;
                loot_block(e, a, i, wish, loot);
            }
        }
    }
}

bool plim__mv_may_loot(const struct plim_engine *e, const struct arena *a)
{
    bool stays = a->key.pool != 0 && !(a->key.pool & PLIM_ENGINE_POOL_LOOSE);
    return a->size > 0 && !stays && a->free_whole > 0 && !a->paused &&
           !(a->key.height && e->follow.spared);
}

void plim__mv_loot(struct plim_engine *e, uint32_t own, uint64_t most, bool wait, struct loot *loot)
{
    struct wish wish = {most, BATCH, wait};
    if (plim__mv_may_loot(e, arena_at(e, own))) {
        loot_arena(e, arena_at(e, own), &wish, loot);
    }
    for (uint32_t i = 1; i < e->arenas.n && !is_met(&wish, loot); i++) {
        struct arena *a = arena_at(e, i);
        if (i != own && plim__mv_may_loot(e, a)) {
            loot_arena(e, a, &wish, loot);
        }
    }
}

void plim__mv_give_back(struct plim_engine *e, const struct loot *loot)
{
    for (unsigned i = 0; i < loot->n; i++) {
        e->config.driver->release(e->config.ctx, loot->page[i].handle, loot->page[i].size);
        e->stats.reserved -= loot->page[i].size;
        e->stats.released++;
    }
}

bool plim__mv_release_one(struct plim_engine *e, bool wait)
{
    struct wish wish = {UINT64_MAX, 1, wait};
    struct loot loot = {.n = 0};
    for (uint32_t i = 1; i < e->arenas.n && loot.n == 0; i++) {
        if (plim__mv_may_loot(e, arena_at(e, i))) {
            loot_arena(e, arena_at(e, i), &wish, &loot);
        }
    }
    plim__mv_give_back(e, &loot);
    return loot.n > 0;
}

void plim__mv_pages_trim(struct plim_engine *e, uint32_t arena)
{
    struct arena *a = arena_at(e, arena);
    struct wish wish = {UINT64_MAX, BATCH, true};
    while (plim__mv_may_loot(e, a)) {
        struct loot loot = {.n = 0};
        loot_arena(e, a, &wish, &loot);
        if (loot.n == 0) {
            return;
        }
        plim__mv_give_back(e, &loot);
    }
}
