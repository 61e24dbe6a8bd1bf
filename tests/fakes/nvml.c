/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A made-up libnvidia-ml.so.1 for tests: two devices, of which the second does not report its memory.
 * FAKE_NVML_INIT=N makes nvmlInit fail with N; FAKE_NVML_GPUS=N is the number of devices.
 * Names and structures: NVML API reference r550.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *text, unsigned n);
int nvmlSystemGetNVMLVersion(char *text, unsigned n);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *text, unsigned n);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);

#define EXPORT __attribute__((visibility("default")))

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

EXPORT int nvmlInit_v2(void)
{
    return number("FAKE_NVML_INIT", 0);
}

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : "Driver Not Loaded";
}

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned n)
{
    snprintf(text, n, "550.54.15");
    return 0;
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned n)
{
    snprintf(text, n, "12.550.54.15");
    return 0;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12040;
    return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)number("FAKE_NVML_GPUS", 2);
    return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char devices[2];
    if (index >= 2) {
        return 15; /* NVML_ERROR_GPU_IS_LOST */
    }
    *device = &devices[index];
    return 0;
}

EXPORT int nvmlDeviceGetName(void *device, char *text, unsigned n)
{
    (void)device;
    snprintf(text, n, "Pretend GPU 24G");
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    static const void *first;
    first = first ? first : device;
    if (device != first) {
        return 3; /* NVML_ERROR_NOT_SUPPORTED */
    }
    *memory =
        (struct memory){.total = 25769803776ULL, .free = 23622320128ULL, .used = 2147483648ULL};
    return 0;
}
