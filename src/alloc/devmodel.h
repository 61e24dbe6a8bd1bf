/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_DEVMODEL_H
#define PLIM_ALLOC_DEVMODEL_H

/*
 * The device under an allocator model: what the CUDA driver would say.
 *
 *   total     bytes of the device, as cudaMemGetInfo and cudaDeviceProp report them
 *   external  bytes used by others: contexts, other processes, the driver
 *   range     a run of device addresses, from cudaMalloc or from an address reservation
 *   page      one physical piece made by cuMemCreate and mapped into a reservation
 *   call      one driver call; each may be logged, and adds its cost to `stall_ns`
 *
 * Books: used = external + pages + all cudaMalloc ranges rounded up to the granularity (2 MiB). Requests
 * below the granularity share slabs of that size, 512 bytes apart, as drivers do (a slab is given back
 * when its last piece is). A call that would make used exceed total fails as the driver fails:
 * no effect but a return of false.
 *
 * Addresses come from a policy. They only matter where the allocator's order depends on them, so tests
 * run several. Scripted addresses (a recorded trace) come from a callback.
 * Threads: one at a time. Cost of a call: O(holes) for first-fit policies, O(1) amortised for others.
 * Source for the calls and their limits: CUDA 13.0 driver API manual; costs: see devmodel.c.
 */

#include "base/err.h"
#include "base/map.h"
#include "base/num.h"
#include "base/vec.h"

#include <string.h>

/* X(name, text): every call that a model makes. */
#define PLIM_DRIVER_CALL_MAP(X)                                                                    \
    X(MALLOC, "cudaMalloc")                                                                        \
    X(FREE, "cudaFree")                                                                            \
    X(MEM_GET_INFO, "cudaMemGetInfo")                                                              \
    X(ADDRESS_RESERVE, "cuMemAddressReserve")                                                      \
    X(ADDRESS_FREE, "cuMemAddressFree")                                                            \
    X(CREATE, "cuMemCreate")                                                                       \
    X(RELEASE, "cuMemRelease")                                                                     \
    X(MAP, "cuMemMap")                                                                             \
    X(UNMAP, "cuMemUnmap")                                                                         \
    X(SET_ACCESS, "cuMemSetAccess")                                                                \
    X(STREAM_SYNC, "cudaStreamSynchronize")                                                        \
    X(DEVICE_SYNC, "cudaDeviceSynchronize")                                                        \
    X(EVENT_RECORD, "cudaEventRecord")                                                             \
    X(EVENT_QUERY, "cudaEventQuery")                                                               \
    X(EVENT_SYNC, "cudaEventSynchronize")                                                          \
    X(MALLOC_ASYNC, "cudaMallocAsync")                                                             \
    X(FREE_ASYNC, "cudaFreeAsync")                                                                 \
    X(POOL_TRIM, "cudaMemPoolTrimTo")

enum plim_driver_call {
#define PLIM__X(name, text) PLIM_DRIVER_##name,
    PLIM_DRIVER_CALL_MAP(PLIM__X)
#undef PLIM__X
    PLIM_DRIVER_CALL_COUNT
};

struct plim_driver_event {
    enum plim_driver_call call;
    bool ok;        /* false: out of memory; EVENT_QUERY: not ready */
    uint64_t addr;  /* first byte; 0 when the call has none or failed */
    uint64_t size;  /* bytes; 0 when the call has none */
    int64_t stream; /* handle for stream and event calls, else 0 */
};

typedef void plim_driver_log_fn(void *ctx, const struct plim_driver_event *event);

/* Cost of one call: base_ns + per_page_ns for each started 2 MiB. */
struct plim_driver_cost {
    uint32_t base_ns;
    uint32_t per_page_ns;
};

enum plim_address_policy {
    PLIM_ADDRESS_FIRST_FIT,      /* lowest hole that fits (the default) */
    PLIM_ADDRESS_FIRST_FIT_DOWN, /* highest hole that fits, at its upper end */
    PLIM_ADDRESS_ASCENDING,      /* always above everything before, never reused */
    PLIM_ADDRESS_DESCENDING,     /* always below everything before, never reused */
    PLIM_ADDRESS_SCRIPTED,       /* from plim_devmodel_config.script */
};

