/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sizes of each decoder layer. What is said once for all layers is read once for each layer anyway: files
 * may give lists, and the book of origins keeps the first answer only.
 * Source: modelling files of transformers 5.20.0.
 */

#include "serving/config.h"

#include "base/num.h"

struct plim__node plim__config_block(struct plim__config *c, const struct plim__node *node,
                                     uint32_t i, const char *part)
{
    json_t *list = plim__list(c, node, "block_configs");
    json_t *object = json_object_get(json_array_get(list, i), part);
    if (!json_is_object(object)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "block_configs",
                                "block_configs has no %s of layer %u", part, i);
        object = NULL;
    }
    return plim__node_of(c, object, "block_configs.", "");
}

/* ---- attention */

static uint32_t kv_heads_of(struct plim__config *c, const struct plim__node *node, uint32_t i,
                            uint32_t heads)
{
    uint32_t n = c->g->n_layers;
    static const char keys[] = "n_head_kv num_kv_heads num_key_value_heads multi_query_group_num "
                               "num_attention_groups kv_n_heads";
    if (strcmp(c->g->family, "falcon") == 0 &&
        !plim__flag(c, node, "new_decoder_architecture", false)) {
        bool shared = plim__flag(c, node, "multi_query", true);
        plim__origin(c, "kv_heads", "multi_query", PLIM_ORIGIN_RULE, shared ? 1 : heads);
        return shared ? 1 : heads;
    }
    if (strcmp(c->g->family, "gpt_bigcode") == 0) {
        bool shared = plim__flag(c, node, "multi_query", true);
        plim__origin(c, "kv_heads", "multi_query", PLIM_ORIGIN_RULE, shared ? 1 : heads);
        return shared ? 1 : heads;
    }
    if (strcmp(c->g->family, "mpt") == 0) {
        struct plim__node inner =
            plim__node_of(c, plim__child(c, node, "attn_config"), "attn_config.", "");
        uint32_t given = plim__u32(c, &inner, "kv_heads", "kv_n_heads");
        return given != 0 ? given : heads;
    }
    if (plim__family_has(c->family, BLOCKS)) {
        struct plim__node block = plim__config_block(c, node, i, "attention");
        uint32_t group = plim__need(c, &block, "n_heads_in_group", "n_heads_in_group");
        return group != 0 ? heads / group : 0;
    }
    bool own = plim__family_has(c->family, MHA);
    uint32_t kv = own ? 0 : plim__u32_at(c, node, "kv_heads", keys, i, n);
    if (kv == 0) {
        plim__origin(c, "kv_heads", "as many as heads", PLIM_ORIGIN_RULE, heads);
        kv = heads;
    }
    return kv;
}

/* Latent attention: the cache holds one vector a token. */
static void latent_attention(struct plim__config *c, const struct plim__node *node,
                             struct plim_layer *l)
{
    l->mixer = PLIM_MIXER_MLA;
    l->q_lora_rank = plim__has(c, node, "kv_lora_rank") && !plim__has(c, node, "q_lora_rank")
                         ? 0 /* null beside a latent rank: queries are projected directly */
                         : plim__u32(c, node, "q_lora_rank", "q_lora_rank");
    l->kv_lora_rank = plim__need(c, node, "kv_lora_rank", "kv_lora_rank");
    l->qk_nope_dim = plim__need(c, node, "qk_nope_dim", "qk_nope_head_dim");
    l->qk_rope_dim = plim__need(c, node, "qk_rope_dim", "qk_rope_head_dim");
    l->v_head_dim = plim__u32(c, node, "v_head_dim", "v_head_dim");
    if (l->v_head_dim == 0) {
        l->v_head_dim = c->g->hidden / l->heads;
        plim__origin(c, "v_head_dim", "hidden / heads: the file has none", PLIM_ORIGIN_RULE,
                     l->v_head_dim);
    }
    l->head_dim = l->qk_nope_dim + l->qk_rope_dim;
    (void)plim__derived(c, node, "num_attention_heads",
                        (uint64_t)l->heads * (l->head_dim + (uint64_t)l->v_head_dim));
    (void)plim__derived(c, node, "index_n_heads", (uint64_t)l->index_heads * l->index_dim);
    l->kv_heads = l->heads;
    if (plim__family_has(c->family, INDEXER)) {
        l->index_heads = plim__u32(c, node, "index_heads", "index_n_heads");
        l->index_dim = plim__u32(c, node, "index_dim", "index_head_dim");
        l->index_topk = plim__u32(c, node, "index_topk", "index_topk");
    }
}

