/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes outside the fast loop: text forms of protocol 0, single SETITEM and APPEND, long
 * integers, tuples, sets; and the refusal of everything that could call code. One table, one function
 * for each opcode.
 */

#include "format/pickle_internal.h"

#include "base/num.h"
#include "format/utf8.h"

#include <stdlib.h>

/* -- operands ------------------------------------------------------------------------------------ */

/* An unsigned operand of n bytes; presence was checked before the opcode. */
static uint64_t operand(struct plim_pickle *vm, unsigned n)
{
    uint64_t v = 0;
    const uint8_t *p = vm->w->buf + vm->w->at;
    for (unsigned i = n; i > 0; i--) {
        v = v << 8 | p[i - 1];
    }
    vm->w->at += n;
    return v;
}

enum plim_status plim__pickle_take(struct plim_pickle *vm, uint64_t n, struct plim_str *out,
                                   struct plim_err *err)
{
    if (n > vm->b->limits.string) {
        plim__pickle_fail(vm, err, PLIM_E_BUDGET, "a string is longer than the limit");
        plim__err_hint(err, "raise the limit (--max-string) if you trust the file");
        return PLIM_E_BUDGET;
    }
    return plim__window_take(vm->w, n, out, err);
}

static enum plim_status line(struct plim_pickle *vm, struct plim_str *out, struct plim_err *err)
{
    PLIM_TRY(plim__window_line(vm->w, vm->b->limits.string, out, err));
    if (out->n > 0 && out->p[out->n - 1] == '\r') {
        out->n--;
    }
    return PLIM_OK;
}

static enum plim_status push_str(struct plim_pickle *vm, struct plim_str s, struct plim_err *err)
{
    struct plim_value v;
    PLIM_TRY(plim__build_str(vm->b, s, &v, err));
    plim__pickle_push(vm, v);
    return PLIM_OK;
}

/* -- frames, stack ------------------------------------------------------------------------------- */

static enum plim_status op_proto(struct plim_pickle *vm, struct plim_err *err)
{
    uint64_t protocol = operand(vm, 1);
    if (protocol > 5) {
        return plim__pickle_fail(vm, err, PLIM_E_UNSUPPORTED,
                                 "a pickle protocol above 5 is announced");
    }
    vm->protocol = protocol > vm->protocol ? (unsigned)protocol : vm->protocol;
    return PLIM_OK;
}

static enum plim_status op_frame(struct plim_pickle *vm, struct plim_err *err)
{
    (void)err;
    operand(vm, 8); /* a hint for readers that work frame by frame */
    return PLIM_OK;
}

static enum plim_status op_stop(struct plim_pickle *vm, struct plim_err *err)
{
    PLIM_TRY(plim__pickle_need(vm, 1, err));
    vm->stopped = true;
    return PLIM_OK;
}

static enum plim_status op_pop(struct plim_pickle *vm, struct plim_err *err)
{
    size_t height;
    if (vm->n > vm->floor) {
        vm->n--;
        return PLIM_OK;
    }
    return plim__pickle_pop_mark(vm, &height, err); /* as Python does */
}

static enum plim_status op_pop_mark(struct plim_pickle *vm, struct plim_err *err)
{
    return plim__pickle_pop_mark(vm, &vm->n, err);
}

static enum plim_status op_dup(struct plim_pickle *vm, struct plim_err *err)
{
    PLIM_TRY(plim__pickle_need(vm, 1, err));
    plim__pickle_push(vm, vm->stack[vm->n - 1]);
    return PLIM_OK;
}

/* -- constants and numbers ----------------------------------------------------------------------- */

static enum plim_status op_none(struct plim_pickle *vm, struct plim_err *err)
{
    (void)err;
    plim__pickle_push(vm, plim__value(PLIM_V_NONE, 0));
    return PLIM_OK;
}

static enum plim_status op_bool(struct plim_pickle *vm, struct plim_err *err)
{
    (void)err;
    plim__pickle_push(vm, plim__value(PLIM_V_BOOL, vm->op == PLIM_OP_NEWTRUE));
    return PLIM_OK;
}

static enum plim_status push_decimal(struct plim_pickle *vm, struct plim_str s,
                                     struct plim_err *err)
{
    struct plim_value v;
    if (!plim__value_parse_int(plim_str_trim(s), &v)) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "a number is expected");
    }
    plim__pickle_push(vm, v);
    return PLIM_OK;
}

