/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_SEATING_H
#define PLIM_REPLAY_SEATING_H

/*
 * From the requests of a trace to a seating: mode plan of Plimsoll's allocator (plimsoll/seating.h).
 *
 * Requests of private pools take no part. Of the others the part that repeats itself is looked for
 * (period.h), by size and stream. In a recording from the first allocation on, what comes before is the
 * prologue: its blocks live as they did. How long a block of the period lives is counted in requests, the
 * most of the last four whole periods whose end is known. Those that are there again and again get a place
 * (alloc/places.h), in an area of their stream and size class, so that memory of one stream never waits for
 * another. What lives longer than two periods, or is never freed, gets none. When some blocks live longer
 * than one period, the seating holds two periods, so that a block and its successor have different places.
 *
 * Threads: pure. Cost: O(requests), and that of alloc/places.h.
 */

#include "alloc/places.h"
#include "replay/period.h"
#include "replay/requests.h"

#include <plimsoll/seating.h>

struct plim_seating_area {
    uint32_t lane;
    bool large;
    int64_t stream; /* in the recording */
    uint32_t placed;
    struct plim_places places;
};

/* How a seating came about. */
struct plim_seating_facts {
    struct plim_period period; /* in requests outside of private pools */
    uint32_t periods;          /* that the seating holds: 1 or 2 */
    uint32_t once;             /* requests of the prologue */
    uint32_t placed;           /* requests with a place */
    struct plim_places places; /* sums over the areas */
    uint32_t n_areas;
    struct plim_seating_area areas[PLIM_SEATING_LANES * 2];
};

/**
 * plim_seating_make() - @out: free with plim_seating_free().
 * Errors: PLIM_E_NOTFOUND the requests do not repeat themselves; PLIM_E_UNSUPPORTED the period has more
 * than 2^20 requests or 15 streams beside the default one, or an impossible size; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_seating_make(const struct plim_requests *requests,
                                                 struct plim_seating *out,
                                                 struct plim_seating_facts *facts,
                                                 struct plim_err *err);

#endif
