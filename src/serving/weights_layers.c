/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The weights of one layer: mixer, feed-forward part, norms. Names are those of checkpoints where most
 * architectures agree; they serve exclusion lists and readers, never the arithmetic.
 * Source: modelling files of transformers 5.20.0.
 */

#include "serving/weights_int.h"

#include <string.h>

#define A PLIM_PART_ATTENTION

static bool is(const struct plim__weights *w, const char *family)
{
    return strcmp(w->g->family, family) == 0;
}

/* Keys or values: divided by head, replicated where there are fewer heads than devices. */
static void put_kv(struct plim__weights *w, const char *name, uint32_t heads, uint32_t dim,
                   bool piece)
{
    uint64_t rows = (uint64_t)heads * dim;
    plim__put(w, A, name, "qkv_proj", rows, w->g->hidden, PLIM_SPLIT_KV);
    plim__last(w)->kv_heads = heads;
    plim__last(w)->piece = piece;
    plim__put_bias(w, w->g->qkv_bias, A, name, "qkv_proj", rows, PLIM_SPLIT_KV);
    plim__last(w)->kv_heads = heads;
}

static void put_qk_norms(struct plim__weights *w, const struct plim_layer *l, bool own_kv)
{
    bool full = plim__family_has(w->family, QK_NORM_FULL);
    bool each = plim__family_has(w->family, QK_NORM_EACH);
    uint64_t q = full || each ? (uint64_t)l->heads * l->head_dim : l->head_dim;
    uint64_t k = full || each ? (uint64_t)l->kv_heads * l->head_dim : l->head_dim;
    plim__put_vector(w, A, "self_attn.q_norm", q, 1,
                     full || each ? PLIM_SPLIT_ROWS : PLIM_SPLIT_NONE);
    plim__put_bias(w, plim__family_has(w->family, QK_NORM_BIAS), A, "self_attn.q_norm", NULL, q,
                   PLIM_SPLIT_NONE);
    if (own_kv) {
        plim__put_vector(w, A, "self_attn.k_norm", k, 1,
                         full || each ? PLIM_SPLIT_KV : PLIM_SPLIT_NONE);
        plim__last(w)->kv_heads = l->kv_heads;
        plim__put_bias(w, plim__family_has(w->family, QK_NORM_BIAS), A, "self_attn.k_norm", NULL, k,
                       PLIM_SPLIT_NONE);
    }
}

static void put_attention(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    bool own_kv = l->kv_from == PLIM_LAYER_OWN_KV;
    bool piece = plim__family_has(w->family, FUSED_QKV);
    uint64_t q = (uint64_t)l->heads * l->head_dim;
    uint64_t out = (uint64_t)l->heads * l->v_head_dim;
    uint64_t gate = plim__family_has(w->family, ATTENTION_GATE) ? 2 : 1;
    plim__put(w, A, "self_attn.q_proj", "qkv_proj", gate * q, g->hidden, PLIM_SPLIT_ROWS);
    plim__put_bias(w, g->qkv_bias, A, "self_attn.q_proj", "qkv_proj", gate * q, PLIM_SPLIT_ROWS);
    if (own_kv) {
        put_kv(w, "self_attn.k_proj", l->kv_heads, l->head_dim, piece);
        if (!l->k_is_v) {
            put_kv(w, "self_attn.v_proj", l->kv_heads, l->v_head_dim, piece);
        }
    }
    plim__put(w, A, "self_attn.o_proj", NULL, g->hidden, out, PLIM_SPLIT_COLS);
    plim__put_bias(w, g->o_bias, A, "self_attn.o_proj", NULL, g->hidden, PLIM_SPLIT_COLS);
    if (g->qk_norm) {
        put_qk_norms(w, l, own_kv);
    }
    if (l->sinks) {
        plim__put_vector(w, A, "self_attn.sinks", l->heads, 1, PLIM_SPLIT_ROWS);
    }
}

