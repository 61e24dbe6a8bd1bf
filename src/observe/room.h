/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ROOM_H
#define PLIM_OBSERVE_ROOM_H

/*
 * What some processes can still get of the devices that they use, from one observation.
 *
 *   headroom   free bytes of the device, and bytes of segments that their allocators could give back: reserved, neither
 *              allocated nor in a segment with something live. The least of the devices
 *   stranded   bytes in segments with something live, as a share of what is reserved. The worst of the allocators
 *
 * Threads: pure.
 */

#include "observe/observation.h"

struct plim_room {
    uint64_t headroom; /* UINT64_MAX: not known */
    double stranded;   /* below 0: not known */
};

/** Whether a process counts. */
typedef bool plim_room_chosen(const void *arg, uint32_t pid);

/** plim_room_of() - @chosen: processes that count. Cost: O(allocators). */
struct plim_room plim_room_of(const struct plim_observation *observation, plim_room_chosen *chosen,
                              const void *arg);

#endif
