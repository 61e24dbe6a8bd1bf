/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory pools (cudaMallocAsync and the cudaMemPool calls).
 *
 * A pool takes chunks of whole pages from the device, at least 32 MiB at a time, and cuts them up
 * with the lowest place that fits, 512-byte aligned. What the real driver does inside is not
 * published; the chunk size is what field reports show. A freed piece can be reused at once by any
 * stream, as if the work before it were complete, so reserved memory is a lower estimate. At a
 * synchronisation a pool that holds more than its release threshold gives wholly free chunks back.
 *
 * Attributes (cuda.h 13.0): 1..3 reuse policies, 4 release threshold, 5/6 reserved now and highest,
 * 7/8 used now and highest.
 */

#include "sim.h"
#include <string.h>

#define UNIT        512u
#define CHUNK_BYTES ((uint64_t)32 << 20)

struct sim_mempool {
    struct sim_ranges free; /* in units from the device's first address */
    uint64_t threshold;
    uint64_t reserved, reserved_peak, used, used_peak;
    uint32_t chunks; /* list of chunks: index of a struct chunk */
    uint32_t self;
    int32_t device;
    int32_t reuse[4];
    bool closing; /* destroyed, waits for its last piece */
};

struct chunk {
    struct sim_range *range;
    struct sim_mempool *pool;
    uint32_t next, prev, self;
};

/* A handed-out piece, found by its address. */
struct piece {
    uint64_t addr, bytes;
    uint32_t next, self;
};

#define BUCKETS 4096

static struct sim_pool mempools = SIM_POOL(struct sim_mempool);
static struct sim_pool chunks = SIM_POOL(struct chunk);
static struct sim_pool pieces = SIM_POOL(struct piece);
static uint32_t buckets[BUCKETS];
static struct sim_mempool *defaults[SIM_MAX_DEVICES];
static struct sim_mempool *currents[SIM_MAX_DEVICES];

static uint32_t *bucket_of(uint64_t addr)
{
    return &buckets[(addr / UNIT * 0x9e3779b97f4a7c15u) >> 52];
}

struct sim_mempool *sim_mempool_new(int device)
{
    uint32_t self;
    struct sim_mempool *pool = sim_pool_take(&mempools, &self);
    if (pool != NULL) {
        pool->self = self;
        pool->device = device;
        pool->free.seed = 1;
        pool->reuse[1] = pool->reuse[2] = pool->reuse[3] = 1;
    }
    return pool;
}

struct sim_mempool *sim_mempool_default(int device)
{
    if (defaults[device] == NULL) {
        defaults[device] = sim_mempool_new(device);
    }
    return defaults[device];
}

struct sim_mempool *sim_mempool_current(int device)
{
    return currents[device] != NULL ? currents[device] : sim_mempool_default(device);
}

void sim_mempool_use(int device, struct sim_mempool *pool)
{
    currents[device] = pool;
}

int sim_mempool_device(const struct sim_mempool *pool)
{
    return pool->device;
}

static uint64_t unit_of(int device, uint64_t addr)
{
    return (addr - sim_space_addr(device, 0)) / UNIT;
}

static int grow(struct sim_mempool *pool, uint64_t bytes)
{
    uint64_t want = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    uint64_t pages = (want + SIM_PAGE - 1) / SIM_PAGE;
    uint32_t self;
    if (sim_charge(pool->device, pages * SIM_PAGE) != SIM_OK) {
        pages = (bytes + SIM_PAGE - 1) / SIM_PAGE; /* not a whole chunk: what is asked for */
        if (sim_charge(pool->device, pages * SIM_PAGE) != SIM_OK) {
            return SIM_E_NOMEM;
        }
    }
    struct chunk *chunk = sim_pool_take(&chunks, &self);
    struct sim_range *range =
        chunk == NULL ? NULL : sim_space_take(pool->device, pages, 1, SIM_KIND_CHUNK);
    if (range == NULL) {
        if (chunk != NULL) {
            sim_pool_give(&chunks, self);
        }
        sim_uncharge(pool->device, pages * SIM_PAGE);
        return SIM_E_NOMEM;
    }
    *chunk = (struct chunk){.range = range, .pool = pool, .next = pool->chunks, .self = self};
    if (chunk->next != 0) {
        ((struct chunk *)sim_pool_at(&chunks, chunk->next))->prev = self;
    }
    pool->chunks = self;
    range->owner = chunk;
    pool->reserved += pages * SIM_PAGE;
    pool->reserved_peak =
        pool->reserved > pool->reserved_peak ? pool->reserved : pool->reserved_peak;
    return sim_ranges_add(&pool->free, range->page * (SIM_PAGE / UNIT), pages * (SIM_PAGE / UNIT));
}

