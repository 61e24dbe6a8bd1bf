/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_GEOMETRY_H
#define PLIM_SERVING_GEOMETRY_H

/*
 * What a model is, for somebody who counts its bytes: the noun that planning and simulation start from.
 *
 *   geometry   dimensions of a model as its files state them; pure data
 *   layer      one residual layer: a mixer (attention or recurrent), a feed-forward part, or both
 *   mixer      what carries information between tokens, and therefore keeps bytes for each sequence
 *   origin     where a field's value came from: a key of the file, a rule, a default and whose
 *   weight     one weight of the model: shape, part, how it is divided between devices (serving/weights.h)
 *   KV layer   what one layer keeps for a sequence on one device (serving/kv.h)
 *
 * Invariants of a geometry made by this library: n_layers >= 1; of a layer with attention heads >= 1 and
 * kv_heads >= 1; every dimension is at most PLIM_DIM_MAX, so that products of three fit in 64 bits
 * (further products are checked). A dimension that a model does not have is 0.
 * Everything is arena-owned and lives as long as the arena given to the reader. Threads: plain data.
 */

#include "base/arena.h"
#include "base/err.h"
#include "format/dtype.h"

#define PLIM_DIM_MAX   (1U << 21) /* of hidden sizes, vocabularies, heads, experts; not of tokens */
#define PLIM_LAYER_MAX 4096U

/* X(name, JSON text, meaning) */
#define PLIM_MIXER_MAP(X)                                                                          \
    X(NONE, "none", "no mixer: the layer is a feed-forward part alone")                            \
    X(FULL, "full_attention", "attention to all earlier tokens: MHA, GQA, MQA")                    \
    X(SLIDING, "sliding_attention", "attention to the last `window` tokens")                       \
    X(CHUNKED, "chunked_attention", "attention inside a chunk of `window` tokens")                 \
    X(MLA, "mla", "multi-head latent attention: one latent vector a token")                        \
    X(MAMBA1, "mamba1", "selective state space, one state a channel")                              \
    X(MAMBA2, "mamba2", "state space with heads and groups")                                       \
    X(GATED_DELTA, "gated_delta", "gated delta net (Qwen3-Next, Qwen3.5)")                         \
    X(KDA, "kda", "Kimi delta attention")                                                          \
    X(LINEAR, "linear_attention", "linear attention: a matrix a head")                             \
    X(SHORT_CONV, "short_conv", "gated short convolution (LFM2)")

enum plim_mixer {
#define PLIM__X(name, text, meaning) PLIM_MIXER_##name,
    PLIM_MIXER_MAP(PLIM__X)
#undef PLIM__X
    PLIM_MIXER_COUNT
};

enum plim_ffn {
    PLIM_FFN_NONE,
    PLIM_FFN_DENSE,
    PLIM_FFN_MOE, /* may have a dense part beside the experts: `intermediate` is then not 0 */
};

#define PLIM_LAYER_OWN_KV UINT32_MAX

struct plim_layer {
    enum plim_mixer mixer;
    enum plim_mixer
        recurrent; /* the recurrent mixer: `mixer` itself, or one beside attention (Falcon-H1);
                                * NONE: no state */
    enum plim_ffn ffn;

