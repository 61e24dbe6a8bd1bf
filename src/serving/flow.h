/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_FLOW_H
#define PLIM_SERVING_FLOW_H

/*
 * A flow gives arrivals one after the other for as long as a simulation lasts: recorded ones again and
 * again, or made ones, scaled, with long ones mixed in. The same options and seed give the same flow.
 *
 *   process  how arrivals follow each other in time. Poisson is the calmest of them: real traffic comes in
 *            bursts, and what breaks a server is a burst
 *   table    lengths by their quantiles, straight lines between them in the logarithm
 *   round    one pass over a recorded trace. With seed 0 the first begins at its start; others begin
 *            anywhere, so that seeds differ and bursts, sessions and prefixes stay whole (but at the seam).
 *            Each round has sessions and hashes of its own
 *   tail     a share of arrivals that become as long as told
 *
 * Processes: poisson; gamma and weibull renewal with a coefficient of variation of the gaps; two-state
 * Markov-modulated Poisson (burst and quiet rates, exponential stays).
 * Presets carry what was measured on the published traces (docs/design/soak.md): rates, burstiness, the
 * quantiles of lengths. Prompt and output lengths are drawn independently: in the Azure traces the
 * logarithms correlate by less than 0.1.
 * Threads: one for a flow.
 */

#include "heap/traffic.h"

#define PLIM_PROCESS_MAP(X)                                                                        \
    X(POISSON, "poisson")                                                                          \
    X(GAMMA, "gamma")                                                                              \
    X(WEIBULL, "weibull")                                                                          \
    X(MMPP, "mmpp")

enum plim_process_kind {
#define PLIM__X(name, text) PLIM_PROCESS_##name,
    PLIM_PROCESS_MAP(PLIM__X)
#undef PLIM__X
    PLIM_PROCESS_COUNT
};

struct plim_process {
    enum plim_process_kind kind;
    double rate;    /* arrivals a second, in the long run */
    double cv;      /* GAMMA, WEIBULL: deviation of the gaps over their mean */
    double burst;   /* MMPP: rate of bursts over the mean rate, above 1 */
    double burst_s; /* MMPP: mean seconds of a burst */
    double quiet_s; /* MMPP: mean seconds between bursts */
};

#define PLIM_TABLE_MAX 12u

struct plim_table {
    uint32_t n;
    double share[PLIM_TABLE_MAX]; /* rising from 0 to 1 */
    double value[PLIM_TABLE_MAX]; /* rising, above 0 */
};

struct plim_tail {
    double share;    /* of arrivals, 0: none */
    uint32_t prompt; /* tokens; 0: as they are */
    uint32_t output;
};

/* Where arrivals come from: a trace, with times or without, or tables. */
struct plim_flow_source {
    const struct plim_traffic *traffic; /* borrowed; NULL: tables */
    bool made_times;                    /* times by `process`, not from the trace */
    struct plim_process process;
    struct plim_table prompt; /* without a trace */
    struct plim_table output;
    struct plim_table side; /* pixels along one side of a picture to be made; n == 0: no pictures */
};

struct plim_flow_options {
    const struct plim_flow_source *sources; /* borrowed, [n_sources]: mixed by time */
    size_t n_sources;
    uint64_t span_ns;    /* arrivals before it */
    double rate_scale;   /* times come so much closer; 0: 1 */
    double length_scale; /* tokens; 0: 1 */
    struct plim_tail tail;
    uint32_t prompt_from;  /* only arrivals with prompts from here on; 0: all */
    uint32_t prompt_below; /* and below; 0: all */
    uint32_t every;        /* only every so many-th arrival, ... 0: all */
    uint32_t phase;        /* ... beginning with this one */
    uint64_t seed;
};

struct plim_flow;

/** plim_flow_new() - Errors: PLIM_E_USAGE rates, shares or scales that make no sense; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_flow_new(const struct plim_flow_options *options,
                                             struct plim_flow **out, struct plim_err *err);
void plim_flow_delete(struct plim_flow *flow);

/** plim_flow_next() - the next arrival; false when the span is over. Hashes: plim_flow_hashes(). */
bool plim_flow_next(struct plim_flow *flow, struct plim_arrival *out);

/** plim_flow_hashes() - the hashes of the arrival given last, and what to add to each (rounds differ);
 * NULL when it has none. */
const uint64_t *plim_flow_hashes(const struct plim_flow *flow, uint64_t *salt,
                                 uint32_t *block_tokens);

/**
 * plim_flow_parse() - a preset ("azure-conv", "azure-code", "mooncake", "mooncake-synthetic",
 * "pictures"), or "PROCESS:key=value,...": rate, cv, burst, burst_s, quiet_s, like=PRESET for lengths,
 * prompt=P50~P99 and output=P50~P99 for others (lognormal).
 * *known: false when the text names neither (it may be a file).
 * Errors: PLIM_E_USAGE with the key that is wrong.
 */
PLIM_MUST_USE enum plim_status plim_flow_parse(struct plim_str text, struct plim_flow_source *out,
                                               bool *known, struct plim_err *err);

/** plim_process_check() - whether its parameters make sense. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_process_check(const struct plim_process *p,
                                                  struct plim_err *err);

/** plim_flow_presets() - their names, separated by ", ". */
const char *plim_flow_presets(void);

/* What traffic looks like; shown with every simulation. */
struct plim_flow_facts {
    uint64_t arrivals;
    double rate;        /* a second */
    double cv;          /* of the gaps */
    double busiest_10s; /* arrivals of the busiest ten seconds over the mean of ten seconds */
    double prompt_mean;
    double output_mean;
    uint32_t prompt_p50, prompt_p99, prompt_max;
    uint32_t output_p50, output_p99, output_max;
};

/** plim_flow_measure() - run a flow to its end. Errors: PLIM_E_USAGE, PLIM_E_NOMEM. O(n log n). */
PLIM_MUST_USE enum plim_status plim_flow_measure(const struct plim_flow_options *options,
                                                 struct plim_flow_facts *out, struct plim_err *err);

#endif
