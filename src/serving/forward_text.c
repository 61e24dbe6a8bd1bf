/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LlamaForCausalLM.forward of transformers 5.20.0 without gradients, as allocations. Each function is one
 * module or expression of it, in the order in which PyTorch evaluates: operands before results, and a
 * tensor dies when the last name that holds it does.
 */

#include "serving/forward.h"

#include "base/num.h"

#define ROPE_ELEMENT 4u /* rotary tables are computed in float32 */

enum plim_status plim_dynamic_cache_init(struct plim_dynamic_cache *cache, uint32_t layers,
                                         struct plim_err *err)
{
    *cache = (struct plim_dynamic_cache){.layers = layers};
    cache->keys = calloc((size_t)layers + 1, sizeof *cache->keys);
    cache->values = calloc((size_t)layers + 1, sizeof *cache->values);
    if (!cache->keys || !cache->values) {
        plim_dynamic_cache_fini(cache);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a cache of %u layers", layers);
    }
    return PLIM_OK;
}

void plim_dynamic_cache_drop(struct plim_dynamic_cache *cache, struct plim_feed *feed)
{
    for (uint32_t i = cache->layers; i-- > 0;) {
        plim_feed_put(feed, &cache->keys[i]);
        plim_feed_put(feed, &cache->values[i]);
    }
    cache->length = 0;
}

void plim_dynamic_cache_fini(struct plim_dynamic_cache *cache)
{
    free(cache->keys);
    free(cache->values);
    *cache = (struct plim_dynamic_cache){0};
}

/* ---- small modules ---------------------------------------------------------------------------------- */

/* LlamaRMSNorm: in float32, then back. */
static plim_piece rms_norm(struct plim_feed *t, uint64_t rows, uint64_t width, uint64_t element)
{
    plim_piece wide = plim_feed_get(t, rows * width * 4);
    plim_piece square = plim_feed_get(t, rows * width * 4);
    plim_piece mean = plim_feed_get(t, rows * 4);
    plim_feed_put(t, &square);
    plim_piece shifted = plim_feed_get(t, rows * 4);
    plim_piece root = plim_feed_get(t, rows * 4);
    plim_feed_put(t, &shifted);
    plim_piece scaled = plim_feed_get(t, rows * width * 4);
    plim_feed_put(t, &root);
    plim_feed_put(t, &wide);
    plim_piece narrow = plim_feed_get(t, rows * width * element);
    plim_piece out = plim_feed_get(t, rows * width * element);
    plim_feed_put(t, &narrow);
    plim_feed_put(t, &scaled);
    plim_feed_put(t, &mean);
    return out;
}

/* Cosines and sines of the positions, [length][dim], for all layers. */
static void rotary_tables(struct plim_feed *t, uint64_t length, uint64_t dim, uint64_t element,
                          plim_piece *cosines, plim_piece *sines)
{
    plim_piece positions = plim_feed_get(t, length * ROPE_ELEMENT);
    plim_piece inverse = plim_feed_get(t, dim / 2 * ROPE_ELEMENT);
    plim_piece angles = plim_feed_get(t, length * (dim / 2) * ROPE_ELEMENT);
    plim_feed_put(t, &positions);
    plim_feed_put(t, &inverse);
    plim_piece both = plim_feed_get(t, length * dim * ROPE_ELEMENT);
    plim_piece raw = plim_feed_get(t, length * dim * ROPE_ELEMENT);
    plim_piece cosine = plim_feed_get(t, length * dim * ROPE_ELEMENT);
    plim_feed_put(t, &raw);
    raw = plim_feed_get(t, length * dim * ROPE_ELEMENT);
    plim_piece sine = plim_feed_get(t, length * dim * ROPE_ELEMENT);
    plim_feed_put(t, &raw);
    *cosines = plim_feed_get(t, length * dim * element);
    *sines = plim_feed_get(t, length * dim * element);
    plim_feed_put(t, &angles);
    plim_feed_put(t, &both);
    plim_feed_put(t, &cosine);
    plim_feed_put(t, &sine);
}

/* x * cos + rotate_half(x) * sin */
static plim_piece rotate(struct plim_feed *t, uint64_t bytes)
{
    plim_piece straight = plim_feed_get(t, bytes);
    plim_piece negated = plim_feed_get(t, bytes / 2);
    plim_piece turned = plim_feed_get(t, bytes);
    plim_feed_put(t, &negated);
    plim_piece across = plim_feed_get(t, bytes);
    plim_feed_put(t, &turned);
    plim_piece out = plim_feed_get(t, bytes);
    plim_feed_put(t, &straight);
    plim_feed_put(t, &across);
    return out;
}

