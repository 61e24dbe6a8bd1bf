/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_SEATING_H
#define PLIM_FORMAT_SEATING_H

/* Seatings (plimsoll/seating.h) as files; docs/format/seating.md. The reader itself is the plug-in's. */

#include "base/buf.h"

#include <plimsoll/seating.h>

/** plim_seating_write() - the text. Errors: the buffer's. */
void plim_seating_write(const struct plim_seating *p, struct plim_buf *out);

/**
 * plim_seating_read() - a file of such a text. @out: free with plim_seating_free().
 * Errors: PLIM_E_NOINPUT; PLIM_E_BUDGET larger than 64 MiB; PLIM_E_DATA with the line; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_seating_read(const char *path, struct plim_seating *out,
                                                 struct plim_err *err);

#endif
