/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_PARTS_H
#define PLIM_FORMAT_TRACE_PARTS_H

/*
 * What the frames of a trace hold: events, in columns, and facts, one behind the other.
 *
 *   process   one program that was recorded, numbered from 0 in the order of appearance; a process that
 *             becomes another program by exec is two of them
 *   fact      something that is said once and that events lead to by a number: a process, the name of a
 *             call, a library, a stack, or a sum; each with its length, so that a reader skips the kinds
 *             that it does not know
 *
 * Numbers of calls, libraries and stacks count within their process. Times are Unix nanoseconds, sizes
 * bytes. A fact stands before the first event that needs it. Threads: pure.
 */

#include "format/trace_frame.h"

#include <plimsoll/event.h>
#include <plimsoll/shm.h>

#define PLIM_TRACE_EVENTS_MAX    8192u  /* of one frame */
#define PLIM_TRACE_PROCESSES_MAX 65535u /* of one file */
#define PLIM_TRACE_FRAMES_MAX    128u   /* of one stack */

/* An event and the process it is of. Its time is Unix time, its seq is filled in by the reader. */
struct plim_trace_event {
    struct plim_gpu_event e;
    uint32_t process;
};

/** plim__events_put() - the payload of a frame of n events. A column of zeros is left out. */
void plim__events_put(struct plim_buf *out, const struct plim_trace_event *events, size_t n);

/** plim__events_get() - n events from a payload; false when it does not hold n of them. Values that no
 * event may have (kinds, owners of a newer version) are kept as they are. */
bool plim__events_get(struct plim_str payload, struct plim_trace_event *events, size_t n,
                      struct plim_err *err);

/* X(name, number, meaning). Append only. */
#define PLIM_FACT_MAP(X)                                                                           \
    X(PROCESS, 1, "a process: pid, parent's pid, program, start, name")                            \
    X(CALL, 2, "name of a call")                                                                   \
    X(LIBRARY, 3, "a mapped file: owner, address range, path")                                     \
    X(STACK, 4, "return addresses, innermost first")                                               \
    X(TOTAL, 5, "sums of one owner on one device, as the recorder kept them")                      \
    X(END, 6, "a process has ended, and how")                                                      \
    X(STATS, 7, "the framework allocator's own figures at one time")                               \
    X(RUN, 8, "how the recording itself went: time, end of the command, losses")

enum plim_fact_kind {
#define PLIM__X(name, number, meaning) PLIM_FACT_##name = (number),
    PLIM_FACT_MAP(PLIM__X)
#undef PLIM__X
};

struct plim_trace_process {
    uint64_t pid;
    uint64_t parent_pid;
    uint64_t program;  /* programs that the process was before, by exec */
    uint64_t start_ns; /* when its recording began */
    char name[32];     /* of its program, as the kernel says */
};

struct plim_trace_library {
    uint64_t base, end; /* addresses */
    uint64_t owner;     /* enum plim_gpu_owner */
    struct plim_str path;
};

/* How a process ended, as far as it can be known. */
enum plim_trace_end {
    PLIM_TRACE_END_UNKNOWN, /* the recording ended first */
    PLIM_TRACE_END_ORDERLY, /* by exit */
    PLIM_TRACE_END_GONE,    /* killed, aborted, _exit */
};

struct plim_trace_ended {
    uint64_t how; /* enum plim_trace_end */
    uint64_t time_ns;
    uint64_t lost;          /* events for which the ring had no room */
    uint64_t unknown_frees; /* releases of what was not seen being allocated */
    uint64_t unhooked;      /* entry points that the recorder could not see through */
};

struct plim_trace_total {
    uint64_t device; /* 16: not known which */
    uint64_t owner;
    struct plim_shm_total sums;
};

struct plim_trace_stats {
    uint64_t device, time_ns;
    uint64_t allocated, active, requested, reserved, inactive_split; /* bytes */
    uint64_t peak_allocated, peak_reserved;
    uint64_t retries, ooms;
    uint64_t device_total; /* bytes; 0: not known */
    uint64_t device_free;  /* bytes, as the driver said then; UINT64_MAX: not asked */
};

struct plim_trace_run {
    uint64_t time_ns;
    uint64_t exit_status; /* of the command, when `signal` is 0 */
    uint64_t signal;      /* that ended it */
    uint64_t unwritten;   /* events that the disk had no room for */
    uint64_t over_limit;  /* events behind a limit of the recording */
};

/* Append one fact. */
void plim__fact_process(struct plim_buf *out, uint32_t process, const struct plim_trace_process *p);
void plim__fact_call(struct plim_buf *out, uint32_t process, uint64_t call, struct plim_str name);
void plim__fact_library(struct plim_buf *out, uint32_t process, uint64_t number,
                        const struct plim_trace_library *library);
void plim__fact_stack(struct plim_buf *out, uint32_t process, uint64_t number,
                      const uint64_t *frames, size_t n);
void plim__fact_total(struct plim_buf *out, uint32_t process, const struct plim_trace_total *total);
void plim__fact_end(struct plim_buf *out, uint32_t process, const struct plim_trace_ended *end);
void plim__fact_stats(struct plim_buf *out, uint32_t process, const struct plim_trace_stats *stats);
void plim__fact_run(struct plim_buf *out, const struct plim_trace_run *run);

/* A fact that was read. Which fields are set depends on `kind`. */
struct plim_fact {
    uint64_t kind; /* enum plim_fact_kind, or one that this version does not know: nothing is set */
    uint64_t process;
    uint64_t number; /* of a call, library or stack */
    union {
        struct plim_trace_process as_process;
        struct plim_str name;              /* of a call; borrowed from the payload */
        struct plim_trace_library library; /* path borrowed from the payload */
        struct {
            uint64_t frames[PLIM_TRACE_FRAMES_MAX];
            size_t n;
        } stack;
        struct plim_trace_total total;
        struct plim_trace_ended end;
        struct plim_trace_stats stats;
        struct plim_trace_run run;
    };
};

/** plim__fact_get() - the next fact; false at the end, or when the rest makes no sense (c->bad). */
bool plim__fact_get(struct plim_cursor *c, struct plim_fact *out);

#endif
