/* SPDX-License-Identifier: Apache-2.0 */
/* The device model: books of bytes, address policies, slabs, pages, adopted ranges; and the estimated
 * stream-ordered pool on it. */

#include "alloc/async.h"
#include "unit.h"

#define MIB  PLIM_MIB
#define BASE (UINT64_C(1) << 40)

static void device_make(struct plim_devmodel *d, uint64_t total, enum plim_address_policy policy)
{
    struct plim_devmodel_config config = {
        .total = total,
        .external = 100 * MIB,
        .policy = policy,
        .base = BASE,
        .limit = BASE + (UINT64_C(1) << 36),
    };
    assert_ok(plim_devmodel_init(d, &config, NULL));
}

static uint64_t take(struct plim_devmodel *d, uint64_t size)
{
    uint64_t addr = 1;
    assert_ok(plim_devmodel_malloc(d, size, &addr, NULL));
    return addr;
}

static void bytes_are_counted_in_pages_and_end_at_the_total(void **state)
{
    (void)state;
    struct plim_devmodel d;
    device_make(&d, 200 * MIB, PLIM_ADDRESS_FIRST_FIT);
    uint64_t a = take(&d, 3 * MIB);
    assert_int_equal(d.used, 104 * MIB);
    assert_int_equal(take(&d, 97 * MIB), 0);
    assert_int_equal(d.failed, 1);
    assert_int_equal(d.used, 104 * MIB);
    assert_int_not_equal(take(&d, 96 * MIB), 0);
    assert_int_equal(plim_devmodel_free_bytes(&d), 0);
    assert_ok(plim_devmodel_free(&d, a, NULL));
    assert_int_equal(plim_devmodel_free_bytes(&d), 4 * MIB);
    assert_int_equal(plim_devmodel_free(&d, a, NULL), PLIM_E_NOTFOUND);
    assert_int_equal(d.peak_used, 200 * MIB);
    plim_devmodel_fini(&d);
}

static void policies_place_ranges_as_they_say(void **state)
{
    (void)state;
    static const struct {
        enum plim_address_policy policy;
        int64_t
            offsets[4]; /* in MiB; negative from the limit; the third is after freeing the first */
    } cases[] = {
        {PLIM_ADDRESS_FIRST_FIT, {0, 4, 0, 2}},
        {PLIM_ADDRESS_ASCENDING, {0, 4, 8, 10}},
        {PLIM_ADDRESS_FIRST_FIT_DOWN, {-4, -8, -2, -4}},
        {PLIM_ADDRESS_DESCENDING, {-4, -8, -10, -12}},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_devmodel d;
        device_make(&d, PLIM_GIB, cases[i].policy);
        for (size_t k = 0; k < 4; k++) {
            uint64_t addr = take(&d, (k < 2 ? 4 : 2) * MIB);
            int64_t want = cases[i].offsets[k];
            assert_int_equal(addr,
                             (want < 0 ? d.config.limit : BASE) + (uint64_t)(want * (int64_t)MIB));
            if (k == 1) { /* the first again */
                uint64_t first = cases[i].offsets[0] < 0 ? d.config.limit - 4 * MIB : BASE;
                assert_ok(plim_devmodel_free(&d, first, NULL));
            }
        }
        plim_devmodel_fini(&d);
    }
}

static void small_requests_share_a_page(void **state)
{
    (void)state;
    struct plim_devmodel d;
    device_make(&d, PLIM_GIB, PLIM_ADDRESS_FIRST_FIT);
    uint64_t a = take(&d, 1);
    uint64_t b = take(&d, 65);
    uint64_t c = take(&d, MIB);
    assert_int_equal(b - a, 512);
    assert_int_equal(c - a, 1024);
    assert_int_equal(d.used, 102 * MIB);
    assert_ok(plim_devmodel_free(&d, a, NULL));
    assert_ok(plim_devmodel_free(&d, c, NULL));
    assert_int_equal(d.used, 102 * MIB);
    assert_ok(plim_devmodel_free(&d, b, NULL));
    assert_int_equal(d.used, 100 * MIB);
    plim_devmodel_fini(&d);
}

static void a_failed_mapping_leaves_nothing_behind(void **state)
{
    (void)state;
    struct plim_devmodel d;
    uint64_t at = 0;
    device_make(&d, 200 * MIB, PLIM_ADDRESS_FIRST_FIT);
    assert_ok(plim_devmodel_reserve(&d, PLIM_GIB, &at, NULL));
    assert_int_equal(d.used, 100 * MIB);
    assert_true(plim_devmodel_map(&d, at, 20 * MIB, 4, true));
    assert_false(plim_devmodel_map(&d, at + 80 * MIB, 20 * MIB, 2, true));
    assert_int_equal(d.used, 180 * MIB);
    assert_int_equal(d.calls[PLIM_DRIVER_CREATE], 6);
    assert_int_equal(d.calls[PLIM_DRIVER_RELEASE], 1);
    assert_int_equal(d.calls[PLIM_DRIVER_MEM_GET_INFO], 1);
    plim_devmodel_unmap(&d, at, 20 * MIB, 4);
    assert_int_equal(d.used, 100 * MIB);
    assert_ok(plim_devmodel_unreserve(&d, at, NULL));
    plim_devmodel_fini(&d);
}

