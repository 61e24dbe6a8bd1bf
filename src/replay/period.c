/* SPDX-License-Identifier: Apache-2.0 */
/* See period.h. */

#include "replay/period.h"

#include "base/map.h"
#include "base/num.h"
#include "base/vec.h"

#define LENGTHS 64 /* tried for each kind of occurrence */
#define LEAST   16 /* elements of the part */
#define SHARE   10 /* the part is at least so manieth of the sequence */

struct distance {
    uint64_t length;
    uint64_t count; /* of occurrences */
};

static int more_first(const void *a, const void *b)
{
    const struct distance *x = a, *y = b;
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return (x->length > y->length) - (x->length < y->length);
}

/* How often each distance lies between neighbouring occurrences of the same `gram` elements. */
static enum plim_status count_distances(const uint64_t *keys, uint64_t n, uint64_t gram,
                                        struct plim_map *last, struct plim_map *count,
                                        struct plim_err *err)
{
    const uint64_t base = 0x9e3779b97f4a7c15u;
    uint64_t hash = 0, leaving = 1;
    for (uint64_t i = 1; i < gram; i++) {
        leaving *= base;
    }
    for (uint64_t i = 0; i < n; i++) {
        hash -= i >= gram ? keys[i - gram] * leaving : 0;
        hash = hash * base + keys[i];
        if (i + 1 < gram) {
            continue;
        }
        uint64_t key = hash == PLIM_MAP_NO_KEY ? 0 : hash;
        const uint64_t *before = plim_map_get(last, key);
        if (before) {
            uint64_t length = i - *before;
            const uint64_t *so_far = plim_map_get(count, length);
            PLIM_TRY(plim_map_put(count, length, so_far ? *so_far + 1 : 1, err));
        }
        PLIM_TRY(plim_map_put(last, key, i, err));
    }
    return PLIM_OK;
}

/* The longest part that repeats itself after `length` elements. */
static struct plim_period longest(const uint64_t *keys, uint64_t n, uint64_t length)
{
    struct plim_period best = {0};
    uint64_t run = 0;
    for (uint64_t i = length; i < n; i++) {
        run = keys[i] == keys[i - length] ? run + 1 : 0;
        if (run >= length && run + length > best.n) {
            best = (struct plim_period){i + 1 - run - length, run + length, length};
        }
    }
    return best;
}

static void take_better(struct plim_period *best, struct plim_period other)
{
    if (other.n > best->n || (other.n == best->n && other.length < best->length)) {
        *best = other;
    }
}

/* The best of the most frequent distances. */
static enum plim_status try_distances(const uint64_t *keys, uint64_t n,
                                      const struct plim_map *count, struct plim_period *best,
                                      struct plim_err *err)
{
    PLIM_VEC(struct distance) all = {0};
    const struct plim_map_slot *slot;
    size_t cursor = 0;
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && (slot = plim_map_next(count, &cursor)) != NULL) {
        st = plim_vec_push(&all, err, (struct distance){slot->key, slot->value});
    }
    if (st == PLIM_OK && all.n > 0) {
        qsort(all.items, all.n, sizeof *all.items, more_first);
    }
    for (size_t i = 0; st == PLIM_OK && i < all.n && i < LENGTHS; i++) {
        take_better(best, longest(keys, n, all.items[i].length));
    }
    plim_vec_fini(&all);
    return st;
}

enum plim_status plim_period_find(const uint64_t *keys, uint64_t n, struct plim_period *out,
                                  struct plim_err *err)
{
    static const uint64_t grams[] = {8, 64};
    struct plim_period best = {0};
    enum plim_status st = PLIM_OK;
    for (size_t k = 0; k < PLIM_COUNT_OF(grams) && st == PLIM_OK; k++) {
        struct plim_map last = {0}, count = {0};
        st = count_distances(keys, n, grams[k], &last, &count, err);
        if (st == PLIM_OK) {
            st = try_distances(keys, n, &count, &best, err);
        }
        plim_map_fini(&last);
        plim_map_fini(&count);
    }
    PLIM_TRY(st);
    if (best.n < LEAST || best.n < n / SHARE) {
        return plim__fail(err, PLIM_E_NOTFOUND, "the requests do not repeat themselves");
    }
    *out = best;
    return PLIM_OK;
}
