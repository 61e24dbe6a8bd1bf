/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_CONFIG_H
#define PLIM_SERVING_CONFIG_H

/* The steps of reading a config.json; each fills its part of c->g and leaves errors in c->st. */

#include "serving/fields.h"

/** plim__config_layers() - decoder layers: which mixer, its sizes, which feed-forward part. */
void plim__config_layers(struct plim__config *c, const struct plim__node *node);

/** plim__config_mixers() - the kind of each layer, from whichever of the many spellings the file uses.
 * @kinds: [n] out. */
struct plim__kind {
    enum plim_mixer mixer;     /* FULL stands for latent attention too */
    enum plim_mixer recurrent; /* beside attention, or the mixer itself */
    enum plim_ffn ffn;         /* only with split layers; else NONE: by the rule of the experts */
};
void plim__config_mixers(struct plim__config *c, const struct plim__node *node,
                         struct plim__kind *kinds, uint32_t n);

/** plim__config_block() - the object `part` of layer i in block_configs; an error when it is missing. */
struct plim__node plim__config_block(struct plim__config *c, const struct plim__node *node,
                                     uint32_t i, const char *part);

/** plim__config_experts() - which layers have experts, and their sizes. Layers have their mixers. */
void plim__config_experts(struct plim__config *c, const struct plim__node *node,
                          const struct plim__kind *kinds);

/** plim__config_attention() - sizes of one layer's attention. @i: its index. */
void plim__config_attention(struct plim__config *c, const struct plim__node *node, uint32_t i);

/** plim__config_recurrent() - sizes of one layer's recurrent mixer. */
void plim__config_recurrent(struct plim__config *c, const struct plim__node *node, uint32_t i);

/** plim__config_ropes() - distinct rotary embeddings, and which layer uses which. */
void plim__config_ropes(struct plim__config *c, const struct plim__node *node);

/** plim__config_quant() - quantization, wherever the file has it. @apart: text of a separate file. */
void plim__config_quant(struct plim__config *c, const struct plim__node *root,
                        const struct plim__node *node, struct plim_str apart);

/** plim__config_vision() - the vision encoder. */
void plim__config_vision(struct plim__config *c, const struct plim__node *root);

/** plim__config_encoder() - encoder of an encoder-decoder model, cross attention. */
void plim__config_encoder(struct plim__config *c, const struct plim__node *node);

/** plim__config_array() - n zeroed elements of `size` bytes in the arena; NULL after an error. */
void *plim__config_array(struct plim__config *c, size_t n, size_t size);

#endif