/* torch.cat of the cache's tensor and the new one; the old one dies. */
static void append(struct plim_feed *t, plim_piece *kept, uint64_t bytes)
{
    plim_piece longer = plim_feed_get(t, bytes);
    plim_feed_put(t, kept);
    *kept = longer;
}

/* ---- the mask ---------------------------------------------------------------------------------------- */

/* mask.all() == 1 of a [batch][total] mask of 8-byte integers. */
static void all_set(struct plim_feed *t, uint64_t batch, uint64_t total)
{
    plim_piece one = plim_feed_get(t, 8);
    plim_piece equal = plim_feed_get(t, batch * total * 8);
    plim_feed_put(t, &equal);
    plim_piece answer = plim_feed_get(t, 1);
    plim_feed_put(t, &one);
    plim_feed_put(t, &answer);
}

/* create_causal_mask() for a batch with padding: booleans [batch][1][length][total]. */
static plim_piece causal_mask(struct plim_feed *t, uint64_t batch, uint64_t length, uint64_t total)
{
    plim_piece padding = plim_feed_get(t, batch * total);
    all_set(t, batch, total);
    if (length > 1) {
        all_set(t, batch, total);
    }
    plim_piece rows = plim_feed_get(t, batch * 8);
    plim_piece head = plim_feed_get(t, 8);
    plim_piece range = plim_feed_get(t, length * 8);
    plim_piece queries = plim_feed_get(t, length * 8);
    plim_feed_put(t, &range);
    range = plim_feed_get(t, total * 8);
    plim_piece keys = plim_feed_get(t, total * 8);
    plim_feed_put(t, &range);
    plim_piece truth = plim_feed_get(t, 1);
    plim_piece causal = plim_feed_get(t, length * total);
    plim_piece both = plim_feed_get(t, length * total);
    plim_feed_put(t, &causal);
    plim_feed_put(t, &truth);
    plim_piece row_index = plim_feed_get(t, batch * total * 8);
    plim_piece key_index = plim_feed_get(t, batch * total * 8);
    plim_piece real = plim_feed_get(t, batch * total);
    plim_feed_put(t, &key_index);
    plim_feed_put(t, &row_index);
    plim_piece out = plim_feed_get(t, batch * length * total);
    plim_feed_put(t, &real);
    plim_feed_put(t, &both);
    plim_feed_put(t, &rows);
    plim_feed_put(t, &head);
    plim_feed_put(t, &queries);
    plim_feed_put(t, &keys);
    plim_feed_put(t, &padding);
    return out;
}

/* ---- one layer ---------------------------------------------------------------------------------------- */

struct pass {
    struct plim_feed *t;
    struct plim_dynamic_cache *cache;
    uint64_t batch, length, total; /* total: with what the cache holds */
    uint64_t rows;                 /* batch * length */
    uint64_t hidden, element;
    bool masked;
};

/* scaled_dot_product_attention; with a mask keys and values are repeated for each query head, and the
 * booleans become numbers. */
static plim_piece attend(const struct pass *p, const struct plim_layer *layer)
{
    struct plim_feed *t = p->t;
    uint64_t kv_rows = p->batch * p->total * p->element;
    plim_piece keys = 0, values = 0, bias = 0;
    if (p->masked && layer->heads > layer->kv_heads) {
        keys = plim_feed_get(t, kv_rows * layer->heads * layer->head_dim);
        values = plim_feed_get(t, kv_rows * layer->heads * layer->v_head_dim);
    }
    if (p->masked) {
        plim_piece zero = plim_feed_get(t, p->element);
        plim_piece minus = plim_feed_get(t, p->element);
        bias = plim_feed_get(t, p->batch * p->length * p->total * p->element);
        plim_feed_put(t, &minus);
        plim_feed_put(t, &zero);
    }
    plim_piece seed = plim_feed_get(t, 8);
    plim_piece offset = plim_feed_get(t, 8);
    plim_piece out = plim_feed_get(t, p->rows * layer->heads * layer->v_head_dim * p->element);
    plim_feed_put(t, &seed);
    plim_feed_put(t, &offset);
    plim_feed_put(t, &bias);
    plim_feed_put(t, &keys);
    plim_feed_put(t, &values);
    return out;
}

