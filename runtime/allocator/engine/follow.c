/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode plan: where in the period of a seating the program is, and the places it says.
 *
 * Requests are compared with the one that is expected. One that is another is served like any, and the
 * expected one stays: it may have been an additional one. When the latest few sizes are found further on
 * (the nearest place behind the expected one counts), the program is there: it left some out.
 *
 * The score says how well the program follows: one up for a request as planned, three down for another, at
 * most a period. Places are taken from where it is full (with a prologue: from the first request of all) to
 * where it is empty. So something that looks like a part of the period does not sit down where it will be in
 * the way, and a program that does something else is soon served as if there were no seating.
 *
 * A place is free when no live block of its area overlaps it; the nearest one at or below it is found by
 * rank. Then it is cut out of the free run there. Where pages are missing (at first, or when others had
 * to have them) they are found as for any other request.
 *
 * Areas are arenas that only planned requests use. As long as nearly all requests are as planned, their free
 * pages serve others only when there is no other memory on the device.
 */

#include "engine_int.h"

#include <string.h>
#include <sys/mman.h>

#define LOOK_BLOCKS 16   /* blocks that a place may be made of */
#define FULL_SCORE  4096 /* at most; a period if that is shorter */
#define MISS_SCORE  3
#define MISS_DOUBT  8  /* requests as planned that make up for one that is not */
#define MOST_DOUBT  64 /* from here on free pages of areas serve others */

/* ---- live blocks by rank ---------------------------------------------------------------------------- */

static uint64_t words(uint64_t bits)
{
    return (bits + 63) / 64;
}

/* Tables for `ranks` ranks. False: no memory. */
static bool area_tables(struct area *area, uint32_t ranks)
{
    uint64_t n[AREA_LEVELS], all = 0;
    for (unsigned k = 0; k < AREA_LEVELS; k++) {
        n[k] = words(k ? n[k - 1] : ranks);
        all += n[k] * sizeof(uint64_t);
    }
    area->bytes = all + ranks * sizeof *area->block;
    uint64_t *at = plim__mv_space(area->bytes);
    if (!at) {
        return false;
    }
    for (unsigned k = 0; k < AREA_LEVELS; k++) {
        area->bits[k] = at;
        at += n[k];
    }
    area->block = (uint32_t *)at;
    return true;
}

static void rank_set(struct area *area, uint32_t rank)
{
    for (unsigned k = 0; k < AREA_LEVELS; k++, rank /= 64) {
        area->bits[k][rank / 64] |= UINT64_C(1) << rank % 64;
    }
}

static void rank_clear(struct area *area, uint32_t rank)
{
    for (unsigned k = 0; k < AREA_LEVELS; k++, rank /= 64) {
        area->bits[k][rank / 64] &= ~(UINT64_C(1) << rank % 64);
        if (area->bits[k][rank / 64]) {
            return;
        }
    }
}

/* The live block with the greatest rank that is not above `rank`; 0: none. */
static uint32_t live_at_or_below(const struct area *area, uint32_t rank)
{
    uint64_t at = (uint64_t)rank + 1; /* what is asked for is below it */
    for (unsigned k = 0; k < AREA_LEVELS; k++) {
        uint64_t below = at % 64 ? area->bits[k][at / 64] & ((UINT64_C(1) << at % 64) - 1) : 0;
        if (below) {
            at = at / 64 * 64 + 63 - (uint64_t)__builtin_clzll(below);
            while (k-- > 0) {
                at = at * 64 + 63 - (uint64_t)__builtin_clzll(area->bits[k][at]);
            }
            return area->block[at];
        }
        at /= 64;
    }
    return 0;
}

/* ---- where the program is --------------------------------------------------------------------------- */

/* May a request from this stream be one of the lane? Once places are taken, that settles whose it is. */
static bool lane_fits(struct follower *f, uint32_t lane, uint64_t stream)
{
    if (f->bound[lane]) {
        return f->stream[lane] == stream;
    }
    for (uint32_t i = 0; i < f->plan->lanes; i++) {
        if (f->bound[i] && f->stream[i] == stream) {
            return false;
        }
    }
    if (f->in_force) {
        f->bound[lane] = true;
        f->stream[lane] = stream;
    }
    return true;
}

