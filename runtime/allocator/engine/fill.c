/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the memory behind addresses comes from.
 *
 * A request that no FREE run can take gets a place in which some pages are missing: a VOID run together
 * with the FREE runs on its two sides, the place that misses the fewest pages. Then pages are found in
 * this order, until there are enough:
 *
 *   1. new ones, while reserved stays below (1 + calm) times the highest live and the floor; once pages have been
 *      moved, below (1 + soft) times; not for the areas of a seating, which take over what the program had before
 *   2. idle free pages that are no longer than what is missing, those of its own arena first; when all are
 *      longer, one of them is given back, and a new one made of the length that is missing
 *   3. new ones, a little (hard) above that
 *   4. as 2, with pages that must be waited for
 *   5. new ones without that limit (little can be moved; the cap still holds)
 *   6. as 4, with pages of the areas of a seating that is followed
 *   7. shorter new ones, for what is left of the device
 *
 * A new page is as long as what is missing, so that it becomes free with the block that it was made for, and
 * at most as long as plim_engine_page() says. Steps 2, 4 and 6 touch mappings and ask events, so a request under
 * graph capture skips them.
 */

#include "engine_int.h"

#define LOOK_VOIDS 64 /* VOID runs that are considered, more when none of them will do */
#define AHEAD      (UINT64_C(16) << 20) /* bytes of a new page that is made for less */

/* ---- filling a place ----------------------------------------------------------------------------- */

static bool is_full(const struct fill *f)
{
    return f->at >= f->need;
}

/* Map pages at f->at onwards; those that cannot be mapped are given back. */
static bool put_pages(struct plim_engine *e, struct fill *f, const struct loot *loot)
{
    struct loot rest = {.n = 0};
    unsigned n = 0;
    for (; n < loot->n; n++) {
        uint64_t size = loot->page[n].size, handle = loot->page[n].handle;
        if (e->config.driver->map(e->config.ctx, f->at, size, handle) != 0) {
            break;
        }
        plim__mv_page_set(e, f->a, f->at, size, handle);
        f->at += size;
    }
    while (n < loot->n) {
        rest.page[rest.n++] = loot->page[n++];
    }
    plim__mv_give_back(e, &rest);
    return rest.n == 0;
}

