/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step of vLLM 0.33.0 without CUDA graphs, from the prepared batch to the sampled tokens, as
 * allocations: fused projections, norms in place from the second on, keys and values written into the
 * pool, logits of the sampled rows only, greedy sampling.
 */

#include "serving/forward.h"

struct pass {
    struct plim_feed *t;
    const struct plim_paged_step *s;
    uint64_t row; /* bytes of a hidden row */
    uint32_t element;
};

/* FlashAttention 3: the output, lengths, log-sum-exp; with several splits also their partial results. */
static plim_piece attend(const struct pass *p, const struct plim_layer *layer)
{
    struct plim_feed *t = p->t;
    uint64_t heads = layer->heads, tokens = p->s->tokens, splits = p->s->splits;
    plim_piece out = plim_feed_get(t, tokens * heads * layer->v_head_dim * p->element);
    plim_piece lengths = plim_feed_get(t, (p->s->rows + 1) * 4);
    plim_piece sums = plim_feed_get(t, heads * tokens * 4);
    plim_piece parts = 0, part_sums = 0;
    if (splits > 1) {
        parts = plim_feed_get(t, splits * heads * tokens * layer->v_head_dim * 4);
        part_sums = plim_feed_get(t, splits * heads * tokens * 4);
    }
    plim_feed_put(t, &parts);
    plim_feed_put(t, &lengths);
    plim_feed_put(t, &sums);
    plim_feed_put(t, &part_sums);
    return out;
}

/* The mixer of a layer: what goes into the fused norm behind it. */
static plim_piece mixer(const struct pass *p, const struct plim_layer *layer)
{
    struct plim_feed *t = p->t;
    uint64_t width = (uint64_t)(layer->heads + layer->kv_heads) * layer->head_dim +
                     (uint64_t)layer->kv_heads * layer->v_head_dim;
    plim_piece qkv = plim_feed_get(t, p->s->tokens * width * p->element);
    plim_piece mixed = attend(p, layer);
    plim_piece out = plim_feed_get(t, p->s->tokens * p->row);
    plim_feed_put(t, &qkv);
    plim_feed_put(t, &mixed);
    return out;
}

static plim_piece feed_forward(const struct pass *p, const struct plim_layer *layer,
                               plim_piece *input)
{
    struct plim_feed *t = p->t;
    uint64_t inner = p->s->tokens * plim_layer_inner(layer) * p->element;
    plim_piece both = plim_feed_get(t, 2 * inner);
    plim_piece active = plim_feed_get(t, inner);
    plim_feed_put(t, &both);
    plim_piece out = plim_feed_get(t, p->s->tokens * p->row);
    plim_feed_put(t, &active);
    plim_feed_put(t, input);
    return out;
}

plim_piece plim_forward_paged(const struct plim_forward *f, struct plim_feed *t,
                              const struct plim_paged_step *step)
{
    const struct plim_geometry *g = f->geometry;
    struct pass p = {
        .t = t, .s = step, .row = (uint64_t)g->hidden * f->element, .element = f->element};
    plim_piece ids = plim_feed_get(t, step->tokens * 8);
    plim_piece embedded = plim_feed_get(t, step->tokens * p.row);
    plim_feed_put(t, &ids);
    plim_piece normed = plim_feed_get(t, step->tokens * p.row);
    plim_piece hidden = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        plim_piece out = mixer(&p, &g->layers[i]);
        plim_feed_put(t, &normed); /* the first layer's alone; later norms are in place */
        out = feed_forward(&p, &g->layers[i], &out);
        plim_feed_put(t, &hidden);
        hidden = out;
    }
    plim_feed_put(t, &embedded);
    return hidden;
}

void plim_step_sample(const struct plim_forward *f, struct plim_feed *t, uint64_t rows,
                      plim_piece *hidden, plim_piece *sampled, plim_piece *inputs)
{
    uint64_t vocab = f->geometry->vocab;
    plim_piece index = plim_feed_get(t, rows * 8);
    plim_piece last = plim_feed_get(t, rows * f->geometry->hidden * f->element);
    plim_feed_put(t, &index);
    plim_piece logits = plim_feed_get(t, rows * vocab * f->element);
    plim_feed_put(t, &inputs[0]);
    plim_feed_put(t, &inputs[1]);
    plim_piece exact = plim_feed_get(t, rows * vocab * 4);
    plim_piece best = plim_feed_get(t, rows * 8);
    plim_piece tokens = plim_feed_get(t, rows * 4);
    plim_feed_put(t, &best);
    plim_feed_put(t, &exact);
    plim_feed_put(t, &logits);
    plim_feed_put(t, hidden);
    plim_feed_put(t, &last);
    plim_feed_put(t, sampled);
    *sampled = tokens;
}

void plim_step_inputs(struct plim_feed *t, const struct plim_paged_step *step, plim_piece inputs[2])
{
    plim_piece flags = plim_feed_get(t, step->tokens * 4);
    plim_piece positions = plim_feed_get(t, step->tokens * 8);
    plim_feed_put(t, &flags);
    plim_piece slots = plim_feed_get(t, step->tokens * 8);
    plim_feed_put(t, &positions);
    plim_feed_put(t, &slots);
    plim_piece counts = plim_feed_get(t, step->rows * 4);
    plim_feed_put(t, &counts);
    inputs[0] = plim_feed_get(t, step->rows * 4);
    inputs[1] = plim_feed_get(t, step->plan_bytes);
}
