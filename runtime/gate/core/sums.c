/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots and the sums over them. A slot that is live or waiting is counted; taking it off undoes exactly
 * what adding it did, because the slot keeps the numbers. Everything here can be derived from the slots, which
 * is what gate__repair() does after somebody died under the lock.
 */

#include "ledger.h"

#include <string.h>

#define AHEAD_MAX 64 /* steps: who says nothing for longer stands still */

/* The class's index in a slot may come from a broken file. */
static struct gate_class *class_of(const struct gate *g, struct gate_slot *s)
{
    if (s->class_id >= PLIMSOLL_GATE_CLASSES) {
        s->class_id = 0;
    }
    return &g->head->classes[s->class_id];
}

static struct gate_process *process_of(const struct gate *g, const struct gate_slot *s)
{
    return &g->head->processes[s->process < GATE_PROCESSES ? s->process : 0];
}

void gate__add(struct gate *g, struct gate_slot *s)
{
    struct gate_sums *sums = &g->head->sums;
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        sums->forecast.mean[h] += s->forecast.mean[h];
        sums->forecast.var[h] += s->forecast.var[h];
        sums->doubt[h] += s->doubt[h];
    }
    sums->peak += s->peak;
    sums->long_expected += s->is_long ? s->expected : 0;
    sums->queued += s->queued;
    sums->work += s->work;
    sums->live++;
    if (s->first_ns > 0) {
        sums->begun++;
        sums->begun_held += s->forecast.mean[0] / GATE_FIXED;
        sums->told += s->told_ns >> GATE_MOMENT;
        sums->slope += s->slope;
    }
    struct gate_class *class = class_of(g, s);
    sums->weight += class->live == 0 ? class->weight : 0;
    class->live++;
    class->expected += s->expected;
}

void gate__take_off(struct gate *g, struct gate_slot *s)
{
    struct gate_sums *sums = &g->head->sums;
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        sums->forecast.mean[h] -= s->forecast.mean[h];
        sums->forecast.var[h] -= s->forecast.var[h];
        sums->doubt[h] -= s->doubt[h];
    }
    sums->peak -= s->peak;
    sums->long_expected -= s->is_long ? s->expected : 0;
    sums->queued -= s->queued;
    sums->work -= s->work;
    sums->live--;
    if (s->first_ns > 0) {
        sums->begun--;
        sums->begun_held -= s->forecast.mean[0] / GATE_FIXED;
        sums->told -= s->told_ns >> GATE_MOMENT;
        sums->slope -= s->slope;
    }
    struct gate_class *class = class_of(g, s);
    class->live--;
    sums->weight -= class->live == 0 ? class->weight : 0;
    class->expected -= s->expected;
}

/* ---- now */

double gate__grown(const struct gate *g)
{
    const struct gate_sums *sums = &g->head->sums;
    uint64_t now = sums->begun * (g->head->now_ns >> GATE_MOMENT);
    if (now <= sums->told || sums->begun == 0) {
        return 0;
    }
    double each = (double)(now - sums->told) / sums->begun * (double)(1u << GATE_MOMENT) / 1e9;
    double steps = gate__clamp(each / gate__token_s(g), 0, AHEAD_MAX);
    return steps / GATE_SLOPE * (double)sums->slope / GATE_FIXED;
}

double gate__held(const struct gate *g)
{
    return (double)g->head->sums.forecast.mean[0] / GATE_FIXED + gate__grown(g);
}

struct gate_slot *gate__slot(const struct gate *g, uint64_t id)
{
    uint64_t index = id & ((1u << GATE_ID_BITS) - 1);
    if (id == 0 || index >= g->config.slots) {
        return NULL;
    }
    struct gate_slot *s = &g->slots[index];
    if (s->id != id || (s->state != GATE_LIVE && s->state != GATE_WAITING)) {
        return NULL;
    }
    (void)class_of(g, s);
    return s;
}

struct gate_slot *gate__slot_new(struct gate *g)
{
    struct gate_head *head = g->head;
    uint32_t index = head->free_head;
    if (index < g->config.slots && g->slots[index].state == GATE_FREE) {
        head->free_head = g->slots[index].next_free;
    } else if (head->fresh < g->config.slots) {
        index = head->fresh++;
    } else {
        return NULL;
    }
    struct gate_slot *s = &g->slots[index];
    uint64_t used = (s->id >> GATE_ID_BITS) & UINT32_MAX;
    used = used == UINT32_MAX ? 1 : used + 1;
    s->state = GATE_FREE; /* until it is whole */
    s->id = used << GATE_ID_BITS | index;
    s->process = g->process;
    s->order = head->order++;
    s->generated = 0;
    s->first_ns = 0;
    process_of(g, s)->live++;
    return s;
}

