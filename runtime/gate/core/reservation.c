/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to reservations after they were given: growth, the end, leases, processes that died. */

#include "ledger.h"

#define TICK_SLOTS    2048u /* looked at in one tick, in pieces */
#define TICK_PIECE    128u  /* under the lock */
#define GUESS_FIRST_S 10    /* to a first token, while nothing was learned */

static struct gate_slot *known(struct gate *g, uint64_t id)
{
    struct gate_slot *s = gate__slot(g, id);
    g->head->unknown_ids += s == NULL;
    return s;
}

/* The first token is out: its prompt is computed. */
static void begin(struct gate_slot *s, uint64_t first_ns)
{
    s->first_ns = first_ns > 0 ? first_ns : 1;
    s->queued = 0;
    s->work = 0;
}

int plimsoll_gate_extend(struct plimsoll_gate *gate, uint64_t id, uint32_t generated,
                         uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_slot *s = known(g, id);
    if (s) {
        s->lease_end_ns = g->head->now_ns + s->lease_ns;
        if (s->state == GATE_LIVE && generated > (s->guessed ? 0 : s->generated) &&
            generated < 1u << 30) {
            gate__take_off(g, s);
            gate__pace_grew(g, s, generated);
            if (s->first_ns == 0 || (s->guessed && generated == 1)) {
                gate__pace_first(g, s);
                begin(s, g->head->now_ns);
            }
            s->guessed = 0;
            s->generated = generated;
            s->told_ns = g->head->now_ns;
            gate__price(g, s);
            gate__add(g, s);
        }
    }
    gate__unlock(g, word);
    return s ? PLIMSOLL_GATE_OK : PLIMSOLL_GATE_UNKNOWN;
}

int plimsoll_gate_correct(struct plimsoll_gate *gate, uint64_t id, uint32_t prompt_tokens,
                          uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_slot *s = known(g, id);
    if (s && prompt_tokens < 1u << 30) {
        bool live = s->state == GATE_LIVE;
        if (live) {
            gate__take_off(g, s);
        }
        s->prompt = prompt_tokens;
        s->cached = s->cached < prompt_tokens ? s->cached : prompt_tokens;
        s->shared = s->shared < prompt_tokens ? s->shared : prompt_tokens;
        s->queued = s->first_ns == 0 ? gate__to_compute(s) : 0;
        gate__price(g, s);
        if (live) {
            gate__add(g, s);
        }
    }
    gate__unlock(g, word);
    return s ? PLIMSOLL_GATE_OK : PLIMSOLL_GATE_UNKNOWN;
}

static void learn(struct gate *g, const struct gate_slot *s, uint32_t generated, bool ended)
{
    struct gate_lengths *all = &g->head->lengths[0];
    double mean = g->config.expected_output;
    gate__lengths_learn(all, NULL, mean, generated, ended);
    if (s->class_id > 0 && s->class_id < PLIMSOLL_GATE_CLASSES) {
        gate__lengths_learn(&g->head->lengths[s->class_id], all, mean, generated, ended);
    }
}

static void finish(struct gate *g, struct gate_slot *s, uint32_t generated, uint32_t outcome)
{
    struct gate_head *head = g->head;
    if (s->state == GATE_WAITING) {
        head->cancelled++;
        gate__slot_free(g, s);
        return;
    }
    generated = s->guessed || generated > s->generated ? generated : s->generated;
    if (generated > 0 && outcome <= PLIMSOLL_GATE_CANCELLED) {
        if (s->first_ns == 0) { /* nobody told when: not learned, but its prompt is computed */
            head->pace.last_first_ns = head->now_ns;
        }
        gate__pace_grew(g, s, generated);
        learn(g, s, generated, outcome == PLIMSOLL_GATE_STOPPED);
    }
    if (outcome <= PLIMSOLL_GATE_LENGTH) {
        gate__pace_ended(g, s, generated);
        head->finished++;
        head->classes[s->class_id < PLIMSOLL_GATE_CLASSES ? s->class_id : 0].finished++;
        if (s->admitted_ns > head->health.oom_ns) { /* the server works again */
            head->health.oom_run = 0;
        }
    } else {
        gate__pace_drained(g, (double)s->forecast.mean[0] / GATE_FIXED);
        if (outcome != PLIMSOLL_GATE_OOM) { /* that one is told of */
            gate__suspect(g, s);
        }
        *(outcome == PLIMSOLL_GATE_CANCELLED ? &head->cancelled : &head->failed) += 1;
    }
    gate__slot_free(g, s);
}

int plimsoll_gate_release(struct plimsoll_gate *gate, uint64_t id, uint32_t generated,
                          uint32_t outcome, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    struct gate_slot *s = known(g, id);
    if (s) {
        finish(g, s, generated, outcome);
    }
    gate__unlock(g, word);
    return s ? PLIMSOLL_GATE_OK : PLIMSOLL_GATE_UNKNOWN;
}

