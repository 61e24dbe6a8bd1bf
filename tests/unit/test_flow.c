/* SPDX-License-Identifier: Apache-2.0 */
/* Flows of arrivals: reproducible, as bursty as they say, whole traces again and again. */

#include "serving/flow.h"

#include "fail_alloc.h"
#include "unit.h"

#include <math.h>

#define SECOND UINT64_C(1000000000)

static struct plim_flow_source parsed(const char *text)
{
    struct plim_flow_source s;
    bool known;
    assert_ok(plim_flow_parse(plim_str_from(text), &s, &known, NULL));
    assert_true(known);
    return s;
}

static struct plim_flow_facts measured(const char *text, uint64_t seconds, uint64_t seed)
{
    struct plim_flow_source s = parsed(text);
    struct plim_flow_options o = {
        .sources = &s, .n_sources = 1, .span_ns = seconds * SECOND, .seed = seed};
    struct plim_flow_facts f;
    assert_ok(plim_flow_measure(&o, &f, NULL));
    return f;
}

static void near(double value, double wanted, double share)
{
    if (fabs(value - wanted) > share * wanted) {
        fail_msg("%g is not near %g", value, wanted);
    }
}

static void presets_are_as_bursty_as_the_traces_they_stand_for(void **state)
{
    static const struct {
        const char *name;
        double rate, cv, busiest, prompt, output;
    } traces[] = {
        /* measured on the files; docs/design/soak.md */
        {"azure-conv", 5.530, 1.09, 1.77, 1155, 211},
        {"azure-code", 2.567, 13.15, 12.7, 2048, 28},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(traces); i++) {
        struct plim_flow_facts f = measured(traces[i].name, 40000, 1);
        near(f.rate, traces[i].rate, 0.1);
        near(f.cv, traces[i].cv, 0.1);
        near(f.prompt_mean, traces[i].prompt, 0.05);
        near(f.output_mean, traces[i].output, 0.1);
        assert_true(f.busiest_10s > 0.9 * traces[i].busiest);
    }
}

static void processes_have_the_variation_asked_for(void **state)
{
    static const struct {
        const char *text;
        double rate, cv;
    } cases[] = {
        {"poisson:rate=5", 5, 1},          {"gamma:rate=5,cv=3", 5, 3},
        {"gamma:rate=2,cv=0.5", 2, 0.5},   {"weibull:rate=5,cv=2", 5, 2},
        {"weibull:rate=5,cv=0.4", 5, 0.4},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_flow_facts f = measured(cases[i].text, 40000, 3);
        near(f.rate, cases[i].rate, 0.05);
        near(f.cv, cases[i].cv, 0.05);
    }
}

static void a_seed_gives_the_same_flow_and_another_seed_another(void **state)
{
    (void)state;
    struct plim_flow_facts a = measured("azure-conv", 500, 7), b = measured("azure-conv", 500, 7);
    struct plim_flow_facts c = measured("azure-conv", 500, 8);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.arrivals != c.arrivals || a.prompt_mean != c.prompt_mean);
}

static void lengths_are_those_of_median_and_99th_percentile(void **state)
{
    (void)state;
    struct plim_flow_facts f = measured("poisson:rate=10,prompt=1000~8000,output=50", 20000, 1);
    near(f.prompt_p50, 1000, 0.03);
    near(f.prompt_p99, 8000, 0.08);
    assert_int_equal(f.output_p50, 50);
    assert_int_equal(f.output_max, 50);
}

static struct plim_traffic three_rows(void)
{
    struct plim_traffic t = {.timed = true, .sessions = 2, .hash_block = 16};
    for (uint32_t i = 0; i < 3; i++) {
        struct plim_arrival a = {.at_ns = i * i * SECOND,
                                 .prompt = 10 * (i + 1),
                                 .output = 1 + i,
                                 .session = i % 2,
                                 .first_hash = i,
                                 .n_hashes = 1};
        assert_ok(plim_vec_push(&t.hashes, NULL, 100 + i));
        assert_ok(plim_vec_push(&t.arrivals, NULL, a));
    }
    return t;
}

