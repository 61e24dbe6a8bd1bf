/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll run -- CMD: a supervisor. The command has the terminal's streams; what we have to say goes
 * to standard error. */

#include "base/err.h"
#include "cli/verbs.h"
#include "incident/incident.h"
#include "run/run.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)fprintf(stderr, "plimsoll: run: %s\n", text);
}

static struct plim_run_options options_of(const struct plim_cli *cli,
                                          const struct plim_opts_run *opts)
{
    return (struct plim_run_options){.command = cli->args,
                                     .n_command = cli->n_args,
                                     .trace = opts->trace,
                                     .health = opts->health,
                                     .health_every_ns = opts->health_every.value,
                                     .health_timeout_ns = opts->health_every.value,
                                     .health_misses = (uint32_t)opts->health_misses.value,
                                     .heartbeat_ns = opts->heartbeat.value,
                                     .start_ns = opts->start_timeout.value,
                                     .ledger = opts->ledger,
                                     .drain_ns = opts->drain.value,
                                     .grace_ns = opts->grace.value,
                                     .clear_ns = opts->clear.value,
                                     .restarts = (uint32_t)opts->restarts.value,
                                     .window_ns = opts->window.value,
                                     .backoff_ns = opts->backoff.value,
                                     .notches = opts->notch.items,
                                     .n_notches = opts->notch.n,
                                     .notch_reset_ns = opts->notch_reset.value,
                                     .stranded = opts->stranded.given ? opts->stranded.value : 0,
                                     .restart_window = opts->restart_window,
                                     .no_lock = opts->no_lock,
                                     .incidents = plim_incident_folder(opts->incidents),
                                     .tell = tell};
}

enum plim_status plim_cmd_run(struct plim_cli *cli, const struct plim_opts_run *opts,
                              struct plim_err *err)
{
    char self[PATH_MAX];
    struct plim_run_options options = options_of(cli, opts);
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (cli->n_args == 0) {
        plim__err_set(err, PLIM_E_USAGE, "no command to run");
        plim__err_hint(err, "plimsoll run -- vllm serve MODEL");
        return PLIM_E_USAGE;
    }
    if (opts->health_misses.value > UINT32_MAX || opts->restarts.value > UINT32_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "a number is too large");
    }
    if (opts->health_every.value == 0 || opts->health_misses.value == 0) {
        return plim__fail(err, PLIM_E_USAGE, "--health-every and --health-misses must be above 0");
    }
    if (opts->stranded.given && !(opts->stranded.value > 0 && opts->stranded.value <= 1)) {
        return plim__fail(err, PLIM_E_USAGE, "--stranded is a share: above 0, at most 1");
    }
    if (!opts->bare) {
        if (n <= 0) {
            return plim__fail(err, PLIM_E_OS, "cannot find this program to record with");
        }
        self[n] = '\0';
        options.record = self;
    }
    cli->sent = true;
    return plim_run(&options, &cli->exit_code, err);
}
