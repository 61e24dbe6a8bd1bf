/* SPDX-License-Identifier: Apache-2.0 */
/* The forward walk and the lives of a trace against the heaps that the exact allocator model had on the way. */

#include "model_program.h"

#include "heap/lives.h"
#include "heap/totals.h"
#include "heap/walk.h"

static struct program program; /* large: not on the stack */

static void assert_point(const struct plim_walk_point *now, const struct plim_heap *heap,
                         bool exact)
{
    struct plim_heap_totals want = plim_totals_of_heap(heap);
    assert_int_equal(now->reserved, want.reserved);
    assert_int_equal(now->live, want.requested);
    assert_int_equal(now->private_free, 0);
    assert_int_equal(now->live + now->rounding + now->stranded + now->releasable, want.reserved);
    if (exact) {
        assert_int_equal(now->releasable, want.releasable);
    }
}

static void walk_and_compare(const char *settings, bool exact)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct plim_walk walk;
        run_program(&program, settings, seed * 77);
        assert_ok(plim_walk_init(&walk, &program.device, NULL));
        for (size_t i = 0; i < program.n_samples; i++) {
            while (walk.position < program.sample_at[i]) {
                assert_ok(plim_walk_step(&walk, NULL));
            }
            assert_point(&walk.now, &program.sample[i], exact);
        }
        plim_walk_fini(&walk);
        end_program(&program);
    }
}

static void a_walk_over_an_ordinary_heap_adds_up_at_each_moment(void **state)
{
    (void)state;
    walk_and_compare("", true);
}

static void a_walk_over_an_expandable_heap_adds_up_at_each_moment(void **state)
{
    (void)state;
    walk_and_compare("expandable_segments:True", false);
}

static void a_copy_goes_on_as_the_original_does(void **state)
{
    (void)state;
    struct plim_walk walk, copy;
    run_program(&program, "", 5);
    assert_ok(plim_walk_init(&walk, &program.device, NULL));
    for (size_t i = 0; i < program.device.trace.events.n / 2; i++) {
        assert_ok(plim_walk_step(&walk, NULL));
    }
    assert_ok(plim_walk_copy(&walk, &copy, NULL));
    while (walk.position < program.device.trace.events.n) {
        assert_ok(plim_walk_step(&walk, NULL));
        assert_ok(plim_walk_step(&copy, NULL));
        assert_memory_equal(&walk.now, &copy.now, sizeof(walk.now));
    }
    plim_walk_fini(&walk);
    plim_walk_fini(&copy);
    end_program(&program);
}

/* Bytes asked for by, and number of, all lives at a position. */
static void sum_lives(const struct plim_lives *lives, size_t position, uint64_t *bytes, uint64_t *n)
{
    plim_vec_foreach (life, &lives->before) {
        *bytes += plim_life_at(life, position) ? life->requested : 0;
        *n += plim_life_at(life, position);
    }
    for (uint32_t i = 0; i < lives->trace->events.n; i++) {
        if (lives->trace->events.items[i].action == PLIM_ACTION_ALLOC) {
            struct plim_life life = plim_lives_of_event(lives, i);
            *bytes += plim_life_at(&life, position) ? life.requested : 0;
            *n += plim_life_at(&life, position);
        }
    }
}

static void check_lives(const char *settings)
{
    struct plim_lives lives;
    run_program(&program, settings, 31);
    assert_ok(plim_lives_read(&program.device, &lives, NULL));
    for (size_t i = 0; i < program.n_samples; i++) {
        struct plim_heap_totals want = plim_totals_of_heap(&program.sample[i]);
        uint64_t bytes = 0, n = 0, reserved = 0;
        sum_lives(&lives, program.sample_at[i], &bytes, &n);
        plim_vec_foreach (life, &lives.segments) {
            reserved += plim_life_at(life, program.sample_at[i]) ? life->size : 0;
        }
        assert_int_equal(bytes, want.requested);
        assert_int_equal(n, want.live_blocks);
        assert_int_equal(reserved, want.reserved);
    }
    plim_lives_fini(&lives);
    end_program(&program);
}

static void the_lives_at_a_moment_are_the_live_blocks_and_segments(void **state)
{
    (void)state;
    check_lives("");
    check_lives("expandable_segments:True");
}

/* A trace that begins in the middle: what was there before has no allocation in it. */
static void blocks_from_before_the_trace_live_from_its_start(void **state)
{
    (void)state;
    struct plim_lives lives;
    run_program(&program, "", 8);
    size_t half = program.device.trace.events.n / 2, n = program.device.trace.events.n - half;
    struct plim_event *events = program.device.trace.events.items;
    for (size_t i = 0; i < n; i++) {
        events[i] = events[half + i];
    }
    program.device.trace.events.n = n;
    assert_ok(plim_lives_read(&program.device, &lives, NULL));
    assert_true(lives.before.n > 0);
    for (size_t i = 0; i < program.n_samples; i++) {
        uint64_t bytes = 0, count = 0;
        if (program.sample_at[i] >= half) {
            sum_lives(&lives, program.sample_at[i] - half, &bytes, &count);
            assert_int_equal(bytes, plim_totals_of_heap(&program.sample[i]).requested);
        }
    }
    plim_lives_fini(&lives);
    end_program(&program);
}

static void add_event(struct plim_device *device, uint8_t action, uint64_t addr, uint64_t size)
{
    struct plim_event e = {.addr = addr,
                           .size = size,
                           .stack = PLIM_NO_STACK,
                           .note = PLIM_NO_ID,
                           .pool = PLIM_NO_POOL,
                           .action = action};
    assert_ok(plim_vec_push(&device->trace.events, NULL, e));
    device->trace.by_action[action]++;
}

static void an_address_allocated_anew_ends_the_life_before(void **state)
{
    (void)state;
    struct plim_device device = {0};
    struct plim_lives lives;
    add_event(&device, PLIM_ACTION_SEGMENT_ALLOC, 4096, 1 << 21);
    add_event(&device, PLIM_ACTION_ALLOC, 4096, 1000);
    add_event(&device, PLIM_ACTION_ALLOC, 4096, 2000);
    add_event(&device, PLIM_ACTION_SEGMENT_ALLOC, 4096, 1 << 21);
    add_event(&device, PLIM_ACTION_FREE_REQUESTED, 4096, 2000);
    add_event(&device, PLIM_ACTION_FREE_COMPLETED, 4096, 2000);
    assert_ok(plim_lives_read(&device, &lives, NULL));
    struct plim_life first = plim_lives_of_event(&lives, 1),
                     second = plim_lives_of_event(&lives, 2);
    assert_int_equal(first.end, 3);
    assert_int_equal(second.start, 3);
    assert_int_equal(second.freed, 5);
    assert_int_equal(second.end, 6);
    size_t present = 0;
    plim_vec_foreach (life, &lives.segments) {
        present += plim_life_at(life, 4);
    }
    assert_int_equal(present, 1);
    plim_lives_fini(&lives);
    plim_vec_fini(&device.trace.events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_over_an_ordinary_heap_adds_up_at_each_moment),
        cmocka_unit_test(a_walk_over_an_expandable_heap_adds_up_at_each_moment),
        cmocka_unit_test(a_copy_goes_on_as_the_original_does),
        cmocka_unit_test(the_lives_at_a_moment_are_the_live_blocks_and_segments),
        cmocka_unit_test(blocks_from_before_the_trace_live_from_its_start),
        cmocka_unit_test(an_address_allocated_anew_ends_the_life_before),
    };
    return PLIM_RUN_TESTS("walk", tests);
}
