/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear probing with the Murmur finalizer. Deletion shifts the following run back over the hole, so
 * that a probe ends at the first empty slot and no tombstones pile up (Knuth, TAOCP 3, 6.4 R).
 */

#include "base/map.h"

#include "base/num.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 16u

void plim_map_fini(struct plim_map *map)
{
    free(map->slots);
    *map = (struct plim_map){0};
}

static size_t home_of(const struct plim_map *map, uint64_t key)
{
    return (size_t)plim_hash_u64(key) & map->mask;
}

/* The slot that holds `key`, or the empty slot where it would go. */
static struct plim_map_slot *probe(const struct plim_map *map, uint64_t key)
{
    size_t i = home_of(map, key);
    while (map->slots[i].key != key && map->slots[i].key != PLIM_MAP_NO_KEY) {
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

uint64_t *plim_map_get(const struct plim_map *map, uint64_t key)
{
    if (map->n == 0) {
        return NULL;
    }
    struct plim_map_slot *slot = probe(map, key);
    return slot->key == key && key != PLIM_MAP_NO_KEY ? &slot->value : NULL;
}

static enum plim_status resize(struct plim_map *map, size_t slots, struct plim_err *err)
{
    uint64_t bytes;
    if (plim_mul_overflows(slots, sizeof(struct plim_map_slot), &bytes) || bytes > PTRDIFF_MAX) {
        return plim__fail(err, PLIM_E_NOMEM, "a map of %zu slots cannot be had", slots);
    }
    struct plim_map grown = {.slots = malloc((size_t)bytes), .mask = slots - 1, .n = map->n};
    if (!grown.slots) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
    }
    memset(grown.slots, 0xff, (size_t)bytes); /* every key PLIM_MAP_NO_KEY */
    size_t cursor = 0;
    for (const struct plim_map_slot *s; (s = plim_map_next(map, &cursor));) {
        *probe(&grown, s->key) = *s;
    }
    free(map->slots);
    *map = grown;
    return PLIM_OK;
}

enum plim_status plim_map_put(struct plim_map *map, uint64_t key, uint64_t value,
                              struct plim_err *err)
{
    assert(key != PLIM_MAP_NO_KEY);
    size_t slots = map->slots ? map->mask + 1 : 0;
    if (map->n + 1 > slots - slots / 8) {
        PLIM_TRY(resize(map, slots ? slots * 2 : FIRST_SLOTS, err));
    }
    struct plim_map_slot *slot = probe(map, key);
    map->n += slot->key != key;
    *slot = (struct plim_map_slot){key, value};
    return PLIM_OK;
}

bool plim_map_take(struct plim_map *map, uint64_t key, uint64_t *value)
{
    uint64_t *found = plim_map_get(map, key);
    if (!found) {
        return false;
    }
    if (value) {
        *value = *found;
    }
    size_t hole = (size_t)((struct plim_map_slot *)(void *)((char *)found -
                                                            offsetof(struct plim_map_slot, value)) -
                           map->slots);
    for (size_t i = (hole + 1) & map->mask; map->slots[i].key != PLIM_MAP_NO_KEY;
         i = (i + 1) & map->mask) {
        size_t home = home_of(map, map->slots[i].key);
        /* Move i into the hole unless its home lies cyclically in (hole, i]. */
        if (((i - home) & map->mask) >= ((i - hole) & map->mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole].key = PLIM_MAP_NO_KEY;
    map->n--;
    return true;
}

const struct plim_map_slot *plim_map_next(const struct plim_map *map, size_t *cursor)
{
    while (map->slots && *cursor <= map->mask) {
        const struct plim_map_slot *slot = &map->slots[(*cursor)++];
        if (slot->key != PLIM_MAP_NO_KEY) {
            return slot;
        }
    }
    return NULL;
}
