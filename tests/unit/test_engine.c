/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moving allocator against a device that keeps books: physical pages, mappings, streams that lag
 * behind, graph captures, calls that fail. After each step of random workloads no byte belongs to two
 * blocks, no work in flight loses its memory, and every byte is accounted for.
 */

#include "unit.h"

#include <plimsoll/engine.h>

#include <stdlib.h>
#include <string.h>

#define MIB      (UINT64_C(1) << 20)
#define STREAMS  4
#define HANDLES  4096
#define SLOTS    (1u << 15) /* mapped pages by address: 2 MiB each, one range of addresses for all */
#define SPACE    UINT64_C(0x600000000000)
#define PAGE_MIN (2 * MIB)
#define BLOCKS   512

struct use { /* work in flight on physical memory */
    uint32_t handle;
    uint64_t from, to;
    unsigned stream;
    uint64_t seq;
};

struct held { /* a block of the workload */
    uint64_t addr, size, pool;
    unsigned stream;
    unsigned also; /* bit for each other stream it is used on */
};

struct device {
    uint64_t random;
    uint64_t total, used;
    uint64_t next; /* address */
    struct {
        uint64_t size, at;
    } handle[HANDLES];
    uint32_t n_handles;
    uint32_t slot[SLOTS]; /* handle mapped there, + 1 */
    uint64_t submitted[STREAMS], completed[STREAMS];
    struct use use[8192];
    unsigned n_use;
    struct held held[BLOCKS];
    unsigned n_held;
    unsigned trouble; /* one call in so many fails; 0: none */
    bool capturing;
    bool refused; /* the last access call failed: its mappings go at once */
    uint64_t calls, creates, unmaps, mapped;
    uint64_t events; /* recorded and not forgotten */
};

static uint64_t roll(struct device *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random;
}

static bool fails(struct device *d)
{
    return d->trouble && roll(d) % d->trouble == 0;
}

/* ---- physical memory --------------------------------------------------------------------------- */

/* Call `see` for each physical piece behind [addr, addr + size). */
static void pieces(struct device *d, uint64_t addr, uint64_t size,
                   void (*see)(struct device *d, uint32_t handle, uint64_t from, uint64_t to,
                               void *ctx),
                   void *ctx)
{
    while (size > 0) {
        uint32_t mapped = d->slot[(addr - SPACE) / PAGE_MIN];
        assert_true(mapped > 0); /* memory behind every byte that is handed out */
        uint64_t at = d->handle[mapped - 1].at, end = at + d->handle[mapped - 1].size;
        uint64_t part = end - addr < size ? end - addr : size;
        see(d, mapped - 1, addr - at, addr - at + part, ctx);
        addr += part;
        size -= part;
    }
}

struct reuse {
    unsigned stream; /* that may use it; STREAMS: none */
};

static void must_be_idle(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx)
{
    const struct reuse *reuse = ctx;
    for (unsigned i = 0; i < d->n_use; i++) {
        const struct use *u = &d->use[i];
        bool in_flight = d->completed[u->stream] < u->seq && u->stream != reuse->stream;
        assert_false(in_flight && u->handle == handle && u->from < to && from < u->to);
    }
}

static void put_in_flight(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx)
{
    unsigned stream = ((const struct reuse *)ctx)->stream;
    if (d->n_use == sizeof d->use / sizeof d->use[0]) { /* keep what matters */
        unsigned n = 0;
        for (unsigned i = 0; i < d->n_use; i++) {
            if (d->completed[d->use[i].stream] < d->use[i].seq) {
                d->use[n++] = d->use[i];
            }
        }
        d->n_use = n;
        assert_true(n < sizeof d->use / sizeof d->use[0]);
    }
    d->use[d->n_use++] = (struct use){handle, from, to, stream, d->submitted[stream]};
}

/* ---- the driver --------------------------------------------------------------------------------- */

static int drv_reserve(void *ctx, uint64_t size, uint64_t align, uint64_t *addr)
{
    struct device *d = ctx;
    *addr = (d->next + align - 1) & ~(align - 1);
    if (*addr + size > SPACE + SLOTS * PAGE_MIN || fails(d)) {
        return 2;
    }
    d->next = *addr + size;
    return 0;
}

