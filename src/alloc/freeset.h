/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_FREESET_H
#define PLIM_ALLOC_FREESET_H

/*
 * Ordered set of (key, block) with a 128-bit key: the free blocks of one pool half on one stream.
 *
 *   chunk      up to 32 entries in key order, keys and block numbers in separate arrays
 *   directory  the chunks in key order, each with its lowest key
 *
 * Two sorted levels instead of a tree: a search is two short binary searches over contiguous keys, an
 * insertion moves at most half a kilobyte. Typical heaps have one to thirty chunks for each set; with
 * a million entries the directory is 40,000 long and still moved only once in sixteen insertions.
 * Chunks come from one array shared by all sets of a model, so that an empty set costs nothing.
 * Invariants: keys strictly ascend; no chunk is empty; low[i] is the first key of chunk i.
 * Threads: one at a time.
 */

#include "base/err.h"

#include <stdbool.h>

/* size / 512 in bits 88..127, registration counter + 2^31 in 56..87, address / 512 in 0..55. */
__extension__ typedef unsigned __int128 plim__key;

#define PLIM__CHUNK_CAP 32

struct plim__chunk {
    plim__key keys[PLIM__CHUNK_CAP];
    uint32_t ids[PLIM__CHUNK_CAP];
    uint32_t n;         /* entries in use */
    uint32_t next_free; /* while unused: index + 1 of the next unused chunk, 0 = none */
};

/* All chunks of a model. */
struct plim__chunks {
    struct plim__chunk *items; /* owned, [cap] */
    uint32_t n;                /* ever used */
    uint32_t cap;
    uint32_t free_head; /* index + 1 of the first unused chunk, 0 = none */
};

struct plim__freeset {
    plim__key *low;  /* owned, [cap]: lowest key of each chunk */
    uint32_t *chunk; /* owned, [cap]: index into plim__chunks.items */
    uint32_t n;      /* chunks */
    uint32_t cap;
    uint32_t count; /* entries */
};

/* A place in a set. At the end: dir == set->n. Invalid after any change of the set. */
struct plim__pos {
    uint32_t dir;
    uint32_t slot;
};

static inline plim__key plim__key_make(uint64_t size, int32_t counter, uint64_t addr)
{
    uint64_t biased = (uint64_t)((int64_t)counter + INT64_C(0x80000000));
    return ((plim__key)(size >> 9) << 88) | ((plim__key)biased << 56) | (addr >> 9);
}

void plim__freeset_fini(struct plim__freeset *set);
void plim__chunks_fini(struct plim__chunks *chunks);

/* First entry whose key is not below `key`. Cost: O(log n). */
struct plim__pos plim__freeset_lower(const struct plim__freeset *set,
                                     const struct plim__chunks *chunks, plim__key key);

/* Insert a key that is not there; false when the host is out of memory (set unchanged). */
bool plim__freeset_insert(struct plim__freeset *set, struct plim__chunks *chunks, plim__key key,
                          uint32_t id);

void plim__freeset_remove_at(struct plim__freeset *set, struct plim__chunks *chunks,
                             struct plim__pos pos);

/* Remove a key; false when it is not there. */
bool plim__freeset_remove(struct plim__freeset *set, struct plim__chunks *chunks, plim__key key);

static inline bool plim__freeset_at_end(const struct plim__freeset *set, struct plim__pos pos)
{
    return pos.dir >= set->n;
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

/* The entry before pos (which may be the end); false when pos is the first. */
bool plim__freeset_prev(const struct plim__freeset *set, const struct plim__chunks *chunks,
                        struct plim__pos *pos);

/* Verify the invariants; false when one is broken. Cost: O(n). */
bool plim__freeset_valid(const struct plim__freeset *set, const struct plim__chunks *chunks);

#endif
