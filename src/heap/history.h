/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_HISTORY_H
#define PLIM_HEAP_HISTORY_H

/*
 * What a trace says about each allocation stack up to a position: how often it allocated, how much of
 * that was freed again, and how long blocks lived. One forward pass.
 *
 * lifetime: number of trace events between an allocation and its free. bin: one of PLIM_HISTORY_BINS
 * equal parts of the events before the position.
 * Threads: pure.
 */

#include "heap/snapshot.h"

#define PLIM_HISTORY_BINS     32
#define PLIM_LIFETIME_BUCKETS 24 /* bucket b: lifetimes in [2^b, 2^(b+1)) */

struct plim_stack_history {
    uint64_t alloc_bytes;
    uint64_t freed_bytes;
    uint32_t allocs;
    uint32_t frees;
    uint32_t max_lifetime;                     /* of freed blocks */
    uint32_t last_alloc;                       /* event */
    uint32_t lifetimes[PLIM_LIFETIME_BUCKETS]; /* freed blocks by lifetime */
};

struct plim_history {
    PLIM_VEC(struct plim_stack_history) stacks; /* stack id -> its history; last: no stack */
    uint64_t allocs;                            /* all allocation events */
    uint64_t frees;           /* frees of blocks whose allocation is in the trace */
    uint64_t unknown_frees;   /* frees of blocks from before the recording */
    uint64_t largest_request; /* bytes, over all allocations */
    uint32_t ooms;
    uint32_t last_oom; /* event, or PLIM_NO_EVENT */
    uint32_t retries;  /* times the allocator released cached segments and asked again */
    uint32_t
        growing_segments;  /* ordinary segments in a row, each a little larger than all before */
    uint64_t growing_from; /* size of the first of that row */
    uint64_t largest_segment;
    struct plim_map births; /* address -> allocation event, of blocks live at the position */
    uint32_t bin_frees[PLIM_HISTORY_BINS]; /* frees in each bin */
    uint64_t bin_bytes[PLIM_HISTORY_BINS]; /* bytes allocated in each bin */
    int64_t bin_floor[PLIM_HISTORY_BINS];  /* fewest live bytes in each bin, against the start */
    int64_t bin_peak[PLIM_HISTORY_BINS];   /* most live bytes in each bin, against the start */
    int64_t live_end;                      /* live bytes at the position, against the start */
    struct plim_map unknown_sizes; /* requested size -> frees of blocks from before the recording */
};

void plim_history_fini(struct plim_history *history);

/**
 * plim_history_read() - the history of the first `position` events.
 * Errors: PLIM_E_NOMEM. Cost: O(position) with one hash operation an event; memory O(stacks + live).
 */
PLIM_MUST_USE enum plim_status plim_history_read(const struct plim_snapshot *snapshot,
                                                 const struct plim_trace *trace, size_t position,
                                                 struct plim_history *out, struct plim_err *err);

/** plim_history_of() - the history of a stack id; PLIM_NO_STACK is a stack of its own here. */
const struct plim_stack_history *plim_history_of(const struct plim_history *history,
                                                 uint32_t stack);

/** plim_history_bin() - the bin of an event among `position` events. */
static inline uint32_t plim_history_bin(size_t event, size_t position)
{
    return (uint32_t)(event * PLIM_HISTORY_BINS / (position ? position : 1));
}

#endif
