/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Around the decoder layers: rotary embeddings, the vision encoder, the encoder of encoder-decoder models,
 * multi-token prediction.
 */

#include "serving/config.h"

#include "base/num.h"

/* ---- rotary embeddings */

/* Families without any; the others rotate. */
static bool rotates(const struct plim__config *c, const struct plim__node *node)
{
    static const char *const none[] = {"gpt2", "gpt_bigcode", "opt",   "bloom",
                                       "mpt",  "whisper",     "jamba", "nemotron_h"};
    for (size_t i = 0; i < PLIM_COUNT_OF(none); i++) {
        if (strcmp(c->g->family, none[i]) == 0) {
            return false;
        }
    }
    return !json_is_true(json_object_get(node->object, "alibi"));
}

/* Layers without positions in families that otherwise rotate. */
static bool layer_rotates(struct plim__config *c, const struct plim__node *node, uint32_t i)
{
    const struct plim_layer *l = &c->g->layers[i];
    if (!plim_layer_is_attention(l)) {
        return false;
    }
    bool full = l->mixer == PLIM_MIXER_FULL;
    if (strcmp(c->g->family, "cohere2") == 0 || strcmp(c->g->family, "llama4_text") == 0) {
        return !full;
    }
    if (strcmp(c->g->family, "exaone4") == 0) {
        return !full || !plim__has(c, node, "sliding_window");
    }
    if (strcmp(c->g->family, "smollm3") == 0) {
        json_t *list = plim__list(c, node, "no_rope_layers");
        uint32_t every = plim__u32(c, node, "no_rope_layer_interval", "no_rope_layer_interval");
        return list != NULL ? json_integer_value(json_array_get(list, i)) != 0
                            : every == 0 || (i + 1) % every != 0;
    }
    return true;
}

static double partial_factor(struct plim__config *c, const struct plim__node *node,
                             const struct plim__node *params)
{
    double absent = strcmp(c->g->family, "glm") == 0 || strcmp(c->g->family, "glm4") == 0 ||
                            strcmp(c->g->family, "glm4_moe") == 0 ||
                            strcmp(c->g->family, "phi") == 0
                        ? 0.5
                        : 1.0;
    if (strcmp(c->g->family, "qwen3_next") == 0 || strncmp(c->g->family, "qwen3_5", 7) == 0 ||
        strcmp(c->g->family, "gpt_neox") == 0 || strcmp(c->g->family, "stablelm") == 0) {
        absent = 0.25;
    }
    double outer = plim__real(c, node, "partial_rotary_factor rotary_pct", absent);
    double factor = plim__real(c, params, "partial_rotary_factor", outer);
    return factor > 0 && factor <= 1 ? factor : 1;
}

#define FACTOR_MAX 65536 /* of rotary positions; models have 2 to 128 */

/* The rotary embedding of one layer; `params` is what the file says about it. */
static struct plim_rope rope_of(struct plim__config *c, const struct plim__node *node,
                                const struct plim__node *params, const struct plim_layer *l)
{
    const char *type = plim__text(c, params, "rope_type type");
    bool local = l->mixer == PLIM_MIXER_SLIDING && plim__has(c, node, "rope_local_base_freq");
    struct plim_rope rope = {.type = type != NULL && !local ? type : "default",
                             .max_position = c->g->max_position,
                             .factor = local ? 1 : plim__real(c, params, "factor", 1)};
    double outer = plim__real(c, node, "rope_theta rotary_emb_base", 10000);
    rope.theta = local ? plim__real(c, node, "rope_local_base_freq", 10000)
                       : plim__real(c, params, "rope_theta", outer);
    rope.original_max_position = local ? 0
                                       : plim__tokens(c, params, "original_max_position",
                                                      "original_max_position_embeddings");
    uint32_t stated = plim__u32(c, node, "rotary_dim", "rotary_dim");
    rope.rotary_dim = l->mixer == PLIM_MIXER_MLA ? l->qk_rope_dim
                      : stated != 0
                          ? stated
                          : (uint32_t)((double)l->head_dim * partial_factor(c, node, params));
    if (!(rope.factor >= 0 && rope.factor <= FACTOR_MAX)) {
        (void)plim__config_fail(c, PLIM_E_RANGE, params, "factor",
                                "factor is %g, by which no model stretches its positions",
                                rope.factor);
    }
    return rope;
}

