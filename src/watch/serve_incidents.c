/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incidents: the list of a folder, one as an archive to keep, and its report. A report is made by
 * this program in a process of its own: a snapshot may need more memory than the monitor promises
 * to use, and a damaged one must not end it.
 */

#include "watch/serve_int.h"

#include "base/num.h"
#include "incident/archive.h"
#include "incident/folder.h"
#include "report/incident.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_SECONDS 120
#define PATH_MOST      4096u

/* The page's own policy names its script by hash; this one puts it into an origin of its own. */
#define REPORT_CSP                                                                                 \
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src "          \
    "'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'"

extern char **environ;

PLIM__HANDLER(incidents)
{
    struct plim__serve *s = self;
    struct plim_incident_list list = {0};
    struct plim_arena arena;
    struct plim_jsonw w;
    (void)request;
    plim_arena_init(&arena, UINT64_C(64) << 20);
    enum plim_status st = plim_incident_list_read(s->incidents, &arena, &list, err);
    if (st == PLIM_OK) {
        plim_jsonw_init(&w, &answer->text, true);
        plim_json_incidents(&w, &list);
        plim_incident_list_fini(&list);
    }
    plim_arena_fini(&arena);
    return st;
}

struct found {
    char path[PATH_MOST];
    bool packed;
};

/* The incident of an id: only what is in the list can be asked for, so no path comes from outside. */
static enum plim_status find(const struct plim__serve *s, struct plim_str id, struct found *out,
                             struct plim_err *err)
{
    struct plim_incident_list list = {0};
    struct plim_arena arena;
    bool known = false;
    plim_arena_init(&arena, UINT64_C(64) << 20);
    enum plim_status st = plim_incident_list_read(s->incidents, &arena, &list, err);
    for (size_t i = 0; st == PLIM_OK && i < list.bundles.n && !known; i++) {
        const struct plim_bundle *b = &list.bundles.items[i];
        if (plim_str_eq(plim_str_from(b->id), id)) {
            int n = snprintf(out->path, sizeof(out->path), "%s", b->path);
            known = n > 0 && (size_t)n < sizeof(out->path);
            out->packed = b->packed;
        }
    }
    plim_incident_list_fini(&list);
    plim_arena_fini(&arena);
    if (st == PLIM_OK && !known) {
        st = plim__fail(err, PLIM_E_NOTFOUND, "there is no such incident");
    }
    return st;
}

/* A file without a name, in the folder for temporary ones. */
static int nameless(void)
{
    const char *folder = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe): not set
    return open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static enum plim_status answer_file(int fd, const char *type, struct plim_http_answer *answer,
                                    struct plim_err *err)
{
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int e = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return plim__fail_errno(err, PLIM_E_IO, e, "the file cannot be read");
    }
    answer->fd = fd;
    answer->size = (uint64_t)info.st_size;
    answer->type = type;
    return PLIM_OK;
}

/* ---- the bundle ---- */

/* Pack a folder into a file that has lost its name by the time it is sent. */
static enum plim_status pack(const char *folder, struct plim_str id, int *fd, struct plim_err *err)
{
    char dir[] = "/tmp/plimsoll-XXXXXX", path[64], top[PLIM_ARCHIVE_NAME];
    (void)snprintf(top, sizeof(top), "%.*s", PLIM_STR_ARG(id));
    if (!mkdtemp(dir)) {
        return plim__fail_errno(err, PLIM_E_CREATE, errno, "no folder for the archive");
    }
    (void)snprintf(path, sizeof(path), "%s/bundle", dir);
    enum plim_status st = plim_archive_write(folder, top, path, err);
    if (st == PLIM_OK) {
        *fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    (void)unlink(path);
    (void)rmdir(dir);
    return st;
}

PLIM__HANDLER(bundle)
{
    struct found found;
    int fd = -1;
    struct plim_str id = request->param[0];
    PLIM_TRY(find(self, id, &found, err));
    if (found.packed) {
        fd = open(found.path, O_RDONLY | O_CLOEXEC);
    } else {
        PLIM_TRY(pack(found.path, id, &fd, err));
    }
    PLIM_TRY(answer_file(fd, "application/zstd", answer, err));
    (void)snprintf(answer->filename, sizeof(answer->filename), "%.*s" PLIM_PACK_SUFFIX,
                   PLIM_STR_ARG(id));
    return PLIM_OK;
}

/* ---- the report ---- */

static enum plim_status start_report(char *path, int out, pid_t *pid, struct plim_err *err)
{
    char program[] = "plimsoll", verb[] = "diagnose", option[] = "--html", to[] = "-";
    char *argv[] = {program, verb, path, option, to, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, out, 1);
    (void)posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int e = posix_spawn(pid, "/proc/self/exe", &files, &attributes, argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return e == 0 ? PLIM_OK : plim__fail_errno(err, PLIM_E_OS, e, "the report cannot be made");
}

static bool is_ending(struct plim_watch *w)
{
    (void)pthread_mutex_lock(&w->lock);
    bool ending = w->ending;
    (void)pthread_mutex_unlock(&w->lock);
    return ending;
}

/* Wait for the process; it is ended when it takes too long, or the monitor ends. */
static enum plim_status await(struct plim_watch *w, pid_t pid, struct plim_err *err)
{
    struct pollfd ended = {.fd =
                               (int)syscall(SYS_pidfd_open, pid, 0), /* glibc has it from 2.36 on */
                           .events = POLLIN};
    int status = 0, done = 0;
    for (int i = 0; ended.fd >= 0 && done <= 0 && i < REPORT_SECONDS * 5 && !is_ending(w); i++) {
        done = poll(&ended, 1, 200);
    }
    if (ended.fd >= 0) {
        (void)close(ended.fd);
    }
    if (done <= 0) {
        (void)kill(pid, SIGKILL);
    }
    (void)waitpid(pid, &status, 0);
    if (done <= 0) {
        return plim__fail(err, PLIM_E_OS, "the report took longer than %d s", REPORT_SECONDS);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? PLIM_OK
               : plim__fail(err, PLIM_E_DATA, "the incident cannot be diagnosed");
}

PLIM__HANDLER(report)
{
    struct plim__serve *s = self;
    struct found found;
    pid_t pid;
    PLIM_TRY(find(s, request->param[0], &found, err));
    int fd = nameless();
    if (fd < 0) {
        return plim__fail_errno(err, PLIM_E_CREATE, errno, "no file for the report");
    }
    enum plim_status st = start_report(found.path, fd, &pid, err);
    st = st == PLIM_OK ? await(s->watch, pid, err) : st;
    if (st != PLIM_OK) {
        (void)close(fd);
        return st;
    }
    answer->csp = REPORT_CSP;
    return answer_file(fd, "text/html; charset=utf-8", answer, err);
}
