/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_ENGINE_H
#define PLIM_SERVING_ENGINE_H

/*
 * What the workloads of a soak share: the clock, the allocator, arrivals that are due, books about
 * requests and memory. One run, one thread.
 *
 *   ticket   a request on its way through the server
 */

#include "serving/buckets.h"
#include "serving/forward.h"
#include "serving/prefix.h"
#include "serving/soak.h"

#define PLIM__LATENCY_BINS 1280u /* 40 for each factor of e, from 1 us */

struct plim__latencies {
    uint32_t bins[PLIM__LATENCY_BINS];
    uint64_t n;
};

struct plim__ticket {
    struct plim_arrival a;
    uint32_t computed;               /* PAGED: tokens whose keys and values are in the pool */
    uint32_t generated;              /* output tokens so far */
    uint32_t blocks;                 /* PAGED: held */
    plim_piece media;                /* PAGED: what the encoder made, until the prompt is done */
    bool seen_first;                 /* its first token is out */
    struct plim__prefix_list prefix; /* PAGED: hashes of whole blocks of its prompt */
    uint32_t hash_tokens;            /* tokens of each; 0: no hashes */
    uint32_t shared;                 /* hashes held in the prefix cache */
    bool encoded;                    /* its pictures have been */
    bool preempted;                  /* at least once */
    uint64_t first_ns;               /* when its first token was out; 0: not yet */
    uint64_t door_id;                /* of the gate's reservation; 0: none */
};

/* A request inside, as the oracle sees it. */
struct plim__inside {
    uint64_t id;
    uint32_t prompt, output, generated; /* tokens */
};

/* What a front door keeps during a run: door.c, door_oracle.c. */
struct plim__door {
    struct plimsoll_gate gate;
    void *memory;            /* of the gate; NULL: another door */
    uint64_t inside, queued; /* requests in the engine; prompt tokens before their first token */
    PLIM_VEC(struct plim__ticket) line; /* LINE: from `head` on */
    size_t head;
    PLIM_VEC(struct plim__inside) known; /* of an oracle */
    uint64_t blocks;                     /* of the pool */
    double usage;                        /* of the pool, at the end of the last step */
    uint64_t next_ns;                    /* when the gate is told figures next */
    double drift_sum;
    uint64_t watches;
};

struct plim__adapters;

/* Image generation without a model given: Stable Diffusion 3 medium, without its text encoders. */
#define PLIM__DENOISER_PARAMETERS UINT64_C(2030000000)
#define PLIM__DENOISER_BLOCKS     24u

struct plim__engine {
    const struct plim_soak_setup *setup;
    const struct plim_server *s; /* setup->server with its zeros filled in */
    struct plim_server server;
    struct plim_devmodel device;
    bool device_ready;
    struct plim_torch *torch; /* one of the two */
    struct plim_moving moving;
    struct plim_feed feed;
    struct plim_forward forward;
    struct plim_flow *flow;
    struct plim_arrival next; /* of the flow */
    bool have_next;
    uint64_t now_ns;
    uint64_t kv_token_bytes;
    PLIM_VEC(struct plim__ticket) waiting; /* from `head` on */
    size_t head;
    struct plim__adapters *adapters;
    struct plim__door door;
    const char *during; /* what the engine is doing, for failures */

    uint64_t half_gets,
        half_calls;      /* allocations and driver calls when half of the span was over */
    uint64_t stall_seen; /* of the device, that went into the clock */
    double active_time, reserved_time, stranded_time, fragmentation_time, kv_time; /* x seconds */
    uint64_t sample_every;
    uint64_t sample_next;
    uint32_t running; /* for samples */
    struct plim__latencies first, total;
    struct plim_soak_result r;
};

/** plim__engine_size() - a size that edges round up; noted when this run is asked for sizes of that bucket. */
void plim__engine_size(struct plim__engine *e, enum plim_bucket bucket, uint32_t size);

/** plim__engine_step() - the step that just ran took `ns` and what the driver took: move the clock, take
 * the books. @kv: share of the pool in use. */
void plim__engine_step(struct plim__engine *e, uint64_t ns, double kv);

/** plim__engine_work() - nanoseconds of a step over `tokens` tokens that reads `kv_bytes` of keys and
 * values: the fixed part, and arithmetic or memory, whichever takes longer. */
uint64_t plim__engine_work(const struct plim__engine *e, double tokens, double kv_bytes);

/** plim__engine_arrive() - move what has arrived by now to `waiting`; refuse what is too long. */
void plim__engine_arrive(struct plim__engine *e);
/** plim__engine_idle() - nothing to do: go to the next arrival; false when there is none. */
bool plim__engine_idle(struct plim__engine *e);
/** plim__engine_until_work() - for servers without a queue of their own: go on until a request waits; false when the
 * run is over or none will come. */
bool plim__engine_until_work(struct plim__engine *e);
/** plim__engine_wait() - let time pass until then, with nothing to do. */
void plim__engine_wait(struct plim__engine *e, uint64_t until_ns);
size_t plim__engine_waiting(const struct plim__engine *e);
/** plim__engine_take() - the oldest waiting one, which must be there. */
struct plim__ticket plim__engine_take(struct plim__engine *e);
/** plim__engine_return() - back to the front of the queue. */
void plim__engine_return(struct plim__engine *e, const struct plim__ticket *ticket);
/** plim__engine_first()/done() - its first token is out; it is served. */
void plim__engine_first(struct plim__engine *e, struct plim__ticket *ticket);
void plim__engine_done(struct plim__engine *e, const struct plim__ticket *ticket);
/** plim__engine_failed() - whether the feed failed since the last call; notes the first failure and goes
 * on. `lost` requests are lost with it. */
bool plim__engine_failed(struct plim__engine *e, uint64_t lost);
/** plim__engine_over() - time to stop: a host error, the budget, or a failure with stop_at_failure. */
bool plim__engine_over(const struct plim__engine *e);

/** plim__engine_latencies() - the quantiles, into the result. */
void plim__engine_latencies(struct plim__engine *e);

/** plim__engine_weights() - allocate the weights, one for each that engines keep (fused ones together). */
PLIM_MUST_USE enum plim_status plim__engine_weights(struct plim__engine *e, struct plim_err *err);

/** plim__adapters_*() - LoRA: have the adapter of a request on the device. */
PLIM_MUST_USE enum plim_status plim__adapters_new(struct plim__engine *e, struct plim_err *err);
void plim__adapters_use(struct plim__engine *e, const struct plim_arrival *a);
void plim__adapters_delete(struct plim__engine *e);

/** The workloads: run until the flow is over. Errors: PLIM_E_NOMEM, PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim__workload_paged(struct plim__engine *e, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__workload_dynamic(struct plim__engine *e, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__workload_pictures(struct plim__engine *e,
                                                       struct plim_err *err);

#endif
