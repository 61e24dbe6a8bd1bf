/* SPDX-License-Identifier: Apache-2.0 */
/* Address map against a plain array as the model: put, replace, take, walk; chains and wrap-around. */

#include "base/map.h"
#include "fail_alloc.h"
#include "unit.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return plim_hash_u64(*seed);
}

static void a_zeroed_map_is_empty(void **state)
{
    (void)state;
    struct plim_map map = {0};
    size_t cursor = 0;
    assert_null(plim_map_get(&map, 1));
    assert_false(plim_map_take(&map, 1, NULL));
    assert_null(plim_map_next(&map, &cursor));
    plim_map_fini(&map);
}

static void put_replaces_the_value_of_a_key(void **state)
{
    (void)state;
    struct plim_map map = {0};
    assert_ok(plim_map_put(&map, 0, 1, NULL));
    assert_ok(plim_map_put(&map, 0, 2, NULL));
    assert_int_equal(map.n, 1);
    assert_int_equal(*plim_map_get(&map, 0), 2);
    plim_map_fini(&map);
}

static void the_reserved_key_is_never_found(void **state)
{
    (void)state;
    struct plim_map map = {0};
    assert_ok(plim_map_put(&map, 7, 1, NULL));
    assert_null(plim_map_get(&map, PLIM_MAP_NO_KEY));
    assert_false(plim_map_take(&map, PLIM_MAP_NO_KEY, NULL));
    plim_map_fini(&map);
}

#define MODEL_KEYS 257u

struct model {
    bool present[MODEL_KEYS];
    uint64_t value[MODEL_KEYS];
    size_t n;
};

/* Every key the model has is there with its value, no other key is, and the walk meets each once. */
static void assert_like_model(const struct plim_map *map, const struct model *model,
                              uint64_t stride)
{
    size_t cursor = 0, walked = 0;
    assert_int_equal(map->n, model->n);
    for (uint64_t k = 0; k < MODEL_KEYS; k++) {
        uint64_t *value = plim_map_get(map, k * stride);
        assert_int_equal(value != NULL, model->present[k]);
        assert_true(value == NULL || *value == model->value[k]);
    }
    for (const struct plim_map_slot *slot; (slot = plim_map_next(map, &cursor)); walked++) {
        assert_true(model->present[slot->key / stride]);
    }
    assert_int_equal(walked, model->n);
}

static void random_steps(uint64_t seed, uint64_t stride, unsigned take_share)
{
    struct plim_map map = {0};
    struct model model = {0};
    for (int step = 0; step < 20000; step++) {
        uint64_t k = next_random(&seed) % MODEL_KEYS;
        if (next_random(&seed) % 100 < take_share) {
            uint64_t value = 0;
            assert_int_equal(plim_map_take(&map, k * stride, &value), model.present[k]);
            assert_true(!model.present[k] || value == model.value[k]);
            model.n -= model.present[k];
            model.present[k] = false;
        } else {
            assert_ok(plim_map_put(&map, k * stride, (uint64_t)step, NULL));
            model.n += !model.present[k];
            model.present[k] = true;
            model.value[k] = (uint64_t)step;
        }
        if (step % 97 == 0) {
            assert_like_model(&map, &model, stride);
        }
    }
    assert_like_model(&map, &model, stride);
    plim_map_fini(&map);
}

static void it_agrees_with_a_model_on_small_keys(void **state)
{
    (void)state;
    random_steps(1, 1, 50);
}

static void it_agrees_with_a_model_on_device_addresses(void **state)
{
    (void)state;
    random_steps(2, 512, 50);
}

static void it_agrees_with_a_model_when_almost_full(void **state)
{
    (void)state;
    random_steps(3, UINT64_C(0x7f0000000000) / MODEL_KEYS, 10);
}

static void it_agrees_with_a_model_when_almost_empty(void **state)
{
    (void)state;
    random_steps(4, 2097152, 70);
}

static void a_million_addresses_are_kept(void **state)
{
    (void)state;
    struct plim_map map = {0};
    uint64_t base = UINT64_C(0x7f3a00000000);
    for (uint64_t i = 0; i < 1000000; i++) {
        assert_ok(plim_map_put(&map, base + i * 512, i, NULL));
    }
    for (uint64_t i = 0; i < 1000000; i += 3) {
        uint64_t v;
        assert_true(plim_map_take(&map, base + i * 512, &v));
        assert_int_equal(v, i);
    }
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t *v = plim_map_get(&map, base + i * 512);
        assert_int_equal(v != NULL, i % 3 != 0);
    }
    assert_true(map.n * 8 <= (map.mask + 1) * 7);
    plim_map_fini(&map);
}

static enum plim_status put_many(void *arg)
{
    (void)arg;
    struct plim_map map = {0};
    enum plim_status st = PLIM_OK;
    for (uint64_t k = 0; st == PLIM_OK && k < 5000; k++) {
        st = plim_map_put(&map, k, k, NULL);
        if (st == PLIM_E_NOMEM) {
            assert_int_equal(map.n, k);
            assert_null(plim_map_get(&map, k));
            assert_true(k == 0 || *plim_map_get(&map, k - 1) == k - 1);
        }
    }
    plim_map_fini(&map);
    return st;
}

static void a_failed_put_leaves_the_map_unchanged(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(put_many, NULL, 100, false) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zeroed_map_is_empty),
        cmocka_unit_test(put_replaces_the_value_of_a_key),
        cmocka_unit_test(the_reserved_key_is_never_found),
        cmocka_unit_test(it_agrees_with_a_model_on_small_keys),
        cmocka_unit_test(it_agrees_with_a_model_on_device_addresses),
        cmocka_unit_test(it_agrees_with_a_model_when_almost_full),
        cmocka_unit_test(it_agrees_with_a_model_when_almost_empty),
        cmocka_unit_test(a_million_addresses_are_kept),
        cmocka_unit_test(a_failed_put_leaves_the_map_unchanged),
    };
    return PLIM_RUN_TESTS("map", tests);
}
