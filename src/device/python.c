/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Run `python3 -I -c SCRIPT` with a pipe and a deadline. The script prints one "name version" a line from
 * importlib.metadata, which reads the dist-info folders.
 */

#include "device/python.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char script[] = "import sys\n"
                             "print('executable', sys.executable)\n"
                             "print('python', '.'.join(map(str, sys.version_info[:3])))\n"
                             "from importlib import metadata\n"
                             "for name in sys.argv[1:]:\n"
                             "    try:\n"
                             "        print(name, metadata.version(name))\n"
                             "    except metadata.PackageNotFoundError:\n"
                             "        pass\n";

static int64_t now_ms(void)
{
    return (int64_t)(plim_mono_ns() / 1000000);
}

/* Start `name`; *fd is its standard output. False when there is no such program. */
static bool start(const char *name, pid_t *pid, int *fd)
{
    char program[16];
    (void)snprintf(program, sizeof(program), "%s", name);
    const char *const words[] = {program, "-I", "-c", script,
#define PLIM__X(field, text) text,
                                 PLIM_PACKAGE_MAP(PLIM__X)
#undef PLIM__X
                                     NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(pid, program, &actions, NULL, (char *const *)(uintptr_t)words, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return false;
    }
    *fd = ends[0];
    return true;
}

/* What it prints until it ends or the deadline comes; false for the deadline. */
static bool read_until(int fd, int64_t deadline, char *text, size_t room)
{
    size_t fill = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - now_ms();
        int n = left > 0 ? poll(&ready, 1, (int)left) : 0;
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        ssize_t got = read(fd, text + fill, room - 1 - fill);
        if (got <= 0) {
            text[fill] = '\0';
            return got == 0;
        }
        fill += (size_t)got;
        if (fill == room - 1) {
            return false;
        }
    }
}

static void keep(char *field, size_t room, const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(line, name, n) == 0 && line[n] == ' ') {
        (void)snprintf(field, room, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
    }
}

static void take_lines(const char *text, struct plim_python *out)
{
    for (const char *line = text; *line != '\0';) {
        keep(out->executable, sizeof(out->executable), line, "executable");
        keep(out->version, sizeof(out->version), line, "python");
#define PLIM__X(field, name) keep(out->field, sizeof(out->field), line, name);
        PLIM_PACKAGE_MAP(PLIM__X)
#undef PLIM__X
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

enum plim_status plim_python_find(int timeout_ms, struct plim_python *out, struct plim_err *err)
{
    pid_t pid = -1;
    int fd = -1;
    char text[4096];
    int status = 0;
    if (!start("python3", &pid, &fd) && !start("python", &pid, &fd)) {
        return plim__fail(err, PLIM_E_NOTFOUND, "no python3 on the PATH");
    }
    bool answered = read_until(fd, now_ms() + timeout_ms, text, sizeof(text));
    close(fd);
    if (!answered) {
        (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    struct plim_python found = {0};
    if (answered) {
        take_lines(text, &found);
    }
    if (found.version[0] == '\0') {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "python3 does not say which packages it has");
    }
    *out = found;
    return PLIM_OK;
}
