/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_RECORDED_DRIVER_H
#define PLIM_TESTS_RECORDED_DRIVER_H

/* The made-up driver of recorded_driver.c: what tests set, and the functions they call. */

#include <stddef.h>
#include <stdint.h>

struct fake_driver {
    uint64_t next; /* address of the next thing */
    uint64_t used; /* bytes used on the device, as the driver and NVML say */
    uint64_t cost; /* bytes that the next context, module, graph or limit takes, once */
    int result;    /* what the next call returns, once; 0 is success */
};
extern struct fake_driver fake;

struct fake_ipc {
    char bytes[64];
};

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *p);
int cuDeviceGetCount(int *n);
int cuCtxGetDevice(int *device);
int cuDeviceGetPCIBusId(char *text, int n, int device);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
int cuDevicePrimaryCtxRetain(void **out, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetLimit(int limit, size_t value);
int cuMemAlloc_v2(uint64_t *out, size_t bytes);
int cuMemFree_v2(uint64_t addr);
int cuIpcOpenMemHandle_v2(uint64_t *out, struct fake_ipc handle, unsigned flags);
int cuIpcCloseMemHandle(uint64_t addr);
int cuArray3DCreate_v2(void **out, const void *desc);
int cuArrayDestroy(void *array);
int cuModuleLoadData(void **out, const void *image);
int cuModuleUnload(void *module);
int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags);
int cuGraphLaunch(void *exec, void *stream);
int cuGraphExecDestroy(void *exec);
int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);

#endif
