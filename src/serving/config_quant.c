/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How a checkpoint is quantized: `quantization_config` of config.json (or `compression_config`, or a file of
 * its own), in the dialect of whoever made it. A method that this library does not know is kept by name: its
 * weights then cannot be computed, only read from headers.
 * Sources: vllm 0.33.0 model_executor/layers/quantization/ (from_config of each class), compressed-tensors
 * 0.17.0 quant_scheme.py, transformers 5.20.0 utils/quantization_config.py.
 */

#include "serving/config.h"

#include "base/num.h"

#define SCHEMES_MAX 64

/* Texts of a list, arena-owned. */
static const char **texts(struct plim__config *c, const struct plim__node *node, const char *keys,
                          uint32_t *n)
{
    json_t *list = plim__list(c, node, keys);
    size_t count = json_array_size(list);
    const char **out = plim__config_array(c, count + 1, sizeof *out);
    *n = 0;
    for (size_t i = 0; i < count && c->st == PLIM_OK; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        struct plim_str copy;
        if (text == NULL) {
            (void)plim__config_fail(c, PLIM_E_DATA, node, keys, "a module name is not a text");
            break;
        }
        c->st = plim_arena_str(c->arena, plim_str_from(text), &copy, c->err);
        if (c->st == PLIM_OK) {
            out[(*n)++] = copy.p;
        }
    }
    return out;
}

/* group_size: absent or -1 means one scale for each output row. */
static uint32_t group_size(struct plim__config *c, const struct plim__node *node, uint32_t absent)
{
    json_t *value = plim__get(c, node, "group_size q_group_size", NULL);
    if (value == NULL) {
        return absent;
    }
    if (json_is_integer(value) && json_integer_value(value) == -1) {
        return 0;
    }
    return plim__u32(c, node, "group_size", "group_size q_group_size");
}

static void weight_blocks(struct plim__config *c, const struct plim__node *node, const char *key,
                          struct plim_quant_scheme *s)
{
    json_t *blocks = plim__list(c, node, key);
    if (blocks == NULL) {
        return;
    }
    json_int_t rows = json_integer_value(json_array_get(blocks, 0));
    json_int_t cols = json_integer_value(json_array_get(blocks, 1));
    if (json_array_size(blocks) != 2 || rows < 1 || cols < 1 || rows > 65536 || cols > 65536) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, key, "%s is no pair of block sizes", key);
        return;
    }
    s->block_rows = (uint32_t)rows;
    s->group = (uint32_t)cols;
}

static struct plim_quant_scheme *one_scheme(struct plim__config *c, enum plim_quant_kind kind,
                                            uint32_t bits)
{
    struct plim_quant *q = &c->g->quant;
    q->schemes = plim__config_array(c, 1, sizeof *q->schemes);
    if (q->schemes == NULL) {
        return NULL;
    }
    q->n_schemes = 1;
    q->schemes[0] = (struct plim_quant_scheme){.kind = kind, .bits = bits, .group = UINT32_MAX};
    return &q->schemes[0];
}

/* ---- one method each */

static void read_fp8(struct plim__config *c, const struct plim__node *node)
{
    struct plim_quant_scheme *s = one_scheme(c, PLIM_QUANT_FP8, 8);
    if (s != NULL) {
        const char *scheme = plim__text(c, node, "activation_scheme");
        s->act_static = scheme != NULL && strcmp(scheme, "static") == 0;
        weight_blocks(c, node, "weight_block_size", s);
    }
}

static void read_rows_fp8(struct plim__config *c, const struct plim__node *node)
{
    (void)node;
    struct plim_quant_scheme *s = one_scheme(c, PLIM_QUANT_FP8, 8);
    if (s != NULL) {
        s->group = 0;
    }
}

static void read_gptq(struct plim__config *c, const struct plim__node *node)
{
    struct plim_quant_scheme *s =
        one_scheme(c, PLIM_QUANT_GPTQ, plim__need(c, node, "bits", "bits"));
    if (s != NULL) {
        s->group = group_size(c, node, 128);
        s->act_order = plim__flag(c, node, "desc_act", false);
        s->zero_point = true; /* stored with symmetric quantization too */
        if (c->st == PLIM_OK && s->bits != 2 && s->bits != 3 && s->bits != 4 && s->bits != 8) {
            (void)plim__config_fail(c, PLIM_E_DATA, node, "bits", "GPTQ with %u bits", s->bits);
        }
    }
}

static void read_awq(struct plim__config *c, const struct plim__node *node)
{
    uint32_t bits = plim__u32(c, node, "bits", "bits w_bit");
    struct plim_quant_scheme *s = one_scheme(c, PLIM_QUANT_AWQ, bits != 0 ? bits : 4);
    if (s != NULL) {
        s->group = group_size(c, node, 128);
        s->zero_point = plim__flag(c, node, "zero_point", true);
    }
}

