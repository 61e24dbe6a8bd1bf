/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moving allocator on a device that keeps books (engine_device.h). After each step of random workloads
 * no byte belongs to two blocks, no work in flight loses its memory, and every byte is accounted for.
 */

#include "engine_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random workloads --------------------------------------------------------------------------- */

static uint64_t some_size(struct device *d)
{
    switch (engine_roll(d) % 5) {
    case 0:
        return 1 + engine_roll(d) % 4096;
    case 1:
        return 1 + engine_roll(d) % MIB;
    case 2:
        return 512 * (1 + engine_roll(d) % 64);
    case 3:
        return MIB + engine_roll(d) % (4 * MIB);
    default:
        return 1 + engine_roll(d) % (24 * MIB);
    }
}

static void take(struct device *d, struct plim_engine *e, uint64_t pool)
{
    unsigned stream = (unsigned)(engine_roll(d) % STREAMS);
    if (!d->capturing && engine_roll(d) % 16 == 0) {
        pool = PLIM_ENGINE_POOL_LOOSE | 1;
    }
    (void)engine_hold(d, e, some_size(d), stream, pool);
}

static void step(struct device *d, struct plim_engine *e, uint64_t *pool)
{
    unsigned what = (unsigned)(engine_roll(d) % 100);
    unsigned stream = (unsigned)(engine_roll(d) % STREAMS);
    uint64_t lag = d->submitted[stream] - d->completed[stream];
    d->completed[stream] += lag ? engine_roll(d) % (lag + 1) : 0;
    if (what < 50 && d->n_held < BLOCKS) {
        take(d, e, engine_roll(d) % 8 == 0 ? 0 : *pool);
    } else if (what < 90 && d->n_held > 0) {
        engine_drop(d, e, (unsigned)(engine_roll(d) % d->n_held));
    } else if (what < 94 && d->n_held > 0) {
        engine_share(d, e);
    } else if (what < 96) {
        d->capturing = !d->capturing;
        *pool = d->capturing ? 1 + engine_roll(d) % 3 : 0;
    } else if (what == 96 && !d->capturing) {
        plim_engine_trim(e);
    } else if (what == 97 && !d->capturing) {
        plim_engine_drop_pool(e, 1 + engine_roll(d) % 3);
    }
}

/* Figures of all runs are added to *sum. */
static void run(uint64_t seed, unsigned steps, unsigned trouble, struct plim_engine_stats *sum)
{
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, seed, (64 + seed % 7 * 32) * MIB);
    uint64_t pool = 0;
    for (unsigned i = 0; i < steps; i++) {
        d->trouble = i % 16 == 0 ? trouble : d->trouble;
        step(d, e, &pool);
        if (i % 8 == 0) {
            engine_check(d, e);
        }
    }
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    sum->moved += s.moved;
    sum->waits += s.waits;
    sum->failures += s.failures;
    engine_finish(d, e);
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

static void sizes_are_rounded_as_the_mode_says(void **state)
{
    (void)state;
    static const struct {
        uint64_t size, stitch, hybrid, pool;
    } rows[] = {
        {1, 512, 512, 1024},
        {513, 1024, 1024, 1024},
        {1024, 1024, 1024, 1024},
        {1025, 1536, 1536, 5120},
        {4097, 4608, 4608, 5120},
        {5000, 5120, 5120, 5120},
        {9000, 9216, 9216, 2 * MIB},
        {9217, 9728, 10240, 2 * MIB},
        {65537, 66048, 73728, 2 * MIB},
        {MIB - 1, MIB, MIB, 2 * MIB},
        {MIB + 1, MIB + 512, MIB + 512, 2 * MIB},
        {2 * MIB + 1, 2 * MIB + 512, 2 * MIB + 512, 2 * MIB + 512},
    };
    struct plim_engine_rounding stitch = {.mode = PLIM_ENGINE_STITCH};
    struct plim_engine_rounding hybrid = {.mode = PLIM_ENGINE_HYBRID};
    struct plim_engine_rounding pool = {.mode = PLIM_ENGINE_POOL};
    assert_null(plim_engine_sizes_parse("2097152,1000,\n5120 5120", &pool));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(plim_engine_round(&stitch, rows[i].size), rows[i].stitch);
        assert_int_equal(plim_engine_round(&hybrid, rows[i].size), rows[i].hybrid);
        assert_int_equal(plim_engine_round(&pool, rows[i].size), rows[i].pool);
    }
}

