/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of a model or many, told from the stacks of its allocations. */

#include "diagnose/passes.h"
#include "snapshot_maker.h"
#include "unit.h"

static struct maker maker; /* large: not on the stack */

#define TORCH "/venv/site-packages/torch/nn/modules/module.py"

/* main() line -> [forward of the model at `line`] -> [a layer's forward at `inner`]; 0 leaves one out. */
static uint32_t stack_at(uint32_t caller, uint32_t line, uint32_t inner)
{
    struct maker_frame frames[5];
    size_t n = 0;
    if (inner) {
        frames[n++] = (struct maker_frame){"forward", "/app/layer.py", inner};
        frames[n++] = (struct maker_frame){"_call_impl", TORCH, 1784};
    }
    if (line) {
        frames[n++] = (struct maker_frame){"forward", "/app/model.py", line};
        frames[n++] = (struct maker_frame){"_call_impl", TORCH, 1784};
    }
    frames[n++] = (struct maker_frame){"main", "/app/main.py", caller};
    return maker_deep_stack(&maker, frames, n);
}

static void alloc_at(uint32_t stack)
{
    maker_alloc(&maker, 1000, stack);
}

static void one_pass(int layers, bool around)
{
    alloc_at(stack_at(10, around ? 20 : 30, 0)); /* the embedding, or the loop's own first line */
    for (int i = 0; i < layers; i++) {
        alloc_at(stack_at(10, 30, 5));
        alloc_at(stack_at(10, 30, 6));
    }
    if (around) {
        alloc_at(stack_at(10, 40, 0)); /* the head */
    }
}

static enum plim_passes answer(uint32_t stack)
{
    enum plim_passes passes;
    maker_finish(&maker);
    const struct plim_trace *trace = &maker.snapshot.devices.items[0].trace;
    assert_ok(plim_passes_of(&maker.snapshot, trace, stack, trace->events.n / 2, trace->events.n,
                             &passes, NULL));
    maker_fini(&maker);
    return passes;
}

static void layers_of_one_forward_call_are_one_pass(void **state)
{
    (void)state;
    maker_init(&maker);
    one_pass(300, true);
    assert_int_equal(answer(stack_at(10, 30, 5)), PLIM_PASSES_ONE);
}

static void calls_with_other_work_between_are_many(void **state)
{
    (void)state;
    maker_init(&maker);
    for (int i = 0; i < 20; i++) {
        alloc_at(stack_at(9, 0, 0)); /* the next batch */
        one_pass(4, true);
    }
    assert_int_equal(answer(stack_at(10, 40, 0)), PLIM_PASSES_MANY);
}

static void calls_from_one_line_are_many_when_every_line_recurs(void **state)
{
    (void)state;
    maker_init(&maker);
    for (int i = 0; i < 20; i++) {
        one_pass(4, true);
    }
    assert_int_equal(answer(stack_at(10, 30, 5)), PLIM_PASSES_MANY);
}

static void a_single_line_tells_nothing(void **state)
{
    (void)state;
    maker_init(&maker);
    one_pass(100, false);
    assert_int_equal(answer(stack_at(10, 30, 5)), PLIM_PASSES_UNCLEAR);
}

static void code_without_a_model_is_unclear(void **state)
{
    (void)state;
    maker_init(&maker);
    for (int i = 0; i < 20; i++) {
        alloc_at(stack_at(9, 0, 0));
        alloc_at(stack_at(10, 0, 0));
    }
    assert_int_equal(answer(stack_at(10, 0, 0)), PLIM_PASSES_UNCLEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_one_forward_call_are_one_pass),
        cmocka_unit_test(calls_with_other_work_between_are_many),
        cmocka_unit_test(calls_from_one_line_are_many_when_every_line_recurs),
        cmocka_unit_test(a_single_line_tells_nothing),
        cmocka_unit_test(code_without_a_model_is_unclear),
    };
    return PLIM_RUN_TESTS("passes", tests);
}
