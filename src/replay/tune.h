/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_TUNE_H
#define PLIM_REPLAY_TUNE_H

/*
 * Which settings suit these requests? Many replays, ranked, with one recommendation.
 *
 *   knob       one setting that changes what the allocator does; a candidate is a value for each
 *   seed       candidates that are always tried: each knob alone over its range, and the combinations
 *              that interact (rounding with expandable segments, split limits with rounding)
 *   search     from the best of each family on, one knob at a time in shrinking steps, until nothing
 *              gets better
 *   excluded   what is not tried, with the reason: unsafe together, without effect, not replayable
 *   need       least device memory with which a candidate still serves every request: how close to the
 *              edge it is. Found by bisection, for the best few
 *
 * Better is: serves all requests; then needs less device memory; then stalls less; then has fewer
 * knobs; then holds less at its peak. The result does not depend on the number of threads.
 *
 * With an incomplete history all candidates start with the live blocks asked for anew (PLIM_START_ANEW):
 * the settings would have been in force from the beginning. That start alone may cure fragmentation
 * that had grown over hours; `fresh_start_fits` says when the present settings would fit too.
 * Threads: starts up to `threads` of its own, and joins them.
 */

#include "base/arena.h"
#include "replay/bound.h"
#include "replay/replay.h"

/* X(name, key, lowest release): the order of the keys in a settings text. */
#define PLIM_KNOB_MAP(X)                                                                           \
    X(EXPANDABLE, "expandable_segments", 2, 1)                                                     \
    X(MAX_SPLIT, "max_split_size_mb", 1, 10)                                                       \
    X(ROUNDUP, "roundup_power2_divisions", 1, 12)                                                  \
    X(GC, "garbage_collection_threshold", 1, 12)                                                   \
    X(LARGE_SEGMENT, "large_segment_size_mb", 2, 11)                                               \
    X(NON_SPLIT, "max_non_split_rounding_mb", 2, 6)

enum plim_knob {
#define PLIM__X(name, key, major, minor) PLIM_KNOB_##name,
    PLIM_KNOB_MAP(PLIM__X)
#undef PLIM__X
    PLIM_KNOB_COUNT
};

struct plim_knobs {
    uint32_t value[PLIM_KNOB_COUNT]; /* MiB, divisions, percent, 1 for True; 0: not set */
};

struct plim_tune_run {
    const char *conf; /* arena */
    struct plim_conf parsed;
    struct plim_knobs knobs; /* meaningless for the recorded settings */
    struct plim_replay_setup setup;
    struct plim_replay_result result;
    uint64_t need; /* bytes; 0: not looked for, or does not fit */
    bool refined;  /* found by the search, not a seed */
    bool recorded; /* the settings of the recording */
};

/** plim_tune_run_fits() - every request was served, those of the start too. */
static inline bool plim_tune_run_fits(const struct plim_tune_run *run)
{
    return !run->result.failed && run->result.start_failed == 0;
}

struct plim_exclusion {
    const char *what;
    const char *why;
    const char *versions;
};

struct plim_tune_options {
    struct plim_torch_version version;
    uint64_t capacity; /* bytes; 0: no limit */
    uint64_t external;
    double scale;     /* as in struct plim_replay_setup */
    const char *base; /* --vary: settings that stay; NULL: those of the recording */
    const struct plim_moving_options
        *moving;      /* Plimsoll's allocator beside them; NULL: mode stitch */
    const char *vary; /* only this key, or "device-memory"; NULL: the whole search */
    unsigned threads; /* 0: as many as the machine has, at most 8 */
    unsigned most;    /* candidates at most; 0: 160 */
};

struct plim_tune {
    struct plim_arena arena;
    PLIM_VEC(struct plim_tune_run) runs; /* best first; with `vary`: in the order of the values */
    PLIM_VEC(struct plim_exclusion) excluded;
    struct plim_bound bound;
    struct plim_tune_run moving; /* on Plimsoll's allocator (alloc/moving.h); conf "" */
    bool has_moving;             /* false with `vary` */
    uint32_t recorded;     /* index of the run under the recorded settings, PLIM_NO_ID with vary */
    uint32_t recommended;  /* index, or PLIM_NO_ID: no setting helps, or none is needed */
    bool needed;           /* the recorded settings fail, retry or waste */
    bool fresh_start_fits; /* incomplete history: the recorded settings fit when started anew */
    const char *summary;   /* arena: one or two sentences */
    const char *reason;    /* arena; of the recommendation */
    const char *risk;      /* static, or NULL */
    const char *applies_to;
};

/**
 * plim_tune() - search.
 * Errors: PLIM_E_USAGE an unknown key in `vary` or a wrong `base` (as PyTorch says it, with the nearest
 * key); PLIM_E_NOMEM; PLIM_E_OS threads cannot be started.
 * Cost: about a hundred replays over the threads; memory of one replay for each thread and 5 KiB for
 * each candidate.
 */
PLIM_MUST_USE enum plim_status plim_tune(const struct plim_requests *requests,
                                         const struct plim_tune_options *options,
                                         struct plim_tune *out, struct plim_err *err);
void plim_tune_fini(struct plim_tune *tune);

#endif
