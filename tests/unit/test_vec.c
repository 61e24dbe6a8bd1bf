/* SPDX-License-Identifier: Apache-2.0 */
/* Typed vectors: growth, iteration over empty and full ones, failure. */

#include "base/vec.h"
#include "fail_alloc.h"
#include "unit.h"

struct pair {
    uint64_t a, b;
};

static void pushed_values_come_out_in_order(void **state)
{
    (void)state;
    PLIM_VEC(struct pair) v = {0};
    for (uint64_t i = 0; i < 10000; i++) {
        assert_ok(plim_vec_push(&v, NULL, (struct pair){i, i * i}));
    }
    uint64_t i = 0;
    plim_vec_foreach (p, &v) {
        assert_int_equal(p->a, i);
        assert_int_equal(p->b, i * i);
        i++;
    }
    assert_int_equal(i, 10000);
    plim_vec_fini(&v);
    assert_null(v.items);
    assert_int_equal(v.n + v.cap, 0);
}

static void an_empty_vector_is_walked_without_a_step(void **state)
{
    (void)state;
    PLIM_VEC(int) v = {0};
    plim_vec_foreach (p, &v) {
        fail_msg("there is %d", *p);
    }
    plim_vec_fini(&v);
}

static void reserve_makes_room_and_changes_nothing_else(void **state)
{
    (void)state;
    PLIM_VEC(char) v = {0};
    assert_ok(plim_vec_push(&v, NULL, 'x'));
    assert_ok(plim_vec_reserve(&v, 100000, NULL));
    assert_true(v.cap >= 100001);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.items[0], 'x');
    plim_vec_fini(&v);
}

static void an_impossible_size_is_refused(void **state)
{
    (void)state;
    PLIM_VEC(struct pair) v = {0};
    struct plim_err err;
    assert_ok(plim_vec_push(&v, NULL, (struct pair){1, 2}));
    assert_int_equal(plim_vec_reserve(&v, SIZE_MAX, &err), PLIM_E_NOMEM);
    assert_int_equal(plim_vec_reserve(&v, SIZE_MAX / 16, &err), PLIM_E_NOMEM);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.items[0].b, 2);
    plim_vec_fini(&v);
}

static enum plim_status push_many(void *arg)
{
    (void)arg;
    PLIM_VEC(uint32_t) v = {0};
    enum plim_status st = PLIM_OK;
    for (uint32_t i = 0; st == PLIM_OK && i < 100000; i++) {
        st = plim_vec_push(&v, NULL, i);
        if (st == PLIM_E_NOMEM) {
            assert_int_equal(v.n, i);
        }
    }
    plim_vec_fini(&v);
    return st;
}

static void a_failed_push_leaves_the_vector_unchanged(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(push_many, NULL, 200, false) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushed_values_come_out_in_order),
        cmocka_unit_test(an_empty_vector_is_walked_without_a_step),
        cmocka_unit_test(reserve_makes_room_and_changes_nothing_else),
        cmocka_unit_test(an_impossible_size_is_refused),
        cmocka_unit_test(a_failed_push_leaves_the_vector_unchanged),
    };
    return PLIM_RUN_TESTS("vec", tests);
}
