/* SPDX-License-Identifier: Apache-2.0 */
/* A replay as JSON, schema plimsoll.replay/1, and a self-check, plimsoll.selfcheck/1. */

#include "report/replay.h"

#include "diagnose/site.h"

#include <stdio.h>

static void first_oom(struct plim_jsonw *w, const struct plim_replay_result *r)
{
    plim_jsonw_key(w, "first_oom");
    if (!r->failed) {
        plim_jsonw_null(w);
        return;
    }
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "alloc_index", r->first_oom.alloc_index);
    plim_jsonw_kv_u64(w, "request_bytes", r->first_oom.request_bytes);
    plim_jsonw_end(w);
}

static void peak(struct plim_jsonw *w, const struct plim_replay_result *r)
{
    plim_jsonw_key(w, "peak");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "allocated_bytes", r->peak.allocated);
    plim_jsonw_kv_u64(w, "active_bytes", r->peak.active);
    plim_jsonw_kv_u64(w, "reserved_bytes", r->peak.reserved);
    plim_jsonw_kv_u64(w, "requested_bytes", r->peak.requested);
    plim_jsonw_end(w);
}

static void counters(struct plim_jsonw *w, const struct plim_replay_result *r)
{
    plim_jsonw_key(w, "counters");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "num_alloc_retries", r->num_alloc_retries);
    plim_jsonw_kv_u64(w, "num_ooms", r->num_ooms);
    plim_jsonw_kv_u64(w, "num_device_alloc", r->num_device_alloc);
    plim_jsonw_kv_u64(w, "num_device_free", r->num_device_free);
    plim_jsonw_end(w);
}

static void driver_and_room(struct plim_jsonw *w, const struct plim_replay_result *r)
{
    plim_jsonw_key(w, "driver");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "calls", r->driver_calls);
    plim_jsonw_kv_u64(w, "stall_ns", r->stall_ns);
    plim_jsonw_kv_text(w, "how", "estimated");
    plim_jsonw_end(w);
    plim_jsonw_key(w, "stranded");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "mean_bytes", r->mean_stranded);
    plim_jsonw_kv_u64(w, "peak_bytes", r->peak.stranded);
    plim_jsonw_end(w);
    if (r->least_headroom != UINT64_MAX) {
        plim_jsonw_kv_u64(w, "least_headroom_bytes", r->least_headroom);
    }
}

void plim_json_replay_run(struct plim_jsonw *w, const struct plim_requests *requests,
                          const struct plim_replay_setup *setup,
                          const struct plim_replay_result *result, const char *conf)
{
    plim_jsonw_kv_text(w, "conf", conf);
    plim_jsonw_key(w, "capacity_bytes");
    if (setup->capacity > 0) {
        plim_jsonw_u64(w, setup->capacity);
    } else {
        plim_jsonw_null(w);
    }
    plim_jsonw_kv_u64(w, "external_bytes", setup->external);
    plim_jsonw_kv_u64(w, "events", result->events);
    plim_jsonw_kv_u64(w, "allocations", result->allocs);
    first_oom(w, result);
    peak(w, result);
    counters(w, result);
    driver_and_room(w, result);
    if (setup->moving && setup->moving->plan) {
        plim_jsonw_key(w, "plan");
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "placed", result->plan.placed);
        plim_jsonw_kv_u64(w, "displaced", result->plan.displaced);
        plim_jsonw_kv_u64(w, "astray", result->plan.astray);
        plim_jsonw_end(w);
    }
    plim_jsonw_kv_text(w, "start",
                       requests->complete                ? "empty"
                       : setup->start == PLIM_START_ANEW ? "anew"
                                                         : "as_was");
}

void plim_json_doubts(struct plim_jsonw *w, const struct plim_requests *requests)
{
    plim_jsonw_key(w, "doubts");
    plim_jsonw_array(w);
#define PLIM__X(field, meaning)                                                                    \
    if (requests->doubts.field > 0) {                                                              \
        plim_jsonw_object(w);                                                                      \
        plim_jsonw_kv_text(w, "name", #field);                                                     \
        plim_jsonw_kv_u64(w, "count", requests->doubts.field);                                     \
        plim_jsonw_kv_text(w, "text", meaning);                                                    \
        plim_jsonw_end(w);                                                                         \
    }
    PLIM_DOUBT_MAP(PLIM__X)
#undef PLIM__X
    plim_jsonw_end(w);
}

/* What failed in the recording, and whether the model knows why. */
static void recorded_failure(struct plim_jsonw *w, const struct plim_replay_view *v)
{
    const struct plim_requests *q = v->requests;
    plim_jsonw_key(w, "recorded_failure");
    if (!q->recorded_failure) {
        plim_jsonw_null(w);
        return;
    }
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "event", q->failure_event);
    plim_jsonw_kv_u64(w, "request_bytes", q->device->trace.events.items[q->failure_event].size);
    plim_jsonw_kv_u64(w, "room_bytes", plim_replay_capacity(q));
    plim_jsonw_key(w, "reproduced");
    if (v->reproduced) {
        plim_jsonw_bool(w, *v->reproduced);
    } else {
        plim_jsonw_null(w);
    }
    plim_jsonw_end(w);
}

