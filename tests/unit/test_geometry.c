/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: where values come from, what is contradictory, what is refused, how layers are placed. */

#include "fail_alloc.h"
#include "unit.h"

#include "serving/kv.h"
#include "serving/model.h"
#include "serving/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LLAMA                                                                                      \
    "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"        \
    "\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"vocab_size\":"   \
    "100"

struct made {
    struct plim_arena arena;
    struct plim_geometry g;
    struct plim_err err;
    enum plim_status st;
};

static void make(struct made *m, const char *text, const char *assume)
{
    struct plim_geometry_options opts = {.assume = assume};
    plim_arena_init(&m->arena, 0);
    plim_err_clear(&m->err);
    m->st = plim_geometry_from_config(&m->arena, plim_str_from(text), "config.json", &opts, &m->g,
                                      &m->err);
}

static const struct plim_origin *origin(const struct made *m, const char *field)
{
    for (uint32_t i = 0; i < m->g.n_origins; i++) {
        if (strcmp(m->g.origins[i].field, field) == 0) {
            return &m->g.origins[i];
        }
    }
    fail_msg("no origin for %s", field);
    return NULL;
}

static bool has_note(const struct made *m, const char *words)
{
    for (uint32_t i = 0; i < m->g.n_notes; i++) {
        if (strstr(m->g.notes[i], words) != NULL) {
            return true;
        }
    }
    return false;
}

static void each_field_says_where_it_came_from(void **state)
{
    (void)state;
    struct made m;
    make(&m, "{" LLAMA "}", NULL);
    assert_ok(m.st);
    assert_int_equal(origin(&m, "hidden")->kind, PLIM_ORIGIN_FILE);
    assert_string_equal(origin(&m, "hidden")->key, "hidden_size");
    assert_int_equal(origin(&m, "hidden")->value, 64);
    assert_int_equal(origin(&m, "max_position")->kind, PLIM_ORIGIN_DEFAULT);
    assert_non_null(strstr(origin(&m, "max_position")->key, "llama"));
    assert_int_equal(origin(&m, "kv_heads")->kind, PLIM_ORIGIN_RULE);
    assert_int_equal(origin(&m, "head_dim")->value, 16);
    assert_int_equal(origin(&m, "dtype")->kind, PLIM_ORIGIN_DEFAULT);
    plim_arena_fini(&m.arena);
}

static void nested_models_are_found_and_their_keys_named_in_full(void **state)
{
    (void)state;
    struct made m;
    make(&m,
         "{\"architectures\":[\"LlavaForConditionalGeneration\"],\"model_type\":\"llava\","
         "\"dtype\":\"float16\","
         "\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":128,\"num_hidden_layers\":2}}",
         NULL);
    assert_ok(m.st);
    assert_string_equal(m.g.family, "llama");
    assert_string_equal(origin(&m, "hidden")->key, "text_config.hidden_size");
    assert_int_equal(m.g.vocab, 32000); /* the class default: the file may leave it out */
    assert_int_equal(m.g.dtype, PLIM_DTYPE_F16);
    plim_arena_fini(&m.arena);
}

static void a_card_around_the_configuration_is_taken_off(void **state)
{
    (void)state;
    struct made m;
    make(&m,
         "{\"name\":\"M\",\"config\":{\"model_type\":\"llama\",\"hidden_size\":64,"
         "\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
         "\"vocab_size\":100}}",
         NULL);
    assert_ok(m.st);
    assert_int_equal(m.g.n_layers, 3);
    assert_string_equal(origin(&m, "n_layers")->key, "num_hidden_layers");
    plim_arena_fini(&m.arena);
    /* Around something that names no model it stays. */
    make(&m, "{\"config\":{\"hidden_size\":64}}", NULL);
    assert_int_equal(m.st, PLIM_E_DATA);
    assert_non_null(strstr(m.err.message, "neither architectures nor model_type"));
    plim_arena_fini(&m.arena);
}

static void an_assumption_is_proposed_by_one_name(void **state)
{
    (void)state;
    struct made m;
    make(&m, "{\"model_type\":\"qwen3_vl_moe_x\"}", NULL);
    assert_int_equal(m.st, PLIM_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.hint, "--assume qwen3_moe"));
    assert_null(strchr(strstr(m.err.hint, "--assume ") + strlen("--assume "), ' '));
    plim_arena_fini(&m.arena);
}

