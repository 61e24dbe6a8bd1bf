/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_SETTINGS_H
#define PLIM_ALLOCATOR_SETTINGS_H

/* What PLIMSOLL_ALLOC_* say, and how they round sizes. include/plimsoll/alloc.h has the list. */

#include <stddef.h>
#include <stdint.h>

#define PLIM_ALLOC_SIZES 256

enum plim_alloc_mode {
    PLIM_ALLOC_STITCH,
    PLIM_ALLOC_HYBRID,
    PLIM_ALLOC_POOL
};

struct plim_alloc_settings {
    enum plim_alloc_mode mode;
    uint64_t page;                    /* bytes; 0: by the device's size */
    double slack;                     /* share; 0: the engine's default */
    uint64_t limit;                   /* bytes; UINT64_MAX: none */
    size_t n_sizes;                   /* POOL */
    uint64_t sizes[PLIM_ALLOC_SIZES]; /* ascending */
};

/** plim_alloc_settings_read() - from the environment; complains on standard error about what is wrong. */
void plim_alloc_settings_read(struct plim_alloc_settings *out);

/** plim_alloc_settings_round() - the bytes that a request gets. Not below `size`, except on overflow. */
uint64_t plim_alloc_settings_round(const struct plim_alloc_settings *s, uint64_t size);

#endif
