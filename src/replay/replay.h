/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_REPLAY_H
#define PLIM_REPLAY_REPLAY_H

/*
 * The requests of a trace on the allocator's model, under any settings, on a device of any size.
 *
 *   capacity  bytes of the device, those of others (external) included
 *   start     what is there before the first request of an incomplete history: the segments and blocks
 *             as they were (AS_WAS), or only its live blocks, asked for anew (ANEW), as if the settings
 *             had been in force from the beginning
 *   stranded  free bytes in segments that a live block keeps from the driver
 *   headroom  free + releasable: what a new request could get without any luck in the cached blocks
 *   stall     time spent in driver calls, by the cost table of the device model; estimated
 *
 * A replay ends with the first request that fails, unless told to go on. Counters and peaks are those
 * of the allocator (torch.cuda.memory_stats) at that moment.
 * Threads: any number of replays of the same requests at the same time. Cost: under 100 ns for each
 * request; memory for live and cached blocks only.
 */

#include "alloc/moving.h"
#include "replay/requests.h"

enum plim_replay_start {
    PLIM_START_AS_WAS,
    PLIM_START_ANEW,
};

struct plim_replay_setup {
    const struct plim_conf *conf; /* settings, with the release */
    uint64_t capacity;            /* bytes; 0: no limit */
    uint64_t external;            /* bytes of it used by others */
    double scale; /* requests that are freed again grow by this factor; 0 or 1: none */
    enum plim_replay_start start;
    bool go_on; /* behind the first failure */
    const struct plim_moving_options *
        moving; /* NULL, or on Plimsoll's allocator: conf does not matter, start is ANEW; borrowed */
    uint64_t until; /* end after so many allocation requests; 0: run all */
};

struct plim_replay_sample {
    uint64_t alloc_index;
    uint64_t active; /* bytes in use, waiting ones included */
    uint64_t reserved;
    uint64_t stranded;
};

#define PLIM_REPLAY_SAMPLES 128 /* most of one replay, evenly over its allocations */

struct plim_replay_result {
    uint64_t events; /* entries that the trace of this run would have */
    uint64_t allocs; /* allocation requests served */
    bool failed;
    struct { /* with failed */
        uint64_t alloc_index;
        uint64_t request_bytes; /* rounded */
        uint64_t device_free;   /* bytes */
        uint64_t stranded;      /* bytes */
    } first_oom;
    struct {
        uint64_t allocated;
        uint64_t active;
        uint64_t reserved;
        uint64_t requested;
        uint64_t stranded; /* over the samples */
    } peak;
    struct { /* at the end */
        uint64_t active;
        uint64_t reserved;
        uint64_t stranded;
        bool failed; /* the last allocation request run was not served */
    } last;
    uint64_t num_alloc_retries;
    uint64_t num_ooms;
    uint64_t num_device_alloc;
    uint64_t num_device_free;
    uint64_t num_sync_all_streams;
    uint64_t driver_calls;
    uint64_t stall_ns;
    uint64_t mean_stranded;  /* over the samples */
    uint64_t least_headroom; /* UINT64_MAX without a limit */
    uint64_t start_failed;   /* blocks of the start that the device had no room for */
    struct {                 /* mode plan, requests: see struct plim_engine_stats */
        uint64_t placed;
        uint64_t displaced;
        uint64_t astray;
    } plan;
    struct plim_replay_sample samples[PLIM_REPLAY_SAMPLES];
    uint32_t n_samples;
};

/**
 * plim_replay() - run the requests.
 * Errors: PLIM_E_UNSUPPORTED backend:cudaMallocAsync; PLIM_E_RANGE external exceeds the capacity, or the
 * start does not fit; PLIM_E_NOMEM. Failing requests are a result, not an error.
 */
PLIM_MUST_USE enum plim_status plim_replay(const struct plim_requests *requests,
                                           const struct plim_replay_setup *setup,
                                           struct plim_replay_result *out, struct plim_err *err);

/** plim_replay_capacity() - what to take as capacity when nobody said: what a failure in the recording
 * tells, else 0 (no limit). */
uint64_t plim_replay_capacity(const struct plim_requests *requests);

#endif