static bool same_rope(const struct plim_rope *a, const struct plim_rope *b)
{
    return strcmp(a->type, b->type) == 0 && a->rotary_dim == b->rotary_dim &&
           a->max_position == b->max_position &&
           a->original_max_position == b->original_max_position && !(a->factor < b->factor) &&
           !(a->factor > b->factor) && !(a->theta < b->theta) && !(a->theta > b->theta);
}

void plim__config_ropes(struct plim__config *c, const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    json_t *object = plim__child(c, node, "rope_parameters rope_scaling");
    g->ropes = plim__config_array(c, 8, sizeof *g->ropes);
    for (uint32_t i = 0; i < g->n_layers && c->st == PLIM_OK && rotates(c, node); i++) {
        struct plim_layer *l = &g->layers[i];
        if (!layer_rotates(c, node, i)) {
            continue;
        }
        json_t *own = json_object_get(object, l->mixer == PLIM_MIXER_SLIDING ? "sliding_attention"
                                                                             : "full_attention");
        struct plim__node params =
            plim__node_of(c, json_is_object(own) ? own : object, "rope_parameters.", "");
        struct plim_rope rope = rope_of(c, node, &params, l);
        uint32_t k = 0;
        while (k < g->n_ropes && !same_rope(&g->ropes[k], &rope)) {
            k++;
        }
        if (k == g->n_ropes && k < 8) {
            g->ropes[g->n_ropes++] = rope;
        }
        l->rope = k < 8 ? k : PLIM_NO_ROPE;
    }
}

/* ---- encoder-decoder */

void plim__config_encoder(struct plim__config *c, const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    if (plim__family_has(c->family, MTP_DEEPSEEK) || plim__family_has(c->family, MTP_QWEN)) {
        g->n_mtp = plim__u32(
            c, node, "n_mtp",
            "num_nextn_predict_layers mtp_num_hidden_layers num_mtp_layers num_mtp_modules");
        g->n_mtp = g->n_mtp > 64 ? 64 : g->n_mtp;
        g->mtp = plim__config_array(c, g->n_mtp, sizeof *g->mtp);
        uint32_t like =
            g->n_layers - 1; /* an MTP layer is built like the last decoder layer with attention */
        while (like > 0 && !plim_layer_is_attention(&g->layers[like])) {
            like--;
        }
        for (uint32_t i = 0; i < g->n_mtp && c->st == PLIM_OK; i++) {
            g->mtp[i] = g->layers[like];
        }
    }
    if (!plim__family_has(c->family, ENCODER_DECODER)) {
        return;
    }
    g->n_encoder = plim__need(c, node, "n_encoder", "encoder_layers");
    g->cross_tokens = plim__need(c, node, "cross_tokens", "max_source_positions");
    g->mel_bins = plim__need(c, node, "mel_bins", "num_mel_bins");
    uint32_t heads = plim__need(c, node, "encoder_heads", "encoder_attention_heads");
    uint32_t size = plim__need(c, node, "encoder_intermediate", "encoder_ffn_dim");
    if (c->st == PLIM_OK && (g->n_encoder > PLIM_LAYER_MAX || heads == 0)) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, "encoder_layers", "%u encoder layers",
                                g->n_encoder);
    }
    g->encoder = plim__config_array(c, g->n_encoder, sizeof *g->encoder);
    for (uint32_t i = 0; i < g->n_encoder && c->st == PLIM_OK; i++) {
        g->encoder[i] = (struct plim_layer){.mixer = PLIM_MIXER_FULL,
                                            .ffn = PLIM_FFN_DENSE,
                                            .heads = heads,
                                            .kv_heads = heads,
                                            .head_dim = g->hidden / heads,
                                            .v_head_dim = g->hidden / heads,
                                            .kv_from = PLIM_LAYER_OWN_KV,
                                            .rope = PLIM_NO_ROPE,
                                            .intermediate = size};
    }
    for (uint32_t i = 0; i < g->n_layers; i++) {
        g->layers[i].cross_heads = g->layers[i].heads;
        g->layers[i].cross_kv_heads = g->layers[i].kv_heads;
    }
}

