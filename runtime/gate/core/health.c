/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine and the monitor say, and what follows: drift, units that nobody reserved, how much prefixes
 * are shared, margins after preemptions, prices of workspace after failures, the breaker.
 *
 *   foreign    the engine uses more than the ledger holds, all of it counted: believed at once
 *   sharing    it uses less than the requests that have begun should hold: believed slowly, a twentieth of
 *              the difference each time, and never below a quarter
 *   margin     EXPECTED: half a standard deviation more for each report with preemptions, at most 6; goes back
 *              to where it started within 60 s, never below
 *   share      OVERCOMMIT: a tenth more of the rest for each; goes down to a seventh of the start within 60 s
 *              (SGLang 0.5.23 lets its new_token_ratio fall to 14 % of the start in 600 steps)
 *   breaker    failures in a row, or stranded bytes above a limit that do not go down over ten figures
 */

#include "ledger.h"

#define MARGIN_STEP  0.5
#define MARGIN_MAX   6.0
#define SHARE_STEP   0.1
#define SHARE_LEAST  (1.0 / 7)
#define EASE_S       60.0
#define SHARING_MIN  0.25
#define STRANDED_RUN 10
#define HEADROOM_NS  UINT64_C(30000000000)
#define FROM_ENGINE                                                                                \
    (PLIMSOLL_GATE_HAS_USAGE | PLIMSOLL_GATE_HAS_PREEMPTED | PLIMSOLL_GATE_HAS_ENGINE)
#define SUSPECT_NS UINT64_C(60000000000)

bool gate__stale(const struct gate *g)
{
    const struct gate_head *head = g->head;
    uint64_t seen = head->health.figures_ns;
    return g->config.stale_ns > 0 && seen > 0 &&
           gate__less(head->now_ns, seen) > g->config.stale_ns;
}

uint64_t gate__headroom(const struct gate *g)
{
    const struct gate_health *h = &g->head->health;
    return gate__less(g->head->now_ns, h->headroom_ns) <= HEADROOM_NS ? h->headroom : UINT64_MAX;
}

void gate__ease(struct gate *g)
{
    struct gate_health *h = &g->head->health;
    double dt = (double)gate__less(g->head->now_ns, h->eased_ns) / 1e9;
    if (dt < 0.5) {
        return;
    }
    double start = g->config.margin;
    double down = h->margin - (MARGIN_MAX - start) * dt / EASE_S;
    h->margin = gate__clamp(down, start, MARGIN_MAX);
    double least = g->config.share * SHARE_LEAST;
    h->share = gate__clamp(h->share - (g->config.share - least) * dt / EASE_S, least, 1);
    h->eased_ns = g->head->now_ns;
}

static void preempted(struct gate *g, uint64_t total)
{
    struct gate_health *h = &g->head->health;
    uint64_t before = h->preempted_seen;
    h->preempted_seen = total;
    if (before == UINT64_MAX || total <= before) { /* the first figures, or a new engine */
        return;
    }
    h->preempted += total - before;
    h->margin = gate__clamp(h->margin + MARGIN_STEP, g->config.margin, MARGIN_MAX);
    h->share = gate__clamp(h->share + SHARE_STEP, 0, 1);
}

static void usage(struct gate *g, double share)
{
    struct gate_health *h = &g->head->health;
    const struct gate_sums *sums = &g->head->sums;
    uint64_t used = (uint64_t)(gate__clamp(share, 0, 1) * gate__capacity(g) + 0.5);
    uint64_t held = (uint64_t)gate__held(g);
    uint64_t begun = sums->begun_held + (uint64_t)gate__grown(g);
    h->used = used;
    h->drift = used > begun ? (int64_t)gate__less(used, held) : -(int64_t)(begun - used);
    h->foreign = gate__less(used, held);
    double real = (double)begun > gate__capacity(g) / 20
                      ? gate__clamp((double)used / (double)begun, SHARING_MIN, 1)
                      : 1;
    double gain = real < h->sharing ? 0.05 : 0.5;
    h->sharing = gate__clamp(h->sharing + gain * (real - h->sharing), SHARING_MIN, 1);
}

static void trip(struct gate *g, uint32_t by)
{
    g->head->health.draining = 2;
    g->head->health.broken_by = by;
}

static void stranded(struct gate *g, double share)
{
    struct gate_health *h = &g->head->health;
    bool bad = g->config.stranded_limit > 0 && share >= g->config.stranded_limit &&
               share >= h->stranded - 0.005;
    h->stranded_run = bad ? h->stranded_run + 1 : 0;
    h->stranded = gate__clamp(share, 0, 1);
    if (h->stranded_run >= STRANDED_RUN && h->draining == 0) {
        trip(g, 2);
    }
}

