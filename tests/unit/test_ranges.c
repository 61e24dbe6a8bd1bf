/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in order against a plain array, and what happens when memory runs out. */

#include "heap/ranges.h"
#include "unit.h"

#include "fail_alloc.h"

#define SLOTS 3000u /* ranges of 100 bytes at multiples of 128 */

static void ranges_are_found_as_in_a_plain_array(void **state)
{
    (void)state;
    static bool present[SLOTS];
    struct plim_ranges ranges = {0};
    uint64_t random = 9, n = 0;
    for (unsigned i = 0; i < 60000; i++) {
        random = plim_hash_u64(random + i);
        uint64_t slot = random % SLOTS;
        if (random >> 63) {
            n += !present[slot];
            assert_ok(
                plim_ranges_put(&ranges, (struct plim_addr_range){slot * 128, 100, slot}, NULL));
            present[slot] = true;
        } else {
            assert_int_equal(plim_ranges_take(&ranges, slot * 128, NULL), present[slot]);
            n -= present[slot];
            present[slot] = false;
        }
        uint64_t addr = (random >> 20) % (SLOTS * 128);
        const struct plim_addr_range *found = plim_ranges_find(&ranges, addr);
        bool covered = present[addr / 128] && addr % 128 < 100;
        assert_int_equal(found != NULL, covered);
        assert_true(!found || found->id == addr / 128);
        assert_int_equal(ranges.n, n);
    }
    plim_ranges_fini(&ranges);
}

static void a_range_at_the_top_of_the_addresses_is_found(void **state)
{
    (void)state;
    struct plim_ranges ranges = {0};
    assert_ok(plim_ranges_put(&ranges, (struct plim_addr_range){UINT64_MAX - 9, 10, 1}, NULL));
    assert_non_null(plim_ranges_find(&ranges, UINT64_MAX));
    assert_null(plim_ranges_find(&ranges, UINT64_MAX - 10));
    assert_false(plim_ranges_take(&ranges, 5, NULL));
    plim_ranges_fini(&ranges);
}

static void an_empty_set_has_nothing(void **state)
{
    (void)state;
    struct plim_ranges ranges = {0};
    assert_null(plim_ranges_find(&ranges, 0));
    assert_false(plim_ranges_take(&ranges, 0, NULL));
}

static enum plim_status put_many(void *arg)
{
    struct plim_ranges ranges = {0};
    enum plim_status st = PLIM_OK;
    (void)arg;
    for (uint64_t i = 0; st == PLIM_OK && i < 700; i++) {
        st = plim_ranges_put(&ranges, (struct plim_addr_range){i * 8, 8, i}, NULL);
    }
    plim_ranges_fini(&ranges);
    return st;
}

static void each_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(put_many, NULL, 100, false) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_found_as_in_a_plain_array),
        cmocka_unit_test(a_range_at_the_top_of_the_addresses_is_found),
        cmocka_unit_test(an_empty_set_has_nothing),
        cmocka_unit_test(each_failed_allocation_is_told_and_leaks_nothing),
    };
    return PLIM_RUN_TESTS("ranges", tests);
}
