/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX files behind the interfaces of file.h. Short reads and EINTR are handled here, once. */

#include "base/file.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The last part of a long path, which says more than its start. */
static void short_name(char out[64], const char *path)
{
    size_t n = strlen(path);
    snprintf(out, 64, "%s%s", n > 63 ? "..." : "", n > 63 ? path + n - 60 : path);
}

static enum plim_status open_for_reading(const char *path, int *fd, struct stat *info,
                                         struct plim_err *err)
{
    *fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, info) != 0) {
        int e = errno;
        if (*fd >= 0) {
            close(*fd);
        }
        plim__fail_errno(err, PLIM_E_NOINPUT, e, "cannot open '%s'", path);
        if (e == ENOENT) {
            plim__err_hint(err, "check the path; use - to read standard input");
        }
        return PLIM_E_NOINPUT;
    }
    if (S_ISDIR(info->st_mode)) {
        close(*fd);
        plim__fail(err, PLIM_E_NOINPUT, "'%s' is a directory", path);
        plim__err_hint(err, "name a file inside it");
        return PLIM_E_NOINPUT;
    }
    return PLIM_OK;
}

static enum plim_status read_fd(void *self, void *dst, size_t n, size_t *got, struct plim_err *err)
{
    int fd = (int)(intptr_t)self;
    for (;;) {
        ssize_t r = read(fd, dst, n > SSIZE_MAX ? SSIZE_MAX : n);
        if (r >= 0) {
            *got = (size_t)r;
            return PLIM_OK;
        }
        if (errno != EINTR) {
            return plim__fail_errno(err, PLIM_E_IO, errno, "cannot read");
        }
    }
}

static void close_fd(void *self)
{
    close((int)(intptr_t)self);
}

enum plim_status plim_source_open(const char *path, struct plim_source *out, struct plim_err *err)
{
    int fd;
    struct stat info;
    PLIM_TRY(open_for_reading(path, &fd, &info, err));
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* reads further ahead; a hint only */
    *out = (struct plim_source){
        .read = read_fd,
        .close = close_fd,
        .self = (void *)(intptr_t)fd,
        .size = S_ISREG(info.st_mode) && info.st_size > 0 ? (uint64_t)info.st_size : 0,
    };
    short_name(out->name, strcmp(path, "-") == 0 ? "standard input" : path);
    return PLIM_OK;
}

static enum plim_status read_bytes(void *self, void *dst, size_t n, size_t *got,
                                   struct plim_err *err)
{
    (void)err;
    struct plim_source_bytes *state = self;
    *got = n < state->rest.n ? n : state->rest.n;
    if (*got > 0) {
        memcpy(dst, state->rest.p, *got);
    }
    state->rest = plim_str_skip(state->rest, *got);
    return PLIM_OK;
}

struct plim_source plim_source_bytes(struct plim_source_bytes *state, struct plim_str bytes)
{
    state->rest = bytes;
    return (struct plim_source){
        .read = read_bytes, .self = state, .size = bytes.n, .name = "memory"};
}

void plim_source_close(struct plim_source *source)
{
    if (source->close) {
        source->close(source->self);
    }
    *source = (struct plim_source){0};
}

static enum plim_status read_rest(struct plim_source *source, uint64_t limit, struct plim_buf *text,
                                  struct plim_err *err)
{
    char chunk[64 * 1024];
    for (size_t got = 1; got > 0;) {
        PLIM_TRY(source->read(source->self, chunk, sizeof(chunk), &got, err));
        plim_buf_add(text, (struct plim_str){chunk, got});
        PLIM_TRY(plim_buf_status(text, err));
        if (text->n > limit) {
            return plim__fail(err, PLIM_E_BUDGET, "'%s' is longer than %llu bytes", source->name,
                              (unsigned long long)limit);
        }
    }
    return PLIM_OK;
}

enum plim_status plim_file_read(const char *path, uint64_t limit, struct plim_str *out,
                                struct plim_err *err)
{
    struct plim_source source;
    struct plim_buf text = {0};
    PLIM_TRY(plim_source_open(path, &source, err));
    plim_buf_text(&text, ""); /* an empty file still gives owned storage */
    enum plim_status st = read_rest(&source, limit, &text, err);
    plim_source_close(&source);
    if (st != PLIM_OK) {
        plim_buf_fini(&text);
        return st;
    }
    *out = (struct plim_str){text.p, text.n};
    return PLIM_OK;
}

