/* SPDX-License-Identifier: Apache-2.0 */

/*
 * plimsoll record -- CMD: every call that moves device memory, into a trace file. Standard output is the
 * command's alone; what we have to say goes to standard error, and our end is that of the command.
 */

#include "cli/verbs.h"
#include "report/record.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

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
    PLIM_TRY(plim_record_run(&setup, &cli->arena, &result, err));
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
