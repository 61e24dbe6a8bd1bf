/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_DRIVER_H
#define PLIM_REPLAY_DRIVER_H

/*
 * A trace of driver calls on a device of another size: the same calls in the same order, without an
 * allocator in between. What a framework's allocator would have done on another card instead (cache less,
 * or more) is not in such a trace. Threads: pure.
 */

#include "replay/replay.h"

/**
 * plim_replay_driver() - which request would fail first, and how much is held at most.
 * @setup: capacity, external, until and go_on count; what the process holds outside (heap/outside.h) is
 *         added to `external`.
 * @out: allocated, active, requested and reserved are the same; there are no samples.
 * Errors: PLIM_E_UNSUPPORTED the snapshot is none of driver calls, or settings or a scale are asked for.
 * Cost: O(events). Memory O(live).
 */
PLIM_MUST_USE enum plim_status plim_replay_driver(const struct plim_requests *requests,
                                                  const struct plim_replay_setup *setup,
                                                  struct plim_replay_result *out,
                                                  struct plim_err *err);

/** plim_replay_needs_blocks() - PLIM_E_UNSUPPORTED, with what to do, for a snapshot of driver calls. */
PLIM_MUST_USE enum plim_status plim_replay_needs_blocks(const struct plim_snapshot *snapshot,
                                                        struct plim_err *err);

#endif
