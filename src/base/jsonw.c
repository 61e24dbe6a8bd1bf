/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming JSON: commas, indentation and escapes; the rest is the caller's order of calls. */

#include "base/jsonw.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void plim_jsonw_init(struct plim_jsonw *w, struct plim_buf *out, bool compact)
{
    *w = (struct plim_jsonw){.out = out, .compact = compact};
}

static void newline(struct plim_jsonw *w)
{
    if (!w->compact) {
        plim_buf_char(w->out, '\n');
        plim_buf_repeat(w->out, "  ", (size_t)w->depth);
    }
}

/* What goes before a value or a key: a comma and a new line, or nothing behind a key. */
static void before(struct plim_jsonw *w, bool is_key)
{
    if (w->after_key) {
        assert(!is_key);
        w->after_key = false;
        return;
    }
    if (w->depth == 0) {
        return;
    }
    assert((w->kind[w->depth - 1] == '{') == is_key);
    if (!w->first[w->depth - 1]) {
        plim_buf_char(w->out, ',');
    }
    w->first[w->depth - 1] = false;
    newline(w);
}

static void begin(struct plim_jsonw *w, char kind)
{
    before(w, false);
    assert(w->depth < PLIM_JSONW_DEPTH);
    plim_buf_char(w->out, kind);
    w->kind[w->depth] = kind;
    w->first[w->depth] = true;
    w->depth++;
}

void plim_jsonw_object(struct plim_jsonw *w)
{
    begin(w, '{');
}

void plim_jsonw_array(struct plim_jsonw *w)
{
    begin(w, '[');
}

void plim_jsonw_end(struct plim_jsonw *w)
{
    assert(w->depth > 0 && !w->after_key);
    w->depth--;
    if (!w->first[w->depth]) {
        newline(w);
    }
    plim_buf_char(w->out, w->kind[w->depth] == '{' ? '}' : ']');
    if (w->depth == 0) {
        plim_buf_char(w->out, '\n');
    }
}

static void escape(struct plim_buf *out, char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        plim_buf_char(out, '\\');
        plim_buf_char(out, to[at - from]);
    } else {
        plim_buf_printf(out, "\\u%04x", (unsigned char)c);
    }
}

static void quoted(struct plim_buf *out, struct plim_str s)
{
    plim_buf_char(out, '"');
    while (s.n > 0) {
        size_t run = 0;
        for (size_t n; run < s.n; run += n) {
            unsigned char c = (unsigned char)s.p[run];
            n = c < 0x20 || c == '"' || c == '\\' || c == 0x7f
                    ? 0
                    : plim_str_utf8(plim_str_skip(s, run));
            if (n == 0) {
                break;
            }
        }
        plim_buf_add(out, (struct plim_str){s.p, run});
        s = plim_str_skip(s, run);
        if (s.n > 0) {
            if ((unsigned char)s.p[0] < 0x80) {
                escape(out, s.p[0]);
            } else {
                plim_buf_text(out, "\xef\xbf\xbd"); /* U+FFFD */
            }
            s = plim_str_skip(s, 1);
        }
    }
    plim_buf_char(out, '"');
}

void plim_jsonw_key(struct plim_jsonw *w, const char *key)
{
    before(w, true);
    quoted(w->out, plim_str_from(key));
    plim_buf_text(w->out, w->compact ? ":" : ": ");
    w->after_key = true;
}

void plim_jsonw_str(struct plim_jsonw *w, struct plim_str s)
{
    before(w, false);
    quoted(w->out, s);
}

void plim_jsonw_text(struct plim_jsonw *w, const char *z)
{
    if (z) {
        plim_jsonw_str(w, plim_str_from(z));
    } else {
        plim_jsonw_null(w);
    }
}

void plim_jsonw_u64(struct plim_jsonw *w, uint64_t v)
{
    before(w, false);
    plim_buf_printf(w->out, "%llu", (unsigned long long)v);
}

void plim_jsonw_i64(struct plim_jsonw *w, int64_t v)
{
    before(w, false);
    plim_buf_printf(w->out, "%lld", (long long)v);
}

void plim_jsonw_real(struct plim_jsonw *w, double v)
{
    if (!isfinite(v)) {
        plim_jsonw_null(w);
        return;
    }
    before(w, false);
    plim_buf_real(w->out, v);
}

void plim_jsonw_bool(struct plim_jsonw *w, bool v)
{
    before(w, false);
    plim_buf_text(w->out, v ? "true" : "false");
}

void plim_jsonw_raw(struct plim_jsonw *w, struct plim_str json)
{
    before(w, false);
    plim_buf_add(w->out, json);
}

void plim_jsonw_null(struct plim_jsonw *w)
{
    before(w, false);
    plim_buf_text(w->out, "null");
}

void plim_jsonw_kv_text(struct plim_jsonw *w, const char *key, const char *z)
{
    plim_jsonw_key(w, key);
    plim_jsonw_text(w, z);
}

void plim_jsonw_kv_str(struct plim_jsonw *w, const char *key, struct plim_str s)
{
    plim_jsonw_key(w, key);
    plim_jsonw_str(w, s);
}

void plim_jsonw_kv_u64(struct plim_jsonw *w, const char *key, uint64_t v)
{
    plim_jsonw_key(w, key);
    plim_jsonw_u64(w, v);
}

void plim_jsonw_kv_i64(struct plim_jsonw *w, const char *key, int64_t v)
{
    plim_jsonw_key(w, key);
    plim_jsonw_i64(w, v);
}

void plim_jsonw_kv_real(struct plim_jsonw *w, const char *key, double v)
{
    plim_jsonw_key(w, key);
    plim_jsonw_real(w, v);
}

void plim_jsonw_kv_bool(struct plim_jsonw *w, const char *key, bool v)
{
    plim_jsonw_key(w, key);
    plim_jsonw_bool(w, v);
}
