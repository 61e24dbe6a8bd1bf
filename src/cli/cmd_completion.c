/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll completion SHELL: the script that makes the shell complete verbs, options and choices. */

#include "cli/help.h"

enum plim_status plim_cmd_completion(struct plim_cli *cli, const struct plim_opts_completion *opts,
                                     struct plim_err *err)
{
    (void)opts;
    if (!plim_completion(&cli->out, cli->args[0])) {
        enum plim_status st =
            plim__fail(err, PLIM_E_USAGE, "no completion for the shell '%s'", cli->args[0]);
        plim__err_hint(err, "one of bash, zsh, fish");
        return st;
    }
    return PLIM_OK;
}
