/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a ledger is whole: every number that is derived is derived again and compared, every slot is in one
 * place. For tests, after every step; allocates nothing.
 */

#include "ledger.h"

#include <string.h>

/* What the slots add up to. */
struct tally {
    struct gate_sums sums;
    uint32_t class_live[PLIMSOLL_GATE_CLASSES];
    uint64_t class_expected[PLIMSOLL_GATE_CLASSES];
    uint32_t process_live[GATE_PROCESSES];
    uint32_t free, waiting;
};

static const char *count_live(struct tally *t, const struct gate_slot *s)
{
    for (unsigned h = 0; h < GATE_HORIZONS; h++) {
        t->sums.forecast.mean[h] += s->forecast.mean[h];
        t->sums.forecast.var[h] += s->forecast.var[h];
        t->sums.doubt[h] += s->doubt[h];
    }
    t->sums.peak += s->peak;
    t->sums.long_expected += s->is_long ? s->expected : 0;
    t->sums.queued += s->queued;
    t->sums.work += s->work;
    t->sums.live++;
    if (s->first_ns > 0) {
        t->sums.begun++;
        t->sums.begun_held += s->forecast.mean[0] / GATE_FIXED;
        t->sums.told += s->told_ns >> GATE_MOMENT;
        t->sums.slope += s->slope;
    }
    t->class_live[s->class_id]++;
    t->class_expected[s->class_id] += s->expected;
    return s->first_ns > 0 && (s->queued > 0 || s->work > 0)
               ? "a request with a first token still waits for its prompt"
               : NULL;
}

static const char *count_slot(const struct gate *g, struct tally *t, uint32_t index)
{
    const struct gate_slot *s = &g->slots[index];
    if (s->state == GATE_FREE) {
        t->free++;
        return NULL;
    }
    if (s->state != GATE_LIVE && s->state != GATE_WAITING) {
        return "a slot is in no state";
    }
    if ((s->id & ((1u << GATE_ID_BITS) - 1)) != index || s->id >= UINT64_C(1) << 53) {
        return "an id does not name its slot";
    }
    if (s->class_id >= PLIMSOLL_GATE_CLASSES || s->process >= GATE_PROCESSES) {
        return "a slot has no class or no process";
    }
    t->process_live[s->process]++;
    if (s->state == GATE_WAITING) {
        t->waiting++;
        return NULL;
    }
    return count_live(t, s);
}

static const char *check_free(const struct gate *g, const struct tally *t)
{
    uint32_t n = 0;
    for (uint32_t i = g->head->free_head; i != GATE_NONE; i = g->slots[i].next_free) {
        if (i >= g->head->fresh || g->slots[i].state != GATE_FREE || ++n > t->free) {
            return "the list of free slots is broken";
        }
    }
    return n == t->free ? NULL : "a free slot is in no list";
}

static const char *check_queue(const struct gate *g, const struct tally *t)
{
    const struct gate_head *head = g->head;
    if (head->sums.waiting != t->waiting || t->waiting > PLIMSOLL_GATE_WAIT_MAX) {
        return "the queue has another length";
    }
    for (uint32_t i = 0; i < t->waiting; i++) {
        uint32_t at = head->waiters[i];
        if (at >= head->fresh || g->slots[at].state != GATE_WAITING) {
            return "the queue names a slot that does not wait";
        }
        const struct gate_slot *s = &g->slots[at];
        const struct gate_slot *b = i > 0 ? &g->slots[head->waiters[i - 1]] : NULL;
        if (b &&
            (b->priority < s->priority || (b->priority == s->priority && b->order >= s->order))) {
            return "the queue is out of order";
        }
    }
    return NULL;
}

static const char *check_rows(const struct gate_head *head, struct tally *t)
{
    for (uint32_t i = 0; i < PLIMSOLL_GATE_CLASSES; i++) {
        const struct gate_class *c = &head->classes[i];
        if (c->live != t->class_live[i] || c->expected != t->class_expected[i]) {
            return "a class counts other reservations than it has";
        }
        t->sums.weight += c->live > 0 ? c->weight : 0;
    }
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        if (head->processes[i].live != t->process_live[i]) {
            return "a process counts other reservations than it has";
        }
    }
    t->sums.waiting = t->waiting;
    return memcmp(&t->sums, &head->sums, sizeof t->sums) == 0
               ? NULL
               : "the sums are not those of the slots";
}

static const char *check_lengths(const struct gate_head *head)
{
    for (uint32_t i = 0; i < PLIMSOLL_GATE_CLASSES; i++) {
        const float *s = head->lengths[i].survival;
        for (unsigned b = 0; b < GATE_BINS; b++) {
            if (!(s[b] >= 0 && s[b] <= 1) || (b > 0 && s[b] > s[b - 1])) {
                return "a curve of lengths does not fall from 1 to 0";
            }
        }
    }
    return NULL;
}

const char *plimsoll_gate_check(struct plimsoll_gate *gate)
{
    struct gate *g = gate_of(gate);
    uint64_t word = gate__lock(g, 0);
    if (word == 0) {
        return "the ledger is locked";
    }
    struct tally t;
    memset(&t, 0, sizeof t);
    const char *wrong =
        g->head->fresh > g->config.slots ? "more slots are used than there are" : NULL;
    for (uint32_t i = 0; !wrong && i < g->head->fresh; i++) {
        wrong = count_slot(g, &t, i);
    }
    wrong = wrong ? wrong : check_free(g, &t);
    wrong = wrong ? wrong : check_queue(g, &t);
    wrong = wrong ? wrong : check_rows(g->head, &t);
    wrong = wrong ? wrong : check_lengths(g->head);
    gate__unlock(g, word);
    return wrong;
}
