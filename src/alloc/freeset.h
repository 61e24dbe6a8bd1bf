/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_FREESET_H
#define PLIM_ALLOC_FREESET_H

/*
 * Ordered set of (key, block) with a 128-bit key: the free blocks of one pool half on one stream.
 *
 *   chunk      up to 16 entries in key order, keys and block numbers in separate arrays
 *   directory  the chunks in order, each with a separator: chunk i holds the keys in [low[i], low[i + 1])
 *   start      for each size class of keys, the last chunk whose separator is not above the class: where to
 *              begin looking in the directory
 *   home       block number -> its chunk, so that removing a known block needs no search by key
 *
 * Two sorted levels instead of a tree. Searches compare several pivots at once, so that the processor
 * waits for few loads one behind the other and no branch depends on the keys; unused places hold the
 * largest key, so that loops have fixed lengths. Typical heaps have one to fifty chunks for each set;
 * with a million entries the directory is 40,000 long and moved only once in sixteen insertions.
 * Chunks and homes come from arrays shared by all sets of a model; a block is in at most one set.
 *
 * The entry inserted last waits outside the chunks (`last`): programs free and allocate the same block
 * over and over, and it then never enters them. Walks need it inside: plim__freeset_settle() first.
 *
 * Invariants: keys strictly ascend; low[0] is 0; no chunk is empty unless it is the only one; unused
 * places of a chunk hold PLIM__KEY_MAX and block 0, which is nobody.
 * Threads: one at a time. Measured: docs/design/allocator-model.md.
 */

#include "base/err.h"

#include <stdbool.h>

/* size / 512 in bits 88..127, registration counter + 2^31 in 56..87, address / 512 in 0..55. */
__extension__ typedef unsigned __int128 plim__key;

#define PLIM__KEY_MAX   (~(plim__key)0)
#define PLIM__CHUNK_CAP 16

struct plim__chunk { /* the second halves of the arrays always hold PLIM__KEY_MAX and 0 */
    plim__key keys[2 * PLIM__CHUNK_CAP];
    uint32_t ids[2 * PLIM__CHUNK_CAP];
    uint32_t n;         /* entries in use */
    uint32_t next_free; /* while unused: index + 1 of the next unused chunk, 0 = none */
};

/* All chunks and homes of a model. */
struct plim__chunks {
    struct plim__chunk *items; /* owned, [cap] */
    uint32_t n;                /* ever used */
    uint32_t cap;
    uint32_t free_head; /* index + 1 of the first unused chunk, 0 = none */
    uint32_t *home;     /* owned, [homes]: chunk of each block that is in a set */
    uint32_t homes;
};

struct plim__freeset {
    plim__key *low;  /* owned, [cap + PLIM__DIR_PAD]: separators, PLIM__KEY_MAX behind the last */
    uint32_t *start; /* owned, [PLIM__CLASSES]: separators not above the class's first key */
    uint32_t *chunk; /* owned, [cap]: index into plim__chunks.items */
    uint32_t n;      /* chunks */
    uint32_t cap;
    uint32_t inside; /* entries in chunks */
    uint32_t last;   /* block of the entry that waits outside, 0 = none */
    plim__key last_key;
};

#define PLIM__DIR_PAD 8
/* Size classes: size / 512 by its highest bit (of 40) and the two bits behind it. */
#define PLIM__CLASSES 156

/* A place in a set. At the end: dir == set->n. Invalid after any change of the set. */
struct plim__pos {
    uint32_t dir;
    uint32_t slot;
};

/* No block reaches 2^49 bytes; a request that does must not find a smaller one. */
/* Sizes from 512 TiB on are beyond every block (devices end before) and all alike. */
static inline plim__key plim__key_make(uint64_t size, int32_t counter, uint64_t addr)
{
    uint64_t most = (UINT64_C(1) << 40) - 1;
    uint64_t units = size >> 9 < most ? size >> 9 : most;
    uint64_t biased = (uint64_t)((int64_t)counter + INT64_C(0x80000000));
    return ((plim__key)units << 88) | ((plim__key)biased << 56) | (addr >> 9 & (UINT64_MAX >> 8));
}

