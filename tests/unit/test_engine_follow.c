/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode plan of the moving allocator: programs that follow a seating, leave things out, add some, do
 * something else; seatings that are right, and wrong in every way. The device (engine_device.h) fails the
 * test when two blocks overlap or a rule of streams is broken.
 */

#include "engine_device.h"

#include <plimsoll/seating.h>

#include <stdlib.h>
#include <string.h>

#define PERIOD 24

/* A seating of the given requests; free with plim_seating_free(). */
static struct plim_seating seating(uint32_t lanes, uint32_t n)
{
    struct plim_seating p = {.n = n, .lanes = lanes};
    p.requests = calloc(n, sizeof *p.requests);
    assert_non_null(p.requests);
    return p;
}

/* ---- a program that repeats itself ----------------------------------------------------------------- */

/* PERIOD large requests, each freed when three more have come: the places of four sizes of 3 MiB, and one
 * small request in each four, which lives as long. */
static struct plim_seating conveyor(void)
{
    struct plim_seating p = seating(1, PERIOD);
    for (uint32_t i = 0; i < PERIOD; i++) {
        bool small = i % 4 == 3;
        uint64_t size = small ? 512 * (i + 1) : 2 * MIB + 512 * i;
        p.requests[i] = (struct plim_seating_request){
            .size = size, .place = small ? 0 : i % 4 * 3 * MIB, .lane = 0};
    }
    assert_true(plim_seating_index(&p));
    return p;
}

struct program {
    struct device *d;
    struct plim_engine *e;
    const struct plim_seating *p;
    uint64_t live[4]; /* addresses of the latest, by number modulo 4; 0: none */
};

static unsigned held_at(const struct device *d, uint64_t addr)
{
    for (unsigned i = 0; i < d->n_held; i++) {
        if (d->held[i].addr == addr) {
            return i;
        }
    }
    fail_msg("no such block");
    return 0;
}

/* Request i of the period, of `size` bytes. Returns its address. */
static uint64_t ask(struct program *g, uint32_t i, uint64_t size)
{
    uint64_t *live = &g->live[i % 4];
    if (*live) {
        engine_drop(g->d, g->e, held_at(g->d, *live));
    }
    assert_true(engine_hold(g->d, g->e, size, 0, 0));
    *live = g->d->held[g->d->n_held - 1].addr;
    engine_check(g->d, g->e);
    return *live;
}

static void run_period(struct program *g, uint64_t *addr)
{
    for (uint32_t i = 0; i < PERIOD; i++) {
        addr[i] = ask(g, i, g->p->requests[i].size);
    }
}

static struct plim_engine_stats stats_of(const struct plim_engine *e)
{
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    return s;
}

static struct program start(const struct plim_seating *p, uint64_t total)
{
    struct program g = {.d = calloc(1, sizeof *g.d), .p = p};
    assert_non_null(g.d);
    g.e = engine_begin_planned(g.d, 2, total, p);
    return g;
}

/* Two periods later: all of the second are at their places, `addr`. */
static struct program followed(const struct plim_seating *p, uint64_t *addr)
{
    struct program g = start(p, 256 * MIB);
    run_period(&g, addr);
    run_period(&g, addr);
    return g;
}

static void stop(struct program *g, struct plim_seating *p)
{
    engine_finish(g->d, g->e);
    free(g->d);
    plim_seating_free(p);
}

static void a_program_that_repeats_itself_gets_its_places(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    struct program g = start(&p, 256 * MIB);
    uint64_t first[PERIOD], addr[PERIOD];
    run_period(&g, first);
    assert_int_equal(stats_of(g.e).placed,
                     1); /* in force with the last request of the first period */
    run_period(&g, addr);
    assert_int_equal(stats_of(g.e).placed, 1 + PERIOD);
    uint64_t calls = g.d->calls + g.d->unmaps;
    for (unsigned k = 0; k < 3; k++) {
        uint64_t again[PERIOD];
        run_period(&g, again);
        assert_memory_equal(again, addr, sizeof addr);
    }
    struct plim_engine_stats s = stats_of(g.e);
    assert_int_equal(s.placed, 1 + 4 * PERIOD);
    assert_int_equal(s.displaced, 0);
    assert_int_equal(s.astray, PERIOD - 1);
    assert_int_equal(g.d->calls + g.d->unmaps, calls); /* no driver call any more */
    for (uint32_t i = 0; i < PERIOD; i++) {
        if (p.requests[i].size > PLIM_ENGINE_SMALL) {
            assert_int_equal(addr[i] - addr[0], p.requests[i].place);
        }
    }
    stop(&g, &p);
}

