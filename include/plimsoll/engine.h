/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_ENGINE_H
#define PLIMSOLL_ENGINE_H

/*
 * The allocator that moves pages: one device's memory behind addresses that stay where they are.
 *
 *   page    physical memory of one handle (cuMemCreate), some units of 2 MiB long, mapped at one address
 *           at a time
 *   arena   a large range of addresses for one stream, one pool and one size class (small: requests up
 *           to 1 MiB; large: the rest); addresses are plentiful, pages are not
 *   block   a run of bytes of an arena. LIVE: handed out; PENDING: freed, still used by other streams;
 *           FREE: bytes with pages behind them; VOID: addresses without pages, whole pages long
 *   fence   an event on the arena's stream; work before it is done when the event has completed. A free
 *           run may lose its pages only behind a fence that was recorded after its last free
 *   live    bytes of LIVE and PENDING blocks; reserved: bytes of all pages. What is paused counts in neither
 *
 * A request takes the smallest FREE run that it fits. When none is large enough, it gets a run of
 * addresses in which some pages are missing, and the missing pages come from wholly free pages elsewhere
 * (unmapped there, mapped here: "moved") or are new. New ones are made while reserved stays within a few
 * percent of the highest live so far; beyond that pages are moved. A new page is as long as what is missing,
 * within limits, so that it comes free with the block that it was made for.
 *
 * Everything about the device goes through a table of driver functions, so that the same code runs inside
 * programs (runtime/allocator/plugin.c) and as the model that replays traces (src/alloc/moving.c).
 * Threads: one at a time for an engine; the caller locks. No call into libc's heap: memory for the
 * records comes from mmap, and nothing is mapped on the path of a request that finds a free run.
 * Cost: O(1) for such a request and for a free, whatever is live and free, and one question for each other
 * stream for which freed blocks wait; otherwise a few driver calls and O(free runs of a page and more).
 * Limits: 2^32 - 2 blocks, 16,383 arenas.
 * Sources: cuMem* contracts of the CUDA 13.0 driver API; the idea of remapping instead of returning pages
 * is GMLake's (Guo et al., ASPLOS 2024); measured against alternatives in docs/design/moving-allocator.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_ENGINE_UNIT   512u  /* bytes; every block is a multiple, and aligned to it */
#define PLIM_ENGINE_ARENAS 16384 /* most of an engine */
#define PLIM_ENGINE_SMALL  (UINT64_C(1) << 20) /* largest small request, bytes */

/* The device. Functions that can fail return 0 or a code of the driver's; 2 is out of memory. */
struct plim_engine_driver {
    int (*reserve)(void *ctx, uint64_t size, uint64_t align, uint64_t *addr);
    void (*unreserve)(void *ctx, uint64_t addr, uint64_t size);
    int (*create)(void *ctx, uint64_t size, uint64_t *handle);
    void (*release)(void *ctx, uint64_t handle, uint64_t size);
    int (*map)(void *ctx, uint64_t addr, uint64_t size, uint64_t handle);
    int (*access)(void *ctx, uint64_t addr, uint64_t size); /* read and write, whole mappings */
    void (*unmap)(void *ctx, uint64_t addr, uint64_t size); /* whole mappings */
    uint64_t (*record)(void *ctx, uint64_t stream);         /* an event; 0: failed */
    bool (*done)(void *ctx, uint64_t event);                /* has it completed? */
    void (*wait)(void *ctx, uint64_t event);                /* until it has */
    void (*forget)(void *ctx, uint64_t event);              /* not needed any more */
};

/*
 * Modes: what a request is rounded up to before it is placed; always to a multiple of the unit.
 *   STITCH  the size itself
 *   HYBRID  up to PLIM_ENGINE_SMALL an eighth of the power of two below, the size itself above
 *   POOL    the next of a list of sizes; the size itself above the last
 *   PLAN    the size itself; what repeats itself is placed as a seating says (seating.h)
 */
#define PLIM_ENGINE_MODE_MAP(X)                                                                    \
    X(STITCH, "stitch")                                                                            \
    X(HYBRID, "hybrid")                                                                            \
    X(POOL, "pool")                                                                                \
    X(PLAN, "plan")

