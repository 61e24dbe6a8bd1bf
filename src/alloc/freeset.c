/* SPDX-License-Identifier: Apache-2.0 */
/* Two-level sorted set; see freeset.h for the shape and why it is not a tree. */

#include "alloc/freeset.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_LOW  4  /* below this many entries a chunk looks for a neighbour to join */
#define CHUNK_JOIN 12 /* most entries of two chunks that are joined: leaves room to grow */

/* ---- chunks ----------------------------------------------------------------------------------- */

static void chunk_clear(struct plim__chunk *c, uint32_t from)
{
    for (uint32_t i = from; i < 2 * PLIM__CHUNK_CAP; i++) {
        c->keys[i] = PLIM__KEY_MAX;
        c->ids[i] = 0;
    }
}

static uint32_t chunk_take(struct plim__chunks *chunks)
{
    uint32_t index = chunks->n;
    if (chunks->free_head) {
        index = chunks->free_head - 1;
        chunks->free_head = chunks->items[index].next_free;
    } else {
        if (chunks->n == chunks->cap) {
            uint32_t cap = chunks->cap ? chunks->cap * 2 : 8;
            struct plim__chunk *items = realloc(chunks->items, (size_t)cap * sizeof *items);
            if (!items) {
                return UINT32_MAX;
            }
            chunks->items = items;
            chunks->cap = cap;
        }
        chunks->n++;
    }
    chunks->items[index].n = 0;
    chunk_clear(&chunks->items[index], 0);
    return index;
}

static void chunk_give(struct plim__chunks *chunks, uint32_t index)
{
    chunks->items[index].n = 0;
    chunks->items[index].next_free = chunks->free_head;
    chunks->free_head = index + 1;
}

bool plim__chunks_homes(struct plim__chunks *chunks, uint32_t n)
{
    if (n <= chunks->homes) {
        return true;
    }
    uint32_t *home = realloc(chunks->home, (size_t)n * sizeof *home);
    if (!home) {
        return false;
    }
    chunks->home = home;
    chunks->homes = n;
    return true;
}

void plim__chunks_fini(struct plim__chunks *chunks)
{
    free(chunks->items);
    free(chunks->home);
    *chunks = (struct plim__chunks){0};
}

void plim__freeset_fini(struct plim__freeset *set)
{
    free(set->low);
    free(set->start);
    free(set->chunk);
    *set = (struct plim__freeset){0};
}

/* ---- searching -------------------------------------------------------------------------------- */

/* Number of the 8 keys that are below `key`. */
static inline uint32_t below_of_8(const plim__key *k, plim__key key)
{
    uint32_t a = (uint32_t)(k[0] < key) + (uint32_t)(k[1] < key);
    uint32_t b = (uint32_t)(k[2] < key) + (uint32_t)(k[3] < key);
    uint32_t c = (uint32_t)(k[4] < key) + (uint32_t)(k[5] < key);
    uint32_t d = (uint32_t)(k[6] < key) + (uint32_t)(k[7] < key);
    return (a + b) + (c + d);
}

/* Number of keys of a chunk that are below `key`: by their upper halves at first, which differ unless
 * sizes are equal. */
static inline uint32_t chunk_lower(const struct plim__chunk *c, plim__key key)
{
    uint64_t high = (uint64_t)(key >> 64);
    uint32_t slot = 0;
    for (uint32_t i = 0; i < PLIM__CHUNK_CAP; i++) {
        slot += (uint64_t)(c->keys[i] >> 64) < high ? 1 : 0;
    }
    while (c->keys[slot] < key) { /* ends: what is behind the entries is PLIM__KEY_MAX */
        slot++;
    }
    return slot;
}

/* The size class of a key, and the first key of a class. */
static inline uint32_t class_of(plim__key key)
{
    uint64_t units = (uint64_t)(key >> 88);
    if (units < 4) {
        return (uint32_t)units;
    }
    uint32_t lg = 63u - (uint32_t)__builtin_clzll(units);
    return (lg - 1) * 4 + (uint32_t)(units >> (lg - 2) & 3);
}

