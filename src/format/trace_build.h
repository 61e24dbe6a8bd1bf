/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_BUILD_H
#define PLIM_FORMAT_TRACE_BUILD_H

/*
 * A recording as a snapshot, so that everything that reads snapshots reads traces: one process of it,
 * with a device for each CUDA device.
 *
 *   level       DRIVER: each block is one allocation that the program got from the driver. ALLOCATOR:
 *               the process has a framework's caching allocator; its segments are the heap, and
 *               what is live inside of them is not known
 *   outside     what the other owners hold, over time (heap/outside.h)
 *   failure     a request that the driver refused and that the same thread did not get by asking again:
 *               allocators give back what they cached and ask a second time
 *
 * Threads: pure.
 */

#include "format/trace_read.h"

struct plim_trace_pick {
    uint64_t pid;                   /* the process; 0: the one that failed, else the largest */
    const struct plim_snapshot *of; /* (nullable) the one whose allocator comes nearest to this
                                     * snapshot's reserved bytes, when pid is 0 */
};

/** plim_trace_process() - the number of the process that a pick means.
 * Errors: PLIM_E_NOTFOUND no such pid, or no process touched a device; PLIM_E_NOMEM. Cost: O(events). */
PLIM_MUST_USE enum plim_status plim_trace_process(const struct plim_recording *r,
                                                  const struct plim_trace_pick *pick,
                                                  uint32_t *process, struct plim_err *err);

/**
 * plim_trace_build() - the snapshot of one process.
 * @pick: nullable.
 * @out: owned by the caller, plim_snapshot_fini(); borrows nothing.
 * Errors: those of plim_trace_process(). What contradicts itself becomes a finding.
 * Cost: O(events), with one hash operation for each.
 */
PLIM_MUST_USE enum plim_status plim_trace_build(const struct plim_recording *r,
                                                const struct plim_trace_pick *pick,
                                                struct plim_snapshot *out, struct plim_err *err);

/** plim_trace_read() - recording and snapshot in one step, for those who only want the latter. */
PLIM_MUST_USE enum plim_status plim_trace_read(struct plim_source *source,
                                               const struct plim_read_limits *limits,
                                               const struct plim_trace_pick *pick,
                                               struct plim_snapshot *out, struct plim_err *err);

/** plim_trace_beside() - add to a snapshot what a trace of the same process knows of the outside.
 * The moments are matched by time; a snapshot without times gets the end of the trace for every moment.
 * Errors: those of plim_trace_process(). */
PLIM_MUST_USE enum plim_status plim_trace_beside(const struct plim_recording *r,
                                                 struct plim_snapshot *snapshot,
                                                 struct plim_err *err);

/** plim_trace_read_beside() - recording and plim_trace_beside() in one step. */
PLIM_MUST_USE enum plim_status plim_trace_read_beside(struct plim_source *source,
                                                      const struct plim_read_limits *limits,
                                                      struct plim_snapshot *snapshot,
                                                      struct plim_err *err);

#endif
