/* SPDX-License-Identifier: Apache-2.0 */
/* Two-level sorted set; see freeset.h for the shape and why it is not a tree. */

#include "alloc/freeset.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_LOW  8  /* below this many entries a chunk looks for a neighbour to join */
#define CHUNK_JOIN 24 /* most entries of two chunks that are joined: leaves room to grow */

/* ---- chunks ----------------------------------------------------------------------------------- */

static uint32_t chunk_take(struct plim__chunks *chunks)
{
    if (chunks->free_head) {
        uint32_t index = chunks->free_head - 1;
        chunks->free_head = chunks->items[index].next_free;
        chunks->items[index].n = 0;
        return index;
    }
    if (chunks->n == chunks->cap) {
        uint32_t cap = chunks->cap ? chunks->cap * 2 : 8;
        struct plim__chunk *items = realloc(chunks->items, (size_t)cap * sizeof *items);
        if (!items) {
            return UINT32_MAX;
        }
        chunks->items = items;
        chunks->cap = cap;
    }
    chunks->items[chunks->n].n = 0;
    return chunks->n++;
}

static void chunk_give(struct plim__chunks *chunks, uint32_t index)
{
    chunks->items[index].next_free = chunks->free_head;
    chunks->free_head = index + 1;
}

void plim__chunks_fini(struct plim__chunks *chunks)
{
    free(chunks->items);
    *chunks = (struct plim__chunks){0};
}

void plim__freeset_fini(struct plim__freeset *set)
{
    free(set->low);
    free(set->chunk);
    *set = (struct plim__freeset){0};
}

/* Number of keys below `key` in a sorted run. Branch-free, so that no guess can be wrong. */
static inline uint32_t run_lower(const plim__key *keys, uint32_t n, plim__key key)
{
    uint32_t base = 0;
    while (n > 1) {
        uint32_t half = n / 2;
        base += keys[base + half - 1] < key ? half : 0;
        n -= half;
    }
    return base + (n == 1 && keys[base] < key ? 1 : 0);
}

/* The chunk in which `key` is or would be: the last whose lowest key is not above it. */
static inline uint32_t dir_of(const struct plim__freeset *set, plim__key key)
{
    if (set->n <= 1) {
        return 0;
    }
    uint32_t below = run_lower(set->low, set->n, key);
    if (below < set->n && set->low[below] == key) {
        return below;
    }
    return below > 0 ? below - 1 : 0;
}

/* ---- directory -------------------------------------------------------------------------------- */

static bool dir_room(struct plim__freeset *set)
{
    if (set->n < set->cap) {
        return true;
    }
    uint32_t cap = set->cap ? set->cap * 2 : 4;
    plim__key *low = realloc(set->low, cap * sizeof *low);
    if (!low) {
        return false;
    }
    set->low = low;
    uint32_t *chunk = realloc(set->chunk, cap * sizeof *chunk);
    if (!chunk) {
        return false;
    }
    set->chunk = chunk;
    set->cap = cap;
    return true;
}

static void dir_insert(struct plim__freeset *set, uint32_t at, uint32_t chunk, plim__key low)
{
    memmove(&set->low[at + 1], &set->low[at], (set->n - at) * sizeof *set->low);
    memmove(&set->chunk[at + 1], &set->chunk[at], (set->n - at) * sizeof *set->chunk);
    set->low[at] = low;
    set->chunk[at] = chunk;
    set->n++;
}

static void dir_remove(struct plim__freeset *set, uint32_t at)
{
    set->n--;
    memmove(&set->low[at], &set->low[at + 1], (set->n - at) * sizeof *set->low);
    memmove(&set->chunk[at], &set->chunk[at + 1], (set->n - at) * sizeof *set->chunk);
}

/* Make two of a full chunk. */
static bool dir_split(struct plim__freeset *set, struct plim__chunks *chunks, uint32_t at)
{
    if (!dir_room(set)) {
        return false;
    }
    uint32_t fresh = chunk_take(chunks);
    if (fresh == UINT32_MAX) {
        return false;
    }
    struct plim__chunk *old = &chunks->items[set->chunk[at]];
    struct plim__chunk *new = &chunks->items[fresh];
    uint32_t keep = old->n / 2;
    new->n = old->n - keep;
    memcpy(new->keys, &old->keys[keep], new->n * sizeof *new->keys);
    memcpy(new->ids, &old->ids[keep], new->n * sizeof *new->ids);
    old->n = keep;
    dir_insert(set, at + 1, fresh, new->keys[0]);
    return true;
}

