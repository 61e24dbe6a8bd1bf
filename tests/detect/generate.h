/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_DETECT_GENERATE_H
#define PLIM_TESTS_DETECT_GENERATE_H

/*
 * Made-up histories of device memory, second by second, of which it is known what they are.
 *
 *   kind     what happens in the history: one row of the table below
 *   view     how much of it the observations tell
 *   truth    what a detector should say of it, and from when it could know
 *
 * A history is one device of 80 GiB with one process of interest and perhaps neighbours. The process is a
 * caching allocator's: what is live is what it needs now; what it reserved never falls by itself.
 * Deterministic: a kind, a view, a rate and a seed name one history. Units: bytes, seconds.
 */

#include "observe/observation.h"

/* X(NAME, text, truth: class or NONE) */
#define GEN_KIND_MAP(X)                                                                            \
    X(LEAK_POOL, "leak beside a pool", LEAK)                                                       \
    X(LEAK_STEADY, "leak, steady", LEAK)                                                           \
    X(LEAK_STEPS, "leak, a step for some requests", LEAK)                                          \
    X(LEAK_TRAFFIC, "leak, only under traffic", LEAK)                                              \
    X(LEAK_SAWTOOTH, "leak under a collector's sawtooth", LEAK)                                    \
    X(LEAK_TRAINING, "leak of a training", LEAK)                                                   \
    X(FRAGMENTATION, "fragmentation creep", FRAGMENTATION)                                         \
    X(OUTSIDE, "growth outside the allocator", EXTERNAL)                                           \
    X(CROWD, "ever more neighbours", EXTERNAL)                                                     \
    X(RESIDUE, "sleep leaves a residue", SLEEP_RESIDUE)                                            \
    X(SPILL, "spill to host memory", SPILL)                                                        \
    X(FLAT, "pool taken at start", NONE)                                                           \
    X(DYNAMIC, "diurnal, bursty working set", NONE)                                                \
    X(CACHE_EXPONENTIAL, "cache, saturating", NONE)                                                \
    X(CACHE_STEPS, "warm-up in steps", NONE)                                                       \
    X(CACHE_LRU, "cache filled over hours", NONE)                                                  \
    X(NEW_SHAPES, "new shapes that end", NONE)                                                     \
    X(TRAINING, "training with peaks and evaluation", NONE)                                        \
    X(LOADING, "loading for an hour", NONE)                                                        \
    X(NEIGHBOURS, "neighbours come and go", NONE)                                                  \
    X(RESTARTS, "restarts and deployments", NONE)                                                  \
    X(SLEEP, "sleep and wake", NONE)                                                               \
    X(NOISY, "spikes, gaps, missing samples", NONE)

enum gen_kind {
#define GEN__X(name, text, truth) GEN_##name,
    GEN_KIND_MAP(GEN__X)
#undef GEN__X
    GEN_KINDS
};

/* X(NAME, text): what is told. Each tells what the one below tells, too. */
#define GEN_VIEW_MAP(X)                                                                            \
    X(ENGINE, "engine")       /* requests running and waiting, tokens, asleep or not */            \
    X(ALLOCATOR, "allocator") /* allocated, reserved, stranded */                                  \
    X(PROCESS, "process")     /* bytes of each process as the driver tells them, busy percent */   \
    X(DEVICE, "device")       /* used and free bytes only */

enum gen_view {
#define GEN__X(name, text) GEN_VIEW_##name,
    GEN_VIEW_MAP(GEN__X)
#undef GEN__X
    GEN_VIEWS
};

struct gen_truth {
    int class;             /* enum plim_finding_class, -1: nothing is wrong */
    double onset_s;        /* when it began */
    double bytes_per_hour; /* on average */
    double oom_s;          /* when a request failed; 0: not yet */
};

struct gen_options {
    enum gen_kind kind;
    enum gen_view view;
    double bytes_per_hour; /* of what grows */
    uint64_t seed;
    double period_s; /* between observations */
};

struct gen;

/** gen_makes() - whether this family has histories of that kind. */
bool gen_makes(enum gen_kind kind);

struct gen *gen_new(const struct gen_options *options);
void gen_free(struct gen *gen);

/** gen_next() - the next observation into `o`; false: a request failed, and the history ends there. */
bool gen_next(struct gen *gen, struct plim_observation *o);

double gen_now(const struct gen *gen); /* seconds since its beginning */
struct gen_truth gen_truth(const struct gen *gen);
const char *gen_kind_text(enum gen_kind kind);
const char *gen_view_text(enum gen_view view);

#endif
