/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_FORWARD_H
#define PLIM_SERVING_FORWARD_H

/*
 * What the forward passes of real programs ask of the allocator: the same sizes in the same order, frees
 * included, as recorded from transformers 5.20.0 and PyTorch 2.14.1 (tests/oracle/test_workloads.py
 * compares them entry by entry on a simulated device).
 *
 *   rows     tokens that go through the layers: batch * length
 *   element  bytes of an element of weights and activations
 *
 * Not here: workspaces that libraries ask for by the size of a problem (cuDNN), which depend on the card
 * and the library's version; they would come on top. Kernels that a card chooses for attention allocate
 * differently; these are those of compute capability 9.0 under scaled_dot_product_attention.
 */

#include "serving/feed.h"
#include "serving/geometry.h"

/* Dimensions of a decoder block, all the same for its layers but where the geometry says otherwise. */
struct plim_forward {
    const struct plim_geometry *geometry; /* borrowed */
    uint32_t element;                     /* bytes */
};

/* Keys and values of the layers of one batch; transformers' DynamicCache. */
struct plim_dynamic_cache {
    plim_piece *keys;   /* owned, [layers] */
    plim_piece *values; /* owned, [layers] */
    uint32_t layers;
    uint64_t length; /* tokens of each row */
};

PLIM_MUST_USE enum plim_status plim_dynamic_cache_init(struct plim_dynamic_cache *cache,
                                                       uint32_t layers, struct plim_err *err);
/** plim_dynamic_cache_drop() - free the keys and values, as Python drops a list: from its end. */
void plim_dynamic_cache_drop(struct plim_dynamic_cache *cache, struct plim_feed *feed);
void plim_dynamic_cache_fini(struct plim_dynamic_cache *cache);

/**
 * plim_forward_dynamic() - LlamaForCausalLM.forward(input_ids [batch][length], past_key_values=cache,
 * logits_to_keep=1): concatenates keys and values with those of the cache.
 * @masked: an attention mask with padding was given: the mask is spelled out, and keys and values are
 * repeated for each query head.
 * Returns the logits [batch][1][vocab]. Attention layers of any kind keep all tokens (DynamicCache without
 * windows). Feed-forward parts with experts count as dense ones of the experts that a token uses.
 */
plim_piece plim_forward_dynamic(const struct plim_forward *f, struct plim_dynamic_cache *cache,
                                struct plim_feed *feed, uint64_t batch, uint64_t length,
                                bool masked);

/* A step of a paged engine. */
struct plim_paged_step {
    uint64_t tokens;     /* of all requests in it */
    uint64_t rows;       /* requests */
    uint64_t splits;     /* of keys and values in the attention kernel; 1: none */
    uint64_t plan_bytes; /* of the attention kernel's schedule: tens, by requests and card */
};

/**
 * The parts of one step of vLLM 0.33.0 (FlashAttention 3, greedy sampling): inputs, forward pass, sampling.
 * inputs[2] go from the first to the last; *sampled are the tokens of the step before and become those of
 * this one. plim_forward_paged() returns the hidden states [tokens][hidden].
 */
void plim_step_inputs(struct plim_feed *feed, const struct plim_paged_step *step,
                      plim_piece inputs[2]);
plim_piece plim_forward_paged(const struct plim_forward *f, struct plim_feed *feed,
                              const struct plim_paged_step *step);
void plim_step_sample(const struct plim_forward *f, struct plim_feed *feed, uint64_t rows,
                      plim_piece *hidden, plim_piece *sampled, plim_piece *inputs);

/** plim_layer_inner() - elements of the feed-forward part that one token goes through. */
static inline uint64_t plim_layer_inner(const struct plim_layer *layer)
{
    return (uint64_t)layer->intermediate + layer->shared_intermediate +
           (uint64_t)layer->experts_per_token * layer->expert_intermediate;
}

/** plim_forward_vision() - a vision transformer with class token and learned positions
 * (CLIPVisionModel.forward) over `images` pictures [3][side][side], the input included. Returns nothing:
 * outputs are freed. The geometry's `vision` gives its dimensions. */
void plim_forward_vision(const struct plim_vision *v, uint32_t element, struct plim_feed *feed,
                         uint64_t images, uint64_t patches, uint64_t pixels);

/* A convolutional image decoder (the decoder of diffusers' AutoencoderKL): from the deepest level up, each
 * level some residual blocks, then doubling of both sides but at the last. */
struct plim_image_decoder {
    uint32_t latent;      /* channels of the latent image */
    uint32_t channels[8]; /* of each level, deepest first */
    uint32_t levels;
    uint32_t blocks; /* residual blocks of a level */
    uint32_t groups; /* of group normalization */
    uint32_t element;
};

/** plim_forward_image_decoder() - one latent [latent][h][w] to a picture [3][8h][8w] with four levels; the
 * latent is the caller's. Attention of the middle block included. Several pictures are decoded one after
 * the other (VAE slicing). */
plim_piece plim_forward_image_decoder(const struct plim_image_decoder *d, struct plim_feed *feed,
                                      uint64_t height, uint64_t width);

#endif