enum plim_engine_mode {
#define PLIM__X(name, text) PLIM_ENGINE_##name,
    PLIM_ENGINE_MODE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ENGINE_MODES
};

#define PLIM_ENGINE_SIZES 256 /* most of a list */

struct plim_engine_rounding {
    enum plim_engine_mode mode;
    uint32_t n_sizes;                  /* POOL */
    uint64_t sizes[PLIM_ENGINE_SIZES]; /* bytes, rising */
};

struct plim_seating;

struct plim_engine_config {
    const struct plim_engine_driver *driver; /* borrowed */
    void *ctx;
    const struct plim_engine_rounding *rounding; /* copied; NULL: STITCH */
    const struct plim_seating *plan;             /* borrowed; PLAN only. NULL: none */
    uint64_t total; /* bytes of the device: how many addresses an arena gets */
    uint64_t
        small_page; /* bytes; a power of two >= 2 MiB; lengths of pages are multiples; 0: 2 MiB */
    uint64_t
        large_page; /* longest of large arenas; 0: by how much is live, see plim_engine_page() */
    uint64_t aim;   /* pages that live memory should make before they get longer; 0: 128 */
    uint64_t room;  /* pages that the room left on the device should make at least; 0: 768 */
    uint64_t floor; /* bytes that reserved may always exceed the highest live by, beside the shares
                          * below: a device that is far from full needs no sparing; 0: total / 256 */
    double calm;    /* reserved may exceed the highest live by this share while no page has been
                     * moved yet; 0: soft if that is given, else 0.04 */
    double soft;    /* and by this afterwards; 0: 0.025 */
    double hard;    /* and by this beyond either when no free page is idle yet; 0: 0.0005 */
};

/* Figures. Bytes unless said otherwise. */
struct plim_engine_stats {
    uint64_t requested; /* as asked for, of live blocks */
    uint64_t live;
    uint64_t reserved;
    uint64_t peak_requested;
    uint64_t peak_live;
    uint64_t peak_reserved;
    uint64_t pending;           /* of live: freed, still used by other streams */
    uint64_t releasable;        /* of reserved: wholly free pages */
    uint64_t blocks;            /* number of LIVE blocks, paused ones too */
    uint64_t allocs, frees;     /* served so far */
    uint64_t created, released; /* pages so far */
    uint64_t moved;             /* pages so far */
    uint64_t waits;             /* fences waited for */
    uint64_t failures;          /* requests that were not served */
    uint64_t arenas;
    uint64_t looked; /* records that searches passed so far: the work of requests, for tests */
    /* With a seating, requests so far: at their place; as planned, but the place was not free; not as
     * planned, or before it was clear where in the period the program is. */
    uint64_t placed, displaced, astray;
};

enum plim_engine_code {
    PLIM_ENGINE_OK,
    PLIM_ENGINE_NO_MEMORY, /* of the device */
    PLIM_ENGINE_NO_HOST,   /* memory or table room of the host */
    PLIM_ENGINE_UNKNOWN,   /* no live block starts there */
};

struct plim_engine;

#define PLIM_ENGINE_POOL_LOOSE (UINT64_C(1) << 63)

#define PLIM_ENGINE_CAPTURING                                                                      \
    1u /* a graph is being captured: no event is asked, nothing is unmapped */

const char *plim_engine_mode_text(enum plim_engine_mode mode);

/** plim_engine_mode_parse() - false: no mode's word. */
bool plim_engine_mode_parse(const char *text, enum plim_engine_mode *mode);

/** plim_engine_sizes_parse() - numbers of bytes, separated by commas or white space, in any order, into the
 * list of *out; its mode stays. Returns NULL, or what was wanted, and *out is as before. */
const char *plim_engine_sizes_parse(const char *text, struct plim_engine_rounding *out);

/** plim_engine_round() - the bytes that a request of `size` gets: not less. O(log of the list's length). */
uint64_t plim_engine_round(const struct plim_engine_rounding *rounding, uint64_t size);

/** plim_engine_page() - the most bytes of a new page in a large arena, on a device of `total` bytes when `live`
 * bytes are live at most: a power of two, 2 to 32 MiB, about live / aim, and at most about a 1024th of the
 * device. Long pages need fewer driver calls, short ones strand less. */
