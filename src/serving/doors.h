/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_DOORS_H
#define PLIM_SERVING_DOORS_H

/*
 * Front doors side by side under the same traffic: none, the best fixed limits that there are (searched), the
 * gate's policies, and the gate that knows how long answers will be.
 */

#include "serving/soak.h"

struct plim_door_row {
    struct plim_door_options door;
    bool searched; /* its limit is the best of those tried */
    uint32_t tried;
    struct plim_soak_result result;
};

#define PLIM_DOOR_ROWS 8u

/**
 * plim_doors_compare() - one run for each door, some thirty for each that has a limit to be found.
 * @setup: its door is left out of account. @rows: [PLIM_DOOR_ROWS], in the order of the table.
 * Errors: those of plim_soak_run(); PLIM_E_USAGE another workload than the paged one.
 */
PLIM_MUST_USE enum plim_status plim_doors_compare(const struct plim_soak_setup *setup,
                                                  const struct plim_door_terms *terms,
                                                  struct plim_door_row *rows, struct plim_err *err);

/** plim_door_name() - "gate, expected", "fixed concurrency"; of a row. Static text. */
const char *plim_door_name(const struct plim_door_options *door);

/** plim_door_goodput() - good requests a second. */
double plim_door_goodput(const struct plim_soak_result *result);

#endif