static void a_list_of_sizes_is_whole_or_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   " ,\n", "0",   "1k",
                                      "-5", "12,x", "1.5", "99999999999999999999999"};
    struct plim_engine_rounding r = {.mode = PLIM_ENGINE_POOL};
    assert_null(plim_engine_sizes_parse("9000,100,9000", &r));
    assert_int_equal(r.n_sizes, 2);
    assert_true(r.sizes[0] == 512 && r.sizes[1] == 9216);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_non_null(plim_engine_sizes_parse(bad[i], &r));
        assert_int_equal(r.n_sizes, 2);
    }
    char text[257 * 8] = "";
    for (unsigned i = 1; i <= 257; i++) {
        assert_true(snprintf(text + strlen(text), 8, "%u,", i * 512) < 8);
    }
    assert_non_null(strstr(plim_engine_sizes_parse(text, &r), "256"));
    enum plim_engine_mode mode;
    assert_true(plim_engine_mode_parse("hybrid", &mode) && mode == PLIM_ENGINE_HYBRID);
    assert_false(plim_engine_mode_parse("sew", &mode));
}

static void what_was_asked_for_and_what_is_held_are_told_apart(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 4, 64 * MIB);
    struct plim_engine_stats s;
    uint64_t addr;
    assert_int_equal(d->rounding.mode, PLIM_ENGINE_POOL);
    assert_int_equal(plim_engine_alloc(e, 2400000, 0, 0, 0, &addr), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.requested, 2400000);
    assert_int_equal(s.live, 2500096);
    engine_finish(d, e);
    free(d);
}

static void pages_grow_with_what_is_live(void **state)
{
    (void)state;
    const uint64_t gib = 1024 * MIB;
    assert_int_equal(plim_engine_page(24 * gib, 0, 512), 2 * MIB);
    assert_int_equal(plim_engine_page(24 * gib, gib, 512), 4 * MIB);
    assert_int_equal(plim_engine_page(24 * gib, 20 * gib, 512), 32 * MIB);
    assert_int_equal(plim_engine_page(4 * gib, 3 * gib, 128), 4 * MIB);
    assert_int_equal(plim_engine_page(80 * gib, 20 * gib, 512), 32 * MIB);
    assert_int_equal(plim_engine_page(UINT64_C(1) << 48, UINT64_C(1) << 47, 512), 32 * MIB);
}

static void holes_between_live_blocks_serve_a_large_request(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 2, 256 * MIB);
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
    engine_finish(d, e);
    free(d);
}

