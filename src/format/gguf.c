/* SPDX-License-Identifier: Apache-2.0 */
/* See gguf.h. */

#include "format/gguf.h"

#include "base/num.h"
#include "base/vec.h"
#include "format/window.h"

#include <inttypes.h>

#define KEYS_MAX    UINT64_C(65536)
#define TENSORS_MAX UINT64_C(1000000)
#define TEXT_MAX    (UINT64_C(16) << 20) /* bytes: chat templates are long */
#define NAME_MAX_GG UINT64_C(4096)      /* bytes; the format says 64 for tensors, files have more */
#define HEADER_MAX  (UINT64_C(1) << 30) /* bytes; vocabularies take some tens of megabytes */

struct reader {
    struct plim_window w;
    struct plim_arena *arena;
    uint32_t version;
    PLIM_VEC(struct plim_gguf_value) values;
    PLIM_VEC(struct plim_tensor) tensors;
    struct plim_err *err;
};

static enum plim_status fail(struct reader *r, enum plim_status st, const char *what)
{
    (void)plim__fail(r->err, st, "%s", what);
    plim__err_where(r->err, "GGUF header: byte");
    plim__err_at(r->err, plim__window_pos(&r->w));
    return st;
}

/* An unsigned number of n bytes. */
static enum plim_status read_uint(struct reader *r, unsigned n, uint64_t *out)
{
    struct plim_str bytes;
    uint64_t v = 0;
    PLIM_TRY(plim__window_take(&r->w, n, &bytes, r->err));
    for (unsigned i = n; i > 0; i--) {
        v = v << 8 | (uint8_t)bytes.p[i - 1];
    }
    if (plim__window_pos(&r->w) > HEADER_MAX) {
        return fail(r, PLIM_E_BUDGET, "the header is larger than any real one");
    }
    *out = v;
    return PLIM_OK;
}

static enum plim_status read_u32(struct reader *r, uint32_t *out)
{
    uint64_t v = 0;
    PLIM_TRY(read_uint(r, 4, &v));
    *out = (uint32_t)v;
    return PLIM_OK;
}

/* Counts and lengths: u32 in version 1. */
static enum plim_status read_count(struct reader *r, uint64_t *out)
{
    return read_uint(r, r->version == 1 ? 4 : 8, out);
}

static enum plim_status read_text(struct reader *r, uint64_t max, bool keep, struct plim_str *out)
{
    uint64_t n = 0;
    struct plim_str bytes;
    PLIM_TRY(read_count(r, &n));
    if (n > max) {
        return fail(r, PLIM_E_RANGE, "a text is longer than any real one");
    }
    PLIM_TRY(plim__window_take(&r->w, n, &bytes, r->err));
    return keep ? plim_arena_str(r->arena, bytes, out, r->err) : PLIM_OK;
}

/* ---- metadata */

enum {
    T_U8,
    T_I8,
    T_U16,
    T_I16,
    T_U32,
    T_I32,
    T_F32,
    T_BOOL,
    T_TEXT,
    T_ARRAY,
    T_U64,
    T_I64,
    T_F64,
    T_COUNT
};

