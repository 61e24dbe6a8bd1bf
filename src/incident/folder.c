/* SPDX-License-Identifier: Apache-2.0 */

/* See folder.h. */

#include "incident/folder.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAMES_MAX 100000u
#define WALK_OPEN 16 /* descriptors that a walk may hold */

const char *plim_incident_folder(const char *named)
{
    if (named == NULL || named[0] == '\0') {
        named = getenv(PLIM_INCIDENT_DIR_VARIABLE); // NOLINT(concurrency-mt-unsafe)
    }
    return named != NULL && named[0] != '\0' ? named : PLIM_INCIDENT_DIR_DEFAULT;
}

enum plim_status plim__folder_make(const char *path, struct plim_err *err)
{
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(part)) {
        return plim__fail_errno(err, PLIM_E_CREATE, n == 0 ? ENOENT : ENAMETOOLONG,
                                "cannot make the folder '%.100s'", path);
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        char c = part[i];
        part[i] = '\0';
        struct stat info;
        if (mkdir(part, 0700) != 0 &&
            (errno != EEXIST || (c == '\0' && stat(part, &info) == 0 && !S_ISDIR(info.st_mode)))) {
            int e = errno;
            enum plim_status st =
                plim__fail_errno(err, PLIM_E_CREATE, e, "cannot make the folder '%.150s'", part);
            plim__err_hint(err, "choose another one with --dir, or " PLIM_INCIDENT_DIR_VARIABLE);
            return st;
        }
        part[i] = c;
    }
    return PLIM_OK;
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum plim_status plim__folder_names(const char *path, const char *prefix, struct plim_arena *arena,
                                    struct plim_names *out, struct plim_err *err)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && dir != NULL && (entry = next_entry(dir)) != NULL) {
        struct plim_str copy;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        if (out->list.n >= NAMES_MAX) {
            st = plim__fail(err, PLIM_E_BUDGET, "too many names in '%.150s'", path);
            break;
        }
        st = plim_arena_str(arena, plim_str_from(entry->d_name), &copy, err);
        if (st == PLIM_OK) {
            st = plim_vec_push(&out->list, err, copy.p);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (st == PLIM_OK && out->list.n > 1) {
        qsort(out->list.items, out->list.n, sizeof(char *), by_name);
    }
    return st;
}

int plim__folder_lock(const char *path, bool wait)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)where;
    (void)(type == FTW_DP ? rmdir(path) : unlink(path));
    return 0;
}

void plim__folder_remove(const char *path)
{
    (void)nftw(path, remove_one, WALK_OPEN, FTW_DEPTH | FTW_PHYS); // NOLINT(concurrency-mt-unsafe)
}

uint64_t plim__folder_bytes(const char *path)
{
    uint64_t sum = 0;
    struct stat info;
    DIR *dir = opendir(path);
    const struct dirent *entry;
    if (dir == NULL) {
        return lstat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    }
    while ((entry = next_entry(dir)) != NULL) {
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode)) {
            sum = plim_add_sat(sum, (uint64_t)info.st_size);
        }
    }
    (void)closedir(dir);
    return sum;
}

enum plim_status plim__copy_file(const char *from, const char *to, struct plim_err *err)
{
    struct plim_mapping map;
    PLIM_TRY(plim_file_map(from, &map, err));
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int e = fd < 0 ? errno : 0;
    for (size_t at = 0; e == 0 && at < map.n;) {
        ssize_t put = write(fd, map.p + at, map.n - at);
        if (put < 0 && errno != EINTR) {
            e = errno;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    if (fd >= 0 && close(fd) != 0 && e == 0) {
        e = errno;
    }
    plim_file_unmap(&map);
    if (e != 0) {
        (void)(fd >= 0 ? unlink(to) : 0);
        return plim__fail_errno(err, fd < 0 ? PLIM_E_CREATE : PLIM_E_IO, e, "cannot write '%.150s'",
                                to);
    }
    return PLIM_OK;
}

enum plim_status plim__move_file(const char *from, const char *to, struct plim_err *err)
{
    if (rename(from, to) == 0) {
        return PLIM_OK;
    }
    PLIM_TRY(plim__copy_file(from, to, err));
    (void)unlink(from);
    return PLIM_OK;
}

/* ---- names ---- */

static struct tm utc(uint64_t time_ns)
{
    time_t seconds = (time_t)(time_ns / PLIM_SECOND_NS);
    struct tm t = {0};
    (void)gmtime_r(&seconds, &t);
    return t;
}

const char *plim__time_text(struct plim_arena *arena, uint64_t time_ns)
{
    struct tm t = utc(time_ns);
    return plim_arena_sayf(arena, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.tm_year + 1900, t.tm_mon + 1,
                           t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
}

const char *plim__incident_name(struct plim_arena *arena, enum plim_incident_kind kind, int pid,
                                uint64_t time_ns)
{
    struct tm t = utc(time_ns);
    return plim_arena_sayf(arena, PLIM_INCIDENT_PREFIX "%04d%02d%02dT%02d%02d%02dZ-%s-%d",
                           t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                           plim_incident_kind_text(kind), pid);
}

static enum plim_status limit(const char *dir, uint64_t max_count, uint64_t max_bytes,
                              struct plim_arena *arena, struct plim_names *names,
                              struct plim_err *err)
{
    uint64_t count = 0, bytes = 0;
    PLIM_TRY(plim__folder_names(dir, PLIM_INCIDENT_PREFIX, arena, names, err));
    /* Names begin with the time: newest last. */
    for (size_t i = names->list.n; i-- > 0;) {
        const char *path = plim_arena_sayf(arena, "%s/%s", dir, names->list.items[i]);
        if (plim_ends_with(path, PLIM_PART_SUFFIX)) {
            continue;
        }
        count++;
        bytes = plim_add_sat(bytes, plim__folder_bytes(path));
        if (count > 1 && (count > max_count || bytes > max_bytes)) {
            plim__folder_remove(path);
        }
    }
    return plim_arena_status(arena, err);
}

enum plim_status plim__incident_limit(const char *dir, uint64_t max_count, uint64_t max_bytes,
                                      struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_names names = {0};
    plim_arena_init(&arena, 0);
    enum plim_status st = limit(dir, max_count, max_bytes, &arena, &names, err);
    plim_vec_fini(&names.list);
    plim_arena_fini(&arena);
    return st;
}

bool plim__process_lives(int pid)
{
    return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}
