/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request costs: units of the pool for its tokens, now, expected and at most, and workspace.
 *
 * The forecast of a request of age a (output tokens) at a horizon x is p u: it is alive with probability
 * p = S(a + x) / S(a), S being what its class has taught, and then holds u units for prompt + a + x tokens.
 * Its variance is p (1 - p) u^2. That is chance, which evens out over many requests. What is not known of S itself does not:
 * how far p may be off is the same for all, so these doubts add up as they are. They follow from the number of answers that came to
 * a and of which is known whether they came to a + x: none before anything was learned, and then each request counts with
 * all that its max_tokens let it become.
 * A request whose most tokens lie between two horizons counts at the earlier one with all that it will have, because
 * others that began with it may end with it, and at the later one with the part of the way that it goes. Samples share whole
 * blocks of their prompt, those of a batch nothing.
 * Source: blocks as vllm 0.33.0 v1/core/kv_cache_utils.py and v1/kv_cache_interface.py count them.
 */

#include "ledger.h"

#include <math.h>

static uint64_t ceil_div(uint64_t n, uint64_t unit)
{
    return n / unit + (n % unit != 0);
}

static uint64_t clamp_units(uint64_t units)
{
    return units < PLIMSOLL_GATE_UNITS_MAX ? units : PLIMSOLL_GATE_UNITS_MAX;
}

/* Tokens that a group keeps at most. */
static uint64_t cap_of(const struct plimsoll_gate_config *c,
                       const struct plimsoll_gate_group *group, bool prompt)
{
    if (group->cap_tokens == 0 || (prompt && c->step_tokens == 0)) {
        return UINT64_MAX;
    }
    return (uint64_t)group->cap_tokens + (prompt ? c->step_tokens : 0);
}

uint64_t gate__units(const struct plimsoll_gate_config *c, uint64_t tokens, bool prompt)
{
    uint64_t units = c->state_units;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        const struct plimsoll_gate_group *group = &c->groups[i];
        uint64_t cap = cap_of(c, group, prompt);
        bool capped = tokens > cap;
        uint64_t kept = capped ? cap : tokens;
        uint64_t blocks = ceil_div(kept, group->block_tokens) + (capped ? group->extra_blocks : 0);
        units += blocks * group->units_per_block;
    }
    return clamp_units(units);
}

uint64_t gate__shared_units(const struct plimsoll_gate_config *c, uint64_t tokens)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        const struct plimsoll_gate_group *group = &c->groups[i];
        if (group->cap_tokens == 0) { /* a window moves off its prompt */
            units += tokens / group->block_tokens * group->units_per_block;
        }
    }
    return clamp_units(units);
}

/* A request that is being priced. */
struct pricing {
    const struct plimsoll_gate_config *c;
    const struct gate_slot *s;
    uint64_t common; /* units that its samples have together */
    uint64_t given;  /* units of them that others hold */
    uint32_t most;   /* output tokens */
};

/* Units of one sample alone, and of what all of them share, with so many output tokens. */
static void units_with(const struct pricing *p, uint64_t output, double *each, double *together)
{
    bool prompt = output == 0 && p->s->first_ns == 0;
    uint64_t whole = gate__units(p->c, p->s->prompt + output + p->c->lookahead_tokens, prompt);
    *each = (double)gate__less(whole, p->common);
    *together = (double)gate__less(p->common, p->given);
}

static double to_units(const struct pricing *p, uint64_t output)
{
    double each;
    double together;
    units_with(p, output, &each, &together);
    return together + p->s->samples * each;
}

/* How far a share `p` may be off that `seen` answers taught: up to where p would lie a margin of deviations below the truth
 * (the upper end of Wilson's interval, 1927), for each of these deviations. After no answer all may be alive. */
static double doubt_of(double p, double seen, double margin)
{
    double room = seen + margin * margin;
    double spread = sqrt(seen * p * (1 - p) + margin * margin / 4);
    return room > 0 ? (margin * (0.5 - p) + spread) / room : 0;
}

/* At one horizon: `p` is how likely a sample is alive, `off` how far that may be off. */
static void put(const struct pricing *pr, struct gate_slot *s, unsigned h, uint64_t output,
                double p, double off)
{
    double each;
    double together;
    units_with(pr, output, &each, &together);
    double n = s->samples;
    double any = n * p < 1 ? n * p : 1;
    double most = (double)PLIMSOLL_GATE_UNITS_MAX;
    double mean = gate__clamp(any * together + n * p * each, 0, most);
    double alone = together + each;
    double var = n > 1 ? n * p * (1 - p) * each * each : p * (1 - p) * alone * alone;
    s->forecast.mean[h] = (uint64_t)(mean * GATE_FIXED + 0.999);
    s->forecast.var[h] = (uint64_t)gate__clamp(var, 0, most * most);
    s->doubt[h] = (uint32_t)(gate__clamp(off * (together + n * each), 0, most) * GATE_FIXED);
    if (s->forecast.mean[h] / GATE_FIXED > s->expected) {
        s->expected = (uint32_t)(s->forecast.mean[h] / GATE_FIXED);
    }
}

