/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's partition as a heap, and looking at single blocks.
 *
 * A segment of the snapshot is a maximal run of neighbours with memory: a whole chain for ordinary
 * segments, the mapped runs for expandable ones. Cached blocks keep the requested size of what was in
 * them last, as in PyTorch's snapshot.
 */

#include "alloc/torch_int.h"

uint64_t plim_torch_addr(const struct plim_torch *t, uint64_t block)
{
    uint32_t i = plim__block_of(t, block, PLIM__ALLOCATED);
    i = i ? i : plim__block_of(t, block, PLIM__PENDING);
    return t->blocks[i].addr; /* block 0 is all zero */
}

uint64_t plim_torch_size(const struct plim_torch *t, uint64_t block)
{
    uint32_t i = plim__block_of(t, block, PLIM__ALLOCATED);
    i = i ? i : plim__block_of(t, block, PLIM__PENDING);
    return t->blocks[i].size;
}

uint64_t plim_torch_handle_at(const struct plim_torch *t, uint64_t addr)
{
    for (uint32_t i = 1; i < t->blocks_n; i++) {
        const struct plim__block *b = &t->blocks[i];
        if (b->addr == addr && (b->state == PLIM__ALLOCATED || b->state == PLIM__PENDING)) {
            return plim__handle(t, i);
        }
    }
    return PLIM_TORCH_NONE;
}

int32_t plim_torch_segment_counter(const struct plim_torch *t, uint64_t addr)
{
    for (uint32_t i = 1; i < t->blocks_n; i++) {
        const struct plim__block *b = &t->blocks[i];
        if (b->state != PLIM__UNUSED && addr - b->addr < b->size) {
            return b->counter;
        }
    }
    return -1;
}

static bool mapped(const struct plim__block *b)
{
    return b->state != PLIM__UNUSED && b->state != PLIM__UNMAPPED;
}

static int by_addr(const void *a, const void *b)
{
    const struct plim_segment *x = a;
    const struct plim_segment *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static enum plim_block_state state_of(const struct plim__block *b)
{
    if (b->state == PLIM__ALLOCATED) {
        return PLIM_BLOCK_ALLOCATED;
    }
    return b->state == PLIM__PENDING ? PLIM_BLOCK_PENDING_FREE : PLIM_BLOCK_INACTIVE;
}

/* The blocks of the run that starts at block `first`, appended to the heap. */
static enum plim_status run_export(const struct plim_torch *t, uint32_t first, uint32_t segment,
                                   struct plim_heap *heap, struct plim_err *err)
{
    struct plim_segment *s = &heap->segments.items[segment];
    s->first_block = (uint32_t)heap->blocks.n;
    for (uint32_t i = first; i && mapped(&t->blocks[i]); i = t->blocks[i].next) {
        const struct plim__block *b = &t->blocks[i];
        struct plim_block out = {
            .addr = b->addr,
            .size = b->size,
            .requested = b->requested,
            .stack = PLIM_NO_STACK,
            .segment = segment,
            .alloc_event = PLIM_NO_EVENT,
            .state = state_of(b),
        };
        PLIM_TRY(plim_vec_push(&heap->blocks, err, out));
        s->size += b->size;
        s->n_blocks++;
    }
    return PLIM_OK;
}

enum plim_status plim_torch_export(const struct plim_torch *t, struct plim_heap *heap,
                                   struct plim_err *err)
{
    for (uint32_t i = 1; i < t->blocks_n; i++) {
        const struct plim__block *b = &t->blocks[i];
        if (!mapped(b) || (b->prev && mapped(&t->blocks[b->prev]))) {
            continue;
        }
        struct plim_segment s = {
            .addr = b->addr,
            .stack = PLIM_NO_STACK,
            .first_block = i, /* the model's block, until the run is exported */
            .stream = b->stream,
            .pool = b->half >> 1,
            .small = b->half & 1,
            .expandable = b->es != 0,
        };
        PLIM_TRY(plim_vec_push(&heap->segments, err, s));
    }
    if (heap->segments.n > 1) {
        qsort(heap->segments.items, heap->segments.n, sizeof heap->segments.items[0], by_addr);
    }
    for (size_t k = 0; k < heap->segments.n; k++) {
        PLIM_TRY(run_export(t, heap->segments.items[k].first_block, (uint32_t)k, heap, err));
    }
    return PLIM_OK;
}
