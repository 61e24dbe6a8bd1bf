/* SPDX-License-Identifier: Apache-2.0 */

/* The identities of an observation. See observation.h. */

#include "observe/observation.h"

#include "base/num.h"

#include <string.h>

void plim_observation_fini(struct plim_observation *o)
{
    plim_sample_fini(&o->sample);
    plim_vec_fini(&o->allocators);
    plim_vec_fini(&o->owners);
    plim_vec_fini(&o->notes);
    plim_vec_fini(&o->engines);
    plim_vec_fini(&o->happenings);
}

void plim_observation_reset(struct plim_observation *o)
{
    plim_sample_reset(&o->sample);
    o->mono_ns = 0;
    o->allocators.n = o->owners.n = o->notes.n = o->engines.n = o->happenings.n = 0;
}

struct plim_use_books plim_observation_books(const struct plim_observation *o,
                                             const struct plim_process_use *use)
{
    struct plim_use_books b = {0};
    uint64_t reserved = 0, allocated = 0, split = 0, inside = 0, outside = 0;
    bool allocator = false;
    plim_vec_foreach (a, &o->allocators) {
        if (a->pid == use->pid && a->device == use->device &&
            (a->valid >> PLIM_ALLOCATOR_RESERVED & 1) != 0) {
            reserved = plim_add_sat(reserved, a->figure[PLIM_ALLOCATOR_RESERVED]);
            allocated = plim_add_sat(allocated, a->figure[PLIM_ALLOCATOR_ALLOCATED]);
            split = plim_add_sat(split, (a->valid >> PLIM_ALLOCATOR_INACTIVE_SPLIT & 1) != 0
                                            ? a->figure[PLIM_ALLOCATOR_INACTIVE_SPLIT]
                                            : 0);
            allocator = b.told = true;
        }
    }
    plim_vec_foreach (w, &o->owners) {
        if (w->pid == use->pid && w->device == use->device) {
            uint64_t *sum = w->outside ? &outside : &inside;
            *sum = plim_add_sat(*sum, w->charged);
            b.told = true;
        }
    }
    if (!allocator) { /* only the recorder tells: its word on the segments, all taken as handed out */
        reserved = allocated = inside;
    }
    uint64_t left = use->counted;
    b.allocated = plim_min_u64(plim_min_u64(allocated, reserved), left);
    left -= b.allocated;
    b.slack = plim_min_u64(plim_sub_sat(reserved, allocated), left);
    b.stranded = plim_min_u64(split, b.slack);
    left -= b.slack;
    b.outside = plim_min_u64(outside, left);
    b.unknown = left - b.outside;
    return b;
}

const char *plim_ledger_part_key(enum plim_ledger_part part)
{
    static const char *const keys[] = {
#define PLIM__X(name, key) key,
        PLIM_LEDGER_PART_MAP(PLIM__X)
#undef PLIM__X
    };
    return keys[part];
}

bool plim_observation_ledger(const struct plim_observation *o, uint32_t device,
                             uint64_t out[PLIM_LEDGER_PARTS])
{
    const struct plim_device_sample *d = &o->sample.devices.items[device];
    uint64_t sum[PLIM_LEDGER_PARTS] = {0};
    if (!plim_sample_unknown(&o->sample, device, &sum[PLIM_LEDGER_UNKNOWN]) ||
        !plim_has_figure(d, PLIM_FIGURE_FREE)) {
        return false;
    }
    sum[PLIM_LEDGER_FREE] = d->figure[PLIM_FIGURE_FREE];
    sum[PLIM_LEDGER_RESERVED] =
        plim_has_figure(d, PLIM_FIGURE_RESERVED) ? d->figure[PLIM_FIGURE_RESERVED] : 0;
    plim_vec_foreach (use, &o->sample.uses) {
        if (use->device != device) {
            continue;
        }
        struct plim_use_books b = plim_observation_books(o, use);
        sum[PLIM_LEDGER_LIVE] += b.told ? b.allocated : 0;
        sum[PLIM_LEDGER_STRANDED] += b.stranded;
        sum[PLIM_LEDGER_RELEASABLE] += b.slack - b.stranded;
        sum[PLIM_LEDGER_OUTSIDE] += b.told ? b.outside + b.unknown : 0;
        sum[PLIM_LEDGER_OTHERS] += b.told ? 0 : use->counted;
    }
    memcpy(out, sum, sizeof(sum));
    return true;
}

static bool not_above(const struct plim_allocator_now *a, enum plim_allocator_figure low,
                      enum plim_allocator_figure high)
{
    bool both = (a->valid >> low & 1) != 0 && (a->valid >> high & 1) != 0;
    return !both || a->figure[low] <= a->figure[high];
}

static bool check_allocator(const struct plim_observation *o, const struct plim_allocator_now *a)
{
    return (a->device == PLIM_NO_DEVICE || a->device < o->sample.devices.n) &&
           not_above(a, PLIM_ALLOCATOR_ALLOCATED, PLIM_ALLOCATOR_ACTIVE) &&
           not_above(a, PLIM_ALLOCATOR_ACTIVE, PLIM_ALLOCATOR_RESERVED) &&
           not_above(a, PLIM_ALLOCATOR_ALLOCATED, PLIM_ALLOCATOR_RESERVED);
}

static bool check_engine(const struct plim_engine_now *e)
{
    for (unsigned f = 0; f < PLIM_ENGINE_FIGURES; f++) {
        double v = e->figure[f];
        if ((e->valid >> f & 1) != 0 && !(v >= 0 && v <= 1e300)) {
            return false; /* negative, infinite or no number */
        }
    }
    return true;
}

static bool in_order(const struct plim_observation *o)
{
    for (size_t i = 1; i < o->happenings.n; i++) {
        if (o->happenings.items[i].time_ns < o->happenings.items[i - 1].time_ns) {
            return false;
        }
    }
    return true;
}

bool plim_observation_check(const struct plim_observation *o)
{
    if (!plim_sample_check(&o->sample) || !in_order(o)) {
        return false;
    }
    plim_vec_foreach (a, &o->allocators) {
        if (!check_allocator(o, a)) {
            return false;
        }
    }
    plim_vec_foreach (w, &o->owners) {
        if (w->device != PLIM_NO_DEVICE && w->device >= o->sample.devices.n) {
            return false;
        }
    }
    plim_vec_foreach (use, &o->sample.uses) {
        struct plim_use_books b = plim_observation_books(o, use);
        if (b.allocated + b.slack + b.outside + b.unknown != use->counted) {
            return false;
        }
    }
    plim_vec_foreach (e, &o->engines) {
        if (!check_engine(e)) {
            return false;
        }
    }
    return true;
}
