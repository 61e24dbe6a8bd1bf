/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_READ_H
#define PLIM_FORMAT_TRACE_READ_H

/*
 * A trace file in memory: the events of all its processes in one order, and what is known of each.
 *
 * Order: events of a process stay as they were recorded; between processes their times decide. The input
 * is hostile: what makes no sense is left out and counted, numbers that lead nowhere read as unknown.
 * Threads: one writer or many readers.
 */

#include "base/intern.h"
#include "format/snapshot_read.h"
#include "format/trace_parts.h"

struct plim_recorded_process {
    struct plim_trace_process about;
    struct plim_trace_ended end; /* how is UNKNOWN while none was written */
    bool known;                  /* its fact was there; else only its number is known */
    uint64_t events;
    uint64_t lost; /* events that the ring had no room for */
};

struct plim_recorded_library {
    uint32_t path;  /* interned, or PLIM_NO_ID */
    uint32_t owner; /* enum plim_gpu_owner */
    uint64_t base, end;
};

struct plim_recorded_total {
    uint32_t process;
    struct plim_trace_total total;
};

struct plim_recorded_stats {
    uint32_t process;
    struct plim_trace_stats stats;
};

struct plim_recording {
    struct plim_trace_head head;
    struct plim_intern strings;
    PLIM_VEC(struct plim_trace_event) events;
    PLIM_VEC(struct plim_recorded_process) processes; /* by number */
    PLIM_VEC(struct plim_recorded_library) libraries;
    PLIM_VEC(struct plim_recorded_total)
    totals;                                     /* the last of each process, device, owner counts */
    PLIM_VEC(struct plim_recorded_stats) stats; /* as they came */
    PLIM_VEC(uint64_t) frames;     /* of all stacks: their number, then the addresses */
    struct plim_map call_names;    /* process << 32 | number -> interned */
    struct plim_map library_index; /* the same -> index in libraries */
    struct plim_map stack_index;   /* the same -> index in frames */
    struct plim_trace_run run;     /* zero without has_run */
    bool has_run;
    bool sealed;            /* the recording came to its end */
    uint64_t damaged, torn; /* bytes */
    uint64_t nonsense;      /* frames that could be read but not understood */
    uint64_t source_bytes;
};

/**
 * plim_recording_read() - read a trace to its end.
 * @limits: nullable. Beside `memory`, memory may not exceed 64 MiB plus eight times the unpacked bytes.
 * Errors: PLIM_E_DATA, PLIM_E_TRUNCATED, PLIM_E_UNSUPPORTED no trace, or none that can be read;
 * PLIM_E_BUDGET; PLIM_E_NOMEM; those of the source. Damage inside is no error: see `damaged`.
 * Cost: O(events), 72 bytes for each.
 */
PLIM_MUST_USE enum plim_status plim_recording_read(struct plim_source *source,
                                                   const struct plim_read_limits *limits,
                                                   struct plim_recording *out,
                                                   struct plim_err *err);
void plim_recording_fini(struct plim_recording *recording);

/* Names and tables; empty or NULL when the number leads nowhere. */
struct plim_str plim_recorded_call(const struct plim_recording *r,
                                   const struct plim_trace_event *e);
const struct plim_recorded_library *plim_recorded_library(const struct plim_recording *r,
                                                          const struct plim_trace_event *e);
const uint64_t *plim_recorded_stack(const struct plim_recording *r,
                                    const struct plim_trace_event *e, size_t *n);

/** plim_recorded_library_at() - the library of a process that covers an address, or NULL. O(libraries). */
const struct plim_recorded_library *plim_recorded_library_at(const struct plim_recording *r,
                                                             uint32_t process, uint64_t addr);

#endif
