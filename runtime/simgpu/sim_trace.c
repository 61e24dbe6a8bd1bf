/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What surrounds every call: time, injected failures, the call log, simulated cost, last errors.
 *
 * Time is counted in ticks. With the clock "calls" every call is one tick; with "manual" only
 * plimsoll_sim_advance moves it; with "wall" a tick is a nanosecond. An event recorded at tick t is
 * complete at t + event_lag, so a lag of 0 makes everything complete at once.
 *
 * The log is a mapping of records of one size, in memory or in a file that grows in steps. A slot is
 * taken with one atomic add, so threads do not wait for each other, and what was written survives a
 * crash. Layout: docs/format/simgpu-log.md.
 */

#include "plimsoll/simgpu.h"
#include "sim.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOG_WINDOW   ((uint64_t)1 << 36) /* address space of the log: 1.7 thousand million records */
#define LOG_STEP     ((uint64_t)1 << 24)
#define MAX_RULES    16
#define STICKY_FIRST 700 /* codes of 700 to 799 but "not ready"-like states stay for ever */

struct rule {
    uint64_t from, count; /* the from-th call fails, and count - 1 after it */
    int code;
    uint16_t call;
};

static _Atomic uint64_t ticks;    /* clocks "calls" and "manual" */
static _Atomic uint64_t skew;     /* clock "wall": ticks skipped by synchronisation */
static _Atomic uint64_t stall_ns; /* what the cost model added */
static _Atomic uint64_t n_calls[SIM_CALL_COUNT];
static _Atomic int sticky;

static struct rule rules[MAX_RULES];
static _Atomic uint32_t n_rules;

static struct plimsoll_sim_log_head *head;
static struct plimsoll_sim_call *records;
static int log_fd = -1;
static uint64_t log_bytes;        /* of the file */
static _Atomic uint64_t log_room; /* records that it has room for */

static _Thread_local int last_error;
static _Thread_local uint32_t thread_id;

static const struct {
    const char *name;
    uint32_t base_ns, page_ns;
} calls[SIM_CALL_COUNT] = {
#define SIM_CALL(symbol, name, base, page) {name, base, page},
#include "calls.def"
#undef SIM_CALL
};

uint64_t sim_real_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sim_wall_ns(void)
{
    return sim_real_ns() + atomic_load(&stall_ns);
}

