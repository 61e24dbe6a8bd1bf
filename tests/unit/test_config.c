/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's settings file: values, defaults, and errors that say where and what instead. */

#include "fail_alloc.h"
#include "unit.h"
#include "watch/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/plimsoll-settings-XXXXXX";

static void write_file(const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void without_a_file_there_are_the_defaults(void **state)
{
    (void)state;
    struct plim_settings *s = NULL;
    assert_ok(plim_settings_read(NULL, &s, NULL));
    assert_int_equal(s->watch.n, 1);
    assert_int_equal(s->alert.n, 0);
    assert_false(s->watch.items[0].interval.given);
    assert_true(s->watch.items[0].default_alerts);
    plim_settings_free(s);
}

static void sections_of_one_kind_are_told_apart_by_name(void **state)
{
    (void)state;
    struct plim_settings *s = NULL;
    write_file("[notify a]\nkind = webhook\nurl = http://h/\n"
               "[alert hot]\nfigure = device.temperature_celsius\nabove = 90\nfor = 90s\n"
               "notify = a, b  c\n[notify b]\nkind = email\n[watch]\ninterval = 250ms\n");
    assert_ok(plim_settings_read(path, &s, NULL));
    assert_int_equal(s->watch.items[0].interval.value, 250000000);
    assert_int_equal(s->notify.n, 2);
    assert_string_equal(s->notify.items[1].name, "b");
    assert_string_equal(s->notify.items[1].kind, "email");
    assert_true(s->notify.items[1].timeout.given); /* the default of a row */
    assert_int_equal(s->notify.items[1].line, 10);
    assert_int_equal(s->alert.items[0].hold.value, UINT64_C(90000000000));
    assert_true(s->alert.items[0].above.given && s->alert.items[0].above.value == 90.0);
    assert_false(s->alert.items[0].below.given);
    assert_int_equal(s->alert.items[0].notify.n, 3);
    assert_string_equal(s->alert.items[0].notify.items[2], "c");
    plim_settings_free(s);
}

static const struct {
    const char *text;
    int line;
    const char *says; /* in the message or the hint */
} mistakes[] = {
    {"[watch]\n\ninteravl = 1s\n", 3, "did you mean 'interval'"},
    {"[wacth]\ninterval = 1s\n", 2, "did you mean [watch]"},
    {"interval = 1s\n", 1, "before the first [section]"},
    {"[notify]\nkind = email\n", 2, "needs a name"},
    {"[watch x]\ninterval = 1s\n", 2, "has no name"},
    {"[watch]\ninterval = soon\n", 2, "not a duration"},
    {"[notify a]\nkind = pigeon\n", 2, "webhook|alertmanager|email|script"},
    {"[alert a]\nabove = much\n", 2, "not a number"},
    {"[alert a]\noff = perhaps\n", 2, "yes or no"},
    {"[alert a]\nabove = 1\nabove = 2\n", 3, "second time"},
    {"[alert a]\nabove = 1\n[alert b]\nabove = 2\n[alert a]\nabove = 3\n", 6, "second time"},
    {"[alert a]\nnotify = ,\n", 2, "no word"},
    {"[watch]\nnonsense\n", 2, "key = value"},
};

static void mistakes_are_told_with_their_line_and_what_to_write_instead(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(mistakes); i++) {
        struct plim_settings *s = NULL;
        struct plim_err err = {0};
        char place[24];
        write_file(mistakes[i].text);
        assert_int_equal(plim_settings_read(path, &s, &err), PLIM_E_USAGE);
        snprintf(place, sizeof(place), ":%d", mistakes[i].line);
        assert_non_null(strstr(err.where, place));
        assert_true(strstr(err.message, mistakes[i].says) || strstr(err.hint, mistakes[i].says));
        assert_null(s);
    }
}

/* The example with all that is commented out put in force. */
static void every_setting_of_the_example_is_accepted(void **state)
{
    (void)state;
    struct plim_settings *s = NULL;
    struct plim_buf example = {0};
    plim_settings_example(&example);
    assert_ok(plim_buf_status(&example, NULL));
    for (char *p = example.p; p != NULL; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (p[0] == '#' && p[1] != ' ') {
            *p = ' ';
        }
    }
    write_file(example.p);
    struct plim_err err = {0};
    enum plim_status st = plim_settings_read(path, &s, &err);
    assert_string_equal(err.message, "");
    assert_ok(st);
    assert_string_equal(s->notify.items[0].name, "NAME");
    assert_true(s->alert.items[0].left_below.given);
    plim_settings_free(s);
    plim_buf_fini(&example);
}

static enum plim_status read_once(void *arg)
{
    (void)arg;
    struct plim_settings *s = NULL;
    PLIM_TRY(plim_settings_read(path, &s, NULL));
    plim_settings_free(s);
    return PLIM_OK;
}

static void running_out_of_memory_is_an_error_and_no_leak(void **state)
{
    (void)state;
    write_file("[notify a]\nkind = email\nto = x, y\n[alert b]\nfinding = any\n");
    assert_true(fail_alloc_sweep(read_once, NULL, 100, false) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_there_are_the_defaults),
        cmocka_unit_test(sections_of_one_kind_are_told_apart_by_name),
        cmocka_unit_test(mistakes_are_told_with_their_line_and_what_to_write_instead),
        cmocka_unit_test(every_setting_of_the_example_is_accepted),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_no_leak),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("config", tests, make_file, remove_file);
}
