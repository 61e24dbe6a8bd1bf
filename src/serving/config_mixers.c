/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which mixer each layer has. Files say it in a dozen spellings; they are tried from the explicit to the
 * implied: a list of names, a pattern string, index lists, intervals, the family's own pattern, and last one
 * kind for all layers. Sources: configuration files of transformers 5.20.0 (__post_init__ of each class),
 * vllm 0.33.0 transformers_utils/model_arch_config_convertor.py.
 */

#include "serving/config.h"

#include "base/num.h"

struct spelling {
    const char *word;
    enum plim_mixer mixer;
    bool recurrent; /* the family's recurrent mixer, alone or (with FULL) beside attention */
    enum plim_ffn ffn;
};

static const struct spelling spellings[] = {
    {"full_attention", PLIM_MIXER_FULL, false, PLIM_FFN_NONE},
    {"attention", PLIM_MIXER_FULL, false, PLIM_FFN_NONE},
    {"global_attention", PLIM_MIXER_FULL, false, PLIM_FFN_NONE},
    {"deepseek_sparse_attention", PLIM_MIXER_FULL, false, PLIM_FFN_NONE},
    {"indexed_attention", PLIM_MIXER_FULL, false, PLIM_FFN_NONE},
    {"sliding_attention", PLIM_MIXER_SLIDING, false, PLIM_FFN_NONE},
    {"sliding_window", PLIM_MIXER_SLIDING, false, PLIM_FFN_NONE},
    {"local_attention", PLIM_MIXER_SLIDING, false, PLIM_FFN_NONE},
    {"chunked_attention", PLIM_MIXER_CHUNKED, false, PLIM_FFN_NONE},
    {"linear_attention", PLIM_MIXER_NONE, true, PLIM_FFN_NONE},
    {"mamba", PLIM_MIXER_NONE, true, PLIM_FFN_NONE},
    {"mamba2", PLIM_MIXER_NONE, true, PLIM_FFN_NONE},
    {"conv", PLIM_MIXER_NONE, true, PLIM_FFN_NONE},
    {"hybrid", PLIM_MIXER_FULL, true, PLIM_FFN_NONE},
    {"mlp", PLIM_MIXER_NONE, false, PLIM_FFN_DENSE},
    {"moe", PLIM_MIXER_NONE, false, PLIM_FFN_MOE},
};

/* ---- one layer */

static void set_recurrent(struct plim__config *c, const struct plim__node *node,
                          struct plim__kind *kind)
{
    enum plim_mixer mixer = (enum plim_mixer)c->family->recurrent;
    if (mixer == PLIM_MIXER_NONE) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "layer_types",
                                "a recurrent layer, but %s has none", c->g->family);
    }
    kind->recurrent = mixer;
    if (kind->mixer == PLIM_MIXER_NONE) {
        kind->mixer = mixer;
    }
}

static void set_full_or_recurrent(struct plim__config *c, const struct plim__node *node,
                                  struct plim__kind *kind, bool full)
{
    kind->mixer = full ? PLIM_MIXER_FULL : PLIM_MIXER_NONE;
    if (!full) {
        set_recurrent(c, node, kind);
    }
}

/* ---- explicit lists */

static bool from_names(struct plim__config *c, const struct plim__node *node,
                       struct plim__kind *kinds, uint32_t n)
{
    const char *key = "layer_types";
    json_t *list = plim__get(c, node, "layer_types layers_block_type", &key);
    if (!json_is_array(list)) {
        return false;
    }
    if (json_array_size(list) < n) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, key, "%s names %zu layers, there are %u", key,
                                json_array_size(list), n);
        return true;
    }
    if (json_array_size(list) > n) {
        plim__note(c, "%s names %zu layers, there are %u; the first %u are taken", key,
                   json_array_size(list), n, n);
    }
    for (uint32_t i = 0; i < n && c->st == PLIM_OK; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        const struct spelling *found = NULL;
        for (size_t s = 0; word != NULL && s < PLIM_COUNT_OF(spellings); s++) {
            found = strcmp(word, spellings[s].word) == 0 ? &spellings[s] : found;
        }
        if (found == NULL) {
            (void)plim__config_fail(c, PLIM_E_UNSUPPORTED, node, key,
                                    "layer %u is of an unknown kind, %s", i,
                                    word != NULL ? word : "no text");
            return true;
        }
        kinds[i].mixer = found->mixer;
        kinds[i].ffn = found->ffn;
        if (found->recurrent) {
            set_recurrent(c, node, &kinds[i]);
        }
    }
    return true;
}

