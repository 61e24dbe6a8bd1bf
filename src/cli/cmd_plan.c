/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll plan MODEL --gpu CARD -- FLAGS: will this engine serve this model with these flags, what will it
 * report, and what would help. */

#include "base/file.h"
#include "base/num.h"
#include "cli/plan_input.h"
#include "report/plan.h"

#include <math.h>
#include <stdlib.h>

static void write_answer(struct plim_cli *cli, const char *format, const struct plim_plan *plan,
                         const struct plim_plan_compared *compared)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_plan(&w, plan, compared);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_plan(&cli->out, plan, compared, &style);
    }
}

static void want(struct plim_plan_request *request, const struct plim_opts_plan *opts)
{
    request->want_context = opts->largest_context;
    request->want_batch = opts->largest_batch;
    request->want_gpu = opts->smallest_gpu;
    request->want_replicas = opts->replicas;
}

/* The engine's log against a plan without corrections; what it teaches is kept. */
static enum plim_status calibrate(struct plim_cli *cli, const char *path,
                                  struct plim_plan_request *request, struct plim_plan_state *state,
                                  struct plim_plan_compared *out, struct plim_err *err)
{
    struct plim_str text;
    request->calibration = NULL;
    PLIM_TRY(plim_plan_make(&cli->arena, request, &out->planned, err));
    PLIM_TRY(plim_file_read(path, UINT64_C(256) << 20, &text, err));
    plim_engine_log_read(text, &out->log);
    free((char *)text.p);
    if (out->log.available_kv_bytes < 0 && out->log.num_blocks < 0) {
        enum plim_status st =
            plim__fail(err, PLIM_E_DATA, "%s does not say how large the KV cache is", path);
        plim__err_hint(err, "give the log of a start of vLLM, or the text of /metrics");
        return st;
    }
    double actual = out->log.available_kv_bytes >= 0
                        ? out->log.available_kv_bytes
                        : out->log.num_blocks * (double)out->planned.start.block_bytes;
    out->path = path;
    double learned = (double)out->planned.start.available - actual;
    out->learned_bytes = (int64_t)fmax(fmin(learned, 9e18), -9e18);
    PLIM_TRY(
        plim_plan_state_learn(&cli->arena, state, request->card.name, out->learned_bytes, err));
    out->stored = true;
    return PLIM_OK;
}

enum plim_status plim_cmd_plan(struct plim_cli *cli, const struct plim_opts_plan *opts,
                               struct plim_err *err)
{
    struct plim_plan_request request = {0};
    struct plim_plan_compared compared = {0};
    struct plim_plan_state state;
    struct plim_plan plan;
    if (opts->list_gpus) {
        plim_text_cards(&cli->out);
        return PLIM_OK;
    }
    PLIM_TRY(plim_plan_input(cli, opts, &request, err));
    want(&request, opts);
    PLIM_TRY(plim_plan_state_open(&cli->arena, opts->forget, &state, err));
    if (opts->calibrate != NULL) {
        PLIM_TRY(calibrate(cli, opts->calibrate, &request, &state, &compared, err));
    }
    request.calibration =
        opts->no_calibration ? NULL : plim_plan_state_find(&state, request.card.name);
    PLIM_TRY(plim_plan_make(&cli->arena, &request, &plan, err));
    write_answer(cli, opts->format, &plan, &compared);
    cli->exit_code = !plan.fits ? 2 : plan.tight ? 1 : 0;
    return PLIM_OK;
}
