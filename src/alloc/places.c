/* SPDX-License-Identifier: Apache-2.0 */
/* See places.h. */

#include "alloc/places.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

#define ALL_ORDERS 7                   /* blocks up to which every order is tried */
#define WORK       UINT64_C(300000000) /* pairs of blocks that are compared, about */
#define CLOSE      2048 /* a height above the bound by so manieth of it is low enough */

struct placed { /* in the order of places */
    uint64_t place, end;
    uint32_t start, length;
    uint32_t stay;
};

struct finder {
    struct plim_stay *stays; /* borrowed; place: of the best so far */
    uint32_t n, once, period;
    struct placed *placed; /* owned, [n] */
    uint32_t *order;       /* owned, [n] */
    uint32_t *best_order;  /* owned, [n] */
    uint64_t bound, best;  /* bytes */
    bool best_fit;         /* the smallest gap, else the lowest */
    uint64_t work;
    uint64_t random;
};

static bool comes_once(const struct finder *f, uint32_t start)
{
    return start < f->once;
}

/* The moment behind a stay that comes once. */
static uint64_t end_of(uint32_t start, uint32_t length)
{
    return length == PLIM_STAY_FOREVER ? UINT64_MAX : (uint64_t)start + length;
}

static bool meet(const struct finder *f, const struct placed *p, const struct plim_stay *s)
{
    bool p_once = comes_once(f, p->start), s_once = comes_once(f, s->start);
    if (p_once || s_once) {
        /* Of one that comes again the first time counts: the others are later. */
        return (!p_once || s->start < end_of(p->start, p->length)) &&
               (!s_once || p->start < end_of(s->start, s->length));
    }
    uint32_t ahead = s->start >= p->start ? s->start - p->start : s->start + (f->period - p->start);
    return ahead < p->length || f->period - ahead < s->length;
}

/* Put the stay into the first gap among those that it meets, or the smallest. */
static void put(struct finder *f, uint32_t n, uint32_t stay)
{
    const struct plim_stay *s = &f->stays[stay];
    uint64_t at = 0, place = UINT64_MAX, least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct placed *p = &f->placed[i];
        if (p->end <= at || !meet(f, p, s)) {
            continue;
        }
        uint64_t gap = plim_sub_sat(p->place, at);
        if (gap >= s->size && gap < least) {
            place = at;
            least = gap;
            if (!f->best_fit || gap == s->size) {
                break;
            }
        }
        at = p->end;
    }
    place = place == UINT64_MAX ? at : place;
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (f->placed[mid].place <= place) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    memmove(&f->placed[lo + 1], &f->placed[lo], (n - lo) * sizeof *f->placed);
    f->placed[lo] = (struct placed){place, place + s->size, s->start, s->length, stay};
}

/* Place all in the present order; keep the result when none was better. */
static void try_order(struct finder *f)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        put(f, i, f->order[i]);
    }
    f->work += (uint64_t)f->n * f->n / 2 + f->n;
    for (uint32_t i = 0; i < f->n; i++) {
        height = plim_max_u64(height, f->placed[i].end);
    }
    if (height > f->best) {
        return;
    }
    f->best = height;
    memcpy(f->best_order, f->order, f->n * sizeof *f->order);
    for (uint32_t i = 0; i < f->n; i++) {
        f->stays[f->placed[i].stay].place = f->placed[i].place;
    }
}

static bool enough(const struct finder *f)
{
    return f->best <= plim_add_sat(f->bound, f->bound / CLOSE) || f->work >= WORK;
}

/* ---- orders ------------------------------------------------------------------------------------------ */

enum order_by {
    BY_SIZE,
    BY_AREA,
    BY_LENGTH,
    BY_START,
    ORDERS
};

struct sort_key {
    double key; /* the larger comes first */
    uint32_t stay;
};

static int compare(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->key != y->key) {
        return x->key > y->key ? -1 : 1;
    }
    return (x->stay > y->stay) - (x->stay < y->stay);
}

static double key_of(const struct plim_stay *s, enum order_by by)
{
    switch (by) {
    case BY_SIZE:
        return (double)s->size;
    case BY_AREA:
        return (double)s->size * s->length;
    case BY_LENGTH:
        return s->length;
    default:
        return -(double)s->start;
    }
}

