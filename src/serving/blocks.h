/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_BLOCKS_H
#define PLIM_SERVING_BLOCKS_H

/*
 * The sizes of blocks for mode `pool` of Plimsoll's allocator, from what a server asks for.
 *
 *   asked   the sizes of its requests, in units of the allocator, with how often each came
 *   added   what rounding all requests up to the listed sizes adds, as a share of the bytes asked for
 *
 * How: one run notes what is asked for. Then neighbours become one size, the cheapest pair first, until the
 * next step would add more than a hundredth and there are no more sizes than a list may have. A second run, with
 * that list, says what it does to memory.
 */

#include "serving/soak.h"

struct plim_blocks_choice {
    struct plim_moving_options options; /* mode pool, with the list */
    uint64_t asked;                     /* number of distinct sizes */
    double added;
    struct plim_soak_result result; /* of the second run */
};

/**
 * plim_blocks_choose() - for the server and traffic of *setup. Errors: those of plim_soak_run(); PLIM_E_RANGE the
 * server does not start. Cost: two runs, of which the first repeats no step.
 */
PLIM_MUST_USE enum plim_status plim_blocks_choose(const struct plim_soak_setup *setup,
                                                  struct plim_blocks_choice *out,
                                                  struct plim_err *err);

/** plim_blocks_list() - the list alone. @asked: bytes -> how often. *added as above. Errors: PLIM_E_NOMEM;
 * PLIM_E_RANGE nothing was asked for. Cost: O(n log n) for n sizes, and O(m^2) for 4,096 at most of them. */
PLIM_MUST_USE enum plim_status plim_blocks_list(const struct plim_map *asked,
                                                struct plim_engine_rounding *out, double *added,
                                                struct plim_err *err);

#endif
