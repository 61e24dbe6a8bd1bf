/* SPDX-License-Identifier: Apache-2.0 */

/* What the other engines have in common: flags, weights, caches, verdict, changes. See budget.h. */

#include "serving/budget.h"

#include "base/num.h"
#include "serving/plan_int.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GIB(bytes) ((double)(bytes) / (double)PLIM_GIB)

/* ---- flags -------------------------------------------------------------------------------------------- */

/* `--max-seq-len` and `max_seq_len` are one name. */
static bool same_name(const char *word, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char a = word[i] == '_' ? '-' : word[i];
        char b = name[i] == '_' ? '-' : name[i];
        if (a != b) {
            return false;
        }
    }
    return word[n] == '\0' || word[n] == '=';
}

/* The value that word i gives to `name`, or NULL. Variables (NAME=VALUE) count too. */
static const char *value_at(const struct plim__budget *e, size_t i, const char *name, size_t n)
{
    const char *word = e->words[i];
    size_t dashes = strspn(word, "-");
    bool variable = dashes == 0 && strchr(word, '=') != NULL;
    if ((dashes == 0 && !variable) || !same_name(word + dashes, name, n)) {
        return NULL;
    }
    if (word[dashes + n] == '=') {
        return word + dashes + n + 1;
    }
    bool last = i + 1 >= e->n_words;
    bool option = !last && e->words[i + 1][0] == '-' && !isdigit((unsigned char)e->words[i + 1][1]);
    return last || option ? "" : e->words[i + 1];
}

const char *plim__budget_flag(const struct plim__budget *e, const char *names)
{
    for (const char *at = names; *at != '\0';) {
        size_t n = strcspn(at, " ");
        for (size_t i = e->n_words; i > 0; i--) {
            const char *value = value_at(e, i - 1, at, n);
            if (value != NULL) {
                return value;
            }
        }
        at += n + (at[n] == ' ');
    }
    return NULL;
}

static void refuse_value(struct plim__budget *e, const char *names, const char *value,
                         const char *what)
{
    if (e->st == PLIM_OK) {
        e->st = plim__fail(e->err, PLIM_E_USAGE, "--%.*s %s is no %s", (int)strcspn(names, " "),
                           names, value, what);
    }
}

uint64_t plim__budget_number(struct plim__budget *e, const char *names, uint64_t absent)
{
    const char *value = plim__budget_flag(e, names);
    if (value == NULL || strcmp(value, "-1") == 0) {
        return absent;
    }
    char *end = NULL;
    unsigned long long n = strtoull(value, &end, 10);
    if (end == value || *end != '\0' || value[0] == '-' || n > INT32_MAX) {
        refuse_value(e, names, value, "whole number of this size");
        return absent;
    }
    return n;
}

double plim__budget_real(struct plim__budget *e, const char *names, double absent)
{
    const char *value = plim__budget_flag(e, names);
    if (value == NULL) {
        return absent;
    }
    char *end = NULL;
    double n = strtod(value, &end);
    if (end == value || *end != '\0' || !(n > 0 && n <= 1)) {
        refuse_value(e, names, value, "fraction above 0, at most 1");
        return absent;
    }
    return n;
}

enum plim_kv_format plim__budget_format(struct plim__budget *e, const char *names)
{
    enum plim_kv_format format = PLIM_KV_FORMAT_AUTO;
    const char *value = plim__budget_flag(e, names);
    if (value != NULL && !plim_kv_format_from(plim_str_from(value), &format)) {
        refuse_value(e, names, value, "format of a cache");
    }
    return format;
}

/* ---- amounts ------------------------------------------------------------------------------------------ */

void plim__budget_line(struct plim__budget *e, struct plim_plan_line line)
{
    struct plim_plan *p = e->plan;
    if (p->n_lines < PLIM_PLAN_LINES) {
        p->lines[p->n_lines++] = line;
        p->peak_bytes += line.place != PLIM_PLAN_BUDGET ? line.bytes : 0;
        p->rest_bytes += line.place == PLIM_PLAN_REST ? line.bytes : 0;
    }
}

