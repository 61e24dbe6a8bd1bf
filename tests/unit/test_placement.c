/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a placement: what is read, what is refused and where. */

#include "unit.h"

#include <plimsoll/placement.h>

#include <string.h>

static const char good[] = "# made by hand\n"
                           "plimsoll placement 1\n"
                           "lanes 2\n"
                           "requests 5\n"
                           "0 2097152 0\n"
                           "0 512 -\n"
                           "\n"
                           "1 4194304 512\n"
                           "0 3145728 2097152\n"
                           "0 2097152 2097152\n"
                           "end\n";

static bool parse(const char *text, struct plim_placement *p, struct plim_placement_fault *fault)
{
    return plim_placement_parse(text, strlen(text), p, fault);
}

static void a_text_is_read_and_indexed(void **state)
{
    (void)state;
    struct plim_placement p;
    struct plim_placement_fault fault;
    assert_true(parse(good, &p, &fault));
    assert_int_equal(p.n, 5);
    assert_int_equal(p.lanes, 2);
    assert_int_equal(p.requests[2].lane, 1);
    assert_int_equal(p.requests[1].place == PLIM_PLACEMENT_NONE, 1);
    assert_int_equal(p.height[0][0], 0);
    assert_int_equal(p.height[0][1], 5 << 20);
    assert_int_equal(p.height[1][1], (4 << 20) + 512);
    assert_int_equal(p.ranks[0][1], 2);
    assert_int_equal(p.requests[3].rank, 1);
    assert_int_equal(p.requests[4].rank, 1);
    uint64_t sizes[PLIM_PLACEMENT_GRAM] = {512, 4 << 20, 3 << 20, 2 << 20};
    assert_int_equal(p.gram[4], plim_placement_gram(sizes));
    for (uint32_t i = 1; i < p.n; i++) {
        assert_true(p.gram[p.by_gram[i - 1]] <= p.gram[p.by_gram[i]]);
    }
    plim_placement_free(&p);
}

static void every_beginning_of_a_text_is_refused(void **state)
{
    (void)state;
    struct plim_placement p;
    struct plim_placement_fault fault;
    for (size_t n = 0; n + 1 < strlen(good); n++) { /* the last line end may be missing */
        assert_false(plim_placement_parse(good, n, &p, &fault));
        assert_non_null(fault.what);
    }
    assert_true(plim_placement_parse(good, strlen(good) - 1, &p, &fault));
    plim_placement_free(&p);
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
        {"plimsoll placement 2\nlanes 1\n", 1, "first line"},
        {"plimsoll placement 1\nrequests 1\n", 2, "lanes"},
        {"plimsoll placement 1\nlanes 17\nrequests 1\n0 512 0\nend\n", 2, "too large"},
        {"plimsoll placement 1\nlanes 1\nrequests 0\nend\n", 3, "0"},
        {"plimsoll placement 1\nlanes 1\nrequests 1048577\nend\n", 3, "too large"},
        {"plimsoll placement 1\nlanes 1\nrequests 1000\nend\n", 3, "too short"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n1 512 0\nend\n", 4, "lane"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 500 0\nend\n", 4, "size"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 0 0\nend\n", 4, "size"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 512 5\nend\n", 4, "place"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 512 0 0\nend\n", 4, "place"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 512\nend\n", 4, "place"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 512 70368744177664\nend\n", 4, "place"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 99999999999999999999 0\nend\n", 4, "size"},
        {"plimsoll placement 1\nlanes 1\nrequests 1\n0 512 0\n0 512 0\nend\n", 5, "end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plim_placement p;
        struct plim_placement_fault fault;
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
    return PLIM_RUN_TESTS("placement", tests);
}
