/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RECORD_RECORD_H
#define PLIM_RECORD_RECORD_H

/*
 * Run a command with the recorder in front of it and write down what happens to device memory.
 *
 *   session   a folder on a memory file system in which each recorded process has its ring
 *             (plimsoll/shm.h); gone at the end
 *   source    one such process, or one program that it became by exec
 *   drain     takes events out of all rings and appends them to the trace
 *   tally     sums of what passed by, for the summary
 *
 * The command gets our standard streams, our process group and the terminal: nothing about it changes but
 * its environment. When we die, it goes on; when it dies, the ring is still there to be read.
 * Linux only. Threads: one; signals are blocked and taken from a descriptor while the command runs.
 */

#include "base/arena.h"
#include "base/vec.h"
#include "format/trace_parts.h"
#include "format/trace_write.h"

struct plim_record_setup {
    const char *const *command; /* [n_command] */
    size_t n_command;
    const char *trace;    /* path of the trace file */
    bool stacks;          /* native stacks of the callers */
    bool no_attach;       /* leave the Python side out */
    bool follow;          /* go on until the last process has ended, not only the command */
    uint64_t ring_bytes;  /* of each process; 0: the recorder's default */
    uint64_t max_bytes;   /* of the trace; 0: no limit. Behind it events are only counted */
    uint64_t max_time_ns; /* of recording; 0: no limit. Behind it events are only counted */
    void (*tell)(void *arg, const char *text); /* says once that something went wrong; not NULL */
    void *tell_arg;
    const char *const
        *variables; /* NAME, value, ..., NULL: also put into its environment; or NULL */
    void (*tick)(void *arg, int pid); /* called all the time while the command runs; or NULL */
    void *tick_arg;
};

/* Sums over all processes on one device. */
struct plim_record_sums {
    int64_t charged[PLIM_OWNERS]; /* bytes now */
    int64_t sum;
    int64_t peak;
    int64_t at_peak[PLIM_OWNERS]; /* when `sum` was highest */
    uint64_t refused;             /* requests that the driver had no memory for */
    uint64_t total;               /* bytes of the device, as the driver said; 0 unknown */
};

struct plim_record_tally {
    struct plim_record_sums device[PLIM_SHM_DEVICES]; /* the last: not known which */
    uint64_t events, processes;
    uint64_t lost;       /* the rings had no room */
    uint64_t unwritten;  /* the disk had no room */
    uint64_t over_limit; /* behind a limit of the recording */
    uint64_t unreadable; /* files of processes that could not be read */
    uint64_t alive;      /* processes that went on when the recording ended */
};

struct plim_record_result {
    int exit_status; /* of the command, when `signal` is 0 */
    int signal;      /* that ended it */
    int pid;         /* it had */
    uint64_t trace_bytes;
    uint64_t wall_ns;
    struct plim_record_tally tally;
};

/**
 * plim_record_run() - run the command to its end and record it.
 * Errors: PLIM_E_NOINPUT (the command or the recorder is not there), PLIM_E_CREATE (trace or session),
 * PLIM_E_OS, PLIM_E_NOMEM. A command that fails is no error; nor is a disk that fills up: see the tally.
 */
PLIM_MUST_USE enum plim_status plim_record_run(const struct plim_record_setup *setup,
                                               struct plim_arena *arena,
                                               struct plim_record_result *out,
                                               struct plim_err *err);

/* ---- session.c */

struct plim_session {
    char folder[200];
    int fd; /* of the folder, locked while we live: others know by it that it is in use */
};

/** plim_session_make() - a new folder; those of recordings whose processes are all gone are removed,
 * and of other recordings that were killed what the dead left.
 * Errors: PLIM_E_CREATE. */
PLIM_MUST_USE enum plim_status plim_session_make(struct plim_session *out, struct plim_err *err);

/** plim_session_remove() - the folder and what is in it. Processes that go on keep their mappings. */
void plim_session_remove(struct plim_session *session);

/* ---- drain.c */

struct plim_source_file {
    char name[64]; /* PROCESS, without the suffix */
    struct plim_shm_reader reader;
    uint32_t process;   /* number in the trace */
    bool done;          /* read to its end, and closed */
    bool replaced;      /* the process is another program by now */
    uint8_t *calls;     /* owned, bits by number: names that are in the trace */
    uint8_t *libraries; /* owned, the same */
    uint32_t stacks;    /* rows that are in the trace */
};

struct plim_drain {
    const char *folder;
    struct plim_trace_writer writer;
    PLIM_VEC(struct plim_source_file *) sources; /* owned */
    PLIM_VEC(struct plim_trace_event) batch;     /* not yet in the trace */
    struct plim_buf facts;                       /* the same */
    uint64_t n_facts;
    uint64_t batch_since_ns; /* when the first of the batch came; CLOCK_MONOTONIC */
    uint64_t attach_read_ns; /* when the Python side's figures were last read */
    PLIM_VEC(struct plim_trace_stats) last_stats; /* of each process and device, to see changes */
    const struct plim_record_setup *setup;
    uint64_t started_ns;
    bool told_full, told_limit, told_odd;
    struct plim_record_tally tally;
};

PLIM_MUST_USE enum plim_status plim_drain_open(struct plim_drain *d,
                                               const struct plim_record_setup *setup,
                                               const char *folder, struct plim_err *err);

/** plim_drain_look() - take up processes that are new in the folder; remove what dead ones left. */
PLIM_MUST_USE enum plim_status plim_drain_look(struct plim_drain *d, struct plim_err *err);

/** plim_drain_turn() - take what is in the rings; *took: events. Closes sources whose process is gone. */
PLIM_MUST_USE enum plim_status plim_drain_turn(struct plim_drain *d, uint64_t *took,
                                               struct plim_err *err);

/** plim_drain_living() - sources whose process may still write. */
size_t plim_drain_living(const struct plim_drain *d);

/** plim_drain_finish() - everything into the trace, with its end. The trace is whole even on an error. */
PLIM_MUST_USE enum plim_status plim_drain_finish(struct plim_drain *d, int exit_status, int signal,
                                                 struct plim_err *err);
void plim_drain_close(struct plim_drain *d);

#endif
