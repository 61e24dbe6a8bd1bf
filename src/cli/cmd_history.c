/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll history: what a monitor kept, by time; of its file, also while it writes, or by asking it. */

#include "base/clock.h"
#include "base/num.h"
#include "cli/monitor.h"
#include "http/get.h"
#include "report/history.h"
#include "store/writer.h"

#include <inttypes.h>
#include <stdio.h>

#define HOUR_NS     UINT64_C(3600000000000)
#define PATIENCE_NS UINT64_C(60000000000)

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
    if (cli->n_args > 0 && !plim_history_what_of(cli->args[0], &request->what)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "'%.60s' is none of series, subjects, events, findings", cli->args[0]);
    }
    return PLIM_OK;
}

static enum plim_status read_file(struct plim_cli *cli, struct plim_history_request *request,
                                  struct plim_err *err)
{
    struct plim_store_options options = {.read_only = true};
    struct plim_store *store = NULL;
    if (request->path == NULL) {
        return plim__fail(err, PLIM_E_USAGE, "there is no home folder: name the file with --db");
    }
    PLIM_TRY(plim_store_open(request->path, &options, &store, err));
    enum plim_status st = plim_history_write(&cli->out, store, request, err);
    plim_store_close(store);
    return st;
}

static void put_number(struct plim_buf *path, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    plim_http_query_put(path, name, text);
}

static void put_names(struct plim_buf *path, const char *name, const struct plim_opt_list *names)
{
    for (size_t i = 0; i < names->n; i++) {
        plim_http_query_put(path, name, names->items[i]);
    }
}

/* The monitor answers in the form that we show: docs/schema/watch-api.json, /api/v1/history. */
static enum plim_status ask(struct plim_cli *cli, const struct plim_opts_history *opts,
                            const struct plim_history_request *request, struct plim_err *err)
{
    struct plim_buf path = {0};
    plim_buf_text(&path, "/api/v1/history");
    plim_http_query_put(&path, "what", cli->n_args > 0 ? cli->args[0] : "series");
    plim_http_query_put(&path, "form", opts->format);
    put_number(&path, "from", request->from_ns);
    if (request->to_ns != 0) {
        put_number(&path, "to", request->to_ns);
    }
    put_number(&path, request->step_ns != 0 ? "step" : "points",
               request->step_ns != 0 ? request->step_ns : request->points);
    if (request->has_device) {
        put_number(&path, "device", request->device);
    }
    put_names(&path, "process", &opts->process);
    put_names(&path, "serving", &opts->serving);
    put_names(&path, "figure", &opts->figure);
    put_number(&path, "width", cli->width);
    put_number(&path, "color", cli->color);
    enum plim_status st = plim_buf_status(&path, err);
    if (st == PLIM_OK) {
        struct plim_cli_question question = {.monitor = opts->monitor,
                                             .token_file = opts->token_file,
                                             .path = path.p,
                                             .patience_ns = PATIENCE_NS};
        st = plim_cli_ask(cli, &question, err);
    }
    plim_buf_fini(&path);
    return st;
}

enum plim_status plim_cmd_history(struct plim_cli *cli, const struct plim_opts_history *opts,
                                  struct plim_err *err)
{
    struct plim_history_request request = {
        .path = opts->db != NULL ? opts->db : plim_store_default_path(&cli->arena),
        .step_ns = opts->step.value,
        .points = opts->points.given
                      ? (uint32_t)plim_min_u64(opts->points.value, PLIM_HISTORY_POINTS_MOST)
                      : PLIM_HISTORY_POINTS,
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
    (void)plim_history_form_of(opts->format, &request.form);
    PLIM_TRY(what(cli, &request, err));
    PLIM_TRY(range(opts, &request, err));
    if (opts->monitor != NULL && opts->db != NULL) {
        return plim__fail(err, PLIM_E_USAGE, "--db and --monitor both say whose history");
    }
    return opts->monitor != NULL ? ask(cli, opts, &request, err) : read_file(cli, &request, err);
}
