/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor sees of its command: processes on devices, failures, the gate's ledger. */

#include "run/turn.h"

#include "base/num.h"

#include <string.h>

#define BUSY_TRIES 50 /* of 20 ms: somebody is stopped inside the ledger */

static bool is_member(const void *run, uint32_t pid)
{
    const struct plim__run *r = run;
    for (size_t i = 0; i < r->n_members; i++) {
        if (r->member[i] == pid) {
            return true;
        }
    }
    return false;
}

static void take_member(struct plim__run *r, uint32_t pid)
{
    if (r->n_members < PLIM__MEMBERS && !is_member(r, pid) && plim__group_has(r->pid, pid)) {
        r->member[r->n_members++] = pid;
    }
}

/* The quietest member of those that tell figures. */
static void take_silence(struct plim__run *r)
{
    r->silent_ns = 0;
    for (size_t i = 0; i < r->seen.allocators.n; i++) {
        const struct plim_allocator_now *a = &r->seen.allocators.items[i];
        uint64_t silent = plim_sub_sat(r->seen.sample.time_ns, a->told_ns);
        if (silent > r->silent_ns && a->told_ns > 0 && is_member(r, a->pid) &&
            plim__group_has(r->pid, a->pid)) { /* one that is gone is quiet, too */
            r->silent_ns = silent;
            r->silent_pid = a->pid;
        }
    }
}

static bool open_ledger(struct plim__run *r)
{
    if (r->ledger_open && plimsoll_gate_replaced(&r->ledger, r->options->ledger)) {
        plimsoll_gate_close(&r->ledger, r->now_ns); /* the turn has another configuration */
        r->ledger_open = false;
    }
    if (!r->ledger_open && r->options->ledger != NULL) {
        r->ledger_open =
            plimsoll_gate_open(&r->ledger, r->options->ledger, NULL, r->now_ns) == PLIMSOLL_GATE_OK;
    }
    return r->ledger_open;
}

/* The gate learns the price of the request that was at work. @wanted: bytes, 0: not known. */
static void teach(struct plim__run *r, uint64_t wanted)
{
    if (open_ledger(r)) {
        (void)plimsoll_gate_oom(&r->ledger, NULL, wanted, r->now_ns);
    }
}

/* What is free for workspace goes to the gate, which cannot look at devices itself. */
static void tell_room(struct plim__run *r)
{
    struct plimsoll_gate_figures f = {.headroom_bytes = r->room.headroom,
                                      .stranded = r->room.stranded};
    f.has |= r->room.headroom != UINT64_MAX ? PLIMSOLL_GATE_HAS_HEADROOM : 0;
    f.has |= r->room.stranded >= 0 ? PLIMSOLL_GATE_HAS_STRANDED : 0;
    if (f.has != 0 && r->phase == PLIM__PHASE_SERVING && open_ledger(r)) {
        (void)plimsoll_gate_observe(&r->ledger, &f, r->now_ns);
    }
}

void plim__run_look(struct plim__run *r)
{
    struct plim_err err = {0};
    r->looked_ns = r->now_ns;
    if (plim_collector_take(r->collector, &r->seen, &err) != PLIM_OK) {
        plim__run_tell(r, "cannot look at the devices: %s", err.message);
        return;
    }
    for (size_t i = 0; r->pid != 0 && i < r->seen.sample.uses.n; i++) {
        take_member(r, r->seen.sample.uses.items[i].pid);
    }
    for (size_t i = 0; r->pid != 0 && i < r->seen.allocators.n; i++) {
        take_member(r, r->seen.allocators.items[i].pid);
    }
    take_silence(r);
    r->room = plim_room_of(&r->seen, is_member, r);
    tell_room(r);
    for (size_t i = 0; i < r->seen.happenings.n; i++) {
        const struct plim_happening *h = &r->seen.happenings.items[i];
        bool bundle = h->kind == PLIM_HAPPENED_INCIDENT && strstr(h->text, "-oom-") != NULL;
        if (bundle || (h->kind == PLIM_HAPPENED_OOM && is_member(r, h->pid))) {
            r->ooms++;
            teach(r, bundle ? 0 : h->value);
            plim__run_tell(r, "memory ran out: %s", h->text[0] ? h->text : "no more is known");
        }
    }
}

bool plim__run_cleared(const struct plim__run *r)
{
    for (size_t i = 0; i < r->seen.sample.uses.n; i++) {
        if (is_member(r, r->seen.sample.uses.items[i].pid)) {
            return false;
        }
    }
    return true;
}

/* ---- the gate ---- */

void plim__run_drain(struct plim__run *r, bool on)
{
    int code = PLIMSOLL_GATE_BUSY;
    for (unsigned i = 0; i < BUSY_TRIES && code == PLIMSOLL_GATE_BUSY && open_ledger(r); i++) {
        code = plimsoll_gate_drain(&r->ledger, on, r->now_ns);
    }
}

void plim__run_tend(struct plim__run *r)
{
    if (open_ledger(r)) {
        (void)plimsoll_gate_tick(&r->ledger, r->now_ns);
    }
}

uint32_t plim__run_in_flight(struct plim__run *r, bool *breaker)
{
    struct plimsoll_gate_state s;
    *breaker = false;
    if (!open_ledger(r)) {
        return 0;
    }
    if (plimsoll_gate_read(&r->ledger, &s, r->now_ns) != PLIMSOLL_GATE_OK) {
        return 1; /* busy: it may have some */
    }
    *breaker = s.draining == 2;
    return s.live + s.waiting;
}