static void a_free_run_is_reused_without_a_driver_call(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 256 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 5 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    uint64_t calls = d->calls;
    assert_int_equal(plim_engine_alloc(e, 5 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(b, a);
    assert_int_equal(d->calls, calls);
    engine_finish(d, e);
    free(d);
}

static void memory_of_one_stream_serves_another_only_behind_its_work(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    d->submitted[0] = 7;
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 1, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(d->completed[0], 7); /* it has been waited for */
    engine_finish(d, e);
    free(d);
}

static void a_burst_of_frees_shares_the_events_of_a_stream(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 256 * MIB);
    struct plim_engine_stats s;
    uint64_t a[100], b;
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(plim_engine_alloc(e, MIB, 0, 0, 0, &a[i]), PLIM_ENGINE_OK);
        assert_int_equal(plim_engine_record_stream(e, a[i], 1), PLIM_ENGINE_OK);
        assert_int_equal(plim_engine_record_stream(e, a[i], 2), PLIM_ENGINE_OK);
    }
    d->submitted[1] = d->submitted[2] = 5;
    assert_int_equal(plim_engine_free(e, a[0], 0), PLIM_ENGINE_OK);
    uint64_t first = d->events;
    assert_true(first >= 2); /* it need not wait for a request */
    for (unsigned i = 1; i < 100; i++) {
        assert_int_equal(plim_engine_free(e, a[i], 0), PLIM_ENGINE_OK);
    }
    assert_int_equal(plim_engine_alloc(e, 512, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(d->events, first + 2 * 7); /* after 2, 4, ... 64, and with the request */
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 100 * MIB + 512);
    d->completed[1] = 5; /* one of two is not enough */
    assert_int_equal(plim_engine_alloc(e, 512, 0, 0, 0, &b), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 100 * MIB + 1024);
    d->completed[2] = 5;
    assert_int_equal(plim_engine_alloc(e, 512, 0, 0, 0, &b), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 1536);
    engine_finish(d, e);
    free(d);
}

static void pages_are_as_long_as_what_they_are_for(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 6, 256 * MIB); /* pages of at most 8 MiB */
    struct plim_engine_stats s;
    uint64_t a, b, c;
    assert_int_equal(plim_engine_alloc(e, 20 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(d->creates, 3); /* 8 + 8 + 4 */
    assert_int_equal(d->used, 20 * MIB);
    assert_int_equal(plim_engine_alloc(e, 113 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(d->used, 134 * MIB);
    assert_int_equal(plim_engine_alloc(e, 2 * MIB, 0, 0, 0, &c), PLIM_ENGINE_OK);
    assert_int_equal(d->used, 142 * MIB); /* a little one gets a long page, for those that follow */
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_true(s.releasable >= 20 * MIB); /* with the block go all its pages */
    engine_finish(d, e);
    free(d);
}

static void a_capture_gets_no_memory_that_needs_waiting(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    d->capturing = true; /* the driver of this test fails on forbidden calls */
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 9, PLIM_ENGINE_CAPTURING, &b),
                     PLIM_ENGINE_NO_MEMORY);
    d->capturing = false;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 9, 0, &b), PLIM_ENGINE_OK);
    engine_finish(d, e);
    free(d);
}

static void pages_of_a_private_pool_stay_until_it_is_dropped(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 64 * MIB);
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 5, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_true(d->used >= 60 * MIB); /* a captured graph may still use these addresses */
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &b), PLIM_ENGINE_NO_MEMORY);
    plim_engine_drop_pool(e, 5);
    assert_int_equal(plim_engine_alloc(e, 60 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    engine_finish(d, e);
    free(d);
}

static void free_pages_of_a_loose_pool_serve_others(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 64 * MIB);
    const uint64_t pool = PLIM_ENGINE_POOL_LOOSE | 5;
    uint64_t a, b, c;
    assert_int_equal(plim_engine_alloc(e, 20 * MIB, 0, pool, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 40 * MIB, 0, pool, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 40 * MIB, 0, 0, 0, &c), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, c, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_int_equal(d->used, 0);
    assert_int_equal(plim_engine_pause(e, pool), 0); /* and what went is not missed */
    assert_int_equal(plim_engine_resume(e, pool), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 40 * MIB, 0, pool, 0, &b), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    engine_finish(d, e);
    free(d);
}

static void a_driver_that_maps_no_more_costs_a_request_and_nothing_else(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 2, 256 * MIB); /* pages of at most 2 MiB */
    uint64_t a, b, c;
    d->most_mapped = 20;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 0, 0, &b), PLIM_ENGINE_NO_MEMORY);
    assert_null(plim_engine_check(e));
    assert_true(d->used <= 40 * MIB); /* what could not be mapped went back */
    assert_int_equal(plim_engine_alloc(e, 10 * MIB, 0, 0, 0, &c), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 1, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(d->mapped, 20);
    assert_null(plim_engine_check(e));
    engine_finish(d, e);
    free(d);
}

