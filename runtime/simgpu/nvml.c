/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML, answering from the same books. Struct layouts and return codes as in nvidia-ml-py 13; the
 * total differs from CUDA's, as on real cards. A handle is an address that stands for its device.
 * What breaks in the field can be scripted: nvml_fault.c.
 */

#include "nvml.h"
#include "sim.h"
#include <stdio.h>
#include <string.h>

static char handles[SIM_MAX_DEVICES];

static int device_of(const void *handle)
{
    ptrdiff_t d = (const char *)handle - handles;
    return d >= 0 && d < sim_device_count() ? (int)d : -1;
}

/* What every call does first: fail as the script says. */
#define FAULT(device)                                                                              \
    int fault = sim_nvml_fault(__func__, device);                                                  \
    if (fault != NVML_OK) {                                                                        \
        return fault;                                                                              \
    }

#define DEVICE(handle)                                                                             \
    int device = device_of(handle);                                                                \
    if (device < 0) {                                                                              \
        return NVML_ARGUMENT;                                                                      \
    }                                                                                              \
    FAULT(device)

SIM_API int nvmlInit_v2(void)
{
    FAULT(-1)
    return sim_start() == SIM_OK ? NVML_OK : NVML_UNINITIALIZED;
}

SIM_API int nvmlInit(void)
{
    return nvmlInit_v2();
}

SIM_API int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

SIM_API int nvmlShutdown(void)
{
    return NVML_OK;
}

SIM_API const char *nvmlErrorString(int code)
{
    static const char *const texts[] = {"Success",
                                        "Uninitialized",
                                        "Invalid Argument",
                                        "Not Supported",
                                        "No Permission",
                                        "Already Initialized",
                                        "Not Found",
                                        "Insufficient Size",
                                        "Unknown Error",
                                        "Driver Not Loaded",
                                        "Timeout",
                                        "Unknown Error",
                                        "Unknown Error",
                                        "Function Not Found",
                                        "Unknown Error",
                                        "GPU is lost",
                                        "Unknown Error",
                                        "Unknown Error",
                                        "Driver/library version mismatch"};
    return code >= 0 && code < 19 ? texts[code] : "Unknown Error";
}

SIM_API int nvmlSystemGetDriverVersion(char *out, unsigned n)
{
    (void)snprintf(out, n, "580.95.05");
    return NVML_OK;
}

SIM_API int nvmlSystemGetNVMLVersion(char *out, unsigned n)
{
    (void)snprintf(out, n, "13.580.95.05");
    return NVML_OK;
}

SIM_API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13000;
    return NVML_OK;
}

SIM_API int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

SIM_API int nvmlDeviceGetCount_v2(unsigned *n)
{
    FAULT(-1)
    int rc = nvmlInit_v2();
    *n = rc == NVML_OK ? (unsigned)sim_device_count() : 0;
    return rc;
}

SIM_API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
    if (nvmlInit_v2() != NVML_OK || i >= (unsigned)sim_device_count()) {
        return NVML_ARGUMENT;
    }
    FAULT((int)i)
    *out = &handles[i];
    return NVML_OK;
}

void *sim_nvml_handle(int device)
{
    return &handles[device];
}

static void uuid_text(int device, char *out, size_t n)
{
    char u[16], hex[33];
    sim_uuid(device, u);
    for (int i = 0; i < 16; i++) {
        (void)snprintf(hex + (size_t)i * 2, 3, "%02x", (unsigned)(unsigned char)u[i]);
    }
    (void)snprintf(out, n, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
                   hex + 20);
}

SIM_API int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    for (int d = 0; d < sim_device_count(); d++) {
        char text[48];
        uuid_text(d, text, sizeof text);
        if (strcmp(text, uuid) == 0) {
            *out = &handles[d];
            return NVML_OK;
        }
    }
    return NVML_NOT_FOUND;
}

SIM_API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **out)
{
    unsigned domain, bus;
    if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || bus == 0) {
        return NVML_ARGUMENT;
    }
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, out);
}

SIM_API int nvmlDeviceGetIndex(void *handle, unsigned *out)
{
    DEVICE(handle)
    *out = (unsigned)device;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetMinorNumber(void *handle, unsigned *out)
{
    return nvmlDeviceGetIndex(handle, out);
}

SIM_API int nvmlDeviceGetName(void *handle, char *out, unsigned n)
{
    DEVICE(handle)
    (void)snprintf(out, n, "%s", sim_card(device)->name);
    return NVML_OK;
}

SIM_API int nvmlDeviceGetUUID(void *handle, char *out, unsigned n)
{
    DEVICE(handle)
    uuid_text(device, out, n);
    return NVML_OK;
}

SIM_API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    DEVICE(handle)
    *major = sim_card(device)->cc_major;
    *minor = sim_card(device)->cc_minor;
    return NVML_OK;
}

/* ---- memory */

/* Used as NVML sees it: the difference of the totals is the driver's own. */
static uint64_t used_of(int device, uint64_t *total)
{
    struct sim_usage u;
    sim_usage(device, &u);
    *total = u.nvml_total;
    return u.used + (u.nvml_total - u.total);
}

struct memory { /* nvmlMemory_t */
    uint64_t total, free, used;
};

SIM_API int nvmlDeviceGetMemoryInfo(void *handle, struct memory *out)
{
    DEVICE(handle)
    out->used = used_of(device, &out->total);
    out->free = out->total - out->used;
    return NVML_OK;
}

