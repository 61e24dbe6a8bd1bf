/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll explain [FILE|-]: what kind of out-of-memory failure a text tells of, and what to do. */

#include "cli/verbs.h"
#include "diagnose/message.h"
#include "report/explanation.h"

static bool is_failure(const struct plim_verdict *verdict)
{
    return verdict->cls != PLIM_CLASS_NOT_OOM && verdict->cls != PLIM_CLASS_HEALTHY;
}

static void write_answer(struct plim_cli *cli, const char *format, const struct plim_oom_scan *scan,
                         const struct plim_message *message)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_explanation(&w, scan, message);
    } else if (plim_cli_is(format, "markdown")) {
        plim_markdown_explanation(&cli->out, scan, message);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_explanation(&cli->out, scan, message, &style);
    }
}

static enum plim_status explain(struct plim_cli *cli, const struct plim_opts_explain *opts,
                                const struct plim_oom_scan *scan, struct plim_err *err)
{
    struct plim_message message;
    enum plim_status st = plim_message_judge(scan, &message, err);
    if (st == PLIM_OK) {
        write_answer(cli, opts->format, scan, &message);
        cli->exit_code = opts->check && is_failure(&message.verdict) ? 1 : 0;
    }
    plim_message_fini(&message);
    return st;
}

enum plim_status plim_cmd_explain(struct plim_cli *cli, const struct plim_opts_explain *opts,
                                  struct plim_err *err)
{
    struct plim_source source;
    struct plim_oom_scan scan;
    PLIM_TRY(plim_source_open(cli->n_args > 0 ? cli->args[0] : "-", &source, err));
    enum plim_status st = plim_oom_scan(&source, &scan, err);
    st = st == PLIM_OK ? explain(cli, opts, &scan, err) : st;
    plim_oom_scan_fini(&scan);
    plim_source_close(&source);
    return st;
}
