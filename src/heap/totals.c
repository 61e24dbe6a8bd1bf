/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over segments; see totals.h for what counts as releasable. */

#include "heap/totals.h"

#include "base/num.h"

#define SMALL_PAGE (2 * PLIM_MIB)  /* page of a small expandable segment */
#define LARGE_PAGE (20 * PLIM_MIB) /* page of a large expandable segment, default setting */

static bool has_live_block(const struct plim_heap *heap, const struct plim_segment *segment)
{
    for (uint32_t i = 0; i < segment->n_blocks; i++) {
        if (plim_block_is_live(&heap->blocks.items[segment->first_block + i])) {
            return true;
        }
    }
    return false;
}

/* Bytes of whole pages inside the free block; pages are counted from the segment's start. */
static uint64_t whole_pages(const struct plim_segment *segment, const struct plim_block *block)
{
    uint64_t page = segment->small ? SMALL_PAGE : LARGE_PAGE;
    uint64_t from = plim_round_up(block->addr - segment->addr, page);
    uint64_t to = (block->addr + block->size - segment->addr) / page * page;
    return plim_sub_sat(to, from);
}

static void add_live(struct plim_heap_totals *totals, const struct plim_block *block)
{
    totals->live_blocks++;
    totals->requested += plim_min_u64(block->requested, block->size);
    if (block->state == PLIM_BLOCK_PENDING_FREE) {
        totals->pending += block->size;
    } else {
        totals->allocated += block->size;
    }
}

void plim_totals_add_segment(struct plim_heap_totals *totals, const struct plim_heap *heap,
                             const struct plim_segment *segment)
{
    bool pinned = has_live_block(heap, segment);
    totals->segments++;
    totals->reserved += segment->size;
    for (uint32_t i = 0; i < segment->n_blocks; i++) {
        const struct plim_block *block = &heap->blocks.items[segment->first_block + i];
        if (plim_block_is_live(block)) {
            add_live(totals, block);
            continue;
        }
        uint64_t releasable = !pinned               ? block->size
                              : segment->expandable ? whole_pages(segment, block)
                                                    : 0;
        totals->free_blocks++;
        totals->releasable += releasable;
        totals->stranded += block->size - releasable;
        totals->largest_free_block = plim_max_u64(totals->largest_free_block, block->size);
    }
}

struct plim_heap_totals plim_totals_of_heap(const struct plim_heap *heap)
{
    struct plim_heap_totals totals = {0};
    plim_vec_foreach (segment, &heap->segments) {
        plim_totals_add_segment(&totals, heap, segment);
    }
    return totals;
}
