/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaMalloc and cudaFree: whole pages for large requests, shared pages for small ones.
 *
 * The driver hands out device memory in pages of 2 MiB. A request larger than 1 MiB gets pages of its
 * own; smaller ones share a page, 512-byte aligned, and the page goes back when the last of them is
 * freed. That is what published address logs of cudaMalloc show (1 MiB still shares a page, 2 MiB
 * does not; where in between the border lies is not known), so `used` moves in steps of 2 MiB and
 * freeing one small block of many changes nothing.
 *
 * A slab keeps one bit for each 512-byte unit in use, one for each unit that starts a block, and an upper
 * bound of its longest free run; slabs hang in lists by the logarithm of that bound. A look for a place
 * that finds none makes the bound exact and moves the slab down, so failures are paid for by the frees
 * before them. Freeing finds the slab by its page.
 */

#include "sim.h"
#include <string.h>

#define UNIT       512u
#define UNITS      ((uint32_t)(SIM_PAGE / UNIT)) /* 4096 */
#define WORDS      (UNITS / 64)
#define LIST_COUNT 13 /* longest free run of 2^k .. 2^(k+1)-1 units; 12 is an empty slab */

struct slab {
    uint64_t used[WORDS];
    uint64_t starts[WORDS];
    uint64_t open;             /* words that have a free unit */
    uint32_t self, next, prev; /* list by `longest`; 0 ends it */
    uint32_t live;             /* blocks */
    uint32_t longest;          /* free units in a row, at most */
    int32_t list;              /* -1 when full */
    int32_t device;
    struct sim_range *range;
};

static struct sim_pool slabs = SIM_POOL(struct slab);
static uint32_t lists[SIM_MAX_DEVICES][LIST_COUNT];

static struct slab *slab_at(uint32_t i)
{
    return sim_pool_at(&slabs, i);
}

static void unlink_slab(struct slab *s)
{
    if (s->list < 0) {
        return;
    }
    if (s->prev != 0) {
        slab_at(s->prev)->next = s->next;
    } else {
        lists[s->device][s->list] = s->next;
    }
    if (s->next != 0) {
        slab_at(s->next)->prev = s->prev;
    }
    s->next = s->prev = 0;
    s->list = -1;
}

static void link_slab(struct slab *s)
{
    if (s->longest == 0) {
        return;
    }
    s->list = 31 - __builtin_clz(s->longest);
    s->next = lists[s->device][s->list];
    lists[s->device][s->list] = s->self;
    if (s->next != 0) {
        slab_at(s->next)->prev = s->self;
    }
}

/* First unit of the first run of at least `need` free units, or UNITS; *longest gets the longest run
 * seen, which is the longest of all when there is no place. */
static uint32_t scan(const struct slab *s, uint32_t need, uint32_t *longest)
{
    uint32_t run = 0, best = 0, last = UINT32_MAX;
    for (uint64_t open = s->open; open != 0; open &= open - 1) {
        uint32_t w = (uint32_t)__builtin_ctzll(open);
        uint64_t word = s->used[w];
        run = w == last + 1 ? run : 0; /* a full word between ends the run */
        last = w;
        for (uint32_t bit = 0; bit < 64;) {
            uint64_t rest = word >> bit;
            if ((rest & 1) == 0) {
                uint32_t zeros = rest == 0 ? 64 - bit : (uint32_t)__builtin_ctzll(rest);
                run += zeros;
                bit += zeros;
                best = run > best ? run : best;
                if (run >= need) {
                    *longest = best;
                    return w * 64 + bit - run;
                }
            } else {
                uint64_t inverse = ~rest;
                uint32_t ones = inverse == 0 ? 64 : (uint32_t)__builtin_ctzll(inverse);
                bit += ones < 64 - bit ? ones : 64 - bit;
                run = 0;
            }
        }
    }
    *longest = best;
    return UNITS;
}

