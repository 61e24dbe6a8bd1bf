/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll help [VERB]: the program or one verb, as text, JSON (everything) or scdoc (for man pages). */

#include "cli/help.h"

enum plim_status plim_cmd_help(struct plim_cli *cli, const struct plim_opts_help *opts,
                               struct plim_err *err)
{
    const struct plim_verb *verb = cli->n_args > 0 ? plim_verb_find(cli->args[0]) : NULL;
    if (cli->n_args > 0 && verb == NULL) {
        const char *near = plim_verb_nearest(cli->args[0]);
        enum plim_status st = plim__fail(err, PLIM_E_USAGE, "unknown verb '%s'", cli->args[0]);
        plim__err_hint(err, near ? "did you mean '%s'?" : "'plimsoll %s' lists the verbs",
                       near ? near : "help");
        return st;
    }
    if (plim_cli_is(opts->format, "json")) {
        plim_help_json(&cli->out);
    } else if (plim_cli_is(opts->format, "scdoc")) {
        plim_help_scdoc(&cli->out, verb);
    } else if (verb != NULL) {
        plim_help_verb(&cli->out, verb, cli->width);
    } else {
        plim_help_program(&cli->out, cli->width);
    }
    return PLIM_OK;
}
