/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs that are told of alerts: a script of the user's, and sendmail. Each gets its input as a file in memory, so
 * that one that does not read holds up nobody; runs in a process group of its own, which is killed at the time
 * limit; and inherits no descriptor but standard error.
 */

#include "base/clock.h"
#include "base/env.h"
#include "base/num.h"
#include "watch/alert_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define LOOK_NS UINT64_C(10000000) /* between looks whether it has ended */

static enum plim_status input_file(struct plim_str input, int *out, struct plim_err *err)
{
    int fd = memfd_create("plimsoll-alert", MFD_CLOEXEC);
    while (fd >= 0 && input.n > 0) {
        ssize_t n = write(fd, input.p, input.n);
        if (n <= 0 && errno != EINTR) {
            (void)close(fd);
            fd = -1;
        }
        input = plim_str_skip(input, n > 0 ? (size_t)n : 0);
    }
    if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0) {
        return plim__fail_errno(err, PLIM_E_IO, errno, "no memory for a program's input");
    }
    *out = fd;
    return PLIM_OK;
}

/* 0 or an errno. */
static int spawn(const char *const *argv, char *const *env, int input, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return ENOMEM;
    }
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    (void)posix_spawn_file_actions_adddup2(&actions, input, 0);
    (void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setpgroup(&attr, 0);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawn(pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv,
                             env != NULL ? env : environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static enum plim_status wait_for(pid_t pid, const char *name, uint64_t timeout_ns,
                                 const bool *stopping, struct plim_err *err)
{
    const struct timespec look = {0, (long)LOOK_NS};
    uint64_t end = plim_mono_ns() + timeout_ns;
    bool hurried = false;
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            return plim__fail_errno(err, PLIM_E_IO, errno, "cannot wait for %.80s", name);
        }
        if (stopping != NULL && __atomic_load_n(stopping, __ATOMIC_ACQUIRE) && !hurried) {
            hurried = true;
            end = plim_min_u64(end, plim_mono_ns() + 2 * PLIM_SECOND_NS);
        }
        if (plim_mono_ns() >= end) {
            (void)kill(-pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return plim__fail(err, PLIM_E_IO, "%.80s did not end in time and was killed", name);
        }
        (void)nanosleep(&look, NULL);
    }
    if (WIFSIGNALED(status)) {
        return plim__fail(err, PLIM_E_IO, "%.80s was ended by signal %d", name, WTERMSIG(status));
    }
    return WEXITSTATUS(status) == 0
               ? PLIM_OK
               : plim__fail(err, PLIM_E_IO, "%.80s exited with %d", name, WEXITSTATUS(status));
}

enum plim_status plim__alert_run(const char *const *argv, char *const *env, struct plim_str input,
                                 uint64_t timeout_ns, const bool *stopping, struct plim_err *err)
{
    int fd = -1;
    pid_t pid = 0;
    PLIM_TRY(input_file(input, &fd, err));
    int failed = spawn(argv, env, fd, &pid);
    (void)close(fd);
    if (failed != 0) {
        return plim__fail_errno(err, PLIM_E_IO, failed, "cannot start %.80s", argv[0]);
    }
    return wait_for(pid, argv[0], timeout_ns, stopping, err);
}

/* ---- the script ---- */

static enum plim_status put_number(struct plim_env *env, const char *name, uint64_t value,
                                   struct plim_err *err)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return plim_env_put(env, name, value != 0 ? text : "", err);
}

static enum plim_status put_variables(struct plim_env *env, const struct plim_alert_message *m,
                                      struct plim_err *err)
{
    char title[320];
    const struct plim_alert *a = &m->alerts[0];
    const struct {
        const char *name;
        const char *value;
    } texts[] = {{"PLIMSOLL_ALERT_HOST", m->host},
                 {"PLIMSOLL_ALERT_TITLE", plim__alert_title(m, title, sizeof(title))},
                 {"PLIMSOLL_ALERT_RULE", a->rule},
                 {"PLIMSOLL_ALERT_STATUS", plim_alert_state_text(a->state)},
                 {"PLIMSOLL_ALERT_SEVERITY", plim_severity_text(a->severity)},
                 {"PLIMSOLL_ALERT_CLASS", a->class},
                 {"PLIMSOLL_ALERT_DEVICE", a->subject.device_uuid},
                 {"PLIMSOLL_ALERT_PROCESS", a->subject.process},
                 {"PLIMSOLL_ALERT_ENGINE", a->engine},
                 {"PLIMSOLL_ALERT_SUMMARY", a->summary},
                 {"PLIMSOLL_ALERT_NEXT_STEP", a->next_step},
                 {"PLIMSOLL_ALERT_TEST", a->test ? "1" : ""},
                 {"PLIMSOLL_ALERT_URL", m->book->url != NULL ? m->book->url : ""}};
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        PLIM_TRY(plim_env_put(env, texts[i].name, texts[i].value, err));
    }
    PLIM_TRY(put_number(env, "PLIMSOLL_ALERT_COUNT", m->n, err));
    PLIM_TRY(put_number(env, "PLIMSOLL_ALERT_PID", a->subject.pid, err));
    return put_number(env, "PLIMSOLL_ALERT_BYTES", a->bytes, err);
}

enum plim_status plim__alert_script(const struct plim_alert_message *m, struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_env env = {0};
    struct plim_buf json = {0};
    char **vars = NULL;
    const char *const argv[] = {m->receiver->program, NULL};
    enum plim_status st;
    plim_arena_init(&arena, 0);
    plim__alert_message_json(m, &json);
    PLIM_TRY_GOTO(st, plim_buf_status(&json, err), out);
    PLIM_TRY_GOTO(st, plim_env_copy(&env, &arena, err), out);
    PLIM_TRY_GOTO(st, put_variables(&env, m, err), out);
    PLIM_TRY_GOTO(st, plim_env_done(&env, &vars, err), out);
    st =
        plim__alert_run(argv, vars, plim_buf_str(&json), m->receiver->timeout_ns, m->stopping, err);
out:
    plim_env_fini(&env);
    plim_buf_fini(&json);
    plim_arena_fini(&arena);
    return st;
}
