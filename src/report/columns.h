/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_COLUMNS_H
#define PLIM_REPORT_COLUMNS_H

/*
 * Named columns of numbers as one run of little-endian bytes that a browser reads in place, through
 * typed arrays. The layout is docs/format/report-data.md.
 *
 * Columns are made with their length, filled by the caller, and joined by plim_columns_write(). Failure
 * is sticky: a maker returns NULL from then on, and plim_columns_write() reports it.
 * Threads: one at a time.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"

#define PLIM_COLUMN_NAME 20u /* bytes of a name, NUL included */

enum plim_column_type {
    PLIM_COLUMN_U8 = 1,
    PLIM_COLUMN_U16 = 2,
    PLIM_COLUMN_U32 = 3,
    PLIM_COLUMN_F64 = 4,
};

struct plim_column {
    char name[PLIM_COLUMN_NAME];
    enum plim_column_type type;
    size_t n;
    void *values; /* arena, [n] */
};

struct plim_columns {
    struct plim_arena arena;
    PLIM_VEC(struct plim_column) list;
    struct plim_err err; /* the first failure */
};

void plim_columns_init(struct plim_columns *columns);
void plim_columns_fini(struct plim_columns *columns);

/** plim_columns_u8()... - a new zeroed column "prefix.name" of n values; NULL after a failure. */
uint8_t *plim_columns_u8(struct plim_columns *c, const char *prefix, const char *name, size_t n);
uint16_t *plim_columns_u16(struct plim_columns *c, const char *prefix, const char *name, size_t n);
uint32_t *plim_columns_u32(struct plim_columns *c, const char *prefix, const char *name, size_t n);
double *plim_columns_f64(struct plim_columns *c, const char *prefix, const char *name, size_t n);

/** plim_columns_bytes() - a column of bytes, copied. */
void plim_columns_bytes(struct plim_columns *c, const char *prefix, const char *name,
                        struct plim_str bytes);

/** plim_columns_write() - append header, directory and values. Errors: the first failure. */
PLIM_MUST_USE enum plim_status plim_columns_write(const struct plim_columns *columns,
                                                  struct plim_buf *out, struct plim_err *err);

/** plim_columns_deflate() - the same, compressed (zlib stream). Errors also: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_columns_deflate(const struct plim_columns *columns,
                                                    struct plim_buf *out, struct plim_err *err);

/** plim_base64() - append the bytes in base64, without line breaks. */
void plim_base64(struct plim_buf *out, struct plim_str bytes);

#endif
