/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_DRIVER_H
#define PLIM_ALLOCATOR_DRIVER_H

/*
 * The CUDA driver as the engine's device: functions found at run time, one context for each device.
 *
 * Functions are taken from the process (a preloaded library counts) or from libcuda.so.1. Every call is
 * made in the device's primary context and in the relaxed capture mode of the calling thread, so that a
 * capture elsewhere does not forbid it. The first call that an engine makes goes there, and
 * plim_cuda_leave() comes back: once for a request, however many calls it needs, and not at all for a
 * request that needs none.
 * Threads: the functions given to an engine, and plim_cuda_leave(), are called under the engine's lock.
 * Source: CUDA 13.0 driver API (signatures and result codes).
 */

#include <plimsoll/engine.h>

#define PLIM_CUDA_DEVICES 64

struct plim_cuda_device; /* one device: context, properties, unused events */

/** plim_cuda_open() - find the driver and retain the device's primary context. NULL: *why says what is
 * missing, a fixed text. */
struct plim_cuda_device *plim_cuda_open(int ordinal, const char **why);
void plim_cuda_close(struct plim_cuda_device *d);

/** plim_cuda_memory() - free and total bytes as cuMemGetInfo says; false when it fails. */
bool plim_cuda_memory(struct plim_cuda_device *d, uint64_t *free_bytes, uint64_t *total);

/** plim_cuda_capturing() - is a graph being captured on that stream? */
bool plim_cuda_capturing(struct plim_cuda_device *d, uint64_t stream);

/** plim_cuda_leave() - back to the thread's own context, before the engine's lock is given up. */
void plim_cuda_leave(struct plim_cuda_device *d);

/** plim_cuda_idle() - wait for all work of the device; plim_cuda_to_host(), plim_cuda_to_device() - copy, and
 * wait. Under the engine's lock. False: the driver would not. */
bool plim_cuda_idle(struct plim_cuda_device *d);
bool plim_cuda_to_host(struct plim_cuda_device *d, void *host, uint64_t addr, uint64_t size);
bool plim_cuda_to_device(struct plim_cuda_device *d, uint64_t addr, const void *host,
                         uint64_t size);

/** plim_cuda_driver() - what the engine wants; its ctx is the device. */
const struct plim_engine_driver *plim_cuda_driver(void);

#endif
