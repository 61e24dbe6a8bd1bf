/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image generation, one picture at a time: `steps` passes of a transformer over the latent's tokens (the
 * latent has an eighth of each side, a token covers two by two of it, and the picture is computed with
 * and without its prompt), then the decoder at full size. The transformer has the shape of the geometry's
 * vision part when it has one, else that of a 24-layer one of width 1536 (Stable Diffusion 3 medium's
 * numbers); its blocks allocate as a vision transformer's do. Sides are rounded to multiples of 16, or up
 * to the next edge.
 */

#include "base/num.h"
#include "serving/engine.h"

static const struct plim_vision denoiser = {.depth = PLIM__DENOISER_BLOCKS,
                                            .hidden = 1536,
                                            .intermediate = 6144,
                                            .heads = 24,
                                            .channels = 16};

static const struct plim_image_decoder decoder = {.latent = 16,
                                                  .channels = {512, 512, 256, 128},
                                                  .levels = 4,
                                                  .blocks = 3,
                                                  .groups = 32,
                                                  .element = 2};

#define DENOISER_PARAMETERS                                                                        \
    UINT64_C(2030000000) /* Stable Diffusion 3 medium, without text encoders */

static uint64_t side_of(struct plim__engine *e, uint32_t pixels)
{
    uint32_t wanted = pixels > 0 ? pixels : 1024;
    uint32_t side = plim_edges_up(&e->s->sides, wanted);
    plim__engine_size(e, PLIM_BUCKET_SIDE, wanted);
    return plim_max_u64(plim_round_up(side, 16), 64);
}

/* One denoising step; all steps of a picture are the same to the allocator. */
static void denoise(struct plim__engine *e, const struct plim_vision *v, uint64_t width,
                    uint64_t height)
{
    uint64_t tokens = width / 16 * (height / 16);
    uint64_t name = width << 20 | height;
    e->during = "denoising";
    if (!plim_feed_repeats(&e->feed, name)) {
        uint64_t state = e->feed.state, gets = e->feed.gets;
        plim_forward_vision(v, e->forward.element, &e->feed, 2, tokens, width / 8 * (height / 8));
        plim_feed_ran(&e->feed, name, state, gets);
    }
    plim__engine_step(e, plim__engine_work(e, 2 * (double)tokens, 0), 0);
}

static void make(struct plim__engine *e, const struct plim_vision *v, struct plim__ticket *t)
{
    uint64_t width = side_of(e, t->a.width), height = side_of(e, t->a.height);
    uint64_t latent_bytes = (uint64_t)decoder.latent * (width / 8) * (height / 8) * 2;
    plim__adapters_use(e, &t->a);
    for (uint32_t image = 0; image < t->a.images && !e->feed.failed; image++) {
        plim_piece latent = plim_feed_get(&e->feed, latent_bytes);
        for (uint32_t i = 0; i < e->s->steps && !e->feed.failed; i++) {
            denoise(e, v, width, height);
        }
        e->during = "decoder";
        plim_piece picture = plim_forward_image_decoder(&decoder, &e->feed, height / 8, width / 8);
        plim_piece exact =
            plim_feed_get(&e->feed, 3 * width * height * 4); /* float32 to the host */
        plim_feed_put(&e->feed, &picture);
        plim_feed_put(&e->feed, &exact);
        plim_feed_put(&e->feed, &latent);
        plim__engine_step(e, plim__engine_work(e, (double)(width * height) / 256, 0), 0);
        e->r.output_tokens += width / 16 * (height / 16);
        uint64_t asked = (uint64_t)t->a.width * t->a.height / 256;
        e->r.padding_tokens += plim_sub_sat(width * height / 256, asked);
    }
}

enum plim_status plim__workload_pictures(struct plim__engine *e, struct plim_err *err)
{
    const struct plim_geometry *g = e->s->geometry;
    const struct plim_vision *v = g && g->vision.depth > 0 ? &g->vision : &denoiser;
    (void)err;
    e->r.started = !plim__engine_failed(e, 0);
    while (plim__engine_until_work(e)) {
        struct plim__ticket t = plim__engine_take(e);
        e->running = 1;
        make(e, v, &t);
        if (!plim__engine_failed(e, 1)) {
            plim__engine_first(e, &t);
            plim__engine_done(e, &t);
        }
        if (e->s->empty_cache) {
            plim_feed_flush(&e->feed);
        }
    }
    e->r.unfinished = plim__engine_waiting(e);
    return PLIM_OK;
}
