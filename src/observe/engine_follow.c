/* SPDX-License-Identifier: Apache-2.0 */

/* Following a log: files that grow, shrink, are replaced or not there yet, pipes, standard input. */

#include "observe/engine_log.h"

#include "base/num.h"
#include "observe/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (256u << 10)

struct plim_engine_follow {
    char name[PLIM_PLACE_NAME];
    char *path; /* owned */
    int fd;     /* -1: not open */
    bool file;  /* a regular file: it may be replaced, and has a size */
    bool live;  /* the end was reached once: what comes now is new */
    uint64_t at;
    struct plim_engine_log *log;
    char chunk[CHUNK];
};

/* The path of a log, and its name: without one, the end of the path. */
static const char *path_of(const struct plim_place *place, char name[PLIM_PLACE_NAME])
{
    const char *path = plim_place_split(place, name), *slash = strrchr(path, '/');
    if (name[0] == '\0') {
        plim_printable(name, PLIM_PLACE_NAME, plim_str_from(slash != NULL ? slash + 1 : path));
    }
    return path;
}

enum plim_status plim_engine_follow_open(const struct plim_place *place,
                                         struct plim_engine_follow **out, struct plim_err *err)
{
    struct plim_engine_follow *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to follow a log");
    }
    f->fd = -1;
    f->path = strdup(path_of(place, f->name));
    f->log = plim_engine_log_new();
    if (f->path == NULL || f->log == NULL) {
        plim_engine_follow_close(f);
        return plim__fail(err, PLIM_E_NOMEM, "no memory to follow a log");
    }
    *out = f;
    return PLIM_OK;
}

/* A pipe without a writer opens at once and reads as ended: it is read again at the next step. */
static enum plim_status open_file(struct plim_engine_follow *f, struct plim_err *err)
{
    struct stat st;
    f->fd = strcmp(f->path, "-") == 0 ? dup(STDIN_FILENO)
                                      : open(f->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &st) != 0) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "cannot follow the log %.150s",
                                f->path);
    }
    f->file = S_ISREG(st.st_mode);
    f->live |= !f->file;
    f->at = 0;
    return PLIM_OK;
}

/* Up to CHUNK bytes; 0: nothing is there now. */
static enum plim_status read_chunk(struct plim_engine_follow *f, size_t *got, struct plim_err *err)
{
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    *got = 0;
    if (!f->file && poll(&p, 1, 0) != 1) {
        return PLIM_OK;
    }
    ssize_t n =
        f->file ? pread(f->fd, f->chunk, CHUNK, (off_t)f->at) : read(f->fd, f->chunk, CHUNK);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return plim__fail_errno(err, PLIM_E_IO, errno, "cannot read the log %.150s", f->path);
    }
    *got = n > 0 ? (size_t)n : 0;
    f->at += *got;
    return PLIM_OK;
}

/* Whether the path names another file now than the one that is open; it may be missing for a moment. */
static bool was_replaced(const struct plim_engine_follow *f)
{
    struct stat open, now;
    return f->file && fstat(f->fd, &open) == 0 && stat(f->path, &now) == 0 &&
           (open.st_ino != now.st_ino || open.st_dev != now.st_dev);
}

static bool has_shrunk(const struct plim_engine_follow *f)
{
    struct stat st;
    return f->file && fstat(f->fd, &st) == 0 && (uint64_t)st.st_size < f->at;
}

static void close_file(struct plim_engine_follow *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    f->fd = -1;
}

/* What comes next does not belong to the line that was begun. */
static enum plim_status end_line(struct plim_engine_follow *f, struct plim_err *err)
{
    return plim_engine_log_feed(f->log, PLIM_STR("\n"), f->live, err);
}

static enum plim_status read_on(struct plim_engine_follow *f, struct plim_err *err)
{
    for (size_t total = 0, got = 0; total < PLIM_ENGINE_LOG_STEP; total += got) {
        PLIM_TRY(read_chunk(f, &got, err));
        if (got == 0) {
            f->live = true;
            return PLIM_OK;
        }
        PLIM_TRY(plim_engine_log_feed(f->log, (struct plim_str){f->chunk, got}, f->live, err));
    }
    return PLIM_OK;
}

enum plim_status plim_engine_follow_step(struct plim_engine_follow *f, struct plim_err *err)
{
    if (f->fd < 0) {
        enum plim_status st = open_file(f, err);
        if (st != PLIM_OK) {
            close_file(f);
            f->live = true; /* what comes into a file that is yet to be made is new */
            return st;
        }
    }
    if (has_shrunk(f)) {
        f->at = 0;
        PLIM_TRY(end_line(f, err));
    }
    bool replaced = was_replaced(f);
    PLIM_TRY(read_on(f, err));
    if (replaced && f->live) {
        close_file(f); /* read to its end; the new one is read from its beginning */
        PLIM_TRY(end_line(f, err));
        PLIM_TRY(open_file(f, err));
        return read_on(f, err);
    }
    return PLIM_OK;
}

struct plim_engine_log *plim_engine_follow_log(struct plim_engine_follow *f)
{
    return f->log;
}

bool plim_engine_follow_is(const struct plim_engine_follow *f, const struct plim_place *place)
{
    char name[PLIM_PLACE_NAME];
    return strcmp(path_of(place, name), f->path) == 0 && strcmp(name, f->name) == 0;
}

const char *plim_engine_follow_name(const struct plim_engine_follow *f)
{
    return f->name;
}

void plim_engine_follow_close(struct plim_engine_follow *f)
{
    if (f != NULL) {
        close_file(f);
        plim_engine_log_free(f->log);
        free(f->path);
        free(f);
    }
}
