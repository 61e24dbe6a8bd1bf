/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RUN_RUN_H
#define PLIM_RUN_RUN_H

/*
 * A supervisor for a server that uses devices: it starts it, sees that it lives, and when memory ran
 * out keeps the evidence, clears the card, and starts it again, one notch lower if that is wished.
 *
 *   command    what is supervised; it gets a process group of its own, and when it is recorded (the
 *              default) runs under `plimsoll record`, which leaves an incident of a failure
 *   health     an address that answers 200 while the server works. A server that is alive and does
 *              not answer hangs
 *   heartbeat  attach, in processes of the command that use a device, tells figures once a second; one
 *              that tells none for long hangs, whatever the server in front of it answers
 *   drain      nothing new is let in (the gate's ledger), what runs may end, readiness is off
 *   notch      one flag of the command made smaller after a failure for want of memory, and larger
 *              again after a long good time
 *   clear      no process of the group is left, on the machine or on a device
 *   turn       one life of the command
 *
 * Signals: SIGTERM and SIGINT drain and end; a second one ends at once; SIGHUP drains and starts
 * anew. When the supervisor is killed the command gets SIGTERM.
 * systemd: READY=1 when healthy, STATUS=, STOPPING=1, EXTEND_TIMEOUT_USEC= during a start and a
 * drain, WATCHDOG=1 while the supervisor itself works.
 * Threads: the loop, one that asks for health, those of the collector.
 */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plim_run_options {
    const char *const *command; /* [n_command] */
    size_t n_command;
    const char *record; /* path of the program that records, or NULL: the command runs bare */
    const char *trace;  /* of the recording; NULL: none is kept */
    const char
        *incidents; /* folder that is watched for new ones, and that the recording uses; or NULL */
    const char *health; /* "http://127.0.0.1:8000/health", or NULL: being alive is enough */
    uint64_t health_every_ns, health_timeout_ns; /* above 0 */
    uint32_t health_misses;                      /* in a row that mean it hangs; above 0 */
    uint64_t heartbeat_ns; /* longest silence of a process that attach watches; 0: any */
    uint64_t start_ns;     /* longest time to become healthy; 0: any */
    const char *ledger;    /* the gate's, of the server's middleware; NULL: no drain by it */
    uint64_t drain_ns;     /* longest time that requests may take to end */
    uint64_t grace_ns;     /* between SIGTERM and SIGKILL */
    uint64_t clear_ns;     /* longest wait for the card to be free */
    uint32_t restarts;     /* within `window_ns`, then it gives up; 0: none */
    uint64_t window_ns;
    uint64_t backoff_ns;        /* before the first restart, doubling to 32 times */
    const char *const *notches; /* [n_notches] "FLAG=STEP[:LIMIT]", see notch.h */
    size_t n_notches;
    uint64_t notch_reset_ns; /* good time after which a notch is taken back; 0: never */
    double stranded; /* share of reserved memory, above which a restart is planned; 0: none */
    const char *restart_window; /* "02:00-05:00", local time of planned restarts; NULL: any */
    bool no_lock;               /* start beside others that start on the same devices */
    void (*tell)(void *arg, const char *text); /* a line for the log; not NULL */
    void *tell_arg;
};

/**
 * plim_run() - supervise to the end.
 * @exit_code: that of this program: 0 when it was asked to end or the command ended well, else the
 * command's own, 128 + signal for one that a signal ended.
 * Errors: PLIM_E_USAGE a notch, window or address that is none; PLIM_E_NOINPUT the command cannot be
 * started; PLIM_E_OS.
 */
PLIM_MUST_USE enum plim_status plim_run(const struct plim_run_options *options, int *exit_code,
                                        struct plim_err *err);

#endif
