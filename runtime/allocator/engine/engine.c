/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, arenas, frees that wait for other streams, figures. */

#include "engine_int.h"

#include <string.h>
#include <sys/mman.h>

#define MIB         (UINT64_C(1) << 20)
#define SMALL_SHIFT 9  /* granule of a small arena: a unit */
#define LARGE_SHIFT 20 /* of a large one: every block there is larger */
#define BLOCK_ROOM  (UINT64_C(1) << 26)
#define USE_ROOM    (UINT64_C(1) << 20)
#define LARGE_SPACE 4 /* addresses of a large arena, in sizes of the device */
#define AIM         1024
#define ROOM_PAGES  64        /* pages that the room left on the device should make at least */
#define POOL_PAGE   (8 * MIB) /* largest of private pools: many and small, and theirs alone */

/* ---- life ----------------------------------------------------------------------------------------- */

uint64_t plim_engine_page(uint64_t live, uint64_t aim)
{
    uint64_t page = 2 * MIB;
    while (page < 32 * MIB && page * aim <= live) {
        page *= 2;
    }
    return page;
}

struct plim_engine *plim_engine_new(const struct plim_engine_config *config)
{
    struct plim_engine *e =
        mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (e == MAP_FAILED) {
        return NULL;
    }
    e->config = *config;
    e->cap = UINT64_MAX;
    if (!e->config.small_page) {
        e->config.small_page = 2 * MIB;
    }
    if (!e->config.aim) {
        e->config.aim = AIM;
    }
    if (e->config.soft <= 0) {
        e->config.soft = 0.0445;
    }
    if (e->config.hard < e->config.soft) {
        e->config.hard = e->config.soft + 0.0005;
    }
    if (!plim__mv_table_open(&e->blocks, sizeof(struct block), BLOCK_ROOM) ||
        !plim__mv_table_open(&e->uses, sizeof(struct use), USE_ROOM) ||
        !plim__mv_table_open(&e->arenas, sizeof(struct arena), PLIM_ENGINE_ARENAS)) {
        plim_engine_delete(e);
        return NULL;
    }
    return e;
}

static void arena_close(struct plim_engine *e, struct arena *a)
{
    const struct plim_engine_driver *d = e->config.driver;
    for (uint32_t i = a->first; i; i = block_at(e, i)->next) {
        const struct block *b = block_at(e, i);
        if (b->state == PLIM_ENGINE_VOID) {
            continue;
        }
        /* Blocks end inside pages: those from the first whole page on, up to where the next run begins. */
        uint64_t end = b->addr + b->size, page = b->addr & ~(a->page - 1);
        if (page < b->addr && b->prev) {
            page += a->page;
        }
        for (; page < end; page += a->page) {
            d->unmap(e->config.ctx, page, a->page, a->page);
            d->release(e->config.ctx, a->handles[(page - a->base) / a->page], a->page);
        }
    }
    for (uint32_t k = a->fence.next - a->fence.n; k != a->fence.next; k++) {
        d->forget(e->config.ctx, a->fence.event[k % FENCES]);
    }
    d->unreserve(e->config.ctx, a->base, a->size);
    munmap(a->starts, (a->size >> a->shift) * sizeof *a->starts);
    munmap(a->handles, a->size / a->page * sizeof *a->handles);
}

void plim_engine_delete(struct plim_engine *e)
{
    if (!e) {
        return;
    }
    for (uint32_t i = e->pending; i; i = use_at(e, i)->next) {
        e->config.driver->forget(e->config.ctx, use_at(e, i)->what);
    }
    for (uint32_t i = 1; i < e->arenas.n; i++) {
        arena_close(e, arena_at(e, i));
    }
    plim__mv_table_close(&e->blocks, sizeof(struct block));
    plim__mv_table_close(&e->uses, sizeof(struct use));
    plim__mv_table_close(&e->arenas, sizeof(struct arena));
    munmap(e, sizeof *e);
}

/* ---- arenas --------------------------------------------------------------------------------------- */

