/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_TORCH_H
#define PLIM_ALLOC_TORCH_H

/*
 * A model of PyTorch's native CUDA caching allocator, exact to the byte: fed the same requests it gives
 * the same addresses, makes the same driver calls in the same order, keeps the same statistics and has
 * the same snapshot. tests/oracle compares it with the library itself.
 *
 *   request    bytes that a caller wants on a stream from a pool
 *   block      a piece of a segment, named by a handle while it is handed out or pending
 *   segment    what one cudaMalloc gave, or a mapped run of an expandable segment
 *   pool       the default pool, or a private one (CUDA graphs, MemPool); each has a small and a large half
 *   stream     a handle known by a small index; free blocks are reused only on their own stream
 *   pending    freed by the caller, still waiting for other streams
 *   cached     free; kept by the allocator
 *
 * Handles carry a serial number, so that a stale or wrong one is noticed, never followed.
 * A request that cannot be met is a result, not an error: the status is PLIM_OK, the handle is
 * PLIM_TORCH_NONE and plim_torch_failure() says why. Errors are the host's or the caller's: PLIM_E_NOMEM
 * (host memory; the model is then no longer exact and must be freed), PLIM_E_NOTFOUND (handle, pool or
 * stream unknown), PLIM_E_DATA (a scripted address that cannot be).
 *
 * Cost: O(log free blocks) for alloc and free, O(1) to find a block by handle. Memory: 64 bytes for each
 * block, live or cached, and about 30 for each cached one; nothing grows with the number of requests.
 * Threads: one at a time for a model and its device; different models are independent.
 * Source: behaviour of torch 2.14.1 observed from outside, and PyTorch's headers; version differences by
 * pull request (alloc/version.h).
 */

#include "alloc/conf.h"
#include "alloc/devmodel.h"
#include "base/buf.h"
#include "heap/snapshot.h"

struct plim_torch;

#define PLIM_TORCH_NONE         UINT64_C(0) /* no block */
#define PLIM_TORCH_POOL_DEFAULT 0           /* index of pool (0,0) */
#define PLIM_TORCH_POOL_ROUTED  UINT16_MAX  /* let the active routings choose (plim_torch_route) */

/* ---- events: what memory history would record ------------------------------------------------- */

/* One entry; the actions are those of plim_event. Delivered while the model is in the middle of a call:
 * the callback must not call the model. */
struct plim_torch_event {
    enum plim_action action;
    uint64_t addr;   /* for OOM: the device's free bytes */
    uint64_t size;   /* as in plim_event */
    uint64_t block;  /* handle for ALLOC and FREE_*, else PLIM_TORCH_NONE */
    uint16_t stream; /* stream index */
    uint16_t pool;   /* pool index */
};

typedef void plim_torch_event_fn(void *ctx, const struct plim_torch_event *event);

struct plim_torch_config {
    struct plim_torch_version version;
    const struct plim_conf *conf;  /* copied; must be of the same version */
    struct plim_devmodel *device;  /* borrowed until plim_torch_free */
    plim_torch_event_fn *on_event; /* NULL: no events, no cost */
    void *ctx;                     /* for on_event */
};

/**
 * plim_torch_new() - an allocator with nothing cached. Stream index 0 is the default stream (handle 0).
 * The cap of conf->memory_fraction is applied at once, as PyTorch does at start.
 * Errors: PLIM_E_NOMEM, PLIM_E_UNSUPPORTED (backend:cudaMallocAsync: see alloc/async.h).
 */
PLIM_MUST_USE enum plim_status plim_torch_new(const struct plim_torch_config *config,
                                              struct plim_torch **out, struct plim_err *err);

/** plim_torch_delete() - free the model; the device is left as it is. NULL is allowed. */
void plim_torch_delete(struct plim_torch *t);

/** plim_torch_reconf() - new settings at run time, as torch.cuda.memory._set_allocator_settings. */
void plim_torch_reconf(struct plim_torch *t, const struct plim_conf *conf);

/** plim_torch_conf() - the settings in force; borrowed. */
const struct plim_conf *plim_torch_conf(const struct plim_torch *t);

/* ---- streams and pools ------------------------------------------------------------------------ */

/**
 * plim_torch_stream() - index of a stream handle, added when new. The unsigned order of handles is the
 * order in which cached blocks of different streams are released.
 * @hash: what PyTorch hashes for the stream's event queue (c10::Stream::hash); only the order in which
 * frees complete that become ready at the same moment depends on it. plim_torch_stream_hash() of the
 * handle when not known.
 * Errors: PLIM_E_NOMEM; PLIM_E_BUDGET beyond 65,534 streams.
 */
