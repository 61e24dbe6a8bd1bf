/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The runner's own tensors and the sampler of the profile run. Runner V2 keeps, for each of max_num_seqs
 * requests, counts of every vocabulary entry (penalties), bit masks and bias lists; runner V1 keeps input
 * embeddings of a whole batch instead. The top-k/top-p kernel keeps a buffer of one row of logits for each
 * multiprocessor.
 * Source: v1/worker/gpu/{states,input_batch,model_runner}.py, v1/worker/gpu/sample/, v1/worker/
 * gpu_model_runner.py, v1/sample/ops/topk_topp_triton.py.
 */

#include "serving/vllm_run.h"

static void take_all(struct plim__run *run, const uint64_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)plim_tape_take(run->tape, bytes[i]);
    }
}

#define TAKE_ALL(run, ...)                                                                         \
    take_all(run, (const uint64_t[]){__VA_ARGS__},                                                 \
             sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static uint64_t rows_of(const struct plim__run *run)
{
    return plim_min_u64(run->set->seqs, run->tokens);
}

void plim__runner_buffers(struct plim__run *run)
{
    uint64_t r = run->set->seqs, n = run->tokens, h = run->g->hidden;
    run->tape->step = "making the runner's buffers";
    if (run->set->v2) {
        TAKE_ALL(run, 4 * r, 4 * r, 8 * r, 4 * r, 4 * n, 8 * n, n, 4 * (r + 1), 4 * r, 4 * r);
        return;
    }
    uint64_t columns = plim_ceil_div(run->set->max_model_len, run->set->block_size);
    TAKE_ALL(run, 4 * r, r * columns * 4, 8 * n, 4 * r, 4 * r, 4 * r, 4 * r, 4 * r, 4 * r);
    TAKE_ALL(run, 4 * n, 8 * n, n, 4 * (r + 1), 4 * r, 4 * r, 4 * r, 8 * n, 8 * r, 4 * r, 4 * r);
    TAKE_ALL(run, n * h * run->e, n, r, 4 * r, 4 * r, 8 * n);
}

/* Mask of one bit for each entry of the vocabulary, a row for each request. */
static uint64_t mask_bytes(const struct plim__run *run)
{
    return run->set->seqs * plim_ceil_div(run->g->vocab, 32) * 4;
}

static bool has_state(const struct plim_geometry *g)
{
    for (uint32_t i = 0; i < g->n_layers; i++) {
        if (g->layers[i].mixer != PLIM_MIXER_NONE && !plim_layer_is_attention(&g->layers[i])) {
            return true;
        }
    }
    return false;
}

void plim__sampler_state(struct plim__run *run)
{
    uint64_t r = run->set->seqs;
    if (!run->set->v2) {
        return;
    }
    run->tape->step = "making the sampler's state";
    if (has_state(run->g)) {
        TAKE_ALL(run, 4 * r);
        if (run->set->prefix_caching) {
            TAKE_ALL(run, 4 * r, 4 * r, 4 * r);
        }
    }
    /* Limits of the request parameters: 1024 bias entries, stop and bad-word tokens, 128 logprob ids. */
    TAKE_ALL(run, mask_bytes(run), r * run->g->vocab * 4, r * 4096, r * 4096, r * 4096, r * 512,
             r * 4096, r * 516, r * 512, 4 * r, mask_bytes(run));
}

/* Buffers of the top-k/top-p kernel: kept for good once made. */
static void topk_buffer(struct plim__run *run)
{
    uint64_t programs = plim_min_u64(run->card->sms, rows_of(run));
    TAKE_ALL(run, 4 * (uint64_t)run->g->vocab * programs, 800, 800);
}

/* torch.topk of many rows: counts for each block of 64 * 256 elements (aten/cuda TensorTopK.cu). */
static void topk_touch(struct plim__run *run, uint64_t rows)
{
    uint64_t blocks = rows * plim_ceil_div(run->g->vocab, 16384);
    plim_tensor counts = plim_tape_take(run->tape, blocks * 512);
    plim_tape_touch(run->tape, rows * 1024);
    plim_tape_drop(run->tape, counts);
}

static void sample_v2(struct plim__run *run, bool processed)
{
    struct plim_tape *t = run->tape;
    uint64_t r = rows_of(run), blocks = plim_ceil_div(run->g->vocab, 1024);
    plim_tensor positions = plim_tape_take(t, 8 * r), ids = plim_tape_take(t, 4 * r), logits32 = 0;
    if (processed) {
        logits32 = plim_tape_take(t, r * run->g->vocab * 4);
        topk_buffer(run);
    }
    plim_tensor value = plim_tape_take(t, r * blocks * 8);
    plim_tensor index = plim_tape_take(t, r * blocks * 4);
    plim_tensor best = plim_tape_take(t, 8 * r), sampled = plim_tape_take(t, 8 * r);
    plim_tape_drop(t, value);
    plim_tape_drop(t, index);
    plim_tape_drop(t, best);
    if (processed) {
        topk_touch(run, r);
    }
    plim_tape_drop(t, positions);
    plim_tape_drop(t, ids);
    plim_tape_drop(t, logits32);
    plim_tape_drop(t, sampled);
}

/* The V1 sampler copies logits to fp32 and draws from probabilities and noise of the same size. */
static void sample_v1(struct plim__run *run, bool first)
{
    struct plim_tape *t = run->tape;
    uint64_t r = rows_of(run), wide = r * run->g->vocab * 4;
    plim_tensor logits32 = plim_tape_take(t, wide);
    plim_tensor greedy = plim_tape_take(t, 8 * r);
    if (first) {
        topk_buffer(run);
    }
    plim_tensor probabilities = plim_tape_take(t, wide);
    plim_tensor noise = plim_tape_take(t, wide);
    plim_tape_touch(t, 8 * r);
    plim_tape_drop(t, noise);
    plim_tape_drop(t, probabilities);
    plim_tape_drop(t, greedy);
    plim_tape_drop(t, logits32);
}

static void sampler(struct plim__run *run, plim_tensor sampled_hidden)
{
    struct plim_tape *t = run->tape;
    uint64_t r = rows_of(run), logits = r * run->g->vocab * run->e;
    plim_tensor copy =
        run->set->v2 ? 0 : plim_tape_take(t, r * run->g->hidden * run->e); /* normal noise */
    plim_tensor gathered = 0;
    if (run->tp > 1) {
        gathered = plim_tape_take(t, logits / run->tp);
    }
    plim_tensor scores = plim_tape_take(t, logits);
    (void)sampled_hidden;
    plim_tensor batch[] = {plim_tape_take(t, 8 * r), plim_tape_take(t, 4 * r),
                           plim_tape_take(t, 4 * r), plim_tape_take(t, 4 * (r + 1))};
    for (int pass = 0; pass < 2; pass++) {
        if (run->set->v2) {
            sample_v2(run, pass == 1);
        } else {
            sample_v1(run, pass == 0);
        }
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(batch); i++) {
        plim_tape_drop(t, batch[i]);
    }
    plim_tape_drop(t, scores);
    plim_tape_drop(t, gathered);
    plim_tape_drop(t, copy);
}

void plim__profile(struct plim__run *run, uint32_t first, uint32_t end, uint64_t *forward_peak)
{
    struct plim_tape *t = run->tape;
    uint64_t r = rows_of(run);
    t->step = "the profile run: one pass of max_num_batched_tokens tokens";
    plim_tensor batch[] = {0, 0, 0, 0};
    if (run->set->v2) {
        batch[0] = plim_tape_take(t, 8 * r);
        batch[1] = plim_tape_take(t, 4 * r);
        plim_tape_touch(t, 1023);
        batch[2] = plim_tape_take(t, 4 * r);
        batch[3] = plim_tape_take(t, 4 * (r + 1));
    }
    run->profiling = true;
    plim_tensor hidden = plim__forward(run, first, end);
    run->profiling = false;
    for (size_t i = 0; i < PLIM_COUNT_OF(batch); i++) {
        plim_tape_drop(t, batch[i]);
    }
    plim_tensor indices = plim_tape_take(t, 8 * r);
    plim_tensor sampled_hidden = plim_tape_take(t, r * run->g->hidden * run->e);
    plim_tape_drop(t, indices);
    *forward_peak = plim_tape_peak(t);
    if (end == run->g->n_layers) {
        t->step = "the profile run: sampling max_num_seqs rows";
        sampler(run, sampled_hidden);
    }
    plim_tape_drop(t, sampled_hidden);
    plim_tape_drop(t, hidden);
}
