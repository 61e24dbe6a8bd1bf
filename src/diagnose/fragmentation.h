/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_FRAGMENTATION_H
#define PLIM_DIAGNOSE_FRAGMENTATION_H

/*
 * Where the free bytes inside the allocator are, and what keeps them there: by pool, by stream, and by
 * the live blocks that pin a segment.
 */

#include "base/arena.h"
#include "heap/snapshot.h"
#include "heap/totals.h"

struct plim_pool_row {
    uint16_t pool; /* index into plim_snapshot.pools */
    struct plim_heap_totals totals;
};

struct plim_stream_row {
    uint16_t stream;                /* index into plim_snapshot.streams */
    struct plim_heap_totals totals; /* default pool only */
};

/* A segment with stranded bytes, and the oldest live block in it. */
struct plim_pinned_segment {
    uint32_t segment; /* index in the heap */
    uint32_t oldest;  /* index of its oldest live block */
    uint32_t live_blocks;
    uint64_t stranded; /* free bytes that cannot go back */
    uint64_t live;     /* bytes that pin them */
};

struct plim_fragmentation {
    struct plim_heap_totals all;
    struct plim_heap_totals normal;              /* the default pool */
    struct plim_heap_totals private_;            /* all private pools together */
    PLIM_VEC(struct plim_pool_row) pools;        /* most reserved first */
    PLIM_VEC(struct plim_stream_row) streams;    /* most reserved first */
    PLIM_VEC(struct plim_pinned_segment) pinned; /* most stranded first; default pool */
};

/** plim_fragmentation_read() - Cost: O(blocks + segments log segments). Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_fragmentation_read(const struct plim_snapshot *snapshot,
                                                       const struct plim_heap *heap,
                                                       struct plim_fragmentation *out,
                                                       struct plim_err *err);
void plim_fragmentation_fini(struct plim_fragmentation *fragmentation);

/**
 * plim_largest_free() - largest free block that a request of `size` rounded bytes on `stream` could
 * use (default pool, same size class), or with any_stream on whichever stream it lies.
 */
uint64_t plim_largest_free(const struct plim_heap *heap, uint64_t size, uint16_t stream,
                           bool any_stream);

#endif
