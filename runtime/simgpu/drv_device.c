/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA driver: devices, contexts, modules, launches, streams, events. Signatures as in cuda.h of
 * CUDA 13.0. A context's handle is an address that stands for its device.
 */

#include "call.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char contexts[SIM_MAX_DEVICES];

void *sim_context_handle(int device)
{
    return &contexts[device];
}

int sim_pid(void)
{
    return (int)getpid();
}

void sim_uuid(int device, char out[16])
{
    static const char head[] = "plimsoll-sim-gp";
    memcpy(out, head, 15);
    out[15] = (char)device;
}

int sim_occupancy(int device, int threads, size_t shared)
{
    int by_threads = sim_attribute(device, 39) / (threads > 0 ? threads : 1);
    size_t by_shared = (size_t)sim_attribute(device, 81) / (shared + 1024);
    int n = by_threads < (int)by_shared ? by_threads : (int)by_shared;
    return n < 1 ? 1 : n > 32 ? 32 : n; /* at least one: callers size grids from it */
}

static int valid(int device)
{
    int rc = sim_start();
    return rc != SIM_OK ? rc : device < 0 || device >= sim_device_count() ? SIM_E_DEVICE : SIM_OK;
}

SIM_API int cuInit(unsigned flags)
{
    (void)flags;
    return sim_start();
}

SIM_API int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SIM_OK;
}

SIM_API int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return valid(ordinal);
}

SIM_API int cuDeviceGetCount(int *n)
{
    int rc = sim_start();
    *n = rc == SIM_OK ? sim_device_count() : 0;
    return rc;
}

SIM_API int cuDeviceGetName(char *out, int n, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        (void)snprintf(out, n < 0 ? 0 : (size_t)n, "%s", sim_card(device)->name);
    }
    return rc;
}

SIM_API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        *bytes = sim_card(device)->total;
    }
    return rc;
}

SIM_API int cuDeviceGetUuid_v2(char *out, int device)
{
    sim_uuid(device, out);
    return valid(device);
}

SIM_API int cuDeviceGetUuid(char *out, int device)
{
    return cuDeviceGetUuid_v2(out, device);
}

SIM_API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        *value = sim_attribute(device, attribute);
    }
    return rc;
}

SIM_API int cuDeviceGetPCIBusId(char *out, int n, int device)
{
    (void)snprintf(out, n < 0 ? 0 : (size_t)n, "0000:%02X:00.0", (unsigned)device + 1);
    return valid(device);
}

SIM_API int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return valid(device) == SIM_OK ? valid(peer) : SIM_E_DEVICE;
}

SIM_API int cuDeviceGetDefaultMemPool(void **pool, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        *pool = sim_mempool_default(device);
        sim_end();
    }
    return rc;
}

SIM_API int cuDeviceGetMemPool(void **pool, int device)
{
    int rc = cuDeviceGetDefaultMemPool(pool, device);
    if (rc == SIM_OK) {
        *pool = sim_mempool_current(device);
    }
    return rc;
}

/* ---- contexts */

SIM_API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_context(device);
        sim_end();
        *out = sim_context_handle(device);
    }
    return rc;
}

SIM_API int cuDevicePrimaryCtxRelease_v2(int device)
{
    return valid(device); /* the runtime keeps it alive, as it does in real programs */
}

SIM_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int rc = valid(device);
    if (flags != NULL) {
        *flags = 0;
    }
    if (active != NULL) {
        *active = rc == SIM_OK && sim_has_context(device);
    }
    return rc;
}

SIM_API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    (void)flags;
    return valid(device);
}

static int device_of_context(const void *context)
{
    ptrdiff_t d = (const char *)context - contexts;
    return d >= 0 && d < SIM_MAX_DEVICES ? (int)d : -1;
}

SIM_API int cuCtxGetCurrent(void **out)
{
    int rc = sim_start();
    *out =
        rc == SIM_OK && sim_has_context(sim_current()) ? sim_context_handle(sim_current()) : NULL;
    return rc;
}

