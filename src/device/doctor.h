/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_DOCTOR_H
#define PLIM_DEVICE_DOCTOR_H

/*
 * The checks of `plimsoll doctor`, in groups. Each appends to the list; an error means that the list could
 * not grow, never that something is wrong with the machine.
 */

#include "device/check.h"
#include "device/nvml.h"
#include "device/python.h"

/**
 * plim_doctor_gpu() - driver libraries, devices, what CUDA_VISIBLE_DEVICES hides.
 * @cuda_version: receives the newest CUDA version that the driver supports (12040 = 12.4), 0 without one.
 */
PLIM_MUST_USE enum plim_status plim_doctor_gpu(struct plim_checks *checks,
                                               const struct plim_world *world, int *cuda_version,
                                               struct plim_err *err);

/**
 * plim_doctor_recorder() - which entry points of the installed driver and runtime are recorded.
 * Libraries that the dynamic linker does not find give no check.
 */
PLIM_MUST_USE enum plim_status plim_doctor_recorder(struct plim_checks *checks,
                                                    struct plim_err *err);

/**
 * plim_doctor_python() - Python, PyTorch and engines, and whether this PyTorch fits the driver.
 * @python: what plim_python_find() found, or NULL.
 */
PLIM_MUST_USE enum plim_status plim_doctor_python(struct plim_checks *checks,
                                                  const struct plim_python *python,
                                                  int cuda_version, struct plim_err *err);

/**
 * plim_doctor_variables() - environment variables that change what the allocator does, but for the
 * contents of PYTORCH_ALLOC_CONF.
 */
PLIM_MUST_USE enum plim_status plim_doctor_variables(struct plim_checks *checks,
                                                     const struct plim_world *world,
                                                     struct plim_err *err);

/** plim_doctor_host() - memory, container limit, shared memory, locked memory, address space. */
PLIM_MUST_USE enum plim_status
plim_doctor_host(struct plim_checks *checks, const struct plim_world *world, struct plim_err *err);

/* Allocator settings: the variable that PyTorch reads first wins. */
struct plim_alloc_variable {
    const char *name;  /* static; NULL when none is set */
    const char *value; /* borrowed from the environment */
};

/**
 * plim_doctor_alloc_variable() - which settings PyTorch would read.
 * Order: PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF, PYTORCH_ALLOC_CONF; the first that is set.
 * Source: behaviour of torch 2.14.1 (libc10.so), although its header names the generic one first.
 */
struct plim_alloc_variable plim_doctor_alloc_variable(const struct plim_world *world);

/** plim_cgroup_limit() - memory limit of this process' cgroup (v2 or v1) in bytes; false: none. */
bool plim_cgroup_limit(const struct plim_world *world, uint64_t *limit);

#endif
