/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What breaks in the field, scripted. PLIMSOLL_SIM_NVML names a file that is read at each call, so
 * that a test can change it while a monitor runs. Lines:
 *
 *   CALL CODE           the call fails with NVML's code: "DeviceGetMemoryInfo_v2 3"
 *   CALL hang SECONDS   it answers so much later
 *   N CALL ...          the same for device N only
 *   xid DEVICE NUMBER   a critical error, told once to each process that waits for events
 *
 * CALL is the function's name without "nvml"; a * at its end stands for any rest. The first line
 * that fits counts. Only calls that are written in C can fail: REAL in hooks.def.
 */

#include "nvml.h"
#include "sim.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCRIPT_BYTES 4096

static bool read_script(char text[SCRIPT_BYTES])
{
    const char *path = getenv("PLIMSOLL_SIM_NVML");
    int fd = path != NULL && path[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, SCRIPT_BYTES - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The next line, cut out of the text, or NULL. */
static char *next_line(char **rest)
{
    char *line = *rest;
    if (line == NULL || *line == '\0') {
        return NULL;
    }
    char *end = strchr(line, '\n');
    *rest = end == NULL ? NULL : end + 1;
    if (end != NULL) {
        *end = '\0';
    }
    return line;
}

static bool fits(const char *pattern, size_t n, const char *name)
{
    bool open = n > 0 && pattern[n - 1] == '*';
    n -= open;
    return strncmp(pattern, name, n) == 0 && (open || name[n] == '\0');
}

static void hang(const char *seconds)
{
    double s = strtod(seconds, NULL);
    s = s > 0 && s < 3600 ? s : 0;
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) != 0) {
    }
}

int sim_nvml_fault(const char *function, int device)
{
    char text[SCRIPT_BYTES], *rest = text, *line;
    const char *name = strncmp(function, "nvml", 4) == 0 ? function + 4 : function;
    if (!read_script(text)) {
        return NVML_OK;
    }
    while ((line = next_line(&rest)) != NULL) {
        char *call = line;
        if (*line >= '0' && *line <= '9') {
            long only = strtol(line, &call, 10);
            call += strspn(call, " ");
            if (only != device) {
                continue;
            }
        }
        size_t n = strcspn(call, " ");
        if (n == 0 || !fits(call, n, name)) {
            continue;
        }
        call += n + strspn(call + n, " ");
        if (strncmp(call, "hang", 4) == 0) {
            hang(call + 4);
            return NVML_OK;
        }
        return (int)strtol(call, NULL, 10);
    }
    return NVML_OK;
}

unsigned sim_nvml_xid(int *device)
{
    static _Atomic unsigned told; /* lines of the script that this process knows */
    char text[SCRIPT_BYTES], *rest = text, *line;
    unsigned number = 0;
    if (!read_script(text)) {
        return 0;
    }
    while ((line = next_line(&rest)) != NULL) {
        if (strncmp(line, "xid ", 4) == 0 && number++ == told) {
            char *end;
            told++;
            *device = (int)strtol(line + 4, &end, 10);
            return *device >= 0 && *device < sim_device_count() ? (unsigned)strtoul(end, NULL, 10)
                                                                : 0;
        }
    }
    return 0;
}

/* ---- events */

struct event_data { /* nvmlEventData_t */
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

SIM_API int nvmlEventSetCreate(void **set)
{
    static char only;
    *set = &only;
    return sim_nvml_fault(__func__, -1);
}

SIM_API int nvmlEventSetFree(void *set)
{
    (void)set;
    return NVML_OK;
}

SIM_API int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
    (void)handle, (void)types, (void)set;
    return sim_nvml_fault(__func__, -1);
}

SIM_API int nvmlEventSetWait_v2(void *set, struct event_data *out, unsigned timeout_ms)
{
    int device = 0;
    (void)set, (void)timeout_ms;
    unsigned xid = sim_nvml_xid(&device);
    if (xid == 0) {
        return NVML_TIMEOUT;
    }
    *out = (struct event_data){sim_nvml_handle(device), 8, xid, ~0u, ~0u}; /* 8: critical Xid */
    return NVML_OK;
}

SIM_API int nvmlEventSetWait(void *set, struct event_data *out, unsigned timeout_ms)
{
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}
