/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_PICKLE_H
#define PLIM_FORMAT_PICKLE_H

/*
 * The restricted pickle machine: executes the opcodes that make plain data and refuses all others
 * with their name and byte offset. Its values go straight to a builder (build.h).
 * Threads: one at a time.
 */

#include "format/build.h"
#include "format/window.h"

/**
 * plim__pickle_run() - execute one pickle from the window, up to and including its STOP.
 * @b:        receives what is made.
 * @root:     the value that the pickle stands for.
 * @protocol: highest protocol announced (0 when none).
 * Errors: PLIM_E_UNSAFE, PLIM_E_TRUNCATED, PLIM_E_DATA, PLIM_E_BUDGET, PLIM_E_NOMEM; err->pos is the
 * offset of the opcode.
 * Cost: linear in the bytes; a few nanoseconds for each opcode.
 */
PLIM_MUST_USE enum plim_status plim__pickle_run(struct plim_window *w, struct plim_build *b,
                                                struct plim_value *root, unsigned *protocol,
                                                struct plim_err *err);

/** plim__pickle_op_name() - "GLOBAL"; NULL for a byte that is no opcode. */
const char *plim__pickle_op_name(unsigned op);

#endif
