/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_PLAN_H
#define PLIM_SERVING_PLAN_H

/*
 * A plan: will this engine with these flags serve this model on this card, with what in reserve, and if not,
 * what would help most cheaply. The numbers are those of a start of the engine (serving/vllm.h); every one
 * carries how it was obtained and how far it may be off.
 *
 *   line     one amount of device memory, or of the budget
 *   rest     the device between requests; peak: in the worst step
 *   margin   what is left of the cache's budget after what is wanted: one request of the longest length,
 *            or the concurrency of the given traffic
 *   change   flags that would help, with what the engine then reports: really planned, not guessed
 *   rule     a combination of flags known to be unsafe (rules.def)
 *
 * Threads: pure; everything is in the caller's arena.
 */

#include "serving/calibration.h"
#include "serving/model.h"
#include "serving/vllm.h"

/* Which engine (serving/budget.h has the others' models, and their names). */
enum plim_engine {
    PLIM_ENGINE_VLLM,
    PLIM_ENGINE_SGLANG,
    PLIM_ENGINE_TRTLLM,
    PLIM_ENGINE_TGI,
    PLIM_ENGINE_LLAMACPP,
    PLIM_ENGINE_OLLAMA,
};

/* X(name, text): how a number was obtained. */
#define PLIM_PLAN_HOW_MAP(X)                                                                       \
    X(COMPUTED, "computed")                                                                        \
    X(MEASURED, "measured")                                                                        \
    X(ESTIMATED, "estimated")

enum plim_plan_how {
#define PLIM__X(name, text) PLIM_PLAN_##name,
    PLIM_PLAN_HOW_MAP(PLIM__X)
#undef PLIM__X
};

/* Where a line belongs. */
enum plim_plan_place {
    PLIM_PLAN_BUDGET, /* of the engine's equation only */
    PLIM_PLAN_REST,   /* on the device all the time */
    PLIM_PLAN_PEAK,   /* only in the worst step */
};

struct plim_plan_line {
    const char *name; /* "weights" */
    const char *text; /* for people */
    uint64_t bytes;
    uint64_t error_bytes; /* it may be off by that much */
    enum plim_plan_how how;
    enum plim_plan_place place;
    const char *source; /* where the number or its rule comes from */
};

#define PLIM_PLAN_LINES 16U

/* X(name, text): what limits, and what a refusal is called. */
#define PLIM_PLAN_LIMIT_MAP(X)                                                                     \
    X(NONE, "none")                                                                                \
    X(FREE_MEMORY, "free_memory")                                                                  \
    X(LOAD, "load")                                                                                \
    X(PROFILE, "profile")                                                                          \
    X(CACHE_BLOCKS, "cache_blocks")                                                                \
    X(MAX_MODEL_LEN, "max_model_len")                                                              \
    X(AUTO_FIT, "auto_fit")                                                                        \
    X(DEVICE_MEMORY, "device_memory")                                                              \
    X(SETTING, "setting")                                                                          \
    X(CONCURRENCY, "concurrency")                                                                  \
    X(KV_CACHE, "kv_cache")                                                                        \
    X(MAX_NUM_SEQS, "max_num_seqs")

enum plim_plan_limit {
#define PLIM__X(name, text) PLIM_PLAN_LIMIT_##name,
    PLIM_PLAN_LIMIT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_PLAN_LIMIT_COUNT
};

/* What comes to the server. Zeroes: not known. */
struct plim_plan_traffic {
    uint64_t prompt, output;         /* tokens, mean */
    uint64_t prompt_p95, output_p95; /* tokens */
    double rate;                     /* requests a second */
    double speed;                    /* tokens a second that one request is given; 0: assumed */
    uint64_t requests;               /* counted in the file, 0: none read */
};

struct plim_plan_request {
    enum plim_engine engine;
    const struct plim_geometry *geometry;
    const struct plim_model *file; /* what its files hold, or NULL */
    const char *model;             /* as the user named it */
    struct plim_card card;
    bool context_given, external_given;
    const char *const *words; /* [n_words] the engine's flags, verbatim */
    size_t n_words;
    const char *engine_version; /* "0.33" */
    const char *settings;       /* of the allocator; "" */
    struct plim_plan_traffic traffic;
    const struct plim_calibration *calibration; /* of this host, or NULL */
    bool want_context, want_batch, want_gpu, want_replicas;
};

struct plim_plan_change {
    const char *flags; /* to add to the command */
    const char *cost;  /* what it costs, one sentence */
    bool fits;
    int64_t available_kv_bytes;
    double concurrency;
    uint64_t max_model_len;
};

struct plim_plan_rule {
    const char *id;
    const char *text;
    const char *instead;
    const char *source;
    bool forbids; /* the engine refuses or breaks, not only wastes */
};

struct plim_plan_answer {
    bool asked, known;
    uint64_t value;   /* tokens, requests, replicas */
    const char *text; /* card's key, or a sentence */
};

struct plim_plan {
    const struct plim_plan_request *request;
    struct plim_vllm_flags flags;
    struct plim_vllm_start start;
    bool known_family;

    struct plim_plan_line lines[PLIM_PLAN_LINES];
    uint32_t n_lines;
    uint64_t rest_bytes, peak_bytes; /* used on the device */

    bool fits;
    bool tight; /* fits, but not beyond what the numbers may be off by */
    enum plim_plan_limit limit;
    int64_t margin_bytes;
    uint64_t error_bytes; /* of the margin */
    const char *why;      /* one sentence; as the engine would say it where it refuses */

    struct plim_plan_change changes[3];
    uint32_t n_changes;
    const struct plim_plan_rule **rules; /* arena, [n_rules] */
    uint32_t n_rules;
    const char *assumptions[16];
    uint32_t n_assumptions;
    const char *breaks_first;
    const char *command; /* ready to run */

    double wanted_concurrency;   /* of the traffic; 0: not known */
    double possible_concurrency; /* at the traffic's mean lengths */
    struct plim_plan_answer largest_context, largest_batch, smallest_gpu, replicas;
};

/**
 * plim_plan_make() - plan a start. `request` is borrowed by the plan.
 * Errors: those of plim_vllm_flags_read() and plim_vllm_play().
 * Cost: some twenty plays, a few milliseconds each.
 */
PLIM_MUST_USE enum plim_status plim_plan_make(struct plim_arena *arena,
                                              const struct plim_plan_request *request,
                                              struct plim_plan *out, struct plim_err *err);

const char *plim_plan_how_text(enum plim_plan_how how);
const char *plim_plan_limit_text(enum plim_plan_limit limit);

#endif
