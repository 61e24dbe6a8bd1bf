/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA runtime: devices, versions, errors, kernels. Signatures as in cuda_runtime_api.h of CUDA 13.0.
 */

#include "call.h"
#include <stdio.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
};

#define DRIVER_VERSION 13000

/* ---- errors */

static const struct {
    int code;
    const char *runtime, *driver, *text;
} codes[] = {
#define SIM_CODE(symbol, number, runtime_name, driver_name, text)                                  \
    {number, runtime_name, driver_name, text},
#include "codes.def"
#undef SIM_CODE
};

static size_t code_index(int code)
{
    size_t lo = 0, hi = sizeof codes / sizeof *codes - 1; /* the last is "unknown" */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (codes[mid].code < code) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return codes[lo].code == code ? lo : sizeof codes / sizeof *codes - 1;
}

SIM_API const char *cudaGetErrorName(int code)
{
    return codes[code_index(code)].runtime;
}

SIM_API const char *cudaGetErrorString(int code)
{
    return codes[code_index(code)].text;
}

SIM_API int cuGetErrorString(int code, const char **out)
{
    *out = codes[code_index(code)].text;
    return SIM_OK;
}

SIM_API int cuGetErrorName(int code, const char **out)
{
    *out = codes[code_index(code)].driver;
    return SIM_OK;
}

/* ---- devices */

SIM_API int cudaGetDeviceCount(int *n)
{
    int rc = sim_start();
    *n = rc == SIM_OK ? sim_device_count() : 0;
    return sim_ret(rc);
}

SIM_API int cudaGetDevice(int *device)
{
    *device = sim_current();
    return SIM_OK;
}

SIM_API int cudaSetDevice(int device)
{
    return sim_ret(sim_call_set_device(device));
}

SIM_API int cudaInitDevice(int device, unsigned flags, unsigned more)
{
    (void)flags, (void)more;
    int was = sim_current();
    int rc = sim_call_set_device(device);
    (void)sim_set_current(was);
    return sim_ret(rc);
}

SIM_API int cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return SIM_OK;
}

SIM_API int cudaGetDeviceFlags(unsigned *flags)
{
    *flags = 0;
    return SIM_OK;
}

SIM_API int cudaDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return SIM_OK;
}

static int valid(int device)
{
    int rc = sim_start();
    return rc != SIM_OK ? rc : device < 0 || device >= sim_device_count() ? SIM_E_DEVICE : SIM_OK;
}

SIM_API int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        *value = sim_attribute(device, attribute);
    }
    return sim_ret(rc);
}

/* Fields of struct cudaDeviceProp, with their places in CUDA 13 and CUDA 12. */
static const struct {
    uint16_t at13, at12;
    uint8_t bytes, attribute;
} fields[] = {
#define SIM_PROP(name, at13, at12, bytes, attribute) {at13, at12, bytes, attribute},
#include "props.def"
#undef SIM_PROP
};

static int properties(char *out, int device, size_t size, bool cuda12)
{
    int rc = valid(device);
    if (rc != SIM_OK) {
        return sim_ret(rc);
    }
    const struct sim_card *card = sim_card(device);
    memset(out, 0, size);
    strncpy(out, card->name, 255);
    sim_uuid(device, out + 256);
    memcpy(out + 288, &card->total, sizeof card->total);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint16_t at = cuda12 ? fields[i].at12 : fields[i].at13;
        int64_t value = sim_attribute(device, fields[i].attribute);
        if (at != 0) {
            memcpy(out + at, &value, fields[i].bytes);
        }
    }
    return SIM_OK;
}

SIM_API int cudaGetDeviceProperties(void *out, int device)
{
    return properties(out, device, 1008, false);
}

SIM_API int cudaGetDeviceProperties_v2(void *out, int device)
{
    return properties(out, device, 1032, true);
}

SIM_API int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    int rc = valid(device) != SIM_OK ? SIM_E_DEVICE : valid(peer);
    *can = rc == SIM_OK && device != peer;
    return sim_ret(rc);
}

