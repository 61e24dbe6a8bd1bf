/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of include/plimsoll/alloc.h: devices, locks, pools, and how PyTorch hears of a failure. */

#include <plimsoll/alloc.h>

#include "copies.h"
#include "driver.h"
#include "raise.h"
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT      __attribute__((visibility("default")))
#define LEAST_FLOOR (UINT64_C(4) << 20)
#define ROUTES      16 /* captures at the same time on a device */

struct gpu {
    pthread_mutex_t lock;
    struct plim_cuda_device *cuda; /* NULL: not used yet */
    struct plim_engine *engine;
    uint64_t total;
    uint64_t wrong_frees;
    uint64_t cap;
    bool useless;      /* no memory can be had, and this has been said */
    unsigned n_routes; /* pools that captures allocate into */
    uint64_t route[ROUTES];
    struct plim_copies copies; /* of paused memory */
};

static struct gpu gpus[PLIM_CUDA_DEVICES];
static struct plim_alloc_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool forked; /* in the child of a process that had devices */
static _Thread_local uint32_t thread_tag;

/* ---- life ----------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    for (unsigned i = 0; i < PLIM_CUDA_DEVICES; i++) {
        pthread_mutex_lock(&gpus[i].lock);
    }
}

static void after_fork_parent(void)
{
    for (unsigned i = 0; i < PLIM_CUDA_DEVICES; i++) {
        pthread_mutex_unlock(&gpus[i].lock);
    }
}

static void after_fork_child(void)
{
    for (unsigned i = 0; i < PLIM_CUDA_DEVICES; i++) {
        forked = forked || gpus[i].engine;
        pthread_mutex_unlock(&gpus[i].lock);
    }
}

static void start(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    for (unsigned i = 0; i < PLIM_CUDA_DEVICES; i++) {
        pthread_mutex_init(&gpus[i].lock, &kind);
        gpus[i].cap = UINT64_MAX;
    }
    pthread_mutexattr_destroy(&kind);
    plim_alloc_settings_read(&settings);
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static void complain(const char *what, const char *why)
{
    char line[600];
    int n = snprintf(line, sizeof line, "plimsoll alloc: %s: %s\n", what, why);
    if (n > 0) {
        ssize_t written =
            write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line);
        (void)written;
    }
}

/* The device's engine, made at its first use; under the device's lock. */
static struct plim_engine *engine_of(struct gpu *g, int device)
{
    if (g->engine || forked || g->useless) {
        return forked ? NULL : g->engine;
    }
    g->useless = true; /* until all is there; said once */
    const char *why = "";
    uint64_t free_bytes;
    g->cuda = plim_cuda_open(device, &why);
    if (!g->cuda || !plim_cuda_memory(g->cuda, &free_bytes, &g->total)) {
        complain("no memory can be had from the device", why);
        return NULL;
    }
    struct plim_engine_config config = {
        .driver = plim_cuda_driver(),
        .ctx = g->cuda,
        .rounding = &settings.rounding,
        .plan = settings.rounding.mode == PLIM_ENGINE_PLAN ? &settings.plan : NULL,
        .total = g->total,
        .large_page = settings.page,
        .soft = settings.slack,
        .floor = settings.slack > 0 ? LEAST_FLOOR : 0, /* the setting alone counts */
    };
    g->engine = plim_engine_new(&config);
    if (!g->engine) {
        complain("the engine cannot start", "no host memory");
        return NULL;
    }
    if (settings.limit < g->cap) {
        g->cap = settings.limit;
    }
    plim_engine_set_cap(g->engine, g->cap);
    g->useless = false;
    return g->engine;
}

static struct gpu *lock(int device)
{
    pthread_once(&once, start);
    if (device < 0 || device >= PLIM_CUDA_DEVICES) {
        return NULL;
    }
    pthread_mutex_lock(&gpus[device].lock);
    return &gpus[device];
}

