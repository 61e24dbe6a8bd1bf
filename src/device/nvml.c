/* SPDX-License-Identifier: Apache-2.0 */

/* The few calls of libnvidia-ml.so.1 and libcuda.so.1 that the doctor needs, resolved by name. */

#include "device/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *nvml_device;

/* nvmlMemory_t */
struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

/* A symbol as a function pointer; POSIX guarantees that this conversion works. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

/* Newest name first, as NVML keeps old ones for old programs. */
static bool find_either(void *library, const char *name, const char *older, void *function)
{
    return find(library, name, function) || find(library, older, function);
}

static void error_text(const struct plim_nvml *nvml, int code, char *text, size_t n)
{
    const char *(*error_string)(int) = NULL;
    const char *said =
        find(nvml->library, "nvmlErrorString", &error_string) ? error_string(code) : NULL;
    (void)snprintf(text, n, "%s", said ? said : "unknown error");
}

static void ask_versions(struct plim_nvml *nvml)
{
    int (*text_call)(char *, unsigned) = NULL;
    int (*number_call)(int *) = NULL;
    int (*count_call)(unsigned *) = NULL;
    if (find(nvml->library, "nvmlSystemGetDriverVersion", &text_call)) {
        (void)text_call(nvml->driver, sizeof(nvml->driver));
    }
    if (find(nvml->library, "nvmlSystemGetNVMLVersion", &text_call)) {
        (void)text_call(nvml->nvml, sizeof(nvml->nvml));
    }
    if (find_either(nvml->library, "nvmlSystemGetCudaDriverVersion_v2",
                    "nvmlSystemGetCudaDriverVersion", &number_call) &&
        number_call(&nvml->cuda_version) != 0) {
        nvml->cuda_version = 0;
    }
    if (find_either(nvml->library, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", &count_call) &&
        count_call(&nvml->n_gpus) != 0) {
        nvml->n_gpus = 0;
    }
}

enum plim_status plim_nvml_open(struct plim_nvml *out, struct plim_err *err)
{
    int (*init)(void) = NULL;
    *out = (struct plim_nvml){0};
    out->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (out->library == NULL) {
        return plim__fail(err, PLIM_E_NOTFOUND, "libnvidia-ml.so.1 cannot be loaded");
    }
    if (!find_either(out->library, "nvmlInit_v2", "nvmlInit", &init)) {
        (void)snprintf(out->init_text, sizeof(out->init_text), "it has no nvmlInit");
        return plim__fail(err, PLIM_E_UNSUPPORTED, "libnvidia-ml.so.1 has no nvmlInit");
    }
    out->init_code = init();
    if (out->init_code != 0) {
        error_text(out, out->init_code, out->init_text, sizeof(out->init_text));
        return plim__fail(err, PLIM_E_UNSUPPORTED, "NVML does not start: %s", out->init_text);
    }
    ask_versions(out);
    return PLIM_OK;
}

void plim_nvml_close(struct plim_nvml *nvml)
{
    int (*shutdown)(void) = NULL;
    if (nvml->library == NULL) {
        return;
    }
    if (nvml->init_code == 0 && find(nvml->library, "nvmlShutdown", &shutdown)) {
        (void)shutdown();
    }
    (void)dlclose(nvml->library);
    *nvml = (struct plim_nvml){0};
}

enum plim_status plim_nvml_gpu(const struct plim_nvml *nvml, unsigned index, struct plim_gpu *out,
                               struct plim_err *err)
{
    int (*handle_call)(unsigned, nvml_device *) = NULL;
    int (*name_call)(nvml_device, char *, unsigned) = NULL;
    int (*memory_call)(nvml_device, struct nvml_memory *) = NULL;
    nvml_device device = NULL;
    struct nvml_memory memory = {0};
    if (!find_either(nvml->library, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex",
                     &handle_call) ||
        handle_call(index, &device) != 0) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "NVML gives no handle for device %u", index);
    }
    struct plim_gpu gpu = {.index = index};
    if (!find(nvml->library, "nvmlDeviceGetName", &name_call) ||
        name_call(device, gpu.name, sizeof(gpu.name)) != 0) {
        (void)snprintf(gpu.name, sizeof(gpu.name), "unnamed device");
    }
    if (find(nvml->library, "nvmlDeviceGetMemoryInfo", &memory_call) &&
        memory_call(device, &memory) == 0) {
        gpu.total = memory.total;
        gpu.used = memory.used;
        gpu.memory_valid = true;
    }
    *out = gpu;
    return PLIM_OK;
}

enum plim_status plim_cuda_driver_version(int *version, struct plim_err *err)
{
    int (*version_call)(int *) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int found = 0;
    if (library == NULL) {
        return plim__fail(err, PLIM_E_NOTFOUND, "libcuda.so.1 cannot be loaded");
    }
    bool said = find(library, "cuDriverGetVersion", &version_call) && version_call(&found) == 0;
    (void)dlclose(library);
    if (!said) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "libcuda.so.1 does not say its version");
    }
    *version = found;
    return PLIM_OK;
}
