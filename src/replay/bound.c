/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals out of requests, and the layouts. See bound.h. */

#include "replay/bound.h"

#include "base/num.h"
#include "replay/replay_int.h"

#define UNIT          512u  /* sizes are rounded up to this, as every allocator does */
#define LARGEST_FIRST 6000u /* blocks, above which that layout takes too long */

/* A block with its life [born, dies) in requests. */
struct life {
    uint64_t size;
    uint32_t born;
    uint32_t dies; /* UINT32_MAX: stays */
    uint32_t lane;
};

struct lives {
    PLIM_VEC(struct life) items; /* in the order of birth */
};

/* ---- intervals ---------------------------------------------------------------------------------- */

static enum plim_status add_start(const struct plim_requests *q, struct lives *lives,
                                  uint32_t *of_slot, uint64_t *live, struct plim_err *err)
{
    for (size_t i = 0; i < q->start.blocks.n; i++) {
        uint32_t slot = q->start_slots.items[i];
        const struct plim_block *b = &q->start.blocks.items[i];
        if (slot == PLIM_NO_ID) {
            continue;
        }
        uint32_t lane = UINT32_MAX; /* their lane, when requests use it too */
        const struct plim_segment *s = &q->start.segments.items[b->segment];
        for (uint32_t k = 0; k < q->lanes.n; k++) {
            if (q->lanes.items[k].stream == s->stream && q->lanes.items[k].pool == s->pool) {
                lane = k;
            }
        }
        of_slot[slot] = (uint32_t)lives->items.n;
        *live = plim_add_sat(*live, b->requested ? b->requested : b->size);
        PLIM_TRY(plim_vec_push(&lives->items, err,
                               (struct life){plim_round_up(b->size, UNIT), 0, UINT32_MAX, lane}));
    }
    return PLIM_OK;
}

/* All blocks with their lives, and the peak of the bytes asked for. */
static enum plim_status collect(const struct plim_requests *q, double scale, struct lives *lives,
                                uint32_t *of_slot, uint64_t *sizes, uint64_t *peak,
                                struct plim_err *err)
{
    uint64_t live = 0;
    PLIM_TRY(add_start(q, lives, of_slot, &live, err));
    for (size_t i = 0; i < q->start.blocks.n; i++) {
        if (q->start_slots.items[i] != PLIM_NO_ID) {
            const struct plim_block *b = &q->start.blocks.items[i];
            sizes[q->start_slots.items[i]] = b->requested ? b->requested : b->size;
        }
    }
    *peak = live;
    for (size_t i = 0; i < q->items.n; i++) {
        const struct plim_request *r = &q->items.items[i];
        enum plim_request_kind kind = plim_request_kind(r);
        if (kind == PLIM_REQUEST_ALLOC) {
            uint64_t size = plim__request_scaled(r, scale);
            of_slot[r->slot] = (uint32_t)lives->items.n;
            sizes[r->slot] = size;
            live = plim_add_sat(live, size);
            *peak = plim_max_u64(*peak, live);
            PLIM_TRY(plim_vec_push(&lives->items, err,
                                   (struct life){plim_round_up(size, UNIT), (uint32_t)i + 1,
                                                 UINT32_MAX, plim_request_lane(r)}));
        } else if (kind == PLIM_REQUEST_FREE || kind == PLIM_REQUEST_FREE_END) {
            lives->items.items[of_slot[r->slot]].dies = (uint32_t)i + 1;
            live = plim_sub_sat(live, sizes[r->slot]);
        }
    }
    return PLIM_OK;
}

/* ---- layouts in the order of time --------------------------------------------------------------- */

struct arena { /* one range, with its holes sorted by address; the last hole is the open end */
    PLIM_VEC(struct plim_range) holes;
    uint64_t height;
};

/* False when the address space is too small: a hostile trace. */
static bool arena_take(struct arena *a, uint64_t size, bool best, uint64_t *at)
{
    size_t pick = SIZE_MAX;
    for (size_t i = 0; i < a->holes.n; i++) {
        uint64_t room = a->holes.items[i].hi - a->holes.items[i].lo;
        if (room >= size &&
            (pick == SIZE_MAX || room < a->holes.items[pick].hi - a->holes.items[pick].lo)) {
            pick = i;
            if (!best) {
                break;
            }
        }
    }
    if (pick == SIZE_MAX) {
        return false;
    }
    struct plim_range *hole = &a->holes.items[pick];
    *at = hole->lo;
    hole->lo += size;
    a->height = plim_max_u64(a->height, hole->lo);
    if (hole->lo == hole->hi) {
        a->holes.n--;
        memmove(hole, hole + 1, (a->holes.n - pick) * sizeof *hole);
    }
    return true;
}

