/* SPDX-License-Identifier: Apache-2.0 */
/* Growable text with a sticky failure. */

#include "base/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void plim_buf_fini(struct plim_buf *buf)
{
    free(buf->p);
    *buf = (struct plim_buf){0};
}

void plim_buf_reset(struct plim_buf *buf)
{
    buf->n = 0;
    buf->failed = false;
    if (buf->p) {
        buf->p[0] = '\0';
    }
}

void plim_buf_flush(struct plim_buf *buf)
{
    if (!buf->failed && buf->n > 0 && !buf->drain(buf->self, plim_buf_str(buf))) {
        buf->failed = true;
    }
    buf->n = 0;
}

bool plim_buf_reserve(struct plim_buf *buf, size_t n)
{
    if (buf->failed) {
        return false;
    }
    if (n < buf->cap - buf->n && buf->cap) {
        return true;
    }
    if (buf->drain && buf->n >= PLIM_BUF_DRAIN) {
        plim_buf_flush(buf);
        return plim_buf_reserve(buf, n);
    }
    size_t want = buf->n + n + 1;
    size_t cap = buf->cap * 2 > want ? buf->cap * 2 : want + 64;
    char *p = want < n ? NULL : realloc(buf->p, cap);
    if (!p) {
        buf->failed = true;
        return false;
    }
    buf->p = p;
    buf->cap = cap;
    return true;
}

void plim_buf_add(struct plim_buf *buf, struct plim_str s)
{
    if (plim_buf_reserve(buf, s.n)) {
        if (s.n > 0) {
            memcpy(buf->p + buf->n, s.p, s.n);
        }
        buf->n += s.n;
        buf->p[buf->n] = '\0';
    }
}

void plim_buf_text(struct plim_buf *buf, const char *z)
{
    plim_buf_add(buf, plim_str_from(z));
}

void plim_buf_char(struct plim_buf *buf, char c)
{
    plim_buf_add(buf, (struct plim_str){&c, 1});
}

void plim_buf_repeat(struct plim_buf *buf, const char *z, size_t times)
{
    while (times-- > 0) {
        plim_buf_text(buf, z);
    }
}

void plim_buf_u64(struct plim_buf *buf, uint64_t v)
{
    char text[20];
    size_t at = sizeof(text);
    do {
        text[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    plim_buf_add(buf, (struct plim_str){text + at, sizeof(text) - at});
}

void plim_buf_real(struct plim_buf *buf, double v)
{
    char text[40];
    if (!isfinite(v)) {
        plim_buf_text(buf, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            break;
        }
    }
    plim_buf_text(buf, text);
}

void plim_buf_printf(struct plim_buf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        buf->failed = true;
    } else if (plim_buf_reserve(buf, (size_t)n)) {
        vsnprintf(buf->p + buf->n, (size_t)n + 1, fmt, again);
        buf->n += (size_t)n;
    }
    va_end(again);
}

enum plim_status plim_buf_status(const struct plim_buf *buf, struct plim_err *err)
{
    return buf->failed ? plim__fail(err, PLIM_E_NOMEM, "no memory for the output text") : PLIM_OK;
}
