/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA runtime: memory entry points. Signatures as in cuda_runtime_api.h of CUDA 13.0 (and of 12.x
 * where a suffix tells them apart); types are replaced by others of the same size and class.
 */

#include "call.h"
#include <string.h>

struct location { /* struct cudaMemLocation, passed in one register */
    int type, id;
};

SIM_API int cudaMalloc(void **out, size_t bytes)
{
    return sim_ret(sim_call_malloc(out, bytes));
}

SIM_API int cudaFree(void *p)
{
    return sim_ret(sim_call_free(p));
}

SIM_API int cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    return sim_ret(sim_call_info(free_bytes, total));
}

SIM_API int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
    size_t bytes;
    *pitch = (width + 511) & ~(size_t)511;
    if (__builtin_mul_overflow(*pitch, height, &bytes)) {
        return sim_ret(SIM_E_VALUE);
    }
    return sim_ret(sim_call_malloc(out, bytes));
}

SIM_API int cudaMallocManaged(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return sim_ret(bytes == 0 ? SIM_E_VALUE : sim_call_managed(out, bytes));
}

static int prefetch(const void *p, int device)
{
    int rc = sim_begin(SIM_CALL_MEMCPY, sim_current());
    if (rc == SIM_OK) {
        rc = sim_host_prefetch(p, device);
        sim_end();
    }
    return sim_ret(rc);
}

SIM_API int cudaMemPrefetchAsync(const void *p, size_t bytes, struct location to, unsigned flags,
                                 void *stream)
{
    (void)bytes, (void)flags, (void)stream;
    return prefetch(p, to.type == 1 ? to.id : -1);
}

SIM_API int cudaMemPrefetchAsync_v2(const void *p, size_t bytes, struct location to, unsigned flags,
                                    void *stream)
{
    return cudaMemPrefetchAsync(p, bytes, to, flags, stream);
}

SIM_API int cudaMemAdvise(const void *p, size_t bytes, int advice, struct location where)
{
    (void)p, (void)bytes, (void)advice, (void)where;
    return SIM_OK;
}

/* ---- stream-ordered */

SIM_API int cudaMallocAsync(void **out, size_t bytes, void *stream)
{
    return sim_ret(sim_call_malloc_async(out, bytes, NULL, stream));
}

SIM_API int cudaMallocFromPoolAsync(void **out, size_t bytes, void *pool, void *stream)
{
    return sim_ret(pool == NULL ? SIM_E_VALUE : sim_call_malloc_async(out, bytes, pool, stream));
}

SIM_API int cudaFreeAsync(void *p, void *stream)
{
    return sim_ret(sim_call_free_async(p, stream));
}

static int locked_pool(void **out, int device, bool fresh)
{
    int rc = sim_start();
    if (rc == SIM_OK && (device < 0 || device >= sim_device_count())) {
        rc = SIM_E_DEVICE;
    }
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        *out = fresh ? sim_mempool_new(device) : sim_mempool_default(device);
        (void)pthread_mutex_unlock(&sim_lock);
        rc = *out == NULL ? SIM_E_NOMEM : SIM_OK;
    }
    return sim_ret(rc);
}

SIM_API int cudaDeviceGetDefaultMemPool(void **out, int device)
{
    return locked_pool(out, device, false);
}

SIM_API int cudaDeviceGetMemPool(void **out, int device)
{
    int rc = locked_pool(out, device, false);
    if (rc == SIM_OK) {
        *out = sim_mempool_current(device);
    }
    return rc;
}

SIM_API int cudaDeviceSetMemPool(int device, void *pool)
{
    if (pool == NULL || device < 0 || device >= sim_device_count()) {
        return sim_ret(SIM_E_VALUE);
    }
    sim_mempool_use(device, pool);
    return SIM_OK;
}

SIM_API int cudaMemPoolCreate(void **out, const void *props)
{
    int device;
    memcpy(&device, (const char *)props + 12, sizeof device); /* location.id */
    return locked_pool(out, device, true);
}

