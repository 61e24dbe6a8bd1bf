/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_PASSES_H
#define PLIM_DIAGNOSE_PASSES_H

/*
 * Were the blocks of a stack born in one pass of a model, or in many?
 *
 * pass: one call of a model (`forward`) or of a text generator (`generate`), the outermost of them in
 * the stack. The layers of one pass leave as many blocks behind as many passes of a leaking program,
 * and only the stacks tell them apart: the line that calls the model is entered again and again, or
 * every line of the model's own code is, while a loop over layers or time steps stays on its line.
 * Threads: pure.
 */

#include "heap/snapshot.h"

enum plim_passes {
    PLIM_PASSES_UNCLEAR, /* no such call in the stack, or nothing that tells */
    PLIM_PASSES_ONE,
    PLIM_PASSES_MANY,
};

/**
 * plim_passes_of() - passes in which blocks of `stack` were born.
 * @from, @to: events that are looked at. Cost: O(to - from), and O(depth) for each different stack.
 * Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_passes_of(const struct plim_snapshot *snapshot,
                                              const struct plim_trace *trace, uint32_t stack,
                                              size_t from, size_t to, enum plim_passes *out,
                                              struct plim_err *err);

#endif
