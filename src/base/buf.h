/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_BUF_H
#define PLIM_BASE_BUF_H

/*
 * Growable text buffer with a sticky failure: writers append without checking each call, and ask
 * once at the end (plim_buf_status). After a failure further writes do nothing. A zeroed buffer is
 * empty and valid. With a drain it holds at most PLIM_BUF_DRAIN bytes and a text, and hands on what
 * is full: for output that may be larger than memory. Threads: one at a time.
 */

#include "base/err.h"
#include "base/str.h"

#define PLIM_BUF_DRAIN (1u << 20) /* bytes */

struct plim_buf {
    char *p; /* owned; NUL behind the text once anything was written */
    size_t n;
    size_t cap;
    bool failed; /* out of memory happened, or the drain refused */
    /* Takes the bytes so far, or refuses; NULL: the buffer grows. */
    bool (*drain)(void *self, struct plim_str bytes);
    void *self; /* of the drain */
};

void plim_buf_fini(struct plim_buf *buf);
void plim_buf_reset(struct plim_buf *buf); /* empty, keeps the storage and clears `failed` */
void plim_buf_flush(struct plim_buf *buf); /* hand on what is there; only with a drain */
bool plim_buf_reserve(struct plim_buf *buf, size_t n); /* room for n more and a NUL, else failed */
void plim_buf_add(struct plim_buf *buf, struct plim_str s);
void plim_buf_text(struct plim_buf *buf, const char *z);
void plim_buf_char(struct plim_buf *buf, char c);
void plim_buf_repeat(struct plim_buf *buf, const char *z, size_t times);
void plim_buf_u64(struct plim_buf *buf, uint64_t v);
/** plim_buf_real() - the shortest decimal text that reads back as the same number; "NaN", "+Inf" and
 * "-Inf" for what is none. */
void plim_buf_real(struct plim_buf *buf, double v);
void plim_buf_printf(struct plim_buf *buf, const char *fmt, ...) PLIM_PRINTF(2, 3);

/** plim_buf_status() - PLIM_OK, or PLIM_E_NOMEM when any write failed. */
PLIM_MUST_USE enum plim_status plim_buf_status(const struct plim_buf *buf, struct plim_err *err);

static inline struct plim_str plim_buf_str(const struct plim_buf *buf)
{
    return (struct plim_str){buf->p ? buf->p : "", buf->n};
}

#endif
