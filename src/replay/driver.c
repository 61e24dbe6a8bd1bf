/* SPDX-License-Identifier: Apache-2.0 */
/* Driver calls on another device; see driver.h. */

#include "replay/driver.h"

#include "base/map.h"
#include "base/num.h"

struct driver_run {
    const struct plim_replay_setup *setup;
    const struct plim_outside *outside;
    struct plim_map live; /* address -> bytes, of requests that were served */
    size_t change;        /* of the outside, done so far */
    uint64_t owner[PLIM_OWNERS];
    uint64_t beside; /* bytes of owners that are not in the heap */
    uint64_t held;   /* bytes of live requests */
    struct plim_replay_result *out;
};

enum plim_status plim_replay_needs_blocks(const struct plim_snapshot *snapshot,
                                          struct plim_err *err)
{
    if (snapshot->level == PLIM_LEVEL_BLOCKS) {
        return PLIM_OK;
    }
    plim__fail(err, PLIM_E_UNSUPPORTED,
               "a trace of driver calls has nothing that an allocator's settings would change");
    plim__err_hint(err, "take a snapshot of PyTorch's allocator: plimsoll record leaves one when "
                        "memory runs out");
    return PLIM_E_UNSUPPORTED;
}

/* Other owners up to a position of the trace. */
static void follow_outside(struct driver_run *r, size_t position)
{
    const struct plim_outside *o = r->outside;
    for (; r->change < o->changes.n && o->changes.items[r->change].position <= position;
         r->change++) {
        const struct plim_outside_change *c = &o->changes.items[r->change];
        if (c->owner < PLIM_OWNERS && (o->allocator >> c->owner & 1u) == 0) {
            r->beside += c->bytes - r->owner[c->owner];
            r->owner[c->owner] = c->bytes;
        }
    }
}

static uint64_t room(const struct driver_run *r)
{
    uint64_t taken = plim_add_sat(plim_add_sat(r->setup->external, r->beside), r->held);
    return r->setup->capacity == 0 ? UINT64_MAX : plim_sub_sat(r->setup->capacity, taken);
}

/* One request; false when the device has no room for it. */
static bool ask(struct driver_run *r, uint64_t size)
{
    struct plim_replay_result *out = r->out;
    if (size <= room(r)) {
        out->allocs++;
        return true;
    }
    out->num_ooms++;
    if (!out->failed) {
        out->failed = true;
        out->first_oom.alloc_index = out->allocs + out->num_ooms - 1;
        out->first_oom.request_bytes = size;
        out->first_oom.device_free = room(r);
    }
    return false;
}

static enum plim_status serve(struct driver_run *r, const struct plim_event *e,
                              struct plim_err *err)
{
    struct plim_replay_result *out = r->out;
    if (!ask(r, e->size)) {
        return PLIM_OK;
    }
    out->num_device_alloc++;
    r->held = plim_add_sat(r->held, e->size);
    out->peak.reserved = plim_max_u64(out->peak.reserved, r->held);
    uint64_t headroom = room(r);
    out->least_headroom = plim_min_u64(out->least_headroom, headroom);
    return plim_map_put(&r->live, e->addr, e->size, err);
}

static enum plim_status step(struct driver_run *r, const struct plim_event *e, struct plim_err *err)
{
    uint64_t size;
    if (e->action == PLIM_ACTION_ALLOC && e->addr != PLIM_MAP_NO_KEY) {
        return serve(r, e, err);
    }
    if (e->action == PLIM_ACTION_OOM) {
        (void)ask(
            r, e->size); /* served, it is given back at once: nobody knows how long it would live */
    } else if (e->action == PLIM_ACTION_FREE_COMPLETED && plim_map_take(&r->live, e->addr, &size)) {
        r->held -= size;
        r->out->num_device_free++;
    }
    return PLIM_OK;
}

enum plim_status plim_replay_driver(const struct plim_requests *requests,
                                    const struct plim_replay_setup *setup,
                                    struct plim_replay_result *out, struct plim_err *err)
{
    struct plim_replay_result result = {.least_headroom = UINT64_MAX};
    struct driver_run r = {.setup = setup, .outside = &requests->device->outside, .out = &result};
    const struct plim_trace *trace = &requests->device->trace;
    enum plim_status st = PLIM_OK;
    if (requests->snapshot->level == PLIM_LEVEL_BLOCKS ||
        (setup->scale != 0 && setup->scale != 1)) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "driver calls are replayed as they were");
    }
    for (size_t i = 0; st == PLIM_OK && i < trace->events.n; i++) {
        follow_outside(&r, i);
        st = step(&r, &trace->events.items[i], err);
        result.events++;
        bool enough = setup->until != 0 && result.allocs + result.num_ooms >= setup->until;
        if (enough || (result.failed && !setup->go_on)) {
            break;
        }
    }
    plim_map_fini(&r.live);
    if (st != PLIM_OK) {
        return st;
    }
    result.peak.allocated = result.peak.active = result.peak.requested = result.peak.reserved;
    result.last.active = result.last.reserved = r.held;
    result.driver_calls = result.num_device_alloc + result.num_device_free;
    *out = result;
    return PLIM_OK;
}
