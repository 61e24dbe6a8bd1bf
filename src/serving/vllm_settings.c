/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Flags with the engine's defaults filled in: batch sizes by card and usage, lengths from the model, the model
 * runner, prefix caching, tokens in flight, CUDA graph sizes, the kind of linear layers.
 * Source: vllm 0.33.0 engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_...), config/
 * model.py (_get_and_verify_max_len), config/vllm.py (max_in_flight_tokens, _set_cudagraph_sizes,
 * use_v2_model_runner).
 */

#include "serving/vllm_settings.h"

#include <jansson.h>
#include <stdlib.h>

#define PLIM__LENGTH_MAX UINT64_C(0xffffffff) /* tokens of one request */

/* ---- reading flags -------------------------------------------------------------------------------- */

static enum plim_status bad_value(const struct plim_vllm_flag *f, const char *want,
                                  struct plim_err *err)
{
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "engine flag --%s wants %s, not \"%s\"",
                                     f->name, want, f->value != NULL ? f->value : "");
    plim__err_where(err, "--%s", f->name);
    return st;
}

/* A whole number of at least `least`; untouched when the flag is absent. */
static enum plim_status number(const struct plim_vllm_flags *flags, const char *name,
                               uint64_t least, uint64_t *out, struct plim_err *err)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, name);
    int64_t value;
    if (f == NULL) {
        return PLIM_OK;
    }
    if (f->value == NULL || !plim_vllm_size(f->value, &value) || value < (int64_t)least) {
        return bad_value(f, "a whole number in its range", err);
    }
    *out = (uint64_t)value;
    return PLIM_OK;
}

static enum plim_status number32(const struct plim_vllm_flags *flags, const char *name,
                                 uint32_t *out, struct plim_err *err)
{
    uint64_t value = *out;
    PLIM_TRY(number(flags, name, 1, &value, err));
    if (value > 65536) {
        return bad_value(plim_vllm_flag(flags, name), "at most 65536", err);
    }
    *out = (uint32_t)value;
    return PLIM_OK;
}

static bool on(const struct plim_vllm_flags *flags, const char *name, bool initial)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, name);
    return f != NULL ? f->on : initial;
}

static const char *text(const struct plim_vllm_flags *flags, const char *name)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, name);
    return f != NULL ? f->value : NULL;
}

/* ---- parts ----------------------------------------------------------------------------------------- */

static enum plim_status placement(const struct plim_vllm_flags *flags,
                                  struct plim_vllm_settings *set, struct plim_err *err)
{
    set->at = PLIM_PLACEMENT_WHOLE;
    set->at.vocab_pad = 64;
    set->dp = 1;
    PLIM_TRY(number32(flags, "tensor-parallel-size", &set->at.tp, err));
    PLIM_TRY(number32(flags, "pipeline-parallel-size", &set->at.pp, err));
    PLIM_TRY(number32(flags, "decode-context-parallel-size", &set->at.dcp, err));
    PLIM_TRY(number32(flags, "data-parallel-size", &set->dp, err));
    if (on(flags, "enable-expert-parallel", false)) {
        uint64_t devices = (uint64_t)set->at.tp * set->dp;
        set->at.ep = (uint32_t)plim_min_u64(devices, UINT32_MAX);
    }
    set->at.no_vision = on(flags, "language-model-only", false);
    if (set->at.tp % set->at.dcp != 0) {
        return plim__fail(err, PLIM_E_USAGE,
                          "the engine wants --tensor-parallel-size %u to be a multiple of "
                          "--decode-context-parallel-size %u",
                          set->at.tp, set->at.dcp);
    }
    return PLIM_OK;
}

