/* SPDX-License-Identifier: Apache-2.0 */

/* The plan: lines, ledger, verdict. See plan.h. */

#include "serving/plan.h"

#include "base/num.h"
#include "serving/budget.h"
#include "serving/plan_int.h"
#include "serving/plan_rules.h"
#include "serving/vllm_run.h"

#include <inttypes.h>

#define GIB(bytes) ((double)(bytes) / (double)PLIM_GIB)

/* Memory of kernels and libraries that no allocator sees, on a host that was never measured: 0 is planned,
 * and that much may appear (reference: start-up logs of vLLM on A100 and H100). */
#define OUTSIDE_ERROR (UINT64_C(300) * PLIM_MIB)

const char *plim_plan_how_text(enum plim_plan_how how)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_PLAN_HOW_MAP(PLIM__X)
#undef PLIM__X
    };
    return texts[how];
}

const char *plim_plan_limit_text(enum plim_plan_limit limit)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_PLAN_LIMIT_MAP(PLIM__X)
#undef PLIM__X
    };
    return texts[limit];
}

/* ---- lines -------------------------------------------------------------------------------------------- */

static void add(struct plim_plan *p, struct plim_plan_line line)
{
    if (p->n_lines < PLIM_PLAN_LINES) {
        p->lines[p->n_lines++] = line;
        if (line.place != PLIM_PLAN_BUDGET) {
            p->peak_bytes = plim_add_sat(p->peak_bytes, line.bytes);
        }
        if (line.place == PLIM_PLAN_REST) {
            p->rest_bytes = plim_add_sat(p->rest_bytes, line.bytes);
        }
    }
}

static void add_outside(struct plim_plan *p)
{
    const struct plim_plan_request *r = p->request;
    const struct plim_card *card = &r->card;
    add(p, (struct plim_plan_line){
               "context", "CUDA context of the engine", card->context,
               r->context_given ? 0 : card->context / 3,
               r->context_given ? PLIM_PLAN_MEASURED : PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
               r->context_given ? "given" : "stacks of the resident threads + 192 MiB"});
    if (card->external > 0 || r->external_given) {
        add(p, (struct plim_plan_line){"external", "other processes", card->external, 0,
                                       PLIM_PLAN_MEASURED, PLIM_PLAN_REST, "given"});
    }
    const struct plim_calibration *c = r->calibration;
    if (c != NULL) {
        add(p, (struct plim_plan_line){"outside", "outside the allocator, measured on this host",
                                       c->outside_bytes > 0 ? (uint64_t)c->outside_bytes : 0,
                                       plim_max_u64(c->spread_bytes, 16 * PLIM_MIB),
                                       PLIM_PLAN_MEASURED, PLIM_PLAN_REST,
                                       "calibration of this host"});
    } else {
        add(p, (struct plim_plan_line){"outside", "kernels and libraries outside the allocator", 0,
                                       OUTSIDE_ERROR, PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
                                       "not modelled; measured by the engine at its start"});
    }
    add(p, (struct plim_plan_line){"library_workspace", "workspace of the matrix library",
                                   p->start.baseline_torch, 0, PLIM_PLAN_COMPUTED, PLIM_PLAN_REST,
                                   "torch CublasHandlePool: 32 MiB from capability 9.0 on"});
}

static void add_engine(struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    enum plim_plan_how how = p->known_family ? PLIM_PLAN_COMPUTED : PLIM_PLAN_ESTIMATED;
    uint64_t error = p->known_family ? 0 : s->transient / 4;
    uint64_t tensors = s->weights + s->state + s->kept;
    add(p, (struct plim_plan_line){"weights", "weights and rotary tables", s->weights, 0,
                                   PLIM_PLAN_COMPUTED, PLIM_PLAN_REST,
                                   "shapes of the architecture, played on the allocator model"});
    add(p, (struct plim_plan_line){"runner_state", "the runner's buffers and sampler state",
                                   s->state, 0, PLIM_PLAN_COMPUTED, PLIM_PLAN_REST,
                                   "vllm v1/worker/gpu: states.py, input_batch.py, sample/"});
    add(p, (struct plim_plan_line){"kept", "kernel buffers that the profile run leaves", s->kept, 0,
                                   how, PLIM_PLAN_REST,
                                   "top-k buffer, expert workspace: topk_topp_triton.py, "
                                   "workspace.py"});
    add(p, (struct plim_plan_line){"rounding", "segments not filled by tensors",
                                   plim_sub_sat(s->consumed, tensors), 0, PLIM_PLAN_COMPUTED,
                                   PLIM_PLAN_REST, "allocator model, max_split_size_mb:20"});
    add(p, (struct plim_plan_line){"activations", "activations and logits of the largest step",
                                   s->transient, error, how, PLIM_PLAN_PEAK,
                                   "forward pass and sampler, tensor by tensor"});
    if (s->graph_estimate > 0) {
        add(p, (struct plim_plan_line){"cuda_graphs", "CUDA graphs", s->graph_actual,
                                       s->graph_error, PLIM_PLAN_ESTIMATED, PLIM_PLAN_REST,
                                       "private pool, played; graph nodes are the driver's"});
        add(p, (struct plim_plan_line){"cuda_graph_estimate",
                                       "what the engine sets aside for CUDA graphs",
                                       s->graph_estimate, s->graph_error, PLIM_PLAN_ESTIMATED,
                                       PLIM_PLAN_BUDGET, "vllm v1/worker/gpu/cudagraph_utils.py"});
    }
}