/* ---- tick */

/* Processes that are dead, a bit each. Outside the lock: it reads /proc. */
static void find_dead(const struct gate *g, uint64_t dead[GATE_PROCESSES / 64])
{
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        const struct gate_process p = g->head->processes[i];
        if (p.pid != 0 && gate__gone(&p)) {
            dead[i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
}

static bool is_dead(const uint64_t dead[GATE_PROCESSES / 64], uint32_t process)
{
    return process < GATE_PROCESSES && (dead[process / 64] >> (process % 64) & 1) != 0;
}

/* Seconds after which a request that told of no token counts as begun. Of one whose answer comes in one piece that is what its
 * first token should take; another one may only be late. */
static double due_s(const struct gate *g, const struct gate_slot *s)
{
    double first = gate__first_s(g, (double)s->backlog, NULL);
    if (s->whole && g->head->pace.whole_s > 0) {
        return first > 0 ? first : 0; /* what is known of such answers has the first token in it */
    }
    first = first > 0 ? first : GUESS_FIRST_S;
    return s->whole ? first : 2 * first + 1;
}

/* A request whose answer comes in one piece tells of no token until it is over: it grows at the pace of the others. */
static void reckon(struct gate *g, struct gate_slot *s)
{
    struct gate_head *head = g->head;
    uint64_t due = (uint64_t)(gate__clamp(due_s(g, s), 0, 1e6) * 1e9);
    bool begins = s->first_ns == 0 && gate__less(head->now_ns, s->admitted_ns) >= due;
    if (!begins && !s->guessed) {
        return;
    }
    gate__take_off(g, s);
    if (begins) {
        begin(s, s->admitted_ns + due);
        s->guessed = 1;
    }
    double since = (double)gate__less(head->now_ns, s->first_ns) / 1e9;
    double most = s->most > 1 ? s->most : 1;
    double tokens = gate__clamp(1 + since / gate__token_s(g), 1, most);
    s->generated = (uint32_t)gate__clamp(tokens, 1, 1u << 30);
    s->told_ns = head->now_ns;
    gate__price(g, s);
    gate__add(g, s);
}

/* A piece of the slots, from `from` on. */
static void sweep(struct gate *g, uint32_t from, const uint64_t dead[GATE_PROCESSES / 64])
{
    struct gate_head *head = g->head;
    uint32_t fresh = head->fresh < g->config.slots ? head->fresh : g->config.slots;
    for (uint32_t i = from; i < from + TICK_PIECE && i < fresh; i++) {
        struct gate_slot *s = &g->slots[i];
        if (s->state != GATE_LIVE && s->state != GATE_WAITING) {
            continue;
        }
        if (is_dead(dead, s->process) && !s->leased) {
            head->reclaimed++;
            gate__suspect(g, s);
            gate__slot_free(g, s);
        } else if (head->now_ns >= s->lease_end_ns) {
            head->expired++;
            gate__slot_free(g, s);
        } else if (s->state == GATE_LIVE) {
            reckon(g, s);
        }
    }
}

/* Rows of dead processes without reservations are free again. */
static void forget(struct gate *g, const uint64_t dead[GATE_PROCESSES / 64])
{
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        struct gate_process *p = &g->head->processes[i];
        if (is_dead(dead, i) && p->live == 0) {
            *p = (struct gate_process){0};
        }
    }
}

static bool any(const uint64_t dead[GATE_PROCESSES / 64])
{
    uint64_t all = 0;
    for (unsigned i = 0; i < GATE_PROCESSES / 64; i++) {
        all |= dead[i];
    }
    return all != 0;
}

int plimsoll_gate_tick(struct plimsoll_gate *gate, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t dead[GATE_PROCESSES / 64] = {0};
    find_dead(g, dead);
    bool all = any(dead); /* what the dead hold is looked for everywhere */
    uint32_t most = all ? g->config.slots : TICK_SLOTS;
    for (uint32_t seen = 0; seen < most; seen += TICK_PIECE) {
        uint64_t word = gate__lock(g, now_ns);
        if (word == 0) {
            return PLIMSOLL_GATE_BUSY;
        }
        uint32_t fresh = g->head->fresh;
        uint32_t from = all ? seen : g->head->scan;
        from = from < fresh ? from : 0;
        sweep(g, from, dead);
        g->head->scan = from + TICK_PIECE;
        bool last = seen + TICK_PIECE >= most || seen + TICK_PIECE >= fresh + TICK_PIECE;
        if (last) {
            gate__ease(g);
            forget(g, dead);
        }
        gate__unlock(g, word);
        if (last) {
            break;
        }
    }
    return PLIMSOLL_GATE_OK;
}
