/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_HEAP_H
#define PLIM_HEAP_HEAP_H

/*
 * The nouns of a device heap at one moment.
 *
 *   device   one GPU, an index
 *   segment  one range that the caching allocator got from the driver
 *   block    a piece of a segment: handed out, waiting for events, or free
 *   pool     who may use a segment: the default pool (0,0), or a private one (CUDA graphs, MemPool)
 *   stream   only blocks freed on a stream are reused on it
 *
 * Invariants of a consistent heap (plim_heap_trouble says where one does not hold): segments are sorted
 * by address and do not overlap; the blocks of a segment are consecutive in `blocks`, sorted, without
 * gap or overlap, and add up to the segment. Streams and pools are small indices into the snapshot's
 * tables. All sizes are bytes. Pure data; threads: one writer or many readers.
 */

#include "base/vec.h"
#include "heap/stacks.h"

enum plim_block_state {
    PLIM_BLOCK_INACTIVE,     /* free, cached by the allocator */
    PLIM_BLOCK_ALLOCATED,    /* handed out ("active_allocated") */
    PLIM_BLOCK_PENDING_FREE, /* freed, waiting for another stream ("active_pending_free") */
};

struct plim_block {
    uint64_t addr;
    uint64_t size;
    uint64_t requested;   /* bytes asked for; stale when inactive */
    uint32_t stack;       /* stack id, or PLIM_NO_STACK */
    uint32_t segment;     /* index of its segment */
    uint32_t alloc_event; /* event that allocated it, or PLIM_NO_EVENT (before recording) */
    enum plim_block_state state;
};

#define PLIM_NO_EVENT UINT32_MAX

struct plim_segment {
    uint64_t addr;
    uint64_t size;        /* bytes obtained from the driver */
    uint32_t stack;       /* of the driver allocation, or PLIM_NO_STACK */
    uint32_t first_block; /* index of its first block */
    uint32_t n_blocks;
    uint16_t stream; /* index into plim_snapshot.streams */
    uint16_t pool;   /* index into plim_snapshot.pools; 0 is the default pool (0,0) */
    bool small;      /* of the small pool (requests up to 1 MiB) */
    bool expandable; /* a mapped run of an expandable segment */
};

struct plim_heap {
    PLIM_VEC(struct plim_segment) segments;
    PLIM_VEC(struct plim_block) blocks;
};

void plim_heap_fini(struct plim_heap *heap);

/* A private pool's name: (0,0) is the default pool. */
struct plim_pool_id {
    uint64_t a;
    uint64_t b;
};

#endif
