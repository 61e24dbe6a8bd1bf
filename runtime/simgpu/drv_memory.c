/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA driver: memory entry points. Signatures as in cuda.h of CUDA 13.0. Driver calls return their
 * code and leave the runtime's last error alone.
 */

#include "call.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PTR(p) ((void *)(uintptr_t)(p))

struct prop { /* CUmemAllocationProp */
    int type, handle_types, location_type, location_id;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct access { /* CUmemAccessDesc */
    int location_type, location_id, flags;
};

struct location { /* CUmemLocation, passed in one register */
    int type, id;
};

SIM_API int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    void *p = NULL;
    int rc = bytes == 0 ? SIM_E_VALUE : sim_call_malloc(&p, bytes);
    if (rc == SIM_OK) {
        *out = (uint64_t)(uintptr_t)p;
    }
    return rc;
}

SIM_API int cuMemAllocPitch_v2(uint64_t *out, size_t *pitch, size_t width, size_t height,
                               unsigned n)
{
    size_t bytes;
    (void)n;
    *pitch = (width + 511) & ~(size_t)511;
    return __builtin_mul_overflow(*pitch, height, &bytes) ? SIM_E_VALUE : cuMemAlloc_v2(out, bytes);
}

SIM_API int cuMemFree_v2(uint64_t p)
{
    return p == 0 ? SIM_OK : sim_call_free(PTR(p));
}

SIM_API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    return sim_call_info(free_bytes, total);
}

SIM_API int cuMemAllocManaged(uint64_t *out, size_t bytes, unsigned flags)
{
    void *p = NULL;
    (void)flags;
    int rc = bytes == 0 ? SIM_E_VALUE : sim_call_managed(&p, bytes);
    *out = (uint64_t)(uintptr_t)p;
    return rc;
}

SIM_API int cuMemAllocHost_v2(void **out, size_t bytes)
{
    return sim_call_host_alloc(out, bytes);
}

SIM_API int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return sim_call_host_alloc(out, bytes);
}

SIM_API int cuMemFreeHost(void *p)
{
    return sim_call_host_free(p);
}

SIM_API int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    return sim_call_host_register(p, bytes);
}

SIM_API int cuMemHostUnregister(void *p)
{
    return sim_call_host_unregister(p);
}

SIM_API int cuMemHostGetDevicePointer_v2(uint64_t *out, void *host, unsigned flags)
{
    (void)flags;
    *out = (uint64_t)(uintptr_t)host;
    return SIM_OK;
}

SIM_API int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream)
{
    void *p = NULL;
    int rc = sim_call_malloc_async(&p, bytes, NULL, stream);
    *out = (uint64_t)(uintptr_t)p;
    return rc;
}

SIM_API int cuMemAllocFromPoolAsync(uint64_t *out, size_t bytes, void *pool, void *stream)
{
    void *p = NULL;
    int rc = pool == NULL ? SIM_E_VALUE : sim_call_malloc_async(&p, bytes, pool, stream);
    *out = (uint64_t)(uintptr_t)p;
    return rc;
}

SIM_API int cuMemFreeAsync(uint64_t p, void *stream)
{
    return sim_call_free_async(PTR(p), stream);
}

SIM_API int cuMemPoolTrimTo(void *pool, size_t keep)
{
    return sim_call_pool_trim(pool, keep);
}

SIM_API int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    return pool == NULL ? SIM_E_VALUE : sim_mempool_set(pool, attribute, value);
}

SIM_API int cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    return pool == NULL ? SIM_E_VALUE : sim_mempool_get(pool, attribute, value);
}

SIM_API int cuMemPoolSetAccess(void *pool, const void *descs, size_t n)
{
    (void)descs, (void)n;
    return pool == NULL ? SIM_E_VALUE : SIM_OK;
}

/* ---- virtual memory management */

SIM_API int cuMemGetAllocationGranularity(size_t *out, const struct prop *prop, int option)
{
    (void)prop, (void)option;
    *out = SIM_PAGE;
    return SIM_OK;
}