static void a_trace_begins_anew_with_sessions_and_hashes_of_its_own(void **state)
{
    struct plim_traffic t = three_rows();
    struct plim_flow_source s = {.traffic = &t};
    struct plim_flow_options o = {.sources = &s, .n_sources = 1, .span_ns = 12 * SECOND};
    struct plim_flow *flow;
    struct plim_arrival a, last = {0};
    uint64_t salts[2] = {0}, salt, at[6];
    uint32_t block, n = 0, sessions[6];
    (void)state;
    assert_ok(plim_flow_new(&o, &flow, NULL));
    while (n < 6 && plim_flow_next(flow, &a)) {
        const uint64_t *h = plim_flow_hashes(flow, &salt, &block);
        assert_non_null(h);
        assert_int_equal(block, 16);
        assert_true(a.at_ns >= last.at_ns);
        salts[n / 3] = salt;
        sessions[n] = a.session;
        at[n++] = a.at_ns;
        last = a;
    }
    assert_int_equal(n, 6);
    assert_int_equal(at[2], 4 * SECOND);
    assert_int_equal(at[3], 6 * SECOND); /* the mean gap behind the last */
    assert_int_not_equal(salts[0], salts[1]);
    assert_int_equal(sessions[0], sessions[2]);
    assert_int_equal(sessions[0] + 2, sessions[3]);
    plim_flow_delete(flow);
    plim_traffic_fini(&t);
}

static void scales_change_times_and_lengths_and_a_tail_is_mixed_in(void **state)
{
    struct plim_traffic t = three_rows();
    struct plim_flow_source s = {.traffic = &t};
    struct plim_flow_options o = {.sources = &s,
                                  .n_sources = 1,
                                  .span_ns = 2 * SECOND + 1,
                                  .rate_scale = 2,
                                  .length_scale = 0.05,
                                  .tail = {0.5, 9000, 0}};
    struct plim_flow *flow;
    struct plim_arrival a;
    uint32_t n = 0, tails = 0;
    (void)state;
    assert_ok(plim_flow_new(&o, &flow, NULL));
    while (plim_flow_next(flow, &a)) {
        tails += a.prompt == 9000;
        assert_true(a.prompt == 9000 || a.prompt <= 2);
        assert_int_equal(a.n_hashes, 0);
        n++;
    }
    assert_int_equal(n, 3);
    plim_flow_delete(flow);
    o.span_ns = 2000 * SECOND;
    assert_ok(plim_flow_new(&o, &flow, NULL));
    for (n = 0, tails = 0; plim_flow_next(flow, &a); n++) {
        tails += a.prompt == 9000;
    }
    near(tails, 0.5 * n, 0.1);
    plim_flow_delete(flow);
    plim_traffic_fini(&t);
}

static void two_sources_are_mixed_by_time(void **state)
{
    struct plim_flow_source s[2] = {parsed("poisson:rate=3,prompt=10"),
                                    parsed("poisson:rate=1,prompt=99")};
    struct plim_flow_options o = {.sources = s, .n_sources = 2, .span_ns = 5000 * SECOND};
    struct plim_flow *flow;
    struct plim_arrival a;
    uint64_t last = 0;
    uint32_t of[2] = {0};
    (void)state;
    assert_ok(plim_flow_new(&o, &flow, NULL));
    while (plim_flow_next(flow, &a)) {
        assert_true(a.at_ns >= last);
        last = a.at_ns;
        of[a.prompt == 99]++;
    }
    near(of[0], 15000, 0.05);
    near(of[1], 5000, 0.05);
    plim_flow_delete(flow);
}