void plim__plan_lines(struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    p->n_lines = 0;
    p->rest_bytes = p->peak_bytes = 0;
    add(p, (struct plim_plan_line){"requested", "memory that the engine allows itself",
                                   s->requested, 0, PLIM_PLAN_COMPUTED, PLIM_PLAN_BUDGET,
                                   "ceil(total * utilization)"});
    add_outside(p);
    if (s->refusal == PLIM_VLLM_NO_FREE || s->refusal == PLIM_VLLM_NO_LOAD) {
        return;
    }
    add_engine(p);
    uint64_t cache = plim_mul_sat(s->num_blocks, s->block_bytes);
    add(p, (struct plim_plan_line){"kv_cache", "KV cache", cache, 0, PLIM_PLAN_COMPUTED,
                                   PLIM_PLAN_REST, "blocks * bytes of a block"});
}

/* ---- verdict ------------------------------------------------------------------------------------------- */

static uint64_t errors(const struct plim_plan *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_lines; i++) {
        if (strcmp(p->lines[i].name, "context") != 0 && p->lines[i].place != PLIM_PLAN_BUDGET) {
            sum += p->lines[i].error_bytes;
        }
    }
    return sum;
}

static const char *setting_text(struct plim_arena *arena, const struct plim_vllm_settings *set)
{
    if (set->too_long != 0) {
        return plim_arena_sayf(arena,
                               "The engine refuses --max-model-len %" PRIu64
                               ": the model's own is %" PRIu64 ".",
                               set->max_model_len, set->too_long);
    }
    return plim_arena_sayf(arena,
                           "The engine refuses --max-num-batched-tokens (%" PRIu64
                           ") below --max-num-seqs (%" PRIu64 ").",
                           set->batched_tokens, set->seqs);
}

/* What the engine says when it refuses. */
static const char *refusal_text(struct plim_arena *arena, const struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    switch (s->refusal) {
    case PLIM_VLLM_NO_FREE:
        return plim_arena_sayf(arena,
                               "Free memory on device cuda:0 (%.2f/%.2f GiB) on startup is less "
                               "than desired GPU memory utilization (%g, %.2f GiB).",
                               GIB(s->baseline_free), GIB(p->request->card.total),
                               s->settings.utilization, GIB(s->requested));
    case PLIM_VLLM_NO_LOAD:
    case PLIM_VLLM_NO_PROFILE:
        return plim_arena_sayf(arena,
                               "CUDA out of memory while %s: a request of %.2f GiB does not "
                               "fit on the card.",
                               s->failed_step, GIB(s->failed_bytes));
    case PLIM_VLLM_NO_BLOCKS:
        return plim_arena_sayf(arena,
                               "No available memory for the cache blocks: %.2f GiB are left "
                               "of %.2f GiB.",
                               (double)s->available / (double)PLIM_GIB, GIB(s->requested));
    case PLIM_VLLM_NO_LENGTH:
        return plim_arena_sayf(
            arena,
            "To serve at least one request with the model's max seq len (%" PRIu64
            "), %.2f GiB KV cache is needed, which is larger than the available KV cache memory "
            "(%.2f GiB); the longest that fits is %" PRIu64 ".",
            s->max_model_len, GIB(plim_mul_sat(s->request_blocks, s->block_bytes)),
            ((double)s->available - (double)s->block_bytes) / (double)PLIM_GIB, s->fitting_len);
    case PLIM_VLLM_NO_AUTO:
        return "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a "
               "single token.";
    case PLIM_VLLM_NO_CACHE:
        return plim_arena_sayf(arena,
                               "The cache of %.2f GiB as ordered does not fit beside the "
                               "rest on the card.",
                               GIB(plim_mul_sat(s->num_blocks, s->block_bytes)));
    case PLIM_VLLM_NO_SETTING:
        return setting_text(arena, &s->settings);
    default:
        return NULL;
    }
}