static enum plim_status element_type(const struct plim_geometry *g, const struct plim_card *card,
                                     const struct plim_vllm_flags *flags,
                                     struct plim_vllm_settings *set, struct plim_err *err)
{
    const char *word = text(flags, "dtype");
    set->dtype = g->dtype == PLIM_DTYPE_F32 ? PLIM_DTYPE_F16 : g->dtype;
    if (set->dtype != PLIM_DTYPE_F16 && set->dtype != PLIM_DTYPE_BF16) {
        set->dtype = PLIM_DTYPE_BF16;
    }
    if (word != NULL && strcmp(word, "auto") != 0) {
        bool half = strcmp(word, "half") == 0 || strcmp(word, "float16") == 0;
        bool full = strcmp(word, "float") == 0 || strcmp(word, "float32") == 0;
        if (!half && !full && strcmp(word, "bfloat16") != 0) {
            return bad_value(plim_vllm_flag(flags, "dtype"), "auto, half, bfloat16 or float", err);
        }
        set->dtype = half ? PLIM_DTYPE_F16 : full ? PLIM_DTYPE_F32 : PLIM_DTYPE_BF16;
    } else if (set->dtype == PLIM_DTYPE_BF16 && card->cc < 80) {
        set->dtype = PLIM_DTYPE_F16;
    }
    return PLIM_OK;
}

static enum plim_status cache_types(const struct plim_geometry *g,
                                    const struct plim_vllm_flags *flags,
                                    struct plim_vllm_settings *set, struct plim_err *err)
{
    const char *word = text(flags, "kv-cache-dtype");
    set->kv = (struct plim_kv_options){.k = PLIM_KV_FORMAT_AUTO, .v = PLIM_KV_FORMAT_AUTO};
    if (word != NULL && !plim_kv_format_from(plim_str_from(word), &set->kv.k)) {
        return bad_value(plim_vllm_flag(flags, "kv-cache-dtype"), "a type of the KV cache", err);
    }
    if (set->kv.k == PLIM_KV_FORMAT_AUTO && g->quant.kv_bits == 0 && set->dtype != g->dtype) {
        set->kv.k = set->dtype == PLIM_DTYPE_F32   ? PLIM_KV_FORMAT_F32
                    : set->dtype == PLIM_DTYPE_F16 ? PLIM_KV_FORMAT_F16
                                                   : PLIM_KV_FORMAT_BF16;
    }
    const char *state = text(flags, "mamba-ssm-cache-dtype");
    if (state == NULL) {
        state = text(flags, "mamba-cache-dtype");
    }
    if (state != NULL && strcmp(state, "auto") != 0) {
        set->kv.state_dtype = strcmp(state, "float32") == 0    ? PLIM_DTYPE_F32
                              : strcmp(state, "bfloat16") == 0 ? PLIM_DTYPE_BF16
                                                               : PLIM_DTYPE_F16;
    }
    return PLIM_OK;
}

/* The model's own length; scaled by a rotary factor where the configuration's is unscaled. */
static uint64_t model_length(const struct plim_geometry *g)
{
    double factor = 1;
    uint64_t length = g->max_position != 0 ? g->max_position : 2048;
    for (uint32_t i = 0; i < g->n_ropes; i++) {
        const struct plim_rope *r = &g->ropes[i];
        if (strcmp(r->type, "linear") == 0 || strcmp(r->type, "dynamic") == 0) {
            factor = r->factor;
        }
    }
    bool scaled = strstr(g->model_type, "gemma3") != NULL; /* already in the file */
    uint64_t stretched = plim_u64_of((double)length * factor, PLIM__LENGTH_MAX);
    return scaled || stretched == 0 ? length : stretched;
}

static enum plim_status lengths(const struct plim_geometry *g, const struct plim_vllm_flags *flags,
                                struct plim_vllm_settings *set, struct plim_err *err)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, "max-model-len");
    uint64_t own = model_length(g);
    int64_t value;
    set->max_model_len = own;
    if (f == NULL) {
        return PLIM_OK;
    }
    if (f->value == NULL || !plim_vllm_size(f->value, &value) || value == 0) {
        return bad_value(f, "a number of tokens, 4k, 4K, -1 or auto", err);
    }
    if (value < 0) {
        set->auto_len = true;
        return PLIM_OK;
    }
    if (value > (int64_t)PLIM__LENGTH_MAX) {
        return bad_value(f, "a number of tokens that a model may have", err);
    }
    set->max_model_len = (uint64_t)value;
    if ((uint64_t)value > own && g->max_position != 0) {
        set->too_long = own;
    }
    return PLIM_OK;
}