static _Atomic uint16_t peers[SIM_MAX_DEVICES];

SIM_API int cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int device = sim_current();
    (void)flags;
    if (valid(peer) != SIM_OK || peer == device) {
        return sim_ret(SIM_E_DEVICE);
    }
    uint16_t bit = (uint16_t)(1u << peer);
    return sim_ret((atomic_fetch_or(&peers[device], bit) & bit) != 0 ? SIM_E_PEER_ENABLED : SIM_OK);
}

SIM_API int cudaDeviceDisablePeerAccess(int peer)
{
    uint16_t bit = (uint16_t)(valid(peer) == SIM_OK ? 1u << peer : 0);
    uint16_t was = atomic_fetch_and(&peers[sim_current()], (uint16_t)~bit);
    return sim_ret((was & bit) != 0 ? SIM_OK : SIM_E_PEER_NOT_ENABLED);
}

SIM_API int cudaDeviceSynchronize(void)
{
    return sim_ret(sim_call_device_sync());
}

SIM_API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return SIM_OK;
}

SIM_API int cudaDeviceGetPCIBusId(char *out, int n, int device)
{
    int rc = valid(device);
    if (rc == SIM_OK) {
        (void)snprintf(out, n < 0 ? 0 : (size_t)n, "0000:%02X:00.0", (unsigned)device + 1);
    }
    return sim_ret(rc);
}

SIM_API int cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    unsigned domain, bus;
    if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || valid((int)bus - 1) != SIM_OK) {
        return sim_ret(SIM_E_DEVICE);
    }
    *device = (int)bus - 1;
    return SIM_OK;
}

SIM_API int cudaDeviceGetLimit(size_t *value, int limit)
{
    static const size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64};
    *value = limit >= 0 && limit < 6 ? limits[limit] : 0;
    return SIM_OK;
}

SIM_API int cudaDeviceSetLimit(int limit, size_t value)
{
    (void)limit, (void)value;
    return SIM_OK;
}

/* ---- kernels */

SIM_API void **__cudaRegisterFatBinary(void *wrapper)
{
    return sim_module_new(wrapper);
}

SIM_API void __cudaRegisterFatBinaryEnd(void **module)
{
    (void)module;
}

SIM_API void __cudaUnregisterFatBinary(void **module)
{
    (void)module;
}

SIM_API void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                                    int limit, void *tid, void *bid, void *bdim, void *gdim,
                                    int *wsize)
{
    (void)device, (void)limit, (void)tid, (void)bid, (void)bdim, (void)gdim, (void)wsize;
    sim_function_new(module, host, name);
}

SIM_API void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int ext,
                               size_t size, int constant, int global)
{
    (void)module, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant;
    (void)global;
}

SIM_API void __cudaRegisterManagedVar(void **module, void **host, char *device, const char *name,
                                      int ext, size_t size, int constant, int global)
{
    (void)module, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant;
    (void)global;
}

SIM_API char __cudaInitModule(void **module)
{
    (void)module;
    return 1;
}

/* Launch configurations between <<<...>>> and the stub it calls. */
static _Thread_local struct {
    struct dim3 grid, block;
    size_t shared;
    void *stream;
} pushed[8];
static _Thread_local unsigned n_pushed;

SIM_API unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
                                             void *stream)
{
    if (n_pushed == sizeof pushed / sizeof *pushed) {
        return 1;
    }
    pushed[n_pushed].grid = grid;
    pushed[n_pushed].block = block;
    pushed[n_pushed].shared = shared;
    pushed[n_pushed++].stream = stream;
    return 0;
}

SIM_API int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared,
                                       void *stream)
{
    if (n_pushed == 0) {
        return sim_ret(SIM_E_MISSING_CONFIGURATION);
    }
    n_pushed--;
    *grid = pushed[n_pushed].grid;
    *block = pushed[n_pushed].block;
    *shared = pushed[n_pushed].shared;
    memcpy(stream, &pushed[n_pushed].stream, sizeof(void *));
    return SIM_OK;
}

