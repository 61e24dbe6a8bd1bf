/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and stacks, each stored once. */

#include "fail_alloc.h"
#include "heap/stacks.h"
#include "unit.h"

static void equal_frames_and_stacks_get_equal_ids(void **state)
{
    (void)state;
    struct plim_stacks s;
    uint32_t a, b, c, one, two, three;
    size_t n;
    assert_ok(plim_stacks_init(&s, NULL));
    assert_ok(plim_stacks_frame(&s, (struct plim_frame){1, 2, 3}, &a, NULL));
    assert_ok(plim_stacks_frame(&s, (struct plim_frame){1, 2, 4}, &b, NULL));
    assert_ok(plim_stacks_frame(&s, (struct plim_frame){1, 2, 3}, &c, NULL));
    assert_int_equal(a, c);
    assert_int_not_equal(a, b);
    assert_ok(plim_stacks_stack(&s, (uint32_t[]){a, b}, 2, &one, NULL));
    assert_ok(plim_stacks_stack(&s, (uint32_t[]){b, a}, 2, &two, NULL));
    assert_ok(plim_stacks_stack(&s, (uint32_t[]){c, b}, 2, &three, NULL));
    assert_int_equal(one, three);
    assert_int_not_equal(one, two);
    const uint32_t *ids = plim_stacks_frames(&s, two, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], b);
    plim_stacks_fini(&s);
}

static void the_empty_stack_is_number_0_and_none_is_none(void **state)
{
    (void)state;
    struct plim_stacks s;
    uint32_t id;
    size_t n = 9;
    assert_ok(plim_stacks_init(&s, NULL));
    assert_ok(plim_stacks_stack(&s, NULL, 0, &id, NULL));
    assert_int_equal(id, PLIM_STACK_EMPTY);
    plim_stacks_frames(&s, id, &n);
    assert_int_equal(n, 0);
    n = 9;
    assert_null(plim_stacks_frames(&s, PLIM_NO_STACK, &n));
    assert_int_equal(n, 0);
    plim_stacks_fini(&s);
}

static void a_hundred_thousand_of_each_are_found_again(void **state)
{
    (void)state;
    struct plim_stacks s;
    assert_ok(plim_stacks_init(&s, NULL));
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 100000; i++) {
            uint32_t frame, stack;
            assert_ok(plim_stacks_frame(&s, (struct plim_frame){i % 7, i % 11, i}, &frame, NULL));
            assert_int_equal(frame, i);
            assert_ok(plim_stacks_stack(&s, (uint32_t[]){i, i / 2}, 2, &stack, NULL));
            assert_int_equal(stack, i + 1);
        }
    }
    plim_stacks_fini(&s);
}

static enum plim_status fill(void *arg)
{
    struct plim_stacks s;
    (void)arg;
    PLIM_TRY(plim_stacks_init(&s, NULL));
    enum plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < 100 && st == PLIM_OK; i++) {
        uint32_t id;
        st = plim_stacks_frame(&s, (struct plim_frame){i, i, i}, &id, NULL);
        st = st == PLIM_OK ? plim_stacks_stack(&s, &i, 1, &id, NULL) : st;
    }
    plim_stacks_fini(&s);
    return st;
}

static void every_failed_allocation_leaves_them_whole(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(fill, NULL, 200, false) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_frames_and_stacks_get_equal_ids),
        cmocka_unit_test(the_empty_stack_is_number_0_and_none_is_none),
        cmocka_unit_test(a_hundred_thousand_of_each_are_found_again),
        cmocka_unit_test(every_failed_allocation_leaves_them_whole),
    };
    return PLIM_RUN_TESTS("stacks", tests);
}
