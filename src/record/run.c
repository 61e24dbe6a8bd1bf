/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start the command, pass signals on, turn the drain until it is over.
 *
 * The command stays in our process group, so that the terminal's Ctrl-C and Ctrl-Z reach both of us; those
 * we take no notice of, and only what somebody sends to us alone is passed on.
 */

#include "record/record.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORDER "libplimsoll_record.so"
#define LEAST_MS 10u                  /* between two turns while events come */
#define MOST_MS  160u                 /* while none come */
#define GRACE_NS UINT64_C(1000000000) /* for processes that end with the command */
#define LOOK_NS  UINT64_C(500000000) /* between two looks for new processes, whatever inotify says */

/* ---- environment */

static enum plim_status find_recorder(struct plim_arena *arena, const char **path,
                                      struct plim_err *err)
{
    const char *folder = plim_own_folder(arena, "PLIMSOLL_RECORDER_DIR", "runtime/recorder",
                                         "../" PLIM_RECORD_LIBDIR "/plimsoll", RECORDER);
    if (folder == NULL) {
        enum plim_status st = plim__fail(err, PLIM_E_NOINPUT, "the recorder is not installed");
        plim__err_hint(err, "build the whole project, or name its folder in PLIMSOLL_RECORDER_DIR");
        return st;
    }
    *path = plim_arena_sayf(arena, "%s/" RECORDER, folder);
    return plim_arena_status(arena, err);
}

/* The Python side, where it is installed. */
static enum plim_status put_attach(struct plim_env *env, struct plim_err *err)
{
    const char *folder =
        plim_own_folder(env->arena, "PLIMSOLL_PYTHON_DIR", "python",
                        "../" PLIM_RECORD_LIBDIR "/plimsoll/python", "sitecustomize.py");
    if (folder == NULL) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_env_put_first(env, "PYTHONPATH", folder, err));
    return plim_env_put_default(env, "PLIMSOLL_ATTACH", "1", err);
}

static enum plim_status make_environment(const struct plim_record_setup *setup, const char *folder,
                                         struct plim_arena *arena, char ***out,
                                         struct plim_err *err)
{
    struct plim_env env;
    const char *recorder;
    PLIM_TRY(find_recorder(arena, &recorder, err));
    enum plim_status st = plim_env_copy(&env, arena, err);
    if (st != PLIM_OK) {
        goto done;
    }
    PLIM_TRY_GOTO(st, plim_env_put_first(&env, "LD_PRELOAD", recorder, err), done);
    PLIM_TRY_GOTO(st, plim_env_put(&env, "PLIMSOLL_RECORD_DIR", folder, err), done);
    if (setup->stacks) {
        PLIM_TRY_GOTO(st, plim_env_put(&env, "PLIMSOLL_RECORD_STACKS", "cached", err), done);
    }
    if (setup->ring_bytes != 0) {
        const char *events =
            plim_arena_sayf(arena, "%" PRIu64, setup->ring_bytes / sizeof(struct plim_gpu_event));
        PLIM_TRY_GOTO(st, plim_env_put(&env, "PLIMSOLL_RECORD_RING", events, err), done);
    }
    if (!setup->no_attach) {
        PLIM_TRY_GOTO(st, put_attach(&env, err), done);
    }
    for (const char *const *v = setup->variables; v != NULL && *v != NULL; v += 2) {
        PLIM_TRY_GOTO(st, plim_env_put(&env, v[0], v[1], err), done);
    }
    st = plim_env_done(&env, out, err);
done:
    plim_env_fini(&env);
    return st;
}

/* ---- the command */

/* Taken, and for the command too. SIGXFSZ is ours: it tells of a file that may not grow, as write() does. */
static const int passed_on[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,  SIGUSR1,
                                SIGUSR2, SIGALRM, SIGCONT, SIGWINCH};

static void signals_we_take(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGXFSZ);
    for (size_t i = 0; i < PLIM_COUNT_OF(passed_on); i++) {
        (void)sigaddset(set, passed_on[i]);
    }
}

/* Start it with the signal mask that we were started with. */
static enum plim_status start(const struct plim_record_setup *setup, char **env,
                              const sigset_t *mask, pid_t *pid, struct plim_err *err)
{
    posix_spawnattr_t attributes;
    if (posix_spawnattr_init(&attributes) != 0) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to start a command");
    }
    (void)posix_spawnattr_setsigmask(&attributes, mask);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int error =
        posix_spawnp(pid, setup->command[0], NULL, &attributes, (char *const *)setup->command, env);
    (void)posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        enum plim_status st =
            plim__fail_errno(err, PLIM_E_NOINPUT, error, "cannot run '%s'", setup->command[0]);
        plim__err_hint(err, "the command follows the options: plimsoll record -- python train.py");
        return st;
    }
    return PLIM_OK;
}

/* ---- the loop */

struct loop {
    struct plim_drain *drain;
    const struct plim_record_setup *setup;
    pid_t pid;
    int signals; /* signalfd */
    int news;    /* inotify of the session, or -1 */
    bool ended;  /* the command */
    bool alone;  /* no process is left that it started */
    int status;  /* of wait */
    uint64_t ended_ns;
    uint64_t looked_ns; /* for new processes */
    unsigned wait_ms;
};

/* Pass a signal on, unless the terminal sent it: then the command has it already. */
static void pass_on(const struct loop *l, const struct signalfd_siginfo *info)
{
    bool from_terminal = info->ssi_code == SI_KERNEL;
    bool ours = info->ssi_signo == SIGCHLD || info->ssi_signo == SIGXFSZ;
    if (!l->ended && !from_terminal && !ours) {
        (void)kill(l->pid, (int)info->ssi_signo);
    }
}

