/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the server is, learned from what the ledger sees anyway.
 *
 *   first token   a straight line: seconds over the prompt tokens ahead of a request when it was admitted,
 *                 its own included. Its slope is what a prompt token costs, its base what nobody can avoid
 *   each token    what requests grew by between two reports over the time between them, lately. And for each
 *                 request the time between its first token and its last over their number: when one in ten is
 *                 slower than the target, the limit of requests at once falls by a tenth; when it is used and
 *                 none is, it rises by one: as TCP finds its rate (additive increase, multiplicative decrease),
 *                 with the time for a token in the place of a lost packet, because the whole time of a
 *                 request depends on its length before all
 *   drain         units returned a second, over some ten seconds: how soon room for a refused one will be
 */

#include "ledger.h"

#include <math.h>

#define LINE_KEEPS      (1 - 1.0 / 256)
#define LINE_NEEDS      8
#define SLOW_ALLOWED    0.1
#define DRAIN_S         10.0
#define RETRY_MIN_S     1.0
#define RETRY_MAX_S     60.0
#define GUESS_TOKEN_S   0.05  /* before anything was learned */
#define GROWN_KEEPS     400.0 /* tokens after which a report counts 1/e */
#define RETRY_UNKNOWN_S 3.0   /* before the first request has ended */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* ---- first token */

static void line_learn(struct gate_line *l, double x, double y)
{
    double *sums = &l->n;
    for (unsigned i = 0; i < 6; i++) {
        sums[i] = gate__clamp(sums[i], 0, 1e30) * LINE_KEEPS;
    }
    l->n += 1;
    l->x += x;
    l->y += y;
    l->xx += x * x;
    l->xy += x * y;
    l->yy += y * y;
}

struct fit {
    double slope, base;
    double spread; /* deviation of y from the line */
};

/* False: too few observations, or all with the same x. */
static bool line_fit(const struct gate_line *l, struct fit *f)
{
    double spread = l->n * l->xx - l->x * l->x;
    if (!(l->n >= LINE_NEEDS) || !(l->x > 0) || !(spread > 0.05 * l->x * l->x)) {
        return false;
    }
    double s = gate__clamp((l->n * l->xy - l->x * l->y) / spread, 0, 1);
    f->slope = s;
    f->base = gate__clamp((l->y - s * l->x) / l->n, 0, 3600);
    double rest = l->yy - 2 * s * l->xy - 2 * f->base * l->y + s * s * l->xx +
                  2 * s * f->base * l->x + l->n * f->base * f->base;
    f->spread = sqrt(gate__clamp(rest / l->n, 0, 1e8));
    return true;
}

/* What prompts cost, as far as it is known: all 0 when it is not. */
static struct fit first_fit(const struct gate *g)
{
    const struct gate_line *l = &g->head->pace.first;
    struct fit f = {0};
    double rate = g->config.prefill_tokens_s;
    if (line_fit(l, &f)) {
        return f;
    }
    if (rate > 0) {
        f.slope = 1 / rate;
    } else if (l->n >= LINE_NEEDS && l->x > 0) {
        f.slope = gate__clamp(l->y / l->x, 0, 1);
    }
    return f;
}

uint64_t gate__ahead(const struct gate *g)
{
    const struct gate_head *head = g->head;
    double cost = first_fit(g).slope;
    double queued = (double)head->sums.queued;
    double since = seconds(head->pace.last_first_ns, head->now_ns);
    double done = cost > 0 ? since / cost : 0;
    /* What was computed since the last first token is at most a part of what waits. */
    return (uint64_t)gate__clamp(queued - gate__clamp(done, 0, queued / 2), 0, 1e15);
}

double gate__first_s(const struct gate *g, double tokens, double *spread)
{
    struct fit f = first_fit(g);
    if (spread) {
        *spread = f.spread;
    }
    return f.slope > 0 || f.base > 0 ? f.base + f.slope * tokens : -1;
}

void gate__pace_first(struct gate *g, const struct gate_slot *s)
{
    struct gate_pace *p = &g->head->pace;
    line_learn(&p->first, (double)s->backlog, seconds(s->admitted_ns, g->head->now_ns));
    p->last_first_ns = g->head->now_ns;
}

/* ---- each token */

void gate__pace_grew(struct gate *g, const struct gate_slot *s, uint32_t generated)
{
    struct gate_pace *p = &g->head->pace;
    if (s->first_ns == 0 || s->guessed || generated <= s->generated) {
        return;
    }
    double tokens = generated - s->generated;
    double keep = GROWN_KEEPS / (GROWN_KEEPS + tokens);
    p->grown = (gate__clamp(p->grown, 0, 1e9) + tokens) * keep;
    p->grown_s = (gate__clamp(p->grown_s, 0, 1e9) + seconds(s->told_ns, g->head->now_ns)) * keep;
}

