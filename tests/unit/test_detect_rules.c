/* SPDX-License-Identifier: Apache-2.0 */
/* What the detector says of processes: failures, requests, sleep, siblings, Xids; and that what it learned survives
 * being saved. */

#include "detect/replay.h"
#include "detect_made.h"
#include "device/sample_json.h"
#include "fail_alloc.h"

#include <math.h>

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

/* The process says what it works on; NULL: nothing. */
static void work_on(struct made *m, const char *note)
{
    struct plim_note_now n = {.pid = m->first_pid, .start_ticks = m->first_pid};
    m->o.notes.n = 0;
    if (note != NULL) {
        snprintf(n.text, sizeof(n.text), "%s", note);
        assert_ok(plim_vec_push(&m->o.notes, NULL, n));
    }
}

static void refuse(struct made *m, uint64_t bytes)
{
    struct plim_happening h = {.kind = PLIM_HAPPENED_OOM, .device = 0, .pid = m->first_pid};
    h.value = bytes;
    assert_ok(plim_vec_push(&m->o.happenings, NULL, h));
}

static void a_failure_says_on_what_the_process_worked(void **state)
{
    struct made *m = *state;
    m->held[0] = 70 * GIB;
    m->live[0] = 60 * GIB;
    work_on(m, "{\"request_id\":\"r7\",\"shape\":{\"batch\":8,\"prompt\":4096}}");
    steps(m, 1);
    work_on(m, NULL); /* it ended by the failure */
    refuse(m, 4 * GIB);
    step(m, 1);
    struct plim_finding f = found(m, PLIM_FINDING_OOM);
    assert_true(f.active);
    assert_non_null(strstr(f.evidence, "It was working on: batch 8, prompt 4096."));
    steps(m, 11);
    work_on(m, "{\"shape\":17, not JSON");
    refuse(m, 4 * GIB);
    step(m, 1);
    assert_null(strstr(found(m, PLIM_FINDING_OOM).evidence, "It was working on"));
}

static void retries_are_told_with_the_shape_that_sees_most_of_them(void **state)
{
    struct made *m = *state;
    m->held[0] = 40 * GIB;
    m->live[0] = 20 * GIB;
    m->stranded = 15 * GIB;
    steps(m, 25);
    for (int i = 0; i < 40; i++) {
        work_on(m, i % 4 == 0 ? "{\"shape\":\"tall\"}" : "{\"shape\":{\"width\":1536}}");
        m->retries += i % 2 == 1;
        step(m, 10);
    }
    struct plim_finding f = found(m, PLIM_FINDING_FRAGMENTATION);
    assert_true(f.active);
    assert_non_null(strstr(f.evidence, "retries came while it worked on: width 1536."));
}

static void the_request_that_was_refused_is_held_against_what_is_left(void **state)
{
    struct made *m = *state;
    m->held[0] = 60 * GIB + 500 * MIB;
    m->live[0] = 40 * GIB;
    m->stranded = 5 * GIB;
    steps(m, 15);
    work_on(m, "{\"shape\":\"1024x1024\"}");
    refuse(m, 38 * GIB);
    step(m, 10);
    steps(m, 9);
    assert_int_equal(found(m, PLIM_FINDING_FRAGMENTATION).id, 0); /* the failure itself is told */
    assert_int_equal(found(m, PLIM_FINDING_CAPACITY).id, 0);
    steps(m, 10); /* 34.5 GiB are free or can be given back; 5 more in pieces */
    struct plim_finding f = found(m, PLIM_FINDING_FRAGMENTATION);
    assert_true(f.active);
    assert_int_equal(f.bytes, 38 * GIB);
    assert_non_null(strstr(f.summary, "only stranded pieces"));
    assert_non_null(strstr(f.evidence, "34.51 GiB are free or can be given back"));
    assert_non_null(strstr(f.evidence, "1024x1024"));
    m->first_pid++; /* the next life of the program; not even the pieces would do */
    m->stranded = 0;
    m->live[0] = 50 * GIB;
    steps(m, 5);
    f = found(m, PLIM_FINDING_CAPACITY);
    assert_true(f.active);
    assert_int_equal(f.subject.pid, m->first_pid);
    assert_non_null(strstr(f.summary, "less is left"));
    struct plim_buf text = {0};
    plim_detector_save(m->detector, &text);
    assert_non_null(strstr(text.p, "\"asked\":40802189312"));
    plim_buf_fini(&text);
    m->held[0] = 30 * GIB;
    m->live[0] = 29 * GIB;
    steps(m, 3);
    assert_false(found(m, PLIM_FINDING_CAPACITY).active);
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

static void an_xid_is_told_with_the_process_that_ended_by_it(void **state)
{
    struct made *m = *state;
    struct plim_buf lines = {0};
    struct plim_replayed replayed;
    m->held[0] = 20 * GIB;
    steps(m, 3);
    m->xids = 1;
    m->last_xid = 31;
    for (unsigned i = 0; i < 12; i++) {
        step(m, 2);
        plim_sample_write(&lines, &m->o.sample);
        m->dead = i >= 2;
    }
    assert_non_null(
        strstr(found(m, PLIM_FINDING_DEVICE).evidence, "server (pid 100) ended 4 s after it."));
    /* A recorded history begins after the count: a second error later in it is seen. */
    m->dead = false;
    m->first_pid = 200;
    step(m, 60);
    plim_sample_write(&lines, &m->o.sample);
    m->dead = true;
    m->xids = 2;
    m->last_xid = 79;
    step(m, 1);
    plim_sample_write(&lines, &m->o.sample);
    struct plim_source_bytes bytes = {plim_buf_str(&lines)};
    struct plim_source source = plim_source_bytes(&bytes, plim_buf_str(&lines));
    struct plim_detector *d;
    assert_ok(plim_detector_new(NULL, &d, NULL));
    assert_ok(plim_detect_replay(d, &source, &replayed, NULL));
    assert_int_equal(replayed.findings.n, 1);
    assert_non_null(strstr(replayed.findings.items[0].summary, "Xid 79"));
    assert_non_null(strstr(replayed.findings.items[0].evidence, "server (pid 200) ended"));
    plim_replayed_fini(&replayed);
    plim_detector_free(d);
    plim_buf_fini(&lines);
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
        EACH(an_allocator_that_reserved_more_than_the_driver_counts_has_spilled),
        EACH(a_sleeper_that_holds_too_much_is_told),
        EACH(the_rank_that_differs_from_its_siblings_is_told),
        EACH(stranded_bytes_and_retries_are_fragmentation),
        EACH(a_failure_says_on_what_the_process_worked),
        EACH(retries_are_told_with_the_shape_that_sees_most_of_them),
        EACH(the_request_that_was_refused_is_held_against_what_is_left),
        EACH(failures_at_a_like_age_cluster_and_others_do_not),
        EACH(what_was_learned_survives_being_saved),
        EACH(a_bad_text_is_refused_and_leaves_a_new_detector),
        EACH(a_recorded_history_gives_the_findings_that_a_monitor_would_have),
        EACH(an_xid_is_told_with_the_process_that_ended_by_it),
        EACH(random_machines_never_break_a_promise),
        EACH(thousands_of_short_lives_are_forgotten),
    };
    return PLIM_RUN_TESTS("detect_rules", tests);
}
