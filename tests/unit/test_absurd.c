/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for models, flags and traffic whose numbers no machine has: refused or far off, but never undefined. */

#include "unit.h"

#include "serving/budget.h"
#include "serving/plan.h"

#include <stdlib.h>

#define SMALL(more)                                                                                \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":256,"      \
    "\"intermediate_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                 \
    "\"num_key_value_heads\":2,\"vocab_size\":1000,\"max_position_embeddings\":4096,"              \
    "\"torch_dtype\":\"bfloat16\"" more "}"

struct world {
    struct plim_arena arena;
    struct plim_geometry g;
    struct plim_plan_request request;
    struct plim_plan plan;
    struct plim_err err;
};

static void open_world(struct world *w, const char *config, enum plim_engine engine)
{
    memset(w, 0, sizeof *w);
    plim_arena_init(&w->arena, 0);
    assert_ok(plim_geometry_from_config(&w->arena, plim_str_from(config), "config.json", NULL,
                                        &w->g, NULL));
    w->request = (struct plim_plan_request){.engine = engine,
                                            .geometry = &w->g,
                                            .model = "model",
                                            .engine_version = "",
                                            .settings = "",
                                            .want_context = true,
                                            .want_batch = true,
                                            .want_gpu = true,
                                            .want_replicas = true};
    assert_ok(plim_card_find("l4-24gb", &w->request.card, NULL));
}

static enum plim_status make(struct world *w, const char *const *words, size_t n)
{
    w->request.words = words;
    w->request.n_words = n;
    return plim_plan_make(&w->arena, &w->request, &w->plan, &w->err);
}

static void weights_beyond_all_machines_are_refused_for_every_engine(void **state)
{
    (void)state;
    struct plim_model file = {.has_stored = true, .stored_bytes = UINT64_MAX};
    struct plim_tensor tensor = {
        .name = {"output.weight", strlen("output.weight")}, .bytes = UINT64_MAX, .n_dims = 1};
    for (int engine = PLIM_ENGINE_SGLANG; engine <= PLIM_ENGINE_OLLAMA; engine++) {
        struct world w;
        open_world(&w, SMALL(""), (enum plim_engine)engine);
        bool tensors = engine == PLIM_ENGINE_LLAMACPP || engine == PLIM_ENGINE_OLLAMA;
        file.kind = tensors ? PLIM_MODEL_GGUF : PLIM_MODEL_INDEX;
        file.tensors = (struct plim_tensors){.items = &tensor, .n = tensors};
        w.request.file = &file;
        assert_int_equal(make(&w, NULL, 0), PLIM_E_RANGE);
        assert_string_equal(w.err.message, "the weights are more than any machine holds");
        plim_arena_fini(&w.arena);
    }
}

/* 2^56 bytes a token, 256 tokens a block: 2^64 bytes. */
static void a_block_of_two_to_the_64_bytes_divides_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {"--tokens-per-block", "256"};
    struct world w;
    struct plim_layer *layers = calloc(4096, sizeof *layers);
    struct plim_model file = {.has_stored = true, .stored_bytes = 1000};
    assert_non_null(layers);
    open_world(&w, SMALL(""), PLIM_ENGINE_TRTLLM);
    for (uint32_t i = 0; i < 4096; i++) {
        layers[i] = w.g.layers[0];
        layers[i].heads = layers[i].kv_heads = PLIM_DIM_MAX;
        layers[i].head_dim = layers[i].v_head_dim = PLIM_DIM_MAX;
    }
    w.g.layers = layers;
    w.g.n_layers = 4096;
    w.request.file = &file;
    assert_ok(make(&w, words, PLIM_COUNT_OF(words)));
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.start.kv_tokens, 0);
    plim_arena_fini(&w.arena);
    free(layers);
}

static void blocks_without_tokens_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"--tokens-per-block", "0"};
    struct world w;
    open_world(&w, SMALL(""), PLIM_ENGINE_TRTLLM);
    assert_int_equal(make(&w, words, PLIM_COUNT_OF(words)), PLIM_E_USAGE);
    assert_non_null(strstr(w.err.message, "--tokens-per-block"));
    plim_arena_fini(&w.arena);
}

/* A page 2^28 times another: blocks of 16 tokens would become blocks of 2^32. */
static void pages_too_different_for_one_pool_are_padded(void **state)
{
    (void)state;
    struct world w;
    struct plim_vllm_flags flags = {0};
    struct plim_vllm_start start = {0};
    open_world(&w, SMALL(""), PLIM_ENGINE_VLLM);
    w.g.layers[0].kv_heads = w.g.layers[0].head_dim = w.g.layers[0].v_head_dim = 1;
    w.g.layers[1].mixer = PLIM_MIXER_SLIDING;
    w.g.layers[1].window = 128;
    w.g.layers[1].heads = w.g.layers[1].kv_heads = PLIM_DIM_MAX;
    w.g.layers[1].head_dim = w.g.layers[1].v_head_dim = 128;
    assert_ok(plim_vllm_play(&w.arena, &w.g, &w.request.card, &flags, "", &start, NULL));
    assert_int_equal(start.n_groups, 2);
    for (uint32_t i = 0; i < start.n_groups; i++) {
        assert_true(start.groups[i].block_size >= 16);
        assert_int_equal(start.groups[i].page_bytes, start.groups[0].page_bytes);
    }
    plim_arena_fini(&w.arena);
}