/* LlamaAttention on *normed, which dies with it; the residual sum. */
static plim_piece attention(const struct pass *p, uint32_t index, const struct plim_layer *layer,
                            plim_piece *normed)
{
    struct plim_feed *t = p->t;
    uint64_t one = p->rows * p->element;
    uint64_t q_bytes = one * layer->heads * layer->head_dim;
    uint64_t k_bytes = one * layer->kv_heads * layer->head_dim;
    uint64_t kept = p->batch * p->total * p->element * layer->kv_heads;
    plim_piece q = plim_feed_get(t, q_bytes);
    plim_piece k = plim_feed_get(t, k_bytes);
    plim_piece v = plim_feed_get(t, one * layer->kv_heads * layer->v_head_dim);
    plim_piece q_turned = rotate(t, q_bytes);
    plim_piece k_turned = rotate(t, k_bytes);
    plim_feed_put(t, &q);
    plim_feed_put(t, &k);
    append(t, &p->cache->keys[index], kept * layer->head_dim);
    append(t, &p->cache->values[index], kept * layer->v_head_dim);
    plim_feed_put(t, &k_turned);
    plim_feed_put(t, &v);
    plim_piece mixed = attend(p, layer);
    plim_piece projected = plim_feed_get(t, one * p->hidden);
    plim_feed_put(t, &mixed);
    plim_feed_put(t, &q_turned);
    plim_feed_put(t, normed);
    plim_piece sum = plim_feed_get(t, one * p->hidden);
    plim_feed_put(t, &projected);
    return sum;
}

/* LlamaMLP: down(silu(gate(x)) * up(x)), and the residual sum. */
static plim_piece feed_forward(const struct pass *p, const struct plim_layer *layer,
                               plim_piece *normed)
{
    struct plim_feed *t = p->t;
    uint64_t wide = p->rows * p->element * plim_layer_inner(layer);
    uint64_t narrow = p->rows * p->element * p->hidden;
    plim_piece gate = plim_feed_get(t, wide);
    plim_piece active = plim_feed_get(t, wide);
    plim_feed_put(t, &gate);
    plim_piece up = plim_feed_get(t, wide);
    plim_piece product = plim_feed_get(t, wide);
    plim_feed_put(t, &active);
    plim_feed_put(t, &up);
    plim_piece down = plim_feed_get(t, narrow);
    plim_feed_put(t, &product);
    plim_feed_put(t, normed);
    plim_piece sum = plim_feed_get(t, narrow);
    plim_feed_put(t, &down);
    return sum;
}

/* LlamaDecoderLayer: what it returns; its input belongs to the caller. */
static plim_piece layer_pass(const struct pass *p, uint32_t index, const struct plim_layer *layer)
{
    plim_piece normed = rms_norm(p->t, p->rows, p->hidden, p->element);
    plim_piece middle = attention(p, index, layer, &normed);
    normed = rms_norm(p->t, p->rows, p->hidden, p->element);
    plim_piece out = feed_forward(p, layer, &normed);
    plim_feed_put(p->t, &middle);
    return out;
}

/* The layers; the embeddings stay until the end, as a name of the caller holds them. */
static plim_piece layers_pass(const struct pass *p, const struct plim_geometry *g)
{
    plim_piece hidden = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        plim_piece next = layer_pass(p, i, &g->layers[i]);
        plim_feed_put(p->t, &hidden);
        hidden = next;
    }
    plim_piece out = rms_norm(p->t, p->rows, p->hidden, p->element);
    plim_feed_put(p->t, &hidden);
    return out;
}

plim_piece plim_forward_dynamic(const struct plim_forward *f, struct plim_dynamic_cache *cache,
                                struct plim_feed *t, uint64_t batch, uint64_t length, bool masked)
{
    const struct plim_geometry *g = f->geometry;
    struct pass p = {.t = t,
                     .cache = cache,
                     .batch = batch,
                     .length = length,
                     .total = cache->length + length,
                     .rows = batch * length,
                     .hidden = g->hidden,
                     .element = f->element,
                     .masked = masked};
    plim_piece cosines, sines, mask = 0;
    plim_piece embedded = plim_feed_get(t, p.rows * p.hidden * p.element);
    plim_piece range = plim_feed_get(t, length * 8);
    plim_piece positions = plim_feed_get(t, length * 8);
    plim_feed_put(t, &range);
    if (masked) {
        mask = causal_mask(t, batch, length, p.total);
    }
    rotary_tables(t, length, g->layers[0].head_dim, p.element, &cosines, &sines);
    plim_piece out = layers_pass(&p, g);
    plim_feed_put(t, &positions);
    plim_feed_put(t, &embedded);
    plim_feed_put(t, &mask);
    plim_feed_put(t, &sines);
    plim_feed_put(t, &cosines);
    plim_piece logits = plim_feed_get(t, batch * g->vocab * p.element);
    plim_feed_put(t, &out);
    cache->length = p.total;
    return logits;
}