static void adopted_ranges_keep_their_addresses_to_themselves(void **state)
{
    (void)state;
    struct plim_devmodel d;
    device_make(&d, PLIM_GIB, PLIM_ADDRESS_FIRST_FIT);
    assert_ok(plim_devmodel_adopt(&d, BASE + 4 * MIB, 6 * MIB, false, 0, NULL));
    assert_int_equal(plim_devmodel_adopt(&d, BASE + 4 * MIB, 2 * MIB, false, 0, NULL), PLIM_E_DATA);
    assert_int_equal(plim_devmodel_adopt(&d, BASE + 64 * MIB, 2 * PLIM_GIB, false, 0, NULL),
                     PLIM_E_RANGE);
    assert_int_equal(d.used, 106 * MIB);
    assert_int_equal(take(&d, 4 * MIB), BASE);
    assert_int_equal(take(&d, 4 * MIB), BASE + 10 * MIB);
    assert_ok(plim_devmodel_free(&d, BASE + 4 * MIB, NULL));
    assert_int_equal(take(&d, 6 * MIB), BASE + 14 * MIB);
    assert_int_equal(d.used, 114 * MIB);
    plim_devmodel_fini(&d);
}

static void calls_cost_time(void **state)
{
    (void)state;
    struct plim_devmodel d;
    const struct plim_driver_cost *cost = plim_devmodel_default_costs();
    device_make(&d, PLIM_GIB, PLIM_ADDRESS_FIRST_FIT);
    take(&d, 20 * MIB);
    assert_int_equal(d.stall_ns, cost[PLIM_DRIVER_MALLOC].base_ns +
                                     UINT64_C(10) * cost[PLIM_DRIVER_MALLOC].per_page_ns);
    for (int i = 0; i < PLIM_DRIVER_CALL_COUNT; i++) {
        assert_true(cost[i].base_ns > 0);
        assert_non_null(plim_driver_call_text((enum plim_driver_call)i));
    }
    plim_devmodel_fini(&d);
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    struct plim_devmodel d;
    struct plim_devmodel_config config = {.total = MIB, .external = 2 * MIB};
    assert_int_equal(plim_devmodel_init(&d, &config, NULL), PLIM_E_RANGE);
    config = (struct plim_devmodel_config){.total = PLIM_GIB, .base = 4096};
    assert_int_equal(plim_devmodel_init(&d, &config, NULL), PLIM_E_RANGE);
    config = (struct plim_devmodel_config){.total = PLIM_GIB, .policy = PLIM_ADDRESS_SCRIPTED};
    assert_int_equal(plim_devmodel_init(&d, &config, NULL), PLIM_E_USAGE);
}

static void the_async_pool_keeps_what_it_has_until_it_is_trimmed(void **state)
{
    (void)state;
    struct plim_devmodel d;
    struct plim_async a;
    struct plim_conf conf;
    uint32_t block[3];
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    device_make(&d, 200 * MIB, PLIM_ADDRESS_FIRST_FIT);
    assert_ok(plim_async_init(&a, &conf, &d, NULL));
    assert_ok(plim_async_alloc(&a, 50 * MIB + 1, &block[0], NULL));
    assert_ok(plim_async_alloc(&a, 30 * MIB, &block[1], NULL));
    assert_int_equal(a.used, 80 * MIB + 512);
    assert_int_equal(a.reserved, 82 * MIB);
    assert_ok(plim_async_free(&a, block[0], NULL));
    assert_int_equal(plim_async_free(&a, block[0], NULL), PLIM_E_NOTFOUND);
    assert_int_equal(a.reserved, 82 * MIB);
    assert_ok(plim_async_alloc(&a, 71 * MIB, &block[2], NULL));
    assert_int_equal(block[2], 0); /* 30 + 71 MiB of 100 */
    assert_int_equal(a.num_ooms, 1);
    assert_int_equal(a.num_retries, 1);
    assert_ok(plim_async_alloc(&a, 70 * MIB, &block[2], NULL));
    assert_int_not_equal(block[2], 0);
    assert_ok(plim_async_free(&a, block[1], NULL));
    assert_ok(plim_async_free(&a, block[2], NULL));
    plim_async_empty_cache(&a);
    assert_int_equal(a.reserved, 0);
    assert_int_equal(plim_devmodel_free_bytes(&d), 100 * MIB);
    plim_async_fini(&a);
    plim_devmodel_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_counted_in_pages_and_end_at_the_total),
        cmocka_unit_test(policies_place_ranges_as_they_say),
        cmocka_unit_test(small_requests_share_a_page),
        cmocka_unit_test(a_failed_mapping_leaves_nothing_behind),
        cmocka_unit_test(adopted_ranges_keep_their_addresses_to_themselves),
        cmocka_unit_test(calls_cost_time),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(the_async_pool_keeps_what_it_has_until_it_is_trimmed),
    };
    return PLIM_RUN_TESTS("device model", tests);
}
