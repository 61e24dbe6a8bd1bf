/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_NVML_H
#define PLIM_DEVICE_NVML_H

/*
 * NVIDIA's management library and driver library, loaded at run time: nothing of NVIDIA is needed to
 * build, and a machine without a GPU answers "not here". Only what is asked for is called; nothing here
 * creates a CUDA context.
 * Source of names, numbers and structures: NVML API reference r550 (nvml.h), CUDA driver API (cuda.h).
 * Threads: NVML itself is thread-safe; a struct plim_nvml belongs to one thread.
 */

#include "base/err.h"

#include <stdbool.h>

#define PLIM_GPU_NAME 96 /* NVML_DEVICE_NAME_V2_BUFFER_SIZE */

/* One device. A field is meaningful only when its bit of `valid` is set: unsupported is not 0. */
struct plim_gpu {
    unsigned index; /* NVML's order (PCI bus), not CUDA_VISIBLE_DEVICES */
    char name[PLIM_GPU_NAME];
    uint64_t total; /* bytes */
    uint64_t used;  /* bytes, driver's reserve included or not as the driver version has it */
    bool memory_valid;
};

struct plim_nvml {
    void *library; /* dlopen handle, NULL when closed */
    unsigned n_gpus;
    char driver[80];    /* "550.54.15", "" when unknown */
    char nvml[80];      /* "12.550.54.15" */
    int cuda_version;   /* 12040 = 12.4, the newest that the driver supports; 0 unknown */
    int init_code;      /* what nvmlInit said when opening failed; 0 otherwise */
    char init_text[96]; /* NVML's words for it */
};

#define PLIM_NVML_VERSION_MISMATCH 18 /* NVML_ERROR_LIB_RM_VERSION_MISMATCH */
#define PLIM_NVML_NOT_LOADED       9  /* NVML_ERROR_DRIVER_NOT_LOADED */

/**
 * plim_nvml_open() - load libnvidia-ml.so.1 and ask for driver facts.
 * Errors: PLIM_E_NOTFOUND the library is not here; PLIM_E_UNSUPPORTED it is, but its initialisation
 * failed: out->init_code and init_text then say why. Close with plim_nvml_close() in any case.
 * Cost: 10 to 1000 ms where no persistence daemon keeps the driver initialised.
 */
PLIM_MUST_USE enum plim_status plim_nvml_open(struct plim_nvml *out, struct plim_err *err);
void plim_nvml_close(struct plim_nvml *nvml);

/** plim_nvml_gpu() - facts of device `index` < nvml->n_gpus. Errors: PLIM_E_UNSUPPORTED. */
PLIM_MUST_USE enum plim_status plim_nvml_gpu(const struct plim_nvml *nvml, unsigned index,
                                             struct plim_gpu *out, struct plim_err *err);

/**
 * plim_cuda_driver_version() - version of the CUDA driver API from libcuda.so.1, 12040 = 12.4.
 * Errors: PLIM_E_NOTFOUND no such library; PLIM_E_UNSUPPORTED it does not say.
 */
PLIM_MUST_USE enum plim_status plim_cuda_driver_version(int *version, struct plim_err *err);

#endif