/* Batch sizes that nobody gave, by the card's memory and name. */
static void batch_defaults(const struct plim_card *card, struct plim_vllm_settings *set)
{
    bool serve = set->usage == PLIM_VLLM_SERVE;
    bool small_chip = card->cc == 121; /* GB10: the memory of a large card, not its speed */
    bool a100 = strstr(card->name, "A100") != NULL || strncmp(card->key, "a100", 4) == 0;
    if (card->nvml >= 160 * PLIM_GIB) {
        set->batched_tokens = 16384;
        set->seqs = 1024;
    } else if (card->nvml >= 70 * PLIM_GIB && !a100 && !small_chip) {
        set->batched_tokens = serve ? 8192 : 16384;
        set->seqs = 1024;
    } else {
        set->batched_tokens = serve ? 2048 : 8192;
        set->seqs = 256;
    }
}

static enum plim_status batches(const struct plim_card *card, const struct plim_vllm_flags *flags,
                                struct plim_vllm_settings *set, struct plim_err *err)
{
    const char *mode = text(flags, "performance-mode");
    bool doubled = mode != NULL && strcmp(mode, "throughput") == 0;
    bool tokens_given = plim_vllm_flag(flags, "max-num-batched-tokens") != NULL;
    bool seqs_given = plim_vllm_flag(flags, "max-num-seqs") != NULL;
    batch_defaults(card, set);
    set->batched_tokens *= doubled ? 2 : 1;
    set->seqs *= doubled ? 2 : 1;
    PLIM_TRY(number(flags, "max-num-batched-tokens", 1, &set->batched_tokens, err));
    PLIM_TRY(number(flags, "max-num-seqs", 1, &set->seqs, err));
    if (!tokens_given) {
        if (!set->chunked_prefill) {
            set->batched_tokens = plim_max_u64(set->max_model_len, set->batched_tokens);
        }
        set->batched_tokens =
            plim_min_u64(set->batched_tokens, plim_mul_sat(set->seqs, set->max_model_len));
    }
    if (!seqs_given) {
        set->seqs = plim_min_u64(set->seqs, set->batched_tokens);
    }
    if (set->batched_tokens > (UINT64_C(1) << 24) || set->seqs > (UINT64_C(1) << 20)) {
        return plim__fail(err, PLIM_E_RANGE, "batches of %llu tokens and %llu sequences are absurd",
                          (unsigned long long)set->batched_tokens, (unsigned long long)set->seqs);
    }
    return PLIM_OK;
}

/* ---- CUDA graphs ------------------------------------------------------------------------------------ */

struct graph_words {
    const char *mode; /* "NONE", "PIECEWISE", ...; NULL: the default */
    bool plain;       /* compilation mode 0: no torch.compile */
    uint64_t largest; /* 0: the default */
    uint64_t sizes;   /* number of sizes given; 0: none */
};

static void graph_word(struct graph_words *w, const char *key, const char *value)
{
    if (strcmp(key, "mode") == 0) {
        w->plain = strcmp(value, "0") == 0 || strcasecmp(value, "none") == 0;
    } else if (strcmp(key, "cudagraph_mode") == 0) {
        w->mode = value;
    } else if (strcmp(key, "max_cudagraph_capture_size") == 0) {
        w->largest = strtoull(value, NULL, 10);
    }
}

static void sizes_of(struct graph_words *w, const json_t *list)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        w->sizes++;
        w->largest = plim_max_u64(w->largest, (uint64_t)json_integer_value(item));
    }
}

