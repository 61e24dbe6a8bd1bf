/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_PLAN_INPUT_H
#define PLIM_CLI_PLAN_INPUT_H

/* What `plan` works on: the model, the card, the traffic, and what was learned about this host. */

#include "cli/verbs.h"
#include "serving/plan.h"

/**
 * plim_plan_input() - the request from arguments and options; everything in cli->arena.
 * Errors: PLIM_E_USAGE, and those of reading the model and the traffic.
 */
PLIM_MUST_USE enum plim_status plim_plan_input(struct plim_cli *cli,
                                               const struct plim_opts_plan *opts,
                                               struct plim_plan_request *out, struct plim_err *err);

/* $XDG_STATE_HOME/plimsoll/calibration.json, or ~/.local/state/... */
struct plim_plan_state {
    const char *path; /* NULL: no home */
    struct plim_calibrations all;
};

/** plim_plan_state_open() - read it; a missing file is empty. @forget: remove it first. */
PLIM_MUST_USE enum plim_status plim_plan_state_open(struct plim_arena *arena, bool forget,
                                                    struct plim_plan_state *out,
                                                    struct plim_err *err);
const struct plim_calibration *plim_plan_state_find(const struct plim_plan_state *state,
                                                    const char *card);

/** plim_plan_state_learn() - take a sample in and write the file. */
PLIM_MUST_USE enum plim_status plim_plan_state_learn(struct plim_arena *arena,
                                                     struct plim_plan_state *state,
                                                     const char *card, int64_t outside_bytes,
                                                     struct plim_err *err);

#endif