static void a_prologue_is_followed_from_the_first_request_on_and_comes_once(void **state)
{
    (void)state;
    enum {
        ONCE = 5
    };
    struct plim_seating p = seating(1, ONCE + 2);
    for (uint32_t i = 0; i < ONCE + 2; i++) { /* what stays, and two that take turns above it */
        p.requests[i] = (struct plim_seating_request){
            .size = (i + 2) * MIB, .place = i * (i + 3) / 2 * MIB, .lane = 0};
    }
    p.repeat = ONCE;
    p.requests[ONCE + 1].place = p.requests[ONCE].place;
    assert_true(plim_seating_index(&p));
    struct program g = start(&p, 256 * MIB);
    for (uint32_t i = 0; i < ONCE; i++) {
        assert_true(engine_hold(g.d, g.e, p.requests[i].size, 0, 0));
        assert_int_equal(g.d->held[i].addr - g.d->held[0].addr, p.requests[i].place);
    }
    for (uint32_t k = 0; k < 10; k++) {
        assert_true(engine_hold(g.d, g.e, p.requests[ONCE + k % 2].size, 0, 0));
        assert_int_equal(g.d->held[ONCE].addr - g.d->held[0].addr, p.requests[ONCE].place);
        engine_drop(g.d, g.e, ONCE);
    }
    assert_int_equal(stats_of(g.e).placed, ONCE + 10);
    for (uint32_t i = 0; i < 100; i++) { /* long astray, it is not at the beginning again */
        assert_true(engine_hold(g.d, g.e, (40 + i % 7) * MIB, 0, 0));
        engine_drop(g.d, g.e, ONCE);
    }
    for (uint32_t i = 0; i < ONCE; i++) {
        assert_true(engine_hold(g.d, g.e, p.requests[i].size, 0, 0));
    }
    assert_int_equal(stats_of(g.e).placed, ONCE + 10);
    engine_check(g.d, g.e);
    stop(&g, &p);
}

static void additional_requests_do_not_disturb(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    uint64_t addr[PERIOD];
    struct program g = followed(&p, addr);
    uint64_t placed = stats_of(g.e).placed;
    for (uint32_t i = 0; i < PERIOD; i++) {
        if (i % 5 == 1) {
            assert_true(engine_hold(g.d, g.e, 7 * MIB, 0, 0));
        }
        assert_int_equal(ask(&g, i, p.requests[i].size), addr[i]);
    }
    assert_int_equal(stats_of(g.e).placed, placed + PERIOD);
    stop(&g, &p);
}

static void requests_left_out_are_noticed_within_a_few(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    uint64_t addr[PERIOD];
    struct program g = followed(&p, addr);
    for (uint32_t i = 5; i < PERIOD; i++) { /* the first five are left out */
        uint64_t at = ask(&g, i, p.requests[i].size);
        assert_true(i < 5 + PLIM_SEATING_GRAM - 1 || at == addr[i]);
    }
    uint64_t again[PERIOD];
    run_period(&g, again);
    assert_memory_equal(again, addr, sizeof addr);
    stop(&g, &p);
}

static void another_size_in_the_place_of_a_request_costs_a_few_places(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    uint64_t addr[PERIOD];
    struct program g = followed(&p, addr);
    uint64_t placed = stats_of(g.e).placed;
    for (uint32_t i = 0; i < PERIOD; i++) {
        ask(&g, i, i == 6 ? 5 * MIB : p.requests[i].size);
    }
    assert_int_equal(stats_of(g.e).placed, placed + PERIOD - PLIM_SEATING_GRAM);
    stop(&g, &p);
}

static void a_block_that_stays_is_worked_around(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    uint64_t addr[PERIOD];
    struct program g = followed(&p, addr);
    g.live[2] = 0; /* request 22 is not freed this time */
    run_period(&g, addr);
    struct plim_engine_stats s = stats_of(g.e);
    assert_int_equal(s.displaced, PERIOD / 4); /* those of the same place */
    assert_int_equal(s.placed, 1 + PERIOD + PERIOD * 3 / 4);
    stop(&g, &p);
}