static void what_makes_no_sense_is_refused(void **state)
{
    static const char *const texts[] = {
        "gamma:cv=0",     "gamma:rate=-1",      "poisson:rate=x",   "mmpp:burst=9",
        "gamma:like=nix", "weibull:cv=1000",    "poisson:prompt=0", "poisson:prompt=9~3",
        "gamma:",         "gamma:rate=1,,cv=2", "gamma:rate",       "mmpp:burst_s=1e-9",
        "mmpp:quiet_s=0", "mmpp:quiet_s=1e300",
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        struct plim_flow_source s;
        struct plim_err err = {0};
        bool known;
        enum plim_status st = plim_flow_parse(plim_str_from(texts[i]), &s, &known, &err);
        assert_true(known);
        assert_int_equal(st, strcmp(texts[i], "gamma:") == 0 ? PLIM_OK : PLIM_E_USAGE);
    }
    struct plim_flow_source s;
    bool known = true;
    assert_ok(plim_flow_parse(PLIM_STR("traffic.csv"), &s, &known, NULL));
    assert_false(known);
}

/* Rates at which nothing comes before the end: the states behind it are nobody's. */
static void an_hour_in_which_nothing_comes_ends(void **state)
{
    (void)state;
    assert_int_equal(measured("mmpp:rate=1e-300", 3600, 1).arrivals, 0);
    assert_int_equal(measured("poisson:rate=1e-300", 3600, 1).arrivals, 0);
}

static void times_that_never_come_stay_never_when_scaled(void **state)
{
    struct plim_flow_source s = parsed("poisson:rate=0.0001");
    struct plim_flow_options o = {
        .sources = &s, .n_sources = 1, .span_ns = 100000 * SECOND, .rate_scale = 1e6};
    struct plim_flow_facts f;
    (void)state;
    assert_ok(plim_flow_measure(&o, &f, NULL));
    assert_true(f.arrivals > 0);
    assert_true(f.rate > 50); /* no arrival that stands for never is among them */
}

/* Rounds of a trace that fills all of time: the second would begin behind it. */
static void a_trace_as_long_as_time_is_given_once(void **state)
{
    struct plim_arrival two[2] = {
        {.prompt = 1, .output = 1, .session = PLIM_NO_ID},
        {.prompt = 1, .output = 1, .session = PLIM_NO_ID, .at_ns = UINT64_MAX - SECOND}};
    struct plim_traffic traffic = {.timed = true};
    traffic.arrivals.items = two;
    traffic.arrivals.n = 2;
    struct plim_flow_source s = {.traffic = &traffic};
    struct plim_flow_options o = {.sources = &s, .n_sources = 1, .span_ns = UINT64_MAX};
    struct plim_flow_facts f;
    (void)state;
    assert_ok(plim_flow_measure(&o, &f, NULL));
    assert_int_equal(f.arrivals, 2);
}

static enum plim_status flow_body(void *arg)
{
    struct plim_flow_source s = parsed("poisson:rate=1");
    struct plim_flow_options o = {.sources = &s, .n_sources = 1, .span_ns = 20 * SECOND};
    struct plim_flow_facts f;
    (void)arg;
    return plim_flow_measure(&o, &f, NULL);
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    fail_alloc_sweep(flow_body, NULL, 100, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_as_bursty_as_the_traces_they_stand_for),
        cmocka_unit_test(processes_have_the_variation_asked_for),
        cmocka_unit_test(a_seed_gives_the_same_flow_and_another_seed_another),
        cmocka_unit_test(lengths_are_those_of_median_and_99th_percentile),
        cmocka_unit_test(a_trace_begins_anew_with_sessions_and_hashes_of_its_own),
        cmocka_unit_test(scales_change_times_and_lengths_and_a_tail_is_mixed_in),
        cmocka_unit_test(two_sources_are_mixed_by_time),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(an_hour_in_which_nothing_comes_ends),
        cmocka_unit_test(times_that_never_come_stay_never_when_scaled),
        cmocka_unit_test(a_trace_as_long_as_time_is_given_once),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return PLIM_RUN_TESTS("flows of arrivals", tests);
}
