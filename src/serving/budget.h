/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_BUDGET_H
#define PLIM_SERVING_BUDGET_H

/*
 * Engines other than vLLM: SGLang, TensorRT-LLM, TGI, llama.cpp and Ollama. Their budgets are equations over
 * weights, caches and what is free, so no start is played: what their code computes is `computed`, what
 * they measure at the start (activations, compute buffers, graphs) is `estimated` with a wide error.
 * A plan has the same shape as one of vLLM: of `start`, the fields that mean the same are filled in.
 *
 *   fraction   three meanings: SGLang's is of what was free before loading, TensorRT-LLM's of what is free
 *              after weights and activations, TGI's of the whole device
 *   cells      llama.cpp: tokens that its cache is allocated for, whole, at the start
 *
 * Threads: pure; everything is in the caller's arena.
 */

#include "serving/kv.h"
#include "serving/plan.h"

/* X(name, text of --engine, release that is modelled) */
#define PLIM_ENGINE_MAP(X)                                                                         \
    X(VLLM, "vllm", "0.33")                                                                        \
    X(SGLANG, "sglang", "0.5")                                                                     \
    X(TRTLLM, "tensorrt-llm", "1.0")                                                               \
    X(TGI, "tgi", "3")                                                                             \
    X(LLAMACPP, "llama.cpp", "b7000")                                                              \
    X(OLLAMA, "ollama", "0.13")

/** plim_engine_find() - by the text of --engine; *release (nullable) is the one modelled. */
bool plim_engine_find(const char *text, enum plim_engine *out, const char **release);
const char *plim_engine_text(enum plim_engine engine);

/* ---- inside: one attempt at a start */

struct plim__budget {
    struct plim_arena *arena;
    const struct plim_plan_request *request;
    const struct plim_geometry *g;
    const struct plim_card *card;
    const char *const *words; /* [n_words] flags */
    size_t n_words;
    struct plim_plan *plan;
    struct plim_placement at;
    struct plim_kv_options kv;
    struct plim_kv_list caches;
    struct plim_kv_sum cache; /* sums of `caches` */
    uint64_t weights;         /* on one device */
    enum plim_plan_how weights_how;
    bool weights_known;  /* the engine placed them layer by layer */
    uint64_t free_bytes; /* before loading */
    enum plim_status st; /* sticky */
    struct plim_err *err;
};

/** plim__budget_flag() - the last value of the first of `names` (words) that is given; "" for a bare flag,
 * NULL when none is. Dashes and underscores are the same. */
const char *plim__budget_flag(const struct plim__budget *e, const char *names);

/** plim__budget_number() - its value as a whole number; `absent` when it isn't given. */
uint64_t plim__budget_number(struct plim__budget *e, const char *names, uint64_t absent);

/** plim__budget_real() - its value as a fraction in (0, 1]. */
double plim__budget_real(struct plim__budget *e, const char *names, double absent);

/** plim__budget_format() - its value as a format of the cache. */
enum plim_kv_format plim__budget_format(struct plim__budget *e, const char *names);

/** plim__budget_load() - weights and caches of one device under `at` and `kv`; books context and weights. */
void plim__budget_load(struct plim__budget *e);

/** plim__budget_line() - book an amount. */
void plim__budget_line(struct plim__budget *e, struct plim_plan_line line);

/** plim__budget_activations() - bytes of the widest layer and the logits in a step of `tokens` tokens and
 * `rows` sampled rows; at most PLIM_AMOUNT_MAX. To within a half: kernels differ. */
uint64_t plim__budget_activations(const struct plim__budget *e, uint64_t tokens, uint64_t rows);

/** plim__budget_cache() - book the cache: `bytes` for `tokens` tokens in blocks of `block`, of which a request
 * may have `longest`. */
void plim__budget_cache(struct plim__budget *e, int64_t bytes, uint64_t tokens, uint32_t block,
                        uint64_t longest);

void plim__budget_sglang(struct plim__budget *e);
void plim__budget_trtllm(struct plim__budget *e);
void plim__budget_tgi(struct plim__budget *e);
void plim__budget_llamacpp(struct plim__budget *e, bool ollama);

/** plim__budget_plan() - a plan for request->engine, which is not vLLM. Errors: as plim_plan_make(). */
PLIM_MUST_USE enum plim_status plim__budget_plan(struct plim_arena *arena,
                                                 const struct plim_plan_request *request,
                                                 struct plim_plan *out, struct plim_err *err);

#endif
