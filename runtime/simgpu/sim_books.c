/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books: which process uses how many bytes of which device.
 *
 * One mapping shared by every process of a run (a file, or anonymous memory that forked children
 * inherit), under one robust mutex. There is no running total: what a device uses is the sum over
 * the processes, so a process that is killed half way through a change leaves nothing inconsistent.
 * The sum runs over the slots ever used, a handful. A process is known by its pid and its start
 * time, so a recycled pid is not mistaken for a live owner; slots of dead processes are dropped
 * when somebody asks for the free memory or when a charge would not fit.
 *
 * Invariant: used of a device <= its total, unless `external` was raised afterwards.
 */

#include "plimsoll/simgpu.h"
#include "sim.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOKS_SLOTS 256

struct slot {
    int32_t pid; /* 0 when free */
    uint32_t pad;
    uint64_t started; /* clock ticks after boot, from /proc/PID/stat */
    uint64_t used[SIM_MAX_DEVICES];
    uint64_t context[SIM_MAX_DEVICES];
};

struct books {
    struct plimsoll_sim_books open; /* what others may read */
    pthread_mutex_t lock;
    uint32_t n_slots; /* slots in use are below this */
    struct sim_card card[SIM_MAX_DEVICES];
    struct slot slots[BOOKS_SLOTS];
};

static struct books *books;
static int my_slot = -1;
static bool created; /* by this process */
static _Atomic bool has_context[SIM_MAX_DEVICES];

static void lock(void)
{
    if (pthread_mutex_lock(&books->lock) == EOWNERDEAD) {
        (void)pthread_mutex_consistent(&books->lock);
    }
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&books->lock);
}

/* Start time of a process, or 0 when it is gone or a zombie. */
static uint64_t start_time(int pid)
{
    char path[32] = "/proc/", text[512];
    char digits[12];
    int n = 0, at = 6;
    for (unsigned v = (unsigned)pid; v > 0 || n == 0; v /= 10) {
        digits[n++] = (char)('0' + v % 10);
    }
    while (n > 0) {
        path[at++] = digits[--n];
    }
    memcpy(path + at, "/stat", 6);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *p = strrchr(text, ')'); /* the command may hold spaces and parentheses */
    if (p == NULL || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X') {
        return 0;
    }
    p += 2; /* field 3 */
    for (int field = 3; field < 22 && p != NULL; field++) {
        p = strchr(p, ' ');
        p = p == NULL ? NULL : p + 1;
    }
    uint64_t started = 0;
    for (; p != NULL && *p >= '0' && *p <= '9'; p++) {
        started = started * 10 + (uint64_t)(*p - '0');
    }
    return started == 0 ? 1 : started;
}

static int fill(struct books *b, const struct sim_card *cards, int n)
{
    pthread_mutexattr_t attr;
    memset(b, 0, sizeof *b);
    if (pthread_mutexattr_init(&attr) != 0 ||
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) != 0 ||
        pthread_mutex_init(&b->lock, &attr) != 0) {
        return SIM_E_INIT;
    }
    memcpy(b->card, cards, (size_t)n * sizeof *cards);
    for (int d = 0; d < n; d++) {
        struct plimsoll_sim_device *device = &b->open.device[d];
        memcpy(device->key, cards[d].key, sizeof device->key);
        memcpy(device->name, cards[d].name, sizeof device->name);
        device->total = cards[d].total;
        device->nvml_total = cards[d].nvml_total;
        device->context = cards[d].context;
    }
    b->open.n_devices = (uint32_t)n;
    memcpy(b->open.magic, PLIMSOLL_SIM_BOOKS_MAGIC, sizeof b->open.magic);
    created = true;
    return SIM_OK;
}

int sim_books_open(const char *path, const struct sim_card *cards, int n)
{
    if (path == NULL) {
        void *p =
            mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            return SIM_E_INIT;
        }
        books = p;
        return fill(books, cards, n);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return SIM_E_INIT;
    }
    int rc = SIM_E_INIT;
    struct stat st;
    if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 &&
        ((size_t)st.st_size >= sizeof *books || ftruncate(fd, sizeof *books) == 0)) {
        void *p = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            books = p;
            rc = memcmp(books->open.magic, PLIMSOLL_SIM_BOOKS_MAGIC, 8) == 0
                     ? SIM_OK
                     : fill(books, cards, n);
        }
    }
    (void)flock(fd, LOCK_UN); /* the mapping keeps the file, and with it the lock, open */
    (void)close(fd);
    return rc;
}

bool sim_books_created(void)
{
    return created;
}

void sim_books_forked(void)
{
    my_slot = -1;
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        atomic_store(&has_context[d], false);
    }
}

int sim_device_count(void)
{
    return books == NULL ? 0 : (int)books->open.n_devices;
}

const struct sim_card *sim_card(int device)
{
    return &books->card[device];
}