static void contradictions_are_said(void **state)
{
    (void)state;
    struct made m;
    make(&m,
         "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"
         "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"vocab_"
         "size\":100,"
         "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]}",
         NULL);
    assert_ok(m.st);
    assert_string_equal(m.g.family, "qwen3");
    assert_true(has_note(&m, "counted as the former"));
    assert_true(has_note(&m, "names 3 layers, there are 2"));
    plim_arena_fini(&m.arena);
}

static void a_window_of_null_or_switched_off_slides_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum plim_mixer first, last;
    } rows[] = {
        {"\"sliding_window\":null", PLIM_MIXER_FULL, PLIM_MIXER_FULL},
        {"\"sliding_window\":32,\"use_sliding_window\":false", PLIM_MIXER_FULL, PLIM_MIXER_FULL},
        {"\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":2",
         PLIM_MIXER_FULL, PLIM_MIXER_SLIDING},
        {"\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":0",
         PLIM_MIXER_SLIDING, PLIM_MIXER_SLIDING},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct made m;
        char text[600];
        snprintf(
            text, sizeof text,
            "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":64,"
            "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":3,%s}",
            rows[i].text);
        make(&m, text, NULL);
        assert_ok(m.st);
        assert_int_equal(m.g.layers[0].mixer, rows[i].first);
        assert_int_equal(m.g.layers[2].mixer, rows[i].last);
        plim_arena_fini(&m.arena);
    }
}

static void blocks_say_which_parts_a_layer_has(void **state)
{
    (void)state;
    struct made m;
    struct plim_weight_sum sum;
    make(&m,
         "{\"architectures\":[\"DeciLMForCausalLM\"],\"model_type\":\"nemotron-nas\",\"hidden_"
         "size\":768,"
         "\"num_hidden_layers\":3,\"num_attention_heads\":12,\"vocab_size\":100,\"block_configs\":["
         "{\"attention\":{\"n_heads_in_group\":4,\"no_op\":false},\"ffn\":{\"ffn_mult\":2.0,\"no_"
         "op\":false}},"
         "{\"attention\":{\"n_heads_in_group\":null,\"no_op\":true},\"ffn\":{\"ffn_mult\":1.1}},"
         "{\"attention\":{\"n_heads_in_group\":12,\"no_op\":false},\"ffn\":{\"no_op\":true}}]}",
         NULL);
    assert_ok(m.st);
    assert_int_equal(m.g.layers[0].kv_heads, 3);
    assert_int_equal(m.g.layers[0].intermediate, 1024); /* 2 * 2 * 768 / 3 */
    assert_int_equal(m.g.layers[1].mixer, PLIM_MIXER_NONE);
    assert_int_equal(m.g.layers[1].intermediate, 768); /* 563 rounded up */
    assert_int_equal(m.g.layers[2].ffn, PLIM_FFN_NONE);
    assert_ok(plim_weights_sum(&m.arena, &m.g, &PLIM_PLACEMENT_WHOLE, &sum, &m.err));
    assert_int_equal(sum.parameters, 2 * 768 * 100 + 768 + 4 * 768 + 3 * 768 * (1024 + 768) +
                                         2 * 2 * 768 * 768 + 2 * 768 * (192 + 64));
    plim_arena_fini(&m.arena);
}

static void flat_files_of_multimodal_models_are_read(void **state)
{
    (void)state;
    struct made m;
    struct plim_weight_sum sum;
    make(&m,
         "{\"architectures\":[\"Qwen2VLForConditionalGeneration\"],\"model_type\":\"qwen2_vl\","
         "\"hidden_size\":3584,"
         "\"intermediate_size\":18944,\"num_hidden_layers\":28,\"num_attention_heads\":28,"
         "\"num_key_value_heads\":4,\"vocab_size\":152064,\"tie_word_embeddings\":false,\"vision_"
         "config\":{"
         "\"depth\":32,\"embed_dim\":1280,\"mlp_ratio\":4,\"num_heads\":16,\"in_chans\":3,\"hidden_"
         "size\":3584,"
         "\"patch_size\":14,\"spatial_merge_size\":2,\"spatial_patch_size\":14,\"temporal_patch_"
         "size\":2}}",
         NULL);
    assert_ok(m.st);
    assert_ok(plim_weights_sum(&m.arena, &m.g, &PLIM_PLACEMENT_WHOLE, &sum, &m.err));
    assert_int_equal(sum.parameters, UINT64_C(8291375616)); /* as published for Qwen2-VL-7B */
    plim_arena_fini(&m.arena);
}

