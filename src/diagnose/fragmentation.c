/* SPDX-License-Identifier: Apache-2.0 */
/* Grouping of segment sums; see fragmentation.h. */

#include "diagnose/fragmentation.h"

#include "base/num.h"

#include <stdlib.h>

#define SMALL_REQUEST PLIM_MIB /* rounded requests up to this size use the small pool */

static enum plim_status rows_for(const struct plim_snapshot *snapshot, struct plim_fragmentation *f,
                                 struct plim_err *err)
{
    for (uint32_t i = 0; i < snapshot->pools.n; i++) {
        PLIM_TRY(plim_vec_push(&f->pools, err, (struct plim_pool_row){.pool = (uint16_t)i}));
    }
    for (uint32_t i = 0; i < snapshot->streams.n; i++) {
        PLIM_TRY(plim_vec_push(&f->streams, err, (struct plim_stream_row){.stream = (uint16_t)i}));
    }
    return PLIM_OK;
}

static enum plim_status note_pinned(const struct plim_heap *heap, uint32_t index,
                                    struct plim_fragmentation *f, struct plim_err *err)
{
    const struct plim_segment *segment = &heap->segments.items[index];
    struct plim_heap_totals totals = {0};
    plim_totals_add_segment(&totals, heap, segment);
    if (totals.stranded == 0) {
        return PLIM_OK;
    }
    struct plim_pinned_segment row = {
        .segment = index,
        .oldest = PLIM_NO_EVENT,
        .live_blocks = totals.live_blocks,
        .stranded = totals.stranded,
        .live = totals.allocated + totals.pending,
    };
    uint32_t oldest_event = 0;
    for (uint32_t i = segment->first_block; i < segment->first_block + segment->n_blocks; i++) {
        const struct plim_block *block = &heap->blocks.items[i];
        uint32_t born = block->alloc_event == PLIM_NO_EVENT ? 0 : block->alloc_event + 1;
        if (plim_block_is_live(block) && (row.oldest == PLIM_NO_EVENT || born < oldest_event)) {
            row.oldest = i;
            oldest_event = born;
        }
    }
    return plim_vec_push(&f->pinned, err, row);
}

static int pools_by_reserved(const void *a, const void *b)
{
    const struct plim_pool_row *x = a, *y = b;
    return (x->totals.reserved < y->totals.reserved) - (x->totals.reserved > y->totals.reserved);
}

static int streams_by_reserved(const void *a, const void *b)
{
    const struct plim_stream_row *x = a, *y = b;
    return (x->totals.reserved < y->totals.reserved) - (x->totals.reserved > y->totals.reserved);
}

static int pinned_by_stranded(const void *a, const void *b)
{
    const struct plim_pinned_segment *x = a, *y = b;
    return x->stranded != y->stranded ? (x->stranded < y->stranded) - (x->stranded > y->stranded)
                                      : (x->segment > y->segment) - (x->segment < y->segment);
}

static void sort_rows(struct plim_fragmentation *f)
{
    if (f->pools.n) {
        qsort(f->pools.items, f->pools.n, sizeof(f->pools.items[0]), pools_by_reserved);
    }
    if (f->streams.n) {
        qsort(f->streams.items, f->streams.n, sizeof(f->streams.items[0]), streams_by_reserved);
    }
    if (f->pinned.n) {
        qsort(f->pinned.items, f->pinned.n, sizeof(f->pinned.items[0]), pinned_by_stranded);
    }
}

static enum plim_status read_segments(const struct plim_heap *heap, struct plim_fragmentation *f,
                                      struct plim_err *err)
{
    for (uint32_t i = 0; i < heap->segments.n; i++) {
        const struct plim_segment *segment = &heap->segments.items[i];
        bool normal = segment->pool == 0;
        plim_totals_add_segment(&f->all, heap, segment);
        plim_totals_add_segment(normal ? &f->normal : &f->private_, heap, segment);
        if (segment->pool < f->pools.n) {
            plim_totals_add_segment(&f->pools.items[segment->pool].totals, heap, segment);
        }
        if (normal && segment->stream < f->streams.n) { /* a snapshot may name no stream at all */
            plim_totals_add_segment(&f->streams.items[segment->stream].totals, heap, segment);
        }
        if (normal) {
            PLIM_TRY(note_pinned(heap, i, f, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_fragmentation_read(const struct plim_snapshot *snapshot,
                                         const struct plim_heap *heap,
                                         struct plim_fragmentation *out, struct plim_err *err)
{
    struct plim_fragmentation f = {0};
    enum plim_status st = rows_for(snapshot, &f, err);
    if (st == PLIM_OK) {
        st = read_segments(heap, &f, err);
    }
    if (st != PLIM_OK) {
        plim_fragmentation_fini(&f);
        return st;
    }
    sort_rows(&f);
    *out = f;
    return PLIM_OK;
}

void plim_fragmentation_fini(struct plim_fragmentation *f)
{
    plim_vec_fini(&f->pools);
    plim_vec_fini(&f->streams);
    plim_vec_fini(&f->pinned);
}

uint64_t plim_largest_free(const struct plim_heap *heap, uint64_t size, uint16_t stream,
                           bool any_stream)
{
    uint64_t largest = 0;
    plim_vec_foreach (block, &heap->blocks) {
        const struct plim_segment *segment = &heap->segments.items[block->segment];
        if (!plim_block_is_live(block) && segment->pool == 0 &&
            segment->small == (size <= SMALL_REQUEST) &&
            (any_stream || segment->stream == stream)) {
            largest = plim_max_u64(largest, block->size);
        }
    }
    return largest;
}