static void drv_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
    struct device *d = ctx;
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        assert_int_equal(d->slot[(at - SPACE) / PAGE_MIN], 0);
    }
}

static int drv_create(void *ctx, uint64_t size, uint64_t *handle)
{
    struct device *d = ctx;
    d->calls++;
    d->creates++;
    if (d->used + size > d->total || fails(d)) {
        return 2;
    }
    uint32_t i = 0;
    while (i < d->n_handles && d->handle[i].size) {
        i++;
    }
    assert_true(i < HANDLES);
    d->n_handles = i == d->n_handles ? i + 1 : d->n_handles;
    d->handle[i].size = size;
    d->handle[i].at = 0;
    d->used += size;
    *handle = i;
    return 0;
}

static void drv_release(void *ctx, uint64_t handle, uint64_t size)
{
    struct device *d = ctx;
    assert_int_equal(d->handle[handle].size, size);
    assert_int_equal(d->handle[handle].at, 0);
    d->handle[handle].size = 0;
    d->used -= size;
}

static int drv_map(void *ctx, uint64_t addr, uint64_t size, uint64_t handle)
{
    struct device *d = ctx;
    assert_int_equal(d->handle[handle].size, size);
    assert_int_equal(d->handle[handle].at, 0);
    assert_int_equal(addr % size, 0);
    if (fails(d)) {
        return 2;
    }
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        assert_int_equal(d->slot[(at - SPACE) / PAGE_MIN], 0);
        d->slot[(at - SPACE) / PAGE_MIN] = (uint32_t)handle + 1;
    }
    d->handle[handle].at = addr;
    return 0;
}

static int drv_access(void *ctx, uint64_t addr, uint64_t size)
{
    struct device *d = ctx;
    (void)addr;
    (void)size;
    d->refused = fails(d);
    return d->refused ? 2 : 0;
}

static void drv_unmap(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
    struct device *d = ctx;
    struct reuse nobody = {STREAMS};
    assert_true(!d->capturing || d->refused);
    d->refused = false;
    d->unmaps++;
    for (unsigned i = 0; i < d->n_held; i++) {
        assert_false(d->held[i].addr < addr + size && addr < d->held[i].addr + d->held[i].size);
    }
    pieces(d, addr, size, must_be_idle, &nobody);
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        uint32_t mapped = d->slot[(at - SPACE) / PAGE_MIN];
        assert_true(mapped > 0 && d->handle[mapped - 1].size == page);
        d->slot[(at - SPACE) / PAGE_MIN] = 0;
        if ((at + PAGE_MIN) % page == 0) {
            d->handle[mapped - 1].at = 0;
        }
    }
}

static uint64_t drv_record(void *ctx, uint64_t stream)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    if (fails(d)) {
        return 0;
    }
    d->events++;
    return d->submitted[stream] * STREAMS + stream + 1;
}

static bool drv_done(void *ctx, uint64_t event)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    return d->completed[(event - 1) % STREAMS] >= (event - 1) / STREAMS;
}

static void drv_wait(void *ctx, uint64_t event)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    uint64_t seq = (event - 1) / STREAMS, *completed = &d->completed[(event - 1) % STREAMS];
    *completed = *completed < seq ? seq : *completed;
}

static void drv_forget(void *ctx, uint64_t event)
{
    (void)event;
    ((struct device *)ctx)->events--;
}

static const struct plim_engine_driver driver = {
    drv_reserve, drv_unreserve, drv_create, drv_release, drv_map,    drv_access,
    drv_unmap,   drv_record,    drv_done,   drv_wait,    drv_forget,
};

static struct plim_engine *begin(struct device *d, uint64_t seed, uint64_t total)
{
    memset(d, 0, sizeof *d);
    d->random = seed * 0x9e3779b97f4a7c15u + 1;
    d->total = total;
    d->next = SPACE;
    struct plim_engine_config config = {
        .driver = &driver,
        .ctx = d,
        .total = total,
        .aim = 8, /* pages of several sizes in little memory */
        .room = 1 + seed % 5,
        .floor = 4 * MIB,
        .large_page = seed % 6 == 0   ? 8 * MIB
                      : seed % 6 == 1 ? 4 * MIB
                      : seed % 6 == 2 ? 2 * MIB
                                      : 0,
    };
    struct plim_engine *e = plim_engine_new(&config);
    assert_non_null(e);
    return e;
}