static enum plim_status op_int(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(line(vm, &s, err));
    if (plim_str_eq(s, PLIM_STR("00")) || plim_str_eq(s, PLIM_STR("01"))) {
        plim__pickle_push(vm, plim__value(PLIM_V_BOOL, s.p[1] == '1'));
        return PLIM_OK;
    }
    return push_decimal(vm, s, err);
}

static enum plim_status op_long(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(line(vm, &s, err));
    s.n -= s.n > 0 && s.p[s.n - 1] == 'L';
    return push_decimal(vm, s, err);
}

static enum plim_status op_long_bytes(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    uint64_t n = operand(vm, vm->op == PLIM_OP_LONG1 ? 1 : 4);
    if (n > INT32_MAX) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "a number has a negative length");
    }
    PLIM_TRY(plim__pickle_take(vm, n, &s, err));
    plim__pickle_push(vm, plim__value_long((const uint8_t *)s.p, s.n));
    return PLIM_OK;
}

static enum plim_status op_float(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    char text[64], *end;
    PLIM_TRY(line(vm, &s, err));
    size_t n = s.n < sizeof(text) - 1 ? s.n : sizeof(text) - 1;
    memcpy(text, s.p, n);
    text[n] = '\0';
    double v = strtod(text, &end);
    if (end == text || *end != '\0') {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "a number is expected");
    }
    plim__pickle_push(vm, plim__value_real(v));
    return PLIM_OK;
}

static enum plim_status op_binfloat(struct plim_pickle *vm, struct plim_err *err)
{
    (void)err;
    uint64_t bits = __builtin_bswap64(operand(vm, 8)); /* big-endian in the file */
    plim__pickle_push(vm, plim__value(PLIM_V_REAL, bits));
    return PLIM_OK;
}

/* -- strings ------------------------------------------------------------------------------------- */

static enum plim_status op_string_bytes(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    bool one = vm->op == PLIM_OP_SHORT_BINSTRING || vm->op == PLIM_OP_SHORT_BINBYTES;
    bool four = vm->op == PLIM_OP_BINSTRING || vm->op == PLIM_OP_BINBYTES;
    PLIM_TRY(plim__pickle_take(vm, operand(vm, one ? 1 : four ? 4 : 8), &s, err));
    return push_str(vm, s, err);
}

/* One escape of a quoted string, s.p[0] being the backslash; returns the bytes consumed. */
static size_t unescape(struct plim_str s, struct plim_buf *out)
{
    static const char from[] = "ntr\\'\"abfv0", to[] = "\n\t\r\\'\"\a\b\f\v\0";
    if (s.n < 2) {
        plim_buf_char(out, '\\');
        return 1;
    }
    const char *known = memchr(from, s.p[1], sizeof(from) - 1);
    if (known) {
        plim_buf_char(out, to[known - from]);
        return 2;
    }
    if (s.p[1] == 'x' && s.n >= 4 && plim__hex(s.p + 2, 2) >= 0) {
        plim_buf_char(out, (char)plim__hex(s.p + 2, 2));
        return 4;
    }
    plim_buf_char(out, '\\');
    plim_buf_char(out, s.p[1]);
    return 2;
}

static enum plim_status op_string(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    struct plim_buf text = {0};
    PLIM_TRY(line(vm, &s, err));
    s = plim_str_trim(s);
    if (s.n < 2 || (s.p[0] != '\'' && s.p[0] != '"') || s.p[s.n - 1] != s.p[0]) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "a quoted string is expected");
    }
    s = (struct plim_str){s.p + 1, s.n - 2};
    while (s.n > 0) {
        size_t used = 1;
        if (s.p[0] == '\\') {
            used = unescape(s, &text);
        } else {
            plim_buf_char(&text, s.p[0]);
        }
        s = plim_str_skip(s, used);
    }
    enum plim_status st = plim_buf_status(&text, err);
    st = st == PLIM_OK ? push_str(vm, plim_buf_str(&text), err) : st;
    plim_buf_fini(&text);
    return st;
}

