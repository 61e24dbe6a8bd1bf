/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What exists now: a hash table in parts, each with a spin lock of its own.
 *
 * Open addressing with linear probing and backward shift on removal, so there are no tombstones. A part
 * that is 3/4 full moves to twice the room, by mmap: malloc belongs to the host. Each part remembers the
 * last keys that went, so that a second release of one of them can be told from a release of something
 * that was never seen.
 */

#include "record.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define SHARDS     32u /* a power of two */
#define FIRST_ROOM 256u
#define GONE       32u /* keys remembered by each part */
#define SPINS      64

struct plim__shard {
    uint32_t lock;
    uint32_t n;               /* entries */
    uint32_t room;            /* slots, a power of two; 0 at first */
    uint32_t next_gone;       /* index of the oldest in gone */
    struct plim__live *slots; /* [room], mmapped */
    uint64_t gone[GONE];      /* hashes of removed keys */
} __attribute__((aligned(64)));

static struct plim__shard shards[SHARDS];

static uint64_t hash(unsigned cls, uint64_t key)
{
    uint64_t h = key + cls * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

/* The upper half chooses the part, the lower half the slot. */
static uint32_t home(const struct plim__shard *s, uint64_t h)
{
    return (uint32_t)h & (s->room - 1);
}

static struct plim__live *find(const struct plim__shard *s, unsigned cls, uint64_t key, uint64_t h)
{
    if (s->room == 0) {
        return NULL;
    }
    for (uint32_t i = home(s, h); s->slots[i].cls != PLIM__FREE_SLOT; i = (i + 1) & (s->room - 1)) {
        if (s->slots[i].key == key && s->slots[i].cls == cls) {
            return &s->slots[i];
        }
    }
    return NULL;
}

struct plim__shard *plim__live_lock(unsigned cls, uint64_t key, struct plim__live **found)
{
    uint64_t h = hash(cls, key);
    struct plim__shard *s = &shards[(h >> 32) & (SHARDS - 1)];
    for (int i = 1; __atomic_exchange_n(&s->lock, 1u, __ATOMIC_ACQUIRE) != 0; i++) {
        if (i % SPINS == 0) {
            (void)sched_yield();
        }
    }
    *found = find(s, cls, key, h);
    return s;
}

void plim__live_unlock(struct plim__shard *shard)
{
    __atomic_store_n(&shard->lock, 0u, __ATOMIC_RELEASE);
}

static void put(struct plim__shard *s, const struct plim__live *entry)
{
    uint32_t i = home(s, hash(entry->cls, entry->key));
    while (s->slots[i].cls != PLIM__FREE_SLOT) {
        i = (i + 1) & (s->room - 1);
    }
    s->slots[i] = *entry;
}

static bool grow(struct plim__shard *s)
{
    struct plim__shard old = *s;
    uint32_t room = old.room == 0 ? FIRST_ROOM : old.room * 2;
    if (room > (uint32_t)1 << 26) {
        return false;
    }
    void *slots = mmap(NULL, (size_t)room * sizeof *old.slots, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED) {
        return false;
    }
    s->slots = slots;
    s->room = room;
    for (uint32_t i = 0; i < old.room; i++) {
        if (old.slots[i].cls != PLIM__FREE_SLOT) {
            put(s, &old.slots[i]);
        }
    }
    if (old.room != 0) {
        (void)munmap(old.slots, (size_t)old.room * sizeof *old.slots);
    }
    return true;
}

bool plim__live_add(struct plim__shard *shard, const struct plim__live *entry)
{
    if ((uint64_t)(shard->n + 1) * 4 > (uint64_t)shard->room * 3 && !grow(shard) &&
        shard->n + 1 >= shard->room) {
        return false;
    }
    put(shard, entry);
    shard->n++;
    return true;
}

void plim__live_remove(struct plim__shard *shard, struct plim__live *found)
{
    uint32_t mask = shard->room - 1, hole = (uint32_t)(found - shard->slots);
    shard->gone[shard->next_gone] = hash(found->cls, found->key);
    shard->next_gone = (shard->next_gone + 1) % GONE;
    for (uint32_t i = (hole + 1) & mask; shard->slots[i].cls != PLIM__FREE_SLOT;
         i = (i + 1) & mask) {
        uint32_t want = home(shard, hash(shard->slots[i].cls, shard->slots[i].key));
        /* Move it into the hole unless its home lies behind the hole, cyclically. */
        if (((i - want) & mask) >= ((i - hole) & mask)) {
            shard->slots[hole] = shard->slots[i];
            hole = i;
        }
    }
    shard->slots[hole] = (struct plim__live){0};
    shard->n--;
}

bool plim__live_freed(const struct plim__shard *shard, unsigned cls, uint64_t key)
{
    uint64_t h = hash(cls, key);
    for (unsigned i = 0; i < GONE; i++) {
        if (shard->gone[i] == h) {
            return true;
        }
    }
    return false;
}

bool plim__live_pop(unsigned device, uint32_t classes, uint32_t *cursor, struct plim__live *out)
{
    for (; *cursor < SHARDS; ++*cursor) {
        struct plim__live *found;
        struct plim__shard *s = &shards[*cursor];
        while (__atomic_exchange_n(&s->lock, 1u, __ATOMIC_ACQUIRE) != 0) {
            (void)sched_yield();
        }
        for (uint32_t i = 0; i < s->room; i++) {
            found = &s->slots[i];
            if (found->cls != PLIM__FREE_SLOT && found->device == device &&
                ((classes >> found->cls) & 1) != 0) {
                *out = *found;
                plim__live_remove(s, found);
                plim__live_unlock(s);
                return true;
            }
        }
        plim__live_unlock(s);
    }
    return false;
}

void plim__live_reset(void)
{
    for (unsigned i = 0; i < SHARDS; i++) {
        if (shards[i].room != 0) {
            (void)munmap(shards[i].slots, (size_t)shards[i].room * sizeof *shards[i].slots);
        }
    }
    memset(shards, 0, sizeof shards);
}