SIM_API int cuCtxSetCurrent(void *context)
{
    if (context == NULL) {
        return SIM_OK;
    }
    int device = device_of_context(context);
    return device < 0 ? SIM_E_CONTEXT : sim_call_set_device(device);
}

static _Thread_local int stack[16];
static _Thread_local unsigned depth;

SIM_API int cuCtxPushCurrent_v2(void *context)
{
    int device = device_of_context(context);
    if (device < 0 || depth == sizeof stack / sizeof *stack) {
        return SIM_E_CONTEXT;
    }
    stack[depth++] = sim_current();
    return sim_call_set_device(device);
}

SIM_API int cuCtxPopCurrent_v2(void **out)
{
    if (out != NULL) {
        *out = sim_context_handle(sim_current());
    }
    return depth == 0 ? SIM_E_CONTEXT : sim_set_current(stack[--depth]);
}

SIM_API int cuCtxGetDevice(int *device)
{
    *device = sim_current();
    return sim_start();
}

SIM_API int cuCtxSynchronize(void)
{
    return sim_call_device_sync();
}

SIM_API int cuCtxGetLimit(size_t *value, int limit)
{
    (void)limit;
    *value = 1 << 20;
    return SIM_OK;
}

SIM_API int cuCtxSetLimit(int limit, size_t value)
{
    (void)limit, (void)value;
    return SIM_OK;
}

SIM_API int cuCtxGetApiVersion(void *context, unsigned *version)
{
    (void)context;
    *version = 13000;
    return SIM_OK;
}

SIM_API int cuCtxGetFlags(unsigned *flags)
{
    *flags = 0;
    return SIM_OK;
}

SIM_API int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return SIM_OK;
}

SIM_API int cuCtxEnablePeerAccess(void *context, unsigned flags)
{
    (void)flags;
    return device_of_context(context) < 0 ? SIM_E_CONTEXT : SIM_OK;
}

/* ---- modules and functions: a function is its name */

struct named {
    char name[256];
    uint32_t self;
};

static struct sim_pool functions = SIM_POOL(struct named);

/* Handles of functions live as long as the process; programs load each once. */
int sim_named_function(void *module, const char *name, void **out)
{
    uint32_t self;
    if (module == NULL || name == NULL) {
        return SIM_E_VALUE;
    }
    (void)pthread_mutex_lock(&sim_lock);
    struct named *f = sim_pool_take(&functions, &self);
    if (f != NULL) {
        strncpy(f->name, name, sizeof f->name - 1);
        f->self = self;
        *out = f;
    }
    sim_end();
    return f == NULL ? SIM_E_NOMEM : SIM_OK;
}

static int module_load(void **out)
{
    static char module; /* what is in it does not matter */
    int rc = sim_begin(SIM_CALL_LAUNCH, sim_current());
    if (rc == SIM_OK) {
        sim_end();
        *out = &module;
    }
    return rc;
}

SIM_API int cuModuleLoadData(void **out, const void *image)
{
    (void)image;
    return module_load(out);
}

SIM_API int cuModuleLoadDataEx(void **out, const void *image, unsigned n, int *options,
                               void **values)
{
    (void)image, (void)n, (void)options, (void)values;
    return module_load(out);
}

SIM_API int cuModuleLoadFatBinary(void **out, const void *image)
{
    (void)image;
    return module_load(out);
}

SIM_API int cuModuleLoad(void **out, const char *path)
{
    (void)path;
    return module_load(out);
}

SIM_API int cuModuleUnload(void *module)
{
    (void)module;
    return SIM_OK;
}

SIM_API int cuModuleGetFunction(void **out, void *module, const char *name)
{
    return sim_named_function(module, name, out);
}

SIM_API int cuModuleGetGlobal_v2(uint64_t *out, size_t *bytes, void *module, const char *name)
{
    void *p = NULL;
    (void)module;
    int rc = sim_call_symbol(&p, name, 4096);
    if (out != NULL) {
        *out = (uint64_t)(uintptr_t)p;
    }
    if (bytes != NULL) {
        *bytes = 8;
    }
    return rc;
}

