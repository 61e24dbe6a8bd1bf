/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's ledger and decisions (include/plimsoll/gate.h), one thread; processes that die are in
 * test_gate_shared.c. */

#include "gate_bench.h"

static struct plimsoll_gate_decision ask_for(struct bench *b, uint32_t prompt, uint32_t most)
{
    return ask(b, (struct plimsoll_gate_request){.prompt_tokens = prompt, .max_tokens = most});
}

static void a_request_is_priced_in_blocks_now_and_at_most(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(1000);
    begin(&b, &c);
    struct plimsoll_gate_decision d = ask_for(&b, 100, 61);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(d.now_units, 7);
    assert_int_equal(d.peak_units, 11); /* 161 tokens */
    assert_true(d.expected_units >= 7 && d.expected_units <= 11);
    assert_int_equal(state_of(&b).held_units, 7);
    assert_int_equal(plimsoll_gate_extend(&b.gate, d.id, 20, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 8);
    assert_int_equal(plimsoll_gate_release(&b.gate, d.id, 30, PLIMSOLL_GATE_STOPPED, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 0);
    end(&b);
}

static void conservative_never_reserves_more_than_the_pool(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(1000);
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    begin(&b, &c);
    uint32_t n = 0;
    while (ask_for(&b, 160, 1440).verdict == PLIMSOLL_GATE_ADMIT) { /* 100 blocks */
        n++;
    }
    assert_int_equal(n, 10);
    struct plimsoll_gate_decision d = ask_for(&b, 160, 1440);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_LATER);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_MEMORY);
    assert_int_equal(d.http, 429);
    assert_true(d.retry_after_ms >= 1000 && d.retry_after_ms <= 60000);
    end(&b);
}

static void what_can_never_fit_is_refused_for_ever(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(100);
    begin(&b, &c);
    struct plimsoll_gate_decision d = ask_for(&b, 8192, 1);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_NEVER);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_TOO_LONG);
    assert_int_equal(d.http, 400);
    d = ask_for(&b, 1600, 1);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_TOO_LARGE);
    end(&b);
}

static void a_second_release_is_counted_and_harmless(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(1000);
    begin(&b, &c);
    struct plimsoll_gate_decision d = ask_for(&b, 100, 100);
    assert_int_equal(plimsoll_gate_release(&b.gate, d.id, 5, PLIMSOLL_GATE_STOPPED, b.now), 0);
    assert_int_equal(plimsoll_gate_release(&b.gate, d.id, 5, PLIMSOLL_GATE_STOPPED, b.now),
                     PLIMSOLL_GATE_UNKNOWN);
    assert_int_equal(plimsoll_gate_extend(&b.gate, 12345, 5, b.now), PLIMSOLL_GATE_UNKNOWN);
    struct plimsoll_gate_state s = state_of(&b);
    assert_int_equal(s.unknown_ids, 2);
    assert_int_equal(s.live, 0);
    end(&b);
}

static void a_lease_that_ends_returns_the_reservation(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(1000);
    begin(&b, &c);
    struct plimsoll_gate_decision d = ask_for(&b, 100, 100);
    b.now += 59 * SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(plimsoll_gate_extend(&b.gate, d.id, 0, b.now), 0); /* renews */
    b.now += 59 * SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).live, 1);
    b.now += 2 * SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).live, 0);
    assert_int_equal(state_of(&b).expired, 1);
    end(&b);
}

/* Everything in random order; the checker after every step. */
static void random_operations_leave_the_ledger_whole(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = paged(3000);
    uint64_t ids[300];
    unsigned n = 0;
    c.waiters = 16;
    c.first_token_ns = 2 * SECOND;
    c.token_ns = SECOND / 20;
    begin(&b, &c);
    srand(7);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned what = (unsigned)rand() % 16;
        b.now += (uint64_t)rand() % (SECOND / 10);
        uint32_t some = n > 0 ? (uint32_t)rand() % n : 0;
        if (what < 6 && n < 300) {
            struct plimsoll_gate_request r = {.prompt_tokens = (uint32_t)rand() % 2000,
                                              .max_tokens = (uint32_t)rand() % 1000,
                                              .cached_tokens = (uint32_t)rand() % 500,
                                              .shared_tokens = (uint32_t)rand() % 300,
                                              .samples = (uint32_t)rand() % 3,
                                              .class_id = (uint32_t)rand() % 70,
                                              .priority = rand() % 3 - 1,
                                              .flags = (uint32_t)rand() % 2};
            struct plimsoll_gate_decision d;
            assert_int_equal(plimsoll_gate_admit(&b.gate, &r, &d, b.now), 0);
            if (d.id != 0) {
                ids[n++] = d.id;
            }
        } else if (what < 11 && n > 0) {
            (void)plimsoll_gate_extend(&b.gate, ids[some], (uint32_t)rand() % 1500, b.now);
        } else if (what < 14 && n > 0) {
            (void)plimsoll_gate_release(&b.gate, ids[some], (uint32_t)rand() % 1500,
                                        (uint32_t)rand() % 5, b.now);
            ids[some] = ids[--n];
        } else if (what == 14 && n > 0) {
            struct plimsoll_gate_decision d;
            (void)plimsoll_gate_poll(&b.gate, ids[some], &d, b.now);
            (void)plimsoll_gate_correct(&b.gate, ids[some], (uint32_t)rand() % 3000, b.now);
        } else {
            struct plimsoll_gate_figures f = {
                .has = 3, .usage = rand() / (double)RAND_MAX, .preempted = (uint64_t)rand() % 5};
            assert_int_equal(plimsoll_gate_observe(&b.gate, &f, b.now), 0);
            assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
        }
        assert_null(plimsoll_gate_check(&b.gate));
    }
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_priced_in_blocks_now_and_at_most),
        cmocka_unit_test(conservative_never_reserves_more_than_the_pool),
        cmocka_unit_test(what_can_never_fit_is_refused_for_ever),
        cmocka_unit_test(a_second_release_is_counted_and_harmless),
        cmocka_unit_test(a_lease_that_ends_returns_the_reservation),
        cmocka_unit_test(random_operations_leave_the_ledger_whole),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