static void unlock(struct gpu *g)
{
    if (g->cuda && !forked) {
        plim_cuda_leave(g->cuda);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- requests ------------------------------------------------------------------------------------- */

/* Pools of PyTorch are pairs of numbers; graphs count up the first, users the second. */
static uint64_t pool_of(uint64_t id0, uint64_t id1)
{
    return id0 ? id0 * 2 + 1 : id1 * 2;
}

/* Tags are pools too, beside those of PyTorch; no graph replays into what is free in them. */
static uint64_t pool_of_tag(uint32_t tag)
{
    return tag ? PLIM_ENGINE_POOL_LOOSE | tag : 0;
}

static void *serve(size_t size, int device, void *stream)
{
    if (size == 0) {
        return NULL;
    }
    struct gpu *g = lock(device);
    uint64_t addr = 0;
    if (!g) {
        return NULL;
    }
    struct plim_engine *e = engine_of(g, device);
    if (e) {
        uint64_t where = (uint64_t)(uintptr_t)stream, pool = 0;
        unsigned flags = 0;
        if (g->n_routes > 0 && plim_cuda_capturing(g->cuda, where)) {
            pool = g->route[g->n_routes - 1];
            flags = PLIM_ENGINE_CAPTURING;
        } else if (thread_tag) {
            pool = pool_of_tag(thread_tag);
        }
        if (plim_engine_alloc(e, size, where, pool, flags, &addr) != PLIM_ENGINE_OK) {
            addr = 0;
        }
    }
    unlock(g);
    return (void *)(uintptr_t)addr;
}

/* "1.50 GiB", as PyTorch writes sizes. */
static void sized(char *out, size_t room, uint64_t bytes)
{
    if (bytes >= UINT64_C(1) << 30) {
        snprintf(out, room, "%.2f GiB", (double)bytes / (double)(UINT64_C(1) << 30));
    } else if (bytes >= UINT64_C(1) << 20) {
        snprintf(out, room, "%.2f MiB", (double)bytes / (double)(UINT64_C(1) << 20));
    } else {
        snprintf(out, room, "%.2f KiB", (double)bytes / 1024.0);
    }
}

/* What failed and who has the memory, in the words of PyTorch's own text, so that programs and tools
 * that look for it find it. */
static void failure_text(char *out, size_t room, size_t size, int device)
{
    struct plimsoll_alloc_stats s;
    struct gpu *g = &gpus[device < 0 || device >= PLIM_CUDA_DEVICES ? 0 : device];
    uint64_t free_bytes = 0, total = 0;
    char want[32], all[32], unused[32], live[32], held[32], cap[32];
    if (!plimsoll_alloc_stats(device, &s, sizeof s) ||
        !plim_cuda_memory(g->cuda, &free_bytes, &total)) {
        snprintf(out, room, "CUDA out of memory. The device cannot be used.");
        return;
    }
    sized(want, sizeof want, size);
    sized(all, sizeof all, total);
    sized(unused, sizeof unused, free_bytes);
    sized(live, sizeof live, s.allocated);
    sized(held, sizeof held, s.reserved - s.allocated);
    int n =
        snprintf(out, room,
                 "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of "
                 "which %s is free. ",
                 want, device, all, unused);
    if (s.cap != UINT64_MAX && n > 0 && (size_t)n < room) {
        sized(cap, sizeof cap, s.cap);
        n += snprintf(out + n, room - (size_t)n, "%s allowed; ", cap);
    }
    if (n > 0 && (size_t)n < room) {
        snprintf(
            out + n, room - (size_t)n,
            "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but "
            "unallocated. (plimsoll allocator)",
            live, held);
    }
}

EXPORT void *plimsoll_pool_alloc(size_t size, int device, void *stream)
{
    return serve(size, device, stream);
}

EXPORT void *plimsoll_alloc(size_t size, int device, void *stream)
{
    void *ptr = serve(size, device, stream);
    if (!ptr && size > 0 && !forked) {
        char text[512];
        failure_text(text, sizeof text, size, device);
        plim_torch_raise(text);
        complain("out of memory", text); /* nobody to raise it to */
    }
    return ptr;
}

EXPORT void plimsoll_free(void *ptr, size_t size, int device, void *stream)
{
    (void)size;
    struct gpu *g = ptr ? lock(device) : NULL;
    if (!g) {
        return;
    }
    if (g->engine && !forked) {
        unsigned flags =
            g->n_routes > 0 && plim_cuda_capturing(g->cuda, (uint64_t)(uintptr_t)stream)
                ? PLIM_ENGINE_CAPTURING
                : 0;
        if (plim_engine_free(g->engine, (uint64_t)(uintptr_t)ptr, flags) != PLIM_ENGINE_OK) {
            g->wrong_frees++;
        }
    } else {
        g->wrong_frees++;
    }
    unlock(g);
}

/* ---- optional hooks ------------------------------------------------------------------------------- */

/* The device's lock, and its engine; NULL, and no lock, when it has none. */
static struct plim_engine *lock_engine(int device, struct gpu **out)
{
    struct gpu *g = lock(device);
    if (g && (forked || !g->engine)) {
        unlock(g);
        g = NULL;
    }
    *out = g;
    return g ? g->engine : NULL;
}

EXPORT void plimsoll_alloc_init(int device_count)
{
    (void)device_count;
    pthread_once(&once, start);
}

EXPORT void plimsoll_alloc_reset(void)
{
    for (int i = 0; i < PLIM_CUDA_DEVICES; i++) {
        struct gpu *g;
        struct plim_engine *e = lock_engine(i, &g);
        if (e) {
            plim_engine_trim(e);
            unlock(g);
        }
    }
}

EXPORT void plimsoll_alloc_fraction(double fraction, int device)
{
    struct gpu *g = lock(device);
    if (!g) {
        return;
    }
    struct plim_engine *e = engine_of(g, device);
    if (e && fraction >= 0 && fraction <= 1) {
        g->cap = (uint64_t)(fraction * (double)g->total);
        g->cap = settings.limit < g->cap ? settings.limit : g->cap;
        plim_engine_set_cap(e, g->cap);
    }
    unlock(g);
}

EXPORT void *plimsoll_alloc_base(void *ptr, size_t *size)
{
    uint64_t base, bytes;
    bool found = false;
    for (int i = 0; i < PLIM_CUDA_DEVICES && !found; i++) {
        struct gpu *g;
        struct plim_engine *e = lock_engine(i, &g);
        if (e) {
            found = plim_engine_block(e, (uint64_t)(uintptr_t)ptr, &base, &bytes);
            unlock(g);
        }
    }
    if (found && size) {
        *size = bytes;
    }
    return found ? (void *)(uintptr_t)base : ptr;
}

EXPORT void plimsoll_alloc_record_stream(void *ptr, void *stream)
{
    bool found = false;
    for (int i = 0; i < PLIM_CUDA_DEVICES && !found; i++) {
        struct gpu *g;
        struct plim_engine *e = lock_engine(i, &g);
        if (e) {
            found = plim_engine_record_stream(e, (uint64_t)(uintptr_t)ptr,
                                              (uint64_t)(uintptr_t)stream) == PLIM_ENGINE_OK;
            unlock(g);
        }
    }
}

EXPORT void plimsoll_alloc_begin_pool(int device, uint64_t id0, uint64_t id1, void *filter)
{
    (void)filter;
    struct gpu *g = lock(device);
    if (g) {
        if (g->n_routes < ROUTES) {
            g->route[g->n_routes++] = pool_of(id0, id1);
        }
        unlock(g);
    }
}

EXPORT void plimsoll_alloc_end_pool(int device, uint64_t id0, uint64_t id1)
{
    struct gpu *g = lock(device);
    if (!g) {
        return;
    }
    uint64_t pool = pool_of(id0, id1);
    for (unsigned i = g->n_routes; i-- > 0;) {
        if (g->route[i] == pool) {
            memmove(&g->route[i], &g->route[i + 1], (g->n_routes - i - 1) * sizeof g->route[0]);
            g->n_routes--;
            break;
        }
    }
    unlock(g);
}

EXPORT void plimsoll_alloc_release_pool(int device, uint64_t id0, uint64_t id1)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    if (e) {
        plim_engine_drop_pool(e, pool_of(id0, id1));
        unlock(g);
    }
}

/* ---- memory given back for a time -------------------------------------------------------------------- */

EXPORT uint32_t plimsoll_alloc_tag(uint32_t tag)
{
    uint32_t before = thread_tag;
    thread_tag = tag;
    return before;
}

EXPORT uint64_t plimsoll_alloc_pause(int device, uint32_t tag, bool keep)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    uint64_t bytes = 0, pool = pool_of_tag(tag);
    if (e) {
        bool ready =
            plim_cuda_idle(g->cuda) && (!keep || plim_copies_take(&g->copies, g->cuda, e, pool));
        bytes = ready ? plim_engine_pause(e, pool) : UINT64_MAX;
        unlock(g);
    }
    return bytes;
}

