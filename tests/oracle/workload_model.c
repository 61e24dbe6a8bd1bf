/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocations of a forward pass as this library has them, for comparison with a real program:
 *
 *   workload_model NAME key=value ...
 *
 * One line for each entry: "+ bytes" an allocation, "- n" the free of the n-th one, from 0.
 */

#include "serving/forward.h"

#include <inttypes.h>
#include <stdio.h>

static int n_args;
static char **args;

static uint32_t arg(const char *key)
{
    size_t n = strlen(key);
    for (int i = 0; i < n_args; i++) {
        if (strncmp(args[i], key, n) == 0 && args[i][n] == '=') {
            return (uint32_t)strtoul(args[i] + n + 1, NULL, 10);
        }
    }
    fprintf(stderr, "workload_model: %s is missing\n", key);
    exit(64);
}

static void write_entry(void *ctx, uint64_t index, uint64_t bytes)
{
    (void)ctx;
    if (bytes > 0) {
        printf("+ %" PRIu64 "\n", bytes);
    } else {
        printf("- %" PRIu64 "\n", index);
    }
}

static struct plim_layer layers[16];

static struct plim_geometry geometry(void)
{
    struct plim_layer layer = {
        .mixer = PLIM_MIXER_FULL,
        .ffn = PLIM_FFN_DENSE,
        .heads = arg("heads"),
        .kv_heads = arg("kv_heads"),
        .head_dim = arg("head_dim"),
        .v_head_dim = arg("head_dim"),
        .intermediate = arg("intermediate"),
    };
    struct plim_geometry g = {.hidden = arg("hidden"),
                              .vocab = arg("vocab"),
                              .layers = layers,
                              .n_layers = arg("layers")};
    for (uint32_t i = 0; i < g.n_layers && i < 16; i++) {
        layers[i] = layer;
    }
    return g;
}

/* A greedy loop: `steps` forward passes, the first over the whole prompt. */
static void text(struct plim_feed *t)
{
    struct plim_geometry g = geometry();
    struct plim_forward f = {.geometry = &g, .element = 2};
    struct plim_dynamic_cache cache;
    uint64_t batch = arg("batch");
    if (plim_dynamic_cache_init(&cache, g.n_layers, NULL) != PLIM_OK) {
        exit(71);
    }
    plim_piece logits = 0;
    for (uint32_t i = 0; i < arg("steps"); i++) {
        plim_piece next =
            plim_forward_dynamic(&f, &cache, t, batch, i == 0 ? arg("length") : 1, arg("masked"));
        plim_feed_put(t, &logits);
        logits = next;
    }
    plim_dynamic_cache_drop(&cache, t);
    plim_feed_put(t, &logits);
    plim_dynamic_cache_fini(&cache);
}

/* One step of a paged engine. */
static void step(struct plim_feed *t)
{
    struct plim_geometry g = geometry();
    struct plim_forward f = {.geometry = &g, .element = 2};
    struct plim_paged_step s = {.tokens = arg("tokens"),
                                .rows = arg("rows"),
                                .splits = arg("splits"),
                                .plan_bytes = arg("plan_bytes")};
    plim_piece inputs[2], sampled = 0;
    plim_step_inputs(t, &s, inputs);
    plim_piece hidden = plim_forward_paged(&f, t, &s);
    plim_step_sample(&f, t, s.rows, &hidden, &sampled, inputs);
}

static void vision(struct plim_feed *t)
{
    uint32_t side = arg("side"), patch = arg("patch");
    struct plim_vision v = {.depth = arg("layers"),
                            .hidden = arg("hidden"),
                            .intermediate = arg("intermediate"),
                            .heads = arg("heads"),
                            .channels = 3};
    plim_forward_vision(&v, 2, t, arg("images"), (uint64_t)(side / patch) * (side / patch),
                        (uint64_t)side * side);
}

static void decoder(struct plim_feed *t)
{
    struct plim_image_decoder d = {.latent = 4,
                                   .channels = {arg("c0"), arg("c1"), arg("c2"), arg("c3")},
                                   .levels = 4,
                                   .blocks = 3,
                                   .groups = 32,
                                   .element = 2};
    plim_piece picture = plim_forward_image_decoder(&d, t, arg("height"), arg("width"));
    plim_feed_put(t, &picture);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct plim_feed *t);
    } programs[] = {{"text", text}, {"step", step}, {"vision", vision}, {"decoder", decoder}};
    struct plim_feed feed = {.log = write_entry};
    n_args = argc - 2;
    args = argv + 2;
    for (size_t i = 0; argc > 1 && i < PLIM_COUNT_OF(programs); i++) {
        if (strcmp(argv[1], programs[i].name) == 0) {
            programs[i].run(&feed);
            return 0;
        }
    }
    fprintf(stderr, "usage: workload_model text|step|vision|decoder key=value ...\n");
    return 64;
}