    /* Attention (FULL, SLIDING, CHUNKED, MLA) */
    uint32_t heads;      /* query heads */
    uint32_t kv_heads;   /* of K and V; equal to heads with MLA (expanded) */
    uint32_t head_dim;   /* of Q and K, elements; MLA: qk_nope_dim + qk_rope_dim */
    uint32_t v_head_dim; /* of V */
    uint32_t window;     /* tokens; SLIDING: W, the token itself included; CHUNKED: chunk; else 0 */
    uint32_t kv_from;    /* layer whose K and V this one reads, or PLIM_LAYER_OWN_KV */
    uint32_t rope;       /* index into plim_geometry.ropes, or PLIM_NO_ROPE */
    bool sinks;          /* one learned sink logit a head (gpt-oss, MiMo) */
    bool k_is_v;         /* one projection gives both; both are cached (Gemma 4 full layers) */
    uint32_t q_lora_rank;  /* MLA; 0: queries are projected directly */
    uint32_t kv_lora_rank; /* MLA: latent elements a token */
    uint32_t qk_nope_dim;  /* MLA */
    uint32_t qk_rope_dim;  /* MLA: rotary elements a token, shared by the heads */
    uint32_t index_heads;  /* sparse indexer (DSA), 0: none */
    uint32_t index_dim;    /* elements of an indexer key */
    uint32_t index_topk;   /* tokens that the indexer leaves */
    uint32_t compress;     /* DeepSeek V4: tokens that share one stored state; 0 or 1: none */

    /* Recurrent mixers: a conv state [conv_kernel - 1][conv_channels] and a matrix state
     * [state_heads][state_rows][state_cols] for each sequence */
    uint32_t conv_kernel; /* 0: no convolution */
    uint32_t conv_channels;
    uint32_t state_heads;  /* MAMBA1: channels; MAMBA2: heads; GATED_DELTA: value heads */
    uint32_t state_rows;   /* MAMBA1: 1; MAMBA2: head dim; GATED_DELTA: value dim */
    uint32_t state_cols;   /* state size; GATED_DELTA: key dim */
    uint32_t state_groups; /* MAMBA2: groups of B and C; GATED_DELTA: key heads */
    bool state_norm;       /* MAMBA2: a gated norm before the output projection */
    uint32_t state_rank;   /* MAMBA1: dt rank; KDA: low rank of the gates */

    /* Cross attention to `cross_tokens` of an encoder (Whisper, Mllama), beside or instead of the mixer */
    uint32_t cross_heads;
    uint32_t cross_kv_heads; /* 0: none */

    /* Feed-forward */
    uint32_t intermediate; /* of the dense part, elements; 0: none */
    uint32_t experts;      /* routed experts */
    uint32_t experts_per_token;
    uint32_t expert_intermediate; /* of one routed expert */
    uint32_t shared_intermediate; /* of all shared experts together; 0: none */
    uint32_t expert_latent; /* hidden size the routed experts work in (latent MoE), 0: hidden */
};

#define PLIM_NO_ROPE UINT32_MAX

/* One rotary embedding; engines keep one table of cosines and sines for each distinct one. */
struct plim_rope {
    const char *type;      /* "default", "linear", "llama3", "yarn", "longrope", "mrope", ... */
    uint32_t rotary_dim;   /* elements of a head that are rotated */
    uint32_t max_position; /* positions of the model's configuration */
    uint32_t original_max_position; /* before scaling; 0: not stated */
    double factor;                  /* of the scaling; 1 without */
    double theta;
};

/* X(name, JSON text) */
#define PLIM_QUANT_MAP(X)                                                                          \
    X(NONE, "none")                                                                                \
    X(FP8, "fp8")                                                                                  \
    X(INT8, "int8")                                                                                \
    X(GPTQ, "gptq")                                                                                \
    X(AWQ, "awq")                                                                                  \
    X(PACK, "pack-quantized") /* compressed-tensors W4A16 / W8A16 */                               \
    X(MXFP4, "mxfp4")                                                                              \
    X(MXFP8, "mxfp8")                                                                              \
    X(NVFP4, "nvfp4")                                                                              \
    X(NF4, "bitsandbytes-4bit")                                                                    \
    X(LLM_INT8, "bitsandbytes-8bit")                                                               \
    X(GGUF, "gguf")                                                                                \
    X(OTHER, "other") /* named in the file, unknown to this library */

enum plim_quant_kind {
#define PLIM__X(name, text) PLIM_QUANT_##name,
    PLIM_QUANT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_QUANT_COUNT
};

