/* SPDX-License-Identifier: Apache-2.0 */
/* Soaks: the short cut for repeated steps changes nothing, no request gets lost from the books, failures are told. */

#include "serving/soak.h"

#include "fail_alloc.h"
#include "unit.h"

#define SECOND UINT64_C(1000000000)
#define LAYERS 4u

static struct plim_layer layers[LAYERS];

static struct plim_geometry small_model(void)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = (struct plim_layer){.mixer = PLIM_MIXER_FULL,
                                        .ffn = PLIM_FFN_DENSE,
                                        .heads = 16,
                                        .kv_heads = 4,
                                        .head_dim = 128,
                                        .v_head_dim = 128,
                                        .kv_from = PLIM_LAYER_OWN_KV,
                                        .rope = PLIM_NO_ROPE,
                                        .intermediate = 5632};
    }
    return (struct plim_geometry){.architecture = "LlamaForCausalLM",
                                  .model_type = "llama",
                                  .family = "llama",
                                  .hidden = 2048,
                                  .vocab = 32000,
                                  .max_position = 8192,
                                  .dtype = PLIM_DTYPE_BF16,
                                  .gated = true,
                                  .layers = layers,
                                  .n_layers = LAYERS};
}

struct soak {
    struct plim_geometry geometry;
    struct plim_flow_source source;
    struct plim_flow_options flow;
    struct plim_server server;
    struct plim_conf conf;
    struct plim_soak_setup setup;
    struct plim_soak_result result;
};

/* A soak of `seconds` seconds of that traffic; the caller may change it before run(). */
static void prepare(struct soak *s, enum plim_workload workload, const char *traffic,
                    uint64_t seconds, uint64_t capacity)
{
    bool known;
    *s = (struct soak){.geometry = small_model()};
    assert_ok(plim_flow_parse(plim_str_from(traffic), &s->source, &known, NULL));
    s->flow = (struct plim_flow_options){
        .sources = &s->source, .n_sources = 1, .span_ns = seconds * SECOND};
    plim_server_defaults(&s->server, workload,
                         workload == PLIM_WORKLOAD_PICTURES ? NULL : &s->geometry, capacity);
    plim_conf_init(&s->conf, PLIM_TORCH_LATEST);
    s->setup = (struct plim_soak_setup){.server = &s->server,
                                        .flow = &s->flow,
                                        .conf = &s->conf,
                                        .capacity = capacity,
                                        .external = 500 * PLIM_MIB};
}

static void run(struct soak *s)
{
    assert_ok(plim_soak_run(&s->setup, &s->result, NULL));
    const struct plim_soak_result *r = &s->result;
    assert_int_equal(r->served + r->refused + r->lost + r->unfinished,
                     r->started ? r->arrivals : r->served + r->refused + r->lost + r->unfinished);
    assert_true(r->mean_stranded <= r->peak.stranded);
    assert_true(r->peak.active <= r->peak.reserved);
}

static void repeated_steps_are_left_out_without_changing_anything(void **state)
{
    static const struct {
        enum plim_workload workload;
        const char *traffic;
        const char *conf;
        uint32_t adapters;
    } cases[] = {
        {PLIM_WORKLOAD_PAGED, "azure-conv", "", 0},
        {PLIM_WORKLOAD_PAGED, "azure-code", "expandable_segments:True", 0},
        {PLIM_WORKLOAD_PAGED, "azure-conv", "max_split_size_mb:32", 12},
        {PLIM_WORKLOAD_PICTURES, "pictures", "", 0},
        {PLIM_WORKLOAD_PICTURES, "pictures", "max_split_size_mb:64,roundup_power2_divisions:4", 0},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        static struct soak a, b;
        prepare(&a, cases[i].workload, cases[i].traffic, 60, 16 * PLIM_GIB);
        assert_ok(plim_conf_parse(&a.conf, plim_str_from(cases[i].conf), NULL));
        a.server.adapters = cases[i].adapters;
        a.server.max_seqs = 64;
        a.server.kv_bytes = cases[i].workload == PLIM_WORKLOAD_PAGED ? PLIM_GIB : 0;
        b = a;
        b.setup.server = &b.server;
        b.setup.flow = &b.flow;
        b.flow.sources = &b.source;
        b.setup.conf = &b.conf;
        b.server.geometry = a.server.geometry;
        b.setup.no_repeat = true;
        run(&a);
        run(&b);
        assert_true(a.result.repeated > a.result.allocations / 4);
        assert_int_equal(b.result.repeated, 0);
        b.result.repeated = a.result.repeated;
        assert_memory_equal(&a.result, &b.result, sizeof a.result);
    }
}

