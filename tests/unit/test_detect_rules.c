/* SPDX-License-Identifier: Apache-2.0 */
/* What the detector says of processes: leaks, caches, failures, sleep, siblings; and that what it learned
 * survives being saved. */

#include "detect/detect.h"
#include "detect/replay.h"
#include "device/sample_json.h"
#include "fail_alloc.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define GIB    PLIM_GIB
#define MIB    PLIM_MIB
#define RANKS  8u

/* A machine of eight devices with one process on each, or fewer. */
struct made {
    struct plim_detector *detector;
    struct plim_observation o;
    unsigned ranks;
    uint64_t held[RANKS]; /* as the driver counts it */
    uint64_t live[RANKS]; /* of its allocator; 0: it tells nothing */
    uint64_t stranded, retries;
    uint32_t first_pid;
    uint64_t time_ns; /* since 1970 */
    bool asleep, engine;
};

static int make(void **state)
{
    struct made *m = calloc(1, sizeof(*m));
    m->ranks = 1;
    m->first_pid = 100;
    m->time_ns = 1700000000 * SECOND;
    assert_ok(plim_detector_new(NULL, &m->detector, NULL));
    *state = m;
    return 0;
}

static int drop(void **state)
{
    struct made *m = *state;
    plim_detector_free(m->detector);
    plim_vec_fini(&m->o.sample.devices);
    plim_vec_fini(&m->o.sample.uses);
    plim_vec_fini(&m->o.sample.processes);
    plim_vec_fini(&m->o.allocators);
    plim_vec_fini(&m->o.engines);
    plim_vec_fini(&m->o.happenings);
    free(m);
    return 0;
}

static void put_rank(struct made *m, uint32_t i)
{
    struct plim_device_sample device = {.parent = PLIM_NO_PARENT};
    struct plim_process_use use = {.device = i, .pid = m->first_pid + i, .bytes_valid = true};
    struct plim_process_facts facts = {
        .pid = use.pid, .ppid = 50, .start_ticks = use.pid, .name = "server"};
    snprintf(device.uuid, sizeof(device.uuid), "GPU-%u", i);
    plim_set_figure(&device, PLIM_FIGURE_TOTAL, 80 * GIB);
    plim_set_figure(&device, PLIM_FIGURE_USED, m->held[i]);
    plim_set_figure(&device, PLIM_FIGURE_FREE, 80 * GIB - m->held[i]);
    use.bytes = use.counted = m->held[i];
    assert_ok(plim_vec_push(&m->o.sample.devices, NULL, device));
    assert_ok(plim_vec_push(&m->o.sample.uses, NULL, use));
    assert_ok(plim_vec_push(&m->o.sample.processes, NULL, facts));
    if (m->live[i] != 0) {
        struct plim_allocator_now a = {.pid = use.pid, .start_ticks = use.pid, .device = i};
        a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
                  1u << PLIM_ALLOCATOR_INACTIVE_SPLIT | 1u << PLIM_ALLOCATOR_RETRIES;
        a.figure[PLIM_ALLOCATOR_ALLOCATED] = m->live[i];
        a.figure[PLIM_ALLOCATOR_RESERVED] = m->held[i] - 500 * MIB;
        a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = m->stranded;
        a.figure[PLIM_ALLOCATOR_RETRIES] = m->retries;
        assert_ok(plim_vec_push(&m->o.allocators, NULL, a));
    }
}

/* One observation, `seconds` after the one before. */
static void step(struct made *m, unsigned seconds)
{
    plim_sample_reset(&m->o.sample);
    m->o.allocators.n = m->o.engines.n = 0;
    for (uint32_t i = 0; i < m->ranks; i++) {
        put_rank(m, i);
    }
    if (m->engine) {
        struct plim_engine_now e = {.pid = m->first_pid, .up = true};
        e.valid = 1u << PLIM_ENGINE_FIGURE_ASLEEP;
        e.figure[PLIM_ENGINE_FIGURE_ASLEEP] = m->asleep;
        assert_ok(plim_vec_push(&m->o.engines, NULL, e));
    }
    m->o.mono_ns += seconds * SECOND;
    m->o.sample.time_ns = m->time_ns += seconds * SECOND;
    assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    m->o.happenings.n = 0;
}

