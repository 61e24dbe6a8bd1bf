/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: a traffic file. Whatever it holds, it is read into arrivals that keep their invariants, repeated,
 * measured and served by a simulated server for some seconds, or refused with an error that says something. The
 * first byte's lowest bit asks for strict reading; where it is 8, the rest is a config.json, whose server gets
 * requests, and where it is 10, words for made traffic. The hash of the bytes chooses the server.
 */

#include "base/intern.h"
#include "base/num.h"
#include "format/traffic.h"
#include "serving/soak.h"

#include <stdlib.h>

#define LAYERS 24u /* models with more take too long */
#define MODEL                                                                                      \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":256,"      \
    "\"intermediate_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                 \
    "\"vocab_size\":1000,\"max_position_embeddings\":4096}"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sound(const struct plim_traffic *t)
{
    uint64_t last = 0;
    plim_vec_foreach (a, &t->arrivals) {
        bool shaped = (a->prompt > 0 || a->images > 0) && a->output > 0;
        bool hashed = (uint64_t)a->first_hash + a->n_hashes <= t->hashes.n;
        bool known = a->session == PLIM_NO_ID || a->session < t->sessions;
        if (a->at_ns < last || !shaped || !hashed || !known) {
            abort();
        }
        last = a->at_ns;
    }
    if (t->arrivals.n == 0 || t->arrivals.items[0].at_ns != 0) {
        abort();
    }
}

/* Two simulated seconds of a server that takes steps of at least 20 ms. */
static void serve(const struct plim_geometry *g, const struct plim_flow_source *source,
                  uint64_t choice)
{
    struct plim_server server;
    struct plim_soak_result result;
    struct plim_conf conf;
    struct plim_err err = {0};
    struct plim_flow_options flow = {
        .sources = source, .n_sources = 1, .span_ns = UINT64_C(2000000000), .seed = choice & 7};
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    plim_server_defaults(&server, choice & 8 ? PLIM_WORKLOAD_DYNAMIC : PLIM_WORKLOAD_PAGED, g,
                         24 * PLIM_GIB);
    server.step_ns = 20000000;
    server.max_seqs = 16;
    server.eager = (choice & 16) != 0;
    server.adapters = choice & 32 ? 3 : 0;
    server.adapters_held = 2;
    server.empty_cache = (choice & 64) != 0;
    bool doors = server.workload == PLIM_WORKLOAD_PAGED;
    struct plim_door_options door = {
        .kind = (enum plim_door_kind)(choice >> 7 & 7),
        .limit = 3,
        .oracle = (choice & 1024) != 0,
        .terms = {.first_ns = 500000000, .token_ns = 50000000, .max_tokens = 64}};
    struct plim_soak_setup setup = {.server = &server,
                                    .flow = &flow,
                                    .conf = &conf,
                                    .capacity = 24 * PLIM_GIB,
                                    .door = doors && door.kind < PLIM_DOOR_COUNT ? &door : NULL,
                                    .budget_ns = UINT64_C(3000000000)};
    if (plim_soak_run(&setup, &result, &err) != PLIM_OK && err.message[0] == '\0') {
        abort();
    }
}

static void serve_model(struct plim_str text, const struct plim_flow_source *source,
                        uint64_t choice)
{
    struct plim_arena arena;
    struct plim_geometry g;
    plim_arena_init(&arena, UINT64_C(16) << 20);
    if (plim_geometry_from_config(&arena, text, "model", NULL, &g, NULL) == PLIM_OK &&
        g.n_layers <= LAYERS) {
        serve(&g, source, choice);
    }
    plim_arena_fini(&arena);
}

/* A model that nobody has looked at. */
static void serve_any(struct plim_str text)
{
    struct plim_flow_source source;
    bool known;
    if (plim_flow_parse(PLIM_STR("poisson:rate=4,output=20"), &source, &known, NULL) == PLIM_OK) {
        serve_model(text, &source, plim_hash_bytes(text.p, text.n));
    }
}

/* Traffic that is made: at most some thousand arrivals are looked at. */
static void make_traffic(struct plim_str words)
{
    struct plim_flow_source source;
    struct plim_flow_facts facts;
    bool known;
    if (plim_flow_parse(words, &source, &known, NULL) != PLIM_OK || !known) {
        return;
    }
    double span_s = 2000 / (source.process.rate * source.process.burst + 1);
    struct plim_flow_options flow = {
        .sources = &source, .n_sources = 1, .span_ns = (uint64_t)(span_s * 1e9), .seed = words.n};
    if (plim_flow_measure(&flow, &facts, NULL) == PLIM_OK && !(facts.prompt_mean >= 0)) {
        abort();
    }
    if (source.process.rate * source.process.burst < 500) {
        serve_model(PLIM_STR(MODEL), &source, plim_hash_bytes(words.p, words.n));
    }
}

/* Some rounds of the traffic, measured; and a small server that it comes to. */
static void go_on(struct plim_traffic *t, uint64_t choice)
{
    struct plim_flow_facts facts;
    plim_traffic_spread(t);
    struct plim_flow_source source = {.traffic = t, .process = {PLIM_PROCESS_GAMMA, 1, 2, 0, 0, 0}};
    uint64_t span = plim_traffic_span(t);
    struct plim_flow_options flow = {.sources = &source,
                                     .n_sources = 1,
                                     .span_ns = span < UINT64_MAX / 3 ? 3 * span + 3 : UINT64_MAX,
                                     .rate_scale = choice & 1 ? 2 : 1,
                                     .length_scale = choice & 2 ? 1.5 : 1,
                                     .seed = choice >> 8 & 3};
    if (t->timed && plim_flow_measure(&flow, &facts, NULL) == PLIM_OK && facts.arrivals == 0) {
        abort();
    }
    if (span / t->arrivals.n > UINT64_C(1000000)) { /* not thousands in the two seconds */
        serve_model(PLIM_STR(MODEL), &source, choice >> 16);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_traffic traffic;
    struct plim_err err = {0};
    if (size > 0 && (data[0] == 8 || data[0] == 10)) {
        struct plim_str rest = {(const char *)data + 1, size - 1};
        (data[0] == 8 ? serve_any : make_traffic)(rest);
        return 0;
    }
    struct plim_traffic_options options = {.strict = size > 0 && (data[0] & 1) != 0 && data[0] < 8};
    size_t skip = options.strict ? 1 : 0;
    struct plim_source_bytes state;
    struct plim_source source =
        plim_source_bytes(&state, (struct plim_str){(const char *)data + skip, size - skip});
    if (plim_traffic_collect(&source, &options, &traffic, NULL, NULL, &err) == PLIM_OK) {
        sound(&traffic);
        go_on(&traffic, plim_hash_bytes(data, size));
        plim_traffic_fini(&traffic);
    } else if (err.message[0] == '\0') {
        abort();
    }
    return 0;
}
