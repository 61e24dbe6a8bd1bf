/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a seating: what is read, what is refused and where. */

#include "unit.h"

#include <plimsoll/seating.h>

#include <string.h>

static const char good[] = "# made by hand\n"
                           "plimsoll seating 1\n"
                           "lanes 2\n"
                           "requests 5\n"
                           "repeat 2\n"
                           "0 2097152 0\n"
                           "0 512 -\n"
                           "\n"
                           "1 4194304 512\n"
                           "0 3145728 2097152\n"
                           "0 2097152 2097152\n"
                           "end\n";

static bool parse(const char *text, struct plim_seating *p, struct plim_seating_fault *fault)
{
    return plim_seating_parse(text, strlen(text), p, fault);
}

static void a_text_is_read_and_indexed(void **state)
{
    (void)state;
    struct plim_seating p;
    struct plim_seating_fault fault;
    assert_true(parse(good, &p, &fault));
    assert_int_equal(p.n, 5);
    assert_int_equal(p.lanes, 2);
    assert_int_equal(p.requests[2].lane, 1);
    assert_int_equal(p.requests[1].place == PLIM_SEATING_NONE, 1);
    assert_int_equal(p.height[0][0], 0);
    assert_int_equal(p.height[0][1], 5 << 20);
    assert_int_equal(p.height[1][1], (4 << 20) + 512);
    assert_int_equal(p.ranks[0][1], 2);
    assert_int_equal(p.requests[3].rank, 1);
    assert_int_equal(p.requests[4].rank, 1);
    static const uint64_t sizes[5][PLIM_SEATING_GRAM] = {
        {0, 0, 0, 2 << 20}, /* the first of all */
        {0, 0, 2 << 20, 512},
        {4 << 20, 3 << 20, 2 << 20, 4 << 20}, /* before the first of the period is its last */
        {3 << 20, 2 << 20, 4 << 20, 3 << 20},
        {2 << 20, 4 << 20, 3 << 20, 2 << 20},
    };
    for (uint32_t i = 0; i < p.n; i++) {
        assert_int_equal(p.gram[i], plim_seating_gram(sizes[i]));
    }
    for (uint32_t i = 1; i < p.n; i++) {
        assert_true(p.gram[p.by_gram[i - 1]] <= p.gram[p.by_gram[i]]);
    }
    plim_seating_free(&p);
}

static void every_beginning_of_a_text_is_refused(void **state)
{
    (void)state;
    struct plim_seating p;
    struct plim_seating_fault fault;
    for (size_t n = 0; n + 1 < strlen(good); n++) { /* the last line end may be missing */
        assert_false(plim_seating_parse(good, n, &p, &fault));
        assert_non_null(fault.what);
    }
    assert_true(plim_seating_parse(good, strlen(good) - 1, &p, &fault));
    plim_seating_free(&p);
}

static void what_is_wrong_is_said_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t line;
        const char *says;
    } cases[] = {
        {"hello\n", 1, "first line"},
        {"plimsoll seating 2\nlanes 1\n", 1, "first line"},
        {"plimsoll seating 1\nrequests 1\n", 2, "lanes"},
        {"plimsoll seating 1\nlanes 17\nrequests 1\n", 2, "too large"},
        {"plimsoll seating 1\nlanes 1\nrequests 0\nrepeat 0\nend\n", 3, "too small"},
        {"plimsoll seating 1\nlanes 1\nrequests 1048577\n", 3, "too large"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 1\n0 512 0\nend\n", 4, "too large"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\n0 512 0\nend\n", 4, "repeat"},
        {"plimsoll seating 1\nlanes 1\nrequests 1000\nrepeat 0\nend\n", 4, "too short"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n1 512 0\nend\n", 5, "lane"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 500 0\nend\n", 5, "size"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 0 0\nend\n", 5, "size"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 512 5\nend\n", 5, "place"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 512 0 0\nend\n", 5, "place"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 512\nend\n", 5, "place"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 512 70368744177664\nend\n", 5,
         "place"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 99999999999999999999 0\nend\n", 5,
         "size"},
        {"plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 512 0\n0 512 0\nend\n", 6, "end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plim_seating p;
        struct plim_seating_fault fault;
        assert_false(parse(cases[i].text, &p, &fault));
        assert_int_equal(fault.line, cases[i].line);
        assert_non_null(strstr(fault.what, cases[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_read_and_indexed),
        cmocka_unit_test(every_beginning_of_a_text_is_refused),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
    };
    return PLIM_RUN_TESTS("seating", tests);
}
