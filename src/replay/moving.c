/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay on Plimsoll's own allocator. The same requests, the same figures; blocks from before the
 * recording are asked for anew, since they can only have come from there. Streams and pools keep apart
 * as in PyTorch: a private pool's memory serves nobody else while the pool lives.
 */

#include "alloc/moving.h"
#include "replay/replay_int.h"

struct run {
    const struct plim_requests *q;
    const struct plim_replay_setup *setup;
    struct plim_replay_result *result;
    struct plim_devmodel device;
    struct plim_moving model;
    uint64_t *addr;   /* owned, [slots]: 0: not live */
    uint64_t next_at; /* allocation index of the next sample */
    uint64_t limit;   /* bytes it may have; UINT64_MAX: no limit */
    uint64_t most_live;
    double stranded_sum;
};

static struct plim_engine_stats stats_of(const struct run *r)
{
    struct plim_engine_stats s;
    plim_engine_stats(r->model.engine, &s);
    return s;
}

static uint64_t stranded_of(const struct plim_engine_stats *s)
{
    return plim_sub_sat(s->reserved, s->live + s->releasable);
}

static void note_headroom(struct run *r, const struct plim_engine_stats *s)
{
    if (r->limit != UINT64_MAX) {
        uint64_t room = plim_sub_sat(r->limit, s->reserved) + s->releasable;
        r->result->least_headroom = plim_min_u64(r->result->least_headroom, room);
    }
}

static void sample(struct run *r, const struct plim_engine_stats *s)
{
    struct plim_replay_result *out = r->result;
    uint64_t stranded = stranded_of(s);
    out->peak.stranded = plim_max_u64(out->peak.stranded, stranded);
    if (out->n_samples < PLIM_REPLAY_SAMPLES) {
        out->samples[out->n_samples++] =
            (struct plim_replay_sample){out->allocs, s->live, s->reserved, stranded};
        r->stranded_sum += (double)stranded;
    }
    r->next_at = (out->n_samples * r->q->allocs + PLIM_REPLAY_SAMPLES - 1) / PLIM_REPLAY_SAMPLES;
}

/* Behind each allocation: cheap unless there is something new to see. */
static void look(struct run *r)
{
    bool due = r->result->allocs >= r->next_at;
    struct plim_engine_stats s = stats_of(r);
    if (due) {
        sample(r, &s);
    }
    if (due || s.live > r->most_live) {
        r->most_live = plim_max_u64(r->most_live, s.live);
        note_headroom(r, &s);
    }
}

static enum plim_status serve(struct run *r, uint32_t slot, uint64_t size, struct plim_lane lane,
                              bool *failed, struct plim_err *err)
{
    uint64_t stream = (uint64_t)r->q->snapshot->streams.items[lane.stream];
    PLIM_TRY(plim_moving_alloc(&r->model, size, stream, lane.pool, &r->addr[slot], err));
    *failed = r->addr[slot] == 0;
    return PLIM_OK;
}

static enum plim_status start(struct run *r, struct plim_err *err)
{
    const struct plim_heap *heap = &r->q->start;
    for (size_t i = 0; i < heap->blocks.n; i++) {
        const struct plim_block *block = &heap->blocks.items[i];
        const struct plim_segment *segment = &heap->segments.items[block->segment];
        uint32_t slot = r->q->start_slots.items[i];
        bool failed = false;
        if (slot == PLIM_NO_ID) {
            continue;
        }
        bool known = block->requested > 0 && block->requested <= block->size;
        struct plim_lane lane = {segment->stream, segment->pool};
        PLIM_TRY(serve(r, slot, known ? block->requested : block->size, lane, &failed, err));
        r->result->start_failed += failed;
    }
    return PLIM_OK;
}

static void note_failure(struct run *r, uint64_t size)
{
    struct plim_replay_result *out = r->result;
    struct plim_engine_stats s = stats_of(r);
    if (!out->failed) {
        out->failed = true;
        out->first_oom.alloc_index = out->allocs;
        out->first_oom.request_bytes = size;
        out->first_oom.device_free = plim_devmodel_free_bytes(&r->device);
        out->first_oom.stranded = stranded_of(&s);
    }
    note_headroom(r, &s);
}

