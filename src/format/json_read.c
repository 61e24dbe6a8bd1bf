/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop over tokens with its own stack of open containers. The items of a container wait on a stack of
 * values and go to the builder when it closes, or in batches when it is long.
 */

#include "format/json_read.h"

#include "base/num.h"
#include "format/utf8.h"

#include <stdlib.h>

#define BATCH 2000u /* values of one container that wait; even, so that pairs stay together */

/* What may come next. */
enum expect {
    VALUE,
    VALUE_OR_END,
    KEY,
    KEY_OR_END,
    COLON,
    COMMA_OR_END
};

struct level {
    struct plim_value container;
    size_t base; /* height of the value stack where its items begin */
    bool dict;
    bool exists; /* the container was made, because a batch was flushed */
};

struct json {
    struct plim_window *w;
    struct plim_build *b;
    PLIM_VEC(struct plim_value) values;
    PLIM_VEC(struct level) levels;
    struct plim_buf text; /* a string with escapes */
    enum expect expect;
    bool done;
};

static enum plim_status fail(struct json *j, struct plim_err *err, const char *what)
{
    plim__fail(err, PLIM_E_DATA, "not valid JSON: %s", what);
    plim__err_at(err, plim__window_pos(j->w));
    return PLIM_E_DATA;
}

/* The next byte without taking it; 0 at the end of the input (never valid in JSON). */
static enum plim_status peek(struct json *j, uint8_t *c, struct plim_err *err)
{
    struct plim_window *w = j->w;
    if (w->at == w->end && !w->eof) {
        uint64_t own = j->values.cap * sizeof(struct plim_value) + j->text.cap + w->spill.cap;
        PLIM_TRY(plim__build_budget(j->b, own, plim__window_pos(w), err));
        PLIM_TRY(plim__window_fill(w, err));
    }
    *c = w->at < w->end ? w->buf[w->at] : 0;
    return PLIM_OK;
}

static enum plim_status cut_short(struct json *j, struct plim_err *err)
{
    plim__fail(err, PLIM_E_TRUNCATED, "the JSON ends in the middle");
    plim__err_at(err, plim__window_pos(j->w));
    plim__err_hint(err, "the file was cut short: copy or dump it again");
    return PLIM_E_TRUNCATED;
}

/* -- strings ------------------------------------------------------------------------------------- */

/* Four hexadecimal digits. */
static enum plim_status read_hex4(struct json *j, uint32_t *v, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__window_take(j->w, 4, &s, err));
    int64_t code = plim__hex(s.p, 4);
    if (code < 0) {
        return fail(j, err, "\\u without four hexadecimal digits");
    }
    *v = (uint32_t)code;
    return PLIM_OK;
}

/* Behind "\u": one code point, of a pair of surrogates if it is one. A lone one is U+FFFD. */
static enum plim_status read_unicode(struct json *j, struct plim_err *err)
{
    uint32_t c, low;
    uint8_t next;
    PLIM_TRY(read_hex4(j, &c, err));
    if (c >= 0xd800 && c < 0xdc00) {
        if (j->w->end - j->w->at < 6) {
            PLIM_TRY(plim__window_fill(j->w, err));
        }
        PLIM_TRY(peek(j, &next, err));
        bool pair = next == '\\' && j->w->end - j->w->at >= 2 && j->w->buf[j->w->at + 1] == 'u';
        if (pair) {
            j->w->at += 2;
            PLIM_TRY(read_hex4(j, &low, err));
            bool valid = low >= 0xdc00 && low < 0xe000;
            c = valid ? 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00)) : 0xfffd;
        } else {
            c = 0xfffd;
        }
    } else if (c >= 0xdc00 && c < 0xe000) {
        c = 0xfffd;
    }
    plim__utf8(&j->text, c);
    return PLIM_OK;
}

static enum plim_status read_escape(struct json *j, struct plim_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint8_t c;
    PLIM_TRY(peek(j, &c, err));
    if (j->w->at == j->w->end) {
        return cut_short(j, err);
    }
    const char *known = c ? strchr(from, c) : NULL;
    if (!known && c != 'u') {
        return fail(j, err, "an unknown escape in a string");
    }
    j->w->at++;
    if (c == 'u') {
        return read_unicode(j, err);
    }
    plim_buf_char(&j->text, to[known - from]);
    return PLIM_OK;
}