static enum plim_status arena_give(struct arena *a, uint64_t at, uint64_t size,
                                   struct plim_err *err)
{
    size_t lo = 0, hi = a->holes.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (a->holes.items[mid].lo < at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    bool below = lo > 0 && a->holes.items[lo - 1].hi == at;
    bool above = lo < a->holes.n && a->holes.items[lo].lo == at + size;
    if (below && above) {
        a->holes.items[lo - 1].hi = a->holes.items[lo].hi;
        a->holes.n--;
        memmove(&a->holes.items[lo], &a->holes.items[lo + 1],
                (a->holes.n - lo) * sizeof a->holes.items[0]);
    } else if (below) {
        a->holes.items[lo - 1].hi += size;
    } else if (above) {
        a->holes.items[lo].lo = at;
    } else {
        PLIM_TRY(plim_vec_reserve(&a->holes, 1, err));
        memmove(&a->holes.items[lo + 1], &a->holes.items[lo],
                (a->holes.n - lo) * sizeof a->holes.items[0]);
        a->holes.items[lo] = (struct plim_range){at, at + size};
        a->holes.n++;
    }
    return PLIM_OK;
}

struct packing {
    const struct life *lives; /* in the order of birth */
    const uint32_t
        *deaths; /* [n]: indices of those that die, in the order of death, then the rest */
    size_t n;
    uint64_t *at; /* [n] scratch */
};

/* With `bottom`, blocks that stay lie at the bottom, one above the other, from the beginning. */
static enum plim_status in_time(const struct packing *p, bool best, bool bottom, uint64_t *height,
                                struct plim_err *err)
{
    struct arena a = {0};
    uint64_t base = 0;
    size_t dead = 0;
    bool fits = true;
    for (size_t i = 0; bottom && i < p->n; i++) {
        base += p->lives[i].dies == UINT32_MAX ? p->lives[i].size : 0;
    }
    enum plim_status st =
        plim_vec_push(&a.holes, err, (struct plim_range){base, UINT64_C(1) << 62});
    a.height = base;
    for (size_t i = 0; st == PLIM_OK && fits && i < p->n; i++) {
        const struct life *b = &p->lives[i];
        while (st == PLIM_OK && dead < p->n && p->lives[p->deaths[dead]].dies <= b->born) {
            uint32_t d = p->deaths[dead++];
            st = arena_give(&a, p->at[d], p->lives[d].size, err);
        }
        if (st == PLIM_OK && !(bottom && b->dies == UINT32_MAX)) {
            fits = arena_take(&a, b->size, best, &p->at[i]);
        }
    }
    plim_vec_fini(&a.holes);
    if (st == PLIM_OK && fits) {
        *height = plim_min_u64(*height, a.height);
    }
    return st;
}

/* ---- largest first ------------------------------------------------------------------------------- */

struct placed {
    uint64_t lo, hi;
    uint32_t born, dies;
};

static int by_size(const void *x, const void *y)
{
    const struct life *a = x, *b = y;
    if (a->size != b->size) {
        return a->size < b->size ? 1 : -1;
    }
    return (a->born > b->born) - (a->born < b->born);
}

/* Each block at the lowest place that no block placed before it needs at the same time. */
static enum plim_status largest_first(const struct life *lives, size_t n, uint64_t *height,
                                      struct plim_err *err)
{
    struct life *order = malloc(n * sizeof *order);
    struct placed *placed = malloc(n * sizeof *placed); /* sorted by lo */
    if (!order || !placed) {
        free(order);
        free(placed);
        return plim__fail(err, PLIM_E_NOMEM, "no memory to lay out %zu blocks", n);
    }
    memcpy(order, lives, n * sizeof *order);
    qsort(order, n, sizeof *order, by_size);
    uint64_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const struct life *b = &order[i];
        uint64_t at = 0;
        for (size_t k = 0; k < i && placed[k].lo < plim_add_sat(at, b->size); k++) {
            bool together = placed[k].born < b->dies && b->born < placed[k].dies;
            at = together && placed[k].hi > at ? placed[k].hi : at;
        }
        size_t k = i;
        while (k > 0 && placed[k - 1].lo > at) {
            placed[k] = placed[k - 1];
            k--;
        }
        placed[k] = (struct placed){at, at + b->size, b->born, b->dies};
        top = plim_max_u64(top, at + b->size);
    }
    *height = plim_min_u64(*height, top);
    free(order);
    free(placed);
    return PLIM_OK;
}

