/* SPDX-License-Identifier: Apache-2.0 */

/* Arguments, model, card, traffic and state of `plan`. See plan_input.h. */

#include "cli/plan_input.h"

#include "base/file.h"
#include "base/num.h"
#include "format/traffic.h"
#include "serving/budget.h"
#include "serving/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE       "vllm 0.33" /* the engine whose corrections are kept */
#define CONFIG_LIMIT (UINT64_C(64) << 20)

static const char *variable(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- model ------------------------------------------------------------------------------------------ */

static enum plim_status read_model(struct plim_cli *cli, const struct plim_opts_plan *opts,
                                   struct plim_plan_request *out, struct plim_err *err)
{
    struct plim_geometry_options options = {.assume = opts->assume};
    void *model;
    PLIM_TRY(plim_arena_alloc(&cli->arena, sizeof(struct plim_model), &model, err));
    PLIM_TRY(plim_model_open(&cli->arena, cli->args[0], &options, model, err));
    out->file = model;
    out->geometry = &out->file->geometry;
    out->model = cli->args[0];
    return PLIM_OK;
}

/* ---- card -------------------------------------------------------------------------------------------- */

static enum plim_status custom_card(const struct plim_opts_plan *opts, struct plim_card *card,
                                    struct plim_err *err)
{
    *card = (struct plim_card){
        .key = "custom",
        .name = "a card given by numbers",
        .total = opts->device_memory.value,
        .nvml = opts->device_memory.value,
        .cc = 90,
        .sms = 132,
        .context = 500 * PLIM_MIB,
        .source = "given",
    };
    if (!opts->cc.given || !opts->sms.given) {
        enum plim_status st =
            plim__fail(err, PLIM_E_USAGE,
                       "--device-memory needs --cc and --sms: kernels and buffers "
                       "depend on them");
        plim__err_hint(err, "an H100 is --cc 9.0 --sms 132; or name the card with --gpu");
        return st;
    }
    return PLIM_OK;
}

/* Engines choose defaults by the driver's name: without one, that of a card with the same numbers. */
static const char *name_of(struct plim_cli *cli, const struct plim_opts_plan *opts,
                           const struct plim_card *card)
{
    const char *like = opts->gpu == NULL ? plim_card_like(card) : NULL;
    if (opts->gpu_name != NULL) {
        return opts->gpu_name;
    }
    return like != NULL ? plim_arena_sayf(&cli->arena, "a card like %s", like) : card->name;
}

static enum plim_status read_card(struct plim_cli *cli, const struct plim_opts_plan *opts,
                                  struct plim_plan_request *out, struct plim_err *err)
{
    struct plim_card card;
    if (opts->gpu != NULL) {
        PLIM_TRY(plim_card_find(opts->gpu, &card, err));
    } else if (opts->device_memory.given) {
        PLIM_TRY(custom_card(opts, &card, err));
    } else {
        enum plim_status st = plim__fail(err, PLIM_E_USAGE,
                                         "say which card: --gpu CARD, or "
                                         "--device-memory with --cc and --sms");
        plim__err_hint(err, "`plimsoll plan --list-gpus` lists the cards known by name");
        return st;
    }
    if (opts->device_memory.given) {
        card.total = opts->device_memory.value;
        card.nvml = plim_max_u64(card.nvml, card.total);
    }
    if (opts->cc.given) {
        if (!(opts->cc.value >= 5 && opts->cc.value < 20)) {
            return plim__fail(err, PLIM_E_USAGE, "--cc is a compute capability such as 9.0");
        }
        card.cc = (uint32_t)(opts->cc.value * 10 + 0.5);
    }
    card.sms = opts->sms.given && opts->sms.value < 4096 ? (uint32_t)opts->sms.value : card.sms;
    card.context = opts->context.given ? opts->context.value : card.context;
    card.external = opts->external.given ? opts->external.value : 0;
    card.name = name_of(cli, opts, &card);
    if (plim_add_sat(card.context, card.external) > card.total || card.total > UINT64_C(1) << 46) {
        return plim__fail(err, PLIM_E_RANGE,
                          "context and other processes exceed the card's memory");
    }
    out->card = card;
    out->context_given = opts->context.given;
    out->external_given = opts->external.given;
    return PLIM_OK;
}

/* ---- traffic ------------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Mean, and the value that 95 of 100 stay below. `n` > 0; sorts. */
static void summarise(uint32_t *values, size_t n, uint64_t *mean, uint64_t *p95)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    qsort(values, n, sizeof *values, by_number);
    *mean = plim_ceil_div(sum, n);
    *p95 = values[(n - 1) * 95 / 100];
}

