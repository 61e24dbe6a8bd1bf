/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll dryrun -- CMD: an unmodified PyTorch program on a simulated GPU. */

#include "cli/verbs.h"
#include "report/dryrun.h"

static struct plim_dryrun_ask ask_from(const struct plim_cli *cli,
                                       const struct plim_opts_dryrun *opts)
{
    bool json = plim_cli_is(opts->format, "json");
    bool to_file = opts->output != NULL && opts->output[0] != '-';
    return (struct plim_dryrun_ask){
        .setup = {.command = cli->args,
                  .n_command = cli->n_args,
                  .gpu = opts->gpu,
                  .external = opts->external.given ? opts->external.value : 0,
                  .context = opts->context.value,
                  .has_context = opts->context.given,
                  .kernel_ns = opts->kernel_time.given ? opts->kernel_time.value : 0,
                  .timeout_ns = opts->timeout.given ? opts->timeout.value : 0,
                  .history = opts->history.given ? opts->history.value : 0,
                  .stdout_to_stderr = json && !to_file},
        .confs = opts->conf.items,
        .n_confs = opts->conf.n,
        .find_smallest = opts->find_smallest,
        .snapshot = opts->snapshot,
    };
}

enum plim_status plim_cmd_dryrun(struct plim_cli *cli, const struct plim_opts_dryrun *opts,
                                 struct plim_err *err)
{
    if (opts->list_gpus) {
        plim_text_gpus(&cli->out);
        return PLIM_OK;
    }
    if (cli->n_args == 0) {
        enum plim_status st = plim__fail(err, PLIM_E_USAGE, "dryrun needs a command");
        plim__err_hint(err, "plimsoll dryrun --gpu a100-80gb -- python train.py");
        return st;
    }
    if (opts->find_smallest && opts->conf.n > 1) {
        return plim__fail(err, PLIM_E_USAGE, "--find-smallest takes one --conf at most");
    }
    struct plim_dryrun_ask ask = ask_from(cli, opts);
    struct plim_dryrun_answer answer;
    if (opts->find_smallest && opts->conf.n == 1) {
        ask.setup.conf = opts->conf.items[0];
    }
    PLIM_TRY(plim_dryrun_answer(&ask, &cli->arena, &answer, err));
    if (plim_cli_is(opts->format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_dryrun(&w, &answer);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_dryrun(&cli->out, &answer, &style);
    }
    bool good = opts->find_smallest ? answer.smallest != UINT32_MAX : true;
    for (uint32_t i = 0; !opts->find_smallest && i < answer.runs.n; i++) {
        good = good && plim_dryrun_fits(&answer.runs.items[i]);
    }
    cli->exit_code = opts->check && !good ? 1 : 0;
    plim_dryrun_answer_fini(&answer);
    return PLIM_OK;
}