int sim_mempool_alloc(struct sim_mempool *pool, uint64_t bytes, void **out)
{
    if (bytes == 0 || bytes > (uint64_t)1 << 46) {
        *out = NULL;
        return bytes == 0 ? SIM_OK : SIM_E_NOMEM;
    }
    uint64_t units = (bytes + UNIT - 1) / UNIT;
    uint64_t first = sim_ranges_take(&pool->free, units);
    if (first == SIM_NONE) {
        int rc = grow(pool, units * UNIT);
        first = rc == SIM_OK ? sim_ranges_take(&pool->free, units) : SIM_NONE;
    }
    uint32_t self;
    struct piece *piece = first == SIM_NONE ? NULL : sim_pool_take(&pieces, &self);
    if (piece == NULL) {
        return SIM_E_NOMEM;
    }
    uint64_t addr = sim_space_addr(pool->device, 0) + first * UNIT;
    uint32_t *bucket = bucket_of(addr);
    *piece = (struct piece){.addr = addr, .bytes = units * UNIT, .next = *bucket, .self = self};
    *bucket = self;
    pool->used += piece->bytes;
    pool->used_peak = pool->used > pool->used_peak ? pool->used : pool->used_peak;
    *out = (void *)(uintptr_t)addr;
    /* A merged free range may span chunks, so the piece may too: count it where it starts. */
    sim_space_find(*out, NULL)->live++;
    return SIM_OK;
}

static void drop_chunk(struct chunk *chunk)
{
    struct sim_mempool *pool = chunk->pool;
    struct sim_range *range = chunk->range;
    if (chunk->prev != 0) {
        ((struct chunk *)sim_pool_at(&chunks, chunk->prev))->next = chunk->next;
    } else {
        pool->chunks = chunk->next;
    }
    if (chunk->next != 0) {
        ((struct chunk *)sim_pool_at(&chunks, chunk->next))->prev = chunk->prev;
    }
    pool->reserved -= range->pages * SIM_PAGE;
    sim_uncharge(pool->device, range->pages * SIM_PAGE);
    sim_space_give(pool->device, range);
    sim_pool_give(&chunks, chunk->self);
}

int sim_mempool_trim(struct sim_mempool *pool, uint64_t keep)
{
    for (uint32_t i = pool->chunks; i != 0 && pool->reserved > keep;) {
        struct chunk *chunk = sim_pool_at(&chunks, i);
        uint64_t units = chunk->range->pages * (SIM_PAGE / UNIT);
        i = chunk->next;
        /* Free as a whole? A piece that began in the chunk before may reach into this one. */
        if (chunk->range->live == 0 &&
            sim_ranges_has(&pool->free, chunk->range->page * (SIM_PAGE / UNIT), units)) {
            sim_ranges_cut(&pool->free, chunk->range->page * (SIM_PAGE / UNIT), units);
            drop_chunk(chunk);
        }
    }
    if (pool->closing && pool->chunks == 0) {
        sim_pool_give(&mempools, pool->self);
    }
    return SIM_OK;
}

int sim_chunk_free(struct sim_range *range, void *p)
{
    struct chunk *chunk = range->owner;
    struct sim_mempool *pool = chunk->pool;
    uint32_t *link = bucket_of((uint64_t)(uintptr_t)p);
    while (*link != 0) {
        struct piece *piece = sim_pool_at(&pieces, *link);
        if (piece->addr == (uint64_t)(uintptr_t)p) {
            *link = piece->next;
            pool->used -= piece->bytes;
            range->live--;
            (void)sim_ranges_add(&pool->free, unit_of(pool->device, piece->addr),
                                 piece->bytes / UNIT);
            sim_pool_give(&pieces, piece->self);
            if (pool->closing) {
                (void)sim_mempool_trim(pool, 0);
            }
            return SIM_OK;
        }
        link = &piece->next;
    }
    return SIM_E_VALUE;
}

int sim_mempool_destroy(struct sim_mempool *pool)
{
    if (pool == defaults[pool->device]) {
        return SIM_E_VALUE;
    }
    if (currents[pool->device] == pool) {
        currents[pool->device] = NULL;
    }
    pool->closing = true;
    return sim_mempool_trim(pool, 0);
}

void sim_mempool_synced(int device)
{
    struct sim_mempool *pool = sim_mempool_current(device);
    if (defaults[device] != NULL && pool->reserved > pool->threshold) {
        (void)sim_mempool_trim(pool, pool->threshold);
    }
}

int sim_mempool_set(struct sim_mempool *pool, int attribute, const void *value)
{
    uint64_t n = 0;
    switch (attribute) {
    case 1:
    case 2:
    case 3:
        memcpy(&pool->reuse[attribute], value, sizeof pool->reuse[0]);
        return SIM_OK;
    case 4:
        memcpy(&pool->threshold, value, sizeof pool->threshold);
        return SIM_OK;
    case 6:
    case 8:
        memcpy(&n, value, sizeof n);
        if (n == 0) {
            *(attribute == 6 ? &pool->reserved_peak : &pool->used_peak) =
                attribute == 6 ? pool->reserved : pool->used;
            return SIM_OK;
        }
        return SIM_E_VALUE;
    default:
        return SIM_E_VALUE;
    }
}

int sim_mempool_get(struct sim_mempool *pool, int attribute, void *value)
{
    const uint64_t *words[] = {NULL,
                               NULL,
                               NULL,
                               NULL,
                               &pool->threshold,
                               &pool->reserved,
                               &pool->reserved_peak,
                               &pool->used,
                               &pool->used_peak};
    if (attribute >= 1 && attribute <= 3) {
        memcpy(value, &pool->reuse[attribute], sizeof pool->reuse[0]);
        return SIM_OK;
    }
    if (attribute < 4 || attribute > 8) {
        return SIM_E_VALUE;
    }
    memcpy(value, words[attribute], sizeof(uint64_t));
    return SIM_OK;
}
