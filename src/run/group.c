/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a command: a process group, and, because this program is their subreaper, also
 * those that left the group: their parents die before them, and they become ours.
 */

#include "device/sampler.h"
#include "run/run_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANCESTORS 64 /* most steps from a process to its forebears */

static void become(const char *const *argv, const int out[2], int report)
{
    sigset_t none;
    (void)dup2(out[0], STDOUT_FILENO);
    (void)dup2(out[1], STDERR_FILENO);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
    int code = errno;
    (void)!write(report, &code, sizeof(code));
    _exit(127);
}

enum plim_status plim__group_start(const char *const *argv, const int out[2], pid_t *pid,
                                   struct plim_err *err)
{
    int report[2];
    int code = 0;
    if (pipe2(report, O_CLOEXEC) != 0) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "no pipe");
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) {
        become(argv, out, report[1]);
    }
    int saved = errno;
    (void)close(report[1]);
    if (child < 0) {
        (void)close(report[0]);
        return plim__fail_errno(err, PLIM_E_OS, saved, "cannot fork");
    }
    (void)setpgid(child, child);
    bool failed = read(report[0], &code, sizeof(code)) == (ssize_t)sizeof(code);
    (void)close(report[0]);
    if (failed) {
        (void)waitpid(child, NULL, 0);
        return plim__fail_errno(err, PLIM_E_NOINPUT, code, "cannot run %.200s", argv[0]);
    }
    *pid = child;
    return PLIM_OK;
}

bool plim__group_reap(pid_t pid, int *status)
{
    bool ended = false;
    int st;
    pid_t got;
    while ((got = waitpid(-1, &st, WNOHANG)) > 0) {
        if (got == pid) {
            *status = st;
            ended = true;
        }
    }
    return ended;
}

bool plim__group_has(pid_t pid, uint32_t other)
{
    struct plim_process_stat stat;
    for (unsigned i = 0; i < ANCESTORS && other > 1; i++) {
        if (other == (uint32_t)getpid()) {
            return i > 0;
        }
        if (!plim_process_stat(plim_world_real(), other, &stat)) {
            return false;
        }
        if (stat.group == (uint32_t)pid) {
            return true;
        }
        other = stat.ppid;
    }
    return false;
}

/* Direct children of ours, from /proc: at most `room`. */
static size_t children(uint32_t *out, size_t room)
{
    char path[64];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    while (file != NULL && n < room && fscanf(file, "%u", &out[n]) == 1) { // NOLINT(cert-err34-c)
        n++;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return n;
}

void plim__group_signal(pid_t pid, int signal_number)
{
    uint32_t list[256];
    (void)kill(-pid, signal_number);
    size_t n = children(list, 256);
    for (size_t i = 0; i < n; i++) {
        if (list[i] != (uint32_t)pid) {
            (void)kill((pid_t)list[i], signal_number);
        }
    }
}

bool plim__group_lives(pid_t pid)
{
    uint32_t list[256];
    struct plim_process_stat stat;
    size_t n = children(list, 256);
    for (size_t i = 0; i < n; i++) {
        if (plim_process_stat(plim_world_real(), list[i], &stat)) {
            return true;
        }
    }
    return kill(-pid, 0) == 0;
}
