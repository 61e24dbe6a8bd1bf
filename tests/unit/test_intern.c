/* SPDX-License-Identifier: Apache-2.0 */
/* Interner: ids in order of appearance, bytes that stay, budget, failure. */

#include "base/intern.h"
#include "fail_alloc.h"
#include "unit.h"

#include <stdio.h>

static void equal_bytes_get_equal_ids_in_order_of_appearance(void **state)
{
    (void)state;
    struct plim_intern in;
    const char *words[] = {"alloc", "", "free", "alloc", "Alloc", "", "free\n"};
    uint32_t wanted[] = {0, 1, 2, 0, 3, 1, 4};
    plim_intern_init(&in, 0);
    for (size_t i = 0; i < PLIM_COUNT_OF(words); i++) {
        uint32_t id;
        assert_ok(plim_intern_put(&in, plim_str_from(words[i]), &id, NULL));
        assert_int_equal(id, wanted[i]);
    }
    assert_int_equal(plim_intern_find(&in, PLIM_STR("free")), 2);
    assert_int_equal(plim_intern_find(&in, PLIM_STR("frees")), PLIM_NO_ID);
    plim_intern_fini(&in);
}

static void strings_with_nul_bytes_are_told_apart(void **state)
{
    (void)state;
    struct plim_intern in;
    uint32_t a, b;
    plim_intern_init(&in, 0);
    assert_ok(plim_intern_put(&in, PLIM_STR("a\0b"), &a, NULL));
    assert_ok(plim_intern_put(&in, PLIM_STR("a\0c"), &b, NULL));
    assert_int_not_equal(a, b);
    assert_int_equal(plim_intern_str(&in, a).n, 3);
    plim_intern_fini(&in);
}

static void the_bytes_stay_where_they_are_while_it_grows(void **state)
{
    (void)state;
    struct plim_intern in;
    uint32_t first, id;
    plim_intern_init(&in, 0);
    assert_ok(plim_intern_put(&in, PLIM_STR("/usr/lib/python3/site.py"), &first, NULL));
    struct plim_str kept = plim_intern_str(&in, first);
    for (int i = 0; i < 100000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "file-%d.py", i);
        assert_ok(plim_intern_put(&in, plim_str_from(name), &id, NULL));
        assert_int_equal(id, i + 1);
    }
    assert_ptr_equal(plim_intern_str(&in, first).p, kept.p);
    assert_string_equal(kept.p, "/usr/lib/python3/site.py");
    assert_int_equal(plim_intern_find(&in, PLIM_STR("file-77777.py")), 77778);
    plim_intern_fini(&in);
}

static void an_unknown_id_is_an_empty_string(void **state)
{
    (void)state;
    struct plim_intern in;
    plim_intern_init(&in, 0);
    assert_int_equal(plim_intern_str(&in, 0).n, 0);
    assert_int_equal(plim_intern_str(&in, PLIM_NO_ID).n, 0);
    assert_int_equal(plim_intern_find(&in, PLIM_STR("x")), PLIM_NO_ID);
    plim_intern_fini(&in);
}

static void the_budget_of_bytes_holds_and_old_strings_remain(void **state)
{
    (void)state;
    struct plim_intern in;
    char big[100000];
    uint32_t id;
    memset(big, 'b', sizeof(big));
    plim_intern_init(&in, 80000);
    assert_ok(plim_intern_put(&in, PLIM_STR("small"), &id, NULL));
    assert_int_equal(plim_intern_put(&in, (struct plim_str){big, sizeof(big)}, &id, NULL),
                     PLIM_E_BUDGET);
    assert_int_equal(plim_intern_find(&in, PLIM_STR("small")), 0);
    assert_ok(plim_intern_put(&in, PLIM_STR("next"), &id, NULL));
    assert_int_equal(id, 1);
    plim_intern_fini(&in);
}

static enum plim_status put_many(void *arg)
{
    (void)arg;
    struct plim_intern in;
    enum plim_status st = PLIM_OK;
    plim_intern_init(&in, 0);
    for (int i = 0; st == PLIM_OK && i < 1000; i++) {
        char name[32];
        uint32_t id;
        snprintf(name, sizeof(name), "%d", i);
        st = plim_intern_put(&in, plim_str_from(name), &id, NULL);
        if (st == PLIM_E_NOMEM) {
            /* A failed put has changed nothing: the string is absent and can be put again. */
            assert_int_equal(plim_intern_find(&in, plim_str_from(name)), PLIM_NO_ID);
            assert_int_equal(in.strs.n, i);
            assert_int_equal(in.hashes.n, i);
        }
    }
    plim_intern_fini(&in);
    return st;
}

static void every_failed_allocation_leaves_it_whole(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(put_many, NULL, 200, false) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_bytes_get_equal_ids_in_order_of_appearance),
        cmocka_unit_test(strings_with_nul_bytes_are_told_apart),
        cmocka_unit_test(the_bytes_stay_where_they_are_while_it_grows),
        cmocka_unit_test(an_unknown_id_is_an_empty_string),
        cmocka_unit_test(the_budget_of_bytes_holds_and_old_strings_remain),
        cmocka_unit_test(every_failed_allocation_leaves_it_whole),
    };
    return PLIM_RUN_TESTS("intern", tests);
}