static enum plim_status summarise_file(const struct plim_traffic *traffic,
                                       struct plim_plan_traffic *out, struct plim_err *err)
{
    size_t n = traffic->arrivals.n;
    if (n == 0) {
        return plim__fail(err, PLIM_E_DATA, "the traffic file has no requests");
    }
    uint32_t *values = malloc(n * sizeof *values);
    if (values == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu requests", n);
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = traffic->arrivals.items[i].prompt;
    }
    summarise(values, n, &out->prompt, &out->prompt_p95);
    for (size_t i = 0; i < n; i++) {
        values[i] = traffic->arrivals.items[i].output;
    }
    summarise(values, n, &out->output, &out->output_p95);
    free(values);
    uint64_t span = plim_traffic_span(traffic);
    out->requests = n;
    out->rate = traffic->timed && span > 0 ? (double)n / ((double)span / 1e9) : 0;
    return PLIM_OK;
}

static enum plim_status read_traffic(const struct plim_opts_plan *opts,
                                     struct plim_plan_traffic *out, struct plim_err *err)
{
    if (opts->traffic != NULL) {
        struct plim_traffic traffic;
        PLIM_TRY(plim_traffic_read(opts->traffic, NULL, &traffic, NULL, NULL, err));
        enum plim_status st = summarise_file(&traffic, out, err);
        plim_traffic_fini(&traffic);
        PLIM_TRY(st);
    }
    out->prompt = opts->prompt.given ? opts->prompt.value : out->prompt;
    out->output = opts->output_tokens.given ? opts->output_tokens.value : out->output;
    out->rate = opts->rate.given ? opts->rate.value : out->rate;
    out->speed = opts->speed.given ? opts->speed.value : 0;
    if (out->prompt > PLIM_TRAFFIC_TOKENS_MAX || out->output > PLIM_TRAFFIC_TOKENS_MAX ||
        !(out->rate >= 0 && out->rate < 1e9) || !(out->speed >= 0 && out->speed < 1e9)) {
        return plim__fail(err, PLIM_E_RANGE, "absurd traffic");
    }
    return PLIM_OK;
}

/* ---- flags -------------------------------------------------------------------------------------------- */

/* How many words of a whole command line name the program: "python -m sglang.launch_server", "ollama serve". */
static size_t program_words(const char *const *args, size_t n)
{
    bool module = n > 1 && strncmp(args[0], "python", 6) == 0 && strcmp(args[1], "-m") == 0;
    size_t i = module ? 2 : 0;
    while (i < n && args[i][0] != '-') {
        i++;
    }
    return i;
}

/* How many words from here name the model, which was given apart: an option and its value, or none. */
static size_t model_words(const char *const *args, size_t n)
{
    static const char *const options[] = {"--model", "--model-path", "--model-id", "-m"};
    for (size_t i = 0; i < PLIM_COUNT_OF(options); i++) {
        size_t length = strlen(options[i]);
        if (strncmp(args[0], options[i], length) == 0 &&
            (args[0][length] == '\0' || args[0][length] == '=')) {
            return args[0][length] == '=' || n == 1 ? 1 : 2;
        }
    }
    return 0;
}

/* The flags of a command as it was typed for an engine other than vLLM, whose own reader does the same. */
static size_t add_flags(const char *const *args, size_t n, const char **words)
{
    size_t used = 0, i = 0;
    while (i < n && args[i][0] != '-' && strchr(args[i], '=') != NULL) {
        words[used++] = args[i++]; /* variables in front */
    }
    i += program_words(args + i, n - i);
    while (i < n) {
        size_t skip = model_words(args + i, n - i);
        if (skip == 0) {
            words[used++] = args[i++];
        }
        i += skip;
    }
    return used;
}

