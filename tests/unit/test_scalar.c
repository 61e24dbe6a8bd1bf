/* SPDX-License-Identifier: Apache-2.0 */
/* Single values, near words and settings files. */

#include "unit.h"

#include "base/ini.h"
#include "base/near.h"
#include "base/scalar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void durations_have_units_and_a_bare_number_is_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"90", 90000000000U}, {"250ms", 250000000U}, {"1.5h", 5400000000000U}, {"0", 0}};
    static const char *const bad[] = {"", "s", "-1s", "1 s", "1y", "99999999999999d", "nan"};
    uint64_t ns = 7;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(plim_duration_parse(good[i].text, &ns));
        assert_int_equal(ns, good[i].ns);
    }
    ns = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_false(plim_duration_parse(bad[i], &ns));
    }
    assert_int_equal(ns, 7);
}

static void times_and_durations_are_written_for_people(void **state)
{
    (void)state;
    char time[PLIM_TIME_TEXT];
    char text[PLIM_DURATION_TEXT];
    assert_string_equal(plim_time_format(time, 1700000000123456789U), "2023-11-14T22:13:20.123Z");
    assert_string_equal(plim_time_format(time, 0), "1970-01-01T00:00:00.000Z");
    assert_string_equal(plim_duration_format(text, 0.85), "850 ms");
    assert_string_equal(plim_duration_format(text, 42), "42 s");
    assert_string_equal(plim_duration_format(text, 720), "12 min");
    assert_string_equal(plim_duration_format(text, 12600), "3.5 h");
    assert_string_equal(plim_duration_format(text, 181440), "2.1 days");
}

static void a_choice_is_a_whole_word(void **state)
{
    (void)state;
    assert_true(plim_choice_offers("text|json", "json"));
    assert_false(plim_choice_offers("text|json", "js"));
    assert_false(plim_choice_offers("text|json", ""));
    assert_false(plim_choice_offers(NULL, "text"));
}

static void swapped_letters_are_nearer_than_others(void **state)
{
    (void)state;
    assert_int_equal(plim_near("interavl", "interval"), 1);
    assert_int_equal(plim_near("inter", "interval"), 0);
    assert_int_equal(plim_near("listen", "interval"), PLIM_NEAR_MAX);
}

/* Writes what it is given as "section.key=value@line;". */
static enum plim_status note(void *user, const char *section, const char *key, const char *value,
                             int line, struct plim_err *err)
{
    char *text = user;
    if (strcmp(key, "bad") == 0) {
        return plim__fail(err, PLIM_E_RANGE, "bad");
    }
    size_t n = strlen(text);
    snprintf(text + n, 400 - n, "%s.%s=%s@%d;", section, key, value, line);
    return PLIM_OK;
}

static enum plim_status read_ini(const char *content, char out[400], struct plim_err *err)
{
    char path[] = "/tmp/plimsoll-ini-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    (void)close(fd);
    out[0] = '\0';
    plim_err_clear(err);
    enum plim_status st = plim_ini_read(path, note, out, err);
    (void)unlink(path);
    return st;
}

static void entries_of_a_settings_file_know_their_lines(void **state)
{
    (void)state;
    char out[400];
    struct plim_err err;
    assert_int_equal(read_ini("# c\na = 1\n\n[x y]\n b=2 ; c\n; c\n\tc = 3 = 4", out, &err),
                     PLIM_OK);
    assert_string_equal(out, ".a=1@2;x y.b=2@5;x y.c=3 = 4@7;");
}

static void errors_in_a_settings_file_name_their_line(void **state)
{
    (void)state;
    char out[400];
    char content[400];
    struct plim_err err;
    assert_int_equal(read_ini("a = 1\nnonsense\n", out, &err), PLIM_E_USAGE);
    assert_non_null(strstr(err.where, ":2"));
    assert_int_equal(read_ini("a = 1\n\nbad = 2\nc = 3\n", out, &err), PLIM_E_RANGE);
    assert_non_null(strstr(err.where, ":3"));
    assert_string_equal(out, ".a=1@1;");
    snprintf(content, sizeof(content), "a = 1\nb = %0300d\n", 1);
    assert_int_equal(read_ini(content, out, &err), PLIM_E_USAGE);
    assert_non_null(strstr(err.where, ":2"));
    assert_non_null(strstr(err.message, "longer"));
    snprintf(content, sizeof(content), "[%060d]\nb = 1\n", 1);
    assert_int_equal(read_ini(content, out, &err), PLIM_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_units_and_a_bare_number_is_seconds),
        cmocka_unit_test(times_and_durations_are_written_for_people),
        cmocka_unit_test(a_choice_is_a_whole_word),
        cmocka_unit_test(swapped_letters_are_nearer_than_others),
        cmocka_unit_test(entries_of_a_settings_file_know_their_lines),
        cmocka_unit_test(errors_in_a_settings_file_name_their_line),
    };
    return PLIM_RUN_TESTS("scalar", tests);
}
