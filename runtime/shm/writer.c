/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a recorder's file, and writing into it.
 *
 * A slot of the ring belongs to the thread that moved `head` over it. The thread fills the slot and
 * stores seq last: a reader that finds the expected seq finds a complete event. Between the two a
 * thread may be stopped or killed; then the slot keeps the seq of an earlier lap, and the reader
 * waits, or, when the process is gone, skips it.
 *
 * A file has no name until it is complete (O_TMPFILE, open(2)): of a process that is killed while it
 * makes its file nothing is left. Where a file system cannot do that, the file has a hidden name so
 * long, and whoever reads the session removes what the dead left.
 */

#include "writer.h"

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h> /* rename */
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE     4096u
#define PROGRAMS 1000000u /* most that one process may become */

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The next part of the file: its offset; *end moves behind it, on a page. */
static uint64_t part(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end = (at + bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    return at;
}

static void lay_out(struct plim_shm_head *head, const struct plim_shm_sizes *sizes, uint32_t calls)
{
    uint64_t end = sizeof *head;
    *head = (struct plim_shm_head){.version = PLIM_SHM_VERSION,
                                   .head_bytes = sizeof *head,
                                   .devices = PLIM_SHM_DEVICES,
                                   .owners = PLIM_SHM_OWNERS,
                                   .ring_slots = sizes->ring_slots,
                                   .text_bytes = sizes->text_bytes,
                                   .calls = calls,
                                   .library_room = sizes->libraries,
                                   .stack_room = sizes->stacks,
                                   .frame_room = sizes->frames,
                                   .libraries = 1,
                                   .stacks = 1,
                                   .text_used = 1};
    head->totals_at =
        part(&end, (uint64_t)sizeof(struct plim_shm_total) * PLIM_SHM_DEVICES * PLIM_SHM_OWNERS);
    head->calls_at = part(&end, calls * (uint64_t)sizeof(uint32_t));
    head->libraries_at = part(&end, sizes->libraries * (uint64_t)sizeof(struct plim_shm_library));
    head->stacks_at = part(&end, sizes->stacks * (uint64_t)sizeof(struct plim_shm_stack));
    head->frames_at = part(&end, sizes->frames * (uint64_t)sizeof(uint64_t));
    head->text_at = part(&end, sizes->text_bytes);
    head->ring_at = part(&end, sizes->ring_slots * (uint64_t)sizeof(struct plim_gpu_event));
    head->file_bytes = end;
    memcpy(head->magic, PLIM_SHM_MAGIC, sizeof head->magic);
}

static void say_who(struct plim_shm_head *head, const char *version)
{
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    head->pid = (uint32_t)getpid();
    head->parent_pid = (uint32_t)getppid();
    head->start_ticks = plim__shm_start_ticks(0, NULL);
    head->start_ns = (uint64_t)now;
    head->heartbeat_ns = (uint64_t)now;
    head->real_offset_ns = clock_ns(CLOCK_REALTIME) - now;
    (void)plim__shm_put_text(head->recorder, head->recorder + sizeof head->recorder - 1, version);
}

static void point(struct plim_shm_writer *w, void *base)
{
    char *at = base;
    w->head = base;
    w->ring = (void *)(at + w->head->ring_at);
    w->mask = w->head->ring_slots - 1;
    w->totals = (void *)(at + w->head->totals_at);
    w->libraries = (void *)(at + w->head->libraries_at);
    w->stacks = (void *)(at + w->head->stacks_at);
    w->frames = (void *)(at + w->head->frames_at);
    w->text = at + w->head->text_at;
}

/* Map the open file and fill it: head, names of calls, nothing else. */
static int fill(struct plim_shm_writer *w, int fd, const struct plim_shm_head *head,
                const char *const *calls)
{
    /* Growing beyond the limit would send the host a signal. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < head->file_bytes) {
        return -EFBIG;
    }
    int rc = posix_fallocate(fd, 0, (off_t)head->file_bytes);
    for (int i = 0; rc == EINTR && i < 8; i++) {
        rc = posix_fallocate(fd, 0, (off_t)head->file_bytes);
    }
    if (rc != 0) {
        return -rc;
    }
    void *base =
        mmap(NULL, head->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) {
        return -errno;
    }
    memcpy(base, head, sizeof *head);
    point(w, base);
    uint32_t *at = (void *)((char *)base + head->calls_at);
    for (uint32_t i = 0; i < head->calls; i++) {
        at[i] = plim__shm_add_text(w, calls[i]);
    }
    __atomic_store_n(&w->head->state, (uint32_t)PLIM_SHM_LIVE, __ATOMIC_RELEASE);
    return 0;
}

/* "<dir>/<dot><pid>-<start>.<program>.plimshm" */
static bool name_file(char path[PATH_MAX], const char *dir, const char *dot,
                      const struct plim_shm_head *head)
{
    if (strlen(dir) + 96 > PATH_MAX) {
        return false;
    }
    char *at = stpcpy(stpcpy(stpcpy(path, dir), "/"), dot);
    at = plim__shm_put_number(at, head->pid);
    *at++ = '-';
    at = plim__shm_put_number(at, head->start_ticks);
    *at++ = '.';
    at = plim__shm_put_number(at, head->program);
    (void)strcpy(at, PLIM_SHM_SUFFIX);
    return true;
}

/* Give the file its name: that of the first program that is free. `from` leads to the file; when it is
 * hidden, a file system without hard links will do too. */
static int publish(struct plim_shm_head *head, const char *from, bool hidden, const char *dir)
{
    char path[PATH_MAX];
    for (head->program = 0; head->program < PROGRAMS; head->program++) {
        if (!name_file(path, dir, "", head)) {
            return -EINVAL;
        }
        if (linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0) {
            return 0;
        }
        int error = errno;
        if (error != EEXIST && access(path, F_OK) != 0) {
            return hidden && rename(from, path) == 0 ? 0 : -error;
        }
    }
    return -EEXIST;
}

/* Make the file without a name, or under a hidden one, and then publish it. */
static int make(struct plim_shm_writer *writer, const struct plim_shm_sizes *sizes,
                const struct plim_shm_head *head, const char *dir, bool hidden,
                const char *const *calls)
{
    char from[PATH_MAX] = "/proc/self/fd/";
    int fd;
    *writer = (struct plim_shm_writer){.sizes = *sizes};
    if (hidden) {
        if (!name_file(from, dir, ".", head)) {
            return -EINVAL;
        }
        (void)unlink(from); /* of an earlier program of this process */
        fd = open(from, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    } else {
        fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0) {
        return -errno;
    }
    if (!hidden) {
        (void)plim__shm_put_number(from + strlen(from), (uint64_t)fd);
    }
    int rc = fill(writer, fd, head, calls);
    rc = rc == 0 ? publish(writer->head, from, hidden, dir) : rc;
    if (hidden) {
        (void)unlink(from);
    }
    (void)close(fd);
    if (rc != 0) {
        plim__shm_unmap(writer);
    }
    return rc;
}

int plim__shm_create(struct plim_shm_writer *writer, const char *dir,
                     const struct plim_shm_sizes *sizes, const char *const *calls, uint32_t n,
                     const char *version)
{
    struct plim_shm_head head;
    bool power = sizes->ring_slots != 0 && (sizes->ring_slots & (sizes->ring_slots - 1)) == 0;
    if (!power || sizes->ring_slots > (uint64_t)1 << 32 || sizes->libraries == 0 ||
        sizes->stacks == 0 || sizes->text_bytes > UINT32_MAX || sizes->frames > UINT32_MAX) {
        return -EINVAL;
    }
    lay_out(&head, sizes, n);
    say_who(&head, version);
    int rc = make(writer, sizes, &head, dir, false, calls);
    return rc == 0 ? 0 : make(writer, sizes, &head, dir, true, calls);
}

void plim__shm_unmap(struct plim_shm_writer *writer)
{
    if (writer->head != NULL) {
        (void)munmap(writer->head, writer->head->file_bytes);
    }
    *writer = (struct plim_shm_writer){0};
}

bool plim__shm_write(struct plim_shm_writer *writer, const struct plim_gpu_event *event)
{
    struct plim_shm_head *head = writer->head;
    uint64_t at = __atomic_load_n(&head->head, __ATOMIC_RELAXED);
    do {
        /* A wrong tail (only a broken reader writes one) reads as a full ring. */
        if (at - __atomic_load_n(&head->tail, __ATOMIC_ACQUIRE) > writer->mask) {
            (void)__atomic_fetch_add(&head->lost, 1, __ATOMIC_RELAXED);
            return false;
        }
    } while (!__atomic_compare_exchange_n(&head->head, &at, at + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    struct plim_gpu_event *slot = &writer->ring[at & writer->mask];
    memcpy(&slot->time_ns, &event->time_ns,
           sizeof *slot - offsetof(struct plim_gpu_event, time_ns));
    __atomic_store_n(&slot->seq, at + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&head->heartbeat_ns, event->time_ns, __ATOMIC_RELAXED);
    return true;
}

uint32_t plim__shm_add_text(struct plim_shm_writer *writer, const char *text)
{
    uint64_t used = writer->head->text_used;
    uint64_t n = strlen(text) + 1;
    if (n == 1 || n > writer->sizes.text_bytes - used) {
        return 0;
    }
    memcpy(writer->text + used, text, n);
    __atomic_store_n(&writer->head->text_used, used + n, __ATOMIC_RELEASE);
    return (uint32_t)used;
}

uint32_t plim__shm_add_library(struct plim_shm_writer *writer, uint64_t base, uint64_t end,
                               const char *path, unsigned owner)
{
    uint64_t row = writer->head->libraries;
    if (row >= writer->sizes.libraries || row > UINT16_MAX) {
        return 0;
    }
    writer->libraries[row] =
        (struct plim_shm_library){.base = base,
                                  .end = end,
                                  .since = __atomic_load_n(&writer->head->head, __ATOMIC_RELAXED),
                                  .name = plim__shm_add_text(writer, path),
                                  .owner = owner};
    __atomic_store_n(&writer->head->libraries, row + 1, __ATOMIC_RELEASE);
    return (uint32_t)row;
}

uint32_t plim__shm_add_stack(struct plim_shm_writer *writer, const uint64_t *frames, uint32_t n)
{
    uint64_t row = writer->head->stacks, used = writer->head->frames_used;
    if (n == 0 || row >= writer->sizes.stacks || n > writer->sizes.frames - used) {
        return 0;
    }
    memcpy(writer->frames + used, frames, n * sizeof *frames);
    writer->stacks[row] = (struct plim_shm_stack){(uint32_t)used, n};
    __atomic_store_n(&writer->head->frames_used, used + n, __ATOMIC_RELEASE);
    __atomic_store_n(&writer->head->stacks, row + 1, __ATOMIC_RELEASE);
    return (uint32_t)row;
}
