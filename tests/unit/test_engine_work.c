/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much work the moving allocator does, counted and not timed: records that it looks at, calls of the driver.
 * Programs that are as bad as can be for it: sizes around the boundaries of its lists, a million live blocks,
 * millions of holes, frees in reverse, streams that never end. The driver here only counts; that nothing overlaps
 * is the matter of test_engine.c.
 */

#include "unit.h"

#include <plimsoll/engine.h>

#include <stdlib.h>

#define MIB     (UINT64_C(1) << 20)
#define STREAMS 1024
#define LOOKS                                                                                      \
    32 /* most records that a request which finds a free run looks at: 16 of each of two lists */

struct driver {
    uint64_t next;               /* address */
    uint64_t calls, asked;       /* all; questions whether an event has completed */
    uint64_t handed[STREAMS];    /* events of a stream */
    uint64_t completed[STREAMS]; /* of them */
    uint64_t random;
};

static int drv_reserve(void *ctx, uint64_t size, uint64_t align, uint64_t *addr)
{
    struct driver *d = ctx;
    *addr = (d->next + align - 1) & ~(align - 1);
    d->next = *addr + size;
    return 0;
}

static void drv_range(void *ctx, uint64_t addr, uint64_t size)
{
    (void)addr;
    (void)size;
    ((struct driver *)ctx)->calls++;
}

static int drv_create(void *ctx, uint64_t size, uint64_t *handle)
{
    (void)size;
    *handle = ++((struct driver *)ctx)->calls;
    return 0;
}

static int drv_map(void *ctx, uint64_t addr, uint64_t size, uint64_t handle)
{
    (void)handle;
    drv_range(ctx, addr, size);
    return 0;
}

static int drv_access(void *ctx, uint64_t addr, uint64_t size)
{
    drv_range(ctx, addr, size);
    return 0;
}

/* Events are named by their stream and number. */
static uint64_t drv_record(void *ctx, uint64_t stream)
{
    struct driver *d = ctx;
    d->calls++;
    return ++d->handed[stream] * STREAMS + stream;
}

static bool drv_done(void *ctx, uint64_t event)
{
    struct driver *d = ctx;
    d->calls++;
    d->asked++;
    return event / STREAMS <= d->completed[event % STREAMS];
}

static void drv_wait(void *ctx, uint64_t event)
{
    struct driver *d = ctx;
    d->calls++;
    if (d->completed[event % STREAMS] < event / STREAMS) {
        d->completed[event % STREAMS] = event / STREAMS;
    }
}

static void drv_forget(void *ctx, uint64_t event)
{
    (void)ctx;
    (void)event;
}

static const struct plim_engine_driver driver = {
    drv_reserve, drv_range,  drv_create, drv_range, drv_map,    drv_access,
    drv_range,   drv_record, drv_done,   drv_wait,  drv_forget,
};

static uint64_t roll(struct driver *d)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return d->random >> 33;
}

static struct plim_engine *begin(struct driver *d, uint64_t total,
                                 const struct plim_engine_rounding *rounding)
{
    struct plim_engine_config config = {
        .driver = &driver, .ctx = d, .rounding = rounding, .total = total};
    *d = (struct driver){.next = UINT64_C(1) << 40, .random = 7};
    /* What has been handed out is done unless a test says otherwise. */
    for (unsigned i = 0; i < STREAMS; i++) {
        d->completed[i] = UINT64_MAX / STREAMS;
    }
    struct plim_engine *e = plim_engine_new(&config);
    assert_non_null(e);
    return e;
}

static struct plim_engine_stats stats_of(const struct plim_engine *e)
{
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    return s;
}

static uint64_t get(struct plim_engine *e, uint64_t size)
{
    uint64_t addr;
    assert_int_equal(plim_engine_alloc(e, size, 0, 0, 0, &addr), PLIM_ENGINE_OK);
    return addr;
}

static void put(struct plim_engine *e, uint64_t addr)
{
    assert_int_equal(plim_engine_free(e, addr, 0), PLIM_ENGINE_OK);
}

/* All is free: nothing may stay behind. */
static void finish(struct plim_engine *e)
{
    assert_null(plim_engine_check(e));
    plim_engine_trim(e);
    struct plim_engine_stats s = stats_of(e);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.reserved, 0);
    assert_null(plim_engine_check(e));
    plim_engine_delete(e);
}

/* ---- requests that find a free run ---------------------------------------------------------------- */

/* Of `n` live blocks one after the other, by chance, is freed and its size asked for again. */
static void exchange(struct driver *d, struct plim_engine *e, uint64_t *addr, const uint64_t *size,
                     unsigned n)
{
    for (unsigned k = 0; k < 20000; k++) {
        unsigned i = (unsigned)(roll(d) % n);
        uint64_t looked = stats_of(e).looked, calls = d->calls;
        put(e, addr[i]);
        assert_int_equal(stats_of(e).looked, looked);
        addr[i] = get(e, size[i]);
        assert_true(stats_of(e).looked - looked <= LOOKS);
        assert_int_equal(d->calls, calls);
    }
}