/* The lowest unit from which all units below `i` are free. */
static uint32_t free_from(const struct slab *s, uint32_t i)
{
    uint32_t w = i / 64;
    uint64_t word = i % 64 == 0 ? 0 : s->used[w] & (((uint64_t)1 << (i % 64)) - 1);
    while (word == 0) {
        if (w == 0) {
            return 0;
        }
        word = s->used[--w];
    }
    return w * 64 + 64 - (uint32_t)__builtin_clzll(word);
}

/* The first unit in use at or above `i`, or UNITS. */
static uint32_t free_until(const struct slab *s, uint32_t i)
{
    for (uint32_t w = i / 64; w < WORDS; w++) {
        uint64_t word = s->used[w] & (w == i / 64 ? UINT64_MAX << (i % 64) : UINT64_MAX);
        if (word != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(word);
        }
    }
    return UNITS;
}

/* Take or give back units; keeps `open`. */
static void mark(struct slab *s, uint32_t first, uint32_t n, bool on)
{
    while (n > 0) {
        uint32_t w = first / 64, bit = first % 64, k = 64 - bit < n ? 64 - bit : n;
        uint64_t mask = (k == 64 ? UINT64_MAX : (((uint64_t)1 << k) - 1)) << bit;
        if (on) {
            s->used[w] |= mask;
            s->open &= ~((uint64_t)(s->used[w] == UINT64_MAX) << w);
        } else {
            s->used[w] &= ~mask;
            s->open |= (uint64_t)1 << w;
        }
        first += k;
        n -= k;
    }
}

static void set_longest(struct slab *s, uint32_t longest)
{
    int list = longest == 0 ? -1 : 31 - __builtin_clz(longest);
    s->longest = longest;
    if (list != s->list) {
        unlink_slab(s);
        link_slab(s);
    }
}

static struct slab *new_slab(int device)
{
    uint32_t self;
    if (sim_charge(device, SIM_PAGE) != SIM_OK) {
        return NULL;
    }
    struct slab *s = sim_pool_take(&slabs, &self);
    struct sim_range *range = s == NULL ? NULL : sim_space_take(device, 1, 1, SIM_KIND_SLAB);
    if (range == NULL) {
        if (s != NULL) {
            sim_pool_give(&slabs, self);
        }
        sim_uncharge(device, SIM_PAGE);
        return NULL;
    }
    s->self = self;
    s->device = device;
    s->range = range;
    s->longest = UNITS;
    s->list = -1;
    s->open = UINT64_MAX;
    range->owner = s;
    link_slab(s);
    return s;
}

/* A slab that may have `need` free units in a row, or NULL. */
static struct slab *candidate(int device, uint32_t need)
{
    int list = 31 - __builtin_clz(need);
    struct slab *s = lists[device][list] == 0 ? NULL : slab_at(lists[device][list]);
    if (s != NULL && s->longest >= need) {
        return s;
    }
    for (list++; list < LIST_COUNT; list++) { /* all of these promise more than enough */
        if (lists[device][list] != 0) {
            return slab_at(lists[device][list]);
        }
    }
    return NULL;
}

static int malloc_small(int device, uint64_t bytes, void **out)
{
    uint32_t need = (uint32_t)((bytes + UNIT - 1) / UNIT), first = UNITS, longest;
    struct slab *s;
    while ((s = candidate(device, need)) != NULL) {
        first = scan(s, need, &longest);
        if (first != UNITS) {
            break;
        }
        set_longest(s, longest);
    }
    if (s == NULL) {
        s = new_slab(device);
        if (s == NULL) {
            return SIM_E_NOMEM;
        }
        first = 0;
    }
    mark(s, first, need, true);
    s->starts[first / 64] |= (uint64_t)1 << (first % 64);
    s->live++;
    if (s->open == 0) {
        set_longest(s, 0);
    }
    *out = (void *)(uintptr_t)(sim_space_addr(device, s->range->page) + (uint64_t)first * UNIT);
    return SIM_OK;
}

/* First unit after the block that starts at `first`: where use ends or the next block starts. */
static uint32_t block_end(const struct slab *s, uint32_t first)
{
    uint32_t i = first + 1;
    for (uint32_t w = i / 64; w < WORDS; w++) {
        uint64_t ends = ~s->used[w] | s->starts[w];
        if (w == i / 64) {
            ends &= UINT64_MAX << (i % 64);
        }
        if (ends != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(ends);
        }
    }
    return UNITS;
}

