/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_WEIGHTS_H
#define PLIM_SERVING_WEIGHTS_H

/*
 * Weights of a geometry: a list of what a checkpoint of that architecture holds, from which parameters,
 * bytes by part and by element type, and shares of a device are all sums.
 *
 * A weight is a matrix [rows][cols] (a vector has cols 1) in `copies` equal copies (experts). How it is
 * divided between the devices of a tensor-parallel group is its `split`. Quantization replaces a linear
 * weight by packed values and scales (serving/quant.h); biases, norms, embeddings and routers stay.
 * Units: parameters are elements of the unquantized model; bytes are stored bytes.
 */

#include "serving/geometry.h"

/* X(name, JSON text, meaning) */
#define PLIM_PART_MAP(X)                                                                           \
    X(EMBEDDING, "embedding", "token, position and type embeddings")                               \
    X(ATTENTION, "attention", "projections of attention, biases included")                         \
    X(RECURRENT, "recurrent", "Mamba, delta and linear mixers, short convolutions")                \
    X(MLP, "mlp", "dense feed-forward")                                                            \
    X(EXPERTS, "experts", "routed experts")                                                        \
    X(SHARED, "shared_experts", "experts that every token uses")                                   \
    X(ROUTER, "router", "expert selection")                                                        \
    X(NORM, "norm", "normalization outside the mixers")                                            \
    X(HEAD, "head", "output matrix, when it is not the embedding")                                 \
    X(VISION, "vision", "vision or audio encoder and its projector")                               \
    X(ENCODER, "encoder", "encoder of an encoder-decoder model")                                   \
    X(MTP, "mtp", "multi-token prediction layers")

enum plim_part {
#define PLIM__X(name, text, meaning) PLIM_PART_##name,
    PLIM_PART_MAP(PLIM__X)
#undef PLIM__X
    PLIM_PART_COUNT
};

enum plim_split {
    PLIM_SPLIT_NONE, /* every device of the group holds all of it */
    PLIM_SPLIT_ROWS, /* output features are divided */
    PLIM_SPLIT_COLS, /* input features are divided */
    PLIM_SPLIT_KV, /* output features by KV head: replicated when there are fewer heads than devices */
    PLIM_SPLIT_VOCAB /* rows of the vocabulary, padded first */
};

#define PLIM_NO_LAYER UINT32_MAX

struct plim_weight {
    enum plim_part part;
    uint32_t layer;    /* decoder layer; PLIM_NO_LAYER for weights outside them */
    const char *name;  /* module as in checkpoints, below the layer: "self_attn.q_proj"; static */
    const char *fused; /* name of the one allocation in which engines keep it with its neighbours
                          * ("qkv_proj", "gate_up_proj"), or NULL: alone */
    uint64_t rows;     /* output features */
    uint64_t cols;     /* input features; 1 for a vector */
    uint64_t copies;   /* routed experts, else 1 */
    uint32_t kv_heads; /* PLIM_SPLIT_KV: heads in `rows` */
    enum plim_split split;
    enum plim_dtype dtype; /* when not quantized */
    bool piece;  /* goes on in the tensor of the weight before it: "qkv_proj", "in_proj" in files
                            * that store them as one */
    bool linear; /* a linear layer's matrix: may be quantized */
};

struct plim_weight_list {
    struct plim_weight *items; /* arena, [n] */
    size_t n;
};

/**
 * plim_weights_list() - every weight of a checkpoint of this architecture, in the order of the layers;
 * with MTP and vision weights. Tied matrices occur once.
 * Errors: PLIM_E_UNSUPPORTED when this library knows the architecture's KV but not its weights;
 * PLIM_E_NOMEM, PLIM_E_BUDGET. Cost: O(layers).
 */
PLIM_MUST_USE enum plim_status plim_weights_list(struct plim_arena *arena,
                                                 const struct plim_geometry *g,
                                                 struct plim_weight_list *out,
                                                 struct plim_err *err);

/** plim_weight_local() - the share of one device: rows, cols and copies become local ones.
 * false: the weight is on another pipeline stage or not loaded. Pure. */
bool plim_weight_local(const struct plim_geometry *g, const struct plim_placement *at,
                       const struct plim_weight *w, struct plim_weight *out);

/** plim_weight_bytes() - stored bytes of a (whole or local) weight under the geometry's quantization;
 * adds them by element type to by_dtype[PLIM_DTYPE_COUNT] (nullable). Saturates. Pure. */
uint64_t plim_weight_bytes(const struct plim_geometry *g, const struct plim_weight *w,
                           uint64_t *by_dtype);

struct plim_weight_sum {
    uint64_t parameters; /* elements */
    uint64_t bytes;
    uint64_t part_parameters[PLIM_PART_COUNT];
    uint64_t part_bytes[PLIM_PART_COUNT];
    uint64_t dtype_bytes[PLIM_DTYPE_COUNT];
    uint64_t active_parameters; /* used by one token: routed experts by experts_per_token */
};

/**
 * plim_weights_sum() - totals on one device; PLIM_PLACEMENT_WHOLE with `mtp` gives the checkpoint.
 * Errors: as plim_weights_list(), PLIM_E_RANGE when a sum exceeds 64 bits or tp does not divide heads.
 */
PLIM_MUST_USE enum plim_status plim_weights_sum(struct plim_arena *arena,
                                                const struct plim_geometry *g,
                                                const struct plim_placement *at,
                                                struct plim_weight_sum *out, struct plim_err *err);

const char *plim_part_text(enum plim_part part);

#endif
