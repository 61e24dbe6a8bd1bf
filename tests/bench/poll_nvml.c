/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One poll as a script around nvidia-smi makes it: a new process opens NVML, asks every device for its
 * memory, load and processes, reads each process's name, prints, and ends. Only the driver's library
 * differs from nvidia-smi's own work: it costs nothing to start.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PROCESSES 1024

struct memory {
    uint64_t total, free, used;
};
struct process {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance;
};

static int (*init)(void), (*count_of)(unsigned *), (*handle_of)(unsigned, void **);
static int (*name_of)(void *, char *, unsigned), (*memory_of)(void *, struct memory *);
static int (*rates_of)(void *, unsigned *), (*power_of)(void *, unsigned *);
static int (*temperature_of)(void *, int, unsigned *);
static int (*processes_of)(void *, unsigned *, struct process *);

static int find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static int find_all(void *library)
{
    return find(library, "nvmlInit_v2", &init) &&
           find(library, "nvmlDeviceGetCount_v2", &count_of) &&
           find(library, "nvmlDeviceGetHandleByIndex_v2", &handle_of) &&
           find(library, "nvmlDeviceGetName", &name_of) &&
           find(library, "nvmlDeviceGetMemoryInfo", &memory_of) &&
           find(library, "nvmlDeviceGetUtilizationRates", &rates_of) &&
           find(library, "nvmlDeviceGetPowerUsage", &power_of) &&
           find(library, "nvmlDeviceGetTemperature", &temperature_of) &&
           find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &processes_of);
}

static void print_process(const struct process *p)
{
    char path[64], name[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%u/cmdline", p->pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        (void)!fgets(name, sizeof(name), file);
        (void)fclose(file);
    }
    printf("%u, %s, %llu MiB\n", p->pid, name, (unsigned long long)(p->used >> 20));
}

int main(void)
{
    static struct process list[PROCESSES];
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    unsigned count = 0;
    if (library == NULL || !find_all(library) || init() != 0 || count_of(&count) != 0) {
        return 1;
    }
    for (unsigned i = 0; i < count; i++) {
        void *device;
        char name[96] = "";
        struct memory m = {0};
        unsigned rates[2] = {0}, power = 0, celsius = 0, n = PROCESSES;
        if (handle_of(i, &device) != 0 || name_of(device, name, sizeof(name)) != 0 ||
            memory_of(device, &m) != 0 || rates_of(device, rates) != 0 ||
            power_of(device, &power) != 0 || temperature_of(device, 0, &celsius) != 0 ||
            processes_of(device, &n, list) != 0) {
            return 1;
        }
        printf("%u, %s, %llu MiB, %u %%, %u W, %u C\n", i, name, (unsigned long long)(m.used >> 20),
               rates[0], power / 1000, celsius);
        for (unsigned k = 0; k < n; k++) {
            print_process(&list[k]);
        }
    }
    return 0;
}
