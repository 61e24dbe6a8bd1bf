/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_UTF8_H
#define PLIM_FORMAT_UTF8_H

/* Pieces of text escapes that pickles and JSON share. */

#include "base/buf.h"

/** plim__utf8() - append the code point c (at most 0x10ffff) as UTF-8. */
void plim__utf8(struct plim_buf *out, uint32_t c);

/** plim__hex() - the value of n hexadecimal digits at p, or -1. */
int64_t plim__hex(const char *p, size_t n);

#endif