void plim__freeset_fini(struct plim__freeset *set);
void plim__chunks_fini(struct plim__chunks *chunks);

/* Homes for block numbers below n; false when the host is out of memory. */
bool plim__chunks_homes(struct plim__chunks *chunks, uint32_t n);

/* Put the waiting entry into the chunks; false when the host is out of memory (set unchanged). */
bool plim__freeset_settle(struct plim__freeset *set, struct plim__chunks *chunks);

/* First entry of a settled set whose key is not below `key`. Cost: O(log n). */
struct plim__pos plim__freeset_lower(const struct plim__freeset *set,
                                     const struct plim__chunks *chunks, plim__key key);

/* Take the entry at that place, or the block, out of the chunks. */
void plim__freeset_remove_at(struct plim__freeset *set, struct plim__chunks *chunks,
                             struct plim__pos pos);
void plim__freeset_remove_inside(struct plim__freeset *set, struct plim__chunks *chunks,
                                 uint32_t id);

/* Number of entries. */
static inline uint32_t plim__freeset_count(const struct plim__freeset *set)
{
    return set->inside + (set->last ? 1 : 0);
}

/* Insert a key that is not there, for a block with a home; false when the host is out of memory (set
 * unchanged). */
static inline bool plim__freeset_insert(struct plim__freeset *set, struct plim__chunks *chunks,
                                        plim__key key, uint32_t id)
{
    if (set->last && !plim__freeset_settle(set, chunks)) {
        return false;
    }
    set->last = id;
    set->last_key = key;
    return true;
}

/* Remove a block that is in this set. Cost: O(1). */
static inline void plim__freeset_remove(struct plim__freeset *set, struct plim__chunks *chunks,
                                        uint32_t id)
{
    if (set->last == id) {
        set->last = 0;
    } else {
        plim__freeset_remove_inside(set, chunks, id);
    }
}

static inline bool plim__freeset_at_end(const struct plim__freeset *set, struct plim__pos pos)
{
    return pos.dir >= set->n;
}

/* The first place of a settled set: the end when it is empty. */
static inline struct plim__pos plim__freeset_first(const struct plim__freeset *set)
{
    return (struct plim__pos){set->inside ? 0 : set->n, 0};
}

static inline uint32_t plim__freeset_id(const struct plim__freeset *set,
                                        const struct plim__chunks *chunks, struct plim__pos pos)
{
    return chunks->items[set->chunk[pos.dir]].ids[pos.slot];
}

static inline struct plim__pos plim__freeset_next(const struct plim__freeset *set,
                                                  const struct plim__chunks *chunks,
                                                  struct plim__pos pos)
{
    if (++pos.slot >= chunks->items[set->chunk[pos.dir]].n) {
        pos.dir++;
        pos.slot = 0;
    }
    return pos;
}

/*
 * First entry whose key is not below `key`, waiting one included: its block, or 0 when there is none. It
 * is the one outside when *pos is plim__freeset_at_end().
 */
static inline uint32_t plim__freeset_best(const struct plim__freeset *set,
                                          const struct plim__chunks *chunks, plim__key key,
                                          struct plim__pos *pos)
{
    *pos = (struct plim__pos){set->n, 0};
    bool outside = set->last && set->last_key >= key;
    if (set->inside) {
        struct plim__pos at = plim__freeset_lower(set, chunks, key);
        if (at.dir < set->n) {
            const struct plim__chunk *c = &chunks->items[set->chunk[at.dir]];
            if (!outside || c->keys[at.slot] < set->last_key) {
                *pos = at;
                return c->ids[at.slot];
            }
        }
    }
    return outside ? set->last : 0;
}

/* Whether the block is in the set under that key. */
bool plim__freeset_has(const struct plim__freeset *set, const struct plim__chunks *chunks,
                       plim__key key, uint32_t id);

/* The entry before pos (which may be the end) in a settled set; false when pos is the first. */
bool plim__freeset_prev(const struct plim__freeset *set, const struct plim__chunks *chunks,
                        struct plim__pos *pos);

/* Verify the invariants; false when one is broken. Cost: O(n). */
bool plim__freeset_valid(const struct plim__freeset *set, const struct plim__chunks *chunks);

#endif
