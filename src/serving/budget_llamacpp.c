/* SPDX-License-Identifier: Apache-2.0 */

/*
 * llama.cpp and Ollama: the cache is allocated whole at the start for a number of cells, layers are placed one
 * by one, the rest of the card is a compute buffer.
 * Sources: llama.cpp src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp (cells padded to 256, windows: one per
 * sequence and a micro-batch more), src/llama-model.cpp (input layer on the host, output layer with the last);
 * ollama envconfig/config.go, llm/memory.go.
 */

#include "serving/budget.h"

#include "base/num.h"

#include <stdlib.h>

#define OLLAMA_SET_ASIDE (UINT64_C(457) * PLIM_MIB) /* for each card, ollama ml/device.go */

struct cells {
    uint64_t context; /* --ctx-size, all slots together */
    uint64_t slots;   /* sequences */
    uint64_t ubatch;  /* tokens of a step */
    uint64_t full;    /* cells of layers that keep all tokens */
    bool swa_full;    /* windows keep everything too */
    bool flash;
};

/* ---- layers on the card ------------------------------------------------------------------------------ */

/* "blk.12.attn_q.weight" is of layer 12; UINT32_MAX for tensors outside the layers. */
static uint32_t layer_of(struct plim_str name)
{
    if (!plim_str_starts(name, PLIM_STR("blk."))) {
        return UINT32_MAX;
    }
    return (uint32_t)strtoul(name.p + 4, NULL, 10);
}

static bool is_named(const struct plim_tensor *t, const char *name)
{
    return plim_str_eq(t->name, plim_str_from(name));
}

/* Bytes on the card of a GGUF file with the last `ngl` layers there; one more than all is the output too. */
static uint64_t placed_tensors(const struct plim_tensors *tensors, uint32_t n_layers, uint64_t ngl)
{
    uint64_t sum = 0;
    uint64_t embedding = 0;
    bool output = false;
    uint64_t first = ngl > n_layers ? 0 : n_layers - ngl;
    for (size_t i = 0; i < tensors->n; i++) {
        const struct plim_tensor *t = &tensors->items[i];
        uint32_t layer = layer_of(t->name);
        if (is_named(t, "token_embd.weight")) {
            embedding = t->bytes; /* stays with the host */
        } else if (layer != UINT32_MAX ? layer >= first : ngl > n_layers) {
            sum = plim_add_sat(sum, t->bytes);
            output = output || is_named(t, "output.weight");
        }
    }
    bool tied = ngl > n_layers && !output; /* a copy is the output matrix */
    return tied ? plim_add_sat(sum, embedding) : sum;
}

static void read_weights(struct plim__budget *e, uint64_t ngl)
{
    const struct plim_model *file = e->request->file;
    struct plim_weight_list list;
    e->weights_known = true;
    if (file != NULL && file->kind == PLIM_MODEL_GGUF) {
        e->weights = placed_tensors(&file->tensors, e->g->n_layers, ngl);
        e->weights_how = PLIM_PLAN_COMPUTED;
        return;
    }
    e->st = plim_weights_list(e->arena, e->g, &list, e->err);
    for (size_t i = 0; e->st == PLIM_OK && i < list.n; i++) {
        const struct plim_weight *w = &list.items[i];
        bool last = w->layer == PLIM_NO_LAYER && ngl > e->g->n_layers &&
                    (w->part != PLIM_PART_EMBEDDING || e->g->tied);
        bool placed = w->layer != PLIM_NO_LAYER && w->layer + ngl >= e->g->n_layers;
        bool language = w->part != PLIM_PART_VISION && w->part != PLIM_PART_MTP;
        if ((last || placed) && language) {
            e->weights = plim_add_sat(e->weights, plim_weight_bytes(e->g, w, NULL));
        }
    }
    e->weights_how = PLIM_PLAN_ESTIMATED; /* converted as it is, not quantized */
}

/* ---- the cache ---------------------------------------------------------------------------------------- */

static uint64_t cache_bytes(const struct plim__budget *e, const struct cells *c, uint64_t ngl)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->caches.n; i++) {
        const struct plim_kv_layer *l = &e->caches.items[i];
        uint64_t cells = c->full;
        if (l->window != 0 && !c->swa_full) {
            cells = plim_min_u64(cells, plim_round_up(l->window * c->slots + c->ubatch, 256));
        }
        if (l->layer + ngl >= e->g->n_layers) {
            uint64_t tokens = plim_mul_sat(l->token_bytes, cells);
            sum = plim_add_sat(sum, plim_add_sat(tokens, plim_mul_sat(l->state_bytes, c->slots)));
        }
    }
    return sum;
}