int plimsoll_gate_observe(struct plimsoll_gate *gate, const struct plimsoll_gate_figures *f,
                          uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_health *h = &g->head->health;
    if (f->has & FROM_ENGINE) { /* a monitor's say nothing of how full the pool is */
        h->figures_ns = g->head->now_ns > 0 ? g->head->now_ns : 1;
    }
    gate__ease(g);
    if ((f->has & PLIMSOLL_GATE_HAS_ENGINE) && f->engine != h->engine) {
        h->engine = f->engine;
        h->preempted_seen = UINT64_MAX;
    }
    if (f->has & PLIMSOLL_GATE_HAS_PREEMPTED) {
        preempted(g, f->preempted);
    }
    if (f->has & PLIMSOLL_GATE_HAS_USAGE) {
        usage(g, f->usage);
    }
    if (f->has & PLIMSOLL_GATE_HAS_HEADROOM) {
        h->headroom = f->headroom_bytes;
        h->headroom_ns = g->head->now_ns;
    }
    if (f->has & PLIMSOLL_GATE_HAS_STRANDED) {
        stranded(g, f->stranded);
    }
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

/* ---- failures and what they teach */

/* What was learned for a size holds for the larger ones of its kind at least. */
static void work_raise(struct gate_health *h, unsigned kind, unsigned size, double bytes)
{
    for (unsigned s = size; s < GATE_SIZES; s++) {
        if (!(h->work[kind][s] >= bytes)) {
            h->work[kind][s] = bytes;
        }
    }
}

static struct gate_slot slot_of(const struct plimsoll_gate_request *r)
{
    return (struct gate_slot){.prompt = r->prompt_tokens,
                              .cached = r->cached_tokens,
                              .image_tokens = r->image_tokens,
                              .logprob_rows = r->logprob_rows};
}

/* Bytes where there is a price, which is more than any number of tokens. */
static double weight_of(const struct gate *g, const struct gate_slot *s)
{
    double bytes = (double)gate__work(g, s);
    return bytes > 0 ? bytes : (double)gate__less(s->prompt, s->cached) + s->image_tokens;
}

/* The suspect as a slot; false: there is none of late. */
static bool suspect_of(const struct gate *g, struct gate_slot *out)
{
    const struct gate_suspect *p = &g->head->health.suspect;
    *out = (struct gate_slot){.prompt = p->prompt,
                              .cached = p->cached,
                              .image_tokens = p->image_tokens,
                              .logprob_rows = p->logprob_rows};
    return p->ns > 0 && gate__less(g->head->now_ns, p->ns) <= SUSPECT_NS;
}

void gate__suspect(struct gate *g, const struct gate_slot *s)
{
    struct gate_slot before;
    if ((s->first_ns == 0 || s->guessed) &&
        (!suspect_of(g, &before) || weight_of(g, s) > weight_of(g, &before))) {
        g->head->health.suspect =
            (struct gate_suspect){.ns = g->head->now_ns > 0 ? g->head->now_ns : 1,
                                  .prompt = s->prompt,
                                  .cached = s->cached,
                                  .image_tokens = s->image_tokens,
                                  .logprob_rows = s->logprob_rows};
    }
}

/* On which request memory ran out, as far as the ledger can tell; false: on none that it knows. */
static bool find_suspect(const struct gate *g, struct gate_slot *out)
{
    bool found = suspect_of(g, out);
    uint32_t fresh = g->head->fresh < g->config.slots ? g->head->fresh : g->config.slots;
    for (uint32_t i = 0; i < fresh; i++) {
        const struct gate_slot *s = &g->slots[i];
        if (s->state == GATE_LIVE && (s->first_ns == 0 || s->guessed) &&
            (!found || weight_of(g, s) > weight_of(g, out))) {
            *out = *s;
            found = true;
        }
    }
    return found;
}

static void raise_price(struct gate *g, const struct gate_slot *s, uint64_t wanted)
{
    struct gate_health *h = &g->head->health;
    unsigned kind;
    unsigned size;
    gate__work_cell(g, s, &kind, &size);
    uint64_t room = gate__headroom(g);
    bool told = room != UINT64_MAX;
    uint64_t before = gate__work(g, s);
    double price = 1.25 * (double)before;
    price = (double)wanted > price ? (double)wanted : price;
    if (told && (double)room * 1.05 > price) {
        price = (double)room * 1.05;
    }
    price = gate__clamp(price, 0, 1e18);
    work_raise(h, kind, size, price);
    double together = price + (double)gate__less(g->head->sums.work, before);
    if (!told && price > 0 && (!(h->work_failed > 0) || together < h->work_failed)) {
        h->work_failed = together;
    }
}

int plimsoll_gate_oom(struct plimsoll_gate *gate, const struct plimsoll_gate_request *request,
                      uint64_t wanted, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_health *h = &g->head->health;
    uint64_t now = g->head->now_ns;
    struct gate_slot s = {0};
    if (!request && h->ooms > 0 && gate__less(now, h->oom_ns) <= SUSPECT_NS) {
        gate__unlock(g, word);
        return PLIMSOLL_GATE_UNKNOWN;
    }
    if (request) {
        s = slot_of(request);
    }
    if (request || find_suspect(g, &s)) {
        raise_price(g, &s, wanted);
    }
    h->suspect = (struct gate_suspect){0};
    bool in_row = h->oom_run > 0 && gate__less(now, h->oom_ns) <= g->config.oom_window_ns;
    h->oom_run = in_row ? h->oom_run + 1 : 1;
    h->oom_ns = now;
    h->ooms++;
    if (h->oom_run >= g->config.oom_limit && h->draining == 0) {
        trip(g, 1);
    }
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

int plimsoll_gate_worked(struct plimsoll_gate *gate, const struct plimsoll_gate_request *request,
                         uint64_t bytes, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_health *h = &g->head->health;
    struct gate_slot s = slot_of(request);
    unsigned kind;
    unsigned size;
    gate__work_cell(g, &s, &kind, &size);
    double *cell = &h->work[kind][size];
    double seen = (double)bytes;
    if (seen > *cell) {
        work_raise(h, kind, size, gate__clamp(seen, 0, 1e18));
    } else {
        *cell -= 0.01 * (*cell - seen); /* a price that was too high comes down slowly */
    }
    h->work_seen[kind][size] += h->work_seen[kind][size] < UINT32_MAX;
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

int plimsoll_gate_drain(struct plimsoll_gate *gate, bool on, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_health *h = &g->head->health;
    h->draining = on ? 1 : 0;
    h->broken_by = on ? h->broken_by : 0;
    if (!on) {
        h->oom_run = 0;
        h->stranded_run = 0;
    }
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}
