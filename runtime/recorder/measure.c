/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes a device has in use: by the driver, and by NVML.
 *
 * The driver answers for the current context only, so what a context itself costs is asked of NVML:
 * what this process uses on that device, or, where NVML does not list it (another pid namespace,
 * WDDM), what everybody uses. NVML is loaded at the first context, which takes far longer than that.
 *
 * Source: NVML API reference, nvmlDeviceGetMemoryInfo, nvmlDeviceGetComputeRunningProcesses_v3.
 */

#include "record.h"

#include <dlfcn.h>
#include <unistd.h>

#define PROCESSES     256
#define NOT_AVAILABLE UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE */

bool plim__used(uint64_t *bytes)
{
    size_t free_bytes, total;
    int (*info)(size_t *, size_t *) = plim__helper(PLIM__HELP_cuMemGetInfo_v2);
    if (info == NULL || info(&free_bytes, &total) != 0) {
        return false;
    }
    *bytes = total - free_bytes;
    return true;
}

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static struct {
    int state; /* 0 not tried, 1 there, 2 not there */
    int (*by_bus)(const char *, void **);
    int (*memory)(void *, struct memory *);
    int (*processes)(void *, unsigned *, struct process *);
} nvml;

static bool load(void)
{
    int (*init)(void);
    if (nvml.state != 0) {
        return nvml.state == 1;
    }
    nvml.state = 2;
    void *library = RTLD_DEFAULT; /* a simulated device answers by name */
    init = plim__real_dlsym(library, "nvmlInit_v2");
    if (init == NULL) {
        library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
        init = library == NULL ? NULL : plim__real_dlsym(library, "nvmlInit_v2");
    }
    if (init == NULL || init() != 0) {
        return false;
    }
    nvml.by_bus = plim__real_dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    nvml.memory = plim__real_dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvml.processes = plim__real_dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    nvml.state = nvml.by_bus != NULL && nvml.memory != NULL ? 1 : 2;
    return nvml.state == 1;
}

bool plim__nvml_used(unsigned device, uint64_t *bytes, bool *whole)
{
    static struct process
        list[PROCESSES]; /* contexts begin one at a time; a torn list is an estimate */
    char bus[32];
    void *handle;
    unsigned n = PROCESSES;
    int (*bus_id)(char *, int, int) = plim__helper(PLIM__HELP_cuDeviceGetPCIBusId);
    if (bus_id == NULL || !load() || bus_id(bus, sizeof bus, (int)device) != 0 ||
        nvml.by_bus(bus, &handle) != 0) {
        return false;
    }
    *whole = false;
    if (nvml.processes != NULL && nvml.processes(handle, &n, list) == 0) {
        for (unsigned i = 0; i < n && i < PROCESSES; i++) {
            if (list[i].pid == (unsigned)getpid() && list[i].used != NOT_AVAILABLE) {
                *bytes = list[i].used;
                return true;
            }
        }
    }
    struct memory memory;
    *whole = true;
    if (nvml.memory(handle, &memory) != 0) {
        return false;
    }
    *bytes = memory.used;
    return true;
}