/* Logits and the widest layer of a micro-batch in fp32; without flash attention the scores too. */
static uint64_t compute_buffer(const struct plim__budget *e, const struct cells *c)
{
    uint64_t heads = 0;
    for (uint32_t i = 0; i < e->g->n_layers; i++) {
        heads = plim_max_u64(heads, e->g->layers[i].heads);
    }
    uint64_t bytes = plim__budget_activations(e, c->ubatch, 0) * 2 + c->ubatch * e->g->vocab * 4;
    return c->flash ? bytes : plim_add_sat(bytes, plim_mul_sat(c->context, heads * c->ubatch * 4));
}

static struct cells read_cells(struct plim__budget *e, bool ollama)
{
    struct cells c;
    uint64_t own = e->g->max_position != 0 ? e->g->max_position : 4096;
    uint64_t tier = e->card->total < 23 * PLIM_GIB   ? 4096
                    : e->card->total < 47 * PLIM_GIB ? 32768
                                                     : 262144;
    c.slots = plim__budget_number(e, ollama ? "OLLAMA_NUM_PARALLEL" : "parallel np", 1);
    c.slots = c.slots == 0 ? 1 : c.slots;
    c.context = plim__budget_number(e, ollama ? "OLLAMA_CONTEXT_LENGTH" : "ctx-size c", 0);
    if (c.context == 0) {
        c.context = ollama ? plim_min_u64(tier, own) : own;
    }
    c.context *= ollama ? c.slots : 1; /* for each request there, for all of them here */
    c.ubatch = plim__budget_number(e, "ubatch-size ub", 512);
    c.full = plim_round_up(c.context, 256);
    c.swa_full = plim__budget_flag(e, "swa-full") != NULL;
    const char *flash = plim__budget_flag(e, ollama ? "OLLAMA_FLASH_ATTENTION" : "flash-attn fa");
    c.flash = flash == NULL || (strcmp(flash, "off") != 0 && strcmp(flash, "0") != 0);
    return c;
}

static bool is_quantized(enum plim_kv_format format)
{
    return format >= PLIM_KV_FORMAT_Q8_0 && format <= PLIM_KV_FORMAT_IQ4_NL;
}

void plim__budget_llamacpp(struct plim__budget *e, bool ollama)
{
    struct cells c = read_cells(e, ollama);
    uint64_t ngl =
        plim__budget_number(e, "n-gpu-layers gpu-layers ngl", (uint64_t)e->g->n_layers + 1);
    e->kv.k = plim__budget_format(e, ollama ? "OLLAMA_KV_CACHE_TYPE" : "cache-type-k ctk");
    e->kv.v = plim__budget_format(e, ollama ? "OLLAMA_KV_CACHE_TYPE" : "cache-type-v ctv");
    e->kv.k = e->kv.k != PLIM_KV_FORMAT_AUTO ? e->kv.k : PLIM_KV_FORMAT_F16;
    e->kv.v = e->kv.v != PLIM_KV_FORMAT_AUTO ? e->kv.v : PLIM_KV_FORMAT_F16;
    e->kv.state_dtype = e->kv.conv_dtype = PLIM_DTYPE_F32;
    if (e->st == PLIM_OK && (c.slots > 65536 || c.ubatch > PLIM_MIB)) {
        e->st =
            plim__fail(e->err, PLIM_E_RANGE, "more slots or tokens in a step than any server has");
    }
    if (e->st == PLIM_OK && is_quantized(e->kv.v) && !c.flash) {
        e->st = plim__fail(e->err, PLIM_E_USAGE, "a quantized V cache needs flash attention");
    }
    if (e->st == PLIM_OK) {
        read_weights(e, ngl);
    }
    plim__budget_load(e);
    if (e->st != PLIM_OK) {
        return;
    }
    uint64_t cache = cache_bytes(e, &c, ngl);
    uint64_t compute = plim_min_u64(compute_buffer(e, &c), PLIM_AMOUNT_MAX);
    uint64_t aside =
        ollama ? OLLAMA_SET_ASIDE + plim__budget_number(e, "OLLAMA_GPU_OVERHEAD", 0) : 0;
    e->plan->start.settings.seqs = c.slots;
    e->plan->start.settings.batched_tokens = c.ubatch;
    plim__budget_line(
        e, (struct plim_plan_line){"compute_buffer", "compute buffer of a micro-batch", compute,
                                   compute / 2 + 64 * PLIM_MIB, PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
                                   "logits and the widest layer, fp32"});
    if (aside != 0) {
        plim__budget_line(e, (struct plim_plan_line){"set_aside", "kept free for the card", aside,
                                                     0, PLIM_PLAN_COMPUTED, PLIM_PLAN_REST,
                                                     "ollama ml/device.go, OLLAMA_GPU_OVERHEAD"});
    }
    plim__budget_cache(e, (int64_t)plim_min_u64(cache, PLIM_AMOUNT_MAX), c.full, 1,
                       c.context / c.slots);
}
