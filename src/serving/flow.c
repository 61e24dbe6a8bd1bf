/* SPDX-License-Identifier: Apache-2.0 */
/* See flow.h. Sampling: Marsaglia and Tsang (2000) for the gamma distribution, inversion for others. */

#include "serving/flow.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

/* ---- random numbers ---------------------------------------------------------------------------------- */

/* SplitMix64 (public domain, Sebastiano Vigna): any seed is good, and streams are one addition apart. */
static uint64_t next_bits(uint64_t *state)
{
    return plim_hash_u64(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* In (0, 1). */
static double uniform(uint64_t *state)
{
    return ((double)(next_bits(state) >> 11) + 0.5) * 0x1p-53;
}

static double exponential(uint64_t *state)
{
    return -log(uniform(state));
}

static double normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* Gamma with mean `shape` and scale 1. */
static double gamma_draw(uint64_t *state, double shape)
{
    if (shape < 1) {
        return gamma_draw(state, shape + 1) * pow(uniform(state), 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(state);
        double v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(uniform(state)) < 0.5 * x * x + d - d * v + d * log(v)) {
            return d * v;
        }
    }
}

/* The shape of a Weibull distribution with that coefficient of variation, by bisection. */
static double weibull_shape(double cv)
{
    double lo = 0.1, hi = 50;
    for (int i = 0; i < 100; i++) {
        double k = sqrt(lo * hi);
        double mean = tgamma(1 + 1 / k);
        double ratio = tgamma(1 + 2 / k) / (mean * mean) - 1;
        *(ratio > cv * cv ? &lo : &hi) = k;
    }
    return sqrt(lo * hi);
}

/* ---- one source -------------------------------------------------------------------------------------- */

struct lane {
    const struct plim_flow_source *source;
    uint64_t random;
    double clock_s;  /* of the last made arrival */
    bool bursting;   /* MMPP */
    double change_s; /* MMPP: when the state ends */
    double end_s;    /* nobody asks for arrivals behind it */
    double shape;    /* WEIBULL */
    uint64_t round;
    size_t start;      /* row at which the round began */
    size_t row;        /* of the round, from 0 */
    uint64_t round_ns; /* when the round began */
    struct plim_arrival next;
    size_t next_row; /* of the trace, for its hashes */
    bool have;
};

struct plim_flow {
    struct plim_flow_options options;
    struct lane *lanes; /* owned, [n_sources] */
    size_t last;        /* lane of the arrival given last */
    uint64_t given;     /* arrivals that passed the other conditions */
    uint64_t last_salt;
    size_t last_row;
};

static double mmpp_rate(const struct plim_process *p, bool bursting)
{
    double share = p->burst_s / (p->burst_s + p->quiet_s);
    double high = p->rate * p->burst;
    return bursting ? high : fmax(0, (p->rate - share * high) / (1 - share));
}

/* On to the next arrival of a two-state process, or to never; states end by themselves in between. */
static void mmpp_advance(struct lane *l)
{
    const struct plim_process *p = &l->source->process;
    while (l->clock_s <= l->end_s) {
        double rate = mmpp_rate(p, l->bursting);
        double gap = rate > 0 ? exponential(&l->random) / rate : INFINITY;
        if (l->clock_s + gap <= l->change_s) {
            l->clock_s += gap;
            return;
        }
        l->clock_s = l->change_s;
        l->bursting = !l->bursting;
        l->change_s += exponential(&l->random) * (l->bursting ? p->burst_s : p->quiet_s);
    }
    l->clock_s = INFINITY;
}

static void advance(struct lane *l)
{
    const struct plim_process *p = &l->source->process;
    double shape = 1 / (p->cv * p->cv);
    switch (p->kind) {
    case PLIM_PROCESS_GAMMA:
        l->clock_s += gamma_draw(&l->random, shape) / shape / p->rate;
        break;
    case PLIM_PROCESS_WEIBULL:
        l->clock_s +=
            pow(exponential(&l->random), 1 / l->shape) / p->rate / tgamma(1 + 1 / l->shape);
        break;
    case PLIM_PROCESS_MMPP:
        mmpp_advance(l);
        break;
    default:
        l->clock_s += exponential(&l->random) / p->rate;
        break;
    }
}

static uint32_t draw(const struct plim_table *t, uint64_t *random)
{
    double u = uniform(random);
    uint32_t i = 1;
    while (i + 1 < t->n && u > t->share[i]) {
        i++;
    }
    double part = (u - t->share[i - 1]) / (t->share[i] - t->share[i - 1]);
    double v = exp(log(t->value[i - 1]) + part * (log(t->value[i]) - log(t->value[i - 1])));
    return v < 1 ? 1 : (uint32_t)fmin(floor(v + 0.5), 16777216.0);
}

/* A made arrival: lengths from the tables, or those of any row of the trace. */
static void make(struct lane *l)
{
    const struct plim_flow_source *s = l->source;
    advance(l);
    l->next = (struct plim_arrival){.session = PLIM_NO_ID, .prompt = 1, .output = 1};
    if (s->traffic) {
        l->next_row = next_bits(&l->random) % s->traffic->arrivals.n;
        l->next = s->traffic->arrivals.items[l->next_row];
        l->next.session = PLIM_NO_ID;
        l->next.n_hashes = 0;
    } else {
        l->next.prompt = draw(&s->prompt, &l->random);
        l->next.output = draw(&s->output, &l->random);
        if (s->side.n > 0) {
            l->next.images = 1;
            l->next.width = (uint16_t)draw(&s->side, &l->random);
            l->next.height = (uint16_t)draw(&s->side, &l->random);
        }
    }
    l->next.at_ns = l->clock_s < 1e9 ? (uint64_t)(l->clock_s * 1e9) : UINT64_MAX;
}

/* The mean gap: what lies between the last arrival of a round and the first of the next. */
static uint64_t seam(const struct plim_traffic *t)
{
    size_t n = t->arrivals.n;
    return n > 1 ? plim_max_u64(plim_traffic_span(t) / (n - 1), 1) : UINT64_C(1000000000);
}

static uint64_t round_of(const struct plim_traffic *t)
{
    return plim_add_sat(plim_traffic_span(t), seam(t));
}

/* The next recorded arrival; rounds begin at `start` and wrap around. */
static void repeat(struct lane *l, uint64_t seed)
{
    const struct plim_traffic *t = l->source->traffic;
    size_t n = t->arrivals.n;
    if (l->row == n) {
        l->round_ns = plim_add_sat(l->round_ns, round_of(t));
        l->round++;
        l->row = 0;
    }
    if (l->row == 0 && (seed != 0 || l->round > 0)) {
        l->start = next_bits(&l->random) % n;
    }
    size_t at = (l->start + l->row) % n;
    uint64_t offset = t->arrivals.items[at].at_ns - t->arrivals.items[l->start].at_ns;
    if (at < l->start) {
        offset += round_of(t); /* what is below 0 wraps around, and back */
    }
    l->next = t->arrivals.items[at];
    l->next.at_ns = plim_add_sat(l->round_ns, offset);
    if (l->next.session != PLIM_NO_ID) {
        l->next.session += (uint32_t)(l->round * t->sessions); /* may wrap: only equality counts */
    }
    l->next_row = at;
    l->row++;
}

static bool recorded_times(const struct plim_flow_source *s)
{
    return s->traffic && s->traffic->timed && !s->made_times;
}

static void fill(struct plim_flow *f, struct lane *l)
{
    double scale = f->options.rate_scale;
    if (recorded_times(l->source)) {
        repeat(l, f->options.seed);
    } else {
        make(l);
    }
    double at = (double)l->next.at_ns / scale;
    if (scale != 1 && l->next.at_ns != UINT64_MAX) { /* which stands for never */
        l->next.at_ns = plim_u64_of(at, UINT64_MAX);
    }
    l->have = true;
}

static uint32_t stretched(uint32_t tokens, double scale)
{
    double v = floor((double)tokens * scale + 0.5);
    return tokens == 0 ? 0 : v < 1 ? 1 : (uint32_t)fmin(v, 16777216.0);
}

/* Length scale, and the tail's long ones. */
static void shape(struct plim_flow *f, struct lane *l, struct plim_arrival *a)
{
    const struct plim_tail *tail = &f->options.tail;
    if (f->options.length_scale != 1) {
        a->prompt = stretched(a->prompt, f->options.length_scale);
        a->output = stretched(a->output, f->options.length_scale);
        a->n_hashes = 0; /* their blocks no longer fit the prompt */
    }
    if (tail->share > 0 && uniform(&l->random) < tail->share) {
        a->prompt = tail->prompt > 0 ? tail->prompt : a->prompt;
        a->output = tail->output > 0 ? tail->output : a->output;
        a->n_hashes = 0;
        a->session = PLIM_NO_ID;
    }
}

/* ---- the flow ---------------------------------------------------------------------------------------- */

static enum plim_status check(const struct plim_flow_options *o, struct plim_err *err)
{
    bool scales = o->rate_scale >= 0 && o->rate_scale <= 1e6 && o->length_scale >= 0 &&
                  o->length_scale <= 1e6;
    bool tail = o->tail.share >= 0 && o->tail.share <= 1;
    if (!scales || !tail || o->n_sources == 0) {
        return plim__fail(err, PLIM_E_USAGE,
                          "a scale below 0, a share outside 0 to 1, or no traffic");
    }
    for (size_t i = 0; i < o->n_sources; i++) {
        const struct plim_flow_source *s = &o->sources[i];
        if (!recorded_times(s)) {
            PLIM_TRY(plim_process_check(&s->process, err));
        }
        if (!s->traffic && (s->prompt.n < 2 || s->output.n < 2)) {
            return plim__fail(err, PLIM_E_USAGE, "made traffic needs lengths: like=PRESET");
        }
    }
    return PLIM_OK;
}

enum plim_status plim_flow_new(const struct plim_flow_options *options, struct plim_flow **out,
                               struct plim_err *err)
{
    PLIM_TRY(check(options, err));
    struct plim_flow *f = calloc(1, sizeof *f);
    struct lane *lanes = calloc(options->n_sources, sizeof *lanes);
    if (!f || !lanes) {
        free(f);
        free(lanes);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a flow");
    }
    f->options = *options;
    f->options.rate_scale = options->rate_scale > 0 ? options->rate_scale : 1;
    f->options.length_scale = options->length_scale > 0 ? options->length_scale : 1;
    f->lanes = lanes;
    for (size_t i = 0; i < options->n_sources; i++) {
        struct lane *l = &lanes[i];
        l->source = &options->sources[i];
        l->random = plim_hash_u64(options->seed * 2 + 1) + plim_hash_u64(i + 1);
        const struct plim_process *p = &l->source->process;
        l->shape = p->kind == PLIM_PROCESS_WEIBULL ? weibull_shape(p->cv) : 0;
        l->change_s = p->kind == PLIM_PROCESS_MMPP ? exponential(&l->random) * p->quiet_s : 0;
        l->end_s = (double)options->span_ns / 1e9 * f->options.rate_scale;
    }
    *out = f;
    return PLIM_OK;
}

void plim_flow_delete(struct plim_flow *flow)
{
    if (flow) {
        free(flow->lanes);
        free(flow);
    }
}

/* Whether this part of the traffic is asked for: a pool's share. */
static bool ours(struct plim_flow *f, const struct plim_arrival *a)
{
    const struct plim_flow_options *o = &f->options;
    return a->prompt >= o->prompt_from && (o->prompt_below == 0 || a->prompt < o->prompt_below) &&
           (o->every == 0 || f->given++ % o->every == o->phase);
}

static bool next_of_all(struct plim_flow *f, struct plim_arrival *out)
{
    size_t first = 0;
    for (size_t i = 0; i < f->options.n_sources; i++) {
        if (!f->lanes[i].have) {
            fill(f, &f->lanes[i]);
        }
        if (f->lanes[i].next.at_ns < f->lanes[first].next.at_ns) {
            first = i;
        }
    }
    struct lane *l = &f->lanes[first];
    if (l->next.at_ns >= f->options.span_ns) {
        return false;
    }
    *out = l->next;
    l->have = false;
    f->last = first;
    f->last_row = l->next_row;
    f->last_salt = plim_hash_u64((l->round << 8) + first + 1);
    shape(f, l, out);
    return true;
}

bool plim_flow_next(struct plim_flow *f, struct plim_arrival *out)
{
    struct plim_arrival a;
    bool more = next_of_all(f, &a);
    while (more && !ours(f, &a)) {
        more = next_of_all(f, &a);
    }
    if (more) {
        *out = a;
    }
    return more;
}

const uint64_t *plim_flow_hashes(const struct plim_flow *f, uint64_t *salt, uint32_t *block_tokens)
{
    const struct plim_traffic *t = f->lanes[f->last].source->traffic;
    if (!t || t->hash_block == 0) {
        return NULL;
    }
    *salt = f->last_salt;
    *block_tokens = t->hash_block;
    return t->hashes.items + t->arrivals.items[f->last_row].first_hash;
}

/* ---- facts ------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct lengths {
    PLIM_VEC(uint32_t) prompt;
    PLIM_VEC(uint32_t) output;
};

static uint32_t at_share(const uint32_t *sorted, size_t n, double share)
{
    return n > 0 ? sorted[(size_t)(share * (double)(n - 1) + 0.5)] : 0;
}

static void summarize(struct lengths *l, struct plim_flow_facts *out)
{
    size_t n = l->prompt.n;
    if (n > 0) { /* what is empty has no memory to sort */
        qsort(l->prompt.items, n, sizeof(uint32_t), by_size);
        qsort(l->output.items, n, sizeof(uint32_t), by_size);
    }
    out->prompt_p50 = at_share(l->prompt.items, n, 0.5);
    out->prompt_p99 = at_share(l->prompt.items, n, 0.99);
    out->prompt_max = at_share(l->prompt.items, n, 1);
    out->output_p50 = at_share(l->output.items, n, 0.5);
    out->output_p99 = at_share(l->output.items, n, 0.99);
    out->output_max = at_share(l->output.items, n, 1);
}