static enum plim_plan_limit refusal_limit(enum plim_vllm_refusal refusal)
{
    static const enum plim_plan_limit limits[PLIM_VLLM_REFUSAL_COUNT] = {
        [PLIM_VLLM_NO_FREE] = PLIM_PLAN_LIMIT_FREE_MEMORY,
        [PLIM_VLLM_NO_LOAD] = PLIM_PLAN_LIMIT_LOAD,
        [PLIM_VLLM_NO_PROFILE] = PLIM_PLAN_LIMIT_PROFILE,
        [PLIM_VLLM_NO_BLOCKS] = PLIM_PLAN_LIMIT_CACHE_BLOCKS,
        [PLIM_VLLM_NO_LENGTH] = PLIM_PLAN_LIMIT_MAX_MODEL_LEN,
        [PLIM_VLLM_NO_AUTO] = PLIM_PLAN_LIMIT_AUTO_FIT,
        [PLIM_VLLM_NO_CACHE] = PLIM_PLAN_LIMIT_DEVICE_MEMORY,
        [PLIM_VLLM_NO_SETTING] = PLIM_PLAN_LIMIT_SETTING,
    };
    return limits[refusal];
}

bool plim__plan_setting_refused(const struct plim_vllm_settings *set)
{
    return set->too_long != 0 || set->batched_tokens < set->seqs;
}

/* An amount as a number with a sign. What is beyond all machines is INT64_MAX / 2, and may be subtracted. */
static int64_t amount(uint64_t bytes)
{
    return (int64_t)plim_min_u64(bytes, INT64_MAX / 2);
}

/* Bytes that are missing (negative) or left. */
static int64_t margin_of(const struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    int64_t total = (int64_t)p->request->card.total;
    switch (s->refusal) {
    case PLIM_VLLM_NO_FREE:
        return (int64_t)s->baseline_free - (int64_t)s->requested;
    case PLIM_VLLM_NO_LOAD:
    case PLIM_VLLM_NO_PROFILE:
        return -amount(s->failed_bytes);
    case PLIM_VLLM_NO_CACHE:
        return total - amount(p->peak_bytes);
    case PLIM_VLLM_NO_SETTING:
        return 0;
    default:
        break;
    }
    uint64_t blocks = s->settings.auto_len ? 1 : s->request_blocks;
    return s->available - amount(plim_mul_sat(blocks + 1, s->block_bytes));
}

double plim__plan_room(const struct plim_vllm_start *start, uint64_t tokens)
{
    uint64_t blocks = plim__blocks_for(start, tokens);
    return blocks == 0 || start->num_blocks < 2 ? 0
                                                : (double)(start->num_blocks - 1) / (double)blocks;
}

double plim__plan_wanted(const struct plim_plan_traffic *t)
{
    double speed = t->speed > 0 ? t->speed : PLIM_PLAN_SPEED;
    return t->rate > 0 && t->output > 0 ? t->rate * (double)t->output / speed : 0;
}

static void judge_traffic(struct plim_arena *arena, struct plim_plan *p)
{
    const struct plim_plan_traffic *t = &p->request->traffic;
    if (t->prompt + t->output == 0) {
        return;
    }
    p->possible_concurrency = plim__plan_room(&p->start, t->prompt + t->output);
    p->wanted_concurrency = plim__plan_wanted(t);
    double seqs = (double)p->start.settings.seqs;
    double most = p->possible_concurrency < seqs ? p->possible_concurrency : seqs;
    if (p->fits && p->wanted_concurrency > most) {
        p->fits = false;
        p->limit = p->possible_concurrency < seqs ? PLIM_PLAN_LIMIT_CONCURRENCY
                                                  : PLIM_PLAN_LIMIT_MAX_NUM_SEQS;
        double missing = p->wanted_concurrency - most;
        double each = (double)plim__blocks_for(&p->start, t->prompt + t->output);
        p->margin_bytes =
            -(int64_t)plim_u64_of(missing * (double)p->start.block_bytes * each, INT64_MAX);
        p->why = plim_arena_sayf(arena,
                                 "The traffic keeps %.0f requests in the server at once; "
                                 "%.0f of %" PRIu64 " tokens fit.",
                                 p->wanted_concurrency, most, t->prompt + t->output);
    }
}

