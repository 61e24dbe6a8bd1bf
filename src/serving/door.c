/* SPDX-License-Identifier: Apache-2.0 */
/* See door.h. Here: a door during a run. */

#include "serving/door_run.h"

#include "base/clock.h"
#include "base/num.h"

#include <math.h>

#define TOLD_EVERY 32u /* output tokens between two reports to the gate */

const char *plim_door_text(enum plim_door_kind kind)
{
    static const char *const texts[] = {
#define PLIM__X(name, text, meaning) text,
        PLIM_DOOR_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)kind < PLIM_COUNT_OF(texts) ? texts[kind] : "unknown";
}

/* ---- start and end ------------------------------------------------------------------------------------ */

static struct plimsoll_gate_config configuration(const struct plim__engine *e, uint64_t blocks)
{
    const struct plim_door_options *o = e->setup->door;
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = plim_min_u64(blocks, PLIMSOLL_GATE_UNITS_MAX);
    c.unit_bytes = e->kv_token_bytes * e->s->block_tokens;
    c.n_groups = 1;
    c.groups[0].block_tokens = e->s->block_tokens;
    c.groups[0].units_per_block = 1;
    c.max_length = e->s->max_length;
    c.step_tokens = e->s->step_tokens;
    c.policy = o->oracle ? PLIMSOLL_GATE_POLICY_UNLIMITED : o->policy;
    c.stale_ns = 5 * PLIM_SECOND_NS;
    c.lease_ns = 3600 * PLIM_SECOND_NS;
    c.first_token_ns = o->terms.first_ns;
    c.token_ns = o->terms.token_ns;
    return c;
}

enum plim_status plim__door_open(struct plim__engine *e, uint64_t blocks, struct plim_err *err)
{
    struct plim__door *d = &e->door;
    const struct plim_door_options *o = e->setup->door;
    d->blocks = blocks;
    if (!o || o->kind != PLIM_DOOR_GATE) {
        return PLIM_OK;
    }
    struct plimsoll_gate_config c = configuration(e, blocks);
    size_t bytes = plimsoll_gate_bytes(&c);
    if (bytes == 0) {
        return plim__fail(err, PLIM_E_USAGE, "the gate cannot be set up: %s makes no sense",
                          plimsoll_gate_wrong(&c));
    }
    d->memory = aligned_alloc(64, plim_round_up(bytes, 64));
    if (!d->memory) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a ledger");
    }
    if (plimsoll_gate_create(&d->gate, d->memory, bytes, &c, e->now_ns) != PLIMSOLL_GATE_OK) {
        return plim__fail(err, PLIM_E_INTERNAL, "the ledger was not made");
    }
    return PLIM_OK;
}

void plim__door_close(struct plim__engine *e)
{
    struct plim__door *d = &e->door;
    if (d->memory) {
        plimsoll_gate_close(&d->gate, e->now_ns);
        free(d->memory);
    }
    plim_vec_fini(&d->line);
    plim_vec_fini(&d->known);
}

/* Once a second: the engine's figures to the gate. */
static void watch(struct plim__engine *e, uint64_t now_ns)
{
    struct plim__door *d = &e->door;
    if (!d->memory || now_ns < d->next_ns) {
        return;
    }
    struct plimsoll_gate_figures f = {.has = PLIMSOLL_GATE_HAS_USAGE | PLIMSOLL_GATE_HAS_PREEMPTED,
                                      .usage = d->usage,
                                      .preempted = e->r.preemptions};
    struct plimsoll_gate_state s;
    (void)plimsoll_gate_observe(&d->gate, &f, now_ns);
    (void)plimsoll_gate_tick(&d->gate, now_ns);
    (void)plimsoll_gate_read(&d->gate, &s, now_ns);
    e->r.door.worst_drift = fmax(e->r.door.worst_drift, fabs(s.drift));
    d->drift_sum += fabs(s.drift);
    d->watches++;
    e->r.door.mean_drift = d->drift_sum / (double)d->watches;
    d->next_ns = now_ns + PLIM_SECOND_NS;
}

/* ---- asking ------------------------------------------------------------------------------------------- */

static bool gate_lets_in(struct plim__engine *e, struct plim__ticket *t)
{
    const struct plim_door_options *o = e->setup->door;
    struct plimsoll_gate_request r = {
        .prompt_tokens = t->a.prompt,
        .max_tokens = (uint32_t)plim_max_u64(o->terms.max_tokens, t->a.output),
        .known_output = o->oracle ? t->a.output : 0,
    };
    struct plimsoll_gate_decision d;
    if (o->oracle && !plim__oracle_fits(e, t)) {
        e->r.door.refused[PLIMSOLL_GATE_WHY_MEMORY]++;
        return false;
    }
    (void)plimsoll_gate_admit(&e->door.gate, &r, &d, t->a.at_ns);
    t->door_id = d.id;
    e->r.door.refused[d.reason] += d.verdict != PLIMSOLL_GATE_ADMIT;
    if (d.verdict == PLIMSOLL_GATE_ADMIT && o->oracle) {
        plim__oracle_note(e, t);
    }
    return d.verdict == PLIMSOLL_GATE_ADMIT;
}

