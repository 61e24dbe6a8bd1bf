/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll tune SNAPSHOT: many settings on the recorded requests, ranked, with one recommendation. */

#include "cli/html_file.h"
#include "cli/judge_input.h"
#include "cli/moving_input.h"
#include "cli/replay_input.h"
#include "replay/driver.h"
#include "report/tune.h"

static void write_answer(struct plim_cli *cli, const char *format,
                         const struct plim_tune_view *view)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_tune(&w, view);
    } else if (plim_cli_is(format, "markdown")) {
        plim_markdown_tune(&cli->out, view);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_tune(&cli->out, view, &style);
    }
}

/* The page: the settings, and behind them the snapshot, judged without another replay. */
static enum plim_status write_html(struct plim_cli *cli, const struct plim_opts_tune *opts,
                                   const struct plim_tune_view *view, struct plim_err *err)
{
    const struct plim_snapshot *snapshot = view->requests->snapshot;
    const struct plim_html_part part = {plim_html_tune, view};
    struct plim_html_options page = {.source = plim_base_name(cli->args[0]), .part = &part};
    struct plim_diagnose_options how = {
        .device = (uint32_t)(view->requests->device - snapshot->devices.items),
        .moment = PLIM_MOMENT_AUTO,
        .no_replay = true,
    };
    struct plim_diagnosis diagnosis;
    if (!opts->html) {
        return PLIM_OK;
    }
    if (opts->device_memory.given) {
        how.facts.total = plim_amount(opts->device_memory.value, PLIM_HOW_GIVEN);
    }
    if (opts->external.given) {
        how.facts.external = plim_amount(opts->external.value, PLIM_HOW_GIVEN);
    }
    PLIM_TRY(plim_diagnose(snapshot, &how, &diagnosis, err));
    enum plim_status st = plim_cli_html(cli, opts->html, snapshot, &diagnosis, &page, err);
    plim_diagnosis_fini(&diagnosis);
    return st;
}

static enum plim_status tune(struct plim_cli *cli, const struct plim_opts_tune *opts,
                             const struct plim_replay_input *in,
                             const struct plim_moving_options *moving, struct plim_err *err)
{
    struct plim_tune result;
    struct plim_tune_options options = {
        .version = in->version,
        .capacity = in->capacity,
        .external = in->external,
        .scale = in->scale,
        .base = opts->conf,
        .vary = opts->vary,
        .threads =
            opts->threads.given && opts->threads.value <= 64 ? (unsigned)opts->threads.value : 0,
        .moving = moving,
    };
    PLIM_TRY(plim_tune(&in->requests, &options, &result, err));
    struct plim_tune_view view = {
        .requests = &in->requests,
        .options = &options,
        .tune = &result,
        .capacity_by = in->capacity_by,
        .rows = opts->rows.given && opts->rows.value < 100000 ? (uint32_t)opts->rows.value : 0,
    };
    write_answer(cli, opts->format, &view);
    bool fits = result.runs.n > 0 && !result.runs.items[0].result.failed;
    if (opts->vary) {
        fits = result.recommended != PLIM_NO_ID;
    }
    cli->exit_code = opts->check && !fits ? 1 : 0;
    enum plim_status st = write_html(cli, opts, &view, err);
    plim_tune_fini(&result);
    return st;
}

static enum plim_status tune_beside(struct plim_cli *cli, const struct plim_opts_tune *opts,
                                    const struct plim_replay_input *in, struct plim_err *err)
{
    const struct plim_moving_options *moving;
    struct plim_seating_input plan;
    PLIM_TRY(plim_moving_input(cli, opts->allocator, opts->sizes, &moving, err));
    PLIM_TRY(plim_seating_input(&in->requests, opts->plan, NULL, &moving, &plan, err));
    enum plim_status st = tune(cli, opts, in, moving, err);
    plim_seating_input_fini(&plan);
    return st;
}

enum plim_status plim_cmd_tune(struct plim_cli *cli, const struct plim_opts_tune *opts,
                               struct plim_err *err)
{
    struct plim_replay_input in;
    struct plim_replay_words words = PLIM_REPLAY_WORDS(cli->args[0], opts);
    if (opts->conf && !opts->vary) {
        return plim__fail(err, PLIM_E_USAGE,
                          "--conf says what stays when one key varies: add --vary");
    }
    PLIM_TRY(plim_replay_input(&words, &in, err));
    enum plim_status st = plim_replay_needs_blocks(&in.snapshot, err);
    st = st == PLIM_OK ? tune_beside(cli, opts, &in, err) : st;
    plim_replay_input_fini(&in);
    return st;
}
