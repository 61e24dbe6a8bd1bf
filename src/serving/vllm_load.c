/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loading: every weight of this rank in the order of the model's constructors, fused as the engine fuses them
 * (qkv, gate and up), the rotary tables, and per-layer scales. Vocabulary matrices are padded to 64 rows.
 * The cache is emptied when the weights are in place (v1/worker/gpu/model_runner.py load_model).
 * Packed weights are repacked for the Marlin kernels afterwards, layer by layer: the same number of bytes
 * again while one layer is converted (layers/quantization/utils/marlin_utils.py).
 * MXFP4 experts are padded for the kernels (fused_moe/oracle/mxfp4.py): on capability 9.0 only their scales,
 * elsewhere the widths, to 128 and 256.
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

/* MXFP4 experts of a layer. */
struct fp4 {
    plim_tensor up, up_scale, down, down_scale;
};

struct loader {
    struct plim__run *run;
    struct fp4 *fp4;   /* arena, [n_layers] */
    struct fused open; /* being gathered */
    bool has_open;
    uint32_t beside; /* first layer whose tables are still to come */
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

static bool is_fp4(const struct plim__run *run)
{
    return run->g->quant.n_schemes > 0 && run->g->quant.schemes[0].kind == PLIM_QUANT_MXFP4;
}

/* Two matrices a byte for two elements, and a scale for each 32. */
static void take_fp4(struct loader *load, uint32_t layer)
{
    struct plim__run *run = load->run;
    const struct plim_layer *l = &run->g->layers[layer];
    struct fp4 *f = &load->fp4[layer];
    uint64_t n = l->experts / (run->set->at.ep > 1 ? run->set->at.ep : 1);
    uint64_t inner = plim__expert_inner(run, l), hidden = plim__expert_hidden(run, l);
    uint64_t elements = n * 2 * inner * hidden;
    f->up = plim_tape_take(run->tape, elements / 2);
    f->up_scale = plim_tape_take(run->tape, elements / 32);
    f->down = plim_tape_take(run->tape, elements / 4);
    f->down_scale = plim_tape_take(run->tape, elements / 64);
    load->bytes += elements / 2 + elements / 32 + elements / 4 + elements / 64;
}

static void renew(struct plim__run *run, plim_tensor *tensor, uint64_t bytes)
{
    plim_tensor now = plim_tape_take(run->tape, bytes);
    plim_tape_drop(run->tape, *tensor);
    *tensor = now;
}

/* The kernels' own order of values and scales; on capability 9.0 scales fill tiles of 64 rows by 8. */
static void convert_fp4(struct loader *load, uint32_t layer)
{
    struct plim__run *run = load->run;
    const struct plim_layer *l = &run->g->layers[layer];
    struct fp4 *f = &load->fp4[layer];
    uint64_t n = l->experts, inner = plim__expert_inner(run, l);
    uint64_t hidden = plim__expert_hidden(run, l), elements = n * 2 * inner * hidden;
    bool tiles = run->card->cc == 90;
    uint64_t up =
        tiles ? n * plim_round_up(2 * inner, 128) * plim_round_up(hidden / 32, 4) : elements / 32;
    uint64_t down =
        tiles ? n * plim_round_up(hidden, 128) * plim_round_up(inner / 32, 4) : elements / 64;
    if (f->up != 0) {
        renew(run, &f->up, elements / 2);
        renew(run, &f->up_scale, up);
        renew(run, &f->down, elements / 4);
        renew(run, &f->down_scale, down);
    }
}

static enum plim_status make_fp4(struct loader *load, struct plim_arena *arena,
                                 struct plim_err *err)
{
    void *items;
    PLIM_TRY(plim_arena_array(arena, load->run->g->n_layers, sizeof *load->fp4, &items, err));
    load->fp4 = items;
    return PLIM_OK;
}

/* Experts are taken whole when the first of their matrices comes. */
static bool is_taken(struct loader *load, const struct plim_weight *w)
{
    if (load->fp4 == NULL || w->part != PLIM_PART_EXPERTS || !w->linear ||
        w->layer >= load->run->g->n_layers) {
        return false;
    }
    if (load->fp4[w->layer].up == 0) {
        close_open(load);
        take_fp4(load, w->layer);
    }
    return true;
}

enum plim_status plim__load(struct plim__run *run, struct plim_arena *arena, uint64_t *weights,
                            struct plim_err *err)
{
    struct plim_weight_list list;
    struct loader load = {.run = run};
    PLIM_TRY(plim_weights_list(arena, run->g, &list, err));
    if (is_fp4(run)) {
        PLIM_TRY(make_fp4(&load, arena, err));
    }
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
        if (!is_taken(&load, &local)) {
            add_weight(&load, &local);
        }
    }
    close_open(&load);
    for (uint32_t i = 0; load.fp4 != NULL && i < run->g->n_layers; i++) {
        convert_fp4(&load, i);
    }
    plim_tape_empty_cache(run->tape);
    *weights = load.bytes;
    return PLIM_OK;
}
