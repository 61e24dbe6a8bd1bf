/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of blocks for mode pool: what a list must be, whatever was asked for. */

#include "unit.h"

#include "serving/blocks.h"

static uint64_t random_state = 7;

static uint64_t roll(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void few_sizes_stay_as_they_are(void **state)
{
    (void)state;
    struct plim_map asked = {0};
    struct plim_engine_rounding r = {.mode = PLIM_ENGINE_POOL};
    double added;
    assert_int_equal(plim_blocks_list(&asked, &r, &added, NULL), PLIM_E_RANGE);
    assert_ok(plim_map_put(&asked, 3 << 20, 5, NULL));
    assert_ok(plim_map_put(&asked, 512, 1000, NULL));
    assert_ok(plim_map_put(&asked, 1 << 20, 100, NULL));
    assert_ok(plim_blocks_list(&asked, &r, &added, NULL));
    assert_int_equal(r.n_sizes, 3);
    assert_true(r.sizes[0] == 512 && r.sizes[1] == 1 << 20 && r.sizes[2] == 3 << 20);
    assert_true(added == 0);
    plim_map_fini(&asked);
}

static void a_cheap_pair_becomes_one_and_a_dear_one_does_not(void **state)
{
    (void)state;
    struct plim_map asked = {0};
    struct plim_engine_rounding r = {.mode = PLIM_ENGINE_POOL};
    double added;
    assert_ok(plim_map_put(&asked, 100 * 512, 10, NULL));
    assert_ok(plim_map_put(&asked, 101 * 512, 10, NULL)); /* joining adds 10 of 7,010 units */
    assert_ok(plim_map_put(&asked, 200 * 512, 25, NULL));
    assert_ok(plim_blocks_list(&asked, &r, &added, NULL));
    assert_int_equal(r.n_sizes, 2);
    assert_true(r.sizes[0] == 101 * 512 && r.sizes[1] == 200 * 512);
    assert_true(added > 10.0 / 7010 - 1e-9 && added < 10.0 / 7010 + 1e-9);
    plim_map_fini(&asked);
}

/* What rounding to the list adds, counted request by request. */
static double added_by(const struct plim_map *asked, const struct plim_engine_rounding *r)
{
    double given = 0, all = 0;
    size_t cursor = 0;
    for (const struct plim_map_slot *s; (s = plim_map_next(asked, &cursor)) != NULL;) {
        uint64_t up = plim_engine_round(r, s->key);
        assert_true(up >= s->key);
        assert_true(up <= r->sizes[r->n_sizes - 1]);
        given += (double)up * (double)s->value;
        all += (double)s->key * (double)s->value;
    }
    return given / all - 1;
}

static void any_requests_give_a_list_that_serves_them(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 40; run++) {
        struct plim_map asked = {0};
        struct plim_engine_rounding r = {.mode = PLIM_ENGINE_POOL};
        size_t n = 1 + roll() % (run % 4 == 3 ? 20000 : 600);
        double added;
        for (size_t i = 0; i < n; i++) {
            uint64_t size = (1 + roll() % (UINT64_C(1) << (4 + roll() % 18))) * 512;
            assert_ok(plim_map_put(&asked, size, 1 + roll() % 1000, NULL));
        }
        assert_ok(plim_blocks_list(&asked, &r, &added, NULL));
        assert_true(r.n_sizes >= 1 && r.n_sizes <= PLIM_ENGINE_SIZES);
        for (uint32_t i = 1; i < r.n_sizes; i++) {
            assert_true(r.sizes[i - 1] < r.sizes[i] && r.sizes[i] % 512 == 0);
        }
        double counted = added_by(&asked, &r);
        assert_true(counted - added < 1e-9 && added - counted < 1e-9);
        assert_true(added <= 0.01 || r.n_sizes == PLIM_ENGINE_SIZES);
        plim_map_fini(&asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_sizes_stay_as_they_are),
        cmocka_unit_test(a_cheap_pair_becomes_one_and_a_dear_one_does_not),
        cmocka_unit_test(any_requests_give_a_list_that_serves_them),
    };
    return PLIM_RUN_TESTS("blocks", tests);
}
