/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory. A pool costs what it has reserved, not what was handed out of it: after each
 * call that may have made it grow or shrink, its reservation is asked for and the difference charged.
 * A pool also shrinks at synchronisations, which are not hooked: until its next call the books hold the
 * older figure. The owner of the first allocation pays for a pool.
 */

#include "record.h"

#include <string.h>

#define RESERVED_NOW 5 /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */

static uint64_t current[PLIM_SHM_DEVICES]; /* pool that plain allocations use; 0: ask; (atomic) */

static uint64_t pool_of(unsigned device)
{
    if (device >= PLIM_SHM_DEVICES) {
        return 0;
    }
    uint64_t pool = __atomic_load_n(&current[device], __ATOMIC_RELAXED);
    int (*ask)(void **, int) = plim__helper(PLIM__HELP_cuDeviceGetMemPool);
    void *got = NULL;
    if (pool == 0 && ask != NULL && ask(&got, (int)device) == 0) {
        pool = PLIM__KEY(got);
        __atomic_store_n(&current[device], pool, __ATOMIC_RELAXED);
    }
    return pool;
}

static bool reserved(uint64_t pool, uint64_t *bytes)
{
    int (*ask)(uint64_t, int, void *) = plim__helper(PLIM__HELP_cuMemPoolGetAttribute);
    return pool != 0 && ask != NULL && ask(pool, RESERVED_NOW, bytes) == 0;
}

static bool capturing(void *stream)
{
    int status = 0;
    int (*ask)(void *, int *) = plim__helper(PLIM__HELP_cuStreamIsCapturing);
    return ask != NULL && ask(stream, &status) == 0 && status != 0;
}

/* The pool now has `bytes` reserved: charge the difference. */
static void change(struct plim__call *call, const struct plim__who *who, uint64_t pool,
                   uint64_t bytes)
{
    struct plim__live *found;
    struct plim__live fresh = plim__fresh(who, PLIM__POOL, PLIM_EVENT_POOL_GROW, pool, bytes, 0);
    struct plim__shard *shard = plim__live_lock(PLIM__POOL, pool, &found);
    int64_t by = (int64_t)bytes;
    struct plim__who pays = *who;
    if (found == NULL) {
        (void)plim__live_add(shard, &fresh);
    } else {
        by = (int64_t)(bytes - found->size);
        found->size = bytes;
        if (found->extra == 0 && by > 0) { /* made earlier, used now for the first time */
            found->owner = fresh.owner;
            found->library = fresh.library;
            found->extra = 1;
        }
        pays = (struct plim__who){found->library, found->owner, found->device};
    }
    plim__live_unlock(shard);
    if (by != 0) {
        plim__charge(pays.device, pays.owner, 0, by, 0);
        plim__tell(call, &pays, by > 0 ? PLIM_EVENT_POOL_GROW : PLIM_EVENT_POOL_SHRINK, pool,
                   by > 0 ? (uint64_t)by : (uint64_t)-by, bytes,
                   call->kind == PLIM_EVENT_POOL_ALLOC ? PLIM_EVENT_TAIL : 0);
    }
}

void plim__took_pooled(struct plim__call *call, uint64_t addr, uint64_t bytes, uint64_t pool,
                       void *stream)
{
    uint64_t now;
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    if (call->result != 0) {
        plim__failed(call, &who, bytes);
        return;
    }
    bool capture = capturing(stream);
    pool = pool != 0 ? pool : pool_of(who.device);
    if (addr != 0) {
        struct plim__live live =
            plim__fresh(&who, PLIM__MEMORY, PLIM_EVENT_POOL_ALLOC, addr, bytes, pool);
        plim__take(call, &live, pool, capture ? PLIM_EVENT_CAPTURE : 0);
    }
    if (!capture && reserved(pool, &now)) {
        change(call, &who, pool, now);
    }
}

void plim__pool_made(struct plim__call *call, uint64_t pool, const void *props)
{
    struct plim__live *found;
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    if (call->result != 0) {
        plim__failed(call, &who, 0);
        return;
    }
    struct plim__place place;
    memcpy(&place, (const char *)props + 8, sizeof place); /* CUmemPoolProps.location */
    if (place.type == PLIM__ON_DEVICE) {
        who.device = (unsigned)place.id;
    }
    struct plim__live live = plim__fresh(&who, PLIM__POOL, PLIM_EVENT_POOL_GROW, pool, 0, 0);
    struct plim__shard *shard = plim__live_lock(PLIM__POOL, pool, &found);
    if (found == NULL) {
        (void)plim__live_add(shard, &live);
    }
    plim__live_unlock(shard);
}

void plim__pool_gone(struct plim__call *call, uint64_t pool)
{
    struct plim__live *found, gone = {0};
    if (call->result != 0 || plim__skip(call)) {
        return;
    }
    struct plim__shard *shard = plim__live_lock(PLIM__POOL, pool, &found);
    if (found != NULL) {
        gone = *found;
        plim__live_remove(shard, found);
    }
    plim__live_unlock(shard);
    for (unsigned d = 0; d < PLIM_SHM_DEVICES; d++) {
        uint64_t was = pool;
        (void)__atomic_compare_exchange_n(&current[d], &was, 0, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
    }
    if (gone.cls != 0) {
        plim__drop(call, &gone, 0);
    }
}

void plim__pool_changed(struct plim__call *call, uint64_t pool)
{
    uint64_t now;
    if (call->result == 0 && !plim__skip(call) && reserved(pool, &now)) {
        struct plim__who who = plim__who(call);
        change(call, &who, pool, now);
    }
}

void plim__pool_current(struct plim__call *call, int device, uint64_t pool)
{
    if (call->result == 0 && device >= 0 && device < PLIM_SHM_DEVICES) {
        __atomic_store_n(&current[device], pool, __ATOMIC_RELAXED);
    }
}

void plim__pools_reset(void)
{
    memset(current, 0, sizeof current);
}
