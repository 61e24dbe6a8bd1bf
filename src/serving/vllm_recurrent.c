/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Recurrent mixers in a profile run: Mamba 1 and 2 and gated delta nets. Their scan kernels are skipped (there
 * is no state yet) but tuned once with small inputs, which takes a benchmark buffer of 256 MiB for Mamba 2.
 * Source: layers/mamba/mamba_mixer.py, mamba_mixer2.py, qwen_gdn_linear_attn.py.
 */

#include "serving/vllm_run.h"

#define TUNING_BUFFER (UINT64_C(256) << 20) /* triton's do_bench clears the L2 cache with it */

static plim_tensor mamba1(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t inner = l->state_heads / run->tp, wide = run->tokens * inner * run->e;
    plim_tensor into = plim__linear_plain16(run, 2 * inner);
    plim_tensor scanned = plim_tape_take(t, wide);
    plim_tensor out = plim__linear(run, inner, run->g->hidden);
    plim_tape_drop(t, scanned);
    plim_tape_drop(t, into);
    return out;
}

/* RMS norm with a gate in fp32, operation by operation. */
static plim_tensor gated_norm(struct plim__run *run, uint64_t width)
{
    struct plim_tape *t = run->tape;
    uint64_t wide = run->tokens * width * 4, narrow = run->tokens * width * run->e;
    plim_tensor gate = plim_tape_take(t, wide);
    plim_tape_touch(t, wide);
    plim_tensor x = plim_tape_take(t, wide);
    plim_tape_drop(t, gate);
    plim_tape_touch(t, wide);
    plim_tensor scaled = plim_tape_take(t, wide);
    plim_tape_drop(t, x);
    plim_tensor cast = plim_tape_take(t, narrow);
    plim_tensor result = plim_tape_take(t, narrow);
    plim_tape_drop(t, scaled);
    plim_tape_drop(t, cast);
    return result;
}

static plim_tensor mamba2(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t heads = l->state_heads / run->tp, inner = heads * l->state_rows;
    uint64_t groups = plim_max_u64(l->state_groups / run->tp, 1);
    plim_tensor into = plim__linear_plain16(run, 2 * inner + 2 * groups * l->state_cols + heads);
    plim_tensor scanned = plim_tape_take(t, run->tokens * inner * run->e);
    if (!run->recurrent_warm) {
        run->recurrent_warm = true;
        plim_tape_touch(t, TUNING_BUFFER);
    }
    plim_tape_touch(t, run->tokens * (inner + 2 * groups * l->state_cols) * run->e);
    plim_tensor normed = gated_norm(run, inner);
    plim_tensor out = plim__linear(run, inner, run->g->hidden);
    plim_tape_drop(t, normed);
    plim_tape_drop(t, scanned);
    plim_tape_drop(t, into);
    return out;
}

/* The engine sizes the buffer of prefill checkpoints while it profiles, fp32 states of one batch, and runs the
 * kernels once on 64 tokens. */
static void warm_delta(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t heads = l->state_heads / run->tp;
    if (plim__prefill_checkpoints(run->set, run->card, l->mixer)) {
        plim__workspace(run, plim_ceil_div(run->tokens, run->set->block_size) * heads *
                                 l->state_rows * l->state_cols * 4);
    }
    plim_tensor mixed = plim_tape_take(t, 64 * (uint64_t)(l->conv_channels / run->tp) * run->e);
    plim_tensor state = plim_tape_take(t, heads * l->state_rows * l->state_cols * run->e);
    plim_tape_drop(t, mixed);
    plim_tape_drop(t, state);
    plim_tape_empty_cache(t);
}

static plim_tensor gated_delta(struct plim__run *run, const struct plim_layer *l)
{
    struct plim_tape *t = run->tape;
    uint64_t n = run->tokens, e = run->e, tp = run->tp;
    uint64_t keys = (uint64_t)l->state_groups * l->state_cols / tp;
    uint64_t values = (uint64_t)l->state_heads * l->state_rows / tp;
    uint64_t heads = l->state_heads / tp;
    plim_tensor qkvz = plim__linear_plain16(run, 2 * keys + 2 * values);
    plim_tensor ba = plim__linear_plain16(run, 2 * heads);
    plim_tensor value = plim_tape_take(t, n * values * e);
    plim_tensor z = plim_tape_take(t, n * values * e);
    plim_tensor b = plim_tape_take(t, n * heads * e);
    plim_tensor a = plim_tape_take(t, n * heads * e);
    plim_tensor query = plim_tape_take(t, n * keys * e);
    plim_tensor key = plim_tape_take(t, n * keys * e);
    plim_tensor mixed = plim_tape_take(t, n * (2 * keys + values) * e);
    plim_tensor core = plim_tape_take(t, n * values * e);
    warm_delta(run, l);
    plim_tensor normed = plim_tape_take(t, n * values * e);
    plim_tape_touch(t, n * heads * 4);
    plim_tensor out = plim__linear(run, values, run->g->hidden);
    plim_tensor all[] = {normed, qkvz, ba, core, query, key, value, z, b, a, mixed};
    for (size_t i = 0; i < PLIM_COUNT_OF(all); i++) {
        plim_tape_drop(t, all[i]);
    }
    return out;
}

plim_tensor plim__recurrent(struct plim__run *run, const struct plim_layer *l, plim_tensor x)
{
    (void)x;
    switch (l->mixer) {
    case PLIM_MIXER_MAMBA1:
        return mamba1(run, l);
    case PLIM_MIXER_MAMBA2:
        return mamba2(run, l);
    case PLIM_MIXER_GATED_DELTA:
        return gated_delta(run, l);
    default: /* KDA, linear attention, short convolutions: as wide as the delta net's values */
        return plim__linear_plain16(run, run->g->hidden);
    }
}