/* Gives the address of the next MALLOC or ADDRESS_RESERVE of `size` bytes, a multiple of 512; false
 * makes the call fail as out of memory. */
typedef bool plim_address_script_fn(void *ctx, enum plim_driver_call call, uint64_t size,
                                    uint64_t *addr);
/* Says whether the event recorded as number `ticket` on `stream` has completed. */
typedef bool plim_event_ready_fn(void *ctx, int64_t stream, uint64_t ticket);
/* The program now waits for that event, or with ticket 0 for all work on the stream. */
typedef void plim_event_sync_fn(void *ctx, int64_t stream, uint64_t ticket);

struct plim_devmodel_config {
    uint64_t total;       /* bytes */
    uint64_t external;    /* bytes in use by others from the start */
    uint64_t granularity; /* 0 = 2 MiB */
    enum plim_address_policy policy;
    uint64_t base;  /* lowest address handed out; 0 = PLIM_DEVMODEL_BASE */
    uint64_t limit; /* first address not handed out; 0 = PLIM_DEVMODEL_LIMIT */
    bool unlimited; /* capacity is not enforced (scripted replay of a recording) */
    plim_address_script_fn *script;
    plim_event_ready_fn *event_ready;    /* NULL: every event is complete when asked */
    plim_event_sync_fn *event_sync;      /* NULL: waiting has no other effect */
    plim_driver_log_fn *log;             /* NULL: no log */
    void *ctx;                           /* for script, event_ready, event_sync and log */
    const struct plim_driver_cost *cost; /* [PLIM_DRIVER_CALL_COUNT], borrowed; NULL = defaults */
};

#define PLIM_DEVMODEL_BASE  UINT64_C(0x7f0000000000)
#define PLIM_DEVMODEL_LIMIT (UINT64_C(0x7f0000000000) + (UINT64_C(1) << 52))
#define PLIM_DEVMODEL_PAGE  (2 * PLIM_MIB)
#define PLIM_DEVMODEL_MOST  (UINT64_C(1) << 48) /* largest device: 256 TiB */

/* A run of addresses [lo, hi). */
struct plim_range {
    uint64_t lo;
    uint64_t hi;
};

struct plim_devmodel {
    struct plim_devmodel_config config;
    uint64_t used;                          /* bytes, external included */
    uint64_t peak_used;                     /* bytes */
    uint64_t stall_ns;                      /* simulated time spent in calls */
    uint64_t calls[PLIM_DRIVER_CALL_COUNT]; /* number of calls, failed ones included */
    uint64_t failed;                        /* calls that reported out of memory */
    PLIM_VEC(struct plim_range)
    holes;                  /* free addresses, sorted, not adjacent (first-fit policies) */
    struct plim_map ranges; /* address -> size as requested: cudaMalloc and reservations */
    struct plim_map slabs;  /* slab address -> live pieces in it */
    uint64_t slab_at;       /* open slab, 0 = none */
    uint64_t slab_fill;     /* bytes handed out of it */
    uint64_t next;          /* bump policies: next address upwards or downwards */
    uint64_t tickets;       /* events recorded so far */
};

/** plim_devmodel_default_costs() - [PLIM_DRIVER_CALL_COUNT], static. Estimates; see devmodel.c. */
const struct plim_driver_cost *plim_devmodel_default_costs(void);

/**
 * plim_devmodel_init() - an empty device; *config is copied, its pointers borrowed until fini.
 * Errors: PLIM_E_RANGE when external exceeds total, total exceeds PLIM_DEVMODEL_MOST, or the address
 * limits make no sense; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_devmodel_init(struct plim_devmodel *device,
                                                  const struct plim_devmodel_config *config,
                                                  struct plim_err *err);
void plim_devmodel_fini(struct plim_devmodel *device);

/** plim_devmodel_free_bytes() - what cudaMemGetInfo says is free, without making the call. */
static inline uint64_t plim_devmodel_free_bytes(const struct plim_devmodel *device)
{
    return plim_sub_sat(device->config.total, device->used);
}

/**
 * plim_devmodel_set_external() - others now use that much. May exceed what is free: later calls fail.
 */
void plim_devmodel_set_external(struct plim_devmodel *device, uint64_t bytes);