/* The engine's flags, behind the variables that it would inherit from here. */
static enum plim_status read_words(struct plim_cli *cli, struct plim_plan_request *out,
                                   struct plim_err *err)
{
    static const char *const inherited[] = {"VLLM_USE_V2_MODEL_RUNNER",
                                            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"};
    void *items;
    size_t n = 0, flags = cli->n_args - 1;
    PLIM_TRY(plim_arena_array(&cli->arena, flags + PLIM_COUNT_OF(inherited), sizeof *out->words,
                              &items, err));
    const char **words = items;
    for (size_t i = 0; out->engine == PLIM_ENGINE_VLLM && i < PLIM_COUNT_OF(inherited); i++) {
        const char *value = variable(inherited[i]);
        if (value != NULL) {
            words[n++] = plim_arena_sayf(&cli->arena, "%s=%s", inherited[i], value);
        }
    }
    if (out->engine != PLIM_ENGINE_VLLM) {
        n = add_flags(cli->args + 1, flags, words);
    }
    for (size_t i = 0; out->engine == PLIM_ENGINE_VLLM && i < flags; i++) {
        words[n++] = cli->args[1 + i];
    }
    out->words = words;
    out->n_words = n;
    return plim_arena_status(&cli->arena, err);
}

enum plim_status plim_plan_input(struct plim_cli *cli, const struct plim_opts_plan *opts,
                                 struct plim_plan_request *out, struct plim_err *err)
{
    struct plim_plan_request request = {0};
    if (cli->n_args == 0) {
        return plim__fail(err, PLIM_E_USAGE, "name a model: a folder or a config.json");
    }
    const char *release = "";
    (void)plim_engine_find(opts->engine, &request.engine,
                           &release); /* the option table checked it */
    if (opts->engine_version != NULL &&
        strncmp(opts->engine_version, release, strlen(release)) != 0) {
        enum plim_status st = plim__fail(err, PLIM_E_UNSUPPORTED, "%s %s is not modelled; %s is",
                                         opts->engine, opts->engine_version, release);
        plim__err_hint(err,
                       "other releases account for memory differently: plan with %s and "
                       "compare with --calibrate",
                       release);
        return st;
    }
    if (request.engine != PLIM_ENGINE_VLLM && opts->calibrate != NULL) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "only starts of vLLM can be compared");
    }
    PLIM_TRY(read_model(cli, opts, &request, err));
    PLIM_TRY(read_card(cli, opts, &request, err));
    PLIM_TRY(read_traffic(opts, &request.traffic, err));
    PLIM_TRY(read_words(cli, &request, err));
    request.engine_version = opts->engine_version != NULL ? opts->engine_version : release;
    request.settings = opts->conf != NULL ? opts->conf : "";
    *out = request;
    return PLIM_OK;
}

/* ---- state --------------------------------------------------------------------------------------------- */

static const char *state_path(struct plim_arena *arena)
{
    const char *state = variable("XDG_STATE_HOME"), *home = variable("HOME");
    if (state != NULL && state[0] == '/') {
        return plim_arena_sayf(arena, "%s/plimsoll/calibration.json", state);
    }
    return home != NULL ? plim_arena_sayf(arena, "%s/.local/state/plimsoll/calibration.json", home)
                        : NULL;
}

enum plim_status plim_plan_state_open(struct plim_arena *arena, bool forget,
                                      struct plim_plan_state *out, struct plim_err *err)
{
    struct plim_str text;
    *out = (struct plim_plan_state){.path = state_path(arena)};
    if (out->path == NULL) {
        return PLIM_OK;
    }
    if (forget && unlink(out->path) != 0 && errno != ENOENT) {
        return plim__fail_errno(err, PLIM_E_IO, errno, "cannot remove %s", out->path);
    }
    if (access(out->path, R_OK) != 0) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_file_read(out->path, CONFIG_LIMIT, &text, err));
    enum plim_status st = plim_calibrations_read(arena, text, &out->all, err);
    free((char *)text.p);
    if (st == PLIM_E_DATA) {
        plim__err_where(err, "%s", out->path);
        plim__err_hint(err, "--forget removes it");
    }
    return st;
}

const struct plim_calibration *plim_plan_state_find(const struct plim_plan_state *state,
                                                    const char *card)
{
    return plim_calibrations_find(&state->all, card, ENGINE);
}

/* mkdir -p of the folder that the file is in. */
static enum plim_status make_folder(struct plim_arena *arena, const char *path,
                                    struct plim_err *err)
{
    for (const char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        const char *folder = plim_arena_sayf(arena, "%.*s", (int)(p - path), path);
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
            return plim__fail_errno(err, PLIM_E_IO, errno, "cannot make %s", folder);
        }
    }
    return PLIM_OK;
}

enum plim_status plim_plan_state_learn(struct plim_arena *arena, struct plim_plan_state *state,
                                       const char *card, int64_t outside_bytes,
                                       struct plim_err *err)
{
    PLIM_TRY(plim_calibrations_learn(arena, &state->all, card, ENGINE, outside_bytes, err));
    if (state->path == NULL) {
        return plim__fail(err, PLIM_E_USAGE, "neither XDG_STATE_HOME nor HOME is set");
    }
    struct plim_buf text = {0};
    plim_calibrations_write(&state->all, &text);
    enum plim_status st = make_folder(arena, state->path, err);
    if (st == PLIM_OK) {
        st = plim_file_replace(state->path, plim_buf_str(&text), err);
    }
    plim_buf_fini(&text);
    return st;
}
