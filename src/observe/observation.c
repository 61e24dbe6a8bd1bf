/* SPDX-License-Identifier: Apache-2.0 */

/* The identities of an observation. See observation.h. */

#include "observe/observation.h"

#include "base/num.h"

void plim_observation_fini(struct plim_observation *o)
{
    plim_sample_fini(&o->sample);
    plim_vec_fini(&o->allocators);
    plim_vec_fini(&o->owners);
    plim_vec_fini(&o->engines);
    plim_vec_fini(&o->happenings);
}

void plim_observation_reset(struct plim_observation *o)
{
    plim_sample_reset(&o->sample);
    o->mono_ns = 0;
    o->allocators.n = o->owners.n = o->engines.n = o->happenings.n = 0;
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
    plim_vec_foreach (e, &o->engines) {
        if (!check_engine(e)) {
            return false;
        }
    }
    return true;
}