/* raw-unicode-escape: Latin-1 bytes, and \uXXXX or \UXXXXXXXX. */
static enum plim_status op_unicode(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_str s;
    struct plim_buf text = {0};
    PLIM_TRY(line(vm, &s, err));
    while (s.n > 0) {
        size_t digits = s.n >= 6 && s.p[0] == '\\' && s.p[1] == 'u'    ? 4
                        : s.n >= 10 && s.p[0] == '\\' && s.p[1] == 'U' ? 8
                                                                       : 0;
        int64_t c = digits ? plim__hex(s.p + 2, digits) : -1;
        if (c >= 0 && c <= 0x10ffff) {
            plim__utf8(&text, (uint32_t)c);
            s = plim_str_skip(s, 2 + digits);
        } else {
            plim__utf8(&text, (unsigned char)s.p[0]);
            s = plim_str_skip(s, 1);
        }
    }
    enum plim_status st = plim_buf_status(&text, err);
    st = st == PLIM_OK ? push_str(vm, plim_buf_str(&text), err) : st;
    plim_buf_fini(&text);
    return st;
}

/* -- memo ---------------------------------------------------------------------------------------- */

static enum plim_status memo_key(struct plim_pickle *vm, uint64_t *key, struct plim_err *err)
{
    struct plim_str s;
    struct plim_value v;
    PLIM_TRY(line(vm, &s, err));
    if (!plim__value_parse_int(plim_str_trim(s), &v) || !plim__value_u64(v, key)) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "a memo key is expected");
    }
    return PLIM_OK;
}

static enum plim_status op_get(struct plim_pickle *vm, struct plim_err *err)
{
    uint64_t key;
    PLIM_TRY(memo_key(vm, &key, err));
    return plim__pickle_get(vm, key, err);
}

static enum plim_status op_put(struct plim_pickle *vm, struct plim_err *err)
{
    uint64_t key;
    PLIM_TRY(memo_key(vm, &key, err));
    return plim__pickle_put(vm, key, err);
}

/* -- containers ---------------------------------------------------------------------------------- */

static enum plim_status op_empty(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_value v = {0};
    PLIM_TRY(plim__build_new(vm->b, PLIM_CELL_LIST, &v, err)); /* EMPTY_TUPLE, EMPTY_SET */
    plim__pickle_push(vm, v);
    return PLIM_OK;
}

/* DICT, LIST, TUPLE, FROZENSET: all above the mark becomes one container. */
static enum plim_status op_from_mark(struct plim_pickle *vm, struct plim_err *err)
{
    size_t height;
    struct plim_value v;
    PLIM_TRY(plim__pickle_pop_mark(vm, &height, err));
    struct plim_value *items = vm->stack + height;
    size_t n = vm->n - height;
    if (vm->op == PLIM_OP_TUPLE) {
        PLIM_TRY(plim__build_tuple(vm->b, items, n, &v, err));
    } else if (vm->op == PLIM_OP_DICT) {
        if (n % 2 != 0) {
            return plim__pickle_fail(vm, err, PLIM_E_DATA, "a key has no value");
        }
        PLIM_TRY(plim__build_new(vm->b, PLIM_CELL_DICT, &v, err));
        PLIM_TRY(plim__build_set(vm->b, v, items, n / 2, err));
    } else {
        PLIM_TRY(plim__build_new(vm->b, PLIM_CELL_LIST, &v, err));
        PLIM_TRY(plim__build_append(vm->b, v, items, n, err));
    }
    vm->n = height;
    plim__pickle_push(vm, v);
    return PLIM_OK;
}

static enum plim_status op_tuple(struct plim_pickle *vm, struct plim_err *err)
{
    struct plim_value items[3], v;
    size_t n = vm->op == PLIM_OP_TUPLE1 ? 1 : 3;
    PLIM_TRY(plim__pickle_need(vm, n, err));
    vm->n -= n;
    memcpy(items, vm->stack + vm->n, n * sizeof(*items));
    PLIM_TRY(plim__build_tuple(vm->b, items, n, &v, err));
    plim__pickle_push(vm, v);
    return PLIM_OK;
}

static enum plim_status op_append(struct plim_pickle *vm, struct plim_err *err)
{
    PLIM_TRY(plim__pickle_need(vm, 2, err));
    struct plim_value *top = vm->stack + vm->n;
    vm->n--;
    return plim__build_append(vm->b, top[-2], top - 1, 1, err);
}

static enum plim_status op_setitem(struct plim_pickle *vm, struct plim_err *err)
{
    PLIM_TRY(plim__pickle_need(vm, 3, err));
    struct plim_value *top = vm->stack + vm->n;
    vm->n -= 2;
    return plim__build_set(vm->b, top[-3], top - 2, 1, err);
}

static enum plim_status op_additems(struct plim_pickle *vm, struct plim_err *err)
{
    size_t height;
    PLIM_TRY(plim__pickle_pop_mark(vm, &height, err));
    if (height <= vm->floor) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "the stack does not hold what is needed");
    }
    size_t n = vm->n - height;
    vm->n = height;
    return plim__build_append(vm->b, vm->stack[height - 1], vm->stack + height, n, err);
}