/* All that has been mapped may be used, by one call; otherwise it is given back. */
static void open_pages(struct plim_engine *e, struct fill *f)
{
    if (f->at == f->lo || e->config.driver->access(e->config.ctx, f->lo, f->at - f->lo) == 0) {
        return;
    }
    for (uint64_t at = f->lo, end = at; at < f->at; at = end) {
        struct loot loot = {.n = 0};
        for (unsigned n = 0; n < BATCH && end < f->at; n++) {
            end += page_bytes(e, f->a, end);
        }
        plim__mv_unmap(e, f->a, at, end, &loot);
        plim__mv_give_back(e, &loot);
    }
    f->at = f->lo;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes of a new page at an address, with some for others if `limit` allows; 0: it does not allow any. */
static uint64_t next_page(const struct plim_engine *e, const struct fill *f, uint64_t at,
                          uint64_t limit)
{
    uint64_t left = limit > e->stats.reserved ? limit - e->stats.reserved : 0;
    uint64_t size = least(f->page, f->end - at);
    if (size > left) {
        size = least(f->page, f->need - at);
    }
    return size <= left ? size : 0;
}

/* New pages while reserved stays at or below `limit` bytes. False: the driver has no more. */
static bool make_pages(struct plim_engine *e, struct fill *f, uint64_t limit)
{
    limit = least(limit, e->cap);
    while (!is_full(f)) {
        struct loot loot = {.n = 0};
        uint64_t at = f->at, size = 0, handle;
        bool dry = false;
        while (loot.n < BATCH && at < f->need && !dry) {
            size = next_page(e, f, at, limit);
            if (size == 0) {
                break;
            }
            dry = e->config.driver->create(e->config.ctx, size, &handle) != 0;
            if (!dry) {
                loot.page[loot.n].handle = handle;
                loot.page[loot.n++].size = size;
                at += size;
                e->stats.created++;
                e->stats.reserved += size;
            }
        }
        if (!put_pages(e, f, &loot) || dry) {
            return false;
        }
        if (size == 0) {
            break;
        }
    }
    return true;
}

static uint64_t limit_of(const struct plim_engine *e, uint64_t live, double share)
{
    return live + (uint64_t)((double)live * share) + e->config.floor;
}

/* Instead of new pages: free ones that are short enough; then a new one for a longer one that is given back.
 * False: the driver would not. */
static bool reuse_pages(struct plim_engine *e, struct fill *f, bool wait)
{
    while (!is_full(f)) {
        struct loot loot = {.n = 0};
        uint64_t before = e->stats.reserved, was = f->at;
        plim__mv_loot(e, f->arena, f->need - f->at, wait, &loot);
        e->stats.moved += loot.n;
        if (!put_pages(e, f, &loot)) {
            return false;
        }
        if (loot.n == 0 && !plim__mv_release_one(e, wait)) {
            break;
        }
        if (loot.n == 0 && !make_pages(e, f, before)) {
            return false;
        }
        if (f->at == was) {
            break;
        }
    }
    return true;
}

/* The steps are those of the head of this file. */
void plim__mv_pages_fill(struct plim_engine *e, struct fill *f, uint64_t size)
{
    uint64_t live = e->stats.live + size;
    if (live < e->highest_live) {
        live = e->highest_live;
    }
    bool free_hands = (f->flags & PLIM_ENGINE_CAPTURING) == 0;
    double soft = e->stats.moved > 0 ? e->config.soft : e->config.calm;
    bool area = f->a->key.height > 0;
    bool more = area || make_pages(e, f, limit_of(e, live, soft));
    f->end = area ? f->end : f->need;
    if (free_hands && !is_full(f) && !reuse_pages(e, f, false)) {
        more = false;
    }
    if (more && !is_full(f)) {
        more = make_pages(e, f, limit_of(e, live, soft + e->config.hard));
    }
    if (free_hands && !is_full(f) && !reuse_pages(e, f, true)) {
        more = false;
    }
    f->end = f->need;
    if (more) {
        make_pages(e, f, UINT64_MAX);
    }
    if (free_hands && !is_full(f) && e->follow.spared) {
        e->follow.spared = false;
        reuse_pages(e, f, true);
        e->follow.spared = true;
    }
    while (!is_full(f) && f->page > e->config.small_page) {
        f->page = round_up(f->page / 2, e->config.small_page);
        make_pages(e, f, UINT64_MAX);
    }
    open_pages(e, f);
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
static void consider(const struct plim_engine *e, uint32_t i, uint64_t size, struct place *best)
{
    uint64_t unit = e->config.small_page;
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
    low.hi = end < v_end ? round_up(end, unit) : v_end;
    low.behind = end > v_end;
    if (better(&low, best)) {
        *best = low;
    }
    if (behind) {
        struct place high = {.hole = i, .start = to - size, .hi = v_end, .behind = true};
        high.lo = high.start > v->addr ? high.start & ~(unit - 1) : v->addr;
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
    return plim__mv_block_carve(e, a, i, p->start, size);
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

static struct place choose(struct plim_engine *e, const struct arena *a, uint64_t size)
{
    struct place p = {0};
    unsigned looked = 0;
    for (uint32_t i = a->voids; i && (looked < LOOK_VOIDS || !p.hole); i = block_at(e, i)->forth) {
        consider(e, i, size, &p);
        looked++;
    }
    e->stats.looked += looked;
    return p;
}

/* Where new pages end at most: a request that needs few of them gets a longer one, from which those that follow
 * are cut. Not in a private pool: what is left over there serves nobody until the pool is released. */
static uint64_t end_ahead(const struct plim_engine *e, const struct place *p, uint64_t page)
{
    const struct block *v = block_at(e, p->hole);
    uint64_t ahead = arena_at(e, v->arena)->key.pool ? 0 : AHEAD;
    uint64_t end = p->lo + (page < ahead ? page : ahead), most = v->addr + v->size;
    end = end > p->hi ? end : p->hi;
    return end < most ? end : most;
}

bool plim__mv_pages_place(struct plim_engine *e, const struct arena *a, uint64_t size)
{
    return choose(e, a, size).hole != 0;
}

uint32_t plim__mv_pages_grow(struct plim_engine *e, uint32_t arena, uint64_t size, uint64_t page,
                             unsigned flags)
{
    struct arena *a = arena_at(e, arena);
    struct place p = choose(e, a, size);
    if (!p.hole) {
        return 0;
    }
    uint32_t before = p.before ? block_at(e, p.hole)->prev : 0;
    uint32_t behind = p.behind ? block_at(e, p.hole)->next : 0;
    uint64_t need = p.hi;
    p.hi = end_ahead(e, &p, page);
    uint32_t i = cut_hole(e, a, &p);
    /* Out of reach of those who look for pages, and nobody merges with the hole meanwhile. */
    if (before) {
        plim__mv_bin_take(e, a, before);
    }
    if (behind) {
        plim__mv_bin_take(e, a, behind);
    }
    block_at(e, i)->state = PLIM_ENGINE_LIVE;
    struct fill f = {a, arena, p.lo, p.lo, need, p.hi, page, flags};
    plim__mv_pages_fill(e, &f, size);
    if (is_full(&f)) {
        if (f.at < p.hi) {
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
    if ((flags & PLIM_ENGINE_CAPTURING) == 0 && plim__mv_may_loot(e, a)) {
        plim__mv_fence_record(e, a);
    }
    return i;
}