bool plim__plan_overdrawn(const struct plim_plan *p)
{
    const struct plim_vllm_settings *set = &p->start.settings;
    bool ordered = set->kv_bytes != 0 || set->blocks_override != 0;
    return ordered && p->peak_bytes > p->request->card.total;
}

void plim__plan_judge(struct plim_arena *arena, struct plim_plan *p)
{
    struct plim_vllm_start *s = &p->start;
    const struct plim_card *card = &p->request->card;
    if (s->refusal == PLIM_VLLM_STARTS && plim__plan_overdrawn(p)) {
        s->refusal = PLIM_VLLM_NO_CACHE;
    }
    if (s->refusal == PLIM_VLLM_STARTS && plim__plan_setting_refused(&s->settings)) {
        s->refusal = PLIM_VLLM_NO_SETTING;
    }
    p->fits = s->refusal == PLIM_VLLM_STARTS;
    p->limit = refusal_limit(s->refusal);
    p->margin_bytes = margin_of(p);
    p->error_bytes = errors(p);
    p->why = refusal_text(arena, p);
    if (p->fits) {
        p->limit = PLIM_PLAN_LIMIT_NONE;
        int64_t start_margin = (int64_t)s->baseline_free - (int64_t)s->requested;
        bool near_start = s->settings.kv_bytes == 0 && !p->request->context_given &&
                          start_margin < (int64_t)(card->context / 3);
        p->tight = p->margin_bytes < (int64_t)p->error_bytes || near_start || !p->known_family;
        p->why = plim_arena_sayf(
            arena, "%.2f GiB of KV cache hold %.1f requests of %" PRIu64 " tokens.",
            (double)s->available / (double)PLIM_GIB, s->concurrency, s->max_model_len);
    }
    judge_traffic(arena, p);
}

/* ---- making it ------------------------------------------------------------------------------------------ */

enum plim_status plim__plan_play(struct plim_arena *arena, const struct plim_plan_request *request,
                                 const struct plim_card *card, const char *extra,
                                 struct plim_vllm_flags *flags, struct plim_vllm_start *start,
                                 struct plim_err *err)
{
    const char *words[16];
    size_t n = 0;
    void *all;
    for (const char *w = extra; w != NULL && *w != '\0' && n < PLIM_COUNT_OF(words);) {
        size_t length = strcspn(w, " ");
        words[n++] = plim_arena_sayf(arena, "%.*s", (int)length, w);
        w += length + (w[length] == ' ');
    }
    PLIM_TRY(plim_arena_array(arena, request->n_words + n, sizeof *words, &all, err));
    const char **joined = all;
    for (size_t i = 0; i < request->n_words; i++) {
        joined[i] = request->words[i];
    }
    for (size_t i = 0; i < n; i++) {
        joined[request->n_words + i] = words[i];
    }
    PLIM_TRY(plim_vllm_flags_read(arena, joined, request->n_words + n, flags, err));
    start->outside = request->calibration != NULL ? request->calibration->outside_bytes : 0;
    const struct plim_geometry *g;
    PLIM_TRY(plim__vllm_converted(arena, request->geometry, flags, &g, err));
    return plim_vllm_play(arena, g, card, flags, request->settings, start, err);
}

enum plim_status plim_plan_make(struct plim_arena *arena, const struct plim_plan_request *request,
                                struct plim_plan *out, struct plim_err *err)
{
    struct plim_plan p = {.request = request};
    if (request->engine != PLIM_ENGINE_VLLM) {
        return plim__budget_plan(arena, request, out, err);
    }
    PLIM_TRY(plim__plan_play(arena, request, &request->card, NULL, &p.flags, &p.start, err));
    (void)plim__vllm_family_of(request->geometry, &p.known_family);
    plim__plan_lines(&p);
    plim__plan_judge(arena, &p);
    PLIM_TRY(plim__plan_rules(arena, &p, err));
    PLIM_TRY(plim__plan_changes(arena, &p, err));
    PLIM_TRY(plim__plan_reverse(arena, &p, err));
    plim__plan_words(arena, &p);
    PLIM_TRY(plim_arena_status(arena, err));
    *out = p;
    return PLIM_OK;
}
