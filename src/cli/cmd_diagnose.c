/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll diagnose SNAPSHOT: why memory ran out, or whether all is well. */

#include "base/file.h"
#include "cli/judge_input.h"
#include "report/diagnosis.h"
#include "report/html.h"

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

/* The report to a file; with "-" it is the answer itself. */
static enum plim_status write_html(struct plim_cli *cli, const char *path,
                                   const struct plim_snapshot *snapshot,
                                   const struct plim_diagnosis *diagnosis, struct plim_err *err)
{
    struct plim_html_options options = {.source = plim_base_name(cli->args[0])};
    struct plim_buf page = {0};
    if (strcmp(path, "-") == 0) {
        plim_buf_reset(&cli->out);
        return plim_html_report(&cli->out, snapshot, diagnosis, &options, err);
    }
    enum plim_status st = plim_html_report(&page, snapshot, diagnosis, &options, err);
    if (st == PLIM_OK) {
        st = plim_file_replace(path, plim_buf_str(&page), err);
    }
    plim_buf_fini(&page);
    return st;
}

enum plim_status plim_cmd_diagnose(struct plim_cli *cli, const struct plim_opts_diagnose *opts,
                                   struct plim_err *err)
{
    struct plim_judge_words words = PLIM_JUDGE_WORDS(opts);
    struct plim_judged judged;
    enum plim_status st = PLIM_OK;
    PLIM_TRY(plim_judge_input(cli->args[0], &words, &judged, err));
    write_answer(cli, opts->format, &judged.snapshot, &judged.diagnosis);
    cli->exit_code = opts->check && is_bad(&judged.diagnosis) ? 1 : 0;
    if (opts->html) {
        st = write_html(cli, opts->html, &judged.snapshot, &judged.diagnosis, err);
    }
    plim_judged_fini(&judged);
    return st;
}
