/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_NVML_H
#define SIM_NVML_H

/*
 * What the files of the simulated NVML share. Codes as in nvidia-ml-py 13.
 */

enum {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_ARGUMENT = 2,
    NVML_UNSUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_SMALL = 7,
    NVML_TIMEOUT = 10,
    NVML_VERSION = 25
};

/** sim_nvml_fault() - the code that a call is to fail with, by the script; NVML_OK when it is not
 * to fail.
 * @function: its name. @device: or -1. Sleeps when the script lets it hang. */
int sim_nvml_fault(const char *function, int device);

/** sim_nvml_xid() - the next scripted Xid that was not told yet; 0 when there is none. */
unsigned sim_nvml_xid(int *device);

/** sim_nvml_handle() - what callers of NVML hold for a device. */
void *sim_nvml_handle(int device);

#endif
