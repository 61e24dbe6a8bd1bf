/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Geometry from GGUF metadata. Keys begin with the architecture's name: "llama.block_count". Which layers
 * slide is in the file for some architectures and a rule of llama.cpp's code for others.
 * Sources: ggml-org/ggml docs/gguf.md, gguf 0.19.0 gguf/constants.py (names of keys); patterns of windows as
 * in the Hugging Face classes that the files were converted from.
 */

#include "serving/gguf_model.h"

#include "base/num.h"
#include "base/vec.h"

#include <stdio.h>

struct reading {
    struct plim_arena *arena;
    const struct plim_gguf *file;
    const char *architecture;
    struct plim_geometry *g;
    PLIM_VEC(struct plim_origin) origins;
    enum plim_status st;
    struct plim_err *err;
};

static void fail(struct reading *r, enum plim_status st, const char *key, const char *what)
{
    if (r->st == PLIM_OK) {
        r->st = plim__fail(r->err, st, "%s %s", key, what);
        plim__err_where(r->err, "GGUF metadata: %s.%s", r->architecture, key);
    }
}

static const struct plim_gguf_value *find(const struct reading *r, const char *key)
{
    char full[160];
    snprintf(full, sizeof full, "%s.%s", r->architecture, key);
    return plim_gguf_find(r->file, full);
}

static void book(struct reading *r, const char *field, const char *key, uint64_t value)
{
    for (size_t i = 0; i < r->origins.n; i++) {
        if (strcmp(r->origins.items[i].field, field) == 0) {
            return;
        }
    }
    if (r->st == PLIM_OK) {
        r->st = plim_vec_push(&r->origins, r->err,
                              (struct plim_origin){field, key, PLIM_ORIGIN_FILE, value});
    }
}

/* A number, or element i of an array of them; 0 when the key is absent. */
static uint32_t number_at(struct reading *r, const char *field, const char *key, uint32_t i,
                          uint64_t max)
{
    const struct plim_gguf_value *v = find(r, key);
    int64_t n = 0;
    if (v == NULL || r->st != PLIM_OK) {
        return 0;
    }
    if (v->kind == PLIM_GGUF_ARRAY && v->numbers != NULL) {
        if (i >= v->length) {
            fail(r, PLIM_E_DATA, key, "has fewer values than there are layers");
            return 0;
        }
        n = v->numbers[i];
    } else if (v->kind == PLIM_GGUF_UINT || v->kind == PLIM_GGUF_INT || v->kind == PLIM_GGUF_BOOL) {
        n = v->u > INT64_MAX ? -1 : (int64_t)v->u;
    } else {
        fail(r, PLIM_E_DATA, key, "is no number");
        return 0;
    }
    if (n < 0 || (uint64_t)n > max) {
        fail(r, PLIM_E_RANGE, key, "is a size that no model has");
        return 0;
    }
    book(r, field, key, (uint64_t)n);
    return (uint32_t)n;
}

static uint32_t number(struct reading *r, const char *field, const char *key)
{
    return number_at(r, field, key, 0, PLIM_DIM_MAX);
}

static uint32_t need(struct reading *r, const char *field, const char *key)
{
    uint32_t n = number(r, field, key);
    if (n == 0) {
        fail(r, PLIM_E_DATA, key, find(r, key) == NULL ? "is missing" : "is 0");
    }
    return n;
}

/* ---- layers */

/* Architectures that slide by a rule of the code: every n-th layer is full. */
static uint32_t window_pattern(const struct reading *r)
{
    static const struct {
        const char *architecture;
        uint32_t every;
    } rules[] = {{"gemma2", 2},  {"gemma3", 6},  {"gemma3n", 5}, {"gemma4", 6}, {"cohere2", 4},
                 {"gpt-oss", 2}, {"exaone4", 4}, {"olmo2", 4},   {"llama4", 4}};
    for (size_t i = 0; i < PLIM_COUNT_OF(rules); i++) {
        if (strcmp(r->architecture, rules[i].architecture) == 0) {
            return rules[i].every;
        }
    }
    return 0;
}

static bool slides(struct reading *r, uint32_t i)
{
    const struct plim_gguf_value *v = find(r, "attention.sliding_window_pattern");
    if (v != NULL && v->kind == PLIM_GGUF_ARRAY) {
        return number_at(r, "window_pattern", "attention.sliding_window_pattern", i, 1) == 1;
    }
    uint32_t every = v != NULL ? number(r, "window_pattern", "attention.sliding_window_pattern")
                               : window_pattern(r);
    return every > 0 && (i + 1) % every != 0;
}

/* Whether layer l has the heads that attention needs; fails by the key's name when it has not. */
static bool has_heads(struct reading *r, const struct plim_layer *l)
{
    const char *zero = l->heads == 0 ? "attention.head_count" : "attention.head_count_kv";
    if (l->heads == 0 || l->kv_heads == 0) {
        fail(r, PLIM_E_DATA, zero,
             find(r, zero) == NULL ? "is missing, and layers attend"
                                   : "is 0 for a layer that attends");
    }
    return r->st == PLIM_OK;
}

