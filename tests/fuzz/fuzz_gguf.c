/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: headers of GGUF files, and the geometry that their metadata describes. What is read can be
 * summed and planned for an engine, which the hash of the bytes chooses; failures say something.
 */

#include "base/intern.h"
#include "format/gguf.h"
#include "serving/gguf_model.h"
#include "serving/kv.h"

#include "walk_plan.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(struct plim_arena *arena, const struct plim_gguf *file, uint64_t choice)
{
    struct plim_geometry g;
    struct plim_err err;
    struct plim_kv_list kv;
    struct plim_kv_options opts = {.k = PLIM_KV_FORMAT_Q8_0, .conv_dtype = PLIM_DTYPE_F32};
    plim_err_clear(&err);
    enum plim_status st = plim_geometry_from_gguf(arena, file, &g, &err);
    if (st == PLIM_OK) {
        walk_demand(g.n_layers >= 1 && g.n_layers <= PLIM_LAYER_MAX);
        st = plim_kv_layers(arena, &g, &PLIM_PLACEMENT_WHOLE, &opts, &kv, &err);
        struct plim_model model = {.kind = PLIM_MODEL_GGUF,
                                   .has_stored = true,
                                   .stored_bytes = file->tensors.bytes,
                                   .tensors = file->tensors};
        walk_engines(arena, &g, &model, choice);
    }
    walk_demand(st == PLIM_OK || err.message[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_arena arena;
    struct plim_err err;
    struct plim_gguf file;
    struct plim_source_bytes state = {{(const char *)data, size}};
    struct plim_source source = plim_source_bytes(&state, state.rest);
    plim_arena_init(&arena, UINT64_C(64) << 20);
    plim_err_clear(&err);
    enum plim_status st = plim_gguf_read(&arena, &source, &file, &err);
    if (st == PLIM_OK) {
        look(&arena, &file, plim_hash_bytes(data, size));
    }
    walk_demand(st == PLIM_OK || err.message[0] != '\0');
    plim_arena_fini(&arena);
    return 0;
}
