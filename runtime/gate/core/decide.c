/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a request may start. First what no waiting changes (draining, too long, too large), then the guards
 * in the order of the table, each of which may say "not now": the first that does gives the reason and what is
 * missing, units or seconds. An idle server takes whatever can fit at all.
 *
 * The policies are ways to count the pool; all are judged against the same line. `high` is the line while
 * things are taken, `low` from the first refusal on until something fits below it, so that the gate does not
 * open for each block that comes back.
 */

#include "ledger.h"

#include <math.h>

#define SAMPLES_MAX (1u << 16)

#define MINOR_LESS 0.1 /* of the pool, that priorities below 0 leave free */
#define CONTENDED  0.1 /* below `low`: from here on shares count */
#define ALONE_WAIT 0.1 /* of the target: others ahead of a prompt that takes longer than it alone */

/* ---- policies: demand in units; `doubts`: 1 with what is not known yet, 0 as if all was known */

/* Workspace that comes out of the pool. */
static double work_units(const struct gate *g, const struct gate_slot *more)
{
    if (!(g->config.flags & PLIMSOLL_GATE_WORK_IN_POOL)) {
        return 0;
    }
    double bytes = (double)g->head->sums.work + (more ? (double)more->work : 0);
    return bytes / (double)g->config.unit_bytes;
}

static double expected(const struct gate *g, const struct gate_slot *more, double doubts)
{
    const struct gate_forecast *f = &g->head->sums.forecast;
    double grown = gate__grown(g);
    double held = (double)f->mean[0] / GATE_FIXED;
    double sharing = gate__clamp(g->head->health.sharing, 0, 1);
    double margin = gate__clamp(g->head->health.margin, 0, 100);
    double worst = 0;
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        double mean = (double)f->mean[h] / GATE_FIXED;
        mean += mean < held ? grown * mean / held : grown; /* of those that are alive then */
        mean *= sharing;
        double var = (double)f->var[h] * sharing;
        double doubt = (double)g->head->sums.doubt[h] / GATE_FIXED * sharing;
        if (more) {
            mean += (double)more->forecast.mean[h] / GATE_FIXED;
            var += (double)more->forecast.var[h];
            doubt += (double)more->doubt[h] / GATE_FIXED;
        }
        double units = mean + margin * sqrt(var + doubts * doubt * doubt);
        worst = units > worst ? units : worst;
    }
    return worst;
}

static double conservative(const struct gate *g, const struct gate_slot *more, double doubts)
{
    (void)doubts;
    return (double)g->head->sums.peak + (more ? more->peak : 0);
}

static double overcommit(const struct gate *g, const struct gate_slot *more, double doubts)
{
    double held = gate__held(g) + (more ? (double)more->forecast.mean[0] / GATE_FIXED : 0);
    double rest = conservative(g, more, doubts) - held;
    return held + (rest > 0 ? rest : 0) * gate__clamp(g->head->health.share, 0, 1);
}

static double unlimited(const struct gate *g, const struct gate_slot *more, double doubts)
{
    (void)doubts;
    (void)g;
    (void)more;
    return 0;
}

typedef double demand_fn(const struct gate *g, const struct gate_slot *more, double doubts);

static demand_fn *const demands[PLIMSOLL_GATE_POLICIES] = {
    [PLIMSOLL_GATE_POLICY_EXPECTED] = expected,
    [PLIMSOLL_GATE_POLICY_CONSERVATIVE] = conservative,
    [PLIMSOLL_GATE_POLICY_OVERCOMMIT] = overcommit,
    [PLIMSOLL_GATE_POLICY_UNLIMITED] = unlimited,
};

static double pressure(const struct gate *g, const struct gate_slot *more, double doubts)
{
    double units = demands[g->config.policy](g, more, doubts) + work_units(g, more);
    return (units + (double)g->head->health.foreign) / gate__capacity(g);
}

double gate__pressure(const struct gate *g, const struct gate_slot *more)
{
    return pressure(g, more, 1);
}

/* ---- guards */

