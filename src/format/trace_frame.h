/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_FRAME_H
#define PLIM_FORMAT_TRACE_FRAME_H

/*
 * The container of our own trace format (docs/format/trace.md): a head, then frames, one behind the
 * other, only ever appended.
 *
 *   frame    a head of 44 bytes that can be read alone, and a payload with a checksum of its own
 *   column   the values of one field for all items of a frame, as varints
 *   item     what a frame holds many of: an event, or a fact
 *
 * Everything is little-endian. A frame needs no other frame to be decoded, so that a reader may begin at
 * any one and a damaged one costs only itself. Nothing here knows what an event is.
 * Threads: pure functions over the caller's buffers.
 */

#include "base/varint.h"

#define PLIM_TRACE_MAGIC      "PLIMTRC\n"
#define PLIM_TRACE_MAJOR      1u  /* a reader refuses a newer one */
#define PLIM_TRACE_MINOR      0u  /* a reader skips what a newer one added */
#define PLIM_TRACE_HEAD_BYTES 32u /* at the start of the file */
#define PLIM_FRAME_HEAD_BYTES 44u
#define PLIM_FRAME_SYNC       0x31664c50u          /* "PLf1" */
#define PLIM_FRAME_RAW_MAX    (UINT32_C(8) << 20)  /* bytes of a payload, unpacked */
#define PLIM_FRAME_STORED_MAX (PLIM_FRAME_RAW_MAX) /* as it is in the file */

/* X(name, number, text for people). Kinds from 128 on may be skipped by a reader that does not know them. */
#define PLIM_FRAME_MAP(X)                                                                          \
    X(FACTS, 1, "facts")                                                                           \
    X(EVENTS, 2, "events")                                                                         \
    X(INDEX, 128, "index")                                                                         \
    X(TRAILER, 129, "trailer")

enum plim_frame_kind {
#define PLIM__X(name, number, text) PLIM_FRAME_##name = (number),
    PLIM_FRAME_MAP(PLIM__X)
#undef PLIM__X
};

enum plim_frame_codec {
    PLIM_FRAME_PLAIN,
    PLIM_FRAME_ZSTD,
    PLIM_FRAME_CODECS
};

struct plim_trace_frame {
    uint8_t kind;      /* enum plim_frame_kind, or one that this version does not know */
    uint8_t codec;     /* enum plim_frame_codec */
    uint32_t stored;   /* payload bytes in the file */
    uint32_t raw;      /* payload bytes, unpacked */
    uint32_t items;    /* events or facts in it */
    uint64_t first_ns; /* earliest time of its items, Unix nanoseconds; 0 when they have none */
    uint32_t span_us;  /* from there to the latest one, microseconds rounded up, at most 2^32 - 1 */
    uint64_t check;    /* XXH3 of the stored payload */
};

/* A frame and the offset of its head in the file. */
struct plim_trace_place {
    struct plim_trace_frame frame;
    uint64_t at;
};

struct plim_trace_head {
    uint16_t major;
    uint16_t minor;
    uint64_t created_ns; /* Unix nanoseconds */
};

/* -- the start of a file ------------------------------------------------------------------------- */

void plim__trace_head_put(uint8_t out[PLIM_TRACE_HEAD_BYTES], uint64_t created_ns);

/** plim__trace_head_get() - Errors: PLIM_E_DATA no trace, or a damaged head; PLIM_E_UNSUPPORTED a newer
 * major version; PLIM_E_TRUNCATED fewer than PLIM_TRACE_HEAD_BYTES bytes of one. */
PLIM_MUST_USE enum plim_status
plim__trace_head_get(const uint8_t *p, size_t n, struct plim_trace_head *out, struct plim_err *err);

/* -- frames -------------------------------------------------------------------------------------- */

/**
 * plim__frame_put() - append a frame with this payload to `out`, packed when that makes it smaller.
 * @frame: kind, items, first_ns and span_us; the rest is filled in.
 * Errors: PLIM_E_BUDGET a payload of more than PLIM_FRAME_RAW_MAX; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__frame_put(struct plim_buf *out, struct plim_trace_frame *frame,
                                               struct plim_str payload, struct plim_err *err);

/** plim__frame_head_get() - the head in the PLIM_FRAME_HEAD_BYTES bytes at p; false when there is none
 * (wrong mark, wrong checksum, impossible sizes). */
bool plim__frame_head_get(const uint8_t *p, struct plim_trace_frame *out);

/**
 * plim__frame_payload() - check and unpack the payload at p [frame->stored].
 * @out: reset, then filled with frame->raw bytes.
 * Errors: PLIM_E_DATA wrong checksum or broken packing; PLIM_E_UNSUPPORTED unknown codec; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__frame_payload(const struct plim_trace_frame *frame,
                                                   const uint8_t *p, struct plim_buf *out,
                                                   struct plim_err *err);

/* -- columns ------------------------------------------------------------------------------------- */

/* How the values of a column are written: as they are, or as differences to the one before (0 first). */
enum plim_column_coding {
    PLIM_COLUMN_PLAIN,
    PLIM_COLUMN_DELTA
};

/** plim__column_put() - one column: its id, its length in bytes, n values `stride` bytes apart. */
void plim__column_put(struct plim_buf *out, uint8_t id, enum plim_column_coding coding,
                      const uint64_t *values, size_t n, size_t stride);

/** plim__column_get() - the n values of a column's bytes; false unless they are exactly n. */
bool plim__column_get(struct plim_str column, enum plim_column_coding coding, uint64_t *values,
                      size_t n, size_t stride);

#endif