static void a_pool_that_is_too_small_preempts_and_serves_all(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "poisson:rate=20,prompt=900,output=300", 60, 16 * PLIM_GIB);
    s.server.kv_bytes = 8192 * (2 * LAYERS * 4 * 128 * 2); /* 8192 tokens: some seven requests */
    run(&s);
    assert_true(s.result.preemptions > 0);
    assert_true(s.result.kv_peak > 0.95);
    assert_int_equal(s.result.served, s.result.arrivals);
    assert_true(s.result.prompt_tokens > s.result.arrivals * 900);
}

static void requests_beyond_the_longest_are_refused(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "poisson:rate=5,prompt=100,output=10", 100, 16 * PLIM_GIB);
    s.flow.tail = (struct plim_tail){0.2, 9000, 1};
    run(&s);
    assert_true(s.result.refused > s.result.arrivals / 10);
    assert_int_equal(s.result.served + s.result.refused, s.result.arrivals);
}

/* n requests, two seconds apart; every other one shares the first three of its four blocks of 64 tokens. */
static struct plim_traffic sharing(uint32_t n)
{
    struct plim_traffic t = {.timed = true, .hash_block = 64};
    for (uint32_t i = 0; i < n; i++) {
        struct plim_arrival a = {.at_ns = 2 * i * SECOND,
                                 .prompt = 270,
                                 .output = 3,
                                 .session = PLIM_NO_ID,
                                 .first_hash = 4 * i,
                                 .n_hashes = 4};
        for (uint32_t k = 0; k < 4; k++) {
            assert_ok(plim_vec_push(&t.hashes, NULL, k < 3 ? 10 * (i % 2) + k : 1000 + i));
        }
        assert_ok(plim_vec_push(&t.arrivals, NULL, a));
    }
    return t;
}

static void shared_prefixes_are_computed_once(void **state)
{
    static struct soak s;
    struct plim_traffic t = sharing(20);
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "azure-conv", 39, 16 * PLIM_GIB);
    s.source = (struct plim_flow_source){.traffic = &t};
    run(&s);
    assert_int_equal(s.result.served, 20);
    assert_int_equal(s.result.cached_tokens, 18 * 3 * 64);
    assert_int_equal(s.result.prompt_tokens, 20 * 270 - 18 * 3 * 64);
    s.server.no_prefix_cache = true;
    run(&s);
    assert_int_equal(s.result.cached_tokens, 0);
    s.server.no_prefix_cache = false;
    s.server.kv_bytes = 304 * (2 * LAYERS * 4 * 128 * 2); /* room for one: the rest is forgotten */
    run(&s);
    assert_int_equal(s.result.served, 20);
    assert_int_equal(s.result.cached_tokens, 0);
    plim_traffic_fini(&t);
}

static void a_server_that_does_not_fit_never_starts(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "azure-conv", 10, 700 * PLIM_MIB);
    run(&s);
    assert_false(s.result.started);
    assert_true(s.result.failed);
    assert_string_equal(s.result.first_oom.during, "start");
}

static void a_growing_cache_fails_and_the_batch_is_lost(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_DYNAMIC, "poisson:rate=2,prompt=3000~6000,output=20", 30,
            3 * PLIM_GIB / 2);
    run(&s);
    assert_true(s.result.failed);
    assert_true(s.result.num_ooms > 0);
    assert_true(s.result.lost > 0);
    assert_true(s.result.first_oom.request_bytes > 0);
    s.setup.stop_at_failure = true;
    assert_ok(plim_soak_run(&s.setup, &s.result, NULL));
    assert_int_equal(s.result.num_ooms, 1);
}

static void prompt_edges_trade_padding_for_fewer_sizes(void **state)
{
    static struct soak a, b;
    (void)state;
    prepare(&a, PLIM_WORKLOAD_DYNAMIC, "poisson:rate=2,prompt=500~2000,output=4", 60,
            16 * PLIM_GIB);
    a.server.max_seqs = 2;
    run(&a);
    prepare(&b, PLIM_WORKLOAD_DYNAMIC, "poisson:rate=2,prompt=500~2000,output=4", 60,
            16 * PLIM_GIB);
    b.server.max_seqs = 2;
    assert_ok(plim_edges_parse(PLIM_STR("512,1024,2048,4096,8192"), &b.server.prompts, NULL));
    run(&b);
    assert_true(b.result.padding_tokens > a.result.padding_tokens);
    assert_true(b.result.num_device_alloc <= a.result.num_device_alloc);
}