/* ---- one range ----------------------------------------------------------------------------------- */

struct death {
    uint32_t dies, index;
};

static int by_death(const void *x, const void *y)
{
    const struct death *a = x, *b = y;
    if (a->dies != b->dies) {
        return a->dies > b->dies ? 1 : -1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

/* The lowest of the layouts of lives[0..n), which are in the order of birth. */
static enum plim_status pack(const struct life *lives, size_t n, uint64_t *height,
                             struct plim_err *err)
{
    uint64_t best = UINT64_MAX;
    if (n == 0) {
        return PLIM_OK;
    }
    struct death *order = malloc(n * sizeof *order);
    uint32_t *deaths = malloc(n * sizeof *deaths);
    uint64_t *at = malloc(n * sizeof *at);
    enum plim_status st = PLIM_OK;
    if (!order || !deaths || !at) {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory to lay out %zu blocks", n);
    } else {
        for (size_t i = 0; i < n; i++) {
            order[i] = (struct death){lives[i].dies, (uint32_t)i};
        }
        qsort(order, n, sizeof *order, by_death);
        for (size_t i = 0; i < n; i++) {
            deaths[i] = order[i].index;
        }
        struct packing p = {lives, deaths, n, at};
        for (int way = 0; st == PLIM_OK && way < 4; way++) {
            st = in_time(&p, way & 1, way & 2, &best, err);
        }
        if (st == PLIM_OK && n <= LARGEST_FIRST) {
            st = largest_first(lives, n, &best, err);
        }
    }
    free(order);
    free(deaths);
    free(at);
    *height = plim_add_sat(*height, st == PLIM_OK ? best : 0);
    return st;
}

static int by_lane(const void *x, const void *y)
{
    const struct life *a = x, *b = y;
    if (a->lane != b->lane) {
        return a->lane > b->lane ? 1 : -1;
    }
    return (a->born > b->born) - (a->born < b->born);
}

static enum plim_status layouts(struct lives *lives, struct plim_bound *out, struct plim_err *err)
{
    struct life *items = lives->items.items;
    size_t n = lives->items.n;
    PLIM_TRY(pack(items, n, &out->packed_all, err));
    if (n > 1) {
        qsort(items, n, sizeof *items, by_lane);
    }
    for (size_t from = 0; from < n;) {
        size_t to = from;
        while (to < n && items[to].lane == items[from].lane) {
            to++;
        }
        out->lanes++;
        PLIM_TRY(pack(items + from, to - from, &out->packed, err));
        from = to;
    }
    if (out->lanes <= 1) {
        out->packed = out->packed_all;
    }
    out->packed_all = plim_min_u64(out->packed_all, out->packed);
    return PLIM_OK;
}

enum plim_status plim_bound_of(const struct plim_requests *requests, double scale,
                               struct plim_bound *out, struct plim_err *err)
{
    struct plim_bound bound = {0};
    struct lives lives = {0};
    uint32_t *of_slot = calloc((size_t)requests->slots + 1, sizeof *of_slot);
    uint64_t *sizes = calloc((size_t)requests->slots + 1, sizeof *sizes);
    enum plim_status st = PLIM_OK;
    if (!of_slot || !sizes) {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory for %u live blocks", requests->slots);
    }
    if (st == PLIM_OK) {
        st = collect(requests, scale, &lives, of_slot, sizes, &bound.live, err);
    }
    if (st == PLIM_OK) {
        st = layouts(&lives, &bound, err);
    }
    free(of_slot);
    free(sizes);
    plim_vec_fini(&lives.items);
    if (st == PLIM_OK) {
        *out = bound;
    }
    return st;
}
