/* SPDX-License-Identifier: Apache-2.0 */
/* Vision transformers and convolutional decoders as allocations: CLIPVisionModel of transformers 5.20.0,
 * and the decoder of AutoencoderKL (diffusers 0.42.1 describes its layers). */

#include "serving/forward.h"

/* torch.nn.LayerNorm: mean and reciprocal deviation of each row live for the call only. */
static plim_piece layer_norm(struct plim_feed *t, uint64_t rows, uint64_t width, uint64_t element)
{
    plim_piece out = plim_feed_get(t, rows * width * element);
    plim_piece mean = plim_feed_get(t, rows * 4);
    plim_piece deviation = plim_feed_get(t, rows * 4);
    plim_feed_put(t, &mean);
    plim_feed_put(t, &deviation);
    return out;
}

/* scaled_dot_product_attention without a mask. */
static plim_piece attend(struct plim_feed *t, uint64_t bytes)
{
    plim_piece seed = plim_feed_get(t, 8);
    plim_piece offset = plim_feed_get(t, 8);
    plim_piece out = plim_feed_get(t, bytes);
    plim_feed_put(t, &seed);
    plim_feed_put(t, &offset);
    return out;
}

/* x + attention(norm(x)) */
static plim_piece vision_attention(struct plim_feed *t, uint64_t rows, uint64_t width,
                                   uint64_t element)
{
    uint64_t bytes = rows * width * element;
    plim_piece normed = layer_norm(t, rows, width, element);
    plim_piece q = plim_feed_get(t, bytes);
    plim_piece k = plim_feed_get(t, bytes);
    plim_piece v = plim_feed_get(t, bytes);
    plim_piece mixed = attend(t, bytes);
    plim_piece projected = plim_feed_get(t, bytes);
    plim_feed_put(t, &mixed);
    plim_feed_put(t, &q);
    plim_feed_put(t, &k);
    plim_feed_put(t, &v);
    plim_feed_put(t, &normed);
    plim_piece sum = plim_feed_get(t, bytes);
    plim_feed_put(t, &projected);
    return sum;
}

/* x + fc2(quick_gelu(fc1(norm(x)))), quick_gelu being x * sigmoid(1.702 * x) */
static plim_piece vision_mlp(struct plim_feed *t, uint64_t rows, const struct plim_vision *v,
                             uint64_t element)
{
    uint64_t wide = rows * v->intermediate * element;
    plim_piece normed = layer_norm(t, rows, v->hidden, element);
    plim_piece up = plim_feed_get(t, wide);
    plim_piece scaled = plim_feed_get(t, wide);
    plim_piece gate = plim_feed_get(t, wide);
    plim_feed_put(t, &scaled);
    plim_piece active = plim_feed_get(t, wide);
    plim_feed_put(t, &gate);
    plim_feed_put(t, &up);
    plim_piece down = plim_feed_get(t, rows * v->hidden * element);
    plim_feed_put(t, &active);
    plim_feed_put(t, &normed);
    plim_piece sum = plim_feed_get(t, rows * v->hidden * element);
    plim_feed_put(t, &down);
    return sum;
}

void plim_forward_vision(const struct plim_vision *v, uint32_t element, struct plim_feed *t,
                         uint64_t images, uint64_t patches, uint64_t pixels)
{
    uint64_t rows = images * (patches + 1);
    uint64_t width = (uint64_t)v->hidden * element;
    plim_piece picture = plim_feed_get(t, images * v->channels * pixels * element);
    plim_piece projected = plim_feed_get(t, images * patches * width);
    plim_piece joined = plim_feed_get(t, rows * width);
    plim_piece positions = plim_feed_get(t, (patches + 1) * width);
    plim_piece embedded = plim_feed_get(t, rows * width);
    plim_feed_put(t, &positions);
    plim_feed_put(t, &joined);
    plim_feed_put(t, &projected);
    plim_piece hidden = layer_norm(t, rows, v->hidden, element);
    plim_feed_put(t, &embedded);
    plim_piece first = hidden; /* a name of the caller holds it to the end */
    for (uint32_t i = 0; i < v->depth; i++) {
        plim_piece middle = vision_attention(t, rows, v->hidden, element);
        plim_piece next = vision_mlp(t, rows, v, element);
        plim_feed_put(t, &middle);
        if (i > 0) {
            plim_feed_put(t, &hidden);
        }
        hidden = next;
    }
    /* The class tokens of several pictures are made contiguous first. */
    plim_piece token = images > 1 ? plim_feed_get(t, images * width) : 0;
    plim_piece pooled = plim_feed_get(t, images * width);
    plim_piece mean = plim_feed_get(t, images * 4);
    plim_piece deviation = plim_feed_get(t, images * 4);
    plim_feed_put(t, &token);
    plim_feed_put(t, &mean);
    plim_feed_put(t, &deviation);
    if (v->depth > 0) {
        plim_feed_put(t, &first);
    }
    plim_feed_put(t, &picture);
    plim_feed_put(t, &hidden);
    plim_feed_put(t, &pooled);
}

/* ---- image decoder ----------------------------------------------------------------------------------- */

struct decoding {
    struct plim_feed *t;
    const struct plim_image_decoder *d;
    uint64_t height, width;
    bool scattered; /* the map at hand has its channels innermost, as attention left it */
};

static uint64_t map_bytes(const struct decoding *p, uint64_t channels)
{
    return channels * p->height * p->width * p->d->element;
}