/* Elements of a head: what the key says, else an equal part of the hidden size. */
static uint32_t head_elements(struct reading *r, const struct plim_layer *l, const char *field,
                              const char *key)
{
    uint32_t given = number(r, field, key);
    if (given == 0 && l->heads > r->g->hidden) {
        fail(r, PLIM_E_DATA, "attention.head_count", "is more than embedding_length");
    }
    return given != 0 ? given : r->g->hidden / l->heads;
}

static void read_attention(struct reading *r, struct plim_layer *l, uint32_t i)
{
    uint32_t lora = number(r, "kv_lora_rank", "attention.kv_lora_rank");
    uint32_t window = number_at(r, "window", "attention.sliding_window", i, INT32_MAX);
    uint32_t chunk = number_at(r, "window", "attention.chunk_size", i, INT32_MAX);
    l->head_dim = head_elements(r, l, "head_dim", "attention.key_length");
    l->v_head_dim = head_elements(r, l, "v_head_dim", "attention.value_length");
    l->mixer = PLIM_MIXER_FULL;
    if (lora != 0) {
        l->mixer = PLIM_MIXER_MLA;
        l->kv_lora_rank = lora;
        l->qk_rope_dim = need(r, "qk_rope_dim", "rope.dimension_count");
        l->q_lora_rank = number(r, "q_lora_rank", "attention.q_lora_rank");
    } else if (chunk != 0 && slides(r, i)) {
        l->mixer = PLIM_MIXER_CHUNKED;
        l->window = chunk;
    } else if (window != 0 && slides(r, i)) {
        uint32_t key = number(r, "swa_head_dim", "attention.key_length_swa");
        uint32_t value = number(r, "swa_v_head_dim", "attention.value_length_swa");
        l->mixer = PLIM_MIXER_SLIDING;
        l->window = window;
        l->head_dim = key != 0 ? key : l->head_dim;
        l->v_head_dim = value != 0 ? value : l->v_head_dim;
    }
}

/* States as llama.cpp keeps them: a convolution over the inputs and one matrix. */
static void read_recurrent(struct reading *r, struct plim_layer *l)
{
    uint32_t cache = number(r, "conv_kernel", "shortconv.l_cache");
    uint32_t inner = number(r, "inner", "ssm.inner_size");
    uint32_t state = number(r, "state_cols", "ssm.state_size");
    uint32_t groups = number(r, "state_groups", "ssm.group_count");
    if (cache != 0) {
        l->mixer = l->recurrent = PLIM_MIXER_SHORT_CONV;
        l->conv_kernel = cache;
        l->conv_channels = r->g->hidden;
        return;
    }
    l->conv_kernel = need(r, "conv_kernel", "ssm.conv_kernel");
    l->state_rank = number(r, "dt_rank", "ssm.time_step_rank");
    uint64_t channels = inner + 2 * (uint64_t)groups * state;
    if (channels > PLIM_DIM_MAX) {
        fail(r, PLIM_E_RANGE, "ssm.group_count", "gives more channels than any model has");
        return;
    }
    l->conv_channels = (uint32_t)channels;
    l->mixer = l->recurrent = groups != 0 ? PLIM_MIXER_MAMBA2 : PLIM_MIXER_MAMBA1;
    /* with groups the time step's rank is the number of heads */
    l->state_heads = groups != 0 && l->state_rank != 0 ? l->state_rank : inner;
    l->state_rows = l->state_heads != 0 ? inner / l->state_heads : 0;
    l->state_groups = groups;
    l->state_cols = state;
    if (r->st == PLIM_OK && (inner == 0 || state == 0)) {
        fail(r, PLIM_E_DATA, "ssm.inner_size",
             "is missing, and the layer keeps no keys and values");
    }
}

static void read_ffn(struct reading *r, struct plim_layer *l, uint32_t i)
{
    uint32_t dense = number(r, "dense_layers", "leading_dense_block_count");
    uint32_t experts = number(r, "experts", "expert_count");
    l->intermediate = number_at(r, "intermediate", "feed_forward_length", i, PLIM_DIM_MAX);
    l->ffn = l->intermediate != 0 ? PLIM_FFN_DENSE : PLIM_FFN_NONE;
    if (experts != 0 && i >= dense) {
        l->ffn = PLIM_FFN_MOE;
        l->experts = experts;
        l->experts_per_token = number(r, "experts_per_token", "expert_used_count");
        l->expert_intermediate = number(r, "expert_intermediate", "expert_feed_forward_length");
        l->expert_intermediate =
            l->expert_intermediate != 0 ? l->expert_intermediate : l->intermediate;
        l->shared_intermediate =
            number(r, "shared_intermediate", "expert_shared_feed_forward_length");
        l->intermediate = 0;
    }
}

