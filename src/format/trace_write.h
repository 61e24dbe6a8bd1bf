/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_WRITE_H
#define PLIM_FORMAT_TRACE_WRITE_H

/*
 * Appending frames to a trace file.
 *
 * A frame goes out in one write and is never changed: whoever reads at any moment, or after the writer was killed
 * at any byte, finds whole frames and at most one torn one at the end. When the disk is full the torn frame
 * is cut off again, so that a later one can follow. The index at the end is a convenience: readers
 * rebuild it from the heads. Threads: one.
 */

#include "base/vec.h"
#include "format/trace_frame.h"

struct plim_trace_writer {
    int fd;
    uint64_t size;                            /* bytes of whole frames in the file */
    PLIM_VEC(struct plim_trace_place) places; /* for the index */
    struct plim_buf out;                      /* the frame being made */
};

/** plim_trace_create() - a new file with a head; one of that name is replaced.
 * Errors: PLIM_E_CREATE, PLIM_E_IO. Close with plim_trace_close(). */
PLIM_MUST_USE enum plim_status plim_trace_create(const char *path, uint64_t created_ns,
                                                 struct plim_trace_writer *out,
                                                 struct plim_err *err);

/** plim_trace_append() - one frame. Errors: PLIM_E_IO (os_errno says why; the file ends with the frame
 * before, and the next call may work), PLIM_E_BUDGET, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_trace_append(struct plim_trace_writer *w,
                                                 struct plim_trace_frame frame,
                                                 struct plim_str payload, struct plim_err *err);

/** plim_trace_seal() - the index and its trailer, and onto the disk. Nothing may follow. */
PLIM_MUST_USE enum plim_status plim_trace_seal(struct plim_trace_writer *w, struct plim_err *err);

void plim_trace_close(struct plim_trace_writer *w);

#endif
