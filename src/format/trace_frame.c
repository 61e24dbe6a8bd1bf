/* SPDX-License-Identifier: Apache-2.0 */
/* Heads, frames, varints and columns of the trace format; see trace_frame.h and docs/format/trace.md. */

#include "format/trace_frame.h"

#include "base/intern.h"

#include <stdlib.h>

#include <zstd.h>

/* Fast, and on columns of varints within a few percent of the levels that cost ten times as much. */
#define ZSTD_LEVEL 3

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* -- the start of a file ------------------------------------------------------------------------- */

void plim__trace_head_put(uint8_t out[PLIM_TRACE_HEAD_BYTES], uint64_t created_ns)
{
    memset(out, 0, PLIM_TRACE_HEAD_BYTES);
    memcpy(out, PLIM_TRACE_MAGIC, 8); // NOLINT(bugprone-not-null-terminated-result): no string
    put16(out + 8, PLIM_TRACE_MAJOR);
    put16(out + 10, PLIM_TRACE_MINOR);
    put64(out + 16, created_ns);
    put64(out + 24, plim_hash_bytes(out, 24));
}

enum plim_status plim__trace_head_get(const uint8_t *p, size_t n, struct plim_trace_head *out,
                                      struct plim_err *err)
{
    size_t seen = n < 8 ? n : 8;
    if (memcmp(p, PLIM_TRACE_MAGIC, seen) != 0) {
        return plim__fail(err, PLIM_E_DATA, "this is no trace of plimsoll record");
    }
    if (n < PLIM_TRACE_HEAD_BYTES) {
        return plim__fail(err, PLIM_E_TRUNCATED, "the trace ends within its head");
    }
    if (get64(p + 24) != plim_hash_bytes(p, 24)) {
        return plim__fail(err, PLIM_E_DATA, "the head of the trace is damaged");
    }
    *out = (struct plim_trace_head){get16(p + 8), get16(p + 10), get64(p + 16)};
    if (out->major != PLIM_TRACE_MAJOR) {
        enum plim_status st = plim__fail(err, PLIM_E_UNSUPPORTED,
                                         "the trace has version %u.%u; this program reads %u",
                                         out->major, out->minor, PLIM_TRACE_MAJOR);
        plim__err_hint(err,
                       "read it with the release of plimsoll that recorded it, or a newer one");
        return st;
    }
    return PLIM_OK;
}

/* -- frames -------------------------------------------------------------------------------------- */

#define HEAD_CHECK 40 /* offset of the checksum over what is before it */

static void put_frame_head(uint8_t *p, const struct plim_trace_frame *f)
{
    put32(p, PLIM_FRAME_SYNC);
    p[4] = f->kind;
    p[5] = f->codec;
    put16(p + 6, 0);
    put32(p + 8, f->stored);
    put32(p + 12, f->raw);
    put32(p + 16, f->items);
    put64(p + 20, f->first_ns);
    put32(p + 28, f->span_us);
    put64(p + 32, f->check);
    put32(p + HEAD_CHECK, (uint32_t)plim_hash_bytes(p, HEAD_CHECK));
}

bool plim__frame_head_get(const uint8_t *p, struct plim_trace_frame *out)
{
    if (get32(p) != PLIM_FRAME_SYNC ||
        get32(p + HEAD_CHECK) != (uint32_t)plim_hash_bytes(p, HEAD_CHECK)) {
        return false;
    }
    *out = (struct plim_trace_frame){
        .kind = p[4],
        .codec = p[5],
        .stored = get32(p + 8),
        .raw = get32(p + 12),
        .items = get32(p + 16),
        .first_ns = get64(p + 20),
        .span_us = get32(p + 28),
        .check = get64(p + 32),
    };
    return out->stored <= PLIM_FRAME_STORED_MAX && out->raw <= PLIM_FRAME_RAW_MAX &&
           out->items <= out->raw;
}

