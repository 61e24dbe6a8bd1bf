/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Linear layers, norms and the shared workspace, as vLLM allocates them for a step of `tokens` tokens.
 *
 *   plain     the result                                    (layers/utils.py default_unquantized_gemm)
 *   w8a8      the input in fp8 and its scales, the result   (layers/quantization/input_quant_fp8.py)
 *   Marlin    the result and, while the kernel runs, fp32 sums of 64 x 256 for each multiprocessor
 *             (layers/quantization/utils/marlin_utils.py, csrc/quantization/marlin)
 *
 * Norms: one fused kernel (RMSNorm), torch's layer_norm with its saved mean and variance, or Gemma's, which
 * eager mode runs operation by operation in fp32 (layers/layernorm.py, ir/ops/layernorm.py).
 */

#include "serving/vllm_run.h"

plim_tensor plim__linear_plain16(struct plim__run *run, uint64_t out)
{
    return plim_tape_take(run->tape, run->tokens * out * run->e);
}

/* The fp8 copy of the input and its scales, around the product. */
static plim_tensor linear_fp8(struct plim__run *run, uint64_t in, uint64_t out)
{
    struct plim_tape *t = run->tape;
    uint64_t scales =
        run->set->linear == PLIM_VLLM_FP8_BLOCK ? plim_ceil_div(in, 128) : 1; /* of a row */
    plim_tensor q = plim_tape_take(t, run->tokens * in);
    plim_tensor s = plim_tape_take(t, run->tokens * scales * 4);
    plim_tensor result = plim__linear_plain16(run, out);
    plim_tape_drop(t, s);
    plim_tape_drop(t, q);
    return result;
}

static plim_tensor linear_marlin(struct plim__run *run, uint64_t out)
{
    struct plim_tape *t = run->tape;
    uint64_t sms = run->card->sms;
    if (run->marlin_lock == 0) {
        run->marlin_lock = plim_tape_take(t, sms * 16);
    }
    plim_tensor result = plim__linear_plain16(run, out);
    uint64_t sums = run->tokens * out < sms * 64 * 256 ? run->tokens * out : sms * 64 * 256;
    plim_tape_touch(t, sums * 4);
    return result;
}

plim_tensor plim__linear(struct plim__run *run, uint64_t in, uint64_t out)
{
    switch (run->set->linear) {
    case PLIM_VLLM_FP8:
    case PLIM_VLLM_FP8_BLOCK:
        return linear_fp8(run, in, out);
    case PLIM_VLLM_MARLIN:
        return linear_marlin(run, out);
    case PLIM_VLLM_PLAIN:
        break;
    }
    return plim__linear_plain16(run, out);
}

/* x * rsqrt(mean(x^2)) * (1 + w): what follows the fp32 copy `x32`, which this lets go of. */
static plim_tensor gemma_scale(struct plim__run *run, plim_tensor x32, plim_tensor weight,
                               uint64_t rows, uint64_t width)
{
    struct plim_tape *t = run->tape;
    uint64_t wide = rows * width * 4;
    plim_tensor square = plim_tape_take(t, wide);
    plim_tensor mean = plim_tape_take(t, rows * 4);
    plim_tape_drop(t, square);
    plim_tensor sum = plim_tape_take(t, rows * 4);
    plim_tensor root = plim_tape_take(t, rows * 4);
    plim_tape_drop(t, sum);
    plim_tensor scaled = plim_tape_take(t, wide);
    plim_tape_drop(t, root);
    plim_tensor weighted = plim_tape_take(t, wide);
    plim_tape_drop(t, scaled);
    plim_tensor result = plim_tape_take(t, rows * width * run->e);
    plim_tape_drop(t, weighted);
    plim_tape_drop(t, x32);
    plim_tape_drop(t, mean);
    plim_tape_drop(t, weight);
    return result;
}

/* 1 + w in fp32. */
static plim_tensor gemma_weight(struct plim__run *run, uint64_t width)
{
    plim_tensor w32 = plim_tape_take(run->tape, width * 4);
    plim_tensor weight = plim_tape_take(run->tape, width * 4);
    plim_tape_drop(run->tape, w32);
    return weight;
}

plim_tensor plim__norm(struct plim__run *run, plim_tensor x, uint64_t rows, uint64_t width)
{
    struct plim_tape *t = run->tape;
    (void)x; /* read only */
    if (run->family->norm == PLIM__NORM_GEMMA && !run->set->compiled) {
        plim_tensor weight = gemma_weight(run, width);
        return gemma_scale(run, plim_tape_take(t, rows * width * 4), weight, rows, width);
    }
    plim_tensor result = plim_tape_take(t, rows * width * run->e);
    if (run->family->norm == PLIM__NORM_LAYER) {
        plim_tensor mean = plim_tape_take(t, rows * 4);
        plim_tape_touch(t, rows * 4);
        plim_tape_drop(t, mean);
    }
    return result;
}

struct plim__stream plim__norm_add(struct plim__run *run, struct plim__stream in, uint64_t width)
{
    struct plim_tape *t = run->tape;
    if (run->family->norm != PLIM__NORM_GEMMA || run->set->compiled) {
        return (struct plim__stream){plim_tape_hold(t, in.hidden), plim_tape_hold(t, in.residual)};
    }
    uint64_t rows = run->tokens, wide = rows * width * 4;
    plim_tensor weight = gemma_weight(run, width);
    plim_tensor x32 = plim_tape_take(t, wide);
    plim_tensor residual32 = plim_tape_take(t, wide);
    plim_tensor sum = plim_tape_take(t, wide);
    plim_tape_drop(t, residual32);
    plim_tape_drop(t, x32);
    plim_tensor residual = plim_tape_take(t, rows * width * run->e);
    plim_tensor hidden = gemma_scale(run, sum, weight, rows, width);
    return (struct plim__stream){hidden, residual};
}

void plim__workspace(struct plim__run *run, uint64_t bytes)
{
    if (bytes <= run->workspace_bytes) {
        return;
    }
    /* v1/worker/workspace.py: the old one goes, the cache is emptied, the new one is made. */
    plim_tape_drop(run->tape, run->workspace);
    plim_tape_empty_cache(run->tape);
    run->workspace = plim_tape_take(run->tape, bytes);
    run->workspace_bytes = bytes;
}
