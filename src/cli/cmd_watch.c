/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll watch: the monitor. What it has to say goes to standard error, a line each, where systemd
 * takes it up. */

#include "cli/verbs.h"
#include "cli/version.h"
#include "watch/watch.h"

#include <stdio.h>

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)fprintf(stderr, "plimsoll: %s\n", text);
}

enum plim_status plim_cmd_watch(struct plim_cli *cli, const struct plim_opts_watch *opts,
                                struct plim_err *err)
{
    struct plim_watch_options options = {.settings = opts->settings,
                                         .interval_ns = opts->interval.value,
                                         .listen = opts->listen.items,
                                         .n_listen = opts->listen.n,
                                         .db = plim_cli_is(opts->db, "none") ? "" : opts->db,
                                         .samples = opts->samples,
                                         .version = PLIM_VERSION,
                                         .steps = opts->steps.value,
                                         .tell = tell};
    cli->sent = true;
    return plim_watch_run(&options, err);
}