SIM_API int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t align, uint64_t hint,
                                uint64_t flags)
{
    int device = sim_current();
    uint64_t addr = 0;
    (void)hint, (void)flags;
    int rc = sim_begin(SIM_CALL_RESERVE, device);
    if (rc == SIM_OK) {
        rc = sim_reserve(device, bytes, align, &addr);
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = addr;
    }
    return sim_leave(SIM_CALL_RESERVE, device, addr, bytes, align, rc);
}

SIM_API int cuMemAddressFree(uint64_t addr, size_t bytes)
{
    int device = sim_is_device(PTR(addr)) ? sim_device_of(PTR(addr)) : sim_current();
    int rc = sim_begin(SIM_CALL_UNRESERVE, device);
    if (rc == SIM_OK) {
        rc = sim_unreserve(addr, bytes);
        sim_end();
    }
    return sim_leave(SIM_CALL_UNRESERVE, device, addr, bytes, 0, rc);
}

SIM_API int cuMemCreate(uint64_t *out, size_t bytes, const struct prop *prop, uint64_t flags)
{
    (void)flags;
    bool on_device = prop != NULL && prop->location_type == 1;
    int device = on_device ? prop->location_id : sim_current();
    uint64_t handle = 0;
    if (prop == NULL || sim_start() != SIM_OK || device < 0 || device >= sim_device_count()) {
        return sim_start() != SIM_OK ? SIM_E_INIT : prop == NULL ? SIM_E_VALUE : SIM_E_DEVICE;
    }
    int rc = sim_begin(SIM_CALL_CREATE, device);
    if (rc == SIM_OK) {
        rc = on_device ? sim_create(device, bytes, &handle) : sim_create_host(bytes, &handle);
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = handle;
    }
    return sim_leave(SIM_CALL_CREATE, device, 0, bytes, handle, rc);
}

SIM_API int cuMemRelease(uint64_t handle)
{
    int device = sim_current();
    uint64_t bytes = 0;
    int rc = sim_begin(SIM_CALL_RELEASE, device);
    if (rc == SIM_OK) {
        (void)sim_handle_info(handle, &device, &bytes);
        rc = sim_release(handle);
        sim_end();
    }
    return sim_leave(SIM_CALL_RELEASE, device, 0, bytes, handle, rc);
}

SIM_API int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
    int device = sim_is_device(PTR(addr)) ? sim_device_of(PTR(addr)) : sim_current();
    (void)flags;
    int rc = sim_begin(SIM_CALL_MAP, device);
    if (rc == SIM_OK) {
        rc = sim_map(addr, bytes, offset, handle);
        sim_end();
    }
    return sim_leave(SIM_CALL_MAP, device, addr, bytes, handle, rc);
}

SIM_API int cuMemUnmap(uint64_t addr, size_t bytes)
{
    int device = sim_is_device(PTR(addr)) ? sim_device_of(PTR(addr)) : sim_current();
    int rc = sim_begin(SIM_CALL_UNMAP, device);
    if (rc == SIM_OK) {
        rc = sim_unmap(addr, bytes);
        sim_end();
    }
    return sim_leave(SIM_CALL_UNMAP, device, addr, bytes, 0, rc);
}

SIM_API int cuMemSetAccess(uint64_t addr, size_t bytes, const struct access *descs, size_t n)
{
    int device = sim_is_device(PTR(addr)) ? sim_device_of(PTR(addr)) : sim_current();
    bool on = false;
    for (size_t i = 0; i < n; i++) {
        on = on || descs[i].flags != 0;
    }
    int rc = sim_begin(SIM_CALL_ACCESS, device);
    if (rc == SIM_OK) {
        rc = sim_access(addr, bytes, on);
        sim_end();
    }
    return sim_leave(SIM_CALL_ACCESS, device, addr, bytes, n, rc);
}

SIM_API int cuMemGetAccess(uint64_t *flags, const void *location, uint64_t p)
{
    (void)location;
    *flags = 3;
    return sim_is_device(PTR(p)) ? SIM_OK : SIM_E_VALUE;
}

SIM_API int cuMemRetainAllocationHandle(uint64_t *handle, void *p)
{
    (void)pthread_mutex_lock(&sim_lock);
    int rc = sim_retain_at((uint64_t)(uintptr_t)p, handle);
    sim_end();
    return rc;
}