/* A string with escapes, or across the edge of the window, part by part. */
static enum plim_status read_long_string(struct json *j, struct plim_value *out,
                                         struct plim_err *err)
{
    uint8_t c;
    plim_buf_reset(&j->text);
    for (;;) {
        PLIM_TRY(peek(j, &c, err));
        if (j->w->at == j->w->end) {
            return cut_short(j, err);
        }
        const uint8_t *p = j->w->buf + j->w->at;
        size_t n = 0, left = j->w->end - j->w->at;
        while (n < left && p[n] != '"' && p[n] != '\\') {
            n++;
        }
        plim_buf_add(&j->text, (struct plim_str){(const char *)p, n});
        j->w->at += n;
        if (j->text.n > j->b->limits.string) {
            return plim__fail(err, PLIM_E_BUDGET, "a string is longer than the limit");
        }
        if (n < left) {
            j->w->at++;
            if (p[n] == '"') {
                break;
            }
            PLIM_TRY(read_escape(j, err));
        }
    }
    PLIM_TRY(plim_buf_status(&j->text, err));
    return plim__build_str(j->b, plim_buf_str(&j->text), out, err);
}

/* Behind the opening quote. */
static enum plim_status read_string(struct json *j, struct plim_value *out, struct plim_err *err)
{
    const uint8_t *p = j->w->buf + j->w->at;
    size_t n = 0, left = j->w->end - j->w->at;
    left = left < j->b->limits.string ? left : (size_t)j->b->limits.string;
    while (n < left && p[n] != '"' && p[n] != '\\') {
        n++;
    }
    if (n == left || p[n] == '\\') {
        return read_long_string(j, out, err);
    }
    j->w->at += n + 1;
    return plim__build_str(j->b, (struct plim_str){(const char *)p, n}, out, err);
}

/* -- numbers and words --------------------------------------------------------------------------- */

/* A run of the characters that numbers and words are made of. */
static enum plim_status read_run(struct json *j, char run[64], size_t *n, struct plim_err *err)
{
    uint8_t c;
    *n = 0;
    for (;;) {
        PLIM_TRY(peek(j, &c, err));
        bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    c == '+' || c == '-' || c == '.';
        if (!part) {
            run[*n] = '\0';
            return PLIM_OK;
        }
        if (*n >= 63) {
            return fail(j, err, "a number of more than 63 characters");
        }
        run[(*n)++] = (char)c;
        j->w->at++;
    }
}

static enum plim_status read_plain(struct json *j, struct plim_value *out, struct plim_err *err)
{
    static const struct {
        const char *text;
        struct plim_value value;
    } known[] = {
        {"true", {1, PLIM_V_BOOL}},
        {"false", {0, PLIM_V_BOOL}},
        {"null", {0, PLIM_V_NONE}},
        {"NaN", {UINT64_C(0x7ff8) << 48, PLIM_V_REAL}},
        {"Infinity", {UINT64_C(0x7ff0) << 48, PLIM_V_REAL}},
        {"-Infinity", {UINT64_C(0xfff0) << 48, PLIM_V_REAL}},
    };
    char run[64], *end;
    size_t n;
    uint64_t start = plim__window_pos(j->w);
    PLIM_TRY(read_run(j, run, &n, err));
    for (size_t i = 0; i < PLIM_COUNT_OF(known); i++) {
        if (strcmp(run, known[i].text) == 0) {
            *out = known[i].value;
            return PLIM_OK;
        }
    }
    if (n > 0 && run[0] != '+' && plim__value_parse_int((struct plim_str){run, n}, out)) {
        return PLIM_OK;
    }
    double v = strtod(run, &end);
    bool number = n > 0 && *end == '\0' && (run[0] == '-' || (run[0] >= '0' && run[0] <= '9'));
    if (!number && n > 0 && j->w->at == j->w->end) {
        return cut_short(j, err);
    }
    if (!number) {
        fail(j, err, "a value is expected");
        plim__err_at(err, start);
        return PLIM_E_DATA;
    }
    *out = plim__value_real(v);
    return PLIM_OK;
}

/* -- containers ---------------------------------------------------------------------------------- */

static enum plim_status open_level(struct json *j, bool dict, struct plim_err *err)
{
    struct level level = {.base = j->values.n, .dict = dict};
    if (j->levels.n >= j->b->limits.nesting) {
        return plim__fail(err, PLIM_E_BUDGET, "arrays and objects are nested more than %llu deep",
                          (unsigned long long)j->b->limits.nesting);
    }
    j->expect = dict ? KEY_OR_END : VALUE_OR_END;
    return plim_vec_push(&j->levels, err, level);
}

/* The items that wait go into the container of the innermost level. */
static enum plim_status flush(struct json *j, struct level *level, struct plim_err *err)
{
    size_t n = j->values.n - level->base;
    struct plim_value *items = n > 0 ? j->values.items + level->base : NULL;
    if (!level->exists) {
        enum plim_cell_kind kind = level->dict ? PLIM_CELL_DICT : PLIM_CELL_LIST;
        PLIM_TRY(plim__build_new(j->b, kind, &level->container, err));
        level->exists = true;
    }
    j->values.n = level->base;
    return level->dict ? plim__build_set(j->b, level->container, items, n / 2, err)
                       : plim__build_append(j->b, level->container, items, n, err);
}

