/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: stack, marks, memo, and a loop over the opcodes that make up nearly all of a snapshot.
 *
 * The loop keeps the read position and the stack top in registers (struct regs) and looks only once
 * for each opcode whether 16 bytes and one stack place are left; strings and the last bytes of the
 * input take slower ways. Everything rare is in pickle_rare.c.
 */

#include "format/pickle_internal.h"

#include "base/num.h"

#include <stdlib.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LIKELY(x)     __builtin_expect(!!(x), 1)
#define UNLIKELY(x)   __builtin_expect(!!(x), 0)

#define MARGIN      16u /* bytes that an opcode with its fixed operand may need */
#define FIRST_STACK 4096u

/* "action" as it lies in the memo. */
#define ACTION_KEY ((uint32_t)PLIM_V_STR << PLIM_PACKED_BITS | PLIM_K_ACTION)

/* -- errors -------------------------------------------------------------------------------------- */

const char *plim__pickle_op_name(unsigned op)
{
    static const char *const names[256] = {
#define PLIM__X(name, byte, operand, cls) [byte] = #name,
        PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
    };
    return op < 256 ? names[op] : NULL;
}

enum plim_status plim__pickle_fail(struct plim_pickle *vm, struct plim_err *err,
                                   enum plim_status status, const char *what)
{
    const char *name = plim__pickle_op_name(vm->op);
    return plim__fail(err, status, "%s (opcode %s)", what, name ? name : "?");
}

/* -- stack --------------------------------------------------------------------------------------- */

enum plim_status plim__pickle_need(struct plim_pickle *vm, size_t n, struct plim_err *err)
{
    return vm->n - vm->floor >= n ? PLIM_OK
                                  : plim__pickle_fail(vm, err, PLIM_E_DATA, "the stack is empty");
}

enum plim_status plim__pickle_pop_mark(struct plim_pickle *vm, size_t *height, struct plim_err *err)
{
    if (vm->n_marks == 0) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "no mark is set");
    }
    *height = vm->marks[--vm->n_marks];
    vm->floor = vm->n_marks > 0 ? vm->marks[vm->n_marks - 1] : 0;
    return PLIM_OK;
}

static enum plim_status grow_stack(struct plim_pickle *vm, struct plim_err *err)
{
    size_t cap = vm->cap ? vm->cap * 2 : FIRST_STACK;
    struct plim_value *moved = realloc(vm->stack, cap * sizeof(*moved));
    if (!moved) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a stack of %zu values", cap);
    }
    vm->stack = moved;
    vm->cap = cap;
    return PLIM_OK;
}

/* -- memo ---------------------------------------------------------------------------------------- */

static enum plim_status pack(struct plim_pickle *vm, struct plim_value v, uint32_t *packed,
                             struct plim_err *err)
{
    if (LIKELY(v.u <= PLIM_PACKED_MAX)) {
        *packed = plim__pack(v);
        return PLIM_OK;
    }
    if (vm->wide.n >= PLIM_PACKED_MAX) {
        return plim__pickle_fail(vm, err, PLIM_E_BUDGET, "too many long values in the memo");
    }
    *packed = plim__pack(plim__value((enum plim_value_kind)PLIM_PACKED_WIDE, vm->wide.n));
    return plim_vec_push(&vm->wide, err, v);
}

enum plim_status plim__pickle_put(struct plim_pickle *vm, uint64_t key, struct plim_err *err)
{
    uint32_t packed;
    PLIM_TRY(plim__pickle_need(vm, 1, err));
    if (vm->memo_n >= vm->b->limits.memo) {
        plim__pickle_fail(vm, err, PLIM_E_BUDGET, "the memo has too many entries");
        plim__err_hint(err, "raise the limit (--max-memo) if you trust the file");
        return PLIM_E_BUDGET;
    }
    PLIM_TRY(pack(vm, vm->stack[vm->n - 1], &packed, err));
    if (key > 2 * (uint64_t)vm->memo.n + 1024) { /* far out: not worth a table up to there */
        vm->memo_n += plim_map_get(&vm->far, key) == NULL;
        return key == PLIM_MAP_NO_KEY
                   ? plim__pickle_fail(vm, err, PLIM_E_BUDGET, "the memo key is too large")
                   : plim_map_put(&vm->far, key, packed, err);
    }
    if (vm->shapes && key < vm->memo.n && vm->memo.items[key] != PLIM_PACKED_NONE) {
        plim__shapes_forget(vm->shapes); /* what was learned rests on the old entry */
    }
    while (vm->memo.n <= key) {
        PLIM_TRY(plim_vec_push(&vm->memo, err, PLIM_PACKED_NONE));
    }
    if (vm->memo.items[key] == PLIM_PACKED_NONE) { /* new, unless it was far out before */
        vm->memo_n += !plim_map_take(&vm->far, key, NULL);
    }
    vm->memo.items[key] = packed;
    return PLIM_OK;
}

