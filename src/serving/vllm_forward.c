/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A forward pass of a profile run, layer by layer. What is alive at the peak follows from the engine's
 * variables: the loop over the layers holds the last hidden states and the residual while a layer works on
 * them, and a layer holds its attention's result while the feed-forward part runs.
 */

#include "serving/family.h"
#include "serving/vllm_run.h"

/* X(architecture, norm, shape, gate_up held, embedding scaled, source) */
#define FAMILY_MAP(X)                                                                              \
    X("LlamaForCausalLM", RMS, PRE, false, false, "llama.py")                                      \
    X("MistralForCausalLM", RMS, PRE, false, false, "llama.py")                                    \
    X("Phi3ForCausalLM", RMS, PRE, false, false, "phi3.py")                                        \
    X("InternLM3ForCausalLM", RMS, PRE, false, false, "llama.py")                                  \
    X("YiForCausalLM", RMS, PRE, false, false, "llama.py")                                         \
    X("AquilaForCausalLM", RMS, PRE, false, false, "llama.py")                                     \
    X("NemotronNASForCausalLM", RMS, PRE, false, false, "nemotron_nas.py")                         \
    X("DeciLMForCausalLM", RMS, PRE, false, false, "nemotron_nas.py")                              \
    X("Llama4ForCausalLM", RMS, PRE, false, false, "llama4.py")                                    \
    X("Llama4ForConditionalGeneration", RMS, PRE, false, false, "llama4.py")                       \
    X("JambaForCausalLM", RMS, PRE, false, false, "jamba.py")                                      \
    X("Glm4ForCausalLM", RMS, PRE, false, false, "glm4.py")                                        \
    X("BailingMoeForCausalLM", RMS, PRE, false, false, "bailing_moe.py")                           \
    X("FalconH1ForCausalLM", RMS, PRE, false, false, "falcon_h1.py")                               \
    X("Qwen2ForCausalLM", RMS, PRE, true, false, "qwen2.py")                                       \
    X("Qwen3ForCausalLM", RMS, PRE, true, false, "qwen3.py")                                       \
    X("MiMoForCausalLM", RMS, PRE, true, false, "mimo.py")                                         \
    X("Qwen2MoeForCausalLM", RMS, PRE, true, false, "qwen2_moe.py")                                \
    X("Qwen3MoeForCausalLM", RMS, PRE, true, false, "qwen3_moe.py")                                \
    X("MixtralForCausalLM", RMS, PRE, true, false, "mixtral.py")                                   \
    X("OlmoeForCausalLM", RMS, PRE, true, false, "olmoe.py")                                       \
    X("GraniteForCausalLM", RMS, PRE, true, true, "granite.py")                                    \
    X("InternLM2ForCausalLM", RMS, PRE, true, false, "internlm2.py")                               \
    X("ExaoneForCausalLM", RMS, PRE, true, false, "exaone.py")                                     \
    X("Exaone4ForCausalLM", RMS, PRE, true, false, "exaone4.py")                                   \
    X("SolarForCausalLM", RMS, PRE, true, false, "solar.py")                                       \
    X("Glm4MoeForCausalLM", RMS, PRE, true, false, "glm4_moe.py")                                  \
    X("Ernie4_5_MoeForCausalLM", RMS, PRE, true, false, "ernie45_moe.py")                          \
    X("DeepseekV2ForCausalLM", RMS, PRE, true, false, "deepseek_v2.py")                            \
    X("DeepseekV3ForCausalLM", RMS, PRE, true, false, "deepseek_v2.py")                            \
    X("DeepseekV32ForCausalLM", RMS, PRE, true, false, "deepseek_v2.py")                           \
    X("KimiK2ForCausalLM", RMS, PRE, true, false, "deepseek_v2.py")                                \
    X("GptOssForCausalLM", RMS, PRE, true, false, "gpt_oss.py")                                    \
    X("NemotronHForCausalLM", RMS, ONE, false, false, "nemotron_h.py")                             \
    X("Qwen3NextForCausalLM", GEMMA, PRE, true, false, "qwen3_next.py")                            \
    X("Qwen3_5ForCausalLM", GEMMA, PRE, true, false, "qwen3_5.py")                                 \
    X("Qwen3_5ForConditionalGeneration", GEMMA, PRE, true, false, "qwen3_5.py")                    \
    X("GemmaForCausalLM", GEMMA, PRE, true, true, "gemma.py")                                      \
    X("Gemma2ForCausalLM", GEMMA, SANDWICH, true, true, "gemma2.py")                               \
    X("Gemma3ForCausalLM", GEMMA, SANDWICH, true, true, "gemma3.py")                               \
    X("Gemma3ForConditionalGeneration", GEMMA, SANDWICH, true, true, "gemma3.py")                  \
    X("OPTForCausalLM", LAYER, ADD, false, false, "opt.py")                                        \
    X("GPT2LMHeadModel", LAYER, ADD, true, false, "gpt2.py")

