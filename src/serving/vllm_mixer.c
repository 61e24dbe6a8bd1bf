/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attention in a profile run: projections, the tensors around the kernel, and what the kernel is skipped for
 * (no cache exists yet). Multi-head latent attention also takes the room of the largest context that chunked
 * prefill would expand (layers/attention/mla_attention.py determine_chunked_prefill_workspace_size).
 */

#include "serving/vllm_run.h"

static uint64_t heads_of(const struct plim__run *run, uint32_t heads)
{
    return heads / run->tp > 0 ? heads / run->tp : 1;
}

/* q * sigmoid(gate) behind the kernel (Qwen3-Next, Qwen3.5: layers/fused_qk_norm_rope.py). */
static bool has_gate(const struct plim__run *run, const struct plim_layer *l)
{
    return run->family->shape == PLIM__SHAPE_PRE && run->family->norm == PLIM__NORM_GEMMA &&
           l->mixer == PLIM_MIXER_FULL;
}

static plim_tensor attention_gated(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t q = heads_of(run, l->heads) * l->head_dim,
             kv = heads_of(run, l->kv_heads) * l->head_dim;
    uint64_t wide = run->tokens * q * run->e;
    plim_tensor qkv = plim__linear(run, run->g->hidden, 2 * q + 2 * kv);
    plim_tensor query = plim_tape_take(t, wide);
    plim_tensor key = plim_tape_take(t, run->tokens * kv * run->e);
    plim_tensor gate = plim_tape_take(t, wide);
    plim_tensor seen = plim_tape_take(t, wide);
    plim_tensor open = plim_tape_take(t, wide);
    plim_tensor gated = plim_tape_take(t, wide);
    plim_tape_drop(t, open);
    plim_tape_drop(t, seen);
    plim_tensor out = plim__linear(run, q, run->g->hidden);
    plim_tape_drop(t, query);
    plim_tape_drop(t, key);
    plim_tape_drop(t, qkv);
    plim_tape_drop(t, gate);
    plim_tape_drop(t, gated);
    return out;
}

/* An fp32 table of a YaRN-scaled model becomes one of the model's type at its first use
 * (layers/rotary_embedding/base.py _match_cos_sin_cache_dtype). */
static void cast_rope(struct plim__run *run)
{
    if (run->rope_wide != 0) {
        (void)plim_tape_take(run->tape, run->rope_bytes);
        plim_tape_drop(run->tape, run->rope_wide);
        run->rope_wide = 0;
    }
}

/* FlashAttention 3 splits the keys of a decode step into at most 32 parts, each with sums in fp32
 * (v1/attention/backends/flash_attn.py, VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH). */
#define DECODE_SPLITS 32U

void plim__attention_scratch(struct plim__run *run, const struct plim_layer *l)
{
    if (!run->decoding || run->card->cc / 10 != 9) {
        return;
    }
    uint64_t width = l->mixer == PLIM_MIXER_MLA ? l->kv_lora_rank : l->v_head_dim;
    uint64_t rows = run->tokens * heads_of(run, l->heads) * DECODE_SPLITS * 4;
    plim_tensor sums = plim_tape_take(run->tape, rows * width);
    plim_tape_touch(run->tape, rows);
    plim_tape_drop(run->tape, sums);
}

static plim_tensor attention(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t q = heads_of(run, l->heads) * l->head_dim;
    uint64_t k = heads_of(run, l->kv_heads) * l->head_dim;
    uint64_t v = heads_of(run, l->kv_heads) * l->v_head_dim;
    uint64_t seen = heads_of(run, l->heads) * l->v_head_dim;
    plim_tensor qkv = plim__linear(run, run->g->hidden, q + k + v);
    plim_tensor query = 0, key = 0;
    if (run->g->qk_norm) {
        query = plim__norm(run, qkv, run->tokens * (q / l->head_dim), l->head_dim);
        key = plim__norm(run, qkv, run->tokens * (k / l->head_dim), l->head_dim);
    }
    cast_rope(run);
    plim_tensor attended = plim_tape_take(t, run->tokens * seen * run->e);
    plim__attention_scratch(run, l);
    plim_tensor out = plim__linear(run, seen, run->g->hidden);
    plim_tape_drop(t, query);
    plim_tape_drop(t, key);
    plim_tape_drop(t, qkv);
    plim_tape_drop(t, attended);
    return out;
}

