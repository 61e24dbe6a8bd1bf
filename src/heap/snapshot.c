/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a snapshot, its small tables (streams, pools, devices) and its findings. */

#include "heap/snapshot.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_FINDINGS 200
#define MAX_DEVICES  4096
#define MAX_INDICES  65534 /* streams or pools: 16-bit indices, with PLIM_NO_POOL left out */

void plim_heap_fini(struct plim_heap *heap)
{
    plim_vec_fini(&heap->segments);
    plim_vec_fini(&heap->blocks);
}

enum plim_status plim_snapshot_init(struct plim_snapshot *snapshot, struct plim_err *err)
{
    uint16_t pool;
    *snapshot = (struct plim_snapshot){0};
    snapshot->settings.conf = PLIM_NO_ID;
    snapshot->capture = PLIM_NO_ID;
    plim_intern_init(&snapshot->strings, 0);
    enum plim_status st = plim_stacks_init(&snapshot->stacks, err);
    if (st == PLIM_OK) {
        st = plim_snapshot_pool(snapshot, (struct plim_pool_id){0, 0}, &pool, err);
    }
    if (st != PLIM_OK) {
        plim_snapshot_fini(snapshot);
    }
    return st;
}

void plim_snapshot_fini(struct plim_snapshot *snapshot)
{
    plim_vec_foreach (device, &snapshot->devices) {
        plim_heap_fini(&device->heap);
        plim_vec_fini(&device->trace.events);
        plim_outside_fini(&device->outside);
    }
    plim_vec_fini(&snapshot->devices);
    plim_vec_fini(&snapshot->streams);
    plim_vec_fini(&snapshot->pools);
    plim_vec_fini(&snapshot->notes);
    plim_vec_fini(&snapshot->annotations);
    plim_vec_fini(&snapshot->findings);
    plim_vec_fini(&snapshot->unknown_keys);
    plim_stacks_fini(&snapshot->stacks);
    plim_intern_fini(&snapshot->strings);
    *snapshot = (struct plim_snapshot){0};
}

enum plim_status plim_snapshot_stream(struct plim_snapshot *snapshot, int64_t handle,
                                      uint16_t *index, struct plim_err *err)
{
    for (size_t i = 0; i < snapshot->streams.n; i++) {
        if (snapshot->streams.items[i] == handle) {
            *index = (uint16_t)i;
            return PLIM_OK;
        }
    }
    if (snapshot->streams.n >= MAX_INDICES) {
        return plim__fail(err, PLIM_E_BUDGET, "more than %d different streams", MAX_INDICES);
    }
    PLIM_TRY(plim_vec_push(&snapshot->streams, err, handle));
    *index = (uint16_t)(snapshot->streams.n - 1);
    return PLIM_OK;
}

enum plim_status plim_snapshot_pool(struct plim_snapshot *snapshot, struct plim_pool_id id,
                                    uint16_t *index, struct plim_err *err)
{
    for (size_t i = 0; i < snapshot->pools.n; i++) {
        if (snapshot->pools.items[i].a == id.a && snapshot->pools.items[i].b == id.b) {
            *index = (uint16_t)i;
            return PLIM_OK;
        }
    }
    if (snapshot->pools.n >= MAX_INDICES) {
        return plim__fail(err, PLIM_E_BUDGET, "more than %d different pools", MAX_INDICES);
    }
    PLIM_TRY(plim_vec_push(&snapshot->pools, err, id));
    *index = (uint16_t)(snapshot->pools.n - 1);
    return PLIM_OK;
}

enum plim_status plim_snapshot_device(struct plim_snapshot *snapshot, uint64_t index,
                                      struct plim_device **out, struct plim_err *err)
{
    if (index >= MAX_DEVICES) {
        return plim__fail(err, PLIM_E_BUDGET, "device number %llu is not below %d",
                          (unsigned long long)index, MAX_DEVICES);
    }
    while (snapshot->devices.n <= index) {
        PLIM_TRY(plim_vec_push(&snapshot->devices, err, (struct plim_device){0}));
    }
    *out = &snapshot->devices.items[index];
    return PLIM_OK;
}

/* Push a finding; false when memory is out. */
static bool push_finding(struct plim_snapshot *snapshot, uint32_t device, const char *where,
                         const char *text)
{
    struct plim_finding finding = {.device = device};
    struct plim_str w = plim_str_from(where);
    struct plim_str t = plim_str_from(text);
    return plim_intern_put(&snapshot->strings, w, &finding.where, NULL) == PLIM_OK &&
           plim_intern_put(&snapshot->strings, t, &finding.text, NULL) == PLIM_OK &&
           plim_vec_push(&snapshot->findings, NULL, finding) == PLIM_OK;
}

void plim_snapshot_finding(struct plim_snapshot *snapshot, uint32_t device, const char *where,
                           const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (snapshot->findings.n >= MAX_FINDINGS || !push_finding(snapshot, device, where, text)) {
        snapshot->findings_dropped++;
    }
}

const char *plim_action_text(enum plim_action action)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_ACTION_MAP(PLIM__X)
#undef PLIM__X
    };
    unsigned i = (unsigned)action;
    return texts[i < PLIM_ACTION_COUNT ? i : PLIM_ACTION_UNKNOWN];
}