static void layers_that_keep_nothing_need_no_cache(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, SMALL(""), PLIM_ENGINE_VLLM);
    for (uint32_t i = 0; i < w.g.n_layers; i++) {
        struct plim_layer *l = &w.g.layers[i];
        l->mixer = l->recurrent = PLIM_MIXER_SHORT_CONV;
        l->conv_kernel = 1; /* of this input alone */
        l->conv_channels = w.g.hidden;
        l->heads = l->kv_heads = 0;
    }
    assert_ok(make(&w, NULL, 0));
    assert_int_equal(w.plan.start.block_bytes, 0);
    plim_arena_fini(&w.arena);
}

static void a_rotary_factor_without_sense_is_refused(void **state)
{
    (void)state;
    static const char *const configs[] = {
        SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e300}"),
        SMALL(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":-4}"),
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(configs); i++) {
        struct plim_arena arena;
        struct plim_geometry g;
        struct plim_err err = {0};
        plim_arena_init(&arena, 0);
        assert_int_equal(plim_geometry_from_config(&arena, plim_str_from(configs[i]), "config.json",
                                                   NULL, &g, &err),
                         PLIM_E_RANGE);
        assert_non_null(strstr(err.message, "factor"));
        plim_arena_fini(&arena);
    }
}

static void a_rotary_factor_cannot_stretch_beyond_numbers_or_to_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t length;
    } rows[] = {
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"), 16384},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":65536}"), 4096 * 65536},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e-9}"), 4096},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct world w;
        open_world(&w, rows[i].config, PLIM_ENGINE_VLLM);
        assert_ok(make(&w, NULL, 0));
        assert_int_equal(w.plan.start.settings.max_model_len, rows[i].length);
        plim_arena_fini(&w.arena);
    }
}

static void lengths_that_no_request_has_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"--max-model-len", "8000000t"};
    struct world w;
    open_world(&w, SMALL(""), PLIM_ENGINE_VLLM);
    assert_int_equal(make(&w, words, PLIM_COUNT_OF(words)), PLIM_E_USAGE);
    plim_arena_fini(&w.arena);
}

static void answers_that_take_for_ever_miss_all_there_is(void **state)
{
    (void)state;
    for (int engine = PLIM_ENGINE_VLLM; engine <= PLIM_ENGINE_OLLAMA; engine++) {
        struct world w;
        open_world(&w, SMALL(""), (enum plim_engine)engine);
        w.request.traffic =
            (struct plim_plan_traffic){.prompt = 100, .output = 100, .rate = 1e8, .speed = 1e-300};
        assert_ok(make(&w, NULL, 0));
        assert_false(w.plan.fits);
        assert_true(engine != PLIM_ENGINE_VLLM || w.plan.margin_bytes == -INT64_MAX);
        assert_int_equal(w.plan.replicas.value, INT64_MAX);
        plim_arena_fini(&w.arena);
    }
}

static void pools_ordered_beyond_numbers_do_not_fit(void **state)
{
    (void)state;
    static const char *const words[] = {"--num-gpu-blocks-override", "8000000t"};
    struct world w;
    open_world(&w, SMALL(""), PLIM_ENGINE_VLLM);
    assert_ok(make(&w, words, PLIM_COUNT_OF(words)));
    assert_false(w.plan.fits);
    assert_int_equal(w.plan.limit, PLIM_PLAN_LIMIT_DEVICE_MEMORY);
    plim_arena_fini(&w.arena);
}

static void calibrations_beyond_all_machines_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"calibrations\":[{\"card\":\"c\",\"engine\":\"e\",\"samples\":1,"
                               "\"outside_bytes\":-9223372036854775807}]}";
    struct plim_arena arena;
    struct plim_calibrations all = {0};
    plim_arena_init(&arena, 0);
    assert_int_equal(plim_calibrations_read(&arena, plim_str_from(text), &all, NULL), PLIM_E_DATA);
    assert_int_equal(plim_calibrations_learn(&arena, &all, "c", "e", INT64_MIN, NULL), PLIM_E_DATA);
    assert_ok(plim_calibrations_learn(&arena, &all, "c", "e", PLIM_AMOUNT_MAX, NULL));
    assert_ok(plim_calibrations_learn(&arena, &all, "c", "e", -PLIM_AMOUNT_MAX, NULL));
    assert_int_equal(all.items[0].outside_bytes, 0);
    assert_int_equal(all.items[0].spread_bytes, PLIM_AMOUNT_MAX);
    plim_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_beyond_all_machines_are_refused_for_every_engine),
        cmocka_unit_test(a_block_of_two_to_the_64_bytes_divides_nothing),
        cmocka_unit_test(blocks_without_tokens_are_refused),
        cmocka_unit_test(pages_too_different_for_one_pool_are_padded),
        cmocka_unit_test(layers_that_keep_nothing_need_no_cache),
        cmocka_unit_test(a_rotary_factor_without_sense_is_refused),
        cmocka_unit_test(a_rotary_factor_cannot_stretch_beyond_numbers_or_to_nothing),
        cmocka_unit_test(lengths_that_no_request_has_are_refused),
        cmocka_unit_test(answers_that_take_for_ever_miss_all_there_is),
        cmocka_unit_test(pools_ordered_beyond_numbers_do_not_fit),
        cmocka_unit_test(calibrations_beyond_all_machines_are_refused),
    };
    return PLIM_RUN_TESTS("plans of absurd numbers", tests);
}