/* torch.nn.GroupNorm: statistics of the groups as elements and as float32, and the two factors of each
 * channel. A scattered map is copied for the call. */
static plim_piece group_norm(const struct decoding *p, uint64_t channels, bool scattered)
{
    struct plim_feed *t = p->t;
    uint64_t groups = p->d->groups;
    plim_piece out = plim_feed_get(t, map_bytes(p, channels));
    plim_piece mean = plim_feed_get(t, groups * p->d->element);
    plim_piece deviation = plim_feed_get(t, groups * p->d->element);
    plim_piece copy = scattered ? plim_feed_get(t, map_bytes(p, channels)) : 0;
    plim_piece exact_mean = plim_feed_get(t, groups * 4);
    plim_piece exact_deviation = plim_feed_get(t, groups * 4);
    plim_piece factor = plim_feed_get(t, channels * 4);
    plim_piece offset = plim_feed_get(t, channels * 4);
    plim_feed_put(t, &offset);
    plim_feed_put(t, &factor);
    plim_feed_put(t, &exact_deviation);
    plim_feed_put(t, &exact_mean);
    plim_feed_put(t, &copy);
    plim_feed_put(t, &mean);
    plim_feed_put(t, &deviation);
    return out;
}

/* conv(silu(norm(x))) */
static plim_piece norm_conv(const struct decoding *p, plim_piece *x, uint64_t from, uint64_t to)
{
    plim_piece normed = group_norm(p, from, !x && p->scattered);
    if (x) {
        plim_feed_put(p->t, x);
    }
    plim_piece active = plim_feed_get(p->t, map_bytes(p, from));
    plim_feed_put(p->t, &normed);
    plim_piece out = plim_feed_get(p->t, map_bytes(p, to));
    plim_feed_put(p->t, &active);
    return out;
}

/* ResnetBlock2D without time embedding; its input belongs to the caller. x is NULL in norm_conv() for that
 * input, which alone may be scattered; the sum has the layout of the input. */
static plim_piece residual(const struct decoding *p, uint64_t from, uint64_t to)
{
    plim_piece first = norm_conv(p, NULL, from, to);
    plim_piece second = norm_conv(p, &first, to, to);
    plim_piece shortcut = from != to ? plim_feed_get(p->t, map_bytes(p, to)) : 0;
    plim_piece sum = plim_feed_get(p->t, map_bytes(p, to));
    plim_feed_put(p->t, &shortcut);
    plim_feed_put(p->t, &second);
    return sum;
}

/* The middle block's attention over all places of the map, one head. */
static plim_piece middle_attention(const struct decoding *p, uint64_t channels)
{
    struct plim_feed *t = p->t;
    uint64_t bytes = map_bytes(p, channels);
    plim_piece normed = group_norm(p, channels, false);
    plim_piece q = plim_feed_get(t, bytes);
    plim_piece k = plim_feed_get(t, bytes);
    plim_piece v = plim_feed_get(t, bytes);
    plim_piece mixed = attend(t, bytes);
    plim_piece projected = plim_feed_get(t, bytes);
    plim_piece sum = plim_feed_get(t, bytes);
    plim_feed_put(t, &projected);
    plim_feed_put(t, &normed);
    plim_feed_put(t, &q);
    plim_feed_put(t, &k);
    plim_feed_put(t, &v);
    plim_feed_put(t, &mixed);
    return sum;
}

/* Replace *x by what a block made of it. */
static void become(const struct decoding *p, plim_piece *x, plim_piece next)
{
    plim_feed_put(p->t, x);
    *x = next;
}

/* Nearest-neighbour doubling of both sides, then a convolution. */
static void upsample(struct decoding *p, plim_piece *x, uint64_t channels)
{
    uint64_t small = map_bytes(p, channels);
    p->height *= 2;
    p->width *= 2;
    plim_piece large = plim_feed_get(p->t, map_bytes(p, channels));
    plim_piece copy = p->scattered ? plim_feed_get(p->t, small) : 0;
    plim_feed_put(p->t, &copy);
    p->scattered = false;
    plim_piece out = plim_feed_get(p->t, map_bytes(p, channels));
    plim_feed_put(p->t, &large);
    become(p, x, out);
}

plim_piece plim_forward_image_decoder(const struct plim_image_decoder *d, struct plim_feed *t,
                                      uint64_t height, uint64_t width)
{
    struct decoding p = {.t = t, .d = d, .height = height, .width = width};
    uint64_t channels = d->channels[0];
    plim_piece x = plim_feed_get(t, map_bytes(&p, channels));
    become(&p, &x, residual(&p, channels, channels));
    become(&p, &x, middle_attention(&p, channels));
    p.scattered = true;
    become(&p, &x, residual(&p, channels, channels));
    for (uint32_t level = 0; level < d->levels; level++) {
        for (uint32_t i = 0; i < d->blocks; i++) {
            become(&p, &x, residual(&p, channels, d->channels[level]));
            channels = d->channels[level];
        }
        if (level + 1 < d->levels) {
            upsample(&p, &x, channels);
        }
    }
    plim_piece normed = group_norm(&p, channels, false);
    become(&p, &x, normed);
    become(&p, &x, plim_feed_get(t, map_bytes(&p, channels)));
    become(&p, &x, plim_feed_get(t, map_bytes(&p, 3)));
    return x;
}
