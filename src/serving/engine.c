/* SPDX-License-Identifier: Apache-2.0 */
/* See engine.h. */

#include "serving/engine.h"

#include "base/num.h"
#include "serving/door_run.h"
#include "serving/weights.h"

#include <math.h>

/* ---- latencies --------------------------------------------------------------------------------------- */

static void note_latency(struct plim__latencies *l, uint64_t ns)
{
    double us = (double)ns / 1e3;
    double bin = us > 1 ? 40 * log(us) : 0;
    l->bins[bin < PLIM__LATENCY_BINS - 1 ? (size_t)bin : PLIM__LATENCY_BINS - 1]++;
    l->n++;
}

static uint64_t latency_at(const struct plim__latencies *l, double share)
{
    uint64_t below = 0, want = (uint64_t)(share * (double)l->n);
    for (size_t i = 0; i < PLIM__LATENCY_BINS; i++) {
        below += l->bins[i];
        if (below > want) {
            return (uint64_t)(1e3 * exp(((double)i + 0.5) / 40));
        }
    }
    return 0;
}

void plim__engine_latencies(struct plim__engine *e)
{
    e->r.latency = (struct plim_soak_latency){
        .first_p50 = latency_at(&e->first, 0.5),
        .first_p99 = latency_at(&e->first, 0.99),
        .total_p50 = latency_at(&e->total, 0.5),
        .total_p99 = latency_at(&e->total, 0.99),
    };
}

/* ---- sizes ---------------------------------------------------------------------------------------- */

void plim__engine_size(struct plim__engine *e, enum plim_bucket bucket, uint32_t size)
{
    struct plim_soak_sizes *s = e->setup->sizes;
    if (!s || e->setup->sizes_of != (unsigned)bucket || e->feed.status != PLIM_OK) {
        return;
    }
    const uint64_t *at = plim_map_get(&s->index, size);
    if (at) {
        s->items.items[*at].count++;
        return;
    }
    enum plim_status st = plim_map_put(&s->index, size, s->items.n, &e->feed.err);
    if (st == PLIM_OK) {
        st = plim_vec_push(&s->items, &e->feed.err, (struct plim_soak_size){size, 1});
    }
    e->feed.status = st;
}

void plim_soak_sizes_fini(struct plim_soak_sizes *sizes)
{
    plim_vec_fini(&sizes->items);
    plim_map_fini(&sizes->index);
}

/* ---- time and memory ---------------------------------------------------------------------------------- */

struct gauges {
    uint64_t active, reserved, stranded, headroom;
};

static struct gauges look(const struct plim__engine *e)
{
    struct plim_torch_gauges g = plim_feed_gauges(&e->feed);
    return (struct gauges){
        .active = g.active,
        .reserved = g.reserved,
        .stranded = plim_sub_sat(g.reserved, plim_add_sat(g.active, g.releasable)),
        .headroom = plim_devmodel_free_bytes(&e->device) + g.releasable,
    };
}

static void sample(struct plim__engine *e, const struct gauges *g)
{
    struct plim_soak_result *r = &e->r;
    while (e->now_ns >= e->sample_next && r->n_samples < PLIM_SOAK_SAMPLES) {
        r->samples[r->n_samples++] = (struct plim_soak_sample){
            .at_ns = e->sample_next,
            .active = g->active,
            .reserved = g->reserved,
            .stranded = g->stranded,
            .headroom = g->headroom,
            .waiting = (uint32_t)plim_min_u64(plim__engine_waiting(e), UINT32_MAX),
            .running = e->running,
        };
        e->sample_next += e->sample_every;
    }
}

