/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_TORCH_INT_H
#define PLIM_ALLOC_TORCH_INT_H

/*
 * Inside the native allocator's model: what the torch_*.c files share. See torch.h for the words.
 *
 * Blocks live in one array and name each other by index; index 0 is nobody. A segment is a chain of
 * neighbours (prev, next) in address order without gaps. Each block is in exactly one state:
 *   UNUSED     the slot is on the free list of slots
 *   CACHED     free, in the free set of its half and stream
 *   UNMAPPED   addresses of an expandable segment without memory, in the unmapped set
 *   ALLOCATED  handed out
 *   PENDING    freed by the caller, waits for events, for plim_torch_complete, or for a capture's end
 * Between taking a block out of a set and handing it out it is HELD, only inside one call.
 *
 * A half is a pool's small or large part: half = 2 * pool + (small ? 1 : 0). Free and unmapped sets are
 * kept for each (half, stream); streams are walked in the unsigned order of their handles.
 *
 * When the host's memory is exhausted in the middle of a change, `broken` is set and stays: the call
 * and all later ones report PLIM_E_NOMEM. Nothing dangles; only exactness is lost.
 */

#include "alloc/freeset.h"
#include "alloc/skatable.h"
#include "alloc/torch.h"

enum plim__state {
    PLIM__UNUSED,
    PLIM__CACHED,
    PLIM__UNMAPPED,
    PLIM__ALLOCATED,
    PLIM__PENDING,
    PLIM__HELD,
};

struct plim__block { /* 64 bytes, one cache line */
    uint64_t addr;
    uint64_t size;
    uint64_t requested; /* stale while free, as in PyTorch's snapshot */
    uint32_t prev;      /* neighbour below, 0 = none */
    uint32_t next;      /* neighbour above, 0 = none; UNUSED: next free slot */
    uint32_t serial;    /* upper half of the handle */
    int32_t counter;    /* registration number of the segment */
    uint32_t gc_base;   /* the half's lookups when it entered the free set */
    uint32_t es;        /* expandable segment, 0 = ordinary */
    uint32_t uses;      /* recorded streams: index into uses[], 0 = none */
    uint32_t events;    /* events that must complete first */
    uint16_t stream;
    uint16_t half;
    uint8_t state; /* enum plim__state */
    bool deferred; /* PENDING: completes by plim_torch_complete */
};

/* One reservation: addresses for one (half, stream). */
struct plim__es {
    uint64_t addr;
    uint64_t size; /* bytes reserved, a multiple of page */
    uint64_t page; /* 2 MiB or the large segment size; 0 = slot unused */
    uint32_t half;
    uint16_t stream;
};

/* A node of a block's list of recorded streams, newest last. */
struct plim__use {
    uint32_t next; /* 0 = end; unused: next free node */
    uint16_t stream;
    bool captured; /* recorded while a capture was under way */
};

struct plim__queued {
    uint64_t ticket; /* of the event */
    uint32_t block;
};

struct plim__queue { /* events of one stream, oldest first */
    PLIM_VEC(struct plim__queued) items;
    size_t head; /* items before it are done */
};

struct plim__stream {
    int64_t handle;
    uint64_t hash;
    bool capturing;
    struct plim__queue queue;
};

struct plim__half {
    struct plim__freeset *free;     /* owned, [n_streams of the model or fewer] */
    struct plim__freeset *unmapped; /* owned, the same length; keyed by address only */
    uint32_t n;                     /* length of both */
    uint64_t lookups;               /* get_free_block calls, counted only while GC can run */
    uint64_t releasable;            /* bytes of cached blocks that could go back to the driver */
};

struct plim__cell { /* one statistic of one half; allocated = current - base + freed */
    int64_t current;
    int64_t peak;
    int64_t freed;
    int64_t base; /* current at the last reset of the accumulated values */
};

struct plim__pool {
    struct plim_pool_id id;
    unsigned flags;                /* enum plim_torch_pool_flag */
    uint32_t uses;                 /* use count */
    int64_t mallocs;               /* segments and growths less frees and unmaps */
    bool alive;                    /* exists in PyTorch's table */
    bool freeable;                 /* use count is 0 */
    bool had_memory;               /* its reserved statistic exists */
    struct plim__half half[2];     /* large, small */
    struct plim__cell reserved[2]; /* large, small */
    int64_t reserved_peak;         /* of both together */
};

struct plim__route {
    uint16_t pool;
    uint16_t stream;
};

