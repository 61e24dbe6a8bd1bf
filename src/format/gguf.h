/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_GGUF_H
#define PLIM_FORMAT_GGUF_H

/*
 * Headers of GGUF files: metadata and the table of tensors.
 *
 *   "GGUF" | u32 version | u64 tensors | u64 keys | keys: string, u32 type, value | tensors: string, u32 dims,
 *   u64 dim[], u32 type, u64 offset | padding to general.alignment | data
 *
 * Version 1 has u32 where 2 and 3 have u64. Little-endian. Strings are u64 length and bytes.
 * Source: ggml-org/ggml docs/gguf.md; numbers of types: gguf 0.19.0 gguf/constants.py.
 */

#include "base/file.h"
#include "format/tensors.h"

enum plim_gguf_kind {
    PLIM_GGUF_UINT,
    PLIM_GGUF_INT,
    PLIM_GGUF_REAL,
    PLIM_GGUF_BOOL,
    PLIM_GGUF_STRING,
    PLIM_GGUF_ARRAY, /* of numbers, when it has at most PLIM_GGUF_ARRAY_MAX; else only its length is kept */
};

#define PLIM_GGUF_ARRAY_MAX 4096u

struct plim_gguf_value {
    struct plim_str key; /* NUL-terminated */
    enum plim_gguf_kind kind;
    uint64_t u; /* UINT, BOOL, INT (two's complement) */
    double real;
    struct plim_str text;
    uint64_t length;        /* ARRAY: elements in the file */
    const int64_t *numbers; /* ARRAY: [length], or NULL: not kept */
};

struct plim_gguf {
    uint32_t version;
    struct plim_gguf_value *values; /* arena, [n_values] */
    size_t n_values;
    uint64_t alignment; /* bytes */
    struct plim_tensors tensors;
};

/**
 * plim_gguf_read() - the header.
 * Errors: PLIM_E_DATA no GGUF, unknown types, wrong alignment, overlapping tensors; PLIM_E_RANGE absurd
 * counts and sizes; PLIM_E_TRUNCATED; PLIM_E_UNSUPPORTED big-endian files and unknown versions;
 * PLIM_E_BUDGET, PLIM_E_NOMEM. Cost: linear in the header.
 */
PLIM_MUST_USE enum plim_status plim_gguf_read(struct plim_arena *arena, struct plim_source *source,
                                              struct plim_gguf *out, struct plim_err *err);

/** plim_gguf_find() - the value of a key, or NULL. Cost: O(keys). */
const struct plim_gguf_value *plim_gguf_find(const struct plim_gguf *file, const char *key);

/** plim_gguf_dtype() - the element type with that number in files, UNKNOWN for retired and unknown ones. */
enum plim_dtype plim_gguf_dtype(uint32_t number);

#endif
