/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_BOUND_H
#define PLIM_REPLAY_BOUND_H

/*
 * How far could any allocator go with these requests?
 *
 *   live         the most bytes that are wanted at the same time. A lower bound: no allocator can do with
 *                less, whatever it knows
 *   packed       an upper bound that can be had: the blocks of each lane (stream and pool) laid out in a
 *                range of its own by one who knows all lifetimes in advance. The best of four layouts:
 *                best fit and first fit in the order of time, the same with the blocks that stay put at
 *                the bottom, and the largest blocks placed first
 *   packed_all   the same with all lanes in one range: what binding memory to streams and pools costs
 *
 * The best possible peak lies between live and packed_all. Neither moves a block while it lives.
 * Source: dynamic storage allocation; largest first is greedy by size as in TensorFlow Lite's arena
 * planner (Pisarchyk and Lee, arXiv 2001.03288).
 */

#include "replay/requests.h"

struct plim_bound {
    uint64_t live;       /* bytes, as asked for */
    uint64_t packed;     /* bytes, blocks rounded to 512 */
    uint64_t packed_all; /* bytes, blocks rounded to 512 */
    uint32_t lanes;      /* that have blocks */
};

/**
 * plim_bound_of() - scale: as in struct plim_replay_setup.
 * Errors: PLIM_E_NOMEM. Cost: O(n * holes) for n blocks; O(n^2) for the largest-first layout, which is
 * left out for lanes of more than 6,000 blocks.
 */
PLIM_MUST_USE enum plim_status plim_bound_of(const struct plim_requests *requests, double scale,
                                             struct plim_bound *out, struct plim_err *err);

#endif
