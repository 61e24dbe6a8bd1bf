/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_KEEP_INT_H
#define PLIM_WATCH_KEEP_INT_H

/* Inside the part that keeps: keep.c is the part, keep_fill.c knows what is written of an observation. */

#include "base/map.h"
#include "store/store.h"
#include "watch/watch_int.h"

/* What is remembered from one batch to the next. Zeroed is nothing. */
struct plim__kept {
    struct plim_batch *batch; /* being filled; borrowed */
    struct plim_buf labels;   /* scratch */
    struct plim_map
        labelled; /* hash of a process' key -> hash of its texts when labels were sent */
    uint64_t steps;
    struct plim_map findings; /* id -> severity + 1: events of them were written */
};

/** plim__keep_figures() - names of all figures, static; a point means one by its index. */
const char *const *plim__keep_figures(size_t *n);

/** plim__keep_fill() - the newest observation and its findings into a batch, which is emptied first. Errors:
 * PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__keep_fill(struct plim__kept *kept, struct plim_batch *batch,
                                               const struct plim_watch *watch,
                                               struct plim_err *err);
void plim__kept_fini(struct plim__kept *kept);

#endif