/* Whole files on one device are measured; shares are computed. */
static void load_weights(struct plim__budget *e)
{
    const struct plim_model *file = e->request->file;
    struct plim_weight_sum sum;
    bool whole = e->at.tp == 1 && e->at.pp == 1 && e->at.ep == 1;
    if (file != NULL && file->has_stored && whole) {
        e->weights = file->stored_bytes;
        e->weights_how = PLIM_PLAN_MEASURED;
        return;
    }
    e->st = plim_weights_sum(e->arena, e->g, &e->at, &sum, e->err);
    if (e->st == PLIM_OK) {
        e->weights = sum.bytes;
        e->weights_how = PLIM_PLAN_COMPUTED;
    }
}

void plim__budget_load(struct plim__budget *e)
{
    const struct plim_plan_request *r = e->request;
    e->free_bytes = plim_sub_sat(e->card->total, e->card->context + e->card->external);
    if (e->st == PLIM_OK && !e->weights_known) {
        load_weights(e);
    }
    if (e->st == PLIM_OK) {
        e->st = plim_kv_layers(e->arena, e->g, &e->at, &e->kv, &e->caches, e->err);
    }
    if (e->st == PLIM_OK && e->weights > PLIM_AMOUNT_MAX) {
        e->st = plim__fail(e->err, PLIM_E_RANGE, "the weights are more than any machine holds");
    }
    if (e->st != PLIM_OK) {
        return;
    }
    plim_kv_sum(&e->caches, &e->cache);
    e->plan->start.weights = e->weights;
    e->plan->start.baseline_free = e->free_bytes;
    plim__budget_line(
        e, (struct plim_plan_line){
               "context", "CUDA context of the engine", e->card->context,
               r->context_given ? 0 : e->card->context / 3,
               r->context_given ? PLIM_PLAN_MEASURED : PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
               r->context_given ? "given" : "stacks of the resident threads + 192 MiB"});
    if (e->card->external > 0) {
        plim__budget_line(e,
                          (struct plim_plan_line){"external", "other processes", e->card->external,
                                                  0, PLIM_PLAN_MEASURED, PLIM_PLAN_REST, "given"});
    }
    plim__budget_line(e, (struct plim_plan_line){
                             "weights", "weights", e->weights, e->weights / 200 + 2 * PLIM_MIB,
                             e->weights_how, PLIM_PLAN_REST,
                             e->weights_how == PLIM_PLAN_MEASURED ? "headers of the files"
                                                                  : "shapes of the architecture"});
}

uint64_t plim__budget_activations(const struct plim__budget *e, uint64_t tokens, uint64_t rows)
{
    uint64_t widest = 0;
    uint64_t hidden = e->g->hidden;
    for (uint32_t i = 0; i < e->g->n_layers; i++) {
        const struct plim_layer *l = &e->g->layers[i];
        uint64_t mlp = 3 * (uint64_t)l->intermediate / e->at.tp;
        uint64_t k = l->experts_per_token;
        uint64_t i_moe = l->expert_intermediate / e->at.tp;
        uint64_t moe = k * (plim_max_u64(2 * i_moe, hidden) + plim_max_u64(i_moe, hidden));
        uint64_t qkv =
            (2 * (uint64_t)l->heads + 2 * (uint64_t)l->kv_heads) * l->head_dim / e->at.tp;
        uint64_t state = 3 * (uint64_t)l->conv_channels / e->at.tp;
        widest =
            plim_max_u64(widest, plim_max_u64(plim_max_u64(mlp, moe), plim_max_u64(qkv, state)));
    }
    uint64_t forward = plim_mul_sat(tokens, (2 * hidden + widest) * 2);
    uint64_t logits = rows * e->g->vocab * (2 + 4);
    return plim_min_u64(plim_max_u64(forward, logits + 2 * tokens * hidden), PLIM_AMOUNT_MAX);
}