SIM_API int cuModuleGetLoadingMode(int *mode)
{
    *mode = 2; /* lazy */
    return SIM_OK;
}

SIM_API int cuLibraryLoadData(void **out, const void *code, int *jit, void **jit_values,
                              unsigned n_jit, int *options, void **values, unsigned n)
{
    (void)code, (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    return module_load(out);
}

SIM_API int cuLibraryLoadFromFile(void **out, const char *path, int *jit, void **jit_values,
                                  unsigned n_jit, int *options, void **values, unsigned n)
{
    (void)path, (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    return module_load(out);
}

SIM_API int cuLibraryUnload(void *library)
{
    (void)library;
    return SIM_OK;
}

SIM_API int cuLibraryGetKernel(void **out, void *library, const char *name)
{
    return sim_named_function(library, name, out);
}

SIM_API int cuLibraryGetModule(void **out, void *library)
{
    *out = library;
    return SIM_OK;
}

SIM_API int cuKernelGetFunction(void **out, void *kernel)
{
    *out = kernel;
    return SIM_OK;
}

SIM_API int cuFuncGetName(const char **out, void *function)
{
    *out = ((const struct named *)function)->name;
    return SIM_OK;
}

SIM_API int cuFuncGetModule(void **out, void *function)
{
    (void)function;
    return module_load(out);
}

/* Attributes of a function: 0 threads of a block, 4 registers, 5 and 6 PTX and binary version. */
SIM_API int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    int device = sim_current();
    (void)function;
    int rc = valid(device);
    if (rc == SIM_OK) {
        int arch = sim_card(device)->cc_major * 10 + sim_card(device)->cc_minor;
        *value = attribute == 0                     ? 1024
                 : attribute == 4                   ? 32
                 : attribute == 5 || attribute == 6 ? arch
                                                    : 0;
    }
    return rc;
}

SIM_API int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, kernel);
}

SIM_API int cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return SIM_OK;
}

SIM_API int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    (void)kernel, (void)attribute, (void)value;
    return valid(device);
}

SIM_API int cuFuncSetCacheConfig(void *function, int config)
{
    (void)function, (void)config;
    return SIM_OK;
}

SIM_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, void *function,
                                                                 int threads, size_t shared,
                                                                 unsigned flags)
{
    (void)function, (void)flags;
    int rc = sim_start();
    *n = rc == SIM_OK ? sim_occupancy(sim_current(), threads, shared) : 0;
    return rc;
}

SIM_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *function, int threads,
                                                        size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, function, threads, shared, 0);
}

SIM_API int cuOccupancyMaxActiveClusters(int *n, void *function, const void *config)
{
    (void)function, (void)config;
    *n = 16;
    return SIM_OK;
}

SIM_API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, void *stream, void **args,
                           void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)args,
        (void)extra;
    return sim_call_launch(function, stream);
}

SIM_API int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      void *stream, void **args)
{
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, args, NULL);
}

struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    void *stream;
};

SIM_API int cuLaunchKernelEx(const struct launch_config *config, void *function, void **args,
                             void **extra)
{
    (void)args, (void)extra;
    return sim_call_launch(function, config->stream);
}

SIM_API int cuTensorMapEncodeTiled(void *map)
{
    memset(map, 0, 128);
    return SIM_OK;
}

SIM_API int cuLinkCreate_v2(unsigned n, int *options, void **values, void **state)
{
    (void)n, (void)options, (void)values;
    return module_load(state);
}

SIM_API int cuLinkAddData_v2(void *state, int type, void *data, size_t bytes, const char *name,
                             unsigned n, int *options, void **values)
{
    (void)state, (void)type, (void)data, (void)bytes, (void)name, (void)n, (void)options;
    (void)values;
    return SIM_OK;
}

SIM_API int cuLinkComplete(void *state, void **image, size_t *bytes)
{
    *image = state;
    *bytes = 1;
    return SIM_OK;
}

SIM_API int cuLinkDestroy(void *state)
{
    (void)state;
    return SIM_OK;
}
