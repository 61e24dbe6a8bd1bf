/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_PICKLE_INTERNAL_H
#define PLIM_FORMAT_PICKLE_INTERNAL_H

/* Between pickle.c (the machine, its stack and memo, the frequent opcodes) and pickle_rare.c. */

#include "format/pickle.h"
#include "format/pickle_ops.h"
#include "format/pickle_shape.h"

struct plim_pickle {
    struct plim_window *w;
    struct plim_build *b;
    struct plim_value *stack; /* owned, [cap] */
    size_t n;                 /* values on the stack */
    size_t cap;
    size_t *marks; /* owned, [limits.nesting + 1]: stack heights */
    size_t n_marks;
    size_t floor;                     /* height of the innermost mark, 0 without one */
    PLIM_VEC(uint32_t) memo;          /* packed values, PLIM_PACKED_NONE where nothing was put */
    PLIM_VEC(struct plim_value) wide; /* memo values that do not fit 28 bits */
    struct plim_map far;              /* memo keys far beyond the others */
    uint64_t memo_n;                  /* entries, the next key of MEMOIZE */
    struct plim_shapes *shapes;       /* owned; NULL: every entry goes the general way */
    uint64_t entry;      /* offset behind the EMPTY_DICT of an entry to learn from, or 0 */
    size_t entry_height; /* stack height of that dict */
    uint64_t op_pos;     /* offset of the current opcode */
    unsigned op;         /* the current opcode */
    unsigned protocol;
    bool stopped;
};

/* Push onto the stack; room for one is always there (see replenish() in pickle.c). */
static inline void plim__pickle_push(struct plim_pickle *vm, struct plim_value v)
{
    vm->stack[vm->n++] = v;
}

/* Fail with the name of the current opcode; its place is added in plim__pickle_run(). */
enum plim_status plim__pickle_fail(struct plim_pickle *vm, struct plim_err *err,
                                   enum plim_status status, const char *what);

/* PLIM_OK when at least n values lie above the innermost mark. */
PLIM_MUST_USE enum plim_status plim__pickle_need(struct plim_pickle *vm, size_t n,
                                                 struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__pickle_pop_mark(struct plim_pickle *vm, size_t *height,
                                                     struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__pickle_put(struct plim_pickle *vm, uint64_t key,
                                                struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__pickle_get(struct plim_pickle *vm, uint64_t key,
                                                struct plim_err *err);

/* The next n bytes, within the limit on strings. */
PLIM_MUST_USE enum plim_status plim__pickle_take(struct plim_pickle *vm, uint64_t n,
                                                 struct plim_str *out, struct plim_err *err);

/* Opcodes that are not in the fast loop; the opcode byte is consumed, operands are not. */
PLIM_MUST_USE enum plim_status plim__pickle_rare(struct plim_pickle *vm, struct plim_err *err);

#endif
