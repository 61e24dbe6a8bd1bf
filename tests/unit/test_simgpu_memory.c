/* SPDX-License-Identifier: Apache-2.0 */
/* The books of the simulated GPU: address sets, memory, virtual memory management, pools. */

#include "simgpu_world.h"

#include <string.h>

int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaMalloc(void **out, size_t bytes);
int cudaIpcGetMemHandle(void *handle, void *p);

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*seed >> 4) * n) >> 28);
}

static void neighbours_in_a_set_agree_with_a_linear_search(void **state)
{
    (void)state;
    enum {
        N = 20000
    };
    static bool member[N];
    struct sim_bits bits;
    uint32_t seed = 7;
    assert_int_equal(sim_bits_init(&bits, N), SIM_OK);
    for (int step = 0; step < 4000; step++) {
        uint32_t i = random_below(&seed, N);
        member[i] = !member[i];
        (member[i] ? sim_bits_set : sim_bits_clear)(&bits, i);
        uint32_t at = random_below(&seed, N);
        uint64_t prev = at, next = at;
        while (prev != SIM_NONE && !member[prev]) {
            prev = prev == 0 ? SIM_NONE : prev - 1;
        }
        while (next != SIM_NONE && !member[next]) {
            next = next + 1 == N ? SIM_NONE : next + 1;
        }
        assert_int_equal(sim_bits_prev(&bits, at), prev);
        assert_int_equal(sim_bits_next(&bits, at), next);
    }
}

static void free_ranges_give_the_lowest_place_and_merge(void **state)
{
    (void)state;
    enum {
        N = 600
    };
    static bool is_free[N];
    struct sim_ranges set = {.seed = 1};
    uint32_t seed = 3;
    uint64_t total = 0;
    for (int step = 0; step < 20000; step++) {
        uint32_t len = 1 + random_below(&seed, 12), at = random_below(&seed, N - len);
        bool all_used = true;
        for (uint32_t i = at; i < at + len; i++) {
            all_used = all_used && !is_free[i];
        }
        if (all_used) {
            assert_int_equal(sim_ranges_add(&set, at, len), SIM_OK);
            memset(is_free + at, 1, len);
            total += len;
        } else {
            uint64_t expected = SIM_NONE;
            for (uint32_t i = 0, run = 0; i < N && expected == SIM_NONE; i++) {
                run = is_free[i] ? run + 1 : 0;
                expected = run == len ? i + 1 - len : SIM_NONE;
            }
            assert_int_equal(sim_ranges_take(&set, len), expected);
            if (expected != SIM_NONE) {
                memset(is_free + expected, 0, len);
                total -= len;
            }
        }
        assert_int_equal(sim_ranges_total(&set), total);
    }
}

static void the_first_call_pays_for_the_context_once(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(in_use(), 0);
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 2 * MIB);
    assert_int_equal(sim_call_free(p), SIM_OK);
    assert_int_equal(in_use(), CONTEXT);
}

static void small_requests_share_a_page_and_large_ones_do_not(void **state)
{
    (void)state;
    void *p[5];
    static const uint64_t sizes[5] = {1, 65, 123, MIB, MIB + 1};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sim_call_malloc(&p[i], sizes[i]), SIM_OK);
    }
    assert_int_equal((char *)p[1] - (char *)p[0], 0x200);
    assert_int_equal((char *)p[2] - (char *)p[1], 0x200);
    assert_int_equal((char *)p[3] - (char *)p[0], 0x600);
    assert_int_equal((uintptr_t)p[4] % SIM_PAGE, 0);
    assert_int_equal(in_use(), CONTEXT + 4 * MIB);
    uint64_t base, size;
    assert_int_equal(sim_extent((char *)p[3] + 5000, &base, &size), SIM_OK);
    assert_int_equal(base, (uintptr_t)p[3]);
    assert_int_equal(size, MIB);
    assert_int_equal(sim_call_free((char *)p[3] + 512), SIM_E_VALUE);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(in_use(), CONTEXT + 4 * MIB);
        assert_int_equal(sim_call_free(p[i]), SIM_OK);
    }
    assert_int_equal(in_use(), CONTEXT + 2 * MIB);
    assert_int_equal(sim_call_free(p[0]), SIM_E_VALUE);
    assert_int_equal(sim_call_free(p[4]), SIM_OK);
}

