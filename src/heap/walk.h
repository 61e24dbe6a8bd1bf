/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_WALK_H
#define PLIM_HEAP_WALK_H

/*
 * Forward through a trace with the allocator's side of the ledger kept at each event: live, rounding,
 * stranded, releasable, free in private pools, reserved.
 *
 * It keeps sums by segment, not blocks: an allocation adds its bytes to the segment that covers its
 * address, a completed free takes them away (both events carry the size). So a step costs one search
 * and the state is small enough to be copied as a checkpoint.
 * A block counts until its free completes. Sizes of blocks are their requests rounded up to 512 bytes: a
 * remainder that the allocator did not split off shows as stranded here, and as rounding in the
 * ledger of one moment (moment.h). Expandable runs are cut into pages (2 MiB small, 20 MiB large), so
 * that whole free pages are releasable. Threads: pure.
 */

#include "heap/ranges.h"
#include "heap/snapshot.h"

struct plim_walk_point { /* bytes */
    uint64_t live;       /* requested bytes of live blocks */
    uint64_t rounding;
    uint64_t stranded;   /* default pool */
    uint64_t releasable; /* default pool */
    uint64_t private_free;
    uint64_t reserved;
};

struct plim_walk_segment {
    uint64_t size;
    uint64_t live;   /* bytes of live blocks in it */
    uint32_t blocks; /* live blocks, or parts of them */
    bool private_;
};

struct plim_walk {
    const struct plim_trace *trace; /* borrowed */
    size_t position;                /* events done */
    struct plim_walk_point now;
    struct plim_ranges ranges; /* id: index in segments */
    PLIM_VEC(struct plim_walk_segment) segments;
    PLIM_VEC(uint32_t) unused; /* indices of segments that are gone */
    size_t first_split; /* position after the first allocation that stranded bytes, or SIZE_MAX */
    bool frees_are_requests; /* the trace has no completed frees */
};

/** plim_walk_init() - at the start of the trace. Errors: PLIM_E_NOMEM. Cost: O(events). */
PLIM_MUST_USE enum plim_status
plim_walk_init(struct plim_walk *walk, const struct plim_device *device, struct plim_err *err);
void plim_walk_fini(struct plim_walk *walk);

/** plim_walk_step() - one event further; the caller checks that there is one. */
PLIM_MUST_USE enum plim_status plim_walk_step(struct plim_walk *walk, struct plim_err *err);

/** plim_walk_copy() - an independent copy, to go on from later. */
PLIM_MUST_USE enum plim_status plim_walk_copy(const struct plim_walk *walk, struct plim_walk *out,
                                              struct plim_err *err);

#endif