static void put_indexer(struct plim__weights *w, const struct plim_layer *l)
{
    uint64_t h = w->g->hidden;
    plim__put(w, A, "self_attn.indexer.wq_b", NULL, (uint64_t)l->index_heads * l->index_dim,
              l->q_lora_rank, PLIM_SPLIT_NONE);
    plim__put(w, A, "self_attn.indexer.wk", NULL, l->index_dim, h, PLIM_SPLIT_NONE);
    plim__put_vector(w, A, "self_attn.indexer.k_norm", l->index_dim, 1, PLIM_SPLIT_NONE);
    plim__put_bias(w, true, A, "self_attn.indexer.k_norm", NULL, l->index_dim, PLIM_SPLIT_NONE);
    plim__put_vector(w, A, "self_attn.indexer.weights_proj", l->index_heads, h, PLIM_SPLIT_NONE);
}

static void put_latent(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    uint64_t q = (uint64_t)l->heads * l->head_dim;
    uint64_t kv = (uint64_t)l->heads * (l->qk_nope_dim + l->v_head_dim);
    uint64_t latent = (uint64_t)l->kv_lora_rank + l->qk_rope_dim;
    if (l->q_lora_rank != 0) {
        plim__put(w, A, "self_attn.q_a_proj", "fused_qkv_a_proj", l->q_lora_rank, g->hidden,
                  PLIM_SPLIT_NONE);
        plim__put_bias(w, g->qkv_bias, A, "self_attn.q_a_proj", NULL, l->q_lora_rank,
                       PLIM_SPLIT_NONE);
        plim__put_vector(w, A, "self_attn.q_a_layernorm", l->q_lora_rank, 1, PLIM_SPLIT_NONE);
        plim__put(w, A, "self_attn.q_b_proj", NULL, q, l->q_lora_rank, PLIM_SPLIT_ROWS);
    } else {
        plim__put(w, A, "self_attn.q_proj", NULL, q, g->hidden, PLIM_SPLIT_ROWS);
    }
    plim__put(w, A, "self_attn.kv_a_proj_with_mqa", l->q_lora_rank != 0 ? "fused_qkv_a_proj" : NULL,
              latent, g->hidden, PLIM_SPLIT_NONE);
    plim__put_bias(w, g->qkv_bias, A, "self_attn.kv_a_proj_with_mqa", NULL, latent,
                   PLIM_SPLIT_NONE);
    plim__put_vector(w, A, "self_attn.kv_a_layernorm", l->kv_lora_rank, 1, PLIM_SPLIT_NONE);
    plim__put(w, A, "self_attn.kv_b_proj", NULL, kv, l->kv_lora_rank, PLIM_SPLIT_ROWS);
    plim__put(w, A, "self_attn.o_proj", NULL, g->hidden, (uint64_t)l->heads * l->v_head_dim,
              PLIM_SPLIT_COLS);
    plim__put_bias(w, g->o_bias, A, "self_attn.o_proj", NULL, g->hidden, PLIM_SPLIT_COLS);
    if (l->index_heads != 0) {
        put_indexer(w, l);
    }
}

/* Whisper: keys have no bias. */
static void put_whisper_attention(struct plim__weights *w, const struct plim_layer *l,
                                  const char *name)
{
    uint64_t h = w->g->hidden;
    uint64_t q = (uint64_t)l->heads * l->head_dim;
    plim__put(w, A, name, "qkv_proj", q, h, PLIM_SPLIT_ROWS);
    plim__put_bias(w, true, A, name, "qkv_proj", q, PLIM_SPLIT_ROWS);
    plim__put(w, A, name, "qkv_proj", q, h, PLIM_SPLIT_ROWS);
    plim__put(w, A, name, "qkv_proj", q, h, PLIM_SPLIT_ROWS);
    plim__put_bias(w, true, A, name, "qkv_proj", q, PLIM_SPLIT_ROWS);
    plim__put(w, A, name, NULL, h, q, PLIM_SPLIT_COLS);
    plim__put_bias(w, true, A, name, NULL, h, PLIM_SPLIT_COLS);
}

/* ---- feed-forward */