/* Families whose layers of different kinds have different heads. */
static void special_heads(struct plim__config *c, const struct plim__node *node,
                          struct plim_layer *l)
{
    bool full = l->mixer == PLIM_MIXER_FULL;
    if (strcmp(c->g->family, "gemma4_text") == 0 && full) {
        /* the switch is often left out of files that state the number of heads it switches on */
        bool implied = plim__has(c, node, "num_global_key_value_heads");
        uint32_t dim = plim__u32(c, node, "global_head_dim", "global_head_dim");
        uint32_t kv = plim__u32(c, node, "global_kv_heads", "num_global_key_value_heads");
        bool shared = plim__has(c, node, "attention_k_eq_v")
                          ? plim__flag(c, node, "attention_k_eq_v", false)
                          : implied;
        l->head_dim = l->v_head_dim = dim != 0 ? dim : 512;
        l->kv_heads = kv != 0 && shared ? kv : l->kv_heads;
        l->k_is_v = shared;
    } else if (strcmp(c->g->family, "mimo_v2_flash") == 0) {
        uint32_t v =
            plim__u32(c, node, "v_head_dim", full ? "v_head_dim" : "swa_v_head_dim v_head_dim");
        uint32_t d = full ? 0 : plim__u32(c, node, "swa_head_dim", "swa_head_dim");
        uint32_t kv = full ? 0 : plim__u32(c, node, "swa_kv_heads", "swa_num_key_value_heads");
        uint32_t q = full ? 0 : plim__u32(c, node, "swa_heads", "swa_num_attention_heads");
        l->heads = q != 0 ? q : l->heads;
        l->head_dim = d != 0 ? d : l->head_dim;
        l->v_head_dim = v != 0 ? v : l->head_dim;
        /* the class doubles the KV heads of sliding layers when the file does not say */
        l->kv_heads = kv != 0 ? kv : full ? l->kv_heads : l->kv_heads * 2;
        l->sinks = plim__flag(
            c, node, full ? "add_full_attention_sink_bias" : "add_swa_attention_sink_bias", !full);
    }
}

static void window_of(struct plim__config *c, const struct plim__node *node, struct plim_layer *l)
{
    bool chunk = l->mixer == PLIM_MIXER_CHUNKED;
    uint32_t window = chunk ? plim__tokens(c, node, "window", "attention_chunk_size")
                            : plim__tokens(c, node, "window", "sliding_window sliding_window_size");
    bool off = !chunk && !plim__flag(c, node, "use_sliding_window", true);
    if (window == 0 || off) {
        l->mixer = PLIM_MIXER_FULL;
        window = 0;
    }
    l->window = window;
}

void plim__config_attention(struct plim__config *c, const struct plim__node *node, uint32_t i)
{
    struct plim_geometry *g = c->g;
    struct plim_layer *l = &g->layers[i];
    l->heads = plim__u32_at(c, node, "heads",
                            "num_attention_heads n_head n_heads num_heads decoder_attention_heads",
                            i, g->n_layers);
    if (l->heads == 0) {
        (void)plim__need(c, node, "heads", "num_attention_heads");
        return;
    }
    if (plim__family_has(c->family, MLA)) {
        latent_attention(c, node, l);
        return;
    }
    l->kv_heads = kv_heads_of(c, node, i, l->heads);
    l->head_dim = plim__u32_at(c, node, "head_dim",
                               "attention_head_dim head_dim hidden_size_per_head kv_channels", i,
                               g->n_layers);
    if (l->head_dim == 0) {
        l->head_dim = g->hidden / l->heads;
        plim__origin(c, "head_dim", "hidden / heads: the file has none", PLIM_ORIGIN_RULE,
                     l->head_dim);
    }
    l->v_head_dim = l->head_dim;
    l->sinks = plim__family_has(c->family, SINKS);
    if (l->mixer == PLIM_MIXER_SLIDING || l->mixer == PLIM_MIXER_CHUNKED) {
        window_of(c, node, l);
    }
    special_heads(c, node, l);
    (void)plim__derived(c, node, "num_attention_heads",
                        (uint64_t)l->heads * (l->head_dim + (uint64_t)l->v_head_dim));
    if (c->st == PLIM_OK && (l->head_dim == 0 || l->kv_heads == 0 || l->heads % l->kv_heads != 0)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "num_key_value_heads",
                                "%u heads of %u elements cannot share %u KV heads", l->heads,
                                l->head_dim, l->kv_heads);
        plim__err_hint(c->err, "heads: %s; KV heads: %s", plim__origin_of(c, "heads"),
                       plim__origin_of(c, "kv_heads"));
    }
}

