/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_DETECT_MADE_H
#define PLIM_TESTS_DETECT_MADE_H

/* A made-up machine before a detector, for tests of what the detector says. */

#include "detect/detect.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define GIB    PLIM_GIB
#define MIB    PLIM_MIB
#define RANKS  8u

/* A machine of eight devices with one process on each, or fewer. */
struct made {
    struct plim_detector *detector;
    struct plim_observation o;
    unsigned ranks;
    uint64_t held[RANKS]; /* as the driver counts it */
    uint64_t live[RANKS]; /* of its allocator; 0: it tells nothing */
    uint64_t stranded, retries;
    uint64_t xids, last_xid; /* of the devices */
    bool dead;               /* no process is there */
    uint32_t first_pid;
    uint64_t time_ns; /* since 1970 */
    bool asleep, engine;
};

static int make(void **state)
{
    struct made *m = calloc(1, sizeof(*m));
    m->ranks = 1;
    m->first_pid = 100;
    m->time_ns = 1700000000 * SECOND;
    assert_ok(plim_detector_new(NULL, &m->detector, NULL));
    *state = m;
    return 0;
}

static int drop(void **state)
{
    struct made *m = *state;
    plim_detector_free(m->detector);
    plim_vec_fini(&m->o.sample.devices);
    plim_vec_fini(&m->o.sample.uses);
    plim_vec_fini(&m->o.sample.processes);
    plim_vec_fini(&m->o.allocators);
    plim_vec_fini(&m->o.engines);
    plim_vec_fini(&m->o.notes);
    plim_vec_fini(&m->o.happenings);
    free(m);
    return 0;
}

static void put_rank(struct made *m, uint32_t i)
{
    struct plim_device_sample device = {.parent = PLIM_NO_PARENT};
    struct plim_process_use use = {.device = i, .pid = m->first_pid + i, .bytes_valid = true};
    struct plim_process_facts facts = {
        .pid = use.pid, .ppid = 50, .start_ticks = use.pid, .name = "server"};
    snprintf(device.uuid, sizeof(device.uuid), "GPU-%u", i);
    plim_set_figure(&device, PLIM_FIGURE_TOTAL, 80 * GIB);
    plim_set_figure(&device, PLIM_FIGURE_USED, m->held[i]);
    plim_set_figure(&device, PLIM_FIGURE_FREE, 80 * GIB - m->held[i]);
    plim_set_figure(&device, PLIM_FIGURE_XIDS, m->xids);
    plim_set_figure(&device, PLIM_FIGURE_LAST_XID, m->last_xid);
    use.bytes = use.counted = m->held[i];
    assert_ok(plim_vec_push(&m->o.sample.devices, NULL, device));
    if (m->dead) {
        return;
    }
    assert_ok(plim_vec_push(&m->o.sample.uses, NULL, use));
    assert_ok(plim_vec_push(&m->o.sample.processes, NULL, facts));
    if (m->live[i] != 0) {
        struct plim_allocator_now a = {.pid = use.pid, .start_ticks = use.pid, .device = i};
        a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
                  1u << PLIM_ALLOCATOR_INACTIVE_SPLIT | 1u << PLIM_ALLOCATOR_RETRIES;
        a.figure[PLIM_ALLOCATOR_ALLOCATED] = m->live[i];
        a.figure[PLIM_ALLOCATOR_RESERVED] = m->held[i] - 500 * MIB;
        a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = m->stranded;
        a.figure[PLIM_ALLOCATOR_RETRIES] = m->retries;
        assert_ok(plim_vec_push(&m->o.allocators, NULL, a));
    }
}

/* One observation, `seconds` after the one before. */
static void step(struct made *m, unsigned seconds)
{
    plim_sample_reset(&m->o.sample);
    m->o.allocators.n = m->o.engines.n = 0;
    for (uint32_t i = 0; i < m->ranks; i++) {
        put_rank(m, i);
    }
    if (m->engine) {
        struct plim_engine_now e = {.pid = m->first_pid, .up = true};
        e.valid = 1u << PLIM_ENGINE_FIGURE_ASLEEP;
        e.figure[PLIM_ENGINE_FIGURE_ASLEEP] = m->asleep;
        assert_ok(plim_vec_push(&m->o.engines, NULL, e));
    }
    m->o.mono_ns += seconds * SECOND;
    m->o.sample.time_ns = m->time_ns += seconds * SECOND;
    assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    m->o.happenings.n = 0;
}

static void steps(struct made *m, unsigned minutes)
{
    for (unsigned i = 0; i < minutes * 6; i++) {
        step(m, 10);
    }
}

/* The finding of that class; id 0: none. */
static struct plim_finding found(struct made *m, enum plim_finding_class class)
{
    size_t n;
    const struct plim_finding *f = plim_detector_findings(m->detector, &n);
    for (size_t i = 0; i < n; i++) {
        if (f[i].class == class) {
            return f[i];
        }
    }
    return (struct plim_finding){0};
}

/* Minutes of growth at 100 MiB an hour. */
static void leak(struct made *m, unsigned minutes)
{
    for (unsigned i = 0; i < minutes * 6; i++) {
        uint64_t more = 100 * MIB / 360;
        m->live[0] += m->live[0] != 0 ? more : 0;
        m->held[0] += more;
        step(m, 10);
    }
}

#endif