static void read_auto_round(struct plim__config *c, const struct plim__node *node)
{
    const char *packing = plim__text(c, node, "packing_format");
    if (packing != NULL && strstr(packing, "awq") != NULL) {
        read_awq(c, node);
    } else {
        read_gptq(c, node);
    }
}

static void read_mxfp4(struct plim__config *c, const struct plim__node *node)
{
    static const char *experts[] = {"experts"}; /* the method converts nothing else */
    (void)node;
    struct plim_quant_scheme *s = one_scheme(c, PLIM_QUANT_MXFP4, 4);
    if (s != NULL) {
        s->group = 32;
        s->targets = experts;
        s->n_targets = 1;
    }
}

static void read_bitsandbytes(struct plim__config *c, const struct plim__node *node)
{
    bool eight = plim__flag(c, node, "load_in_8bit", false);
    struct plim_quant_scheme *s =
        one_scheme(c, eight ? PLIM_QUANT_LLM_INT8 : PLIM_QUANT_NF4, eight ? 8 : 4);
    if (s != NULL) {
        s->group = eight ? 0 : 64;
        s->double_quant = plim__flag(c, node, "bnb_4bit_use_double_quant", false);
    }
}

static void read_modelopt(struct plim__config *c, const struct plim__node *node)
{
    static const struct {
        const char *algo;
        enum plim_quant_kind kind;
        uint32_t bits, group, block_rows;
        bool act_static;
    } algos[] = {
        {"FP8", PLIM_QUANT_FP8, 8, UINT32_MAX, 0, true},
        {"FP8_PER_CHANNEL_PER_TOKEN", PLIM_QUANT_FP8, 8, 0, 0, false},
        {"FP8_PB_WO", PLIM_QUANT_FP8, 8, 128, 128, false},
        {"NVFP4", PLIM_QUANT_NVFP4, 4, 16, 0, true},
        {"MXFP8", PLIM_QUANT_MXFP8, 8, 32, 0, false},
    };
    const char *algo = plim__text(c, node, "quant_algo");
    for (size_t i = 0; algo != NULL && i < PLIM_COUNT_OF(algos); i++) {
        if (strcmp(algo, algos[i].algo) == 0) {
            struct plim_quant_scheme *s = one_scheme(c, algos[i].kind, algos[i].bits);
            if (s != NULL) {
                s->group = algos[i].group;
                s->block_rows = algos[i].block_rows;
                s->act_static = algos[i].act_static;
            }
            return;
        }
    }
    (void)one_scheme(c, PLIM_QUANT_OTHER, 0);
    plim__note(c,
               "quantization %s of modelopt is not known here: weights cannot be computed from it",
               algo != NULL ? algo : "without quant_algo");
}

/* ---- compressed-tensors: several groups, each with its own targets */

static enum plim_quant_kind packed_kind(const char *format, const char *type, uint32_t bits)
{
    if (format != NULL && strcmp(format, "nvfp4-pack-quantized") == 0) {
        return PLIM_QUANT_NVFP4;
    }
    if (format != NULL && strcmp(format, "mxfp4-pack-quantized") == 0) {
        return PLIM_QUANT_MXFP4;
    }
    if (format != NULL && strcmp(format, "pack-quantized") == 0) {
        return PLIM_QUANT_PACK;
    }
    if (type != NULL && strcmp(type, "float") == 0) {
        return bits == 8 ? PLIM_QUANT_FP8 : bits == 4 ? PLIM_QUANT_NVFP4 : PLIM_QUANT_OTHER;
    }
    return bits == 8 ? PLIM_QUANT_INT8 : PLIM_QUANT_OTHER;
}

static void read_group(struct plim__config *c, json_t *group, const char *format,
                       struct plim_quant_scheme *s)
{
    struct plim__node outer = plim__node_of(c, group, "quantization_config.config_groups.", "");
    json_t *weights = plim__child(c, &outer, "weights");
    struct plim__node w =
        plim__node_of(c, weights, "quantization_config.config_groups.weights.", "");
    json_t *inputs = plim__child(c, &outer, "input_activations");
    struct plim__node in =
        plim__node_of(c, inputs, "quantization_config.config_groups.input_activations.", "");
    const char *own = plim__text(c, &outer, "format");
    const char *strategy = plim__text(c, &w, "strategy");
    s->bits = plim__need(c, &w, "bits", "num_bits");
    s->kind = packed_kind(own != NULL ? own : format, plim__text(c, &w, "type"), s->bits);
    s->zero_point = !plim__flag(c, &w, "symmetric", true);
    s->act_static = inputs != NULL && !json_is_string(json_object_get(inputs, "dynamic")) &&
                    !plim__flag(c, &in, "dynamic", false);
    if (strategy != NULL && strcmp(strategy, "tensor") == 0) {
        s->group = UINT32_MAX;
    } else if (strategy != NULL && strcmp(strategy, "channel") == 0) {
        s->group = 0;
    } else {
        s->group = group_size(c, &w, s->kind == PLIM_QUANT_MXFP4 ? 32 : 0);
    }
    weight_blocks(c, &w, "block_structure", s);
    const char *order = plim__text(c, &w, "actorder");
    s->act_order = order != NULL && strcmp(order, "group") == 0;
    s->targets = texts(c, &outer, "targets", &s->n_targets);
    /* NVFP4 has a global input scale even when activations are scaled on the fly */
    s->act_static = s->kind == PLIM_QUANT_NVFP4 ? inputs != NULL : s->act_static;
}

