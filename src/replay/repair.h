/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_REPAIR_H
#define PLIM_REPLAY_REPAIR_H

/*
 * A recording that begins in the middle leaves two things about its starting heap open: how far a block
 * reaches that was freed later (an unsplit rest of up to 1 MiB belongs to it), and which of several
 * cached blocks of equal size is the older one. The recorded addresses answer both, one case at a time:
 *
 *   a block was handed out behind a gap        the gap belongs to the block before it
 *   another block of the same size was taken   its segment is older than those that were passed over
 *   another segment of the same size was given back first: likewise
 *   a gap was passed over that would have done  it is smaller: the block before it reaches further
 *
 * So the self-check is run again and again, and the first difference corrects the start, until it says
 * nothing more or the budget is spent. What was learnt is kept in requests->start and start_order.
 */

#include "replay/selfcheck.h"

/**
 * plim_requests_repair() - correct the start of an incomplete history by its trace.
 * @budget: trace entries that may be replayed for it, in all; 0: 400 times the trace, at
 *          most 20 million.
 * @check: (nullable) the self-check after the last correction.
 * Does nothing to a complete history. Errors: PLIM_E_NOMEM, PLIM_E_UNSUPPORTED.
 */
PLIM_MUST_USE enum plim_status plim_requests_repair(struct plim_requests *requests,
                                                    uint64_t capacity, uint64_t budget,
                                                    struct plim_selfcheck *check,
                                                    struct plim_err *err);

#endif