/* ---- vision */

/* Configurations of vision encoders whose weights this library counts: {model_type, rule}. */
static const struct {
    const char *type;
    const char *kind;
    const char *defaults;
} vision_kinds[] = {
    {"qwen2_vl", "qwen2_vl", "qwen2_vl_vision"},
    {"qwen2_vl_vision", "qwen2_vl", "qwen2_vl_vision"},
    {"qwen2_5_vl", "qwen2_5_vl", "qwen2_5_vl_vision"},
    {"qwen2_5_vl_vision", "qwen2_5_vl", "qwen2_5_vl_vision"},
    {"qwen3_vl", "qwen3_vl", "qwen3_vl_vision"},
    {"qwen3_vl_vision", "qwen3_vl", "qwen3_vl_vision"},
    {"qwen3_vl_moe", "qwen3_vl", "qwen3_vl_moe_vision"},
    {"qwen3_vl_moe_vision", "qwen3_vl", "qwen3_vl_moe_vision"},
    {"qwen3_5", "qwen3_vl", "qwen3_5_vision"},
    {"qwen3_5_vision", "qwen3_vl", "qwen3_5_vision"},
    {"qwen3_5_moe", "qwen3_vl", "qwen3_5_moe_vision"},
    {"qwen3_5_moe_vision", "qwen3_vl", "qwen3_5_moe_vision"},
    {"siglip_vision_model", "siglip", "siglip_vision_model"},
    {"clip_vision_model", "clip", "clip_vision_model"},
    {"pixtral", "pixtral", "pixtral"},
    {"gemma4_vision", "gemma4", "gemma4_vision"},
    {"llama4_vision_model", "llama4", "llama4_vision_model"},
};

/* The kind of a wrapper's encoder when the inner object has no model_type. */
static const char *implied_type(const char *outer)
{
    static const char *const rows[][2] = {
        {"gemma3", "siglip_vision_model"},   {"gemma4", "gemma4_vision"},
        {"llama4", "llama4_vision_model"},   {"llava", "clip_vision_model"},
        {"llava_next", "clip_vision_model"}, {"mistral3", "pixtral"},
        {"paligemma", "siglip_vision_model"}};
    for (size_t i = 0; outer != NULL && i < PLIM_COUNT_OF(rows); i++) {
        if (strcmp(outer, rows[i][0]) == 0) {
            return rows[i][1];
        }
    }
    return outer;
}

