/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_FAMILY_H
#define PLIM_SERVING_FAMILY_H

/*
 * Families: what architectures have in common and where they differ, as one table. A family is a rule, never
 * a model: it says which projections have biases, how many norms a layer has, which mixers alternate;
 * all sizes come from the file.
 *
 * A switch is a text: NULL never, "always", or the keys of the configuration (separated by spaces) of which
 * the first present decides; a key that begins with '!' says the opposite ("!no_bias").
 * Source: the modelling files of transformers 5.20.0, one folder for each model_type.
 */

#include <stdint.h>

/* X(name): what a family may have beyond projections, norms and a gated feed-forward part. */
#define PLIM__TRAIT_MAP(X)                                                                         \
    X(NORM_BIAS)    /* norms have a bias: LayerNorm */                                             \
    X(NORM_BARE)    /* norms have no weights */                                                    \
    X(PLAIN_MLP)    /* up and down, no gate */                                                     \
    X(QK_NORM_FULL) /* q/k norms over all heads together instead of one head */                    \
    X(QK_NORM_EACH) /* q/k norms with weights for each head */                                     \
    X(QK_NORM_BIAS)                                                                                \
    X(ATTENTION_GATE) /* queries come with a gate of the same size */                              \
    X(INDEXER)        /* sparse attention: keys of an indexer beside the latents */                \
    X(MHA)            /* as many KV heads as heads, whatever the file says */                      \
    X(FUSED_QKV)      /* files hold queries, keys and values in one tensor */                      \
    X(FUSED_UP)       /* files hold gate and up in one tensor */                                   \
    X(SINKS)          /* one learned sink a head */                                                \
    X(MLA)                                                                                         \
    X(MOE)         /* every layer has experts unless the configuration says otherwise */           \
    X(FIRST_DENSE) /* the first layer is dense when the file says nothing */                       \
    X(SHARED_GATE) /* one gate of the shared expert */                                             \
    X(ROUTER_BIAS)                                                                                 \
    X(EXPERT_BIAS)                                                                                 \
    X(CORRECTION_BIAS) /* fp32 score correction of the router, a value for each expert */          \
    X(HEAD_BIAS)                                                                                   \
    X(EMBED_NORM)                                                                                  \
    X(SPLIT_LAYERS)  /* a layer is either a mixer or a feed-forward part, with one norm */         \
    X(BLOCKS)        /* `block_configs` says for each layer which parts it has, and their sizes */ \
    X(ALTUP)         /* Gemma 3n: alternating updates, low-rank residuals, layer inputs */         \
    X(LAYER_INPUTS)  /* Gemma 3n and 4: an embedding for each layer */                             \
    X(LAYER_SCALAR)  /* Gemma 4: one stored scalar a layer */                                      \
    X(XIELU)         /* Apertus: two learned scalars of the activation */                          \
    X(MTP_DEEPSEEK)  /* MTP layer: embedding, head, two norms, one projection of 2 hidden */       \
    X(MTP_QWEN)      /* MTP: one projection of 2 hidden and three norms, shared tables */          \
    X(WINDOW_ALWAYS) /* `sliding_window` alone makes all layers slide */                           \
    X(LAST_FULL)     /* the last layer is full whatever the pattern */                             \
    X(ENCODER_DECODER)

enum plim__trait_bit {
#define PLIM__X(name) PLIM__BIT_##name,
    PLIM__TRAIT_MAP(PLIM__X)
#undef PLIM__X
    PLIM__BIT_COUNT
};
#define PLIM__T(name) (UINT64_C(1) << PLIM__BIT_##name)

struct plim__family {
    const char
        *types; /* model_types of the language model's configuration, the first names the family */
    const char *classes;  /* architectures */
    const char *qkv_bias; /* switches, see above */
    const char *o_bias;
    const char *mlp_bias;
    const char *qk_norm;
    uint64_t traits;
    uint8_t norms;     /* of a layer */
    uint8_t pattern;   /* every pattern-th layer is full, the others slide; 0: no such rule */
    uint8_t recurrent; /* enum plim_mixer of "linear_attention", "mamba" and such layers */
};

/** plim__family_of_class() / plim__family_of_type() - the row, or NULL. */
const struct plim__family *plim__family_of_class(const char *architecture);
const struct plim__family *plim__family_of_type(const char *model_type);

/** plim__family_nearest() - the known architecture or model_type with the most letters in common. */
const char *plim__family_nearest(const char *name);

/** plim__family_has() - a trait of the family: plim__family_has(f, MLA). */
#define plim__family_has(family, name) (((family)->traits & PLIM__T(name)) != 0)

#endif
