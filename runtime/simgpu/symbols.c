/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver functions by name, for cuGetProcAddress: the rows of hooks.def that belong to the driver and
 * are more than a refusal.
 */

#include "sim.h"
#include <string.h>

#define DECLARE_cuda(symbol)    extern void symbol(void);
#define ENTRY_cuda_REAL(symbol) {#symbol, symbol},
#define ENTRY_cuda_OK(symbol)   {#symbol, symbol},
#define ENTRY_cuda_FAIL(symbol)

/* One declaration for each row of the driver; other libraries' rows vanish. */
#define SIM_HOOK(library, symbol, kind, number) SIM_ROW_##library(symbol, kind)
#define SIM_ROW_cudart(symbol, kind)
#define SIM_ROW_nvml(symbol, kind)
#define SIM_ROW_cublas(symbol, kind)
#define SIM_ROW_cublasLt(symbol, kind)
#define SIM_ROW_cudnn(symbol, kind)
#define SIM_ROW_cusparse(symbol, kind)
#define SIM_ROW_cusparseLt(symbol, kind)
#define SIM_ROW_cusolver(symbol, kind)
#define SIM_ROW_cufft(symbol, kind)
#define SIM_ROW_curand(symbol, kind)
#define SIM_ROW_nccl(symbol, kind)
#define SIM_ROW_nvrtc(symbol, kind)
#define SIM_ROW_cupti(symbol, kind)
#define SIM_ROW_cufile(symbol, kind)
#define SIM_ROW_nvshmem(symbol, kind)
#define SIM_ROW_nvtx(symbol, kind)

#define SIM_ROW_cuda(symbol, kind) DECLARE_cuda(symbol)
#include "hooks.def"
#undef SIM_ROW_cuda

static const struct {
    const char *name;
    void (*function)(void);
} driver[] = {
#define SIM_ROW_cuda(symbol, kind) ENTRY_cuda_##kind(symbol)
#include "hooks.def"
};

void *sim_driver_symbol(const char *symbol)
{
    size_t lo = 0, hi = sizeof driver / sizeof *driver;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(driver[mid].name, symbol);
        if (order == 0) {
            void *p;
            memcpy(&p, &driver[mid].function, sizeof p); /* a function pointer to a data pointer */
            return p;
        }
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}
