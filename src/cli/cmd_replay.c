/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll replay SNAPSHOT: the recorded requests under other settings, or on another device. */

#include "cli/moving_input.h"
#include "cli/replay_input.h"
#include "replay/driver.h"
#include "replay/effects.h"
#include "report/replay.h"

static enum plim_status self_check(struct plim_cli *cli, const struct plim_opts_replay *opts,
                                   struct plim_replay_input *in, struct plim_err *err)
{
    struct plim_selfcheck check;
    uint64_t capacity = opts->device_memory.given ? opts->device_memory.value : 0;
    PLIM_TRY(plim_selfcheck(&in->requests, capacity, &check, err));
    if (plim_cli_is(opts->format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_selfcheck(&w, &check);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_selfcheck(&cli->out, &check, &style);
    }
    bool bad = check.differences > 0 || (check.heap_compared && !check.heap_equal);
    cli->exit_code = opts->check && bad ? 1 : 0;
    return PLIM_OK;
}

static void write_answer(struct plim_cli *cli, const char *format,
                         const struct plim_replay_view *view)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_replay(&w, view, &cli->arena);
    } else if (plim_cli_is(format, "markdown")) {
        plim_markdown_replay(&cli->out, view, &cli->arena);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_replay(&cli->out, view, &cli->arena, &style);
    }
}

/* Whether the model knows why the recorded request failed; NULL when nobody can tell. `answer` holds it. */
static enum plim_status reproduce(const struct plim_replay_input *in, bool *answer,
                                  const bool **out, struct plim_err *err)
{
    const struct plim_requests *q = &in->requests;
    struct plim_effects effects = {0};
    *out = NULL;
    if (!q->recorded_failure || in->snapshot.level != PLIM_LEVEL_BLOCKS) {
        return PLIM_OK;
    }
    enum plim_status st = plim_replay_effects(q, q->failure_event, NULL, 0, &effects, err);
    if (st == PLIM_OK && effects.replays > 0) {
        *answer = effects.reproduced;
        *out = answer;
    }
    /* A heap that contradicts itself, or a backend without a model, leaves it open. */
    return st == PLIM_E_NOMEM ? st : PLIM_OK;
}

static enum plim_status replay(struct plim_cli *cli, const struct plim_opts_replay *opts,
                               const struct plim_replay_input *in,
                               const struct plim_moving_options *moving,
                               const struct plim_seating_input *plan, struct plim_err *err)
{
    struct plim_conf conf = in->requests.conf;
    struct plim_replay_result result;
    struct plim_str recorded = plim_intern_str(&in->snapshot.strings, in->snapshot.settings.conf);
    struct plim_str text = opts->conf ? plim_str_from(opts->conf) : recorded;
    if (moving && opts->conf) {
        return plim__fail(err, PLIM_E_USAGE, "--conf is about PyTorch's allocator");
    }
    if (opts->conf) {
        plim_conf_init(&conf, in->version);
        PLIM_TRY(plim_conf_parse(&conf, text, err));
    }
    struct plim_replay_setup setup = {
        .conf = &conf,
        .capacity = in->capacity,
        .external = in->external,
        .scale = in->scale,
        .start = plim_cli_is(opts->start, "anew") ? PLIM_START_ANEW : PLIM_START_AS_WAS,
        .go_on = opts->go_on,
        .moving = moving,
    };
    PLIM_TRY(in->snapshot.level == PLIM_LEVEL_BLOCKS
                 ? plim_replay(&in->requests, &setup, &result, err)
                 : plim_replay_driver(&in->requests, &setup, &result, err));
    bool answer = false;
    const bool *reproduced = NULL;
    PLIM_TRY(reproduce(in, &answer, &reproduced, err));
    struct plim_replay_view view = {
        .requests = &in->requests,
        .setup = &setup,
        .result = &result,
        .conf = moving ? "" : plim_arena_sayf(&cli->arena, "%.*s", PLIM_STR_ARG(text)),
        .capacity_by = in->capacity_by,
        .seating = plan->made ? &plan->facts : NULL,
        .reproduced = reproduced,
    };
    write_answer(cli, opts->format, &view);
    cli->exit_code = opts->check && result.failed ? 1 : 0;
    return PLIM_OK;
}

static enum plim_status what_if(struct plim_cli *cli, const struct plim_opts_replay *opts,
                                const struct plim_replay_input *in, struct plim_err *err)
{
    const struct plim_moving_options *moving;
    struct plim_seating_input plan;
    PLIM_TRY(plim_moving_input(cli, opts->allocator, opts->sizes, &moving, err));
    PLIM_TRY(plim_seating_input(&in->requests, opts->plan, opts->write_plan, &moving, &plan, err));
    enum plim_status st = replay(cli, opts, in, moving, &plan, err);
    plim_seating_input_fini(&plan);
    return st;
}

enum plim_status plim_cmd_replay(struct plim_cli *cli, const struct plim_opts_replay *opts,
                                 struct plim_err *err)
{
    struct plim_replay_input in;
    struct plim_replay_words words = PLIM_REPLAY_WORDS(cli->args[0], opts);
    PLIM_TRY(plim_replay_input(&words, &in, err));
    enum plim_status st =
        opts->conf || opts->self_check ? plim_replay_needs_blocks(&in.snapshot, err) : PLIM_OK;
    if (st != PLIM_OK) {
        plim_replay_input_fini(&in);
        return st;
    }
    st = opts->self_check ? self_check(cli, opts, &in, err) : what_if(cli, opts, &in, err);
    plim_replay_input_fini(&in);
    return st;
}
