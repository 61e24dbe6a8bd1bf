/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_WATCH_H
#define PLIM_INCIDENT_WATCH_H

/*
 * Watching a recorded program for incidents: samples once a second, drops taken up while it goes
 * on, and an incident when it ends badly.
 *
 * A drop that the program leaves while it goes on is put aside at once (plim_incident_prepare())
 * and finished by a child process, `plimsoll incident --finish`, because judging takes longer than
 * a recorder may look away.
 * Threads: one; one more is kept for each driver (device/sampler.h).
 */

#include "incident/incident.h"

struct plim_incident_watch;

struct plim_incident_watch_setup {
    struct plim_incident_options options; /* borrowed for the watch's life */
    const char *const *argv;              /* NULL-terminated command line; borrowed */
    const char *trace;                    /* path of the recording; borrowed */
};

/** plim_incident_watch_open() - nothing is written before something happens. Errors: PLIM_E_NOMEM,
 * PLIM_E_OS. */
PLIM_MUST_USE enum plim_status
plim_incident_watch_open(const struct plim_incident_watch_setup *setup,
                         struct plim_incident_watch **out, struct plim_err *err);
void plim_incident_watch_close(struct plim_incident_watch *watch);

/** plim_incident_watch_tick() - call it now and then while the program runs; does something once a
 * second.
 * @pid: of the program. Trouble of its own is kept for the end. */
void plim_incident_watch_tick(struct plim_incident_watch *watch, int pid);

/* How the program ended, and what the recording saw of it. */
struct plim_incident_ending {
    int pid;
    int exit_status; /* when `signal` is 0 */
    int signal;
    bool used_device; /* it had anything to do with device memory */
    uint64_t refused; /* requests that the driver had no memory for */
};

/**
 * plim_incident_watch_end() - make an incident when there is cause: drops that were not taken up
 * yet, or an end by a fault, a signal that nobody sends on purpose, or a status that is not 0, of a
 * program that used the device.
 * @path: (arena) the incident, or NULL.
 * Errors: as plim_incident_make().
 */
PLIM_MUST_USE enum plim_status plim_incident_watch_end(struct plim_incident_watch *watch,
                                                       const struct plim_incident_ending *ending,
                                                       struct plim_arena *arena, const char **path,
                                                       struct plim_err *err);

#endif