SIM_API int __cudaGetKernel(const void **kernel, const void *host)
{
    *kernel = host;
    return SIM_OK;
}

SIM_API int __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **args,
                               size_t shared, void *stream)
{
    (void)grid, (void)block, (void)args, (void)shared;
    return sim_ret(sim_call_launch(kernel, stream));
}

SIM_API int __cudaLaunchKernel_ptsz(const void *kernel, struct dim3 grid, struct dim3 block,
                                    void **args, size_t shared, void *stream)
{
    return __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

SIM_API int cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **args,
                             size_t shared, void *stream)
{
    return __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

SIM_API int cudaLaunchCooperativeKernel(const void *kernel, struct dim3 grid, struct dim3 block,
                                        void **args, size_t shared, void *stream)
{
    return __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

struct launch_config { /* cudaLaunchConfig_t */
    struct dim3 grid, block;
    size_t shared;
    void *stream;
};

SIM_API int cudaLaunchKernelExC(const struct launch_config *config, const void *kernel, void **args)
{
    (void)args;
    return sim_ret(sim_call_launch(kernel, config->stream));
}

/* The head of struct cudaFuncAttributes, which CUDA 12 and 13 share. */
struct function_attributes {
    size_t shared, constant, local;
    int max_threads, registers, ptx, binary, cache, max_dynamic_shared, carveout;
    int cluster[5];
};

SIM_API int cudaFuncGetAttributes(struct function_attributes *out, const void *kernel)
{
    int rc = sim_start();
    if (rc == SIM_OK) {
        int arch = sim_kernel_arch(kernel, sim_current());
        *out = (struct function_attributes){.max_threads = 1024,
                                            .registers = 32,
                                            .ptx = arch,
                                            .binary = arch,
                                            .max_dynamic_shared = 49152};
    }
    return sim_ret(rc);
}

SIM_API int cudaFuncSetAttribute(const void *kernel, int attribute, int value)
{
    (void)kernel, (void)attribute, (void)value;
    return SIM_OK;
}

SIM_API int cudaFuncSetCacheConfig(const void *kernel, int config)
{
    (void)kernel, (void)config;
    return SIM_OK;
}

SIM_API int cudaFuncGetName(const char **name, const void *kernel)
{
    *name = sim_kernel_name(kernel);
    return SIM_OK;
}

SIM_API int cudaGetFuncBySymbol(const void **function, const void *symbol)
{
    *function = symbol;
    return SIM_OK;
}

SIM_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *kernel,
                                                                   int threads, size_t shared,
                                                                   unsigned flags)
{
    (void)flags;
    int rc = sim_start();
    if (rc == SIM_OK) {
        *n = sim_occupancy(sim_current(), threads, shared);
    }
    (void)kernel;
    return sim_ret(rc);
}

SIM_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *kernel, int threads,
                                                          size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, kernel, threads, shared, 0);
}

SIM_API int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *kernel, int blocks,
                                                      int threads)
{
    (void)kernel, (void)blocks, (void)threads;
    *bytes = 49152;
    return SIM_OK;
}

SIM_API int cudaOccupancyMaxActiveClusters(int *n, const void *kernel, const void *config)
{
    (void)kernel, (void)config;
    *n = 16;
    return SIM_OK;
}

SIM_API int cudaProfilerStart(void)
{
    return SIM_OK;
}

SIM_API int cudaProfilerStop(void)
{
    return SIM_OK;
}

/* Libraries loaded from data: a kernel is known by its name only. */
SIM_API int cudaLibraryLoadData(void **library, const void *code, void *jit, void **jit_values,
                                unsigned n_jit, void *options, void **values, unsigned n)
{
    (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    *library = (void *)(uintptr_t)code;
    return SIM_OK;
}

SIM_API int cudaLibraryUnload(void *library)
{
    (void)library;
    return SIM_OK;
}

SIM_API int cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{
    return sim_ret(sim_named_function(library, name, kernel));
}

SIM_API int cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device)
{
    (void)kernel, (void)attribute, (void)value;
    return sim_ret(valid(device));
}
