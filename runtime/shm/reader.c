/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading what recorded processes share, without trusting it.
 *
 * Everything comes by pread: a file that was cut short gives an error, not a signal. A copy made while
 * the writer writes may be torn, so what changes is read twice: an event counts when its seq was right
 * before its body was copied, which is when nobody writes it any more; counters are read until two
 * copies agree on the word, at most READS times.
 */

#include <plimsoll/shm.h>

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READS   4
#define CHUNK   256u /* events copied at once */
#define RETRIES 8

#define FIELD(name) offsetof(struct plim_shm_head, name)

static int read_at(int fd, uint64_t at, void *out, size_t n)
{
    char *to = out;
    for (int tries = 0; n > 0; tries++) {
        ssize_t got = at > INT64_MAX ? 0 : pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR && tries < RETRIES) {
            continue;
        }
        if (got <= 0) {
            return got == 0 ? -EBADMSG : -errno; /* behind the end: the file was cut */
        }
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* n words that somebody may be writing, each of them whole. */
static int read_words(int fd, uint64_t at, uint64_t *out, unsigned n)
{
    uint64_t again[PLIM_SHM_OWNERS * 8];
    int rc = read_at(fd, at, out, n * sizeof *out);
    for (int i = 1; rc == 0 && i < READS; i++) {
        rc = read_at(fd, at, again, n * sizeof *out);
        if (rc != 0 || memcmp(again, out, n * sizeof *out) == 0) {
            break;
        }
        memcpy(out, again, n * sizeof *out);
    }
    return rc;
}

/* Whether n rows of `size` bytes at `at` lie in the file. */
static bool inside(const struct plim_shm_head *head, uint64_t at, uint64_t n, uint64_t size)
{
    uint64_t bytes, end;
    return !__builtin_mul_overflow(n, size, &bytes) && !__builtin_add_overflow(at, bytes, &end) &&
           at >= sizeof *head && end <= head->file_bytes;
}

static bool sound(const struct plim_shm_head *h)
{
    return memcmp(h->magic, PLIM_SHM_MAGIC, sizeof h->magic) == 0 &&
           h->version == PLIM_SHM_VERSION && h->head_bytes == sizeof *h &&
           h->devices == PLIM_SHM_DEVICES && h->owners == PLIM_SHM_OWNERS && h->ring_slots != 0 &&
           (h->ring_slots & (h->ring_slots - 1)) == 0 &&
           inside(h, h->ring_at, h->ring_slots, sizeof(struct plim_gpu_event)) &&
           inside(h, h->totals_at, (uint64_t)PLIM_SHM_DEVICES * PLIM_SHM_OWNERS,
                  sizeof(struct plim_shm_total)) &&
           inside(h, h->text_at, h->text_bytes, 1) &&
           inside(h, h->calls_at, h->calls, sizeof(uint32_t)) &&
           inside(h, h->libraries_at, h->library_room, sizeof(struct plim_shm_library)) &&
           inside(h, h->stacks_at, h->stack_room, sizeof(struct plim_shm_stack)) &&
           inside(h, h->frames_at, h->frame_room, sizeof(uint64_t));
}

int plim_shm_open(struct plim_shm_reader *reader, const char *path, bool consume)
{
    int fd = open(path, (consume ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    struct plim_shm_reader r = {.fd = fd, .consumes = consume};
    struct stat st;
    int rc = fstat(fd, &st) != 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EBADMSG;
    if (rc == 0 && consume && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
    }
    rc = rc == 0 ? read_at(fd, 0, &r.head, sizeof r.head) : rc;
    if (rc == 0 && (!sound(&r.head) || (uint64_t)st.st_size < r.head.file_bytes)) {
        rc = -EBADMSG;
    }
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    *reader = r;
    return 0;
}

void plim_shm_close(struct plim_shm_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd);
        reader->fd = -1;
    }
}

bool plim_shm_alive(const struct plim_shm_reader *reader)
{
    bool dead = false;
    uint64_t start = plim__shm_start_ticks(reader->head.pid, &dead);
    return start != 0 && start == reader->head.start_ticks && !dead;
}

static bool ends_with_suffix(const char *at)
{
    return strcmp(at, PLIM_SHM_SUFFIX) == 0 || strcmp(at, PLIM_ATTACH_SUFFIX) == 0;
}

int plim_shm_named_alive(const char *name)
{
    uint64_t pid, start, program;
    bool dead = false;
    const char *at = plim__shm_number(name + (*name == '.'), &pid);
    at = at != NULL && *at == '-' ? plim__shm_number(at + 1, &start) : NULL;
    at = at != NULL && *at == '.' ? plim__shm_number(at + 1, &program) : NULL;
    if (at == NULL || !ends_with_suffix(at) || pid == 0 || pid > UINT32_MAX || start == 0) {
        return -EINVAL;
    }
    return plim__shm_start_ticks((uint32_t)pid, &dead) == start && !dead;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct plim_gpu_event lost_event(uint64_t n)
{
    return (struct plim_gpu_event){.time_ns = now_ns(),
                                   .size = n,
                                   .duration_ns = PLIM_DURATION_NONE,
                                   .kind = PLIM_EVENT_LOST,
                                   .device = PLIM_DEVICE_NONE};
}

/*
 * Up to n events from number `from` (0 is the first), which lie in the ring without wrapping round.
 * Returns how many in a row were complete.
 */
static int take(const struct plim_shm_reader *reader, uint64_t from, struct plim_gpu_event *out,
                unsigned n)
{
    uint64_t slot = from & (reader->head.ring_slots - 1);
    uint64_t at = reader->head.ring_at + slot * sizeof *out;
    int rc = read_at(reader->fd, at, out, n * sizeof *out);
    if (rc != 0) {
        return rc;
    }
    unsigned ready = 0;
    while (ready < n && out[ready].seq == from + ready + 1) {
        ready++;
    }
    /* They are complete now; the copy may be older than the seq in it. */
    rc = ready == 0 ? 0 : read_at(reader->fd, at, out, ready * sizeof *out);
    for (unsigned i = 0; rc == 0 && i < ready; i++) {
        if (out[i].seq != from + i + 1) {
            return -EBADMSG;
        }
    }
    return rc != 0 ? rc : (int)ready;
}

/* Say how far this reader is, so that the writer may go on and the next reader continues. */
static int move_on(struct plim_shm_reader *reader, uint64_t tail, uint64_t told)
{
    uint64_t words[2] = {tail, told}; /* neighbours in the file */
    reader->head.tail = tail;
    reader->head.told = told;
    if (!reader->consumes) {
        return 0;
    }
    ssize_t n = pwrite(reader->fd, words, sizeof words, (off_t)FIELD(tail));
    return n == (ssize_t)sizeof words ? 0 : n < 0 ? -errno : -EIO;
}

/* Bring head, tail and lost up to date; lost before head, so that what it counts lies before head. */
static int refresh(struct plim_shm_reader *reader)
{
    uint64_t head, tail, lost;
    int rc = read_words(reader->fd, FIELD(tail), &tail, 1);
    rc = rc == 0 ? read_words(reader->fd, FIELD(lost), &lost, 1) : rc;
    rc = rc == 0 ? read_words(reader->fd, FIELD(head), &head, 1) : rc;
    if (rc == 0 && head - tail > reader->head.ring_slots) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        reader->head.head = head;
        reader->head.tail = tail;
        reader->head.lost = lost;
    }
    return rc;
}

int plim_shm_poll(struct plim_shm_reader *reader, struct plim_gpu_event *out, unsigned room,
                  bool dead)
{
    unsigned n = 0;
    int rc = refresh(reader);
    uint64_t at = reader->head.tail, end = reader->head.head, told = reader->head.told;
    while (rc >= 0 && at != end && n < room) {
        uint64_t slots = reader->head.ring_slots;
        uint64_t want = end - at < CHUNK ? end - at : CHUNK;
        uint64_t straight = slots - (at & (slots - 1));
        want = want < straight ? want : straight;
        want = want < room - n ? want : room - n;
        rc = take(reader, at, out + n, (unsigned)want);
        if (rc > 0) {
            n += (unsigned)rc;
            at += (uint64_t)rc;
        } else if (rc == 0 && !dead) {
            break; /* a slot that is being written */
        } else if (rc == 0) {
            reader->skipped++;
            at++;
        }
    }
    if (rc < 0) {
        return rc;
    }
    /* Events are dropped while the ring is full: what was lost was lost behind the events in it. */
    uint64_t lost = reader->head.lost - told + reader->skipped;
    if (at == end && lost != 0 && n < room) {
        out[n++] = lost_event(lost);
        told = reader->head.lost;
        reader->skipped = 0;
    }
    rc = move_on(reader, at, told);
    return rc < 0 ? rc : (int)n;
}

int plim_shm_totals(const struct plim_shm_reader *reader, unsigned device,
                    struct plim_shm_total out[PLIM_SHM_OWNERS])
{
    uint64_t words[PLIM_SHM_OWNERS * 8];
    uint64_t row = sizeof(struct plim_shm_total) * PLIM_SHM_OWNERS;
    if (device >= PLIM_SHM_DEVICES) {
        return -ERANGE;
    }
    int rc =
        read_words(reader->fd, reader->head.totals_at + device * row, words, PLIM_SHM_OWNERS * 8);
    if (rc != 0) {
        return rc;
    }
    memcpy(out, words, sizeof words);
    for (unsigned i = 0; i < PLIM_SHM_OWNERS; i++) {
        /* Two words of two moments: the earlier one may already be behind. */
        out[i].count = out[i].allocs > out[i].frees ? out[i].allocs - out[i].frees : 0;
    }
    return 0;
}

int plim_shm_counters(const struct plim_shm_reader *reader, struct plim_shm_counters *out,
                      uint64_t *lost)
{
    uint64_t words[sizeof *out / sizeof(uint64_t)];
    int rc = read_words(reader->fd, FIELD(counters), words, sizeof words / sizeof *words);
    uint64_t head = 0;
    rc = rc == 0 ? read_words(reader->fd, FIELD(lost), lost, 1) : rc;
    rc = rc == 0 ? read_words(reader->fd, FIELD(head), &head, 1) : rc;
    if (rc == 0) {
        memcpy(out, words, sizeof *out);
        out->events = head + *lost;
    }
    return rc;
}

int plim_shm_text(const struct plim_shm_reader *reader, uint64_t at, char *buf, size_t room)
{
    uint64_t used;
    int rc = read_words(reader->fd, FIELD(text_used), &used, 1);
    if (rc != 0 || room == 0) {
        return rc;
    }
    if (used > reader->head.text_bytes || at >= used) {
        return -ERANGE;
    }
    size_t n = used - at < room - 1 ? (size_t)(used - at) : room - 1;
    rc = read_at(reader->fd, reader->head.text_at + at, buf, n);
    buf[rc == 0 ? n : 0] = '\0';
    return rc;
}

int plim_shm_call(const struct plim_shm_reader *reader, unsigned call, char *buf, size_t room)
{
    uint32_t at;
    if (call >= reader->head.calls) {
        return -ERANGE;
    }
    int rc = read_at(reader->fd, reader->head.calls_at + call * sizeof at, &at, sizeof at);
    return rc != 0 ? rc : plim_shm_text(reader, at, buf, room);
}

int plim_shm_library(const struct plim_shm_reader *reader, unsigned library,
                     struct plim_shm_library *out, char *path, size_t room)
{
    uint64_t rows;
    struct plim_shm_library row;
    int rc = read_words(reader->fd, FIELD(libraries), &rows, 1);
    if (rc == 0 && (library >= rows || library >= reader->head.library_room)) {
        rc = -ERANGE;
    }
    uint64_t at = reader->head.libraries_at + library * sizeof row;
    rc = rc == 0 ? read_at(reader->fd, at, &row, sizeof row) : rc;
    rc = rc == 0 ? plim_shm_text(reader, row.name, path, room) : rc;
    if (rc == 0) {
        *out = row;
    }
    return rc;
}

int plim_shm_stack(const struct plim_shm_reader *reader, unsigned stack, uint64_t *frames,
                   unsigned room)
{
    uint64_t rows;
    struct plim_shm_stack row;
    int rc = read_words(reader->fd, FIELD(stacks), &rows, 1);
    if (rc == 0 && (stack >= rows || stack >= reader->head.stack_room)) {
        rc = -ERANGE;
    }
    uint64_t at = reader->head.stacks_at + stack * sizeof row;
    rc = rc == 0 ? read_at(reader->fd, at, &row, sizeof row) : rc;
    if (rc == 0 &&
        (row.first > reader->head.frame_room || row.n > reader->head.frame_room - row.first)) {
        rc = -EBADMSG;
    }
    if (rc != 0) {
        return rc;
    }
    unsigned n = row.n < room ? row.n : room;
    at = reader->head.frames_at + row.first * sizeof *frames;
    rc = n == 0 ? 0 : read_at(reader->fd, at, frames, n * sizeof *frames);
    return rc != 0 ? rc : (int)n;
}
