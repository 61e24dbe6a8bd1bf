/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: what a plan parses besides the model. The first byte chooses: an engine's log or metrics (L), the
 * file of calibrations (C), a command line (one word a line) of an engine by its number (1 to 5), or else one of
 * vLLM, that is then planned for a small model. Numbers that come out must be sane: never more blocks than the
 * budget holds.
 */

#include "serving/calibration.h"
#include "serving/vllm.h"

#include "walk_plan.h"

#include <string.h>

#define MAX_WORDS 48

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char model[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":512,"
    "\"intermediate_size\":1024,\"num_hidden_layers\":2,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":2,\"vocab_size\":1000,\"max_position_embeddings\":4096,"
    "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}";

static void read_log(const char *text, size_t n)
{
    struct plim_engine_log log;
    plim_engine_log_read((struct plim_str){text, n}, &log);
    if (log.available_kv_bytes > 1e25 || log.num_blocks > 1e16) {
        abort();
    }
}

static bool small_model(struct plim_arena *arena, struct plim_geometry *g)
{
    struct plim_geometry_options none = {0};
    return plim_geometry_from_config(arena, (struct plim_str){model, sizeof model - 1}, "model",
                                     &none, g, NULL) == PLIM_OK;
}

static void plan(struct plim_arena *arena, enum plim_engine engine, const char *const *words,
                 size_t n, const struct plim_calibration *calibration)
{
    struct plim_geometry g;
    struct plim_plan_request request = {.engine = engine,
                                        .geometry = &g,
                                        .traffic = {.prompt = 100, .output = 100, .rate = 1},
                                        .words = words,
                                        .n_words = n,
                                        .calibration = calibration};
    if (small_model(arena, &g)) {
        walk_plan(arena, &request);
    }
}

static void read_calibrations(struct plim_arena *arena, const char *text, size_t n)
{
    struct plim_calibrations all;
    struct plim_buf out = {0};
    if (plim_calibrations_read(arena, (struct plim_str){text, n}, &all, NULL) == PLIM_OK &&
        plim_calibrations_learn(arena, &all, "card", "engine", 1 << 20, NULL) == PLIM_OK) {
        plim_calibrations_write(&all, &out);
        struct plim_calibrations again;
        if (!out.failed &&
            plim_calibrations_read(arena, plim_buf_str(&out), &again, NULL) == PLIM_E_DATA) {
            abort(); /* what we write, we read */
        }
        plan(arena, PLIM_ENGINE_VLLM, NULL, 0, all.items);
    }
    plim_buf_fini(&out);
}

static void play(struct plim_arena *arena, const char *const *words, size_t n)
{
    struct plim_geometry g;
    struct plim_vllm_flags flags;
    struct plim_vllm_start start = {0};
    struct plim_card card;
    if (!small_model(arena, &g) || plim_card_find("l4-24gb", &card, NULL) != PLIM_OK ||
        plim_vllm_flags_read(arena, words, n, &flags, NULL) != PLIM_OK ||
        plim_vllm_play(arena, &g, &card, &flags, "", &start, NULL) != PLIM_OK) {
        return;
    }
    if (start.refusal == PLIM_VLLM_STARTS && start.settings.blocks_override == 0 &&
        start.n_groups > 0 && start.num_blocks > (uint64_t)start.available / start.block_bytes) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *words[MAX_WORDS];
    size_t n = 0;
    char *text = malloc(size + 1);
    if (text == NULL || size == 0) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    struct plim_arena arena;
    plim_arena_init(&arena, UINT64_C(64) << 20);
    if (data[0] == 'L') {
        read_log(text + 1, size - 1);
    } else if (data[0] == 'C') {
        read_calibrations(&arena, text + 1, size - 1);
    } else {
        bool other = data[0] >= '1' && data[0] <= '5';
        for (char *line = text + other; line != NULL && n < MAX_WORDS; n++) {
            words[n] = line;
            line = strchr(line, '\n');
            if (line != NULL) {
                *line++ = '\0';
            }
        }
        if (!other) {
            play(&arena, words, n);
        }
        plan(&arena, other ? (enum plim_engine)(data[0] - '0') : PLIM_ENGINE_VLLM, words, n, NULL);
    }
    plim_arena_fini(&arena);
    free(text);
    return 0;
}