enum plim_status plim__pickle_get(struct plim_pickle *vm, uint64_t key, struct plim_err *err)
{
    uint32_t packed = PLIM_PACKED_NONE;
    if (key < vm->memo.n) {
        packed = vm->memo.items[key];
    }
    if (packed == PLIM_PACKED_NONE) {
        uint64_t *far = plim_map_get(&vm->far, key);
        if (!far) {
            return plim__pickle_fail(vm, err, PLIM_E_DATA, "the memo has no such entry");
        }
        packed = (uint32_t)*far;
    }
    struct plim_value v = plim__unpack(packed);
    plim__pickle_push(vm, v.kind == PLIM_PACKED_WIDE ? vm->wide.items[v.u] : v);
    return PLIM_OK;
}

/* -- the fast loop ------------------------------------------------------------------------------- */

/* What the loop holds in registers; struct plim_pickle has the truth around every call out. */
struct regs {
    const uint8_t *p;       /* next byte */
    const uint8_t *safe;    /* below it, MARGIN bytes are left */
    struct plim_value *sp;  /* above the top of the stack */
    struct plim_value *top; /* end of the stack's storage */
};

ALWAYS_INLINE void save(struct plim_pickle *vm, const struct regs *r)
{
    vm->w->at = (size_t)(r->p - vm->w->buf);
    vm->n = (size_t)(r->sp - vm->stack);
}

ALWAYS_INLINE void load(const struct plim_pickle *vm, struct regs *r)
{
    r->p = vm->w->buf + vm->w->at;
    r->safe = vm->w->buf + (vm->w->end > MARGIN ? vm->w->end - MARGIN : 0);
    r->sp = vm->stack + vm->n;
    r->top = vm->stack + vm->cap;
}

ALWAYS_INLINE void push(struct regs *r, enum plim_value_kind kind, uint64_t u)
{
    *r->sp++ = plim__value(kind, u);
}

/* Little-endian loads; compilers make one instruction of each. */
ALWAYS_INLINE uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

ALWAYS_INLINE uint64_t load64(const uint8_t *p)
{
    return (uint64_t)load32(p) | (uint64_t)load32(p + 4) << 32;
}

static uint64_t own_bytes(const struct plim_pickle *vm)
{
    uint64_t far = vm->far.slots ? (vm->far.mask + 1) * sizeof(struct plim_map_slot) : 0;
    return far + vm->cap * sizeof(*vm->stack) + vm->memo.cap * sizeof(uint32_t) +
           vm->wide.cap * sizeof(struct plim_value) + vm->w->spill.cap;
}

/* More bytes or stack for the next opcode; at the end of the input, see that it is complete. */
static enum plim_status replenish(struct plim_pickle *vm, struct plim_err *err)
{
    static const uint8_t operands[256] = {
#define PLIM__X(name, byte, operand, cls) [byte] = operand,
        PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
    };
    struct plim_window *w = vm->w;
    if (vm->n >= vm->cap) {
        PLIM_TRY(grow_stack(vm, err));
    }
    if (w->at + MARGIN >= w->end && !w->eof && w->at <= w->end) {
        PLIM_TRY(plim__build_budget(vm->b, own_bytes(vm), plim__window_pos(w), err));
        PLIM_TRY(plim__window_fill(w, err));
    }
    if (w->at >= w->end || w->at + operands[w->buf[w->at]] >= w->end) {
        plim__fail(err, PLIM_E_TRUNCATED, "the pickle ends without its STOP opcode");
        plim__err_at(err, w->base + w->end);
        plim__err_hint(err, "the file was cut short: copy or dump it again");
        return PLIM_E_TRUNCATED;
    }
    return PLIM_OK;
}