EXPORT bool plimsoll_alloc_resume(int device, uint32_t tag)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    bool done = true;
    if (e) {
        uint64_t pool = pool_of_tag(tag);
        done = plim_engine_resume(e, pool) == PLIM_ENGINE_OK;
        if (done) {
            plim_copies_give(&g->copies, g->cuda, pool);
        }
        unlock(g);
    }
    return done;
}

/* ---- looking at it --------------------------------------------------------------------------------- */

EXPORT bool plimsoll_alloc_stats(int device, struct plimsoll_alloc_stats *out, size_t room)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    if (e) {
        struct plim_engine_stats s;
        plim_engine_stats(e, &s);
        struct plimsoll_alloc_stats all = {
            .bytes = sizeof all,
            .total = g->total,
            .requested = s.requested,
            .allocated = s.live - s.pending,
            .reserved = s.reserved,
            .peak_requested = s.peak_requested,
            .peak_allocated = s.peak_live,
            .peak_reserved = s.peak_reserved,
            .releasable = s.releasable,
            .blocks = s.blocks,
            .allocs = s.allocs,
            .frees = s.frees,
            .failures = s.failures,
            .pages_made = s.created,
            .pages_freed = s.released,
            .pages_moved = s.moved,
            .waits = s.waits,
            .wrong_frees = g->wrong_frees,
            .cap = g->cap,
            .placed = s.placed,
            .displaced = s.displaced,
            .astray = s.astray,
            .active = s.live,
        };
        memcpy(out, &all, room < sizeof all ? room : sizeof all);
        unlock(g);
    }
    return e != NULL;
}

EXPORT const char *plimsoll_alloc_mode(void)
{
    pthread_once(&once, start);
    return plim_engine_mode_text(settings.rounding.mode);
}

EXPORT void plimsoll_alloc_reset_peaks(int device)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    if (e) {
        plim_engine_reset_peaks(e);
        unlock(g);
    }
}

struct walk {
    plimsoll_alloc_block_fn *see;
    void *ctx;
};

static bool pass_on(void *ctx, const struct plim_engine_view *v)
{
    const struct walk *w = ctx;
    return w->see(w->ctx, v->addr, v->size, v->requested, v->stream, v->pool,
                  v->paused ? PLIMSOLL_ALLOC_PAUSED : (int)v->state, v->large);
}

EXPORT void plimsoll_alloc_walk(int device, plimsoll_alloc_block_fn *see, void *ctx)
{
    struct walk w = {see, ctx};
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    if (e) {
        plim_engine_walk(e, pass_on, &w);
        unlock(g);
    }
}

EXPORT const char *plimsoll_alloc_check(int device)
{
    struct gpu *g;
    struct plim_engine *e = lock_engine(device, &g);
    const char *wrong = NULL;
    if (e) {
        wrong = plim_engine_check(e);
        unlock(g);
    }
    return wrong;
}