static plim__key class_first(uint32_t class)
{
    uint64_t units = class < 4 ? class : (4 + (uint64_t)(class & 3)) << (class / 4 - 1);
    return (plim__key)units << 88;
}

/* The chunk in which `key` is or would be, from chunk `base` on, whose separator is not above it. */
static uint32_t dir_search(const struct plim__freeset *set, uint32_t base, plim__key above)
{
    const plim__key *low = set->low;
    uint32_t n = set->n - base;
    while (n > 8) {
        uint32_t q = n / 4;
        uint32_t c = (uint32_t)(low[base + q] < above) + (uint32_t)(low[base + 2 * q] < above) +
                     (uint32_t)(low[base + 3 * q] < above);
        base += c * q;
        n = c == 3 ? n - 3 * q : q;
    }
    return base + below_of_8(&low[base], above) - 1;
}

/* The chunk in which `key` is or would be: the last whose separator is not above it. */
static inline uint32_t dir_of(const struct plim__freeset *set, plim__key key)
{
    plim__key above = key + 1; /* low <= key is low < key + 1; no real key is PLIM__KEY_MAX */
    uint32_t at = set->start[class_of(key)]; /* the first separator that may be above */
    const plim__key *low = &set->low[at];
    uint32_t a = (uint32_t)(low[0] < above) + (uint32_t)(low[1] < above);
    uint32_t b = (uint32_t)(low[2] < above) + (uint32_t)(low[3] < above);
    if (__builtin_expect(a + b < 4, 1)) {
        return at + a + b - 1; /* the class's first key has at least low[0], which is 0, below it */
    }
    return dir_search(set, at + 3, above);
}

/* A separator came or went: classes that begin at or above it count one more or less. */
static void start_change(struct plim__freeset *set, plim__key low, uint32_t change)
{
    uint32_t first = class_of(low);
    first += class_first(first) < low ? 1 : 0;
    for (uint32_t i = first; i < PLIM__CLASSES; i++) {
        set->start[i] += change;
    }
}

struct plim__pos plim__freeset_lower(const struct plim__freeset *set,
                                     const struct plim__chunks *chunks, plim__key key)
{
    if (set->inside == 0) {
        return (struct plim__pos){set->n, 0};
    }
    uint32_t dir = dir_of(set, key);
    const struct plim__chunk *c = &chunks->items[set->chunk[dir]];
    uint32_t slot = chunk_lower(c, key);
    return slot == c->n ? (struct plim__pos){dir + 1, 0} : (struct plim__pos){dir, slot};
}

/* ---- directory -------------------------------------------------------------------------------- */

static bool dir_room(struct plim__freeset *set)
{
    if (set->n < set->cap) {
        return true;
    }
    uint32_t cap = set->cap ? set->cap * 2 : 8;
    plim__key *low = realloc(set->low, (cap + PLIM__DIR_PAD) * sizeof *low);
    if (!low) {
        return false;
    }
    set->low = low;
    if (!set->start) {
        set->start = calloc(PLIM__CLASSES, sizeof *set->start);
        if (!set->start) {
            return false;
        }
    }
    uint32_t *chunk = realloc(set->chunk, cap * sizeof *chunk);
    if (!chunk) {
        return false;
    }
    set->chunk = chunk;
    for (uint32_t i = set->n; i < cap + PLIM__DIR_PAD; i++) {
        set->low[i] = PLIM__KEY_MAX;
    }
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
    start_change(set, low, 1);
}

static void dir_remove(struct plim__freeset *set, uint32_t at)
{
    /* Behind the first chunk its neighbour takes over the separator 0: the neighbour's own one goes. */
    start_change(set, set->low[at > 0 || set->n == 1 ? at : 1], UINT32_MAX);
    set->n--;
    memmove(&set->low[at], &set->low[at + 1], (set->n - at) * sizeof *set->low);
    memmove(&set->chunk[at], &set->chunk[at + 1], (set->n - at) * sizeof *set->chunk);
    set->low[set->n] = PLIM__KEY_MAX;
    set->low[0] = set->n ? 0 : PLIM__KEY_MAX;
}