static void small_blocks_never_overlap(void **state)
{
    (void)state;
    enum {
        N = 400
    };
    static struct {
        char *p;
        uint64_t size;
    } live[N];
    uint32_t seed = 11;
    for (int step = 0; step < 20000; step++) {
        uint32_t i = random_below(&seed, N);
        if (live[i].p != NULL) {
            assert_int_equal(sim_call_free(live[i].p), SIM_OK);
            live[i].p = NULL;
            continue;
        }
        live[i].size = 1 + random_below(&seed, 200000);
        assert_int_equal(sim_call_malloc((void **)&live[i].p, live[i].size), SIM_OK);
        for (uint32_t j = 0; step % 10 == 0 && j < N; j++) {
            assert_true(j == i || live[j].p == NULL || live[j].p + live[j].size <= live[i].p ||
                        live[i].p + live[i].size <= live[j].p);
        }
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(live[i].p == NULL ? SIM_OK : sim_call_free(live[i].p), SIM_OK);
    }
    assert_int_equal(in_use(), CONTEXT);
}

static void the_device_is_full_to_the_byte_and_the_error_is_remembered(void **state)
{
    (void)state;
    void *p = NULL, *q = NULL;
    size_t free_bytes, total;
    assert_int_equal(sim_call_info(&free_bytes, &total), SIM_OK);
    assert_int_equal(total, CAPACITY);
    assert_int_equal(free_bytes, CAPACITY - CONTEXT);
    assert_int_equal(cudaMalloc(&p, free_bytes), SIM_OK);
    assert_int_equal(cudaMalloc(&q, 1), SIM_E_NOMEM);
    assert_null(q);
    assert_int_equal(cudaPeekAtLastError(), SIM_E_NOMEM);
    assert_int_equal(cudaGetLastError(), SIM_E_NOMEM);
    assert_int_equal(cudaGetLastError(), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_OK);
    assert_int_equal(sim_call_malloc(&p, UINT64_MAX - 5), SIM_E_NOMEM);
    assert_int_equal(sim_set("external", "900MiB"), SIM_OK);
    assert_int_equal(sim_call_malloc(&p, 62 * MIB), SIM_E_NOMEM);
    assert_int_equal(sim_call_malloc(&p, 60 * MIB), SIM_OK);
    assert_int_equal(sim_set("external", "0"), SIM_OK);
    assert_int_equal(sim_set("limit", "128MiB"), SIM_OK);
    assert_int_equal(sim_call_malloc(&q, 6 * MIB), SIM_E_NOMEM);
    assert_int_equal(sim_set("limit", "0"), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_OK);
}

static void addresses_follow_the_policy(void **state)
{
    (void)state;
    static const char *const policies[] = {"ascending", "descending", "first-fit"};
    for (int k = 0; k < 3; k++) {
        char *p[4];
        assert_int_equal(sim_set("addresses", policies[k]), SIM_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(sim_call_malloc((void **)&p[i], 4 * MIB), SIM_OK);
        }
        assert_int_equal(sim_call_free(p[0]), SIM_OK);
        assert_int_equal(sim_call_malloc((void **)&p[3], 4 * MIB), SIM_OK);
        if (k == 0) {
            assert_true(p[0] < p[1] && p[1] < p[2] && p[2] < p[3]);
        } else if (k == 1) {
            assert_true(p[0] > p[1] && p[1] > p[2] && p[2] > p[3]);
        } else {
            assert_true(p[3] <= p[0]);
        }
        for (int i = 1; i < 4; i++) {
            assert_int_equal(sim_call_free(p[i]), SIM_OK);
        }
    }
    assert_int_equal(sim_set("addresses", "sideways"), SIM_E_VALUE);
    assert_int_equal(sim_set("addresses", "ascending"), SIM_OK);
}

