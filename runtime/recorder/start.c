/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting, forking, ending.
 *
 * Loading the object does nothing: it is preloaded into shells and compilers too. The first hooked call
 * reads the environment and makes this process's file. Without PLIMSOLL_RECORD_DIR, with
 * PLIMSOLL_RECORD=0, or when the file cannot be made, the state is OFF and every hook is one test and a
 * jump.
 *
 * The state word lies on a page that the kernel zeroes in a forked child (MADV_WIPEONFORK, Linux 4.14):
 * also for children made without the C library's fork. There it reads as NEW, and the child's first call
 * drops what belongs to the parent and starts again. A constructor is not needed, and nothing is taken
 * down at exit: the runtime calls us from exit handlers that run after any of ours.
 */

#include "record.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RING_DEFAULT ((uint64_t)1 << 16)
#define RING_MOST    ((uint64_t)1 << 24)

struct plim__recorder plim__rec;
uint32_t *plim__state; /* (atomic) */

uint64_t plim__now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wipe_in_child(void)
{
    uint32_t *state = plim__state;
    __atomic_store_n(state, (uint32_t)PLIM__STATE_NEW, __ATOMIC_RELEASE);
}

/* The state word, made once for all threads. */
static uint32_t *state_word(void)
{
    uint32_t *state = __atomic_load_n(&plim__state, __ATOMIC_ACQUIRE), *none = NULL;
    if (state != NULL) {
        return state;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    state = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) {
        return NULL;
    }
    bool wiped = madvise(state, page, MADV_WIPEONFORK) == 0;
    if (!__atomic_compare_exchange_n(&plim__state, &none, state, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        (void)munmap(state, page);
        return none;
    }
    if (!wiped) {
        (void)pthread_atfork(NULL, NULL, wipe_in_child);
    }
    return state;
}

/* A number of the environment; `otherwise` when it is not there or no number. */
static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0') {
        return otherwise;
    }
    unsigned long long value = strtoull(text, &end, 10);
    return *end == '\0' ? value : otherwise;
}

static bool is(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, value) == 0;
}

static uint64_t power_of_two(uint64_t n)
{
    uint64_t p = 64;
    while (p < n && p < RING_MOST) {
        p *= 2;
    }
    return p;
}

static void forget(void)
{
    struct plim__recorder *r = &plim__rec;
    uint32_t epoch = r->epoch, parent = r->shm.head != NULL ? r->shm.head->pid : 0;
    plim__shm_unmap(&r->shm);
    plim__live_reset();
    plim__libraries_reset();
    plim__stacks_reset();
    plim__pools_reset();
    *r = (struct plim__recorder){.epoch = epoch + 1, .parent = parent};
}

static bool make_file(void)
{
    const char *calls[PLIM__CALLS];
    const char *dir = getenv("PLIMSOLL_RECORD_DIR");
    struct plim_shm_sizes sizes = {.ring_slots =
                                       power_of_two(number("PLIMSOLL_RECORD_RING", RING_DEFAULT)),
                                   .text_bytes = (uint64_t)1 << 18,
                                   .libraries = 1024,
                                   .stacks = 1,
                                   .frames = 0};
    if (dir == NULL || *dir == '\0' || is("PLIMSOLL_RECORD", "0")) {
        return false;
    }
    plim__rec.stacks = is("PLIMSOLL_RECORD_STACKS", "cached") ? PLIM__STACKS_CACHED
                       : is("PLIMSOLL_RECORD_STACKS", "full") ? PLIM__STACKS_FULL
                                                              : PLIM__STACKS_NONE;
    plim__rec.measure = !is("PLIMSOLL_RECORD_MEASURE", "0");
    if (plim__rec.stacks != PLIM__STACKS_NONE) {
        sizes.stacks = 1u << 16;
        sizes.frames = (uint64_t)1 << 19;
    }
    for (unsigned i = 0; i < PLIM__CALLS; i++) {
        calls[i] = plim__hooks[i].symbol;
    }
    return plim__shm_create(&plim__rec.shm, dir, &sizes, calls, PLIM__CALLS,
                            PLIM_RECORDER_VERSION) == 0;
}

static void remark(unsigned kind, uint64_t addr)
{
    struct plim_gpu_event event = {.time_ns = plim__now(),
                                   .addr = addr,
                                   .duration_ns = PLIM_DURATION_NONE,
                                   .thread = (uint32_t)getpid(),
                                   .kind = (uint8_t)kind,
                                   .device = PLIM_DEVICE_NONE};
    (void)plim__shm_write(&plim__rec.shm, &event);
}

static bool start(void)
{
    forget();
    if (!make_file()) {
        return false;
    }
    if (plim__rec.shm.head->program > 0) {
        remark(PLIM_EVENT_EXEC, 0);
    }
    if (plim__rec.parent != 0) {
        remark(PLIM_EVENT_FORK, plim__rec.parent);
    }
    return true;
}

bool plim__start_slow(void)
{
    uint32_t *state = state_word(), expected = PLIM__STATE_NEW;
    if (state == NULL || plim__self.busy != 0) {
        return false; /* a signal handler's call in the middle of ours */
    }
    if (__atomic_compare_exchange_n(state, &expected, (uint32_t)PLIM__STATE_STARTING, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        plim__self.busy = 1;
        bool on = start();
        plim__self.busy = 0;
        __atomic_store_n(state, on ? (uint32_t)PLIM__STATE_ON : (uint32_t)PLIM__STATE_OFF,
                         __ATOMIC_RELEASE);
        return on;
    }
    while (__atomic_load_n(state, __ATOMIC_ACQUIRE) == PLIM__STATE_STARTING) {
        (void)sched_yield(); /* another thread makes the file: milliseconds, once */
    }
    return __atomic_load_n(state, __ATOMIC_ACQUIRE) == PLIM__STATE_ON;
}

/* The program ends in order. Calls that come later are still recorded. */
__attribute__((destructor)) static void ends(void)
{
    uint32_t *state = __atomic_load_n(&plim__state, __ATOMIC_ACQUIRE);
    if (state != NULL && __atomic_load_n(state, __ATOMIC_ACQUIRE) == PLIM__STATE_ON) {
        remark(PLIM_EVENT_EXIT, 0);
        __atomic_store_n(&plim__rec.shm.head->state, (uint32_t)PLIM_SHM_ENDED, __ATOMIC_RELEASE);
    }
}
