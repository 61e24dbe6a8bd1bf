/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_ASYNC_H
#define PLIM_ALLOC_ASYNC_H

/*
 * A model of backend:cudaMallocAsync, as far as it can be known. ESTIMATED: every figure from it is to
 * be labelled so.
 *
 * Known: PyTorch asks the driver's memory pool for exactly the requested bytes, refuses by itself above
 * the memory fraction, keeps everything in the pool (release threshold without limit), and after a
 * failure trims the pool and tries once more. Not known: how the driver places blocks in its pool. The
 * model assumes that it never fragments: blocks are rounded to 512 bytes and the pool grows, in 2 MiB
 * units, only when the sum of the blocks in it exceeds what it has. So reserved is a lower bound, and a
 * request that fails here fails in reality.
 * Threads: one at a time.
 * Source: torch 2.14.1, calls observed on a simulated device; CUDA 13.0 runtime API, memory pools.
 */

#include "alloc/conf.h"
#include "alloc/devmodel.h"

struct plim_async {
    struct plim_devmodel *device; /* borrowed */
    uint64_t limit;               /* fraction of the device; UINT64_MAX = none */
    uint64_t used;                /* bytes handed out, in 512-byte units */
    uint64_t reserved;            /* bytes the pool holds */
    uint64_t peak_used;
    uint64_t peak_reserved;
    uint64_t num_ooms;
    uint64_t num_retries;      /* trims after a failure */
    PLIM_VEC(uint64_t) sizes;  /* block -> bytes, 0 = unused slot; [0] is nobody */
    PLIM_VEC(uint32_t) unused; /* free slots */
};

/** plim_async_init() - an empty pool. The device is borrowed until fini. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_async_init(struct plim_async *a, const struct plim_conf *conf,
                                               struct plim_devmodel *device, struct plim_err *err);
void plim_async_fini(struct plim_async *a);

/** plim_async_alloc() - *block = 0 when out of memory. Errors: PLIM_E_NOMEM (of the host). */
PLIM_MUST_USE enum plim_status plim_async_alloc(struct plim_async *a, uint64_t size,
                                                uint32_t *block, struct plim_err *err);

/** plim_async_free() - Errors: PLIM_E_NOTFOUND for a block that is not handed out. */
PLIM_MUST_USE enum plim_status plim_async_free(struct plim_async *a, uint32_t block,
                                               struct plim_err *err);

/** plim_async_empty_cache() - synchronise and trim the pool to what is used. */
void plim_async_empty_cache(struct plim_async *a);

#endif
