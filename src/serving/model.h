/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_MODEL_H
#define PLIM_SERVING_MODEL_H

/*
 * A model as somebody names it: a Hugging Face folder, a config.json, safetensors file or index, or a GGUF
 * file (the first of a split). Only headers are read. The geometry is what the files state; the stored
 * bytes are what their headers list, when there are any.
 */

#include "format/tensors.h"
#include "serving/geometry.h"
#include "serving/weights.h"

enum plim_model_kind {
    PLIM_MODEL_CONFIG,      /* config.json alone: weights are computed */
    PLIM_MODEL_SAFETENSORS, /* headers were read: weights are measured */
    PLIM_MODEL_INDEX,       /* only the index was there: its total_size */
    PLIM_MODEL_GGUF
};

struct plim_model {
    const char *path;
    enum plim_model_kind kind;
    struct plim_geometry geometry;
    bool has_stored;       /* the fields below hold */
    uint64_t stored_bytes; /* tensor bytes of the files, headers excluded */
    uint64_t
        stored_parameters; /* elements of the files' tensors; packed types as stored elements */
    uint64_t stored_tensors;
    uint64_t stored_dtype_bytes[PLIM_DTYPE_COUNT];
    uint64_t largest_shard_bytes; /* of one file: what a loader may need at once */
    uint32_t shards;
    struct plim_tensors tensors; /* GGUF: of all parts, for engines that place layers one by one */
};

/**
 * plim_model_open() - read what `path` names.
 * Errors: those of plim_geometry_from_config(); PLIM_E_NOINPUT a missing file (a shard's name in `where`);
 * PLIM_E_TRUNCATED, PLIM_E_DATA, PLIM_E_RANGE headers that are cut, overlap or are absurd.
 * Cost: one read of each header.
 */
PLIM_MUST_USE enum plim_status plim_model_open(struct plim_arena *arena, const char *path,
                                               const struct plim_geometry_options *opts,
                                               struct plim_model *out, struct plim_err *err);

#endif
