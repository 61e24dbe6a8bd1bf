/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start the command, wait for it, say how it ended.
 *
 * The command gets a process group of its own, so that a time limit can end all of it; when the
 * terminal is ours it becomes the foreground group, so that Ctrl-C reaches it and not us.
 */

#include "dryrun/dryrun.h"

#include "base/clock.h"
#include "base/intern.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(5000000000) /* between SIGTERM and SIGKILL at a time limit */

/* ---- the child */

static _Noreturn void child(const struct plim_dryrun_setup *setup, char **env, int fail_fd,
                            bool terminal, const sigset_t *mask)
{
    (void)setpgid(0, 0);
    if (terminal) {
        (void)signal(SIGTTOU, SIG_IGN);
        (void)tcsetpgrp(STDIN_FILENO, getpid());
        (void)signal(SIGTTOU, SIG_DFL);
    }
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL);
    if (setup->stdout_to_stderr) {
        (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    }
    (void)execvpe(setup->command[0], (char *const *)setup->command, env);
    int error = errno;
    ssize_t put = write(fail_fd, &error, sizeof(error));
    _exit(put < 0 ? 126 : 127);
}

/* The error that exec met in the child, or 0 once it has worked: the pipe closes on exec. */
static int exec_error(int fd)
{
    int error = 0;
    ssize_t got;
    do {
        got = read(fd, &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    (void)close(fd);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

static enum plim_status no_command(const struct plim_dryrun_setup *setup, int error,
                                   struct plim_err *err)
{
    enum plim_status st =
        plim__fail_errno(err, PLIM_E_NOINPUT, error, "cannot run '%s'", setup->command[0]);
    plim__err_hint(err, "the command follows the options: plimsoll dryrun -- python train.py");
    return st;
}

/* ---- waiting */

struct wait {
    pid_t pid;
    uint64_t deadline; /* UINT64_MAX: none */
    bool timed_out;
    bool stopped; /* we passed on a signal that asks for the end */
};

/* Wait for a signal of the set until the next deadline; end the group when it is over. */
static int await(struct wait *w, const sigset_t *set)
{
    for (;;) {
        int status;
        pid_t got = waitpid(w->pid, &status, WNOHANG);
        if (got == w->pid) {
            return status;
        }
        uint64_t now = plim_mono_ns();
        if (now >= w->deadline) {
            (void)kill(-w->pid, w->timed_out ? SIGKILL : SIGTERM);
            w->deadline = w->timed_out ? UINT64_MAX : now + GRACE_NS;
            w->timed_out = true;
            continue;
        }
        uint64_t left = plim_min_u64(w->deadline - now, UINT64_C(3600000000000));
        struct timespec t = plim_timespec(left);
        int signal_number = sigtimedwait(set, NULL, &t);
        if (signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP) {
            (void)kill(-w->pid, signal_number);
            w->stopped = true;
        }
    }
}

static enum plim_status launch(const struct plim_dryrun_setup *setup, char **env,
                               struct plim_dryrun_run *run, struct plim_err *err)
{
    int fds[2];
    sigset_t set, before;
    bool terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    (void)sigemptyset(&set);
    static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < PLIM_COUNT_OF(wanted); i++) {
        (void)sigaddset(&set, wanted[i]);
    }
    if (pipe2(fds, O_CLOEXEC) != 0 || pthread_sigmask(SIG_BLOCK, &set, &before) != 0) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "cannot start a command");
    }
    uint64_t start = plim_mono_ns();
    pid_t pid = fork();
    if (pid == 0) {
        child(setup, env, fds[1], terminal, &before);
    }
    (void)close(fds[1]);
    if (pid < 0) {
        int error = errno;
        (void)close(fds[0]);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return plim__fail_errno(err, PLIM_E_OS, error, "cannot start a command");
    }
    int error = exec_error(fds[0]);
    struct wait w = {.pid = pid,
                     .deadline = setup->timeout_ns ? start + setup->timeout_ns : UINT64_MAX};
    int status = await(&w, &set);
    if (terminal) {
        (void)signal(SIGTTOU, SIG_IGN);
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
        (void)signal(SIGTTOU, SIG_DFL);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return no_command(setup, error, err);
    }
    run->wall_ns = plim_mono_ns() - start;
    run->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    run->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    run->stopped = w.stopped;
    run->outcome = w.timed_out ? PLIM_DRYRUN_TIMED_OUT : PLIM_DRYRUN_FITS;
    return PLIM_OK;
}

