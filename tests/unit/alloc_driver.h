/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_ALLOC_DRIVER_H
#define PLIM_TESTS_ALLOC_DRIVER_H

/*
 * A made-up driver inside of the test program: device memory is host memory whose contents are lost when it is unmapped.
 * What the plug-in's lock protects is not protected here, so that ThreadSanitizer sees when it does not.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define MIB   ((size_t)1 << 20)
#define TOTAL (512 * MIB)

#pragma GCC visibility push(default) /* the plug-in looks its driver up by name */

static size_t used;                /* bytes of handles */
static unsigned long long handles; /* made so far; a handle is its size and a number */
static atomic_int balance_broken;
static _Thread_local int depth; /* contexts pushed by this thread */

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal > 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 102; /* virtual memory management */
    return 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device, (void)peer;
    *can = 0;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = &used;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    (void)context;
    depth++;
    return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = &used;
    depth--;
    return 0;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    *available = TOTAL - used;
    *total = TOTAL;
    return 0;
}

int cuMemAddressReserve(uint64_t *addr, size_t size, size_t align, uint64_t hint,
                        unsigned long long flags)
{
    (void)hint, (void)flags;
    void *p = mmap(NULL, size + align, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *addr = ((uint64_t)(uintptr_t)p + align - 1) & ~(uint64_t)(align - 1);
    return p == MAP_FAILED;
}

int cuMemAddressFree(uint64_t addr, size_t size)
{
    (void)addr, (void)size;
    return 0;
}

int cuMemCreate(unsigned long long *handle, size_t size, const void *prop, unsigned long long flags)
{
    (void)prop, (void)flags;
    if (depth == 0 || used + size > TOTAL) {
        return 2;
    }
    used += size;
    *handle = ++handles << 32 | size / MIB;
    return 0;
}

int cuMemRelease(unsigned long long handle)
{
    used -= (handle & UINT32_MAX) * MIB;
    return 0;
}

int cuMemMap(uint64_t addr, size_t size, size_t offset, unsigned long long handle,
             unsigned long long flags)
{
    (void)addr, (void)offset, (void)flags;
    return depth == 0 || size != (handle & UINT32_MAX) * MIB;
}

int cuMemUnmap(uint64_t addr, size_t size)
{
    madvise((void *)(uintptr_t)addr, size, MADV_DONTNEED); /* what was in it is lost */
    return 0;
}

int cuMemSetAccess(uint64_t addr, size_t size, const void *desc, size_t count)
{
    (void)addr, (void)size, (void)desc, (void)count;
    return 0;
}

int cuMemcpyDtoH_v2(void *host, uint64_t addr, size_t size)
{
    memcpy(host, (const void *)(uintptr_t)addr, size);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t addr, const void *host, size_t size)
{
    memcpy((void *)(uintptr_t)addr, host, size);
    return 0;
}

int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    *event = &handles;
    return 0;
}

int cuEventDestroy_v2(void *event)
{
    (void)event;
    return 0;
}

int cuEventRecord(void *event, void *stream)
{
    (void)event, (void)stream;
    return 0;
}

int cuEventQuery(void *event)
{
    (void)event;
    return 0;
}

int cuEventSynchronize(void *event)
{
    (void)event;
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = 0;
    return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    (void)mode;
    return 0;
}

#pragma GCC visibility pop

#endif
