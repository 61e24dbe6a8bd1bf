/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_JSONW_H
#define PLIM_BASE_JSONW_H

/*
 * Streaming JSON writer: no tree, exact 64-bit integers, always valid UTF-8 (bytes that are not are
 * written as U+FFFD), two-space indentation, keys in the order written. Failure is sticky in the
 * plim_buf. Misuse (a value without a key in an object, unbalanced ends) is a programmer's error and
 * asserted. Nesting is limited to PLIM_JSONW_DEPTH.
 */

#include "base/buf.h"

#define PLIM_JSONW_DEPTH 32

struct plim_jsonw {
    struct plim_buf *out; /* borrowed */
    int depth;
    char kind[PLIM_JSONW_DEPTH];  /* '{' or '[' at each level */
    bool first[PLIM_JSONW_DEPTH]; /* nothing written at this level yet */
    bool compact;                 /* one line, no blanks: for JSON lines and HTTP */
    bool after_key;
};

void plim_jsonw_init(struct plim_jsonw *w, struct plim_buf *out, bool compact);
void plim_jsonw_object(struct plim_jsonw *w); /* { */
void plim_jsonw_array(struct plim_jsonw *w);  /* [ */
void plim_jsonw_end(struct plim_jsonw *w); /* closes the innermost; the outermost adds a newline */
void plim_jsonw_key(struct plim_jsonw *w, const char *key);
void plim_jsonw_str(struct plim_jsonw *w, struct plim_str s);
void plim_jsonw_text(struct plim_jsonw *w, const char *z); /* NULL writes null */
void plim_jsonw_u64(struct plim_jsonw *w, uint64_t v);
void plim_jsonw_i64(struct plim_jsonw *w, int64_t v);
void plim_jsonw_real(struct plim_jsonw *w,
                     double v); /* shortest that reads back; not finite: null */
void plim_jsonw_bool(struct plim_jsonw *w, bool v);
void plim_jsonw_null(struct plim_jsonw *w);
void plim_jsonw_raw(struct plim_jsonw *w,
                    struct plim_str json); /* one value that is JSON already */

/* Key and value in one call, for objects. */
void plim_jsonw_kv_text(struct plim_jsonw *w, const char *key, const char *z);
void plim_jsonw_kv_str(struct plim_jsonw *w, const char *key, struct plim_str s);
void plim_jsonw_kv_u64(struct plim_jsonw *w, const char *key, uint64_t v);
void plim_jsonw_kv_i64(struct plim_jsonw *w, const char *key, int64_t v);
void plim_jsonw_kv_real(struct plim_jsonw *w, const char *key, double v);
void plim_jsonw_kv_bool(struct plim_jsonw *w, const char *key, bool v);

#endif