void plim__budget_cache(struct plim__budget *e, int64_t bytes, uint64_t tokens, uint32_t block,
                        uint64_t longest)
{
    struct plim_vllm_start *s = &e->plan->start;
    s->available = bytes;
    s->settings.block_size = block;
    s->settings.max_model_len = s->max_model_len = longest;
    s->num_blocks = block != 0 ? tokens / block : 0;
    s->kv_tokens = tokens;
    s->block_bytes = tokens != 0 && bytes > 0 ? (uint64_t)bytes / tokens * block : 0;
    s->request_blocks = block != 0 ? (longest + block - 1) / block : 0;
    s->fitting_len = plim_min_u64(tokens, longest);
    s->concurrency = longest != 0 ? (double)tokens / (double)longest : 0;
    if (bytes > 0) {
        plim__budget_line(e, (struct plim_plan_line){"kv_cache", "KV cache", (uint64_t)bytes, 0,
                                                     PLIM_PLAN_COMPUTED, PLIM_PLAN_REST,
                                                     "what the engine's equation leaves"});
    }
}

/* ---- one start ---------------------------------------------------------------------------------------- */

static enum plim_status play(struct plim__budget *e)
{
    switch (e->request->engine) {
    case PLIM_ENGINE_SGLANG:
        plim__budget_sglang(e);
        break;
    case PLIM_ENGINE_TRTLLM:
        plim__budget_trtllm(e);
        break;
    case PLIM_ENGINE_TGI:
        plim__budget_tgi(e);
        break;
    case PLIM_ENGINE_LLAMACPP:
    case PLIM_ENGINE_OLLAMA:
        plim__budget_llamacpp(e, e->request->engine == PLIM_ENGINE_OLLAMA);
        break;
    case PLIM_ENGINE_VLLM:
        e->st = plim__fail(e->err, PLIM_E_INTERNAL, "vLLM has a model of its own");
        break;
    }
    return e->st;
}

/* Engines that allocate the whole cache at the start: what is left of the card is the margin. */
static bool allocates_whole(const struct plim__budget *e)
{
    return e->request->engine == PLIM_ENGINE_LLAMACPP || e->request->engine == PLIM_ENGINE_OLLAMA;
}

static void judge_whole(struct plim__budget *e)
{
    struct plim_plan *p = e->plan;
    struct plim_vllm_start *s = &p->start;
    uint64_t own = e->g->max_position != 0 ? e->g->max_position : s->max_model_len;
    p->margin_bytes = (int64_t)e->card->total - (int64_t)p->peak_bytes;
    p->fits = p->margin_bytes >= 0;
    p->tight = p->fits && p->margin_bytes < (int64_t)p->error_bytes;
    p->limit = p->fits ? PLIM_PLAN_LIMIT_NONE : PLIM_PLAN_LIMIT_DEVICE_MEMORY;
    s->refusal = p->fits ? PLIM_VLLM_STARTS : PLIM_VLLM_NO_CACHE;
    int64_t cache = s->available + p->margin_bytes; /* if it took all */
    uint64_t tokens = cache > 0 && s->block_bytes != 0 ? (uint64_t)cache / s->block_bytes : 0;
    s->fitting_len = plim_min_u64(tokens / (s->settings.seqs != 0 ? s->settings.seqs : 1), own);
    p->why = p->fits ? plim_arena_sayf(e->arena,
                                       "%.2f GiB of KV cache hold %" PRIu64 " requests of %" PRIu64
                                       " tokens.",
                                       GIB(s->available), s->settings.seqs, s->max_model_len)
                     : plim_arena_sayf(e->arena, "%.2f GiB are wanted of a card of %.2f GiB.",
                                       GIB(p->peak_bytes), GIB(e->card->total));
}

