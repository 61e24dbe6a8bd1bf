/* SPDX-License-Identifier: Apache-2.0 */

/*
 * config.json into a geometry: finds the language model inside the file, the family that its architecture
 * belongs to, the defaults of its class, and then lets each part be read.
 */

#include "serving/config.h"

#include "base/num.h"

#include <ctype.h>

extern const char plim__class_defaults[];
extern const size_t plim__class_defaults_bytes;

#define CONFIG_MAX (UINT64_C(16) << 20) /* bytes; real files have some kilobytes */

void *plim__config_array(struct plim__config *c, size_t n, size_t size)
{
    void *out = NULL;
    if (c->st == PLIM_OK) {
        c->st = plim_arena_array(c->arena, n, size, &out, c->err);
    }
    return c->st == PLIM_OK ? out : NULL;
}

/* ---- the file */

/* Python writes NaN and Infinity where JSON has no word for them; no size ever depends on one: make them null
 * and blanks of the same length, in a copy. */
static void blank_constants(char *text, size_t n)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') {
            quoted = !quoted;
        } else if (quoted && text[i] == '\\') {
            i++;
        }
        for (size_t w = 0; !quoted && w < PLIM_COUNT_OF(words); w++) {
            size_t size = strlen(words[w]);
            if (n - i >= size && memcmp(text + i, words[w], size) == 0) {
                memset(text + i, ' ', size);
                memcpy(text + i, size >= 4 ? "null" : "  0", size >= 4 ? 4 : 3);
            }
        }
    }
}

static bool names_a_model(const json_t *object)
{
    return json_object_get(object, "architectures") != NULL ||
           json_object_get(object, "model_type") != NULL;
}

/* A model card around the configuration, as hubs answer: {"name": ..., "config": {...}}. */
static void unwrap(struct plim__config *c)
{
    json_t *inner = json_object_get(c->root, "config");
    if (!names_a_model(c->root) && names_a_model(inner)) {
        json_incref(inner);
        json_decref(c->root);
        c->root = inner;
    }
}

static enum plim_status parse(struct plim__config *c, struct plim_str text)
{
    if (text.n > CONFIG_MAX) {
        return plim__fail(c->err, PLIM_E_BUDGET, "a configuration of %zu bytes is too large",
                          text.n);
    }
    struct plim_str copy;
    PLIM_TRY(plim_arena_str(c->arena, text, &copy, c->err));
    blank_constants((char *)(uintptr_t)copy.p, copy.n);
    json_error_t at;
    c->root = json_loadb(copy.p, copy.n, JSON_REJECT_DUPLICATES, &at);
    if (c->root == NULL) {
        enum plim_status st =
            json_error_code(&at) == json_error_out_of_memory ? PLIM_E_NOMEM : PLIM_E_DATA;
        (void)plim__fail(c->err, st, "not a JSON object: %s", at.text);
        plim__err_where(c->err, "%s: line", c->name);
        plim__err_at(c->err, at.line > 0 ? (uint64_t)at.line : 1);
        return st;
    }
    if (!json_is_object(c->root)) {
        return plim__fail(c->err, PLIM_E_DATA,
                          "a configuration is a JSON object, this is something else");
    }
    unwrap(c);
    c->classes = json_loadb(plim__class_defaults, plim__class_defaults_bytes, 0, &at);
    return c->classes != NULL
               ? PLIM_OK
               : plim__fail(c->err, PLIM_E_NOMEM, "no memory for the class defaults");
}

/* The object that describes the language model: nested in wrappers, else the file itself. */
static struct plim__node language_node(struct plim__config *c, const struct plim__node *root)
{
    static const struct {
        const char *key;
        const char *path;
    } nests[] = {{"text_config", "text_config."},
                 {"llm_config", "llm_config."},
                 {"language_config", "language_config."},
                 {"language_model_config", "language_model_config."}};
    json_t *thinker = plim__child(c, root, "thinker_config");
    json_t *inner = thinker != NULL ? json_object_get(thinker, "text_config") : NULL;
    if (json_is_object(inner)) {
        return (struct plim__node){inner, NULL, "thinker_config.text_config.", ""};
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(nests); i++) {
        inner = plim__child(c, root, nests[i].key);
        if (inner != NULL && json_object_size(inner) > 0) {
            return (struct plim__node){inner, NULL, nests[i].path, ""};
        }
    }
    return *root;
}

/* ---- which family */

