/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_FEED_H
#define PLIM_SERVING_FEED_H

/*
 * A feed takes the allocations and frees of a workload, one after the other, as the program it stands for
 * makes them: to a model of PyTorch's allocator or of Plimsoll's, to a log, or both.
 *
 *   piece    what one plim_feed_get() gave; 0 is none, and may be put back without effect
 *   failure  a request that was not met. It sticks: later gets give 0 without asking, puts work. So the
 *            code of a workload needs no error paths; it runs to the end of its step, frees what it had,
 *            and the engine looks at `failed` once, as an exception would unwind the real program
 *   repeat   a step that leaves everything as it found it is not run again in the same state: see
 *            plim_feed_repeats()
 *
 * Threads: one at a time.
 */

#include "alloc/moving.h"
#include "alloc/torch.h"
#include "base/map.h"

typedef uint64_t plim_piece;

/* One entry of a log: bytes > 0 is an allocation, whose number is `index`; 0 is the free of that number. */
typedef void plim_feed_log_fn(void *ctx, uint64_t index, uint64_t bytes);

struct plim_feed {
    struct plim_torch *torch;           /* borrowed; both NULL: log only, nothing fails */
    struct plim_moving *moving;         /* borrowed, in the place of torch */
    const struct plim_devmodel *device; /* borrowed, of either */
    plim_feed_log_fn *log;              /* NULL: none */
    void *ctx;                          /* for log */
    uint16_t stream;                    /* of the following gets */
    uint16_t pool;
    bool failed;
    struct plim_torch_failure failure; /* with failed: the request */
    uint64_t stranded_at_failure;      /* bytes */
    enum plim_status status;           /* the host's own failure; sticks like a failure */
    struct plim_err err;
    uint64_t gets;        /* served, repeats included */
    uint64_t skipped;     /* of them, not run because they repeat */
    uint64_t state;       /* sum over live pieces of a hash of address and size */
    struct plim_map seen; /* state and step -> gets of that step */
    uint64_t seen_calls;  /* driver allocations and frees when `seen` was begun */
    bool no_repeat;       /* run every step */
};

void plim_feed_fini(struct plim_feed *feed);

/** plim_feed_get() - allocate; 0 bytes give 0, as in PyTorch. */
plim_piece plim_feed_get(struct plim_feed *feed, uint64_t bytes);

/** plim_feed_put() - free; *piece becomes 0. */
void plim_feed_put(struct plim_feed *feed, plim_piece *piece);

/** plim_feed_used_on() - the piece is used on another stream too (record_stream). */
void plim_feed_used_on(struct plim_feed *feed, plim_piece piece, uint16_t stream);

/**
 * plim_feed_repeats() - whether the step named by `step` would change nothing now. If so its gets are
 * counted and the caller leaves it out; if not the caller runs it and then calls plim_feed_ran().
 *
 * Exact, not an estimate: without private timers (garbage collection) and pending frees, what PyTorch's
 * allocator does is a function of its live blocks and segments, because adjacent free blocks are always
 * merged. A step that ended in the state it began in, and made no driver call, does the same again.
 * `step` must determine the sizes and the order of its requests.
 */
bool plim_feed_repeats(struct plim_feed *feed, uint64_t step);
void plim_feed_ran(struct plim_feed *feed, uint64_t step, uint64_t state_before,
                   uint64_t gets_before);

/** plim_feed_flush() - torch.cuda.empty_cache(). */
void plim_feed_flush(struct plim_feed *feed);

/** plim_feed_settle() - complete pending frees that are ready (of pieces used on other streams). */
void plim_feed_settle(struct plim_feed *feed);

/** plim_feed_stream() - another stream, for `stream` and plim_feed_used_on(). Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_feed_stream(struct plim_feed *feed, uint16_t *stream,
                                                struct plim_err *err);

/** plim_feed_capture() - begin to capture graphs into a private pool, or end it. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_feed_capture(struct plim_feed *feed, bool begin,
                                                 struct plim_err *err);

/* What the allocator holds; bytes. */
struct plim_feed_books {
    uint64_t active, reserved, releasable;
    uint64_t peak_allocated, peak_active, peak_reserved; /* of any moment so far */
    uint64_t retries, ooms, device_allocs, device_frees; /* numbers */
};

/** plim_feed_books() - all 0 for a log. The first three alone cost less: plim_feed_gauges(). */
struct plim_feed_books plim_feed_books(const struct plim_feed *feed);
struct plim_torch_gauges plim_feed_gauges(const struct plim_feed *feed);

/** plim_feed_clear() - forget a failure, once the engine has dealt with it. */
void plim_feed_clear(struct plim_feed *feed);

#endif