/* Time passes with memory as it is. */
static void pass(struct plim__engine *e, uint64_t ns, double kv)
{
    struct gauges g = look(e);
    double s = (double)ns / 1e9;
    double fragmentation = g.reserved > 0 ? (double)g.stranded / (double)g.reserved : 0;
    struct plim_soak_result *r = &e->r;
    e->active_time += s * (double)g.active;
    e->reserved_time += s * (double)g.reserved;
    e->stranded_time += s * (double)g.stranded;
    e->fragmentation_time += s * fragmentation;
    e->kv_time += s * kv;
    e->now_ns = plim_add_sat(e->now_ns, ns);
    r->peak.active = plim_max_u64(r->peak.active, g.active);
    r->peak.reserved = plim_max_u64(r->peak.reserved, g.reserved);
    r->peak.stranded = plim_max_u64(r->peak.stranded, g.stranded);
    r->peak.fragmentation = fmax(r->peak.fragmentation, fragmentation);
    r->least_headroom = plim_min_u64(r->least_headroom, g.headroom);
    r->kv_peak = fmax(r->kv_peak, kv);
    sample(e, &g);
}

void plim__engine_step(struct plim__engine *e, uint64_t ns, double kv)
{
    uint64_t stall = e->device.stall_ns - e->stall_seen;
    e->stall_seen = e->device.stall_ns;
    e->r.worst_stall_ns = plim_max_u64(e->r.worst_stall_ns, stall);
    e->r.steps++;
    pass(e, ns + stall, kv);
    if (e->half_gets == 0 && e->now_ns * 2 >= e->setup->flow->span_ns) {
        e->half_gets = e->feed.gets;
        e->half_calls = plim_devmodel_total_calls(&e->device);
    }
}

#define STEP_MAX                                                                                   \
    UINT64_C(1000000000000000) /* ns, eleven days: longer than any run is interesting */

uint64_t plim__engine_work(const struct plim__engine *e, double tokens, double kv_bytes)
{
    const struct plim_server *s = e->s;
    double arithmetic = 2 * (double)s->parameters * tokens / s->flops;
    double memory = ((double)s->weight_bytes + kv_bytes) / s->bandwidth;
    return plim_add_sat(s->step_ns, plim_u64_of(fmax(arithmetic, memory) * 1e9, STEP_MAX));
}

/* ---- requests ----------------------------------------------------------------------------------------- */

size_t plim__engine_waiting(const struct plim__engine *e)
{
    return e->waiting.n - e->head;
}

/* Too long for the server, or nothing that this workload does. */
static bool refused(const struct plim__engine *e, const struct plim_arrival *a)
{
    return e->s->workload == PLIM_WORKLOAD_PICTURES
               ? a->images == 0
               : a->prompt == 0 || (uint64_t)a->prompt + a->output > e->s->max_length;
}

/* The flow's latest arrival, with the hashes of its prompt. */
static struct plim__ticket ticket_of_next(const struct plim__engine *e)
{
    struct plim__ticket t = {.a = e->next};
    const uint64_t *hashes = plim_flow_hashes(e->flow, &t.prefix.salt, &t.hash_tokens);
    if (hashes && t.a.n_hashes > 0) {
        t.prefix.hashes = hashes;
        t.prefix.n = (uint32_t)plim_min_u64(t.a.n_hashes, t.a.prompt / t.hash_tokens);
    }
    return t;
}

void plim__engine_arrive(struct plim__engine *e)
{
    while (e->have_next && e->next.at_ns <= e->now_ns && e->feed.status == PLIM_OK) {
        e->r.arrivals++;
        if (refused(e, &e->next)) {
            e->r.refused++;
        } else {
            struct plim__ticket t = ticket_of_next(e);
            plim__door_ask(e, &t);
        }
        e->have_next = plim_flow_next(e->flow, &e->next);
    }
}

void plim__engine_wait(struct plim__engine *e, uint64_t until_ns)
{
    if (until_ns > e->now_ns) {
        pass(e, until_ns - e->now_ns, 0);
    }
}

bool plim__engine_idle(struct plim__engine *e)
{
    if (!e->have_next) {
        return false;
    }
    plim__engine_wait(e, e->next.at_ns);
    plim__engine_arrive(e);
    return true;
}

bool plim__engine_until_work(struct plim__engine *e)
{
    while (e->r.started && !plim__engine_over(e)) {
        plim__engine_arrive(e);
        if (plim__engine_waiting(e) > 0) {
            return true;
        }
        e->running = 0;
        if (!plim__engine_idle(e)) {
            return false;
        }
    }
    return false;
}