static void adapters_come_and_go_within_their_places(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "poisson:rate=20,prompt=50,output=5", 60, 16 * PLIM_GIB);
    s.server.kv_bytes = PLIM_GIB;
    s.server.adapters = 40;
    s.server.adapters_held = 4;
    run(&s);
    assert_true(s.result.adapter_loads > 100);
    assert_int_equal(s.result.lost, 0);
    s.server.adapters_held = 40;
    run(&s);
    assert_int_equal(s.result.adapter_loads, 40);
}

static void all_runs_of_a_plan_are_those_of_single_runs(void **state)
{
    static struct soak s;
    static struct plim_soak_result all[4];
    struct plim_conf confs[2];
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "azure-conv", 20, 16 * PLIM_GIB);
    confs[0] = confs[1] = s.conf;
    assert_ok(plim_conf_parse(&confs[1], PLIM_STR("expandable_segments:True"), NULL));
    struct plim_soak_plan plan = {.setup = s.setup,
                                  .confs = confs,
                                  .n_confs = 2,
                                  .first_seed = 5,
                                  .n_seeds = 2,
                                  .threads = 3};
    assert_ok(plim_soak_all(&plan, all, NULL));
    s.flow.seed = 6;
    s.setup.conf = &confs[1];
    run(&s);
    assert_memory_equal(&s.result, &all[3], sizeof s.result);
}

static void edges_round_up_and_must_rise(void **state)
{
    struct plim_edges e;
    (void)state;
    assert_ok(plim_edges_parse(PLIM_STR("8, 64,512"), &e, NULL));
    assert_int_equal(e.n, 3);
    assert_int_equal(plim_edges_up(&e, 1), 8);
    assert_int_equal(plim_edges_up(&e, 65), 512);
    assert_int_equal(plim_edges_up(&e, 513), 513);
    static const char *const wrong[] = {"", "8,8", "9,8", "0,1", "a", "1,,2", "99999999999"};
    for (size_t i = 0; i < PLIM_COUNT_OF(wrong); i++) {
        assert_int_equal(plim_edges_parse(plim_str_from(wrong[i]), &e, NULL), PLIM_E_USAGE);
    }
}

static void a_server_without_sense_is_refused(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "azure-conv", 10, 16 * PLIM_GIB);
    s.server.max_seqs = 0;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_USAGE);
    s.server.max_seqs = 64;
    s.server.utilization = 1.5;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_USAGE);
    s.server.utilization = 0.9;
    s.server.flops = 1e-300;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_USAGE);
    s.server.flops = 0;
    s.server.bandwidth = 1;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_USAGE);
    s.server.bandwidth = 0;
    struct plim_door_options door = {.kind = PLIM_DOOR_LINE, .limit = 1};
    s.setup.door = &door;
    s.server.workload = PLIM_WORKLOAD_DYNAMIC;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_USAGE);
    s.server.workload = PLIM_WORKLOAD_PAGED;
    s.setup.door = NULL;
    s.setup.external = 17 * PLIM_GIB;
    assert_int_equal(plim_soak_run(&s.setup, &s.result, NULL), PLIM_E_RANGE);
}

static enum plim_status body(void *arg)
{
    struct soak *s = arg;
    return plim_soak_run(&s->setup, &s->result, NULL);
}

static void failing_allocations_are_reported_and_leak_nothing(void **state)
{
    static struct soak s;
    (void)state;
    prepare(&s, PLIM_WORKLOAD_PAGED, "poisson:rate=2,prompt=10,output=2", 3, 8 * PLIM_GIB);
    s.server.adapters = 2;
    s.server.adapters_held = 1;
    fail_alloc_sweep(body, &s, 5000, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_steps_are_left_out_without_changing_anything),
        cmocka_unit_test(a_pool_that_is_too_small_preempts_and_serves_all),
        cmocka_unit_test(requests_beyond_the_longest_are_refused),
        cmocka_unit_test(shared_prefixes_are_computed_once),
        cmocka_unit_test(a_server_that_does_not_fit_never_starts),
        cmocka_unit_test(a_growing_cache_fails_and_the_batch_is_lost),
        cmocka_unit_test(prompt_edges_trade_padding_for_fewer_sizes),
        cmocka_unit_test(adapters_come_and_go_within_their_places),
        cmocka_unit_test(all_runs_of_a_plan_are_those_of_single_runs),
        cmocka_unit_test(edges_round_up_and_must_rise),
        cmocka_unit_test(a_server_without_sense_is_refused),
        cmocka_unit_test(failing_allocations_are_reported_and_leak_nothing),
    };
    return PLIM_RUN_TESTS("soaks", tests);
}