ALWAYS_INLINE enum plim_status op_get(struct plim_pickle *vm, struct regs *r, uint64_t key,
                                      struct plim_err *err)
{
    if (LIKELY(key < vm->memo.n)) {
        uint32_t packed = vm->memo.items[key];
        if (LIKELY(packed < PLIM_PACKED_WIDE << PLIM_PACKED_BITS)) {
            *r->sp++ = plim__unpack(packed);
            return PLIM_OK;
        }
    }
    save(vm, r);
    PLIM_TRY(plim__pickle_get(vm, key, err));
    load(vm, r);
    return PLIM_OK;
}

ALWAYS_INLINE enum plim_status op_put(struct plim_pickle *vm, struct regs *r, uint64_t key,
                                      struct plim_err *err)
{
    bool next = key == vm->memo.n && vm->memo.n < vm->memo.cap && vm->memo_n < vm->b->limits.memo;
    if (LIKELY(next && r->sp > vm->stack + vm->floor && r->sp[-1].u <= PLIM_PACKED_MAX)) {
        vm->memo.items[vm->memo.n++] = plim__pack(r->sp[-1]);
        vm->memo_n++;
        return PLIM_OK;
    }
    save(vm, r);
    return plim__pickle_put(vm, key, err);
}

ALWAYS_INLINE enum plim_status op_mark(struct plim_pickle *vm, struct regs *r, struct plim_err *err)
{
    if (UNLIKELY(vm->n_marks >= vm->b->limits.nesting)) {
        plim__pickle_fail(vm, err, PLIM_E_BUDGET, "lists and dicts are nested too deeply");
        plim__err_hint(err, "raise the limit (--max-nesting) if you trust the file");
        return PLIM_E_BUDGET;
    }
    vm->floor = (size_t)(r->sp - vm->stack);
    vm->marks[vm->n_marks++] = vm->floor;
    return PLIM_OK;
}

ALWAYS_INLINE enum plim_status op_new(struct plim_pickle *vm, struct regs *r,
                                      enum plim_cell_kind kind, struct plim_err *err)
{
    PLIM_TRY(plim__build_new(vm->b, kind, r->sp, err));
    r->sp++;
    return PLIM_OK;
}

/* Do the bytes behind an EMPTY_DICT begin a trace entry, as Python's pickler writes them: MEMOIZE, MARK and
 * "action" from the memo? */
ALWAYS_INLINE bool begins_entry(const struct plim_pickle *vm, const uint8_t *p)
{
    if (p[0] != PLIM_OP_MEMOIZE || p[1] != PLIM_OP_MARK) {
        return false;
    }
    uint64_t key = p[2] == PLIM_OP_LONG_BINGET ? load32(p + 3)
                   : p[2] == PLIM_OP_BINGET    ? p[3]
                                               : UINT64_MAX;
    return key < vm->memo.n && vm->memo.items[key] == ACTION_KEY;
}

/* A dict: in one go when it is a trace entry of a known shape. */
ALWAYS_INLINE enum plim_status op_dict(struct plim_pickle *vm, struct regs *r, struct plim_err *err)
{
    const uint8_t *p = r->p;
    if (vm->shapes && begins_entry(vm, p) && r->safe > p + PLIM_SHAPE_MARGIN) {
        size_t made;
        size_t used = plim__shape_run(vm, p, r->safe, r->sp, (size_t)(r->top - r->sp), &made);
        if (LIKELY(used > 0)) {
            r->p += used;
            r->sp += made;
            return PLIM_OK;
        }
        vm->entry = vm->w->base + (uint64_t)(p - vm->w->buf);
        vm->entry_height = (size_t)(r->sp - vm->stack);
    }
    return op_new(vm, r, PLIM_CELL_DICT, err);
}