static void finish(struct device *d, struct plim_engine *e)
{
    d->trouble = 0;
    d->capturing = false;
    d->n_held = 0;
    memcpy(d->completed, d->submitted, sizeof d->completed);
    plim_engine_delete(e);
    assert_int_equal(d->used, 0);
    assert_int_equal(d->events, 0);
}

/* ---- random workloads --------------------------------------------------------------------------- */

static uint64_t some_size(struct device *d)
{
    switch (roll(d) % 5) {
    case 0:
        return 1 + roll(d) % 4096;
    case 1:
        return 1 + roll(d) % MIB;
    case 2:
        return 512 * (1 + roll(d) % 64);
    case 3:
        return MIB + roll(d) % (4 * MIB);
    default:
        return 1 + roll(d) % (24 * MIB);
    }
}

static void take(struct device *d, struct plim_engine *e, uint64_t pool)
{
    unsigned stream = (unsigned)(roll(d) % STREAMS);
    uint64_t size = some_size(d), addr = 0;
    unsigned flags = d->capturing ? PLIM_ENGINE_CAPTURING : 0;
    enum plim_engine_code code = plim_engine_alloc(e, size, stream, pool, flags, &addr);
    if (code != PLIM_ENGINE_OK) {
        return;
    }
    uint64_t bytes = (size + 511) / 512 * 512;
    assert_int_equal(addr % 512, 0);
    for (unsigned i = 0; i < d->n_held; i++) {
        assert_false(d->held[i].addr < addr + bytes && addr < d->held[i].addr + d->held[i].size);
    }
    struct reuse reuse = {stream};
    pieces(d, addr, bytes, must_be_idle, &reuse);
    d->submitted[stream]++;
    d->held[d->n_held++] = (struct held){addr, bytes, pool, stream, 0};
}

static void drop(struct device *d, struct plim_engine *e, unsigned i)
{
    struct held h = d->held[i];
    d->held[i] = d->held[--d->n_held];
    for (unsigned s = 0; s < STREAMS; s++) {
        if (s == h.stream || (h.also >> s & 1)) {
            struct reuse on = {s};
            d->submitted[s]++;
            pieces(d, h.addr, h.size, put_in_flight, &on);
        }
    }
    unsigned flags = d->capturing ? PLIM_ENGINE_CAPTURING : 0;
    assert_int_equal(plim_engine_free(e, h.addr, flags), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, h.addr, flags), PLIM_ENGINE_UNKNOWN);
}

static void share(struct device *d, struct plim_engine *e)
{
    struct held *h = &d->held[roll(d) % d->n_held];
    unsigned stream = (unsigned)(roll(d) % STREAMS);
    assert_int_equal(plim_engine_record_stream(e, h->addr, stream), PLIM_ENGINE_OK);
    h->also |= 1u << stream;
}

static void step(struct device *d, struct plim_engine *e, uint64_t *pool)
{
    unsigned what = (unsigned)(roll(d) % 100);
    unsigned stream = (unsigned)(roll(d) % STREAMS);
    uint64_t lag = d->submitted[stream] - d->completed[stream];
    d->completed[stream] += lag ? roll(d) % (lag + 1) : 0;
    if (what < 50 && d->n_held < BLOCKS) {
        take(d, e, roll(d) % 8 == 0 ? 0 : *pool);
    } else if (what < 90 && d->n_held > 0) {
        drop(d, e, (unsigned)(roll(d) % d->n_held));
    } else if (what < 94 && d->n_held > 0) {
        share(d, e);
    } else if (what < 96) {
        d->capturing = !d->capturing;
        *pool = d->capturing ? 1 + roll(d) % 3 : 0;
    } else if (what == 96 && !d->capturing) {
        plim_engine_trim(e);
    } else if (what == 97 && !d->capturing) {
        plim_engine_drop_pool(e, 1 + roll(d) % 3);
    }
}

