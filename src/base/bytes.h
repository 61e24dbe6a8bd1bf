/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_BYTES_H
#define PLIM_BASE_BYTES_H

/* Byte counts for people: printing in IEC units, and reading what people and programs write. */

#include "base/err.h"
#include "base/str.h"

#define PLIM_BYTES_TEXT 24 /* room for any plim_bytes_format() result, NUL included */

/**
 * plim_bytes_format() - "512 B", "20.0 MiB", "23.47 GiB", "1.20 TiB"; at least three digits of value.
 * @buf: [PLIM_BYTES_TEXT]; returned, so that it can stand in an argument list.
 */
char *plim_bytes_format(char buf[PLIM_BYTES_TEXT], uint64_t bytes);

/**
 * plim_bytes_parse() - "24GiB", "24 GB", "1.5g", "81559MiB", "123456" as bytes.
 * Units: B, bytes, K/KB/KiB, M.., G.., T..; all binary (KB = 1024), because GPU programs mean that;
 * case does not matter; one optional blank before the unit; rounded to the nearest byte.
 * @used: (nullable) bytes of s consumed; when NULL all of s must be consumed.
 * Errors: PLIM_E_USAGE not a size; PLIM_E_RANGE beyond 2^64-1.
 */
PLIM_MUST_USE enum plim_status plim_bytes_parse(struct plim_str s, uint64_t *bytes, size_t *used,
                                                struct plim_err *err);

#endif