PLIM_MUST_USE enum plim_status plim_torch_stream(struct plim_torch *t, int64_t handle,
                                                 uint64_t hash, uint16_t *index,
                                                 struct plim_err *err);

/** plim_torch_stream_hash() - c10::Stream::hash of a CUDA stream id on a device. Pure. */
uint64_t plim_torch_stream_hash(uint8_t device, int64_t stream_id);

/** plim_torch_stream_handle() - the handle of a stream index; 0 for an unknown one. */
int64_t plim_torch_stream_handle(const struct plim_torch *t, uint16_t index);

enum plim_torch_pool_flag {
    PLIM_TORCH_POOL_OVERFLOW = 1, /* MemPool(use_on_oom=True) */
    PLIM_TORCH_POOL_NO_SPLIT = 2, /* MemPool(no_split=True) */
    PLIM_TORCH_POOL_CUSTOM = 4,   /* has its own allocator: never expandable */
};

/**
 * plim_torch_pool_retain() - create the pool with that id, or one more use of it. *index stays valid
 * after the pool is gone; using it then creates the pool anew.
 * @flags: enum plim_torch_pool_flag, added to those the pool has. Flags that the version lacks are
 * ignored.
 * Errors: PLIM_E_NOMEM; PLIM_E_USAGE for id (0,0) or beyond 65,534 pools.
 */
PLIM_MUST_USE enum plim_status plim_torch_pool_retain(struct plim_torch *t, struct plim_pool_id id,
                                                      unsigned flags, uint16_t *index,
                                                      struct plim_err *err);

/** plim_torch_pool_release() - one use less; without uses its free segments may be released. */
PLIM_MUST_USE enum plim_status plim_torch_pool_release(struct plim_torch *t, uint16_t pool,
                                                       struct plim_err *err);

/** plim_torch_pool_id() - the id of a pool index; (0,0) for an unknown one. */
struct plim_pool_id plim_torch_pool_id(const struct plim_torch *t, uint16_t pool);

/**
 * plim_torch_route_begin()/end() - requests with PLIM_TORCH_POOL_ROUTED on `stream` (or on any, with
 * PLIM_TORCH_ANY_STREAM) go to `pool`; the latest matching routing wins.
 * Errors: PLIM_E_USAGE "beginAllocateToPool: already recording to mempool_id ..." as PyTorch.
 */