/* Nemotron-H: M recurrent, * attention, - feed-forward, E experts. */
static bool from_pattern(struct plim__config *c, const struct plim__node *node,
                         struct plim__kind *kinds, uint32_t n)
{
    const char *pattern = plim__text(c, node, "hybrid_override_pattern");
    if (pattern == NULL) {
        return false;
    }
    if (strlen(pattern) != n) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "hybrid_override_pattern",
                                "hybrid_override_pattern has %zu letters for %u layers",
                                strlen(pattern), n);
        return true;
    }
    for (uint32_t i = 0; i < n && c->st == PLIM_OK; i++) {
        switch (pattern[i]) {
        case '*':
            kinds[i].mixer = PLIM_MIXER_FULL;
            break;
        case 'M':
            set_recurrent(c, node, &kinds[i]);
            break;
        case '-':
            kinds[i].ffn = PLIM_FFN_DENSE;
            break;
        case 'E':
            kinds[i].ffn = PLIM_FFN_MOE;
            break;
        default:
            (void)plim__config_fail(c, PLIM_E_UNSUPPORTED, node, "hybrid_override_pattern",
                                    "unknown letter '%c' in hybrid_override_pattern", pattern[i]);
        }
    }
    return true;
}

/* DeciLM: each layer has a block with an attention and a feed-forward part, either of which may be absent. */
static bool from_blocks(struct plim__config *c, const struct plim__node *node,
                        struct plim__kind *kinds, uint32_t n)
{
    if (!plim__family_has(c->family, BLOCKS)) {
        return false;
    }
    for (uint32_t i = 0; i < n && c->st == PLIM_OK; i++) {
        struct plim__node attention = plim__config_block(c, node, i, "attention");
        struct plim__node ffn = plim__config_block(c, node, i, "ffn");
        if (plim__flag(c, &attention, "replace_with_linear", false) ||
            plim__flag(c, &ffn, "replace_with_linear", false)) {
            (void)plim__config_fail(c, PLIM_E_UNSUPPORTED, node, "block_configs",
                                    "layer %u replaces a part by a linear layer", i);
        }
        kinds[i].mixer =
            plim__flag(c, &attention, "no_op", false) ? PLIM_MIXER_NONE : PLIM_MIXER_FULL;
        kinds[i].ffn = plim__flag(c, &ffn, "no_op", false) ? PLIM_FFN_NONE : PLIM_FFN_DENSE;
    }
    return true;
}

/* Lists of 0 and 1, one a layer: `one` is the kind that 1 stands for. */
static bool from_switches(struct plim__config *c, const struct plim__node *node, const char *key,
                          enum plim_mixer one, enum plim_mixer zero, struct plim__kind *kinds,
                          uint32_t n)
{
    json_t *list = plim__list(c, node, key);
    if (list == NULL || json_array_size(list) == 0) {
        return false;
    }
    if (json_array_size(list) < n) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, key, "%s names %zu layers, there are %u", key,
                                json_array_size(list), n);
        return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        json_t *item = json_array_get(list, i);
        bool on = json_is_true(item) || json_integer_value(item) == 1;
        enum plim_mixer mixer = on ? one : zero;
        if (mixer == PLIM_MIXER_NONE) {
            set_recurrent(c, node, &kinds[i]);
        } else {
            kinds[i].mixer = mixer;
        }
    }
    return true;
}

/* Indices of the layers with full attention; `base` is the number of the first layer. */
static bool from_indices(struct plim__config *c, const struct plim__node *node, const char *key,
                         uint32_t base, struct plim__kind *kinds, uint32_t n)
{
    json_t *list = plim__list(c, node, key);
    if (list == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        set_full_or_recurrent(c, node, &kinds[i], false);
    }
    for (size_t k = 0; k < json_array_size(list); k++) {
        json_int_t at = json_integer_value(json_array_get(list, k)) - (json_int_t)base;
        if (!json_is_integer(json_array_get(list, k)) || at < 0 || at >= (json_int_t)n) {
            (void)plim__config_fail(c, PLIM_E_RANGE, node, key,
                                    "%s names a layer that does not exist", key);
            return true;
        }
        kinds[at] = (struct plim__kind){.mixer = PLIM_MIXER_FULL};
    }
    return true;
}

/* ---- rules */

static void hybrid_rule(struct plim__config *c, const struct plim__node *node,
                        struct plim__kind *kinds, uint32_t n)
{
    const char *family = c->g->family;
    uint32_t period = plim__u32(c, node, "attn_layer_period", "attn_layer_period");
    uint32_t offset = plim__u32(c, node, "attn_layer_offset", "attn_layer_offset");
    uint32_t every = plim__u32(c, node, "full_attention_interval", "full_attention_interval");
    every = every != 0 ? every : c->family->pattern;
    for (uint32_t i = 0; i < n; i++) {
        bool full = false;
        if (strcmp(family, "jamba") == 0) {
            full = period > 0 && i % period == offset;
        } else if (strcmp(family, "kimi_linear") == 0) {
            full = i > 0 && i % 4 == 0;
        } else if (strcmp(family, "minimax") == 0) {
            full = i % 2 == 0;
        } else if (strcmp(family, "lfm2") == 0) {
            full = true;
        } else {
            full = every > 0 && (i + 1) % every == 0;
        }
        set_full_or_recurrent(c, node, &kinds[i], full);
        if (strcmp(family, "falcon_h1") == 0) {
            kinds[i].mixer = PLIM_MIXER_FULL; /* beside the state space mixer */
        }
    }
    plim__origin(c, "layers", "rule of the family: the file lists no kinds", PLIM_ORIGIN_RULE, n);
}