static void a_mapping_keeps_memory_alive_after_its_handle_is_released(void **state)
{
    (void)state;
    uint64_t addr, handle, size, base, again;
    assert_int_equal(sim_reserve(0, 64 * MIB, 0, &addr), SIM_OK);
    assert_int_equal(in_use(), CONTEXT);
    assert_int_equal(sim_create(0, 20 * MIB, &handle), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 20 * MIB);
    assert_int_equal(sim_access(addr, 20 * MIB, true), SIM_E_VALUE);
    assert_int_equal(sim_map(addr, 20 * MIB, 0, handle), SIM_OK);
    assert_int_equal(sim_access(addr, 20 * MIB, true), SIM_OK);
    assert_int_equal(sim_release(handle), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 20 * MIB);
    assert_int_equal(sim_mapping_extent((void *)(uintptr_t)(addr + 3 * MIB), &base, &size), SIM_OK);
    assert_int_equal(base, addr);
    assert_int_equal(size, 20 * MIB);
    assert_int_equal(sim_retain_at(addr, &again), SIM_OK);
    assert_int_equal(again, handle);
    assert_int_equal(sim_unreserve(addr, 64 * MIB), SIM_E_VALUE);
    assert_int_equal(sim_unmap(addr, 20 * MIB), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 20 * MIB);
    assert_int_equal(sim_release(again), SIM_OK);
    assert_int_equal(in_use(), CONTEXT);
    assert_int_equal(sim_release(again), SIM_E_VALUE);
    assert_int_equal(sim_unreserve(addr, 64 * MIB), SIM_OK);
}

static void only_memory_of_cudaMalloc_is_shared_by_its_address(void **state)
{
    (void)state;
    uint64_t addr, handle;
    void *small, *large, *pooled;
    char shared[64];
    assert_int_equal(sim_malloc(0, 100, &small), SIM_OK);
    assert_int_equal(sim_malloc(0, 5 * MIB, &large), SIM_OK);
    assert_int_equal(cudaIpcGetMemHandle(shared, small), SIM_OK);
    assert_int_equal(cudaIpcGetMemHandle(shared, large), SIM_OK);
    assert_int_equal(sim_reserve(0, 4 * MIB, 0, &addr), SIM_OK);
    assert_int_equal(sim_create(0, 4 * MIB, &handle), SIM_OK);
    assert_int_equal(sim_map(addr, 4 * MIB, 0, handle), SIM_OK);
    assert_int_equal(sim_access(addr, 4 * MIB, true), SIM_OK);
    assert_int_equal(cudaIpcGetMemHandle(shared, (void *)(uintptr_t)addr), SIM_E_VALUE);
    assert_int_equal(sim_call_malloc_async(&pooled, MIB, NULL, NULL), SIM_OK);
    assert_int_equal(cudaIpcGetMemHandle(shared, pooled), SIM_E_VALUE);
    assert_int_equal(cudaGetLastError(), SIM_E_VALUE);
    assert_int_equal(sim_call_free_async(pooled, NULL), SIM_OK);
    assert_int_equal(sim_call_pool_trim(sim_mempool_default(0), 0), SIM_OK);
    assert_int_equal(sim_unmap(addr, 4 * MIB), SIM_OK);
    assert_int_equal(sim_release(handle), SIM_OK);
    assert_int_equal(sim_unreserve(addr, 4 * MIB), SIM_OK);
    assert_int_equal(sim_free(small), SIM_OK);
    assert_int_equal(sim_free(large), SIM_OK);
}

static void mappings_obey_the_rules_of_the_driver(void **state)
{
    (void)state;
    uint64_t addr, a, b;
    assert_int_equal(sim_create(0, 3 * MIB, &a), SIM_E_VALUE);
    assert_int_equal(sim_reserve(0, 16 * MIB, 0, &addr), SIM_OK);
    assert_int_equal(sim_create(0, 4 * MIB, &a), SIM_OK);
    assert_int_equal(sim_create(0, 4 * MIB, &b), SIM_OK);
    assert_int_equal(sim_map(addr, 4 * MIB, 2 * MIB, a), SIM_E_VALUE);
    assert_int_equal(sim_map(addr + MIB, 4 * MIB, 0, a), SIM_E_VALUE);
    assert_int_equal(sim_map(addr + 14 * MIB, 4 * MIB, 0, a), SIM_E_VALUE);
    assert_int_equal(sim_map(addr, 8 * MIB, 0, a), SIM_E_VALUE);
    assert_int_equal(sim_map(addr + 4 * MIB, 4 * MIB, 0, a), SIM_OK);
    assert_int_equal(sim_map(addr + 2 * MIB, 4 * MIB, 0, b), SIM_E_VALUE);
    assert_int_equal(sim_map(addr + 6 * MIB, 4 * MIB, 0, b), SIM_E_VALUE);
    assert_int_equal(sim_map(addr + 8 * MIB, 4 * MIB, 0, b), SIM_OK);
    assert_int_equal(sim_map(addr, 4 * MIB, 0, b), SIM_OK); /* a second place of the same memory */
    assert_int_equal(sim_access(addr, 12 * MIB, true), SIM_OK);
    assert_int_equal(sim_unmap(addr, 2 * MIB), SIM_E_VALUE);
    assert_int_equal(sim_unmap(addr + 2 * MIB, 6 * MIB), SIM_E_VALUE);
    assert_int_equal(sim_unmap(addr, 16 * MIB), SIM_E_VALUE);
    assert_int_equal(in_use(), CONTEXT + 8 * MIB);
    assert_int_equal(sim_unmap(addr, 12 * MIB), SIM_OK);
    assert_int_equal(sim_release(a), SIM_OK);
    assert_int_equal(sim_release(b), SIM_OK);
    assert_int_equal(sim_unreserve(addr, 16 * MIB), SIM_OK);
    assert_int_equal(in_use(), CONTEXT);
}