static void sort_by(struct finder *f, enum order_by by, struct sort_key *keys)
{
    for (uint32_t i = 0; i < f->n; i++) {
        keys[i] = (struct sort_key){key_of(&f->stays[i], by), i};
    }
    qsort(keys, f->n, sizeof *keys, compare);
    for (uint32_t i = 0; i < f->n; i++) {
        f->order[i] = keys[i].stay;
    }
}

static uint32_t below(struct finder *f, uint32_t n)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (uint32_t)(f->random % n);
}

/* Block number `from` of the order becomes number `to`, which is not behind it. */
static void advance(struct finder *f, uint32_t from, uint32_t to)
{
    uint32_t stay = f->order[from];
    memmove(&f->order[to + 1], &f->order[to], (from - to) * sizeof *f->order);
    f->order[to] = stay;
}

/* The best order, in which the blocks that end highest come somewhere earlier, and one other does. */
static void change_order(struct finder *f)
{
    memcpy(f->order, f->best_order, f->n * sizeof *f->order);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct plim_stay *s = &f->stays[f->order[i]];
        if (s->place + s->size == f->best) {
            advance(f, i, below(f, i + 1));
        }
    }
    uint32_t from = below(f, f->n);
    advance(f, from, below(f, from + 1));
}

/* Every order of the blocks from number k on (Heap's algorithm, recursive). */
static void permute(struct finder *f, uint32_t k)
{
    if (k <= 1) {
        try_order(f);
        return;
    }
    for (uint32_t i = 0; i < k && f->best > f->bound; i++) {
        permute(f, k - 1);
        uint32_t other = k % 2 ? 0 : i;
        uint32_t swap = f->order[other];
        f->order[other] = f->order[k - 1];
        f->order[k - 1] = swap;
    }
}

static void search(struct finder *f, struct sort_key *keys)
{
    bool best_fit = false;
    for (unsigned k = 0; k < 2 * ORDERS && !enough(f); k++) {
        uint64_t before = f->best;
        f->best_fit = k % 2;
        sort_by(f, (enum order_by)(k / 2), keys);
        try_order(f);
        best_fit = f->best < before ? f->best_fit : best_fit;
    }
    f->best_fit = best_fit;
    if (f->n <= ALL_ORDERS) {
        f->best_fit = false;
        permute(f, f->n);
        return;
    }
    while (!enough(f)) {
        change_order(f);
        try_order(f);
    }
}

/* ---- the bound ---------------------------------------------------------------------------------------- */

/* From the first moment on until the second period ends: by then all is there that ever is. */
static enum plim_status find_bound(const struct finder *f, uint64_t *out, struct plim_err *err)
{
    uint64_t moments = f->once + 2 * (uint64_t)f->period;
    uint64_t *change = calloc(moments + 1, sizeof *change); /* modulo 2^64 */
    if (!change) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a period of %u requests", f->period);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        const struct plim_stay *s = &f->stays[i];
        uint64_t step = comes_once(f, s->start) ? moments : f->period;
        for (uint64_t at = s->start; at < moments; at += step) {
            change[at] += s->size;
            change[plim_min_u64(at + s->length, moments)] -= s->size;
        }
    }
    uint64_t there = 0, most = 0;
    for (uint64_t i = 0; i < moments; i++) {
        there += change[i];
        most = plim_max_u64(most, there);
    }
    free(change);
    *out = most;
    return PLIM_OK;
}

enum plim_status plim_places_find(struct plim_stay *stays, uint32_t n, uint32_t once,
                                  uint32_t period, struct plim_places *out, struct plim_err *err)
{
    struct finder f = {
        .stays = stays, .n = n, .once = once, .period = period, .best = UINT64_MAX, .random = 1};
    if (n == 0) {
        *out = (struct plim_places){0};
        return PLIM_OK;
    }
    PLIM_TRY(find_bound(&f, &f.bound, err));
    struct sort_key *keys = calloc(n, sizeof *keys);
    f.placed = calloc(n, sizeof *f.placed);
    f.order = calloc(n, sizeof *f.order);
    f.best_order = calloc(n, sizeof *f.best_order);
    enum plim_status st = PLIM_OK;
    if (keys && f.placed && f.order && f.best_order) {
        search(&f, keys);
        *out = (struct plim_places){.height = f.best, .bound = f.bound};
    } else {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory for the places of %u blocks", n);
    }
    free(keys);
    free(f.placed);
    free(f.order);
    free(f.best_order);
    return st;
}
