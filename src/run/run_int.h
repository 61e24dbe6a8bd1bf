/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RUN_RUN_INT_H
#define PLIM_RUN_RUN_INT_H

/* What the supervisor's files share. */

#include "observe/collect.h"
#include "run/notch.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- systemd (notify.c) ---- */

struct plim__notify {
    char path[108];    /* of its socket, "" none */
    uint64_t every_ns; /* of the watchdog; 0: none */
    uint64_t last_ns;
};

/** plim__notify_open() - from NOTIFY_SOCKET and WATCHDOG_USEC, which are then taken out of the
 * environment: they are not the command's. */
void plim__notify_open(struct plim__notify *notify);
/** plim__notify_send() - "READY=1\nSTATUS=serving"; lost when nobody listens. */
void plim__notify_send(const struct plim__notify *notify, const char *text);
/** plim__notify_alive() - ping the watchdog when it is time. */
void plim__notify_alive(struct plim__notify *notify, uint64_t now_ns);

/* ---- health (health.c) ---- */

struct plim__health {
    const char *address; /* "http://HOST:PORT" or "unix:PATH", owned by the opener */
    const char *path;    /* "/health" */
    uint64_t every_ns, timeout_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stop;
    atomic_uint misses;    /* in a row */
    _Atomic uint64_t good; /* answers so far */
};

/** plim__health_start() - ask from now on. Errors: PLIM_E_OS. */
PLIM_MUST_USE enum plim_status plim__health_start(struct plim__health *health,
                                                  struct plim_err *err);
/** plim__health_stop() - waits for an answer that is on its way, at most the timeout. */
void plim__health_stop(struct plim__health *health);

/* ---- what the command says (words.c) ---- */

struct plim__words {
    int in[2];   /* its standard output and error, on their way to ours; -1: none */
    int wake[2]; /* a pipe whose end stops the thread */
    pthread_t thread;
    bool started;
    atomic_bool busy; /* between hearing and having passed on */
    pthread_mutex_t lock;
    char *piece;       /* two pieces of the last that was said; NULL: nothing is listened to */
    size_t n[2];       /* of each, the older first */
    uint64_t since_ns; /* of the younger */
};

/** plim__words_start() - listen. @out: [2], to be the command's standard output and error, and closed by the caller
 * when it has them. Errors: PLIM_E_NOMEM, PLIM_E_OS. End with plim__words_stop(). */
PLIM_MUST_USE enum plim_status plim__words_start(struct plim__words *words, int out[2],
                                                 struct plim_err *err);
/** plim__words_stop() - pass on what was said so far, and listen no more. One that does not listen: nothing. */
void plim__words_stop(struct plim__words *words);
/** plim__words_of_memory() - whether its last words, of two minutes at most, tell of a device's memory that ran
 * out. @why: the verdict in a sentence or two. Cost: a pass over at most 256 KiB. */
bool plim__words_of_memory(struct plim__words *words, char *why, size_t room);

/* ---- the command's processes (group.c) ---- */

/** plim__group_start() - start argv in a process group of its own. *pid is that of both. @out: [2], its
 * standard output and error. Errors: PLIM_E_NOINPUT it cannot be started; PLIM_E_OS. */
PLIM_MUST_USE enum plim_status plim__group_start(const char *const *argv, const int out[2],
                                                 pid_t *pid, struct plim_err *err);
/** plim__group_signal() - to every process of the group, and to those who left it and are ours. */
void plim__group_signal(pid_t pid, int signal_number);
/** plim__group_reap() - take up children that ended; true when the command itself did: *status. */
bool plim__group_reap(pid_t pid, int *status);
/** plim__group_has() - whether a process belongs to the group or descends from this program. */
bool plim__group_has(pid_t pid, uint32_t other);
/** plim__group_lives() - whether any process of it is left. */
bool plim__group_lives(pid_t pid);

/* ---- one start at a time (start_lock.c) ---- */

#define PLIM__DEVICES_MAX 64
struct plim__start_lock {
    int fd[PLIM__DEVICES_MAX];
    size_t n;
};

/** plim__start_lock_try() - the locks of the devices of an observation that the command may see, all or none;
 * false: somebody else starts there. Where no lock file can be made, there is none. */
bool plim__start_lock_try(struct plim__start_lock *lock, const struct plim_sample *sample);
void plim__start_lock_free(struct plim__start_lock *lock);

/* ---- time of day (window.c) ---- */

struct plim__window {
    unsigned from, to; /* minutes of the day; equal: always */
};
PLIM_MUST_USE enum plim_status plim__window_parse(const char *text, struct plim__window *out,
                                                  struct plim_err *err);
bool plim__window_open(const struct plim__window *window, uint64_t unix_s);

#endif