static void exchange_in_mode(const struct plim_engine_rounding *rounding, unsigned n)
{
    struct driver *d = malloc(sizeof *d);
    uint64_t *addr = malloc(n * sizeof *addr), *size = malloc(n * sizeof *size);
    struct plim_engine *e = begin(d, UINT64_C(64) << 30, rounding);
    for (unsigned i = 0; i < n; i++) {
        size[i] = 1 + roll(d) % 8192;
        addr[i] = get(e, size[i]);
    }
    for (unsigned i = 0; i < n; i += 3) { /* holes everywhere */
        put(e, addr[i]);
    }
    for (unsigned i = 0; i < n; i += 3) {
        size[i] = 1 + roll(d) % 8192;
        addr[i] = get(e, size[i]);
    }
    exchange(d, e, addr, size, n);
    for (unsigned i = n; i-- > 0;) {
        put(e, addr[i]);
    }
    finish(e);
    free(addr);
    free(size);
    free(d);
}

static void a_cached_size_takes_the_same_few_steps_whatever_is_live(void **state)
{
    (void)state;
    struct plim_engine_rounding pool = {.mode = PLIM_ENGINE_POOL};
    struct plim_engine_rounding hybrid = {.mode = PLIM_ENGINE_HYBRID};
    assert_null(plim_engine_sizes_parse("512 1024 1536 2560 4096 6144 8192", &pool));
    exchange_in_mode(&pool, 1000);
    exchange_in_mode(&pool, 1000000);
    exchange_in_mode(&hybrid, 1000000);
    exchange_in_mode(NULL, 1000000);
}

static void sizes_around_the_boundaries_of_lists_leave_nothing_behind(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, UINT64_C(64) << 30, NULL);
    enum {
        N = 3000
    };
    static uint64_t addr[N];
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < N; i++) {
            uint64_t edge = UINT64_C(512) << i % 16;      /* 512 bytes to 16 MiB */
            edge += edge / 32 * (i / 16 % 32);            /* each list of them */
            addr[i] = get(e, edge + 512 * (i % 3) - 511); /* below, on, and above it */
        }
        assert_null(plim_engine_check(e));
        for (unsigned i = 0; i < N; i++) { /* in order, in reverse, each second */
            put(e, addr[round == 0 ? i : round == 1 ? N - 1 - i : (i * 2 + i * 2 / N) % N]);
        }
        assert_null(plim_engine_check(e));
        assert_int_equal(stats_of(e).live, 0);
    }
    finish(e);
    free(d);
}

static void a_sawtooth_asks_the_driver_on_its_first_rise_only(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, UINT64_C(64) << 30, NULL);
    enum {
        N = 2000
    };
    static uint64_t addr[N];
    uint64_t calls = 0;
    for (unsigned tooth = 0; tooth < 20; tooth++) {
        for (unsigned i = 0; i < N; i++) {
            addr[i] = get(e, i % 2 ? 700 + i : 3 * MIB + i * 512);
        }
        calls = tooth == 0 ? d->calls : calls;
        for (unsigned i = 0; i < N; i++) {
            put(e, addr[tooth % 2 ? i : N - 1 - i]);
        }
    }
    assert_int_equal(d->calls, calls);
    finish(e);
    free(d);
}

/* ---- requests that look for pages ------------------------------------------------------------------ */

static void small_holes_are_not_searched_for_pages(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, 512 * MIB, NULL);
    enum {
        N = 200000
    }; /* 98 MiB: half of it comes free as one, of the rest each second block */
    uint64_t *addr = malloc(N * sizeof *addr);
    for (unsigned i = 0; i < N; i++) {
        addr[i] = get(e, 512);
    }
    for (unsigned i = 0; i < N; i += i < N / 2 ? 1 : 2) {
        put(e, addr[i]);
    }
    plim_engine_set_cap(e, stats_of(e).reserved);
    uint64_t looked = stats_of(e).looked;
    uint64_t large = get(e, 40 * MIB); /* of pages that were those of small blocks */
    assert_true(stats_of(e).moved >= 20);
    assert_true(stats_of(e).looked - looked < 100); /* of 50,000 holes */
    put(e, large);
    for (unsigned i = N / 2 + 1; i < N; i += 2) {
        put(e, addr[i]);
    }
    finish(e);
    free(addr);
    free(d);
}

