/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll diagnose SNAPSHOT: why memory ran out, or whether all is well. */

#include "base/file.h"
#include "cli/verbs.h"
#include "diagnose/facts.h"
#include "format/snapshot_read.h"
#include "report/diagnosis.h"
#include "report/html.h"

static struct plim_amount given(struct plim_opt_u64 option)
{
    return option.given ? plim_amount(option.value, PLIM_HOW_GIVEN)
                        : plim_amount(0, PLIM_HOW_UNKNOWN);
}

static struct plim_diagnose_options options_from(const struct plim_opts_diagnose *opts)
{
    return (struct plim_diagnose_options){
        .facts.total = given(opts->device_memory),
        .facts.external = given(opts->external),
        .facts.cap = given(opts->cap),
        .device = opts->device.given && opts->device.value < PLIM_NO_ID
                      ? (uint32_t)opts->device.value
                      : PLIM_NO_ID,
        .moment = plim_cli_is(opts->at, "peak")  ? PLIM_MOMENT_PEAK
                  : plim_cli_is(opts->at, "end") ? PLIM_MOMENT_END
                                                 : PLIM_MOMENT_AUTO,
        .no_replay = opts->no_replay,
        .rows = opts->rows.given && opts->rows.value < 100000 ? (uint32_t)opts->rows.value : 0,
    };
}

/* The message that belongs to the snapshot: what it says of the device's side. */
static enum plim_status add_message(const char *path, struct plim_facts *facts,
                                    struct plim_err *err)
{
    struct plim_source source;
    struct plim_oom_scan scan;
    struct plim_message message = {0};
    PLIM_TRY(plim_source_open(path, &source, err));
    enum plim_status st = plim_oom_scan(&source, &scan, err);
    if (st == PLIM_OK) {
        st = plim_message_judge(&scan, &message, err);
        st = st == PLIM_OK ? plim_facts_add_message(facts, &scan, &message, err) : st;
        plim_message_fini(&message);
    }
    plim_oom_scan_fini(&scan);
    plim_source_close(&source);
    return st;
}

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

static enum plim_status write_html(const struct plim_cli *cli, const char *path,
                                   const struct plim_snapshot *snapshot,
                                   const struct plim_diagnosis *diagnosis, struct plim_err *err)
{
    const char *slash = strrchr(cli->args[0], '/');
    struct plim_html_options options = {.source = slash ? slash + 1 : cli->args[0]};
    struct plim_buf page = {0};
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
    struct plim_snapshot snapshot;
    struct plim_diagnosis diagnosis;
    struct plim_read_limits limits = {
        .memory = opts->memory_budget.value,
        .string = opts->max_string.value,
        .memo = opts->max_memo.value,
        .nesting = opts->max_nesting.value,
    };
    struct plim_diagnose_options options = options_from(opts);
    if (opts->oom_text) {
        PLIM_TRY(add_message(opts->oom_text, &options.facts, err));
    }
    PLIM_TRY(plim_snapshot_read_file(cli->args[0], &limits, &snapshot, err));
    enum plim_status st = plim_diagnose(&snapshot, &options, &diagnosis, err);
    if (st == PLIM_OK) {
        write_answer(cli, opts->format, &snapshot, &diagnosis);
        if (opts->html) {
            st = write_html(cli, opts->html, &snapshot, &diagnosis, err);
        }
        cli->exit_code = opts->check && is_bad(&diagnosis) ? 1 : 0;
        plim_diagnosis_fini(&diagnosis);
    }
    plim_snapshot_fini(&snapshot);
    return st;
}