static const char *first_class(struct plim__config *c, const struct plim__node *node)
{
    json_t *list = json_object_get(node->object, "architectures");
    json_t *first = json_is_array(list) ? json_array_get(list, 0) : list;
    if (first == NULL || json_is_null(first)) {
        return NULL;
    }
    if (!json_is_string(first)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "architectures",
                                "architectures is not a list of class names");
        return NULL;
    }
    return json_string_value(first);
}

static const struct plim__family *by_name(const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    const struct plim__family *family = plim__family_of_class(name);
    return family != NULL ? family : plim__family_of_type(name);
}

static void refuse(struct plim__config *c, const struct plim__node *node, const char *architecture,
                   const char *model_type)
{
    const char *name = architecture != NULL ? architecture : model_type;
    (void)plim__config_fail(c, name == NULL ? PLIM_E_DATA : PLIM_E_UNSUPPORTED, node,
                            "architectures",
                            name == NULL ? "neither architectures nor model_type is there"
                                         : "unknown architecture %s (model_type %s)",
                            name == NULL ? "" : name, model_type != NULL ? model_type : "absent");
    const char *like =
        name == NULL ? "llama" : plim__family_nearest(model_type != NULL ? model_type : name);
    plim__err_hint(c->err,
                   "say which known architecture it is built like, for example --assume %.*s",
                   (int)strcspn(like, " "), like);
}

/* Find the family; what the class says goes before model_type, and inner names before outer ones. */
static void choose_family(struct plim__config *c, const struct plim__node *root,
                          const struct plim__node *node, const char *assume)
{
    const char *outer = first_class(c, root);
    const char *inner = node->object != root->object ? first_class(c, node) : NULL;
    const char *type = plim__text(c, node, "model_type");
    const char *outer_type = plim__text(c, root, "model_type");
    if (c->st != PLIM_OK) {
        return;
    }
    const char *shown = outer != NULL ? outer : inner;
    struct plim_str copy = {"", 0};
    if (shown != NULL) {
        c->st = plim_arena_str(c->arena, plim_str_from(shown), &copy, c->err);
    }
    c->g->architecture = copy.p;
    c->g->model_type = type != NULL ? type : outer_type != NULL ? outer_type : "";
    if (assume != NULL) {
        c->family = by_name(assume);
        c->g->assumed = true;
        if (c->family == NULL) {
            (void)plim__config_fail(c, PLIM_E_USAGE, root, "architectures",
                                    "%s is no known architecture either", assume);
        }
        return;
    }
    const bool nested = node->object != root->object;
    const struct plim__family *tried[] = {by_name(inner), nested ? by_name(type) : NULL,
                                          by_name(outer), by_name(type), by_name(outer_type)};
    for (size_t i = 0; i < PLIM_COUNT_OF(tried) && c->family == NULL; i++) {
        c->family = tried[i];
    }
    if (c->family == NULL) {
        refuse(c, root, shown, type != NULL ? type : outer_type);
        return;
    }
    const struct plim__family *typed = by_name(type);
    if (typed != NULL && typed != c->family) {
        plim__note(c, "architectures says %s, model_type says %s: counted as the former",
                   shown != NULL ? shown : "nothing", type);
    }
}

/* Defaults: of the "_text" form of the model_type, of itself, or of the family when the file names no type. */
static void attach_defaults(struct plim__config *c, struct plim__node *node)
{
    char type[80];
    const char *named = c->g->assumed ? c->family->types : c->g->model_type;
    if (named[0] == '\0' || plim__text(c, node, "model_type") == NULL) {
        named = c->family->types;
    }
    int n = (int)strcspn(named, " ");
    for (int form = 0; form < 2 && node->defaults == NULL; form++) {
        snprintf(type, sizeof type, "%.*s%s", n, named, form == 0 ? "_text" : "");
        struct plim_str copy;
        c->st =
            c->st != PLIM_OK ? c->st : plim_arena_str(c->arena, plim_str_from(type), &copy, c->err);
        if (c->st != PLIM_OK) {
            return;
        }
        *node = plim__node_of(c, node->object, node->path, copy.p);
    }
}

/* ---- sizes of the whole model */

