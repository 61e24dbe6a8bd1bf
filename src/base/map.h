/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_MAP_H
#define PLIM_BASE_MAP_H

/*
 * Open-addressing hash map from a 64-bit key (a device address, an id) to a 64-bit value.
 * Linear probing, at most 7/8 full, deletion by shifting back (no tombstones, so the cost never
 * decays). A zeroed map is empty and valid. Every key is allowed but PLIM_MAP_NO_KEY.
 * Cost: O(1) expected for each call. Threads: one writer or many readers.
 */

#include "base/err.h"

#include <stdbool.h>

#define PLIM_MAP_NO_KEY UINT64_MAX

struct plim_map_slot {
    uint64_t key; /* PLIM_MAP_NO_KEY = empty */
    uint64_t value;
};

struct plim_map {
    struct plim_map_slot *slots; /* owned, [mask + 1]; NULL while empty */
    size_t mask;                 /* number of slots - 1; slots are a power of two */
    size_t n;                    /* keys present */
};

void plim_map_fini(struct plim_map *map);

/** plim_map_get() - pointer to the value of `key`, or NULL. Borrowed until the next put or remove. */
uint64_t *plim_map_get(const struct plim_map *map, uint64_t key);

/** plim_map_put() - insert or replace. Errors: PLIM_E_NOMEM (map unchanged). */
PLIM_MUST_USE enum plim_status plim_map_put(struct plim_map *map, uint64_t key, uint64_t value,
                                            struct plim_err *err);

/** plim_map_take() - remove `key`; true when it was there, *value (nullable) then holds its value. */
bool plim_map_take(struct plim_map *map, uint64_t key, uint64_t *value);

/** plim_map_next() - walk: start with *cursor = 0; NULL at the end. No put or take meanwhile. */
const struct plim_map_slot *plim_map_next(const struct plim_map *map, size_t *cursor);

#endif
