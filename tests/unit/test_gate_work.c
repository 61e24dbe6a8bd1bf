/* SPDX-License-Identifier: Apache-2.0 */
/* Workspace: what is learned from failures, also from those whose request nobody names. */

#include "gate_bench.h"

static struct plimsoll_gate_config priced(void)
{
    struct plimsoll_gate_config c = paged(100000);
    c.work_row_bytes = 10000;
    return c;
}

static const struct plimsoll_gate_request plain = {.prompt_tokens = 2000, .max_tokens = 10};
static const struct plimsoll_gate_request rows = {
    .prompt_tokens = 2000, .max_tokens = 10, .logprob_rows = 2000};

static uint64_t let_in(struct bench *b, struct plimsoll_gate_request r)
{
    struct plimsoll_gate_decision d = ask(b, r);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    return d.id;
}

static void the_heaviest_that_failed_before_its_first_token_is_blamed(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = priced();
    begin(&b, &c);
    uint64_t first = let_in(&b, plain), second = let_in(&b, rows), third = let_in(&b, plain);
    assert_int_equal(plimsoll_gate_release(&b.gate, first, 0, PLIMSOLL_GATE_FAILED, b.now), 0);
    assert_int_equal(plimsoll_gate_release(&b.gate, second, 0, PLIMSOLL_GATE_CANCELLED, b.now), 0);
    assert_int_equal(plimsoll_gate_release(&b.gate, third, 0, PLIMSOLL_GATE_FAILED, b.now), 0);
    b.now += 20 * SECOND;
    assert_int_equal(plimsoll_gate_oom(&b.gate, NULL, 33000000, b.now), 0);
    assert_int_equal(state_of(&b).ooms, 1);
    /* No headroom was told: what failed is more than there is, but one that is alone may try. */
    uint64_t alone = let_in(&b, plain);
    struct plimsoll_gate_decision d = ask(&b, rows);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_WORKSPACE);
    assert_int_equal(d.work_bytes, 33000000);
    assert_int_equal(plimsoll_gate_release(&b.gate, alone, 1, PLIMSOLL_GATE_STOPPED, b.now), 0);
    (void)let_in(&b, rows);
    end(&b);
}

static void one_that_still_waits_for_its_first_token_is_blamed_too(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = priced();
    begin(&b, &c);
    uint64_t begun = let_in(&b, rows);
    assert_int_equal(plimsoll_gate_extend(&b.gate, begun, 1, b.now), 0);
    (void)let_in(&b, plain);
    assert_int_equal(plimsoll_gate_oom(&b.gate, NULL, 5000000, b.now), 0);
    assert_int_equal(ask(&b, plain).work_bytes, 5000000); /* the other had its workspace already */
    assert_int_equal(ask(&b, rows).work_bytes, 20000000);
    end(&b);
}

static void a_second_report_of_the_same_failure_says_nothing_new(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = priced();
    begin(&b, &c);
    assert_int_equal(plimsoll_gate_oom(&b.gate, &rows, 30000000, b.now), 0);
    b.now += 30 * SECOND;
    assert_int_equal(plimsoll_gate_oom(&b.gate, NULL, 90000000, b.now), PLIMSOLL_GATE_UNKNOWN);
    assert_int_equal(state_of(&b).ooms, 1);
    b.now += 90 * SECOND;
    assert_int_equal(plimsoll_gate_oom(&b.gate, NULL, 90000000, b.now),
                     0); /* of nobody that is known */
    assert_int_equal(state_of(&b).ooms, 2);
    assert_int_equal(ask(&b, rows).work_bytes, 30000000);
    end(&b);
}

static void who_failed_long_ago_is_not_blamed(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = priced();
    begin(&b, &c);
    uint64_t id = let_in(&b, rows);
    assert_int_equal(plimsoll_gate_release(&b.gate, id, 0, PLIMSOLL_GATE_FAILED, b.now), 0);
    b.now += 61 * SECOND;
    assert_int_equal(plimsoll_gate_oom(&b.gate, NULL, 90000000, b.now), 0);
    assert_int_equal(ask(&b, rows).work_bytes, 20000000);
    end(&b);
}

static void rows_of_one_step_are_priced_not_those_of_the_whole_prompt(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = priced();
    c.step_tokens = 512;
    begin(&b, &c);
    assert_int_equal(ask(&b, rows).work_bytes, 5120000);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_heaviest_that_failed_before_its_first_token_is_blamed),
        cmocka_unit_test(one_that_still_waits_for_its_first_token_is_blamed_too),
        cmocka_unit_test(a_second_report_of_the_same_failure_says_nothing_new),
        cmocka_unit_test(who_failed_long_ago_is_not_blamed),
        cmocka_unit_test(rows_of_one_step_are_priced_not_those_of_the_whole_prompt),
    };
    return PLIM_RUN_TESTS("gate work", tests);
}
