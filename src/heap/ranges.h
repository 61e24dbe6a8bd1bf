/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_RANGES_H
#define PLIM_HEAP_RANGES_H

/*
 * Address ranges in order: which segment covers an address, while segments come and go.
 *
 * range: [addr, addr + size) with a number that the caller gives it. Ranges must not overlap for
 * plim_ranges_find() to be meaningful; overlapping ones are kept, the lower start wins.
 * Kept in sorted chunks of at most PLIM_RANGES_CHUNK, so that an insertion moves one chunk and not all.
 * A zeroed set is empty and valid. Threads: one writer or many readers.
 */

#include "base/vec.h"

#define PLIM_RANGES_CHUNK 256u

struct plim_addr_range {
    uint64_t addr;
    uint64_t size; /* bytes */
    uint64_t id;   /* the caller's */
};

struct plim_ranges_chunk {
    uint32_t n; /* 1 .. PLIM_RANGES_CHUNK */
    struct plim_addr_range items[PLIM_RANGES_CHUNK];
};

struct plim_ranges {
    PLIM_VEC(struct plim_ranges_chunk *) chunks; /* owned, sorted, none empty */
    size_t n;                                    /* ranges in all chunks */
};

void plim_ranges_fini(struct plim_ranges *ranges);

/** plim_ranges_put() - add a range; one with the same start is replaced. Errors: PLIM_E_NOMEM.
 * Cost: O(log n + chunk). */
PLIM_MUST_USE enum plim_status plim_ranges_put(struct plim_ranges *ranges,
                                               struct plim_addr_range range, struct plim_err *err);

/** plim_ranges_find() - the range that covers addr, or NULL. Borrowed until the next change. */
struct plim_addr_range *plim_ranges_find(const struct plim_ranges *ranges, uint64_t addr);

/** plim_ranges_take() - remove the range that starts at addr; false when there is none.
 * @out: nullable, receives it. */
bool plim_ranges_take(struct plim_ranges *ranges, uint64_t addr, struct plim_addr_range *out);

#endif
