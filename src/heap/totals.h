/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_TOTALS_H
#define PLIM_HEAP_TOTALS_H

/*
 * Sums over a heap: what is live, what is free, and which of the free bytes could go back.
 *
 * A segment is releasable when none of its blocks is live; the free bytes of a segment with a live
 * block are stranded. Both are meant physically: whether the allocator may really release a segment
 * (private pools in use, expandable pages) is for src/diagnose to say.
 * For an expandable segment whole pages without a live block are releasable too, since it unmaps
 * page by page (page: 2 MiB for the small pool, 20 MiB for the large one by default).
 * Source: PyTorch CUDACachingAllocator, release rules (2.1 to 2.14).
 */

#include "heap/heap.h"

struct plim_heap_totals {
    uint64_t reserved;   /* all segments */
    uint64_t allocated;  /* blocks handed out */
    uint64_t pending;    /* blocks waiting for events */
    uint64_t requested;  /* asked for by the callers of allocated and pending blocks */
    uint64_t releasable; /* free bytes that no live block keeps from the driver */
    uint64_t stranded;   /* free bytes that live blocks keep from the driver */
    uint64_t largest_free_block;
    uint32_t segments;
    uint32_t live_blocks; /* allocated or pending */
    uint32_t free_blocks;
};

/** plim_totals_add_segment() - add one segment's sums. Cost: O(its blocks). */
void plim_totals_add_segment(struct plim_heap_totals *totals, const struct plim_heap *heap,
                             const struct plim_segment *segment);

/** plim_totals_of_heap() - the sums of all segments. Cost: O(blocks). */
struct plim_heap_totals plim_totals_of_heap(const struct plim_heap *heap);

/** plim_block_is_live() - handed out, or freed but still waiting for another stream. */
static inline bool plim_block_is_live(const struct plim_block *block)
{
    return block->state != PLIM_BLOCK_INACTIVE;
}

#endif
