/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_SKATABLE_H
#define PLIM_ALLOC_SKATABLE_H

/*
 * The order in which PyTorch's hash tables are walked.
 *
 * PyTorch keeps event queues, the streams of a block, and private pools in ska::flat_hash_map and
 * flat_hash_set. When several frees become ready at the same poll, or several pools are released, the
 * order is the table's. This table holds small numbers (stream or pool indices) under given hashes and
 * reproduces that order: Fibonacci hashing into a power of two of slots, Robin Hood placement with a
 * bounded probe length, growth at half load, deletion by shifting back.
 * Sizes: a handful of entries. Cost: O(1) expected. Threads: one at a time.
 * Source: c10/util/flat_hash_map.h of torch 2.14.1 (algorithm; Malte Skarupke's flat_hash_map).
 */

#include "base/err.h"

#include <stdbool.h>

struct plim__ska_slot {
    uint64_t hash;
    uint32_t value;
    int8_t distance; /* from the desired slot; -1 = empty */
};

struct plim__ska {
    struct plim__ska_slot *slots; /* owned, [size + probes]; NULL while it never held anything */
    uint32_t size;                /* power of two, 0 at first */
    uint32_t n;                   /* entries */
    uint8_t shift;                /* 64 - log2(size) */
    int8_t probes;                /* longest distance allowed, exclusive */
};

void plim__ska_fini(struct plim__ska *table);

/* Add value under hash unless it is there; false when the host is out of memory. */
bool plim__ska_put(struct plim__ska *table, uint64_t hash, uint32_t value);

/* Walking: slots 0 .. plim__ska_end() - 1, in the order PyTorch sees; empty ones have distance < 0. */
static inline uint32_t plim__ska_end(const struct plim__ska *table)
{
    return table->size == 0 ? 0 : table->size + (uint8_t)table->probes - 1;
}

/* Remove the entry in that slot; another may move into it: look at the same slot again. */
void plim__ska_remove_at(struct plim__ska *table, uint32_t slot);

/* Remove a value wherever it is. */
void plim__ska_remove(struct plim__ska *table, uint32_t value);

/* Forget all entries, keep the size (as clear() does). */
void plim__ska_clear(struct plim__ska *table);

#endif
