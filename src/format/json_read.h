/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_JSON_READ_H
#define PLIM_FORMAT_JSON_READ_H

/*
 * JSON as a stream into a builder: what json.dump() makes of torch.cuda.memory_snapshot() or of a whole
 * snapshot. No tree; integers are exact over int64_t and uint64_t; NaN and Infinity are read as Python
 * writes them; an array of two integers is a pool id. Threads: one at a time.
 */

#include "format/build.h"
#include "format/window.h"

/**
 * plim__json_run() - one JSON value from the window into the builder.
 * Errors: PLIM_E_DATA with the byte offset, PLIM_E_TRUNCATED, PLIM_E_BUDGET, PLIM_E_NOMEM.
 * Cost: linear in the bytes.
 */
PLIM_MUST_USE enum plim_status plim__json_run(struct plim_window *w, struct plim_build *b,
                                              struct plim_value *root, struct plim_err *err);

#endif
