/* SPDX-License-Identifier: Apache-2.0 */
/* Where a sequence repeats itself, whatever comes before and after. */

#include "unit.h"

#include "replay/period.h"

#include <stdlib.h>

static uint64_t roll(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void a_period_is_found_between_a_prologue_and_an_epilogue(void **state)
{
    (void)state;
    uint64_t random = 5, keys[8000], one[700];
    for (unsigned round = 0; round < 200; round++) {
        uint64_t length = 9 + roll(&random) % 690, kinds = 2 + roll(&random) % 30;
        for (uint64_t i = 0; i < length; i++) {
            one[i] = roll(&random) % kinds;
        }
        one[length - 1] = 1000; /* once in each: the period is this and no part of it */
        uint64_t before = roll(&random) % 500, times = 2 + roll(&random) % 6;
        uint64_t behind = roll(&random) % 300, n = 0;
        for (uint64_t i = 0; i < before; i++) {
            keys[n++] = 5000 + i;
        }
        for (uint64_t i = 0; i < times * length; i++) {
            keys[n++] = one[i % length];
        }
        for (uint64_t i = 0; i < behind; i++) {
            keys[n++] = 9000 + i;
        }
        struct plim_period found;
        if (length * times < 16 || length * times < n / 10) {
            continue;
        }
        assert_int_equal(plim_period_find(keys, n, &found, NULL), PLIM_OK);
        assert_int_equal(found.length, length);
        assert_int_equal(found.first, before);
        assert_int_equal(found.n, length * times);
    }
}

/* Forward and backward over equal layers: most distances are those of layers, the period is the step. */
static void equal_layers_are_not_taken_for_the_period(void **state)
{
    (void)state;
    enum {
        LAYERS = 40,
        LAYER = 11,
        STEPS = 5
    };
    uint64_t keys[STEPS * (2 * LAYERS * LAYER + 3)], n = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        keys[n++] = 901;
        for (unsigned i = 0; i < LAYERS * LAYER; i++) {
            keys[n++] = i % LAYER % 4;
        }
        keys[n++] = 902;
        for (unsigned i = 0; i < LAYERS * LAYER; i++) {
            keys[n++] = 100 + i % LAYER % 3;
        }
        keys[n++] = 903;
    }
    struct plim_period found;
    assert_int_equal(plim_period_find(keys, n, &found, NULL), PLIM_OK);
    assert_int_equal(found.length, n / STEPS);
    assert_int_equal(found.n, n);
}

static void what_does_not_repeat_itself_has_no_period(void **state)
{
    (void)state;
    uint64_t keys[3000], random = 3;
    for (unsigned i = 0; i < 3000; i++) {
        keys[i] = roll(&random);
    }
    struct plim_period found;
    assert_int_equal(plim_period_find(keys, 3000, &found, NULL), PLIM_E_NOTFOUND);
    for (unsigned i = 0; i < 100; i++) { /* too small a part */
        keys[2000 + i] = i % 10;
    }
    assert_int_equal(plim_period_find(keys, 3000, &found, NULL), PLIM_E_NOTFOUND);
    assert_int_equal(plim_period_find(keys, 0, &found, NULL), PLIM_E_NOTFOUND);
    assert_int_equal(plim_period_find(keys, 7, &found, NULL), PLIM_E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_period_is_found_between_a_prologue_and_an_epilogue),
        cmocka_unit_test(equal_layers_are_not_taken_for_the_period),
        cmocka_unit_test(what_does_not_repeat_itself_has_no_period),
    };
    return PLIM_RUN_TESTS("period", tests);
}
