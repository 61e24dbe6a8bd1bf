/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of failed attempts: held by a caught failure, or gone as it should be. */

#include "diagnose/diagnose.h"
#include "snapshot_maker.h"
#include "unit.h"

static struct maker maker; /* large: not on the stack */

enum {
    LAYERS = 10
};

struct program {
    uint32_t start, layer, other; /* stacks */
    size_t blocks[LAYERS + 1];
};

static struct program begin(void)
{
    maker_init(&maker);
    struct program p = {.start = maker_stack(&maker, "step", "train.py", 4),
                        .layer = maker_stack(&maker, "forward", "model.py", 9),
                        .other = maker_stack(&maker, "setup", "train.py", 40)};
    maker_alloc(&maker, 2 * PLIM_GIB, p.other);
    return p;
}

/* One attempt: an input, then layers until the device is full. */
static void attempt(struct program *p)
{
    p->blocks[0] = maker_alloc(&maker, PLIM_GIB, p->start);
    for (int i = 1; i <= LAYERS; i++) {
        p->blocks[i] = maker_alloc(&maker, PLIM_GIB, p->layer);
    }
    maker_oom(&maker, PLIM_GIB, 100 * PLIM_MIB, p->layer);
}

static void unwind(struct program *p, int from)
{
    for (int i = LAYERS; i >= from; i--) {
        maker_free(&maker, p->blocks[i]);
    }
}

static void judge(struct plim_diagnosis *d)
{
    struct plim_diagnose_options options = {.device = PLIM_NO_ID};
    options.facts.total = plim_amount(14 * PLIM_GIB, PLIM_HOW_GIVEN);
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, &options, d, NULL));
}