static void read_layer(struct reading *r, uint32_t i)
{
    struct plim_layer *l = &r->g->layers[i];
    *l = (struct plim_layer){.kv_from = PLIM_LAYER_OWN_KV, .rope = PLIM_NO_ROPE};
    bool has_state = find(r, "ssm.conv_kernel") != NULL || find(r, "shortconv.l_cache") != NULL;
    bool kv_given = find(r, "attention.head_count_kv") != NULL;
    uint32_t every = number(r, "full_attention_interval", "full_attention_interval");
    read_ffn(r, l, i);
    l->heads = number_at(r, "heads", "attention.head_count", i, PLIM_DIM_MAX);
    l->kv_heads =
        kv_given ? number_at(r, "kv_heads", "attention.head_count_kv", i, PLIM_DIM_MAX) : l->heads;
    bool headless = l->kv_heads == 0 || l->heads == 0;
    /* files of models without attention state 0 heads: who leaves the key out has forgotten it */
    bool forgotten = !has_state && find(r, "attention.head_count") == NULL;
    bool recurrent = every != 0 ? (i + 1) % every != 0 : headless && !forgotten;
    if (!recurrent) {
        if (has_heads(r, l)) {
            read_attention(r, l, i);
        }
        return;
    }
    l->heads = l->kv_heads = 0;
    /* Nemotron-H: a layer with a feed-forward part has nothing else */
    bool feeds = strncmp(r->architecture, "nemotron_h", 10) == 0 && l->intermediate != 0;
    if (r->st == PLIM_OK && has_state && !feeds) {
        read_recurrent(r, l);
    }
}

/* Rows of the token embedding: the table of tensors knows, whatever the tokenizer says. */
static uint32_t vocabulary(const struct reading *r)
{
    const struct plim_gguf_value *tokens = plim_gguf_find(r->file, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < r->file->tensors.n; i++) {
        const struct plim_tensor *t = &r->file->tensors.items[i];
        if (plim_str_eq(t->name, PLIM_STR("token_embd.weight")) && t->n_dims == 2) {
            return (uint32_t)plim_min_u64(t->dims[1], PLIM_DIM_MAX);
        }
    }
    return tokens != NULL ? (uint32_t)plim_min_u64(tokens->length, PLIM_DIM_MAX) : 0;
}

static void read_all(struct reading *r)
{
    struct plim_geometry *g = r->g;
    void *layers = NULL;
    g->hidden = need(r, "hidden", "embedding_length");
    uint32_t n = need(r, "n_layers", "block_count");
    g->max_position = number_at(r, "max_position", "context_length", 0, INT32_MAX);
    if (n > PLIM_LAYER_MAX) {
        fail(r, PLIM_E_RANGE, "block_count", "is more than any model has");
    }
    if (r->st == PLIM_OK) {
        r->st = plim_arena_array(r->arena, n, sizeof *g->layers, &layers, r->err);
    }
    if (r->st != PLIM_OK) {
        return;
    }
    g->layers = layers;
    g->n_layers = n;
    for (uint32_t i = 0; i < n && r->st == PLIM_OK; i++) {
        read_layer(r, i);
    }
    g->vocab = vocabulary(r);
    g->dtype = PLIM_DTYPE_F16;       /* of the KV cache, unless told otherwise */
    g->state_dtype = PLIM_DTYPE_F32; /* llama.cpp keeps states in it */
    g->quant = (struct plim_quant){.method = "gguf"};
}

enum plim_status plim_geometry_from_gguf(struct plim_arena *arena, const struct plim_gguf *file,
                                         struct plim_geometry *out, struct plim_err *err)
{
    const struct plim_gguf_value *name = plim_gguf_find(file, "general.architecture");
    if (name == NULL || name->kind != PLIM_GGUF_STRING || name->text.n == 0 || name->text.n > 64) {
        return plim__fail(err, PLIM_E_DATA, "general.architecture is missing");
    }
    struct plim_geometry g = {
        .architecture = name->text.p, .model_type = name->text.p, .family = "", .gated = true};
    struct reading r = {
        .arena = arena, .file = file, .architecture = name->text.p, .g = &g, .err = err};
    read_all(&r);
    void *origins = NULL;
    if (r.st == PLIM_OK) {
        r.st = plim_arena_array(arena, r.origins.n, sizeof *r.origins.items, &origins, err);
    }
    if (r.st == PLIM_OK) {
        if (r.origins.n > 0) {
            memcpy(origins, r.origins.items, r.origins.n * sizeof *r.origins.items);
        }
        g.origins = origins;
        g.n_origins = (uint32_t)r.origins.n;
        *out = g;
    }
    plim_vec_fini(&r.origins);
    return r.st;
}
