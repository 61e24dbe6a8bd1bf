/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_SAFETENSORS_H
#define PLIM_FORMAT_SAFETENSORS_H

/*
 * Headers of safetensors files, and the index that joins several.
 *
 *   u64 little-endian N | N bytes of JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...} | data
 *
 * Source: huggingface/safetensors README.md. Only the header is read.
 */

#include "base/file.h"
#include "format/tensors.h"

#define PLIM_SAFETENSORS_HEADER_MAX UINT64_C(100000000) /* bytes, the format's own limit */

/**
 * plim_safetensors_read() - the tensors of a file.
 * `source->size` is used to find tensors beyond the end of the file when it is known.
 * Errors: PLIM_E_TRUNCATED, PLIM_E_RANGE a header of more than the limit, PLIM_E_DATA with the byte offset
 * (no JSON, unknown type, sizes that contradict offsets, overlap, holes), PLIM_E_BUDGET, PLIM_E_NOMEM.
 * Cost: linear in the header.
 */
PLIM_MUST_USE enum plim_status plim_safetensors_read(struct plim_arena *arena,
                                                     struct plim_source *source,
                                                     struct plim_tensors *out,
                                                     struct plim_err *err);

struct plim_safetensors_index {
    const char **shards; /* arena, [n_shards] file names, each once, in the order first named */
    size_t n_shards;
    size_t n_tensors;
    uint64_t total_size; /* bytes, as the index says; 0: it does not. Often stale */
};

/**
 * plim_safetensors_index_read() - model.safetensors.index.json.
 * Errors: PLIM_E_DATA no weight_map, names that leave the folder; PLIM_E_BUDGET, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_safetensors_index_read(struct plim_arena *arena,
                                                           struct plim_str text,
                                                           struct plim_safetensors_index *out,
                                                           struct plim_err *err);

#endif