static void check(const struct device *d, const struct plim_engine *e)
{
    const char *wrong = plim_engine_check(e);
    if (wrong) {
        fail_msg("%s", wrong);
    }
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    assert_int_equal(s.reserved, d->used);
    assert_int_equal(s.blocks, d->n_held);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < d->n_held; i++) {
        bytes += d->held[i].size;
    }
    assert_true(s.live >= bytes); /* pending ones count too */
}

/* Figures of all runs are added to *sum. */
static void run(uint64_t seed, unsigned steps, unsigned trouble, struct plim_engine_stats *sum)
{
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, seed, (64 + seed % 7 * 32) * MIB);
    uint64_t pool = 0;
    for (unsigned i = 0; i < steps; i++) {
        d->trouble = i % 16 == 0 ? trouble : d->trouble;
        step(d, e, &pool);
        if (i % 8 == 0) {
            check(d, e);
        }
    }
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    sum->moved += s.moved;
    sum->waits += s.waits;
    sum->failures += s.failures;
    finish(d, e);
    free(d);
}

static void random_workloads_never_overlap_and_keep_the_rules_of_streams(void **state)
{
    (void)state;
    struct plim_engine_stats sum = {0};
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        run(seed, 500, 0, &sum);
    }
    assert_true(sum.moved > 10000 && sum.waits > 1000 && sum.failures > 1000); /* it came to that */
}

static void driver_calls_may_fail_at_any_point(void **state)
{
    (void)state;
    struct plim_engine_stats sum = {0};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        run(seed, 300, 2 + (unsigned)(seed % 20), &sum);
    }
    assert_true(sum.failures > 1000);
}

/* ---- promises ------------------------------------------------------------------------------------ */

static void pages_grow_with_what_is_live(void **state)
{
    (void)state;
    const uint64_t gib = 1024 * MIB;
    assert_int_equal(plim_engine_page(24 * gib, 0, 512), 2 * MIB);
    assert_int_equal(plim_engine_page(24 * gib, gib, 512), 4 * MIB);
    assert_int_equal(plim_engine_page(24 * gib, 20 * gib, 512), 8 * MIB);
    assert_int_equal(plim_engine_page(80 * gib, 20 * gib, 512), 32 * MIB);
    assert_int_equal(plim_engine_page(UINT64_C(1) << 48, UINT64_C(1) << 47, 512), 32 * MIB);
}

static void holes_between_live_blocks_serve_a_large_request(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 2, 256 * MIB);
    uint64_t addr[24], big;
    for (unsigned i = 0; i < 24; i++) { /* 240 of 256 MiB */
        assert_int_equal(plim_engine_alloc(e, 10 * MIB, 0, 0, 0, &addr[i]), PLIM_ENGINE_OK);
    }
    for (unsigned i = 0; i < 24; i += 2) {
        assert_int_equal(plim_engine_free(e, addr[i], 0), PLIM_ENGINE_OK);
    }
    /* 136 MiB are free, no hole larger than 16. No allocator that keeps pages in place can do this. */
    assert_int_equal(plim_engine_alloc(e, 120 * MIB, 0, 0, 0, &big), PLIM_ENGINE_OK);
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    assert_true(s.moved > 0);
    assert_null(plim_engine_check(e));
    finish(d, e);
    free(d);
}

static void a_free_run_is_reused_without_a_driver_call(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 256 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 5 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    uint64_t calls = d->calls;
    assert_int_equal(plim_engine_alloc(e, 5 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(b, a);
    assert_int_equal(d->calls, calls);
    finish(d, e);
    free(d);
}

static void memory_of_one_stream_serves_another_only_behind_its_work(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    d->submitted[0] = 7;
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 1, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(d->completed[0], 7); /* it has been waited for */
    finish(d, e);
    free(d);
}

static void a_capture_gets_no_memory_that_needs_waiting(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    d->capturing = true; /* the driver of this test fails on forbidden calls */
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 9, PLIM_ENGINE_CAPTURING, &b),
                     PLIM_ENGINE_NO_MEMORY);
    d->capturing = false;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 9, 0, &b), PLIM_ENGINE_OK);
    finish(d, e);
    free(d);
}

