/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_OUTSIDE_H
#define PLIM_HEAP_OUTSIDE_H

/*
 * What a process holds on a device, by owner, over time: the side of the ledger that a framework's
 * allocator does not know. A recorder saw it, call by call; sizes are what the device pays (whole
 * pages, pools by their reservation).
 *
 *   owner      on whose behalf memory was taken (plimsoll/event.h): NCCL, cuBLAS, a context ...
 *   allocator  the owners whose memory the heap of the device shows; all others are outside
 *   change     from here on, one owner holds so much
 *   sample     what the driver said about the whole device
 *
 * Changes and samples are in the order of time. A zeroed one is empty and says "not known".
 * Threads: one writer or many readers.
 */

#include "base/vec.h"

#include <plimsoll/event.h>

#define PLIM_OUTSIDE_OTHERS UINT8_MAX /* as an owner: other processes of the same recording */

struct plim_outside_change {
    uint64_t time_us;  /* Unix microseconds */
    uint64_t bytes;    /* from here on */
    uint32_t position; /* events of the device's trace before it */
    uint8_t owner;     /* enum plim_gpu_owner, or PLIM_OUTSIDE_OTHERS */
};

struct plim_outside_sample {
    uint64_t time_us;
    uint64_t used;  /* bytes of the device, by everybody; UINT64_MAX: not known */
    uint64_t total; /* bytes of the device */
    uint64_t mine;  /* bytes of this process; UINT64_MAX: not known */
    uint32_t position;
};

struct plim_outside {
    bool known;         /* a recorder saw this process */
    uint32_t allocator; /* bits of owners, 1 << enum plim_gpu_owner */
    uint64_t lost;      /* events that were lost: sums may be off */
    PLIM_VEC(struct plim_outside_change) changes;
    PLIM_VEC(struct plim_outside_sample) samples;
};

/* The sums at one position. */
struct plim_outside_sums {
    uint64_t bytes[PLIM_OWNERS];
    uint64_t allocator; /* of the owners that are the allocator */
    uint64_t outside;   /* of all others of this process */
    uint64_t others;    /* of other recorded processes */
    bool has_sample;
    struct plim_outside_sample sample; /* the last one at or before the position, else the first */
};

/** plim_outside_at() - the sums after the first `position` events of the trace. Cost: O(changes). */
struct plim_outside_sums plim_outside_at(const struct plim_outside *outside, size_t position);

void plim_outside_fini(struct plim_outside *outside);

#endif