/* -cc '{"mode": 0, ...}' */
static enum plim_status graph_json(struct plim_arena *arena, const struct plim_vllm_flag *f,
                                   struct graph_words *w, struct plim_err *err)
{
    json_error_t where;
    json_t *root = json_loads(f->value, JSON_DECODE_ANY, &where);
    if (json_is_integer(root)) {
        w->plain = json_integer_value(root) == 0;
        json_decref(root);
        return PLIM_OK;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return bad_value(f, "a JSON object", err);
    }
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "cudagraph_capture_sizes") == 0) {
            sizes_of(w, value);
        } else if (json_is_string(value)) {
            graph_word(w, key, plim_arena_sayf(arena, "%s", json_string_value(value)));
        } else if (json_is_integer(value)) {
            graph_word(w, key,
                       plim_arena_sayf(arena, "%lld", (long long)json_integer_value(value)));
        }
    }
    json_decref(root);
    return plim_arena_status(arena, err);
}

static uint32_t default_sizes(uint64_t largest)
{
    uint32_t n = 0;
    for (uint64_t s = 1; s <= 4 && s <= largest; s *= 2) {
        n++;
    }
    for (uint64_t s = 8; s < 256 && s <= largest; s += 8) {
        n++;
    }
    for (uint64_t s = 256; s <= largest; s += 16) {
        n++;
    }
    return n;
}

static void graph_sizes(const struct plim_card *card, const struct graph_words *w,
                        struct plim_vllm_settings *set)
{
    uint64_t largest = w->largest;
    if (largest == 0) {
        largest = plim_min_u64(2 * set->seqs, card->cc / 10 == 10 ? 1024 : 512);
    }
    largest = plim_min_u64(largest, set->batched_tokens);
    set->max_capture = (uint32_t)plim_min_u64(largest, UINT32_MAX);
    set->n_captures = w->sizes != 0 ? (uint32_t)w->sizes : default_sizes(largest);
}

static enum plim_status graphs(struct plim_arena *arena, const struct plim_card *card,
                               const struct plim_vllm_flags *flags, struct plim_vllm_settings *set,
                               struct plim_err *err)
{
    struct graph_words w = {0};
    const char *level = text(flags, "optimization-level");
    for (size_t i = 0; i < flags->n; i++) {
        const struct plim_vllm_flag *f = &flags->items[i];
        if (strcmp(f->name, "compilation-config") == 0 && f->part != NULL) {
            graph_word(&w, f->part, f->value);
        } else if (strcmp(f->name, "compilation-config") == 0) {
            PLIM_TRY(graph_json(arena, f, &w, err));
        }
    }
    uint64_t largest = w.largest;
    PLIM_TRY(number(flags, "max-cudagraph-capture-size", 1, &largest, err));
    w.largest = largest;
    bool none = level != NULL && strcmp(level, "0") == 0;
    set->compiled = !set->eager && !w.plain && !none;
    if (w.mode == NULL) {
        w.mode = none || set->eager                         ? "NONE"
                 : level != NULL && strcmp(level, "1") == 0 ? "PIECEWISE"
                                                            : "FULL_AND_PIECEWISE";
    }
    bool any = !set->eager && strcasecmp(w.mode, "NONE") != 0;
    set->graphs_full = any && strcasecmp(w.mode, "PIECEWISE") != 0;
    set->graphs_piecewise = any && set->compiled && strstr(w.mode, "PIECEWISE") != NULL;
    if (set->graphs_full || set->graphs_piecewise) {
        graph_sizes(card, &w, set);
    }
    return PLIM_OK;
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

static enum plim_vllm_linear linear_kind(const struct plim_geometry *g,
                                         const struct plim_card *card)
{
    if (g->quant.n_schemes == 0) {
        return PLIM_VLLM_PLAIN;
    }
    const struct plim_quant_scheme *q = &g->quant.schemes[0];
    switch (q->kind) {
    case PLIM_QUANT_FP8:
        if (card->cc < 89) {
            return PLIM_VLLM_MARLIN; /* no fp8 kernels: weights only */
        }
        return q->block_rows != 0 ? PLIM_VLLM_FP8_BLOCK : PLIM_VLLM_FP8;
    case PLIM_QUANT_INT8:
        return PLIM_VLLM_FP8;
    case PLIM_QUANT_GPTQ:
    case PLIM_QUANT_AWQ:
    case PLIM_QUANT_PACK:
    case PLIM_QUANT_NVFP4:
        return PLIM_VLLM_MARLIN;
    default: /* MXFP4 is on experts only */
        return PLIM_VLLM_PLAIN;
    }
}

static bool variable(const struct plim_vllm_flags *flags, const char *name, bool initial)
{
    const char *value = plim_vllm_environment(flags, name);
    return value != NULL ? strcmp(value, "0") != 0 : initial;
}

static enum plim_status utilization(const struct plim_vllm_flags *flags,
                                    struct plim_vllm_settings *set, struct plim_err *err)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, "gpu-memory-utilization");
    set->utilization = 0.92;
    if (f != NULL) {
        char *end;
        set->utilization = f->value != NULL ? strtod(f->value, &end) : 0;
        if (!(set->utilization > 0 && set->utilization <= 1) || *end != '\0') {
            return bad_value(f, "a number above 0 and at most 1", err);
        }
    }
    PLIM_TRY(number(flags, "kv-cache-memory-bytes", 1, &set->kv_bytes, err));
    return number(flags, "num-gpu-blocks-override", 1, &set->blocks_override, err);
}

