/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Feed-forward parts: their sizes, and which layers have experts.
 * Sources: modelling files of transformers 5.20.0, the class of each decoder layer.
 */

#include "serving/config.h"

#include "base/num.h"

struct expert_rule {
    uint32_t experts;
    uint32_t first;  /* dense layers before the first with experts */
    uint32_t last;   /* the last that may have them */
    uint32_t every;  /* one in so many layers */
    uint32_t offset; /* i % every == offset; UINT32_MAX: (i + 1) % every == 0 */
    json_t *words;   /* "dense" or "sparse", a layer each; or NULL */
    json_t *flags;   /* 0 or 1, a layer each; or NULL */
    json_t *dense;   /* indices of layers without; or NULL */
    json_t *sparse;  /* indices of layers with; or NULL */
};

static bool names_layer(const json_t *list, uint32_t i)
{
    for (size_t k = 0; k < json_array_size(list); k++) {
        if (json_integer_value(json_array_get(list, k)) == (json_int_t)i) {
            return true;
        }
    }
    return false;
}

static bool has_experts(const struct expert_rule *rule, uint32_t i)
{
    if (rule->experts == 0) {
        return false;
    }
    if (rule->words != NULL && i < json_array_size(rule->words)) {
        const char *word = json_string_value(json_array_get(rule->words, i));
        return word != NULL && strcmp(word, "sparse") == 0;
    }
    if (rule->flags != NULL && i < json_array_size(rule->flags)) {
        json_t *item = json_array_get(rule->flags, i);
        return json_is_true(item) || json_integer_value(item) == 1;
    }
    if (rule->sparse != NULL) {
        return names_layer(rule->sparse, i);
    }
    if (i < rule->first || i > rule->last || (rule->dense != NULL && names_layer(rule->dense, i))) {
        return false;
    }
    return rule->offset == UINT32_MAX ? (i + 1) % rule->every == 0
                                      : i % rule->every == rule->offset;
}

static struct expert_rule read_rule(struct plim__config *c, const struct plim__node *node)
{
    struct expert_rule rule = {.every = 1, .offset = UINT32_MAX, .last = UINT32_MAX};
    /* Gemma 4 has a switch; a file that states experts without it means them */
    bool off =
        plim__has(c, node, "enable_moe_block") && !plim__flag(c, node, "enable_moe_block", true);
    static const char keys[] = "n_routed_experts num_local_experts num_experts moe_num_experts";
    rule.experts = off ? 0 : plim__u32(c, node, "experts", keys);
    rule.words = plim__list(c, node, "mlp_layer_types");
    rule.dense = plim__list(c, node, "mlp_only_layers");
    rule.sparse = plim__list(c, node, "moe_layers");
    rule.first = plim__u32(c, node, "dense_layers",
                           "first_k_dense_replace moe_layer_start_index num_dense_layers");
    json_t *freq = plim__get(c, node, "moe_layer_freq", NULL);
    rule.flags = json_is_array(freq) ? freq : NULL;
    if (json_is_integer(freq)) {
        rule.every = plim__u32(c, node, "expert_every", "moe_layer_freq");
        rule.offset = 0;
    }
    uint32_t step = plim__u32(c, node, "expert_every",
                              "decoder_sparse_step interleave_moe_layer_step moe_layer_interval");
    uint32_t period = plim__u32(c, node, "expert_every", "expert_layer_period");
    if (step > 0) {
        rule.every = step;
    } else if (period > 0) {
        rule.every = period;
        rule.offset = plim__u32(c, node, "expert_offset", "expert_layer_offset");
    }
    rule.every = rule.every == 0 ? 1 : rule.every;
    json_t *end = plim__get(c, node, "moe_layer_end_index", NULL);
    if (json_is_integer(end) && json_integer_value(end) >= 0) {
        rule.last = plim__u32(c, node, "expert_last", "moe_layer_end_index");
    }
    if (plim__family_has(c->family, FIRST_DENSE) && rule.flags == NULL &&
        !plim__has(c, node, "first_k_dense_replace")) {
        rule.first = 1;
    }
    return rule;
}

static uint32_t shared_size(struct plim__config *c, const struct plim__node *node, uint32_t expert)
{
    if (strcmp(c->g->family, "llama4_text") == 0) {
        return expert; /* always one, as large as an expert */
    }
    uint32_t whole =
        plim__u32(c, node, "shared_intermediate",
                  "moe_shared_expert_intermediate_size shared_expert_intermediate_size "
                  "shared_intermediate_size");
    static const char keys[] =
        "n_shared_experts num_shared_experts moe_num_shared_experts num_shared_expert";
    uint32_t count = plim__u32(c, node, "shared_experts", keys);
    if (whole != 0) {
        /* Nemotron-H: no shared expert when their number is 0, whatever the size */
        return strcmp(c->g->family, "nemotron_h") == 0 && plim__has(c, node, keys) && count == 0
                   ? 0
                   : whole;
    }
    if (strcmp(c->g->family, "hunyuan_v1_moe") == 0) {
        return expert; /* its class has exactly one, as large as the dense part */
    }
    return plim__derived(c, node, "n_shared_experts", (uint64_t)count * expert);
}

