/* SPDX-License-Identifier: Apache-2.0 */
/* Borrowed strings: comparing, searching, skipping, trimming, with empty and NUL-holding ones. */

#include "base/str.h"
#include "unit.h"

static void comparison_looks_at_bytes_not_at_nul(void **state)
{
    (void)state;
    assert_true(plim_str_eq(PLIM_STR("a\0b"), PLIM_STR("a\0b")));
    assert_false(plim_str_eq(PLIM_STR("a\0b"), PLIM_STR("a\0c")));
    assert_false(plim_str_eq(PLIM_STR("a"), PLIM_STR("ab")));
    assert_true(plim_str_eq((struct plim_str){NULL, 0}, PLIM_STR("")));
}

static void starts_wants_the_whole_prefix(void **state)
{
    (void)state;
    assert_true(plim_str_starts(PLIM_STR("CUDA out"), PLIM_STR("CUDA")));
    assert_true(plim_str_starts(PLIM_STR("x"), PLIM_STR("")));
    assert_true(plim_str_ends(PLIM_STR("a.py"), PLIM_STR(".py")));
    assert_true(plim_str_ends(PLIM_STR(""), PLIM_STR("")));
    assert_false(plim_str_ends(PLIM_STR("py"), PLIM_STR(".py")));
    assert_false(plim_str_ends(PLIM_STR("a.pyc"), PLIM_STR(".py")));
    assert_true(plim_ends_with("x.gguf", ".gguf"));
    assert_false(plim_str_starts(PLIM_STR("CU"), PLIM_STR("CUDA")));
    assert_true(plim_str_starts((struct plim_str){NULL, 0}, (struct plim_str){NULL, 0}));
}

static void skip_stops_at_the_end(void **state)
{
    (void)state;
    assert_true(plim_str_eq(plim_str_skip(PLIM_STR("abc"), 2), PLIM_STR("c")));
    assert_int_equal(plim_str_skip(PLIM_STR("abc"), 99).n, 0);
}

static const struct {
    struct plim_str s, needle;
    size_t at;
} finds[] = {
    {{"abcabc", 6}, {"c", 1}, 2},
    {{"abcabc", 6}, {"abc", 3}, 0},
    {{"abcabc", 6}, {"cab", 3}, 2},
    {{"abcabc", 6}, {"abcabc", 6}, 0},
    {{"abcabc", 6}, {"abcabcd", 7}, SIZE_MAX},
    {{"abcabc", 6}, {"x", 1}, SIZE_MAX},
    {{"aaab", 4}, {"aab", 3}, 1},
    {{"abc", 3}, {"", 0}, 0},
    {{"", 0}, {"", 0}, 0},
    {{"", 0}, {"a", 1}, SIZE_MAX},
    {{"a\0b", 3}, {"\0b", 2}, 1},
    {{"abcX", 3}, {"X", 1}, SIZE_MAX},
};

static void find_gives_the_first_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(finds); i++) {
        assert_true(plim_str_find(finds[i].s, finds[i].needle) == finds[i].at);
    }
}

static void trim_takes_blanks_off_both_ends(void **state)
{
    (void)state;
    assert_true(plim_str_eq(plim_str_trim(PLIM_STR(" \t a b\r\n")), PLIM_STR("a b")));
    assert_int_equal(plim_str_trim(PLIM_STR(" \n\t ")).n, 0);
    assert_int_equal(plim_str_trim(PLIM_STR("")).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_looks_at_bytes_not_at_nul),
        cmocka_unit_test(starts_wants_the_whole_prefix),
        cmocka_unit_test(skip_stops_at_the_end),
        cmocka_unit_test(find_gives_the_first_place),
        cmocka_unit_test(trim_takes_blanks_off_both_ends),
    };
    return PLIM_RUN_TESTS("str", tests);
}