static const struct {
    const char *text;
    enum plim_status status;
    const char *words; /* in the message */
    const char *where;
} refused[] = {
    {"", PLIM_E_DATA, "not a JSON object", "line"},
    {"[]", PLIM_E_DATA, "something else", ""},
    {"{\"a\":1,\"a\":2}", PLIM_E_DATA, "uplicate", "line"},
    {"{\"hidden_size\":", PLIM_E_DATA, "not a JSON object", "line"},
    {"{}", PLIM_E_DATA, "neither", "architectures"},
    {"{\"architectures\":[7]}", PLIM_E_DATA, "class names", "architectures"},
    {"{\"architectures\":[\"FrobForCausalLM\"],\"model_type\":\"frob\"}", PLIM_E_UNSUPPORTED,
     "unknown architecture FrobForCausalLM", "architectures"},
    {"{" LLAMA ",\"head_dim\":\"x\"}", PLIM_E_DATA, "not a whole number", "head_dim"},
    {"{" LLAMA ",\"head_dim\":12.5}", PLIM_E_DATA, "not a whole number", "head_dim"},
    {"{" LLAMA ",\"head_dim\":-8}", PLIM_E_RANGE, "which no model has", "head_dim"},
    {"{" LLAMA ",\"head_dim\":99999999}", PLIM_E_RANGE, "which no model has", "head_dim"},
    {"{" LLAMA ",\"num_key_value_heads\":3}", PLIM_E_DATA, "cannot share", "num_key_value_heads"},
    {"{" LLAMA ",\"num_key_value_heads\":[4,2]}", PLIM_E_DATA, "2 values for 3 layers",
     "num_key_value_heads"},
    {"{" LLAMA ",\"attention_bias\":\"yes\"}", PLIM_E_DATA, "neither true nor false",
     "attention_bias"},
    {"{" LLAMA ",\"layer_types\":[\"full_attention\"]}", PLIM_E_DATA, "names 1 layers",
     "layer_types"},
    {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"psychic\",\"full_attention\"]}",
     PLIM_E_UNSUPPORTED, "psychic", "layer_types"},
    {"{" LLAMA ",\"layer_types\":[\"mamba\",\"mamba\",\"mamba\"]}", PLIM_E_DATA, "has none",
     "layer_types"},
    {"{" LLAMA ",\"torch_dtype\":\"int3\"}", PLIM_E_DATA, "unknown element type", "dtype"},
    {"{" LLAMA ",\"quantization_config\":{}}", PLIM_E_DATA, "quant_method is missing",
     "quant_method"},
    {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":5}}", PLIM_E_DATA,
     "5 bits", "bits"},
    {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}}",
     PLIM_E_DATA, "no pair", "weight_block_size"},
    {"{\"model_type\":\"llama\",\"hidden_size\":0}", PLIM_E_RANGE, "hidden_size is 0",
     "hidden_size"},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":100000}", PLIM_E_RANGE, "layers",
     "num_hidden_layers"},
};

static void bad_configurations_are_refused_with_the_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(refused); i++) {
        struct made m;
        make(&m, refused[i].text, NULL);
        if (m.st != refused[i].status || strstr(m.err.message, refused[i].words) == NULL ||
            strstr(m.err.where, refused[i].where) == NULL) {
            fail_msg("%s: %s \"%s\" at \"%s\"", refused[i].text, plim_status_name(m.st),
                     m.err.message, m.err.where);
        }
        plim_arena_fini(&m.arena);
    }
}