static void set_experts(struct plim__config *c, const struct plim__node *node, struct plim_layer *l,
                        uint32_t experts, uint32_t i)
{
    uint32_t n = c->g->n_layers;
    l->ffn = PLIM_FFN_MOE;
    l->experts = experts;
    l->experts_per_token = plim__u32_at(c, node, "experts_per_token",
                                        "num_experts_per_tok num_experts_per_token moe_topk moe_k "
                                        "moe_top_k top_k_experts",
                                        i, n);
    l->expert_intermediate = plim__u32_at(c, node, "expert_intermediate",
                                          "moe_intermediate_size expert_ffn_hidden_size", i, n);
    if (l->expert_intermediate == 0) {
        l->expert_intermediate = plim__u32_at(c, node, "intermediate", "intermediate_size", i, n);
    }
    l->shared_intermediate = shared_size(c, node, l->expert_intermediate);
    l->expert_latent = plim__u32(c, node, "expert_latent", "moe_latent_size");
    if (c->st == PLIM_OK && l->expert_intermediate == 0) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "moe_intermediate_size",
                                "%u experts, but no size of one", experts);
    }
    if (c->st == PLIM_OK && l->experts_per_token > experts) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "num_experts_per_tok",
                                "a token uses %u of %u experts", l->experts_per_token, experts);
    }
}

/* LFM2 states a size that its class then shrinks and rounds. */
static uint32_t lfm2_size(struct plim__config *c, const struct plim__node *node, uint32_t stated)
{
    if (!plim__flag(c, node, "block_auto_adjust_ff_dim", true)) {
        return stated;
    }
    double factor = plim__real(c, node, "block_ffn_dim_multiplier", 1);
    uint32_t multiple = plim__u32(c, node, "block_multiple_of", "block_multiple_of");
    uint64_t size = (uint64_t)(2 * (uint64_t)stated / 3);
    size = factor > 0 && factor < 64 ? (uint64_t)(factor * (double)size) : size;
    return (uint32_t)plim_min_u64(plim_round_up(size, multiple > 0 ? multiple : 1), PLIM_DIM_MAX);
}

/* DeciLM: two thirds of a multiple of hidden, rounded up to 256. */
static uint32_t block_size(struct plim__config *c, const struct plim__node *node, uint32_t i)
{
    struct plim__node block = plim__config_block(c, node, i, "ffn");
    uint32_t stated = plim__u32(c, &block, "intermediate", "intermediate_size");
    double factor = plim__real(c, &block, "ffn_mult", 0);
    if (stated != 0 || !(factor > 0 && factor <= 64)) {
        return stated;
    }
    uint64_t size = (uint64_t)(2 * factor * (double)c->g->hidden / 3);
    return plim__derived(c, node, "ffn_mult", plim_round_up(size, 256));
}

/* Most state the feed-forward size; without it, it is four times hidden. */
static uint32_t dense_size(struct plim__config *c, const struct plim__node *node, uint32_t i)
{
    struct plim_geometry *g = c->g;
    const char *keys = "intermediate_size n_inner ffn_dim ffn_hidden_size decoder_ffn_dim";
    if (strcmp(g->family, "llama4_text") == 0) {
        keys = "intermediate_size_mlp intermediate_size";
    } else if (strcmp(g->family, "lfm2") == 0) {
        keys = "block_ff_dim intermediate_size";
    }
    if (plim__family_has(c->family, BLOCKS)) {
        return block_size(c, node, i);
    }
    uint32_t size = plim__u32_at(c, node, "intermediate", keys, i, g->n_layers);
    if (strcmp(g->family, "lfm2") == 0) {
        return lfm2_size(c, node, size);
    }
    if (strcmp(g->family, "gemma3n_text") == 0 && size == 0) {
        size = 16384; /* the class repeats one default in a list */
        plim__origin(c, "intermediate", "default of gemma3n_text (transformers 5.20.0)",
                     PLIM_ORIGIN_DEFAULT, size);
    }
    if (size == 0) {
        double ratio = plim__real(c, node, "expansion_ratio", 4);
        size = ratio >= 1 && ratio <= 64 ? (uint32_t)((double)g->hidden * ratio) : 4 * g->hidden;
        plim__origin(c, "intermediate", "4 * hidden: the file has none", PLIM_ORIGIN_RULE, size);
    }
    bool wide = g->layers[i].kv_from != PLIM_LAYER_OWN_KV &&
                plim__flag(c, node, "use_double_wide_mlp", false);
    return plim__derived(c, node, "intermediate_size", wide ? 2 * (uint64_t)size : size);
}

void plim__config_experts(struct plim__config *c, const struct plim__node *node,
                          const struct plim__kind *kinds)
{
    struct plim_geometry *g = c->g;
    const bool split =
        plim__family_has(c->family, SPLIT_LAYERS) || plim__family_has(c->family, BLOCKS);
    const bool pure = c->family->norms == 1 && c->family->recurrent != PLIM_MIXER_NONE && !split;
    struct expert_rule rule = read_rule(c, node);
    if (plim__family_has(c->family, MOE) && rule.experts == 0) {
        plim__note(c, "%s without experts: layers are counted as dense", g->family);
    }
    for (uint32_t i = 0; i < g->n_layers && c->st == PLIM_OK; i++) {
        struct plim_layer *l = &g->layers[i];
        if (pure || (split && kinds[i].ffn == PLIM_FFN_NONE)) {
            continue; /* Mamba: nothing but the mixer */
        }
        bool moe = split ? kinds[i].ffn == PLIM_FFN_MOE : has_experts(&rule, i);
        /* Jamba counts one expert as none; the class makes a plain part of it */
        moe = moe && !(strcmp(g->family, "jamba") == 0 && rule.experts < 2);
        if (moe) {
            set_experts(c, node, l, rule.experts, i);
        } else {
            l->ffn = PLIM_FFN_DENSE;
        }
        if (!moe || strcmp(g->family, "gemma4_text") == 0) {
            l->intermediate = dense_size(c, node, i);
        }
        if (!moe && strcmp(g->family, "granitemoehybrid") == 0 && rule.experts == 0) {
            l->intermediate = plim__u32(c, node, "intermediate", "shared_intermediate_size");
        }
    }
}
