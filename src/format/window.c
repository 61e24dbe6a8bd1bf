/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window of window.h. */

#include "format/window.h"

#include <stdlib.h>

enum plim_status plim__window_init(struct plim_window *w, struct plim_source *source,
                                   struct plim_err *err)
{
    *w = (struct plim_window){.source = source};
    w->buf = calloc(1, PLIM_WINDOW_BYTES + PLIM_WINDOW_PAD);
    if (!w->buf) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a window of %u bytes",
                          PLIM_WINDOW_BYTES);
    }
    return PLIM_OK;
}

void plim__window_fini(struct plim_window *w)
{
    free(w->buf);
    plim_buf_fini(&w->spill);
    *w = (struct plim_window){0};
}

enum plim_status plim__window_fill(struct plim_window *w, struct plim_err *err)
{
    size_t rest = w->end - w->at;
    memmove(w->buf, w->buf + w->at, rest);
    w->base += w->at;
    w->at = 0;
    w->end = rest;
    while (!w->eof && w->end < PLIM_WINDOW_BYTES) {
        size_t got = 0;
        enum plim_status st = w->source->read(w->source->self, w->buf + w->end,
                                              PLIM_WINDOW_BYTES - w->end, &got, err);
        if (st != PLIM_OK) {
            plim__err_at(err, w->base + w->end);
            return st;
        }
        w->eof = got == 0;
        w->end += got;
    }
    memset(w->buf + w->end, 0, PLIM_WINDOW_PAD);
    return PLIM_OK;
}

static enum plim_status truncated(struct plim_window *w, struct plim_err *err)
{
    plim__fail(err, PLIM_E_TRUNCATED, "the data ends in the middle");
    plim__err_at(err, w->base + w->end);
    plim__err_hint(err, "the file was cut short: copy or dump it again");
    return PLIM_E_TRUNCATED;
}

enum plim_status plim__window_take(struct plim_window *w, uint64_t n, struct plim_str *out,
                                   struct plim_err *err)
{
    if (n > w->end - w->at && n <= PLIM_WINDOW_BYTES) {
        PLIM_TRY(plim__window_fill(w, err));
    }
    if (n <= w->end - w->at) {
        *out = (struct plim_str){(const char *)w->buf + w->at, (size_t)n};
        w->at += (size_t)n;
        return PLIM_OK;
    }
    plim_buf_reset(&w->spill);
    while (n > 0) {
        if (w->at == w->end) {
            PLIM_TRY(plim__window_fill(w, err));
        }
        size_t part = w->end - w->at < n ? w->end - w->at : (size_t)n;
        if (part == 0) {
            return truncated(w, err);
        }
        plim_buf_add(&w->spill, (struct plim_str){(const char *)w->buf + w->at, part});
        PLIM_TRY(plim_buf_status(&w->spill, err));
        w->at += part;
        n -= part;
    }
    *out = plim_buf_str(&w->spill);
    return PLIM_OK;
}

enum plim_status plim__window_line(struct plim_window *w, uint64_t limit, struct plim_str *out,
                                   struct plim_err *err)
{
    plim_buf_reset(&w->spill);
    for (;;) {
        if (w->at == w->end) {
            PLIM_TRY(plim__window_fill(w, err));
            if (w->at == w->end) {
                return truncated(w, err);
            }
        }
        const uint8_t *p = w->buf + w->at;
        const uint8_t *newline = memchr(p, '\n', w->end - w->at);
        size_t part = newline ? (size_t)(newline - p) : w->end - w->at;
        if (w->spill.n + part > limit) {
            return plim__fail(err, PLIM_E_BUDGET, "a line is longer than %llu bytes",
                              (unsigned long long)limit);
        }
        plim_buf_add(&w->spill, (struct plim_str){(const char *)p, part});
        PLIM_TRY(plim_buf_status(&w->spill, err));
        w->at += part + (newline ? 1 : 0);
        if (newline) {
            *out = plim_buf_str(&w->spill);
            return PLIM_OK;
        }
    }
}