static void a_program_that_does_something_else_is_served_without_places(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    uint64_t addr[PERIOD];
    struct program g = followed(&p, addr);
    uint64_t placed = stats_of(g.e).placed;
    for (uint32_t i = 0; i < 300; i++) {
        ask(&g, i, MIB + 512 * (uint64_t)(1 + i * 7 % 31));
    }
    assert_int_equal(stats_of(g.e).placed, placed);
    for (uint32_t i = 0; i < PERIOD; i++) { /* and one period alone is not yet a reason */
        assert_true(ask(&g, i, p.requests[i].size) != addr[i] || i + 1 == PERIOD);
    }
    run_period(&g, addr);
    assert_true(stats_of(g.e).placed >= placed + PERIOD);
    stop(&g, &p);
}

static void free_memory_of_places_serves_others_when_there_is_no_other(void **state)
{
    (void)state;
    struct plim_seating p = conveyor();
    struct program g = start(&p, 64 * MIB);
    uint64_t addr[PERIOD];
    run_period(&g, addr);
    run_period(&g, addr);
    while (g.d->n_held > 0) {
        engine_drop(g.d, g.e, 0);
    }
    memset(g.live, 0, sizeof g.live);
    assert_true(engine_hold(g.d, g.e, 60 * MIB, 1, 0));
    engine_check(g.d, g.e);
    engine_drop(g.d, g.e, 0);
    uint64_t again[PERIOD];
    run_period(&g, again);
    assert_memory_equal(again, addr, sizeof addr); /* and comes back */
    plim_engine_trim(g.e);
    engine_check(g.d, g.e);
    stop(&g, &p);
}

static void streams_are_told_apart_whatever_their_handles(void **state)
{
    (void)state;
    struct plim_seating p = seating(3, 6);
    for (uint32_t i = 0; i < 6; i++) {
        p.requests[i] =
            (struct plim_seating_request){.size = (i + 2) * MIB, .place = 0, .lane = i % 3};
    }
    assert_true(plim_seating_index(&p));
    struct program g = start(&p, 256 * MIB);
    const unsigned handle[3] = {0, 3, 1}; /* of the lanes */
    for (uint32_t k = 0; k < 30; k++) {
        assert_true(engine_hold(g.d, g.e, (k % 6 + 2) * MIB, handle[k % 3], 0));
        engine_check(g.d, g.e);
        engine_drop(g.d, g.e, 0);
    }
    assert_int_equal(stats_of(g.e).placed, 25);
    assert_int_equal(stats_of(g.e).displaced, 0);
    assert_true(engine_hold(g.d, g.e, 2 * MIB, 2, 0)); /* the next size, on a stream of nobody's */
    assert_int_equal(stats_of(g.e).placed, 25);
    stop(&g, &p);
}

static void an_area_larger_than_all_addresses_is_done_without(void **state)
{
    (void)state;
    struct plim_seating p = seating(1, 2);
    for (uint32_t i = 0; i < 2; i++) {
        p.requests[i] = (struct plim_seating_request){
            .size = (2 + i) * MIB, .place = PLIM_SEATING_BYTES - 64 * MIB, .lane = 0};
    }
    assert_true(plim_seating_index(&p));
    struct program g = start(&p, 64 * MIB);
    for (uint32_t k = 0; k < 20; k++) {
        assert_true(engine_hold(g.d, g.e, (2 + k % 2) * MIB, 0, 0));
        engine_drop(g.d, g.e, 0);
    }
    assert_int_equal(stats_of(g.e).placed, 0);
    assert_int_equal(stats_of(g.e).failures, 0);
    stop(&g, &p);
}

/* ---- random programs on random seatings -------------------------------------------------------------- */

/* Places anywhere, most of them wrong: overlapping ones, places of blocks that live, few or many. */
static struct plim_seating some_seating(struct device *d)
{
    struct plim_seating p = seating(STREAMS, 4 + (uint32_t)(engine_roll(d) % 40));
    uint64_t room = (4 + engine_roll(d) % 60) * MIB / 512;
    for (uint32_t i = 0; i < p.n; i++) {
        uint64_t units = engine_roll(d) % 3 ? 1 + engine_roll(d) % 20000 : 1 + engine_roll(d) % 64;
        p.requests[i] = (struct plim_seating_request){
            .size = units * 512,
            .place = engine_roll(d) % 8 ? engine_roll(d) % room * 512 : PLIM_SEATING_NONE,
            .lane = engine_roll(d) % 4 ? 0 : (uint32_t)(engine_roll(d) % STREAMS),
        };
    }
    p.repeat = engine_roll(d) % 2 ? (uint32_t)(engine_roll(d) % p.n) : 0;
    assert_true(plim_seating_index(&p));
    return p;
}

