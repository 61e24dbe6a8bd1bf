/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A made-up libnvidia-ml.so.1 for benchmarks: FAKE_NVML_GPUS devices (8), whose processes are the
 * pids in the file FAKE_NVML_PIDS, a line each, dealt out in turn. Answers cost next to nothing, so
 * that what is measured is who asks. The bytes of a process move a little with each question.
 * Names and structures: NVML API reference r550.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT    __attribute__((visibility("default")))
#define DEVICES   16
#define PIDS      4096
#define TOTAL     (UINT64_C(80) << 30)
#define EACH      (UINT64_C(2) << 30)
#define ARGUMENT  2
#define SMALL     7
#define NO_EVENTS 10 /* TIMEOUT */

static char handles[DEVICES];
static unsigned pids[PIDS], n_pids, n_devices;
static uint64_t asked;

struct memory {
    uint64_t total, free, used;
};
struct memory2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
struct process {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
struct rates {
    unsigned gpu, memory;
};

EXPORT int nvmlInit_v2(void)
{
    const char *path = getenv("FAKE_NVML_PIDS"), *gpus = getenv("FAKE_NVML_GPUS");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    n_devices = gpus != NULL ? (unsigned)atoi(gpus) : 8;
    n_devices = n_devices > DEVICES ? DEVICES : n_devices;
    n_pids = 0;
    while (file != NULL && n_pids < PIDS && fscanf(file, "%u", &pids[n_pids]) == 1) {
        n_pids++;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return 0;
}

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT const char *nvmlErrorString(int code)
{
    return code == 0 ? "Success" : "Not Supported";
}

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned n)
{
    (void)snprintf(text, n, "550.54.15");
    return 0;
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned n)
{
    (void)snprintf(text, n, "12.550.54.15");
    return 0;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12040;
    return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = n_devices;
    return 0;
}

static int index_of(const void *device)
{
    long i = (const char *)device - handles;
    return i >= 0 && i < (long)n_devices ? (int)i : -1;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= n_devices) {
        return ARGUMENT;
    }
    *device = &handles[index];
    return 0;
}

EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index)
{
    *index = (unsigned)index_of(device);
    return 0;
}

EXPORT int nvmlDeviceGetName(void *device, char *text, unsigned n)
{
    (void)device;
    (void)snprintf(text, n, "NVIDIA H100 80GB HBM3");
    return 0;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned n)
{
    (void)snprintf(text, n, "GPU-%08x-0000-4000-8000-00000000beef", (unsigned)index_of(device));
    return 0;
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out)
{
    memset(out, 0, sizeof(*out));
    out->bus = 0x10u + (unsigned)index_of(device);
    (void)snprintf(out->legacy, sizeof(out->legacy), "0000:%02x:00.0", out->bus);
    (void)snprintf(out->text, sizeof(out->text), "00000000:%02X:00.0", out->bus);
    return 0;
}

/* Processes of a device; @out may be NULL. */
static unsigned list(int device, struct process *out, unsigned room)
{
    unsigned n = 0;
    asked++;
    for (unsigned i = (unsigned)device; i < n_pids; i += n_devices, n++) {
        if (n < room) {
            out[n] = (struct process){pids[i], EACH + (asked * 4096 + i) % (1u << 20), ~0u, ~0u};
        }
    }
    return n;
}

static uint64_t used_by(int device)
{
    unsigned n = list(device, NULL, 0);
    return n * EACH + (UINT64_C(1) << 30);
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
    out->total = TOTAL;
    out->used = used_by(index_of(device));
    out->free = TOTAL - out->used;
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *out)
{
    out->total = TOTAL;
    out->reserved = UINT64_C(600) << 20;
    out->used = used_by(index_of(device));
    out->free = TOTAL - out->used - out->reserved;
    return 0;
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(void *device, struct memory *out)
{
    (void)device;
    *out = (struct memory){UINT64_C(128) << 30, UINT64_C(127) << 30, UINT64_C(1) << 30};
    return 0;
}

EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct rates *out)
{
    *out = (struct rates){(unsigned)(50 + asked % 50), (unsigned)index_of(device)};
    return 0;
}

EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    (void)device, (void)sensor;
    *out = 61;
    return 0;
}

EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    (void)device;
    *out = 412345;
    return 0;
}

EXPORT int nvmlDeviceGetClockInfo(void *device, int type, unsigned *out)
{
    (void)device;
    *out = type == 2 ? 2619 : 1980;
    return 0;
}

static int processes(void *device, unsigned *count, struct process *out)
{
    unsigned room = *count;
    *count = list(index_of(device), out, room);
    return *count > room ? SMALL : 0;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                   struct process *out)
{
    return processes(device, count, out);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count,
                                                   struct process *out)
{
    return processes(device, count, out);
}

static int nobody(void *device, unsigned *count, struct process *out)
{
    (void)device, (void)out;
    *count = 0;
    return 0;
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count,
                                                    struct process *out)
{
    return nobody(device, count, out);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *count,
                                                    struct process *out)
{
    return nobody(device, count, out);
}

EXPORT int nvmlEventSetCreate(void **set)
{
    *set = handles;
    return 0;
}

EXPORT int nvmlDeviceRegisterEvents(void *device, uint64_t types, void *set)
{
    (void)device, (void)types, (void)set;
    return 0;
}

EXPORT int nvmlEventSetWait_v2(void *set, void *event, unsigned timeout)
{
    (void)set, (void)event, (void)timeout;
    return NO_EVENTS;
}

EXPORT int nvmlEventSetFree(void *set)
{
    (void)set;
    return 0;
}