/* Move `n` entries of one chunk to the end of another. */
static void entries_move(struct plim__chunks *chunks, uint32_t from, uint32_t slot, uint32_t to,
                         uint32_t n)
{
    struct plim__chunk *a = &chunks->items[from];
    struct plim__chunk *b = &chunks->items[to];
    memcpy(&b->keys[b->n], &a->keys[slot], n * sizeof *a->keys);
    memcpy(&b->ids[b->n], &a->ids[slot], n * sizeof *a->ids);
    for (uint32_t i = 0; i < n; i++) {
        chunks->home[a->ids[slot + i]] = to;
    }
    b->n += n;
    a->n -= n;
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
    uint32_t old = set->chunk[at];
    uint32_t keep = PLIM__CHUNK_CAP / 2;
    entries_move(chunks, old, keep, fresh, PLIM__CHUNK_CAP - keep);
    chunk_clear(&chunks->items[old], keep);
    dir_insert(set, at + 1, fresh, chunks->items[fresh].keys[0]);
    return true;
}

/* Move the chunk behind `at` into it when both are small. */
static void dir_join(struct plim__freeset *set, struct plim__chunks *chunks, uint32_t at)
{
    if (at + 1 >= set->n) {
        return;
    }
    uint32_t to = set->chunk[at];
    uint32_t from = set->chunk[at + 1];
    uint32_t n = chunks->items[from].n;
    if (chunks->items[to].n + n > CHUNK_JOIN) {
        return;
    }
    entries_move(chunks, from, 0, to, n);
    chunk_give(chunks, from);
    dir_remove(set, at + 1);
}

/* Move what is at `from` and behind to `to`, one place up or down: always as many entries as a chunk may
 * hold, unused ones included, because a move of fixed size costs less than a wrong guess of its size. */
static inline void entries_shift(struct plim__chunk *c, uint32_t to, uint32_t from)
{
    memmove(&c->keys[to], &c->keys[from], PLIM__CHUNK_CAP * sizeof *c->keys);
    memmove(&c->ids[to], &c->ids[from], PLIM__CHUNK_CAP * sizeof *c->ids);
}

/* ---- changing --------------------------------------------------------------------------------- */

static bool entry_insert(struct plim__freeset *set, struct plim__chunks *chunks, plim__key key,
                         uint32_t id)
{
    if (set->n == 0) {
        uint32_t first = dir_room(set) ? chunk_take(chunks) : UINT32_MAX;
        if (first == UINT32_MAX) {
            return false;
        }
        dir_insert(set, 0, first, 0);
    }
    uint32_t dir = set->n == 1 ? 0 : dir_of(set, key);
    if (chunks->items[set->chunk[dir]].n == PLIM__CHUNK_CAP) {
        if (!dir_split(set, chunks, dir)) {
            return false;
        }
        dir += key >= set->low[dir + 1] ? 1 : 0;
    }
    uint32_t home = set->chunk[dir];
    struct plim__chunk *c = &chunks->items[home];
    uint32_t slot = chunk_lower(c, key);
    entries_shift(c, slot + 1, slot);
    c->keys[slot] = key;
    c->ids[slot] = id;
    c->n++;
    chunks->home[id] = home;
    set->inside++;
    return true;
}

bool plim__freeset_settle(struct plim__freeset *set, struct plim__chunks *chunks)
{
    if (set->last && !entry_insert(set, chunks, set->last_key, set->last)) {
        return false;
    }
    set->last = 0;
    return true;
}

/* Take an entry out of its chunk; the directory is not looked at. */
static inline plim__key entry_remove(struct plim__freeset *set, struct plim__chunk *c,
                                     uint32_t slot)
{
    plim__key key = c->keys[slot];
    c->n--;
    entries_shift(c, slot, slot + 1);
    set->inside--;
    return key;
}

