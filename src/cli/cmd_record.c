/* SPDX-License-Identifier: Apache-2.0 */

/*
 * plimsoll record -- CMD: every call that moves device memory, into a trace file. Standard output
 * is the command's alone; what we have to say goes to standard error, and our end is that of the
 * command.
 */

#include "cli/verbs.h"
#include "incident/watch.h"
#include "report/record.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)fprintf(stderr, "plimsoll: %s\n", text);
}

static struct plim_record_setup setup_from(const struct plim_cli *cli,
                                           const struct plim_opts_record *opts)
{
    return (struct plim_record_setup){
        .command = cli->args,
        .n_command = cli->n_args,
        .trace = opts->trace,
        .stacks = opts->stacks,
        .no_attach = opts->no_attach,
        .follow = opts->follow,
        .ring_bytes = opts->ring.given ? opts->ring.value : 0,
        .max_bytes = opts->max_size.given ? opts->max_size.value : 0,
        .max_time_ns = opts->max_time.given ? opts->max_time.value : 0,
        .tell = tell,
    };
}

/* End as the command did. A core file of ours would say nothing. */
static void die_by(int signal_number)
{
    const struct rlimit none = {0, 0};
    (void)fflush(NULL);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* ---- incidents ---- */

static void tick(void *watch, int pid)
{
    plim_incident_watch_tick(watch, pid);
}

static bool used_device(const struct plim_record_tally *tally, uint64_t *refused)
{
    *refused = 0;
    for (size_t i = 0; i < PLIM_SHM_DEVICES; i++) {
        *refused += tally->device[i].refused;
    }
    return tally->events > 0;
}

/* What went wrong here is said, and changes nothing else. */
static void end_watch(struct plim_cli *cli, struct plim_incident_watch *watch,
                      const struct plim_record_result *result, bool quiet)
{
    struct plim_err err = {0};
    const char *path = NULL;
    struct plim_incident_ending ending = {
        .pid = result->pid, .exit_status = result->exit_status, .signal = result->signal};
    ending.used_device = used_device(&result->tally, &ending.refused);
    if (plim_incident_watch_end(watch, &ending, &cli->arena, &path, &err) != PLIM_OK) {
        (void)fprintf(stderr, "plimsoll: no incident was made: %s\n", err.message);
    } else if (path != NULL && !quiet) {
        (void)fprintf(stderr, "plimsoll: what is known of the failure: plimsoll incident %s\n",
                      path);
    }
}

/* Run it with somebody watching for incidents. */
static enum plim_status record_watched(struct plim_cli *cli, const struct plim_opts_record *opts,
                                       struct plim_record_setup *setup,
                                       struct plim_record_result *result, struct plim_err *err)
{
    struct plim_incident_watch *watch = NULL;
    const char *dir = plim_incident_folder(opts->incidents);
    char absolute[PATH_MAX], owner[16];
    if (dir[0] != '/') { /* the program may go elsewhere */
        char here[PATH_MAX / 2];
        const char *cwd = getcwd(here, sizeof(here));
        (void)snprintf(absolute, sizeof(absolute), "%s/%s", cwd != NULL ? cwd : ".", dir);
    } else {
        (void)snprintf(absolute, sizeof(absolute), "%s", dir);
    }
    (void)snprintf(owner, sizeof(owner), "%d", getpid());
    const char *const variables[] = {PLIM_INCIDENT_DIR_VARIABLE, absolute,
                                     PLIM_INCIDENT_OWNER_VARIABLE, owner, NULL};
    struct plim_incident_watch_setup watch_setup = {
        .options = {.dir = absolute, .keep_private = opts->keep_private},
        .argv = cli->args,
        .trace = opts->trace};
    PLIM_TRY(plim_incident_watch_open(&watch_setup, &watch, err));
    setup->variables = variables;
    setup->tick = tick;
    setup->tick_arg = watch;
    enum plim_status st = plim_record_run(setup, &cli->arena, result, err);
    if (st == PLIM_OK) {
        end_watch(cli, watch, result, opts->quiet);
    }
    plim_incident_watch_close(watch);
    return st;
}

enum plim_status plim_cmd_record(struct plim_cli *cli, const struct plim_opts_record *opts,
                                 struct plim_err *err)
{
    struct plim_record_result result;
    struct plim_buf summary = {0};
    if (cli->n_args == 0) {
        enum plim_status st = plim__fail(err, PLIM_E_USAGE, "record needs a command");
        plim__err_hint(err, "plimsoll record -- python train.py");
        return st;
    }
    struct plim_record_setup setup = setup_from(cli, opts);
    PLIM_TRY(opts->no_incidents ? plim_record_run(&setup, &cli->arena, &result, err)
                                : record_watched(cli, opts, &setup, &result, err));
    if (!opts->quiet) {
        plim_text_record(&summary, &setup, &result);
        (void)fwrite(summary.p ? summary.p : "", 1, summary.n, stderr);
        plim_buf_fini(&summary);
    }
    cli->exit_code = result.exit_status;
    if (result.signal != 0) {
        die_by(result.signal);
        cli->exit_code = 128 + result.signal;
    }
    return PLIM_OK;
}
