/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll history: what a monitor kept, by time; also while it writes. */

#include "cli/verbs.h"

#include "base/clock.h"
#include "base/num.h"
#include "report/history.h"
#include "store/writer.h"

#define HOUR_NS UINT64_C(3600000000000)
#define POINTS  1000u

static enum plim_status read_time(const char *text, uint64_t now, uint64_t *ns,
                                  struct plim_err *err)
{
    if (text != NULL && !plim_history_time(text, now, ns)) {
        (void)plim__fail(err, PLIM_E_USAGE, "'%.60s' is no time", text);
        plim__err_hint(err,
                       "say 2026-01-31T12:00:00Z, 2026-01-31, @SECONDS, or 2h for two hours ago");
        return PLIM_E_USAGE;
    }
    return PLIM_OK;
}

static enum plim_status range(const struct plim_opts_history *opts,
                              struct plim_history_request *request, struct plim_err *err)
{
    uint64_t now = plim_wall_ns();
    PLIM_TRY(read_time(opts->to, now, &request->to_ns, err));
    uint64_t end = request->to_ns != 0 ? request->to_ns : now;
    uint64_t last = opts->last.given ? opts->last.value : HOUR_NS;
    request->from_ns = end > last ? end - last : 0;
    if (opts->since != NULL && opts->last.given) {
        return plim__fail(err, PLIM_E_USAGE, "--since and --last both say where to begin");
    }
    PLIM_TRY(read_time(opts->since, now, &request->from_ns, err));
    if (request->to_ns != 0 && request->from_ns >= request->to_ns) {
        return plim__fail(err, PLIM_E_USAGE, "the time asked for ends before it begins");
    }
    return PLIM_OK;
}

static enum plim_status what(struct plim_cli *cli, struct plim_history_request *request,
                             struct plim_err *err)
{
    static const char *const words[] = {"series", "subjects", "events", "findings"};
    for (size_t i = 0; cli->n_args > 0 && i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(cli->args[0], words[i]) == 0) {
            request->what = (enum plim_history_what)i;
            return PLIM_OK;
        }
    }
    return cli->n_args == 0
               ? PLIM_OK
               : plim__fail(err, PLIM_E_USAGE,
                            "'%.60s' is none of series, subjects, events, findings", cli->args[0]);
}

static enum plim_history_form form(const struct plim_opts_history *opts)
{
    return plim_cli_is(opts->format, "csv")     ? PLIM_HISTORY_CSV
           : plim_cli_is(opts->format, "jsonl") ? PLIM_HISTORY_JSONL
           : plim_cli_is(opts->format, "json")  ? PLIM_HISTORY_JSON
                                                : PLIM_HISTORY_TEXT;
}

enum plim_status plim_cmd_history(struct plim_cli *cli, const struct plim_opts_history *opts,
                                  struct plim_err *err)
{
    struct plim_store_options options = {.read_only = true};
    struct plim_store *store = NULL;
    struct plim_history_request request = {
        .path = opts->db != NULL ? opts->db : plim_store_default_path(&cli->arena),
        .form = form(opts),
        .step_ns = opts->step.value,
        .points = opts->points.given ? (uint32_t)plim_min_u64(opts->points.value, 100000) : POINTS,
        .has_device = opts->device.given,
        .device = opts->device.value,
        .processes = opts->process.items,
        .n_processes = opts->process.n,
        .engines = opts->serving.items,
        .n_engines = opts->serving.n,
        .figures = opts->figure.items,
        .n_figures = opts->figure.n,
        .style = {.color = cli->color, .unicode = true, .width = cli->width},
    };
    PLIM_TRY(what(cli, &request, err));
    PLIM_TRY(range(opts, &request, err));
    if (request.path == NULL) {
        return plim__fail(err, PLIM_E_USAGE, "there is no home folder: name the file with --db");
    }
    PLIM_TRY(plim_store_open(request.path, &options, &store, err));
    enum plim_status st = plim_history_write(&cli->out, store, &request, err);
    plim_store_close(store);
    return st;
}
