/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, frees that wait for other streams, figures. */

#include "engine_int.h"

#include <string.h>
#include <sys/mman.h>

#define MIB          (UINT64_C(1) << 20)
#define BLOCK_ROOM   (UINT64_C(1) << 26)
#define USE_ROOM     (UINT64_C(1) << 24)
#define AIM          128
#define LARGEST_PAGE (32 * MIB) /* that is chosen by itself */
#define DEVICE_PAGES 1024       /* of the longest, that a device should hold at least */
#define FLOOR_SHARE  256        /* of the device that reserved may always exceed live by */
#define ROOM_PAGES   768        /* pages that the room left on the device should make at least */

/* ---- life ----------------------------------------------------------------------------------------- */

uint64_t plim_engine_page(uint64_t total, uint64_t live, uint64_t aim)
{
    uint64_t page = 2 * MIB;
    while (page < LARGEST_PAGE && page * aim <= live && page * DEVICE_PAGES < total) {
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
    if (config->rounding) {
        e->rounding = *config->rounding;
    }
    if (!e->config.small_page) {
        e->config.small_page = 2 * MIB;
    }
    if (!e->config.aim) {
        e->config.aim = AIM;
    }
    if (!e->config.room) {
        e->config.room = ROOM_PAGES;
    }
    if (!e->config.floor) {
        e->config.floor = config->total / FLOOR_SHARE;
    }
    if (e->config.calm <= 0) {
        e->config.calm = e->config.soft > 0 ? e->config.soft : 0.04;
    }
    if (e->config.soft <= 0) {
        e->config.soft = 0.025;
    }
    if (e->config.hard <= 0) {
        e->config.hard = 0.0005;
    }
    e->config.large_page = e->config.large_page && e->config.large_page < e->config.small_page
                               ? e->config.small_page
                               : e->config.large_page;
    e->page_shift = (unsigned)__builtin_ctzll(e->config.small_page);
    if (!plim__mv_table_open(&e->blocks, sizeof(struct block), BLOCK_ROOM) ||
        !plim__mv_table_open(&e->uses, sizeof(struct use), USE_ROOM) ||
        !plim__mv_table_open(&e->arenas, sizeof(struct arena), PLIM_ENGINE_ARENAS)) {
        plim_engine_delete(e);
        return NULL;
    }
    plim__mv_follow_open(e, config->plan);
    return e;
}

void plim_engine_delete(struct plim_engine *e)
{
    if (!e) {
        return;
    }
    for (uint32_t q = e->pending; q; q = use_at(e, q)->next) {
        for (uint32_t i = use_at(e, q)->block; i; i = use_at(e, i)->next) {
            e->config.driver->forget(e->config.ctx, use_at(e, i)->what);
        }
    }
    for (uint32_t i = 1; i < e->arenas.n; i++) {
        plim__mv_arena_close(e, arena_at(e, i));
    }
    plim__mv_follow_close(e);
    plim__mv_table_close(&e->blocks, sizeof(struct block));
    plim__mv_table_close(&e->uses, sizeof(struct use));
    plim__mv_table_close(&e->arenas, sizeof(struct arena));
    munmap(e, sizeof *e);
}

/* ---- requests and their arenas ----------------------------------------------------------------------- */

/* Pages may be as long as what is live, or will be in an area, makes good, and no longer than a small part of the room that is left:
 * where every byte counts, less must be stranded. */
uint64_t plim__mv_page_for(const struct plim_engine *e, const struct arena_key *key, uint64_t size)
{
    if (!key->large) {
        return e->config.small_page;
    }
    if (e->config.large_page) {
        return e->config.large_page;
    }
    uint64_t live = e->stats.live + size;
    live = live > e->highest_live ? live : e->highest_live;
    live = live > key->height ? live : key->height;
    uint64_t most = e->cap < e->config.total ? e->cap : e->config.total;
    uint64_t room = most > e->stats.reserved ? most - e->stats.reserved : 0;
    uint64_t page = plim_engine_page(e->config.total, live, e->config.aim);
    uint64_t fits = round_up(room / e->config.room, e->config.small_page);
    page = fits < page ? fits : page;
    return page < e->config.small_page ? e->config.small_page : page;
}

/* ---- frees that wait for other streams ------------------------------------------------------------ */

static void give(struct plim_engine *e, struct arena *a, uint32_t i)
{
    struct block *b = block_at(e, i);
    a->starts[(b->addr - a->base) >> a->shift] = 0;
    if (b->planned) {
        plim__mv_follow_freed(e, i);
    }
    if (!a->paused) {
        e->stats.live -= b->size;
        e->stats.requested -= b->requested;
    }
    plim__mv_block_free(e, a, i, a->fence.next);
}

/* A stream's queue of batches; 0: it has none. */
static uint32_t queue_of(struct plim_engine *e, uint64_t stream)
{
    uint32_t q = e->pending;
    for (; q && use_at(e, q)->stream != stream; q = use_at(e, q)->next) {
        e->stats.looked++;
    }
    return q;
}

/* Records for a batch and, where q is 0, for a queue, and an event. False: not all can be had. */
static bool batch_parts(struct plim_engine *e, uint64_t stream, uint32_t *q, uint32_t *batch,
                        uint64_t *event)
{
    uint32_t made = *q ? 0 : plim__mv_use_new(e);
    *q = *q ? *q : made;
    *batch = *q ? plim__mv_use_new(e) : 0;
    *event = *batch ? e->config.driver->record(e->config.ctx, stream) : 0;
    if (*event) {
        return true;
    }
    if (*batch) {
        plim__mv_use_gone(e, *batch);
    }
    if (made) {
        plim__mv_use_gone(e, made);
    }
    return false;
}

/* The event behind which the frees of this round lie on a stream; 0: none can be had. */
static uint32_t batch_of(struct plim_engine *e, uint64_t stream)
{
    uint32_t old = queue_of(e, stream), q = old, batch;
    uint64_t event;
    if (q && use_at(e, (uint32_t)use_at(e, q)->what)->stream == e->round) {
        return (uint32_t)use_at(e, q)->what;
    }
    if (!batch_parts(e, stream, &q, &batch, &event)) {
        return 0;
    }
    *use_at(e, batch) = (struct use){.what = event, .stream = e->round};
    if (old) {
        use_at(e, (uint32_t)use_at(e, q)->what)->next = batch;
    } else {
        *use_at(e, q) = (struct use){.stream = stream, .next = e->pending, .block = batch};
        e->pending = q;
    }
    use_at(e, q)->what = batch;
    return batch;
}

/* The streams of a block wait for events. Where none can be had, or the stream has not been written down, nothing
 * is known: the block then stays pending for good, which costs its memory and corrupts nobody. */
static void pend(struct plim_engine *e, uint32_t i)
{
    uint32_t n = block_at(e, i)->unsure, next;
    for (uint32_t k = block_at(e, i)->uses; k; k = next) {
        struct use *u = use_at(e, k);
        next = u->next;
        n++;
        uint32_t batch = batch_of(e, u->stream);
        if (!batch) {
            plim__mv_use_gone(e, k);
            continue;
        }
        *u = (struct use){.next = use_at(e, batch)->block, .block = i};
        use_at(e, batch)->block = k;
    }
    block_at(e, i)->uses = n; /* from here on a count of events */
}

/* Blocks that were freed since the last round get events: one for each stream, however many they are. */
static void pend_all(struct plim_engine *e)
{
    e->round++;
    while (e->deferred) {
        uint32_t i = e->deferred;
        e->deferred = block_at(e, i)->forth;
        pend(e, i);
    }
}

/* A block that other streams use is freed. In a burst of such frees the 1st, 2nd, 4th, 8th ... begin a round, and
 * the request that follows: memory comes back as soon as with an event for each, or little later. */
static void defer(struct plim_engine *e, uint32_t i, unsigned flags)
{
    struct block *b = block_at(e, i);
    b->state = PLIM_ENGINE_PENDING;
    e->stats.pending += arena_at(e, b->arena)->paused ? 0 : b->size;
    b->forth = e->deferred;
    e->deferred = i;
    e->burst++;
    if ((e->burst & (e->burst - 1)) == 0 && !(flags & PLIM_ENGINE_CAPTURING)) {
        pend_all(e);
    }
}

/* The event of a batch has completed: blocks whose last one this was become free. */
static void batch_passed(struct plim_engine *e, uint32_t batch)
{
    uint32_t next;
    e->config.driver->forget(e->config.ctx, use_at(e, batch)->what);
    for (uint32_t k = use_at(e, batch)->block; k; k = next) {
        uint32_t i = use_at(e, k)->block;
        struct block *b = block_at(e, i);
        next = use_at(e, k)->next;
        if (--b->uses == 0) {
            struct arena *a = arena_at(e, b->arena);
            e->stats.pending -= a->paused ? 0 : b->size;
            give(e, a, i);
        }
        plim__mv_use_gone(e, k);
    }
    plim__mv_use_gone(e, batch);
}

/* Blocks that wait for events which have completed become free: one question for each stream, and for each
 * event that has. */
static void pending_ask(struct plim_engine *e)
{
    uint32_t last = 0, next;
    for (uint32_t q = e->pending; q; q = next) {
        uint32_t batch;
        next = use_at(e, q)->next;
        e->stats.looked++;
        while ((batch = use_at(e, q)->block) != 0 &&
               e->config.driver->done(e->config.ctx, use_at(e, batch)->what)) {
            use_at(e, q)->block = use_at(e, batch)->next;
            batch_passed(e, batch);
        }
        if (batch) {
            last = q;
            continue;
        }
        if (last) {
            use_at(e, last)->next = next;
        } else {
            e->pending = next;
        }
        plim__mv_use_gone(e, q);
    }
}

/* Wait for all of them: for the last event of each stream. */
static void pending_wait(struct plim_engine *e)
{
    for (uint32_t q = e->pending; q; q = use_at(e, q)->next) {
        e->config.driver->wait(e->config.ctx, use_at(e, (uint32_t)use_at(e, q)->what)->what);
        e->stats.waits++;
    }
    pending_ask(e);
}

/* ---- requests ------------------------------------------------------------------------------------- */

static void hand_out(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t requested)
{
    struct block *b = block_at(e, i);
    b->state = PLIM_ENGINE_LIVE;
    b->requested = requested;
    b->uses = 0;
    b->unsure = false;
    a->starts[(b->addr - a->base) >> a->shift] = i;
    e->stats.blocks++;
    e->stats.allocs++;
    count_live(e, b->size, requested);
}

/* A free run in the arena of that key; 0: none. */
static uint32_t find_run(struct plim_engine *e, const struct arena_key *key, uint64_t size)
{
    uint32_t arena = plim__mv_arena_of(e, key);
    uint32_t i = arena ? plim__mv_bin_find(e, arena_at(e, arena), size) : 0;
    if (i) {
        e->latest[key->large] = arena;
        plim__mv_bin_take(e, arena_at(e, arena), i);
    }
    return i;
}

/* A run that gets pages, in the arena of that key; 0: no memory. */
static uint32_t find_pages(struct plim_engine *e, const struct arena_key *key, uint64_t size,
                           unsigned flags)
{
    uint32_t arena = plim__mv_arena_of(e, key);
    if (!arena || !plim__mv_pages_place(e, arena_at(e, arena), size)) {
        arena = plim__mv_arena_open(e, key);
    }
    if (!arena || !plim__mv_blocks_spare(e, PLIM__MV_GROW_BLOCKS)) {
        return 0;
    }
    e->latest[key->large] = arena;
    return plim__mv_pages_grow(e, arena, size, plim__mv_page_for(e, key, size), flags);
}

/* Nobody is served: what was gathered for the request goes back to the driver. Libraries, kernels that are loaded late
 * and other processes get their memory there, and PyTorch's own allocator empties its cache before it fails too. */
static void give_up(struct plim_engine *e, const struct arena_key *key, unsigned flags)
{
    uint32_t arena = plim__mv_arena_of(e, key);
    if (arena && !(flags & PLIM_ENGINE_CAPTURING)) {
        plim__mv_pages_trim(e, arena);
    }
}

static uint32_t find(struct plim_engine *e, const struct arena_key *key, uint64_t size,
                     unsigned flags)
{
    if (key->pool && plim__mv_pool_paused(e, key)) {
        return 0;
    }
    uint32_t i = find_run(e, key, size);
    if (i) {
        return i;
    }
    i = find_pages(e, key, size, flags);
    if (!i && e->pending && !(flags & PLIM_ENGINE_CAPTURING)) {
        pending_wait(e);
        i = find_run(e, key, size);
        if (!i) {
            i = find_pages(e, key, size, flags);
        }
    }
    if (!i) {
        give_up(e, key, flags);
    }
    note_reserved(e);
    return i;
}

enum plim_engine_code plim_engine_alloc(struct plim_engine *e, uint64_t size, uint64_t stream,
                                        uint64_t pool, unsigned flags, uint64_t *addr)
{
    if ((e->pending || e->deferred) && !(flags & PLIM_ENGINE_CAPTURING)) {
        pend_all(e);
        pending_ask(e);
    }
    e->burst = 0;
    if (size > e->config.total) {
        e->stats.failures++;
        return PLIM_ENGINE_NO_MEMORY;
    }
    uint64_t want = plim_engine_round(&e->rounding, size);
    struct arena_key key = {.stream = stream, .pool = pool, .large = want > PLIM_ENGINE_SMALL};
    if (!plim__mv_blocks_spare(e, 1)) {
        e->stats.failures++;
        return PLIM_ENGINE_NO_HOST;
    }
    uint32_t i = e->follow.plan && pool == 0 ? plim__mv_follow(e, want, stream, flags) : 0;
    i = i ? i : find(e, &key, want, flags);
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
    const struct arena *a = plim__mv_arena_at_addr(e, addr);
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
    if (b->uses || b->unsure) {
        defer(e, i, flags);
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
        if (use_at(e, k)->stream == stream) {
            return PLIM_ENGINE_OK;
        }
    }
    uint32_t k = plim__mv_use_new(e);
    if (!k) {
        b->unsure = true;
        return PLIM_ENGINE_NO_HOST;
    }
    *use_at(e, k) = (struct use){.stream = stream, .next = b->uses};
    b->uses = k;
    return PLIM_ENGINE_OK;
}

bool plim_engine_block(const struct plim_engine *e, uint64_t addr, uint64_t *base, uint64_t *size)
{
    const struct arena *a = plim__mv_arena_at_addr(e, addr);
    if (!a) {
        return false;
    }
    uint64_t first =
        a->key.large || addr - a->base < PLIM_ENGINE_SMALL ? 0 : addr - a->base - PLIM_ENGINE_SMALL;
    for (uint64_t g = (addr - a->base) >> a->shift;; g--) {
        uint32_t i = a->starts[g];
        if (i && block_at(e, i)->addr <= addr) {
            *base = block_at(e, i)->addr;
            *size = block_at(e, i)->size;
            return addr - *base < *size;
        }
        if (g == first >> a->shift) { /* no block that begins there reaches as far as the address */
            return false;
        }
    }
}

void plim_engine_trim(struct plim_engine *e)
{
    pend_all(e);
    pending_wait(e);
    bool spared = e->follow.spared;
    e->follow.spared = false;
    for (uint32_t i = 1; i < e->arenas.n; i++) {
        plim__mv_pages_trim(e, i);
    }
    e->follow.spared = spared;
}

void plim_engine_drop_pool(struct plim_engine *e, uint64_t pool)
{
    for (uint32_t i = 1; i < e->arenas.n && pool; i++) {
        if (arena_at(e, i)->key.pool == pool) {
            plim__mv_arena_unlist(e, i);
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
                                            a->key.pool, b->state, a->key.large, a->paused};
            if (!see(ctx, &view)) {
                return;
            }
        }
    }
}
