/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_OBSERVE_MADE_H
#define PLIM_TESTS_OBSERVE_MADE_H

/* Made-up devices and their users, for tests of observations. */

#include "observe/collect.h"
#include "unit.h"

#include <stdio.h>

#define SECOND UINT64_C(1000000000)
#define GIB    PLIM_GIB

static struct plim_device_sample *add_device(struct plim_observation *o, const char *uuid)
{
    struct plim_device_sample d = {.vendor = PLIM_VENDOR_NVIDIA, .parent = PLIM_NO_PARENT};
    snprintf(d.uuid, sizeof(d.uuid), "%s", uuid);
    snprintf(d.name, sizeof(d.name), "card");
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, 80 * GIB);
    plim_set_figure(&d, PLIM_FIGURE_USED, 40 * GIB);
    plim_set_figure(&d, PLIM_FIGURE_FREE, 40 * GIB);
    assert_ok(plim_vec_push(&o->sample.devices, NULL, d));
    return &o->sample.devices.items[o->sample.devices.n - 1];
}

static void add_use(struct plim_observation *o, uint32_t device, uint32_t pid, uint64_t ticks,
                    uint64_t bytes)
{
    struct plim_process_use use = {.device = device,
                                   .pid = pid,
                                   .kinds = PLIM_USE_COMPUTE,
                                   .gpu_instance = PLIM_NO_INSTANCE,
                                   .compute_instance = PLIM_NO_INSTANCE,
                                   .bytes_valid = true,
                                   .bytes = bytes};
    struct plim_process_facts facts = {.pid = pid, .start_ticks = ticks, .name = "prog"};
    assert_ok(plim_sample_add_use(&o->sample, &use, NULL));
    if (plim_sample_process(&o->sample, pid) == NULL) {
        assert_ok(plim_vec_push(&o->sample.processes, NULL, facts));
    }
}

#endif
