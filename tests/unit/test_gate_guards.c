/* SPDX-License-Identifier: Apache-2.0 */
/* When the gate says no: classes, the queue, figures, failures. */

#include "gate_steps.h"

/* ---- classes, priorities, long ones */

static void a_budget_holds_and_a_share_binds_only_when_others_want_theirs(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    begin(&b, &c);
    uint32_t one = plimsoll_gate_class(&b.gate, "one", b.now);
    uint32_t two = plimsoll_gate_class(&b.gate, "two", b.now);
    struct plimsoll_gate_request r = {
        .prompt_tokens = 160, .max_tokens = 160, .known_output = 160, .class_id = one};
    uint64_t ids[60];
    unsigned n = 0;
    struct plimsoll_gate_decision d;
    while ((d = ask(&b, r)).id != 0) { /* alone it may have everything */
        ids[n++] = d.id;
    }
    assert_int_equal(n, 50);
    for (unsigned i = 0; i < 10; i++) {
        release(&b, ids[--n], 160, PLIMSOLL_GATE_STOPPED);
    }
    r.class_id = two;
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT); /* now both have one */
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    }
    r.class_id = one; /* nearly full, and it has more than half */
    d = ask(&b, r);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_SHARE);
    struct plimsoll_gate_class limits = {.weight = 1, .budget = 0.1};
    assert_int_equal(plimsoll_gate_class_set(&b.gate, two, &limits, b.now), 0);
    r.class_id = two;
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_BUDGET);
    end(&b);
}

static void unimportant_requests_are_the_first_to_be_refused(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 160, .max_tokens = 160, .priority = -1};
    unsigned minor = 0, normal = 0;
    struct plimsoll_gate_decision d;
    while ((d = ask(&b, r)).id != 0) {
        minor++;
    }
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_PRIORITY);
    r.priority = 0;
    while (ask(&b, r).id != 0) {
        normal++;
    }
    assert_int_equal(minor, 44);
    assert_int_equal(normal, 6);
    end(&b);
}

static void long_requests_get_their_part_and_short_ones_keep_flowing(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(10000);
    c.long_part = 0.1;
    c.long_share = 0.35;
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 19200, .max_tokens = 16}; /* 1,201 */
    assert_int_equal(ask(&b, r).is_long, 1);
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_LONG);
    r.prompt_tokens = 1600;
    struct plimsoll_gate_decision d = ask(&b, r);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(d.is_long, 0);
    end(&b);
}

/* ---- the line and the queue */

static void the_gate_opens_again_only_below_the_lower_threshold(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    c.low = 0.9;
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 160, .max_tokens = 160};
    uint64_t ids[50];
    for (unsigned i = 0; i < 50; i++) {
        ids[i] = ask(&b, r).id;
        assert_true(ids[i] != 0);
    }
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_MEMORY);
    assert_int_equal(state_of(&b).full, 1);
    for (unsigned i = 0; i < 5; i++) {
        release(&b, ids[i], 10, PLIMSOLL_GATE_STOPPED);
    }
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_MEMORY); /* would be 0.92 */
    release(&b, ids[5], 10, PLIMSOLL_GATE_STOPPED);
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT); /* open again, up to 1 */
    assert_int_equal(state_of(&b).full, 0);
    end(&b);
}

static void who_waits_is_served_in_order_and_nobody_of_the_same_weight_overtakes(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100);
    struct plimsoll_gate_decision d, w[4];
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    c.waiters = 3;
    c.low = 1;
    begin(&b, &c);
    struct plimsoll_gate_request r = {
        .prompt_tokens = 1440, .max_tokens = 160, .flags = PLIMSOLL_GATE_MAY_WAIT};
    uint64_t running = ask(&b, r).id;
    w[0] = ask(&b, r);
    w[1] = ask(&b, r);
    r.priority = 1;
    w[2] = ask(&b, r);
    assert_int_equal(w[0].verdict, PLIMSOLL_GATE_WAIT);
    assert_int_equal(w[0].position, 0);
    assert_int_equal(w[1].position, 1);
    assert_int_equal(w[2].position, 0); /* before the others */
    w[3] = ask(&b, r);
    assert_int_equal(w[3].verdict, PLIMSOLL_GATE_LATER); /* the queue is full */
    release(&b, running, 10, PLIMSOLL_GATE_STOPPED);
    assert_int_equal(plimsoll_gate_poll(&b.gate, w[0].id, &d, b.now), 0);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_WAIT);
    assert_int_equal(d.position, 1);
    r = (struct plimsoll_gate_request){.prompt_tokens = 16, .max_tokens = 16};
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_QUEUE);
    assert_int_equal(plimsoll_gate_poll(&b.gate, w[2].id, &d, b.now), 0);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(d.id, w[2].id);
    release(&b, w[2].id, 10, PLIMSOLL_GATE_STOPPED);
    release(&b, w[0].id, 0, PLIMSOLL_GATE_CANCELLED); /* gives up */
    assert_int_equal(plimsoll_gate_poll(&b.gate, w[1].id, &d, b.now), 0);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(plimsoll_gate_poll(&b.gate, w[1].id, &d, b.now), PLIMSOLL_GATE_UNKNOWN);
    end(&b);
}