static void an_attempt_that_nothing_unwound_is_a_leak(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    attempt(&p);
    maker_oom(&maker, 512 * PLIM_MIB, 100 * PLIM_MIB, p.start);
    judge(&d);
    assert_int_equal(d.held.bytes, (LAYERS + 1) * PLIM_GIB);
    assert_int_equal(d.held.blocks, LAYERS + 1);
    assert_string_equal(plim_subclass_text(d.set.verdict.subclass), "held_exception");
    assert_non_null(strstr(d.set.advice.items[0].action, "except block"));
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void an_attempt_that_was_unwound_holds_nothing(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    attempt(&p);
    unwind(&p, 0);
    attempt(&p);
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    assert_string_equal(plim_subclass_text(d.set.verdict.subclass), "working_set");
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void an_attempt_unwound_but_for_its_input_holds_nothing(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    attempt(&p);
    unwind(&p, 1);
    maker_oom(&maker, 12 * PLIM_GIB, 10 * PLIM_GIB, p.start);
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_smaller_try_at_the_same_place_is_no_new_attempt(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    attempt(&p);
    maker_oom(&maker, 512 * PLIM_MIB, 100 * PLIM_MIB, p.layer);
    maker_alloc(&maker, 64 * PLIM_MIB, p.layer);
    maker_oom(&maker, 512 * PLIM_MIB, 36 * PLIM_MIB, p.layer);
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_try_from_within_the_handler_is_a_new_attempt(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    const struct maker_frame frames[] = {{"step", "train.py", 4}, {"step", "train.py", 9}};
    uint32_t deeper = maker_deep_stack(&maker, frames, 2);
    attempt(&p);
    maker_alloc(&maker, 64 * PLIM_MIB, deeper);
    maker_oom(&maker, 512 * PLIM_MIB, 36 * PLIM_MIB, p.layer);
    judge(&d);
    assert_int_equal(d.held.bytes, (LAYERS + 1) * PLIM_GIB);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_pass_that_goes_on_behind_a_failure_is_no_new_attempt(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct program p = begin();
    uint32_t norm = maker_stack(&maker, "forward", "model.py", 8);
    for (int i = 0; i < LAYERS / 2; i++) {
        maker_alloc(&maker, PLIM_GIB, norm);
        maker_alloc(&maker, PLIM_GIB, p.layer);
    }
    maker_oom(&maker, 4 * PLIM_GIB, PLIM_GIB, p.layer);
    maker_alloc(&maker, 512 * PLIM_MIB, norm);
    maker_oom(&maker, PLIM_GIB, 512 * PLIM_MIB, p.layer);
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

/* An attempt of many requests from one line, whose stack is known from the function that catches failures. */
static void recursive_attempt(uint32_t stack, bool first_freed)
{
    size_t input = maker_alloc(&maker, PLIM_GIB, stack);
    for (int i = 0; i < LAYERS; i++) {
        maker_alloc(&maker, PLIM_GIB, stack);
    }
    if (first_freed) {
        maker_free(&maker, input);
        maker_alloc(&maker, PLIM_GIB, stack);
    }
    maker_oom(&maker, PLIM_GIB, 100 * PLIM_MIB, stack);
}

static void a_function_that_calls_itself_from_its_handler_holds_the_attempt(void **state)
{
    (void)state;
    const struct maker_frame once[] = {
        {"forward", "model.py", 9}, {"attempt", "train.py", 4}, {"main", "train.py", 20}};
    const struct maker_frame again[] = {{"forward", "model.py", 9},
                                        {"attempt", "train.py", 4},
                                        {"attempt", "train.py", 6},
                                        {"main", "train.py", 20}};
    for (int first_freed = 0; first_freed < 2; first_freed++) {
        struct plim_diagnosis d;
        begin();
        recursive_attempt(maker_deep_stack(&maker, once, 3), first_freed);
        maker_oom(&maker, 512 * PLIM_MIB, 100 * PLIM_MIB, maker_deep_stack(&maker, again, 4));
        judge(&d);
        assert_int_equal(d.held.bytes, (LAYERS + 1) * PLIM_GIB);
        assert_string_equal(plim_subclass_text(d.set.verdict.subclass), "held_exception");
        plim_diagnosis_fini(&d);
        maker_fini(&maker);
    }
}

static void a_function_that_fills_a_pool_until_it_fails_holds_no_attempt(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    const struct maker_frame fill[] = {{"take", "pool.py", 9}, {"fill", "pool.py", 20}};
    const struct maker_frame then[] = {{"work", "pool.py", 40}, {"fill", "pool.py", 23}};
    begin();
    recursive_attempt(maker_deep_stack(&maker, fill, 2), false);
    maker_oom(&maker, 512 * PLIM_MIB, 100 * PLIM_MIB, maker_deep_stack(&maker, then, 2));
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void without_stacks_no_attempt_is_known(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    maker_init(&maker);
    for (int i = 0; i < 12; i++) {
        maker_alloc(&maker, PLIM_GIB, PLIM_NO_STACK);
    }
    maker_oom(&maker, PLIM_GIB, 100 * PLIM_MIB, PLIM_NO_STACK);
    maker_oom(&maker, PLIM_GIB, 100 * PLIM_MIB, PLIM_NO_STACK);
    judge(&d);
    assert_int_equal(d.held.bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attempt_that_nothing_unwound_is_a_leak),
        cmocka_unit_test(an_attempt_that_was_unwound_holds_nothing),
        cmocka_unit_test(an_attempt_unwound_but_for_its_input_holds_nothing),
        cmocka_unit_test(a_smaller_try_at_the_same_place_is_no_new_attempt),
        cmocka_unit_test(a_try_from_within_the_handler_is_a_new_attempt),
        cmocka_unit_test(a_pass_that_goes_on_behind_a_failure_is_no_new_attempt),
        cmocka_unit_test(a_function_that_calls_itself_from_its_handler_holds_the_attempt),
        cmocka_unit_test(a_function_that_fills_a_pool_until_it_fails_holds_no_attempt),
        cmocka_unit_test(without_stacks_no_attempt_is_known),
    };
    return PLIM_RUN_TESTS("held", tests);
}
