/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses from one table, and errors that say what, where and what next. */

#include "unit.h"

#include <errno.h>
#include <string.h>

static void every_status_has_a_name_a_text_and_codes(void **state)
{
    (void)state;
    for (int i = 0; i < PLIM_STATUS_COUNT; i++) {
        enum plim_status st = (enum plim_status)i;
        assert_true(strlen(plim_status_name(st)) > 1);
        assert_true(strlen(plim_status_text(st)) > 3);
        assert_true(st == PLIM_OK ? plim_status_exit(st) == 0
                                  : plim_status_exit(st) >= 64 && plim_status_exit(st) <= 78);
        assert_true(plim_status_http(st) >= 200 && plim_status_http(st) < 600);
    }
}

static void an_unknown_status_is_an_internal_error(void **state)
{
    (void)state;
    enum plim_status st = (enum plim_status)999;
    assert_string_equal(plim_status_name(st), "E_INTERNAL");
    assert_int_equal(plim_status_exit(st), 70);
}

static void numbers_of_statuses_stay_as_they_are(void **state)
{
    (void)state;
    assert_int_equal(PLIM_OK, 0);
    assert_int_equal(PLIM_E_USAGE, 1);
    assert_int_equal(PLIM_E_DATA, 2);
    assert_int_equal(PLIM_E_NOTFOUND, 14);
}

static void fail_fills_the_error_and_returns_the_status(void **state)
{
    (void)state;
    struct plim_err err;
    memset(&err, 0xee, sizeof(err));
    assert_int_equal(plim__fail(&err, PLIM_E_DATA, "block %d is odd", 3), PLIM_E_DATA);
    assert_int_equal(err.status, PLIM_E_DATA);
    assert_int_equal(err.os_errno, 0);
    assert_true(err.pos == PLIM_POS_NONE);
    assert_string_equal(err.message, "block 3 is odd");
    assert_string_equal(err.where, "");
    assert_string_equal(err.hint, "");
}

static void control_characters_do_not_reach_a_terminal(void **state)
{
    (void)state;
    struct plim_err err;
    plim__err_set(&err, PLIM_E_DATA, "class '%s'",
                  "a\x1b[31m\r\n\x7f\xc2\x9b"
                  "2J caf\xc3\xa9 \xc2\xb5");
    assert_string_equal(err.message, "class 'a?[31m??"
                                     "???2J caf\xc3\xa9 \xc2\xb5'");
    plim__err_where(&err, "%s", "x\ty");
    plim__err_hint(&err, "%s", "\x1bz");
    assert_string_equal(err.where, "x?y");
    assert_string_equal(err.hint, "?z");
    plim__err_set_errno(&err, PLIM_E_IO, ENOENT, "cannot open '%s'", "\x1b]0;t\a");
    assert_non_null(strstr(err.message, "cannot open '?]0;t?': No such"));
}

static void a_null_error_is_allowed_everywhere(void **state)
{
    (void)state;
    assert_int_equal(plim__fail(NULL, PLIM_E_IO, "x"), PLIM_E_IO);
    assert_int_equal(plim__fail_errno(NULL, PLIM_E_IO, EIO, "x"), PLIM_E_IO);
    plim__err_at(NULL, 1);
    plim__err_where(NULL, "x");
    plim__err_hint(NULL, "x");
    plim_err_clear(NULL);
}

static void a_system_error_carries_its_number_and_text(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(plim__fail_errno(&err, PLIM_E_NOINPUT, ENOENT, "cannot open '%s'", "f"),
                     PLIM_E_NOINPUT);
    assert_int_equal(err.os_errno, ENOENT);
    assert_string_equal(err.message, "cannot open 'f': No such file or directory");
}

static void long_messages_are_cut_not_overrun(void **state)
{
    (void)state;
    struct plim_err err;
    char lots[2000];
    memset(lots, 'x', sizeof(lots) - 1);
    lots[sizeof(lots) - 1] = '\0';
    plim__fail_errno(&err, PLIM_E_DATA, EIO, "%s", lots);
    plim__err_where(&err, "%s", lots);
    plim__err_hint(&err, "%s", lots);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_int_equal(strlen(err.where), sizeof(err.where) - 1);
    assert_int_equal(strlen(err.hint), sizeof(err.hint) - 1);
}

static void the_text_for_people_has_place_position_message_and_hint(void **state)
{
    (void)state;
    struct plim_err err;
    char buf[256];
    plim__fail(&err, PLIM_E_UNSAFE, "opcode REDUCE is refused");
    assert_int_equal(plim_err_format(&err, buf, sizeof(buf)), 24);
    assert_string_equal(buf, "opcode REDUCE is refused");
    plim__err_where(&err, "s.pickle: byte");
    plim__err_at(&err, 77);
    plim__err_hint(&err, "it could run code");
    plim_err_format(&err, buf, sizeof(buf));
    assert_string_equal(buf, "s.pickle: byte 77: opcode REDUCE is refused\nit could run code");
    assert_true(plim_err_format(&err, buf, 10) > 10);
    assert_string_equal(buf, "s.pickle:");
}

static enum plim_status gives_up_at(int n, int *reached)
{
    for (*reached = 0; *reached < 10; (*reached)++) {
        PLIM_TRY(*reached == n ? PLIM_E_RANGE : PLIM_OK);
    }
    return PLIM_OK;
}

static void try_leaves_at_the_first_failure(void **state)
{
    (void)state;
    int reached;
    assert_int_equal(gives_up_at(4, &reached), PLIM_E_RANGE);
    assert_int_equal(reached, 4);
    assert_ok(gives_up_at(-1, &reached));
    assert_int_equal(reached, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_a_text_and_codes),
        cmocka_unit_test(an_unknown_status_is_an_internal_error),
        cmocka_unit_test(numbers_of_statuses_stay_as_they_are),
        cmocka_unit_test(fail_fills_the_error_and_returns_the_status),
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
        cmocka_unit_test(a_null_error_is_allowed_everywhere),
        cmocka_unit_test(a_system_error_carries_its_number_and_text),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(the_text_for_people_has_place_position_message_and_hint),
        cmocka_unit_test(try_leaves_at_the_first_failure),
    };
    return PLIM_RUN_TESTS("err", tests);
}