SIM_API int cudaMemPoolDestroy(void *pool)
{
    (void)pthread_mutex_lock(&sim_lock);
    int rc = pool == NULL ? SIM_E_VALUE : sim_mempool_destroy(pool);
    (void)pthread_mutex_unlock(&sim_lock);
    return sim_ret(rc);
}

SIM_API int cudaMemPoolTrimTo(void *pool, size_t keep)
{
    return sim_ret(sim_call_pool_trim(pool, keep));
}

SIM_API int cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    return sim_ret(pool == NULL ? SIM_E_VALUE : sim_mempool_set(pool, attribute, value));
}

SIM_API int cudaMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    return sim_ret(pool == NULL ? SIM_E_VALUE : sim_mempool_get(pool, attribute, value));
}

SIM_API int cudaMemPoolSetAccess(void *pool, const void *descs, size_t n)
{
    (void)descs, (void)n;
    return sim_ret(pool == NULL ? SIM_E_VALUE : SIM_OK);
}

/* Graph memory nodes are not modelled: captured allocations come from the pool. */
SIM_API int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
    (void)attribute;
    memset(value, 0, sizeof(uint64_t));
    return sim_ret(device < 0 || device >= sim_device_count() ? SIM_E_DEVICE : SIM_OK);
}

SIM_API int cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
    (void)attribute, (void)value;
    return sim_ret(device < 0 || device >= sim_device_count() ? SIM_E_DEVICE : SIM_OK);
}

SIM_API int cudaDeviceGraphMemTrim(int device)
{
    return sim_ret(device < 0 || device >= sim_device_count() ? SIM_E_DEVICE : SIM_OK);
}

/* ---- host memory */

SIM_API int cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return sim_ret(sim_call_host_alloc(out, bytes));
}

SIM_API int cudaMallocHost(void **out, size_t bytes)
{
    return sim_ret(sim_call_host_alloc(out, bytes));
}

SIM_API int cudaFreeHost(void *p)
{
    return sim_ret(sim_call_host_free(p));
}

SIM_API int cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    return sim_ret(sim_call_host_register(p, bytes));
}

SIM_API int cudaHostUnregister(void *p)
{
    return sim_ret(sim_call_host_unregister(p));
}

SIM_API int cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    (void)flags;
    *device = host; /* unified addressing: the same pointer */
    return SIM_OK;
}

SIM_API int cudaHostGetFlags(unsigned *flags, void *host)
{
    (void)host;
    *flags = 0;
    return SIM_OK;
}

/* struct cudaPointerAttributes: the part that CUDA 12 and 13 share. type: 0 unregistered, 1 host,
 * 2 device, 3 managed. */
struct pointer {
    int type, device;
    void *on_device, *on_host;
};

SIM_API int cudaPointerGetAttributes(struct pointer *out, const void *p)
{
    int rc = sim_start();
    if (rc != SIM_OK || out == NULL) {
        return sim_ret(rc != SIM_OK ? rc : SIM_E_VALUE);
    }
    int device = sim_device_of(p);
    if (device >= 0) {
        *out = (struct pointer){2, device, (void *)(uintptr_t)p, NULL};
        return SIM_OK;
    }
    (void)pthread_mutex_lock(&sim_lock);
    enum sim_host_kind kind = sim_host_find(p, NULL, NULL);
    (void)pthread_mutex_unlock(&sim_lock);
    void *same = kind == SIM_HOST_NONE ? NULL : (void *)(uintptr_t)p;
    *out = (struct pointer){kind == SIM_HOST_NONE      ? 0
                            : kind == SIM_HOST_MANAGED ? 3
                                                       : 1,
                            kind == SIM_HOST_NONE ? -2 : sim_current(), same,
                            kind == SIM_HOST_NONE ? (void *)(uintptr_t)p : same};
    return SIM_OK;
}

/* ---- copies */

SIM_API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    (void)kind;
    return sim_ret(sim_call_copy(to, from, bytes, NULL, false));
}

SIM_API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind;
    return sim_ret(sim_call_copy(to, from, bytes, stream, true));
}

SIM_API int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    (void)to_device, (void)from_device;
    return sim_ret(sim_call_copy(to, from, bytes, NULL, false));
}