/* Layers at the end that read the cache of the last layer of their kind before them. */
static void share_kv(struct plim__config *c, const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    uint32_t shared = plim__u32(c, node, "kv_shared_layers", "num_kv_shared_layers");
    if (shared == 0) {
        return;
    }
    if (shared >= g->n_layers) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, "num_kv_shared_layers",
                                "%u of %u layers share the cache of earlier ones", shared,
                                g->n_layers);
        return;
    }
    uint32_t first = g->n_layers - shared;
    for (uint32_t i = first; i < g->n_layers; i++) {
        g->layers[i].kv_from = first - 1; /* even where no layer of its kind went before */
        for (uint32_t k = 0; k < first; k++) {
            if (g->layers[k].mixer == g->layers[i].mixer) {
                g->layers[i].kv_from = k;
            }
        }
    }
}

/* ---- recurrent mixers */

static void state_space(struct plim__config *c, const struct plim__node *node, struct plim_layer *l)
{
    uint32_t expand = plim__u32(c, node, "expand", "mamba_expand expand");
    uint32_t inner = plim__u32(c, node, "inner", "mamba_d_ssm");
    uint32_t state = plim__need(c, node, "state", "ssm_state_size mamba_d_state state_size");
    l->conv_kernel = plim__need(c, node, "conv_kernel", "conv_kernel mamba_d_conv");
    l->state_cols = state;
    if (l->recurrent == PLIM_MIXER_MAMBA1) {
        json_t *rank = plim__get(c, node, "mamba_dt_rank time_step_rank", NULL);
        inner =
            inner != 0 ? inner : plim__derived(c, node, "expand", (uint64_t)expand * c->g->hidden);
        l->conv_channels = l->state_heads = inner;
        l->state_rows = 1;
        l->state_rank = json_is_integer(rank)
                            ? plim__u32(c, node, "dt_rank", "mamba_dt_rank time_step_rank")
                            : (c->g->hidden + 15) / 16;
        return;
    }
    /* a file of the plain model calls them num_heads and head_dim, which hybrids use for attention */
    bool plain = strcmp(c->g->family, "mamba2") == 0;
    l->state_heads =
        plim__need(c, node, "state_heads", plain ? "num_heads" : "mamba_num_heads mamba_n_heads");
    const char *dim = plain ? "head_dim" : "mamba_head_dim mamba_d_head";
    bool automatic = !json_is_integer(plim__get(c, node, dim, NULL)); /* absent or "auto" */
    uint32_t all =
        inner != 0 ? inner : plim__derived(c, node, "expand", (uint64_t)expand * c->g->hidden);
    l->state_rows = automatic && !plain && l->state_heads != 0
                        ? all / l->state_heads
                        : plim__need(c, node, "state_rows", dim);
    l->state_norm =
        strcmp(c->g->family, "falcon_h1") != 0 || plim__flag(c, node, "mamba_rms_norm", false);
    l->state_groups = plim__need(c, node, "state_groups", "n_groups mamba_n_groups");
    l->conv_channels = plim__derived(c, node, "mamba_num_heads",
                                     (uint64_t)l->state_heads * l->state_rows +
                                         2 * (uint64_t)l->state_groups * state);
}

static void delta_net(struct plim__config *c, const struct plim__node *node, struct plim_layer *l)
{
    uint32_t key_dim = plim__need(c, node, "state_cols", "linear_key_head_dim");
    l->state_heads = plim__need(c, node, "state_heads", "linear_num_value_heads");
    l->state_rows = plim__need(c, node, "state_rows", "linear_value_head_dim");
    l->state_groups = plim__need(c, node, "state_groups", "linear_num_key_heads");
    l->state_cols = key_dim;
    l->conv_kernel = plim__need(c, node, "conv_kernel", "linear_conv_kernel_dim");
    l->conv_channels = plim__derived(c, node, "linear_num_value_heads",
                                     2 * (uint64_t)l->state_groups * key_dim +
                                         (uint64_t)l->state_heads * l->state_rows);
}