/* -- refusal ------------------------------------------------------------------------------------- */

static enum plim_status refuse_code(struct plim_pickle *vm, struct plim_err *err)
{
    plim__fail(err, PLIM_E_UNSAFE, "the pickle wants to name or call code (opcode %s)",
               plim__pickle_op_name(vm->op));
    plim__err_hint(err,
                   "a memory snapshot is plain data; this looks like a model checkpoint or another "
                   "pickled object");
    return PLIM_E_UNSAFE;
}

static enum plim_status refuse_buffer(struct plim_pickle *vm, struct plim_err *err)
{
    return plim__pickle_fail(vm, err, PLIM_E_UNSUPPORTED, "data from outside the file is wanted");
}

static enum plim_status refuse_byte(struct plim_pickle *vm, struct plim_err *err)
{
    plim__fail(err, PLIM_E_DATA, "byte 0x%02x is no pickle opcode", vm->op);
    plim__err_hint(err, "the file is damaged, or not a pickle");
    return PLIM_E_DATA;
}

/* Opcodes that are refused, by their class in pickle_ops.h. */
static enum plim_status refuse(struct plim_pickle *vm, struct plim_err *err)
{
    enum {
        NO_OPCODE,
        DATA,
        CODE,
        BUFFER
    };
    static const uint8_t classes[256] = {
#define PLIM__X(name, byte, operand, cls) [byte] = cls,
        PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
    };
    switch (classes[vm->op & 0xff]) {
    case CODE:
        return refuse_code(vm, err);
    case BUFFER:
        return refuse_buffer(vm, err);
    default:
        return refuse_byte(vm, err);
    }
}

/* The rare opcodes that are executed. X(name, function) */
#define RARE_MAP(X)                                                                                \
    X(PROTO, op_proto)                                                                             \
    X(FRAME, op_frame)                                                                             \
    X(STOP, op_stop)                                                                               \
    X(POP, op_pop)                                                                                 \
    X(POP_MARK, op_pop_mark)                                                                       \
    X(DUP, op_dup)                                                                                 \
    X(NONE, op_none)                                                                               \
    X(NEWTRUE, op_bool)                                                                            \
    X(NEWFALSE, op_bool)                                                                           \
    X(INT, op_int)                                                                                 \
    X(LONG, op_long)                                                                               \
    X(LONG1, op_long_bytes)                                                                        \
    X(LONG4, op_long_bytes)                                                                        \
    X(FLOAT, op_float)                                                                             \
    X(BINFLOAT, op_binfloat)                                                                       \
    X(STRING, op_string)                                                                           \
    X(UNICODE, op_unicode)                                                                         \
    X(BINSTRING, op_string_bytes)                                                                  \
    X(SHORT_BINSTRING, op_string_bytes)                                                            \
    X(BINBYTES, op_string_bytes)                                                                   \
    X(SHORT_BINBYTES, op_string_bytes)                                                             \
    X(BINBYTES8, op_string_bytes)                                                                  \
    X(BYTEARRAY8, op_string_bytes)                                                                 \
    X(BINUNICODE8, op_string_bytes)                                                                \
    X(GET, op_get)                                                                                 \
    X(PUT, op_put)                                                                                 \
    X(EMPTY_TUPLE, op_empty)                                                                       \
    X(EMPTY_SET, op_empty)                                                                         \
    X(DICT, op_from_mark)                                                                          \
    X(LIST, op_from_mark)                                                                          \
    X(TUPLE, op_from_mark)                                                                         \
    X(FROZENSET, op_from_mark)                                                                     \
    X(TUPLE1, op_tuple)                                                                            \
    X(TUPLE3, op_tuple)                                                                            \
    X(APPEND, op_append)                                                                           \
    X(SETITEM, op_setitem)                                                                         \
    X(ADDITEMS, op_additems)

enum plim_status plim__pickle_rare(struct plim_pickle *vm, struct plim_err *err)
{
    vm->op_pos = plim__window_pos(vm->w) - 1;
    switch (vm->op) {
#define PLIM__X(name, function)                                                                    \
    case PLIM_OP_##name:                                                                           \
        return function(vm, err);
        RARE_MAP(PLIM__X)
#undef PLIM__X
    default:
        return refuse(vm, err);
    }
}