/* One way to pack linear layers. group 0: one scale for each output row; UINT32_MAX: one for the tensor. */
struct plim_quant_scheme {
    enum plim_quant_kind kind;
    uint32_t bits;       /* of a weight */
    uint32_t group;      /* input elements that share a scale */
    uint32_t block_rows; /* FP8: block scales [block_rows][group], 0: no blocks */
    bool zero_point;     /* zero points are stored */
    bool act_order;      /* GPTQ desc_act; the index exists either way */
    bool double_quant;   /* NF4: scales are quantized again */
    bool act_static;     /* a stored input scale for each linear layer */
    const char *
        *targets; /* [n_targets] module names, classes or "re:" expressions; empty: Linear */
    uint32_t n_targets;
};

struct plim_quant {
    const char *method; /* as the file says: "compressed-tensors", "modelopt", ... */
    struct plim_quant_scheme
        *schemes;          /* [n_schemes]; the first whose targets match a module holds */
    uint32_t n_schemes;    /* 0: not quantized */
    const char **excluded; /* [n_excluded] modules that stay as they are */
    uint32_t n_excluded;
    uint32_t kv_bits; /* 8 or 4 when the checkpoint declares a quantized KV cache */
};

/* A vision (or audio) encoder in front of the language model; depth 0: none. */
struct plim_vision {
    const char *model_type; /* of its configuration */
    const char *kind;       /* the rule that counts its weights, NULL: none, they are not counted */
    uint32_t depth;
    uint32_t hidden;
    uint32_t intermediate;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t patch;          /* pixels */
    uint32_t temporal_patch; /* frames; 0 or 1: still images */
    uint32_t merge;          /* patches merged along each side before the language model */
    uint32_t channels;
    uint32_t image_size; /* pixels, when fixed */
    uint32_t out_hidden;
    uint32_t tokens_per_image; /* when fixed, else 0 */
    uint32_t positions;        /* learned positions, 0: none */
    uint32_t deepstack;        /* levels whose features are also given to the language model */
    uint32_t adapter_in;       /* Llama 4: sizes of its adapter */
    uint32_t adapter_out;
    uint32_t output_dim; /* Llama 4: of the features given to the projector */
    bool pooling_head;   /* SigLIP: the attention pooling head is stored */
    bool projector_bias;
};

enum plim_origin_kind {
    PLIM_ORIGIN_FILE,    /* stood in the file under `key` */
    PLIM_ORIGIN_RULE,    /* derived from other fields: `key` says how */
    PLIM_ORIGIN_DEFAULT, /* absent: the default of the class or engine that `key` names */
    PLIM_ORIGIN_ASSUMED, /* the user said so */
};

struct plim_origin {
    const char *field; /* name as in this header */
    const char *key;
    enum plim_origin_kind kind;
    uint64_t value;
};

struct plim_geometry {
    const char *architecture; /* "LlamaForCausalLM", or a GGUF architecture such as "llama" */
    const char *model_type;   /* "llama"; "" when the file has none */
    const char *family;       /* the rule of this library that counts its weights */
    bool assumed;             /* the user chose the rule */

    uint32_t hidden;
    uint32_t vocab;
    uint32_t max_position; /* tokens; 0: not stated */
    enum plim_dtype dtype; /* of weights that are not quantized, and of the KV cache by default */
    enum plim_dtype state_dtype; /* of recurrent matrix states; conv states use dtype */
    bool tied;                   /* the output matrix is the embedding */
    bool gated;                  /* feed-forward has a gate matrix beside up and down */
    bool qkv_bias, o_bias, mlp_bias, head_bias;
    bool qk_norm;
    uint32_t norms;      /* of a decoder layer */
    bool recurrent_bias; /* projections of recurrent mixers have one */
    bool conv_bias;
    uint32_t layer_inputs; /* elements of an embedding for each layer (Gemma 3n, 4), 0: none */
    uint32_t layer_inputs_vocab;
    uint32_t streams;           /* Gemma 3n: alternating residual streams, 0 or 1: one */
    uint32_t laurel_rank;       /* Gemma 3n: of the low-rank residual */
    uint32_t mel_bins;          /* Whisper: input channels of the audio encoder */
    uint32_t embedding_dim;     /* of the token embedding when it is not `hidden`, else 0 */
    uint32_t learned_positions; /* rows of a learned position table, 0: none */

