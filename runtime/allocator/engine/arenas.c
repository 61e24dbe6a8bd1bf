/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: made, found by whom they serve or by an address, handed on, given back. */

#include "engine_int.h"

#include <sys/mman.h>

#define SMALL_SHIFT 9  /* granule of a small arena: a unit */
#define LARGE_SHIFT 20 /* of a large one: every block there is larger */
#define LARGE_SPACE 4  /* addresses of a large arena, in sizes of the device */

static uint32_t bucket_of(const struct arena_key *key)
{
    uint64_t h =
        (key->stream ^ (key->pool * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu + latest_of(key);
    return (uint32_t)((h ^ (h >> 33)) % ARENA_BUCKETS);
}

static bool serves(const struct arena *a, const struct arena_key *key)
{
    return a->key.stream == key->stream && a->key.pool == key->pool && a->key.large == key->large &&
           a->key.height == key->height;
}

static void by_base_add(struct plim_engine *e, uint32_t arena)
{
    uint32_t at = e->n_by_base++;
    while (at > 0 && arena_at(e, e->by_base[at - 1])->base > arena_at(e, arena)->base) {
        e->by_base[at] = e->by_base[at - 1];
        at--;
    }
    e->by_base[at] = (uint16_t)arena;
}

static void tables_close(const struct plim_engine *e, struct arena *a)
{
    if (a->starts) {
        munmap(a->starts, (a->size >> a->shift) * sizeof *a->starts);
    }
    if (a->handles) {
        munmap(a->handles, (a->size >> e->page_shift) * sizeof *a->handles);
    }
    if (a->pages) {
        munmap(a->pages, (a->size >> e->page_shift) * sizeof *a->pages);
    }
}

/* Addresses and tables for an arena; half as many addresses when there are not so many. */
static bool arena_room(struct plim_engine *e, struct arena *a)
{
    const struct plim_engine_driver *d = e->config.driver;
    uint64_t least =
        round_up(a->key.height ? a->key.height : e->config.total, e->config.small_page);
    bool more = a->key.large && a->key.pool == 0 && !a->key.height;
    a->size = more ? least * LARGE_SPACE : least;
    while (d->reserve(e->config.ctx, a->size, e->config.small_page, &a->base) != 0) {
        a->size = round_up(a->size / 2, e->config.small_page);
        if (a->size < least) {
            return false;
        }
    }
    a->starts = plim__mv_space((a->size >> a->shift) * sizeof *a->starts);
    a->handles = plim__mv_space((a->size >> e->page_shift) * sizeof *a->handles);
    a->pages = plim__mv_space((a->size >> e->page_shift) * sizeof *a->pages);
    if (a->starts && a->handles && a->pages) {
        return true;
    }
    tables_close(e, a);
    d->unreserve(e->config.ctx, a->base, a->size);
    return false;
}

/* An arena whose pool is gone and which has nothing left in it serves the next pool. */
static uint32_t arena_left_over(const struct plim_engine *e, const struct arena_key *key)
{
    for (uint32_t i = 1; i < e->arenas.n && key->pool; i++) {
        const struct arena *a = arena_at(e, i);
        const struct block *b = block_at(e, a->first);
        if (a->gone && a->key.large == key->large && b->state == PLIM_ENGINE_VOID && !b->next) {
            return i;
        }
    }
    return 0;
}

static void arena_list(struct plim_engine *e, uint32_t i, const struct arena_key *key)
{
    struct arena *a = arena_at(e, i);
    uint32_t bucket = bucket_of(key);
    a->key = *key;
    a->gone = false;
    a->chain = e->bucket[bucket];
    e->bucket[bucket] = i;
}

void plim__mv_arena_unlist(struct plim_engine *e, uint32_t i)
{
    struct arena *a = arena_at(e, i);
    uint32_t *link = &e->bucket[bucket_of(&a->key)];
    while (*link != i) {
        link = &arena_at(e, *link)->chain;
    }
    *link = a->chain;
    a->key.pool = 0;
    a->gone = true;
    uint32_t *latest = &e->latest[latest_of(&a->key)];
    *latest = *latest == i ? 0 : *latest;
}

uint32_t plim__mv_arena_open(struct plim_engine *e, const struct arena_key *key)
{
    uint32_t i = arena_left_over(e, key);
    if (i) {
        arena_list(e, i, key);
        return i;
    }
    if (e->arenas.n >= e->arenas.room || !plim__mv_blocks_spare(e, 1)) {
        return 0;
    }
    i = e->arenas.n;
    struct arena *a = arena_at(e, i);
    *a = (struct arena){
        .key = *key,
        .shift = key->large ? LARGE_SHIFT : SMALL_SHIFT,
        .fence = {.next = 1},
    };
    if (!arena_room(e, a)) {
        return 0;
    }
    e->arenas.n++;
    e->stats.arenas++;
    a->first = plim__mv_block_new(e);
    *block_at(e, a->first) = (struct block){.addr = a->base, .size = a->size, .arena = (uint16_t)i};
    plim__mv_block_void(e, a, a->first);
    arena_list(e, i, key);
    by_base_add(e, i);
    return i;
}

uint32_t plim__mv_arena_of(const struct plim_engine *e, const struct arena_key *key)
{
    uint32_t i = e->latest[latest_of(key)];
    if (i && serves(arena_at(e, i), key)) {
        return i;
    }
    i = e->bucket[bucket_of(key)];
    while (i && !serves(arena_at(e, i), key)) {
        i = arena_at(e, i)->chain;
    }
    return i;
}

struct arena *plim__mv_arena_at_addr(const struct plim_engine *e, uint64_t addr)
{
    for (unsigned k = 0; k < 4; k++) {
        struct arena *a = arena_at(e, e->latest[k]);
        if (e->latest[k] && addr - a->base < a->size) {
            return a;
        }
    }
    uint32_t lo = 0, hi = e->n_by_base;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (arena_at(e, e->by_base[mid])->base <= addr) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    struct arena *a = lo ? arena_at(e, e->by_base[lo - 1]) : NULL;
    return a && addr - a->base < a->size ? a : NULL;
}

void plim__mv_arena_close(struct plim_engine *e, struct arena *a)
{
    const struct plim_engine_driver *d = e->config.driver;
    if (!a->paused) {
        plim__mv_each_page(e, a, a->base + a->size, plim__mv_page_drop);
    }
    for (uint64_t k = fences_done(a); k != a->fence.next; k++) {
        d->forget(e->config.ctx, a->fence.event[k % FENCES]);
    }
    d->unreserve(e->config.ctx, a->base, a->size);
    tables_close(e, a);
}