uint64_t plim_engine_page(uint64_t total, uint64_t live, uint64_t aim);

/** plim_engine_new() - an engine without pages; NULL when the host has no memory. */
struct plim_engine *plim_engine_new(const struct plim_engine_config *config);

/** plim_engine_delete() - give everything back, live blocks too. NULL is allowed. The caller makes sure
 * that the device is idle. */
void plim_engine_delete(struct plim_engine *e);

/**
 * plim_engine_alloc() - serve a request.
 * @size: bytes, 0 is not allowed. @pool: 0, or a number of the caller's: memory of other pools is never
 * used for it while it lives, and pages in it stay where they are, unless PLIM_ENGINE_POOL_LOOSE is in the
 * number: then its free pages serve others as those of pool 0 do. @flags: PLIM_ENGINE_CAPTURING.
 * @addr: on PLIM_ENGINE_OK the address. Returns PLIM_ENGINE_NO_MEMORY, PLIM_ENGINE_NO_HOST.
 */
enum plim_engine_code plim_engine_alloc(struct plim_engine *e, uint64_t size, uint64_t stream,
                                        uint64_t pool, unsigned flags, uint64_t *addr);

/** plim_engine_free() - take a block back. @flags as above: with them, blocks used by several streams
 * wait until a later request. Returns PLIM_ENGINE_OK or PLIM_ENGINE_UNKNOWN. */
enum plim_engine_code plim_engine_free(struct plim_engine *e, uint64_t addr, unsigned flags);

/** plim_engine_record_stream() - the block is used on that stream too. PLIM_ENGINE_UNKNOWN; PLIM_ENGINE_NO_HOST:
 * it cannot be written down, and the block will not be used again once it is freed. Cost: O(streams of the block). */
enum plim_engine_code plim_engine_record_stream(struct plim_engine *e, uint64_t addr,
                                                uint64_t stream);

/** plim_engine_block() - the live or pending block that holds an address. false: none. */
bool plim_engine_block(const struct plim_engine *e, uint64_t addr, uint64_t *base, uint64_t *size);

/** plim_engine_trim() - give wholly free pages back to the driver, waiting for their streams. */
void plim_engine_trim(struct plim_engine *e);

/** plim_engine_drop_pool() - the pool will not be used again: its free pages serve everybody, and its
 * live blocks when they are freed. */
void plim_engine_drop_pool(struct plim_engine *e, uint64_t pool);

/**
 * plim_engine_pause() - give the memory behind a pool's blocks back and keep their addresses; what was in
 * it is lost. Until plim_engine_resume() the pool serves no request; its blocks may be freed. The caller
 * makes sure that the device is idle. @pool: not 0. Returns the bytes given back.
 */
uint64_t plim_engine_pause(struct plim_engine *e, uint64_t pool);

/** plim_engine_resume() - memory behind the blocks of a paused pool again, at their addresses.
 * PLIM_ENGINE_NO_MEMORY: there is not enough; the pool stays paused. Cost: three driver calls a page. */
enum plim_engine_code plim_engine_resume(struct plim_engine *e, uint64_t pool);

/** plim_engine_set_cap() - reserved may not exceed it. UINT64_MAX: no cap. */
void plim_engine_set_cap(struct plim_engine *e, uint64_t bytes);

void plim_engine_stats(const struct plim_engine *e, struct plim_engine_stats *out);
void plim_engine_reset_peaks(struct plim_engine *e);

/* One block of a walk. */
enum plim_engine_state {
    PLIM_ENGINE_LIVE,
    PLIM_ENGINE_PENDING,
    PLIM_ENGINE_FREE,
    PLIM_ENGINE_VOID
};
struct plim_engine_view {
    uint64_t addr, size, requested, stream, pool;
    enum plim_engine_state state;
    bool large;
    bool paused; /* no memory is behind it, whatever the state */
};

/** plim_engine_walk() - every block of every arena, by address within an arena, until `see` says false. */
void plim_engine_walk(const struct plim_engine *e,
                      bool (*see)(void *ctx, const struct plim_engine_view *view), void *ctx);

/** plim_engine_check() - NULL when all structures agree with each other, else what does not. O(blocks). */
const char *plim_engine_check(const struct plim_engine *e);

#ifdef __cplusplus
}
#endif
#endif