    struct plim_layer *layers; /* [n_layers] decoder */
    uint32_t n_layers;
    struct plim_layer *encoder; /* [n_encoder] text or audio encoder of an encoder-decoder model */
    uint32_t n_encoder;
    uint32_t cross_tokens;  /* encoder positions that cross attention keeps for a sequence */
    struct plim_layer *mtp; /* [n_mtp] multi-token prediction layers, loaded only to speculate */
    uint32_t n_mtp;

    struct plim_rope *ropes; /* [n_ropes] distinct ones */
    uint32_t n_ropes;

    struct plim_quant quant;
    struct plim_vision vision;

    struct plim_origin *origins; /* [n_origins] in the order read */
    uint32_t n_origins;
    const char **notes; /* [n_notes] sentences about contradictions and what was done */
    uint32_t n_notes;
};

struct plim_geometry_options {
    const char *assume; /* count the weights by this architecture's or model_type's rule, or NULL */
    struct plim_str
        quant; /* text of a separate quantization file (hf_quant_config.json), or empty */
};

/**
 * plim_geometry_from_config() - read the text of a config.json.
 * @name: for messages, "models/x/config.json".
 * Also accepts a file whose top level nests the language model (text_config, llm_config, ...), and a
 * `quantization_config` in any place where files have it.
 * Errors: PLIM_E_DATA no JSON object, a field of the wrong type, contradictory fields (where = the key);
 * PLIM_E_RANGE zero, negative or absurd dimensions; PLIM_E_UNSUPPORTED unknown architecture (the hint names
 * --assume and the nearest known); PLIM_E_BUDGET, PLIM_E_NOMEM. Cost: linear in the text.
 */
PLIM_MUST_USE enum plim_status plim_geometry_from_config(struct plim_arena *arena,
                                                         struct plim_str text, const char *name,
                                                         const struct plim_geometry_options *opts,
                                                         struct plim_geometry *out,
                                                         struct plim_err *err);

const char *plim_mixer_text(enum plim_mixer mixer);
const char *plim_quant_text(enum plim_quant_kind kind);

/** plim_layer_is_attention() - the mixer keeps K and V (or a latent) for each token. */
bool plim_layer_is_attention(const struct plim_layer *layer);

/* How a model is laid over devices, and the one device that is asked about. All counts >= 1, ranks from 0. */
struct plim_placement {
    uint32_t tp; /* tensor parallel size */
    uint32_t pp; /* pipeline stages */
    uint32_t pp_rank;
    uint32_t ep;        /* expert parallel size; 1: experts are divided like other layers, by tp */
    uint32_t dcp;       /* decode context parallel size; divides tp */
    uint32_t vocab_pad; /* engines pad the vocabulary to a multiple of this (vLLM 64); 1: none */
    bool mtp;           /* multi-token prediction layers are loaded */
    bool no_vision;     /* the vision encoder is not loaded */
};

#define PLIM_PLACEMENT_WHOLE ((struct plim_placement){1, 1, 0, 1, 1, 1, false, false})

/**
 * plim_stage_layers() - the decoder layers [*first, *end) of a pipeline stage: equal shares, the remainder
 * goes to the stages before the last, beginning with the last but one.
 * Source: vllm 0.33.0 distributed/utils.py get_pp_indices.
 */
void plim_stage_layers(uint32_t n_layers, uint32_t pp, uint32_t pp_rank, uint32_t *first,
                       uint32_t *end);

#endif
