/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Weights of vision encoders and of what joins them to the language model.
 * Source: transformers 5.20.0 models/{qwen2_vl,qwen2_5_vl,qwen3_vl,siglip,clip,pixtral,gemma4,llama4}.
 */

#include "serving/weights_int.h"

#include <string.h>

#define V PLIM_PART_VISION

static void put_linear(struct plim__weights *w, const char *name, uint64_t rows, uint64_t cols,
                       bool bias, enum plim_split split)
{
    plim__put(w, V, name, NULL, rows, cols, split);
    plim__put_bias(w, bias, V, name, NULL, rows, split);
}

static void put_norm(struct plim__weights *w, const char *name, uint64_t n, bool bias)
{
    plim__put_vector(w, V, name, n, 1, PLIM_SPLIT_NONE);
    plim__put_bias(w, bias, V, name, NULL, n, PLIM_SPLIT_NONE);
}

/* Patches of channels * frames * side^2 values, as one convolution. */
static void put_patches(struct plim__weights *w, bool bias)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t frames = v->temporal_patch != 0 ? v->temporal_patch : 1;
    uint64_t values = (uint64_t)v->channels * frames * v->patch * v->patch;
    plim__put_vector(w, V, "visual.patch_embed", v->hidden, values, PLIM_SPLIT_NONE);
    plim__put_bias(w, bias, V, "visual.patch_embed", NULL, v->hidden, PLIM_SPLIT_NONE);
}

/* An encoder layer: q, k, v and output, up and down (and gate), two norms or four. */
struct block {
    bool attention_bias;
    bool mlp_bias;
    bool gated;
    bool norm_bias;
    uint32_t norms;
    bool fused_qkv; /* one tensor in files */
};

static void put_block(struct plim__weights *w, const struct block *b)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t h = v->hidden;
    uint64_t q = (uint64_t)v->heads * v->head_dim;
    uint64_t kv = (uint64_t)v->kv_heads * v->head_dim;
    for (int i = 0; i < 3; i++) {
        uint64_t rows = i == 0 ? q : kv;
        plim__put(w, V, "visual.attn.qkv", "qkv_proj", rows, h, PLIM_SPLIT_ROWS);
        plim__last(w)->piece = b->fused_qkv && i > 0;
        plim__put_bias(w, b->attention_bias, V, "visual.attn.qkv", "qkv_proj", rows,
                       PLIM_SPLIT_ROWS);
    }
    put_linear(w, "visual.attn.proj", h, q, b->attention_bias, PLIM_SPLIT_COLS);
    if (b->gated) {
        put_linear(w, "visual.mlp.gate_proj", v->intermediate, h, b->mlp_bias, PLIM_SPLIT_ROWS);
    }
    put_linear(w, "visual.mlp.fc1", v->intermediate, h, b->mlp_bias, PLIM_SPLIT_ROWS);
    put_linear(w, "visual.mlp.fc2", h, v->intermediate, b->mlp_bias, PLIM_SPLIT_COLS);
    for (uint32_t i = 0; i < b->norms; i++) {
        put_norm(w, "visual.norm", h, b->norm_bias);
    }
}

static void put_blocks(struct plim__weights *w, const struct block *b)
{
    for (uint32_t i = 0; i < w->g->vision.depth && w->st == PLIM_OK; i++) {
        put_block(w, b);
    }
}

static void put_qwen2_vl(struct plim__weights *w, bool newer)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t merged = (uint64_t)v->hidden * v->merge * v->merge;
    put_patches(w, false);
    put_blocks(w, &(struct block){.attention_bias = true,
                                  .mlp_bias = true,
                                  .gated = newer,
                                  .norm_bias = !newer,
                                  .norms = 2,
                                  .fused_qkv = true});
    put_norm(w, "visual.merger.ln_q", v->hidden, !newer);
    put_linear(w, "visual.merger.mlp", merged, merged, true, PLIM_SPLIT_ROWS);
    put_linear(w, "visual.merger.mlp", v->out_hidden, merged, true, PLIM_SPLIT_COLS);
}

static void put_qwen3_vl(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t merged = (uint64_t)v->hidden * v->merge * v->merge;
    put_patches(w, true);
    plim__put_vector(w, V, "visual.pos_embed", v->positions, v->hidden, PLIM_SPLIT_NONE);
    put_blocks(w, &(struct block){.attention_bias = true,
                                  .mlp_bias = true,
                                  .norm_bias = true,
                                  .norms = 2,
                                  .fused_qkv = true});
    for (uint32_t i = 0; i <= v->deepstack; i++) { /* one merger, and one for each level */
        put_norm(w, "visual.merger.norm", i == 0 ? v->hidden : merged, true);
        put_linear(w, "visual.merger.linear_fc1", merged, merged, true, PLIM_SPLIT_ROWS);
        put_linear(w, "visual.merger.linear_fc2", v->out_hidden, merged, true, PLIM_SPLIT_COLS);
    }
}

static uint64_t patches_of_image(const struct plim_vision *v)
{
    uint64_t side = v->patch != 0 ? v->image_size / v->patch : 0;
    return side * side;
}