static bool has_recurrent(const struct plim_geometry *g)
{
    for (uint32_t i = 0; i < g->n_layers; i++) {
        if (g->layers[i].mixer >= PLIM_MIXER_MAMBA1) {
            return true;
        }
    }
    return false;
}

static enum plim_status features(const struct plim_geometry *g, const struct plim_vllm_flags *flags,
                                 struct plim_vllm_settings *set, struct plim_err *err)
{
    bool encoder = g->cross_tokens != 0;
    set->usage = flags->serve ? PLIM_VLLM_SERVE : PLIM_VLLM_LLM;
    set->v2 = variable(flags, "VLLM_USE_V2_MODEL_RUNNER", true);
    set->eager = on(flags, "enforce-eager", false);
    set->chunked_prefill = on(flags, "enable-chunked-prefill", !encoder);
    set->prefix_caching = on(flags, "enable-prefix-caching", !encoder);
    const char *mode = text(flags, "mamba-cache-mode");
    if (mode != NULL && has_recurrent(g)) {
        set->prefix_caching = strcmp(mode, "align") == 0;
    }
    set->hybrid_manager = !on(flags, "disable-hybrid-kv-cache-manager", false);
    set->sleep_mode = on(flags, "enable-sleep-mode", false);
    set->estimate_graphs = variable(flags, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", true);
    set->lora = on(flags, "enable-lora", false);
    set->loras = 1;
    set->lora_rank = 16;
    PLIM_TRY(number32(flags, "max-loras", &set->loras, err));
    return number32(flags, "max-lora-rank", &set->lora_rank, err);
}

enum plim_status plim__vllm_settings(struct plim_arena *arena, const struct plim_geometry *g,
                                     const struct plim_card *card,
                                     const struct plim_vllm_flags *flags,
                                     struct plim_vllm_settings *set, struct plim_err *err)
{
    *set = (struct plim_vllm_settings){.block_size = 16};
    PLIM_TRY(features(g, flags, set, err));
    PLIM_TRY(utilization(flags, set, err));
    PLIM_TRY(placement(flags, set, err));
    PLIM_TRY(element_type(g, card, flags, set, err));
    PLIM_TRY(cache_types(g, flags, set, err));
    PLIM_TRY(lengths(g, flags, set, err));
    PLIM_TRY(batches(card, flags, set, err));
    set->block_given = plim_vllm_flag(flags, "block-size") != NULL;
    PLIM_TRY(number32(flags, "block-size", &set->block_size, err));
    PLIM_TRY(graphs(arena, card, flags, set, err));
    bool overlap = on(flags, "async-scheduling", true);
    uint64_t steps = set->at.pp;
    if (overlap && (set->v2 || set->at.pp == 1)) {
        steps = set->at.pp + 1;
    }
    set->in_flight_tokens = steps * set->batched_tokens;
    set->linear = linear_kind(g, card);
    return PLIM_OK;
}