struct plim_torch {
    struct plim_conf conf;
    struct plim_torch_rules rules;
    struct plim_devmodel *device; /* borrowed */
    plim_torch_event_fn *on_event;
    void *ctx;

    struct plim__block *blocks; /* owned, [blocks_cap]; [0] is nobody */
    uint32_t blocks_n;
    uint32_t blocks_cap;
    uint32_t blocks_free; /* head of the list of unused slots, 0 = none */
    uint32_t serial;      /* of the latest hand-out */
    int32_t counter;      /* latest registration number */
    bool broken;          /* the host ran out of memory in the middle */

    struct plim__chunks chunks;
    struct plim__pool *pools; /* owned, [pools_n]; [0] is the default */
    uint32_t pools_n;
    uint32_t pools_cap;
    struct plim__ska freeable;  /* pools without uses, in PyTorch's order */
    struct plim__ska overflow;  /* pools with use_on_oom */
    struct plim_map pool_index; /* hash of id -> pool index, checked against the id */

    struct plim__stream *streams; /* owned, [streams_n]; [0] is the default stream */
    uint16_t *stream_order;       /* owned: indices in unsigned order of handles */
    uint32_t streams_n;
    uint32_t streams_cap;
    struct plim_map stream_index;   /* handle -> index */
    struct plim__ska event_streams; /* streams with queued events, in PyTorch's order */
    PLIM_VEC(uint64_t) deferred; /* handles of deferred frees, oldest first; may hold stale ones */
    uint32_t deferred_live;      /* of them pending */
    PLIM_VEC(uint32_t) captured; /* blocks freed during a capture, wait for its end */
    uint32_t captures;           /* captures under way */
    uint16_t current_stream;     /* of the latest request */

    PLIM_VEC(struct plim__es) es;    /* [0] unused */
    PLIM_VEC(struct plim__use) uses; /* [0] unused */
    uint32_t uses_free;

    PLIM_VEC(struct plim__route) routes;

    uint64_t cap;        /* memory cap in bytes, UINT64_MAX = none */
    bool count_lookups;  /* GC can run */
    uint64_t held_bytes; /* total_allocated_memory: obtained from the driver */
    struct plim__cell stat[PLIM_TORCH_STAT_COUNT][2]; /* large, small */
    int64_t stat_peak[PLIM_TORCH_STAT_COUNT];         /* of both together */
    struct plim__cell oversize_allocations;
    struct plim__cell oversize_segments;
    uint64_t num_alloc_retries;
    uint64_t num_ooms;
    uint64_t num_oom_rejections;
    uint64_t num_sync_all_streams;
    uint64_t num_device_alloc;
    uint64_t num_device_free;
    int64_t max_split_at_start;

    struct plim_torch_failure failure;
};

/* A request on its way. */
struct plim__request {
    uint64_t size;   /* rounded */
    uint64_t wanted; /* unrounded */
    uint64_t driver; /* bytes of a new segment */
    uint16_t stream;
    uint16_t half;
    bool expandable; /* X: the option is on and the pool has no allocator of its own */
};

/* Kept out of the path that every request takes, so that it stays short. */
#define PLIM__COLD __attribute__((noinline, cold))

/* ---- small things, inline because every request runs through them --------------------------- */

static inline struct plim__half *plim__half_at(struct plim_torch *t, uint16_t half)
{
    return &t->pools[half >> 1].half[half & 1];
}

static inline uint64_t plim__handle(const struct plim_torch *t, uint32_t block)
{
    return ((uint64_t)t->blocks[block].serial << 32) | block;
}

/* The block of a handle in one of the two states, or 0. */
static inline uint32_t plim__block_of(const struct plim_torch *t, uint64_t handle, uint8_t state)
{
    uint32_t i = (uint32_t)handle;
    if (i >= t->blocks_n || t->blocks[i].serial != (uint32_t)(handle >> 32) ||
        t->blocks[i].state != state) {
        return 0;
    }
    return i;
}

static inline void plim__stat_add(struct plim_torch *t, enum plim_torch_stat stat, unsigned small,
                                  int64_t x)
{
    struct plim__cell *cell = &t->stat[stat][small];
    int64_t all = (cell->current += x) + t->stat[stat][small ^ 1].current;
    cell->peak = cell->current > cell->peak ? cell->current : cell->peak;
    t->stat_peak[stat] = all > t->stat_peak[stat] ? all : t->stat_peak[stat];
}

static inline void plim__stat_sub(struct plim_torch *t, enum plim_torch_stat stat, unsigned small,
                                  int64_t x)
{
    t->stat[stat][small].current -= x;
    t->stat[stat][small].freed += x;
}