SIM_API int cuMemGetAllocationPropertiesFromHandle(struct prop *out, uint64_t handle)
{
    int device = 0;
    uint64_t bytes;
    (void)pthread_mutex_lock(&sim_lock);
    int rc = sim_handle_info(handle, &device, &bytes);
    sim_end();
    *out = (struct prop){.type = 1,
                         .handle_types = 1,
                         .location_type = device < 0 ? 2 : 1,
                         .location_id = device < 0 ? 0 : device};
    return rc;
}

/* A handle that travels: its number and its process in an anonymous file. */
struct shared_handle {
    uint64_t magic, handle, bytes;
    int32_t pid, device;
};
#define SHARED_MAGIC 0x53696d48616e646cu

SIM_API int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, uint64_t flags)
{
    (void)flags;
    struct shared_handle h = {.magic = SHARED_MAGIC, .handle = handle, .pid = sim_pid()};
    (void)pthread_mutex_lock(&sim_lock);
    int rc = type == 1 ? sim_handle_info(handle, &h.device, &h.bytes) : SIM_E_NOT_SUPPORTED;
    sim_end();
    int fd = rc == SIM_OK ? memfd_create("plimsoll-sim-handle", MFD_CLOEXEC) : -1;
    if (rc == SIM_OK && (fd < 0 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h)) {
        rc = SIM_E_NOMEM;
    }
    if (rc == SIM_OK) {
        memcpy(out, &fd, sizeof fd);
    }
    return rc;
}

/* In another process the memory is a handle that costs nothing: its owner pays. */
SIM_API int cuMemImportFromShareableHandle(uint64_t *handle, void *os_handle, int type)
{
    struct shared_handle h;
    int fd = (int)(intptr_t)os_handle;
    if (type != 1 || pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != SHARED_MAGIC) {
        return type != 1 ? SIM_E_NOT_SUPPORTED : SIM_E_VALUE;
    }
    (void)pthread_mutex_lock(&sim_lock);
    int rc = h.pid == sim_pid() ? sim_retain(h.handle) : sim_create_host(h.bytes, &h.handle);
    sim_end();
    *handle = h.handle;
    return rc;
}

SIM_API int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t p)
{
    uint64_t b = 0, n = 0;
    (void)pthread_mutex_lock(&sim_lock);
    int rc = sim_extent(PTR(p), &b, &n);
    if (rc != SIM_OK && sim_host_find(PTR(p), &b, &n) != SIM_HOST_NONE) {
        rc = SIM_OK;
    }
    sim_end();
    if (base != NULL) {
        *base = b;
    }
    if (size != NULL) {
        *size = n;
    }
    return rc;
}

/* ---- pointers and copies */

static int pointer_attribute(void *out, int attribute, uint64_t p)
{
    uint64_t base = 0, size = 0;
    int device = sim_device_of(PTR(p));
    (void)pthread_mutex_lock(&sim_lock);
    enum sim_host_kind kind = sim_host_find(PTR(p), &base, &size);
    if (device >= 0) {
        (void)sim_extent(PTR(p), &base, &size);
    }
    sim_end();
    bool known = device >= 0 || kind != SIM_HOST_NONE;
    uint64_t words[] = {
        [1] = (uint64_t)(uintptr_t)sim_context_handle(device < 0 ? sim_current() : device),
        [2] = device >= 0 || kind == SIM_HOST_MANAGED ? 2 : 1,
        [3] = p,
        [4] = p,
        [6] = 0,
        [7] = base,
        [8] = kind == SIM_HOST_MANAGED,
        [9] = (uint64_t)(device < 0 ? sim_current() : device),
        [11] = base,
        [12] = size,
        [13] = known,
    };
    static const uint8_t widths[] = {[1] = 8, [2] = 4, [3] = 8,  [4] = 8,  [6] = 4, [7] = 8,
                                     [8] = 4, [9] = 4, [11] = 8, [12] = 8, [13] = 4};
    if (attribute < 1 || attribute >= (int)sizeof widths || widths[attribute] == 0) {
        return attribute == 10 || attribute > 13 ? SIM_E_NOT_SUPPORTED : SIM_E_VALUE;
    }
    /* The device pointer and "mapped" may be asked of any address; the rest only of known ones. */
    if (!known && attribute != 3 && attribute != 13) {
        return SIM_E_VALUE;
    }
    memcpy(out, &words[attribute], widths[attribute]);
    return SIM_OK;
}

