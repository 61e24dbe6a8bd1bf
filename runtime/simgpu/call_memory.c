/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory calls as both interfaces make them: a context, the lock, the books, the log.
 */

#include "call.h"

int sim_call_malloc(void **out, size_t bytes)
{
    int device = sim_current();
    if (out == NULL) {
        return SIM_E_VALUE;
    }
    void *p = NULL;
    int rc = sim_begin(SIM_CALL_MALLOC, device);
    if (rc == SIM_OK) {
        rc = sim_unsafe();
        rc = rc == SIM_OK ? sim_malloc(device, bytes, &p) : rc;
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = p;
    }
    return sim_leave(SIM_CALL_MALLOC, device, (uint64_t)(uintptr_t)p, bytes, 0, rc);
}

int sim_call_free(void *p)
{
    int device = sim_current();
    int rc = sim_begin(SIM_CALL_FREE, device);
    if (rc == SIM_OK) {
        uint64_t base, size = 0;
        if (p != NULL) {
            device = sim_is_device(p) ? sim_device_of(p) : device;
            rc = sim_unsafe();
            if (rc == SIM_OK && sim_config.log) {
                (void)sim_extent(p, &base, &size);
            }
            rc = rc != SIM_OK ? rc
                 : sim_host_find(p, NULL, NULL) == SIM_HOST_MANAGED
                     ? sim_host_free(p, SIM_HOST_MANAGED)
                     : sim_free(p);
        }
        sim_end();
        return sim_leave(SIM_CALL_FREE, device, (uint64_t)(uintptr_t)p, size, 0, rc);
    }
    return sim_leave(SIM_CALL_FREE, device, (uint64_t)(uintptr_t)p, 0, 0, rc);
}

int sim_call_info(size_t *free_bytes, size_t *total)
{
    int device = sim_current();
    struct sim_usage u = {0};
    int rc = sim_begin(SIM_CALL_MEM_GET_INFO, device);
    if (rc == SIM_OK) {
        sim_usage(device, &u);
        sim_end();
        if (free_bytes != NULL) {
            *free_bytes = u.used < u.total ? u.total - u.used : 0;
        }
        if (total != NULL) {
            *total = u.total;
        }
    }
    return sim_leave(SIM_CALL_MEM_GET_INFO, device, u.used, 0, 0, rc);
}

int sim_call_malloc_async(void **out, size_t bytes, struct sim_mempool *pool, void *stream)
{
    int device = pool == NULL ? sim_current() : sim_mempool_device(pool);
    void *p = NULL;
    if (out == NULL) {
        return SIM_E_VALUE;
    }
    int rc = sim_begin(SIM_CALL_MALLOC_ASYNC, device);
    if (rc == SIM_OK) {
        pool = pool == NULL ? sim_mempool_current(device) : pool;
        rc = pool == NULL ? SIM_E_NOMEM : sim_mempool_alloc(pool, bytes, &p);
        (void)sim_work(sim_stream(stream), SIM_NODE_EMPTY);
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = p;
    }
    return sim_leave(SIM_CALL_MALLOC_ASYNC, device, (uint64_t)(uintptr_t)p, bytes,
                     (uint64_t)(uintptr_t)stream, rc);
}

int sim_call_free_async(void *p, void *stream)
{
    int device = sim_is_device(p) ? sim_device_of(p) : sim_current();
    int rc = sim_begin(SIM_CALL_FREE_ASYNC, device);
    if (rc == SIM_OK) {
        rc = p == NULL ? SIM_OK : sim_free(p);
        (void)sim_work(sim_stream(stream), SIM_NODE_EMPTY);
        sim_end();
    }
    return sim_leave(SIM_CALL_FREE_ASYNC, device, (uint64_t)(uintptr_t)p, 0,
                     (uint64_t)(uintptr_t)stream, rc);
}

int sim_call_pool_trim(struct sim_mempool *pool, size_t keep)
{
    if (pool == NULL) {
        return SIM_E_VALUE;
    }
    int device = sim_mempool_device(pool);
    int rc = sim_begin(SIM_CALL_POOL_TRIM, device);
    if (rc == SIM_OK) {
        rc = sim_mempool_trim(pool, keep);
        sim_end();
    }
    return sim_leave(SIM_CALL_POOL_TRIM, device, 0, keep, 0, rc);
}

static int host_alloc(enum sim_call call, enum sim_host_kind kind, void **out, size_t bytes)
{
    int device = sim_current();
    void *p = NULL;
    if (out == NULL) {
        return SIM_E_VALUE;
    }
    int rc = sim_begin(call, device);
    if (rc == SIM_OK) {
        rc = sim_unsafe();
        rc = rc == SIM_OK ? sim_host_alloc(bytes, kind, &p) : rc;
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = p;
    }
    return sim_leave(call, device, (uint64_t)(uintptr_t)p, bytes, 0, rc);
}