static bool lets_in(struct plim__engine *e, struct plim__ticket *t)
{
    const struct plim_door_options *o = e->setup->door;
    switch (o->kind) {
    case PLIM_DOOR_LINE:
    case PLIM_DOOR_REQUESTS:
        return e->door.inside < o->limit;
    case PLIM_DOOR_TOKENS:
        return e->door.queued < o->limit;
    case PLIM_DOOR_GATE:
        return gate_lets_in(e, t);
    default:
        return true;
    }
}

static void enter(struct plim__engine *e, struct plim__ticket *t)
{
    e->door.inside++;
    e->door.queued += t->a.prompt;
    e->r.door.let_in++;
    e->feed.status = plim_vec_push(&e->waiting, &e->feed.err, *t);
}

void plim__door_ask(struct plim__engine *e, struct plim__ticket *t)
{
    struct plim__door *d = &e->door;
    const struct plim_door_options *o = e->setup->door;
    watch(e, t->a.at_ns);
    e->r.door.asked++;
    if (!o) {
        enter(e, t);
        return;
    }
    bool lines = o->kind == PLIM_DOOR_LINE;
    if (lines && d->head < d->line.n) { /* behind the others */
        e->feed.status = plim_vec_push(&d->line, &e->feed.err, *t);
    } else if (lets_in(e, t)) {
        enter(e, t);
    } else if (lines) {
        e->feed.status = plim_vec_push(&d->line, &e->feed.err, *t);
    } else {
        e->r.door.turned_away++;
    }
}

void plim__door_line(struct plim__engine *e)
{
    struct plim__door *d = &e->door;
    while (d->head < d->line.n && e->feed.status == PLIM_OK) {
        struct plim__ticket *t = &d->line.items[d->head];
        if (e->now_ns - t->a.at_ns > e->setup->door->terms.first_ns) {
            e->r.door.turned_away++; /* gave up */
        } else if (lets_in(e, t)) {
            enter(e, t);
        } else {
            return;
        }
        if (++d->head == d->line.n) {
            d->head = 0;
            d->line.n = 0;
        }
    }
}

/* ---- what becomes of those inside ------------------------------------------------------------------------- */

static void leave(struct plim__engine *e, const struct plim__ticket *t)
{
    e->door.inside--;
    plim__oracle_forget(e, t);
    e->door.queued -= t->first_ns == 0 ? t->a.prompt : 0;
}

void plim__door_first(struct plim__engine *e, struct plim__ticket *t)
{
    t->first_ns = e->now_ns;
    e->door.queued -= t->a.prompt;
    if (t->door_id != 0) {
        (void)plimsoll_gate_extend(&e->door.gate, t->door_id, 1, e->now_ns);
    }
}

void plim__door_grew(struct plim__engine *e, const struct plim__ticket *t)
{
    plim__oracle_grew(e, t);
    if (t->door_id != 0 && t->generated % TOLD_EVERY == 0) {
        (void)plimsoll_gate_extend(&e->door.gate, t->door_id, t->generated, e->now_ns);
    }
}

static void judge(struct plim__engine *e, const struct plim__ticket *t)
{
    const struct plim_door_options *o = e->setup->door;
    struct plim_door_result *r = &e->r.door;
    uint64_t rest = e->now_ns - t->first_ns;
    uint64_t each = t->generated > 1 ? rest / (t->generated - 1) : 0;
    if (o && t->first_ns - t->a.at_ns > o->terms.first_ns) {
        r->late_first++;
    } else if (o && each > o->terms.token_ns) {
        r->slow++;
    } else {
        r->good++;
        r->good_tokens += t->generated;
        r->good_prompt_tokens += t->a.prompt;
    }
    r->preempted += t->preempted;
}

void plim__door_done(struct plim__engine *e, const struct plim__ticket *t)
{
    judge(e, t);
    leave(e, t);
    if (t->door_id != 0) {
        (void)plimsoll_gate_release(&e->door.gate, t->door_id, t->generated, PLIMSOLL_GATE_STOPPED,
                                    e->now_ns);
    }
}

void plim__door_lost(struct plim__engine *e, const struct plim__ticket *t)
{
    leave(e, t);
    if (t->door_id != 0) {
        (void)plimsoll_gate_release(&e->door.gate, t->door_id, t->generated, PLIMSOLL_GATE_OOM,
                                    e->now_ns);
    }
}

void plim__door_watch(struct plim__engine *e, double usage)
{
    e->door.usage = usage;
    watch(e, e->now_ns);
}