/* A request that is being judged, and what is missing for it. */
struct asking {
    struct gate *g;
    const struct gate_slot *s;
    double pressure; /* with it */
    double first_s;  /* expected wait for its first token; below 0: not known */
    double spread_s; /* how far off that is */
    double units;    /* missing */
    double seconds;  /* missing */
};

typedef bool guard_fn(struct asking *a); /* true: it may go on */

static bool guard_figures(struct asking *a)
{
    a->seconds = (double)a->g->config.stale_ns / 1e9;
    return !gate__stale(a->g);
}

/* An older one of the same weight waits. */
static bool guard_queue(struct asking *a)
{
    const struct gate_head *head = a->g->head;
    uint32_t first = head->waiters[0];
    if (head->sums.waiting == 0 || first >= a->g->config.slots) {
        return true;
    }
    const struct gate_slot *w = &a->g->slots[first];
    return w == a->s || w->id == a->s->id || w->priority < a->s->priority;
}

static bool guard_requests(struct asking *a)
{
    uint32_t most = a->g->config.max_requests;
    return most == 0 || a->g->head->sums.live < most;
}

static bool guard_budget(struct asking *a)
{
    const struct gate_class *c = &a->g->head->classes[a->s->class_id];
    double part = c->budget * gate__capacity(a->g);
    double with = (double)c->expected + a->s->expected;
    if (c->max_requests > 0 && c->live >= c->max_requests) {
        return false;
    }
    a->units = with - part;
    return !(c->budget > 0) || with <= part || c->live == 0;
}

static bool guard_share(struct asking *a)
{
    const struct gate_head *head = a->g->head;
    const struct gate_class *c = &head->classes[a->s->class_id];
    if (a->pressure < a->g->config.low - CONTENDED || c->live == 0) {
        return true;
    }
    uint64_t all = head->sums.weight;
    double part = all > c->weight ? (double)c->weight / (double)all * gate__capacity(a->g)
                                  : gate__capacity(a->g);
    a->units = (double)c->expected + a->s->expected - part;
    return all <= c->weight || a->units <= 0;
}

static bool guard_long(struct asking *a)
{
    const struct gate_sums *sums = &a->g->head->sums;
    a->units = (double)sums->long_expected + a->s->expected -
               a->g->config.long_share * gate__capacity(a->g);
    return !a->s->is_long || sums->long_expected == 0 || a->units <= 0;
}

static bool guard_first_token(struct asking *a)
{
    const struct plimsoll_gate_config *c = &a->g->config;
    if (c->queued_tokens > 0 && a->g->head->sums.queued >= c->queued_tokens) {
        return false;
    }
    double target = (double)c->first_token_ns / 1e9;
    if (!(target > 0) || a->first_s + a->spread_s <= target) {
        return true;
    }
    double alone = gate__first_s(a->g, a->s->queued, NULL);
    a->seconds = a->first_s - target;
    return alone > target && a->first_s - alone <= ALONE_WAIT * target;
}

static bool guard_pace(struct asking *a)
{
    struct gate_pace *p = &a->g->head->pace;
    bool fits = !(p->limit > 0) || a->g->head->sums.live + 1 <= p->limit;
    p->held_back += !fits;
    return fits;
}

static double line_for(const struct asking *a)
{
    const struct plimsoll_gate_config *c = &a->g->config;
    double line = a->g->head->health.full ? c->low : c->high;
    if (a->s->priority > 0) {
        line = c->high > 1 ? c->high : 1;
    }
    return line;
}

static bool guard_priority(struct asking *a)
{
    double line = a->g->config.low - MINOR_LESS;
    a->units = (a->pressure - line) * gate__capacity(a->g);
    return a->s->priority >= 0 || a->pressure <= line;
}

/* What only doubts stand against is not missing: it may start as soon as more was learned, when the next answer ends. */
static bool guard_memory(struct asking *a)
{
    double line = line_for(a);
    bool fits = a->pressure <= line;
    if (!fits) {
        a->units = (pressure(a->g, a->s, 0) - line) * gate__capacity(a->g);
    }
    a->g->head->health.full = !fits;
    return fits;
}