enum plim_status plim_file_map(const char *path, struct plim_mapping *out, struct plim_err *err)
{
    int fd;
    struct stat info;
    PLIM_TRY(open_for_reading(path, &fd, &info, err));
    struct plim_mapping map = {NULL, (size_t)info.st_size};
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return plim__fail(err, PLIM_E_NOINPUT, "'%s' is not a regular file", path);
    }
    if (map.n > 0) {
        void *p = mmap(NULL, map.n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            int e = errno;
            close(fd);
            return plim__fail_errno(err, PLIM_E_IO, e, "cannot map '%s'", path);
        }
        map.p = p;
    }
    close(fd);
    *out = map;
    return PLIM_OK;
}

void plim_file_unmap(struct plim_mapping *map)
{
    if (map->p) {
        munmap((void *)(uintptr_t)map->p, map->n);
    }
    *map = (struct plim_mapping){0};
}

static int write_all(int fd, struct plim_str bytes)
{
    while (bytes.n > 0) {
        ssize_t w = write(fd, bytes.p, bytes.n);
        if (w < 0 && errno != EINTR) {
            return errno;
        }
        bytes = plim_str_skip(bytes, w > 0 ? (size_t)w : 0);
    }
    return 0;
}

/* Make the rename itself durable; a folder that cannot be synced is not worth failing for. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof(folder)) {
        return;
    }
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = open(slash ? (n ? folder : "/") : ".", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

/* A new file beside `path`, with the permissions of the old one or else those of the umask; or -1. */
static int open_temporary(const char *path, char *temporary, size_t room)
{
    struct stat old;
    int fd = -1;
    errno = EEXIST;
    for (unsigned attempt = 0; fd < 0 && errno == EEXIST && attempt < 100; attempt++) {
        int n = snprintf(temporary, room, "%s.%ld-%u.tmp", path, (long)getpid(), attempt);
        if (n < 0 || (size_t)n >= room) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (fd >= 0 && stat(path, &old) == 0 && fchmod(fd, old.st_mode & 07777) != 0) {
        int e = errno;
        close(fd);
        unlink(temporary);
        errno = e;
        return -1;
    }
    return fd;
}

static enum plim_status write_failed(const char *path, int e, struct plim_err *err)
{
    return plim__fail_errno(err, e == ENOSPC || e == EIO ? PLIM_E_IO : PLIM_E_CREATE, e,
                            "cannot write '%s'", path);
}

enum plim_status plim_target_open(const char *path, struct plim_target *out, struct plim_err *err)
{
    struct stat info;
    out->path = path;
    out->temporary[0] = '\0';
    if (strcmp(path, "-") == 0) {
        out->fd = STDOUT_FILENO;
        return PLIM_OK;
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) { /* written to, not replaced */
        out->fd = S_ISDIR(info.st_mode) ? -1 : open(path, O_WRONLY | O_CLOEXEC);
        if (out->fd < 0) {
            int e = S_ISDIR(info.st_mode) ? EISDIR : errno;
            return plim__fail_errno(err, PLIM_E_CREATE, e, "cannot write '%s'", path);
        }
        return PLIM_OK;
    }
    out->fd = open_temporary(path, out->temporary, sizeof(out->temporary));
    if (out->fd < 0) {
        return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot create '%s'", path);
    }
    return PLIM_OK;
}

enum plim_status plim_target_write(struct plim_target *target, struct plim_str bytes,
                                   struct plim_err *err)
{
    int e = write_all(target->fd, bytes);
    if (e != 0 && target->fd == STDOUT_FILENO) {
        return plim__fail_errno(err, PLIM_E_IO, e, "cannot write to standard output");
    }
    return e ? write_failed(target->path, e, err) : PLIM_OK;
}

void plim_target_abort(struct plim_target *target)
{
    if (target->fd != STDOUT_FILENO) {
        close(target->fd);
    }
    if (target->temporary[0]) {
        unlink(target->temporary);
    }
}

enum plim_status plim_target_commit(struct plim_target *target, struct plim_err *err)
{
    int e = target->temporary[0] && fsync(target->fd) != 0 ? errno : 0;
    if (target->fd != STDOUT_FILENO && close(target->fd) != 0 && e == 0) {
        e = errno;
    }
    if (target->temporary[0] && e == 0 && rename(target->temporary, target->path) != 0) {
        e = errno;
    }
    if (e != 0) {
        if (target->temporary[0]) {
            unlink(target->temporary);
        }
        return write_failed(target->path, e, err);
    }
    if (target->temporary[0]) {
        sync_folder(target->path);
    }
    return PLIM_OK;
}

enum plim_status plim_file_replace(const char *path, struct plim_str bytes, struct plim_err *err)
{
    struct plim_target target;
    PLIM_TRY(plim_target_open(path, &target, err));
    enum plim_status st = plim_target_write(&target, bytes, err);
    if (st != PLIM_OK) {
        plim_target_abort(&target);
        return st;
    }
    return plim_target_commit(&target, err);
}