double gate__token_s(const struct gate *g)
{
    const struct gate_pace *p = &g->head->pace;
    double whole = p->whole_s > 0 ? p->whole_s : GUESS_TOKEN_S;
    return gate__clamp(p->grown > 0 ? p->grown_s / p->grown : whole, 1e-6, 1e6);
}

static void limit_move(struct gate *g)
{
    struct gate_pace *p = &g->head->pace;
    double limit = gate__clamp(p->limit, 0, 1e9);
    double slow = p->seen > 0 ? (double)p->slow / p->seen : 0;
    if (slow > SLOW_ALLOWED) {
        double from = limit > 0 && limit < p->most_live ? limit : p->most_live;
        double to = from * (1 - (slow - SLOW_ALLOWED) / 2);
        p->limit = to > 1 ? to : 1;
        p->lowered_ns = g->head->now_ns;
    } else if (p->held_back > 0) {
        p->limit = limit + 1 + 0.05 * limit;
    }
    p->seen = 0;
    p->slow = 0;
    p->held_back = 0;
    p->most_live = g->head->sums.live;
}

static void pace_token(struct gate *g, const struct gate_slot *s, uint32_t generated)
{
    struct gate_pace *p = &g->head->pace;
    if (s->first_ns == 0 || s->guessed || generated < 2) {
        return;
    }
    if (g->config.token_ns == 0 || s->admitted_ns <= p->lowered_ns) {
        return; /* what ran under the old limit says nothing about the new one */
    }
    if (g->head->sums.live > p->most_live) {
        p->most_live = g->head->sums.live;
    }
    double each = seconds(s->first_ns, g->head->now_ns) / (generated - 1);
    p->seen++;
    p->slow += each * 1e9 > (double)g->config.token_ns;
    if (p->seen >= 10 && p->seen * 4 >= g->head->sums.live) { /* a quarter of them changed */
        limit_move(g);
    }
}

/* ---- drain */

/* Only time in which something was there to end counts: an idle server is not a slow one. */
static void drain_decay(struct gate *g)
{
    struct gate_pace *p = &g->head->pace;
    double dt = seconds(p->drain_ns, g->head->now_ns);
    if (dt < 0.1) {
        return;
    }
    if (g->head->sums.live == 0) {
        p->owed = 0;
        p->drain_ns = g->head->now_ns;
        return;
    }
    double keep = 1 / (1 + dt / DRAIN_S);
    p->drained = gate__clamp(p->drained, 0, 1e18) * keep;
    p->ended = gate__clamp(p->ended, 0, 1e18) * keep;
    p->covered = (gate__clamp(p->covered, 0, 1e9) + dt) * keep;
    p->owed = gate__clamp(p->owed - dt * gate__drain_rate(g), 0, 1e12);
    p->drain_ns = g->head->now_ns;
}

void gate__pace_drained(struct gate *g, double units)
{
    drain_decay(g);
    g->head->pace.drained += units;
    g->head->pace.ended += 1;
}

/* A decaying sum for each second that it is of; the first second counts whole. */
static double rate_of(const struct gate_pace *p, double sum)
{
    return gate__clamp(sum, 0, 1e18) / gate__clamp(p->covered, 1, DRAIN_S);
}

double gate__drain_rate(const struct gate *g)
{
    return rate_of(&g->head->pace, g->head->pace.drained);
}

void gate__pace_ended(struct gate *g, const struct gate_slot *s, uint32_t generated)
{
    struct gate_pace *p = &g->head->pace;
    if (generated > 0 && (s->whole || s->guessed)) {
        double each = seconds(s->admitted_ns, g->head->now_ns) / generated;
        p->whole_s = p->whole_s > 0 ? gate__clamp(p->whole_s, 0, 1e6) * 0.9 + each * 0.1 : each;
    }
    pace_token(g, s, generated);
    gate__pace_drained(g, (double)s->forecast.mean[0] / GATE_FIXED);
}

uint32_t gate__retry_ms(struct gate *g, double units, double s)
{
    struct gate_pace *p = &g->head->pace;
    drain_decay(g);
    double wait = s;
    if (units > 0) {
        double rate = gate__drain_rate(g);
        double behind = rate > 0 ? (units + p->owed) / rate : RETRY_UNKNOWN_S;
        wait = behind > wait ? behind : wait;
        p->owed = gate__clamp(p->owed + units, 0, 1e12);
    } else if (s <= 0) { /* until one of them ends */
        double rate = rate_of(p, p->ended);
        wait = rate > 0 ? 1 / rate : RETRY_UNKNOWN_S;
    }
    g->head->random = g->head->random * 1664525u + 1013904223u; /* Numerical Recipes */
    double jitter = 0.8 + 0.4 * ((double)(g->head->random >> 8) / (double)(1u << 24));
    return (uint32_t)(gate__clamp(wait * jitter, RETRY_MIN_S, RETRY_MAX_S) * 1000);
}