struct plim__ticket plim__engine_take(struct plim__engine *e)
{
    struct plim__ticket ticket = e->waiting.items[e->head++];
    if (e->head >= 4096 && e->head * 2 > e->waiting.n) { /* what was taken is half of the list */
        size_t rest = e->waiting.n - e->head;
        memmove(e->waiting.items, e->waiting.items + e->head, rest * sizeof ticket);
        e->waiting.n = rest;
        e->head = 0;
    }
    return ticket;
}

void plim__engine_return(struct plim__engine *e, const struct plim__ticket *ticket)
{
    if (e->head > 0) {
        e->waiting.items[--e->head] = *ticket;
        return;
    }
    e->feed.status = plim_vec_push(&e->waiting, &e->feed.err, *ticket);
    if (e->feed.status == PLIM_OK) {
        memmove(e->waiting.items + 1, e->waiting.items, (e->waiting.n - 1) * sizeof *ticket);
        e->waiting.items[0] = *ticket;
    }
}

void plim__engine_first(struct plim__engine *e, struct plim__ticket *ticket)
{
    if (!ticket->seen_first) {
        ticket->seen_first = true;
        plim__door_first(e, ticket);
        note_latency(&e->first, plim_sub_sat(e->now_ns, ticket->a.at_ns));
    }
}

void plim__engine_done(struct plim__engine *e, const struct plim__ticket *ticket)
{
    note_latency(&e->total, plim_sub_sat(e->now_ns, ticket->a.at_ns));
    plim__door_done(e, ticket);
    e->r.served++;
}

bool plim__engine_failed(struct plim__engine *e, uint64_t lost)
{
    if (!e->feed.failed || e->feed.status != PLIM_OK) {
        return false;
    }
    if (!e->r.failed) {
        const struct plim_torch_failure *f = &e->feed.failure;
        e->r.failed = true;
        e->r.first_oom.at_ns = e->now_ns;
        e->r.first_oom.request_bytes = f->requested;
        e->r.first_oom.device_free = f->device_free;
        e->r.first_oom.reserved = f->reserved;
        e->r.first_oom.stranded = e->feed.stranded_at_failure;
        e->r.first_oom.during = e->during;
    }
    e->r.lost += lost;
    plim_feed_clear(&e->feed);
    return true;
}

bool plim__engine_over(const struct plim__engine *e)
{
    uint64_t budget = e->setup->budget_ns;
    return e->feed.status != PLIM_OK || (budget > 0 && e->now_ns >= budget) ||
           (e->r.failed && e->setup->stop_at_failure);
}

/* ---- weights ------------------------------------------------------------------------------------------ */

/* Whether the next weight is kept in one allocation with this one. */
static bool together(const struct plim_weight *a, const struct plim_weight *b)
{
    return a->fused && b->fused && a->layer == b->layer && (a->cols > 1) == (b->cols > 1) &&
           strcmp(a->fused, b->fused) == 0;
}

enum plim_status plim__engine_weights(struct plim__engine *e, struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_weight_list list;
    const struct plim_geometry *g = e->s->geometry;
    const struct plim_placement whole = PLIM_PLACEMENT_WHOLE;
    for (uint32_t i = 0; !g && i < PLIM__DENOISER_BLOCKS; i++) {
        plim_feed_get(&e->feed, e->s->weight_bytes / PLIM__DENOISER_BLOCKS);
    }
    if (!g) {
        return PLIM_OK;
    }
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_weights_list(&arena, g, &list, err);
    uint64_t bytes = 0;
    for (size_t i = 0; st == PLIM_OK && i < list.n; i++) {
        struct plim_weight local;
        if (plim_weight_local(g, &whole, &list.items[i], &local)) {
            bytes += plim_weight_bytes(g, &local, NULL);
        }
        if (i + 1 == list.n || !together(&list.items[i], &list.items[i + 1])) {
            plim_feed_get(&e->feed, bytes); /* stays until the end of the run */
            bytes = 0;
        }
    }
    plim_arena_fini(&arena);
    return st;
}
