/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_TRAFFIC_H
#define PLIM_HEAP_TRAFFIC_H

/*
 * The nouns of traffic: what clients ask of a server, before anything was allocated.
 *
 *   arrival   one request of one client: when, and the shape that decides what it costs
 *   shape     prompt and output tokens, or images and their size
 *   session   arrivals of one conversation; each needs the answers before it
 *   hash      names a full block of prompt tokens together with everything before it: arrivals whose
 *             lists begin with the same hashes share that prefix
 *
 * Invariants of a plim_traffic: arrivals are sorted by time, those of the same moment as they were read;
 * the first is at 0; each has a token of prompt and of output at least, or images; its hashes lie in
 * `hashes`. Times are nanoseconds from the start of the traffic. Pure data; threads: one writer or many
 * readers.
 */

#include "base/intern.h"

struct plim_arrival {
    uint64_t at_ns;
    uint32_t prompt;  /* tokens, media excluded */
    uint32_t output;  /* tokens */
    uint32_t session; /* small number, or PLIM_NO_ID */
    uint32_t turn;    /* of its session, from 1; 0: not known */
    uint32_t first_hash;
    uint32_t n_hashes;
    uint16_t images; /* pictures with the prompt, or to be made */
    uint16_t width;  /* pixels of each; 0: not known */
    uint16_t height;
    uint16_t adapter; /* LoRA adapter, from 1; 0: none */
};

struct plim_traffic {
    PLIM_VEC(struct plim_arrival) arrivals;
    PLIM_VEC(uint64_t) hashes;
    uint32_t hash_block; /* tokens named by one hash; 0: no hashes */
    uint32_t sessions;   /* session numbers are below it */
    bool timed;          /* false: the source had lengths only, all at 0 */
};

void plim_traffic_fini(struct plim_traffic *traffic);

/** plim_traffic_settle() - sort by time, keeping the order of equal times, and let the first be at 0.
 * Errors: PLIM_E_NOMEM. Cost: O(n) when sorted already, else O(n log n). */
PLIM_MUST_USE enum plim_status plim_traffic_settle(struct plim_traffic *traffic,
                                                   struct plim_err *err);

/** plim_traffic_spread() - arrivals of one moment are put evenly between it and the next one: recorders round
 * times, which makes bursts that were none. Those of the last moment take the mean gap. Cost: O(n). */
void plim_traffic_spread(struct plim_traffic *traffic);

/** plim_traffic_span() - nanoseconds from the first arrival to the last. */
uint64_t plim_traffic_span(const struct plim_traffic *traffic);

#endif
