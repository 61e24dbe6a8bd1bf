/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll diff A B: what grew between two snapshots. */

#include "cli/html_file.h"
#include "cli/judge_input.h"
#include "cli/reading.h"
#include "cli/verbs.h"
#include "diagnose/diff.h"
#include "format/snapshot_read.h"
#include "report/diff.h"

static void write_answer(struct plim_cli *cli, const struct plim_opts_diff *opts,
                         const struct plim_diff *diff)
{
    uint32_t rows = opts->rows.given && opts->rows.value < 100000 ? (uint32_t)opts->rows.value : 0;
    if (plim_cli_is(opts->format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_diff(&w, diff);
    } else if (plim_cli_is(opts->format, "markdown")) {
        plim_markdown_diff(&cli->out, diff, rows);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_diff(&cli->out, diff, rows, &style);
    }
}

/* The page of the later snapshot, with what changed ahead of it and the earlier one's stacks to
 * compare with. */
static enum plim_status write_html(struct plim_cli *cli, const struct plim_opts_diff *opts,
                                   const struct plim_snapshot *a, const struct plim_snapshot *b,
                                   const struct plim_diff *diff, struct plim_err *err)
{
    const struct plim_html_part part = {plim_html_diff, diff};
    const struct plim_detail_before before = {a, &diff->a, plim_base_name(cli->args[0])};
    const char *source =
        plim_arena_sayf(&cli->arena, "%s, compared with %s", plim_base_name(cli->args[1]),
                        plim_base_name(cli->args[0]));
    struct plim_html_options page = {.source = source, .part = &part, .before = &before};
    return plim_cli_html(cli, opts->html, b, &diff->b, &page, err);
}

static enum plim_status compare(struct plim_cli *cli, const struct plim_opts_diff *opts,
                                const struct plim_snapshot *a, const struct plim_snapshot *b,
                                struct plim_err *err)
{
    struct plim_diff diff;
    struct plim_diagnose_options options = {
        .device = opts->device.given && opts->device.value < PLIM_NO_ID
                      ? (uint32_t)opts->device.value
                      : PLIM_NO_ID,
        .moment = PLIM_MOMENT_END,
    };
    PLIM_TRY(plim_diff(a, b, &options, &diff, err));
    write_answer(cli, opts, &diff);
    enum plim_status st = write_html(cli, opts, a, b, &diff, err);
    plim_diff_fini(&diff);
    return st;
}

enum plim_status plim_cmd_diff(struct plim_cli *cli, const struct plim_opts_diff *opts,
                               struct plim_err *err)
{
    struct plim_snapshot a, b;
    struct plim_read_limits limits = PLIM_READ_LIMITS(opts);
    PLIM_TRY(plim_snapshot_read_file(cli->args[0], &limits, &a, err));
    enum plim_status st = plim_snapshot_read_file(cli->args[1], &limits, &b, err);
    if (st == PLIM_OK) {
        st = compare(cli, opts, &a, &b, err);
        plim_snapshot_fini(&b);
    }
    plim_snapshot_fini(&a);
    return st;
}