enum plim_status plim__frame_put(struct plim_buf *out, struct plim_trace_frame *frame,
                                 struct plim_str payload, struct plim_err *err)
{
    if (payload.n > PLIM_FRAME_RAW_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "a frame of %zu bytes is too large", payload.n);
    }
    size_t room = ZSTD_compressBound(payload.n);
    uint8_t *packed = malloc(room);
    if (packed == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to pack a frame");
    }
    size_t n = ZSTD_compress(packed, room, payload.p, payload.n, ZSTD_LEVEL);
    struct plim_str body = payload;
    frame->codec = PLIM_FRAME_PLAIN;
    if (!ZSTD_isError(n) && n < payload.n) {
        body = (struct plim_str){(const char *)packed, n};
        frame->codec = PLIM_FRAME_ZSTD;
    }
    uint8_t head[PLIM_FRAME_HEAD_BYTES];
    frame->stored = (uint32_t)body.n;
    frame->raw = (uint32_t)payload.n;
    frame->check = plim_hash_bytes(body.p, body.n);
    put_frame_head(head, frame);
    plim_buf_add(out, (struct plim_str){(const char *)head, sizeof(head)});
    plim_buf_add(out, body);
    free(packed);
    return plim_buf_status(out, err);
}

/* Exactly frame->raw bytes, decompressed. */
static enum plim_status unpack(const struct plim_trace_frame *frame, const uint8_t *p,
                               struct plim_buf *out, struct plim_err *err)
{
    size_t want = frame->raw;
    char *room = malloc(want + 1);
    if (room == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to unpack a frame");
    }
    size_t n = ZSTD_decompress(room, want, p, frame->stored);
    bool good = !ZSTD_isError(n) && n == want;
    if (good) {
        plim_buf_add(out, (struct plim_str){room, n});
    }
    free(room);
    return good ? plim_buf_status(out, err)
                : plim__fail(err, PLIM_E_DATA, "the packing of a frame is broken");
}

enum plim_status plim__frame_payload(const struct plim_trace_frame *frame, const uint8_t *p,
                                     struct plim_buf *out, struct plim_err *err)
{
    plim_buf_reset(out);
    if (plim_hash_bytes(p, frame->stored) != frame->check) {
        return plim__fail(err, PLIM_E_DATA, "a frame has a wrong checksum");
    }
    if (frame->codec == PLIM_FRAME_ZSTD) {
        return unpack(frame, p, out, err);
    }
    if (frame->codec != PLIM_FRAME_PLAIN) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "a frame is packed in an unknown way");
    }
    if (frame->raw != frame->stored) {
        return plim__fail(err, PLIM_E_DATA, "a frame contradicts itself");
    }
    plim_buf_add(out, (struct plim_str){(const char *)p, frame->stored});
    return plim_buf_status(out, err);
}

/* -- columns ------------------------------------------------------------------------------------- */

static const uint64_t *value_at(const uint64_t *values, size_t i, size_t stride)
{
    return (const uint64_t *)(const void *)((const char *)values + i * stride);
}

void plim__column_put(struct plim_buf *out, uint8_t id, enum plim_column_coding coding,
                      const uint64_t *values, size_t n, size_t stride)
{
    struct plim_buf body = {0};
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t v = *value_at(values, i, stride);
        plim__varint_put(&body,
                         coding == PLIM_COLUMN_DELTA ? plim__zigzag((int64_t)(v - last)) : v);
        last = v;
    }
    plim_buf_char(out, (char)id);
    plim__text_put(out, plim_buf_str(&body));
    out->failed = out->failed || body.failed;
    plim_buf_fini(&body);
}

bool plim__column_get(struct plim_str column, enum plim_column_coding coding, uint64_t *values,
                      size_t n, size_t stride)
{
    struct plim_cursor c = plim__cursor(column);
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t v = plim__varint_get(&c);
        last = coding == PLIM_COLUMN_DELTA ? last + (uint64_t)plim__unzigzag(v) : v;
        *(uint64_t *)(void *)((char *)values + i * stride) = last;
    }
    return !c.bad && c.p == c.end;
}
