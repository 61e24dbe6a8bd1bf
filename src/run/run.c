/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's loop: signals, and a step ten times a second. See run.h and turn.c. */

#include "run/turn.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/err.h"
#include "base/num.h"
#include "http/curl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define STEP_MS 100

void plim__run_tell(const struct plim__run *r, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->options->tell(r->options->tell_arg, text);
}

/* A phase begins: what is done once, and systemd is told. */
void plim__run_enter(struct plim__run *r, enum plim__phase phase)
{
    static const char *const words[] = {
#define PLIM__X(name, word) "STATUS=" word,
        PLIM__PHASE_MAP(PLIM__X)
#undef PLIM__X
    };
    r->phase = phase;
    r->since_ns = r->now_ns;
    plim__notify_send(&r->notify, words[phase]);
    if (phase == PLIM__PHASE_DRAINING) {
        plim__run_drain(r, true);
    }
    if (phase == PLIM__PHASE_STOPPING) {
        plim__start_lock_free(&r->lock);
        plim__health_stop(&r->health);
        if (r->ended) {
            plim__group_signal(r->pid, SIGTERM); /* what it left behind */
        } else {
            (void)kill(r->pid, SIGTERM); /* it ends its own workers, in its own order */
        }
    }
    if (phase == PLIM__PHASE_WAITING) {
        r->looked_ns = 0;
    }
}

/* ---- before ---- */

/* "http://HOST:PORT/path" into its halves; "unix:PATH" asks for /health. */
static enum plim_status split_health(struct plim__run *r, struct plim_err *err)
{
    const char *text = r->options->health;
    struct plim_curl curl;
    if (text == NULL) {
        return PLIM_OK;
    }
    const char *after = strstr(text, "://");
    bool known = after ? strncmp(text, "http", 4) == 0 : strchr(text, ':') != NULL;
    if (!known) {
        plim__err_set(err, PLIM_E_USAGE, "--health: '%.100s' is no address", text);
        plim__err_hint(err, "http://127.0.0.1:8000/health, 127.0.0.1:8000 or unix:PATH");
        return PLIM_E_USAGE;
    }
    PLIM_TRY(plim_curl_open(&curl, err)); /* before there are threads */
    const char *slash =
        strncmp(text, "unix:", 5) == 0 ? NULL : strchr(after ? after + 3 : text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    if (n == 0 || n >= sizeof(r->health_address) ||
        (slash && strlen(slash) >= sizeof(r->health_path))) {
        return plim__fail(err, PLIM_E_USAGE, "--health: '%.100s' is no address", text);
    }
    memcpy(r->health_address, text, n);
    (void)snprintf(r->health_path, sizeof(r->health_path), "%s",
                   slash && slash[1] ? slash : "/health");
    r->health.address = r->health_address;
    r->health.path = r->health_path;
    r->health.every_ns = r->options->health_every_ns;
    r->health.timeout_ns = r->options->health_timeout_ns;
    return PLIM_OK;
}

/* Why nothing can be made in a folder, or, while it is not there, in the first one above it that is; 0: it can. */
static int unwritable(const char *folder)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s", folder);
    while (access(path, W_OK | X_OK) != 0) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT) {
            return errno;
        }
        if (slash == NULL || slash == path) {
            return access(slash ? "/" : ".", W_OK | X_OK) == 0 ? 0 : errno;
        }
        *slash = '\0';
    }
    return 0;
}

/* Said now, because after the failure it is too late. */
static void check_incidents(struct plim__run *r)
{
    const char *folder = r->options->incidents;
    int why = folder != NULL && r->options->record != NULL ? unwritable(folder) : 0;
    if (why != 0) {
        struct plim_err err = {0};
        plim__err_set_errno(&err, PLIM_E_OS, why,
                            "a failure will leave no evidence: incidents cannot be kept in %s",
                            folder);
        plim__run_tell(r, "%s", err.message);
    }
}

