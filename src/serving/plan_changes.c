/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What would help, cheapest first, and the questions asked the other way round. Every candidate is planned with
 * the flags appended, as the engine takes the last one; the ones that fit are kept.
 */

#include "serving/plan_int.h"
#include "serving/vllm_run.h"

#include <inttypes.h>
#include <math.h>

/* A number that is appended to the flags of a candidate. */
enum fill {
    AS_IS,
    SHARE,
    LENGTH,
    CARDS
};

/* In the order of cost. */
static const struct candidate {
    const char *flags;
    enum fill fill;
    const char *cost;
} candidates[] = {
    {"--gpu-memory-utilization 0.95", AS_IS,
     "less memory in reserve for what the engine cannot foresee"},
    {"--gpu-memory-utilization ", SHARE, "the engine leaves the neighbours their memory"},
    {"--max-num-seqs 256", AS_IS, "at most 256 requests run at once"},
    {"--max-num-seqs 64", AS_IS, "at most 64 requests run at once"},
    {"--max-num-batched-tokens 4096", AS_IS, "long prompts are prefilled in smaller steps"},
    {"--max-num-seqs 64 --max-num-batched-tokens 2048", AS_IS,
     "at most 64 requests at once, prompts in steps of 2048 tokens"},
    {"--max-model-len ", LENGTH, "longer requests are refused"},
    {"--kv-cache-dtype fp8", AS_IS, "keys and values in 8 bits: a small loss of accuracy"},
    {"--gpu-memory-utilization 0.95 --max-num-seqs 64 --max-num-batched-tokens 2048", AS_IS,
     "less in reserve, 64 requests at once, prompts in steps of 2048 tokens"},
    {"--kv-cache-dtype fp8 --max-num-seqs 64 --max-num-batched-tokens 2048", AS_IS,
     "8-bit keys and values, 64 requests at once, prompts in steps of 2048 tokens"},
    {"--enforce-eager", AS_IS, "no CUDA graphs: slower decoding of small batches"},
    {"--enforce-eager --gpu-memory-utilization 0.95 --max-num-seqs 16 --max-num-batched-tokens "
     "2048 --max-model-len ",
     LENGTH, "everything at once, and longer requests are refused"},
    {"--tensor-parallel-size ", CARDS, "more cards of the same kind"},
};

/* The longest request that would fit, in round numbers; 0: none is shorter than asked. */
static uint64_t shorter(const struct plim_vllm_start *s)
{
    uint64_t length = s->fitting_len >= 256 ? s->fitting_len / 256 * 256 : s->fitting_len;
    return length == 0 || length >= s->settings.max_model_len ? s->settings.max_model_len / 4
                                                              : length;
}

/* The flags of a candidate with its number filled in; NULL when it makes no sense here. */
static const char *filled(struct plim_arena *arena, const struct plim_plan *p,
                          const struct candidate *c, unsigned tp)
{
    const struct plim_vllm_start *s = &p->start;
    double share = 0;
    switch (c->fill) {
    case SHARE:
        share = floor((double)s->baseline_free / (double)p->request->card.total * 100) / 100 - 0.01;
        return s->refusal == PLIM_VLLM_NO_FREE && share > 0.01
                   ? plim_arena_sayf(arena, "%s%.2f", c->flags, share)
                   : NULL;
    case LENGTH:
        return shorter(s) > 0 ? plim_arena_sayf(arena, "%s%" PRIu64, c->flags, shorter(s)) : NULL;
    case CARDS:
        return plim_arena_sayf(arena, "%s%u", c->flags, tp);
    case AS_IS:
        break;
    }
    return strstr(c->flags, "fp8") != NULL && p->request->card.cc < 80 ? NULL : c->flags;
}

/* A cache that was ordered, and exceeds the card. */
static bool overdrawn(const struct plim_plan *p, const struct plim_card *card,
                      const struct plim_vllm_start *s)
{
    struct plim_plan_request request = *p->request;
    struct plim_plan tried = {.request = &request, .start = *s, .known_family = p->known_family};
    request.card = *card;
    plim__plan_lines(&tried);
    return plim__plan_overdrawn(&tried);
}

/* Does it serve what was asked for? */
static bool serves(const struct plim_plan *p, const struct plim_card *card,
                   const struct plim_vllm_start *s)
{
    const struct plim_plan_traffic *t = &p->request->traffic;
    if (s->refusal != PLIM_VLLM_STARTS || plim__plan_setting_refused(&s->settings) ||
        overdrawn(p, card, s)) {
        return false;
    }
    double wanted = plim__plan_wanted(t);
    return wanted == 0 || (plim__plan_room(s, t->prompt + t->output) >= wanted &&
                           (double)s->settings.seqs >= wanted);
}

