/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_SAMPLER_H
#define PLIM_DEVICE_SAMPLER_H

/*
 * Taking samples: every vendor's way of telling, behind one table, with a limit on how long a
 * driver may think.
 *
 *   vendor    one way to ask: NVML; DRM (sysfs and fdinfo: amdgpu, Intel, others); a script file
 *   worker    the thread in which a vendor is asked. A driver call that does not return keeps its
 *             worker; samples go on without it, with the devices marked `hung`, until it returns
 *
 * A sampler keeps the drivers open: opening NVML costs up to a second, asking it a millisecond.
 * Threads: a sampler belongs to one thread. Not usable in a forked child: open a new one there.
 */

#include "device/check.h"
#include "device/sample.h"

struct plim_sampler;

/** plim_world_real() - this machine; static. */
const struct plim_world *plim_world_real(void);

struct plim_sampler_options {
    const struct plim_world *world; /* NULL: the real one */
    const char *
        script; /* a file of "plimsoll.sample/1" lines to answer from instead of drivers, or NULL */
    uint64_t timeout_ns; /* that a driver may think; 0: two seconds */
};

/** plim_sampler_open() - drivers are opened by the first sample. Errors: PLIM_E_NOINPUT no such
 * script; PLIM_E_DATA no sample in it (a pipe is believed); PLIM_E_NOMEM; PLIM_E_OS no thread. */
PLIM_MUST_USE enum plim_status plim_sampler_open(const struct plim_sampler_options *options,
                                                 struct plim_sampler **out, struct plim_err *err);

/**
 * plim_sampler_take() - look at all devices. A machine without any gives an empty sample.
 * @out: reset first; balanced, with facts of every process in it.
 * Errors: PLIM_E_NOMEM. What a driver does not tell is a state of the device, not an error.
 * Cost: NVML about 1 ms for eight devices; /proc 2 µs for each process, 50 µs the first time; at most
 * `timeout_ns`, once.
 */
PLIM_MUST_USE enum plim_status plim_sampler_take(struct plim_sampler *sampler,
                                                 struct plim_sample *out, struct plim_err *err);

/** plim_sampler_close() - NULL is allowed. A worker that hangs is left to itself and cleans up when
 * it returns. */
void plim_sampler_close(struct plim_sampler *sampler);

/* Who a process is and whose. */
struct plim_process_stat {
    char name[16];
    uint32_t ppid, group;
    uint64_t start_ticks; /* since boot */
};

/** plim_process_stat() - from /proc/PID/stat; false when it is gone, or a zombie, which holds
 * nothing. */
bool plim_process_stat(const struct plim_world *world, uint32_t pid, struct plim_process_stat *out);

/** plim_process_read() - facts of a process from /proc; false when it is gone. */
bool plim_process_read(const struct plim_world *world, uint32_t pid,
                       struct plim_process_facts *out);

/** plim_process_cgroup() - container, pod and unit from the text of /proc/PID/cgroup, into *out. */
void plim_process_cgroup(const char *text, struct plim_process_facts *out);

/** plim_host_memory() - MemTotal and MemAvailable of /proc/meminfo in bytes; false: not known. */
bool plim_host_memory(const struct plim_world *world, uint64_t *total, uint64_t *available);

/* ---- vendors (nvml_sample.c, drm.c, script.c) ---- */

struct plim_vendor {
    const char *name;
    /* A first look: PLIM_E_NOTFOUND when there is nothing of this vendor. *self is owned. */
    enum plim_status (*open)(const struct plim_world *world, const char *script, void **self,
                             struct plim_err *err);
    /* Append devices and uses. A device that does not answer is appended with its state. */
    enum plim_status (*sample)(void *self, struct plim_sample *out, struct plim_err *err);
    void (*close)(void *self);
};

extern const struct plim_vendor plim__vendor_nvml, plim__vendor_drm, plim__vendor_script;

/** plim__script_check() - whether a file of samples can be read and begins with one. Errors:
 * PLIM_E_DATA, naming the file; those of plim_file_read(). */
PLIM_MUST_USE enum plim_status plim__script_check(const char *path, struct plim_err *err);

/* ---- workers (worker.c) ---- */

struct plim_worker;

/** plim__worker_new() - start a thread for a vendor. `world` is borrowed for ever. */
PLIM_MUST_USE enum plim_status plim__worker_new(const struct plim_vendor *vendor,
                                                const struct plim_world *world, const char *script,
                                                struct plim_worker **out, struct plim_err *err);

/** plim__worker_ask() - have the vendor append to *out. Returns false when it did not answer within
 * `timeout_ns`, or still thinks about an earlier question. *st is its answer's status. */
bool plim__worker_ask(struct plim_worker *worker, uint64_t timeout_ns, struct plim_sample *out,
                      enum plim_status *st);
void plim__worker_drop(struct plim_worker *worker);

#endif