/* The next request of the period, or seldom another; frees and uses between them. */
static void random_step(struct device *d, struct plim_engine *e, const struct plim_seating *p,
                        uint32_t *at)
{
    unsigned stream = (unsigned)(engine_roll(d) % STREAMS);
    uint64_t lag = d->submitted[stream] - d->completed[stream];
    d->completed[stream] += lag ? engine_roll(d) % (lag + 1) : 0;
    unsigned what = (unsigned)(engine_roll(d) % 100);
    if (what < 44) {
        const struct plim_seating_request *r = &p->requests[*at];
        *at += engine_roll(d) % 64 ? 1 : 2;
        *at = *at < p->n ? *at : p->repeat;
        (void)engine_hold(d, e, r->size - engine_roll(d) % 2, r->lane, 0);
    } else if (what < 46) {
        (void)engine_hold(d, e, 1 + engine_roll(d) % (8 * MIB), stream, 0);
    } else if (what < 96 && d->n_held > 4 + engine_roll(d) % 8) {
        engine_drop(d, e, (unsigned)(engine_roll(d) % d->n_held));
    } else if (what < 98 && d->n_held > 0) {
        engine_share(d, e);
    } else if (what == 98 && !d->capturing) {
        plim_engine_trim(e);
    } else {
        d->capturing = !d->capturing;
        d->capturing = d->capturing && engine_roll(d) % 2;
    }
}

/* Figures of all runs are added to *sum. */
static void run_random(uint64_t seed, unsigned steps, unsigned trouble,
                       struct plim_engine_stats *sum)
{
    struct device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->random = seed * 0x2545f4914f6cdd1du + 1;
    struct plim_seating p = some_seating(d);
    struct plim_engine *e = engine_begin_planned(d, seed, (64 + seed % 7 * 32) * MIB, &p);
    uint32_t at = 0;
    for (unsigned i = 0; i < steps; i++) {
        d->trouble = i % 16 == 0 ? trouble : d->trouble;
        random_step(d, e, &p, &at);
        if (i % 8 == 0) {
            engine_check(d, e);
        }
    }
    struct plim_engine_stats s = stats_of(e);
    sum->placed += s.placed;
    sum->displaced += s.displaced;
    sum->astray += s.astray;
    sum->failures += s.failures;
    sum->moved += s.moved;
    engine_finish(d, e);
    free(d);
    plim_seating_free(&p);
}

static void no_seating_makes_blocks_overlap(void **state)
{
    (void)state;
    struct plim_engine_stats sum = {0};
    for (uint64_t seed = 1; seed <= 600; seed++) {
        run_random(seed, 600, 0, &sum);
    }
    /* it came to that */
    assert_true(sum.placed > 10000 && sum.displaced > 10000 && sum.astray > 10000);
    assert_true(sum.moved > 1000 && sum.failures > 0);
}

static void driver_calls_may_fail_at_any_point_of_a_seating(void **state)
{
    (void)state;
    struct plim_engine_stats sum = {0};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        run_random(seed, 400, 2 + (unsigned)(seed % 20), &sum);
    }
    assert_true(sum.failures > 1000 && sum.placed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_repeats_itself_gets_its_places),
        cmocka_unit_test(a_prologue_is_followed_from_the_first_request_on_and_comes_once),
        cmocka_unit_test(additional_requests_do_not_disturb),
        cmocka_unit_test(requests_left_out_are_noticed_within_a_few),
        cmocka_unit_test(another_size_in_the_place_of_a_request_costs_a_few_places),
        cmocka_unit_test(a_block_that_stays_is_worked_around),
        cmocka_unit_test(a_program_that_does_something_else_is_served_without_places),
        cmocka_unit_test(free_memory_of_places_serves_others_when_there_is_no_other),
        cmocka_unit_test(streams_are_told_apart_whatever_their_handles),
        cmocka_unit_test(an_area_larger_than_all_addresses_is_done_without),
        cmocka_unit_test(no_seating_makes_blocks_overlap),
        cmocka_unit_test(driver_calls_may_fail_at_any_point_of_a_seating),
    };
    return PLIM_RUN_TESTS("engine follow", tests);
}