SIM_API int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, void *stream)
{
    (void)to_device, (void)from_device;
    return sim_ret(sim_call_copy(to, from, bytes, stream, true));
}

SIM_API int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, int kind)
{
    (void)kind;
    return sim_ret(sim_call_copy_2d(to, to_pitch, from, from_pitch, width, height, NULL));
}

SIM_API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, int kind, void *stream)
{
    (void)kind;
    return sim_ret(sim_call_copy_2d(to, to_pitch, from, from_pitch, width, height, stream));
}

SIM_API int cudaMemset(void *to, int value, size_t bytes)
{
    return sim_ret(sim_call_fill(to, value, bytes, NULL));
}

SIM_API int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream)
{
    return sim_ret(sim_call_fill(to, value, bytes, stream));
}

SIM_API int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               int kind)
{
    (void)symbol, (void)from, (void)bytes, (void)offset, (void)kind;
    return SIM_OK;
}

SIM_API int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, int kind, void *stream)
{
    (void)symbol, (void)from, (void)bytes, (void)offset, (void)kind, (void)stream;
    return SIM_OK;
}

SIM_API int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 int kind)
{
    (void)symbol, (void)offset, (void)kind;
    memset(to, 0, bytes);
    return SIM_OK;
}

SIM_API int cudaGetSymbolAddress(void **out, const void *symbol)
{
    return sim_ret(sim_call_symbol(out, symbol, 4096));
}

/* ---- sharing between processes */

struct ipc { /* in the 64 bytes of a handle */
    uint64_t magic, base, size;
    int32_t pid, device;
};
#define IPC_MAGIC 0x53696d4970634d65u

struct ipc_handle {
    char bytes[64];
};

/* Of memory from cudaMalloc only, as on the card: mappings and pools have exports of their own. */
SIM_API int cudaIpcGetMemHandle(void *handle, void *p)
{
    struct ipc h = {.magic = IPC_MAGIC, .device = -1};
    (void)pthread_mutex_lock(&sim_lock);
    const struct sim_range *range = sim_space_find(p, &h.device);
    bool plain = range != NULL && range->kind != SIM_KIND_RESERVE && range->kind != SIM_KIND_CHUNK;
    int rc = plain ? sim_extent(p, &h.base, &h.size) : SIM_E_VALUE;
    (void)pthread_mutex_unlock(&sim_lock);
    h.pid = sim_pid();
    memset(handle, 0, sizeof(struct ipc_handle));
    memcpy(handle, &h, sizeof h);
    return sim_ret(rc == SIM_OK ? rc : SIM_E_VALUE);
}

/* In another process the memory is address space that is not charged: its owner pays. */
SIM_API int cudaIpcOpenMemHandle(void **out, struct ipc_handle handle, unsigned flags)
{
    struct ipc h;
    (void)flags;
    memcpy(&h, &handle, sizeof h);
    if (h.magic != IPC_MAGIC || h.device < 0 || h.device >= sim_device_count()) {
        return sim_ret(SIM_E_VALUE);
    }
    uint64_t addr = h.base;
    int rc = SIM_OK;
    if (h.pid != sim_pid()) {
        rc = sim_begin(SIM_CALL_RESERVE, h.device);
        if (rc == SIM_OK) {
            rc = sim_reserve(h.device, (h.size + SIM_PAGE - 1) & ~(SIM_PAGE - 1), 0, &addr);
            sim_end();
        }
    }
    if (rc == SIM_OK) {
        *out = (void *)(uintptr_t)addr;
    }
    return sim_ret(rc);
}

SIM_API int cudaIpcCloseMemHandle(void *p)
{
    (void)pthread_mutex_lock(&sim_lock);
    const struct sim_range *range = sim_space_find(p, NULL);
    if (range != NULL && range->kind == SIM_KIND_RESERVE) {
        (void)sim_unreserve((uint64_t)(uintptr_t)p, range->requested);
    }
    (void)pthread_mutex_unlock(&sim_lock);
    return SIM_OK;
}
