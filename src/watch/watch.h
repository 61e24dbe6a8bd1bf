/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_WATCH_H
#define PLIM_WATCH_WATCH_H

/*
 * The monitor: a process that looks at all device memory once a second until it is told to stop.
 * The only header of this folder that the command line includes.
 */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM_WATCH_PORT 9754 /* on the loopback, when nothing else is said */

/* Name of its socket, in the folder that the system (/run/plimsoll) or the session (XDG_RUNTIME_DIR)
 * gives to it. */
#define PLIM_WATCH_SOCKET "plimsoll-watch.sock"
#define PLIM_WATCH_SYSTEM "/run/plimsoll"

/* What the command line said; what it left out, the settings file may say (watch/config.h). */
struct plim_watch_options {
    const char *settings;      /* path of the settings file; NULL: none */
    uint64_t interval_ns;      /* between samples; 0: not said (a second) */
    const char *const *listen; /* [n_listen] "127.0.0.1:9754", "[::1]:0", "unix:PATH", "none" */
    size_t n_listen;           /* 0: not said (the loopback, and the user's own socket) */
    const char *db;            /* path of the history; NULL: not said; "": none, only in memory */
    uint64_t max_bytes;        /* of the history; 0: not said (1 GiB) */
    const char *samples; /* a file of samples instead of drivers (device/sampler.h), or NULL */
    const char *const
        *engines; /* [n_engines] "[NAME=]ADDRESS" to ask for metrics, besides those of the
                                   settings */
    size_t n_engines;
    const char *const *logs; /* [n_logs] "[NAME=]PATH" of engines' logs, likewise */
    size_t n_logs;
    const char *const *peers; /* [n_peers] "http://HOST:PORT" of other monitors, likewise */
    size_t n_peers;
    bool no_discover;    /* do not look for engines on this machine */
    const char *host;    /* name of this machine for others; NULL: not said (its host name) */
    const char *version; /* of the program */
    uint64_t steps;      /* end after so many; 0: only by a signal */
    void (*tell)(void *arg, const char *text); /* says something worth a line of log; not NULL.
                                                  Any thread */
    void *tell_arg;
};

/**
 * plim_watch_run() - watch until SIGTERM or SIGINT. SIGHUP reads the settings file again.
 * Errors before the first step: PLIM_E_NOINPUT, PLIM_E_DATA (settings, samples), PLIM_E_OS (an
 * address is taken), PLIM_E_NOMEM. Afterwards only PLIM_E_NOMEM ends it: all else is told and
 * counted.
 * Threads: the caller's runs the loop; signals are blocked in it, and in the threads that it
 * starts.
 */
PLIM_MUST_USE enum plim_status plim_watch_run(const struct plim_watch_options *options,
                                              struct plim_err *err);

/** plim_watch_check() - whether the settings file `path` is good: what plim_watch_run() would say of it.
 * Errors: PLIM_E_NOINPUT; PLIM_E_USAGE with its line and a suggestion; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_watch_check(const char *path, struct plim_err *err);

/** plim_watch_test_alert() - send a sample alert to the receiver [notify NAME] of the settings.
 * Errors: as of check; PLIM_E_NOTFOUND no such receiver; PLIM_E_IO it was not delivered, and why. */
PLIM_MUST_USE enum plim_status plim_watch_test_alert(const struct plim_watch_options *options,
                                                     const char *name, struct plim_err *err);

/** plim_watch_example() - a settings file with every key and its meaning. Failure is sticky in `out`. */
void plim_watch_example(struct plim_buf *out);

#endif
