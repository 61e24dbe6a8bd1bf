/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll status: who holds the device memory of this machine just now. */

#include "cli/verbs.h"
#include "cli/version.h"
#include "report/metrics.h"

#include <unistd.h>

static void write_state(struct plim_cli *cli, const struct plim_state *state, const char *format)
{
    struct plim_status_style style = {.color = cli->color, .width = cli->width};
    if (plim_cli_is(format, "json")) {
        plim_status_json(&cli->out, state, false);
    } else if (plim_cli_is(format, "prometheus")) {
        plim_metrics_write(&cli->out, state, PLIM_METRICS_TEXT);
    } else if (plim_cli_is(format, "openmetrics")) {
        plim_metrics_write(&cli->out, state, PLIM_METRICS_OPENMETRICS);
    } else {
        plim_status_view(&cli->out, state, &style);
    }
}

/* Look ourselves: without a monitor there are no findings, which need time. */
static enum plim_status look(struct plim_cli *cli, const struct plim_opts_status *opts,
                             struct plim_err *err)
{
    struct plim_collect_options options = {.script = opts->samples};
    struct plim_collector *collector = NULL;
    struct plim_observation now = {0};
    char host[256] = "";
    PLIM_TRY(plim_collector_open(&options, &collector, err));
    enum plim_status st = plim_collector_take(collector, &now, err);
    if (st == PLIM_OK) {
        (void)gethostname(host, sizeof(host) - 1);
        struct plim_state state = {.now = &now,
                                   .stats = plim_collector_stats(collector),
                                   .version = PLIM_VERSION,
                                   .host = host};
        write_state(cli, &state, opts->format);
    }
    plim_observation_fini(&now);
    plim_collector_close(collector);
    return st;
}

enum plim_status plim_cmd_status(struct plim_cli *cli, const struct plim_opts_status *opts,
                                 struct plim_err *err)
{
    return look(cli, opts, err);
}
