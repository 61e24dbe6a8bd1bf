/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: config.json of models. Whatever the text, there is a geometry whose invariants hold, whose weights
 * and caches can be summed and whose start can be planned for an engine (which one, and whether with flags, the
 * text's hash says), or an error that says something.
 */

#include "base/intern.h"
#include "serving/kv.h"
#include "serving/weights.h"

#include "walk_plan.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_layers(const struct plim_geometry *g)
{
    walk_demand(g->n_layers >= 1 && g->n_layers <= PLIM_LAYER_MAX && g->hidden >= 1 &&
                g->vocab >= 1);
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const struct plim_layer *l = &g->layers[i];
        walk_demand(!plim_layer_is_attention(l) ||
                    (l->heads >= 1 && l->kv_heads >= 1 && l->head_dim >= 1));
        walk_demand(l->kv_from == PLIM_LAYER_OWN_KV || l->kv_from < i);
        walk_demand(l->rope == PLIM_NO_ROPE || l->rope < g->n_ropes);
        walk_demand((l->mixer != PLIM_MIXER_SLIDING && l->mixer != PLIM_MIXER_CHUNKED) ||
                    l->window >= 1);
    }
}

static void sum_up(struct plim_arena *arena, const struct plim_geometry *g,
                   const struct plim_placement *at)
{
    struct plim_err err;
    struct plim_weight_sum weights;
    struct plim_kv_list kv;
    struct plim_kv_options opts = {0};
    plim_err_clear(&err);
    if (plim_weights_sum(arena, g, at, &weights, &err) == PLIM_OK) {
        uint64_t parts = 0;
        for (int i = 0; i < PLIM_PART_COUNT; i++) {
            parts += weights.part_bytes[i];
        }
        walk_demand(parts == weights.bytes && weights.active_parameters <= weights.parameters);
    } else {
        walk_demand(err.message[0] != '\0');
    }
    if (plim_kv_layers(arena, g, at, &opts, &kv, &err) == PLIM_OK) {
        walk_demand(plim_kv_sequence_bytes(&kv, 1, 100) <= plim_kv_sequence_bytes(&kv, 1, 200));
    } else {
        walk_demand(err.message[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_arena arena;
    struct plim_geometry g;
    struct plim_err err;
    struct plim_str text = {(const char *)data, size};
    plim_arena_init(&arena, UINT64_C(64) << 20);
    plim_err_clear(&err);
    if (plim_geometry_from_config(&arena, text, "config.json", NULL, &g, &err) == PLIM_OK) {
        struct plim_placement split = {
            .tp = 4, .pp = 2, .pp_rank = 1, .ep = 4, .dcp = 2, .vocab_pad = 64};
        look_at_layers(&g);
        sum_up(&arena, &g, &PLIM_PLACEMENT_WHOLE);
        sum_up(&arena, &g, &split);
        walk_engines(&arena, &g, NULL, plim_hash_bytes(data, size));
    } else {
        walk_demand(err.message[0] != '\0');
    }
    plim_arena_fini(&arena);
    return 0;
}
