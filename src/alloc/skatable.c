/* SPDX-License-Identifier: Apache-2.0 */
/* Robin Hood table with the walking order of PyTorch's; see skatable.h. */

#include "alloc/skatable.h"

#include <stdlib.h>

#define FIBONACCI  UINT64_C(11400714819323198485) /* 2^64 divided by the golden ratio */
#define MIN_PROBES 4

void plim__ska_fini(struct plim__ska *table)
{
    free(table->slots);
    *table = (struct plim__ska){0};
}

static uint32_t slot_of(const struct plim__ska *table, uint64_t hash)
{
    return (uint32_t)((FIBONACCI * hash) >> table->shift);
}

/* An empty table of `size` slots; the last slot is a sentinel that ends every probe. */
static bool table_make(struct plim__ska *table, uint32_t size)
{
    uint8_t lg = (uint8_t)__builtin_ctz(size);
    int8_t probes = (int8_t)(lg > MIN_PROBES ? lg : MIN_PROBES);
    size_t all = (size_t)size + (size_t)probes;
    struct plim__ska_slot *slots = malloc(all * sizeof *slots);
    if (!slots) {
        return false;
    }
    for (size_t i = 0; i < all; i++) {
        slots[i] = (struct plim__ska_slot){0, 0, i + 1 == all ? 0 : -1};
    }
    *table = (struct plim__ska){slots, size, 0, (uint8_t)(64 - lg), probes};
    return true;
}

static bool table_grow(struct plim__ska *table)
{
    struct plim__ska old = *table;
    if (!table_make(table, old.size * 2 > 4 ? old.size * 2 : 4)) {
        *table = old;
        return false;
    }
    bool good = true;
    for (uint32_t i = 0; i < plim__ska_end(&old); i++) {
        if (old.slots[i].distance >= 0) {
            good = plim__ska_put(table, old.slots[i].hash, old.slots[i].value) && good;
        }
    }
    free(old.slots);
    return good;
}

/*
 * Put `item` into slot `at`, pushing poorer placed entries on. When one would end up beyond the probe
 * limit, it changes places with the entry that was put first, the table grows, and that entry is put in
 * anew: the same detour as PyTorch's table makes.
 */
static bool place(struct plim__ska *table, uint32_t at, struct plim__ska_slot item)
{
    struct plim__ska_slot *first = &table->slots[at];
    struct plim__ska_slot moved = *first;
    *first = item;
    for (item = moved; item.distance >= 0 && at + 1 < plim__ska_end(table);) {
        struct plim__ska_slot *slot = &table->slots[++at];
        item.distance++;
        if (slot->distance < item.distance) {
            moved = *slot;
            *slot = item;
            item = moved;
        } else if (item.distance + 1 == table->probes) {
            moved = *first;
            first->hash = item.hash;
            first->value = item.value;
            return table_grow(table) && plim__ska_put(table, moved.hash, moved.value);
        }
    }
    table->n++;
    return true;
}

bool plim__ska_put(struct plim__ska *table, uint64_t hash, uint32_t value)
{
    if (table->size == 0) {
        return table_grow(table) && plim__ska_put(table, hash, value);
    }
    uint32_t at = slot_of(table, hash);
    int8_t distance = 0;
    for (; at < plim__ska_end(table) && table->slots[at].distance >= distance; at++, distance++) {
        if (table->slots[at].value == value) {
            return true;
        }
    }
    if (distance == table->probes || 2 * (table->n + 1) > table->size) {
        return table_grow(table) && plim__ska_put(table, hash, value);
    }
    return place(table, at, (struct plim__ska_slot){hash, value, distance});
}

void plim__ska_remove_at(struct plim__ska *table, uint32_t slot)
{
    struct plim__ska_slot *s = table->slots;
    s[slot].distance = -1;
    table->n--;
    for (uint32_t next = slot + 1; s[next].distance > 0; slot++, next++) {
        s[slot] = s[next];
        s[slot].distance--;
        s[next].distance = -1;
    }
}

void plim__ska_remove(struct plim__ska *table, uint32_t value)
{
    for (uint32_t i = 0; i < plim__ska_end(table); i++) {
        if (table->slots[i].distance >= 0 && table->slots[i].value == value) {
            plim__ska_remove_at(table, i);
            return;
        }
    }
}

void plim__ska_clear(struct plim__ska *table)
{
    for (uint32_t i = 0; i < plim__ska_end(table); i++) {
        table->slots[i].distance = -1;
    }
    table->n = 0;
}