/* Engines that give the cache what is left: room beyond one request of the longest length is the margin. */
static void judge_rest(struct plim__budget *e)
{
    struct plim_plan *p = e->plan;
    struct plim_vllm_start *s = &p->start;
    if (s->available <= 0) {
        s->refusal = PLIM_VLLM_NO_BLOCKS;
        p->limit = PLIM_PLAN_LIMIT_CACHE_BLOCKS;
        p->margin_bytes = s->available;
        p->why =
            plim_arena_sayf(e->arena, "Nothing is left for the KV cache: %.2f GiB are missing.",
                            GIB(-s->available));
        return;
    }
    uint64_t one = 0; /* bytes of the longest request */
    uint64_t token = s->kv_tokens != 0 ? (uint64_t)s->available / s->kv_tokens : 0;
    if (plim_mul_overflows(token, s->max_model_len, &one) || one > INT64_MAX / 2) {
        one = INT64_MAX / 2;
    }
    p->margin_bytes = s->available - (int64_t)one;
    p->fits = s->kv_tokens >= s->max_model_len;
    p->tight = p->fits && p->margin_bytes < (int64_t)p->error_bytes;
    p->limit = p->fits ? PLIM_PLAN_LIMIT_NONE : PLIM_PLAN_LIMIT_MAX_MODEL_LEN;
    p->why = p->fits
                 ? plim_arena_sayf(e->arena,
                                   "%.2f GiB of KV cache hold %.1f requests of %" PRIu64 " tokens.",
                                   GIB(s->available), s->concurrency, s->max_model_len)
                 : plim_arena_sayf(e->arena,
                                   "A request of %" PRIu64
                                   " tokens does not fit in a cache of %" PRIu64 ".",
                                   s->max_model_len, s->kv_tokens);
}

static void judge_fit(struct plim__budget *e)
{
    struct plim_plan *p = e->plan;
    for (uint32_t i = 0; i < p->n_lines; i++) {
        p->error_bytes += p->lines[i].place != PLIM_PLAN_BUDGET ? p->lines[i].error_bytes : 0;
    }
    if (allocates_whole(e)) {
        judge_whole(e);
    } else {
        judge_rest(e);
    }
}

static void judge_traffic(struct plim__budget *e)
{
    struct plim_plan *p = e->plan;
    const struct plim_plan_traffic *t = &e->request->traffic;
    uint64_t tokens = t->prompt + t->output;
    if (tokens == 0 || p->start.kv_tokens == 0) {
        return;
    }
    p->possible_concurrency = (double)p->start.kv_tokens / (double)tokens;
    if (p->start.settings.seqs != 0 && p->possible_concurrency > (double)p->start.settings.seqs) {
        p->possible_concurrency = (double)p->start.settings.seqs;
    }
    p->wanted_concurrency = plim__plan_wanted(t);
    if (p->fits && p->wanted_concurrency > p->possible_concurrency) {
        p->fits = false;
        p->limit = PLIM_PLAN_LIMIT_CONCURRENCY;
        p->why = plim_arena_sayf(e->arena,
                                 "The traffic keeps %.0f requests in the server at once; %.0f fit.",
                                 p->wanted_concurrency, p->possible_concurrency);
    }
}

