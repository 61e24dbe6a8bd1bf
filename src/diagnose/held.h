/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_HELD_H
#define PLIM_DIAGNOSE_HELD_H

/*
 * Memory of an attempt that failed, and that is still there when the next one fails.
 *
 * attempt: what a program did from some line on until a request failed. When it catches the failure and
 * comes back to the same line, or calls itself again from within the handler, the attempt is over, and
 * all that it had made should be gone. A caught exception that is kept, or whose handler is still
 * running, keeps the frames that it passed through, and their locals with every tensor in them.
 * Threads: pure.
 */

#include "diagnose/site.h"

struct plim_held {
    uint64_t bytes; /* of an earlier attempt, still live at the position; 0: nothing is held */
    uint32_t blocks;
    uint32_t failure; /* event of the failure that ended the attempt */
    uint32_t stack;   /* with which the next attempt began */
};

/**
 * plim_held_find() - what the attempts before the failure at event `position` still hold.
 * @out: of the attempt that holds most. Errors: PLIM_E_NOMEM. Cost: O(position) for each of the first
 * few failures before it.
 */
PLIM_MUST_USE enum plim_status plim_held_find(const struct plim_snapshot *snapshot,
                                              const struct plim_trace *trace,
                                              const struct plim_sites *sites, size_t position,
                                              struct plim_held *out, struct plim_err *err);

#endif
