/* SPDX-License-Identifier: Apache-2.0 */
/* See dtype.h. */

#include "format/dtype.h"

#include "base/num.h"

struct dtype_row {
    const char *text;
    uint32_t block; /* elements */
    uint32_t bytes; /* of a block */
};

static const struct dtype_row rows[PLIM_DTYPE_COUNT] = {
#define PLIM__X(name, text, block, bytes) {text, block, bytes},
    PLIM_DTYPE_MAP(PLIM__X)
#undef PLIM__X
};

static const struct dtype_row *row_of(enum plim_dtype dtype)
{
    return &rows[(unsigned)dtype < PLIM_DTYPE_COUNT ? dtype : PLIM_DTYPE_UNKNOWN];
}

const char *plim_dtype_text(enum plim_dtype dtype)
{
    return row_of(dtype)->text;
}

enum plim_dtype plim_dtype_from(struct plim_str text)
{
    for (unsigned i = PLIM_DTYPE_UNKNOWN + 1; i < PLIM_DTYPE_COUNT; i++) {
        if (plim_str_eq(text, plim_str_from(rows[i].text))) {
            return (enum plim_dtype)i;
        }
    }
    return PLIM_DTYPE_UNKNOWN;
}

uint32_t plim_dtype_block(enum plim_dtype dtype, uint32_t *bytes)
{
    const struct dtype_row *row = row_of(dtype);
    *bytes = row->bytes;
    return row->block;
}

bool plim_dtype_bytes(enum plim_dtype dtype, uint64_t n, uint64_t *out)
{
    const struct dtype_row *row = row_of(dtype);
    return row->bytes != 0 && n % row->block == 0 &&
           !plim_mul_overflows(n / row->block, row->bytes, out);
}
