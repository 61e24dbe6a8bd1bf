/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What CUDA graphs take: the engine's estimate, which it subtracts from the cache's budget, and what capturing
 * then really needs. Only allocator memory is counted; the driver's own memory for each graph node differs by
 * driver and is in the error.
 *
 * The engine captures every piecewise graph and the two largest full ones into a throw-away pool and measures
 * free memory around it. A capture begins by emptying the cache, so the warm-up run of the second full graph
 * counts as memory that the graph gave back: the estimate holds it once more, and 1 MiB for each further full
 * graph. Source: vllm 0.33.0 v1/worker/gpu/cudagraph_utils.py (profile_cudagraph_memory, capture,
 * _extrapolate_full_graph_memory); runner V1: v1/worker/gpu_model_runner.py.
 */

#include "serving/vllm_run.h"

#define PER_GRAPH  PLIM_MIB                 /* floor for each further full graph */
#define BIG_DEVICE (UINT64_C(1) << 44)      /* pools are played on a device that never fills */
#define NODE_BYTES (UINT64_C(8) * PLIM_KIB) /* of a graph node on a real driver, about */

/* A device of its own for a pool, whose segments are counted. */
static bool side_begin(struct plim__run *side, struct plim_tape *tape, const struct plim__run *run)
{
    struct plim_tape_config config = {
        .total = BIG_DEVICE, .version = run->tape->conf.version, .settings = ""};
    *side = *run;
    side->tape = tape;
    side->workspace = side->marlin_lock = side->rope_wide = 0;
    return plim_tape_init(tape, &config, NULL) == PLIM_OK;
}

/* A pass of a captured size; its result stays. */
static void pass(struct plim__run *side, uint64_t tokens, bool full)
{
    side->tokens = tokens;
    side->decoding = full;
    (void)plim__forward(side, 0, side->g->n_layers);
}

/* Segments of the pool of all captures. */
static uint64_t captured_bytes(const struct plim__run *run, uint64_t piecewise, uint64_t full)
{
    struct plim__run side;
    struct plim_tape tape;
    uint64_t bytes = 0;
    if (side_begin(&side, &tape, run)) {
        if (run->set->graphs_piecewise) {
            pass(&side, piecewise, false);
        }
        if (run->set->graphs_full) {
            pass(&side, full, true);
        }
        bytes = plim_tape_reserved(&tape);
    }
    plim_tape_fini(&tape);
    return bytes;
}

/* Warm-up runs in the ordinary pool: what the first leaves (workspaces of the capturing stream, its result),
 * and what the second takes in addition. */
static void warm_up(const struct plim__run *run, const uint64_t tokens[2], bool full,
                    uint64_t *left, uint64_t *second)
{
    struct plim__run side;
    struct plim_tape tape;
    *left = *second = 0;
    if (side_begin(&side, &tape, run)) {
        (void)plim_tape_take(&tape, run->card->cc >= 90 ? 32 * PLIM_MIB : 8519680);
        pass(&side, tokens[0], full);
        plim_tape_empty_cache(&tape);
        *left = plim_tape_reserved(&tape);
        if (full && tokens[1] != 0) {
            pass(&side, tokens[1], true);
            *second = plim_sub_sat(plim_tape_reserved(&tape), *left);
        }
    }
    plim_tape_fini(&tape);
}

/* The captured sizes below `most`, counted; the two largest in `top`. */
static uint32_t sizes_up_to(uint64_t most, uint64_t top[2])
{
    uint32_t n = 0;
    top[0] = top[1] = 0;
    for (uint64_t s = 1; s <= most; s = s == 4 ? 8 : s < 4 ? s * 2 : s < 256 ? s + 8 : s + 16) {
        top[1] = top[0];
        top[0] = s;
        n++;
    }
    return n;
}

void plim__graph_memory(struct plim__run *run, struct plim_vllm_start *s)
{
    const struct plim_vllm_settings *set = &s->settings;
    uint64_t all[2], full[2];
    if (!set->graphs_full && !set->graphs_piecewise) {
        return;
    }
    uint32_t n_all = sizes_up_to(set->max_capture, all);
    uint32_t n_full = sizes_up_to(plim_min_u64(set->max_capture, set->seqs), full);
    uint64_t left, second;
    uint64_t captured = captured_bytes(run, all[0], full[0]);
    warm_up(run, set->graphs_full ? full : all, set->graphs_full, &left, &second);
    s->graph_actual = captured + left;
    s->graph_estimate = captured + left;
    if (set->graphs_full && n_full > 0) {
        s->graph_estimate += second + (uint64_t)(n_full - 1) * PER_GRAPH;
    }
    uint64_t graphs = (set->graphs_full ? n_full : 0) +
                      (set->graphs_piecewise ? (uint64_t)n_all * run->g->n_layers / 4 : 0);
    s->graph_error = graphs * 12 * NODE_BYTES + 32 * PLIM_MIB;
}
