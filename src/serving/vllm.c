/* SPDX-License-Identifier: Apache-2.0 */

/* A start of vLLM from settings to blocks: the budget equation of v1/worker/gpu_worker.py. See vllm.h. */

#include "serving/vllm.h"

#include "serving/vllm_run.h"
#include "serving/vllm_settings.h"

#include <math.h>

/* The release that vLLM 0.33 is built for. */
#define ENGINE_TORCH ((struct plim_torch_version){2, 14})

/* What the engine asks of torch before it looks at free memory: workspaces of the matrix library. */
static uint64_t library_workspace(const struct plim_card *card)
{
    return card->cc >= 90 ? 32 * PLIM_MIB : 8519680; /* aten/cuda CublasHandlePool.cpp */
}

static void start_run(struct plim__run *run, const struct plim_geometry *g,
                      const struct plim_card *card, const struct plim_vllm_settings *set,
                      struct plim_tape *tape)
{
    bool known;
    *run = (struct plim__run){
        .set = set,
        .g = g,
        .card = card,
        .family = plim__vllm_family_of(g, &known),
        .tape = tape,
        .tokens = set->batched_tokens,
        .e = set->dtype == PLIM_DTYPE_F32 ? 4 : 2,
        .tp = set->at.tp,
    };
}

/* Memory that a process of the engine has taken before it looks: context, others, and the allocator's first
 * segment. */
static void baseline(struct plim_tape *tape, const struct plim_card *card,
                     struct plim_vllm_start *out)
{
    tape->step = "creating the handles of the matrix library";
    (void)plim_tape_take(tape, library_workspace(card));
    plim_tape_empty_cache(tape);
    out->baseline_free = plim_tape_free(tape);
    out->baseline_torch = library_workspace(card);
}

static void profile(struct plim__run *run, uint32_t first, uint32_t end,
                    struct plim_vllm_start *out)
{
    struct plim_tape *tape = run->tape;
    plim_tape_empty_cache(tape);
    plim_tape_reset_peak(tape);
    uint64_t before = plim_tape_allocated(tape);
    plim_tape_limit_split(tape, true);
    plim__profile(run, first, end, &out->forward_peak);
    plim_tape_limit_split(tape, false);
    plim_tape_empty_cache(tape);
    uint64_t after = plim_tape_allocated(tape);
    out->forward_peak = plim_sub_sat(out->forward_peak, before);
    out->profile_peak = plim_sub_sat(plim_tape_peak(tape), before);
    out->kept = plim_sub_sat(after, before);
    out->transient = plim_sub_sat(plim_tape_peak(tape), after);
    out->consumed = plim_sub_sat(out->baseline_free, plim_tape_free(tape));
}

/* From the empty device to the end of the profile run. */
static enum plim_status play(struct plim__run *run, struct plim_arena *arena,
                             struct plim_vllm_start *out, struct plim_err *err)
{
    struct plim_tape *tape = run->tape;
    uint32_t first, end;
    plim_stage_layers(run->g->n_layers, run->set->at.pp, run->set->at.pp_rank, &first, &end);
    baseline(tape, run->card, out);
    if (out->baseline_free < out->requested && run->set->kv_bytes == 0) {
        out->refusal = PLIM_VLLM_NO_FREE;
        return PLIM_OK;
    }
    plim__runner_buffers(run);
    uint64_t before = plim_tape_allocated(tape);
    plim_tape_limit_split(tape, true);
    PLIM_TRY(plim__load(run, arena, &out->weights, err));
    uint64_t loaded = plim_tape_allocated(tape);
    plim__sampler_state(run);
    plim_tape_limit_split(tape, false);
    out->load_peak = plim_tape_peak(tape);
    out->weights = plim_sub_sat(loaded, before);
    out->state = plim_sub_sat(plim_tape_allocated(tape), loaded) + before - out->baseline_torch;
    if (!tape->failed) {
        profile(run, first, end, out);
    }
    if (tape->failed) {
        bool loading = out->profile_peak == 0;
        out->refusal = loading ? PLIM_VLLM_NO_LOAD : PLIM_VLLM_NO_PROFILE;
    }
    return plim_tape_status(tape, err);
}

static void budget(struct plim_vllm_start *out)
{
    const struct plim_vllm_settings *set = &out->settings;
    out->available =
        (int64_t)out->requested - (int64_t)out->consumed - (int64_t)out->transient - out->outside;
    if (set->estimate_graphs) {
        out->available -= (int64_t)out->graph_estimate;
    }
    if (set->kv_bytes != 0) {
        out->available = (int64_t)plim_min_u64(set->kv_bytes, INT64_MAX);
    }
}

enum plim_status plim_vllm_play(struct plim_arena *arena, const struct plim_geometry *g,
                                const struct plim_card *card, const struct plim_vllm_flags *flags,
                                const char *settings, struct plim_vllm_start *out,
                                struct plim_err *err)
{
    struct plim_vllm_start s = {.outside = out->outside};
    struct plim_tape tape;
    struct plim__run run;
    PLIM_TRY(plim__vllm_settings(arena, g, card, flags, &s.settings, err));
    PLIM_TRY(plim__groups(arena, g, card, &s, err));
    s.requested = (uint64_t)ceil((double)card->total * s.settings.utilization);
    struct plim_tape_config config = {
        .total = card->total,
        .used = plim_min_u64(card->total, card->context + card->external),
        .version = ENGINE_TORCH,
        .settings = settings,
    };
    enum plim_status st = plim_tape_init(&tape, &config, err);
    if (st == PLIM_OK) {
        start_run(&run, g, card, &s.settings, &tape);
        st = play(&run, arena, &s, err);
    }
    if (st == PLIM_OK && s.refusal == PLIM_VLLM_STARTS) {
        plim__graph_memory(&run, &s);
        budget(&s);
        plim__plan_cache(&s);
    }
    if (tape.failed) {
        s.failed_bytes = tape.failure.requested;
        s.failed_step = tape.failed_step;
    }
    plim_tape_fini(&tape);
    if (st == PLIM_OK) {
        *out = s;
    }
    return st;
}