static enum plim_dtype dtype_of_text(const char *text)
{
    static const struct {
        const char *text;
        enum plim_dtype dtype;
    } rows[] = {{"bfloat16", PLIM_DTYPE_BF16}, {"bf16", PLIM_DTYPE_BF16},
                {"float16", PLIM_DTYPE_F16},   {"half", PLIM_DTYPE_F16},
                {"fp16", PLIM_DTYPE_F16},      {"float32", PLIM_DTYPE_F32},
                {"float", PLIM_DTYPE_F32},     {"fp32", PLIM_DTYPE_F32},
                {"float64", PLIM_DTYPE_F64},   {"int8", PLIM_DTYPE_I8},
                {"uint8", PLIM_DTYPE_U8},      {"float8_e4m3fn", PLIM_DTYPE_F8_E4M3}};
    const char *dot = strrchr(text, '.');
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (strcmp(dot != NULL ? dot + 1 : text, rows[i].text) == 0) {
            return rows[i].dtype;
        }
    }
    return PLIM_DTYPE_UNKNOWN;
}

static void read_dtype(struct plim__config *c, const struct plim__node *root,
                       const struct plim__node *node)
{
    const char *inner = plim__text(c, node, "dtype torch_dtype");
    const char *text = inner != NULL ? inner : plim__text(c, root, "dtype torch_dtype");
    c->g->dtype = text == NULL || strcmp(text, "auto") == 0 ? PLIM_DTYPE_BF16 : dtype_of_text(text);
    if (c->g->dtype == PLIM_DTYPE_UNKNOWN) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "dtype", "unknown element type %s", text);
        return;
    }
    plim__origin(c, "dtype",
                 text != NULL ? "dtype" : "bfloat16, as published models of today have it",
                 text != NULL ? PLIM_ORIGIN_FILE : PLIM_ORIGIN_DEFAULT, c->g->dtype);
    const char *state = plim__text(c, node, "mamba_ssm_cache_dtype mamba_ssm_dtype");
    c->g->state_dtype =
        state != NULL && strcmp(state, "auto") != 0 ? dtype_of_text(state) : c->g->dtype;
    if (c->g->state_dtype == PLIM_DTYPE_UNKNOWN) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "mamba_ssm_dtype", "unknown element type %s",
                                state);
    }
}

/* A wrapper's own word goes before its language model's, as in transformers; then the classes'. */
static void read_tied(struct plim__config *c, const struct plim__node *root,
                      const struct plim__node *node)
{
    static const char keys[] = "tie_word_embeddings tie_embedding";
    bool nested = root->object != node->object;
    bool in_root = plim__has(c, root, keys);
    bool in_node = nested && plim__has(c, node, keys);
    bool inner = plim__flag(c, node, keys, false);
    bool tied = in_root || (nested && !in_node) ? plim__flag(c, root, keys, inner) : inner;
    if (in_node && in_root && inner != tied) {
        plim__note(c, "tie_word_embeddings differs between the file and %s; the former is taken",
                   node->path);
    }
    c->g->tied = tied;
    plim__origin(c, "tied", in_node || in_root ? "tie_word_embeddings" : "default of the class",
                 in_node || in_root ? PLIM_ORIGIN_FILE : PLIM_ORIGIN_DEFAULT, tied);
}

static void read_whole(struct plim__config *c, const struct plim__node *root,
                       const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    const struct plim__family *family = c->family;
    g->hidden = plim__need(c, node, "hidden", "hidden_size n_embd n_embed d_model model_dim");
    g->vocab = plim__need(c, node, "vocab", "padded_vocab_size vocab_size");
    g->max_position =
        plim__tokens(c, node, "max_position",
                     "max_position_embeddings n_positions max_sequence_length seq_length "
                     "max_seq_len model_max_length max_target_positions");
    read_dtype(c, root, node);
    read_tied(c, root, node);
    g->gated = !plim__family_has(family, PLAIN_MLP);
    g->qkv_bias = plim__switch(c, node, family->qkv_bias);
    g->o_bias = plim__switch(c, node, family->o_bias);
    g->mlp_bias = plim__switch(c, node, family->mlp_bias);
    g->qk_norm = plim__switch(c, node, family->qk_norm);
    g->head_bias =
        plim__family_has(family, HEAD_BIAS) || plim__flag(c, node, "lm_head_bias", false);
    g->norms = family->norms;
    g->conv_bias = plim__flag(c, node, "use_conv_bias mamba_conv_bias conv_bias", false);
    g->recurrent_bias = plim__flag(c, node, "mamba_proj_bias conv_bias use_bias", false);
    if (plim__family_has(family, LAYER_INPUTS)) {
        g->layer_inputs = plim__u32(c, node, "layer_inputs", "hidden_size_per_layer_input");
        g->layer_inputs_vocab =
            plim__u32(c, node, "layer_inputs_vocab", "vocab_size_per_layer_input");
    }
    if (plim__family_has(family, ALTUP)) {
        g->streams = plim__u32(c, node, "streams", "altup_num_inputs");
        g->laurel_rank = plim__u32(c, node, "laurel_rank", "laurel_rank");
    }
    uint32_t projected = plim__u32(c, node, "embedding_dim", "word_embed_proj_dim");
    g->embedding_dim = projected != g->hidden ? projected : 0;
}