/* Every p-th layer is full. A text such as "LLLG" repeats. */
static bool window_pattern(struct plim__config *c, const struct plim__node *node,
                           struct plim__kind *kinds, uint32_t n)
{
    json_t *given = plim__get(c, node, "sliding_window_pattern _sliding_window_pattern", NULL);
    const char *letters = json_string_value(given);
    uint32_t every = c->family->pattern;
    if (json_is_integer(given)) {
        every = plim__u32(c, node, "sliding_window_pattern",
                          "sliding_window_pattern _sliding_window_pattern");
    }
    if (every == 0 && letters == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool full = letters != NULL && letters[0] != '\0' ? letters[i % strlen(letters)] == 'G'
                                                          : every == 0 || (i + 1) % every == 0;
        kinds[i].mixer = full ? PLIM_MIXER_FULL : PLIM_MIXER_SLIDING;
    }
    return true;
}

/* One window for all layers, or (Qwen) for those from max_window_layers on. */
static void window_rule(struct plim__config *c, const struct plim__node *node,
                        struct plim__kind *kinds, uint32_t n)
{
    bool known = plim__family_has(c->family, WINDOW_ALWAYS) || plim__has(c, node, "sliding_window");
    bool on = known && plim__tokens(c, node, "window", "sliding_window") > 0 &&
              plim__flag(c, node, "use_sliding_window", true);
    bool partial = plim__has(c, node, "use_sliding_window");
    uint32_t first = partial ? plim__u32(c, node, "max_window_layers", "max_window_layers") : 0;
    for (uint32_t i = 0; i < n; i++) {
        kinds[i].mixer = on && i >= first ? PLIM_MIXER_SLIDING : PLIM_MIXER_FULL;
    }
}

static void by_rule(struct plim__config *c, const struct plim__node *node, struct plim__kind *kinds,
                    uint32_t n)
{
    json_t *linear = plim__child(c, node, "linear_attn_config");
    struct plim__node inner = plim__node_of(c, linear, "linear_attn_config.", "");
    bool done =
        from_switches(c, node, "attn_type_list", PLIM_MIXER_FULL, PLIM_MIXER_NONE, kinds, n) ||
        from_switches(c, node, "hybrid_layer_pattern", PLIM_MIXER_SLIDING, PLIM_MIXER_FULL, kinds,
                      n) ||
        from_indices(c, node, "attn_layer_indices", 0, kinds, n) ||
        from_indices(c, node, "full_attn_idxs", 0, kinds, n) ||
        from_indices(c, &inner, "full_attn_layers", 1, kinds, n);
    if (done || c->st != PLIM_OK) {
        return;
    }
    if (c->family->recurrent != PLIM_MIXER_NONE) {
        hybrid_rule(c, node, kinds, n);
    } else if (strcmp(c->g->family, "llama4_text") == 0) {
        if (!from_switches(c, node, "no_rope_layers", PLIM_MIXER_CHUNKED, PLIM_MIXER_FULL, kinds,
                           n)) {
            uint32_t every = plim__u32(c, node, "no_rope_layer_interval", "no_rope_layer_interval");
            for (uint32_t i = 0; i < n; i++) {
                kinds[i].mixer =
                    every == 0 || (i + 1) % every == 0 ? PLIM_MIXER_FULL : PLIM_MIXER_CHUNKED;
            }
        }
    } else if (strcmp(c->g->family, "mimo_v2_flash") == 0) {
        for (uint32_t i = 0; i < n; i++) {
            kinds[i].mixer = i == 0 || (i + 1) % 6 == 0 ? PLIM_MIXER_FULL : PLIM_MIXER_SLIDING;
        }
    } else if (!window_pattern(c, node, kinds, n)) {
        window_rule(c, node, kinds, n);
    }
}

void plim__config_mixers(struct plim__config *c, const struct plim__node *node,
                         struct plim__kind *kinds, uint32_t n)
{
    if (!from_blocks(c, node, kinds, n) && !from_names(c, node, kinds, n) &&
        !from_pattern(c, node, kinds, n)) {
        by_rule(c, node, kinds, n);
    }
    if (c->st == PLIM_OK && plim__family_has(c->family, LAST_FULL) &&
        kinds[n - 1].mixer == PLIM_MIXER_SLIDING) {
        kinds[n - 1].mixer = PLIM_MIXER_FULL;
        plim__note(c, "the last layer of %s is always full attention", c->g->family);
    }
}