static inline void plim__cell_add(struct plim__cell *cell, int64_t x)
{
    cell->current += x;
    cell->peak = cell->current > cell->peak ? cell->current : cell->peak;
}

static inline void plim__cell_sub(struct plim__cell *cell, int64_t x)
{
    cell->current -= x;
    cell->freed += x;
}

static inline void plim__emit(struct plim_torch *t, enum plim_action action, uint64_t addr,
                              uint64_t size, uint64_t block, uint16_t stream, uint16_t pool)
{
    if (__builtin_expect(t->on_event != NULL, 0)) {
        struct plim_torch_event e = {action, addr, size, block, stream, pool};
        t->on_event(t->ctx, &e);
    }
}

static inline plim__key plim__free_key(const struct plim_torch *t, const struct plim__block *b)
{
    return plim__key_make(b->size, t->rules.order_by_counter ? b->counter : 0, b->addr);
}

/* ---- torch.c: tables ------------------------------------------------------------------------- */

/* Room for `extra` more blocks without moving the array; false when the host is out of memory. */
bool plim__blocks_room(struct plim_torch *t, uint32_t extra);
/* An unused slot; room must have been made. 0 and `broken` when there is none. */
uint32_t plim__block_new(struct plim_torch *t);
void plim__block_drop(struct plim_torch *t, uint32_t block);
/* Sets of the half for that stream exist; false when the host is out of memory. */
bool plim__half_room(struct plim_torch *t, uint16_t half, uint16_t stream);
/* Whether requests of that stream are being captured, as this version tests it. */
bool plim__capturing(const struct plim_torch *t, uint16_t stream);
/* PLIM_OK, or PLIM_E_NOMEM once broken. */
enum plim_status plim__torch_status(const struct plim_torch *t, struct plim_err *err);

/* ---- torch_free.c: sets, merging, completion, events ----------------------------------------- */

/* Into the free set, stamping gc_base. The block must be mapped and idle. */
void plim__cache(struct plim_torch *t, uint32_t block);
/* Out of the free set; state becomes HELD. */
void plim__uncache(struct plim_torch *t, uint32_t block);
void plim__unmapped_put(struct plim_torch *t, uint32_t block);
void plim__unmapped_take(struct plim_torch *t, uint32_t block);
/* dst absorbs its neighbour src when both are idle and alike; bytes gained, 0 when refused. */
uint64_t plim__merge(struct plim_torch *t, uint32_t dst, uint32_t src);
void plim__complete(struct plim_torch *t, uint32_t block);
void plim__process_events(struct plim_torch *t);
/* pool: only blocks of that pool, or UINT32_MAX for all. */
void plim__sync_events(struct plim_torch *t, uint32_t pool);

/* ---- torch_segment.c: driver memory ----------------------------------------------------------- */

/* A block for the request from the driver: index, or 0. *rejected when policy refused. */
uint32_t plim__segment_alloc(struct plim_torch *t, const struct plim__request *rq, bool retry,
                             bool *rejected);
void plim__release_half(struct plim_torch *t, uint16_t half);
bool plim__release_available(struct plim_torch *t, const struct plim__request *rq);
void plim__release_cached(struct plim_torch *t, uint16_t pool, bool capturing);
void plim__collect_garbage(struct plim_torch *t);
/* Statistics of bytes that came from or went to the driver. */
void plim__driver_gain(struct plim_torch *t, uint16_t half, uint64_t bytes);
void plim__driver_loss(struct plim_torch *t, uint16_t half, uint64_t bytes);

/* ---- torch_expand.c: expandable segments ------------------------------------------------------ */

uint32_t plim__expandable_alloc(struct plim_torch *t, const struct plim__request *rq);
void plim__expandable_unmap(struct plim_torch *t, uint32_t block);
/* Page-aligned part of a block: empty when lo >= hi. */
struct plim_range plim__expandable_pages(const struct plim_torch *t, const struct plim__block *b);

/* Bytes of a cached block that the driver could get back now. */
static inline uint64_t plim__releasable(const struct plim_torch *t, const struct plim__block *b)
{
    if (__builtin_expect(b->es == 0, 1)) {
        return b->prev || b->next ? 0 : b->size;
    }
    struct plim_range pages = plim__expandable_pages(t, b);
    return pages.hi > pages.lo ? pages.hi - pages.lo : 0;
}

/* ---- torch_alloc.c ----------------------------------------------------------------------------- */

uint32_t plim__find_fit(struct plim_torch *t, const struct plim__request *rq);

#endif
