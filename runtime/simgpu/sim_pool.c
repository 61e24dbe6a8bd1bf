/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of one size with addresses that never move.
 *
 * The pool lives in one big mapping that is reserved at first use and filled page by page by the
 * kernel as it is touched, so growing it moves nothing and needs no malloc. A free object holds the
 * index of the next free one in its first bytes. Threads: the caller holds sim_lock.
 */

#include "sim.h"
#include <string.h>
#include <sys/mman.h>

#define POOL_BYTES ((size_t)1 << 32) /* address space of one pool; 16 M objects of 256 bytes */

void *sim_pool_take(struct sim_pool *pool, uint32_t *index)
{
    if (pool->base == NULL) {
        void *base = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            return NULL;
        }
        pool->base = base;
    }
    uint32_t i = pool->free;
    if (i != 0) {
        memcpy(&pool->free, sim_pool_at(pool, i), sizeof pool->free);
    } else if ((uint64_t)(pool->n + 1) * pool->item <= POOL_BYTES) {
        i = ++pool->n;
    } else {
        return NULL;
    }
    void *object = sim_pool_at(pool, i);
    memset(object, 0, pool->item);
    *index = i;
    return object;
}

void sim_pool_give(struct sim_pool *pool, uint32_t index)
{
    void *object = sim_pool_at(pool, index);
    memset(object, 0, pool->item); /* stale handles find no magic */
    memcpy(object, &pool->free, sizeof pool->free);
    pool->free = index;
}