static const struct plim__vllm_family families[] = {
#define ROW(architecture, norm, shape, holds, scales, source)                                      \
    {architecture, PLIM__NORM_##norm, PLIM__SHAPE_##shape, holds, scales, source},
    FAMILY_MAP(ROW)
#undef ROW
};

/* The row of a class whose name has `n` letters; NULL when there is none. */
static const struct plim__vllm_family *row_of(const char *architecture, size_t n)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(families); i++) {
        const char *name = families[i].architecture;
        if (strlen(name) == n && strncmp(name, architecture, n) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

const struct plim__vllm_family *plim__vllm_family_of(const struct plim_geometry *g, bool *known)
{
    static const struct plim__vllm_family most = {"",   PLIM__NORM_RMS, PLIM__SHAPE_PRE,
                                                  true, false,          "as most models"};
    const struct plim__vllm_family *row = row_of(g->architecture, strlen(g->architecture));
    *known = row != NULL;
    if (row != NULL) {
        return row;
    }
    const struct plim__family *relatives = plim__family_of_type(g->family);
    const char *name = relatives != NULL ? relatives->classes : "";
    while (*name != '\0') {
        size_t n = strcspn(name, " ");
        row = row_of(name, n);
        if (row != NULL) {
            *known = g->architecture[0] == '\0' && !g->assumed;
            return row;
        }
        name += n + (name[n] == ' ');
    }
    return &most;
}

/* ---- shapes of layers -------------------------------------------------------------------------- */

/* The mixer behind a norm. `x` is let go of when nobody else holds it. */
static plim_tensor mix(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    bool jamba = run->family->shape == PLIM__SHAPE_PRE && l->mixer == PLIM_MIXER_MAMBA1;
    plim_tensor given =
        jamba ? plim_tape_take(run->tape, run->tokens * run->g->hidden * run->e) : 0;
    plim_tensor out = plim__mixer(run, l, x);
    plim_tape_drop(run->tape, x);
    if (jamba) { /* the result is copied into the tensor made for it */
        plim_tape_drop(run->tape, out);
        return given;
    }
    return out;
}

/* The norm at a layer's door: the first one makes the residual. */
static struct plim__stream enter(struct plim__run *run, struct plim__stream in)
{
    if (in.residual != 0) {
        return plim__norm_add(run, in, run->g->hidden);
    }
    struct plim__stream out = {0, plim_tape_hold(run->tape, in.hidden)};
    out.hidden = plim__norm(run, in.hidden, run->tokens, run->g->hidden);
    return out;
}

/* hidden <- f(hidden): the old one goes when the new one is there. */
static void replace(struct plim__run *run, plim_tensor *hidden, plim_tensor now)
{
    plim_tape_drop(run->tape, *hidden);
    *hidden = now;
}

static struct plim__stream layer_pre(struct plim__run *run, const struct plim_layer *l,
                                     struct plim__stream in)
{
    bool sandwich = run->family->shape == PLIM__SHAPE_SANDWICH;
    uint64_t width = run->g->hidden;
    struct plim__stream s = enter(run, in);
    s.hidden = mix(run, l, s.hidden);
    if (sandwich) {
        replace(run, &s.hidden, plim__norm(run, s.hidden, run->tokens, width));
    }
    struct plim__stream normed = plim__norm_add(run, s, width);
    plim_tape_drop(run->tape, s.hidden);
    plim_tape_drop(run->tape, s.residual);
    s = normed;
    replace(run, &s.hidden, plim__ffn(run, l, s.hidden));
    if (sandwich) {
        replace(run, &s.hidden, plim__norm(run, s.hidden, run->tokens, width));
    }
    return s;
}

static struct plim__stream layer_one(struct plim__run *run, const struct plim_layer *l,
                                     struct plim__stream in)
{
    struct plim__stream s = enter(run, in);
    s.hidden = l->mixer != PLIM_MIXER_NONE
                   ? mix(run, l, s.hidden)
                   : (replace(run, &s.hidden, plim__ffn(run, l, s.hidden)), s.hidden);
    return s;
}

/* OPT and GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). GPT-2 keeps the norm's result meanwhile. */
static struct plim__stream layer_add(struct plim__run *run, const struct plim_layer *l,
                                     struct plim__stream in)
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, row = n * run->g->hidden * run->e;
    bool holds_norm = run->family->holds_gate_up;
    plim_tensor normed = plim__norm(run, in.hidden, n, run->g->hidden);
    plim_tensor mixed = plim__mixer(run, l, normed);
    if (!holds_norm) {
        plim_tape_drop(t, normed);
    }
    plim_tensor middle = plim_tape_take(t, row);
    plim_tape_drop(t, mixed);
    if (holds_norm) {
        plim_tape_drop(t, normed);
    }
    normed = plim__norm(run, middle, n, run->g->hidden);
    plim_tensor up = plim__linear(run, run->g->hidden, l->intermediate / run->tp);
    if (!holds_norm) {
        plim_tape_drop(t, normed);
    }
    plim_tensor act = plim_tape_take(t, n * (l->intermediate / run->tp) * run->e);
    plim_tape_drop(t, up);
    plim_tensor down = plim__linear(run, l->intermediate / run->tp, run->g->hidden);
    plim_tape_drop(t, act);
    plim_tensor out = plim_tape_take(t, row);
    plim_tape_drop(t, down);
    if (holds_norm) {
        plim_tape_drop(t, normed);
    }
    plim_tape_drop(t, middle);
    return (struct plim__stream){out, 0};
}

/* ---- the pass ----------------------------------------------------------------------------------- */

/* Token embeddings; learned positions are looked up and added. *kept: what lives as long as the pass. */
static plim_tensor embed(struct plim__run *run, plim_tensor kept[2])
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, row = n * run->g->hidden * run->e;
    plim_tensor ids = plim_tape_take(t, n * 8);
    plim_tensor hidden = plim_tape_take(t, row);
    plim_tape_drop(t, ids);
    if (run->family->scales_embedding) {
        replace(run, &hidden, plim_tape_take(t, row));
    }
    if (run->g->learned_positions != 0) {
        plim_tensor positions = plim_tape_take(t, n * 8);
        kept[0] = hidden;
        kept[1] = plim_tape_take(t, row);
        plim_tape_drop(t, positions);
        hidden = plim_tape_take(t, row);
    }
    return hidden;
}

