/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_SETTINGS_H
#define PLIM_ALLOCATOR_SETTINGS_H

/* What PLIMSOLL_ALLOC_* say. include/plimsoll/alloc.h has the list. */

#include <plimsoll/engine.h>
#include <plimsoll/seating.h>

struct plim_alloc_settings {
    struct plim_engine_rounding rounding; /* the mode */
    uint64_t page;                        /* bytes; 0: by the device's size */
    double slack;                         /* share; 0: the engine's default */
    struct plim_seating plan;             /* owned, for good; with mode plan */
    uint64_t limit;                       /* bytes; UINT64_MAX: none */
};

/** plim_alloc_settings_read() - from the environment; complains on standard error about what is wrong. */
void plim_alloc_settings_read(struct plim_alloc_settings *out);

#endif