/* ---- the whole */

static void judge(struct plim_dryrun_run *run)
{
    bool cuda = false, cpu = false, oom = false;
    for (uint32_t i = 0; i < run->processes.n; i++) {
        const struct plim_dryrun_process *p = &run->processes.items[i];
        cuda = cuda || p->used_cuda;
        cpu = cpu || strcmp(p->build, "cpu") == 0 || strcmp(p->build, "rocm") == 0;
        oom = oom || p->ooms > 0;
    }
    bool well = run->stopped || (run->exit_status == 0 && run->signal == 0);
    if (run->outcome == PLIM_DRYRUN_TIMED_OUT) {
        return;
    }
    if (!cuda && cpu) {
        run->outcome = PLIM_DRYRUN_CPU_BUILD;
    } else if (!well && oom) {
        run->outcome = PLIM_DRYRUN_OUT_OF_MEMORY;
    } else if (!well) {
        run->outcome = run->signal != 0 ? PLIM_DRYRUN_CRASHED : PLIM_DRYRUN_FAILED;
    } else if (!cuda && run->device_peak == 0) {
        run->outcome = PLIM_DRYRUN_NO_CUDA;
    }
}

bool plim_dryrun_fits(const struct plim_dryrun_run *run)
{
    return run->outcome == PLIM_DRYRUN_FITS;
}

const char *plim_dryrun_outcome_text(enum plim_dryrun_outcome outcome)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) [PLIM_DRYRUN_##name] = text,
        PLIM_DRYRUN_OUTCOME_MAP(PLIM__X)
#undef PLIM__X
    };
    return texts[outcome];
}

static enum plim_status make_folder(struct plim_dryrun_run *run, struct plim_err *err)
{
    const char *tmp = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe): before any thread starts
    tmp = tmp == NULL || tmp[0] == '\0' || strlen(tmp) > 200 ? "/tmp" : tmp;
    (void)snprintf(run->folder, sizeof(run->folder), "%s/plimsoll-dryrun-XXXXXX", tmp);
    if (mkdtemp(run->folder) == NULL) {
        run->folder[0] = '\0';
        return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot make a folder in %s", tmp);
    }
    return PLIM_OK;
}

enum plim_status plim_dryrun_run(const struct plim_dryrun_setup *setup, struct plim_arena *arena,
                                 struct plim_dryrun_run *out, struct plim_err *err)
{
    struct plim_dryrun_place place;
    char **env = NULL;
    *out = (struct plim_dryrun_run){.gpu = setup->gpu, .conf = setup->conf, .main = PLIM_NO_ID};
    PLIM_TRY(plim_dryrun_check_gpu(setup->gpu, err));
    PLIM_TRY(plim_dryrun_find(arena, &place, err));
    PLIM_TRY(make_folder(out, err));
    enum plim_status st = plim_dryrun_environment(setup, &place, out->folder, arena, &env, err);
    st = st == PLIM_OK ? launch(setup, env, out, err) : st;
    st = st == PLIM_OK ? plim_dryrun_gather(out, arena, err) : st;
    if (st == PLIM_OK) {
        judge(out);
    } else {
        plim_dryrun_clean(out);
    }
    return st;
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

void plim_dryrun_clean(struct plim_dryrun_run *run)
{
    DIR *dir = run->folder[0] ? opendir(run->folder) : NULL;
    if (dir != NULL) {
        const struct dirent *entry;
        while ((entry = next_entry(dir)) != NULL) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0); /* "." and ".." refuse */
        }
        (void)closedir(dir);
        (void)rmdir(run->folder);
    }
    run->folder[0] = '\0';
    plim_vec_fini(&run->processes);
}
