/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: flags as typed, tensors with holders, blocks and groups, changes, rules, calibration. */

#include "fail_alloc.h"
#include "unit.h"

#include "serving/plan.h"
#include "serving/tape.h"

#include <string.h>

#define LLAMA "{\"architectures\":[\"LlamaForCausalLM\"]," LLAMA_SIZES
#define LLAMA_SIZES                                                                                \
    "\"model_type\":\"llama\",\"hidden_size\":4096,"                                               \
    "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"             \
    "\"num_key_value_heads\":8,\"vocab_size\":128256,\"max_position_embeddings\":131072,"          \
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"}"

/* 6 layers with a window for each full one: 5 full and 29 windowed layers of 34. */
#define GEMMA                                                                                      \
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\","                   \
    "\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"                   \
    "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,"                        \
    "\"vocab_size\":262208,\"max_position_embeddings\":131072,\"sliding_window\":1024,"            \
    "\"sliding_window_pattern\":6,\"torch_dtype\":\"bfloat16\"}"

struct world {
    struct plim_arena arena;
    struct plim_geometry g;
    struct plim_plan_request request;
    struct plim_plan plan;
};

static void open_world(struct world *w, const char *config, const char *card)
{
    struct plim_geometry_options none = {0};
    memset(w, 0, sizeof *w);
    plim_arena_init(&w->arena, 0);
    assert_ok(plim_geometry_from_config(&w->arena, plim_str_from(config), "config.json", &none,
                                        &w->g, NULL));
    w->request = (struct plim_plan_request){
        .geometry = &w->g, .model = "model", .engine_version = "0.33", .settings = ""};
    assert_ok(plim_card_find(card, &w->request.card, NULL));
}

#define MAKE(w, ...)                                                                               \
    do {                                                                                           \
        static const char *const words_[] = {__VA_ARGS__};                                         \
        (w)->request.words = words_;                                                               \
        (w)->request.n_words = PLIM_COUNT_OF(words_);                                              \
        assert_ok(plim_plan_make(&(w)->arena, &(w)->request, &(w)->plan, NULL));                   \
    } while (0)

/* ---- flags ------------------------------------------------------------------------------------------ */

static void flags_are_taken_apart_as_typed(void **state)
{
    (void)state;
    static const char *const words[] = {"VLLM_USE_V2_MODEL_RUNNER=0",
                                        "vllm",
                                        "serve",
                                        "org/model",
                                        "--max_model_len=4k",
                                        "-tp",
                                        "2",
                                        "--no-enable-prefix-caching",
                                        "--enforce-eager",
                                        "-cc.mode=0",
                                        "--nonsense",
                                        "7",
                                        "--disable-chunked-prefill"};
    struct plim_arena arena;
    struct plim_vllm_flags f;
    plim_arena_init(&arena, 0);
    assert_ok(plim_vllm_flags_read(&arena, words, PLIM_COUNT_OF(words), &f, NULL));
    assert_true(f.serve);
    assert_string_equal(f.model, "org/model");
    assert_string_equal(plim_vllm_environment(&f, "VLLM_USE_V2_MODEL_RUNNER"), "0");
    assert_string_equal(plim_vllm_flag(&f, "max-model-len")->value, "4k");
    assert_string_equal(plim_vllm_flag(&f, "tensor-parallel-size")->value, "2");
    assert_false(plim_vllm_flag(&f, "enable-prefix-caching")->on);
    assert_false(plim_vllm_flag(&f, "enable-chunked-prefill")->on);
    assert_true(plim_vllm_flag(&f, "enforce-eager")->on);
    assert_string_equal(plim_vllm_flag_part(&f, "compilation-config", "mode")->value, "0");
    assert_int_equal(f.n_unknown, 1);
    assert_string_equal(f.unknown[0], "--nonsense");
    plim_arena_fini(&arena);
}

static void flags_without_their_value_are_named(void **state)
{
    (void)state;
    static const char *const missing[] = {"--max-num-seqs", "--enforce-eager"};
    static const char *const extra[] = {"--enforce-eager=1"};
    struct plim_arena arena;
    struct plim_vllm_flags f;
    struct plim_err err;
    plim_arena_init(&arena, 0);
    assert_int_equal(plim_vllm_flags_read(&arena, missing, 2, &f, &err), PLIM_E_USAGE);
    assert_non_null(strstr(err.message, "--max-num-seqs needs a value"));
    assert_int_equal(plim_vllm_flags_read(&arena, extra, 1, &f, &err), PLIM_E_USAGE);
    assert_non_null(strstr(err.message, "takes no value"));
    plim_arena_fini(&arena);
}

