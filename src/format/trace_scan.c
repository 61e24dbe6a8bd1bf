/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from a source; see trace_scan.h. */

#include "format/trace_scan.h"

#include <stdlib.h>

#define FIRST_BYTES  (256u * 1024u)
#define BAD_PAYLOADS 256u /* damaged frames that are looked into */

/* Room for n bytes behind `at`; what was used is dropped first. */
static enum plim_status make_room(struct plim_trace_scan *s, size_t n, struct plim_err *err)
{
    if (s->at > 0) {
        memmove(s->buf, s->buf + s->at, s->end - s->at);
        s->end -= s->at;
        s->at = 0;
    }
    if (n <= s->cap) {
        return PLIM_OK;
    }
    size_t cap = n > 2 * s->cap ? n : 2 * s->cap;
    uint8_t *buf = realloc(s->buf, cap);
    if (buf == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to read a trace");
    }
    s->buf = buf;
    s->cap = cap;
    return PLIM_OK;
}

/* Read until n bytes are there, or the source ends: *got says how many are. Room is taken as bytes
 * arrive, not as they are announced. */
static enum plim_status want(struct plim_trace_scan *s, size_t n, size_t *got, struct plim_err *err)
{
    while (s->end - s->at < n) {
        size_t have = s->end - s->at, step;
        size_t target = n - have > FIRST_BYTES ? have + FIRST_BYTES : n;
        PLIM_TRY(make_room(s, target > FIRST_BYTES ? target : FIRST_BYTES, err));
        PLIM_TRY(s->source->read(s->source->self, s->buf + s->end, s->cap - s->end, &step, err));
        if (step == 0) {
            break;
        }
        s->end += step;
    }
    *got = s->end - s->at;
    return PLIM_OK;
}

static void use(struct plim_trace_scan *s, size_t n)
{
    s->at += n;
    s->pos += n;
}

enum plim_status plim_trace_scan_open(struct plim_trace_scan *scan, struct plim_source *source,
                                      struct plim_err *err)
{
    size_t got;
    *scan = (struct plim_trace_scan){.source = source};
    enum plim_status st = want(scan, PLIM_TRACE_HEAD_BYTES, &got, err);
    st = st == PLIM_OK ? plim__trace_head_get(scan->buf + scan->at, got, &scan->head, err) : st;
    if (st != PLIM_OK) {
        plim_trace_scan_close(scan);
        return st;
    }
    use(scan, PLIM_TRACE_HEAD_BYTES);
    return PLIM_OK;
}

void plim_trace_scan_close(struct plim_trace_scan *scan)
{
    free(scan->buf);
    plim_buf_fini(&scan->payload);
    *scan = (struct plim_trace_scan){0};
}

/* To the next head; false in *found when the source ends before there is one. */
static enum plim_status find_head(struct plim_trace_scan *s, struct plim_trace_frame *frame,
                                  bool *found, struct plim_err *err)
{
    for (uint64_t skipped = 0;; skipped++) {
        size_t got;
        PLIM_TRY(want(s, PLIM_FRAME_HEAD_BYTES, &got, err));
        *found = got >= PLIM_FRAME_HEAD_BYTES;
        if (!*found) {
            s->damaged += skipped;
            s->torn = got;
            return PLIM_OK;
        }
        if (plim__frame_head_get(s->buf + s->at, frame)) {
            s->damaged += skipped;
            return PLIM_OK;
        }
        use(s, 1);
    }
}

/* What to do with a whole frame: hand it out, or not. */
static enum plim_status judge(struct plim_trace_scan *s, const struct plim_trace_frame *frame,
                              bool *wanted, struct plim_err *err)
{
    *wanted = frame->kind == PLIM_FRAME_FACTS || frame->kind == PLIM_FRAME_EVENTS;
    s->frames++;
    s->sealed = s->sealed || frame->kind == PLIM_FRAME_TRAILER;
    if (*wanted || frame->kind == PLIM_FRAME_INDEX || frame->kind == PLIM_FRAME_TRAILER) {
        return PLIM_OK;
    }
    if (frame->kind >= 128) {
        s->unknown++;
        return PLIM_OK;
    }
    plim__fail(err, PLIM_E_UNSUPPORTED, "a newer release wrote this trace (frames of kind %u)",
               frame->kind);
    plim__err_at(err, s->pos);
    plim__err_hint(err, "read it with the release of plimsoll that recorded it, or a newer one");
    return PLIM_E_UNSUPPORTED;
}

/* Behind a damaged frame of `whole` bytes: a torn one has the next one inside, so the search goes on behind
 * its first byte; when that happened often, behind its last, since each try costs a checksum. */
static void step_over(struct plim_trace_scan *s, size_t whole)
{
    size_t n = s->bad_payloads++ < BAD_PAYLOADS ? 1 : whole;
    s->damaged += n;
    use(s, n);
}

enum plim_status plim_trace_scan_next(struct plim_trace_scan *s, bool *more,
                                      struct plim_trace_frame *frame, struct plim_str *payload,
                                      struct plim_err *err)
{
    for (*more = false;;) {
        bool found, wanted;
        size_t got;
        PLIM_TRY(find_head(s, frame, &found, err));
        if (!found) {
            return PLIM_OK;
        }
        size_t whole = PLIM_FRAME_HEAD_BYTES + (size_t)frame->stored;
        PLIM_TRY(want(s, whole, &got, err));
        if (got < whole) {
            s->torn = got;
            return PLIM_OK;
        }
        enum plim_status st =
            plim__frame_payload(frame, s->buf + s->at + PLIM_FRAME_HEAD_BYTES, &s->payload, err);
        if (st == PLIM_E_NOMEM) {
            return st;
        }
        if (st != PLIM_OK) {
            step_over(s, whole);
            continue;
        }
        PLIM_TRY(judge(s, frame, &wanted, err));
        use(s, whole);
        if (wanted) {
            *more = true;
            *payload = plim_buf_str(&s->payload);
            return PLIM_OK;
        }
    }
}
