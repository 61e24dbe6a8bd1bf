/* SPDX-License-Identifier: Apache-2.0 */

/*
 * plimsoll view SNAPSHOT: the interactive report from a local server, exact at any zoom. Prints the
 * address, opens a browser when there is a screen, and ends with Ctrl-C (or SIGTERM).
 */

#include "base/file.h"
#include "cli/judge_input.h"
#include "report/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define SERVED_BINS 65536u /* of the ledger over the whole trace */

extern char **environ;

/* Open the address in the user's browser. Whether that works is the user's to see. */
static void open_browser(const char *url)
{
    char program[] = "xdg-open", address[128];
    char *const command[] = {program, address, NULL};
    const char *x11 = getenv("DISPLAY"); // NOLINT(concurrency-mt-unsafe): nobody changes it
    const char *wayland = getenv("WAYLAND_DISPLAY"); // NOLINT(concurrency-mt-unsafe)
    posix_spawn_file_actions_t quiet;
    pid_t child;
    if ((!x11 || !*x11) && (!wayland || !*wayland)) {
        return;
    }
    (void)snprintf(address, sizeof(address), "%s", url);
    if (posix_spawn_file_actions_init(&quiet) != 0) {
        return;
    }
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&child, command[0], &quiet, NULL, command, environ) == 0) {
        (void)waitpid(child, NULL, WNOHANG);
    }
    posix_spawn_file_actions_destroy(&quiet);
}

static enum plim_status say_url(struct plim_cli *cli, const struct plim_server *server,
                                struct plim_err *err)
{
    struct plim_buf line = {0};
    plim_buf_printf(&line, "%s\n(Ctrl-C ends)\n", plim_server_url(server));
    enum plim_status st = plim_buf_status(&line, err);
    if (st == PLIM_OK) {
        st = plim_file_replace("-", plim_buf_str(&line), err);
    }
    plim_buf_fini(&line);
    (void)cli;
    return st;
}

/* Serve until a signal says to end. Signals are blocked before the server's thread starts, and stay so: `timeout`
 * sends its signal twice. */
static enum plim_status serve(struct plim_cli *cli, const struct plim_opts_view *opts,
                              struct plim_detail *details, size_t n, struct plim_err *err)
{
    struct plim_server *server;
    sigset_t ending;
    int signal_number;
    uint16_t port = (uint16_t)(opts->port.given ? opts->port.value : 0);
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ending, NULL);
    PLIM_TRY(plim_server_start(details, n, plim_base_name(cli->args[0]), port, &server, err));
    enum plim_status st = say_url(cli, server, err);
    if (st == PLIM_OK) {
        if (!opts->no_browser) {
            open_browser(plim_server_url(server));
        }
        (void)sigwait(&ending, &signal_number);
    }
    plim_server_stop(server);
    return st;
}

/* The devices of the page. The first is the one that was judged; the others are judged here. */
struct shown {
    struct plim_diagnosis others[PLIM_HTML_DEVICES]; /* [0] is not used */
    struct plim_detail details[PLIM_HTML_DEVICES];
    size_t n; /* details that are there */
};

static void shown_fini(struct shown *shown)
{
    for (size_t i = 0; i < shown->n; i++) {
        plim_detail_fini(&shown->details[i]);
        if (i > 0) {
            plim_diagnosis_fini(&shown->others[i]);
        }
    }
}

static enum plim_status show_other(struct shown *shown, const struct plim_judged *judged,
                                   uint32_t device, struct plim_err *err)
{
    struct plim_diagnose_options how = judged->other;
    struct plim_diagnosis *diagnosis = &shown->others[shown->n];
    how.device = device;
    PLIM_TRY(plim_diagnose(&judged->snapshot, &how, diagnosis, err));
    enum plim_status st =
        plim_detail_init(&shown->details[shown->n], &judged->snapshot, diagnosis, SERVED_BINS, err);
    if (st != PLIM_OK) {
        plim_diagnosis_fini(diagnosis);
        return st;
    }
    shown->n++;
    return PLIM_OK;
}

static enum plim_status show(struct shown *shown, const struct plim_judged *judged, bool all,
                             struct plim_err *err)
{
    uint32_t devices[PLIM_HTML_DEVICES];
    size_t n = plim_html_devices(&judged->snapshot, judged->diagnosis.device, devices);
    PLIM_TRY(plim_detail_init(&shown->details[0], &judged->snapshot, &judged->diagnosis,
                              SERVED_BINS, err));
    shown->n = 1;
    for (size_t i = 1; all && i < n; i++) {
        PLIM_TRY(show_other(shown, judged, devices[i], err));
    }
    return PLIM_OK;
}

enum plim_status plim_cmd_view(struct plim_cli *cli, const struct plim_opts_view *opts,
                               struct plim_err *err)
{
    struct plim_judged judged;
    struct shown shown = {.n = 0};
    struct plim_judge_words words = PLIM_JUDGE_WORDS(opts);
    if (opts->port.given && opts->port.value > UINT16_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "--port: %llu is no port",
                          (unsigned long long)opts->port.value);
    }
    PLIM_TRY(plim_judge_input(cli->args[0], &words, &judged, err));
    enum plim_status st = show(&shown, &judged, !opts->device.given, err);
    if (st == PLIM_OK) {
        st = serve(cli, opts, shown.details, shown.n, err);
    }
    shown_fini(&shown);
    plim_judged_fini(&judged);
    return st;
}
