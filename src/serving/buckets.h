/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_BUCKETS_H
#define PLIM_SERVING_BUCKETS_H

/*
 * Bucket edges and split points, chosen by replay.
 *
 *   edges   sizes that are rounded up to: fewer of them mean fewer shapes, hence fewer holes and graphs, and
 *           more padding
 *   policy  one set of edges; "today" is what the server has
 *   cost    padding share of the computed tokens * weights.padding
 *           + peak reserved bytes / capacity * weights.memory
 *           + 99th percentile of the wait / that of today * weights.wait
 *           + lost share of the requests * 100: a policy that loses requests never wins over one that does not
 *   front   policies that no other one beats in padding, memory and wait at once
 *
 * How: today's run notes the sizes that occur. For each number of edges the ones with the least padding are
 * found exactly (dynamic programming over the sizes), and every such policy is replayed on the allocator, as
 * are powers of two and no edges at all. Output lengths are not known beforehand and have no edges.
 *
 * Routing: two replicas. Today each takes every other request; with a split one takes prompts below it, the
 * other the rest. Both are replayed; a split's wait is that of the worse pool.
 */

#include "serving/soak.h"

#define PLIM_BUCKET_MAP(X)                                                                         \
    X(PROMPT, "prompt")   /* DYNAMIC: padded length of prompts */                                  \
    X(BATCH, "batch")     /* DYNAMIC: padded number of rows */                                     \
    X(CAPTURE, "capture") /* PAGED: batch sizes of CUDA graphs */                                  \
    X(SIDE, "side")       /* PICTURES: pixels along a side */

enum plim_bucket {
#define PLIM__X(name, text) PLIM_BUCKET_##name,
    PLIM_BUCKET_MAP(PLIM__X)
#undef PLIM__X
    PLIM_BUCKET_COUNT
};

const char *plim_bucket_text(enum plim_bucket bucket);

/** plim_bucket_suits() - whether the workload rounds such sizes. */
bool plim_bucket_suits(enum plim_bucket bucket, enum plim_workload workload);

/** plim_bucket_edges() - where a server has the edges of such sizes. */
struct plim_edges *plim_bucket_edges(struct plim_server *server, enum plim_bucket bucket);

struct plim_bucket_weights {
    double padding, memory, wait; /* all 0: 1, 1, 0.1 */
};

struct plim_policy {
    const char *name; /* static: "today", "none", "powers of two", "least padding" */
    struct plim_edges edges;
    struct plim_soak_result result;
    double padding; /* share of the computed tokens */
    double cost;
    bool front;
};

#define PLIM_POLICIES_MAX 16u

struct plim_bucket_choice {
    enum plim_bucket bucket;
    struct plim_bucket_weights weights;
    struct plim_policy policies[PLIM_POLICIES_MAX]; /* today first */
    uint32_t n;
    uint32_t proposed; /* index; 0: today's is the best of these */
};

/**
 * plim_buckets_choose() - Errors: PLIM_E_USAGE the workload has no such edges; those of plim_soak_run().
 * Cost: some twelve runs.
 */
PLIM_MUST_USE enum plim_status plim_buckets_choose(const struct plim_soak_setup *setup,
                                                   enum plim_bucket bucket,
                                                   const struct plim_bucket_weights *weights,
                                                   struct plim_bucket_choice *out,
                                                   struct plim_err *err);

/**
 * plim_edges_least_padding() - the k edges under which the sizes need the least padding; the last one is the
 * largest size. @sizes: rising, [n]; @counts: how often. Fewer edges when there are fewer sizes.
 * Errors: PLIM_E_NOMEM. Cost: O(k n^2), memory O(k n).
 */
PLIM_MUST_USE enum plim_status plim_edges_least_padding(const uint32_t *sizes,
                                                        const uint64_t *counts, size_t n,
                                                        uint32_t k, struct plim_edges *out,
                                                        struct plim_err *err);

struct plim_route {
    uint32_t split;                  /* prompt tokens; 0: every other request */
    struct plim_soak_result pool[2]; /* below; from it on */
    uint64_t wait_ns;                /* 99th percentile of the worse pool */
    uint64_t lost, preemptions;      /* of both */
};

#define PLIM_ROUTES_MAX 8u

struct plim_route_choice {
    struct plim_route routes[PLIM_ROUTES_MAX]; /* [0]: every other request */
    uint32_t n;
    uint32_t proposed; /* least lost, then preempted least, then the shorter wait */
};

/** plim_route_choose() - Errors: those of plim_soak_run(). Cost: some fourteen runs. */
PLIM_MUST_USE enum plim_status plim_route_choose(const struct plim_soak_setup *setup,
                                                 struct plim_route_choice *out,
                                                 struct plim_err *err);

#endif
