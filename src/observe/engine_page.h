/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_PAGE_H
#define PLIM_OBSERVE_ENGINE_PAGE_H

/*
 * From what a server says at /metrics to figures with one meaning for all engines.
 *
 *   row      one metric of one engine and the target that it feeds (engine_rows.def)
 *   target   a figure of observation.h, or a part from which figures are computed
 *   slot     what the page said of one rank of one model so far
 *
 * Which engine it is follows from the names that it uses. A number that cannot be (NaN, negative, a ratio above
 * 1) leaves its figure out. The same sample twice counts once: the first.
 * Hostile pages: memory is bounded by the budgets below; what is beyond them is counted in `dropped`.
 * Threads: a page belongs to one thread.
 */

#include "base/map.h"
#include "observe/engine_text.h"
#include "observe/observation.h"

#define PLIM_ENGINE_PAGE_SLOTS   64   /* most ranks and models of one page */
#define PLIM_ENGINE_PAGE_SAMPLES 8192 /* most samples that feed a target */

/* X(NAME): what figures are computed from, besides figures themselves. */
#define PLIM_ENGINE_PART_MAP(X)                                                                    \
    X(BLOCKS) /* of the KV pool */                                                                 \
    X(BLOCK_TOKENS)                                                                                \
    X(USED_BLOCKS)                                                                                 \
    X(USED_TOKENS)      /* of live requests */                                                     \
    X(EVICTABLE_TOKENS) /* kept for reuse */                                                       \
    X(CONCURRENCY)      /* requests of the greatest length that the KV pool holds */               \
    X(AWAKE)            /* 1 or 0 */

enum plim_engine_target {
#define PLIM__X(name, ...) PLIM_ENGINE_TARGET_##name,
    PLIM_ENGINE_FIGURE_MAP(PLIM__X)
    PLIM_ENGINE_PART_MAP(PLIM__X)
#undef PLIM__X
        PLIM_ENGINE_TARGETS
};

struct plim__engine_slot {
    enum plim_engine_kind kind;
    char model[128], rank[16];
    uint16_t row[PLIM_ENGINE_TARGETS]; /* the row that set it, from 1; 0: not told */
    double value[PLIM_ENGINE_TARGETS];
};

struct plim_engine_list { /* a vector */
    struct plim_engine_now *items;
    size_t n, cap;
};

struct plim_engine_page {
    struct plim_engine_text text;
    struct plim_map seen; /* hashes of the samples that fed a target */
    PLIM_VEC(struct plim__engine_slot) slots;
    double process_start; /* seconds since 1970, of the process that answers; 0 not told */
    uint64_t dropped;     /* samples beyond a budget, or for want of memory */
};

/** plim_engine_page_init() - ready for the first byte; also of the next page, keeping its storage. */
void plim_engine_page_init(struct plim_engine_page *page);
void plim_engine_page_fini(struct plim_engine_page *page);

/** plim_engine_page_feed() - the next bytes. */
void plim_engine_page_feed(struct plim_engine_page *page, struct plim_str bytes);

/**
 * plim_engine_page_end() - the page is over.
 * @whole: it was not cut off. @out: one engine for each rank of each model is appended, with kind, model, rank
 * and figures set and the rest zero; a page of metrics none of which is known gives one of unknown kind; what is
 * no page of metrics gives none.
 * Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_engine_page_end(struct plim_engine_page *page, bool whole,
                                                    struct plim_engine_list *out,
                                                    struct plim_err *err);

/** plim_engine_restarted() - whether a total of `now` is less than the one of `before`, for the same rank of the
 * same model: the totals began anew. */
bool plim_engine_restarted(const struct plim_engine_now *before, const struct plim_engine_now *now);

/** plim_engine_same() - the same rank of the same model of the same kind of engine. */
bool plim_engine_same(const struct plim_engine_now *a, const struct plim_engine_now *b);

static inline bool plim_engine_has(const struct plim_engine_now *e, enum plim_engine_figure figure)
{
    return (e->valid >> figure & 1) != 0;
}

#endif