int sim_call_managed(void **out, size_t bytes)
{
    return host_alloc(SIM_CALL_MALLOC_MANAGED, SIM_HOST_MANAGED, out, bytes);
}

int sim_call_host_alloc(void **out, size_t bytes)
{
    return host_alloc(SIM_CALL_HOST_ALLOC, SIM_HOST_PINNED, out, bytes);
}

int sim_call_host_free(void *p)
{
    int rc = sim_begin(SIM_CALL_HOST_FREE, sim_current());
    if (rc == SIM_OK) {
        rc = p == NULL ? SIM_OK : sim_host_free(p, SIM_HOST_PINNED);
        sim_end();
    }
    return sim_leave(SIM_CALL_HOST_FREE, sim_current(), (uint64_t)(uintptr_t)p, 0, 0, rc);
}

int sim_call_host_register(void *p, size_t bytes)
{
    int rc = sim_begin(SIM_CALL_HOST_REGISTER, sim_current());
    if (rc == SIM_OK) {
        rc = sim_host_register(p, bytes);
        sim_end();
    }
    return sim_leave(SIM_CALL_HOST_REGISTER, sim_current(), (uint64_t)(uintptr_t)p, bytes, 0, rc);
}

int sim_call_host_unregister(void *p)
{
    int rc = sim_begin(SIM_CALL_HOST_FREE, sim_current());
    if (rc == SIM_OK) {
        rc = sim_host_unregister(p);
        sim_end();
    }
    return sim_leave(SIM_CALL_HOST_FREE, sim_current(), (uint64_t)(uintptr_t)p, 0, 0, rc);
}

int sim_call_copy(void *to, const void *from, size_t bytes, void *stream, bool async)
{
    int rc = sim_begin(SIM_CALL_MEMCPY, sim_current());
    if (rc == SIM_OK) {
        struct sim_stream *s = sim_stream(stream);
        rc = s == NULL ? SIM_E_HANDLE : async ? SIM_OK : sim_unsafe();
        bool now = rc == SIM_OK && sim_work(s, SIM_NODE_MEMCPY);
        uint64_t until = now && !async ? s->busy_ns : 0;
        sim_end();
        sim_sleep_until(until);
        if (now) {
            sim_copy(to, from, bytes);
        }
    }
    return sim_leave(SIM_CALL_MEMCPY, sim_current(), (uint64_t)(uintptr_t)to, bytes,
                     (uint64_t)(uintptr_t)from, rc);
}

int sim_call_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                     size_t height, void *stream)
{
    int rc = sim_call_copy(to, from, width, stream, true);
    for (size_t i = 1; rc == SIM_OK && i < height; i++) {
        sim_copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    }
    return rc;
}

int sim_call_fill(void *to, int value, size_t bytes, void *stream)
{
    int rc = sim_begin(SIM_CALL_MEMSET, sim_current());
    if (rc == SIM_OK) {
        struct sim_stream *s = sim_stream(stream);
        rc = s == NULL ? SIM_E_HANDLE : SIM_OK;
        bool now = rc == SIM_OK && sim_work(s, SIM_NODE_MEMSET);
        sim_end();
        if (now) {
            sim_fill(to, value, bytes);
        }
    }
    return sim_leave(SIM_CALL_MEMSET, sim_current(), (uint64_t)(uintptr_t)to, bytes,
                     (uint64_t)(uintptr_t)stream, rc);
}

/*
 * A device address for a module's variable. It lives in module memory, which the context's cost
 * covers, so it is address space only: one reservation, given out in order, the same for the same
 * symbol.
 */
int sim_call_symbol(void **out, const void *symbol, size_t bytes)
{
    static struct {
        const void *symbol;
        uint64_t addr;
    } known[4096];
    static uint64_t base, used;
    int rc = sim_begin(SIM_CALL_MALLOC, sim_current());
    if (rc != SIM_OK) {
        return rc;
    }
    uint64_t i = ((uint64_t)(uintptr_t)symbol * 0x9e3779b97f4a7c15u) >> 52;
    while (known[i].symbol != NULL && known[i].symbol != symbol) {
        i = (i + 1) % 4096;
    }
    if (known[i].symbol == NULL) {
        uint64_t need = (bytes + 511) & ~(uint64_t)511;
        if (base == 0) {
            rc = sim_reserve(sim_current(), SIM_PAGE << 9, 0, &base);
        }
        if (rc == SIM_OK && used / 512 < 4000) {
            known[i].symbol = symbol;
            known[i].addr = base + used;
            used += need;
        }
    }
    *out = (void *)(uintptr_t)known[i].addr;
    sim_end();
    return known[i].addr == 0 ? SIM_E_NOMEM : rc;
}
