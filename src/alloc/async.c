/* SPDX-License-Identifier: Apache-2.0 */
/* The stream-ordered backend, estimated: a pool that never fragments. See async.h. */

#include "alloc/async.h"

#define ASYNC_UNIT UINT64_C(512)

enum plim_status plim_async_init(struct plim_async *a, const struct plim_conf *conf,
                                 struct plim_devmodel *device, struct plim_err *err)
{
    *a = (struct plim_async){.device = device, .limit = UINT64_MAX};
    if (conf->memory_fraction < 1.0) {
        a->limit = (uint64_t)(conf->memory_fraction * (double)device->config.total);
    }
    return plim_vec_push(&a->sizes, err, 0);
}

void plim_async_fini(struct plim_async *a)
{
    plim_vec_fini(&a->sizes);
    plim_vec_fini(&a->unused);
}

/* Grow the pool to hold `need` bytes in all; false when the device has not that much. */
static bool pool_grow(struct plim_async *a, uint64_t need)
{
    if (need <= a->reserved) {
        return true;
    }
    uint64_t more = plim_round_up(need - a->reserved, PLIM_DEVMODEL_PAGE);
    if (plim_devmodel_free_bytes(a->device) < more) {
        return false;
    }
    plim_devmodel_set_external(a->device, a->device->config.external + more);
    a->reserved += more;
    a->peak_reserved = plim_max_u64(a->peak_reserved, a->reserved);
    return true;
}

static void pool_trim(struct plim_async *a)
{
    uint64_t keep = plim_round_up(a->used, PLIM_DEVMODEL_PAGE);
    plim_devmodel_call(a->device, PLIM_DRIVER_POOL_TRIM, 0, true);
    if (keep < a->reserved) {
        plim_devmodel_set_external(a->device, a->device->config.external - (a->reserved - keep));
        a->reserved = keep;
    }
}

static enum plim_status slot_take(struct plim_async *a, uint64_t bytes, uint32_t *block,
                                  struct plim_err *err)
{
    if (a->unused.n > 0) {
        *block = a->unused.items[--a->unused.n];
        a->sizes.items[*block] = bytes;
        return PLIM_OK;
    }
    if (a->sizes.n >= UINT32_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "too many blocks");
    }
    PLIM_TRY(plim_vec_reserve(&a->unused, a->sizes.n + 1 - a->unused.n,
                              err)); /* so that free never fails */
    PLIM_TRY(plim_vec_push(&a->sizes, err, bytes));
    *block = (uint32_t)a->sizes.n - 1;
    return PLIM_OK;
}

enum plim_status plim_async_alloc(struct plim_async *a, uint64_t size, uint32_t *block,
                                  struct plim_err *err)
{
    uint64_t bytes = size < PLIM_TORCH_TOO_LARGE ? plim_round_up(size, ASYNC_UNIT) : size;
    *block = 0;
    if (size == 0) {
        return PLIM_OK;
    }
    uint64_t sum = plim_add_sat(a->used, bytes);
    bool fits = sum <= a->limit;
    if (fits) {
        fits = pool_grow(a, sum);
        plim_devmodel_call(a->device, PLIM_DRIVER_MALLOC_ASYNC, 0, fits);
        if (!fits) {
            a->num_retries++;
            plim_devmodel_call(a->device, PLIM_DRIVER_STREAM_SYNC, 0, true);
            pool_trim(a);
            fits = pool_grow(a, sum);
            plim_devmodel_call(a->device, PLIM_DRIVER_MALLOC_ASYNC, 0, fits);
        }
    }
    if (!fits) {
        a->num_ooms++;
        return PLIM_OK;
    }
    PLIM_TRY(slot_take(a, bytes, block, err));
    a->used = sum;
    a->peak_used = plim_max_u64(a->peak_used, sum);
    return PLIM_OK;
}

enum plim_status plim_async_free(struct plim_async *a, uint32_t block, struct plim_err *err)
{
    if (block == 0 || block >= a->sizes.n || a->sizes.items[block] == 0) {
        return plim__fail(err, PLIM_E_NOTFOUND,
                          "invalid device pointer: block %u is not handed out", block);
    }
    plim_devmodel_call(a->device, PLIM_DRIVER_FREE_ASYNC, 0, true);
    a->used -= a->sizes.items[block];
    a->sizes.items[block] = 0;
    return plim_vec_push(&a->unused, err, block);
}

void plim_async_empty_cache(struct plim_async *a)
{
    plim_devmodel_call(a->device, PLIM_DRIVER_DEVICE_SYNC, 0, true);
    pool_trim(a);
}
