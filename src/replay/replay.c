/* SPDX-License-Identifier: Apache-2.0 */
/* One replay: the stage, the loop over the requests, what is measured on the way and at the end. */

#include "base/bytes.h"
#include "replay/replay_int.h"

/* A device when there is no limit: 1 TiB, or what the recording hints at. */
#define NO_LIMIT (UINT64_C(1) << 40)
#define MOST     (4 * NO_LIMIT) /* of any device: a hostile trace may hint at anything */

struct run {
    const struct plim_requests *q;
    const struct plim_replay_setup *setup;
    struct plim__stage stage;
    struct plim_replay_result *result;
    uint64_t limit;       /* bytes the allocator may have; UINT64_MAX: no limit */
    uint64_t next_at;     /* allocation index of the next sample */
    uint64_t most_active; /* so far, bytes */
    double stranded_sum;
};

static uint64_t stranded_of(const struct plim_torch_gauges *g)
{
    return plim_sub_sat(g->reserved, plim_add_sat(g->active, g->releasable));
}

/* ---- the start ---------------------------------------------------------------------------------- */

/* Only the live blocks, in the order of their addresses. */
static enum plim_status start_anew(struct run *r, struct plim_err *err)
{
    const struct plim_heap *start = &r->q->start;
    for (size_t i = 0; i < start->blocks.n; i++) {
        const struct plim_block *block = &start->blocks.items[i];
        uint32_t slot = r->q->start_slots.items[i];
        if (slot == PLIM_NO_ID) {
            continue;
        }
        const struct plim_segment *segment = &start->segments.items[block->segment];
        struct plim__stage *s = &r->stage;
        uint64_t size = block->requested > 0 && block->requested <= block->size ? block->requested
                                                                                : block->size;
        uint16_t stream = segment->stream < s->n_streams ? s->streams[segment->stream] : 0;
        uint16_t pool = segment->pool < s->n_pools ? s->pools[segment->pool] : 0;
        PLIM_TRY(plim_torch_alloc(s->torch, size, stream, pool, &s->handles[slot], err));
        if (s->handles[slot] == PLIM_TORCH_NONE) {
            r->result->start_failed++;
        } else if (block->state == PLIM_BLOCK_PENDING_FREE) {
            PLIM_TRY(plim_torch_free_deferred(s->torch, s->handles[slot], err));
        }
    }
    return PLIM_OK;
}

static uint64_t no_limit(const struct plim_requests *q)
{
    uint64_t hint = plim_min_u64(q->recorded_peak_reserved, MOST / 2) * 2;
    return plim_max_u64(NO_LIMIT, hint);
}

static enum plim_status begin(struct run *r, struct plim_err *err)
{
    const struct plim_replay_setup *setup = r->setup;
    struct plim_devmodel_config device = {
        .total = setup->capacity > 0 ? setup->capacity : no_limit(r->q),
        .external = setup->capacity > 0 ? setup->external : 0,
    };
    PLIM_TRY(plim__stage_init(&r->stage, r->q, setup->conf, &device, NULL, NULL, err));
    if (setup->start == PLIM_START_ANEW) {
        PLIM_TRY(start_anew(r, err));
    } else {
        PLIM_TRY(plim__stage_restore(&r->stage, err));
    }
    r->limit = setup->capacity > 0 ? setup->capacity - setup->external : UINT64_MAX;
    plim_torch_reset_peak(r->stage.torch);
    plim_torch_reset_accumulated(r->stage.torch);
    plim_devmodel_forget_calls(&r->stage.device);
    return PLIM_OK;
}

/* ---- on the way --------------------------------------------------------------------------------- */

static void note_headroom(struct run *r, const struct plim_torch_gauges *g)
{
    if (r->limit != UINT64_MAX) {
        uint64_t room = plim_add_sat(plim_devmodel_free_bytes(&r->stage.device), g->releasable);
        r->result->least_headroom = plim_min_u64(r->result->least_headroom, room);
    }
}

static void sample(struct run *r, const struct plim_torch_gauges *g)
{
    struct plim_replay_result *out = r->result;
    uint64_t stranded = stranded_of(g);
    out->peak.stranded = plim_max_u64(out->peak.stranded, stranded);
    if (out->n_samples < PLIM_REPLAY_SAMPLES) {
        out->samples[out->n_samples++] =
            (struct plim_replay_sample){out->allocs, g->active, g->reserved, stranded};
        r->stranded_sum += (double)stranded;
    }
    r->next_at = (out->n_samples * r->q->allocs + PLIM_REPLAY_SAMPLES - 1) / PLIM_REPLAY_SAMPLES;
}

/* Behind each allocation: cheap unless there is something new to see. */
static void look(struct run *r)
{
    bool due = r->result->allocs >= r->next_at;
    struct plim_torch_gauges g = plim_torch_gauges(r->stage.torch);
    if (due) {
        sample(r, &g);
    }
    if (due || g.active > r->most_active) {
        r->most_active = plim_max_u64(r->most_active, g.active);
        note_headroom(r, &g);
    }
}