#define PLIM_TORCH_ANY_STREAM UINT16_MAX
PLIM_MUST_USE enum plim_status plim_torch_route_begin(struct plim_torch *t, uint16_t pool,
                                                      uint16_t stream, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_torch_route_end(struct plim_torch *t, uint16_t pool,
                                                    struct plim_err *err);

/** plim_torch_capture() - a CUDA graph capture on `stream`, which becomes the current one, begins or
 * ends. While it lasts, requests on that stream neither complete pending frees nor release cached memory,
 * and frees of blocks used on several streams wait for its end. */
void plim_torch_capture(struct plim_torch *t, uint16_t stream, bool begin);

/* ---- requests ---------------------------------------------------------------------------------- */

/**
 * plim_torch_alloc() - serve a request.
 * @size: bytes; 0 gives PLIM_TORCH_NONE without any effect, as PyTorch does.
 * @stream, @pool: indices from plim_torch_stream() and plim_torch_pool_retain().
 * @block: handle, or PLIM_TORCH_NONE when out of memory (plim_torch_failure).
 */
PLIM_MUST_USE enum plim_status plim_torch_alloc(struct plim_torch *t, uint64_t size,
                                                uint16_t stream, uint16_t pool, uint64_t *block,
                                                struct plim_err *err);

enum plim_torch_failure_kind {
    PLIM_TORCH_FAILED_OOM,       /* counted in num_ooms */
    PLIM_TORCH_FAILED_REJECTED,  /* throw_on_cudamalloc_oom: counted in num_oom_rejections */
    PLIM_TORCH_FAILED_TOO_LARGE, /* 2^60 bytes or more: not counted */
};

struct plim_torch_failure {
    enum plim_torch_failure_kind kind;
    uint64_t requested;   /* bytes the caller wanted */
    uint64_t rounded;     /* block size; what the trace's oom entry and first_oom name */
    uint64_t driver;      /* what a new segment would have taken; what the error text names */
    uint64_t device_free; /* cudaMemGetInfo at that moment */
    uint64_t device_total;
    uint64_t cap;          /* memory cap, UINT64_MAX = none */
    uint64_t allocated;    /* allocated_bytes.all.current */
    uint64_t reserved;     /* reserved_bytes.all.current */
    uint64_t private_free; /* free bytes in private pools */
    uint16_t stream;
    uint16_t pool;
};

/** plim_torch_failure() - about the latest request that gave PLIM_TORCH_NONE; borrowed. */
const struct plim_torch_failure *plim_torch_failure(const struct plim_torch *t);

/**
 * plim_torch_free() - the caller lets go of a block. Without recorded streams it is cached at once;
 * otherwise events are recorded and a later request completes it.
 * Errors: PLIM_E_NOTFOUND "invalid device pointer" for a handle that is not handed out.
 */
PLIM_MUST_USE enum plim_status plim_torch_free(struct plim_torch *t, uint64_t block,
                                               struct plim_err *err);

/**
 * plim_torch_free_deferred() - as plim_torch_free() on a block used by other streams, but the moment of
 * completion is the caller's: plim_torch_complete(). For replaying traces, which say when a free
 * completed but not why. Synchronising calls (a failing request, plim_torch_empty_cache) complete it
 * earlier, as they wait for the events.
 */
PLIM_MUST_USE enum plim_status plim_torch_free_deferred(struct plim_torch *t, uint64_t block,
                                                        struct plim_err *err);

/** plim_torch_complete() - complete a deferred free; no effect when it was completed already. */
PLIM_MUST_USE enum plim_status plim_torch_complete(struct plim_torch *t, uint64_t block,
                                                   struct plim_err *err);

/** plim_torch_record_stream() - the block is used on that stream too (its own stream: no effect). */
PLIM_MUST_USE enum plim_status plim_torch_record_stream(struct plim_torch *t, uint64_t block,
                                                        uint16_t stream, struct plim_err *err);

/** plim_torch_poll() - complete what is ready, as the start of a request does. */
PLIM_MUST_USE enum plim_status plim_torch_poll(struct plim_torch *t, struct plim_err *err);

/** plim_torch_empty_cache() - torch.cuda.empty_cache(), or that of one private pool. */
PLIM_MUST_USE enum plim_status plim_torch_empty_cache(struct plim_torch *t, uint16_t pool,
                                                      struct plim_err *err);

/** plim_torch_set_fraction() - torch.cuda.set_per_process_memory_fraction. Errors: PLIM_E_USAGE
 * outside [0, 1]. */
PLIM_MUST_USE enum plim_status plim_torch_set_fraction(struct plim_torch *t, double fraction,
                                                       struct plim_err *err);

/* ---- looking at it ----------------------------------------------------------------------------- */

/** plim_torch_addr() - device address of a handed-out or pending block; 0 for any other handle. */
uint64_t plim_torch_addr(const struct plim_torch *t, uint64_t block);

/** plim_torch_size() - its size in bytes, rounding and unsplit rest included; 0 for any other. */
uint64_t plim_torch_size(const struct plim_torch *t, uint64_t block);

/* X(name, key as torch.cuda.memory_stats() names it) */
#define PLIM_TORCH_STAT_MAP(X)                                                                     \
    X(ALLOCATION, "allocation")                                                                    \
    X(ALLOCATED_BYTES, "allocated_bytes")                                                          \
    X(ACTIVE, "active")                                                                            \
    X(ACTIVE_BYTES, "active_bytes")                                                                \
    X(REQUESTED_BYTES, "requested_bytes")                                                          \
    X(SEGMENT, "segment")                                                                          \
    X(RESERVED_BYTES, "reserved_bytes")                                                            \
    X(INACTIVE_SPLIT, "inactive_split")                                                            \
    X(INACTIVE_SPLIT_BYTES, "inactive_split_bytes")

enum plim_torch_stat {
#define PLIM__X(name, text) PLIM_TORCH_STAT_##name,
    PLIM_TORCH_STAT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TORCH_STAT_COUNT
};

enum plim_torch_half {
    PLIM_TORCH_ALL,
    PLIM_TORCH_LARGE,
    PLIM_TORCH_SMALL,
    PLIM_TORCH_HALF_COUNT
};

struct plim_stat {
    int64_t current;
    int64_t peak;
    int64_t allocated; /* sum of increases */
    int64_t freed;     /* sum of decreases */
};

struct plim_torch_stats {
    struct plim_stat stat[PLIM_TORCH_STAT_COUNT][PLIM_TORCH_HALF_COUNT];
    struct plim_stat oversize_allocations;
    struct plim_stat oversize_segments;
    uint64_t num_alloc_retries;
    uint64_t num_ooms;
    uint64_t num_oom_rejections;
    uint64_t num_sync_all_streams;
    uint64_t num_device_alloc;
    uint64_t num_device_free;
    int64_t max_split_size; /* at start; -1 = unlimited */
};

/** plim_torch_stats() - everything torch.cuda.memory_stats() says. Cost: O(1). */
void plim_torch_stats(const struct plim_torch *t, struct plim_torch_stats *out);

/** plim_torch_pool_reserved() - reserved_bytes_by_private_pools of one pool; false when it never was. */
bool plim_torch_pool_reserved(const struct plim_torch *t, uint16_t pool,
                              struct plim_stat out[PLIM_TORCH_HALF_COUNT]);

/** plim_torch_reset_peak()/reset_accumulated() - as torch.cuda.reset_peak_memory_stats() and so on. */
void plim_torch_reset_peak(struct plim_torch *t);
void plim_torch_reset_accumulated(struct plim_torch *t);

/* The few numbers a replay wants after every event. */
struct plim_torch_gauges {
    uint64_t allocated;  /* handed out */
    uint64_t active;     /* handed out or pending */
    uint64_t requested;  /* of active blocks, before rounding */
    uint64_t reserved;   /* all segments */
    uint64_t releasable; /* of reserved: what the driver could get back at once (all pools) */
};

/** plim_torch_gauges() - cost: O(1). stranded bytes = reserved - active - releasable. */
struct plim_torch_gauges plim_torch_gauges(const struct plim_torch *t);

/**
 * plim_torch_export() - segments and blocks as torch.cuda.memory._snapshot() shows them, sorted by
 * address, into an empty heap. Stream and pool numbers are the model's indices; stacks and events are
 * absent. Errors: PLIM_E_NOMEM. Cost: O(n log n).
 */
PLIM_MUST_USE enum plim_status plim_torch_export(const struct plim_torch *t, struct plim_heap *heap,
                                                 struct plim_err *err);

/**
 * plim_torch_handle_at() - handle of the handed-out or pending block that starts at addr, or
 * PLIM_TORCH_NONE. Cost: O(blocks); for tests and for starting a replay in the middle.
 */
uint64_t plim_torch_handle_at(const struct plim_torch *t, uint64_t addr);

/**
 * plim_torch_segment_counter() - registration number of the segment that holds addr, or -1: by it 2.13 and
 * later order blocks of equal size. Cost: O(blocks).
 */
int32_t plim_torch_segment_counter(const struct plim_torch *t, uint64_t addr);

/**
 * plim_torch_check() - verify every invariant: neighbours, sets, sums, statistics against the blocks, and
 * the device's books. For tests and debug builds. Errors: PLIM_E_INTERNAL naming the first violation.
 * Cost: O(n log n).
 */
PLIM_MUST_USE enum plim_status plim_torch_check(const struct plim_torch *t, struct plim_err *err);

/* ---- starting in the middle -------------------------------------------------------------------- */

/* What a heap does not say about its segments; each part nullable, [heap->segments.n]. */
struct plim_torch_past {
    const uint32_t *order; /* indices of segments, oldest first; NULL: by address */
    const uint64_t
        *bases; /* for an expandable run: lowest address known of its reservation; NULL: its own */
};

/**
 * plim_torch_restore() - take over segments and blocks from a snapshot, as if this allocator had made
 * them. Only on a fresh model. Registers the ranges with the device (which must have room). Segments
 * count as created in the order of the heap; statistics start as if everything had been allocated once.
 * @past: (nullable) what is known beyond the heap.
 * @streams, @pools: model indices for the heap's stream and pool indices.
 * @blocks: [heap->blocks.n] receives the handles of live blocks, PLIM_TORCH_NONE for free ones.
 * Expandable segments get one reservation for each (pool, stream), from the lowest mapped address.
 * Errors: PLIM_E_DATA (inconsistent heap), PLIM_E_NOMEM, PLIM_E_RANGE (more than the device has).
 */
PLIM_MUST_USE enum plim_status plim_torch_restore(struct plim_torch *t,
                                                  const struct plim_heap *heap,
                                                  const struct plim_torch_past *past,
                                                  const uint16_t *streams, const uint16_t *pools,
                                                  uint64_t *blocks, struct plim_err *err);

/* ---- the error text ----------------------------------------------------------------------------- */

struct plim_torch_process {
    uint32_t pid;
    uint64_t used; /* bytes */
    bool self;     /* "Including non-PyTorch memory, this process has ..." */
};

/**
 * plim_torch_oom_message() - the text that PyTorch of that version raises for a failure.
 * @processes: [n] as NVML lists them, or none; appended between the free bytes and the allocated ones.
 * @device: index. @expandable: the option's value. @out: appended to.
 */
void plim_torch_oom_message(const struct plim_torch_failure *failure,
                            struct plim_torch_version version, unsigned device, bool expandable,
                            const struct plim_torch_process *processes, size_t n,
                            struct plim_buf *out);

/** plim_torch_size_text() - PyTorch's format of a byte count: "20.00 MiB", "1024 bytes". */
void plim_torch_size_text(uint64_t bytes, struct plim_buf *out);

const char *plim_torch_stat_text(enum plim_torch_stat stat);

#endif
