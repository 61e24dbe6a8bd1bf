/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The budgets of SGLang, TensorRT-LLM and TGI.
 * Sources: sglang 0.5 srt/arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py; TensorRT-LLM
 * documentation reference/memory.md, features/kvcache.md; text-generation-inference launcher/src/main.rs,
 * server/text_generation_server/models/flash_causal_lm.py.
 */

#include "serving/budget.h"

#include "base/num.h"

#include <math.h>

static void read_parallel(struct plim__budget *e, const char *tp, const char *pp, const char *ep)
{
    uint64_t n = plim__budget_number(e, tp, 1);
    uint64_t stages = plim__budget_number(e, pp, 1);
    uint64_t dealt = plim__budget_number(e, ep, 1);
    if (e->st == PLIM_OK &&
        (n == 0 || n > 1024 || stages == 0 || stages > 1024 || dealt == 0 || dealt > 4096)) {
        e->st = plim__fail(e->err, PLIM_E_USAGE, "parallel sizes of %u, %u and %u", (unsigned)n,
                           (unsigned)stages, (unsigned)dealt);
        return;
    }
    e->at.tp = (uint32_t)n;
    e->at.pp = (uint32_t)stages;
    e->at.ep = (uint32_t)dealt;
}

static uint64_t model_length(const struct plim__budget *e)
{
    return e->g->max_position != 0 ? e->g->max_position : 4096;
}

static uint64_t all_token_bytes(const struct plim__budget *e)
{
    return plim_add_sat(e->cache.token_bytes, e->cache.windowed_token_bytes);
}

/* ---- SGLang ------------------------------------------------------------------------------------------- */

struct sglang_tier {
    uint64_t below_mib; /* memory of the card */
    uint64_t chunk;     /* --chunked-prefill-size */
    uint64_t graphs;    /* --cuda-graph-max-bs below TP 4 */
    uint64_t graphs_tp4;
};

static const struct sglang_tier tiers[] = {
    {20 * 1024, 2048, 8, 8},      {35 * 1024, 4096, 48, 160},    {60 * 1024, 4096, 32, 160},
    {160 * 1024, 8192, 256, 512}, {UINT64_MAX, 16384, 512, 512},
};

/* MiB that are kept out of weights and cache: metadata, a chunk's activations, graphs, parallel buffers. */
static double sglang_reserve(struct plim__budget *e, uint64_t mib, uint64_t chunk, uint64_t graphs)
{
    double reserve = 512 + 1.5 * (double)plim_max_u64(chunk, 2048);
    reserve += (double)e->at.tp * e->at.pp / 8 * 1024 + 2 * (double)graphs;
    return mib > 60 * 1024 && reserve < 10240 ? 10240 : reserve;
}

/* Tokens of the pools: sliding layers get 0.8 of the full ones', states 0.9 of the attention's bytes. */
static uint64_t sglang_tokens(const struct plim__budget *e, int64_t bytes)
{
    double full = (double)e->cache.token_bytes + 0.8 * (double)e->cache.windowed_token_bytes;
    if (e->cache.token_bytes == 0) {
        full = (double)e->cache.windowed_token_bytes; /* nothing but windows: treated as full */
    }
    double share = e->cache.state_bytes != 0 ? (double)bytes / 1.9 : (double)bytes;
    return bytes > 0 && full > 0 ? (uint64_t)(share / full) : 0;
}

void plim__budget_sglang(struct plim__budget *e)
{
    uint64_t mib = e->card->nvml / PLIM_MIB;
    size_t t = 0;
    while (mib >= tiers[t].below_mib) {
        t++;
    }
    read_parallel(e, "tp-size tp tensor-parallel-size", "pp-size pp pipeline-parallel-size",
                  "ep-size ep expert-parallel-size");
    e->kv.k = plim__budget_format(e, "kv-cache-dtype");
    plim__budget_load(e);
    uint64_t graphs =
        plim__budget_flag(e, "disable-cuda-graph") != NULL
            ? 0
            : plim__budget_number(e, "cuda-graph-max-bs",
                                  e->at.tp >= 4 ? tiers[t].graphs_tp4 : tiers[t].graphs);
    uint64_t chunk = plim__budget_number(e, "chunked-prefill-size", tiers[t].chunk);
    double reserve = sglang_reserve(e, mib, chunk, graphs);
    double fraction = round(((double)mib - reserve) / (double)mib * 1000) / 1000;
    fraction = plim__budget_real(e, "mem-fraction-static", fraction > 0 ? fraction : 0.95);
    if (e->st != PLIM_OK) {
        return;
    }
    uint64_t kept = (uint64_t)((double)e->free_bytes * (1 - fraction));
    int64_t bytes = (int64_t)e->free_bytes - (int64_t)e->weights - (int64_t)kept;
    uint64_t tokens = plim_min_u64(sglang_tokens(e, bytes),
                                   plim__budget_number(e, "max-total-tokens", INT32_MAX));
    uint64_t longest = plim__budget_number(e, "context-length", model_length(e));
    double running = longest > 0 ? (double)tokens / (double)longest * 512 : 0;
    running = running < 2048 ? 2048 : running > 4096 ? 4096 : running;
    uint64_t most = plim__budget_number(e, "max-running-requests", (uint64_t)running);
    e->plan->start.requested = (uint64_t)((double)e->free_bytes * fraction);
    e->plan->start.settings.seqs = plim_min_u64(most, tokens / 2);
    e->plan->start.settings.batched_tokens = chunk;
    plim__budget_line(e, (struct plim_plan_line){
                             "static_memory", "weights and cache: the static fraction",
                             e->plan->start.requested, 0, PLIM_PLAN_COMPUTED, PLIM_PLAN_BUDGET,
                             "sglang memory_hook.py: of what is free before loading"});
    uint64_t step =
        plim__budget_activations(e, chunk, plim_min_u64(chunk, 1024)) + graphs * 2 * PLIM_MIB;
    plim__budget_line(e, (struct plim_plan_line){"activations",
                                                 "activations and graphs of the largest step", step,
                                                 step / 2, PLIM_PLAN_ESTIMATED, PLIM_PLAN_PEAK,
                                                 "widest layer of a chunk, logits"});
    plim__budget_cache(e, bytes, tokens, 1, longest);
}

