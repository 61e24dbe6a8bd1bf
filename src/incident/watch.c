/* SPDX-License-Identifier: Apache-2.0 */

/* See watch.h. */

#include "incident/watch.h"

#include "base/clock.h"
#include "base/num.h"
#include "device/sampler.h"
#include "incident/folder.h"
#include "incident/pieces.h"
#include "incident/sample_log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_NS   UINT64_C(1000000000)
#define SETTLE_NS UINT64_C(2000000000) /* for the other ranks to drop theirs */
#define SAME_NS                                                                                    \
    UINT64_C(                                                                                      \
        60000000000) /* an error that ends the program so soon after a drop is the same failure */
#define LOG_BYTES ((off_t)256 << 10) /* of standard error, from its end */

extern char **environ;

struct plim_incident_watch {
    struct plim_incident_watch_setup setup;
    struct plim_sampler *sampler;
    struct plim_sample sample;
    struct plim_sample_log log;
    uint64_t started_ns; /* since 1970 */
    uint64_t ticked_ns;
    uint64_t drops_since_ns; /* when drops were first seen; 0: there are none */
    uint64_t taken_ns;       /* when drops were last put aside for an incident; 0: never */
    int log_fd;              /* standard error, when it is a file that can be read; or -1 */
    off_t log_start;         /* where it was when the program started */
};

/* What the program writes to a file can be read again; what goes to a terminal or a pipe is gone.
 * */
static void find_log(struct plim_incident_watch *w)
{
    struct stat info;
    w->log_fd = -1;
    if (fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode)) {
        w->log_fd = open("/proc/self/fd/2", O_RDONLY | O_CLOEXEC);
        w->log_start = info.st_size;
    }
}

enum plim_status plim_incident_watch_open(const struct plim_incident_watch_setup *setup,
                                          struct plim_incident_watch **out, struct plim_err *err)
{
    struct plim_sampler_options options = {0};
    struct plim_incident_watch *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to watch for incidents");
    }
    w->setup = *setup;
    w->started_ns = plim_wall_ns();
    find_log(w);
    enum plim_status st = plim_sampler_open(&options, &w->sampler, err);
    if (st != PLIM_OK) {
        plim_incident_watch_close(w);
        return st;
    }
    *out = w;
    return PLIM_OK;
}

void plim_incident_watch_close(struct plim_incident_watch *w)
{
    if (w == NULL) {
        return;
    }
    plim_sampler_close(w->sampler);
    plim_sample_fini(&w->sample);
    plim_sample_log_fini(&w->log);
    if (w->log_fd >= 0) {
        (void)close(w->log_fd);
    }
    free(w);
}

/* ---- pieces ---- */

/* The end of what the program wrote to standard error; owned. */
static struct plim_str read_log(const struct plim_incident_watch *w)
{
    struct stat info;
    if (w->log_fd < 0 || fstat(w->log_fd, &info) != 0 || info.st_size <= w->log_start) {
        return (struct plim_str){NULL, 0};
    }
    off_t from = info.st_size - w->log_start > LOG_BYTES ? info.st_size - LOG_BYTES : w->log_start;
    size_t room = (size_t)(info.st_size - from);
    char *text = malloc(room);
    ssize_t n = text != NULL ? pread(w->log_fd, text, room, from) : -1;
    return (struct plim_str){text, n > 0 ? (size_t)n : 0};
}

/* The first complete drop's facts; false when there are none for us. */
static bool first_drop(const struct plim_incident_watch *w, struct plim_arena *arena,
                       struct plim_facts_file *out)
{
    struct plim_names names = {0};
    bool found = false;
    const char *dir = w->setup.options.dir;
    (void)!plim__folder_names(dir, PLIM_DROP_PREFIX, arena, &names, NULL);
    for (size_t i = 0; i < names.list.n; i++) {
        struct plim_facts_file facts;
        const char *name = names.list.items[i];
        const char *path = plim_arena_sayf(arena, "%s/%s/facts.json", dir, name);
        if (strstr(name, PLIM_PART_SUFFIX) == NULL &&
            plim__facts_read(path, arena, &facts, NULL) == PLIM_OK && plim__drop_is_ours(&facts) &&
            (!found || facts.time_ns < out->time_ns)) {
            *out = facts;
            found = true;
        }
    }
    plim_vec_fini(&names.list);
    return found;
}

/* Write the samples where plim_incident_make() finds them; NULL when there are none. */
static const char *put_samples(const struct plim_incident_watch *w, struct plim_arena *arena)
{
    const char *dir = w->setup.options.dir;
    const char *path = plim_arena_sayf(arena, "%s/samples-%d.tmp", dir, getpid());
    if (w->log.lines.n == 0 || plim__folder_make(dir, NULL) != PLIM_OK ||
        plim_sample_log_write(&w->log, path, NULL) != PLIM_OK) {
        return NULL;
    }
    return path;
}

/* @path: NULL: only prepare. */
static enum plim_status make(const struct plim_incident_watch *w, struct plim_incident_parts parts,
                             struct plim_arena *arena, const char **path, struct plim_err *err)
{
    struct plim_str log = read_log(w);
    parts.started_ns = w->started_ns;
    parts.argv = w->setup.argv;
    parts.trace = w->setup.trace;
    parts.log_tail = log;
    parts.samples = put_samples(w, arena);
    enum plim_status st = path != NULL
                              ? plim_incident_make(&w->setup.options, &parts, arena, path, err)
                              : plim_incident_prepare(&w->setup.options, &parts, arena, err);
    if (parts.samples != NULL) {
        (void)unlink(parts.samples); /* still there only when it was not taken */
    }
    free((void *)(uintptr_t)log.p);
    return st;
}

