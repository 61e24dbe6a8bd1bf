/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A forward pass under torch.compile. The graph is cut at attention: a piece reaches from one attention's
 * output over its projection, the feed-forward part and the next layer's projections. A piece holds its inputs
 * (attention's output and the residual) until it returns, and reuses the buffers that it made itself; the
 * residual is summed only when it is handed on. Source: the generated code and its allocations under vllm
 * 0.33.0 with torch 2.14.1.
 */

#include "serving/vllm_run.h"

/* What a piece hands to the next one. */
struct piece {
    plim_tensor mixed; /* output of attention, or of a recurrent mixer with its projection */
    plim_tensor residual;
    bool projected;      /* `mixed` is as wide as the hidden states already */
    plim_tensor used[3]; /* what attention reads: let go of when it is done */
};

static uint64_t row(const struct plim__run *run)
{
    return run->tokens * run->g->hidden * run->e;
}

static uint64_t local_heads(const struct plim__run *run, uint32_t heads)
{
    return plim_max_u64(heads / run->tp, 1);
}

/* Width of attention's output on this device. */
static uint64_t attended_width(const struct plim__run *run, const struct plim_layer *l)
{
    return local_heads(run, l->heads) * l->v_head_dim;
}

/* Projections, rotary embedding and the output of attention, behind its norm `x`, which is let go of. */
static void project(struct plim__run *run, const struct plim_layer *l, plim_tensor x,
                    struct piece *p)
{
    struct plim_tape *t = run->tape;
    uint64_t q = local_heads(run, l->heads) * l->head_dim;
    uint64_t k = local_heads(run, l->kv_heads) * l->head_dim;
    uint64_t v = local_heads(run, l->kv_heads) * l->v_head_dim;
    p->used[0] = plim__linear(run, run->g->hidden, q + k + v);
    bool same = attended_width(run, l) == run->g->hidden; /* the norm's buffer serves for queries */
    p->used[1] = same ? x : plim_tape_take(t, run->tokens * q * run->e);
    if (!same) {
        plim_tape_drop(t, x);
    }
    p->used[2] = plim_tape_take(t, run->tokens * k * run->e);
    p->mixed = plim_tape_take(t, run->tokens * attended_width(run, l) * run->e);
}

/* Latent attention: its rotary embedding is compiled, the context is expanded inside the call. */
static void project_latent(struct plim__run *run, const struct plim_layer *l, plim_tensor x,
                           struct piece *p)
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, e = run->e;
    uint64_t q = local_heads(run, l->heads) * l->head_dim;
    plim_tensor first =
        plim__linear(run, run->g->hidden, l->q_lora_rank + l->kv_lora_rank + l->qk_rope_dim);
    p->used[0] = plim_tape_take(t, n * l->kv_lora_rank * e);
    p->used[1] = plim_tape_take(t, n * l->qk_rope_dim * e);
    plim_tape_drop(t, first);
    plim_tensor query = plim__linear(run, l->q_lora_rank ? l->q_lora_rank : run->g->hidden, q);
    p->used[2] = plim_tape_take(t, n * q * e);
    plim_tape_drop(t, query);
    plim_tape_drop(t, x);
    p->mixed = plim_tape_take(t, n * attended_width(run, l) * e);
}

/* The end of a piece: norm and projections of layer `l` behind the residual, which stays. */
static struct piece begin_layer(struct plim__run *run, const struct plim_layer *l,
                                plim_tensor residual)
{
    plim_tensor normed = plim_tape_take(run->tape, row(run));
    struct piece p = {.residual = residual};
    if (l->mixer == PLIM_MIXER_MLA) {
        project_latent(run, l, normed, &p);
    } else if (plim_layer_is_attention(l)) {
        project(run, l, normed, &p);
    } else if (l->mixer == PLIM_MIXER_NONE) {
        p.projected = true;
        p.mixed = normed;
    } else {
        p.projected = true;
        p.mixed = plim__mixer(run, l, normed);
        plim_tape_drop(run->tape, normed);
    }
    return p;
}

