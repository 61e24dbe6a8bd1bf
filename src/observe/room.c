/* SPDX-License-Identifier: Apache-2.0 */
/* Headroom: see room.h. */

#include "observe/room.h"

#include "base/num.h"

#define FIGURES_OF_ROOM                                                                            \
    (UINT64_C(1) << PLIM_ALLOCATOR_RESERVED | UINT64_C(1) << PLIM_ALLOCATOR_ALLOCATED |            \
     UINT64_C(1) << PLIM_ALLOCATOR_INACTIVE_SPLIT)

/* An allocator that counts, tells what is needed, and has something. */
static bool counts(const struct plim_allocator_now *a, plim_room_chosen *chosen, const void *arg)
{
    return !a->stale && (a->valid & FIGURES_OF_ROOM) == FIGURES_OF_ROOM &&
           a->figure[PLIM_ALLOCATOR_RESERVED] > 0 && chosen(arg, a->pid);
}

struct plim_room plim_room_of(const struct plim_observation *o, plim_room_chosen *chosen,
                              const void *arg)
{
    struct plim_room room = {.headroom = UINT64_MAX, .stranded = -1};
    for (size_t i = 0; i < o->allocators.n; i++) {
        const struct plim_allocator_now *a = &o->allocators.items[i];
        if (!counts(a, chosen, arg)) {
            continue;
        }
        uint64_t reserved = a->figure[PLIM_ALLOCATOR_RESERVED];
        uint64_t split = a->figure[PLIM_ALLOCATOR_INACTIVE_SPLIT];
        double share = (double)split / (double)reserved;
        room.stranded = share > room.stranded ? share : room.stranded;
        if (a->device >= o->sample.devices.n) {
            continue;
        }
        const struct plim_device_sample *d = &o->sample.devices.items[a->device];
        uint64_t whole =
            plim_sub_sat(plim_sub_sat(reserved, a->figure[PLIM_ALLOCATOR_ALLOCATED]), split);
        if (plim_has_figure(d, PLIM_FIGURE_FREE)) {
            uint64_t here = plim_add_sat(d->figure[PLIM_FIGURE_FREE], whole);
            room.headroom = plim_min_u64(room.headroom, here);
        }
    }
    return room;
}
