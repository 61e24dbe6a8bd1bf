/* SPDX-License-Identifier: Apache-2.0 */
/* What the detector says of growth: leaks, caches, loading, gaps in time. */

#include "detect_made.h"

#include <math.h>

static void a_leak_of_100_mib_an_hour_is_found_within_an_hour(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    m->live[0] = 15 * GIB;
    steps(m, 12);
    leak(m, 60);
    struct plim_finding f = found(m, PLIM_FINDING_LEAK);
    assert_true(f.active);
    assert_int_equal(f.subject.pid, 100);
    assert_true(f.slope.valid && f.seconds_left.valid);
    assert_true(fabs(f.slope.value * 3600 / MIB - 100) < 5);
    /* Reserved is 20 GiB - 500 MiB, 60 GiB are free. */
    assert_true(fabs(f.seconds_left.value / 3600 - (64.4 * 1024 / 100)) < 60);
}

static void a_leak_of_which_only_the_driver_tells_is_found_and_less_sure(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    steps(m, 12);
    leak(m, 60);
    struct plim_finding f = found(m, PLIM_FINDING_LEAK);
    assert_true(f.active);
    assert_true(f.confidence < 0.7);
    assert_non_null(strstr(f.next_step, "PLIMSOLL_ATTACH=1"));
}

static void growth_that_stops_ends_honestly(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    m->live[0] = 15 * GIB;
    steps(m, 12);
    leak(m, 60);
    steps(m, 75);
    struct plim_finding f = found(m, PLIM_FINDING_LEAK);
    assert_false(f.active);
    assert_non_null(strstr(f.evidence, "no longer grows"));
}

/* Minutes of a cache that is `full` bytes in the end, and grows to all but 1/e of them in `hours`, under a load that
 * moves by 100 MiB; from `m->held` and, with an allocator, `m->live`. True: a leak was told. */
static bool fill_cache(struct made *m, double full, double hours, unsigned minutes)
{
    uint64_t held = m->held[0], live = m->live[0];
    bool leaked = false;
    for (unsigned i = 0; i < minutes * 6; i++) {
        uint64_t more = (uint64_t)(full * (1 - exp(-(i / 360.0) / hours)));
        more += (i * UINT64_C(7919) % 101) * MIB;
        m->held[0] = held + more / (2 * MIB) * (2 * MIB);
        m->live[0] = live != 0 ? live + more : 0;
        step(m, 10);
        leaked |= found(m, PLIM_FINDING_LEAK).active;
    }
    return leaked;
}

static void a_cache_that_fills_is_no_leak(void **state)
{
    struct made *m = *state;
    for (int told = 0; told < 2; told++) {
        m->held[0] = 20 * GIB;
        m->live[0] = told ? 15 * GIB : 0;
        m->first_pid++;
        assert_false(fill_cache(m, 8.0 * GIB, 1.5, 60));
        struct plim_finding f = found(m, PLIM_FINDING_CACHE_GROWTH);
        assert_true(f.active);
        assert_int_equal(f.severity, PLIM_SEVERITY_NOTICE);
        assert_false(f.seconds_left.valid); /* it stops before memory is out */
        m->held[0] = 20 * GIB;
        m->live[0] = told ? 15 * GIB : 0;
        m->first_pid++;
        assert_false(fill_cache(m, 8.0 * GIB, 1.5, 24 * 60));
        assert_false(found(m, PLIM_FINDING_CACHE_GROWTH).active);
        steps(m, 60);
    }
}

static void a_cache_that_would_outgrow_its_device_says_when(void **state)
{
    struct made *m = *state;
    double crosses = 3 * 3600 * log(6); /* of 24 GiB there is room for 20 */
    m->held[0] = 60 * GIB;
    m->live[0] = 0;
    (void)fill_cache(m, 24.0 * GIB, 3, 240);
    struct plim_finding f = found(m, PLIM_FINDING_CACHE_GROWTH);
    f = f.active ? f : found(m, PLIM_FINDING_LEAK);
    assert_true(f.active);
    assert_true(f.seconds_left.valid);
    double left = crosses - 240 * 60;
    assert_true(f.seconds_left.low <= 1.1 * left && left <= 1.1 * f.seconds_left.high);
    assert_true(f.severity >= PLIM_SEVERITY_WARNING);
}

static void growth_that_fills_the_device_soon_is_told_whatever_it_is(void **state)
{
    struct made *m = *state;
    m->held[0] = 60 * GIB;
    steps(m, 12);
    for (unsigned i = 0; i < 45 * 6; i++) {
        m->held[0] += (i * UINT64_C(7919) % 101) * MIB * 2 / 3; /* 12 GiB an hour */
        step(m, 10);
    }
    struct plim_finding f = found(m, PLIM_FINDING_LEAK);
    assert_true(f.active);
    assert_true(f.seconds_left.valid && f.seconds_left.value < 7200);
}

static void a_steady_process_is_left_alone_for_a_day(void **state)
{
    struct made *m = *state;
    size_t n;
    m->held[0] = 70 * GIB;
    m->live[0] = 60 * GIB;
    steps(m, 24 * 60);
    (void)plim_detector_findings(m->detector, &n);
    assert_int_equal(n, 0);
}

static void loading_for_half_an_hour_is_no_leak(void **state)
{
    struct made *m = *state;
    size_t n;
    m->held[0] = GIB;
    for (unsigned i = 0; i < 180; i++) {
        m->held[0] += 250 * MIB;
        step(m, 10);
    }
    steps(m, 60);
    (void)plim_detector_findings(m->detector, &n);
    assert_int_equal(n, 0);
}

static void a_suspended_machine_does_not_stretch_the_clock(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    m->live[0] = 15 * GIB;
    steps(m, 12);
    leak(m, 30);
    step(m, 8 * 3600);
    leak(m, 30);
    struct plim_finding f = found(m, PLIM_FINDING_LEAK);
    assert_true(f.active);
    assert_true(fabs(f.slope.value * 3600 / MIB - 100) < 10);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make, drop)
    const struct CMUnitTest tests[] = {
        EACH(a_leak_of_100_mib_an_hour_is_found_within_an_hour),
        EACH(a_leak_of_which_only_the_driver_tells_is_found_and_less_sure),
        EACH(growth_that_stops_ends_honestly),
        EACH(a_cache_that_fills_is_no_leak),
        EACH(a_cache_that_would_outgrow_its_device_says_when),
        EACH(growth_that_fills_the_device_soon_is_told_whatever_it_is),
        EACH(a_steady_process_is_left_alone_for_a_day),
        EACH(loading_for_half_an_hour_is_no_leak),
        EACH(a_suspended_machine_does_not_stretch_the_clock),
    };
    return PLIM_RUN_TESTS("detect_growth", tests);
}
