/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_VEC_H
#define PLIM_BASE_VEC_H

/*
 * Typed growable array: `PLIM_VEC(struct plim_block) blocks = {0};`. A zeroed one is empty and valid.
 * `items` is owned and moves when the vector grows: keep indices, not pointers.
 * Large vectors grow by realloc, which the C library does by moving pages, not bytes.
 * Errors of growing calls: PLIM_E_NOMEM; the vector is then unchanged. Threads: one at a time.
 */

#include "base/err.h"

#include <stdbool.h>
#include <stdlib.h>

#define PLIM_VEC(type)                                                                             \
    struct {                                                                                       \
        type *items; /* owned, [cap] */                                                            \
        size_t n;    /* elements in use */                                                         \
        size_t cap;                                                                                \
    }

/* Make room for `extra` more elements: enum plim_status. */
#define plim_vec_reserve(v, extra, err)                                                            \
    ((v)->cap - (v)->n >= (size_t)(extra)                                                          \
         ? PLIM_OK                                                                                 \
         : plim__vec_grow((void **)&(v)->items, &(v)->cap, (v)->n, (size_t)(extra),                \
                          sizeof(*(v)->items), err))

/* Append one value: enum plim_status. `...` is the value, so that compound literals need no parens. */
#define plim_vec_push(v, err, ...)                                                                 \
    (plim_vec_reserve(v, 1, err) == PLIM_OK ? ((v)->items[(v)->n++] = (__VA_ARGS__), PLIM_OK)      \
                                            : PLIM_E_NOMEM)

/* Free the storage; the vector is empty and usable again. */
#define plim_vec_fini(v)                                                                           \
    do {                                                                                           \
        free((v)->items);                                                                          \
        (v)->items = NULL;                                                                         \
        (v)->n = (v)->cap = 0;                                                                     \
    } while (0)

/* Give unused room back when it is worth it; never fails. */
#define plim_vec_shrink(v)                                                                         \
    plim__vec_shrink((void **)&(v)->items, &(v)->cap, (v)->n, sizeof(*(v)->items))

/* `for` over pointers to the elements; the vector must not grow inside. */
#define plim_vec_foreach(it, v)                                                                    \
    for (__typeof__(*(v)->items) *it = (v)->items;                                                 \
         it != ((v)->n > 0 ? &(v)->items[(v)->n] : (v)->items); it++)

enum plim_status plim__vec_grow(void **items, size_t *cap, size_t n, size_t extra, size_t size,
                                struct plim_err *err);
void plim__vec_shrink(void **items, size_t *cap, size_t n, size_t size);

#endif
