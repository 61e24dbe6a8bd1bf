/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TENSORS_H
#define PLIM_FORMAT_TENSORS_H

/*
 * The table of tensors in the header of a model file: what is stored where, never the data.
 * Invariants of a table that a reader returned: bytes is what dtype and the dimensions say; tensors lie
 * inside the data and do not overlap. Arena-owned. Threads: plain data.
 */

#include "base/arena.h"
#include "format/dtype.h"

#define PLIM_TENSOR_DIMS 8

struct plim_tensor {
    struct plim_str name; /* NUL-terminated */
    enum plim_dtype dtype;
    uint32_t n_dims;
    uint64_t
        dims[PLIM_TENSOR_DIMS]; /* as in the file: safetensors slowest first, GGUF fastest first */
    uint64_t elements;
    uint64_t offset; /* from the beginning of the data */
    uint64_t bytes;
};

struct plim_tensors {
    struct plim_tensor *items; /* arena, [n], in the order of the file */
    size_t n;
    uint64_t header_bytes; /* of the file before its data, padding included */
    uint64_t bytes;        /* of all tensors, without padding */
};

/**
 * plim__tensor_size() - fill elements and bytes from dtype and dimensions.
 * Errors: PLIM_E_RANGE products beyond 64 bits; PLIM_E_DATA no whole number of blocks.
 */
PLIM_MUST_USE enum plim_status plim__tensor_size(struct plim_tensor *tensor, struct plim_err *err);

/**
 * plim__tensors_check() - tensors lie inside `data_bytes` (UINT64_MAX: unknown) and do not overlap.
 * @holes: bytes may lie between tensors (padding).
 * Errors: PLIM_E_DATA overlap or hole, PLIM_E_TRUNCATED beyond the data; PLIM_E_NOMEM. Cost: O(n log n).
 */
PLIM_MUST_USE enum plim_status plim__tensors_check(struct plim_arena *arena,
                                                   const struct plim_tensors *tensors,
                                                   uint64_t data_bytes, bool holes,
                                                   struct plim_err *err);

#endif
