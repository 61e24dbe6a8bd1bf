/* SPDX-License-Identifier: Apache-2.0 */
/* Alerts: when they fire and end, what receivers are owed, and what survives. Time is the test's. */

#include "unit.h"
#include "watch/alert_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define EPOCH  (UINT64_C(1800000000) * SECOND)

/* A monitor without threads: one device, one process, one engine. */
struct world {
    struct plim_alert_list list;
    struct plim_alert_book *book;
    struct plim_observation now;
    struct plim_finding findings[600];
    size_t n_findings;
    uint64_t time; /* since the test began */
};

static enum plim_status read_book(const char *text, struct plim_alert_book **out,
                                  struct plim_err *err)
{
    char path[] = "/tmp/plimsoll-alert-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
    struct plim_settings *settings = NULL;
    enum plim_status st = plim_settings_read(path, &settings, err);
    if (st == PLIM_OK) {
        st = plim__alert_book(settings, out, err);
        plim_settings_free(settings);
    }
    (void)unlink(path);
    return st;
}

static struct world *new_world(const char *settings)
{
    struct world *w = calloc(1, sizeof(*w));
    struct plim_err err = {0};
    assert_non_null(w);
    if (read_book(settings, &w->book, &err) != PLIM_OK) {
        fail_msg("%s: %s %s", err.where, err.message, err.hint);
    }
    struct plim_device_sample device = {.uuid = "GPU-1", .name = "Some GPU", .pci = "0000:41:00.0"};
    plim_set_figure(&device, PLIM_FIGURE_TOTAL, 100);
    plim_set_figure(&device, PLIM_FIGURE_USED, 10);
    assert_ok(plim_vec_push(&w->now.sample.devices, NULL, device));
    assert_ok(
        plim_vec_push(&w->now.engines, NULL, (struct plim_engine_now){.name = "e", .up = true}));
    return w;
}

static void free_world(struct world *w)
{
    plim__alert_list_fini(&w->list);
    plim__alert_book_free(w->book);
    plim_observation_fini(&w->now);
    free(w);
}

static uint64_t wall(const struct world *w)
{
    return EPOCH + w->time;
}

/* Steps of ten seconds for so long. */
static void pass(struct world *w, uint64_t ns)
{
    for (uint64_t end = w->time + ns; w->time < end;) {
        w->time += 10 * SECOND;
        w->now.mono_ns = HOUR + w->time;
        (void)plim__alerts_judge(&w->list, w->book, &w->now, wall(w), w->findings, w->n_findings);
    }
}

static struct plim_finding *find_leak(struct world *w)
{
    struct plim_finding *f = &w->findings[0];
    *f = (struct plim_finding){.class = PLIM_FINDING_LEAK,
                               .severity = PLIM_SEVERITY_WARNING,
                               .active = true,
                               .confidence = 0.9,
                               .subject = {.device_uuid = "GPU-1", .pid = 7, .process = "python"},
                               .summary = "python leaks"};
    w->n_findings = 1;
    return f;
}

static const struct plim_alert *only(const struct world *w)
{
    assert_int_equal(w->list.alerts.n, 1);
    return w->list.alerts.items[0];
}

/* The first receiver is told now what it is owed; false: nothing. */
static bool told(struct world *w)
{
    const struct plim_receiver *r = &w->book->receivers.items[0];
    bool any = false;
    plim_vec_foreach (alert, &w->list.alerts) {
        if (plim__alert_due(&w->list, w->book, *alert, r, wall(w)) <= wall(w)) {
            plim__alert_tell(*alert, *alert, r->hash, wall(w));
            any = true;
        }
    }
    return any;
}

#define RECEIVER "[notify n]\nkind = webhook\nurl = http://127.0.0.1/\n"