/* One start with `extra` words behind those of the request. */
static enum plim_status attempt(struct plim_arena *arena, const struct plim_plan_request *r,
                                const struct plim_card *card, const char *extra,
                                struct plim_plan *out, struct plim_err *err)
{
    const char *more[8];
    size_t n = 0;
    void *words = NULL;
    for (const char *at = extra; at != NULL && *at != '\0' && n < PLIM_COUNT_OF(more);) {
        size_t length = strcspn(at, " ");
        more[n++] = plim_arena_sayf(arena, "%.*s", (int)length, at);
        at += length + (at[length] == ' ');
    }
    PLIM_TRY(plim_arena_array(arena, r->n_words + n + 1, sizeof(const char *), &words, err));
    const char **all = words;
    for (size_t i = 0; i < r->n_words; i++) {
        all[i] = r->words[i];
    }
    for (size_t i = 0; i < n; i++) {
        all[r->n_words + i] = more[i];
    }
    *out = (struct plim_plan){.request = r, .known_family = true};
    struct plim__budget e = {.arena = arena,
                             .request = r,
                             .g = r->geometry,
                             .card = card,
                             .words = all,
                             .n_words = r->n_words + n,
                             .plan = out,
                             .at = PLIM_PLACEMENT_WHOLE,
                             .err = err};
    PLIM_TRY(play(&e));
    judge_fit(&e);
    judge_traffic(&e);
    return PLIM_OK;
}

/* ---- what would help ---------------------------------------------------------------------------------- */

struct offer {
    enum plim_engine engine;
    const char *flags; /* %u: the longest length that fits */
    const char *cost;
};

static const struct offer offers[] = {
    {PLIM_ENGINE_SGLANG, "--kv-cache-dtype fp8_e5m2", "half the cache's bytes, a little accuracy"},
    {PLIM_ENGINE_SGLANG, "--context-length %u", "longer requests are refused"},
    {PLIM_ENGINE_SGLANG, "--mem-fraction-static 0.92",
     "less room for activations: out of memory under load"},
    {PLIM_ENGINE_SGLANG, "--tp-size 2", "a second card"},
    {PLIM_ENGINE_TRTLLM, "--kv_cache_dtype fp8", "half the cache's bytes, a little accuracy"},
    {PLIM_ENGINE_TRTLLM, "--max_seq_len %u", "longer requests are refused"},
    {PLIM_ENGINE_TRTLLM, "--max_num_tokens 2048", "slower prefill"},
    {PLIM_ENGINE_TRTLLM, "--tp_size 2", "a second card"},
    {PLIM_ENGINE_TGI, "--max-total-tokens %u", "longer requests are refused"},
    {PLIM_ENGINE_TGI, "--kv-cache-dtype fp8_e5m2", "half the cache's bytes, a little accuracy"},
    {PLIM_ENGINE_TGI, "--num-shard 2", "a second card"},
    {PLIM_ENGINE_LLAMACPP, "--cache-type-k q8_0 --cache-type-v q8_0",
     "a little accuracy; needs flash attention"},
    {PLIM_ENGINE_LLAMACPP, "--ctx-size 8192", "longer requests are refused"},
    {PLIM_ENGINE_LLAMACPP, "--ctx-size 4096", "longer requests are refused"},
    {PLIM_ENGINE_LLAMACPP, "--n-gpu-layers 16", "the other layers run on the processor"},
    {PLIM_ENGINE_OLLAMA, "OLLAMA_KV_CACHE_TYPE=q8_0", "a little accuracy"},
    {PLIM_ENGINE_OLLAMA, "OLLAMA_CONTEXT_LENGTH=8192", "longer conversations are cut"},
    {PLIM_ENGINE_OLLAMA, "OLLAMA_CONTEXT_LENGTH=4096", "longer conversations are cut"},
};

static enum plim_status find_changes(struct plim_arena *arena, struct plim_plan *p,
                                     struct plim_err *err)
{
    const struct plim_plan_request *r = p->request;
    for (size_t i = 0;
         i < PLIM_COUNT_OF(offers) && !p->fits && p->n_changes < PLIM_COUNT_OF(p->changes); i++) {
        struct plim_plan tried;
        uint64_t len = p->start.fitting_len / 256 * 256;
        bool length = strstr(offers[i].flags, "%u") != NULL;
        if (offers[i].engine != r->engine || (length && len == 0)) {
            continue;
        }
        const char *percent = strchr(offers[i].flags, '%');
        const char *flags =
            length ? plim_arena_sayf(arena, "%.*s%" PRIu64, (int)(percent - offers[i].flags),
                                     offers[i].flags, len)
                   : offers[i].flags;
        if (attempt(arena, r, &r->card, flags, &tried, NULL) != PLIM_OK || !tried.fits) {
            continue; /* a format that the model's heads do not suit, for example */
        }
        p->changes[p->n_changes++] = (struct plim_plan_change){flags,
                                                               offers[i].cost,
                                                               true,
                                                               tried.start.available,
                                                               tried.start.concurrency,
                                                               tried.start.max_model_len};
    }
    return plim_arena_status(arena, err);
}