static void put_siglip(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t h = v->hidden;
    put_patches(w, true);
    plim__put_vector(w, V, "visual.position_embedding", patches_of_image(v), h, PLIM_SPLIT_NONE);
    put_blocks(w, &(struct block){
                      .attention_bias = true, .mlp_bias = true, .norm_bias = true, .norms = 2});
    put_norm(w, "visual.post_layernorm", h, true);
    if (v->pooling_head) {
        plim__put_vector(w, V, "visual.head.probe", h, 1, PLIM_SPLIT_NONE);
        put_linear(w, "visual.head.attention.in_proj", 3 * h, h, true, PLIM_SPLIT_NONE);
        put_linear(w, "visual.head.attention.out_proj", h, h, true, PLIM_SPLIT_NONE);
        put_norm(w, "visual.head.layernorm", h, true);
        put_linear(w, "visual.head.mlp.fc1", v->intermediate, h, true, PLIM_SPLIT_NONE);
        put_linear(w, "visual.head.mlp.fc2", h, v->intermediate, true, PLIM_SPLIT_NONE);
    }
    if (strncmp(w->g->family, "gemma3", 6) == 0) {
        plim__put_vector(w, V, "multi_modal_projector.mm_input_projection", h, w->g->hidden,
                         PLIM_SPLIT_NONE);
        put_norm(w, "multi_modal_projector.mm_soft_emb_norm", h, false);
    } else {
        put_linear(w, "multi_modal_projector.linear", w->g->hidden, h, true, PLIM_SPLIT_NONE);
    }
}

static void put_clip(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t h = v->hidden;
    uint64_t out = w->g->hidden;
    plim__put_vector(w, V, "visual.class_embedding", h, 1, PLIM_SPLIT_NONE);
    put_patches(w, false);
    plim__put_vector(w, V, "visual.position_embedding", patches_of_image(v) + 1, h,
                     PLIM_SPLIT_NONE);
    put_norm(w, "visual.pre_layrnorm", h, true);
    put_blocks(w, &(struct block){
                      .attention_bias = true, .mlp_bias = true, .norm_bias = true, .norms = 2});
    put_norm(w, "visual.post_layernorm", h, true);
    put_linear(w, "multi_modal_projector.linear_1", out, h, v->projector_bias, PLIM_SPLIT_NONE);
    put_linear(w, "multi_modal_projector.linear_2", out, out, v->projector_bias, PLIM_SPLIT_NONE);
}

static void put_pixtral(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t h = v->hidden;
    uint64_t merge = v->merge != 0 ? v->merge : 2;
    put_patches(w, false);
    put_norm(w, "visual.ln_pre", h, false);
    put_blocks(w, &(struct block){.gated = true, .norms = 2});
    put_norm(w, "multi_modal_projector.norm", h, false);
    put_linear(w, "multi_modal_projector.patch_merger", h, h * merge * merge, false,
               PLIM_SPLIT_NONE);
    put_linear(w, "multi_modal_projector.linear_1", w->g->hidden, h, false, PLIM_SPLIT_NONE);
    put_linear(w, "multi_modal_projector.linear_2", w->g->hidden, w->g->hidden, false,
               PLIM_SPLIT_NONE);
}

static void put_gemma4(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    put_patches(w, false);
    plim__put_vector(w, V, "visual.position_embedding_table", 2 * (uint64_t)v->positions, v->hidden,
                     PLIM_SPLIT_NONE);
    put_blocks(w, &(struct block){.gated = true, .norms = 4});
    for (uint32_t i = 0; i < 2 * v->depth; i++) {
        put_norm(w, "visual.self_attn.qk_norm", v->head_dim, false);
    }
    put_linear(w, "embed_vision.embedding_projection", w->g->hidden, v->hidden, false,
               PLIM_SPLIT_NONE);
}

static void put_llama4(struct plim__weights *w)
{
    const struct plim_vision *v = &w->g->vision;
    uint64_t h = v->hidden;
    plim__put_vector(w, V, "vision_model.class_embedding", h, 1, PLIM_SPLIT_NONE);
    plim__put_vector(w, V, "vision_model.positional_embedding_vlm", patches_of_image(v) + 1, h,
                     PLIM_SPLIT_NONE);
    put_patches(w, false);
    put_norm(w, "vision_model.layernorm_pre", h, true);
    put_norm(w, "vision_model.layernorm_post", h, true);
    put_blocks(w, &(struct block){
                      .attention_bias = true, .mlp_bias = true, .norm_bias = true, .norms = 2});
    put_linear(w, "vision_model.vision_adapter.mlp.fc1", v->adapter_in, v->intermediate, false,
               PLIM_SPLIT_NONE);
    put_linear(w, "vision_model.vision_adapter.mlp.fc2", v->adapter_out, v->adapter_in, false,
               PLIM_SPLIT_NONE);
    put_linear(w, "multi_modal_projector.linear_1", w->g->hidden, v->output_dim, false,
               PLIM_SPLIT_NONE);
}

void plim__put_vision(struct plim__weights *w)
{
    const char *kind = w->g->vision.kind;
    if (strcmp(kind, "qwen2_vl") == 0 || strcmp(kind, "qwen2_5_vl") == 0) {
        put_qwen2_vl(w, strcmp(kind, "qwen2_5_vl") == 0);
    } else if (strcmp(kind, "qwen3_vl") == 0) {
        put_qwen3_vl(w);
    } else if (strcmp(kind, "siglip") == 0) {
        put_siglip(w);
    } else if (strcmp(kind, "clip") == 0) {
        put_clip(w);
    } else if (strcmp(kind, "pixtral") == 0) {
        put_pixtral(w);
    } else if (strcmp(kind, "gemma4") == 0) {
        put_gemma4(w);
    } else if (strcmp(kind, "llama4") == 0) {
        put_llama4(w);
    }
}