static void steps(struct made *m, unsigned minutes)
{
    for (unsigned i = 0; i < minutes * 6; i++) {
        step(m, 10);
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

/* Minutes of growth at 100 MiB an hour. */
static void leak(struct made *m, unsigned minutes)
{
    for (unsigned i = 0; i < minutes * 6; i++) {
        uint64_t more = 100 * MIB / 360;
        m->live[0] += m->live[0] != 0 ? more : 0;
        m->held[0] += more;
        step(m, 10);
    }
}

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

static void an_allocator_that_reserved_more_than_the_driver_counts_has_spilled(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    m->live[0] = 10 * GIB;
    steps(m, 1);
    for (unsigned i = 0; i < 10; i++) {
        step(m, 10);
        /* The driver counts less, from the next observation on. */
        m->o.sample.uses.items[0].bytes = 16 * GIB;
        m->o.mono_ns += SECOND;
        assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    }
    assert_int_equal(found(m, PLIM_FINDING_SPILL).id, 0); /* it must stay so for half a minute */
    m->o.sample.uses.items[0].bytes = 16 * GIB;
    for (unsigned i = 0; i < 40; i++) {
        m->o.mono_ns += SECOND;
        assert_ok(plim_detector_step(m->detector, &m->o, NULL));
    }
    assert_true(found(m, PLIM_FINDING_SPILL).active);
}

static void a_sleeper_that_holds_too_much_is_told(void **state)
{
    struct made *m = *state;
    m->engine = true;
    m->held[0] = 60 * GIB;
    steps(m, 5);
    m->asleep = true;
    m->held[0] = GIB;
    steps(m, 5);
    assert_int_equal(found(m, PLIM_FINDING_SLEEP_RESIDUE).id, 0);
    m->asleep = false;
    m->held[0] = 60 * GIB;
    steps(m, 5);
    m->asleep = true;
    m->held[0] = 9 * GIB;
    steps(m, 5);
    assert_true(found(m, PLIM_FINDING_SLEEP_RESIDUE).active);
}

static void the_rank_that_differs_from_its_siblings_is_told(void **state)
{
    struct made *m = *state;
    m->ranks = RANKS;
    for (unsigned i = 0; i < RANKS; i++) {
        m->held[i] = 40 * GIB + i * 10 * MIB;
    }
    m->held[5] = 55 * GIB;
    steps(m, 30);
    struct plim_finding f = found(m, PLIM_FINDING_OUTLIER);
    assert_true(f.active);
    assert_int_equal(f.subject.pid, 105);
    m->held[5] = 40 * GIB;
    steps(m, 15);
    assert_false(found(m, PLIM_FINDING_OUTLIER).active);
}

static void stranded_bytes_and_retries_are_fragmentation(void **state)
{
    struct made *m = *state;
    m->held[0] = 78 * GIB;
    m->live[0] = 50 * GIB;
    m->stranded = 20 * GIB;
    steps(m, 30);
    assert_int_equal(found(m, PLIM_FINDING_FRAGMENTATION).id, 0);
    m->retries = 3;
    steps(m, 10);
    assert_true(found(m, PLIM_FINDING_FRAGMENTATION).active);
    assert_non_null(strstr(found(m, PLIM_FINDING_FRAGMENTATION).next_step, "plimsoll tune"));
}

/* A life of that many minutes that ends with a failure. */
static void fail_at(struct made *m, unsigned minutes)
{
    struct plim_happening oom = {
        .kind = PLIM_HAPPENED_OOM, .device = PLIM_NO_DEVICE, .value = 2 * GIB};
    m->first_pid += 10;
    steps(m, minutes);
    oom.pid = m->first_pid;
    assert_ok(plim_vec_push(&m->o.happenings, NULL, oom));
    step(m, 1);
}

static void failures_at_a_like_age_cluster_and_others_do_not(void **state)
{
    struct made *m = *state;
    m->held[0] = 20 * GIB;
    steps(m, 1);
    fail_at(m, 10);
    assert_true(found(m, PLIM_FINDING_OOM).active);
    assert_int_equal(found(m, PLIM_FINDING_OOM).bytes, 2 * GIB);
    fail_at(m, 200);
    fail_at(m, 47);
    fail_at(m, 90);
    assert_int_equal(found(m, PLIM_FINDING_OOM_CLUSTER).id, 0);
    for (unsigned i = 0; i < 8; i++) {
        fail_at(m, 60 + i % 3);
    }
    struct plim_finding f = found(m, PLIM_FINDING_OOM_CLUSTER);
    assert_true(f.active);
    assert_non_null(strstr(f.summary, "like age"));
    m->first_pid += 10;
    steps(m, 100); /* a life that outlasts them */
    assert_false(found(m, PLIM_FINDING_OOM_CLUSTER).active);
}

static void what_was_learned_survives_being_saved(void **state)
{
    struct made *m = *state;
    struct plim_buf text = {0}, again = {0};
    m->held[0] = 20 * GIB;
    m->live[0] = 15 * GIB;
    steps(m, 12);
    leak(m, 60);
    struct plim_finding before = found(m, PLIM_FINDING_LEAK);
    plim_detector_save(m->detector, &text);
    assert_ok(plim_buf_status(&text, NULL));
    plim_detector_free(m->detector);
    assert_ok(plim_detector_new(NULL, &m->detector, NULL));
    assert_ok(plim_detector_load(m->detector, plim_buf_str(&text), NULL));
    plim_detector_save(m->detector, &again);
    assert_string_equal(text.p, again.p);
    leak(m, 10);
    struct plim_finding after = found(m, PLIM_FINDING_LEAK);
    assert_true(after.active);
    assert_int_equal(after.id, before.id);
    assert_int_equal(after.since_ns, before.since_ns);
    plim_buf_fini(&text);
    plim_buf_fini(&again);
}

static void a_bad_text_is_refused_and_leaves_a_new_detector(void **state)
{
    struct made *m = *state;
    struct plim_buf text = {0};
    struct plim_err err;
    m->held[0] = 78 * GIB;
    steps(m, 30);
    plim_detector_save(m->detector, &text);
    for (size_t n = 0; n + 2 < text.n; n += 97) {
        size_t left;
        assert_int_equal(plim_detector_load(m->detector, (struct plim_str){text.p, n}, &err),
                         PLIM_E_DATA);
        (void)plim_detector_findings(m->detector, &left);
        assert_int_equal(left, 0);
    }
    step(m, 1);
    plim_buf_fini(&text);
}

static void a_recorded_history_gives_the_findings_that_a_monitor_would_have(void **state)
{
    struct made *m = *state;
    struct plim_buf lines = {0};
    struct plim_replayed replayed;
    struct plim_err err;
    m->held[0] = 20 * GIB;
    for (unsigned minute = 0; minute < 300; minute++) {
        m->held[0] += minute > 15 && minute < 120 ? 5 * MIB : 0;
        step(m, 60);
        plim_sample_write(&lines, &m->o.sample);
    }
    struct plim_source_bytes bytes = {plim_buf_str(&lines)};
    struct plim_source source = plim_source_bytes(&bytes, plim_buf_str(&lines));
    struct plim_detector *d;
    assert_ok(plim_detector_new(NULL, &d, NULL));
    assert_ok(plim_detect_replay(d, &source, &replayed, NULL));
    assert_int_equal(replayed.samples, 300);
    assert_int_equal(replayed.findings.n, 1);
    assert_int_equal(replayed.findings.items[0].class, PLIM_FINDING_LEAK);
    assert_false(replayed.findings.items[0].active);
    plim_replayed_fini(&replayed);
    source = plim_source_bytes(&bytes, PLIM_STR("{}\n"));
    assert_int_equal(plim_detect_replay(d, &source, &replayed, &err), PLIM_E_DATA);
    plim_replayed_fini(&replayed);
    plim_detector_free(d);
    plim_buf_fini(&lines);
}

/* ---- whatever comes ---- */

static uint64_t next_random(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + 1;
    return *x >> 33;
}

static void check_findings(struct made *m)
{
    size_t n;
    const struct plim_finding *f = plim_detector_findings(m->detector, &n);
    assert_true(n <= 512);
    for (size_t i = 0; i < n; i++) {
        assert_true(f[i].confidence >= 0 && f[i].confidence <= 1);
        assert_true(!f[i].slope.valid || (isfinite(f[i].slope.value) && isfinite(f[i].slope.low) &&
                                          isfinite(f[i].slope.high)));
        assert_true(!f[i].seconds_left.valid ||
                    (f[i].seconds_left.low <= f[i].seconds_left.value &&
                     f[i].seconds_left.value <= f[i].seconds_left.high &&
                     f[i].seconds_left.low >= 0));
        assert_true(f[i].summary[0] != '\0');
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(f[i].id, f[j].id);
        }
    }
}

static void random_machines_never_break_a_promise(void **state)
{
    struct made *m = *state;
    uint64_t x = 7;
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t r = next_random(&x);
        m->ranks = r % 5 == 0 ? (unsigned)(next_random(&x) % RANKS) : m->ranks;
        m->first_pid += r % 7 == 0 ? (uint32_t)(next_random(&x) % 20) : 0;
        for (unsigned i = 0; i < RANKS; i++) {
            m->held[i] = GIB + next_random(&x) * 37 % (79 * GIB);
            m->live[i] = r % 3 == 0 ? 0 : next_random(&x) % m->held[i];
        }
        m->stranded = next_random(&x) % GIB;
        m->retries = next_random(&x) % 3;
        m->engine = r % 2 == 0;
        m->asleep = r % 4 == 0;
        step(m, (unsigned)(next_random(&x) % (r % 50 == 0 ? 5000 : 60)));
        if (round % 100 == 0) {
            check_findings(m);
        }
    }
    check_findings(m);
}

static void thousands_of_short_lives_are_forgotten(void **state)
{
    struct made *m = *state;
    struct plim_buf text = {0};
    m->ranks = RANKS;
    for (unsigned i = 0; i < 5000; i++) {
        m->held[i % RANKS] = GIB;
        m->first_pid += 8;
        step(m, 1);
    }
    plim_detector_save(m->detector, &text);
    assert_true(text.n < 100000);
    plim_buf_fini(&text);
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
        EACH(an_allocator_that_reserved_more_than_the_driver_counts_has_spilled),
        EACH(a_sleeper_that_holds_too_much_is_told),
        EACH(the_rank_that_differs_from_its_siblings_is_told),
        EACH(stranded_bytes_and_retries_are_fragmentation),
        EACH(failures_at_a_like_age_cluster_and_others_do_not),
        EACH(what_was_learned_survives_being_saved),
        EACH(a_bad_text_is_refused_and_leaves_a_new_detector),
        EACH(a_recorded_history_gives_the_findings_that_a_monitor_would_have),
        EACH(random_machines_never_break_a_promise),
        EACH(thousands_of_short_lives_are_forgotten),
    };
    return PLIM_RUN_TESTS("detect_rules", tests);
}