static const uint8_t scalar_bytes[T_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Widen a number of its type to 64 bits, sign and all. */
static uint64_t widened(uint32_t type, uint64_t raw)
{
    switch (type) {
    case T_I8:
        return (uint64_t)(int64_t)(int8_t)raw;
    case T_I16:
        return (uint64_t)(int64_t)(int16_t)raw;
    case T_I32:
        return (uint64_t)(int64_t)(int32_t)raw;
    default:
        return raw;
    }
}

static double real_of(uint32_t type, uint64_t raw)
{
    double real = 0;
    float single = 0;
    uint32_t half = (uint32_t)raw;
    if (type == T_F64) {
        memcpy(&real, &raw, sizeof real);
        return real;
    }
    memcpy(&single, &half, sizeof single);
    return (double)single;
}

static enum plim_status read_scalar(struct reader *r, uint32_t type, struct plim_gguf_value *v)
{
    uint64_t raw = 0;
    PLIM_TRY(read_uint(r, scalar_bytes[type], &raw));
    bool real = type == T_F32 || type == T_F64;
    bool negative = type == T_I8 || type == T_I16 || type == T_I32 || type == T_I64;
    v->kind = real             ? PLIM_GGUF_REAL
              : type == T_BOOL ? PLIM_GGUF_BOOL
              : negative       ? PLIM_GGUF_INT
                               : PLIM_GGUF_UINT;
    v->u = real ? 0 : widened(type, raw);
    v->real = real ? real_of(type, raw) : 0;
    return PLIM_OK;
}

static enum plim_status read_array(struct reader *r, struct plim_gguf_value *v)
{
    uint32_t type = 0;
    uint64_t n = 0;
    PLIM_TRY(read_u32(r, &type));
    PLIM_TRY(read_count(r, &n));
    if (type >= T_COUNT || type == T_ARRAY) {
        return fail(r, PLIM_E_DATA, "an array of an unknown type");
    }
    if (n > HEADER_MAX) {
        return fail(r, PLIM_E_RANGE, "an array is longer than any real one");
    }
    v->kind = PLIM_GGUF_ARRAY;
    v->length = n;
    bool keep = type != T_TEXT && type != T_F32 && type != T_F64 && n <= PLIM_GGUF_ARRAY_MAX;
    void *numbers = NULL;
    if (keep) {
        PLIM_TRY(plim_arena_array(r->arena, n, sizeof(int64_t), &numbers, r->err));
    }
    for (uint64_t i = 0; i < n; i++) {
        struct plim_str ignored;
        if (type == T_TEXT) {
            PLIM_TRY(read_text(r, TEXT_MAX, false, &ignored));
            continue;
        }
        uint64_t raw = 0;
        PLIM_TRY(read_uint(r, scalar_bytes[type], &raw));
        if (keep) {
            ((int64_t *)numbers)[i] = (int64_t)widened(type, raw);
        }
    }
    v->numbers = numbers;
    return PLIM_OK;
}

static enum plim_status read_value(struct reader *r)
{
    struct plim_gguf_value v = {0};
    uint32_t type = 0;
    PLIM_TRY(read_text(r, NAME_MAX_GG, true, &v.key));
    PLIM_TRY(read_u32(r, &type));
    if (type >= T_COUNT) {
        return fail(r, PLIM_E_DATA, "a value of an unknown type");
    }
    if (type == T_TEXT) {
        v.kind = PLIM_GGUF_STRING;
        PLIM_TRY(read_text(r, TEXT_MAX, true, &v.text));
    } else if (type == T_ARRAY) {
        PLIM_TRY(read_array(r, &v));
    } else {
        PLIM_TRY(read_scalar(r, type, &v));
    }
    return plim_vec_push(&r->values, r->err, v);
}

/* ---- tensors */

enum plim_dtype plim_gguf_dtype(uint32_t number)
{
    static const struct {
        uint32_t number;
        enum plim_dtype dtype;
    } rows[] = {
        {0, PLIM_DTYPE_F32},     {1, PLIM_DTYPE_F16},      {2, PLIM_DTYPE_Q4_0},
        {3, PLIM_DTYPE_Q4_1},    {6, PLIM_DTYPE_Q5_0},     {7, PLIM_DTYPE_Q5_1},
        {8, PLIM_DTYPE_Q8_0},    {9, PLIM_DTYPE_Q8_1},     {10, PLIM_DTYPE_Q2_K},
        {11, PLIM_DTYPE_Q3_K},   {12, PLIM_DTYPE_Q4_K},    {13, PLIM_DTYPE_Q5_K},
        {14, PLIM_DTYPE_Q6_K},   {15, PLIM_DTYPE_Q8_K},    {16, PLIM_DTYPE_IQ2_XXS},
        {17, PLIM_DTYPE_IQ2_XS}, {18, PLIM_DTYPE_IQ3_XXS}, {19, PLIM_DTYPE_IQ1_S},
        {20, PLIM_DTYPE_IQ4_NL}, {21, PLIM_DTYPE_IQ3_S},   {22, PLIM_DTYPE_IQ2_S},
        {23, PLIM_DTYPE_IQ4_XS}, {24, PLIM_DTYPE_I8},      {25, PLIM_DTYPE_I16},
        {26, PLIM_DTYPE_I32},    {27, PLIM_DTYPE_I64},     {28, PLIM_DTYPE_F64},
        {29, PLIM_DTYPE_IQ1_M},  {30, PLIM_DTYPE_BF16},    {34, PLIM_DTYPE_TQ1_0},
        {35, PLIM_DTYPE_TQ2_0},  {39, PLIM_DTYPE_MXFP4},   {40, PLIM_DTYPE_NVFP4},
        {41, PLIM_DTYPE_Q1_0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (rows[i].number == number) {
            return rows[i].dtype;
        }
    }
    return PLIM_DTYPE_UNKNOWN;
}

static enum plim_status read_tensor(struct reader *r)
{
    struct plim_tensor t = {0};
    uint32_t type = 0;
    PLIM_TRY(read_text(r, NAME_MAX_GG, true, &t.name));
    PLIM_TRY(read_u32(r, &t.n_dims));
    if (t.n_dims > 4) {
        return fail(r, PLIM_E_RANGE, "a tensor of more than four dimensions");
    }
    for (uint32_t i = 0; i < t.n_dims; i++) {
        PLIM_TRY(read_count(r, &t.dims[i]));
    }
    PLIM_TRY(read_u32(r, &type));
    PLIM_TRY(read_uint(r, 8, &t.offset));
    t.dtype = plim_gguf_dtype(type);
    if (t.dtype == PLIM_DTYPE_UNKNOWN) {
        (void)plim__fail(r->err, PLIM_E_DATA,
                         "tensor %.*s is of type %u, which is retired or unknown",
                         PLIM_STR_ARG(t.name), type);
        plim__err_at(r->err, plim__window_pos(&r->w));
        return PLIM_E_DATA;
    }
    uint32_t bytes = 0;
    if (t.n_dims > 0 && t.dims[0] % plim_dtype_block(t.dtype, &bytes) != 0) {
        return fail(r, PLIM_E_DATA, "rows of a tensor are no whole number of blocks");
    }
    PLIM_TRY(plim__tensor_size(&t, r->err));
    return plim_vec_push(&r->tensors, r->err, t);
}

/* ---- the file */

static enum plim_status read_front(struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
    struct plim_str magic;
    PLIM_TRY(plim__window_take(&r->w, 4, &magic, r->err));
    if (memcmp(magic.p, "GGUF", 4) != 0) {
        return fail(r, PLIM_E_DATA, "not a GGUF file");
    }
    PLIM_TRY(read_u32(r, &r->version));
    if (r->version == 0 || r->version > 3) {
        bool swapped = (r->version & 0xffff) == 0;
        return fail(r, PLIM_E_UNSUPPORTED,
                    swapped ? "a big-endian GGUF file" : "a GGUF version that is not known");
    }
    PLIM_TRY(read_count(r, n_tensors));
    PLIM_TRY(read_count(r, n_keys));
    if (*n_tensors > TENSORS_MAX || *n_keys > KEYS_MAX) {
        return fail(r, PLIM_E_RANGE, "more tensors or keys than any real file has");
    }
    return PLIM_OK;
}

static enum plim_status find_alignment(struct reader *r, uint64_t *out)
{
    *out = 32;
    for (size_t i = 0; i < r->values.n; i++) {
        const struct plim_gguf_value *v = &r->values.items[i];
        if (plim_str_eq(v->key, PLIM_STR("general.alignment"))) {
            if (v->kind != PLIM_GGUF_UINT || v->u == 0 || v->u > PLIM_MIB || v->u % 8 != 0) {
                return fail(r, PLIM_E_DATA, "general.alignment is no multiple of 8");
            }
            *out = v->u;
        }
    }
    return PLIM_OK;
}

static enum plim_status finish(struct reader *r, uint64_t file_bytes, struct plim_gguf *out)
{
    void *values = NULL;
    void *tensors = NULL;
    struct plim_gguf file = {.version = r->version, .n_values = r->values.n};
    PLIM_TRY(find_alignment(r, &file.alignment));
    PLIM_TRY(plim_arena_array(r->arena, r->values.n, sizeof *r->values.items, &values, r->err));
    PLIM_TRY(plim_arena_array(r->arena, r->tensors.n, sizeof *r->tensors.items, &tensors, r->err));
    file.values = values;
    file.tensors = (struct plim_tensors){.items = tensors, .n = r->tensors.n};
    file.tensors.header_bytes = plim_round_up(plim__window_pos(&r->w), file.alignment);
    if (r->values.n > 0) {
        memcpy(values, r->values.items, r->values.n * sizeof *r->values.items);
    }
    for (size_t i = 0; i < r->tensors.n; i++) {
        file.tensors.items[i] = r->tensors.items[i];
        file.tensors.bytes = plim_add_sat(file.tensors.bytes, r->tensors.items[i].bytes);
        if (r->tensors.items[i].offset % file.alignment != 0) {
            return plim__fail(r->err, PLIM_E_DATA, "tensor %.*s is not aligned to %" PRIu64,
                              PLIM_STR_ARG(r->tensors.items[i].name), file.alignment);
        }
    }
    uint64_t data =
        file_bytes != 0 ? plim_sub_sat(file_bytes, file.tensors.header_bytes) : UINT64_MAX;
    PLIM_TRY(plim__tensors_check(r->arena, &file.tensors, data, true, r->err));
    *out = file;
    return PLIM_OK;
}

static enum plim_status read_file(struct reader *r, uint64_t file_bytes, struct plim_gguf *out)
{
    uint64_t n_tensors = 0;
    uint64_t n_keys = 0;
    PLIM_TRY(read_front(r, &n_tensors, &n_keys));
    for (uint64_t i = 0; i < n_keys; i++) {
        PLIM_TRY(read_value(r));
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        PLIM_TRY(read_tensor(r));
    }
    return finish(r, file_bytes, out);
}

enum plim_status plim_gguf_read(struct plim_arena *arena, struct plim_source *source,
                                struct plim_gguf *out, struct plim_err *err)
{
    struct reader r = {.arena = arena, .err = err};
    PLIM_TRY(plim__window_init(&r.w, source, err));
    enum plim_status st = read_file(&r, source->size, out);
    plim_vec_fini(&r.values);
    plim_vec_fini(&r.tensors);
    plim__window_fini(&r.w);
    return st;
}

const struct plim_gguf_value *plim_gguf_find(const struct plim_gguf *file, const char *key)
{
    for (size_t i = 0; i < file->n_values; i++) {
        if (plim_str_eq(file->values[i].key, plim_str_from(key))) {
            return &file->values[i];
        }
    }
    return NULL;
}