/* A chunk has become small: drop it when empty, else join it with a neighbour if they fit. */
static void dir_tidy(struct plim__freeset *set, struct plim__chunks *chunks, uint32_t dir)
{
    if (chunks->items[set->chunk[dir]].n == 0) {
        chunk_give(chunks, set->chunk[dir]);
        dir_remove(set, dir);
    } else {
        dir_join(set, chunks, dir > 0 ? dir - 1 : 0);
    }
}

void plim__freeset_remove_at(struct plim__freeset *set, struct plim__chunks *chunks,
                             struct plim__pos pos)
{
    struct plim__chunk *c = &chunks->items[set->chunk[pos.dir]];
    entry_remove(set, c, pos.slot);
    if (c->n < CHUNK_LOW && set->n > 1) {
        dir_tidy(set, chunks, pos.dir);
    }
}

void plim__freeset_remove_inside(struct plim__freeset *set, struct plim__chunks *chunks,
                                 uint32_t id)
{
    struct plim__chunk *c = &chunks->items[chunks->home[id]];
    uint32_t slot = 0;
    for (uint32_t i = 0; i < PLIM__CHUNK_CAP; i++) {
        slot |= c->ids[i] == id ? i : 0; /* one match at most: no branch, vectors do it */
    }
    plim__key key = entry_remove(set, c, slot);
    if (c->n < CHUNK_LOW && set->n > 1) {
        dir_tidy(set, chunks, dir_of(set, key));
    }
}

bool plim__freeset_prev(const struct plim__freeset *set, const struct plim__chunks *chunks,
                        struct plim__pos *pos)
{
    if (pos->slot > 0) {
        pos->slot--;
        return true;
    }
    if (pos->dir == 0 || set->inside == 0) {
        return false;
    }
    pos->dir--;
    pos->slot = chunks->items[set->chunk[pos->dir]].n - 1;
    return true;
}

bool plim__freeset_has(const struct plim__freeset *set, const struct plim__chunks *chunks,
                       plim__key key, uint32_t id)
{
    if (set->last == id) {
        return set->last_key == key;
    }
    struct plim__pos pos = plim__freeset_lower(set, chunks, key);
    return !plim__freeset_at_end(set, pos) && plim__freeset_id(set, chunks, pos) == id;
}

/* ---- checking --------------------------------------------------------------------------------- */

static bool chunk_valid(const struct plim__chunks *chunks, uint32_t index, plim__key low,
                        plim__key high)
{
    const struct plim__chunk *c = &chunks->items[index];
    for (uint32_t i = 0; i < PLIM__CHUNK_CAP; i++) {
        if (i >= c->n) {
            if (c->keys[i] != PLIM__KEY_MAX || c->ids[i] != 0) {
                return false;
            }
        } else if (c->keys[i] < low || c->keys[i] >= high || chunks->home[c->ids[i]] != index ||
                   (i > 0 && c->keys[i] <= c->keys[i - 1])) {
            return false;
        }
    }
    return true;
}

bool plim__freeset_valid(const struct plim__freeset *set, const struct plim__chunks *chunks)
{
    uint32_t count = 0;
    for (uint32_t k = 0; set->start && k < PLIM__CLASSES; k++) {
        uint32_t n = 0;
        while (n < set->n && set->low[n] <= class_first(k)) {
            n++;
        }
        if (set->start[k] != n) {
            return false;
        }
    }
    for (uint32_t d = 0; d < set->n; d++) {
        if (set->chunk[d] >= chunks->n ||
            !chunk_valid(chunks, set->chunk[d], set->low[d], set->low[d + 1]) ||
            (set->n > 1 && chunks->items[set->chunk[d]].n == 0)) {
            return false;
        }
        count += chunks->items[set->chunk[d]].n;
    }
    return count == set->inside && (set->n == 0 || set->low[0] == 0);
}
