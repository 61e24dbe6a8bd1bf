/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_KV_H
#define PLIM_SERVING_KV_H

/*
 * What sequences keep on a device: for each layer bytes for a token, or a fixed state, or both kinds of
 * cache. Independent of block sizes and schedulers, which belong to the engines.
 *
 *   token bytes   kept for each token, up to `window` tokens when there is a window
 *   state bytes   kept for each sequence whatever its length
 *
 * Sources: vllm 0.33.0 v1/kv_cache_interface.py, model_executor/layers/mamba/mamba_utils.py,
 * v1/attention/backends/turboquant_attn.py; llama.cpp block sizes as in format/dtype.h.
 */

#include "serving/geometry.h"

/* X(name, text as engines' flags have it, meaning) */
#define PLIM_KV_FORMAT_MAP(X)                                                                      \
    X(AUTO, "auto", "the model's element type, or what the checkpoint declares")                   \
    X(F32, "float32", "4 bytes an element")                                                        \
    X(F16, "float16", "2 bytes an element")                                                        \
    X(BF16, "bfloat16", "2 bytes an element")                                                      \
    X(FP8, "fp8", "1 byte an element, scales for a layer")                                         \
    X(FP8_E4M3, "fp8_e4m3", "1 byte an element")                                                   \
    X(FP8_E5M2, "fp8_e5m2", "1 byte an element")                                                   \
    X(FP8_INC, "fp8_inc", "1 byte an element")                                                     \
    X(INT8, "int8", "1 byte an element, scales for a layer")                                       \
    X(FP8_DS_MLA, "fp8_ds_mla", "656 bytes a token and layer: fp8 latent, scales, bf16 rotary")    \
    X(NVFP4_DS_MLA, "nvfp4_ds_mla", "352 bytes a token and layer")                                 \
    X(FP8_TOKEN_HEAD, "fp8_per_token_head", "1 byte an element + 4 a token, head and side")        \
    X(INT8_TOKEN_HEAD, "int8_per_token_head", "1 byte an element + 4 a token, head and side")      \
    X(INT4_TOKEN_HEAD, "int4_per_token_head", "half a byte + 4 a token, head and side")            \
    X(NVFP4, "nvfp4", "half a byte + 1 byte for each 16 elements")                                 \
    X(TQ_K8V4, "turboquant_k8v4", "fp8 keys, 4-bit values + 4 bytes")                              \
    X(TQ_4BIT, "turboquant_4bit_nc", "4-bit keys + 2 bytes, 4-bit values + 4")                     \
    X(TQ_K3V4, "turboquant_k3v4_nc", "3-bit keys + 2 bytes, 4-bit values + 4")                     \
    X(TQ_3BIT, "turboquant_3bit_nc", "3-bit keys + 2 bytes, 3-bit values + 4")                     \
    X(Q8_0, "q8_0", "llama.cpp: 34 bytes for 32 elements")                                         \
    X(Q5_1, "q5_1", "24 bytes for 32 elements")                                                    \
    X(Q5_0, "q5_0", "22 bytes for 32 elements")                                                    \
    X(Q4_1, "q4_1", "20 bytes for 32 elements")                                                    \
    X(Q4_0, "q4_0", "18 bytes for 32 elements")                                                    \
    X(IQ4_NL, "iq4_nl", "18 bytes for 32 elements")

enum plim_kv_format {
#define PLIM__X(name, text, meaning) PLIM_KV_FORMAT_##name,
    PLIM_KV_FORMAT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_KV_FORMAT_COUNT
};

/** plim_kv_format_from() - by the flag's text ("half", "bf16", "f16", "f32" too); false: no such. */
bool plim_kv_format_from(struct plim_str text, enum plim_kv_format *out);
const char *plim_kv_format_text(enum plim_kv_format format);

enum plim_kv_kind {
    PLIM_KV_FULL,    /* K and V of every token */
    PLIM_KV_SLIDING, /* of the last `window` */
    PLIM_KV_CHUNKED, /* of the chunk of `window` */
    PLIM_KV_MLA,     /* a latent vector of every token */
    PLIM_KV_INDEX,   /* keys of a sparse indexer, of every token */
    PLIM_KV_STATE,   /* recurrent state */
    PLIM_KV_CROSS,   /* K and V of the encoder's tokens */
};

struct plim_kv_layer {
    uint32_t layer; /* decoder layer; n_layers + i for MTP layer i */
    enum plim_kv_kind kind;
    enum plim_mixer mixer;
    uint32_t window;      /* tokens; 0: none */
    uint32_t kv_heads;    /* on this device; 1 for a latent */
    uint32_t head_dim;    /* elements of K (of the latent and rotary part together) */
    uint32_t v_head_dim;  /* elements of V; 0 for a latent */
    uint64_t token_bytes; /* on this device, for a token kept there */
    uint64_t
        state_bytes; /* on this device, for a sequence: conv + matrix; cross: all encoder tokens */
    uint64_t conv_bytes; /* part of state_bytes */
    bool interleaved;    /* tokens are divided over the `dcp` devices (not windows and states) */
    bool mtp;            /* only when multi-token prediction speculates */
};

struct plim_kv_options {
    enum plim_kv_format k;       /* keys, latents */
    enum plim_kv_format v;       /* values; AUTO: as k */
    enum plim_dtype state_dtype; /* of matrix states; UNKNOWN: the geometry's */
    enum plim_dtype conv_dtype;  /* of conv states; UNKNOWN: the geometry's dtype */
    bool no_window;              /* windows are not saved: every layer keeps every token */
};

struct plim_kv_list {
    struct plim_kv_layer *items; /* arena, [n]; layers that keep nothing or share do not occur */
    size_t n;
};

/**
 * plim_kv_layers() - what one device keeps, by layer, for the layers of its pipeline stage.
 * Errors: PLIM_E_USAGE a format that does not suit the layers (fp8_ds_mla without MLA, block sizes that do
 * not divide the head dimension), or dcp that does not divide tp; PLIM_E_NOMEM. Cost: O(layers).
 */
PLIM_MUST_USE enum plim_status plim_kv_layers(struct plim_arena *arena,
                                              const struct plim_geometry *g,
                                              const struct plim_placement *at,
                                              const struct plim_kv_options *opts,
                                              struct plim_kv_list *out, struct plim_err *err);

/* Sums over a list; they saturate. */
struct plim_kv_sum {
    uint64_t token_bytes;          /* of layers without a window: what each further token costs */
    uint64_t windowed_token_bytes; /* of layers with one, while the window is not full */
    uint64_t window_cap_bytes;     /* of all windows when full */
    uint64_t state_bytes;          /* fixed for a sequence, cross attention included */
};
void plim_kv_sum(const struct plim_kv_list *list, struct plim_kv_sum *out);

/**
 * plim_kv_sequence_bytes() - bytes that a sequence of `tokens` holds on this device between steps, without
 * rounding to blocks; @dcp as in the placement: interleaved layers keep ceil(tokens / dcp). Saturates.
 */
uint64_t plim_kv_sequence_bytes(const struct plim_kv_list *list, uint32_t dcp, uint64_t tokens);

#endif