void gate__slot_free(struct gate *g, struct gate_slot *s)
{
    struct gate_process *p = process_of(g, s);
    p->live -= p->live > 0;
    if (s->state == GATE_LIVE) {
        gate__take_off(g, s);
    } else if (s->state == GATE_WAITING) {
        gate__unqueue(g, s);
    }
    __atomic_store_n(&s->state, GATE_FREE, __ATOMIC_RELEASE);
    s->next_free = g->head->free_head;
    g->head->free_head = (uint32_t)(s - g->slots);
}

/* ---- the queue */

void gate__queue(struct gate *g, const struct gate_slot *s)
{
    struct gate_head *head = g->head;
    uint32_t n = head->sums.waiting;
    if (n >= PLIMSOLL_GATE_WAIT_MAX) {
        return;
    }
    uint32_t at = n;
    while (at > 0) {
        uint32_t before = head->waiters[at - 1];
        const struct gate_slot *b = &g->slots[before < g->config.slots ? before : 0];
        if (b->priority > s->priority || (b->priority == s->priority && b->order < s->order)) {
            break;
        }
        head->waiters[at] = before;
        at--;
    }
    head->waiters[at] = (uint32_t)(s - g->slots);
    head->sums.waiting = n + 1;
}

void gate__unqueue(struct gate *g, const struct gate_slot *s)
{
    struct gate_head *head = g->head;
    uint32_t index = (uint32_t)(s - g->slots);
    uint32_t n = head->sums.waiting;
    n = n < PLIMSOLL_GATE_WAIT_MAX ? n : PLIMSOLL_GATE_WAIT_MAX;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (head->waiters[i] != index) {
            head->waiters[kept++] = head->waiters[i];
        }
    }
    head->sums.waiting = kept;
}

uint32_t gate__position(const struct gate *g, const struct gate_slot *s)
{
    uint32_t index = (uint32_t)(s - g->slots);
    uint32_t at = 0;
    while (at < g->head->sums.waiting && at < PLIMSOLL_GATE_WAIT_MAX &&
           g->head->waiters[at] != index) {
        at++;
    }
    return at;
}

/* ---- repair */

/* A slot whose fields are in range; what was being changed is computed anew by its caller. */
static bool slot_sound(const struct gate *g, struct gate_slot *s, uint32_t index)
{
    if ((s->id & ((1u << GATE_ID_BITS) - 1)) != index || s->id >> GATE_ID_BITS == 0 ||
        s->process >= GATE_PROCESSES) {
        return false;
    }
    (void)class_of(g, s);
    s->samples = s->samples > 0 ? s->samples : 1;
    return true;
}

static void recount(struct gate *g, struct gate_slot *s, uint32_t index)
{
    struct gate_head *head = g->head;
    bool used = s->state == GATE_LIVE || s->state == GATE_WAITING;
    if (!used || !slot_sound(g, s, index)) {
        s->id = (s->id & ~((UINT64_C(1) << GATE_ID_BITS) - 1)) | index;
        s->state = GATE_FREE;
        s->next_free = head->free_head;
        head->free_head = index;
        return;
    }
    head->processes[s->process].live++;
    gate__price(g, s);
    if (s->state == GATE_LIVE) {
        gate__add(g, s);
    } else {
        gate__queue(g, s);
    }
}

void gate__repair(struct gate *g)
{
    struct gate_head *head = g->head;
    memset(&head->sums, 0, sizeof head->sums);
    for (uint32_t i = 0; i < PLIMSOLL_GATE_CLASSES; i++) {
        head->classes[i].live = 0;
        head->classes[i].expected = 0;
    }
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        head->processes[i].live = 0;
    }
    head->free_head = GATE_NONE;
    head->fresh = head->fresh < g->config.slots ? head->fresh : g->config.slots;
    for (uint32_t i = head->fresh; i-- > 0;) {
        recount(g, &g->slots[i], i);
    }
    head->repairs++;
}
