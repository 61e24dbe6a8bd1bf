/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_DOOR_RUN_H
#define PLIM_SERVING_DOOR_RUN_H

/* A door and the engine behind it, during a run. Only the paged workload has doors that turn away. */

#include "serving/engine.h"

/** plim__door_open() - for a pool of so many usable blocks. Errors: PLIM_E_USAGE, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__door_open(struct plim__engine *e, uint64_t blocks,
                                               struct plim_err *err);
void plim__door_close(struct plim__engine *e);

/** plim__door_ask() - a request has come: to `waiting`, into the line, or away. */
void plim__door_ask(struct plim__engine *e, struct plim__ticket *t);
/** plim__door_line() - let in from the line what may come in now. */
void plim__door_line(struct plim__engine *e);

/** Its first token is out; it has a token more; it is served; it was lost. */
void plim__door_first(struct plim__engine *e, struct plim__ticket *t);
void plim__door_grew(struct plim__engine *e, const struct plim__ticket *t);
void plim__door_done(struct plim__engine *e, const struct plim__ticket *t);
void plim__door_lost(struct plim__engine *e, const struct plim__ticket *t);

/** plim__oracle_*() - the oracle's books: what is inside and how long it will stay. They do nothing for other doors.
 * fits: whether at every moment until all inside have ended, the blocks of all of them and this one fit. */
bool plim__oracle_fits(struct plim__engine *e, const struct plim__ticket *t);
void plim__oracle_note(struct plim__engine *e, const struct plim__ticket *t);
void plim__oracle_grew(struct plim__engine *e, const struct plim__ticket *t);
void plim__oracle_forget(struct plim__engine *e, const struct plim__ticket *t);

/** plim__door_watch() - once a simulated second: the engine's figures to the gate. @usage: share of the pool. */
void plim__door_watch(struct plim__engine *e, double usage);

#endif
