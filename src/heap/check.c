/* SPDX-License-Identifier: Apache-2.0 */
/* Structure checks of heaps; one function says what is wrong with one segment, two callers use it. */

#include "heap/check.h"

#include <stdio.h>

/* Blocks of a segment: consecutive, without gap, as long as the segment together. NULL when so. */
static const char *blocks_trouble(const struct plim_heap *heap, size_t at)
{
    const struct plim_segment *s = &heap->segments.items[at];
    uint64_t next = s->addr;
    if ((uint64_t)s->first_block + s->n_blocks > heap->blocks.n) {
        return "its blocks lie outside the list of blocks";
    }
    if (s->n_blocks == 0) {
        return "it has no blocks";
    }
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        const struct plim_block *b = &heap->blocks.items[s->first_block + i];
        if (b->segment != at) {
            return "a block belongs to another segment";
        }
        if (b->size == 0) {
            return "a block has size 0";
        }
        if (b->addr != next) {
            return b->addr < next ? "blocks overlap" : "there is a gap between blocks";
        }
        if (b->state != PLIM_BLOCK_INACTIVE && b->requested > b->size) {
            return "a block is smaller than what was requested";
        }
        if (__builtin_add_overflow(b->addr, b->size, &next)) {
            return "a block passes the end of the address space";
        }
    }
    return next - s->addr == s->size ? NULL : "its blocks do not add up to its size";
}

/* A segment by itself and against the one before it. NULL when fine. */
static const char *segment_trouble(const struct plim_heap *heap, size_t at)
{
    const struct plim_segment *s = &heap->segments.items[at];
    if (s->size == 0) {
        return "it has size 0";
    }
    if (at > 0) {
        const struct plim_segment *before = s - 1;
        if (before->addr > s->addr) {
            return "segments are not sorted by address";
        }
        if (s->addr - before->addr < before->size) {
            return "it overlaps the segment before it";
        }
    }
    return blocks_trouble(heap, at);
}

const char *plim_heap_trouble(const struct plim_heap *heap, size_t *segment)
{
    for (size_t i = 0; i < heap->segments.n; i++) {
        const char *trouble = segment_trouble(heap, i);
        if (trouble) {
            if (segment) {
                *segment = i;
            }
            return trouble;
        }
    }
    return NULL;
}

static uint64_t sum_of_blocks(const struct plim_heap *heap, const struct plim_segment *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        sum += heap->blocks.items[s->first_block + i].size;
    }
    return sum;
}

void plim_snapshot_check(struct plim_snapshot *snapshot)
{
    char where[64];
    for (size_t d = 0; d < snapshot->devices.n; d++) {
        const struct plim_heap *heap = &snapshot->devices.items[d].heap;
        for (size_t i = 0; i < heap->segments.n; i++) {
            const struct plim_segment *s = &heap->segments.items[i];
            const char *trouble = segment_trouble(heap, i);
            if (trouble) {
                snprintf(where, sizeof(where), "device %zu, segment 0x%llx", d,
                         (unsigned long long)s->addr);
                plim_snapshot_finding(snapshot, (uint32_t)d, where,
                                      "%s (the segment has %llu bytes, its %u blocks %llu)",
                                      trouble, (unsigned long long)s->size, s->n_blocks,
                                      (unsigned long long)sum_of_blocks(heap, s));
            }
        }
    }
}