/* Attention itself, between two pieces. */
static void attend(struct plim__run *run, const struct plim_layer *l, struct piece *p)
{
    if (p->projected) {
        return;
    }
    if (l->mixer == PLIM_MIXER_MLA) {
        plim__latent_context(run, l);
    }
    plim__attention_scratch(run, l);
    for (size_t i = 0; i < PLIM_COUNT_OF(p->used); i++) {
        plim_tape_drop(run->tape, p->used[i]);
        p->used[i] = 0;
    }
}

/* Experts are a call of their own, so the sum with the residual exists before it. */
static plim_tensor feed_forward(struct plim__run *run, const struct plim_layer *l,
                                plim_tensor normed)
{
    struct plim_tape *t = run->tape;
    if (l->ffn == PLIM_FFN_MOE) {
        plim_tensor sum = plim_tape_take(t, row(run));
        plim_tensor out = plim__ffn(run, l, normed);
        plim_tape_drop(t, sum);
        plim_tape_drop(t, normed);
        return out;
    }
    uint64_t inner = l->intermediate / run->tp;
    plim_tensor up = plim__linear(run, run->g->hidden, inner * (run->g->gated ? 2 : 1));
    plim_tape_drop(t, normed);
    plim_tensor act = plim_tape_take(t, run->tokens * inner * run->e);
    plim_tape_drop(t, up);
    plim_tensor down = plim__linear(run, inner, run->g->hidden);
    plim_tape_drop(t, act);
    return down;
}

/* From attention's output of layer `l` to the input of the next one's mixer. Gives the new residual. */
static plim_tensor end_layer(struct plim__run *run, const struct plim_layer *l,
                             const struct piece *p)
{
    struct plim_tape *t = run->tape;
    plim_tensor out = p->projected ? plim_tape_hold(t, p->mixed)
                                   : plim__linear(run, attended_width(run, l), run->g->hidden);
    plim_tensor summed = out;
    if (l->ffn != PLIM_FFN_NONE) {
        plim_tensor down = feed_forward(run, l, plim_tape_take(t, row(run)));
        summed = plim_tape_take(t, row(run));
        plim_tape_drop(t, out);
        plim_tape_drop(t, down);
    }
    return summed;
}

/* Inductor times its kernels on copies of their inputs when it compiles: for the first piece that is the whole
 * embedding matrix. Not when the compilation cache of an earlier start is found. */
static void tune_embedding(struct plim__run *run)
{
    struct plim_tape *t = run->tape;
    uint64_t vocab = plim_round_up(run->g->vocab, run->set->at.vocab_pad) / run->tp;
    plim_tensor copy = plim_tape_take(t, vocab * run->g->hidden * run->e);
    plim_tensor out = plim_tape_take(t, row(run));
    plim_tape_touch(t, row(run));
    plim_tape_drop(t, out);
    plim_tape_drop(t, copy);
}

plim_tensor plim__forward_compiled(struct plim__run *run, uint32_t first, uint32_t end)
{
    struct plim_tape *t = run->tape;
    if (run->profiling) {
        tune_embedding(run);
    }
    plim_tensor residual = plim_tape_take(t, row(run));
    struct piece p = begin_layer(run, &run->g->layers[first], residual);
    attend(run, &run->g->layers[first], &p);
    for (uint32_t i = first; i < end; i++) {
        residual = end_layer(run, &run->g->layers[i], &p);
        struct piece next;
        if (i + 1 < end) {
            next = begin_layer(run, &run->g->layers[i + 1], residual);
        } else {
            next = (struct piece){.mixed = plim_tape_take(t, row(run)), .residual = residual};
        }
        plim_tape_drop(t, p.mixed);
        plim_tape_drop(t, p.residual);
        if (i + 1 < end) {
            attend(run, &run->g->layers[i + 1], &next);
        }
        p = next;
    }
    plim_tape_drop(t, p.residual);
    return p.mixed;
}
