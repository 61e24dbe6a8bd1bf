/* SPDX-License-Identifier: Apache-2.0 */
/* Which process of a recording is meant; see trace_build.h. */

#include "format/trace_build.h"

#include "format/trace_owners.h"

#include <stdlib.h>

/* What a process did, over all devices. */
struct weight {
    int64_t charged; /* device bytes now */
    int64_t peak;
    int64_t allocator; /* of the framework's allocator, now */
    int64_t allocator_peak;
    uint64_t failures; /* calls refused for lack of memory */
};

static void weigh(struct weight *w, const struct plim_gpu_event *e)
{
    int64_t by = plim_event_charge(e);
    w->charged = (int64_t)((uint64_t)w->charged + (uint64_t)by);
    w->peak = w->charged > w->peak ? w->charged : w->peak;
    if (plim__is_framework(e->owner)) {
        w->allocator = (int64_t)((uint64_t)w->allocator + (uint64_t)by);
        w->allocator_peak = w->allocator > w->allocator_peak ? w->allocator : w->allocator_peak;
    }
    w->failures += plim__event_failed(e);
}

static uint64_t reserved_of(const struct plim_snapshot *snapshot)
{
    uint64_t sum = 0;
    plim_vec_foreach (device, &snapshot->devices) {
        plim_vec_foreach (segment, &device->heap.segments) {
            sum += segment->size;
        }
    }
    return sum;
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Whether `a` is a better pick than `b`: nearer to the snapshot, else failed, else larger. */
static bool better(const struct weight *a, const struct weight *b, const uint64_t *reserved)
{
    if (reserved != NULL) {
        uint64_t da = apart((uint64_t)a->allocator_peak, *reserved);
        uint64_t db = apart((uint64_t)b->allocator_peak, *reserved);
        if (da != db) {
            return da < db;
        }
    }
    if ((a->failures > 0) != (b->failures > 0)) {
        return a->failures > 0;
    }
    return a->peak > b->peak;
}

static enum plim_status by_pid(const struct plim_recording *r, uint64_t pid, uint32_t *process,
                               struct plim_err *err)
{
    for (size_t i = r->processes.n; i-- > 0;) { /* the last program that it was */
        if (r->processes.items[i].known && r->processes.items[i].about.pid == pid) {
            *process = (uint32_t)i;
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_NOTFOUND, "the trace has no process %llu",
                      (unsigned long long)pid);
}

enum plim_status plim_trace_process(const struct plim_recording *r,
                                    const struct plim_trace_pick *pick, uint32_t *process,
                                    struct plim_err *err)
{
    if (pick != NULL && pick->pid != 0) {
        return by_pid(r, pick->pid, process, err);
    }
    if (r->processes.n == 0) {
        plim__fail(err, PLIM_E_DATA, "the trace holds no process that used a device");
        plim__err_hint(err, "the program made no call to CUDA's driver or runtime");
        return PLIM_E_DATA;
    }
    struct weight *weights = calloc(r->processes.n, sizeof(*weights));
    if (weights == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to look at %zu processes", r->processes.n);
    }
    plim_vec_foreach (event, &r->events) {
        weigh(&weights[event->process], &event->e);
    }
    uint64_t reserved = pick != NULL && pick->of != NULL ? reserved_of(pick->of) : 0;
    const uint64_t *near = pick != NULL && pick->of != NULL ? &reserved : NULL;
    *process = 0;
    for (uint32_t i = 1; i < r->processes.n; i++) {
        if (better(&weights[i], &weights[*process], near)) {
            *process = i;
        }
    }
    free(weights);
    return PLIM_OK;
}