static void note_failure(struct run *r)
{
    struct plim_replay_result *out = r->result;
    struct plim_torch_gauges g = plim_torch_gauges(r->stage.torch);
    const struct plim_torch_failure *f = plim_torch_failure(r->stage.torch);
    if (!out->failed) {
        out->failed = true;
        out->first_oom.alloc_index = out->allocs;
        out->first_oom.request_bytes = f->rounded;
        out->first_oom.device_free = plim_devmodel_free_bytes(&r->stage.device);
        out->first_oom.stranded = stranded_of(&g);
    }
    note_headroom(r, &g);
    out->peak.stranded = plim_max_u64(out->peak.stranded, stranded_of(&g));
}

static enum plim_status loop(struct run *r, struct plim_err *err)
{
    for (size_t i = 0; i < r->q->items.n; i++) {
        const struct plim_request *request = &r->q->items.items[i];
        bool failed = false;
        PLIM_TRY(plim__stage_run(&r->stage, request, plim__request_scaled(request, r->setup->scale),
                                 &failed, err));
        if (plim_request_kind(request) != PLIM_REQUEST_ALLOC) {
            continue;
        }
        r->result->last.failed = failed;
        if (failed) {
            note_failure(r);
            if (!r->setup->go_on) {
                return PLIM_OK;
            }
        }
        r->result->allocs++;
        look(r);
        if (r->result->allocs == r->setup->until) {
            return PLIM_OK;
        }
    }
    return PLIM_OK;
}

/* ---- at the end --------------------------------------------------------------------------------- */

static uint64_t peak_of(const struct plim_torch_stats *s, enum plim_torch_stat stat)
{
    return (uint64_t)s->stat[stat][PLIM_TORCH_ALL].peak;
}

static void finish(struct run *r)
{
    struct plim_replay_result *out = r->result;
    struct plim_torch_stats s;
    struct plim_torch_gauges g = plim_torch_gauges(r->stage.torch);
    plim_torch_stats(r->stage.torch, &s);
    out->last.active = g.active;
    out->last.reserved = g.reserved;
    out->last.stranded = stranded_of(&g);
    out->peak.allocated = peak_of(&s, PLIM_TORCH_STAT_ALLOCATED_BYTES);
    out->peak.active = peak_of(&s, PLIM_TORCH_STAT_ACTIVE_BYTES);
    out->peak.reserved = peak_of(&s, PLIM_TORCH_STAT_RESERVED_BYTES);
    out->peak.requested = peak_of(&s, PLIM_TORCH_STAT_REQUESTED_BYTES);
    out->num_alloc_retries = s.num_alloc_retries;
    out->num_ooms = s.num_ooms;
    out->num_device_alloc = s.num_device_alloc;
    out->num_device_free = s.num_device_free;
    out->num_sync_all_streams = s.num_sync_all_streams;
    const struct plim_stat *handed = &s.stat[PLIM_TORCH_STAT_ALLOCATION][PLIM_TORCH_ALL];
    const struct plim_stat *active = &s.stat[PLIM_TORCH_STAT_ACTIVE][PLIM_TORCH_ALL];
    out->events = (uint64_t)(handed->allocated + handed->freed + active->freed) +
                  s.num_device_alloc + s.num_device_free + s.num_ooms;
    out->stall_ns = r->stage.device.stall_ns;
    out->driver_calls = plim_devmodel_total_calls(&r->stage.device);
    out->mean_stranded = out->n_samples ? (uint64_t)(r->stranded_sum / (double)out->n_samples) : 0;
}

enum plim_status plim_replay(const struct plim_requests *requests,
                             const struct plim_replay_setup *setup, struct plim_replay_result *out,
                             struct plim_err *err)
{
    struct plim_replay_result result = {.least_headroom = UINT64_MAX};
    struct run r = {.q = requests, .setup = setup, .result = &result};
    if (setup->capacity > 0 && setup->external > setup->capacity) {
        char used[PLIM_BYTES_TEXT], size[PLIM_BYTES_TEXT];
        return plim__fail(err, PLIM_E_RANGE, "others use %s, the device has %s",
                          plim_bytes_format(used, setup->external),
                          plim_bytes_format(size, setup->capacity));
    }
    if (setup->moving) {
        uint64_t total = setup->capacity > 0 ? setup->capacity : no_limit(requests);
        return plim__replay_moving(requests, setup, total, out, err);
    }
    enum plim_status st = begin(&r, err);
    if (st == PLIM_OK) {
        st = loop(&r, err);
    }
    if (st == PLIM_OK) {
        finish(&r);
        *out = result;
    }
    plim__stage_fini(&r.stage);
    return st;
}

uint64_t plim_replay_capacity(const struct plim_requests *requests)
{
    uint64_t known =
        requests->cap_seen ? requests->recorded_peak_reserved : requests->recorded_capacity;
    return plim_min_u64(known, MOST);
}