static void read_signals(struct loop *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        pass_on(l, &info);
    }
    for (;;) {
        int status;
        pid_t got = waitpid(-1, &status, WNOHANG);
        if (got == l->pid) {
            l->status = status;
            l->ended = true;
            l->ended_ns = plim_mono_ns();
        } else if (got <= 0) {
            l->alone = got < 0 && errno == ECHILD;
            return;
        }
    }
}

static void read_news(const struct loop *l)
{
    char buf[4096];
    while (l->news >= 0 && read(l->news, buf, sizeof(buf)) > 0) {
    }
}

/* Whether there is nothing more to wait for. */
static bool finished(const struct loop *l)
{
    if (!l->ended) {
        return false;
    }
    bool waited = plim_mono_ns() - l->ended_ns >= GRACE_NS;
    bool quiet = plim_drain_living(l->drain) == 0;
    return l->setup->follow ? quiet && l->alone : quiet || waited;
}

static enum plim_status turn(struct loop *l, struct plim_err *err)
{
    struct pollfd fds[2] = {{.fd = l->signals, .events = POLLIN},
                            {.fd = l->news, .events = POLLIN}};
    int ready = poll(fds, 2, (int)l->wait_ms);
    uint64_t took, now = plim_mono_ns();
    bool was_ended = l->ended;
    if (ready > 0 && fds[0].revents != 0) {
        read_signals(l);
    }
    bool news = ready > 0 && fds[1].revents != 0;
    if (news || l->ended || now - l->looked_ns >= LOOK_NS) {
        read_news(l);
        l->looked_ns = now;
        PLIM_TRY(plim_drain_look(l->drain, err));
    }
    PLIM_TRY(plim_drain_turn(l->drain, &took, err));
    if (l->setup->tick != NULL && !l->ended) {
        l->setup->tick(l->setup->tick_arg, l->pid);
    }
    bool busy = took > 0 || news || l->ended != was_ended;
    l->wait_ms = busy ? LEAST_MS : (unsigned)plim_min_u64(2 * l->wait_ms, MOST_MS);
    l->wait_ms = l->ended ? LEAST_MS : l->wait_ms;
    return PLIM_OK;
}

static enum plim_status loop_until_over(struct loop *l, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    do {
        st = turn(l, err);
    } while (st == PLIM_OK && !finished(l));
    /* Trouble of our own must not end the command: without a reader it goes on as well. */
    while (!l->ended) {
        struct pollfd fd = {.fd = l->signals, .events = POLLIN};
        (void)poll(&fd, 1, -1);
        read_signals(l);
    }
    return st;
}

/* ---- the whole */

static enum plim_status run_command(const struct plim_record_setup *setup, char **env,
                                    struct plim_drain *drain, struct plim_record_result *out,
                                    struct plim_err *err)
{
    sigset_t set, before;
    signals_we_take(&set);
    struct loop l = {.drain = drain, .setup = setup, .wait_ms = LEAST_MS};
    l.news = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (l.news >= 0) {
        (void)inotify_add_watch(l.news, drain->folder, IN_MOVED_TO | IN_CREATE);
    }
    if (setup->follow) { /* what the command leaves behind becomes ours to wait for */
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    (void)pthread_sigmask(SIG_BLOCK, &set, &before);
    l.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    enum plim_status st = l.signals >= 0
                              ? start(setup, env, &before, &l.pid, err)
                              : plim__fail_errno(err, PLIM_E_OS, errno, "cannot take signals");
    if (st == PLIM_OK) {
        st = loop_until_over(&l, err);
        out->pid = l.pid;
        out->exit_status = WIFEXITED(l.status) ? WEXITSTATUS(l.status) : 0;
        out->signal = WIFSIGNALED(l.status) ? WTERMSIG(l.status) : 0;
        enum plim_status finish =
            plim_drain_finish(drain, out->exit_status, out->signal, st == PLIM_OK ? err : NULL);
        st = st == PLIM_OK ? finish : st;
    }
    (void)close(l.signals);
    if (l.news >= 0) {
        (void)close(l.news);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

/* The trace of a command that was never started says nothing. Never a device or a pipe. */
static void remove_empty(const char *trace)
{
    struct stat info;
    if (lstat(trace, &info) == 0 && S_ISREG(info.st_mode)) {
        (void)unlink(trace);
    }
}

enum plim_status plim_record_run(const struct plim_record_setup *setup, struct plim_arena *arena,
                                 struct plim_record_result *out, struct plim_err *err)
{
    struct plim_session session;
    struct plim_drain drain;
    char **env = NULL;
    uint64_t start_ns = plim_mono_ns();
    *out = (struct plim_record_result){0};
    PLIM_TRY(plim_session_make(&session, err));
    enum plim_status st = make_environment(setup, session.folder, arena, &env, err);
    if (st == PLIM_OK) {
        st = plim_drain_open(&drain, setup, session.folder, err);
        if (st == PLIM_OK) {
            st = run_command(setup, env, &drain, out, err);
            out->tally = drain.tally;
            out->trace_bytes = drain.writer.size;
            plim_drain_close(&drain);
            if (st != PLIM_OK && out->pid == 0) {
                remove_empty(setup->trace);
            }
        }
    }
    plim_session_remove(&session);
    out->wall_ns = plim_mono_ns() - start_ns;
    return st;
}