/* One side of the rotary embedding that runs operation by operation (deepseek_scaling_rope.py). */
static plim_tensor rope_side(struct plim__run *run, uint64_t bytes)
{
    struct plim_tape *t = run->tape;
    plim_tensor direct = plim_tape_take(t, bytes);
    plim_tensor half = plim_tape_take(t, bytes / 2);
    plim_tensor turned = plim_tape_take(t, bytes);
    plim_tape_drop(t, half);
    plim_tensor scaled = plim_tape_take(t, bytes);
    plim_tape_drop(t, turned);
    plim_tensor sum = plim_tape_take(t, bytes);
    plim_tape_drop(t, direct);
    plim_tape_drop(t, scaled);
    return sum;
}

/* Gives the rotated key part, which stays; the query's is copied into place. */
static plim_tensor rope_native(struct plim__run *run, const struct plim_layer *l, uint64_t heads)
{
    struct plim_tape *t = run->tape;
    uint64_t row = run->tokens * l->qk_rope_dim * run->e;
    plim_tensor table = plim_tape_take(t, row);
    plim_tensor cosine = plim_tape_take(t, row);
    plim_tensor sine = plim_tape_take(t, row);
    plim_tensor query = rope_side(run, row * heads);
    plim_tensor key = rope_side(run, row);
    plim_tape_drop(t, table);
    plim_tape_drop(t, cosine);
    plim_tape_drop(t, sine);
    plim_tape_drop(t, query);
    return key;
}

void plim__latent_context(struct plim__run *run, const struct plim_layer *l)
{
    const struct plim_vllm_settings *set = run->set;
    if (!run->profiling) {
        return;
    }
    uint64_t rows =
        plim_min_u64(plim_max_u64(8 * set->max_model_len, 4 * set->seqs * set->block_size), 65536);
    plim_tape_touch(run->tape,
                    rows * heads_of(run, l->heads) * (l->qk_nope_dim + l->v_head_dim) * run->e);
}

static bool rope_is_native(const struct plim__run *run, const struct plim_layer *l)
{
    return l->rope < run->g->n_ropes && strstr(run->g->ropes[l->rope].type, "yarn") != NULL;
}

static plim_tensor mla(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, e = run->e, heads = heads_of(run, l->heads);
    uint64_t latent = l->kv_lora_rank + l->qk_rope_dim;
    plim_tensor first = plim__linear(run, run->g->hidden, l->q_lora_rank + latent);
    plim_tensor q_norm = l->q_lora_rank != 0 ? plim_tape_take(t, n * l->q_lora_rank * e) : 0;
    plim_tensor kv_norm = 0, query;
    if (l->q_lora_rank == 0) {
        kv_norm = plim_tape_take(t, n * l->kv_lora_rank * e);
        query = plim__linear(run, run->g->hidden, heads * l->head_dim);
    } else {
        query = plim__linear(run, l->q_lora_rank, heads * l->head_dim);
        kv_norm = plim_tape_take(t, n * l->kv_lora_rank * e);
    }
    plim_tensor key = rope_is_native(run, l) ? rope_native(run, l, heads) : 0;
    plim_tensor attended = plim_tape_take(t, n * heads * l->v_head_dim * e);
    plim__attention_scratch(run, l);
    plim__latent_context(run, l);
    plim_tensor out = plim__linear(run, heads * l->v_head_dim, run->g->hidden);
    plim_tape_drop(t, first);
    plim_tape_drop(t, key);
    plim_tape_drop(t, q_norm);
    plim_tape_drop(t, kv_norm);
    plim_tape_drop(t, query);
    plim_tape_drop(t, attended);
    return out;
}

plim_tensor plim__mixer(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    switch (l->mixer) {
    case PLIM_MIXER_MLA:
        return mla(run, l);
    case PLIM_MIXER_FULL:
    case PLIM_MIXER_SLIDING:
    case PLIM_MIXER_CHUNKED:
        return has_gate(run, l) ? attention_gated(run, l) : attention(run, l);
    default:
        return plim__recurrent(run, l, x);
    }
}