static void lengths_are_read_as_the_engine_reads_them(void **state)
{
    (void)state;
    int64_t n;
    assert_true(plim_vllm_size("1k", &n));
    assert_int_equal(n, 1000);
    assert_true(plim_vllm_size("1K", &n));
    assert_int_equal(n, 1024);
    assert_true(plim_vllm_size("auto", &n));
    assert_int_equal(n, -1);
    assert_false(plim_vllm_size("1kk", &n));
    assert_false(plim_vllm_size("-5", &n));
    assert_false(plim_vllm_size("", &n));
}

/* ---- tape -------------------------------------------------------------------------------------------- */

static void tensors_live_until_their_last_holder(void **state)
{
    (void)state;
    struct plim_tape t;
    struct plim_tape_config config = {
        .total = PLIM_GIB, .version = PLIM_TORCH_LATEST, .settings = ""};
    assert_ok(plim_tape_init(&t, &config, NULL));
    plim_tensor a = plim_tape_take(&t, 4 * PLIM_MIB);
    plim_tape_hold(&t, a);
    plim_tape_drop(&t, a);
    assert_int_equal(plim_tape_allocated(&t), 4 * PLIM_MIB);
    plim_tape_drop(&t, a);
    assert_int_equal(plim_tape_allocated(&t), 0);
    assert_int_equal(plim_tape_peak(&t), 4 * PLIM_MIB);
    plim_tape_touch(&t, 64 * PLIM_MIB);
    assert_int_equal(plim_tape_peak(&t), 64 * PLIM_MIB);
    assert_int_equal(plim_tape_take(&t, 2 * PLIM_GIB), 0);
    assert_true(t.failed);
    assert_int_equal(t.failure.requested, 2 * PLIM_GIB);
    assert_int_equal(plim_tape_take(&t, 1), 0); /* nothing happens behind the end */
    assert_ok(plim_tape_status(&t, NULL));
    plim_tape_fini(&t);
}

/* ---- the engine --------------------------------------------------------------------------------------- */

static void batch_defaults_follow_card_and_caller(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    MAKE(&w, "--enforce-eager");
    assert_int_equal(w.plan.start.settings.batched_tokens, 16384);
    assert_int_equal(w.plan.start.settings.seqs, 1024);
    MAKE(&w, "vllm", "serve", "model", "--enforce-eager");
    assert_int_equal(w.plan.start.settings.batched_tokens, 8192);
    MAKE(&w, "--performance-mode", "throughput", "--enforce-eager");
    assert_int_equal(w.plan.start.settings.batched_tokens, 32768);
    assert_int_equal(w.plan.start.settings.seqs, 2048);
    assert_ok(plim_card_find("a100-80gb", &w.request.card, NULL));
    MAKE(&w, "--enforce-eager");
    assert_int_equal(w.plan.start.settings.batched_tokens, 8192);
    assert_int_equal(w.plan.start.settings.seqs, 256);
    plim_arena_fini(&w.arena);
}

static void windows_are_grouped_by_the_smaller_kind(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, GEMMA, "h100-80gb");
    MAKE(&w, "--enforce-eager", "--max-model-len", "131072");
    const struct plim_vllm_start *s = &w.plan.start;
    assert_int_equal(s->n_groups, 7); /* 29 windowed layers in 6 groups, 5 full ones in one */
    assert_int_equal(s->block_bytes, 5 * 65536);
    /* 131072 / 16 blocks for the full group; 1024 - 1 + 2 * 16384 tokens and one for each other */
    assert_int_equal(s->request_blocks, 8192 + 6 * (2112 + 1));
    MAKE(&w, "--enforce-eager", "--disable-hybrid-kv-cache-manager");
    assert_int_equal(w.plan.start.n_groups, 1);
    assert_int_equal(w.plan.start.block_bytes, 34 * 65536);
    assert_int_equal(w.plan.n_rules, 1);
    assert_string_equal(w.plan.rules[0]->id, "hybrid-manager-off");
    plim_arena_fini(&w.arena);
}

