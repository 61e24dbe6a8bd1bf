/* SPDX-License-Identifier: Apache-2.0 */
/* What happened between two observations: seen by difference, and finished incidents. */

#include "observe_made.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct plim_observer plim__observer_happened, plim__observer_incidents;

static const struct plim_collect_options options = {0};

struct moments {
    void *self;
    struct plim_observation o;
    uint64_t now; /* seconds */
};

static int begin_moments(void **state)
{
    struct moments *m = calloc(1, sizeof(*m));
    assert_ok(plim__observer_happened.open(&options, &m->self, NULL));
    m->now = 1000;
    *state = m;
    return 0;
}

static int end_moments(void **state)
{
    struct moments *m = *state;
    plim__observer_happened.close(m->self);
    plim_observation_fini(&m->o);
    free(m);
    return 0;
}

/* A second later: two devices in these states, and users of the first. */
static void next(struct moments *m, enum plim_device_state first, enum plim_device_state second)
{
    plim_observation_reset(&m->o);
    m->now++;
    m->o.mono_ns = m->now * SECOND;
    m->o.sample.time_ns = (1700000000 + m->now) * SECOND;
    add_device(&m->o, "GPU-1")->state = first;
    add_device(&m->o, "GPU-2")->state = second;
}

static void seen(struct moments *m, size_t n)
{
    assert_ok(plim__observer_happened.take(m->self, &m->o, NULL));
    assert_int_equal(m->o.happenings.n, n);
    assert_true(plim_observation_check(&m->o));
}

static void processes_begin_and_end(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 10, 500, GIB); /* was there before us, since second 5 */
    seen(m, 0);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 10, 500, GIB);
    add_use(&m->o, 0, 11, 99000, GIB);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_STARTED);
    assert_int_equal(m->o.happenings.items[0].pid, 11);
    assert_string_equal(m->o.happenings.items[0].text, "prog");
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 11, 99000, GIB);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_ENDED);
    assert_int_equal(m->o.happenings.items[0].pid, 10);
    assert_int_equal(m->o.happenings.items[0].value,
                     m->now * SECOND - 500 * (SECOND / (uint64_t)sysconf(_SC_CLK_TCK)));
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 11, 99900, GIB); /* the number was given to another process */
    seen(m, 2);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_STARTED);
    assert_int_equal(m->o.happenings.items[1].kind, PLIM_HAPPENED_ENDED);
    assert_int_equal(m->o.happenings.items[1].start_ticks, 99000);
}

static void a_device_that_does_not_answer_ends_no_process(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 10, 500, GIB);
    seen(m, 0);
    next(m, PLIM_DEVICE_HUNG, PLIM_DEVICE_OK);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_DEVICE_LOST);
    assert_int_equal(m->o.happenings.items[0].device, 0);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    add_use(&m->o, 0, 10, 500, GIB);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_DEVICE_BACK);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_ENDED);
}

static void a_driver_that_takes_all_devices_along_was_restarted(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 0);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    m->o.sample.devices.n = 0;
    seen(m, 2);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 3);
    assert_int_equal(m->o.happenings.items[2].kind, PLIM_HAPPENED_DRIVER);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_LOST);
    seen(m, 1);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK); /* one of two is no restart */
    seen(m, 1);
}

static void critical_errors_are_told_with_their_number(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    plim_set_figure(&m->o.sample.devices.items[1], PLIM_FIGURE_XIDS, 0);
    seen(m, 0);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    plim_set_figure(&m->o.sample.devices.items[1], PLIM_FIGURE_XIDS, 2);
    plim_set_figure(&m->o.sample.devices.items[1], PLIM_FIGURE_LAST_XID, 79);
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_XID);
    assert_int_equal(m->o.happenings.items[0].value, 79);
    assert_int_equal(m->o.happenings.items[0].device, 1);
}

static void a_clock_that_is_set_is_told_and_suspend_is_not(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 0);
    m->now += 3600; /* suspended: both clocks went on */
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 0);
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    m->o.sample.time_ns -= 3600 * SECOND;
    seen(m, 1);
    assert_int_equal(m->o.happenings.items[0].kind, PLIM_HAPPENED_CLOCK);
    assert_string_equal(m->o.happenings.items[0].text, "set back by 3600.0 s");
}

static void thousands_of_short_lives_are_all_told(void **state)
{
    struct moments *m = *state;
    next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
    seen(m, 0);
    for (uint32_t round = 0; round < 5; round++) {
        next(m, PLIM_DEVICE_OK, PLIM_DEVICE_OK);
        for (uint32_t i = 0; i < 1000; i++) {
            add_use(&m->o, i % 2, 100000 * (round + 1) + i, 7, 1);
        }
        seen(m, round == 0 ? 1000 : 2000);
    }
}

static void a_finished_incident_is_told_once(void **state)
{
    (void)state;
    char root[] = "/tmp/plim-test-incident-XXXXXX", folder[64], path[160], to[160], command[128];
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof(folder), "%s/incidents", root);
    struct plim_collect_options with = {.incidents = folder};
    struct plim_observation o = {0};
    void *self = NULL;
    assert_ok(plim__observer_incidents.open(&with, &self, NULL));
    assert_ok(plim__observer_incidents.take(self, &o, NULL)); /* there is no folder yet */
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof(path), "%s/incident-1.part", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_ok(plim__observer_incidents.take(self, &o, NULL));
    assert_int_equal(o.happenings.n, 0);
    snprintf(to, sizeof(to), "%s/incident-1", folder);
    assert_int_equal(rename(path, to), 0);
    assert_ok(plim__observer_incidents.take(self, &o, NULL));
    assert_int_equal(o.happenings.n, 1);
    assert_int_equal(o.happenings.items[0].kind, PLIM_HAPPENED_INCIDENT);
    assert_string_equal(o.happenings.items[0].text, "incident-1");
    snprintf(path, sizeof(path), "%s/incident-1.tar.zst", folder);
    assert_int_equal(rename(to, path), 0); /* packed: the same */
    assert_ok(plim__observer_incidents.take(self, &o, NULL));
    assert_int_equal(o.happenings.n, 1);
    plim__observer_incidents.close(self);
    assert_ok(plim__observer_incidents.open(&with, &self, NULL));
    assert_ok(plim__observer_incidents.take(self, &o, NULL)); /* was there before */
    assert_int_equal(o.happenings.n, 1);
    plim__observer_incidents.close(self);
    plim_observation_fini(&o);
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

#define MOMENT_TEST(f) cmocka_unit_test_setup_teardown(f, begin_moments, end_moments)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MOMENT_TEST(processes_begin_and_end),
        MOMENT_TEST(a_device_that_does_not_answer_ends_no_process),
        MOMENT_TEST(a_driver_that_takes_all_devices_along_was_restarted),
        MOMENT_TEST(critical_errors_are_told_with_their_number),
        MOMENT_TEST(a_clock_that_is_set_is_told_and_suspend_is_not),
        cmocka_unit_test(a_finished_incident_is_told_once),
        MOMENT_TEST(thousands_of_short_lives_are_all_told),
    };
    return PLIM_RUN_TESTS("happened", tests);
}
