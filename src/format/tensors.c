/* SPDX-License-Identifier: Apache-2.0 */
/* See tensors.h. */

#include "format/tensors.h"

#include "base/num.h"

#include <inttypes.h>
#include <stdlib.h>

enum plim_status plim__tensor_size(struct plim_tensor *tensor, struct plim_err *err)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (plim_mul_overflows(n, tensor->dims[i], &n)) {
            return plim__fail(err, PLIM_E_RANGE, "tensor %.*s is larger than 64 bits can count",
                              PLIM_STR_ARG(tensor->name));
        }
    }
    if (!plim_dtype_bytes(tensor->dtype, n, &tensor->bytes)) {
        return plim__fail(err, PLIM_E_DATA,
                          "tensor %.*s: %" PRIu64 " elements of %s are no whole number of blocks",
                          PLIM_STR_ARG(tensor->name), n, plim_dtype_text(tensor->dtype));
    }
    tensor->elements = n;
    return PLIM_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct plim_tensor *x = *(const struct plim_tensor *const *)a;
    const struct plim_tensor *y = *(const struct plim_tensor *const *)b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

enum plim_status plim__tensors_check(struct plim_arena *arena, const struct plim_tensors *tensors,
                                     uint64_t data_bytes, bool holes, struct plim_err *err)
{
    void *storage = NULL;
    struct plim_arena_mark mark = plim_arena_mark(arena);
    PLIM_TRY(plim_arena_array(arena, tensors->n, sizeof(struct plim_tensor *), &storage, err));
    const struct plim_tensor **sorted = storage;
    for (size_t i = 0; i < tensors->n; i++) {
        sorted[i] = &tensors->items[i];
    }
    qsort(sorted, tensors->n, sizeof *sorted, by_offset);
    enum plim_status st = PLIM_OK;
    uint64_t end = 0;
    for (size_t i = 0; i < tensors->n && st == PLIM_OK; i++) {
        const struct plim_tensor *t = sorted[i];
        uint64_t next = 0;
        if (t->offset < end) {
            st = plim__fail(err, PLIM_E_DATA,
                            "tensor %.*s begins at %" PRIu64 ", inside the one before it",
                            PLIM_STR_ARG(t->name), t->offset);
        } else if (t->offset > end && !holes) {
            st = plim__fail(err, PLIM_E_DATA, "%" PRIu64 " bytes before tensor %.*s belong to none",
                            t->offset - end, PLIM_STR_ARG(t->name));
        } else if (plim_add_overflows(t->offset, t->bytes, &next) || next > data_bytes) {
            st = plim__fail(err, PLIM_E_TRUNCATED, "tensor %.*s ends beyond the file",
                            PLIM_STR_ARG(t->name));
        } else {
            end = next;
        }
    }
    plim_arena_rewind(arena, mark);
    return st;
}
