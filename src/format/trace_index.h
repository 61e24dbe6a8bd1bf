/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_INDEX_H
#define PLIM_FORMAT_TRACE_INDEX_H

/*
 * Where the frames of a trace file are: from the index at its end, or, when there is none (the file is
 * still being written, or its writer was killed), from the heads of the frames, payloads skipped.
 * Threads: pure; the file may grow meanwhile.
 */

#include "base/vec.h"
#include "format/trace_frame.h"

#define PLIM_TRAILER_BYTES                                                                         \
    52u /* the last bytes of a sealed file: a frame that says where the index is */

/* Payloads, for the writer. */
void plim__index_put(struct plim_buf *out, const struct plim_trace_place *places, size_t n);
void plim__trailer_put(struct plim_buf *out, uint64_t index_at);

struct plim_trace_index {
    struct plim_trace_head head;
    PLIM_VEC(struct plim_trace_place)
    places;           /* in the order of the file, index and trailer left out */
    bool sealed;      /* the file has its index */
    uint64_t damaged; /* bytes that are no frame, a torn one at the end included */
};

/**
 * plim_trace_index_read() - the frames of the file behind `fd`, which must be able to seek.
 * Errors: PLIM_E_DATA, PLIM_E_UNSUPPORTED, PLIM_E_TRUNCATED as plim__trace_head_get(); PLIM_E_IO; PLIM_E_NOMEM.
 * Cost: two reads for a sealed file, else one small read for each frame.
 */
PLIM_MUST_USE enum plim_status plim_trace_index_read(int fd, struct plim_trace_index *out,
                                                     struct plim_err *err);
void plim_trace_index_fini(struct plim_trace_index *index);

/** plim_trace_index_from() - the number of the first frame of events that holds one at or after `ns`;
 * places.n when there is none. Facts of any frame before it may still be needed. O(frames). */
size_t plim_trace_index_from(const struct plim_trace_index *index, uint64_t ns);

#endif
