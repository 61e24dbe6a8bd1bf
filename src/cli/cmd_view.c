/* SPDX-License-Identifier: Apache-2.0 */

/*
 * plimsoll view SNAPSHOT: the interactive report from a local server, exact at any zoom. Prints the address, opens a
 * browser when there is a screen, and ends with Ctrl-C (or SIGTERM).
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
                              struct plim_detail *detail, struct plim_err *err)
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
    PLIM_TRY(plim_server_start(detail, plim_base_name(cli->args[0]), port, &server, err));
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

enum plim_status plim_cmd_view(struct plim_cli *cli, const struct plim_opts_view *opts,
                               struct plim_err *err)
{
    struct plim_judged judged;
    struct plim_detail detail;
    struct plim_judge_words words = PLIM_JUDGE_WORDS(opts);
    if (opts->port.given && opts->port.value > UINT16_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "--port: %llu is no port",
                          (unsigned long long)opts->port.value);
    }
    PLIM_TRY(plim_judge_input(cli->args[0], &words, &judged, err));
    enum plim_status st =
        plim_detail_init(&detail, &judged.snapshot, &judged.diagnosis, SERVED_BINS, err);
    if (st == PLIM_OK) {
        st = serve(cli, opts, &detail, err);
        plim_detail_fini(&detail);
    }
    plim_judged_fini(&judged);
    return st;
}
