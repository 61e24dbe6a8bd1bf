/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_SOAK_H
#define PLIM_SERVING_SOAK_H

/*
 * A soak lets a flow of arrivals run through a model of a server on the exact allocator, for simulated
 * hours or days, and says what memory looked like: stranded bytes, headroom, retries, the first failure.
 *
 *   workload   what kind of server: how arrivals become steps, and steps allocations
 *   step       one forward pass of the engine; its duration comes from a simple model of the card, plus
 *              what the driver took (the device model's cost table)
 *   fragmentation  stranded / reserved
 *   stall      time that steps waited for driver calls
 *   run        one setting under one seed
 *
 * Workloads (docs/design/soak.md says which parts were compared with real programs entry by entry):
 *   paged      vLLM: one pool of KV blocks taken at start, chunked prefill under a token budget,
 *              preemption of the last request by recompute, decode steps from captured CUDA graphs or
 *              eager. Pictures go through the vision encoder first; prefixes that the traffic's hashes
 *              name are found in free blocks that still hold them
 *   dynamic    Hugging Face: batches that start together, padded to the longest prompt or to edges; KV
 *              grown by concatenation each step; a batch ends with its longest answer
 *   pictures   image generation: denoising steps over the latent, then the decoder; one at a time
 * With any text workload: LoRA adapters loaded on demand on a stream of their own, at most so many at once,
 * the least recently used one leaves.
 *
 * A request whose step runs out of memory is lost with the others of that step, as an exception loses
 * them; the server goes on. Windows of attention are not saved (one block table for all layers).
 * Threads: runs are independent; one thread for each. Cost: see docs/design/soak.md.
 */

#include "alloc/torch.h"
#include "serving/door.h"
#include "serving/feed.h"
#include "serving/flow.h"
#include "serving/geometry.h"

#define PLIM_WORKLOAD_MAP(X)                                                                       \
    X(PAGED, "paged")                                                                              \
    X(DYNAMIC, "dynamic")                                                                          \
    X(PICTURES, "pictures")

enum plim_workload {
#define PLIM__X(name, text) PLIM_WORKLOAD_##name,
    PLIM_WORKLOAD_MAP(PLIM__X)
#undef PLIM__X
    PLIM_WORKLOAD_COUNT
};

#define PLIM_EDGES_MAX 64u

/* Sizes that are rounded up to; n == 0: not rounded. Rising; what is above the last stays as it is. */
struct plim_edges {
    uint32_t n;
    uint32_t edge[PLIM_EDGES_MAX];
};

/** plim_edges_up() - the first edge not below `size`, or `size`. */
uint32_t plim_edges_up(const struct plim_edges *edges, uint32_t size);

/** plim_edges_parse() - "256,512,1024", rising. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_edges_parse(struct plim_str text, struct plim_edges *out,
                                                struct plim_err *err);

struct plim_server {
    enum plim_workload workload;
    const struct plim_geometry *geometry; /* borrowed */
    uint64_t weight_bytes;                /* on the device; 0: counted from the geometry */
    uint64_t parameters;                  /* used by one token; 0: counted */

    uint32_t max_seqs;     /* requests in a step, or in a batch */
    uint32_t step_tokens;  /* PAGED: token budget of a step */
    uint32_t max_length;   /* prompt and output together; longer ones are refused */
    uint32_t block_tokens; /* PAGED */
    double utilization;    /* PAGED: share of the device that the engine may use */
    uint64_t kv_bytes;     /* PAGED: of the pool; 0: what utilization leaves */
    bool
        no_prefix_cache; /* PAGED: prompts are computed whole, though the traffic tells of shared prefixes */
    bool eager;          /* PAGED: no CUDA graphs */
    struct plim_edges captures; /* PAGED: batch sizes of the graphs; n == 0: vLLM's */
    uint64_t batch_wait_ns;     /* DYNAMIC: how long an open batch waits for more */
    struct plim_edges prompts;  /* DYNAMIC: prompts are padded to them */
    struct plim_edges batches;  /* DYNAMIC: batches are padded to them */
    uint32_t steps;             /* PICTURES: of denoising */
    struct plim_edges sides;    /* PICTURES: pixels along one side */
    uint32_t adapters;          /* LoRA adapters that requests ask for; 0: none */
    uint32_t adapters_held;     /* at once */
    uint32_t adapter_rank;
    bool empty_cache; /* torch.cuda.empty_cache() after each batch, picture or failure */

    double flops;     /* a second, that the card reaches; 0: 400e12 */
    double bandwidth; /* bytes a second, that it reaches; 0: 2e12 */
    uint64_t step_ns; /* fixed part of a step; 0: 200,000 */
};

/* How often a size occurred that edges round up. */
struct plim_soak_size {
    uint32_t size;
    uint64_t count;
};

struct plim_soak_sizes {
    PLIM_VEC(struct plim_soak_size) items; /* in order of first appearance */
    struct plim_map index;
};

void plim_soak_sizes_fini(struct plim_soak_sizes *sizes);