static void pages_of_a_private_pool_stay_until_it_is_dropped(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 5, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_true(d->used >= 60 * MIB); /* a captured graph may still use these addresses */
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &b), PLIM_ENGINE_NO_MEMORY);
    plim_engine_drop_pool(e, 5);
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    finish(d, e);
    free(d);
}

static void wrong_addresses_are_refused(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 64 * MIB);
    uint64_t a, base, size;
    assert_int_equal(plim_engine_free(e, 0, 0), PLIM_ENGINE_UNKNOWN);
    assert_int_equal(plim_engine_alloc(e, 3 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a + 512, 0), PLIM_ENGINE_UNKNOWN);
    assert_int_equal(plim_engine_record_stream(e, a + 512, 1), PLIM_ENGINE_UNKNOWN);
    assert_true(plim_engine_block(e, a + 2 * MIB + 7, &base, &size));
    assert_int_equal(base, a);
    assert_int_equal(size, 3 * MIB);
    assert_false(plim_engine_block(e, a + 3 * MIB, &base, &size));
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_UNKNOWN);
    finish(d, e);
    free(d);
}

static void a_cap_holds_and_trimming_gives_back(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 1, 256 * MIB);
    uint64_t a, b;
    plim_engine_set_cap(e, 64 * MIB);
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 0, 0, 0, &a), PLIM_ENGINE_NO_MEMORY);
    assert_true(d->used <= 64 * MIB);
    assert_int_equal(plim_engine_alloc(e, 40 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_int_equal(d->used, 0);
    finish(d, e);
    free(d);
}

static void a_paused_pool_gives_its_memory_back_and_keeps_its_addresses(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 3, 256 * MIB);
    uint64_t a, b, c, other, again, base, size;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 50 * MIB, 0, 7, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 1000, 0, 7, 0, &c), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 20 * MIB, 0, 0, 0, &other), PLIM_ENGINE_OK);
    uint64_t held = d->used, given = plim_engine_pause(e, 7);
    assert_true(given >= 80 * MIB);
    assert_int_equal(d->used, held - given);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_pause(e, 7), 0);
    assert_int_equal(plim_engine_alloc(e, MIB, 0, 7, 0, &again), PLIM_ENGINE_NO_MEMORY);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    assert_true(plim_engine_block(e, a, &base, &size));
    /* Others may have the memory meanwhile; then there is no way back. */
    assert_int_equal(plim_engine_alloc(e, 200 * MIB, 0, 0, 0, &again), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_NO_MEMORY);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_free(e, again, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    struct reuse nobody = {STREAMS};
    pieces(d, a, 30 * MIB, must_be_idle, &nobody); /* there is memory behind each byte */
    pieces(d, c, 512, must_be_idle, &nobody);
    assert_int_equal(plim_engine_alloc(e, 50 * MIB, 0, 7, 0, &again), PLIM_ENGINE_OK);
    assert_int_equal(again, b);
    finish(d, e);
    free(d);
}

static void an_engine_with_a_paused_pool_can_be_deleted(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = begin(d, 3, 256 * MIB);
    uint64_t a;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    plim_engine_pause(e, 7);
    plim_engine_drop_pool(e, 7);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_null(plim_engine_check(e));
    finish(d, e);
    assert_int_equal(d->used, 0);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_workloads_never_overlap_and_keep_the_rules_of_streams),
        cmocka_unit_test(driver_calls_may_fail_at_any_point),
        cmocka_unit_test(pages_grow_with_what_is_live),
        cmocka_unit_test(holes_between_live_blocks_serve_a_large_request),
        cmocka_unit_test(a_free_run_is_reused_without_a_driver_call),
        cmocka_unit_test(memory_of_one_stream_serves_another_only_behind_its_work),
        cmocka_unit_test(a_capture_gets_no_memory_that_needs_waiting),
        cmocka_unit_test(pages_of_a_private_pool_stay_until_it_is_dropped),
        cmocka_unit_test(wrong_addresses_are_refused),
        cmocka_unit_test(a_cap_holds_and_trimming_gives_back),
        cmocka_unit_test(a_paused_pool_gives_its_memory_back_and_keeps_its_addresses),
        cmocka_unit_test(an_engine_with_a_paused_pool_can_be_deleted),
    };
    return PLIM_RUN_TESTS("engine", tests);
}