static void a_leak_is_told_when_it_lasted_and_its_end_when_that_lasted(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    struct plim_finding *f = find_leak(w);
    pass(w, 4 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_PENDING);
    assert_false(told(w));
    pass(w, 2 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    assert_true(told(w));
    assert_false(told(w));
    f->active = false;
    pass(w, 10 * MINUTE);
    f->active = true; /* a short break does not end it */
    pass(w, MINUTE);
    f->active = false;
    pass(w, 14 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    assert_false(told(w));
    pass(w, 2 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    assert_true(told(w));
    assert_false(told(w));
    pass(w, HOUR + MINUTE);
    assert_int_equal(w->list.alerts.n, 0);
    free_world(w);
}

static void what_passes_by_itself_wakes_nobody(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    struct plim_finding *f = find_leak(w);
    pass(w, 4 * MINUTE);
    f->active = false;
    pass(w, MINUTE);
    assert_int_equal(w->list.alerts.n, 0);
    f->active = true;
    f->confidence = 0.5;
    pass(w, HOUR);
    f->confidence = 0.9;
    f->class = PLIM_FINDING_CACHE_GROWTH; /* a notice */
    f->severity = PLIM_SEVERITY_NOTICE;
    pass(w, HOUR);
    assert_int_equal(w->list.alerts.n, 0);
    free_world(w);
}

static void memory_that_is_out_soon_is_critical_whatever_the_cause(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    struct plim_finding *f = find_leak(w);
    f->class = PLIM_FINDING_CACHE_GROWTH;
    f->seconds_left = (struct plim_estimate){true, 3600, 3000, 4000};
    pass(w, 5 * MINUTE);
    assert_int_equal(w->list.alerts.n, 0);
    f->seconds_left.value = 1200;
    pass(w, 2 * MINUTE);
    assert_string_equal(only(w)->rule, "oom-soon");
    assert_int_equal(only(w)->severity, PLIM_SEVERITY_CRITICAL);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    free_world(w);
}

#define HALF                                                                                       \
    "[watch]\ndefault-alerts = no\n[alert half]\nfigure = device.used_ratio\nabove = 0.5\n"        \
    "clear = 0.4\nfor = 1m\nclear-for = 1m\n"

static void set_used(struct world *w, uint64_t used)
{
    w->now.sample.devices.items[0].figure[PLIM_FIGURE_USED] = used;
}

static void a_figure_between_its_two_limits_keeps_the_alert_as_it_is(void **state)
{
    (void)state;
    struct world *w = new_world(HALF);
    set_used(w, 45);
    pass(w, HOUR);
    assert_int_equal(w->list.alerts.n, 0);
    set_used(w, 60);
    pass(w, 2 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    assert_string_equal(only(w)->summary, "device.used_ratio is 0.6, above the limit of 0.5");
    set_used(w, 45);
    pass(w, HOUR);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    set_used(w, 39);
    pass(w, 2 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    free_world(w);
}

static void an_unknown_figure_is_no_alert(void **state)
{
    (void)state;
    struct world *w = new_world(HALF);
    set_used(w, 99);
    w->now.sample.devices.items[0].valid &= ~(UINT64_C(1) << PLIM_FIGURE_USED);
    pass(w, HOUR);
    assert_int_equal(w->list.alerts.n, 0);
    free_world(w);
}

static void what_comes_back_again_and_again_must_be_right_for_longer(void **state)
{
    (void)state;
    struct world *w = new_world(HALF);
    for (int i = 0; i < 4; i++) {
        set_used(w, 60);
        pass(w, 2 * MINUTE);
        assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
        assert_int_equal(only(w)->episode, i + 1);
        assert_int_equal(only(w)->flapping, i > 0);
        set_used(w, 30);
        pass(w, (UINT64_C(1) << i) * MINUTE);
        assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
        pass(w, 20 * SECOND);
        assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    }
    free_world(w);
}

static void a_rule_may_look_at_the_growth_of_a_counter(void **state)
{
    (void)state;
    struct world *w = new_world("[watch]\ndefault-alerts = no\n[alert retries]\n"
                                "figure = engine.preemptions\nover = 10m\nabove = 5\nfor = 0\n");
    struct plim_engine_now *e = &w->now.engines.items[0];
    e->valid = UINT64_C(1) << PLIM_ENGINE_FIGURE_PREEMPTIONS;
    e->figure[PLIM_ENGINE_FIGURE_PREEMPTIONS] = 1000; /* before we looked */
    pass(w, HOUR);
    assert_int_equal(w->list.alerts.n, 0);
    e->figure[PLIM_ENGINE_FIGURE_PREEMPTIONS] = 1006;
    pass(w, MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    assert_true(only(w)->value == 6.0);
    pass(w, 20 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    e->figure[PLIM_ENGINE_FIGURE_PREEMPTIONS] = 9; /* started anew */
    pass(w, MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    free_world(w);
}

static void an_engine_that_does_not_answer_is_told(void **state)
{
    (void)state;
    struct world *w = new_world("");
    w->now.engines.items[0].up = false;
    pass(w, 3 * MINUTE);
    assert_string_equal(only(w)->rule, "engine-down");
    assert_string_equal(only(w)->engine, "e");
    free_world(w);
}

static void a_lasting_alert_is_repeated_until_somebody_acknowledges_it(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    (void)find_leak(w);
    pass(w, 6 * MINUTE);
    assert_true(told(w));
    pass(w, 3 * HOUR);
    assert_false(told(w));
    pass(w, HOUR);
    assert_true(told(w));
    w->list.alerts.items[0]->acknowledged = true;
    pass(w, 12 * HOUR);
    assert_false(told(w));
    w->n_findings = 0;
    pass(w, 20 * MINUTE);
    assert_true(told(w)); /* its end */
    free_world(w);
}

static void a_silenced_alert_is_told_when_the_silence_ends_and_it_still_fires(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    (void)find_leak(w);
    w->list.silences[0] =
        (struct plim_silence){.id = 1, .until_ns = EPOCH + HOUR, .process = "py*"};
    w->list.n_silences = 1;
    pass(w, 50 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    assert_false(told(w));
    pass(w, 11 * MINUTE);
    assert_int_equal(w->list.n_silences, 0);
    assert_true(told(w));
    free_world(w);
}

static void what_began_and_ended_while_a_receiver_was_away_is_told_once_for_a_day(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    (void)find_leak(w);
    pass(w, 6 * MINUTE);
    w->n_findings = 0;
    pass(w, 5 * HOUR);
    assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    assert_true(told(w));
    assert_false(told(w));
    (void)find_leak(w);
    pass(w, 6 * MINUTE);
    w->n_findings = 0;
    pass(w, 26 * HOUR);
    assert_int_equal(w->list.alerts.n, 0);
    free_world(w);
}

static void a_graver_alert_is_told_at_once(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    struct plim_finding *f = find_leak(w);
    pass(w, 6 * MINUTE);
    assert_true(told(w));
    f->severity = PLIM_SEVERITY_CRITICAL;
    pass(w, 10 * SECOND);
    assert_true(told(w));
    free_world(w);
}

static void a_receiver_may_want_grave_alerts_only(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER "min-severity = critical\n");
    struct plim_finding *f = find_leak(w);
    pass(w, 10 * MINUTE);
    assert_false(told(w));
    f->severity = PLIM_SEVERITY_CRITICAL;
    pass(w, MINUTE);
    assert_true(told(w));
    f->severity = PLIM_SEVERITY_WARNING;
    w->n_findings = 0;
    pass(w, 20 * MINUTE);
    assert_true(told(w)); /* it knew of it, so it is told its end */
    free_world(w);
}

static void alertmanager_is_told_each_minute(void **state)
{
    (void)state;
    struct world *w = new_world("[notify n]\nkind = alertmanager\nurl = http://127.0.0.1\n");
    (void)find_leak(w);
    pass(w, 6 * MINUTE);
    for (int i = 0; i < 5; i++) {
        assert_true(told(w));
        pass(w, MINUTE);
    }
    w->list.alerts.items[0]->acknowledged = true; /* forgetting it there would end it */
    assert_true(told(w));
    free_world(w);
}

static void a_clock_that_was_set_back_silences_nothing(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    const struct plim_receiver *r = &w->book->receivers.items[0];
    (void)find_leak(w);
    pass(w, 6 * MINUTE);
    assert_true(told(w));
    assert_true(plim__alert_due(&w->list, w->book, only(w), r, EPOCH - 24 * HOUR) <= EPOCH);
    free_world(w);
}

static void there_are_never_more_alerts_than_the_limit(void **state)
{
    (void)state;
    struct world *w = new_world("");
    for (w->n_findings = 0; w->n_findings < 600; w->n_findings++) {
        struct plim_finding f = w->n_findings == 0 ? *find_leak(w) : w->findings[0];
        f.subject.pid = (uint32_t)w->n_findings + 1;
        w->findings[w->n_findings] = f;
    }
    pass(w, MINUTE);
    assert_int_equal(w->list.alerts.n, PLIM_ALERTS_MAX);
    assert_true(w->list.lost > 0);
    free_world(w);
}

static void the_state_is_read_as_it_was_written_and_broken_states_do_no_harm(void **state)
{
    (void)state;
    struct world *w = new_world(RECEIVER);
    (void)find_leak(w);
    memcpy(w->findings[0].evidence, "one\n\"two\"", 10);
    pass(w, 6 * MINUTE);
    assert_true(told(w));
    w->list.silences[0] = (struct plim_silence){.id = 3, .until_ns = EPOCH + HOUR, .rule = "x"};
    w->list.n_silences = 1;
    w->list.last_silence = 3;
    struct plim_buf text = {0};
    struct plim_buf again = {0};
    struct plim_alert_list back = {0};
    plim__alert_state_write(&w->list, &text);
    assert_ok(plim__alert_state_read(plim_buf_str(&text), &back, NULL));
    plim__alert_state_write(&back, &again);
    assert_string_equal(text.p, again.p);
    assert_string_equal(back.alerts.items[0]->evidence, "one\n\"two\"");
    assert_int_equal(back.alerts.items[0]->told[0].episode, 1);
    plim__alert_list_fini(&back);
    for (size_t i = 0; i + 2 < text.n; i++) {
        back = (struct plim_alert_list){0};
        assert_int_equal(plim__alert_state_read((struct plim_str){text.p, i}, &back, NULL),
                         PLIM_E_DATA);
        assert_int_equal(back.alerts.n, 0);
    }
    plim_buf_fini(&text);
    plim_buf_fini(&again);
    free_world(w);
}

static void after_a_restart_an_alert_is_not_ended_before_it_could_be_found_again(void **state)
{
    (void)state;
    struct world *w = new_world(HALF);
    set_used(w, 60);
    pass(w, 2 * MINUTE);
    struct plim_buf text = {0};
    plim__alert_state_write(&w->list, &text);
    plim__alert_list_fini(&w->list);
    assert_ok(plim__alert_state_read(plim_buf_str(&text), &w->list, NULL));
    w->list.alerts.items[0]->age_mono = w->now.mono_ns;
    set_used(w, 30);
    pass(w, 4 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_FIRING);
    pass(w, 2 * MINUTE);
    assert_int_equal(only(w)->state, PLIM_ALERT_RESOLVED);
    plim_buf_fini(&text);
    free_world(w);
}

static const struct {
    const char *text;
    const char *says;
} mistakes[] = {
    {"[alert a]\nabove = 1\n", "either finding or figure"},
    {"[alert a]\nfinding = leek\n", "did you mean 'leak'"},
    {"[alert a]\nfigure = device.used_rato\nabove = 1\n", "did you mean 'device.used_ratio'"},
    {"[alert a]\nfigure = device.used_ratio\n", "above or below"},
    {"[alert a]\nfigure = device.used_ratio\nabove = 1\nclear = 2\n", "wrong side"},
    {"[alert a]\nfinding = any\nabove = 1\n", "are for figures"},
    {"[alert a]\nfigure = engine.up\nbelow = 1\nleft-below = 1h\n", "are for findings"},
    {"[alert a]\nfinding = any\nmin-confidence = 2\n", "between 0 and 1"},
    {"[alert a]\nfinding = any\nnotify = nobody\n", "no [notify nobody]"},
    {"[notify a]\nurl = http://h\n", "kind is missing"},
    {"[notify a]\nkind = webhook\n", "url or url-file"},
    {"[notify a]\nkind = webhook\nurl = ftp://h\n", "no http://"},
    {"[notify a]\nkind = webhook\nurl = http://h\nurl-file = /x\n", "either url or url-file"},
    {"[notify a]\nkind = email\nto = -oops@h\n", "no plain mail address"},
    {"[notify a]\nkind = email\nto = x@h\nhmac-file = /x\n", "email has no hmac-file"},
    {"[notify a]\nkind = script\nprogram = page\n", "absolute path"},
    {"[watch]\nurl = gpu.example.org\n", "no http://"},
};

static void rules_without_sense_are_told_with_their_section(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(mistakes); i++) {
        struct plim_alert_book *book = NULL;
        struct plim_err err = {0};
        assert_int_equal(read_book(mistakes[i].text, &book, &err), PLIM_E_USAGE);
        if (strstr(err.message, mistakes[i].says) == NULL &&
            strstr(err.hint, mistakes[i].says) == NULL) {
            fail_msg("%s says %s (%s)", mistakes[i].text, err.message, err.hint);
        }
        assert_non_null(strstr(err.where, ":2"));
    }
}

static void no_name_from_outside_makes_a_header_of_a_mail(void **state)
{
    (void)state;
    struct plim_alert_book *book = NULL;
    struct plim_buf mail = {0};
    struct plim_alert alert;
    assert_ok(read_book("[notify n]\nkind = email\nto = x@h, y@h\n", &book, NULL));
    plim__alert_sample(&alert, EPOCH);
    snprintf(alert.summary, sizeof(alert.summary), "evil\r\nBcc: z@h\n.\n\xc3\xa4%s",
             "\xc3\xb6 a long name that goes on and on, so that it needs several encoded words");
    struct plim_alert_message m = {.receiver = &book->receivers.items[0],
                                   .book = book,
                                   .host = "ho st\n",
                                   .version = "1",
                                   .time_ns = EPOCH,
                                   .alerts = &alert,
                                   .n = 1};
    plim__alert_mail(&m, &mail);
    assert_ok(plim_buf_status(&mail, NULL));
    const char *body = strstr(mail.p, "\n\n");
    const char *bcc = strstr(mail.p, "\nBcc");
    assert_true(body != NULL && (bcc == NULL || bcc > body));
    assert_null(strstr(mail.p, "\r"));
    assert_null(strstr(mail.p, "\n.\n"));
    assert_non_null(strstr(mail.p, "Subject: =?UTF-8?B?"));
    for (const char *line = mail.p; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        assert_true(strcspn(line, "\n") <= 200);
        for (const char *p = line; *p != '\0' && *p != '\n'; p++) {
            assert_true(*p >= ' ' && *p <= '~');
        }
    }
    plim_buf_fini(&mail);
    plim__alert_book_free(book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_is_told_when_it_lasted_and_its_end_when_that_lasted),
        cmocka_unit_test(what_passes_by_itself_wakes_nobody),
        cmocka_unit_test(memory_that_is_out_soon_is_critical_whatever_the_cause),
        cmocka_unit_test(a_figure_between_its_two_limits_keeps_the_alert_as_it_is),
        cmocka_unit_test(an_unknown_figure_is_no_alert),
        cmocka_unit_test(what_comes_back_again_and_again_must_be_right_for_longer),
        cmocka_unit_test(a_rule_may_look_at_the_growth_of_a_counter),
        cmocka_unit_test(an_engine_that_does_not_answer_is_told),
        cmocka_unit_test(a_lasting_alert_is_repeated_until_somebody_acknowledges_it),
        cmocka_unit_test(a_silenced_alert_is_told_when_the_silence_ends_and_it_still_fires),
        cmocka_unit_test(what_began_and_ended_while_a_receiver_was_away_is_told_once_for_a_day),
        cmocka_unit_test(a_graver_alert_is_told_at_once),
        cmocka_unit_test(a_receiver_may_want_grave_alerts_only),
        cmocka_unit_test(alertmanager_is_told_each_minute),
        cmocka_unit_test(a_clock_that_was_set_back_silences_nothing),
        cmocka_unit_test(there_are_never_more_alerts_than_the_limit),
        cmocka_unit_test(the_state_is_read_as_it_was_written_and_broken_states_do_no_harm),
        cmocka_unit_test(after_a_restart_an_alert_is_not_ended_before_it_could_be_found_again),
        cmocka_unit_test(rules_without_sense_are_told_with_their_section),
        cmocka_unit_test(no_name_from_outside_makes_a_header_of_a_mail),
    };
    return PLIM_RUN_TESTS("alert", tests);
}