/* A value is complete: it waits in its container, or is the root. */
static enum plim_status add_value(struct json *j, struct plim_value v, struct plim_err *err)
{
    PLIM_TRY(plim_vec_push(&j->values, err, v));
    if (j->levels.n == 0) {
        j->done = true;
        return PLIM_OK;
    }
    struct level *level = &j->levels.items[j->levels.n - 1];
    j->expect = COMMA_OR_END;
    return j->values.n - level->base >= BATCH ? flush(j, level, err) : PLIM_OK;
}

static enum plim_status close_level(struct json *j, struct plim_err *err)
{
    struct level level = j->levels.items[--j->levels.n];
    size_t n = j->values.n - level.base;
    const struct plim_value *items = n > 0 ? j->values.items + level.base : NULL;
    if (!level.dict && !level.exists && n == 2 && items[0].kind == PLIM_V_INT &&
        items[1].kind == PLIM_V_INT) { /* as a pool id is written */
        PLIM_TRY(plim__build_tuple(j->b, items, n, &level.container, err));
        j->values.n = level.base;
    } else {
        PLIM_TRY(flush(j, &level, err));
    }
    return add_value(j, level.container, err);
}

/* -- tokens -------------------------------------------------------------------------------------- */

/* A token where a value may stand, its first byte c not yet taken. */
static enum plim_status read_value(struct json *j, uint8_t c, struct plim_err *err)
{
    struct plim_value v;
    if (c == '{' || c == '[') {
        j->w->at++;
        return open_level(j, c == '{', err);
    }
    if (c == '"') {
        j->w->at++;
        PLIM_TRY(read_string(j, &v, err));
    } else {
        PLIM_TRY(read_plain(j, &v, err));
    }
    return add_value(j, v, err);
}

static enum plim_status read_key(struct json *j, uint8_t c, struct plim_err *err)
{
    struct plim_value key;
    if (c != '"') {
        return fail(j, err, "a key in quotes is expected");
    }
    j->w->at++;
    PLIM_TRY(read_string(j, &key, err));
    j->expect = COLON;
    return plim_vec_push(&j->values, err, key);
}

static enum plim_status token(struct json *j, uint8_t c, struct plim_err *err)
{
    bool dict = j->levels.n > 0 && j->levels.items[j->levels.n - 1].dict;
    bool may_end =
        j->expect == VALUE_OR_END || j->expect == KEY_OR_END || j->expect == COMMA_OR_END;
    if (may_end && c == (dict ? '}' : ']')) {
        j->w->at++;
        return close_level(j, err);
    }
    switch (j->expect) {
    case KEY:
    case KEY_OR_END:
        return read_key(j, c, err);
    case COLON:
        if (c != ':') {
            return fail(j, err, "a colon is expected behind a key");
        }
        j->w->at++;
        j->expect = VALUE;
        return PLIM_OK;
    case COMMA_OR_END:
        if (c != ',') {
            return fail(j, err, "a comma or the end of the container is expected");
        }
        j->w->at++;
        j->expect = dict ? KEY : VALUE;
        return PLIM_OK;
    case VALUE:
    case VALUE_OR_END:
    default:
        return read_value(j, c, err);
    }
}

static enum plim_status run(struct json *j, struct plim_err *err)
{
    struct plim_str mark;
    uint8_t c;
    PLIM_TRY(peek(j, &c, err));
    if (c == 0xef) { /* a byte order mark */
        PLIM_TRY(plim__window_take(j->w, 3, &mark, err));
    }
    while (!j->done) {
        PLIM_TRY(peek(j, &c, err));
        if (j->w->at == j->w->end) {
            return cut_short(j, err);
        }
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
            j->w->at++;
            continue;
        }
        PLIM_TRY(token(j, c, err));
    }
    return PLIM_OK;
}

enum plim_status plim__json_run(struct plim_window *w, struct plim_build *b,
                                struct plim_value *root, struct plim_err *err)
{
    struct json j = {.w = w, .b = b, .expect = VALUE};
    enum plim_status st = run(&j, err);
    if (st == PLIM_OK) {
        *root = j.values.items[0];
    } else if (err && err->pos == PLIM_POS_NONE) {
        plim__err_at(err, plim__window_pos(w));
    }
    plim_vec_fini(&j.values);
    plim_vec_fini(&j.levels);
    plim_buf_fini(&j.text);
    return st;
}