/* Drop slots whose process is gone. Caller holds the books. */
static void reap(void)
{
    for (uint32_t i = 0; i < books->n_slots; i++) {
        struct slot *s = &books->slots[i];
        if (s->pid != 0 && (int)i != my_slot && start_time(s->pid) != s->started) {
            memset(s, 0, sizeof *s);
        }
    }
    while (books->n_slots > 0 && books->slots[books->n_slots - 1].pid == 0) {
        books->n_slots--;
    }
}

static struct slot *mine(void)
{
    if (my_slot >= 0) {
        return &books->slots[my_slot];
    }
    reap();
    for (uint32_t i = 0; i < BOOKS_SLOTS; i++) {
        struct slot *s = &books->slots[i];
        if (s->pid == 0) {
            s->pid = getpid();
            s->started = start_time(s->pid);
            my_slot = (int)i;
            books->n_slots = i + 1 > books->n_slots ? i + 1 : books->n_slots;
            return s;
        }
    }
    return NULL;
}

static uint64_t used(int device)
{
    uint64_t sum = books->open.device[device].external;
    for (uint32_t i = 0; i < books->n_slots; i++) {
        sum += books->slots[i].used[device] + books->slots[i].context[device];
    }
    return sum;
}

/* Whether bytes more fit; notes the peak when they do. */
static bool fits(int device, const struct slot *me, uint64_t bytes)
{
    uint64_t total = books->card[device].total, limit = books->open.device[device].limit;
    uint64_t after = used(device) + bytes;
    if (bytes > total || after > total) {
        return false;
    }
    if (limit != 0 && me->used[device] + me->context[device] + bytes > limit) {
        return false;
    }
    if (after > books->open.device[device].peak) {
        books->open.device[device].peak = after;
    }
    return true;
}

static int charge(int device, uint64_t bytes, bool context)
{
    int rc = SIM_E_NOMEM;
    lock();
    struct slot *s = mine();
    if (s != NULL) {
        bool ok = fits(device, s, bytes);
        if (!ok) {
            reap();
            ok = fits(device, s, bytes);
        }
        if (ok) {
            *(context ? &s->context[device] : &s->used[device]) += bytes;
            rc = SIM_OK;
        }
    }
    unlock();
    return rc;
}

int sim_charge(int device, uint64_t bytes)
{
    return charge(device, bytes, false);
}

void sim_uncharge(int device, uint64_t bytes)
{
    lock();
    struct slot *s = mine();
    if (s != NULL) {
        s->used[device] -= bytes < s->used[device] ? bytes : s->used[device];
    }
    unlock();
}

bool sim_has_context(int device)
{
    return atomic_load_explicit(&has_context[device], memory_order_acquire);
}

/* Caller holds sim_lock, so that two threads do not both pay. */
int sim_context(int device)
{
    if (sim_has_context(device)) {
        return SIM_OK;
    }
    int rc = charge(device, books->card[device].context, true);
    if (rc == SIM_OK) {
        atomic_store_explicit(&has_context[device], true, memory_order_release);
    }
    return sim_leave(SIM_CALL_CONTEXT, device, 0, books->card[device].context, 0, rc);
}

void sim_context_drop(int device)
{
    lock();
    if (my_slot >= 0) {
        books->slots[my_slot].used[device] = 0;
        books->slots[my_slot].context[device] = 0;
    }
    unlock();
    atomic_store(&has_context[device], false);
}

void sim_usage(int device, struct sim_usage *out)
{
    lock();
    reap();
    *out = (struct sim_usage){.total = books->card[device].total,
                              .nvml_total = books->card[device].nvml_total,
                              .external = books->open.device[device].external,
                              .used = used(device),
                              .peak = books->open.device[device].peak};
    if (my_slot >= 0) {
        const struct slot *s = &books->slots[my_slot];
        out->my_context = s->context[device];
        out->mine = s->used[device] + s->context[device];
    }
    unlock();
}

unsigned sim_processes(int device, struct sim_process *out, unsigned n)
{
    unsigned k = 0;
    lock();
    reap();
    for (uint32_t i = 0; i < books->n_slots; i++) {
        const struct slot *s = &books->slots[i];
        if (s->pid != 0 && s->context[device] != 0) {
            if (k < n && out != NULL) {
                out[k] = (struct sim_process){s->pid, s->used[device] + s->context[device]};
            }
            k++;
        }
    }
    unlock();
    return k;
}

void sim_set_external(int device, uint64_t bytes)
{
    lock();
    books->open.device[device].external = bytes;
    unlock();
}

void sim_set_limit(int device, uint64_t bytes)
{
    lock();
    books->open.device[device].limit = bytes;
    unlock();
}

void sim_missing(const char *name)
{
    if (books == NULL && sim_start() != SIM_OK) {
        return;
    }
    lock();
    for (uint32_t i = 0; i < books->open.n_missing; i++) {
        if (strncmp(books->open.missing[i], name, sizeof books->open.missing[0] - 1) == 0) {
            unlock();
            return;
        }
    }
    if (books->open.n_missing < PLIMSOLL_SIM_MISSING_NAMES) {
        strncpy(books->open.missing[books->open.n_missing], name,
                sizeof books->open.missing[0] - 1);
        books->open.n_missing++;
    }
    unlock();
}