static void put_mlp(struct plim__weights *w, enum plim_part part, const char *const names[3],
                    uint64_t size, uint64_t hidden, bool gated, bool bias)
{
    if (size == 0) {
        return;
    }
    if (gated) {
        plim__put(w, part, names[0], "gate_up_proj", size, hidden, PLIM_SPLIT_ROWS);
        plim__put_bias(w, bias, part, names[0], "gate_up_proj", size, PLIM_SPLIT_ROWS);
    }
    plim__put(w, part, names[1], gated ? "gate_up_proj" : NULL, size, hidden, PLIM_SPLIT_ROWS);
    plim__last(w)->piece = gated && plim__family_has(w->family, FUSED_UP);
    plim__put_bias(w, bias, part, names[1], gated ? "gate_up_proj" : NULL, size, PLIM_SPLIT_ROWS);
    plim__put(w, part, names[2], NULL, hidden, size, PLIM_SPLIT_COLS);
    plim__put_bias(w, bias, part, names[2], NULL, hidden, PLIM_SPLIT_COLS);
}

static void put_expert(struct plim__weights *w, const struct plim_layer *l, const char *name,
                       const char *fused, uint64_t rows, uint64_t cols, enum plim_split split)
{
    plim__put(w, PLIM_PART_EXPERTS, name, fused, rows, cols, split);
    plim__last(w)->copies = l->experts;
    if (plim__family_has(w->family, EXPERT_BIAS)) {
        plim__put_bias(w, true, PLIM_PART_EXPERTS, name, fused, rows, split);
        plim__last(w)->copies = l->experts;
    }
}

static void put_router(struct plim__weights *w, const struct plim_layer *l)
{
    uint64_t h = w->g->hidden;
    plim__put_vector(w, PLIM_PART_ROUTER, "mlp.gate", l->experts, h, PLIM_SPLIT_NONE);
    if (plim__family_has(w->family, ROUTER_BIAS)) {
        plim__put_bias(w, true, PLIM_PART_ROUTER, "mlp.gate", NULL, l->experts, PLIM_SPLIT_NONE);
    }
    if (plim__family_has(w->family, CORRECTION_BIAS)) {
        plim__put_vector(w, PLIM_PART_ROUTER, "mlp.gate.e_score_correction_bias", l->experts, 1,
                         PLIM_SPLIT_NONE);
        plim__last(w)->dtype = PLIM_DTYPE_F32;
    }
    if (is(w, "gemma4_text")) {
        plim__put_vector(w, PLIM_PART_ROUTER, "router.scale", h, 1, PLIM_SPLIT_NONE);
        plim__put_vector(w, PLIM_PART_ROUTER, "router.per_expert_scale", l->experts, 1,
                         PLIM_SPLIT_NONE);
    }
}

static void put_experts(struct plim__weights *w, const struct plim_layer *l)
{
    static const char *const shared[3] = {"mlp.shared_experts.gate_proj",
                                          "mlp.shared_experts.up_proj",
                                          "mlp.shared_experts.down_proj"};
    const struct plim_geometry *g = w->g;
    uint64_t h = l->expert_latent != 0 ? l->expert_latent : g->hidden;
    put_router(w, l);
    if (g->gated) {
        put_expert(w, l, "mlp.experts.0.gate_proj", "w13", l->expert_intermediate, h,
                   PLIM_SPLIT_ROWS);
    }
    put_expert(w, l, "mlp.experts.0.up_proj", g->gated ? "w13" : NULL, l->expert_intermediate, h,
               PLIM_SPLIT_ROWS);
    put_expert(w, l, "mlp.experts.0.down_proj", NULL, h, l->expert_intermediate, PLIM_SPLIT_COLS);
    put_mlp(w, PLIM_PART_SHARED, shared, l->shared_intermediate, g->hidden, g->gated, g->mlp_bias);
    if (plim__family_has(w->family, SHARED_GATE) && l->shared_intermediate != 0) {
        plim__put_vector(w, PLIM_PART_SHARED, "mlp.shared_expert_gate", 1, g->hidden,
                         PLIM_SPLIT_NONE);
    }
    if (l->expert_latent != 0) {
        plim__put(w, PLIM_PART_EXPERTS, "mixer.fc1_latent_proj", NULL, h, g->hidden,
                  PLIM_SPLIT_NONE);
        plim__put_bias(w, g->mlp_bias, PLIM_PART_EXPERTS, "mixer.fc1_latent_proj", NULL, h,
                       PLIM_SPLIT_NONE);
        plim__put(w, PLIM_PART_EXPERTS, "mixer.fc2_latent_proj", NULL, g->hidden, h,
                  PLIM_SPLIT_NONE);
        plim__put_bias(w, g->mlp_bias, PLIM_PART_EXPERTS, "mixer.fc2_latent_proj", NULL, g->hidden,
                       PLIM_SPLIT_NONE);
    }
}