static void accessible_mappings_are_limited(void **state)
{
    (void)state;
    uint64_t addr, handle;
    assert_int_equal(sim_set("max_mappings", "2"), SIM_OK);
    assert_int_equal(sim_reserve(0, 8 * MIB, 0, &addr), SIM_OK);
    assert_int_equal(sim_create(0, 2 * MIB, &handle), SIM_OK);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(sim_map(addr + i * 2 * MIB, 2 * MIB, 0, handle), SIM_OK);
        assert_int_equal(sim_access(addr + i * 2 * MIB, 2 * MIB, true),
                         i < 2 ? SIM_OK : SIM_E_NOMEM);
    }
    assert_int_equal(sim_set("max_mappings", "520000"), SIM_OK);
    assert_int_equal(sim_unmap(addr, 6 * MIB), SIM_OK);
    assert_int_equal(sim_release(handle), SIM_OK);
    assert_int_equal(sim_unreserve(addr, 8 * MIB), SIM_OK);
}

static void a_pool_gives_memory_back_at_a_synchronisation(void **state)
{
    (void)state;
    struct sim_mempool *pool = sim_mempool_default(0);
    void *p = NULL, *q = NULL;
    uint64_t value, keep = UINT64_MAX;
    assert_int_equal(sim_call_malloc_async(&p, 3 * MIB, NULL, NULL), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 32 * MIB);
    assert_int_equal(sim_call_malloc_async(&q, 40 * MIB, NULL, NULL), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 72 * MIB);
    assert_int_equal(sim_mempool_get(pool, 7, &value), SIM_OK);
    assert_int_equal(value, 43 * MIB);
    assert_int_equal(sim_call_free_async(q, NULL), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 72 * MIB);
    assert_int_equal(sim_mempool_set(pool, 4, &keep), SIM_OK);
    assert_int_equal(sim_call_device_sync(), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 72 * MIB);
    keep = 0;
    assert_int_equal(sim_mempool_set(pool, 4, &keep), SIM_OK);
    assert_int_equal(sim_call_device_sync(), SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 32 * MIB);
    assert_int_equal(sim_call_free_async(p, NULL), SIM_OK);
    assert_int_equal(sim_call_free_async(p, NULL), SIM_E_VALUE);
    assert_int_equal(sim_call_pool_trim(pool, 0), SIM_OK);
    assert_int_equal(in_use(), CONTEXT);
    assert_int_equal(sim_mempool_get(pool, 6, &value), SIM_OK);
    assert_int_equal(value, 72 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_in_a_set_agree_with_a_linear_search),
        cmocka_unit_test(free_ranges_give_the_lowest_place_and_merge),
        cmocka_unit_test(the_first_call_pays_for_the_context_once),
        cmocka_unit_test(small_requests_share_a_page_and_large_ones_do_not),
        cmocka_unit_test(small_blocks_never_overlap),
        cmocka_unit_test(the_device_is_full_to_the_byte_and_the_error_is_remembered),
        cmocka_unit_test(addresses_follow_the_policy),
        cmocka_unit_test(a_mapping_keeps_memory_alive_after_its_handle_is_released),
        cmocka_unit_test(only_memory_of_cudaMalloc_is_shared_by_its_address),
        cmocka_unit_test(mappings_obey_the_rules_of_the_driver),
        cmocka_unit_test(accessible_mappings_are_limited),
        cmocka_unit_test(a_pool_gives_memory_back_at_a_synchronisation),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("simgpu memory", tests, start, NULL);
}