static int free_small(struct sim_range *range, void *p)
{
    struct slab *s = range->owner;
    uint64_t off = (uint64_t)(uintptr_t)p - sim_space_addr(s->device, range->page);
    uint32_t first = (uint32_t)(off / UNIT);
    if (off % UNIT != 0 || (s->starts[first / 64] >> (first % 64) & 1) == 0) {
        return SIM_E_VALUE;
    }
    uint32_t end = block_end(s, first);
    mark(s, first, end - first, false);
    s->starts[first / 64] &= ~((uint64_t)1 << (first % 64));
    s->live--;
    if (s->live == 0) {
        int device = s->device;
        unlink_slab(s);
        sim_pool_give(&slabs, s->self);
        sim_space_give(device, range);
        sim_uncharge(device, SIM_PAGE);
        return SIM_OK;
    }
    uint32_t run = free_until(s, end) - free_from(s, first);
    if (run > s->longest) {
        set_longest(s, run);
    }
    return SIM_OK;
}

static int malloc_large(int device, uint64_t bytes, void **out)
{
    uint64_t pages = bytes / SIM_PAGE + (bytes % SIM_PAGE != 0);
    if (pages > UINT64_MAX >> (SIM_PAGE_SHIFT + 1) ||
        sim_charge(device, pages * SIM_PAGE) != SIM_OK) {
        return SIM_E_NOMEM;
    }
    struct sim_range *range = sim_space_take(device, pages, 1, SIM_KIND_LARGE);
    if (range == NULL) {
        sim_uncharge(device, pages * SIM_PAGE);
        return SIM_E_NOMEM;
    }
    range->requested = bytes;
    *out = (void *)(uintptr_t)sim_space_addr(device, range->page);
    return SIM_OK;
}

int sim_malloc(int device, uint64_t bytes, void **out)
{
    if (bytes == 0) {
        *out = NULL;
        return SIM_OK;
    }
    return bytes <= SIM_SLAB_MAX ? malloc_small(device, bytes, out)
                                 : malloc_large(device, bytes, out);
}

int sim_free(void *p)
{
    int device;
    struct sim_range *range = sim_space_find(p, &device);
    if (range == NULL) {
        return SIM_E_VALUE;
    }
    switch ((enum sim_kind)range->kind) {
    case SIM_KIND_SLAB:
        return free_small(range, p);
    case SIM_KIND_CHUNK:
        return sim_chunk_free(range, p);
    case SIM_KIND_LARGE:
        if (sim_space_addr(device, range->page) == (uint64_t)(uintptr_t)p) {
            uint64_t pages = range->pages;
            sim_space_give(device, range);
            sim_uncharge(device, pages * SIM_PAGE);
            return SIM_OK;
        }
        return SIM_E_VALUE;
    case SIM_KIND_RESERVE:
        break;
    }
    return SIM_E_VALUE;
}

int sim_extent(const void *p, uint64_t *base, uint64_t *size)
{
    int device;
    const struct sim_range *range = sim_space_find(p, &device);
    if (range == NULL) {
        return SIM_E_NOT_FOUND;
    }
    if (range->kind == SIM_KIND_RESERVE) {
        return sim_mapping_extent(p, base, size);
    }
    *base = sim_space_addr(device, range->page);
    *size = range->kind == SIM_KIND_LARGE ? range->requested : range->pages * SIM_PAGE;
    if (range->kind == SIM_KIND_SLAB) {
        const struct slab *s = range->owner;
        uint32_t i = (uint32_t)(((uint64_t)(uintptr_t)p - *base) / UNIT);
        if ((s->used[i / 64] >> (i % 64) & 1) == 0) {
            return SIM_E_NOT_FOUND;
        }
        while ((s->starts[i / 64] >> (i % 64) & 1) == 0) {
            i--;
        }
        *base += (uint64_t)i * UNIT;
        *size = (uint64_t)(block_end(s, i) - i) * UNIT;
    }
    return SIM_OK;
}