static bool fits(struct follower *f, uint32_t i, uint64_t size, uint64_t stream)
{
    const struct plim_seating_request *r = &f->plan->requests[i];
    return r->size == size && lane_fits(f, r->lane, stream);
}

/* The first request of a gram from position `from` on; n: none. */
static uint32_t first_of_gram(const struct plim_seating *p, uint64_t gram, uint32_t from)
{
    uint32_t lo = 0, hi = p->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2, at = p->by_gram[mid];
        if (p->gram[at] < gram || (p->gram[at] == gram && at < from)) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < p->n && p->gram[p->by_gram[lo]] == gram ? p->by_gram[lo] : p->n;
}

/* The request from `next` on, around the end of the period, that the latest sizes lead up to; n: none. */
static uint32_t find_back(const struct follower *f)
{
    uint64_t gram = plim_seating_gram(f->latest);
    uint32_t at = first_of_gram(f->plan, gram, f->next);
    return at < f->plan->n ? at : first_of_gram(f->plan, gram, f->plan->repeat);
}

static uint32_t full_score(const struct plim_seating *plan)
{
    uint32_t period = plan->n - plan->repeat;
    return period < FULL_SCORE ? period : FULL_SCORE;
}

static void give_up(struct follower *f)
{
    f->next = f->next < f->plan->repeat ? f->plan->repeat : f->next;
    f->in_force = false;
    for (uint32_t i = 1; i < f->plan->lanes; i++) {
        f->bound[i] = false; /* streams come and go */
    }
}

static void gone_astray(struct follower *f)
{
    f->score -= f->score < MISS_SCORE ? f->score : MISS_SCORE;
    f->doubt += f->doubt < 2 * MOST_DOUBT ? MISS_DOUBT : 0;
    if (f->in_force && f->score == 0) {
        give_up(f);
    }
    f->spared = f->in_force && f->doubt < MOST_DOUBT;
}

static void as_planned(struct follower *f, uint32_t at)
{
    f->next = at + 1 == f->plan->n ? f->plan->repeat : at + 1;
    f->score += f->score < full_score(f->plan);
    f->doubt -= f->doubt > 0;
    f->in_force = f->in_force || f->score == full_score(f->plan);
    f->spared = f->in_force && f->doubt < MOST_DOUBT;
}

/* Which request of the seating this is; NULL: none. */
static const struct plim_seating_request *recognise(struct follower *f, uint64_t size,
                                                    uint64_t stream)
{
    memmove(f->latest, f->latest + 1, sizeof f->latest - sizeof f->latest[0]);
    f->latest[PLIM_SEATING_GRAM - 1] = size;
    uint32_t at = f->next;
    if (!fits(f, at, size, stream)) {
        at = find_back(f);
        if (at == f->plan->n || !fits(f, at, size, stream)) {
            gone_astray(f);
            return NULL;
        }
    }
    as_planned(f, at);
    return &f->plan->requests[at];
}

/* ---- places ------------------------------------------------------------------------------------------- */

/* The area of a request, with its arena; NULL: it cannot be had. */
static struct area *area_of(struct plim_engine *e, const struct plim_seating_request *r,
                            const struct arena_key *key)
{
    struct area *area = &e->follow.area[r->lane][key->large];
    uint32_t ranks = e->follow.plan->ranks[r->lane][key->large];
    if (!area->bytes && !area->hopeless) {
        area->hopeless = !area_tables(area, ranks);
    }
    if (area->hopeless) {
        return NULL;
    }
    /* When the lane had another stream before, the table still has that one's blocks: no place then. */
    uint32_t arena = plim__mv_arena_of(e, key);
    if (arena && area->arena && arena != area->arena) {
        return NULL;
    }
    if (!arena && !area->arena) {
        arena = plim__mv_arena_open(e, key);
        area->hopeless = arena == 0;
    }
    area->arena = arena ? arena : area->arena;
    return arena ? area : NULL;
}

struct piece {
    uint32_t block;
    bool hollow; /* without pages */
};

