/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rings lie while a command runs; see record.h. */

#include "record/record.h"

#include "base/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define PREFIX       "plimsoll-record-"
#define MEMORY_FILES "/dev/shm"
#define STALE_S      60 /* a program that was just started may not have its ring yet */
#define ROOM         (UINT64_C(64) << 20) /* bytes that should be free for the rings */

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

/* Remove the files of a folder, then the folder. */
static void empty(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir != NULL && (entry = next_entry(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0); /* "." and ".." refuse */
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(folder);
}

/* Remove the files of dead processes; whether one that has a file there is alive. */
static bool remove_dead(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool alive = false;
    while (dir != NULL && (entry = next_entry(dir)) != NULL) {
        int lives = plim_shm_named_alive(entry->d_name);
        alive |= lives == 1;
        if (lives == 0) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return alive;
}

/* Folders of ours whose recording was killed: what the dead left there goes, and with the last process
 * the folder. One that is young and empty may belong to a program that has yet to make its ring. */
static void remove_stale(const char *parent)
{
    DIR *dir = opendir(parent);
    const struct dirent *entry;
    while (dir != NULL && (entry = next_entry(dir)) != NULL) {
        char path[400];
        struct stat info;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%.120s/%s", parent, entry->d_name);
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        bool ours = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (ours && !remove_dead(path) && time(NULL) - info.st_mtime >= STALE_S) {
            empty(path);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static bool roomy(const char *parent)
{
    struct statvfs info;
    return statvfs(parent, &info) == 0 && access(parent, W_OK | X_OK) == 0 &&
           (uint64_t)info.f_bavail * info.f_frsize >= ROOM;
}

enum plim_status plim_session_make(struct plim_session *out, struct plim_err *err)
{
    const char *tmp = plim_env_get("TMPDIR");
    remove_stale(MEMORY_FILES); /* first: what takes its room may be what killed recordings left */
    const char *parent = roomy(MEMORY_FILES)                ? MEMORY_FILES
                         : tmp != NULL && strlen(tmp) < 120 ? tmp
                                                            : "/tmp";
    if (strcmp(parent, MEMORY_FILES) != 0) {
        remove_stale(parent);
    }
    (void)snprintf(out->folder, sizeof(out->folder), "%s/" PREFIX "XXXXXX", parent);
    if (mkdtemp(out->folder) == NULL) {
        return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot make a folder in %s", parent);
    }
    out->fd = open(out->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->fd < 0 || flock(out->fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        plim_session_remove(out);
        return plim__fail_errno(err, PLIM_E_CREATE, error, "cannot lock a folder in %s", parent);
    }
    return PLIM_OK;
}

void plim_session_remove(struct plim_session *session)
{
    empty(session->folder);
    if (session->fd >= 0) {
        (void)close(session->fd);
    }
    session->fd = -1;
}
