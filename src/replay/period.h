/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_PERIOD_H
#define PLIM_REPLAY_PERIOD_H

/*
 * Where a sequence repeats itself: the part in which each element equals the one `length` before it.
 *
 * What comes before (loading, a first step) and after (an evaluation) does not matter. Of all lengths the
 * one counts whose part is the longest, of equal ones the smallest; the part has two periods at least, 16
 * elements, and a tenth of the sequence. Lengths that are tried are the most frequent distances between two
 * occurrences of the same 8 or of the same 64 elements in a row. Threads: pure.
 */

#include "base/err.h"

#include <stdint.h>

struct plim_period {
    uint64_t first;  /* element of the part */
    uint64_t n;      /* elements of the part, 2 * length at least */
    uint64_t length; /* elements of a period */
};

/**
 * plim_period_find() - @keys: [n], equal where elements are.
 * Errors: PLIM_E_NOTFOUND it does not repeat itself so; PLIM_E_NOMEM. Cost: O(n) for each of up to 128
 * lengths; 16 bytes for each element.
 */
PLIM_MUST_USE enum plim_status plim_period_find(const uint64_t *keys, uint64_t n,
                                                struct plim_period *out, struct plim_err *err);

#endif