static void answer_questions(struct plim_arena *arena, struct plim_plan *p)
{
    const struct plim_plan_request *r = p->request;
    const struct plim_vllm_start *s = &p->start;
    bool starts = s->available > 0;
    double room = p->possible_concurrency > 0 ? p->possible_concurrency : s->concurrency;
    p->largest_context = (struct plim_plan_answer){r->want_context, starts, s->fitting_len, NULL};
    p->largest_batch = (struct plim_plan_answer){r->want_batch, starts, (uint64_t)room, NULL};
    p->replicas = (struct plim_plan_answer){
        r->want_replicas, p->wanted_concurrency > 0 && p->possible_concurrency >= 1,
        p->possible_concurrency >= 1
            ? plim_u64_of(p->wanted_concurrency / p->possible_concurrency + 0.999999, INT64_MAX)
            : 0,
        NULL};
    p->smallest_gpu = (struct plim_plan_answer){.asked = r->want_gpu};
    struct plim_card card;
    for (size_t i = 0; r->want_gpu && !p->smallest_gpu.known && plim_card_at(i, &card); i++) {
        struct plim_plan tried;
        card.external = r->card.external;
        if (attempt(arena, r, &card, NULL, &tried, NULL) == PLIM_OK && tried.fits) {
            p->smallest_gpu.known = true;
            p->smallest_gpu.text = card.key;
        }
    }
}

/* Flags that the equations read, and common ones that take no memory of the device. */
static const char *const known_flags[] = {
    [PLIM_ENGINE_SGLANG] = "tp-size tp tensor-parallel-size pp-size pp pipeline-parallel-size "
                           "ep-size ep expert-parallel-size "
                           "kv-cache-dtype disable-cuda-graph cuda-graph-max-bs "
                           "chunked-prefill-size mem-fraction-static "
                           "max-total-tokens context-length max-running-requests host port "
                           "model-path served-model-name api-key "
                           "trust-remote-code log-level tokenizer-path dtype schedule-policy",
    [PLIM_ENGINE_TRTLLM] = "tp-size tensor-parallel-size pp-size pipeline-parallel-size ep-size "
                           "moe-expert-parallel-size "
                           "kv-cache-dtype max-num-tokens max-batch-size "
                           "kv-cache-free-gpu-memory-fraction free-gpu-memory-fraction "
                           "max-seq-len tokens-per-block max-tokens host port backend tokenizer "
                           "trust-remote-code log-level",
    [PLIM_ENGINE_TGI] = "num-shard kv-cache-dtype max-total-tokens max-input-tokens "
                        "max-input-length max-batch-prefill-tokens "
                        "cuda-memory-fraction max-batch-total-tokens max-concurrent-requests "
                        "model-id hostname port dtype "
                        "trust-remote-code json-output waiting-served-ratio max-waiting-tokens",
    [PLIM_ENGINE_LLAMACPP] = "parallel np ctx-size c ubatch-size ub batch-size b swa-full "
                             "flash-attn fa n-gpu-layers gpu-layers ngl "
                             "cache-type-k ctk cache-type-v ctv host port model m threads t jinja "
                             "no-mmap mlock api-key alias",
    [PLIM_ENGINE_OLLAMA] =
        "OLLAMA_NUM_PARALLEL OLLAMA_CONTEXT_LENGTH OLLAMA_FLASH_ATTENTION OLLAMA_KV_CACHE_TYPE "
        "OLLAMA_GPU_OVERHEAD OLLAMA_HOST OLLAMA_MODELS OLLAMA_KEEP_ALIVE OLLAMA_DEBUG n-gpu-layers",
};

