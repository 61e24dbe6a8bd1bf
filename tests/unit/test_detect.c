/* SPDX-License-Identifier: Apache-2.0 */
/* The detector's mechanics: hysteresis, ids, gaps in time, devices that fail. */

#include "detect/detect.h"
#include "fail_alloc.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define GIB    PLIM_GIB

/* One device of 80 GiB, as the newest observation shows it. */
struct made {
    struct plim_detector *detector;
    struct plim_observation o;
};

static int make(void **state)
{
    struct made *m = calloc(1, sizeof(*m));
    struct plim_device_sample device = {.uuid = "GPU-1", .parent = PLIM_NO_PARENT};
    plim_set_figure(&device, PLIM_FIGURE_TOTAL, 80 * GIB);
    plim_set_figure(&device, PLIM_FIGURE_USED, 40 * GIB);
    plim_set_figure(&device, PLIM_FIGURE_FREE, 40 * GIB);
    assert_ok(plim_vec_push(&m->o.sample.devices, NULL, device));
    assert_ok(plim_detector_new(NULL, &m->detector, NULL));
    m->o.sample.time_ns = 1700000000 * SECOND;
    *state = m;
    return 0;
}

static int drop(void **state)
{
    struct made *m = *state;
    plim_detector_free(m->detector);
    plim_vec_fini(&m->o.sample.devices);
    plim_vec_fini(&m->o.happenings);
    free(m);
    return 0;
}

static void steps(struct made *m, uint64_t used, unsigned seconds)
{
    struct plim_device_sample *device = m->o.sample.devices.items;
    plim_set_figure(device, PLIM_FIGURE_USED, used);
    plim_set_figure(device, PLIM_FIGURE_FREE, 80 * GIB - used);
    for (unsigned i = 0; i < seconds; i++) {
        m->o.mono_ns += SECOND;
        m->o.sample.time_ns += SECOND;
        assert_ok(plim_detector_step(m->detector, &m->o, NULL));
        m->o.happenings.n = 0;
    }
}

/* The finding of that class; id 0: none. */
static struct plim_finding found(struct made *m, enum plim_finding_class class)
{
    size_t n;
    const struct plim_finding *f = plim_detector_findings(m->detector, &n);
    for (size_t i = 0; i < n; i++) {
        if (f[i].class == class) {
            return f[i];
        }
    }
    return (struct plim_finding){0};
}

static void a_full_device_is_told_after_ten_seconds_and_ends_after_a_minute(void **state)
{
    struct made *m = *state;
    steps(m, 78 * GIB, 8);
    assert_int_equal(found(m, PLIM_FINDING_CAPACITY).id, 0);
    steps(m, 78 * GIB, 4);
    struct plim_finding f = found(m, PLIM_FINDING_CAPACITY);
    assert_int_not_equal(f.id, 0);
    assert_true(f.active);
    assert_string_equal(f.subject.device_uuid, "GPU-1");
    uint64_t id = f.id;
    steps(m, 40 * GIB, 59);
    assert_true(found(m, PLIM_FINDING_CAPACITY).active);
    steps(m, 40 * GIB, 3);
    f = found(m, PLIM_FINDING_CAPACITY);
    assert_false(f.active);
    assert_int_equal(f.id, id);
    assert_int_not_equal(f.ended_ns, 0);
    steps(m, 40 * GIB, 3700);
    assert_int_equal(found(m, PLIM_FINDING_CAPACITY).id, 0);
}

static void a_figure_that_trembles_about_the_threshold_makes_one_finding(void **state)
{
    struct made *m = *state;
    for (unsigned i = 0; i < 100; i++) {
        steps(m, i % 2 == 0 ? 77 * GIB : 75 * GIB, 20);
    }
    size_t n;
    const struct plim_finding *f = plim_detector_findings(m->detector, &n);
    assert_int_equal(n, 1);
    assert_int_equal(f->id, 1);
}

static void a_lost_device_is_critical_and_its_return_ends_it(void **state)
{
    struct made *m = *state;
    steps(m, 40 * GIB, 5);
    m->o.sample.devices.items[0].state = PLIM_DEVICE_LOST;
    m->o.sample.devices.items[0].code = 15;
    steps(m, 40 * GIB, 1);
    struct plim_finding f = found(m, PLIM_FINDING_DEVICE);
    assert_int_not_equal(f.id, 0);
    assert_int_equal(f.severity, PLIM_SEVERITY_CRITICAL);
    m->o.sample.devices.items[0].state = PLIM_DEVICE_OK;
    steps(m, 40 * GIB, 1);
    assert_false(found(m, PLIM_FINDING_DEVICE).active);
}

static void an_xid_of_the_device_is_critical_and_of_a_program_a_notice(void **state)
{
    struct made *m = *state;
    struct plim_happening xid = {.kind = PLIM_HAPPENED_XID, .value = 79};
    steps(m, 40 * GIB, 5);
    assert_ok(plim_vec_push(&m->o.happenings, NULL, xid));
    steps(m, 40 * GIB, 1);
    assert_int_equal(found(m, PLIM_FINDING_DEVICE).severity, PLIM_SEVERITY_CRITICAL);
    steps(m, 40 * GIB, 3602);
    assert_false(found(m, PLIM_FINDING_DEVICE).active);
    xid.value = 31;
    assert_ok(plim_vec_push(&m->o.happenings, NULL, xid));
    steps(m, 40 * GIB, 1);
    assert_int_equal(found(m, PLIM_FINDING_DEVICE).severity, PLIM_SEVERITY_NOTICE);
}

static void findings_of_a_device_end_when_it_has_not_been_listed_for_ten_minutes(void **state)
{
    struct made *m = *state;
    steps(m, 79 * GIB, 20);
    assert_true(found(m, PLIM_FINDING_CAPACITY).active);
    m->o.sample.devices.n = 0;
    m->o.mono_ns += 9 * 60 * SECOND;
    assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    assert_true(found(m, PLIM_FINDING_CAPACITY).active);
    m->o.mono_ns += 2 * 60 * SECOND;
    assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    assert_false(found(m, PLIM_FINDING_CAPACITY).active);
}

static void every_class_and_severity_has_its_word(void **state)
{
    (void)state;
    assert_string_equal(plim_finding_class_text(PLIM_FINDING_LEAK), "leak");
    assert_string_equal(plim_finding_class_text(PLIM_FINDING_OOM), "oom");
    assert_string_equal(plim_severity_text(PLIM_SEVERITY_CRITICAL), "critical");
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make, drop)
    const struct CMUnitTest tests[] = {
        EACH(a_full_device_is_told_after_ten_seconds_and_ends_after_a_minute),
        EACH(a_figure_that_trembles_about_the_threshold_makes_one_finding),
        EACH(a_lost_device_is_critical_and_its_return_ends_it),
        EACH(an_xid_of_the_device_is_critical_and_of_a_program_a_notice),
        EACH(findings_of_a_device_end_when_it_has_not_been_listed_for_ten_minutes),
        EACH(every_class_and_severity_has_its_word),
    };
    return PLIM_RUN_TESTS("detect", tests);
}