static void kimi_delta(struct plim__config *c, const struct plim__node *node, struct plim_layer *l)
{
    struct plim__node inner =
        plim__node_of(c, plim__child(c, node, "linear_attn_config"), "linear_attn_config.", "");
    const struct plim__node *from = inner.object != NULL ? &inner : node;
    const bool nested = inner.object != NULL;
    l->state_heads = plim__need(c, from, "state_heads", nested ? "num_heads" : "linear_num_heads");
    l->state_rows = plim__need(c, from, "state_rows", nested ? "head_dim" : "linear_head_dim");
    l->conv_kernel = plim__need(c, from, "conv_kernel",
                                nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim");
    l->state_cols = l->state_rank = l->state_rows;
    l->state_groups = l->state_heads;
    l->conv_channels =
        plim__derived(c, from, "num_heads", 3 * (uint64_t)l->state_heads * l->state_rows);
}

void plim__config_recurrent(struct plim__config *c, const struct plim__node *node, uint32_t i)
{
    struct plim_layer *l = &c->g->layers[i];
    switch (l->recurrent) {
    case PLIM_MIXER_MAMBA1:
    case PLIM_MIXER_MAMBA2:
        state_space(c, node, l);
        break;
    case PLIM_MIXER_GATED_DELTA:
        delta_net(c, node, l);
        break;
    case PLIM_MIXER_KDA:
        kimi_delta(c, node, l);
        break;
    case PLIM_MIXER_LINEAR:
        l->state_heads = plim__need(c, node, "state_heads", "num_attention_heads");
        l->state_rows = plim__u32(c, node, "state_rows", "head_dim");
        l->state_rows = l->state_rows != 0 || l->state_heads == 0 ? l->state_rows
                                                                  : c->g->hidden / l->state_heads;
        l->state_cols = l->state_rows;
        (void)plim__derived(c, node, "head_dim", (uint64_t)l->state_heads * l->state_rows);
        break;
    case PLIM_MIXER_SHORT_CONV:
        l->conv_kernel = plim__need(c, node, "conv_kernel", "conv_L_cache");
        l->conv_channels = c->g->hidden;
        break;
    case PLIM_MIXER_NONE:
    case PLIM_MIXER_FULL:
    case PLIM_MIXER_SLIDING:
    case PLIM_MIXER_CHUNKED:
    case PLIM_MIXER_MLA:
    case PLIM_MIXER_COUNT:
        break;
    }
}

/* ---- all layers */

static uint32_t count_layers(struct plim__config *c, const struct plim__node *node)
{
    bool both = plim__family_has(c->family, ENCODER_DECODER);
    const char *keys =
        both ? "decoder_layers" : "num_hidden_layers n_layer n_layers num_layers decoder_layers";
    json_t *list = plim__list(c, node, "layers_block_type");
    const char *pattern = plim__text(c, node, "hybrid_override_pattern");
    bool given = plim__has(c, node, keys);
    uint32_t n =
        !given && list != NULL ? (uint32_t)plim_min_u64(json_array_size(list), PLIM_LAYER_MAX + 1)
        : !given && pattern != NULL ? (uint32_t)plim_min_u64(strlen(pattern), PLIM_LAYER_MAX + 1)
                                    : plim__need(c, node, "n_layers", keys);
    if (c->st == PLIM_OK && (n == 0 || n > PLIM_LAYER_MAX)) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, "num_hidden_layers",
                                "%u layers, which no model has", n);
    }
    return n;
}

void plim__config_layers(struct plim__config *c, const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    uint32_t n = count_layers(c, node);
    struct plim__kind *kinds = plim__config_array(c, n, sizeof *kinds);
    g->layers = plim__config_array(c, n, sizeof *g->layers);
    if (c->st != PLIM_OK) {
        return;
    }
    g->n_layers = n;
    plim__config_mixers(c, node, kinds, n);
    for (uint32_t i = 0; i < n && c->st == PLIM_OK; i++) {
        struct plim_layer *l = &g->layers[i];
        *l = (struct plim_layer){.mixer = kinds[i].mixer,
                                 .recurrent = kinds[i].recurrent,
                                 .kv_from = PLIM_LAYER_OWN_KV,
                                 .rope = PLIM_NO_ROPE};
        if (plim_layer_is_attention(l)) {
            plim__config_attention(c, node, i);
        }
        plim__config_recurrent(c, node, i);
    }
    if (c->st == PLIM_OK) {
        share_kv(c, node);
        plim__config_experts(c, node, kinds);
    }
}