/* Bytes for workspace: told, or chosen, or what was too much once. That last one is no reason against a request that
 * is alone: it may have changed. 0: not known. */
static double work_room(const struct gate *g)
{
    uint64_t told = gate__headroom(g);
    double chosen = (double)g->config.work_limit_bytes;
    double failed = g->head->sums.live > 0 ? g->head->health.work_failed : 0;
    if (told != UINT64_MAX) {
        return (double)told * (1 - g->config.work_margin);
    }
    chosen *= 1 - g->config.work_margin;
    return failed > 0 && (!(chosen > 0) || failed < chosen) ? failed * (1 - 1e-9) : chosen;
}

static bool guard_workspace(struct asking *a)
{
    const struct gate *g = a->g;
    double with = (double)g->head->sums.work + (double)a->s->work;
    bool told = gate__headroom(g) != UINT64_MAX;
    double room = work_room(g);
    return a->s->work == 0 || (g->config.flags & PLIMSOLL_GATE_WORK_IN_POOL) ||
           (!told && !(room > 0)) || with <= room;
}

/* `idle`: also asked when nothing runs. */
static const struct guard {
    guard_fn *passes;
    enum plimsoll_gate_reason reason;
    bool idle;
} guards[] = {
    {guard_figures, PLIMSOLL_GATE_WHY_STALE, true},
    {guard_queue, PLIMSOLL_GATE_WHY_QUEUE, true},
    {guard_requests, PLIMSOLL_GATE_WHY_REQUESTS, true},
    {guard_budget, PLIMSOLL_GATE_WHY_BUDGET, false},
    {guard_pace, PLIMSOLL_GATE_WHY_PACE, false},
    {guard_first_token, PLIMSOLL_GATE_WHY_FIRST_TOKEN, false},
    {guard_long, PLIMSOLL_GATE_WHY_LONG, false},
    {guard_priority, PLIMSOLL_GATE_WHY_PRIORITY, false},
    {guard_share, PLIMSOLL_GATE_WHY_SHARE, false},
    {guard_memory, PLIMSOLL_GATE_WHY_MEMORY, false},
    {guard_workspace, PLIMSOLL_GATE_WHY_WORKSPACE, true},
};

/* ---- verdict */

/* What waiting does not change; FITS: nothing. */
static enum plimsoll_gate_reason for_ever(const struct gate *g, const struct gate_slot *s)
{
    const struct plimsoll_gate_config *c = &g->config;
    const struct gate_health *h = &g->head->health;
    if (h->draining) {
        return h->draining == 2 ? PLIMSOLL_GATE_WHY_BREAKER : PLIMSOLL_GATE_WHY_DRAIN;
    }
    uint32_t longest = s->longest > s->prompt ? s->longest : s->prompt;
    if (c->max_length > 0 && longest >= c->max_length) {
        return PLIMSOLL_GATE_WHY_TOO_LONG;
    }
    double room = gate__capacity(g);
    double least = (double)gate__units(c, (uint64_t)longest + 1 + c->lookahead_tokens, true);
    if (c->flags & PLIMSOLL_GATE_WORK_IN_POOL) {
        least += (double)s->work / (double)c->unit_bytes;
    }
    bool whole = c->policy == PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    if (least > room || (whole && s->peak > room)) {
        return PLIMSOLL_GATE_WHY_TOO_LARGE;
    }
    return PLIMSOLL_GATE_WHY_FITS;
}

static enum plimsoll_gate_reason ask(struct asking *a)
{
    enum plimsoll_gate_reason why = for_ever(a->g, a->s);
    bool idle = a->g->head->sums.live == 0;
    for (unsigned i = 0; why == PLIMSOLL_GATE_WHY_FITS && i < sizeof guards / sizeof *guards; i++) {
        a->units = 0;
        a->seconds = 0;
        if ((!idle || guards[i].idle) && !guards[i].passes(a)) {
            why = guards[i].reason;
        }
    }
    return why;
}