/* ---- while the program runs ---- */

/* Let another process do what takes long. It is reaped with the program's other children, or by
 * init. */
static void start_finisher(const struct plim_incident_watch *w)
{
    const struct plim_incident_options *o = &w->setup.options;
    char self[] = "/proc/self/exe", verb[] = "incident", finish[] = "--finish";
    char keep[] = "--keep-private";
    char *dir = strdup(o->dir);
    char *const with[] = {self, verb, finish, keep, dir, NULL};
    char *const without[] = {self, verb, finish, dir, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    (void)sigemptyset(&none);
    if (dir == NULL || posix_spawn_file_actions_init(&actions) != 0) {
        free(dir);
        return;
    }
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    for (int fd = 0; fd <= 2; fd++) {
        (void)posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    }
    (void)posix_spawn(&pid, self, &actions, &attributes, o->keep_private ? with : without, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    free(dir);
}

static void take_drops(struct plim_incident_watch *w, int pid, uint64_t now)
{
    struct plim_arena arena;
    struct plim_facts_file facts;
    struct stat info;
    if (stat(w->setup.options.dir, &info) != 0) {
        return; /* the common case: nothing ever happened */
    }
    plim_arena_init(&arena, 0);
    if (!first_drop(w, &arena, &facts)) {
        w->drops_since_ns = 0;
    } else if (w->drops_since_ns == 0) {
        w->drops_since_ns = now;
    } else if (now - w->drops_since_ns >= SETTLE_NS) {
        struct plim_incident_parts parts = {
            .kind = facts.kind, .time_ns = facts.time_ns, .pid = pid, .exit_status = -1};
        w->drops_since_ns = 0;
        if (make(w, parts, &arena, NULL, NULL) == PLIM_OK) {
            w->taken_ns = now;
            start_finisher(w);
        }
    }
    plim_arena_fini(&arena);
}

void plim_incident_watch_tick(struct plim_incident_watch *w, int pid)
{
    uint64_t now = plim_wall_ns();
    if (now - w->ticked_ns <
        TICK_NS) { /* also after the clock was set back: wraps to a large number */
        return;
    }
    w->ticked_ns = now;
    if (plim_sampler_take(w->sampler, &w->sample, NULL) == PLIM_OK && w->sample.devices.n > 0) {
        (void)!plim_sample_log_add(&w->log, &w->sample, NULL);
    }
    take_drops(w, pid, now);
}

/* ---- when it has ended ---- */

/* By its own fault. */
static bool is_fault(int signal_number)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < PLIM_COUNT_OF(faults); i++) {
        if (faults[i] == signal_number) {
            return true;
        }
    }
    return false;
}

/* Sent on purpose by people and managers. */
static bool is_wanted(int signal_number)
{
    return signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP ||
           signal_number == SIGPIPE || signal_number == SIGQUIT;
}

static bool has_cause(const struct plim_incident_ending *e, enum plim_incident_kind *kind)
{
    bool failed = e->signal != 0 ? !is_wanted(e->signal) : e->exit_status != 0;
    *kind = e->refused > 0        ? PLIM_INCIDENT_OOM
            : is_fault(e->signal) ? PLIM_INCIDENT_CRASH
            : e->signal != 0      ? PLIM_INCIDENT_SIGNAL
                                  : PLIM_INCIDENT_EXIT;
    return failed && e->used_device;
}

/* Wait for the incident that was put aside before, or make it if nobody does. */
static enum plim_status finish_earlier(struct plim_incident_watch *w, struct plim_arena *arena,
                                       const char **path, struct plim_err *err)
{
    struct plim_incident_paths paths = {0};
    enum plim_status st = plim_incident_finish(&w->setup.options, arena, &paths, err);
    *path = paths.list.n > 0 ? paths.list.items[paths.list.n - 1] : w->setup.options.dir;
    plim_vec_fini(&paths.list);
    return st;
}

enum plim_status plim_incident_watch_end(struct plim_incident_watch *w,
                                         const struct plim_incident_ending *ending,
                                         struct plim_arena *arena, const char **path,
                                         struct plim_err *err)
{
    struct plim_facts_file facts;
    struct plim_incident_parts parts = {.time_ns = plim_wall_ns(),
                                        .pid = ending->pid,
                                        .exit_status =
                                            ending->signal == 0 ? ending->exit_status : -1,
                                        .signal = ending->signal};
    bool cause = has_cause(ending, &parts.kind);
    *path = NULL;
    if (first_drop(w, arena, &facts)) {
        parts.kind = facts.kind;
        parts.time_ns = facts.time_ns != 0 ? facts.time_ns : parts.time_ns;
        return make(w, parts, arena, path, err);
    }
    bool error = ending->signal == 0 && ending->exit_status != 0;
    if (w->taken_ns != 0 && (!cause || (error && parts.time_ns - w->taken_ns < SAME_NS))) {
        return finish_earlier(w, arena, path, err);
    }
    return cause ? make(w, parts, arena, path, err) : PLIM_OK;
}