/* The entry that was noted by op_dict() is complete: learn its shape, if its bytes are still there. */
static void learn(struct plim_pickle *vm)
{
    const struct plim_window *w = vm->w;
    uint64_t cell = vm->stack[vm->entry_height].u;
    uint32_t last = plim__cell(PLIM_CELL_EVENT, vm->b->events.n - 1);
    if (vm->entry >= w->base && vm->b->events.n > 0 && vm->b->cells.items[cell] == last) {
        const uint8_t *p = w->buf + (vm->entry - w->base);
        plim__shape_learn(vm, p, (size_t)(w->buf + w->at - p));
    }
    vm->entry = 0;
}

/* SETITEMS and APPENDS: everything above the mark goes into the container below it. */
ALWAYS_INLINE enum plim_status op_into(struct plim_pickle *vm, struct regs *r, bool dict,
                                       struct plim_err *err)
{
    size_t height;
    save(vm, r);
    PLIM_TRY(plim__pickle_pop_mark(vm, &height, err));
    size_t n = vm->n - height;
    if (UNLIKELY(height <= vm->floor || (dict && n % 2 != 0))) {
        return plim__pickle_fail(vm, err, PLIM_E_DATA, "the stack does not hold what is needed");
    }
    struct plim_value *items = vm->stack + height;
    r->sp = items;
    if (!dict) {
        return plim__build_append(vm->b, items[-1], items, n, err);
    }
    PLIM_TRY(plim__build_set(vm->b, items[-1], items, n / 2, err));
    if (vm->entry && vm->entry_height == height - 1) {
        learn(vm);
    }
    return PLIM_OK;
}

ALWAYS_INLINE enum plim_status op_tuple2(struct plim_pickle *vm, struct regs *r,
                                         struct plim_err *err)
{
    struct plim_value pair[2];
    save(vm, r);
    PLIM_TRY(plim__pickle_need(vm, 2, err));
    r->sp -= 2;
    memcpy(pair, r->sp, sizeof(pair));
    PLIM_TRY(plim__build_tuple(vm->b, pair, 2, r->sp, err));
    r->sp++;
    return PLIM_OK;
}

ALWAYS_INLINE void op_long1(struct regs *r)
{
    unsigned n = *r->p;
    if (LIKELY(n - 1u < 8u)) { /* 1 to 8 bytes: one load, sign extended by shifts */
        unsigned shift = 64 - 8 * n;
        push(r, PLIM_V_INT, (uint64_t)((int64_t)(load64(r->p + 1) << shift) >> shift));
    } else {
        *r->sp++ = plim__value_long(r->p + 1, n);
    }
    r->p += 1 + n;
}

/* A string of n bytes that begin at r->p. */
ALWAYS_INLINE enum plim_status op_str(struct plim_pickle *vm, struct regs *r, uint64_t n,
                                      struct plim_err *err)
{
    const uint8_t *end = vm->w->buf + vm->w->end;
    if (LIKELY(r->p <= end && n <= (size_t)(end - r->p) && n <= vm->b->limits.string)) {
        struct plim_str s = {(const char *)r->p, (size_t)n};
        r->p += n;
        PLIM_TRY(plim__build_str(vm->b, s, r->sp, err));
        r->sp++;
        return PLIM_OK;
    }
    struct plim_str s;
    save(vm, r);
    PLIM_TRY(plim__pickle_take(vm, n, &s, err));
    load(vm, r);
    PLIM_TRY(plim__build_str(vm->b, s, r->sp, err));
    r->sp++;
    return PLIM_OK;
}

ALWAYS_INLINE enum plim_status op_rare(struct plim_pickle *vm, struct regs *r, struct plim_err *err)
{
    save(vm, r);
    PLIM_TRY(plim__pickle_rare(vm, err));
    load(vm, r);
    return PLIM_OK;
}