/* ---- figures and failures */

static void figures_that_are_too_old_count_as_full_for_new_work(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    c.stale_ns = 5 * SECOND;
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 160, .max_tokens = 160};
    uint64_t id = ask(&b, r).id; /* none yet: the ledger alone decides */
    assert_true(id != 0);
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_USAGE, .usage = 0.01});
    b.now += 6 * SECOND;
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_STALE);
    assert_int_equal(plimsoll_gate_extend(&b.gate, id, 50, b.now), 0); /* running ones go on */
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_USAGE, .usage = 0.01});
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    end(&b);
}

static void usage_that_nobody_reserved_is_counted_and_drift_is_shown(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    begin(&b, &c);
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_USAGE, .usage = 0.95});
    struct plimsoll_gate_state s = state_of(&b);
    assert_int_equal(s.foreign_units, 950);
    assert_int_equal(s.drift_units, 950);
    assert_true(s.drift > 0.94 && s.drift < 0.96);
    struct plimsoll_gate_request r = {.prompt_tokens = 480, .max_tokens = 160};
    assert_true(ask(&b, r).id != 0); /* nothing of its own runs: it may try */
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_MEMORY);
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_USAGE, .usage = 0.03});
    assert_int_equal(state_of(&b).foreign_units, 0);
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    end(&b);
}

static void preemptions_widen_the_margin_and_time_narrows_it(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    begin(&b, &c);
    struct plimsoll_gate_figures f = {.has = PLIMSOLL_GATE_HAS_PREEMPTED, .preempted = 7};
    figures(&b, f); /* from before */
    assert_true(state_of(&b).margin == 2);
    for (unsigned i = 0; i < 5; i++) {
        f.preempted++;
        b.now += SECOND / 10;
        figures(&b, f);
    }
    assert_true(state_of(&b).margin > 4);
    assert_true(state_of(&b).share > 0.7);
    assert_int_equal(state_of(&b).preempted, 5);
    b.now += 120 * SECOND;
    figures(&b, f);
    assert_true(state_of(&b).margin == 2);
    assert_true(state_of(&b).share < 0.2);
    f.preempted = 2; /* another engine */
    figures(&b, f);
    assert_int_equal(state_of(&b).preempted, 5);
    end(&b);
}

static void failures_in_a_row_open_the_breaker_until_somebody_closes_it(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 160, .max_tokens = 160};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(plimsoll_gate_oom(&b.gate, &r, 0, b.now), 0);
        b.now += SECOND;
    }
    uint64_t id = ask(&b, r).id; /* it works in between */
    release(&b, id, 5, PLIMSOLL_GATE_STOPPED);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(state_of(&b).draining, 0);
        b.now += SECOND;
        assert_int_equal(plimsoll_gate_oom(&b.gate, &r, 0, b.now), 0);
    }
    struct plimsoll_gate_decision d = ask(&b, r);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_DRAINING);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_BREAKER);
    assert_int_equal(d.http, 503);
    assert_int_equal(state_of(&b).broken_by, 1);
    assert_int_equal(plimsoll_gate_drain(&b.gate, false, b.now), 0);
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(plimsoll_gate_drain(&b.gate, true, b.now), 0);
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_DRAIN);
    end(&b);
}

static void stranded_bytes_that_do_not_go_down_open_it_too(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    c.stranded_limit = 0.3;
    begin(&b, &c);
    struct plimsoll_gate_figures f = {.has = PLIMSOLL_GATE_HAS_STRANDED, .stranded = 0.5};
    for (unsigned i = 0; i < 30; i++) { /* high but falling: it recovers by itself */
        f.stranded -= 0.006;
        figures(&b, f);
    }
    assert_int_equal(state_of(&b).draining, 0);
    for (unsigned i = 0; i < 11; i++) {
        f.stranded += 0.01;
        figures(&b, f);
    }
    assert_int_equal(state_of(&b).draining, 2);
    assert_int_equal(state_of(&b).broken_by, 2);
    end(&b);
}