static void an_unknown_architecture_can_be_assumed(void **state)
{
    (void)state;
    static const char text[] =
        "{\"architectures\":[\"LlamoidForCausalLM\"],\"model_type\":\"llamoid\","
        "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":4,\"vocab_size\":100}";
    struct made m;
    make(&m, text, NULL);
    assert_int_equal(m.st, PLIM_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.hint, "--assume llama"));
    plim_arena_fini(&m.arena);
    make(&m, text, "llama");
    assert_ok(m.st);
    assert_true(m.g.assumed);
    assert_string_equal(m.g.architecture, "LlamoidForCausalLM");
    assert_int_equal(origin(&m, "family")->kind, PLIM_ORIGIN_ASSUMED);
    plim_arena_fini(&m.arena);
    make(&m, text, "frob");
    assert_int_equal(m.st, PLIM_E_USAGE);
    plim_arena_fini(&m.arena);
}

static void numbers_that_python_writes_and_json_has_not_are_passed_over(void **state)
{
    (void)state;
    struct made m;
    make(&m,
         "{" LLAMA ",\"time_step_limit\":[0.0, Infinity],\"a\":NaN,\"b\":\"Infinity \\\" "
         "NaN\",\"c\":-Infinity}",
         NULL);
    assert_ok(m.st);
    plim_arena_fini(&m.arena);
}

static void stages_share_layers_as_engines_do(void **state)
{
    (void)state;
    /* {layers, stages}, then the layers of each stage */
    static const uint32_t rows[][6] = {{32, 1, 32},
                                       {32, 2, 16, 16},
                                       {61, 2, 31, 30},
                                       {61, 4, 15, 15, 16, 15},
                                       {62, 4, 15, 16, 16, 15},
                                       {63, 4, 16, 16, 16, 15},
                                       {5, 3, 2, 2, 1},
                                       {3, 3, 1, 1, 1}};
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        uint32_t next = 0;
        for (uint32_t r = 0; r < rows[i][1]; r++) {
            uint32_t first = 0;
            uint32_t end = 0;
            plim_stage_layers(rows[i][0], rows[i][1], r, &first, &end);
            assert_int_equal(first, next);
            assert_int_equal(end - first, rows[i][2 + r]);
            next = end;
        }
        assert_int_equal(next, rows[i][0]);
    }
}

