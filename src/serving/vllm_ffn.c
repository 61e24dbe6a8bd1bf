/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Feed-forward parts: dense ones, routed experts by the fused Triton kernels, and gpt-oss' kernels.
 *
 * Routed experts share one workspace of tokens * k * (max(N, H) + max(I, H)) elements, N being the width of
 * the first product (2 I with a gate): it grows to the largest layer and stays for good
 * (v1/worker/workspace.py, model_executor/layers/fused_moe/). Sorted token lists are padded to blocks of 128.
 */

#include "serving/vllm_run.h"

#define MOE_BLOCK 128U /* tokens; of the tuned kernels at thousands of tokens */

plim_tensor plim__dense_ffn(struct plim__run *run, uint64_t intermediate, plim_tensor x)
{
    struct plim_tape *t = run->tape;
    uint64_t inner = intermediate / run->tp;
    (void)x;
    plim_tensor up = plim__linear(run, run->g->hidden, inner * (run->g->gated ? 2 : 1));
    plim_tensor act = plim_tape_take(t, run->tokens * inner * run->e);
    if (!run->family->holds_gate_up) {
        plim_tape_drop(t, up);
    }
    plim_tensor down = plim__linear(run, inner, run->g->hidden);
    plim_tape_drop(t, act);
    if (run->family->holds_gate_up) {
        plim_tape_drop(t, up);
    }
    return down;
}

/* Lists that sort tokens by expert, alive while the kernels run. */
struct sorted {
    plim_tensor ids, experts, count;
};

static struct sorted sort_tokens(struct plim__run *run, const struct plim_layer *l)
{
    uint64_t slots = run->tokens * l->experts_per_token + (uint64_t)l->experts * (MOE_BLOCK - 1);
    struct sorted s;
    s.ids = plim_tape_take(run->tape, slots * 4);
    s.experts = plim_tape_take(run->tape, plim_ceil_div(slots, MOE_BLOCK) * 4);
    s.count = plim_tape_take(run->tape, 4);
    plim_tape_touch(run->tape, ((uint64_t)l->experts + 1) * 4);
    return s;
}

static void unsort(struct plim__run *run, struct sorted s)
{
    plim_tape_drop(run->tape, s.count);
    plim_tape_drop(run->tape, s.experts);
    plim_tape_drop(run->tape, s.ids);
}

/* Weights and ids of the chosen experts, and with `third` the index list that is dropped at once. */
struct chosen {
    plim_tensor weights, ids;
};

static struct chosen choose(struct plim__run *run, const struct plim_layer *l)
{
    uint64_t bytes = run->tokens * l->experts_per_token * 4;
    struct chosen c = {plim_tape_take(run->tape, bytes), plim_tape_take(run->tape, bytes)};
    plim_tape_touch(run->tape, bytes);
    return c;
}

/* MXFP4 experts that run on the Marlin kernels, which want padded widths. */
static bool is_padded(const struct plim__run *run)
{
    return run->g->quant.n_schemes > 0 && run->g->quant.schemes[0].kind == PLIM_QUANT_MXFP4 &&
           run->card->cc != 90;
}

uint64_t plim__expert_inner(const struct plim__run *run, const struct plim_layer *l)
{
    uint64_t inner = l->expert_intermediate / (run->set->at.ep > 1 ? 1 : run->tp);
    return is_padded(run) ? plim_round_up(inner, 128) : inner;
}

uint64_t plim__expert_hidden(const struct plim__run *run, const struct plim_layer *l)
{
    uint64_t hidden = l->expert_latent != 0 ? l->expert_latent : run->g->hidden;
    return is_padded(run) ? plim_round_up(hidden, 256) : hidden;
}

/* What the kernels take while they run: quantized inputs, or sums of the Marlin kernel. */
static void run_experts(struct plim__run *run, const struct plim_layer *l, bool fp8)
{
    struct plim_tape *t = run->tape;
    uint64_t inner = plim__expert_inner(run, l), slots = run->tokens * l->experts_per_token;
    if (fp8) { /* the inner activations are quantized too */
        plim_tensor q = plim_tape_take(t, slots * inner);
        plim_tape_touch(t, slots * plim_ceil_div(inner, 128) * 4);
        plim_tape_drop(t, q);
    } else if (is_padded(run) || run->set->linear == PLIM_VLLM_MARLIN) {
        if (run->marlin_lock == 0) {
            run->marlin_lock = plim_tape_take(t, (uint64_t)run->card->sms * 16);
        }
        plim_tape_touch(t, (uint64_t)run->card->sms * 4 * 64 * 256 * 4);
    }
}

