/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll watch: the monitor. What it has to say goes to standard error, a line each, where systemd
 * takes it up. */

#include "base/err.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "watch/watch.h"

#include <stdio.h>

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)fprintf(stderr, "plimsoll: %s\n", text);
}

static enum plim_status check(struct plim_cli *cli, const struct plim_opts_watch *opts,
                              struct plim_err *err)
{
    if (opts->settings == NULL) {
        plim__err_set(err, PLIM_E_USAGE, "no settings file to check");
        plim__err_hint(err, "say which with --settings FILE");
        return PLIM_E_USAGE;
    }
    PLIM_TRY(plim_watch_check(opts->settings, err));
    plim_buf_printf(&cli->out, "%s: the settings are good\n", opts->settings);
    return PLIM_OK;
}

enum plim_status plim_cmd_watch(struct plim_cli *cli, const struct plim_opts_watch *opts,
                                struct plim_err *err)
{
    struct plim_watch_options options = {.settings = opts->settings,
                                         .interval_ns = opts->interval.value,
                                         .listen = opts->listen.items,
                                         .n_listen = opts->listen.n,
                                         .db = plim_cli_is(opts->db, "none") ? "" : opts->db,
                                         .max_bytes = opts->max_bytes.value,
                                         .samples = opts->samples,
                                         .engines = opts->engine_url.items,
                                         .n_engines = opts->engine_url.n,
                                         .logs = opts->engine_log.items,
                                         .n_logs = opts->engine_log.n,
                                         .peers = opts->peer.items,
                                         .n_peers = opts->peer.n,
                                         .no_discover = opts->no_discover,
                                         .version = PLIM_VERSION,
                                         .host = opts->host,
                                         .steps = opts->steps.value,
                                         .tell = tell};
    if (opts->example_settings) {
        plim_watch_example(&cli->out);
        return PLIM_OK;
    }
    if (opts->check_settings) {
        return check(cli, opts, err);
    }
    if (opts->test_alert != NULL) {
        PLIM_TRY(plim_watch_test_alert(&options, opts->test_alert, err));
        plim_buf_printf(&cli->out, "%s: the sample alert was delivered\n", opts->test_alert);
        return PLIM_OK;
    }
    cli->sent = true;
    return plim_watch_run(&options, err);
}
