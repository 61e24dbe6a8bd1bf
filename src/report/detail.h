/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_DETAIL_H
#define PLIM_REPORT_DETAIL_H

/*
 * What the interactive report draws, as columns: the ledger over time, events, blocks and segments,
 * stacks; all of it where it fits, and by level of detail where it does not.
 *
 *   series   the ledger over a window of the trace in bins of equal numbers of events. A bin shows the
 *            state after the event that left most bytes allocated, so that no peak is lost
 *   rows     blocks (and segments) with their lives. Which ones: all when they fit the budget; else those
 *            that exist at one of the keyframes, and the largest of the others
 *   keyframe a position at which the rows are complete, so that map and flame graph are exact there
 *   moment   a position with a name: judged, peak, failure, first split
 *
 * The same columns go into the self-contained file (report/html.h) and out of the local server
 * (report/serve.h). docs/format/report-data.md describes each column.
 * Threads: pure but for plim_detail.used_stacks.
 */

#include "diagnose/diagnose.h"
#include "heap/lives.h"
#include "heap/walk.h"
#include "report/columns.h"

struct plim_detail_bin {
    struct plim_walk_point top; /* state after the event that left most bytes allocated */
    uint64_t least;             /* fewest bytes allocated in the bin */
    uint32_t at;                /* position of `top` */
    uint32_t largest;           /* event with the largest allocation, or PLIM_NO_EVENT */
    uint32_t last;              /* position behind the bin */
    uint16_t grows;             /* segments that came, at most 65535 */
    uint16_t shrinks;           /* segments that went */
    uint16_t ooms;
    uint16_t retries; /* segments released and asked for again */
};

struct plim_detail_series {
    PLIM_VEC(struct plim_detail_bin) bins;
    uint32_t from;
    uint32_t to;
    uint32_t width; /* events of a bin */
};

#define PLIM_DETAIL_NAMED 6u /* judged, peak, peak of reserved, failure, first split, end */

struct plim_detail {
    const struct plim_snapshot *snapshot;   /* borrowed */
    const struct plim_diagnosis *diagnosis; /* borrowed */
    const struct plim_device *device;
    struct plim_lives lives;
    struct plim_detail_series base;         /* the whole trace */
    PLIM_VEC(struct plim_walk) checkpoints; /* in order; [0] is the start */
    uint32_t checkpoint_every;              /* events */
    uint32_t named[PLIM_DETAIL_NAMED];      /* positions; UINT32_MAX: none */
    uint8_t *used_stacks;                   /* [stacks]: 1 = a column refers to it */
};

/* Most rows of each kind that go into the file. */
struct plim_detail_budget {
    size_t blocks;
    size_t events;
    size_t text; /* bytes of function and file names */
};

/* What was chosen, for the page to say. */
struct plim_detail_chosen {
    bool all_blocks;
    bool all_events;
    uint64_t blocks; /* rows */
    uint64_t blocks_of;
    uint64_t merged;     /* live blocks at the judged moment that are drawn as runs */
    uint64_t dropped;    /* live blocks at the judged moment that are not drawn at all */
    uint32_t keyframes;  /* evenly spaced ones: every n-th part of the trace; 0: none */
    uint64_t frames_cut; /* frames without their names for want of room */
};

/** plim_detail_init() - @bins: at most so many in the base series. Cost: O(events), some 200 ns each. */
PLIM_MUST_USE enum plim_status plim_detail_init(struct plim_detail *detail,
                                                const struct plim_snapshot *snapshot,
                                                const struct plim_diagnosis *diagnosis,
                                                uint32_t bins, struct plim_err *err);
void plim_detail_fini(struct plim_detail *detail);

/** plim_detail_forget_stacks() - begin a new set of columns: no stack is used yet. */
void plim_detail_forget_stacks(struct plim_detail *detail);

/** plim_detail_series_of() - the ledger over [from, to), at most `bins` bins; exact where a bin is one event.
 * Cost: O(events of the window + checkpoint distance), or O(base bins) for wide ones. */
PLIM_MUST_USE enum plim_status plim_detail_series_of(const struct plim_detail *detail,
                                                     uint32_t from, uint32_t to, uint32_t bins,
                                                     struct plim_detail_series *out,
                                                     struct plim_err *err);

/** plim_detail_put_series() - columns "<prefix>.live" and so on. */
void plim_detail_put_series(const struct plim_detail *detail,
                            const struct plim_detail_series *series, const char *prefix,
                            struct plim_columns *columns);

/** plim_detail_put_events() - columns "ev.*" of the given events, ascending. */
void plim_detail_put_events(struct plim_detail *detail, const uint32_t *events, size_t n,
                            struct plim_columns *columns);

/** plim_detail_put_rows() - columns "bl.*" and "sg.*" for the whole trace within the budget. */
PLIM_MUST_USE enum plim_status plim_detail_put_rows(struct plim_detail *detail,
                                                    const struct plim_detail_budget *budget,
                                                    struct plim_columns *columns,
                                                    struct plim_detail_chosen *chosen,
                                                    struct plim_err *err);

/** plim_detail_put_moment() - columns "bl.*" and "sg.*" of what exists at a position, all of it. */
PLIM_MUST_USE enum plim_status plim_detail_put_moment(struct plim_detail *detail, uint32_t position,
                                                      struct plim_columns *columns,
                                                      struct plim_err *err);

/** plim_detail_put_lifetimes() - "lt.count"/"lt.bytes": all allocations by log2 size and lifetime. */
void plim_detail_put_lifetimes(const struct plim_detail *detail, struct plim_columns *columns);

/** plim_detail_put_stacks() - columns "st.*", "fr.*", "tx.*" of the stacks that are used so far. */
PLIM_MUST_USE enum plim_status plim_detail_put_stacks(const struct plim_detail *detail,
                                                      size_t text_budget,
                                                      struct plim_columns *columns,
                                                      struct plim_detail_chosen *chosen,
                                                      struct plim_err *err);

/* An earlier snapshot at its judged moment, to compare with. All borrowed. */
struct plim_detail_before {
    const struct plim_snapshot *snapshot;
    const struct plim_diagnosis *diagnosis;
    const char *source; /* its name, for people */
};

/** plim_detail_put_before() - its live bytes by stack, "bf.*", and the stacks, "bst.*", "bfr.*", "btx.*". */
PLIM_MUST_USE enum plim_status plim_detail_put_before(const struct plim_detail_before *before,
                                                      size_t text_budget,
                                                      struct plim_columns *columns,
                                                      struct plim_detail_chosen *chosen,
                                                      struct plim_err *err);

/** plim_detail_events_of_interest() - at most `most` events worth keeping: all, or those around the
 * named moments, failures, segments and the largest of each bin. Ascending. */
PLIM_MUST_USE enum plim_status plim_detail_events_of_interest(const struct plim_detail *detail,
                                                              size_t most, uint32_t **out,
                                                              size_t *n, struct plim_err *err);

#define PLIM_LIFETIME_SIZES 48u /* lt: log2 of bytes */
#define PLIM_LIFETIME_AGES  33u /* lt: log2 of events lived; the last: never freed */

#endif
