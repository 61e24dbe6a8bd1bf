/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up driver with a runtime on top of it, for tests of the recorder: its runtime calls its driver, its
 * memory has a price that tests set, and its cuGetProcAddress hands out other addresses than it exports.
 *
 * One device. Nothing is freed that tests look at: addresses only grow.
 */

#include "recorded_driver.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

API struct fake_driver fake = {.next = 0x7000000000};

static int outcome(void)
{
    int result = fake.result;
    if (result != 0) {
        fake.result = 0;
    }
    return result;
}

static uint64_t place(uint64_t bytes)
{
    uint64_t pages = (bytes + 0x1fffff) & ~(uint64_t)0x1fffff;
    return __atomic_fetch_add(&fake.next, pages, __ATOMIC_RELAXED);
}

/* What a call costs that nobody asked for by size. */
static void pay(void)
{
    (void)__atomic_fetch_add(&fake.used, fake.cost, __ATOMIC_RELAXED);
    fake.cost = 0;
}

/* ---- driver */

API int cuDeviceGetCount(int *n)
{
    *n = 1;
    return 0;
}

API int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

API int cuDeviceGetPCIBusId(char *text, int n, int device)
{
    (void)device;
    (void)strncpy(text, "0000:01:00.0", (size_t)n);
    return 0;
}

API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *total = (size_t)1 << 40;
    *free_bytes = *total - __atomic_load_n(&fake.used, __ATOMIC_RELAXED);
    return 0;
}

API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    (void)device;
    *out = &fake;
    pay();
    return outcome();
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return outcome();
}

API int cuCtxSetLimit(int limit, size_t value)
{
    (void)limit, (void)value;
    pay();
    return outcome();
}

API int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    int rc = outcome();
    if (rc == 0) {
        *out = place(bytes);
    }
    return rc;
}

API int cuMemFree_v2(uint64_t addr)
{
    (void)addr;
    return outcome();
}

API int cuIpcOpenMemHandle_v2(uint64_t *out, struct fake_ipc handle, unsigned flags)
{
    (void)flags;
    *out = place(handle.bytes[0] == 'i' ? 1 : 0);
    return outcome();
}

API int cuIpcCloseMemHandle(uint64_t addr)
{
    (void)addr;
    return outcome();
}

API int cuArray3DCreate_v2(void **out, const void *desc)
{
    (void)desc;
    *out = (void *)(uintptr_t)place(1);
    return outcome();
}

API int cuArrayDestroy(void *array)
{
    (void)array;
    return outcome();
}

API int cuModuleLoadData(void **out, const void *image)
{
    (void)image;
    pay();
    *out = (void *)(uintptr_t)place(1);
    return outcome();
}

API int cuModuleUnload(void *module)
{
    (void)module;
    return outcome();
}

API int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    pay();
    *out = (void *)(uintptr_t)place(1);
    return outcome();
}

API int cuGraphLaunch(void *exec, void *stream)
{
    (void)exec, (void)stream;
    pay();
    return outcome();
}

API int cuGraphExecDestroy(void *exec)
{
    (void)exec;
    return outcome();
}

/* ---- functions by name: four shapes of cuCtxCreate, at addresses of their own */

static int create_2(void **out, unsigned flags, int device)
{
    (void)flags, (void)device;
    *out = (void *)(uintptr_t)place(2);
    return 0;
}

static int create_4(void **out, void *params, unsigned flags, int device)
{
    (void)params, (void)flags, (void)device;
    *out = (void *)(uintptr_t)place(4);
    return 0;
}

static int create_next(void)
{
    return 77;
}

static int alloc_inside(uint64_t *out, size_t bytes)
{
    *out = place(bytes);
    return 0;
}

API int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
                            int *status)
{
    int found = 0;
    (void)flags;
    *out = NULL;
    if (strcmp(symbol, "cuCtxCreate") == 0) {
        *out = version >= 14000   ? (void *)create_next
               : version >= 12050 ? (void *)create_4
                                  : (void *)create_2;
    } else if (strcmp(symbol, "cuMemAlloc") == 0) {
        *out = (void *)alloc_inside;
    } else {
        found = 1;
    }
    if (status != NULL) {
        *status = found;
    }
    return 0;
}

/* ---- runtime: on top of the driver, as the real one is */

API int cudaMalloc(void **out, size_t bytes)
{
    uint64_t addr = 0;
    int rc = cuMemAlloc_v2(&addr, bytes);
    if (rc == 0) {
        *out = (void *)(uintptr_t)addr;
    }
    return rc;
}

API int cudaFree(void *p)
{
    return cuMemFree_v2((uint64_t)(uintptr_t)p);
}

/* ---- NVML */

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instance[2];
};

API int nvmlInit_v2(void)
{
    return 0;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    (void)bus;
    *out = &fake;
    return 0;
}

API int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    (void)device;
    memory[2] = fake.used;
    return 0;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *list)
{
    (void)device;
    *n = 1;
    list[0] = (struct process){.pid = (unsigned)getpid(), .used = fake.used};
    return 0;
}
