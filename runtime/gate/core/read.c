/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of a ledger: its state, its classes, whether it is whole. */

#include "ledger.h"

#include <string.h>

static uint64_t expected_units(const struct gate *g)
{
    const struct gate_sums *sums = &g->head->sums;
    uint64_t most = 0;
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        most = sums->forecast.mean[h] > most ? sums->forecast.mean[h] : most;
    }
    return most / GATE_FIXED + (uint64_t)gate__grown(g);
}

static uint32_t processes_of(const struct gate_head *head)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        n += head->processes[i].pid != 0;
    }
    return n;
}

/* What was learned about speed. */
static void read_pace(const struct gate *g, struct plimsoll_gate_state *out)
{
    const struct gate_pace *p = &g->head->pace;
    bool known = p->grown > 0 || p->whole_s > 0;
    double first = gate__first_s(g, 0, NULL);
    double slope = (gate__first_s(g, 1e6, NULL) - first) / 1e6;
    out->first_token_s = first > 0 ? first : 0;
    out->prefill_tokens_s = slope > 0 ? 1 / slope : 0;
    out->token_s = known ? gate__token_s(g) : 0;
    out->drain_units_s = gate__drain_rate(g);
    bool limited = p->limit > 0 && p->limit < 4e9;
    out->limit_requests = limited ? (uint32_t)p->limit : UINT32_MAX;
}

static void read_health(const struct gate *g, struct plimsoll_gate_state *out)
{
    const struct gate_head *head = g->head;
    const struct gate_health *h = &head->health;
    out->used_units = h->used;
    out->foreign_units = h->foreign;
    out->drift_units = h->drift;
    out->drift = gate__clamp((double)h->drift / gate__capacity(g), -1, 1);
    out->sharing = gate__clamp(h->sharing, 0, 1);
    out->margin = gate__clamp(h->margin, 0, 100);
    out->share = gate__clamp(h->share, 0, 1);
    out->full = h->full;
    out->draining = h->draining;
    out->broken_by = h->broken_by;
    out->stale = gate__stale(g);
    out->headroom_bytes = gate__headroom(g);
    out->figures_age_ns = h->figures_ns > 0 ? gate__less(head->now_ns, h->figures_ns) : UINT64_MAX;
    out->preempted = h->preempted;
    out->ooms = h->ooms;
}

static void read_counts(const struct gate_head *head, struct plimsoll_gate_state *out)
{
    out->admitted = head->admitted;
    out->finished = head->finished;
    out->cancelled = head->cancelled;
    out->failed = head->failed;
    out->expired = head->expired;
    out->reclaimed = head->reclaimed;
    out->unknown_ids = head->unknown_ids;
    out->repairs = head->repairs;
    memcpy(out->refused, head->refused, sizeof out->refused);
}

int plimsoll_gate_read(struct plimsoll_gate *gate, struct plimsoll_gate_state *out, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    const struct gate_sums *sums = &g->head->sums;
    *out = (struct plimsoll_gate_state){
        .capacity_units = g->head->capacity,
        .held_units = (uint64_t)gate__held(g),
        .expected_units = expected_units(g),
        .peak_units = sums->peak,
        .pressure = gate__pressure(g, NULL),
        .live = sums->live,
        .begun = sums->begun,
        .waiting = sums->waiting,
        .processes = processes_of(g->head),
        .queued_tokens = sums->queued,
        .work_bytes = sums->work,
    };
    read_pace(g, out);
    read_health(g, out);
    read_counts(g->head, out);
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

int plimsoll_gate_resize(struct plimsoll_gate *gate, uint64_t capacity_units, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    if (capacity_units == 0 || capacity_units > PLIMSOLL_GATE_UNITS_MAX) {
        return PLIMSOLL_GATE_BAD_CONFIG;
    }
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    g->head->capacity = capacity_units;
    gate__unlock(g, word);
    return PLIMSOLL_GATE_OK;
}

/* ---- classes */

uint32_t plimsoll_gate_class(struct plimsoll_gate *gate, const char *name, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    char key[PLIMSOLL_GATE_NAME] = {0};
    size_t n = strnlen(name, sizeof key - 1);
    memcpy(key, name, n);
    uint64_t word = n > 0 ? gate__lock(g, now_ns) : 0;
    if (word == 0) {
        return 0;
    }
    uint32_t found = 0;
    for (uint32_t i = 1; found == 0 && i < PLIMSOLL_GATE_CLASSES; i++) {
        struct gate_class *c = &g->head->classes[i];
        if (c->name[0] == '\0') {
            memcpy(c->name, key, sizeof key);
            gate__lengths_init(&g->head->lengths[i], &g->head->lengths[0],
                               g->config.expected_output);
        }
        found = memcmp(c->name, key, sizeof key) == 0 ? i : 0;
    }
    gate__unlock(g, word);
    return found;
}

static bool class_known(const struct gate *g, uint32_t id)
{
    return id < PLIMSOLL_GATE_CLASSES && (id == 0 || g->head->classes[id].name[0] != '\0');
}

int plimsoll_gate_class_set(struct plimsoll_gate *gate, uint32_t class_id,
                            const struct plimsoll_gate_class *limits, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    bool known = class_known(g, class_id);
    if (known) {
        struct gate_class *c = &g->head->classes[class_id];
        uint64_t live = c->live > 0;
        g->head->sums.weight -= live * c->weight;
        c->weight = (uint32_t)(gate__clamp(limits->weight, 0.001, 1e6) * 1000);
        g->head->sums.weight += live * c->weight;
        c->budget = gate__clamp(limits->budget, 0, 1);
        c->max_requests = limits->max_requests;
    }
    gate__unlock(g, word);
    return known ? PLIMSOLL_GATE_OK : PLIMSOLL_GATE_UNKNOWN;
}

int plimsoll_gate_class_read(struct plimsoll_gate *gate, uint32_t class_id,
                             struct plimsoll_gate_class *out, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    bool known = class_known(g, class_id);
    if (known) {
        const struct gate_class *c = &g->head->classes[class_id];
        const struct gate_lengths *l = &g->head->lengths[class_id];
        *out = (struct plimsoll_gate_class){
            .weight = c->weight / 1000.0,
            .budget = gate__clamp(c->budget, 0, 1),
            .max_requests = c->max_requests,
            .live = c->live,
            .expected_units = c->expected,
            .admitted = c->admitted,
            .refused = c->refused,
            .finished = c->finished,
            .output_mean = gate__lengths_mean(l),
            .output_p50 = gate__lengths_at(l, 0.5),
            .output_p90 = gate__lengths_at(l, 0.9),
            .output_p99 = gate__lengths_at(l, 0.99),
        };
        memcpy(out->name, c->name, sizeof out->name);
        out->name[sizeof out->name - 1] = '\0';
    }
    gate__unlock(g, word);
    return known ? PLIMSOLL_GATE_OK : PLIMSOLL_GATE_UNKNOWN;
}
