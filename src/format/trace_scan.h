/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_SCAN_H
#define PLIM_FORMAT_TRACE_SCAN_H

/*
 * The frames of a trace from any source, front to back: a file, standard input, a file that is still growing.
 *
 * What is damaged is stepped over: the scan looks for the next head and counts the bytes between. A
 * frame that is cut short at the end is the mark of a writer that was killed or is not done; it is
 * left out and counted as `torn`.
 * Threads: one at a time.
 */

#include "base/file.h"
#include "format/trace_frame.h"

struct plim_trace_scan {
    struct plim_source *source; /* borrowed */
    struct plim_trace_head head;
    uint8_t *buf; /* owned, [cap]: bytes [at, end) are read and not yet used */
    size_t cap, at, end;
    uint64_t pos;     /* offset of buf[at] in the source */
    uint64_t damaged; /* bytes that are no frame */
    uint64_t torn;    /* bytes at the end that begin a frame */
    uint64_t unknown; /* frames of kinds that may be skipped and were */
    uint64_t frames;
    uint64_t bad_payloads; /* frames with a good head and a damaged payload */
    bool sealed;           /* the trailer was seen */
    struct plim_buf payload;
};

/** plim_trace_scan_open() - reads the head of the file.
 * Errors: those of plim__trace_head_get(), PLIM_E_NOMEM, those of the source. Nothing to close then. */
PLIM_MUST_USE enum plim_status plim_trace_scan_open(struct plim_trace_scan *scan,
                                                    struct plim_source *source,
                                                    struct plim_err *err);
void plim_trace_scan_close(struct plim_trace_scan *scan);

/**
 * plim_trace_scan_next() - the next frame whose payload is whole.
 * @more: false at the end of the source; *frame and *payload are then not set.
 * @payload: borrowed until the next call.
 * Errors: PLIM_E_UNSUPPORTED a frame of a newer version that must be understood; PLIM_E_NOMEM; those
 * of the source.
 */
PLIM_MUST_USE enum plim_status plim_trace_scan_next(struct plim_trace_scan *scan, bool *more,
                                                    struct plim_trace_frame *frame,
                                                    struct plim_str *payload, struct plim_err *err);

#endif