/* Move the chunk behind `at` into it when both are small. */
static void dir_join(struct plim__freeset *set, struct plim__chunks *chunks, uint32_t at)
{
    if (at + 1 >= set->n) {
        return;
    }
    struct plim__chunk *a = &chunks->items[set->chunk[at]];
    struct plim__chunk *b = &chunks->items[set->chunk[at + 1]];
    if (a->n + b->n > CHUNK_JOIN) {
        return;
    }
    memcpy(&a->keys[a->n], b->keys, b->n * sizeof *b->keys);
    memcpy(&a->ids[a->n], b->ids, b->n * sizeof *b->ids);
    a->n += b->n;
    chunk_give(chunks, set->chunk[at + 1]);
    dir_remove(set, at + 1);
}

/* ---- the set ---------------------------------------------------------------------------------- */

struct plim__pos plim__freeset_lower(const struct plim__freeset *set,
                                     const struct plim__chunks *chunks, plim__key key)
{
    if (set->n == 0) {
        return (struct plim__pos){0, 0};
    }
    uint32_t dir = dir_of(set, key);
    const struct plim__chunk *c = &chunks->items[set->chunk[dir]];
    uint32_t slot = run_lower(c->keys, c->n, key);
    if (slot == c->n) {
        return (struct plim__pos){dir + 1, 0};
    }
    return (struct plim__pos){dir, slot};
}

bool plim__freeset_insert(struct plim__freeset *set, struct plim__chunks *chunks, plim__key key,
                          uint32_t id)
{
    if (set->n == 0) {
        uint32_t first = dir_room(set) ? chunk_take(chunks) : UINT32_MAX;
        if (first == UINT32_MAX) {
            return false;
        }
        dir_insert(set, 0, first, key);
    }
    uint32_t dir = dir_of(set, key);
    if (chunks->items[set->chunk[dir]].n == PLIM__CHUNK_CAP) {
        if (!dir_split(set, chunks, dir)) {
            return false;
        }
        dir += key >= set->low[dir + 1] ? 1 : 0;
    }
    struct plim__chunk *c = &chunks->items[set->chunk[dir]];
    uint32_t slot = run_lower(c->keys, c->n, key);
    memmove(&c->keys[slot + 1], &c->keys[slot], (c->n - slot) * sizeof *c->keys);
    memmove(&c->ids[slot + 1], &c->ids[slot], (c->n - slot) * sizeof *c->ids);
    c->keys[slot] = key;
    c->ids[slot] = id;
    c->n++;
    set->low[dir] = c->keys[0];
    set->count++;
    return true;
}

void plim__freeset_remove_at(struct plim__freeset *set, struct plim__chunks *chunks,
                             struct plim__pos pos)
{
    struct plim__chunk *c = &chunks->items[set->chunk[pos.dir]];
    c->n--;
    set->count--;
    memmove(&c->keys[pos.slot], &c->keys[pos.slot + 1], (c->n - pos.slot) * sizeof *c->keys);
    memmove(&c->ids[pos.slot], &c->ids[pos.slot + 1], (c->n - pos.slot) * sizeof *c->ids);
    if (c->n == 0) {
        chunk_give(chunks, set->chunk[pos.dir]);
        dir_remove(set, pos.dir);
        return;
    }
    set->low[pos.dir] = c->keys[0];
    if (c->n < CHUNK_LOW && set->n > 1) {
        dir_join(set, chunks, pos.dir > 0 ? pos.dir - 1 : 0);
    }
}

bool plim__freeset_remove(struct plim__freeset *set, struct plim__chunks *chunks, plim__key key)
{
    struct plim__pos pos = plim__freeset_lower(set, chunks, key);
    if (plim__freeset_at_end(set, pos) ||
        chunks->items[set->chunk[pos.dir]].keys[pos.slot] != key) {
        return false;
    }
    plim__freeset_remove_at(set, chunks, pos);
    return true;
}

bool plim__freeset_prev(const struct plim__freeset *set, const struct plim__chunks *chunks,
                        struct plim__pos *pos)
{
    if (pos->slot > 0) {
        pos->slot--;
        return true;
    }
    if (pos->dir == 0) {
        return false;
    }
    pos->dir--;
    pos->slot = chunks->items[set->chunk[pos->dir]].n - 1;
    return true;
}

bool plim__freeset_valid(const struct plim__freeset *set, const struct plim__chunks *chunks)
{
    uint32_t count = 0;
    plim__key last = 0;
    for (uint32_t d = 0; d < set->n; d++) {
        if (set->chunk[d] >= chunks->n) {
            return false;
        }
        const struct plim__chunk *c = &chunks->items[set->chunk[d]];
        if (c->n == 0 || c->n > PLIM__CHUNK_CAP || set->low[d] != c->keys[0]) {
            return false;
        }
        for (uint32_t i = 0; i < c->n; i++) {
            if ((d > 0 || i > 0) && c->keys[i] <= last) {
                return false;
            }
            last = c->keys[i];
        }
        count += c->n;
    }
    return count == set->count;
}