struct memory_v2 { /* nvmlMemory_v2_t; version 0x02000028 */
    unsigned version;
    uint64_t total, reserved, free, used;
};

SIM_API int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out)
{
    DEVICE(handle)
    if (out->version != 0x02000028u) {
        return NVML_VERSION;
    }
    uint64_t used = used_of(device, &out->total);
    out->reserved = out->total - sim_card(device)->total;
    out->used = used - out->reserved;
    out->free = out->total - used;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetBAR1MemoryInfo(void *handle, struct memory *out)
{
    DEVICE(handle)
    uint64_t total;
    (void)used_of(device, &total);
    out->total = (uint64_t)1 << (64 - __builtin_clzll(total));
    out->used = 2 << 20;
    out->free = out->total - out->used;
    return NVML_OK;
}

struct process_v1 { /* the unsuffixed symbol */
    unsigned pid;
    uint64_t bytes;
};

struct process_v3 { /* _v2 and _v3 */
    unsigned pid;
    uint64_t bytes;
    unsigned gpu_instance, compute_instance;
};

#define PROCESSES_MAX 256

SIM_API int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *n, struct process_v1 *out)
{
    struct sim_process all[PROCESSES_MAX];
    DEVICE(handle)
    unsigned room = *n, count = sim_processes(device, all, PROCESSES_MAX);
    *n = count;
    for (unsigned i = 0; i < count && i < room; i++) {
        out[i] = (struct process_v1){(unsigned)all[i].pid, all[i].bytes};
    }
    return count > room ? NVML_SMALL : NVML_OK;
}

SIM_API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n,
                                                    struct process_v3 *out)
{
    struct sim_process all[PROCESSES_MAX];
    DEVICE(handle)
    unsigned room = *n, count = sim_processes(device, all, PROCESSES_MAX);
    *n = count;
    for (unsigned i = 0; i < count && i < room; i++) {
        out[i] = (struct process_v3){(unsigned)all[i].pid, all[i].bytes, ~0u, ~0u};
    }
    return count > room ? NVML_SMALL : NVML_OK;
}

SIM_API int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *n,
                                                    struct process_v3 *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, n, out);
}

/* Nobody draws, and there is no MPS server. */
#define NOBODY(name)                                                                               \
    SIM_API int name(void *handle, unsigned *n, void *out)                                         \
    {                                                                                              \
        DEVICE(handle)                                                                             \
        (void)device, (void)out;                                                                   \
        *n = 0;                                                                                    \
        return NVML_OK;                                                                            \
    }
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)

struct process_detail { /* nvmlProcessDetail_v1_t */
    unsigned pid;
    uint64_t bytes;
    unsigned gpu_instance, compute_instance;
    uint64_t protected_bytes;
};

struct detail_list { /* nvmlProcessDetailList_v1_t; version 0x01000018 */
    unsigned version, mode, n;
    struct process_detail *list;
};

SIM_API int nvmlDeviceGetRunningProcessDetailList(void *handle, struct detail_list *out)
{
    struct sim_process all[PROCESSES_MAX];
    DEVICE(handle)
    if (out->version != 0x01000018u) {
        return NVML_VERSION;
    }
    bool computing = out->mode == 0 || out->mode == 3; /* 3: all kinds */
    unsigned room = out->n, count = computing ? sim_processes(device, all, PROCESSES_MAX) : 0;
    out->n = count;
    for (unsigned i = 0; i < count && i < room; i++) {
        out->list[i] = (struct process_detail){(unsigned)all[i].pid, all[i].bytes, ~0u, ~0u, 0};
    }
    return count > room ? NVML_SMALL : NVML_OK;
}

/* ---- the rest that monitors ask for */

struct pci { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

SIM_API int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *out)
{
    DEVICE(handle)
    memset(out, 0, sizeof *out);
    out->bus = ((unsigned)device + 1) & 0xff;
    (void)snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    (void)snprintf(out->text, sizeof out->text, "00000000:%02X:00.0", out->bus);
    return NVML_OK;
}

SIM_API int nvmlDeviceGetUtilizationRates(void *handle, unsigned *out)
{
    DEVICE(handle)
    (void)device;
    out[0] = out[1] = 0; /* nothing runs */
    return NVML_OK;
}

SIM_API int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out)
{
    DEVICE(handle)
    (void)device, (void)sensor;
    *out = 40;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetPowerUsage(void *handle, unsigned *out)
{
    DEVICE(handle)
    (void)device;
    *out = 70000;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *out)
{
    DEVICE(handle)
    (void)type;
    *out = (unsigned)sim_attribute(device, 13) / 1000;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *out)
{
    (void)index;
    *out = 0; /* fine */
    return device_of(a) < 0 || device_of(b) < 0 ? NVML_ARGUMENT : NVML_OK;
}

struct fabric { /* nvmlGpuFabricInfoV_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

/* No NVLink fabric: state 0, "not supported". */
SIM_API int nvmlDeviceGetGpuFabricInfoV(void *handle, struct fabric *out)
{
    DEVICE(handle)
    (void)device;
    unsigned version = out->version;
    memset(out, 0, sizeof *out);
    out->version = version;
    return NVML_OK;
}

SIM_API int nvmlDeviceGetCpuAffinity(void *handle, unsigned n, unsigned long *mask)
{
    DEVICE(handle)
    (void)device;
    memset(mask, 0xff, n * sizeof *mask);
    return NVML_OK;
}