static void put_ffn(struct plim__weights *w, const struct plim_layer *l)
{
    static const char *const dense[3] = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};
    const struct plim_geometry *g = w->g;
    put_mlp(w, PLIM_PART_MLP, dense, l->intermediate, g->hidden, g->gated, g->mlp_bias);
    if (l->ffn == PLIM_FFN_MOE) {
        put_experts(w, l);
    }
    if (plim__family_has(w->family, XIELU)) {
        plim__put_vector(w, PLIM_PART_MLP, "mlp.act_fn", 2, 1, PLIM_SPLIT_NONE);
    }
}

/* ---- what only Gemma 3n and 4 have */

static void put_layer_inputs(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    uint64_t h = g->hidden;
    if (g->layer_inputs != 0) {
        plim__put(w, PLIM_PART_MLP, "per_layer_input_gate", NULL, g->layer_inputs, h,
                  PLIM_SPLIT_NONE);
        plim__put(w, PLIM_PART_MLP, "per_layer_projection", NULL, h, g->layer_inputs,
                  PLIM_SPLIT_NONE);
        plim__put_norm(w, PLIM_PART_NORM, "post_per_layer_input_norm", h);
    }
    if (plim__family_has(w->family, LAYER_SCALAR)) {
        plim__put_vector(w, PLIM_PART_NORM, "layer_scalar", 1, 1, PLIM_SPLIT_NONE);
        for (int i = 0; i < 3 && l->ffn == PLIM_FFN_MOE; i++) {
            plim__put_norm(w, PLIM_PART_NORM, "feedforward_layernorm",
                           h); /* two after, one before */
        }
    }
    if (plim__family_has(w->family, ALTUP)) {
        uint64_t n = g->streams;
        plim__put_vector(w, PLIM_PART_MLP, "altup.correct_output_scale", h, 1, PLIM_SPLIT_NONE);
        plim__put_vector(w, PLIM_PART_MLP, "altup.correction_coefs", n, n, PLIM_SPLIT_NONE);
        plim__put_vector(w, PLIM_PART_MLP, "altup.prediction_coefs", n * n, n, PLIM_SPLIT_NONE);
        plim__put_vector(w, PLIM_PART_MLP, "altup.modality_router", n, h, PLIM_SPLIT_NONE);
        plim__put_norm(w, PLIM_PART_NORM, "altup.router_norm", h);
        plim__put(w, PLIM_PART_MLP, "laurel.linear_left", NULL, g->laurel_rank, h, PLIM_SPLIT_NONE);
        plim__put(w, PLIM_PART_MLP, "laurel.linear_right", NULL, h, g->laurel_rank,
                  PLIM_SPLIT_NONE);
        plim__put_norm(w, PLIM_PART_NORM, "laurel.post_laurel_norm", h);
    }
}

void plim__put_layer(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    uint32_t norms = g->norms;
    if (plim__family_has(w->family, BLOCKS)) { /* one before each part that is there */
        norms = (l->mixer != PLIM_MIXER_NONE ? 1U : 0U) + (l->ffn != PLIM_FFN_NONE ? 1U : 0U);
    }
    if (plim__family_has(w->family, ENCODER_DECODER)) {
        put_whisper_attention(w, l, "self_attn");
        norms = l->cross_kv_heads != 0 ? 3 : 2;
        if (l->cross_kv_heads != 0) {
            put_whisper_attention(w, l, "encoder_attn");
        }
    } else if (l->mixer == PLIM_MIXER_MLA) {
        put_latent(w, l);
    } else if (plim_layer_is_attention(l)) {
        put_attention(w, l);
    }
    plim__put_recurrent(w, l);
    if (l->ffn != PLIM_FFN_NONE) {
        put_ffn(w, l);
    }
    put_layer_inputs(w, l);
    for (uint32_t i = 0; i < norms; i++) {
        plim__put_norm(w, PLIM_PART_NORM, "norm", g->hidden);
    }
}