/* The addresses of a VOID block that pages are needed for, and as many behind them as make a page of `page`
 * bytes, since others have their places there: cut out, in no list. */
static uint32_t cut_hollow(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t from,
                           uint64_t to, uint64_t page)
{
    const struct block *v = block_at(e, i);
    uint64_t end = v->addr + v->size, unit = e->config.small_page;
    uint64_t lo = from > v->addr ? from & ~(unit - 1) : v->addr;
    uint64_t hi = to > lo + page ? round_up(to, unit) : lo + page;
    hi = hi < end ? hi : end;
    plim__mv_void_take(e, a, i);
    if (lo > v->addr) {
        uint32_t left = i;
        i = plim__mv_block_cut(e, i, lo - block_at(e, i)->addr);
        plim__mv_void_put(e, a, left);
    }
    if (hi < end) {
        plim__mv_void_put(e, a, plim__mv_block_cut(e, i, hi - block_at(e, i)->addr));
    }
    return i;
}

/* The blocks of [from, to), none of them live, out of their lists, in such a state that nobody merges with
 * them. Returns their number; 0: some are live, or they are too many. */
static unsigned gather(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t from,
                       uint64_t to, uint64_t page, struct piece *pieces)
{
    unsigned n = 0;
    for (uint32_t k = i;; k = block_at(e, k)->next) {
        if (!k || n == LOOK_BLOCKS || block_at(e, k)->state <= PLIM_ENGINE_PENDING) {
            return 0;
        }
        pieces[n++] = (struct piece){k, block_at(e, k)->state == PLIM_ENGINE_VOID};
        if (block_at(e, k)->addr + block_at(e, k)->size >= to) {
            break;
        }
    }
    if (!plim__mv_blocks_spare(e, 3 * n + 4)) {
        return 0;
    }
    for (unsigned k = 0; k < n; k++) {
        if (pieces[k].hollow) {
            pieces[k].block = cut_hollow(e, a, pieces[k].block, from, to, page);
        } else {
            plim__mv_bin_take(e, a, pieces[k].block);
        }
        block_at(e, pieces[k].block)->state = PLIM_ENGINE_LIVE;
    }
    return n;
}

/* The pieces go back: those with pages as free memory. */
static void scatter(struct plim_engine *e, struct arena *a, const struct piece *pieces, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        if (pieces[k].hollow) {
            plim__mv_block_void(e, a, pieces[k].block);
        } else {
            plim__mv_block_free(e, a, pieces[k].block, block_at(e, pieces[k].block)->fence);
        }
    }
}

/* Pages behind a hollow piece; what could not be had stays without. */
static bool fill_hollow(struct plim_engine *e, struct arena *a, struct piece *p, struct fill *f,
                        uint64_t size)
{
    uint64_t lo = block_at(e, p->block)->addr, hi = lo + block_at(e, p->block)->size;
    f->lo = f->at = lo;
    f->end = hi;
    f->need = round_up(f->need, e->config.small_page);
    f->need = f->need < hi ? f->need : hi;
    plim__mv_pages_fill(e, f, size);
    bool full = f->at >= f->need;
    if (f->at > lo && f->at < hi) {
        uint32_t rest = plim__mv_block_cut(e, p->block, f->at - lo);
        plim__mv_block_void(e, a, rest);
    }
    p->hollow = f->at == lo;
    block_at(e, p->block)->fence = 0;
    return full;
}

/* A place that begins in block i, which is FREE or VOID. */
static uint32_t make_place(struct plim_engine *e, uint32_t arena, uint32_t i, uint64_t from,
                           uint64_t size, unsigned flags)
{
    struct arena *a = arena_at(e, arena);
    struct piece pieces[LOOK_BLOCKS];
    uint64_t page = plim__mv_page_for(e, &a->key, size);
    unsigned n = gather(e, a, i, from, from + size, page, pieces);
    bool full = n > 0;
    for (unsigned k = 0; k < n && full; k++) {
        struct fill f = {.a = a, .arena = arena, .need = from + size, .page = page, .flags = flags};
        full = !pieces[k].hollow || fill_hollow(e, a, &pieces[k], &f, size);
    }
    note_reserved(e);
    if (!full) {
        scatter(e, a, pieces, n);
        return 0;
    }
    for (unsigned k = 1; k < n; k++) {
        plim__mv_block_join(e, pieces[0].block);
    }
    return plim__mv_block_carve(e, a, pieces[0].block, from, size);
}

