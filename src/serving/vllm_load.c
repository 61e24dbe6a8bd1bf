/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loading: every weight of this rank in the order of the model's constructors, fused as the engine fuses them
 * (qkv, gate and up), the rotary tables, and per-layer scales. Vocabulary matrices are padded to 64 rows.
 * The cache is emptied when the weights are in place (v1/worker/gpu/model_runner.py load_model).
 * Packed weights are repacked for the Marlin kernels afterwards, layer by layer: the same number of bytes
 * again while one layer is converted (layers/quantization/utils/marlin_utils.py).
 */

#include "serving/vllm_run.h"
#include "serving/weights.h"

#define SCALES_OF_ATTENTION 6U /* q, k, v, probabilities and two ranges: 4 bytes each */

/* Positions of a rotary table (layers/rotary_embedding/). */
static uint64_t rope_positions(const struct plim_rope *rope)
{
    uint64_t original =
        rope->original_max_position != 0 ? rope->original_max_position : rope->max_position;
    if (strcmp(rope->type, "linear") == 0 || strcmp(rope->type, "dynamic") == 0) {
        return (uint64_t)((double)rope->max_position * rope->factor);
    }
    if (strstr(rope->type, "yarn") != NULL) {
        return (uint64_t)((double)original * rope->factor);
    }
    if (strcmp(rope->type, "longrope") == 0 || strcmp(rope->type, "su") == 0) {
        return original + rope->max_position;
    }
    return rope->max_position;
}

/* The table is computed in fp32 and cast. YaRN tables stay in fp32 until the first pass. */
static void take_rope(struct plim__run *run, const struct plim_rope *rope)
{
    struct plim_tape *t = run->tape;
    uint64_t positions = rope_positions(rope), half = positions * rope->rotary_dim * 2;
    plim_tensor index = plim_tape_take(t, positions * 4);
    plim_tensor angle = plim_tape_take(t, half);
    plim_tensor cosine = plim_tape_take(t, half);
    plim_tensor sine = plim_tape_take(t, half);
    plim_tensor table = plim_tape_take(t, 2 * half);
    plim_tape_drop(t, index);
    plim_tape_drop(t, angle);
    plim_tape_drop(t, cosine);
    plim_tape_drop(t, sine);
    if (strcmp(rope->type, "yarn") == 0) {
        run->rope_wide = table;
        run->rope_bytes = positions * rope->rotary_dim * run->e;
        return;
    }
    (void)plim_tape_take(t, positions * rope->rotary_dim * run->e);
    plim_tape_drop(t, table);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* One allocation: a weight, or several that the engine keeps as one. */
struct fused {
    uint32_t layer;
    const char *name; /* NULL: a weight alone */
    uint64_t by_dtype[PLIM_DTYPE_COUNT];
    bool packed;
};

static bool same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static uint64_t take_fused(struct plim__run *run, const struct fused *f)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < PLIM_DTYPE_COUNT; i++) {
        (void)plim_tape_take(run->tape, f->by_dtype[i]);
        sum += f->by_dtype[i];
    }
    return sum;
}

/* What belongs to a layer besides its weights, made with its attention. */
static void take_beside(struct plim__run *run, uint32_t layer, uint64_t *ropes_made)
{
    const struct plim_layer *l = &run->g->layers[layer];
    if (!plim_layer_is_attention(l)) {
        return;
    }
    if (l->rope < run->g->n_ropes && l->rope < 64 && (*ropes_made >> l->rope & 1) == 0) {
        *ropes_made |= UINT64_C(1) << l->rope;
        take_rope(run, &run->g->ropes[l->rope]);
    }
    for (uint32_t i = 0; i < SCALES_OF_ATTENTION; i++) {
        (void)plim_tape_take(run->tape, 4);
    }
}

struct loader {
    struct plim__run *run;
    struct fused open; /* being gathered */
    bool has_open;
    uint32_t beside;   /* first layer whose tables are still to come */
    uint64_t ropes_made;
    uint64_t bytes;
};

static void close_open(struct loader *load)
{
    if (load->has_open) {
        load->bytes += take_fused(load->run, &load->open);
        load->has_open = false;
    }
}

static void add_weight(struct loader *load, const struct plim_weight *w)
{
    if (!load->has_open || w->fused == NULL || load->open.layer != w->layer ||
        !same(load->open.name, w->fused)) {
        close_open(load);
        load->open = (struct fused){.layer = w->layer, .name = w->fused};
        load->has_open = true;
    }
    (void)plim_weight_bytes(load->run->g, w, load->open.by_dtype);
}

enum plim_status plim__load(struct plim__run *run, struct plim_arena *arena, uint64_t *weights,
                            struct plim_err *err)
{
    struct plim_weight_list list;
    struct loader load = {.run = run};
    PLIM_TRY(plim_weights_list(arena, run->g, &list, err));
    run->tape->step = "loading the weights";
    uint32_t last = PLIM_NO_LAYER;
    for (size_t i = 0; i < list.n; i++) {
        struct plim_weight local;
        if (!plim_weight_local(run->g, &run->set->at, &list.items[i], &local)) {
            continue;
        }
        if (local.layer != last && local.layer < run->g->n_layers &&
            local.part != PLIM_PART_ENCODER && local.part != PLIM_PART_MTP) {
            last = local.layer;
            close_open(&load);
            take_beside(run, last, &load.ropes_made);
        }
        add_weight(&load, &local);
    }
    close_open(&load);
    plim_tape_empty_cache(run->tape);
    *weights = load.bytes;
    return PLIM_OK;
}