static void fewer_kv_heads_than_ranks_are_replicated(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    MAKE(&w, "--enforce-eager", "--tensor-parallel-size", "16");
    assert_int_equal(w.plan.start.block_bytes, 32 * 16 * 2 * 128 * 2);
    assert_string_equal(w.plan.rules[0]->id, "kv-heads-replicated");
    plim_arena_fini(&w.arena);
}

static void a_cache_ordered_in_bytes_is_checked_by_the_plan_alone(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    MAKE(&w, "--enforce-eager", "--kv-cache-memory-bytes", "20000000000", "--max-model-len",
         "8192");
    assert_int_equal(w.plan.start.num_blocks, UINT64_C(20000000000) / 2097152);
    assert_true(w.plan.fits);
    w.request.want_gpu = true;
    MAKE(&w, "--enforce-eager", "--kv-cache-memory-bytes", "90000000000", "--max-model-len",
         "8192");
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.limit, PLIM_PLAN_LIMIT_DEVICE_MEMORY);
    assert_int_equal(w.plan.n_changes, 0); /* no other flag makes that order smaller */
    assert_true(w.plan.smallest_gpu.value > UINT64_C(106000000000)); /* with 16 GB of weights */
    plim_arena_fini(&w.arena);
}

/* ---- plans -------------------------------------------------------------------------------------------- */

static void changes_are_planned_and_fit(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "rtx4090-24gb");
    MAKE(&w, "--enforce-eager", "--max-model-len", "65536");
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.limit, PLIM_PLAN_LIMIT_MAX_MODEL_LEN);
    assert_true(w.plan.margin_bytes < 0);
    assert_int_equal(w.plan.n_changes, 3);
    struct world again;
    open_world(&again, LLAMA, "rtx4090-24gb");
    char flags[128];
    (void)strncpy(flags, w.plan.changes[0].flags, sizeof flags - 1);
    flags[sizeof flags - 1] = '\0';
    const char *words[8] = {"--enforce-eager", "--max-model-len", "65536"};
    size_t n = 3;
    for (char *word = strtok(flags, " "); word != NULL && n < 8; word = strtok(NULL, " ")) {
        words[n++] = word;
    }
    again.request.words = words;
    again.request.n_words = n;
    assert_ok(plim_plan_make(&again.arena, &again.request, &again.plan, NULL));
    assert_true(again.plan.fits);
    assert_int_equal(again.plan.start.available, w.plan.changes[0].available_kv_bytes);
    plim_arena_fini(&again.arena);
    plim_arena_fini(&w.arena);
}

static void traffic_that_asks_for_more_than_fits_is_refused(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "l4-24gb");
    w.request.traffic =
        (struct plim_plan_traffic){.prompt = 2000, .output = 500, .rate = 4, .speed = 25};
    w.request.want_replicas = w.request.want_batch = w.request.want_gpu = true;
    MAKE(&w, "--enforce-eager", "--max-model-len", "8192");
    assert_true(w.plan.wanted_concurrency > 79 && w.plan.wanted_concurrency < 81);
    assert_true(w.plan.possible_concurrency < 30);
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.limit, PLIM_PLAN_LIMIT_CONCURRENCY);
    assert_true(w.plan.replicas.known && w.plan.replicas.value >= 3);
    assert_true(w.plan.smallest_gpu.known);
    plim_arena_fini(&w.arena);
}

#define DEEPSEEK                                                                                   \
    "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"model_type\":\"deepseek_v2\","               \
    "\"hidden_size\":2048,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"             \
    "\"num_hidden_layers\":4,\"first_k_dense_replace\":1,\"num_attention_heads\":16,"              \
    "\"num_key_value_heads\":16,\"n_shared_experts\":2,\"n_routed_experts\":8,"                    \
    "\"num_experts_per_tok\":2,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"                      \
    "\"qk_nope_head_dim\":128,\"v_head_dim\":128,\"vocab_size\":32000,"                            \
    "\"max_position_embeddings\":32768,\"torch_dtype\":\"bfloat16\"}"

