/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_MOMENT_H
#define PLIM_HEAP_MOMENT_H

/*
 * The heap at any position of a trace, reconstructed backwards from the heap at its end.
 *
 * position: a number of events; position k is the state after the first k events, so 0 is the start
 * of recording and events.n is the end.
 *
 * What is exact: which blocks are live, their addresses and requested sizes, which segments exist.
 * What is not: the size of a block that was freed before the end is its request rounded up to 512
 * bytes, plus the gap behind it when that gap is too small to be a free block of its own (up to 1 MiB
 * in the large pool: PyTorch does not split off such a remainder). When a free block follows at once,
 * that slack cannot be seen and counts as free. Rounding by
 * roundup_power2_divisions is recovered from the gap only up to that size.
 * Threads: pure.
 */

#include "heap/snapshot.h"

/* What did not fit together on the way back. Zero in a consistent trace. */
struct plim_moment_gaps {
    uint64_t unknown_allocs;   /* allocations whose block is not there afterwards */
    uint64_t unknown_segments; /* the same for segments */
    uint64_t outside;          /* live blocks that lie in no segment: dropped */
};

/**
 * plim_heap_at() - the heap after the first `position` events.
 * @births: nullable; what plim_history_read() of the same position found, to spare a search.
 * @out: owned by the caller (plim_heap_fini); blocks know their allocation event and its stack where
 *       the trace holds it.
 * @gaps: nullable.
 * Errors: PLIM_E_RANGE position beyond the trace; PLIM_E_NOMEM. Cost: O(events + live log live).
 */
PLIM_MUST_USE enum plim_status plim_heap_at(const struct plim_device *device, size_t position,
                                            const struct plim_map *births, struct plim_heap *out,
                                            struct plim_moment_gaps *gaps, struct plim_err *err);

/* Where the sums were highest, as positions, with the sums there. */
struct plim_peaks {
    uint64_t allocated; /* live bytes, rounded to 512 */
    uint64_t reserved;
    size_t allocated_at;
    size_t reserved_at;
    uint64_t reserved_at_start; /* 0: the trace holds the whole history */
};

/** plim_trace_peaks() - the peaks over the trace, found backwards from the end. Cost: O(events). */
struct plim_peaks plim_trace_peaks(const struct plim_device *device);

#endif