static enum plim_status try_flags(struct plim_arena *arena, struct plim_plan *p, const char *flags,
                                  const char *cost, struct plim_err *err)
{
    struct plim_vllm_flags read;
    struct plim_vllm_start start;
    enum plim_status st =
        plim__plan_play(arena, p->request, &p->request->card, flags, &read, &start, NULL);
    if (st == PLIM_E_NOMEM) {
        return plim__fail(err, st, "no memory to try %s", flags);
    }
    bool better = st == PLIM_OK && serves(p, &p->request->card, &start) &&
                  (!p->fits || start.available > p->start.available ||
                   start.concurrency > p->start.concurrency);
    if (better) {
        p->changes[p->n_changes++] = (struct plim_plan_change){
            .flags = flags,
            .cost = cost,
            .fits = true,
            .available_kv_bytes = start.available,
            .concurrency = start.concurrency,
            .max_model_len = start.max_model_len,
        };
    }
    return PLIM_OK;
}

enum plim_status plim__plan_changes(struct plim_arena *arena, struct plim_plan *p,
                                    struct plim_err *err)
{
    p->n_changes = 0;
    if (p->fits && !p->tight) {
        return PLIM_OK;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(candidates); i++) {
        unsigned tp = p->start.settings.at.tp;
        bool cards = candidates[i].fill == CARDS;
        do {
            tp *= 2;
            uint32_t before = p->n_changes;
            const char *flags = filled(arena, p, &candidates[i], tp);
            if (p->n_changes < PLIM_COUNT_OF(p->changes) && flags != NULL) {
                PLIM_TRY(try_flags(arena, p, flags, candidates[i].cost, err));
            }
            if (p->n_changes > before) {
                break;
            }
        } while (cards && tp < 8);
    }
    return plim_arena_status(arena, err);
}

/* ---- the other way round --------------------------------------------------------------------------------- */

static enum plim_status ask_context(struct plim_arena *arena, struct plim_plan *p,
                                    struct plim_err *err)
{
    struct plim_vllm_flags flags;
    struct plim_vllm_start s;
    PLIM_TRY(plim__plan_play(arena, p->request, &p->request->card, "--max-model-len -1", &flags, &s,
                             err));
    p->largest_context = (struct plim_plan_answer){
        .asked = true, .known = s.refusal == PLIM_VLLM_STARTS, .value = s.max_model_len};
    return PLIM_OK;
}

static void ask_batch(struct plim_plan *p)
{
    const struct plim_plan_traffic *t = &p->request->traffic;
    uint64_t tokens = t->prompt + t->output > 0 ? t->prompt + t->output : p->start.max_model_len;
    double room = plim__plan_room(&p->start, tokens);
    p->largest_batch = (struct plim_plan_answer){
        .asked = true,
        .known = p->start.refusal == PLIM_VLLM_STARTS,
        .value = plim_min_u64((uint64_t)room, p->start.settings.seqs),
    };
}

static enum plim_status ask_gpu(struct plim_arena *arena, struct plim_plan *p, struct plim_err *err)
{
    struct plim_card card;
    p->smallest_gpu.asked = true;
    for (size_t i = 0; plim_card_at(i, &card); i++) {
        struct plim_vllm_flags flags;
        struct plim_vllm_start s;
        PLIM_TRY(plim__plan_play(arena, p->request, &card, NULL, &flags, &s, err));
        if (serves(p, &card, &s)) {
            p->smallest_gpu.known = true;
            p->smallest_gpu.text = card.key;
            p->smallest_gpu.value = card.total;
            return PLIM_OK;
        }
    }
    return PLIM_OK;
}

static void ask_replicas(struct plim_plan *p)
{
    const struct plim_plan_traffic *t = &p->request->traffic;
    double wanted = plim__plan_wanted(t);
    double room = plim__plan_room(&p->start, t->prompt + t->output);
    double most = room < (double)p->start.settings.seqs ? room : (double)p->start.settings.seqs;
    p->replicas.asked = true;
    p->replicas.known = wanted > 0 && most >= 1;
    if (p->replicas.known) {
        p->replicas.value = plim_u64_of(ceil(wanted / most), INT64_MAX);
    }
}

enum plim_status plim__plan_reverse(struct plim_arena *arena, struct plim_plan *p,
                                    struct plim_err *err)
{
    const struct plim_plan_request *r = p->request;
    if (r->want_context) {
        PLIM_TRY(ask_context(arena, p, err));
    }
    if (r->want_batch) {
        ask_batch(p);
    }
    if (r->want_gpu) {
        PLIM_TRY(ask_gpu(arena, p, err));
    }
    if (r->want_replicas) {
        ask_replicas(p);
    }
    return PLIM_OK;
}