/* The request as a slot that is in no sum yet. */
static void candidate(const struct gate *g, const struct plimsoll_gate_request *r,
                      struct gate_slot *s)
{
    const struct plimsoll_gate_config *c = &g->config;
    uint32_t most = c->max_length > r->prompt_tokens ? c->max_length - r->prompt_tokens : 0;
    most = c->max_length == 0 ? UINT32_MAX / 4 : most;
    s->prompt = r->prompt_tokens < 1u << 30 ? r->prompt_tokens : 1u << 30;
    s->most = r->max_tokens > 0 && r->max_tokens < most ? r->max_tokens : most;
    s->cached = r->cached_tokens < s->prompt ? r->cached_tokens : s->prompt;
    s->shared = r->shared_tokens < s->prompt ? r->shared_tokens : s->prompt;
    s->samples = r->samples > 0 ? (r->samples < SAMPLES_MAX ? r->samples : SAMPLES_MAX) : 1;
    s->image_tokens = r->image_tokens;
    s->logprob_rows = r->logprob_rows;
    s->known = r->known_output < s->most ? r->known_output : s->most;
    s->known = r->known_output > 0 ? s->known : 0;
    s->class_id = r->class_id < PLIMSOLL_GATE_CLASSES ? r->class_id : 0;
    s->priority = r->priority;
    s->lease_ns = r->lease_ns > 0 ? r->lease_ns : c->lease_ns;
    s->leased = (r->flags & PLIMSOLL_GATE_BY_LEASE) != 0;
    s->apart = (r->flags & PLIMSOLL_GATE_APART) != 0;
    s->longest = s->apart ? r->longest_tokens : 0;
    s->queued = gate__to_compute(s);
    s->generated = 0;
    s->first_ns = 0;
    s->guessed = 0;
    s->whole = (r->flags & PLIMSOLL_GATE_WHOLE) != 0;
    gate__price(g, s);
    s->work = gate__work(g, s);
    s->is_long = c->long_part > 0 && s->expected > c->long_part * gate__capacity(g);
}

static enum plimsoll_gate_verdict verdict_of(enum plimsoll_gate_reason why)
{
    switch (why) {
    case PLIMSOLL_GATE_WHY_FITS:
        return PLIMSOLL_GATE_ADMIT;
    case PLIMSOLL_GATE_WHY_TOO_LONG:
    case PLIMSOLL_GATE_WHY_TOO_LARGE:
        return PLIMSOLL_GATE_NEVER;
    case PLIMSOLL_GATE_WHY_DRAIN:
    case PLIMSOLL_GATE_WHY_BREAKER:
        return PLIMSOLL_GATE_DRAINING;
    default:
        return PLIMSOLL_GATE_LATER;
    }
}

static void judge(struct gate *g, const struct gate_slot *s, struct plimsoll_gate_decision *out)
{
    double backlog = (double)(gate__ahead(g) + s->queued);
    struct asking a = {.g = g, .s = s};
    gate__ease(g);
    a.pressure = gate__pressure(g, s);
    a.first_s = gate__first_s(g, backlog, &a.spread_s);
    enum plimsoll_gate_reason why = ask(&a);
    *out = (struct plimsoll_gate_decision){
        .verdict = (uint32_t)verdict_of(why),
        .reason = (uint32_t)why,
        .http = plimsoll_gate_reason_http((uint32_t)why),
        .now_units = (uint32_t)(s->forecast.mean[0] / GATE_FIXED),
        .expected_units = s->expected,
        .peak_units = s->peak,
        .work_bytes = s->work,
        .first_token_ns = a.first_s > 0 ? (uint64_t)(gate__clamp(a.first_s, 0, 1e6) * 1e9) : 0,
        .pressure = a.pressure,
        .is_long = s->is_long,
    };
    if (out->verdict == PLIMSOLL_GATE_LATER || out->verdict == PLIMSOLL_GATE_DRAINING) {
        out->retry_after_ms = gate__retry_ms(g, a.units, a.seconds);
    }
}