void sim_sleep_until(uint64_t real_ns)
{
    struct timespec t = {.tv_sec = (time_t)(real_ns / 1000000000u),
                         .tv_nsec = (long)(real_ns % 1000000000u)};
    while (real_ns > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

uint64_t sim_now(void)
{
    if (atomic_load_explicit(&sim_config.clock, memory_order_relaxed) == SIM_CLOCK_WALL) {
        return sim_wall_ns() + atomic_load(&skew);
    }
    return atomic_load(&ticks);
}

void sim_advance_to(uint64_t tick)
{
    _Atomic uint64_t *counter = &ticks;
    uint64_t base = 0;
    if (atomic_load_explicit(&sim_config.clock, memory_order_relaxed) == SIM_CLOCK_WALL) {
        base = sim_wall_ns();
        counter = &skew;
    }
    uint64_t was = atomic_load(counter);
    while (base + was < tick && !atomic_compare_exchange_weak(counter, &was, tick - base)) {
    }
}

/* ---- failures to order */

static int call_of(const char *name, size_t len)
{
    for (int i = 0; i < SIM_CALL_COUNT; i++) {
        if (strlen(calls[i].name) == len && memcmp(calls[i].name, name, len) == 0) {
            return i;
        }
    }
    return -1;
}

static uint64_t number(const char **p)
{
    uint64_t n = 0;
    for (; **p >= '0' && **p <= '9' && n < UINT64_MAX / 16; (*p)++) {
        n = n * 10 + (uint64_t)(**p - '0');
    }
    return n;
}

/* "cudaMalloc@5=2,cuMemCreate@3+=2,cudaMalloc@7*3=2": call @ number [+ | *times] = code. */
int sim_fail_parse(const char *text)
{
    struct rule fresh[MAX_RULES] = {0};
    uint32_t n = 0;
    while (*text != '\0') {
        const char *at = strchr(text, '@');
        int call = at == NULL ? -1 : call_of(text, (size_t)(at - text));
        if (call < 0 || n == MAX_RULES) {
            return SIM_E_VALUE;
        }
        const char *p = at + 1;
        struct rule r = {.from = number(&p), .count = 1, .call = (uint16_t)call};
        if (*p == '+') {
            r.count = UINT64_MAX;
            p++;
        } else if (*p == '*') {
            p++;
            r.count = number(&p);
        }
        if (*p++ != '=' || r.from == 0) {
            return SIM_E_VALUE;
        }
        r.code = (int)number(&p);
        if (*p != '\0' && *p != ',') {
            return SIM_E_VALUE;
        }
        fresh[n++] = r;
        text = p + (*p == ',');
    }
    atomic_store(&n_rules, 0);
    memcpy(rules, fresh, n * sizeof *fresh);
    for (int i = 0; i < SIM_CALL_COUNT; i++) {
        atomic_store(&n_calls[i], 0); /* calls are counted from here */
    }
    atomic_store(&n_rules, n);
    return SIM_OK;
}

static int injected(enum sim_call call)
{
    uint64_t nth = atomic_fetch_add(&n_calls[call], 1) + 1;
    for (uint32_t i = 0; i < atomic_load(&n_rules); i++) {
        const struct rule *r = &rules[i];
        if (r->call == call && nth >= r->from && nth - r->from < r->count) {
            if (r->code >= STICKY_FIRST && r->code < 800) {
                atomic_store(&sticky, r->code);
            }
            return r->code;
        }
    }
    return SIM_OK;
}

int sim_enter(enum sim_call call)
{
    int rc = sim_start();
    if (rc != SIM_OK) {
        return rc;
    }
    if (atomic_load_explicit(&sim_config.clock, memory_order_relaxed) == SIM_CLOCK_CALLS) {
        atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
    }
    if (__builtin_expect(atomic_load_explicit(&sticky, memory_order_relaxed) != 0, 0)) {
        return atomic_load(&sticky);
    }
    if (__builtin_expect(atomic_load_explicit(&n_rules, memory_order_relaxed) != 0, 0)) {
        return injected(call);
    }
    return SIM_OK;
}

/* ---- log */

int sim_log_open(const char *path)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd = -1;
    if (head != NULL) {
        return SIM_E_VALUE;
    }
    if (strcmp(path, "memory") != 0) {
        char name[512];
        size_t len = strlen(path), at = len;
        if (len + 16 > sizeof name) {
            return SIM_E_VALUE;
        }
        memcpy(name, path, len);
        name[at++] = '.';
        unsigned pid = (unsigned)getpid(), scale = 1; /* every process has its own file */
        for (; pid / scale >= 10; scale *= 10) {
        }
        for (; scale > 0; scale /= 10) {
            name[at++] = (char)('0' + pid / scale % 10);
        }
        name[at] = '\0';
        fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        flags = MAP_SHARED;
        if (fd < 0 || ftruncate(fd, (off_t)LOG_STEP) != 0) {
            return SIM_E_VALUE;
        }
    }
    void *p = mmap(NULL, LOG_WINDOW, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED) {
        return SIM_E_NOMEM;
    }
    head = p;
    records = (struct plimsoll_sim_call *)(head + 1);
    log_fd = fd;
    log_bytes = fd < 0 ? LOG_WINDOW : LOG_STEP;
    atomic_store(&log_room, (log_bytes - sizeof *head) / sizeof *records);
    memcpy(head->magic, PLIMSOLL_SIM_LOG_MAGIC, sizeof head->magic);
    head->version = 1;
    head->record_bytes = sizeof *records;
    head->pid = (uint32_t)getpid();
    sim_config.log = true;
    return SIM_OK;
}

/* A forked child writes a log of its own, when the environment asks for one. */
void sim_log_forked(void)
{
    const char *path = getenv("PLIMSOLL_SIM_LOG");
    head = NULL;
    sim_config.log = false;
    if (path != NULL) {
        (void)sim_log_open(path);
    }
}

/* Make room for record i of the file; false when the disk is full. */
static bool log_grow(uint64_t i)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool ok = true;
    (void)pthread_mutex_lock(&lock);
    while (ok && i >= atomic_load(&log_room)) {
        ok = log_fd >= 0 && log_bytes + LOG_STEP <= LOG_WINDOW &&
             ftruncate(log_fd, (off_t)(log_bytes + LOG_STEP)) == 0;
        if (ok) {
            log_bytes += LOG_STEP;
            atomic_store(&log_room, (log_bytes - sizeof *head) / sizeof *records);
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return ok;
}

static void log_call(enum sim_call call, int device, uint64_t addr, uint64_t size, uint64_t arg,
                     int code)
{
    static _Atomic uint32_t n_threads;
    if (thread_id == 0) {
        thread_id = atomic_fetch_add(&n_threads, 1) + 1;
    }
    uint64_t i = atomic_fetch_add(&head->count, 1);
    if (i >= atomic_load_explicit(&log_room, memory_order_acquire) && !log_grow(i)) {
        atomic_fetch_add(&head->lost, 1);
        return;
    }
    records[i] = (struct plimsoll_sim_call){.call = (uint8_t)call,
                                            .device = (uint8_t)device,
                                            .code = (uint16_t)code,
                                            .thread = thread_id,
                                            .addr = addr,
                                            .size = size,
                                            .arg = arg,
                                            .tick = atomic_load(&ticks)};
}

int sim_leave(enum sim_call call, int device, uint64_t addr, uint64_t size, uint64_t arg, int code)
{
    if (__builtin_expect(sim_config.log, 0)) {
        log_call(call, device, addr, size, arg, code);
    }
    if (__builtin_expect(sim_config.cost, 0)) {
        uint64_t pages = (size + SIM_PAGE - 1) / SIM_PAGE;
        atomic_fetch_add(&stall_ns, calls[call].base_ns + pages * calls[call].page_ns);
    }
    return code;
}

int sim_ret(int code)
{
    if (__builtin_expect(code != SIM_OK, 0)) {
        last_error = code;
    }
    return code;
}

SIM_API int cudaGetLastError(void)
{
    int code = last_error;
    last_error = atomic_load_explicit(&sticky, memory_order_relaxed);
    return code == SIM_OK ? last_error : code;
}

SIM_API int cudaPeekAtLastError(void)
{
    return last_error;
}

/* ---- control functions for tests and tools (include/plimsoll/simgpu.h) */

SIM_API int plimsoll_sim_set(const char *key, const char *value)
{
    int rc = sim_start();
    return rc == SIM_OK ? sim_set(key, value) : rc;
}

SIM_API uint64_t plimsoll_sim_now(void)
{
    return sim_start() == SIM_OK ? sim_now() : 0;
}

SIM_API void plimsoll_sim_advance(uint64_t n)
{
    if (sim_start() == SIM_OK) {
        sim_advance_to(sim_now() + n);
    }
}

SIM_API uint64_t plimsoll_sim_stall_ns(void)
{
    return atomic_load(&stall_ns);
}

SIM_API const char *plimsoll_sim_call_name(int call)
{
    return call >= 0 && call < SIM_CALL_COUNT ? calls[call].name : NULL;
}

SIM_API uint64_t plimsoll_sim_log_count(void)
{
    return head == NULL ? 0 : atomic_load(&head->count) - atomic_load(&head->lost);
}

SIM_API uint64_t plimsoll_sim_log_read(uint64_t first, struct plimsoll_sim_call *out, uint64_t n)
{
    uint64_t count = plimsoll_sim_log_count();
    if (first >= count) {
        return 0;
    }
    n = n < count - first ? n : count - first;
    memcpy(out, records + first, n * sizeof *out);
    return n;
}

SIM_API void plimsoll_sim_log_clear(void)
{
    if (head != NULL) {
        atomic_store(&head->count, 0);
        atomic_store(&head->lost, 0);
    }
}

SIM_API uint64_t plimsoll_sim_launches(void)
{
    return atomic_load(&sim_launches);
}

SIM_API int plimsoll_sim_usage(int device, struct plimsoll_sim_usage *out)
{
    int rc = sim_start();
    if (rc != SIM_OK || device < 0 || device >= sim_device_count()) {
        return rc != SIM_OK ? rc : SIM_E_DEVICE;
    }
    struct sim_usage u;
    sim_usage(device, &u);
    *out = (struct plimsoll_sim_usage){.total = u.total,
                                       .nvml_total = u.nvml_total,
                                       .external = u.external,
                                       .used = u.used,
                                       .mine = u.mine,
                                       .my_context = u.my_context,
                                       .peak = u.peak};
    return SIM_OK;
}
