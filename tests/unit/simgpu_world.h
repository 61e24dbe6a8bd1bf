/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_SIMGPU_WORLD_H
#define PLIM_TESTS_SIMGPU_WORLD_H

/* What the tests of the simulated GPU's books share: one process, a device of 1 GiB of which a
 * context takes 64 MiB. */

#include "call.h"
#include "plimsoll/simgpu.h"
#include "unit.h"

#include <stdlib.h>

#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (1024 * MIB)
#define CONTEXT  (64 * MIB)

static inline uint64_t in_use(void)
{
    struct sim_usage u;
    sim_usage(0, &u);
    return u.used;
}

static inline int start(void **state)
{
    (void)state;
    (void)setenv("PLIMSOLL_SIM_GPU", "1GiB", 1);
    (void)setenv("PLIMSOLL_SIM_CONTEXT", "64MiB", 1);
    return sim_start();
}

#endif
