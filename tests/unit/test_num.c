/* SPDX-License-Identifier: Apache-2.0 */
/* Checked and saturating arithmetic at its edges. */

#include "unit.h"

static void overflow_is_reported_and_the_result_untouched(void **state)
{
    (void)state;
    uint64_t r = 42;
    assert_true(plim_add_overflows(UINT64_MAX, 1, &r));
    assert_true(plim_mul_overflows(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
    assert_int_equal(r, 42);
    assert_false(plim_add_overflows(UINT64_MAX - 1, 1, &r));
    assert_true(r == UINT64_MAX);
    assert_false(plim_mul_overflows(UINT64_MAX, 1, &r));
    assert_false(plim_mul_overflows(UINT64_MAX, 0, &r));
    assert_int_equal(r, 0);
}

static void saturation_stops_at_the_ends(void **state)
{
    (void)state;
    assert_int_equal(plim_sub_sat(3, 5), 0);
    assert_int_equal(plim_sub_sat(5, 3), 2);
    assert_true(plim_add_sat(UINT64_MAX, 5) == UINT64_MAX);
    assert_int_equal(plim_add_sat(2, 3), 5);
}

static void rounding_up_takes_any_unit(void **state)
{
    (void)state;
    assert_int_equal(plim_round_up(0, 512), 0);
    assert_int_equal(plim_round_up(1, 512), 512);
    assert_int_equal(plim_round_up(512, 512), 512);
    assert_int_equal(plim_round_up(513, 512), 1024);
    assert_int_equal(plim_round_up(10, 3), 12);
    assert_true(plim_round_up(UINT64_MAX, 512) == UINT64_MAX);
}

static void the_hash_spreads_aligned_addresses(void **state)
{
    (void)state;
    unsigned buckets[256] = {0};
    for (uint64_t i = 0; i < 25600; i++) {
        buckets[plim_hash_u64(UINT64_C(0x7f0000000000) + i * 2097152) & 255]++;
    }
    for (unsigned i = 0; i < 256; i++) {
        assert_in_range(buckets[i], 50, 160);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_is_reported_and_the_result_untouched),
        cmocka_unit_test(saturation_stops_at_the_ends),
        cmocka_unit_test(rounding_up_takes_any_unit),
        cmocka_unit_test(the_hash_spreads_aligned_addresses),
    };
    return PLIM_RUN_TESTS("num", tests);
}