static enum plim_status measure(struct plim_flow *f, struct lengths *l, struct plim_flow_facts *out,
                                struct plim_err *err)
{
    struct plim_arrival a;
    double gaps = 0, squares = 0, prompt = 0, output = 0;
    uint64_t last = 0, first = 0, window = 0, in_window = 0, busiest = 0;
    while (plim_flow_next(f, &a)) {
        PLIM_TRY(plim_vec_push(&l->prompt, err, a.prompt));
        PLIM_TRY(plim_vec_push(&l->output, err, a.output));
        double gap = out->arrivals > 0 ? (double)(a.at_ns - last) / 1e9 : 0;
        first = out->arrivals > 0 ? first : a.at_ns;
        gaps += gap;
        squares += gap * gap;
        prompt += a.prompt;
        output += a.output;
        uint64_t now = (a.at_ns - first) / UINT64_C(10000000000);
        in_window = now == window ? in_window + 1 : 1;
        window = now;
        busiest = plim_max_u64(busiest, in_window);
        last = a.at_ns;
        out->arrivals++;
    }
    if (out->arrivals > 1 && gaps > 0) {
        double n = (double)(out->arrivals - 1), mean = gaps / n;
        out->rate = 1 / mean;
        out->cv = sqrt(fmax(squares / n - mean * mean, 0)) / mean;
        out->busiest_10s = (double)busiest / (10 * out->rate);
    }
    out->prompt_mean = out->arrivals > 0 ? prompt / (double)out->arrivals : 0;
    out->output_mean = out->arrivals > 0 ? output / (double)out->arrivals : 0;
    summarize(l, out);
    return PLIM_OK;
}

enum plim_status plim_flow_measure(const struct plim_flow_options *options,
                                   struct plim_flow_facts *out, struct plim_err *err)
{
    struct plim_flow *flow;
    struct lengths lengths = {0};
    struct plim_flow_facts facts = {0};
    PLIM_TRY(plim_flow_new(options, &flow, err));
    enum plim_status st = measure(flow, &lengths, &facts, err);
    plim_vec_fini(&lengths.prompt);
    plim_vec_fini(&lengths.output);
    plim_flow_delete(flow);
    if (st == PLIM_OK) {
        *out = facts;
    }
    return st;
}