/* The block at a request's place, in no list; 0: it is not free. */
static uint32_t take_place(struct plim_engine *e, const struct plim_seating_request *r,
                           const struct area *area, unsigned flags)
{
    struct arena *a = arena_at(e, area->arena);
    uint64_t from = a->base + r->place;
    uint32_t below = live_at_or_below(area, r->rank);
    if (below && block_at(e, below)->addr + block_at(e, below)->size > from) {
        return 0;
    }
    uint32_t i = below ? block_at(e, below)->next : a->first;
    for (unsigned looked = 0; block_at(e, i)->addr + block_at(e, i)->size <= from; looked++) {
        i = block_at(e, i)->next;
        if (!i || looked == LOOK_BLOCKS) {
            return 0;
        }
    }
    const struct block *b = block_at(e, i);
    if (b->state == PLIM_ENGINE_FREE && b->addr + b->size >= from + r->size) {
        if (!plim__mv_blocks_spare(e, 2)) {
            return 0;
        }
        plim__mv_bin_take(e, a, i);
        return plim__mv_block_carve(e, a, i, from, r->size);
    }
    return make_place(e, area->arena, i, from, r->size, flags);
}

uint32_t plim__mv_follow(struct plim_engine *e, uint64_t size, uint64_t stream, unsigned flags)
{
    struct follower *f = &e->follow;
    const struct plim_seating_request *r = recognise(f, size, stream);
    if (!r || !f->in_force) {
        e->stats.astray++;
        return 0;
    }
    if (r->place == PLIM_SEATING_NONE) {
        return 0;
    }
    bool large = size > PLIM_ENGINE_SMALL;
    struct arena_key key = {
        .stream = stream, .height = f->plan->height[r->lane][large], .large = large};
    struct area *area = area_of(e, r, &key);
    uint32_t i = area ? take_place(e, r, area, flags) : 0;
    if (!i) {
        e->stats.displaced++;
        return 0;
    }
    e->stats.placed++;
    e->latest[latest_of(&key)] = area->arena;
    block_at(e, i)->planned = (uint32_t)(r - f->plan->requests) + 1;
    rank_set(area, r->rank);
    area->block[r->rank] = i;
    return i;
}

/* The request at whose place a block is. */
static const struct plim_seating_request *request_of(const struct plim_engine *e, uint32_t i)
{
    return &e->follow.plan->requests[block_at(e, i)->planned - 1];
}

void plim__mv_follow_freed(struct plim_engine *e, uint32_t i)
{
    const struct plim_seating_request *r = request_of(e, i);
    rank_clear(&e->follow.area[r->lane][r->size > PLIM_ENGINE_SMALL], r->rank);
    block_at(e, i)->planned = 0;
}

bool plim__mv_follow_knows(const struct plim_engine *e, uint32_t i)
{
    const struct plim_seating_request *r = request_of(e, i);
    const struct area *area = &e->follow.area[r->lane][r->size > PLIM_ENGINE_SMALL];
    return area->block[r->rank] == i && live_at_or_below(area, r->rank) == i;
}

/* ---- life --------------------------------------------------------------------------------------------- */

void plim__mv_follow_open(struct plim_engine *e, const struct plim_seating *plan)
{
    e->follow.plan = plan;
    if (plan && plan->repeat > 0) {
        e->follow.in_force = e->follow.spared = true;
        e->follow.score = full_score(plan);
    }
    e->follow.bound[0] = true; /* to the default stream, 0 */
}

void plim__mv_follow_close(struct plim_engine *e)
{
    for (uint32_t k = 0; k < PLIM_SEATING_LANES * 2; k++) {
        struct area *area = &e->follow.area[k / 2][k % 2];
        if (area->bytes) {
            munmap(area->bits[0], area->bytes);
        }
        *area = (struct area){0};
    }
}
