/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program that is recorded without a device: it writes events into a ring of its own, as the recorder
 * would. Event i has addr i and size toy_size(i), so that whoever reads them can say which are missing.
 *
 *     record_toy write FILE N [NANOSECONDS]    N events (0: without end, and without waiting for a full ring) with a
 *                                              pause between them; FILE holds the number of those published
 *     record_toy chain FILE N TIMES            N events, each read before it becomes the same program again by exec
 *     record_toy kill FOLDER N PARALLEL SEED   N times: start `write FOLDER/<i>` and kill -9 it at a random moment, of
 *                                              some counted from their first event
 *     record_toy cuda N PARALLEL SEED          the same with processes that allocate on the device, which is simulated
 */

#include "record_toy.h"

#include "shm/writer.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILL_WITHIN_US 4000
#define MOST_FILES     64
#define SLOTS          64

/* In the memory of all processes, for `kill` and `cuda`: who has come to its first event. */
static atomic_bool *begun;
static unsigned own_slot;

static void say_begun(void)
{
    if (begun != NULL) {
        atomic_store(&begun[own_slot], true);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static _Atomic uint64_t *counter(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0) {
        return NULL;
    }
    void *map = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static int write_events(const char *file, uint64_t n, uint64_t pause_ns, bool until_read)
{
    static const char *const calls[] = {"", "toyAlloc", "toyFree"};
    const struct plim_shm_sizes sizes = {
        .ring_slots = 1u << 12, .text_bytes = 4096, .libraries = 8, .stacks = 8, .frames = 64};
    struct plim_shm_writer w;
    const char *dir = getenv("PLIMSOLL_RECORD_DIR"); // NOLINT(concurrency-mt-unsafe)
    if (dir == NULL || plim__shm_create(&w, dir, &sizes, calls, 3, "toy") != 0) {
        return 2;
    }
    _Atomic uint64_t *published = counter(file); /* once it is there, so is the ring */
    if (published == NULL) {
        return 2;
    }
    uint32_t library = plim__shm_add_library(&w, 4096, 8192, "/lib/libtoy.so", PLIM_OWNER_OTHER);
    for (uint64_t i = 1; n == 0 || i <= n; i++) {
        struct plim_gpu_event e = {.time_ns = now_ns(),
                                   .addr = i,
                                   .size = toy_size(i),
                                   .duration_ns = PLIM_DURATION_NONE,
                                   .thread = (uint32_t)getpid(),
                                   .call = 1,
                                   .library = (uint16_t)library,
                                   .kind = PLIM_EVENT_ALLOC,
                                   .owner = PLIM_OWNER_OTHER};
        while (!plim__shm_write(&w, &e) && n != 0) {
            (void)usleep(1000); /* all of a given number are wanted; without end some may be lost */
        }
        atomic_store(published, i);
        say_begun();
        uint64_t until = pause_ns == 0 ? 0 : now_ns() + pause_ns;
        while (now_ns() < until) {
        }
    }
    while (until_read && __atomic_load_n(&w.head->tail, __ATOMIC_ACQUIRE) != w.head->head) {
        (void)usleep(1000);
    }
    w.head->state = PLIM_SHM_ENDED;
    return 0;
}

static uint64_t seed;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 33;
}

/* Allocate and free until killed. The entry points are looked up, as a program without CUDA's headers does. */
static int use_device(void)
{
    int (*allocate)(void **, size_t) = NULL;
    int (*release)(void *) = NULL;
    void *blocks[16] = {NULL};
    *(void **)&allocate = dlsym(RTLD_DEFAULT, "cudaMalloc");
    *(void **)&release = dlsym(RTLD_DEFAULT, "cudaFree");
    if (allocate == NULL || release == NULL) {
        return 2;
    }
    for (unsigned i = 0;; i++) {
        unsigned at = (unsigned)(next_random() % 16);
        if (blocks[at] != NULL) {
            (void)release(blocks[at]);
            blocks[at] = NULL;
        } else if (allocate(&blocks[at], (size_t)(i % 8 + 1) << 18) != 0) {
            blocks[at] = NULL;
        } else {
            say_begun();
        }
    }
}

/* @folder: NULL: on the device. */
static pid_t start_one(const char *folder, uint64_t i, unsigned slot)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%llu", folder ? folder : "", (unsigned long long)i);
    atomic_store(&begun[slot], false);
    pid_t pid = fork();
    if (pid == 0) {
        own_slot = slot;
        _exit(folder != NULL ? write_events(path, 100000, 200, false) : use_device());
    }
    return pid;
}