SIM_API int cuPointerGetAttribute(void *out, int attribute, uint64_t p)
{
    int rc = sim_start();
    return rc != SIM_OK ? rc : pointer_attribute(out, attribute, p);
}

SIM_API int cuPointerGetAttributes(unsigned n, int *attributes, void **out, uint64_t p)
{
    int rc = sim_start();
    for (unsigned i = 0; rc == SIM_OK && i < n; i++) {
        if (pointer_attribute(out[i], attributes[i], p) != SIM_OK) {
            memset(out[i], 0, 4);
        }
    }
    return rc;
}

SIM_API int cuMemcpy(uint64_t to, uint64_t from, size_t bytes)
{
    return sim_call_copy(PTR(to), PTR(from), bytes, NULL, false);
}

SIM_API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    return sim_call_copy(PTR(to), PTR(from), bytes, stream, true);
}

SIM_API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    return sim_call_copy(PTR(to), from, bytes, NULL, false);
}

SIM_API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    return sim_call_copy(to, PTR(from), bytes, NULL, false);
}

SIM_API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
    return sim_call_copy(PTR(to), PTR(from), bytes, NULL, false);
}

SIM_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    return sim_call_copy(PTR(to), from, bytes, stream, true);
}

SIM_API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    return sim_call_copy(to, PTR(from), bytes, stream, true);
}

SIM_API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    return sim_call_copy(PTR(to), PTR(from), bytes, stream, true);
}

/* CUDA 12.8's form has an index of the failed copy before the stream; CUDA 13's does not. */
SIM_API int cuMemcpyBatchAsync_v2(const uint64_t *to, const uint64_t *from, const size_t *bytes,
                                  size_t n, void *attributes, size_t *indices, size_t n_attributes,
                                  void *stream)
{
    (void)attributes, (void)indices, (void)n_attributes;
    int rc = SIM_OK;
    for (size_t i = 0; rc == SIM_OK && i < n; i++) {
        rc = sim_call_copy(PTR(to[i]), PTR(from[i]), bytes[i], stream, true);
    }
    return rc;
}

SIM_API int cuMemcpyBatchAsync(const uint64_t *to, const uint64_t *from, const size_t *bytes,
                               size_t n, void *attributes, size_t *indices, size_t n_attributes,
                               size_t *failed, void *stream)
{
    (void)failed;
    return cuMemcpyBatchAsync_v2(to, from, bytes, n, attributes, indices, n_attributes, stream);
}

SIM_API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t n)
{
    return sim_call_fill(PTR(to), value, n, NULL);
}

SIM_API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *stream)
{
    return sim_call_fill(PTR(to), value, n, stream);
}

/* Words of 32 bits, on the host when the memory is pinned. */
SIM_API int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *stream)
{
    int rc = sim_call_fill(PTR(to), 0, 0, stream);
    for (size_t i = 0; rc == SIM_OK && !sim_is_device(PTR(to)) && i < n; i++) {
        memcpy((char *)PTR(to) + i * 4, &value, 4);
    }
    return rc;
}

SIM_API int cuMemsetD32_v2(uint64_t to, unsigned value, size_t n)
{
    return cuMemsetD32Async(to, value, n, NULL);
}

SIM_API int cuMemPrefetchAsync_v2(uint64_t p, size_t bytes, struct location to, unsigned flags,
                                  void *stream)
{
    (void)bytes, (void)flags, (void)stream;
    int rc = sim_begin(SIM_CALL_MEMCPY, sim_current());
    if (rc == SIM_OK) {
        rc = sim_host_prefetch(PTR(p), to.type == 1 ? to.id : -1);
        sim_end();
    }
    return rc;
}
