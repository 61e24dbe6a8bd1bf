/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_REQUESTS_H
#define PLIM_REPLAY_REQUESTS_H

/*
 * What a program asked of its allocator, without what the allocator did about it: the part of a trace
 * that stays true under other settings, on another device, in another PyTorch release.
 *
 *   request   one thing the program did: allocate, free, empty the cache
 *   slot      a small number that names a block while it lives; reused afterwards, so that a replay
 *             finds a block by an array index and needs memory for live blocks only
 *   lane      a stream and a pool: what a request is bound to
 *   burst     a run of segments given back to the driver. One that a failing allocation caused is not
 *             a request and is left out (a replay decides that anew); one that the program caused
 *             (torch.cuda.empty_cache) is kept
 *   doubt     something in the trace that had to be guessed or left out; counted by kind
 *
 * Whose a burst was is known from the stack when there is one: the allocator records its own releases
 * with the stack of the allocation that failed. Without stacks: the allocation behind it would have
 * fitted without the burst (on the device, or in a segment that the burst gave back), so the program
 * did it; else the allocation did.
 *
 * Frees of blocks that other streams still use complete later; the trace says when, and a replay keeps
 * that place. A request that failed in the recording is a request too; when the program went on after
 * it, a replay in which it succeeds frees it at once, because nobody knows how long it would have lived.
 * Blocks from before the recording are in `start`, the heap as it was at the first event.
 *
 * Built once, then read by any number of replays at the same time. 16 bytes for each request.
 */

#include "alloc/conf.h"
#include "heap/snapshot.h"

enum plim_request_kind {
    PLIM_REQUEST_ALLOC,
    PLIM_REQUEST_FREE,       /* and done at once */
    PLIM_REQUEST_FREE_BEGIN, /* waits for other streams */
    PLIM_REQUEST_FREE_END,   /* no longer */
    PLIM_REQUEST_FLUSH,      /* empty_cache; of one private pool when the lane's pool is not 0 */
    PLIM_REQUEST_POOL_DROP,  /* the last user of the lane's private pool is gone */
};

struct plim_request { /* 16 bytes */
    uint64_t size;    /* ALLOC: bytes as the caller asked */
    uint32_t slot;    /* ALLOC, FREE, FREE_*: the block */
    uint32_t what;    /* kind, kept and lane; read with the functions below */
};

#define PLIM_REQUEST_KEPT       8u /* ALLOC: the block is not freed in the trace */
#define PLIM_REQUEST_LANE_SHIFT 4

static inline enum plim_request_kind plim_request_kind(const struct plim_request *r)
{
    return (enum plim_request_kind)(r->what & 7u);
}

static inline uint32_t plim_request_lane(const struct plim_request *r)
{
    return r->what >> PLIM_REQUEST_LANE_SHIFT;
}

static inline bool plim_request_kept(const struct plim_request *r)
{
    return (r->what & PLIM_REQUEST_KEPT) != 0;
}

struct plim_lane {
    uint16_t stream; /* index into plim_snapshot.streams */
    uint16_t pool;   /* index into plim_snapshot.pools */
};

/* X(field, text for people): what was guessed or left out. Zero everywhere in a clean, complete trace. */
#define PLIM_DOUBT_MAP(X)                                                                          \
    X(unknown_frees, "frees of blocks that nobody allocated; left out")                            \
    X(repeated_frees, "blocks freed twice; the second time left out")                              \
    X(lost_frees, "blocks whose free is missing, since their address was handed out again")        \
    X(zero_sizes, "allocations of 0 bytes; left out")                                              \
    X(impossible_sizes, "allocations of 2^60 bytes or more; left out")                             \
    X(unknown_actions, "entries of an unknown kind; left out")                                     \
    X(unsure_bursts, "releases that either empty_cache() or a failing allocation caused; guessed") \
    X(caught_failures, "failed requests after which the program went on; their use is unknown")    \
    X(rounded_failures, "failed requests known only as rounded up by the recorded settings")       \
    X(guessed_pools, "allocations whose pool was taken from the final segments")                   \
    X(start_gaps, "contradictions between the trace and the final heap")

struct plim_doubts {
#define PLIM__X(field, text) uint64_t field; /* see PLIM_DOUBT_MAP */
    PLIM_DOUBT_MAP(PLIM__X)
#undef PLIM__X
};

struct plim_requests_options {
    struct plim_torch_version version; /* of the recording; {0, 0}: guessed from the snapshot */
    uint64_t device_total;             /* bytes of the device; 0: not known */
    uint64_t external;                 /* bytes used by others; meaningful with device_total */
};

struct plim_requests {
    const struct plim_snapshot *snapshot; /* borrowed */
    const struct plim_device *device;     /* borrowed */
    PLIM_VEC(struct plim_request) items;
    PLIM_VEC(struct plim_lane) lanes;
    uint32_t slots;                 /* most blocks that exist at the same time */
    uint64_t allocs;                /* ALLOC requests */
    bool complete;                  /* the trace holds the whole history: `start` is empty */
    struct plim_heap start;         /* at the first event */
    PLIM_VEC(uint32_t) start_slots; /* slot of each block of start; PLIM_NO_ID for free ones */
    PLIM_VEC(uint32_t) start_order; /* segments of start, oldest first; empty: by address */
    PLIM_VEC(uint64_t) start_bases; /* segments' lowest known address of their reservation */
    uint32_t repairs;               /* corrections of start that the trace asked for */
    bool start_verified;   /* from start on the model reproduces the recording (repair.h) */
    struct plim_conf conf; /* the settings of the recording */
    bool conf_known;       /* false: the snapshot has none, or they cannot be parsed */
    uint64_t recorded_peak_reserved; /* in the recording, bytes */
    /* Bytes that the allocator could have in all: reserved + free at a failure in the recording; when
     * none failed but some had to give the cache back first, the most it had. 0: not known. */
    uint64_t recorded_capacity;
    bool recorded_failure;  /* some request failed in the recording */
    uint32_t failure_event; /* with recorded_failure: the first one, an event of the trace */
    bool cap_seen; /* it failed though the device had room: a memory cap, below recorded_capacity */
    uint64_t own_bursts;  /* releases that failing allocations caused */
    uint64_t user_bursts; /* releases that the program caused */
    struct plim_doubts doubts;
};

/**
 * plim_requests_build() - the requests of one device's trace.
 * @device: index into snapshot->devices. @options: nullable.
 * @out: free with plim_requests_fini(); borrows the snapshot.
 * Errors: PLIM_E_NOTFOUND no such device; PLIM_E_BUDGET more than 2^32 events or 2^28 lanes;
 * PLIM_E_NOMEM. Cost: O(events), with one hash operation for each.
 */
PLIM_MUST_USE enum plim_status plim_requests_build(const struct plim_snapshot *snapshot,
                                                   uint32_t device,
                                                   const struct plim_requests_options *options,
                                                   struct plim_requests *out, struct plim_err *err);
void plim_requests_fini(struct plim_requests *requests);

/** plim_requests_event() - the trace event of the n-th ALLOC request, or PLIM_NO_EVENT. O(events). */
uint32_t plim_requests_event(const struct plim_requests *requests, uint64_t alloc_index);

/** plim_requests_busiest() - the device with the most events, for callers that were not told one. */
uint32_t plim_requests_busiest(const struct plim_snapshot *snapshot);

/** plim_recorded_version() - the release that wrote the snapshot, as far as its keys tell. */
struct plim_torch_version plim_recorded_version(const struct plim_snapshot *snapshot);

#endif