/* One opcode whose byte is consumed. */
ALWAYS_INLINE enum plim_status step(struct plim_pickle *vm, struct regs *r, struct plim_err *err)
{
    const uint8_t *p = r->p;
    switch (vm->op) {
    case PLIM_OP_BINGET:
        r->p += 1;
        return op_get(vm, r, p[0], err);
    case PLIM_OP_LONG_BINGET:
        r->p += 4;
        return op_get(vm, r, load32(p), err);
    case PLIM_OP_MEMOIZE:
        return op_put(vm, r, vm->memo_n, err);
    case PLIM_OP_BINPUT:
        r->p += 1;
        return op_put(vm, r, p[0], err);
    case PLIM_OP_LONG_BINPUT:
        r->p += 4;
        return op_put(vm, r, load32(p), err);
    case PLIM_OP_MARK:
        return op_mark(vm, r, err);
    case PLIM_OP_EMPTY_DICT:
        return op_dict(vm, r, err);
    case PLIM_OP_EMPTY_LIST:
        return op_new(vm, r, PLIM_CELL_LIST, err);
    case PLIM_OP_SETITEMS:
        return op_into(vm, r, true, err);
    case PLIM_OP_APPENDS:
        return op_into(vm, r, false, err);
    case PLIM_OP_TUPLE2:
        return op_tuple2(vm, r, err);
    case PLIM_OP_LONG1:
        if (UNLIKELY(p[0] > 8)) {
            return op_rare(vm, r, err);
        }
        op_long1(r);
        return PLIM_OK;
    case PLIM_OP_BININT:
        r->p += 4;
        push(r, PLIM_V_INT, (uint64_t)(int64_t)(int32_t)load32(p));
        return PLIM_OK;
    case PLIM_OP_BININT1:
        r->p += 1;
        push(r, PLIM_V_INT, p[0]);
        return PLIM_OK;
    case PLIM_OP_BININT2:
        r->p += 2;
        push(r, PLIM_V_INT, (uint64_t)(p[0] | p[1] << 8));
        return PLIM_OK;
    case PLIM_OP_SHORT_BINUNICODE:
        r->p += 1;
        return op_str(vm, r, p[0], err);
    case PLIM_OP_BINUNICODE:
        r->p += 4;
        return op_str(vm, r, load32(p), err);
    default:
        return op_rare(vm, r, err);
    }
}

static enum plim_status loop(struct plim_pickle *vm, struct plim_err *err)
{
    struct regs r;
    load(vm, &r);
    while (!vm->stopped) {
        if (UNLIKELY(r.p >= r.safe || r.sp >= r.top)) {
            save(vm, &r);
            vm->op_pos = plim__window_pos(vm->w);
            PLIM_TRY(replenish(vm, err));
            load(vm, &r);
        }
        const uint8_t *at = r.p;
        uint64_t base = vm->w->base + (uint64_t)(at - vm->w->buf);
        vm->op = *r.p++;
        enum plim_status st = step(vm, &r, err);
        if (UNLIKELY(st != PLIM_OK)) {
            vm->op_pos = base;
            return st;
        }
    }
    return PLIM_OK;
}

/* -- entry --------------------------------------------------------------------------------------- */

static enum plim_status machine_init(struct plim_pickle *vm, struct plim_err *err)
{
    vm->marks = calloc((size_t)vm->b->limits.nesting + 1, sizeof(*vm->marks));
    if (!vm->marks) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %llu marks",
                          (unsigned long long)vm->b->limits.nesting);
    }
    vm->shapes = vm->b->no_shapes ? NULL : plim__shapes_new();
    if (plim__build_worth_room(vm->b)) {
        (void)plim_vec_reserve(&vm->memo, vm->b->expected / 32,
                               NULL); /* else it grows as it fills */
    }
    return grow_stack(vm, err);
}

static void machine_fini(struct plim_pickle *vm)
{
    vm->b->by_shape = vm->shapes ? vm->shapes->fits : 0;
    plim__shapes_free(vm->shapes);
    free(vm->stack);
    free(vm->marks);
    plim_vec_fini(&vm->memo);
    plim_vec_fini(&vm->wide);
    plim_map_fini(&vm->far);
}

enum plim_status plim__pickle_run(struct plim_window *w, struct plim_build *b,
                                  struct plim_value *root, unsigned *protocol, struct plim_err *err)
{
    struct plim_pickle vm = {.w = w, .b = b};
    enum plim_status st = machine_init(&vm, err);
    if (st == PLIM_OK) {
        st = loop(&vm, err);
    }
    if (st == PLIM_OK) {
        *root = vm.stack[vm.n - 1];
        *protocol = vm.protocol;
    } else if (err && err->pos == PLIM_POS_NONE) {
        plim__err_at(err, vm.op_pos);
    }
    machine_fini(&vm);
    return st;
}
