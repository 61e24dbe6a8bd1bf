/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_EXPORT_H
#define PLIM_REPORT_EXPORT_H

/*
 * A snapshot in other programs' forms.
 *
 *   memory-viz   a pickle (protocol 4) as torch.cuda.memory._dump_snapshot writes it; also of a window of the trace
 *   perfetto     Chrome trace events in JSON: counters of the ledger, instants for segments and failures
 *   folded       "outer;inner bytes" lines of live bytes by stack, for flame graph tools
 *   sqlite       a database with the tables of docs/format/export-sqlite.md
 *
 * window: events [from, until) of one device. What is exported of the heap is its state at `until`.
 * Each writer appends to a buffer. Threads: pure.
 */

#include "base/buf.h"
#include "diagnose/site.h"
#include "heap/snapshot.h"

struct plim_export_window {
    uint32_t device; /* index; PLIM_NO_ID: all devices, whole traces (memory-viz and sqlite only) */
    size_t from;     /* position */
    size_t until;    /* position; SIZE_MAX: the end */
};

/** plim_export_pickle() - Errors: PLIM_E_RANGE for a window outside the trace; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_export_pickle(struct plim_buf *out,
                                                  const struct plim_snapshot *snapshot,
                                                  const struct plim_export_window *window,
                                                  struct plim_err *err);

#define PLIM_EXPORT_COUNTERS 100000u /* most points of each counter */

/** plim_export_perfetto() - of one device. Without times an event counts as a microsecond. */
PLIM_MUST_USE enum plim_status plim_export_perfetto(struct plim_buf *out,
                                                    const struct plim_snapshot *snapshot,
                                                    const struct plim_export_window *window,
                                                    struct plim_err *err);

/** plim_export_folded() - live bytes of one device at window.until. */
PLIM_MUST_USE enum plim_status plim_export_folded(struct plim_buf *out,
                                                  const struct plim_snapshot *snapshot,
                                                  const struct plim_export_window *window,
                                                  struct plim_err *err);

/** plim_export_sqlite() - the bytes of a database file. Errors also: PLIM_E_INTERNAL of SQLite. */
PLIM_MUST_USE enum plim_status plim_export_sqlite(struct plim_buf *out,
                                                  const struct plim_snapshot *snapshot,
                                                  const struct plim_export_window *window,
                                                  struct plim_err *err);

/** plim_export_check() - the window with `until` filled in. Errors: PLIM_E_RANGE. */
PLIM_MUST_USE enum plim_status plim_export_check(const struct plim_snapshot *snapshot,
                                                 const struct plim_export_window *window,
                                                 struct plim_export_window *out,
                                                 struct plim_err *err);

#endif
