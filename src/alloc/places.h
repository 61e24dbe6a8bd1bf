/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_PLACES_H
#define PLIM_ALLOC_PLACES_H

/*
 * Places for blocks whose lifetimes are known, so that the addresses used are few: dynamic storage
 * allocation, for a program that does some things once and then others again and again.
 *
 *   moment  a request, by number. Those from `once` on come again, for ever, after `period` moments
 *   stay    a block that is there from the moment of its request on, for `length` moments: those before its
 *           free. One that comes again may be there for a period: its successor takes the same place
 *   height  end of the highest place
 *   bound   the most bytes that are there at the same moment: no height can be less
 *
 * Two stays share addresses only when they have no moment in common. Finding the least height is NP-hard
 * (Garey and Johnson, SR2); here blocks are placed one after the other, each into the smallest gap that it
 * fits or the lowest, in several orders (by size, by size times length, by length, by start), and then in
 * changed ones: of the best so far, in which the blocks on top come earlier. Up to 7 blocks all orders are tried, and the
 * result is the best there is. It ends when the height is within a 2,048th of the bound, or a fixed amount of
 * work is done: the result does not depend on the machine. Threads: pure.
 */

#include "base/err.h"

#include <stdint.h>

#define PLIM_STAY_FOREVER UINT32_MAX

struct plim_stay {
    uint64_t size;  /* bytes, above 0 */
    uint32_t start; /* moment, below once + period */
    /* Moments, above 0; of one that comes again at most the period. PLIM_STAY_FOREVER: never freed, and
     * there only once. */
    uint32_t length;
    uint64_t place; /* result: offset, bytes */
};

struct plim_places {
    uint64_t height; /* bytes */
    uint64_t bound;  /* bytes */
};

/**
 * plim_places_find() - set the place of each stay.
 * @stays: [n]. @once, @period: moments; the period above 0, their sum below 2^30. Sizes add up to less
 * than 2^62.
 * Errors: PLIM_E_NOMEM. Cost: O(n^2) for each order, at most about a second for 10,000 blocks; more only
 * for one order of more than 30,000.
 */
PLIM_MUST_USE enum plim_status plim_places_find(struct plim_stay *stays, uint32_t n, uint32_t once,
                                                uint32_t period, struct plim_places *out,
                                                struct plim_err *err);

#endif