/* Only allocations, flushes and drops have one; a trace of nothing but frees has no lanes at all. */
static struct plim_lane lane_of(const struct run *r, const struct plim_request *request)
{
    return r->q->lanes.items[plim_request_lane(request)];
}

static enum plim_status step(struct run *r, const struct plim_request *request, bool *stop,
                             struct plim_err *err)
{
    uint64_t addr = r->addr[request->slot];
    switch (plim_request_kind(request)) {
    case PLIM_REQUEST_ALLOC: {
        uint64_t size = plim__request_scaled(request, r->setup->scale);
        bool failed = false;
        PLIM_TRY(serve(r, request->slot, size, lane_of(r, request), &failed, err));
        r->result->last.failed = failed;
        if (failed) {
            note_failure(r, size);
            *stop = !r->setup->go_on;
            return PLIM_OK;
        }
        r->result->allocs++;
        look(r);
        *stop = r->result->allocs == r->setup->until;
        return PLIM_OK;
    }
    case PLIM_REQUEST_FREE:
    case PLIM_REQUEST_FREE_END:
        r->addr[request->slot] = 0;
        return addr ? plim_moving_free(&r->model, addr, err) : PLIM_OK;
    case PLIM_REQUEST_FLUSH:
        plim_engine_trim(r->model.engine);
        return PLIM_OK;
    case PLIM_REQUEST_POOL_DROP:
        plim_engine_drop_pool(r->model.engine, lane_of(r, request).pool);
        return PLIM_OK;
    default: /* the end of a free that waits counts */
        return PLIM_OK;
    }
}

static void finish(struct run *r)
{
    struct plim_replay_result *out = r->result;
    struct plim_engine_stats s = stats_of(r);
    out->peak.allocated = s.peak_live;
    out->peak.active = s.peak_live;
    out->peak.reserved = s.peak_reserved;
    out->peak.requested = s.peak_requested;
    out->peak.stranded = plim_max_u64(out->peak.stranded, stranded_of(&s));
    out->last.active = s.live;
    out->last.reserved = s.reserved;
    out->last.stranded = stranded_of(&s);
    out->num_ooms = s.failures;
    out->num_device_alloc = s.created;
    out->num_device_free = s.released;
    out->events = s.allocs + s.frees;
    out->plan.placed = s.placed;
    out->plan.displaced = s.displaced;
    out->plan.astray = s.astray;
    out->stall_ns = r->device.stall_ns;
    out->driver_calls = plim_devmodel_total_calls(&r->device);
    out->mean_stranded = out->n_samples ? (uint64_t)(r->stranded_sum / (double)out->n_samples) : 0;
}

static enum plim_status run(struct run *r, struct plim_err *err)
{
    PLIM_TRY(start(r, err));
    plim_engine_reset_peaks(r->model.engine);
    plim_devmodel_forget_calls(&r->device);
    bool stop = false;
    for (size_t i = 0; i < r->q->items.n && !stop; i++) {
        PLIM_TRY(step(r, &r->q->items.items[i], &stop, err));
    }
    return PLIM_OK;
}

enum plim_status plim__replay_moving(const struct plim_requests *q,
                                     const struct plim_replay_setup *setup, uint64_t total,
                                     struct plim_replay_result *out, struct plim_err *err)
{
    struct plim_replay_result result = {.least_headroom = UINT64_MAX};
    struct run r = {.q = q, .setup = setup, .result = &result, .limit = UINT64_MAX};
    struct plim_devmodel_config device = {.total = total,
                                          .external = setup->capacity > 0 ? setup->external : 0};
    if (setup->capacity > 0) {
        r.limit = setup->capacity - setup->external;
    }
    r.addr = calloc((size_t)q->slots + 1, sizeof *r.addr);
    if (!r.addr) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a replay of %u live blocks", q->slots);
    }
    enum plim_status st = plim_devmodel_init(&r.device, &device, err);
    if (st == PLIM_OK) {
        st = plim_moving_init(&r.model, &r.device, setup->moving, err);
        if (st == PLIM_OK) {
            st = run(&r, err);
        }
        if (st == PLIM_OK) {
            finish(&r);
            *out = result;
        }
        plim_moving_fini(&r.model);
        plim_devmodel_fini(&r.device);
    }
    free(r.addr);
    return st;
}