/* Bytes of a 256 x 512 projection without bias: [out 512][in 256], from the layouts that makers of files use. */
static void quantized_weights_have_the_bytes_of_their_format(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t bytes;
    } rows[] = {
        {"\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]", 131072 + 4 * 2 * 4},
        {"\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\"", 131072 + 4},
        {"\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"", 131072 + 8},
        {"\"quant_method\":\"fbgemm_fp8\"", 131072 + 512 * 4},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128",
         65536 + 2 * 512 * 2 + 2 * 256 + 4 * 256},
        {"\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1",
         131072 + 512 * 2 + 512 + 4 * 256},
        {"\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":64",
         49152 + 4 * 512 * 2 + 4 * 192 + 4 * 256},
        {"\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64", 65536 + 4 * 512 * 2 + 4 * 256},
        {"\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true", 65536 + 2048 * 4},
        {"\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"bnb_4bit_use_double_quant\":"
         "true",
         65536 + 2048 + 8 * 4},
        {"\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true", 131072 + 512 * 4},
        {"\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"", 65536 + 512 * 16 + 8},
        {"\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"", 131072 + 8},
        {"\"quant_method\":\"modelopt\",\"quant_algo\":\"MXFP8\"", 131072 + 512 * 8},
        {"\"quant_method\":\"mxfp4\"", 131072 * 2}, /* experts only */
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{"
         "\"g\":"
         "{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":"
         "\"group\","
         "\"group_size\":128,\"symmetric\":true}}}",
         65536 + 2 * 512 * 2},
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":"
         "{\"g\":"
         "{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":"
         "\"channel\"},"
         "\"input_activations\":{\"dynamic\":true}}}",
         131072 + 512 * 4},
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":"
         "{\"g\":"
         "{\"targets\":[\"re:.*q_proj\"],\"weights\":{\"num_bits\":8,\"type\":\"float\","
         "\"strategy\":\"tensor\"}}}",
         131072 * 2},
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp4-pack-quantized\",\"config_"
         "groups\":{\"g\":"
         "{\"targets\":[\"re:.*mlp.*\"],\"weights\":{\"num_bits\":4,\"type\":\"float\","
         "\"strategy\":\"group\","
         "\"group_size\":32}}}",
         131072 / 32 * 17},
        {"\"quant_method\":\"fp8\",\"modules_to_not_convert\":[\"up_proj\"]", 131072 * 2},
        {"\"quant_method\":\"fp8\",\"ignored_layers\":[\"model.layers.0.mlp\"]", 131072 * 2},
        {"\"quant_method\":\"fp8\",\"ignored_layers\":[\"model.layers.0.mlp.up\"]", 131072 + 4},
        {"\"quant_method\":\"fp8\",\"ignored_layers\":[\"*.mlp.*\"]", 131072 * 2},
        {"\"quant_method\":\"fp8\",\"ignored_layers\":[\"re:model.layers.\\\\d+.mlp.up_proj$\"]",
         131072 * 2},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct made m;
        char text[900];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"llama\",\"hidden_size\":256,\"intermediate_size\":512,"
                 "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":100,"
                 "\"quantization_config\":{%s}}",
                 rows[i].config);
        make(&m, text, NULL);
        assert_ok(m.st);
        struct plim_weight up = {.part = PLIM_PART_MLP,
                                 .layer = 0,
                                 .name = "mlp.up_proj",
                                 .rows = 512,
                                 .cols = 256,
                                 .copies = 1,
                                 .dtype = PLIM_DTYPE_BF16,
                                 .linear = true};
        uint64_t by_dtype[PLIM_DTYPE_COUNT] = {0};
        uint64_t sum = 0;
        uint64_t bytes = plim_weight_bytes(&m.g, &up, by_dtype);
        for (int d = 0; d < PLIM_DTYPE_COUNT; d++) {
            sum += by_dtype[d];
        }
        if (bytes != rows[i].bytes || sum != bytes) {
            fail_msg("%s: %llu, not %llu", rows[i].config, (unsigned long long)bytes,
                     (unsigned long long)rows[i].bytes);
        }
        plim_arena_fini(&m.arena);
    }
}

static void a_method_that_is_not_known_is_named_and_not_guessed(void **state)
{
    (void)state;
    struct made m;
    struct plim_weight_sum sum;
    make(&m, "{" LLAMA ",\"quantization_config\":{\"quant_method\":\"aqlm\"}}", NULL);
    assert_ok(m.st); /* the cache can be planned */
    assert_true(has_note(&m, "aqlm"));
    assert_int_equal(plim_weights_sum(&m.arena, &m.g, &PLIM_PLACEMENT_WHOLE, &sum, &m.err),
                     PLIM_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.message, "aqlm"));
    plim_arena_fini(&m.arena);
}

/* ---- folders */