/**
 * plim_devmodel_malloc() - cudaMalloc. *addr = 0 when the device is out of memory.
 * Errors: PLIM_E_NOMEM (of the host); PLIM_E_DATA a scripted address that overlaps or is no multiple
 * of 512.
 */
PLIM_MUST_USE enum plim_status plim_devmodel_malloc(struct plim_devmodel *device, uint64_t size,
                                                    uint64_t *addr, struct plim_err *err);

/** plim_devmodel_free() - cudaFree. Errors: PLIM_E_NOTFOUND for an unknown address. */
PLIM_MUST_USE enum plim_status plim_devmodel_free(struct plim_devmodel *device, uint64_t addr,
                                                  struct plim_err *err);

/** plim_devmodel_reserve()/unreserve() - cuMemAddressReserve, cuMemAddressFree: addresses only. */
PLIM_MUST_USE enum plim_status plim_devmodel_reserve(struct plim_devmodel *device, uint64_t size,
                                                     uint64_t *addr, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_devmodel_unreserve(struct plim_devmodel *device, uint64_t addr,
                                                       struct plim_err *err);

/**
 * plim_devmodel_map() - make `pages` pages of `page` bytes and map them from `addr` on:
 * create each, map each, one set_access. False (and the pages made so far released again, in order)
 * when the device runs out. @ask_free: on failure the caller first asks how much is free.
 */
bool plim_devmodel_map(struct plim_devmodel *device, uint64_t addr, uint64_t page, uint64_t pages,
                       bool ask_free);

/** plim_devmodel_unmap() - unmap and release each page in turn. */
void plim_devmodel_unmap(struct plim_devmodel *device, uint64_t addr, uint64_t page,
                         uint64_t pages);

/**
 * Pages one by one: cuMemCreate (false: the device runs out), cuMemRelease, cuMemMap, cuMemSetAccess,
 * cuMemUnmap. Releasing gives the bytes back at once: the caller unmaps first.
 */
bool plim_devmodel_create(struct plim_devmodel *device, uint64_t page);
void plim_devmodel_release(struct plim_devmodel *device, uint64_t page);
void plim_devmodel_map_one(struct plim_devmodel *device, uint64_t addr, uint64_t page);
void plim_devmodel_access(struct plim_devmodel *device, uint64_t addr, uint64_t size);
void plim_devmodel_unmap_run(struct plim_devmodel *device, uint64_t addr, uint64_t size);

/**
 * plim_devmodel_adopt() - a range that exists already (a snapshot's segment): cudaMalloc memory of `size`
 * bytes, or with `reservation` addresses only, of which `backed` bytes have pages. No call is logged or
 * charged. Its addresses are not handed out again after it is freed.
 * Errors: PLIM_E_RANGE the device has not that much free; PLIM_E_DATA a range starts there already.
 */
PLIM_MUST_USE enum plim_status plim_devmodel_adopt(struct plim_devmodel *device, uint64_t addr,
                                                   uint64_t size, bool reservation, uint64_t backed,
                                                   struct plim_err *err);

/** plim_devmodel_total_calls() - how many calls so far, failed ones included. */
uint64_t plim_devmodel_total_calls(const struct plim_devmodel *device);

/** plim_devmodel_forget_calls() - start counting calls and stall anew; memory stays as it is. */
void plim_devmodel_forget_calls(struct plim_devmodel *device);

/** plim_devmodel_call() - count, log and charge a call without memory effect (syncs, queries). */
void plim_devmodel_call(struct plim_devmodel *device, enum plim_driver_call call, int64_t stream,
                        bool ok);

/** plim_devmodel_event_record() - cudaEventRecord; gives the event's ticket (1, 2, 3 ...). */
uint64_t plim_devmodel_event_record(struct plim_devmodel *device, int64_t stream);

/** plim_devmodel_event_sync() - cudaEventSynchronize; ticket 0: cudaStreamSynchronize. */
void plim_devmodel_event_sync(struct plim_devmodel *device, int64_t stream, uint64_t ticket);

/** plim_devmodel_event_query() - cudaEventQuery. */
bool plim_devmodel_event_query(struct plim_devmodel *device, int64_t stream, uint64_t ticket);

const char *plim_driver_call_text(enum plim_driver_call call);

#endif
