/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll status: who holds the device memory of this machine just now. A monitor that runs is asked, since
 * it knows what needs time: findings, trends, critical errors. */

#include "base/env.h"
#include "cli/monitor.h"
#include "cli/version.h"
#include "detect/replay.h"
#include "report/metrics.h"
#include "watch/watch.h"

#include <stdio.h>
#include <unistd.h>

#define PATIENCE_NS UINT64_C(5000000000)

static void write_state(struct plim_cli *cli, const struct plim_state *state, const char *format)
{
    struct plim_status_style style = {.color = cli->color, .width = cli->width};
    if (plim_cli_is(format, "json")) {
        plim_status_json(&cli->out, state, false);
    } else if (plim_cli_is(format, "prometheus")) {
        plim_metrics_write(&cli->out, state, PLIM_METRICS_TEXT);
    } else if (plim_cli_is(format, "openmetrics")) {
        plim_metrics_write(&cli->out, state, PLIM_METRICS_OPENMETRICS);
    } else {
        plim_status_view(&cli->out, state, &style);
    }
}

/* Look ourselves: without a monitor there are no findings, which need time. */
static enum plim_status look(struct plim_cli *cli, const struct plim_opts_status *opts,
                             struct plim_err *err)
{
    struct plim_collect_options options = {.script = opts->samples};
    struct plim_collector *collector = NULL;
    struct plim_observation now = {0};
    char host[256] = "";
    PLIM_TRY(plim_collector_open(&options, &collector, err));
    enum plim_status st = plim_collector_take(collector, &now, err);
    if (st == PLIM_OK) {
        (void)gethostname(host, sizeof(host) - 1);
        struct plim_state state = {.now = &now,
                                   .stats = plim_collector_stats(collector),
                                   .version = PLIM_VERSION,
                                   .host = host};
        write_state(cli, &state, opts->format);
    }
    plim_observation_fini(&now);
    plim_collector_close(collector);
    return st;
}

static enum plim_status write_replayed(struct plim_cli *cli, const struct plim_opts_status *opts,
                                       const struct plim_detector *detector,
                                       const struct plim_replayed *replayed, struct plim_err *err)
{
    PLIM_VEC(struct plim_estimate) left = {0};
    enum plim_status st = PLIM_OK;
    for (uint32_t i = 0; st == PLIM_OK && i < replayed->last.sample.devices.n; i++) {
        st = plim_vec_push(&left, err, plim_detector_left(detector, i));
    }
    if (st == PLIM_OK) {
        struct plim_state state = {.now = &replayed->last,
                                   .watched = true,
                                   .findings = replayed->findings.items,
                                   .n_findings = replayed->findings.n,
                                   .left = left.items,
                                   .version = PLIM_VERSION,
                                   .host = ""};
        write_state(cli, &state, opts->format);
    }
    plim_vec_fini(&left);
    return st;
}

/* A recorded history instead of this machine: what a monitor would have said of it. */
static enum plim_status replay(struct plim_cli *cli, const struct plim_opts_status *opts,
                               struct plim_err *err)
{
    struct plim_source source;
    struct plim_detector *detector = NULL;
    struct plim_replayed replayed = {0};
    PLIM_TRY(plim_source_open(opts->replay, &source, err));
    enum plim_status st = plim_detector_new(NULL, &detector, err);
    if (st == PLIM_OK) {
        st = plim_detect_replay(detector, &source, &replayed, err);
    }
    if (st == PLIM_OK) {
        st = write_replayed(cli, opts, detector, &replayed, err);
    }
    plim_replayed_fini(&replayed);
    plim_detector_free(detector);
    plim_source_close(&source);
    return st;
}

/* What the monitor has in each form. */
static const struct {
    const char *format, *path;
    int metrics; /* the form of metrics, or -1 */
} forms[] = {{"text", "/api/v1/status.txt", -1},
             {"json", "/api/v1/status", -1},
             {"prometheus", "/metrics", PLIM_METRICS_TEXT},
             {"openmetrics", "/metrics", PLIM_METRICS_OPENMETRICS}};

static enum plim_status ask(struct plim_cli *cli, const struct plim_opts_status *opts,
                            const char *address, struct plim_err *err)
{
    struct plim_cli_question question = {
        .monitor = address, .token_file = opts->token_file, .patience_ns = PATIENCE_NS};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (plim_cli_is(opts->format, forms[i].format)) {
            question.path = forms[i].path;
            question.accept =
                forms[i].metrics >= 0
                    ? plim_metrics_content_type((enum plim_metrics_form)forms[i].metrics)
                    : NULL;
        }
    }
    return plim_cli_ask(cli, &question, err);
}

/* The socket of a monitor of this user or of this machine; NULL: there is none. */
static const char *find_monitor(struct plim_cli *cli)
{
    const char *folders[] = {plim_env_get("XDG_RUNTIME_DIR"), PLIM_WATCH_SYSTEM};
    for (size_t i = 0; i < 2; i++) {
        const char *path =
            folders[i] == NULL
                ? NULL
                : plim_arena_sayf(&cli->arena, "unix:%s/" PLIM_WATCH_SOCKET, folders[i]);
        if (path != NULL && access(path + 5, W_OK) == 0) {
            return path;
        }
    }
    return NULL;
}

enum plim_status plim_cmd_status(struct plim_cli *cli, const struct plim_opts_status *opts,
                                 struct plim_err *err)
{
    const char *address = opts->monitor;
    if (opts->replay != NULL) {
        return replay(cli, opts, err);
    }
    if (address != NULL && strcmp(address, "none") != 0) {
        return ask(cli, opts, address, err);
    }
    address = address == NULL && opts->samples == NULL ? find_monitor(cli) : NULL;
    if (address != NULL && ask(cli, opts, address, NULL) == PLIM_OK) {
        return PLIM_OK;
    }
    plim_buf_reset(&cli->out); /* a socket that was left behind, or a monitor that hangs */
    return look(cli, opts, err);
}
