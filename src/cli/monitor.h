/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_MONITOR_H
#define PLIM_CLI_MONITOR_H

/* What verbs ask of a monitor that runs (plimsoll watch): one question, whose answer is the verb's. */

#include "cli/verbs.h"

struct plim_cli_question {
    const char *monitor;    /* its address, as http/get.h has them */
    const char *token_file; /* or NULL */
    const char *path;       /* with its query */
    const char *accept;     /* media types, or NULL */
    uint64_t patience_ns;
};

/**
 * plim_cli_ask() - append the answer to cli->out.
 * Errors: those of plim_http_get(); PLIM_E_NOINPUT, PLIM_E_BUDGET of the token's file.
 */
PLIM_MUST_USE enum plim_status
plim_cli_ask(struct plim_cli *cli, const struct plim_cli_question *question, struct plim_err *err);

#endif