static void count_refusal(struct gate *g, const struct gate_slot *s, uint32_t reason)
{
    g->head->refused[reason]++;
    g->head->classes[s->class_id].refused++;
}

/* From a candidate to a slot of the table; NULL: the table is full. */
static struct gate_slot *book(struct gate *g, const struct gate_slot *from, uint32_t state)
{
    struct gate_slot *s = gate__slot_new(g);
    if (s) {
        struct gate_slot whole = *from;
        whole.id = s->id;
        whole.process = s->process;
        whole.order = s->order;
        whole.state = GATE_FREE;
        whole.admitted_ns = g->head->now_ns;
        whole.lease_end_ns = g->head->now_ns + from->lease_ns;
        whole.backlog = gate__ahead(g) + from->queued;
        *s = whole;
        __atomic_store_n(&s->state, state, __ATOMIC_RELEASE);
    }
    return s;
}

static void start(struct gate *g, struct gate_slot *s)
{
    if (g->head->sums.queued == 0) {
        g->head->pace.last_first_ns = g->head->now_ns; /* the engine begins with it now */
    }
    gate__add(g, s);
    g->head->admitted++;
    g->head->classes[s->class_id].admitted++;
}

static void wait_if_asked(struct gate *g, const struct plimsoll_gate_request *r,
                          const struct gate_slot *from, struct plimsoll_gate_decision *out)
{
    uint32_t waiting = g->head->sums.waiting;
    if (!(r->flags & PLIMSOLL_GATE_MAY_WAIT) || out->verdict != PLIMSOLL_GATE_LATER ||
        waiting >= g->config.waiters) {
        return;
    }
    struct gate_slot *s = book(g, from, GATE_WAITING);
    if (s) {
        gate__queue(g, s);
        out->id = s->id;
        out->verdict = PLIMSOLL_GATE_WAIT;
        out->http = 200;
        out->position = gate__position(g, s);
    }
}

int plimsoll_gate_admit(struct plimsoll_gate *gate, const struct plimsoll_gate_request *request,
                        struct plimsoll_gate_decision *out, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_slot s = {0};
    candidate(g, request, &s);
    judge(g, &s, out);
    struct gate_slot *booked = out->verdict == PLIMSOLL_GATE_ADMIT ? book(g, &s, GATE_LIVE) : NULL;
    if (booked) {
        start(g, booked);
        out->id = booked->id;
    } else {
        if (out->verdict == PLIMSOLL_GATE_ADMIT) {
            out->verdict = PLIMSOLL_GATE_LATER;
            out->reason = PLIMSOLL_GATE_WHY_TABLE;
            out->http = plimsoll_gate_reason_http(out->reason);
            out->retry_after_ms = gate__retry_ms(g, 0, 0);
        }
        wait_if_asked(g, request, &s, out);
        if (out->verdict != PLIMSOLL_GATE_WAIT) {
            count_refusal(g, &s, out->reason);
        }
    }
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

int plimsoll_gate_poll(struct plimsoll_gate *gate, uint64_t id, struct plimsoll_gate_decision *out,
                       uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_slot *s = gate__slot(g, id);
    if (!s || s->state != GATE_WAITING) {
        g->head->unknown_ids++;
        gate__unlock(g, word);
        return PLIMSOLL_GATE_UNKNOWN;
    }
    gate__price(g, s);
    judge(g, s, out);
    s->lease_end_ns = g->head->now_ns + s->lease_ns;
    if (out->verdict == PLIMSOLL_GATE_LATER) {
        out->verdict = PLIMSOLL_GATE_WAIT;
        out->http = 200;
        out->id = id;
        out->position = gate__position(g, s);
    } else if (out->verdict == PLIMSOLL_GATE_ADMIT) {
        gate__unqueue(g, s);
        s->admitted_ns = g->head->now_ns;
        s->backlog = gate__ahead(g) + s->queued;
        __atomic_store_n(&s->state, GATE_LIVE, __ATOMIC_RELEASE);
        start(g, s);
        out->id = id;
    } else {
        count_refusal(g, s, out->reason);
        gate__slot_free(g, s);
    }
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}
