/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_SOAK_INPUT_H
#define PLIM_CLI_SOAK_INPUT_H

/* From the arguments of `soak` to a plan: the model, the traffic, the server, the settings. */

#include "cli/verbs.h"
#include "report/soak.h"
#include "serving/model.h"

struct plim_soak_input {
    struct plim_model model;
    bool has_model;
    struct plim_server server;
    struct plim_traffic *traffic;     /* arena, [n_sources]; those of files are owned */
    struct plim_flow_source *sources; /* arena */
    struct plim_soak_traffic *names;  /* arena */
    size_t n_sources;
    struct plim_flow_options flow;
    struct plim_conf *confs; /* arena */
    const char **conf_texts; /* arena */
    struct plim_soak_plan plan;
};

/** plim_soak_input() - read and prepare; *out must stay where it is. Undo with plim_soak_input_fini(), after
 * a failure too. */
PLIM_MUST_USE enum plim_status plim_soak_input(struct plim_cli *cli,
                                               const struct plim_opts_soak *opts,
                                               struct plim_soak_input *out, struct plim_err *err);
/** plim_soak_numbers() - "1:2:0.5" as three numbers; false: anything else. */
bool plim_soak_numbers(const char *text, double out[3]);
void plim_soak_input_fini(struct plim_soak_input *input);

#endif
