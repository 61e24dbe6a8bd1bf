/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what the Python side writes, and asking it for a snapshot. */

#include <plimsoll/shm.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define RETRIES 8 /* copies of a row that is being written, before it is given up */

static int read_exactly(int fd, uint64_t at, void *out, size_t n)
{
    ssize_t got = pread(fd, out, n, (off_t)at);
    return got == (ssize_t)n ? 0 : got < 0 ? -errno : -EBADMSG;
}

/* A row behind a sequence lock, its first word. -EAGAIN: it was being written all the time. */
static int read_locked(int fd, uint64_t at, void *out, size_t n)
{
    uint32_t before, after;
    for (int i = 0; i < RETRIES; i++) {
        int rc = read_exactly(fd, at, &before, sizeof before);
        rc = rc == 0 ? read_exactly(fd, at, out, n) : rc;
        rc = rc == 0 ? read_exactly(fd, at, &after, sizeof after) : rc;
        if (rc != 0 || (before == after && before % 2 == 0)) {
            return rc;
        }
    }
    return -EAGAIN;
}

static int check(const struct plim_attach_file *f)
{
    bool good = memcmp(f->magic, PLIM_ATTACH_MAGIC, sizeof f->magic) == 0 && f->version == 1 &&
                f->file_bytes == sizeof *f;
    return good ? 0 : -EBADMSG;
}

int plim_attach_read(const char *path, struct plim_attach_file *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    int rc = read_exactly(fd, 0, out, sizeof *out);
    rc = rc == 0 ? check(out) : rc;
    for (unsigned i = 0; rc == 0 && i < PLIM_ATTACH_DEVICES; i++) {
        uint64_t at = offsetof(struct plim_attach_file, device) + i * sizeof out->device[0];
        rc = read_locked(fd, at, &out->device[i], sizeof out->device[i]);
        if (rc == -EAGAIN) {
            out->device[i].valid = 0;
            rc = 0;
        }
    }
    for (unsigned i = 0; rc == 0 && i < PLIM_ATTACH_NOTES; i++) {
        uint64_t at = offsetof(struct plim_attach_file, note) + i * sizeof out->note[0];
        rc = read_locked(fd, at, &out->note[i], sizeof out->note[i]);
        if (rc == -EAGAIN || out->note[i].bytes > PLIM_ATTACH_TEXT) {
            out->note[i].number = 0;
            rc = rc == -EAGAIN ? 0 : rc;
        }
    }
    (void)close(fd);
    out->snapshot_path[sizeof out->snapshot_path - 1] = '\0';
    out->info[sizeof out->info - 1] = '\0';
    return rc;
}

int plim_attach_ask(const char *path, uint32_t *number)
{
    struct plim_attach_file head;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    int rc = read_exactly(fd, 0, &head, offsetof(struct plim_attach_file, device));
    rc = rc == 0 ? check(&head) : rc;
    if (rc == 0) {
        uint32_t next = head.snapshot_asked + 1;
        ssize_t n = pwrite(fd, &next, sizeof next,
                           (off_t)offsetof(struct plim_attach_file, snapshot_asked));
        rc = n == (ssize_t)sizeof next ? 0 : n < 0 ? -errno : -EIO;
        if (rc == 0) {
            *number = next;
        }
    }
    (void)close(fd);
    return rc;
}
