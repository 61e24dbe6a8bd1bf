/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages: where the memory behind addresses comes from.
 *
 * A request that no FREE run can take gets a place in which some pages are missing: a VOID run together
 * with the FREE runs on its two sides, the place that misses the fewest pages. Then pages are found in
 * this order, until there are enough:
 *
 *   1. new ones, while reserved stays below (1 + soft) times the highest live and the floor; not for the
 *      areas of a seating, which take over what the program had before
 *   2. idle free pages of arenas with the same page size, its own first; then those of other sizes are
 *      given back, and new ones made for them
 *   3. new ones, below (1 + hard) times the highest live and the floor
 *   4. as 2, with pages that must be waited for
 *   5. new ones without that limit (little can be moved; the cap still holds)
 *   6. as 4, with pages of the areas of a seating that is followed
 *   7. smaller new ones, for what is left of the device
 *
 * Steps 2, 4 and 6 touch mappings and ask events, so a request under graph capture skips them.
 */

#include "engine_int.h"

#define BATCH      64 /* pages that change their place at once */
#define LOOK_VOIDS 64 /* VOID runs that are considered */

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

static void fence_record(struct plim_engine *e, struct arena *a)
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
static bool fence_wait(struct plim_engine *e, struct arena *a, uint32_t number)
{
    fences_ask(e, a);
    while (fences_done(a) <= number) {
        if (a->fence.next <= number && a->fence.n < FENCES) {
            fence_record(e, a);
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

/* ---- taking pages away --------------------------------------------------------------------------- */

struct loot { /* pages of one size */
    uint64_t page;
    uint64_t handle[BATCH];
    unsigned n;
};

struct wish { /* pages of this size, or of all others */
    uint64_t page;
    bool others;
    bool wait; /* also those that are not idle yet */
    unsigned most;
};

/* The first run of pages of one size that is wished for in [*lo, *hi); empty: none. */
static void run_of_pages(const struct plim_engine *e, const struct arena *a,
                         const struct wish *wish, uint64_t *lo, uint64_t *hi)
{
    uint64_t at = *lo, end = *hi, page = 0;
    while (at < end) {
        page = page_at(e, a, at);
        if ((page != wish->page) == wish->others) {
            break;
        }
        at = slot_end(e, at);
    }
    *lo = at < end ? at : end;
    for (at = *lo; at < end && page_at(e, a, at) == page && at - *lo < wish->most * page;) {
        at = slot_end(e, at);
    }
    *hi = at < end ? at : end;
    if (*hi - *lo > wish->most * page) {
        *hi = *lo + wish->most * page;
    }
}

/* Take the pages [lo, hi) out of FREE block i (in its bin). */
static void take_pages(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t lo, uint64_t hi,
                       struct loot *loot)
{
    if (!plim__mv_blocks_spare(e, 2)) {
        return;
    }
    loot->page = page_at(e, a, lo);
    plim__mv_bin_take(e, a, i);
    e->config.driver->unmap(e->config.ctx, lo, hi - lo, loot->page);
    for (uint64_t at = lo; at < hi; at += loot->page) {
        loot->handle[loot->n++] = *handle_at(e, a, at);
    }
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
static void loot_block(struct plim_engine *e, struct arena *a, uint32_t i, struct wish wish,
                       struct loot *loot)
{
    const struct block *b = block_at(e, i);
    uint64_t lo, hi;
    plim__mv_whole_pages(e, a, b, &lo, &hi);
    if (lo == hi) {
        return;
    }
    if (loot->n > 0) { /* those of a size that is there already */
        wish.page = loot->page;
        wish.others = false;
        wish.most -= loot->n;
    }
    run_of_pages(e, a, &wish, &lo, &hi);
    if (lo < hi && (b->fence < fences_done(a) || (wish.wait && fence_wait(e, a, b->fence)))) {
        take_pages(e, a, i, lo, hi, loot);
    }
}

/* Free pages of an arena, the smallest runs first: what is torn there is of least use to others. */
static void loot_arena(struct plim_engine *e, struct arena *a, const struct wish *wish,
                       struct loot *loot)
{
    fences_ask(e, a);
    for (unsigned row = 0; row < BIN_ROWS && loot->n < wish->most && a->free_whole > 0; row++) {
        for (unsigned col = 0; col < BIN_COLS && loot->n < wish->most; col++) {
            uint32_t next;
            for (uint32_t i = a->bin[row][col]; i && loot->n < wish->most; i = next) {
                next = block_at(e, i)->forth;
                loot_block(e, a, i, *wish, loot);
            }
        }
    }
}

/* May pages of this arena serve others? Those of a private pool in use may not, those of an area that the
 * program will want again as long as there are others. */
static bool may_loot(const struct plim_engine *e, const struct arena *a)
{
    return a->size > 0 && a->key.pool == 0 && a->free_whole > 0 && !a->paused &&
           !(a->key.height && e->follow.spared);
}

/* Free pages of all arenas, of arena `own` first. */
static void loot_all(struct plim_engine *e, uint32_t own, const struct wish *wish,
                     struct loot *loot)
{
    if (may_loot(e, arena_at(e, own))) {
        loot_arena(e, arena_at(e, own), wish, loot);
    }
    for (uint32_t i = 1; i < e->arenas.n && loot->n < wish->most; i++) {
        struct arena *a = arena_at(e, i);
        if (i != own && may_loot(e, a)) {
            loot_arena(e, a, wish, loot);
        }
    }
}

static uint64_t give_back(struct plim_engine *e, const struct loot *loot)
{
    for (unsigned i = 0; i < loot->n; i++) {
        e->config.driver->release(e->config.ctx, loot->handle[i], loot->page);
        e->stats.reserved -= loot->page;
        e->stats.released++;
    }
    return loot->n * loot->page;
}

/* Give back free pages of other sizes, `bytes` of them. @wait: also those that are not idle yet. */
static uint64_t release_others(struct plim_engine *e, uint64_t page, uint64_t bytes, bool wait)
{
    uint64_t got = 0;
    for (uint32_t i = 1; i < e->arenas.n && got < bytes; i++) {
        struct arena *a = arena_at(e, i);
        while (may_loot(e, a) && got < bytes) {
            struct loot loot = {.n = 0};
            struct wish wish = {page, true, wait, 1};
            loot_arena(e, a, &wish, &loot);
            if (loot.n == 0) {
                break;
            }
            got += give_back(e, &loot);
        }
    }
    return got;
}

void plim__mv_pages_trim(struct plim_engine *e, uint32_t arena)
{
    struct arena *a = arena_at(e, arena);
    while (may_loot(e, a)) {
        struct loot loot = {.n = 0};
        struct wish wish = {0, true, true, BATCH};
        loot_arena(e, a, &wish, &loot);
        if (loot.n == 0) {
            return;
        }
        give_back(e, &loot);
    }
}

/* ---- filling a place ----------------------------------------------------------------------------- */

static bool is_full(const struct fill *f)
{
    return f->at >= f->end;
}

/* Size of the next page to come, and how many of that size up to where it may change. */
static uint64_t next_pages(const struct plim_engine *e, const struct fill *f, unsigned *n)
{
    uint64_t page = page_at(e, f->a, f->at), end = f->end;
    if (page) {
        end = slot_end(e, f->at) < end ? slot_end(e, f->at) : end;
    } else {
        page = f->page;
        uint64_t last = page_at(e, f->a, end - 1); /* the last slot may have pages behind */
        end = last && last != page ? end & ~(e->slot - 1) : end;
    }
    *n = (end - f->at) / page < BATCH ? (unsigned)((end - f->at) / page) : BATCH;
    return page;
}

/* Map pages at f->at onwards; those that cannot be mapped are given back. */
static bool put_pages(struct plim_engine *e, struct fill *f, const struct loot *loot)
{
    const struct plim_engine_driver *d = e->config.driver;
    uint64_t start = f->at, page = loot->page;
    unsigned n = 0;
    while (n < loot->n && d->map(e->config.ctx, f->at, page, loot->handle[n]) == 0) {
        *handle_at(e, f->a, f->at) = loot->handle[n++];
        f->at += page;
    }
    if (n > 0 && d->access(e->config.ctx, start, f->at - start) != 0) {
        d->unmap(e->config.ctx, start, f->at - start, page);
        f->at = start;
        n = 0;
    }
    for (uint64_t at = start; at < f->at; at = slot_end(e, at)) {
        f->a->pages[(at - f->a->base) / e->slot] = (uint8_t)__builtin_ctzll(page);
    }
    struct loot rest = {.page = page};
    while (n < loot->n) {
        rest.handle[rest.n++] = loot->handle[n++];
    }
    give_back(e, &rest);
    return rest.n == 0;
}

static void note_peak(struct plim_engine *e)
{
    if (e->stats.reserved > e->stats.peak_reserved) {
        e->stats.peak_reserved = e->stats.reserved;
    }
}

/* New pages while reserved stays at or below `limit` bytes. False: the driver has no more. */
static bool make_pages(struct plim_engine *e, struct fill *f, uint64_t limit)
{
    limit = limit < e->cap ? limit : e->cap;
    while (!is_full(f)) {
        unsigned most;
        struct loot loot = {.page = next_pages(e, f, &most)};
        bool dry = false;
        while (loot.n < most && e->stats.reserved + loot.page <= limit && !dry) {
            dry = e->config.driver->create(e->config.ctx, loot.page, &loot.handle[loot.n]) != 0;
            if (!dry) {
                loot.n++;
                e->stats.created++;
                e->stats.reserved += loot.page;
                note_peak(e);
            }
        }
        if (!put_pages(e, f, &loot) || dry) {
            return false;
        }
        if (loot.n < most) { /* the limit */
            break;
        }
    }
    return true;
}

static bool move_pages(struct plim_engine *e, struct fill *f, bool wait)
{
    while (!is_full(f)) {
        struct wish wish = {.wait = wait};
        struct loot loot = {.n = 0};
        wish.page = next_pages(e, f, &wish.most);
        loot_all(e, f->arena, &wish, &loot);
        if (loot.n == 0) {
            return true;
        }
        e->stats.moved += loot.n;
        if (!put_pages(e, f, &loot)) {
            return false;
        }
    }
    return true;
}

static uint64_t limit_of(const struct plim_engine *e, uint64_t live, double share)
{
    return live + (uint64_t)((double)live * share) + e->config.floor;
}

/* Instead of new pages: free ones of the same size, then as many new ones as free ones of other sizes
 * could be given back for. False: the driver would not. */
static bool reuse_pages(struct plim_engine *e, struct fill *f, bool wait)
{
    uint64_t was;
    do {
        was = f->at;
        if (!move_pages(e, f, wait)) {
            return false;
        }
        if (is_full(f)) {
            return true;
        }
        unsigned most;
        uint64_t before = e->stats.reserved, page = next_pages(e, f, &most);
        if (release_others(e, page, most * page, wait) > 0 && !make_pages(e, f, before)) {
            return false;
        }
    } while (f->at > was && !is_full(f));
    return true;
}

/* Smaller pages from here on. False: there are none, or this slot has its size. */
static bool smaller_pages(const struct plim_engine *e, struct fill *f)
{
    if (f->page == e->config.small_page || page_at(e, f->a, f->at)) {
        return false;
    }
    f->page /= 2;
    uint64_t last = f->need > f->at ? f->need - 1 : f->at;
    if (!page_at(e, f->a, last)) {
        uint64_t end = round_up(last + 1, f->page);
        f->end = end < f->end ? end : f->end;
    }
    return true;
}

/* The steps are those of the head of this file. */
void plim__mv_pages_fill(struct plim_engine *e, struct fill *f, uint64_t size)
{
    uint64_t live = e->stats.live + size;
    if (live < e->stats.peak_live) {
        live = e->stats.peak_live;
    }
    bool calm = (f->flags & PLIM_ENGINE_CAPTURING) == 0;
    bool area = f->a->key.height > 0;
    bool more = area || make_pages(e, f, limit_of(e, live, e->config.soft));
    if (calm && !is_full(f) && !reuse_pages(e, f, false)) {
        more = false;
    }
    if (more && !is_full(f)) {
        more = make_pages(e, f, limit_of(e, live, e->config.hard));
    }
    if (calm && !is_full(f) && !reuse_pages(e, f, true)) {
        more = false;
    }
    if (more) {
        make_pages(e, f, UINT64_MAX);
    }
    if (calm && !is_full(f) && e->follow.spared) {
        e->follow.spared = false;
        reuse_pages(e, f, true);
        e->follow.spared = true;
    }
    while (!is_full(f) && smaller_pages(e, f)) {
        make_pages(e, f, UINT64_MAX);
    }
}

/* ---- choosing the place -------------------------------------------------------------------------- */

struct place {
    uint32_t hole;       /* the VOID block */
    uint64_t start;      /* of the request */
    uint64_t lo, hi;     /* pages to fill */
    bool before, behind; /* FREE neighbours take part */
};

static uint32_t free_neighbour(const struct plim_engine *e, uint32_t i)
{
    return i && block_at(e, i)->state == PLIM_ENGINE_FREE ? i : 0;
}

static bool better(const struct place *a, const struct place *b)
{
    uint64_t left = a->hi - a->lo, right = b->hi - b->lo;
    return !b->hole || left < right || (left == right && a->start < b->start);
}

/* Where in VOID block i and its FREE neighbours a request would stand, at the low and the high end. */
static void consider(const struct plim_engine *e, const struct arena *a, uint32_t i, uint64_t size,
                     uint64_t page, struct place *best)
{
    const struct block *v = block_at(e, i);
    uint32_t before = free_neighbour(e, v->prev), behind = free_neighbour(e, v->next);
    uint64_t from = before ? block_at(e, before)->addr : v->addr;
    uint64_t to = behind ? v->addr + v->size + block_at(e, behind)->size : v->addr + v->size;
    if (to - from < size) {
        return;
    }
    uint64_t v_end = v->addr + v->size;
    uint64_t end = from + size;
    struct place low = {.hole = i, .start = from, .lo = v->addr, .before = before != 0};
    low.hi = end < v_end ? round_up(end, page_to_be(e, a, end - 1, page)) : v_end;
    low.behind = end > v_end;
    if (better(&low, best)) {
        *best = low;
    }
    if (behind) {
        struct place high = {.hole = i, .start = to - size, .hi = v_end, .behind = true};
        high.lo =
            high.start > v->addr ? high.start & ~(page_to_be(e, a, high.start, page) - 1) : v->addr;
        high.before = high.start < v->addr;
        if (better(&high, best)) {
            *best = high;
        }
    }
}

/* Cut the pages to fill out of the VOID block, which leaves its list; what is left over stays VOID. */
static uint32_t cut_hole(struct plim_engine *e, struct arena *a, const struct place *p)
{
    uint32_t i = p->hole;
    plim__mv_void_take(e, a, i);
    if (p->lo > block_at(e, i)->addr) {
        uint32_t left = i;
        i = plim__mv_block_cut(e, i, p->lo - block_at(e, i)->addr);
        plim__mv_void_put(e, a, left);
    }
    if (block_at(e, i)->addr + block_at(e, i)->size > p->hi) {
        plim__mv_void_put(e, a, plim__mv_block_cut(e, i, p->hi - block_at(e, i)->addr));
    }
    return i;
}

/* The filled run and the neighbours that take part become one block, cut to the request. */
static uint32_t assemble(struct plim_engine *e, struct arena *a, uint32_t i, const struct place *p,
                         uint64_t size)
{
    if (p->behind) {
        plim__mv_block_join(e, i);
    }
    if (p->before) {
        i = block_at(e, i)->prev;
        plim__mv_block_join(e, i);
    }
    uint32_t left = block_at(e, i)->addr < p->start ? i : 0;
    if (left) {
        i = plim__mv_block_cut(e, left, p->start - block_at(e, left)->addr);
    }
    uint32_t right = block_at(e, i)->size > size ? plim__mv_block_cut(e, i, size) : 0;
    block_at(e, i)->state = PLIM_ENGINE_LIVE; /* nobody merges with it */
    if (left) {
        plim__mv_block_free(e, a, left, block_at(e, left)->fence);
    }
    if (right) {
        plim__mv_block_free(e, a, right, block_at(e, right)->fence);
    }
    return i;
}

/* Only some pages could be had: they become free memory, the rest of the hole stays without. */
static void abandon(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t filled)
{
    if (filled > 0) {
        uint32_t rest = plim__mv_block_cut(e, i, filled);
        plim__mv_block_free(e, a, i, 0);
        i = rest;
    }
    plim__mv_block_void(e, a, i);
}

static struct place choose(const struct plim_engine *e, const struct arena *a, uint64_t size,
                           uint64_t page)
{
    struct place p = {0};
    unsigned looked = 0;
    for (uint32_t i = a->voids; i && looked < LOOK_VOIDS; i = block_at(e, i)->forth, looked++) {
        consider(e, a, i, size, page, &p);
    }
    return p;
}

bool plim__mv_pages_place(const struct plim_engine *e, const struct arena *a, uint64_t size)
{
    return choose(e, a, size, e->slot).hole != 0;
}

uint32_t plim__mv_pages_grow(struct plim_engine *e, uint32_t arena, uint64_t size, uint64_t page,
                             unsigned flags)
{
    struct arena *a = arena_at(e, arena);
    struct place p = choose(e, a, size, page);
    if (!p.hole) {
        return 0;
    }
    uint32_t before = p.before ? block_at(e, p.hole)->prev : 0;
    uint32_t behind = p.behind ? block_at(e, p.hole)->next : 0;
    uint32_t i = cut_hole(e, a, &p);
    /* Out of reach of those who look for pages, and nobody merges with the hole meanwhile. */
    if (before) {
        plim__mv_bin_take(e, a, before);
    }
    if (behind) {
        plim__mv_bin_take(e, a, behind);
    }
    block_at(e, i)->state = PLIM_ENGINE_LIVE;
    struct fill f = {a, arena, p.lo, p.hi, p.start + size, page, flags};
    f.need = f.need < f.end ? f.need : f.end;
    plim__mv_pages_fill(e, &f, size);
    if (is_full(&f)) {
        if (f.at < p.hi) { /* smaller pages end earlier */
            plim__mv_block_void(e, a, plim__mv_block_cut(e, i, f.at - p.lo));
        }
        block_at(e, i)->state = PLIM_ENGINE_FREE;
        block_at(e, i)->fence = 0;
        i = assemble(e, a, i, &p, size);
    } else {
        if (before) {
            plim__mv_bin_put(e, a, before);
        }
        if (behind) {
            plim__mv_bin_put(e, a, behind);
        }
        abandon(e, a, i, f.at - p.lo);
        i = 0;
    }
    if ((flags & PLIM_ENGINE_CAPTURING) == 0 && may_loot(e, a)) {
        fence_record(e, a);
    }
    return i;
}