static struct plim__stream layer(struct plim__run *run, const struct plim_layer *l,
                                 struct plim__stream in)
{
    switch (run->family->shape) {
    case PLIM__SHAPE_ADD:
        return layer_add(run, l, in);
    case PLIM__SHAPE_ONE:
        return layer_one(run, l, in);
    default:
        return layer_pre(run, l, in);
    }
}

plim_tensor plim__forward(struct plim__run *run, uint32_t first, uint32_t end)
{
    struct plim_tape *t = run->tape;
    if (run->set->compiled && run->family->shape != PLIM__SHAPE_ADD) {
        return plim__forward_compiled(run, first, end);
    }
    plim_tensor kept[2] = {0, 0};
    struct plim__stream s = {0, 0};
    if (first == 0) {
        s.hidden = embed(run, kept);
    } else { /* a later pipeline stage is handed both */
        s.hidden = plim_tape_take(t, run->tokens * run->g->hidden * run->e);
        s.residual = plim_tape_take(t, run->tokens * run->g->hidden * run->e);
    }
    for (uint32_t i = first; i < end; i++) {
        struct plim__stream next = layer(run, &run->g->layers[i], s);
        plim_tape_drop(t, s.hidden);
        plim_tape_drop(t, s.residual);
        s = next;
    }
    struct plim__stream last =
        s.residual != 0
            ? plim__norm_add(run, s, run->g->hidden)
            : (struct plim__stream){plim__norm(run, s.hidden, run->tokens, run->g->hidden), 0};
    plim_tape_drop(t, s.hidden);
    plim_tape_drop(t, s.residual);
    plim_tape_drop(t, last.residual);
    plim_tape_drop(t, kept[0]);
    plim_tape_drop(t, kept[1]);
    return last.hidden;
}
