/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_COPIES_H
#define PLIM_ALLOCATOR_COPIES_H

/*
 * What was in memory that is given back for a time: one copy on the host for each live block, from mmap.
 * Threads: under the device's lock.
 */

#include "driver.h"

struct plim_copy;

struct plim_copies {
    struct plim_copy *first; /* owned */
};

/** plim_copies_take() - copy the live blocks of a pool that is not paused. False: no memory, or the device
 * would not; nothing is kept then. A pool that has copies already keeps those. */
bool plim_copies_take(struct plim_copies *copies, struct plim_cuda_device *device,
                      const struct plim_engine *engine, uint64_t pool);

/** plim_copies_give() - put them back where they were, and forget them. */
void plim_copies_give(struct plim_copies *copies, struct plim_cuda_device *device, uint64_t pool);

#endif