static void write_file(const char *folder, const char *name, const char *text, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void write_shard(const char *folder, const char *name, const char *tensor)
{
    char bytes[200] = {0};
    int n = snprintf(bytes + 8, sizeof bytes - 8,
                     "{\"%s\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}", tensor);
    bytes[0] = (char)n;
    write_file(folder, name, bytes, 8 + (size_t)n + 8);
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {
        "config.json",   "hf_quant_config.json", "model.safetensors.index.json",
        "a.safetensors", "b.safetensors",        "model.safetensors"};
    char path[300];
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static enum plim_status open_folder(const char *folder, struct plim_arena *arena,
                                    struct plim_model *model, struct plim_err *err)
{
    plim_arena_init(arena, 0);
    plim_err_clear(err);
    return plim_model_open(arena, folder, NULL, model, err);
}

static void folders_are_read_as_far_as_they_go(void **state)
{
    (void)state;
    static const char config[] = "{" LLAMA "}";
    static const char index[] =
        "{\"metadata\":{\"total_size\":999},\"weight_map\":{\"x\":\"a.safetensors\","
        "\"y\":\"b.safetensors\"}}";
    static const char quant[] =
        "{\"quantization\":{\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"FP8\"}}";
    char folder[] = "/tmp/plimsoll-model-XXXXXX";
    struct plim_arena arena;
    struct plim_model model;
    struct plim_err err;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(open_folder(folder, &arena, &model, &err), PLIM_E_NOINPUT);
    plim_arena_fini(&arena);
    write_file(folder, "config.json", config, strlen(config));
    assert_ok(open_folder(folder, &arena, &model, &err));
    assert_int_equal(model.kind, PLIM_MODEL_CONFIG);
    assert_false(model.has_stored);
    plim_arena_fini(&arena);
    write_file(folder, "model.safetensors.index.json", index, strlen(index));
    write_file(folder, "hf_quant_config.json", quant, strlen(quant));
    assert_ok(open_folder(folder, &arena, &model, &err));
    assert_int_equal(model.kind, PLIM_MODEL_INDEX);
    assert_int_equal(model.stored_bytes, 999);
    assert_int_equal(model.geometry.quant.kv_bits, 8);
    assert_int_equal(model.geometry.quant.schemes[0].kind, PLIM_QUANT_FP8);
    plim_arena_fini(&arena);
    write_shard(folder, "a.safetensors", "x");
    assert_int_equal(open_folder(folder, &arena, &model, &err), PLIM_E_NOINPUT);
    assert_non_null(strstr(err.message, "b.safetensors"));
    plim_arena_fini(&arena);
    write_shard(folder, "b.safetensors", "y");
    assert_ok(open_folder(folder, &arena, &model, &err));
    assert_int_equal(model.kind, PLIM_MODEL_SAFETENSORS);
    assert_int_equal(model.stored_bytes, 16); /* not the stale 999 */
    assert_int_equal(model.stored_parameters, 8);
    assert_int_equal(model.shards, 2);
    assert_int_equal(model.stored_dtype_bytes[PLIM_DTYPE_BF16], 16);
    plim_arena_fini(&arena);
    write_file(folder, "b.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    assert_int_equal(open_folder(folder, &arena, &model, &err), PLIM_E_RANGE);
    assert_non_null(strstr(err.where, "b.safetensors"));
    plim_arena_fini(&arena);
    remove_folder(folder);
}

static enum plim_status config_body(void *arg)
{
    struct plim_arena arena;
    struct plim_geometry g;
    struct plim_weight_sum sum;
    plim_arena_init(&arena, 0);
    enum plim_status st =
        plim_geometry_from_config(&arena, plim_str_from(arg), "config.json", NULL, &g, NULL);
    if (st == PLIM_OK) {
        st = plim_weights_sum(&arena, &g, &PLIM_PLACEMENT_WHOLE, &sum, NULL);
    }
    plim_arena_fini(&arena);
    return st;
}

static void reading_survives_every_failing_allocation(void **state)
{
    (void)state;
    char text[] = "{" LLAMA "}";
    assert_true(fail_alloc_sweep(config_body, text, 200, false) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_says_where_it_came_from),
        cmocka_unit_test(nested_models_are_found_and_their_keys_named_in_full),
        cmocka_unit_test(a_card_around_the_configuration_is_taken_off),
        cmocka_unit_test(an_assumption_is_proposed_by_one_name),
        cmocka_unit_test(contradictions_are_said),
        cmocka_unit_test(a_window_of_null_or_switched_off_slides_nothing),
        cmocka_unit_test(blocks_say_which_parts_a_layer_has),
        cmocka_unit_test(flat_files_of_multimodal_models_are_read),
        cmocka_unit_test(bad_configurations_are_refused_with_the_key),
        cmocka_unit_test(an_unknown_architecture_can_be_assumed),
        cmocka_unit_test(numbers_that_python_writes_and_json_has_not_are_passed_over),
        cmocka_unit_test(stages_share_layers_as_engines_do),
        cmocka_unit_test(quantized_weights_have_the_bytes_of_their_format),
        cmocka_unit_test(a_method_that_is_not_known_is_named_and_not_guessed),
        cmocka_unit_test(folders_are_read_as_far_as_they_go),
        cmocka_unit_test(reading_survives_every_failing_allocation),
    };
    return PLIM_RUN_TESTS("geometry", tests);
}
