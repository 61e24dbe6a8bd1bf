/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_EFFECTS_H
#define PLIM_REPLAY_EFFECTS_H

/*
 * Would these settings have saved the request that failed in the recording? For a diagnosis: a few
 * replays, only up to the failure.
 *
 * First the trace is replayed under its own settings. Only when that fails at the same request does the
 * model know what happened, and only then is anything said about other settings. When the recording
 * begins in the middle, a candidate starts with the heap as it was, as if it had been set at that moment;
 * when it does not help from there on, once more with the live blocks asked for anew, as if it had been
 * set from the beginning. If the recorded settings serve the request from there too, the candidate
 * proves nothing, and is not known.
 */

#include "replay/replay.h"

struct plim_effect {
    const char *conf;     /* in: the settings */
    bool known;           /* the rest is meaningful */
    bool serves;          /* the request that failed is served */
    bool from_anew;       /* only as if set from the beginning */
    uint64_t gain;        /* serves: bytes less in use or stranded at that moment */
    uint64_t alloc_index; /* not serves: the first request that fails */
};

struct plim_effects {
    bool reproduced;  /* the replay under the recorded settings fails at the same request */
    uint32_t replays; /* how many were run; 0: how much room there was is not known */
};

/**
 * plim_replay_effects() - the effect of each of n settings on the failure at trace event `event`.
 * @requests: built with what is known of the device. Settings that cannot be parsed in the release of the
 * recording are not known.
 * Errors: PLIM_E_NOMEM; others as plim_replay(). Cost: at most 2 + 2 n replays.
 */
PLIM_MUST_USE enum plim_status plim_replay_effects(const struct plim_requests *requests,
                                                   uint32_t event, struct plim_effect *effects,
                                                   size_t n, struct plim_effects *out,
                                                   struct plim_err *err);

/** plim_requests_index() - number of ALLOC requests ahead of a trace event. O(events). */
uint64_t plim_requests_index(const struct plim_requests *requests, uint32_t event);

#endif