static void read_compressed(struct plim__config *c, const struct plim__node *node)
{
    struct plim_quant *q = &c->g->quant;
    json_t *groups = plim__child(c, node, "config_groups");
    const char *format = plim__text(c, node, "format");
    size_t n = json_object_size(groups);
    if (n > SCHEMES_MAX) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, "config_groups", "%zu quantization groups",
                                n);
    }
    q->schemes = plim__config_array(c, n + 1, sizeof *q->schemes);
    const char *name;
    json_t *group;
    json_object_foreach(groups, name, group)
    {
        if (c->st == PLIM_OK) {
            read_group(c, group, format, &q->schemes[q->n_schemes++]);
        }
    }
    struct plim__node kv = plim__node_of(c, plim__child(c, node, "kv_cache_scheme"),
                                         "quantization_config.kv_cache_scheme.", "");
    q->kv_bits = plim__u32(c, &kv, "kv_bits", "num_bits");
}

/* ---- which method */

static const struct {
    const char *method;
    void (*read)(struct plim__config *c, const struct plim__node *node);
} methods[] = {
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_rows_fp8},
    {"ptpc_fp8", read_rows_fp8},
    {"gptq", read_gptq},
    {"gptq_marlin", read_gptq},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round},
    {"awq", read_awq},
    {"awq_marlin", read_awq},
    {"compressed-tensors", read_compressed},
    {"compressed_tensors", read_compressed},
    {"bitsandbytes", read_bitsandbytes},
    {"mxfp4", read_mxfp4},
    {"modelopt", read_modelopt},
    {"modelopt_fp4", read_modelopt},
    {"modelopt_mixed", read_modelopt},
};

static void read_method(struct plim__config *c, const struct plim__node *node)
{
    struct plim_quant *q = &c->g->quant;
    const char *method = plim__text(c, node, "quant_method quantization_method");
    if (method == NULL && plim__has(c, node, "quant_algo")) {
        method = "modelopt";
    }
    if (method == NULL && plim__has(c, node, "load_in_4bit load_in_8bit")) {
        method = "bitsandbytes";
    }
    if (method == NULL) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, "quant_method", "quant_method is missing");
        return;
    }
    q->method = method;
    q->excluded = texts(c, node,
                        "modules_to_not_convert ignore ignored_layers exclude_modules "
                        "llm_int8_skip_modules",
                        &q->n_excluded);
    const char *kv = plim__text(c, node, "kv_cache_quant_algo");
    if (kv != NULL) {
        q->kv_bits = strstr(kv, "4") != NULL ? 4 : strstr(kv, "8") != NULL ? 8 : 0;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(methods); i++) {
        if (strcmp(method, methods[i].method) == 0) {
            methods[i].read(c, node);
            return;
        }
    }
    (void)one_scheme(c, PLIM_QUANT_OTHER, 0);
    plim__note(c, "quantization %s is not known here: weights cannot be computed from it", method);
}

/* A file of its own nests under "quantization"; it counts only where config.json is silent. */
static void read_apart(struct plim__config *c, struct plim_str apart)
{
    json_error_t at;
    json_t *root = json_loadb(apart.p, apart.n, JSON_REJECT_DUPLICATES, &at);
    if (root == NULL) {
        c->st =
            plim__fail(c->err, PLIM_E_DATA, "the quantization file is no JSON object: %s", at.text);
        return;
    }
    struct plim__node file = plim__node_of(c, root, "hf_quant_config: ", "");
    json_t *inner = plim__child(c, &file, "quantization");
    struct plim__node node =
        plim__node_of(c, inner != NULL ? inner : root, "hf_quant_config: quantization.", "");
    read_method(c, &node);
    json_decref(root);
}

void plim__config_quant(struct plim__config *c, const struct plim__node *root,
                        const struct plim__node *node, struct plim_str apart)
{
    static const char keys[] = "quantization_config compression_config";
    c->g->quant = (struct plim_quant){.method = "none"};
    json_t *object = plim__child(c, root, keys);
    json_t *inner = object == NULL ? plim__child(c, node, keys) : object;
    if (inner != NULL) {
        struct plim__node from = plim__node_of(c, inner, "quantization_config.", "");
        read_method(c, &from);
    } else if (apart.n > 0 && c->st == PLIM_OK) {
        read_apart(c, apart);
    }
}