static void addresses_behind_many_torn_runs_are_still_found(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, 4096 * MIB, NULL);
    enum {
        N = 1024,
        LARGE = 4
    };
    static uint64_t addr[N], large[LARGE];
    for (unsigned i = 0; i < N; i++) {
        addr[i] = get(e, 4 * MIB);
    }
    plim_engine_set_cap(e, stats_of(e).reserved);
    for (unsigned i = 0; i < N; i += 2) {
        put(e, addr[i]);
    }
    for (unsigned i = 0; i < LARGE; i++) { /* each tears 75 runs */
        large[i] = get(e, 300 * MIB);
    }
    assert_int_equal(stats_of(e).arenas, 1);
    for (unsigned i = 1; i < N; i += 2) {
        put(e, addr[i]);
    }
    for (unsigned i = 0; i < LARGE; i++) {
        put(e, large[i]);
    }
    finish(e);
    free(d);
}

/* ---- other streams --------------------------------------------------------------------------------- */

static void a_stream_that_lags_is_asked_once_by_each_request(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, UINT64_C(64) << 30, NULL);
    enum {
        N = 20000
    };
    d->completed[1] = 0;
    for (unsigned i = 0; i < N; i++) {
        uint64_t addr = get(e, 4096), looked = stats_of(e).looked, asked = d->asked;
        assert_int_equal(plim_engine_record_stream(e, addr, 1), PLIM_ENGINE_OK);
        put(e, addr);
        addr = get(e, 512);
        put(e, addr);
        assert_true(d->asked - asked <= 1 + 1); /* one more where pages are made */
        assert_true(stats_of(e).looked - looked <= LOOKS + 3);
    }
    assert_int_equal(stats_of(e).live, (uint64_t)N * 4096);
    d->completed[1] = d->handed[1];
    put(e, get(e, 512));
    assert_int_equal(stats_of(e).live, 0);
    finish(e);
    free(d);
}

static void each_of_many_streams_is_asked_once_by_a_request(void **state)
{
    (void)state;
    struct driver *d = malloc(sizeof *d);
    struct plim_engine *e = begin(d, UINT64_C(64) << 30, NULL);
    for (unsigned s = 1; s < STREAMS; s++) {
        d->completed[s] = 0;
    }
    for (unsigned i = 0; i < 4 * STREAMS; i++) {
        uint64_t addr = get(e, 3 * MIB);
        assert_int_equal(plim_engine_record_stream(e, addr, 1 + i % (STREAMS - 1)), PLIM_ENGINE_OK);
        put(e, addr);
    }
    uint64_t asked = d->asked;
    put(e, get(e, 512));
    assert_true(d->asked - asked <= STREAMS + 1);
    for (unsigned s = STREAMS / 2; s < STREAMS; s++) { /* some end before others */
        d->completed[s] = d->handed[s];
    }
    put(e, get(e, 512));
    assert_null(plim_engine_check(e));
    assert_true(stats_of(e).live > 0 && stats_of(e).live < UINT64_C(4) * STREAMS * 3 * MIB);
    finish(e); /* trimming waits for the rest */
    free(d);
}

/* ---- looking at it does not change it -------------------------------------------------------------- */

static void resetting_the_peaks_does_not_change_what_comes(void **state)
{
    (void)state;
    struct driver *d[2] = {malloc(sizeof *d[0]), malloc(sizeof *d[1])};
    struct plim_engine *e[2] = {begin(d[0], 1024 * MIB, NULL), begin(d[1], 1024 * MIB, NULL)};
    static uint64_t addr[2][64];
    for (unsigned i = 0; i < 5000; i++) {
        unsigned slot = (unsigned)(roll(d[0]) % 64);
        uint64_t size = 1 + roll(d[0]) % (i / 500 % 2 ? 2 * MIB : 12 * MIB);
        for (unsigned k = 0; k < 2; k++) {
            if (addr[k][slot]) {
                put(e[k], addr[k][slot]);
            }
            addr[k][slot] = get(e[k], size);
        }
        assert_int_equal(addr[0][slot], addr[1][slot]);
        assert_int_equal(d[0]->calls, d[1]->calls);
        plim_engine_reset_peaks(e[1]);
    }
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < 64; i++) {
            if (addr[k][i]) {
                put(e[k], addr[k][i]);
            }
        }
        finish(e[k]);
        free(d[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cached_size_takes_the_same_few_steps_whatever_is_live),
        cmocka_unit_test(sizes_around_the_boundaries_of_lists_leave_nothing_behind),
        cmocka_unit_test(a_sawtooth_asks_the_driver_on_its_first_rise_only),
        cmocka_unit_test(small_holes_are_not_searched_for_pages),
        cmocka_unit_test(addresses_behind_many_torn_runs_are_still_found),
        cmocka_unit_test(a_stream_that_lags_is_asked_once_by_each_request),
        cmocka_unit_test(each_of_many_streams_is_asked_once_by_a_request),
        cmocka_unit_test(resetting_the_peaks_does_not_change_what_comes),
    };
    return PLIM_RUN_TESTS("engine_work", tests);
}