/* Is the word a flag (or variable) that `list` has? Values count as known. */
static bool is_known(const char *word, const char *list)
{
    size_t dashes = strspn(word, "-");
    bool variable = dashes == 0 && strchr(word, '=') != NULL;
    if ((dashes == 0 && !variable) || isdigit((unsigned char)word[dashes])) {
        return true;
    }
    for (const char *at = list; *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (same_name(word + dashes, at, n)) {
            return true;
        }
        at += n + (at[n] == ' ');
    }
    return false;
}

static enum plim_status name_unknown(struct plim_arena *arena, struct plim_plan *p,
                                     struct plim_err *err)
{
    const struct plim_plan_request *r = p->request;
    void *unknown = NULL;
    PLIM_TRY(plim_arena_array(arena, r->n_words + 1, sizeof(const char *), &unknown, err));
    p->flags.unknown = unknown;
    for (size_t i = 0; i < r->n_words; i++) {
        if (!is_known(r->words[i], known_flags[r->engine])) {
            p->flags.unknown[p->flags.n_unknown++] = r->words[i];
            if (p->n_assumptions < 8) {
                p->assumptions[p->n_assumptions++] =
                    plim_arena_sayf(arena, "%s: nothing was planned for it.", r->words[i]);
            }
        }
    }
    return PLIM_OK;
}

static void say(struct plim_arena *arena, struct plim_plan *p)
{
    static const char *const launch[] = {
        "vllm serve",           "python -m sglang.launch_server --model-path",
        "trtllm-serve",         "text-generation-launcher --model-id",
        "llama-server --model", "ollama serve #"};
    const struct plim_plan_request *r = p->request;
    const char *text = plim_arena_sayf(arena, "%s %s", launch[r->engine], r->model);
    bool variables = r->engine == PLIM_ENGINE_OLLAMA;
    for (size_t i = 0; i < r->n_words + (!p->fits && p->n_changes > 0); i++) {
        const char *word = i < r->n_words ? r->words[i] : p->changes[0].flags;
        text = variables ? plim_arena_sayf(arena, "%s %s", word, text)
                         : plim_arena_sayf(arena, "%s %s", text, word);
    }
    p->command = p->fits || p->n_changes > 0 ? text : NULL;
    p->assumptions[p->n_assumptions++] =
        plim_arena_sayf(arena,
                        "The budget of %s is its equation; activations, compute buffers and graphs "
                        "are estimates, and no start "
                        "of the engine was compared.",
                        plim_engine_text(r->engine));
    for (uint32_t i = 0; i < r->geometry->n_notes && p->n_assumptions < 12; i++) {
        p->assumptions[p->n_assumptions++] = r->geometry->notes[i];
    }
    if (p->fits) {
        p->breaks_first =
            plim_arena_sayf(arena, "%.2f GiB taken elsewhere: the longest request no longer fits.",
                            GIB(p->margin_bytes));
    }
}

enum plim_status plim__budget_plan(struct plim_arena *arena,
                                   const struct plim_plan_request *request, struct plim_plan *out,
                                   struct plim_err *err)
{
    struct plim_plan p;
    PLIM_TRY(attempt(arena, request, &request->card, NULL, &p, err));
    PLIM_TRY(find_changes(arena, &p, err));
    answer_questions(arena, &p);
    PLIM_TRY(name_unknown(arena, &p, err));
    say(arena, &p);
    PLIM_TRY(plim_arena_status(arena, err));
    *out = p;
    return PLIM_OK;
}