static bool has_rule(const struct plim_plan *plan, const char *id)
{
    for (uint32_t i = 0; i < plan->n_rules; i++) {
        if (strcmp(plan->rules[i]->id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Each rule, met by the flags in its row and not without them. */
static void every_rule_is_met_by_its_flags_alone(void **state)
{
    (void)state;
    static const struct {
        const char *id, *config, *settings, *words[3];
        uint64_t external;
    } rows[] = {
        {"expandable-segments-sleep",
         LLAMA,
         "expandable_segments:True",
         {"--enable-sleep-mode"},
         0},
        {"expandable-segments-custom-all-reduce",
         LLAMA,
         "expandable_segments:True",
         {"-tp", "2"},
         0},
        {"expandable-segments-kv-connector",
         LLAMA,
         "expandable_segments:True",
         {"--kv-transfer-config", "{}"},
         0},
        {"kv-bytes-unchecked", LLAMA, "", {"--kv-cache-memory-bytes", "20000000000"}, 0},
        {"utilization-neighbours", LLAMA, "", {NULL}, PLIM_GIB},
        {"utilization-full", LLAMA, "", {"--gpu-memory-utilization", "0.98"}, 0},
        {"hybrid-manager-off", GEMMA, "", {"--disable-hybrid-kv-cache-manager"}, 0},
        {"kv-heads-replicated", LLAMA, "", {"-tp", "16"}, 0},
        {"latent-replicated", DEEPSEEK, "", {"-tp", "2"}, 0},
        {"batch-below-seqs", LLAMA, "", {"--max-num-batched-tokens=128", "--max-num-seqs=256"}, 0},
        {"logprobs-v1", LLAMA, "", {"VLLM_USE_V2_MODEL_RUNNER=0"}, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct world w;
        open_world(&w, rows[i].config, "h100-80gb");
        MAKE(&w, "--max-model-len=4096", "--enforce-eager");
        assert_false(has_rule(&w.plan, rows[i].id));
        const char *words[5];
        size_t n = 0;
        for (size_t k = 0; k < 3 && rows[i].words[k] != NULL; k++) {
            words[n++] = rows[i].words[k];
        }
        words[n++] = "--max-model-len=4096";
        words[n++] = "--enforce-eager";
        w.request.settings = rows[i].settings;
        w.request.card.external = rows[i].external;
        w.request.words = words;
        w.request.n_words = n;
        assert_ok(plim_plan_make(&w.arena, &w.request, &w.plan, NULL));
        if (!has_rule(&w.plan, rows[i].id)) {
            fail_msg("%s is not met", rows[i].id);
        }
        plim_arena_fini(&w.arena);
    }
}

static void a_setting_that_the_engine_refuses_does_not_fit(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    MAKE(&w, "--enforce-eager", "--max-model-len=8192", "--max-num-batched-tokens=512",
         "--max-num-seqs=1024");
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.limit, PLIM_PLAN_LIMIT_SETTING);
    assert_non_null(strstr(w.plan.why, "(512) below --max-num-seqs (1024)"));
    assert_int_equal(w.plan.n_changes, 3);
    MAKE(&w, "--enforce-eager", "--max-num-batched-tokens=512"); /* the default follows */
    assert_true(w.plan.fits);
    plim_arena_fini(&w.arena);
}

/* 1498550528 bytes of parameters and 143078 blocks: one start of vllm 0.33 on the simulated device. */
static void a_plain_checkpoint_is_converted_when_the_flag_says_so(void **state)
{
    (void)state;
    struct world w;
    open_world(&w,
               "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
               "\"hidden_size\":2048,\"intermediate_size\":8192,\"num_hidden_layers\":16,"
               "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"
               "\"vocab_size\":128256,\"max_position_embeddings\":8192,\"rope_theta\":500000.0,"
               "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}",
               "h100-80gb");
    MAKE(&w, "--enforce-eager", "--max-model-len=4096", "--quantization", "fp8");
    uint64_t blocks = w.plan.start.num_blocks;
    assert_in_range(blocks, 143078 * 0.997, 143078 * 1.003);
    MAKE(&w, "--enforce-eager", "--max-model-len=4096");
    assert_true(w.plan.start.num_blocks + 1500 < blocks); /* 0.9 GiB more of weights */
    MAKE(&w, "--enforce-eager", "--max-model-len=4096", "--quantization", "mxfp8");
    bool told = false;
    for (uint32_t i = 0; i < w.plan.n_assumptions; i++) {
        told = told || strstr(w.plan.assumptions[i], "--quantization mxfp8") != NULL;
    }
    assert_true(told);
    plim_arena_fini(&w.arena);
}

static void heads_of_256_take_larger_blocks_on_capability_10(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, GEMMA, "b200-180gb");
    MAKE(&w, "--enforce-eager");
    assert_int_equal(w.plan.start.settings.block_size, 128);
    plim_arena_fini(&w.arena);
    open_world(&w, LLAMA, "b200-180gb");
    MAKE(&w, "--enforce-eager");
    assert_int_equal(w.plan.start.settings.block_size, 16);
    plim_arena_fini(&w.arena);
}

static void unsafe_combinations_are_named(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    w.request.settings = "expandable_segments:True";
    MAKE(&w, "--enforce-eager", "--enable-sleep-mode", "-tp", "2");
    bool sleep = false, reduce = false;
    for (uint32_t i = 0; i < w.plan.n_rules; i++) {
        sleep = sleep || strcmp(w.plan.rules[i]->id, "expandable-segments-sleep") == 0;
        reduce =
            reduce || strcmp(w.plan.rules[i]->id, "expandable-segments-custom-all-reduce") == 0;
    }
    assert_true(sleep && reduce);
    MAKE(&w, "--enforce-eager", "-tp", "2", "--disable-custom-all-reduce");
    assert_int_equal(w.plan.n_rules, 0);
    w.request.engine_version = "0.3"; /* older than every such rule */
    MAKE(&w, "--enforce-eager", "--enable-sleep-mode", "-tp", "2");
    assert_int_equal(w.plan.n_rules, 0);
    plim_arena_fini(&w.arena);
}

static void slices_are_cards_of_their_own(void **state)
{
    (void)state;
    struct plim_card card;
    struct plim_err err;
    assert_ok(plim_card_find("h100-80gb/3g.40gb", &card, NULL));
    assert_int_equal(card.sms, 60);
    assert_true(card.slice && card.total < 40 * PLIM_GIB);
    assert_int_equal(plim_card_find("h100-80gb/9g.90gb", &card, &err), PLIM_E_USAGE);
    assert_int_equal(plim_card_find("h1000", &card, &err), PLIM_E_USAGE);
    assert_ok(plim_card_find("dgx-spark-128gb", &card, NULL));
    assert_true(card.unified);
}

static void a_card_given_by_numbers_is_like_one_with_the_same(void **state)
{
    (void)state;
    struct plim_card card = {.cc = 80, .sms = 108, .total = 79 * PLIM_GIB};
    assert_non_null(strstr(plim_card_like(&card), "A100"));
    card.total = 20 * PLIM_GIB;
    assert_null(plim_card_like(&card));
    card = (struct plim_card){.cc = 90, .sms = 131, .total = 79 * PLIM_GIB};
    assert_null(plim_card_like(&card));
}

/* A file that names its model_type alone is planned like one that names the class. */
static void a_file_without_a_class_is_planned_by_its_type(void **state)
{
    (void)state;
    struct world named, typed;
    open_world(&named, LLAMA, "h100-80gb");
    MAKE(&named, "--enforce-eager");
    open_world(&typed, "{" LLAMA_SIZES, "h100-80gb");
    MAKE(&typed, "--enforce-eager");
    assert_true(typed.plan.known_family);
    assert_int_equal(typed.plan.start.available, named.plan.start.available);
    plim_arena_fini(&typed.arena);
    plim_arena_fini(&named.arena);
}

/* ---- calibration --------------------------------------------------------------------------------------- */

static void a_log_teaches_what_is_outside(void **state)
{
    (void)state;
    struct plim_engine_log log;
    plim_engine_log_read(PLIM_STR("INFO Model loading took 15.0 GiB memory and 4.1 seconds\n"
                                  "INFO Available KV cache memory: 54.12 GiB\n"
                                  "INFO GPU KV cache size: 443,344 tokens\n"
                                  "INFO Maximum concurrency for 8,192 tokens per request: 54.12x\n"
                                  "INFO Graph capturing finished in 4 secs, took 0.58 GiB\n"
                                  "INFO CUDA graph pool memory: 0.58 GiB (actual), 0.88 GiB "
                                  "(estimated), difference: 0.3 GiB (51.7%).\n"
                                  "INFO Free memory on device (78.5/79.2 GiB) on startup. Desired "
                                  "GPU memory utilization is (0.92, 72.9 GiB). Actual usage is "
                                  "16.5 GiB for consumed memory (weights + non-torch), 2.25 GiB "
                                  "for peak activation, and 0.58 GiB for CUDAGraph memory.\n"),
                         &log);
    assert_true(log.free_bytes == 78.5 * (double)PLIM_GIB);
    assert_true(log.consumed_bytes == 16.5 * (double)PLIM_GIB);
    assert_true(log.peak_bytes == 2.25 * (double)PLIM_GIB);
    assert_true(log.graph_estimate_bytes > 0.87 * (double)PLIM_GIB);
    assert_true(log.weights_bytes == 15.0 * (double)PLIM_GIB);
    assert_true(log.kv_tokens == 443344);
    assert_true(log.concurrency > 54.1 && log.concurrency < 54.2);
    assert_true(log.graph_bytes > 0.57 * (double)PLIM_GIB);
    assert_true(log.num_blocks == PLIM_ENGINE_UNKNOWN);
    plim_engine_log_read(PLIM_STR("vllm:cache_config_info{num_gpu_blocks=\"27876\"} 1.0"), &log);
    assert_true(log.num_blocks == 27876);
}

static void what_was_learned_moves_the_plan(void **state)
{
    (void)state;
    struct world w;
    struct plim_calibrations all = {0};
    struct plim_buf text = {0};
    open_world(&w, LLAMA, "h100-80gb");
    MAKE(&w, "--enforce-eager");
    int64_t before = w.plan.start.available;
    assert_ok(plim_calibrations_learn(&w.arena, &all, "card", "vllm 0.33", 300 << 20, NULL));
    assert_ok(plim_calibrations_learn(&w.arena, &all, "card", "vllm 0.33", 100 << 20, NULL));
    plim_calibrations_write(&all, &text);
    struct plim_calibrations read;
    assert_ok(plim_calibrations_read(&w.arena, plim_buf_str(&text), &read, NULL));
    const struct plim_calibration *c = plim_calibrations_find(&read, "card", "vllm 0.33");
    assert_non_null(c);
    assert_int_equal(c->outside_bytes, 200 << 20);
    assert_int_equal(c->samples, 2);
    assert_null(plim_calibrations_find(&read, "card", "vllm 0.32"));
    w.request.calibration = c;
    MAKE(&w, "--enforce-eager");
    assert_int_equal(w.plan.start.available, before - (200 << 20));
    assert_int_equal(plim_calibrations_read(&w.arena, PLIM_STR("{}"), &read, NULL), PLIM_E_DATA);
    plim_buf_fini(&text);
    plim_arena_fini(&w.arena);
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, LLAMA, "h100-80gb");
    static const char *const words[] = {"--enforce-eager"};
    w.request.words = words;
    w.request.n_words = 1;
    for (uint64_t n = 1; n < 400; n += 13) {
        struct plim_plan plan;
        fail_alloc_at(n);
        enum plim_status st = plim_plan_make(&w.arena, &w.request, &plan, NULL);
        fail_alloc_at(0);
        assert_true(st == PLIM_OK || st == PLIM_E_NOMEM);
    }
    plim_arena_fini(&w.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_taken_apart_as_typed),
        cmocka_unit_test(flags_without_their_value_are_named),
        cmocka_unit_test(lengths_are_read_as_the_engine_reads_them),
        cmocka_unit_test(tensors_live_until_their_last_holder),
        cmocka_unit_test(batch_defaults_follow_card_and_caller),
        cmocka_unit_test(windows_are_grouped_by_the_smaller_kind),
        cmocka_unit_test(fewer_kv_heads_than_ranks_are_replicated),
        cmocka_unit_test(a_cache_ordered_in_bytes_is_checked_by_the_plan_alone),
        cmocka_unit_test(changes_are_planned_and_fit),
        cmocka_unit_test(traffic_that_asks_for_more_than_fits_is_refused),
        cmocka_unit_test(unsafe_combinations_are_named),
        cmocka_unit_test(every_rule_is_met_by_its_flags_alone),
        cmocka_unit_test(a_setting_that_the_engine_refuses_does_not_fit),
        cmocka_unit_test(a_plain_checkpoint_is_converted_when_the_flag_says_so),
        cmocka_unit_test(heads_of_256_take_larger_blocks_on_capability_10),
        cmocka_unit_test(slices_are_cards_of_their_own),
        cmocka_unit_test(a_card_given_by_numbers_is_like_one_with_the_same),
        cmocka_unit_test(a_file_without_a_class_is_planned_by_its_type),
        cmocka_unit_test(a_log_teaches_what_is_outside),
        cmocka_unit_test(what_was_learned_moves_the_plan),
        cmocka_unit_test(failing_allocations_are_errors),
    };
    return PLIM_RUN_TESTS("plan", tests);
}