static uint32_t bucket_of(const struct arena_key *key)
{
    uint64_t h = (key->stream ^ (key->pool * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu +
                 key->page + key->large;
    return (uint32_t)((h ^ (h >> 33)) % ARENA_BUCKETS);
}

static bool serves(const struct arena *a, const struct arena_key *key)
{
    return a->key.stream == key->stream && a->key.pool == key->pool && a->key.page == key->page &&
           a->key.large == key->large;
}

static void *space(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
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

/* Addresses and tables for an arena; half as many addresses when there are not so many. */
static bool arena_room(struct plim_engine *e, struct arena *a)
{
    const struct plim_engine_driver *d = e->config.driver;
    uint64_t least = round_up(e->config.total, a->page);
    uint64_t size = a->key.large && a->key.pool == 0 ? least * LARGE_SPACE : least;
    while (d->reserve(e->config.ctx, size, a->page, &a->base) != 0) {
        size = round_up(size / 2, a->page);
        if (size < least) {
            return false;
        }
    }
    a->starts = space((size >> a->shift) * sizeof *a->starts);
    a->handles = space(size / a->page * sizeof *a->handles);
    if (a->starts && a->handles) {
        a->size = size;
        return true;
    }
    if (a->starts) {
        munmap(a->starts, (size >> a->shift) * sizeof *a->starts);
    }
    d->unreserve(e->config.ctx, a->base, size);
    return false;
}

/* An arena whose pool is gone and which has nothing left in it serves the next pool. */
static uint32_t arena_left_over(const struct plim_engine *e, const struct arena_key *key)
{
    for (uint32_t i = 1; i < e->arenas.n && key->pool; i++) {
        const struct arena *a = arena_at(e, i);
        const struct block *b = block_at(e, a->first);
        bool alike = a->key.large == key->large && a->key.page == key->page;
        if (a->gone && alike && b->state == PLIM_ENGINE_VOID && !b->next) {
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

static void arena_unlist(struct plim_engine *e, uint32_t i)
{
    struct arena *a = arena_at(e, i);
    uint32_t *link = &e->bucket[bucket_of(&a->key)];
    while (*link != i) {
        link = &arena_at(e, *link)->chain;
    }
    *link = a->chain;
    a->key.pool = 0;
    a->gone = true;
    e->latest[a->key.large] = e->latest[a->key.large] == i ? 0 : e->latest[a->key.large];
}

static uint32_t arena_open(struct plim_engine *e, const struct arena_key *key)
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
        .page = key->page,
        .shift = key->large ? LARGE_SHIFT : SMALL_SHIFT,
        .fence = {.next = 1, .done = 1},
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
    if (key->large && key->page > e->largest_page) {
        e->largest_page = key->page;
    }
    return i;
}

static uint32_t arena_of(const struct plim_engine *e, const struct arena_key *key)
{
    uint32_t i = e->latest[key->large];
    if (i && serves(arena_at(e, i), key)) {
        return i;
    }
    i = e->bucket[bucket_of(key)];
    while (i && !serves(arena_at(e, i), key)) {
        i = arena_at(e, i)->chain;
    }
    return i;
}

/* Pages as large as what is live makes good, and no larger than a small part of the room that is left:
 * where every byte counts, less must be stranded. */
static uint64_t page_for(const struct plim_engine *e, uint64_t live)
{
    uint64_t most = e->cap < e->config.total ? e->cap : e->config.total;
    uint64_t room = most > e->stats.reserved ? most - e->stats.reserved : 0;
    uint64_t page = plim_engine_page(live, e->config.aim);
    while (page > e->config.small_page && page * ROOM_PAGES > room) {
        page /= 2;
    }
    return page;
}

/* Where a request belongs when it needs new pages. */
static struct arena_key key_of(const struct plim_engine *e, uint64_t size, uint64_t stream,
                               uint64_t pool)
{
    struct arena_key key = {.stream = stream, .pool = pool, .large = size > PLIM_ENGINE_SMALL};
    if (!key.large) {
        key.page = e->config.small_page;
    } else if (e->config.large_page) {
        key.page = e->config.large_page;
    } else {
        uint64_t live = e->stats.live + size;
        key.page = page_for(e, live > e->stats.peak_live ? live : e->stats.peak_live);
    }
    if (pool && key.page > POOL_PAGE) {
        key.page = POOL_PAGE;
    }
    return key;
}

static struct arena *arena_at_addr(const struct plim_engine *e, uint64_t addr)
{
    for (unsigned k = 0; k < 2; k++) {
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

/* ---- frees that wait for other streams ------------------------------------------------------------ */

static void give(struct plim_engine *e, struct arena *a, uint32_t i)
{
    struct block *b = block_at(e, i);
    a->starts[(b->addr - a->base) >> a->shift] = 0;
    e->stats.live -= b->size;
    e->stats.requested -= b->requested;
    plim__mv_block_free(e, a, i, a->fence.next);
}

/* Take the events of the queue that have completed; a block whose last one this was becomes free. */
static void pending_ask(struct plim_engine *e)
{
    uint32_t last = 0, next;
    for (uint32_t i = e->pending; i; i = next) {
        struct use *u = use_at(e, i);
        next = u->next;
        if (!e->config.driver->done(e->config.ctx, u->what)) {
            last = i;
            continue;
        }
        e->config.driver->forget(e->config.ctx, u->what);
        if (last) {
            use_at(e, last)->next = next;
        } else {
            e->pending = next;
        }
        struct block *b = block_at(e, u->block);
        if (--b->uses == 0) {
            give(e, arena_at(e, b->arena), u->block);
        }
        plim__mv_use_gone(e, i);
    }
    e->pending_last = last;
}

/* Wait for all of them. */
static void pending_wait(struct plim_engine *e)
{
    for (uint32_t i = e->pending; i; i = use_at(e, i)->next) {
        e->config.driver->wait(e->config.ctx, use_at(e, i)->what);
        e->stats.waits++;
    }
    pending_ask(e);
}

/* The streams of a block become events in the queue. Where no event can be had, nothing is known about
 * the stream: the block then stays pending for good, which costs its memory and corrupts nobody. */
static void pend(struct plim_engine *e, uint32_t i)
{
    struct block *b = block_at(e, i);
    uint32_t n = 0, next;
    for (uint32_t k = b->uses; k; k = next) {
        struct use *u = use_at(e, k);
        next = u->next;
        n++;
        uint64_t event = e->config.driver->record(e->config.ctx, u->what);
        if (!event) {
            plim__mv_use_gone(e, k);
            continue;
        }
        *u = (struct use){.what = event, .block = i};
        if (e->pending_last) {
            use_at(e, e->pending_last)->next = k;
        } else {
            e->pending = k;
        }
        e->pending_last = k;
    }
    b->uses = n; /* from here on a count of events */
    b->state = PLIM_ENGINE_PENDING;
}

/* Frees under capture, where no event may be recorded: their turn comes with the next free request. */
static void deferred_pend(struct plim_engine *e)
{
    while (e->deferred) {
        uint32_t i = e->deferred;
        e->deferred = block_at(e, i)->forth;
        pend(e, i);
    }
}

/* ---- requests ------------------------------------------------------------------------------------- */

static void hand_out(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t requested)
{
    struct block *b = block_at(e, i);
    b->state = PLIM_ENGINE_LIVE;
    b->requested = requested;
    b->uses = 0;
    a->starts[(b->addr - a->base) >> a->shift] = i;
    struct plim_engine_stats *s = &e->stats;
    s->blocks++;
    s->allocs++;
    s->live += b->size;
    s->requested += requested;
    s->peak_live = s->live > s->peak_live ? s->live : s->peak_live;
    s->peak_requested = s->requested > s->peak_requested ? s->requested : s->peak_requested;
}

/* A free run in one of the arenas that serve the key, those with the largest pages first; 0: none. */
static uint32_t find_run(struct plim_engine *e, struct arena_key key, uint64_t size)
{
    if (key.large && e->largest_page > key.page) {
        key.page = e->largest_page;
    }
    for (;; key.page /= 2) {
        uint32_t arena = arena_of(e, &key);
        uint32_t i = arena ? plim__mv_bin_find(e, arena_at(e, arena), size) : 0;
        if (i) {
            e->latest[key.large] = arena;
            plim__mv_bin_take(e, arena_at(e, arena), i);
            return i;
        }
        if (!key.large || key.page <= e->config.small_page || e->config.large_page) {
            return 0;
        }
    }
}

/* A run that gets pages, in the arena of that key; 0: no memory. */
static uint32_t find_pages(struct plim_engine *e, const struct arena_key *key, uint64_t size,
                           unsigned flags)
{
    uint32_t arena = arena_of(e, key);
    if (!arena || !plim__mv_pages_place(e, arena_at(e, arena), size)) {
        arena = arena_open(e, key);
    }
    if (!arena || !plim__mv_blocks_spare(e, PLIM__MV_GROW_BLOCKS)) {
        return 0;
    }
    e->latest[key->large] = arena;
    return plim__mv_pages_grow(e, arena, size, flags);
}

static uint32_t find(struct plim_engine *e, const struct arena_key *key, uint64_t size,
                     unsigned flags)
{
    uint32_t i = find_run(e, *key, size);
    if (!i) {
        i = find_pages(e, key, size, flags);
    }
    if (!i && e->pending && !(flags & PLIM_ENGINE_CAPTURING)) {
        pending_wait(e);
        i = find_run(e, *key, size);
        if (!i) {
            i = find_pages(e, key, size, flags);
        }
    }
    return i;
}

enum plim_engine_code plim_engine_alloc(struct plim_engine *e, uint64_t size, uint64_t stream,
                                        uint64_t pool, unsigned flags, uint64_t *addr)
{
    if ((e->pending || e->deferred) && !(flags & PLIM_ENGINE_CAPTURING)) {
        deferred_pend(e);
        pending_ask(e);
    }
    if (size > e->config.total) {
        e->stats.failures++;
        return PLIM_ENGINE_NO_MEMORY;
    }
    uint64_t want = round_up(size, PLIM_ENGINE_UNIT);
    struct arena_key key = key_of(e, want, stream, pool);
    if (!plim__mv_blocks_spare(e, 1)) {
        e->stats.failures++;
        return PLIM_ENGINE_NO_HOST;
    }
    uint32_t i = find(e, &key, want, flags);
    if (!i) {
        e->stats.failures++;
        return PLIM_ENGINE_NO_MEMORY;
    }
    struct arena *a = arena_at(e, block_at(e, i)->arena);
    if (block_at(e, i)->size > want) {
        plim__mv_bin_put(e, a, plim__mv_block_cut(e, i, want));
    }
    hand_out(e, a, i, size);
    *addr = block_at(e, i)->addr;
    return PLIM_ENGINE_OK;
}

static uint32_t live_block(const struct plim_engine *e, uint64_t addr)
{
    const struct arena *a = arena_at_addr(e, addr);
    uint32_t i = a ? a->starts[(addr - a->base) >> a->shift] : 0;
    return i && block_at(e, i)->addr == addr && block_at(e, i)->state == PLIM_ENGINE_LIVE ? i : 0;
}

enum plim_engine_code plim_engine_free(struct plim_engine *e, uint64_t addr, unsigned flags)
{
    uint32_t i = live_block(e, addr);
    if (!i) {
        return PLIM_ENGINE_UNKNOWN;
    }
    e->stats.blocks--;
    e->stats.frees++;
    struct block *b = block_at(e, i);
    if (b->uses && (flags & PLIM_ENGINE_CAPTURING)) {
        b->state = PLIM_ENGINE_PENDING;
        b->forth = e->deferred;
        e->deferred = i;
    } else if (b->uses) {
        pend(e, i);
    } else {
        give(e, arena_at(e, b->arena), i);
    }
    return PLIM_ENGINE_OK;
}

enum plim_engine_code plim_engine_record_stream(struct plim_engine *e, uint64_t addr,
                                                uint64_t stream)
{
    uint32_t i = live_block(e, addr);
    if (!i) {
        return PLIM_ENGINE_UNKNOWN;
    }
    struct block *b = block_at(e, i);
    if (arena_at(e, b->arena)->key.stream == stream) {
        return PLIM_ENGINE_OK;
    }
    for (uint32_t k = b->uses; k; k = use_at(e, k)->next) {
        if (use_at(e, k)->what == stream) {
            return PLIM_ENGINE_OK;
        }
    }
    uint32_t k = plim__mv_use_new(e);
    if (!k) {
        return PLIM_ENGINE_NO_HOST;
    }
    *use_at(e, k) = (struct use){.what = stream, .next = b->uses};
    b->uses = k;
    return PLIM_ENGINE_OK;
}

bool plim_engine_block(const struct plim_engine *e, uint64_t addr, uint64_t *base, uint64_t *size)
{
    const struct arena *a = arena_at_addr(e, addr);
    if (!a) {
        return false;
    }
    for (uint64_t g = (addr - a->base) >> a->shift;; g--) {
        uint32_t i = a->starts[g];
        if (i && block_at(e, i)->addr <= addr) {
            *base = block_at(e, i)->addr;
            *size = block_at(e, i)->size;
            return addr - *base < *size;
        }
        if (g == 0) {
            return false;
        }
    }
}

void plim_engine_trim(struct plim_engine *e)
{
    deferred_pend(e);
    pending_wait(e);
    for (uint32_t i = 1; i < e->arenas.n; i++) {
        plim__mv_pages_trim(e, i);
    }
}

void plim_engine_drop_pool(struct plim_engine *e, uint64_t pool)
{
    for (uint32_t i = 1; i < e->arenas.n && pool; i++) {
        if (arena_at(e, i)->key.pool == pool) {
            arena_unlist(e, i);
        }
    }
}

/* ---- looking at it --------------------------------------------------------------------------------- */

void plim_engine_set_cap(struct plim_engine *e, uint64_t bytes)
{
    e->cap = bytes;
}

void plim_engine_stats(const struct plim_engine *e, struct plim_engine_stats *out)
{
    *out = e->stats;
}

void plim_engine_reset_peaks(struct plim_engine *e)
{
    e->stats.peak_requested = e->stats.requested;
    e->stats.peak_live = e->stats.live;
    e->stats.peak_reserved = e->stats.reserved;
}

void plim_engine_walk(const struct plim_engine *e,
                      bool (*see)(void *ctx, const struct plim_engine_view *view), void *ctx)
{
    for (uint32_t k = 1; k < e->arenas.n; k++) {
        const struct arena *a = arena_at(e, k);
        for (uint32_t i = a->first; i; i = block_at(e, i)->next) {
            const struct block *b = block_at(e, i);
            struct plim_engine_view view = {b->addr,     b->size,  b->requested, a->key.stream,
                                            a->key.pool, b->state, a->key.large};
            if (!see(ctx, &view)) {
                return;
            }
        }
    }
}
