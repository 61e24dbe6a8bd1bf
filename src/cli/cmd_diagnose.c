/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll diagnose SNAPSHOT: why memory ran out, or whether all is well. */

#include "cli/html_file.h"
#include "cli/judge_input.h"
#include "report/diagnosis.h"

static bool is_bad(const struct plim_diagnosis *d)
{
    return d->set.verdict.cls != PLIM_CLASS_HEALTHY;
}

static void write_answer(struct plim_cli *cli, const char *format, const struct plim_snapshot *s,
                         const struct plim_diagnosis *d)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_diagnosis(&w, s, d);
    } else if (plim_cli_is(format, "markdown")) {
        plim_markdown_diagnosis(&cli->out, s, d);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_diagnosis(&cli->out, s, d, &style);
    }
}

enum plim_status plim_cmd_diagnose(struct plim_cli *cli, const struct plim_opts_diagnose *opts,
                                   struct plim_err *err)
{
    struct plim_judge_words words = PLIM_JUDGE_WORDS(opts);
    struct plim_judged judged;
    PLIM_TRY(plim_judge_input(cli->args[0], &words, &judged, err));
    struct plim_html_options page = {.source = plim_base_name(cli->args[0]),
                                     .other = opts->device.given ? NULL : &judged.other};
    write_answer(cli, opts->format, &judged.snapshot, &judged.diagnosis);
    cli->exit_code = opts->check && is_bad(&judged.diagnosis) ? 1 : 0;
    enum plim_status st =
        plim_cli_html(cli, opts->html, &judged.snapshot, &judged.diagnosis, &page, err);
    plim_judged_fini(&judged);
    return st;
}