static enum plim_status prepare(struct plim__run *r, struct plim_err *err)
{
    const struct plim_run_options *o = r->options;
    const struct plim_collect_options collect = {.incidents = o->incidents};
    for (size_t i = 0; i < o->n_notches; i++) {
        PLIM_TRY(plim_notch_parse(&r->notches, o->notches[i], err));
    }
    for (size_t i = 0; i < r->notches.n; i++) { /* better known now than after the failure */
        const char *why = plim_notch_useless(&r->notches.list[i], o->command, o->n_command);
        if (why != NULL) {
            plim__run_tell(r, "--notch %s will change nothing: %s", r->notches.list[i].flag, why);
        }
    }
    PLIM_TRY(plim__window_parse(o->restart_window, &r->window, err));
    PLIM_TRY(split_health(r, err));
    int missing = plim_command_missing(o->command[0]);
    if (missing != 0) { /* no turn would be another one */
        plim__err_set_errno(err, PLIM_E_NOINPUT, missing, "cannot run '%.200s'", o->command[0]);
        plim__err_hint(err, "the command follows the options: plimsoll run -- vllm serve MODEL");
        return PLIM_E_NOINPUT;
    }
    check_incidents(r);
    PLIM_TRY(plim_collector_open(&collect, &r->collector, err));
    plim__run_look(r); /* incidents that are there already are nobody's failure now */
    r->ooms = 0;
    return PLIM_OK;
}

static int catch_signals(sigset_t *before)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void take_signals(struct plim__run *r, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int got = (int)info.ssi_signo;
        if (got == SIGHUP) {
            plim__run_tell(r, "a restart was asked for");
            r->pause_ns = 0;
            plim__run_finish(r, false);
        } else if (got != SIGCHLD && r->stop && r->phase == PLIM__PHASE_STOPPING) {
            plim__run_tell(r, "asked twice: killing it");
            plim__run_enter(r, PLIM__PHASE_KILLING);
        } else if (got != SIGCHLD) {
            plim__run_tell(r, "asked to end");
            plim__run_finish(r, true);
        }
    }
}

static enum plim_status loop(struct plim__run *r, int signals, struct plim_err *err)
{
    while (r->phase != PLIM__PHASE_ENDED) {
        struct pollfd p = {.fd = signals, .events = POLLIN};
        (void)poll(&p, 1, STEP_MS);
        r->now_ns = plim_mono_ns();
        plim__notify_alive(&r->notify, r->now_ns);
        take_signals(r, signals);
        PLIM_TRY(plim__run_step(r, err));
    }
    return PLIM_OK;
}

static void clean_up(struct plim__run *r)
{
    if (r->pid != 0) { /* the loop failed */
        plim__group_signal(r->pid, SIGKILL);
    }
    plim__words_stop(&r->words);
    plim__health_stop(&r->health);
    plim__start_lock_free(&r->lock);
    if (r->ledger_open) {
        plimsoll_gate_close(&r->ledger, plim_mono_ns());
    }
    plim_collector_close(r->collector);
    plim_observation_fini(&r->seen);
    plim_arena_fini(&r->arena);
}

enum plim_status plim_run(const struct plim_run_options *options, int *exit_code,
                          struct plim_err *err)
{
    struct plim__run *r = calloc(1, sizeof(*r));
    sigset_t before;
    if (r == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the supervisor");
    }
    r->options = options;
    r->now_ns = plim_mono_ns();
    plim__notify_open(&r->notify);
    int signals = catch_signals(&before);
    enum plim_status st =
        signals >= 0 ? prepare(r, err) : plim__fail_errno(err, PLIM_E_OS, errno, "no signalfd");
    if (st == PLIM_OK) {
        plim__run_enter(r, PLIM__PHASE_WAITING);
        st = loop(r, signals, err);
    }
    clean_up(r);
    if (signals >= 0) {
        (void)close(signals);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    *exit_code = r->exit_code;
    free(r);
    return st;
}
