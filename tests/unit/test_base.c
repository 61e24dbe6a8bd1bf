/* SPDX-License-Identifier: Apache-2.0 */
/* The base layer end to end: each container once, so that a broken floor shows at once. */

#include "base/arena.h"
#include "base/bytes.h"
#include "base/intern.h"
#include "base/jsonw.h"
#include "base/map.h"
#include "unit.h"

static void arena_refuses_to_pass_its_budget(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_err err;
    void *p;
    plim_arena_init(&arena, 1000);
    assert_int_equal(plim_arena_alloc(&arena, 500, &p, &err), PLIM_OK);
    assert_int_equal(plim_arena_alloc(&arena, 600, &p, &err), PLIM_E_BUDGET);
    assert_true(arena.used <= 1000);
    plim_arena_fini(&arena);
}

static void map_deletes_without_losing_neighbours(void **state)
{
    (void)state;
    struct plim_map map = {0};
    for (uint64_t k = 0; k < 1000; k++) {
        assert_int_equal(plim_map_put(&map, k * 512, k, NULL), PLIM_OK);
    }
    for (uint64_t k = 0; k < 1000; k += 2) {
        uint64_t v;
        assert_true(plim_map_take(&map, k * 512, &v));
        assert_int_equal(v, k);
    }
    for (uint64_t k = 0; k < 1000; k++) {
        assert_int_equal(plim_map_get(&map, k * 512) != NULL, k % 2);
    }
    plim_map_fini(&map);
}

static void interned_strings_share_an_id(void **state)
{
    (void)state;
    struct plim_intern in;
    uint32_t a, b, c;
    plim_intern_init(&in, 0);
    assert_int_equal(plim_intern_put(&in, PLIM_STR("alloc"), &a, NULL), PLIM_OK);
    assert_int_equal(plim_intern_put(&in, PLIM_STR(""), &b, NULL), PLIM_OK);
    assert_int_equal(plim_intern_put(&in, PLIM_STR("alloc"), &c, NULL), PLIM_OK);
    assert_int_equal(a, c);
    assert_int_not_equal(a, b);
    assert_true(plim_str_eq(plim_intern_str(&in, a), PLIM_STR("alloc")));
    plim_intern_fini(&in);
}

static void sizes_are_read_as_binary_units(void **state)
{
    (void)state;
    uint64_t n;
    assert_int_equal(plim_bytes_parse(PLIM_STR("24GiB"), &n, NULL, NULL), PLIM_OK);
    assert_true(n == UINT64_C(24) << 30);
    assert_int_equal(plim_bytes_parse(PLIM_STR("1.5 gb"), &n, NULL, NULL), PLIM_OK);
    assert_true(n == UINT64_C(3) << 29);
    assert_int_equal(plim_bytes_parse(PLIM_STR("many"), &n, NULL, NULL), PLIM_E_USAGE);
    assert_int_equal(plim_bytes_parse(PLIM_STR("99999999999 GiB"), &n, NULL, NULL), PLIM_E_RANGE);
}

static void json_keeps_64_bits_and_repairs_utf8(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_u64(&w, "n", UINT64_MAX);
    plim_jsonw_kv_str(&w, "s", PLIM_STR("a\n\xff\x01"));
    plim_jsonw_end(&w);
    assert_string_equal(out.p, "{\"n\":18446744073709551615,\"s\":\"a\\n\xef\xbf\xbd\\u0001\"}\n");
    plim_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_refuses_to_pass_its_budget),
        cmocka_unit_test(map_deletes_without_losing_neighbours),
        cmocka_unit_test(interned_strings_share_an_id),
        cmocka_unit_test(sizes_are_read_as_binary_units),
        cmocka_unit_test(json_keeps_64_bits_and_repairs_utf8),
    };
    return PLIM_RUN_TESTS("base", tests);
}