/* What differs by family and fits in no row of the table. */
static void adjust_family(struct plim__config *c, const struct plim__node *node)
{
    struct plim_geometry *g = c->g;
    const char *family = g->family;
    if (strcmp(family, "opt") == 0) {
        g->learned_positions = g->max_position > 0 ? g->max_position + 2 : 0;
    } else if (strcmp(family, "gpt2") == 0 || strcmp(family, "gpt_bigcode") == 0 ||
               strcmp(family, "whisper") == 0) {
        g->learned_positions = g->max_position;
    } else if (strcmp(family, "stablelm") == 0 &&
               plim__flag(c, node, "use_parallel_residual", false)) {
        g->norms = 1;
    } else if (strcmp(family, "falcon") == 0) {
        bool two = plim__flag(c, node, "new_decoder_architecture", false) &&
                   plim__u32(c, node, "norms", "num_ln_in_parallel_attn") != 1;
        g->norms = two || !plim__flag(c, node, "parallel_attn", true) ? 2 : 1;
    }
}

static enum plim_status finish(struct plim__config *c)
{
    struct plim_geometry *g = c->g;
    if (c->st == PLIM_OK && g->assumed) {
        plim__note(c, "%s is counted by the rule of %s, because it was told so", g->architecture,
                   g->family);
        plim__origin(c, "family", g->family, PLIM_ORIGIN_ASSUMED, 0);
    }
    g->origins = plim__config_array(c, c->origins.n + 1, sizeof *g->origins);
    g->notes = plim__config_array(c, c->notes.n + 1, sizeof *g->notes);
    if (c->st == PLIM_OK && c->origins.n > 0) {
        memcpy(g->origins, c->origins.items, c->origins.n * sizeof *g->origins);
    }
    if (c->st == PLIM_OK && c->notes.n > 0) {
        memcpy(g->notes, c->notes.items, c->notes.n * sizeof *g->notes);
    }
    g->n_origins = (uint32_t)c->origins.n;
    g->n_notes = (uint32_t)c->notes.n;
    plim_vec_fini(&c->origins);
    plim_vec_fini(&c->notes);
    json_decref(c->root);
    json_decref(c->classes);
    return c->st;
}

static void read_all(struct plim__config *c, const struct plim_geometry_options *opts)
{
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    struct plim__node root = plim__node_of(c, c->root, "", type != NULL ? type : "");
    struct plim__node node = language_node(c, &root);
    if (c->st == PLIM_OK) {
        choose_family(c, &root, &node, opts->assume);
    }
    if (c->st == PLIM_OK) {
        attach_defaults(c, &node);
    }
    if (c->st != PLIM_OK) {
        return;
    }
    struct plim_str family;
    struct plim_str types = {c->family->types, strcspn(c->family->types, " ")};
    c->st = plim_arena_str(c->arena, types, &family, c->err);
    c->g->family = c->st == PLIM_OK ? family.p : "";
    read_whole(c, &root, &node);
    if (c->st == PLIM_OK) {
        adjust_family(c, &node);
        plim__config_layers(c, &node);
    }
    if (c->st == PLIM_OK) {
        plim__config_ropes(c, &node);
        plim__config_encoder(c, &node);
        plim__config_quant(c, &root, &node, opts->quant);
        plim__config_vision(c, &root);
    }
}

enum plim_status plim_geometry_from_config(struct plim_arena *arena, struct plim_str text,
                                           const char *name,
                                           const struct plim_geometry_options *opts,
                                           struct plim_geometry *out, struct plim_err *err)
{
    const struct plim_geometry_options none = {0};
    struct plim_geometry g = {.architecture = "", .model_type = "", .family = ""};
    struct plim__config c = {.arena = arena, .g = &g, .name = name, .err = err};
    c.st = parse(&c, text);
    if (c.st == PLIM_OK) {
        read_all(&c, opts != NULL ? opts : &none);
    }
    enum plim_status st = finish(&c);
    if (st == PLIM_OK) {
        *out = g;
    }
    return st;
}