static void samples(struct plim_jsonw *w, const struct plim_replay_result *r)
{
    plim_jsonw_key(w, "samples");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < r->n_samples; i++) {
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "alloc_index", r->samples[i].alloc_index);
        plim_jsonw_kv_u64(w, "active_bytes", r->samples[i].active);
        plim_jsonw_kv_u64(w, "reserved_bytes", r->samples[i].reserved);
        plim_jsonw_kv_u64(w, "stranded_bytes", r->samples[i].stranded);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

/* Where the program asked for what it did not get. */
static void failure(struct plim_jsonw *w, const struct plim_replay_view *v)
{
    const struct plim_replay_result *r = v->result;
    const struct plim_snapshot *s = v->requests->snapshot;
    plim_jsonw_key(w, "failure");
    if (!r->failed) {
        plim_jsonw_null(w);
        return;
    }
    uint32_t event = plim_requests_event(v->requests, r->first_oom.alloc_index);
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "device_free_bytes", r->first_oom.device_free);
    plim_jsonw_kv_u64(w, "stranded_bytes", r->first_oom.stranded);
    if (event != PLIM_NO_EVENT) {
        size_t n = 0;
        const struct plim_event *e = &v->requests->device->trace.events.items[event];
        const uint32_t *ids = plim_stacks_frames(&s->stacks, e->stack, &n);
        plim_jsonw_kv_u64(w, "event", event);
        plim_jsonw_key(w, "frames");
        plim_jsonw_array(w);
        for (size_t i = 0; i < n; i++) {
            const struct plim_frame *f = &s->stacks.frames.items[ids[i]];
            plim_jsonw_object(w);
            plim_jsonw_kv_str(w, "name", plim_intern_str(&s->strings, f->name));
            plim_jsonw_kv_str(w, "file", plim_intern_str(&s->strings, f->file));
            plim_jsonw_kv_u64(w, "line", f->line);
            plim_jsonw_end(w);
        }
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_allocator(struct plim_jsonw *w, const struct plim_moving_options *moving)
{
    plim_jsonw_kv_text(w, "allocator", moving ? "plimsoll" : "pytorch");
    if (moving) {
        plim_jsonw_kv_text(w, "mode", plim_engine_mode_text(moving->rounding.mode));
    }
}

static void json_places(struct plim_jsonw *w, uint32_t placed, const struct plim_places *p)
{
    plim_jsonw_kv_u64(w, "placed", placed);
    plim_jsonw_kv_u64(w, "height_bytes", p->height);
    plim_jsonw_kv_u64(w, "least_bytes", p->bound);
}

static void json_seating(struct plim_jsonw *w, const struct plim_seating_facts *f)
{
    if (!f) {
        return;
    }
    plim_jsonw_key(w, "seating");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "first_allocation", f->period.first);
    plim_jsonw_kv_u64(w, "period", f->period.length);
    plim_jsonw_kv_u64(w, "repeats", f->period.n / f->period.length);
    plim_jsonw_kv_u64(w, "once", f->once);
    plim_jsonw_kv_u64(w, "requests", f->once + f->period.length * f->periods);
    json_places(w, f->placed, &f->places);
    plim_jsonw_key(w, "areas");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < f->n_areas; i++) {
        const struct plim_seating_area *a = &f->areas[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "lane", a->lane);
        plim_jsonw_kv_bool(w, "large", a->large);
        json_places(w, a->placed, &a->places);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

void plim_json_replay(struct plim_jsonw *w, const struct plim_replay_view *v,
                      struct plim_arena *arena)
{
    char version[16];
    (void)arena;
    snprintf(version, sizeof version, "%u.%u", v->setup->conf->version.major,
             v->setup->conf->version.minor);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.replay/1");
    plim_jsonw_kv_text(w, "torch_version", version);
    plim_jsonw_kv_text(w, "capacity_how", v->capacity_by);
    plim_json_allocator(w, v->setup->moving);
    plim_json_replay_run(w, v->requests, v->setup, v->result, v->conf);
    json_seating(w, v->seating);
    failure(w, v);
    recorded_failure(w, v);
    samples(w, v->result);
    plim_json_doubts(w, v->requests);
    plim_jsonw_end(w);
}

void plim_json_selfcheck(struct plim_jsonw *w, const struct plim_selfcheck *c)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.selfcheck/1");
    plim_jsonw_kv_u64(w, "events_compared", c->compared);
    plim_jsonw_kv_u64(w, "events_total", c->total);
    plim_jsonw_kv_u64(w, "segment_events_compared", c->segments);
    plim_jsonw_kv_u64(w, "differences", c->differences);
    plim_jsonw_kv_bool(w, "complete_history", c->complete);
    plim_jsonw_key(w, "settings_changes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < c->n_changes; i++) {
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "alloc_index", c->changes[i].alloc_index);
        plim_jsonw_kv_text(w, "conf", c->changes[i].conf);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "first_difference");
    if (c->differences == 0) {
        plim_jsonw_null(w);
    } else {
        plim_jsonw_object(w);
        if (c->event != PLIM_NO_EVENT) {
            plim_jsonw_kv_u64(w, "event", c->event);
        }
        plim_jsonw_kv_text(w, "text", c->difference);
        plim_jsonw_end(w);
    }
    plim_jsonw_key(w, "final_heap");
    if (!c->heap_compared) {
        plim_jsonw_text(w, "not reached");
    } else {
        plim_jsonw_text(w, c->heap_equal ? "equal" : c->heap_difference);
    }
    plim_jsonw_end(w);
}
