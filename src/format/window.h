/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_WINDOW_H
#define PLIM_FORMAT_WINDOW_H

/*
 * A sliding window over a source: the parser looks at buf[at, end), and asks for more when it needs it.
 * The bytes are read once; nothing of the source is kept but the window, so a file larger than
 * memory can be read. Behind `end` lie PLIM_WINDOW_PAD zero bytes, so that an operand of fixed size may
 * be loaded before its presence is checked.
 * Threads: one at a time.
 */

#include "base/buf.h"
#include "base/file.h"

#define PLIM_WINDOW_BYTES (256u * 1024u)
#define PLIM_WINDOW_PAD   32u

struct plim_window {
    struct plim_source *source; /* borrowed */
    uint8_t *buf;               /* owned, [PLIM_WINDOW_BYTES + PLIM_WINDOW_PAD] */
    size_t at;                  /* next byte */
    size_t end;                 /* behind the last byte present */
    uint64_t base;              /* offset of buf[0] in the source */
    bool eof;                   /* the source has no more */
    struct plim_buf spill;      /* a run of bytes that is longer than the window */
};

PLIM_MUST_USE enum plim_status plim__window_init(struct plim_window *w, struct plim_source *source,
                                                 struct plim_err *err);
void plim__window_fini(struct plim_window *w);

/** plim__window_fill() - move the rest to the front and read until full or the source ends.
 * Errors: what the source says. Cost: the bytes read. */
PLIM_MUST_USE enum plim_status plim__window_fill(struct plim_window *w, struct plim_err *err);

/**
 * plim__window_take() - the next n bytes in one piece, consumed.
 * Borrowed until the next call. Room is taken as bytes arrive, not as they are announced.
 * Errors: PLIM_E_TRUNCATED, PLIM_E_NOMEM, what the source says.
 */
PLIM_MUST_USE enum plim_status plim__window_take(struct plim_window *w, uint64_t n,
                                                 struct plim_str *out, struct plim_err *err);

/** plim__window_line() - up to the next '\n', which is consumed and not part of *out; at most `limit`
 * bytes (PLIM_E_BUDGET). Otherwise as plim__window_take(). */
PLIM_MUST_USE enum plim_status plim__window_line(struct plim_window *w, uint64_t limit,
                                                 struct plim_str *out, struct plim_err *err);

/* Offset of the next byte in the source. */
static inline uint64_t plim__window_pos(const struct plim_window *w)
{
    return w->base + w->at;
}

#endif