static void a_failure_makes_its_kind_of_request_dearer(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100000);
    c.work_token_bytes = 1000;
    c.work_row_bytes = 10000;
    begin(&b, &c);
    struct plimsoll_gate_request plain = {.prompt_tokens = 2000, .max_tokens = 10};
    struct plimsoll_gate_request rows = plain;
    rows.logprob_rows = 2000;
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_HEADROOM,
                                               .headroom_bytes = 60000000});
    struct plimsoll_gate_decision d = ask(&b, rows);
    assert_int_equal(d.work_bytes, 22000000);
    assert_int_equal(plimsoll_gate_extend(&b.gate, d.id, 1, b.now), 0); /* its prompt is done */
    assert_int_equal(plimsoll_gate_oom(&b.gate, &rows, 80000000, b.now), 0);
    d = ask(&b, rows);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_WORKSPACE);
    assert_true(d.work_bytes >= 80000000);
    assert_int_equal(ask(&b, plain).verdict, PLIMSOLL_GATE_ADMIT);
    for (unsigned i = 0; i < 1000; i++) { /* it turns out to need less */
        assert_int_equal(plimsoll_gate_worked(&b.gate, &rows, 25000000, b.now), 0);
    }
    assert_int_equal(ask(&b, rows).verdict, PLIMSOLL_GATE_ADMIT);
    end(&b);
}

/* ---- time and numbers */

static void time_that_goes_back_stands_still(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000);
    begin(&b, &c);
    b.now = 1000 * SECOND;
    uint64_t id =
        ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 160, .max_tokens = 160}).id;
    b.now = SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(plimsoll_gate_extend(&b.gate, id, 5, b.now), 0);
    assert_int_equal(state_of(&b).live, 1);
    b.now = 1061 * SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).live, 0);
    end(&b);
}

static void ten_thousand_reservations_come_and_go(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(PLIMSOLL_GATE_UNITS_MAX);
    static uint64_t ids[12001];
    begin(&b, &c);
    for (unsigned i = 0; i < 12000; i++) {
        ids[i] = ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 1 + i % 4000,
                                                        .max_tokens = 1 + i % 900})
                     .id;
        assert_true(ids[i] != 0);
    }
    assert_int_equal(ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 1}).reason,
                     PLIMSOLL_GATE_WHY_TABLE);
    assert_null(plimsoll_gate_check(&b.gate));
    for (unsigned i = 0; i < 12000; i += 2) {
        release(&b, ids[i], 1 + i % 900, PLIMSOLL_GATE_STOPPED);
    }
    assert_null(plimsoll_gate_check(&b.gate));
    assert_int_equal(state_of(&b).live, 6000);
    b.now += 3600 * SECOND;
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    }
    assert_int_equal(state_of(&b).live, 0);
    assert_int_equal(state_of(&b).expired, 6000);
    end(&b);
}

static void configurations_that_make_no_sense_are_named(void **state)
{
    (void)state;
    struct plimsoll_gate_config c = wide(1000);
    c.groups[0].block_tokens = 0;
    assert_string_equal(plimsoll_gate_wrong(&c), "groups");
    assert_int_equal(plimsoll_gate_bytes(&c), 0);
    c = wide(1000);
    c.low = 1.1;
    assert_string_equal(plimsoll_gate_wrong(&c), "low");
    c = wide(1000);
    c.size = 8;
    assert_string_equal(plimsoll_gate_wrong(&c), "size");
    c = wide(PLIMSOLL_GATE_UNITS_MAX + 1);
    assert_string_equal(plimsoll_gate_wrong(&c), "capacity_units");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_holds_and_a_share_binds_only_when_others_want_theirs),
        cmocka_unit_test(unimportant_requests_are_the_first_to_be_refused),
        cmocka_unit_test(long_requests_get_their_part_and_short_ones_keep_flowing),
        cmocka_unit_test(the_gate_opens_again_only_below_the_lower_threshold),
        cmocka_unit_test(who_waits_is_served_in_order_and_nobody_of_the_same_weight_overtakes),
        cmocka_unit_test(figures_that_are_too_old_count_as_full_for_new_work),
        cmocka_unit_test(usage_that_nobody_reserved_is_counted_and_drift_is_shown),
        cmocka_unit_test(preemptions_widen_the_margin_and_time_narrows_it),
        cmocka_unit_test(failures_in_a_row_open_the_breaker_until_somebody_closes_it),
        cmocka_unit_test(stranded_bytes_that_do_not_go_down_open_it_too),
        cmocka_unit_test(a_failure_makes_its_kind_of_request_dearer),
        cmocka_unit_test(time_that_goes_back_stands_still),
        cmocka_unit_test(ten_thousand_reservations_come_and_go),
        cmocka_unit_test(configurations_that_make_no_sense_are_named),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