/* Rings of dead processes that are not read yet take memory: no more of them than the reader keeps up with. */
static bool reader_is_behind(void)
{
    const char *dir = getenv("PLIMSOLL_RECORD_DIR"); // NOLINT(concurrency-mt-unsafe)
    DIR *d = dir != NULL ? opendir(dir) : NULL;
    unsigned n = 0;
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return n > MOST_FILES;
}

/* A random moment after its birth, or, for one of `each`, after its first event: however slow the
 * machine is, so many die in the middle of their work. */
static uint64_t death_of(uint64_t i, unsigned each, unsigned slot)
{
    bool not_yet = i % each == each - 1 && !atomic_load(&begun[slot]);
    return not_yet ? 0 : now_ns() + next_random() % (KILL_WITHIN_US * UINT64_C(1000));
}

static int kill_many(const char *folder, uint64_t n, unsigned parallel)
{
    struct slot {
        pid_t pid;
        uint64_t number, die_ns; /* 0: not chosen yet */
    } slots[SLOTS] = {0};
    uint64_t started = 0, killed = 0;
    const unsigned each = folder != NULL ? 8 : 32; /* a device takes long to begin */
    begun = mmap(NULL, SLOTS * sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    if (begun == MAP_FAILED) {
        return 2;
    }
    parallel = parallel > SLOTS ? SLOTS : parallel;
    while (killed < n) {
        for (unsigned i = 0; i < parallel; i++) {
            if (slots[i].pid == 0 && started < n && !reader_is_behind()) {
                slots[i].number = started++;
                slots[i].pid = start_one(folder, slots[i].number, i);
                slots[i].die_ns = death_of(slots[i].number, each, i);
            } else if (slots[i].pid != 0 && slots[i].die_ns == 0) {
                slots[i].die_ns = death_of(slots[i].number, each, i);
            } else if (slots[i].pid != 0 && now_ns() >= slots[i].die_ns) {
                (void)kill(slots[i].pid, SIGKILL);
                (void)waitpid(slots[i].pid, NULL, 0);
                slots[i].pid = 0;
                killed++;
            }
        }
        (void)sched_yield();
    }
    printf("%llu\n", (unsigned long long)killed);
    return 0;
}

/* Become the same program again, one time less. */
static int chain(char **argv)
{
    char left[24];
    uint64_t times = strtoull(argv[4], NULL, 10);
    int rc = write_events(argv[2], strtoull(argv[3], NULL, 10), 0, true);
    if (rc != 0 || times <= 1) {
        return rc;
    }
    (void)snprintf(left, sizeof(left), "%llu", (unsigned long long)(times - 1));
    argv[4] = left;
    (void)execv("/proc/self/exe", argv);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "write") == 0) {
        return write_events(argv[2], strtoull(argv[3], NULL, 10),
                            argc > 4 ? strtoull(argv[4], NULL, 10) : 0, false);
    }
    if (argc == 5 && strcmp(argv[1], "chain") == 0) {
        return chain(argv);
    }
    if (argc == 5 && strcmp(argv[1], "cuda") == 0) {
        seed = strtoull(argv[4], NULL, 10);
        return kill_many(NULL, strtoull(argv[2], NULL, 10), (unsigned)strtoul(argv[3], NULL, 10));
    }
    if (argc == 6 && strcmp(argv[1], "kill") == 0) {
        seed = strtoull(argv[5], NULL, 10);
        return kill_many(argv[2], strtoull(argv[3], NULL, 10),
                         (unsigned)strtoul(argv[4], NULL, 10));
    }
    return 64;
}