static plim_tensor routed(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    bool fp8 = run->set->linear == PLIM_VLLM_FP8 || run->set->linear == PLIM_VLLM_FP8_BLOCK;
    uint64_t hidden = plim__expert_hidden(run, l), inner = plim__expert_inner(run, l);
    uint64_t first = inner * (run->g->gated ? 2 : 1);
    plim_tensor padded = hidden != run->g->hidden && l->expert_latent == 0
                             ? plim_tape_take(t, run->tokens * hidden * run->e)
                             : 0;
    struct chosen c = choose(run, l);
    plim_tensor q = 0, q_scale = 0;
    plim_tensor result = plim_tape_take(t, run->tokens * hidden * run->e);
    if (fp8) {
        q = plim_tape_take(t, run->tokens * hidden);
        q_scale = plim_tape_take(t, run->tokens * plim_ceil_div(hidden, 128) * 4);
    }
    plim__workspace(run,
                    plim_round_up(run->tokens * l->experts_per_token * run->e *
                                      (plim_max_u64(first, hidden) + plim_max_u64(inner, hidden)),
                                  256));
    struct sorted s = sort_tokens(run, l);
    run_experts(run, l, fp8);
    unsort(run, s);
    plim_tape_drop(t, q_scale);
    plim_tape_drop(t, q);
    plim_tape_drop(t, c.weights);
    plim_tape_drop(t, c.ids);
    plim_tape_drop(t, padded);
    return result;
}

/* gpt-oss on capability 9.0: the kernels of triton_kernels, with buffers of their own
 * (fused_moe/gpt_oss_triton_kernels_moe.py). */
static plim_tensor routed_gpt_oss(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, k = l->experts_per_token, slots = n * k;
    uint64_t inner = l->expert_intermediate / run->tp, hidden = run->g->hidden;
    plim_tensor weights = plim_tape_take(t, slots * 2);
    plim_tensor ids = plim_tape_take(t, slots * 2);
    plim_tensor mask = plim_tape_take(t, n * plim_ceil_div(l->experts, 32) * 4);
    plim_tensor order = plim_tape_take(t, slots * 8);
    plim_tensor gates = plim_tape_take(t, slots * 2);
    plim_tape_drop(t, ids);
    plim_tape_drop(t, weights);
    plim_tape_drop(t, mask);
    plim_tensor result = plim_tape_take(t, n * hidden * run->e);
    plim_tensor first = plim_tape_take(t, slots * inner * run->e);
    plim_tape_touch(t, slots * hidden * run->e);
    plim_tape_drop(t, first);
    plim_tape_drop(t, gates);
    plim_tape_drop(t, order);
    return result;
}

/* Shared experts, and a gate in front of their sum where the family has one (Qwen2-MoE, Qwen3-Next). */
static plim_tensor shared(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    struct plim_tape *t = run->tape;
    if (run->family->shape == PLIM__SHAPE_PRE && run->family->norm == PLIM__NORM_GEMMA) {
        uint64_t inner = l->shared_intermediate / run->tp;
        plim_tensor up = plim__linear(run, run->g->hidden, 2 * inner);
        plim_tensor act = plim_tape_take(t, run->tokens * inner * run->e);
        plim_tensor down = plim__linear(run, inner, run->g->hidden);
        plim_tape_drop(t, act);
        plim_tensor gate = plim_tape_take(t, run->tokens * run->e);
        plim_tensor open = plim_tape_take(t, run->tokens * run->e);
        plim_tape_drop(t, gate);
        plim_tensor result = plim_tape_take(t, run->tokens * run->g->hidden * run->e);
        plim_tape_drop(t, open);
        plim_tape_drop(t, down);
        plim_tape_drop(t, up);
        return result;
    }
    return plim__dense_ffn(run, l->shared_intermediate, x);
}

static bool is_gpt_oss(const struct plim__run *run)
{
    return strcmp(run->family->architecture, "GptOssForCausalLM") == 0;
}

static plim_tensor moe(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    struct plim_tape *t = run->tape;
    bool one = run->family->shape == PLIM__SHAPE_ONE; /* routers in fp32 */
    run->moe_seen = true;
    plim_tensor logits = plim_tape_take(t, run->tokens * l->experts * (one ? 4 : run->e));
    plim_tensor beside = l->shared_intermediate != 0 ? shared(run, l, x) : 0;
    plim_tensor result =
        is_gpt_oss(run) && run->card->cc == 90 ? routed_gpt_oss(run, l) : routed(run, l);
    if (beside != 0) {
        plim_tensor sum = plim_tape_take(t, run->tokens * run->g->hidden * run->e);
        plim_tape_drop(t, beside);
        plim_tape_drop(t, result);
        result = sum;
    }
    plim_tape_drop(t, logits);
    return result;
}

plim_tensor plim__ffn(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    return l->ffn == PLIM_FFN_MOE ? moe(run, l, x) : plim__dense_ffn(run, l->intermediate, x);
}