/* ---- TensorRT-LLM ------------------------------------------------------------------------------------- */

void plim__budget_trtllm(struct plim__budget *e)
{
    read_parallel(e, "tp-size tensor-parallel-size", "pp-size pipeline-parallel-size",
                  "ep-size moe-expert-parallel-size");
    e->kv.k = plim__budget_format(e, "kv-cache-dtype");
    plim__budget_load(e);
    uint64_t step = plim__budget_number(e, "max-num-tokens", 8192);
    uint64_t batch = plim__budget_number(e, "max-batch-size", 2048);
    double fraction =
        plim__budget_real(e, "kv-cache-free-gpu-memory-fraction free-gpu-memory-fraction", 0.9);
    uint64_t longest = plim__budget_number(e, "max-seq-len", model_length(e));
    uint64_t block = plim__budget_number(e, "tokens-per-block", 32);
    if (e->st == PLIM_OK && (block == 0 || block > 4096)) {
        e->st = plim__fail(e->err, PLIM_E_USAGE, "--tokens-per-block must be from 1 to 4096");
    }
    if (e->st != PLIM_OK) {
        return;
    }
    uint64_t active = plim__budget_activations(e, step, plim_min_u64(batch, step));
    int64_t left = (int64_t)e->free_bytes - (int64_t)e->weights - (int64_t)active;
    int64_t bytes = left > 0 ? (int64_t)((double)left * fraction) : left;
    uint64_t per = all_token_bytes(e);
    uint64_t tokens = bytes > 0 && per > 0 ? (uint64_t)bytes / plim_mul_sat(per, block) * block : 0;
    tokens = plim_min_u64(tokens, plim__budget_number(e, "max-tokens", INT32_MAX));
    e->plan->start.settings.seqs = batch;
    e->plan->start.settings.batched_tokens = step;
    plim__budget_line(
        e, (struct plim_plan_line){"activations", "activations of the largest shape", active,
                                   active / 2, PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
                                   "fixed at the start from max_num_tokens and max_batch_size"});
    plim__budget_cache(e, bytes, tokens, (uint32_t)block, longest);
}

/* ---- TGI ---------------------------------------------------------------------------------------------- */

void plim__budget_tgi(struct plim__budget *e)
{
    read_parallel(e, "num-shard", "none", "none");
    e->kv.k = plim__budget_format(e, "kv-cache-dtype");
    plim__budget_load(e);
    uint64_t longest = plim__budget_number(e, "max-total-tokens", model_length(e));
    uint64_t input =
        plim__budget_number(e, "max-input-tokens max-input-length", longest > 1 ? longest - 1 : 1);
    uint64_t prefill =
        plim__budget_number(e, "max-batch-prefill-tokens", plim_min_u64(input + 50, 65536));
    double fraction = plim__budget_real(e, "cuda-memory-fraction", 1);
    if (e->st != PLIM_OK) {
        return;
    }
    uint64_t active = plim__budget_activations(e, prefill, 1);
    double allowed = (double)e->card->total * fraction - (double)(e->card->total - e->free_bytes);
    double left = allowed - (double)e->weights - (double)active;
    int64_t bytes = (int64_t)(left > 0 ? left * 0.95 : left); /* its wiggle room */
    uint64_t per = all_token_bytes(e);
    uint64_t tokens = bytes > 0 && per > 0 ? (uint64_t)bytes / per : 0;
    tokens = plim_min_u64(tokens, plim__budget_number(e, "max-batch-total-tokens", INT32_MAX));
    e->plan->start.settings.seqs = plim__budget_number(e, "max-concurrent-requests", 128);
    e->plan->start.settings.batched_tokens = prefill;
    plim__budget_line(e, (struct plim_plan_line){"activations",
                                                 "activations of the warm-up's prefill", active,
                                                 active / 2, PLIM_PLAN_ESTIMATED, PLIM_PLAN_PEAK,
                                                 "measured by the engine at its warm-up"});
    plim__budget_cache(e, bytes, tokens, 1, longest);
}