uint32_t gate__to_compute(const struct gate_slot *s)
{
    uint64_t tokens = (uint64_t)(s->prompt - s->cached) * (s->apart ? s->samples : 1);
    return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}

void gate__price(const struct gate *g, struct gate_slot *s)
{
    const struct plimsoll_gate_config *c = &g->config;
    const struct gate_lengths *l = &g->head->lengths[s->class_id];
    struct pricing p = {.c = c, .s = s, .most = s->most};
    if (!s->apart && (s->samples > 1 || s->shared > 0)) {
        p.common = gate__shared_units(c, s->prompt);
        p.given = s->shared > 0 ? gate__shared_units(c, s->shared) : 0;
    }
    if (s->known > 0) { /* it lives for certain until then */
        p.most = s->known > s->generated ? s->known : s->generated + 1;
    }
    p.most = p.most > s->generated ? p.most : s->generated + 1; /* it went on after all */
    double now_units = to_units(&p, s->generated); /* more than at the end where windows let go */
    double end_units = to_units(&p, p.most);
    double peak = now_units > end_units ? now_units : end_units;
    s->peak = (uint32_t)gate__clamp(peak, 0, (double)PLIMSOLL_GATE_UNITS_MAX);
    uint64_t soon = (uint64_t)s->generated + GATE_SLOPE;
    double soon_units = to_units(&p, soon < p.most ? soon : p.most);
    s->slope = soon_units > now_units ? (uint32_t)((soon_units - now_units) * GATE_FIXED) : 0;
    s->expected = 0;
    double now = s->known > 0 ? 1 : gate__lengths_alive(l, s->generated);
    uint64_t before = s->generated;
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        uint64_t at = (uint64_t)s->generated + gate_horizon[h];
        double alive = 1;
        double off = 0;
        if (at > p.most) { /* the part of the way that it goes at most */
            alive = before < p.most ? (double)(p.most - before) / (double)(at - before) : 0;
            before = at;
            at = p.most;
        } else {
            before = at;
        }
        if (alive > 0 && h > 0 && s->known == 0) {
            double goes_on = now > 1e-6 ? gate__clamp(gate__lengths_alive(l, at) / now, 0, 1) : 1;
            double seen = gate__lengths_seen(l, s->generated, at);
            off = alive * doubt_of(goes_on, seen, c->margin);
            alive *= goes_on;
        }
        bool ends = h > 0 && h + 1 < GATE_HORIZONS && s->generated + gate_horizon[h + 1] > p.most;
        put(&p, s, h, ends ? p.most : at, alive, off); /* all that it will have before the next */
    }
}

/* ---- workspace */

/* Tokens that decide it: of the prompt in one step, and those of pictures and log-probabilities. */
static uint64_t step_tokens(const struct gate *g, const struct gate_slot *s)
{
    uint64_t rest = gate__less(s->prompt, s->cached);
    uint32_t step = g->config.step_tokens;
    return step > 0 && rest > step ? step : rest;
}

static uint64_t step_rows(const struct gate *g, const struct gate_slot *s)
{
    uint32_t step = g->config.step_tokens;
    return step > 0 && s->logprob_rows > step ? step : s->logprob_rows;
}

void gate__work_cell(const struct gate *g, const struct gate_slot *s, unsigned *kind,
                     unsigned *size)
{
    uint64_t tokens = step_tokens(g, s);
    tokens = s->image_tokens > tokens ? s->image_tokens : tokens;
    tokens = step_rows(g, s) > tokens ? step_rows(g, s) : tokens;
    unsigned log = tokens > 1 ? 64u - (unsigned)__builtin_clzll(tokens - 1) : 0;
    *kind = (s->image_tokens > 0 ? 1u : 0u) | (s->logprob_rows > 0 ? 2u : 0u);
    *size = log < GATE_SIZES ? log : GATE_SIZES - 1;
}

uint64_t gate__work(const struct gate *g, const struct gate_slot *s)
{
    const struct plimsoll_gate_config *c = &g->config;
    unsigned kind;
    unsigned size;
    gate__work_cell(g, s, &kind, &size);
    double formula = (double)c->work_token_bytes * (double)step_tokens(g, s) +
                     (double)c->work_image_bytes * s->image_tokens +
                     (double)c->work_row_bytes * (double)step_rows(g, s);
    double learned = gate__clamp(g->head->health.work[kind][size], 0, 1e18);
    bool sure = g->head->health.work_seen[kind][size] >= 8;
    double bytes = sure || learned > formula ? learned : formula;
    return (uint64_t)gate__clamp(bytes, 0, 1e18);
}
