/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a trace file, read or rebuilt; see trace_index.h. */

#include "format/trace_index.h"

#include "base/num.h"

#include <errno.h>
#include <unistd.h>

#define SCAN_BYTES (64u * 1024u) /* looked through at a time for the next head after damage */

/* The columns of an index: X(id, how it is written, field of struct row). */
#define COLUMNS(X)                                                                                 \
    X(1, DELTA, at)                                                                                \
    X(2, PLAIN, kind)                                                                              \
    X(3, PLAIN, stored)                                                                            \
    X(4, PLAIN, items)                                                                             \
    X(5, DELTA, first_ns)                                                                          \
    X(6, PLAIN, span_us)

struct row {
    uint64_t at, kind, stored, items, first_ns, span_us;
};

void plim__index_put(struct plim_buf *out, const struct plim_trace_place *places, size_t n)
{
    struct row *rows = calloc(n + 1, sizeof(*rows));
    if (rows == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct plim_trace_frame *f = &places[i].frame;
        rows[i] = (struct row){places[i].at, f->kind, f->stored, f->items, f->first_ns, f->span_us};
    }
#define X(id, coding, field)                                                                       \
    plim__column_put(out, id, PLIM_COLUMN_##coding, &rows[0].field, n, sizeof(*rows));
    COLUMNS(X)
#undef X
    free(rows);
}

void plim__trailer_put(struct plim_buf *out, uint64_t index_at)
{
    for (unsigned i = 0; i < 8; i++) {
        plim_buf_char(out, (char)(index_at >> (8 * i)));
    }
}

/* Up to n bytes at an offset; *got is less only at the end of the file. */
static enum plim_status read_at(int fd, uint64_t at, uint8_t *dst, size_t n, size_t *got,
                                struct plim_err *err)
{
    *got = 0;
    while (*got < n) {
        ssize_t r = pread(fd, dst + *got, n - *got, (off_t)(at + *got));
        if (r < 0 && errno == EINTR) {
            continue;
        }
        if (r < 0) {
            return plim__fail_errno(err, PLIM_E_IO, errno, "cannot read the trace");
        }
        if (r == 0) {
            break;
        }
        *got += (size_t)r;
    }
    return PLIM_OK;
}

/* The rows of an index's payload into places. */
static bool take_rows(struct plim_str payload, struct row *rows, size_t n)
{
    struct plim_cursor c = plim__cursor(payload);
    while (c.p < c.end && !c.bad) {
        uint8_t id = *c.p++;
        struct plim_str column = plim__text_get(&c);
        bool good = true;
        switch (id) {
#define X(number, coding, field)                                                                   \
    case number:                                                                                   \
        good = plim__column_get(column, PLIM_COLUMN_##coding, &rows[0].field, n, sizeof(*rows));   \
        break;
            COLUMNS(X)
#undef X
        default:
            break; /* of a newer version */
        }
        if (!good) {
            return false;
        }
    }
    return !c.bad;
}

static enum plim_status add_rows(struct plim_str payload, size_t n, struct plim_trace_index *index,
                                 bool *good, struct plim_err *err)
{
    struct row *rows = calloc(n + 1, sizeof(*rows));
    enum plim_status st = PLIM_OK;
    if (rows == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the index of a trace");
    }
    *good = take_rows(payload, rows, n);
    for (size_t i = 0; *good && i < n && st == PLIM_OK; i++) {
        const struct row *r = &rows[i];
        struct plim_trace_frame f = {.kind = (uint8_t)r->kind,
                                     .stored = (uint32_t)r->stored,
                                     .items = (uint32_t)r->items,
                                     .first_ns = r->first_ns,
                                     .span_us = (uint32_t)r->span_us};
        st = plim_vec_push(&index->places, err, (struct plim_trace_place){f, r->at});
    }
    free(rows);
    return st;
}

/* The whole frame at an offset; *good is false when there is none. */
static enum plim_status frame_at(int fd, uint64_t at, struct plim_trace_frame *frame,
                                 struct plim_buf *payload, bool *good, struct plim_err *err)
{
    uint8_t head[PLIM_FRAME_HEAD_BYTES];
    size_t got;
    *good = false;
    PLIM_TRY(read_at(fd, at, head, sizeof(head), &got, err));
    if (got < sizeof(head) || !plim__frame_head_get(head, frame)) {
        return PLIM_OK;
    }
    uint8_t *stored = malloc((size_t)frame->stored + 1);
    if (stored == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a frame");
    }
    enum plim_status st = read_at(fd, at + sizeof(head), stored, frame->stored, &got, err);
    if (st == PLIM_OK && got == frame->stored) {
        st = plim__frame_payload(frame, stored, payload, err);
        *good = st == PLIM_OK;
        st = st == PLIM_E_NOMEM ? st : PLIM_OK;
    }
    free(stored);
    return st;
}

/* The index that the last frame leads to, when there is one. */
static enum plim_status read_sealed(int fd, struct plim_trace_index *index, struct plim_buf *buf,
                                    struct plim_err *err)
{
    struct plim_trace_frame frame;
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < (off_t)(PLIM_TRACE_HEAD_BYTES + PLIM_TRAILER_BYTES)) {
        return PLIM_OK;
    }
    bool good;
    PLIM_TRY(frame_at(fd, (uint64_t)end - PLIM_TRAILER_BYTES, &frame, buf, &good, err));
    if (!good || frame.kind != PLIM_FRAME_TRAILER || buf->n != 8) {
        return PLIM_OK;
    }
    uint64_t at = 0;
    for (unsigned i = 0; i < 8; i++) {
        at |= (uint64_t)(uint8_t)buf->p[i] << (8 * i);
    }
    if (at >= (uint64_t)end) {
        return PLIM_OK;
    }
    PLIM_TRY(frame_at(fd, at, &frame, buf, &good, err));
    if (good && frame.kind == PLIM_FRAME_INDEX) {
        PLIM_TRY(add_rows(plim_buf_str(buf), frame.items, index, &index->sealed, err));
    }
    return PLIM_OK;
}

/* The next place at or behind `at` where a head stands; *found is false at the end of the file. */
static enum plim_status find_head(int fd, uint64_t *at, struct plim_trace_frame *frame, bool *found,
                                  struct plim_err *err)
{
    uint8_t *bytes = malloc(SCAN_BYTES);
    enum plim_status st = PLIM_OK;
    size_t got = bytes ? SCAN_BYTES : 0;
    if (bytes == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to look through a trace");
    }
    *found = false;
    while (st == PLIM_OK && !*found && got >= PLIM_FRAME_HEAD_BYTES) {
        st = read_at(fd, *at, bytes, SCAN_BYTES, &got, err);
        size_t i = 0;
        while (st == PLIM_OK && i + PLIM_FRAME_HEAD_BYTES <= got) {
            if (plim__frame_head_get(bytes + i, frame)) {
                *found = true;
                break;
            }
            i++;
        }
        *at += i;
    }
    free(bytes);
    return st;
}

/* Walk from head to head. */
static enum plim_status rebuild(int fd, struct plim_trace_index *index, struct plim_err *err)
{
    uint64_t at = PLIM_TRACE_HEAD_BYTES;
    off_t end = lseek(fd, 0, SEEK_END);
    while (at < (uint64_t)end) {
        struct plim_trace_frame frame;
        bool found;
        uint64_t from = at;
        PLIM_TRY(find_head(fd, &at, &frame, &found, err));
        uint64_t behind = at + PLIM_FRAME_HEAD_BYTES + frame.stored;
        if (!found || behind > (uint64_t)end) {
            index->damaged += (uint64_t)end - from;
            break;
        }
        index->damaged += at - from;
        if (frame.kind != PLIM_FRAME_INDEX && frame.kind != PLIM_FRAME_TRAILER) {
            PLIM_TRY(plim_vec_push(&index->places, err, (struct plim_trace_place){frame, at}));
        }
        at = behind;
    }
    return PLIM_OK;
}

enum plim_status plim_trace_index_read(int fd, struct plim_trace_index *out, struct plim_err *err)
{
    struct plim_trace_index index = {0};
    struct plim_buf buf = {0};
    uint8_t head[PLIM_TRACE_HEAD_BYTES] = {0};
    size_t got;
    PLIM_TRY(read_at(fd, 0, head, sizeof(head), &got, err));
    PLIM_TRY(plim__trace_head_get(head, got, &index.head, err));
    enum plim_status st = read_sealed(fd, &index, &buf, err);
    if (st == PLIM_OK && !index.sealed) {
        index.places.n = 0;
        st = rebuild(fd, &index, err);
    }
    plim_buf_fini(&buf);
    if (st != PLIM_OK) {
        plim_trace_index_fini(&index);
        return st;
    }
    *out = index;
    return PLIM_OK;
}

void plim_trace_index_fini(struct plim_trace_index *index)
{
    plim_vec_fini(&index->places);
}

size_t plim_trace_index_from(const struct plim_trace_index *index, uint64_t ns)
{
    for (size_t i = 0; i < index->places.n; i++) {
        const struct plim_trace_frame *f = &index->places.items[i].frame;
        if (f->kind == PLIM_FRAME_EVENTS &&
            plim_add_sat(f->first_ns, (uint64_t)f->span_us * 1000) >= ns) {
            return i;
        }
    }
    return index->places.n;
}
