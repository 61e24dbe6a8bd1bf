/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TOP_MODEL_H
#define PLIM_TOP_MODEL_H

/*
 * What is shown: the newest state, arranged by device and by process, and how it went in the last minutes.
 *
 *   part      a share of a device's memory, by who owns it and whether it can be had back
 *   trend     the last values of one size, the newest last
 *
 * Parts of a device add up to its total, when it tells its books. A process that tells nothing of itself is `others`.
 * Threads: plain data.
 */

#include "report/status.h"

#define PLIM_TOP_TREND_VALUES 60 /* values of a trend */

/* X(NAME, text, style, block, ASCII): parts of a device, in the order of a bar. */
#define PLIM_TOP_PART_MAP(X)                                                                       \
    X(LIVE, "live", LIVE, 0x2588, '#')             /* handed out by allocators */                  \
    X(STRANDED, "stranded", STRANDED, 0x2593, '%') /* slack that cannot go back to the driver */   \
    X(RELEASABLE, "releasable", RELEASABLE, 0x2592, '=') /* slack that can */                      \
    X(OUTSIDE, "outside", OUTSIDE, 0x2592, '+') /* of the same processes, not their allocators */  \
    X(OTHERS, "others", OTHERS, 0x2593, 'o')    /* processes that tell nothing of themselves */    \
    X(UNKNOWN, "unknown", DIM, 0x2591, '?')     /* of no listed process */                         \
    X(DRIVER, "driver", DIM, 0x2592, '!')       /* reserved by driver and firmware */              \
    X(FREE, "free", DIM, 0x00b7, '.')

enum plim_top_part {
#define PLIM__X(name, text, style, block, plain) PLIM_TOP_PART_##name,
    PLIM_TOP_PART_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TOP_PARTS
};

struct plim_top_trend {
    uint64_t key;
    uint64_t step; /* when a value came last */
    size_t n;
    uint64_t value[PLIM_TOP_TREND_VALUES];
    uint64_t time_ns[PLIM_TOP_TREND_VALUES]; /* by a clock that does not step */
};

struct plim_top_device {
    const struct plim_device_sample *sample; /* the state's */
    const struct plim_estimate *left;        /* until it is full; NULL not known */
    uint64_t total, used;
    bool known; /* it tells its total and used bytes */
    uint64_t part[PLIM_TOP_PARTS];
    size_t trend; /* of used bytes: index */
};

struct plim_top_process {
    const struct plim_process_use *use;
    const struct plim_process_facts *facts; /* NULL: it is gone */
    struct plim_use_books books;
    uint64_t stranded; /* of books.slack */
    double growth;     /* bytes a second over the trend */
    bool growth_valid;
    size_t trend;
    unsigned depth; /* in the tree */
};

struct plim_top_pair {
    struct plim_engine_now older, newer; /* older.told_ns 0: there is none */
    uint64_t step;                       /* when it was there last */
};

struct plim_top_model {
    const struct plim_state *state; /* borrowed until the next update */
    uint64_t steps;
    PLIM_VEC(struct plim_top_device) devices;
    PLIM_VEC(struct plim_top_process) processes;
    PLIM_VEC(struct plim_top_trend) trends;
    PLIM_VEC(struct plim_top_pair) engines; /* what each engine said last, and before that */
    uint64_t now_ns;
};

/** plim_top_model_update() - arrange a new state. Errors: PLIM_E_NOMEM. Cost: O(processes^2), small. */
PLIM_MUST_USE enum plim_status plim_top_model_update(struct plim_top_model *model,
                                                     const struct plim_state *state,
                                                     struct plim_err *err);

void plim_top_model_fini(struct plim_top_model *model);

/** plim_top_rate() - how fast a total of an engine grows, each second; false: not known. */
bool plim_top_rate(const struct plim_top_model *model, const struct plim_engine_now *engine,
                   enum plim_engine_figure figure, double *out);

#endif