struct plim_soak_setup {
    const struct plim_server *server;     /* borrowed */
    const struct plim_flow_options *flow; /* borrowed; its seed is this run's */
    const struct plim_conf *conf;         /* borrowed */
    const struct plim_moving_options
        *moving;       /* NULL, or on Plimsoll's own allocator; conf says only the release */
    uint64_t capacity; /* bytes of the device */
    uint64_t external; /* bytes of it that others and the context use */
    bool no_repeat;    /* run steps that would change nothing, too: for tests */
    bool stop_at_failure;
    plim_feed_log_fn
        *log; /* NULL, or called for each allocation and free; steps then never repeat */
    void *log_ctx;
    struct plim_soak_sizes *sizes; /* NULL, or receives sizes before they are rounded up */
    unsigned sizes_of;             /* enum plim_bucket: which */
    const struct plim_door_options
        *door;          /* PAGED: NULL, or what stands before the server; borrowed */
    uint64_t budget_ns; /* simulated; 0: until the flow's span is over and all is served */
};

#define PLIM_SOAK_SAMPLES 96u /* of one run, evenly over its time */

struct plim_soak_sample {
    uint64_t at_ns;
    uint64_t active; /* bytes */
    uint64_t reserved;
    uint64_t stranded;
    uint64_t headroom;
    uint32_t waiting; /* requests */
    uint32_t running;
};

struct plim_soak_latency {         /* nanoseconds; of served requests */
    uint64_t first_p50, first_p99; /* arrival to first token or picture */
    uint64_t total_p50, total_p99; /* arrival to the end */
};

struct plim_soak_result {
    uint64_t simulated_ns;
    uint64_t arrivals, served, refused, lost, unfinished; /* requests */
    uint64_t steps, preemptions;
    uint64_t prompt_tokens, output_tokens; /* computed: recomputed ones count again */
    uint64_t padding_tokens;               /* computed for nothing */
    uint64_t adapter_loads;
    uint64_t cached_tokens;  /* PAGED: of prompts, found in the prefix cache */
    uint64_t kv_tokens;      /* PAGED: that the pool holds */
    double kv_mean, kv_peak; /* PAGED: share of the pool in use */
    bool started;            /* false: the server did not fit the device */
    bool failed;
    struct {
        uint64_t at_ns;
        uint64_t request_bytes; /* as asked for */
        uint64_t device_free;
        uint64_t stranded;
        uint64_t reserved;
        const char *during; /* static: "start", "prefill", "decode", "encoder", ... */
    } first_oom;
    struct {
        uint64_t active, reserved, stranded; /* bytes, at the ends of steps */
        double fragmentation;
    } peak;
    uint64_t most_active, most_reserved;                /* bytes, of any moment */
    uint64_t mean_active, mean_reserved, mean_stranded; /* bytes, over time */
    double mean_fragmentation;
    uint64_t least_headroom; /* bytes, at the ends of steps */
    uint64_t allocations;    /* repeats included */
    uint64_t repeated;       /* of them, known to change nothing */
    uint64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free;
    uint64_t driver_calls;
    uint64_t late_allocations, late_driver_calls; /* of the second half of the span */
    uint64_t stall_ns;
    uint64_t worst_stall_ns; /* of one step */
    struct plim_soak_latency latency;
    struct plim_door_result door;
    struct plim_soak_sample samples[PLIM_SOAK_SAMPLES];
    uint32_t n_samples;
};

/** plim_server_defaults() - vLLM's and Hugging Face's own, for a device of that size. */
void plim_server_defaults(struct plim_server *server, enum plim_workload workload,
                          const struct plim_geometry *geometry, uint64_t capacity);

/**
 * plim_soak_run() - one run.
 * Errors: PLIM_E_USAGE a server that makes no sense (where = the field), PLIM_E_UNSUPPORTED
 * backend:cudaMallocAsync, PLIM_E_RANGE external exceeds the capacity, PLIM_E_NOMEM. A device on which the
 * server does not start is a result.
 */
PLIM_MUST_USE enum plim_status plim_soak_run(const struct plim_soak_setup *setup,
                                             struct plim_soak_result *out, struct plim_err *err);

const char *plim_workload_text(enum plim_workload workload);

/* Several settings under several seeds. */
struct plim_soak_plan {
    struct plim_soak_setup setup;  /* its conf and the flow's seed are filled in for each run */
    const struct plim_conf *confs; /* borrowed, [n_confs] */
    size_t n_confs;
    const struct plim_moving_options
        *moving; /* NULL, or the last conf stands for Plimsoll's own allocator; borrowed */
    uint64_t first_seed;
    size_t n_seeds;
    unsigned threads; /* 0: as many as the machine has, at most 8 */
};

/**
 * plim_soak_all() - all runs of a plan; the result does not depend on the number of threads.
 * @out: [n_confs * n_seeds], a setting's seeds together.
 * Errors: those of plim_soak_run() of the first run that failed.
 */
PLIM_MUST_USE enum plim_status plim_soak_all(const struct plim_soak_plan *plan,
                                             struct plim_soak_result *out, struct plim_err *err);

/* A figure over the seeds. */
struct plim_spread {
    double least, median, most;
};

/** plim_spread_of() - sorts the values. */
struct plim_spread plim_spread_of(double *values, size_t n);

#endif