static void without_addresses_arenas_get_fewer_and_then_requests_fail(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 256 * MIB);
    uint64_t a, b, base, size;
    d->most_space = 600 * MIB; /* an arena wants 1,024, and takes 512 */
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 1, 0, 0, &b), PLIM_ENGINE_NO_MEMORY);
    assert_int_equal(plim_engine_alloc(e, 1000, 0, 0, 0, &b), PLIM_ENGINE_NO_MEMORY);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_true(plim_engine_block(e, b + 5, &base, &size) && base == b);
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    assert_true(s.arenas == 1 && s.failures == 2);
    engine_finish(d, e);
    free(d);
}

static void wrong_addresses_are_refused(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 64 * MIB);
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
    engine_finish(d, e);
    free(d);
}

static void a_cap_holds_and_trimming_gives_back(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 1, 256 * MIB);
    uint64_t a, b;
    plim_engine_set_cap(e, 64 * MIB);
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 0, 0, 0, &a), PLIM_ENGINE_NO_MEMORY);
    assert_true(d->used <= 64 * MIB);
    assert_int_equal(plim_engine_alloc(e, 40 * MIB, 0, 0, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_int_equal(d->used, 0);
    engine_finish(d, e);
    free(d);
}

static void a_request_that_fails_leaves_the_device_as_it_was(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 3, 256 * MIB);
    struct plim_engine_stats before, after;
    uint64_t a, other, none;
    assert_int_equal(plim_engine_alloc(e, 100 * MIB, 0, 0, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 20 * MIB, 1, 0, 0, &other), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    plim_engine_stats(e, &before);
    uint64_t used = d->used;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(plim_engine_alloc(e, 200 * MIB, 0, 0, 0, &none), PLIM_ENGINE_NO_MEMORY);
        assert_int_equal(d->used, used);
    }
    plim_engine_stats(e, &after);
    assert_int_equal(after.reserved, before.reserved);
    assert_int_equal(after.peak_reserved, before.peak_reserved);
    assert_int_equal(after.live, before.live);
    assert_null(plim_engine_check(e));
    /* Under capture nothing may be unmapped: what was gathered serves others. */
    assert_int_equal(plim_engine_alloc(e, 200 * MIB, 0, 9, PLIM_ENGINE_CAPTURING, &none),
                     PLIM_ENGINE_NO_MEMORY);
    plim_engine_stats(e, &after);
    assert_int_equal(d->used, after.reserved);
    assert_int_equal(after.peak_reserved, after.reserved);
    plim_engine_drop_pool(e, 9);
    plim_engine_trim(e);
    assert_int_equal(d->used, used);
    engine_finish(d, e);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_workloads_never_overlap_and_keep_the_rules_of_streams),
        cmocka_unit_test(driver_calls_may_fail_at_any_point),
        cmocka_unit_test(sizes_are_rounded_as_the_mode_says),
        cmocka_unit_test(a_list_of_sizes_is_whole_or_nothing),
        cmocka_unit_test(what_was_asked_for_and_what_is_held_are_told_apart),
        cmocka_unit_test(pages_grow_with_what_is_live),
        cmocka_unit_test(holes_between_live_blocks_serve_a_large_request),
        cmocka_unit_test(a_free_run_is_reused_without_a_driver_call),
        cmocka_unit_test(memory_of_one_stream_serves_another_only_behind_its_work),
        cmocka_unit_test(a_burst_of_frees_shares_the_events_of_a_stream),
        cmocka_unit_test(pages_are_as_long_as_what_they_are_for),
        cmocka_unit_test(a_capture_gets_no_memory_that_needs_waiting),
        cmocka_unit_test(pages_of_a_private_pool_stay_until_it_is_dropped),
        cmocka_unit_test(free_pages_of_a_loose_pool_serve_others),
        cmocka_unit_test(a_driver_that_maps_no_more_costs_a_request_and_nothing_else),
        cmocka_unit_test(without_addresses_arenas_get_fewer_and_then_requests_fail),
        cmocka_unit_test(wrong_addresses_are_refused),
        cmocka_unit_test(a_cap_holds_and_trimming_gives_back),
        cmocka_unit_test(a_request_that_fails_leaves_the_device_as_it_was),
    };
    return PLIM_RUN_TESTS("engine", tests);
}
