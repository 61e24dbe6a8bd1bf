/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's metrics, from one table; conventions as in report/metrics.h. */

#include "base/clock.h"
#include "gate/gate_int.h"

#include <math.h>

/* X(name, type, value, help). What is not known (UINT64_MAX, NAN) is absent. Counters end in _total. */
#define GATE_METRICS(X)                                                                            \
    X(capacity_units, gauge, s.capacity_units, "Units of the KV pool, blocks of a paged engine.")  \
    X(held_units, gauge, s.held_units, "Units held by reservations for the tokens they have now.") \
    X(expected_units, gauge, s.expected_units,                                                     \
      "Units held at the worst moment ahead, without margin.")                                     \
    X(peak_units, gauge, s.peak_units, "Sum of the most units that each reservation can hold.")    \
    X(used_units, gauge, s.used_units, "Units in use by the engine's last figures.")               \
    X(foreign_units, gauge, s.foreign_units, "Units in use and in no reservation.")                \
    X(pressure_ratio, gauge, s.pressure, "How full the pool will be; 1 is the line.")              \
    X(drift_ratio, gauge, s.drift,                                                                 \
      "Used less held units of begun requests, as a share of the pool.")                           \
    X(sharing_ratio, gauge, s.sharing, "Units really used for each unit held.")                    \
    X(reservations, gauge, (uint64_t)s.live, "Reservations now.")                                  \
    X(waiting, gauge, (uint64_t)s.waiting, "Requests that wait for room.")                         \
    X(queued_tokens, gauge, s.queued_tokens, "Prompt tokens before their first token.")            \
    X(full, gauge, (uint64_t)s.full,                                                               \
      "1: refusing until pressure falls below the lower threshold.")                               \
    X(draining, gauge, (uint64_t)(s.draining != 0), "1: nothing new is taken.")                    \
    X(breaker_open, gauge, (uint64_t)(s.draining == 2), "1: memory ran out repeatedly.")           \
    X(stale, gauge, (uint64_t)s.stale, "1: the engine's figures are too old.")                     \
    X(figures_age_seconds, gauge, age, "Age of the engine's figures.")                             \
    X(token_seconds, gauge, s.token_s > 0 ? s.token_s : NAN, "Time for each token of an answer.")  \
    X(first_token_seconds, gauge, s.first_token_s > 0 ? s.first_token_s : NAN,                     \
      "Expected wait for a first token.")                                                          \
    X(admitted, counter, s.admitted, "Requests that were let in.")                                 \
    X(finished, counter, s.finished, "Reservations that ended with an answer.")                    \
    X(cancelled, counter, s.cancelled, "Reservations whose client left.")                          \
    X(failed, counter, s.failed, "Reservations whose request failed.")                             \
    X(expired, counter, s.expired, "Reservations whose lease ended.")                              \
    X(reclaimed, counter, s.reclaimed, "Reservations of processes that died.")                     \
    X(unknown_ids, counter, s.unknown_ids, "Calls with ids that are none, or ended before.")       \
    X(engine_preemptions, counter, s.preempted, "Preemptions that the engine counted.")            \
    X(ooms, counter, s.ooms, "Failures for want of memory that were told.")                        \
    X(ledger_repairs, counter, s.repairs, "Repairs after a death inside the ledger.")              \
    X(undecided, counter, c[PLIM_GATE_COUNT_UNDECIDED], "Requests that could not be judged.")      \
    X(bad_requests, counter, c[PLIM_GATE_COUNT_BAD], "Requests to the gate that made no sense.")   \
    X(admit_requests, counter, c[PLIM_GATE_COUNT_ADMITS], "Questions at /v1/admit.")               \
    X(authz_requests, counter, c[PLIM_GATE_COUNT_AUTHZ], "Questions at /authz.")                   \
    X(agent_checks, counter, c[PLIM_GATE_COUNT_AGENT], "Agent checks that were answered.")

static void head(struct plim_buf *out, const char *name, const char *type, const char *help,
                 bool openmetrics)
{
    /* Version 0.0.4 names the family of a counter with its _total. */
    const char *suffix = strcmp(type, "counter") == 0 && !openmetrics ? "_total" : "";
    plim_buf_printf(out, "# HELP plimsoll_gate_%s%s %s\n# TYPE plimsoll_gate_%s%s %s\n", name,
                    suffix, help, name, suffix, type);
}

static void put_real(struct plim_buf *out, const char *name, const char *type, double value,
                     const char *help, bool openmetrics)
{
    if (isfinite(value)) {
        head(out, name, type, help, openmetrics);
        plim_buf_printf(out, "plimsoll_gate_%s%s ", name,
                        strcmp(type, "counter") == 0 ? "_total" : "");
        plim_buf_real(out, value);
        plim_buf_char(out, '\n');
    }
}

static void put_u64(struct plim_buf *out, const char *name, const char *type, uint64_t value,
                    const char *help, bool openmetrics)
{
    if (value != UINT64_MAX) {
        head(out, name, type, help, openmetrics);
        plim_buf_printf(out, "plimsoll_gate_%s%s %llu\n", name,
                        strcmp(type, "counter") == 0 ? "_total" : "", (unsigned long long)value);
    }
}

static void put_refused(struct plim_buf *out, const struct plimsoll_gate_state *s, bool openmetrics)
{
    head(out, "refused", "counter", "Requests that were refused, by rule.", openmetrics);
    for (uint32_t i = 1; i < PLIMSOLL_GATE_REASONS; i++) {
        plim_buf_printf(out, "plimsoll_gate_refused_total{reason=\"%s\"} %llu\n",
                        plimsoll_gate_reason_text(i), (unsigned long long)s->refused[i]);
    }
}

void plim__gate_metrics(struct plim_buf *out, struct plim__gate *g, bool openmetrics)
{
    struct plimsoll_gate_state s = {0};
    uint64_t c[PLIM_GATE_COUNTS];
    const char *why;
    for (unsigned i = 0; i < PLIM_GATE_COUNTS; i++) {
        c[i] = atomic_load_explicit(&g->count[i], memory_order_relaxed);
    }
    head(out, "up", "gauge", "1: the ledger can be asked.", openmetrics);
    bool open = atomic_load(&g->open) &&
                plimsoll_gate_read(plim__gate_ledger(g), &s, plim_mono_ns()) == PLIMSOLL_GATE_OK;
    plim_buf_printf(out, "plimsoll_gate_up %d\n", open);
    head(out, "ready", "gauge", "1: new requests should come here.", openmetrics);
    plim_buf_printf(out, "plimsoll_gate_ready %d\n", plim__gate_ready(g, &why));
    if (open) {
        double age = s.figures_age_ns == UINT64_MAX ? NAN : (double)s.figures_age_ns / 1e9;
#define X(name, type, value, help)                                                                 \
    _Generic((value), double: put_real, default: put_u64)(out, #name, #type, value, help,          \
                                                          openmetrics);
        GATE_METRICS(X)
#undef X
        put_refused(out, &s, openmetrics);
    }
    if (openmetrics) {
        plim_buf_text(out, "# EOF\n");
    }
}