static void vision_sizes(struct plim__config *c, const struct plim__node *node,
                         struct plim_vision *v)
{
    v->hidden = plim__need(c, node, "vision.hidden",
                           strcmp(v->kind, "qwen2_vl") == 0 ? "embed_dim" : "hidden_size");
    v->depth = plim__need(c, node, "vision.depth", "depth num_hidden_layers");
    v->heads = plim__need(c, node, "vision.heads", "num_heads num_attention_heads");
    v->intermediate = plim__u32(c, node, "vision.intermediate", "intermediate_size");
    if (v->intermediate == 0) {
        double ratio = plim__real(c, node, "mlp_ratio", 4);
        v->intermediate =
            ratio > 0 && ratio <= 64 ? (uint32_t)((double)v->hidden * ratio) : 4 * v->hidden;
    }
    v->head_dim =
        strcmp(v->kind, "gemma4") == 0 ? plim__u32(c, node, "vision.head_dim", "head_dim") : 0;
    v->kv_heads = strcmp(v->kind, "gemma4") == 0
                      ? plim__u32(c, node, "vision.kv_heads", "num_key_value_heads")
                      : v->heads;
    if (v->head_dim == 0 && v->heads != 0) {
        v->head_dim = v->hidden / v->heads;
    }
    v->patch = plim__need(c, node, "vision.patch", "patch_size spatial_patch_size");
    v->temporal_patch = plim__u32(c, node, "vision.temporal_patch", "temporal_patch_size");
    v->merge = plim__u32(c, node, "vision.merge", "spatial_merge_size");
    v->channels = plim__u32(c, node, "vision.channels", "num_channels in_channels in_chans");
    v->channels = v->channels != 0 ? v->channels : 3;
    v->image_size = plim__u32(c, node, "vision.image_size", "image_size");
    v->out_hidden = plim__u32(c, node, "vision.out_hidden",
                              strcmp(v->kind, "qwen2_vl") == 0 ? "hidden_size" : "out_hidden_size");
    v->positions =
        plim__u32(c, node, "vision.positions", "num_position_embeddings position_embedding_size");
    v->adapter_in = plim__u32(c, node, "vision.adapter_in", "projector_input_dim");
    v->adapter_out = plim__u32(c, node, "vision.adapter_out", "projector_output_dim");
    v->output_dim = plim__u32(c, node, "vision.output_dim", "vision_output_dim");
    v->pooling_head = plim__flag(c, node, "vision_use_head", true);
    if (c->st == PLIM_OK &&
        (v->patch > 4096 || v->temporal_patch > 4096 || v->merge > 64 || v->channels > 4096 ||
         (uint64_t)v->heads * v->head_dim > PLIM__DERIVED_MAX ||
         (uint64_t)v->kv_heads * v->head_dim > PLIM__DERIVED_MAX)) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, "patch_size",
                                "patches, merges or heads that no encoder has");
    }
    json_t *levels = plim__list(c, node, "deepstack_visual_indexes");
    levels = levels != NULL ? levels : json_object_get(node->defaults, "deepstack_visual_indexes");
    v->deepstack = (uint32_t)json_array_size(levels);
}

void plim__config_vision(struct plim__config *c, const struct plim__node *root)
{
    struct plim_vision *v = &c->g->vision;
    json_t *object = plim__child(c, root, "vision_config");
    if (object == NULL || json_object_size(object) == 0 || c->st != PLIM_OK) {
        return;
    }
    struct plim__node node = plim__node_of(c, object, "vision_config.", "");
    const char *type = plim__text(c, &node, "model_type");
    v->model_type = type != NULL ? type : implied_type(plim__text(c, root, "model_type"));
    for (size_t i = 0; v->model_type != NULL && i < PLIM_COUNT_OF(vision_kinds); i++) {
        if (strcmp(v->model_type, vision_kinds[i].type) == 0) {
            v->kind = vision_kinds[i].kind;
            node = plim__node_of(c, object, "vision_config.", vision_kinds[i].defaults);
        }
    }
    if (v->kind == NULL) {
        plim__note(c, "the vision encoder (%s) is not known here: its weights are not counted",
                   v->model_type != NULL ? v->model_type : "without model_type");
        return;
    }
    vision_sizes(c, &node, v);
    v->projector_bias = plim__flag(c, root, "multimodal_projector_bias", true);
    uint32_t merge = plim__u32(c, root, "vision.merge", "spatial_merge_size");
    v->merge = merge != 0 && merge <= 64 ? merge : v->merge;
    v->tokens_per_image =
        plim__u32(c, root, "vision.tokens_per_image",
                  "mm_tokens_per_image image_seq_length vision_soft_tokens_per_image");
}
