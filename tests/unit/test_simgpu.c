/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books of the simulated GPU: address sets, memory, virtual memory management, events, captures.
 * One process, one set of books: a device of 1 GiB of which a context takes 64 MiB.
 */

#include "call.h"
#include "plimsoll/simgpu.h"
#include "unit.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (1024 * MIB)
#define CONTEXT  (64 * MIB)

int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaMalloc(void **out, size_t bytes);

static uint64_t in_use(void)
{
    struct sim_usage u;
    sim_usage(0, &u);
    return u.used;
}

static int start(void **state)
{
    (void)state;
    (void)setenv("PLIMSOLL_SIM_GPU", "1GiB", 1);
    (void)setenv("PLIMSOLL_SIM_CONTEXT", "64MiB", 1);
    return sim_start();
}

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

static void events_complete_in_stream_order_after_the_lag(void **state)
{
    (void)state;
    void *a, *b, *e, *f;
    assert_int_equal(sim_set("clock", "manual"), SIM_OK);
    assert_int_equal(sim_set("event_lag", "10"), SIM_OK);
    assert_int_equal(sim_call_stream_new(&a, 1, 0), SIM_OK);
    assert_int_equal(sim_call_stream_new(&b, 1, 0), SIM_OK);
    assert_int_equal(sim_call_event_new(&e, 2), SIM_OK);
    assert_int_equal(sim_call_event_new(&f, 2), SIM_OK);
    assert_int_equal(sim_call_event_query(e), SIM_OK); /* never recorded */
    assert_int_equal(sim_call_event_record(e, a), SIM_OK);
    assert_int_equal(sim_call_event_query(e), SIM_E_NOT_READY);
    plimsoll_sim_advance(9);
    assert_int_equal(sim_call_event_query(e), SIM_E_NOT_READY);
    plimsoll_sim_advance(1);
    assert_int_equal(sim_call_event_query(e), SIM_OK);
    /* b waits for a: its work is complete no earlier, though its own lag is shorter. */
    assert_int_equal(sim_call_event_record(e, a), SIM_OK);
    assert_int_equal(sim_call_stream_wait(b, e), SIM_OK);
    assert_int_equal(sim_set("event_lag", "1"), SIM_OK);
    assert_int_equal(sim_call_event_record(f, b), SIM_OK);
    plimsoll_sim_advance(5);
    assert_int_equal(sim_call_event_query(f), SIM_E_NOT_READY);
    assert_int_equal(sim_call_stream_query(b), SIM_E_NOT_READY);
    assert_int_equal(sim_call_event_sync(f), SIM_OK);
    assert_int_equal(sim_call_event_query(f), SIM_OK);
    assert_int_equal(sim_call_event_query(e), SIM_OK);
    assert_int_equal(sim_set("event_lag", "1000"), SIM_OK);
    assert_int_equal(sim_call_event_record(e, a), SIM_OK);
    assert_int_equal(sim_call_device_sync(), SIM_OK);
    assert_int_equal(sim_call_event_query(e), SIM_OK);
    assert_int_equal(sim_set("event_lag", "0"), SIM_OK);
    assert_int_equal(sim_set("clock", "calls"), SIM_OK);
    assert_int_equal(sim_call_event_destroy(e), SIM_OK);
    assert_int_equal(sim_call_event_destroy(e), SIM_E_HANDLE);
    assert_int_equal(sim_call_event_destroy(f), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(a), SIM_OK);
    assert_int_equal(sim_call_stream_sync(a), SIM_E_HANDLE);
    assert_int_equal(sim_call_stream_destroy(b), SIM_OK);
}

static void a_capture_records_nodes_across_streams_with_their_dependencies(void **state)
{
    (void)state;
    void *a, *b, *fork_event, *join_event, *graph, *exec, *nodes[8];
    size_t n = 8;
    int status;
    uint64_t id, last_id;
    assert_int_equal(sim_call_stream_new(&a, 1, 0), SIM_OK);
    assert_int_equal(sim_call_stream_new(&b, 1, 0), SIM_OK);
    assert_int_equal(sim_call_event_new(&fork_event, 2), SIM_OK);
    assert_int_equal(sim_call_event_new(&join_event, 2), SIM_OK);
    assert_int_equal(sim_call_capture_begin(a, NULL, 0), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_event_record(fork_event, a), SIM_OK);
    assert_int_equal(sim_call_stream_wait(b, fork_event), SIM_OK);
    assert_int_equal(sim_call_capture_info(b, &status, &id, NULL, NULL, NULL), SIM_OK);
    assert_int_equal(status, 1);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, b), SIM_OK);
    assert_int_equal(sim_call_event_query(fork_event), SIM_E_CAPTURED_EVENT);
    assert_int_equal(sim_call_event_record(join_event, b), SIM_OK);
    assert_int_equal(sim_call_stream_wait(a, join_event), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_capture_end(b, &graph), SIM_E_CAPTURE_UNMATCHED);
    assert_int_equal(sim_call_capture_end(a, &graph), SIM_E_CAPTURE_INVALIDATED);
    assert_null(graph);
    last_id = id;
    assert_int_equal(sim_call_capture_begin(a, NULL, 0), SIM_OK);
    assert_int_equal(sim_call_capture_info(a, &status, &id, NULL, NULL, NULL), SIM_OK);
    assert_true(id > last_id);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_event_record(fork_event, a), SIM_OK);
    assert_int_equal(sim_call_stream_wait(b, fork_event), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, b), SIM_OK);
    assert_int_equal(sim_call_event_record(join_event, b), SIM_OK);
    assert_int_equal(sim_call_stream_wait(a, join_event), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_capture_end(a, &graph), SIM_OK);
    assert_int_equal(sim_call_graph_nodes(graph, nodes, &n), SIM_OK);
    assert_int_equal(n, 4);
    assert_int_equal(sim_node_deps(nodes[0])->n, 0);
    assert_ptr_equal(sim_node_deps(nodes[1])->at[0], nodes[0]);
    assert_ptr_equal(sim_node_deps(nodes[2])->at[0], nodes[0]);
    assert_int_equal(sim_node_deps(nodes[3])->n, 2);
    uint64_t before = in_use();
    assert_int_equal(sim_call_graph_instantiate(&exec, graph), SIM_OK);
    assert_int_equal(in_use(), before + 2 * MIB);
    assert_int_equal(sim_call_graph_launch(exec, a), SIM_OK);
    assert_int_equal(sim_call_graph_exec_destroy(exec), SIM_OK);
    assert_int_equal(in_use(), before);
    assert_int_equal(sim_graph_destroy(graph), SIM_OK);
    assert_int_equal(sim_call_capture_info(b, &status, &id, NULL, NULL, NULL), SIM_OK);
    assert_int_equal(status, 0);
    assert_int_equal(sim_call_event_destroy(fork_event), SIM_OK);
    assert_int_equal(sim_call_event_destroy(join_event), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(a), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(b), SIM_OK);
}

static void an_unsafe_call_invalidates_a_capture_unless_relaxed(void **state)
{
    (void)state;
    void *s, *graph, *p;
    assert_int_equal(sim_call_stream_new(&s, 1, 0), SIM_OK);
    assert_int_equal(sim_call_capture_begin(s, NULL, 0), SIM_OK);
    int was = sim_capture_mode(2);
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_OK);
    assert_int_equal(sim_capture_mode(was), 2);
    assert_int_equal(sim_call_launch(NULL, s), SIM_OK);
    assert_int_equal(sim_call_capture_end(s, &graph), SIM_OK);
    assert_int_equal(sim_graph_destroy(graph), SIM_OK);
    assert_int_equal(sim_call_capture_begin(s, NULL, 0), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_E_CAPTURE_UNSUPPORTED);
    assert_int_equal(sim_call_capture_end(s, &graph), SIM_E_CAPTURE_INVALIDATED);
    assert_int_equal(sim_call_capture_begin(NULL, NULL, 0), SIM_E_CAPTURE_UNSUPPORTED);
    assert_int_equal(sim_call_free(p), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(s), SIM_OK);
}

static void ordered_failures_happen_at_the_ordered_calls(void **state)
{
    (void)state;
    void *p;
    assert_int_equal(sim_set("fail", "cudaMalloc@2=2,cudaMalloc@4*2=2"), SIM_OK);
    static const int expected[] = {0, 2, 0, 2, 2, 0};
    for (int i = 0; i < 6; i++) {
        int rc = sim_call_malloc(&p, 2 * MIB);
        assert_int_equal(rc, expected[i]);
        if (rc == SIM_OK) {
            assert_int_equal(sim_call_free(p), SIM_OK);
        }
    }
    static const char *const wrong[] = {"cudaMallocs@1=2", "cudaMalloc=2", "cudaMalloc@0=2",
                                        "cudaMalloc@1=2x", "cudaMalloc"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sim_set("fail", wrong[i]), SIM_E_VALUE);
    }
    assert_int_equal(sim_set("fail", ""), SIM_OK);
}

static void sizes_and_cards_are_parsed(void **state)
{
    (void)state;
    uint64_t n;
    struct sim_card cards[SIM_MAX_DEVICES];
    assert_true(sim_parse_size("24GiB", &n) && n == 24ull << 30);
    assert_true(sim_parse_size("1.5 GiB", &n) && n == 1536 * MIB);
    assert_true(sim_parse_size("80GB", &n) && n == 80ull << 30);
    assert_true(sim_parse_size("4096", &n) && n == 4096);
    assert_false(sim_parse_size("GiB", &n));
    assert_false(sim_parse_size("-1", &n));
    assert_false(sim_parse_size("99999999999TiB", &n));
    assert_int_equal(sim_parse_cards("a100-80gb*2,24GiB", cards), 3);
    assert_int_equal(cards[1].cc_major, 8);
    assert_true(cards[1].total < cards[1].nvml_total);
    assert_int_equal(cards[2].total, 24ull << 30);
    assert_int_equal(sim_parse_cards("l4-24gb@8GiB", cards), 1);
    assert_int_equal(cards[0].total, 8ull << 30);
    assert_int_equal(cards[0].sms, 58);
    assert_string_equal(cards[0].key, "l4-24gb@8GiB");
    static const char *const wrong[] = {"",           "a100-90gb", "1KiB",     "a100-80gb*0",
                                        "a100-80gb*", ",",         "24GiB*17", "100TiB"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sim_parse_cards(wrong[i], cards), 0);
    }
}

static void a_process_that_dies_gives_its_memory_back(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    uint64_t before = in_use(); /* no context yet: this test runs first */
    assert_int_equal(before, 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        void *p;
        byte = (char)sim_call_malloc(&p, 100 * MIB);
        (void)!write(ready[1], &byte, 1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 100 * MIB);
    struct sim_process list[4];
    assert_int_equal(sim_processes(0, list, 4), 1);
    assert_int_equal(list[0].pid, child);
    assert_int_equal(list[0].bytes, CONTEXT + 100 * MIB);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(in_use(), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void a_child_forked_after_first_use_has_no_device(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        void *p;
        _exit(sim_call_malloc(&p, 2 * MIB));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), SIM_E_INIT);
}

static void copies_from_the_device_read_zero_and_host_copies_are_real(void **state)
{
    (void)state;
    void *device, *pinned;
    char text[8] = "aaaaaaa";
    assert_int_equal(sim_call_malloc(&device, 2 * MIB), SIM_OK);
    assert_int_equal(sim_call_host_alloc(&pinned, 100), SIM_OK);
    assert_int_equal(sim_host_find((char *)pinned + 50, NULL, NULL), SIM_HOST_PINNED);
    assert_int_equal(sim_host_find(text, NULL, NULL), SIM_HOST_NONE);
    assert_int_equal(sim_call_copy(pinned, text, 8, NULL, true), SIM_OK);
    assert_string_equal(pinned, "aaaaaaa");
    assert_int_equal(sim_call_copy(device, text, 8, NULL, true), SIM_OK);
    assert_int_equal(sim_call_copy(text, device, 8, NULL, false), SIM_OK);
    assert_int_equal(text[0], 0);
    assert_int_equal(sim_call_host_register(text, 8), SIM_OK);
    assert_int_equal(sim_call_host_register(text, 8), SIM_E_REGISTERED);
    assert_int_equal(sim_call_host_unregister(text), SIM_OK);
    assert_int_equal(sim_call_host_unregister(text), SIM_E_NOT_REGISTERED);
    assert_int_equal(sim_call_host_free(pinned), SIM_OK);
    assert_int_equal(sim_call_free(device), SIM_OK);
}

static void the_log_has_the_calls_in_order(void **state)
{
    (void)state;
    struct plimsoll_sim_call calls[4];
    void *p;
    assert_int_equal(plimsoll_sim_set("log", "memory"), 0);
    assert_int_equal(sim_call_malloc(&p, 3 * MIB), SIM_OK);
    assert_int_equal(sim_call_malloc(&p, CAPACITY), SIM_E_NOMEM);
    assert_int_equal(plimsoll_sim_log_count(), 2);
    assert_int_equal(plimsoll_sim_log_read(0, calls, 4), 2);
    assert_string_equal(plimsoll_sim_call_name(calls[0].call), "cudaMalloc");
    assert_int_equal(calls[0].size, 3 * MIB);
    assert_int_equal(calls[1].code, SIM_E_NOMEM);
    assert_int_equal(sim_call_free((void *)(uintptr_t)calls[0].addr), SIM_OK);
    assert_int_equal(plimsoll_sim_log_read(2, calls, 4), 1);
    assert_int_equal(calls[0].size, 3 * MIB);
    assert_int_equal(plimsoll_sim_log_read(9, calls, 4), 0);
}

static void a_log_file_holds_the_calls_even_without_an_end(void **state)
{
    (void)state;
    char path[64], name[96];
    struct plimsoll_sim_log_head head;
    struct plimsoll_sim_call call;
    int status;
    (void)snprintf(path, sizeof path, "/tmp/plimsoll-log-%d", (int)getpid());
    pid_t child = fork(); /* no context yet: this test runs early */
    if (child == 0) {
        void *p;
        if (sim_set("log", path) != SIM_OK || sim_call_malloc(&p, 4 * MIB) != SIM_OK) {
            _exit(1);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    (void)snprintf(name, sizeof name, "%s.%d", path, (int)child);
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    (void)unlink(name);
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    assert_memory_equal(head.magic, PLIMSOLL_SIM_LOG_MAGIC, 8);
    assert_int_equal(head.record_bytes, sizeof call);
    assert_int_equal(head.pid, child);
    assert_int_equal(atomic_load(&head.count), 2); /* the context and the allocation */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fread(&call, sizeof call, 1, file), 1);
    }
    assert_string_equal(plimsoll_sim_call_name(call.call), "cudaMalloc");
    assert_int_equal(call.size, 4 * MIB);
    (void)fclose(file);
}

static void calls_cost_simulated_time_when_asked(void **state)
{
    (void)state;
    void *p;
    uint64_t before = plimsoll_sim_stall_ns();
    assert_int_equal(sim_call_malloc(&p, 20 * MIB), SIM_OK);
    assert_int_equal(plimsoll_sim_stall_ns(), before);
    assert_int_equal(sim_set("cost", "1"), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_OK);
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_OK);
    uint64_t small = plimsoll_sim_stall_ns() - before;
    assert_int_equal(sim_call_free(p), SIM_OK);
    before = plimsoll_sim_stall_ns();
    assert_int_equal(sim_call_malloc(&p, 200 * MIB), SIM_OK);
    assert_true(small > 10000);
    assert_true(plimsoll_sim_stall_ns() - before > small);
    assert_int_equal(sim_set("cost", "0"), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_OK);
}

static void devices_have_books_of_their_own(void **state)
{
    (void)state;
    int status;
    pid_t child = fork(); /* with other cards: books are made at first use */
    if (child == 0) {
        (void)execl("/proc/self/exe", "test_simgpu", "two-devices", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a process of its own: two cards of 1 and 2 GiB. The line that failed, or 0. */
static int two_devices(void)
{
    void *a, *b;
    size_t free_bytes, total;
    (void)setenv("PLIMSOLL_SIM_GPU", "1GiB,2GiB", 1);
    (void)setenv("PLIMSOLL_SIM_CONTEXT", "64MiB", 1);
#define CHECK(x)                                                                                   \
    if (!(x)) {                                                                                    \
        return __LINE__ % 250 + 1;                                                                 \
    }
    CHECK(sim_start() == SIM_OK && sim_device_count() == 2)
    CHECK(sim_call_malloc(&a, 100 * MIB) == SIM_OK)
    CHECK(sim_call_set_device(2) == SIM_E_DEVICE)
    CHECK(sim_call_set_device(1) == SIM_OK)
    CHECK(sim_call_malloc(&b, 1500 * MIB) == SIM_OK)
    CHECK(sim_device_of(a) == 0 && sim_device_of(b) == 1)
    CHECK(sim_call_info(&free_bytes, &total) == SIM_OK)
    CHECK(total == 2 * CAPACITY && free_bytes == total - 1564 * MIB)
    CHECK(sim_call_free(a) == SIM_OK) /* of the other device */
    CHECK(sim_call_set_device(0) == SIM_OK)
    CHECK(sim_call_info(&free_bytes, &total) == SIM_OK)
    CHECK(total == CAPACITY && free_bytes == CAPACITY - CONTEXT)
    return 0;
#undef CHECK
}

static void a_sticky_error_stays(void **state)
{
    (void)state;
    void *p;
    assert_int_equal(sim_set("fail", "cudaLaunchKernel@1=700"), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, NULL), SIM_E_ADDRESS);
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_E_ADDRESS);
    assert_int_equal(sim_call_device_sync(), SIM_E_ADDRESS);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "two-devices") == 0) {
        return two_devices();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_in_a_set_agree_with_a_linear_search),
        cmocka_unit_test(free_ranges_give_the_lowest_place_and_merge),
        cmocka_unit_test(a_process_that_dies_gives_its_memory_back),
        cmocka_unit_test(a_log_file_holds_the_calls_even_without_an_end),
        cmocka_unit_test(devices_have_books_of_their_own),
        cmocka_unit_test(the_first_call_pays_for_the_context_once),
        cmocka_unit_test(small_requests_share_a_page_and_large_ones_do_not),
        cmocka_unit_test(small_blocks_never_overlap),
        cmocka_unit_test(the_device_is_full_to_the_byte_and_the_error_is_remembered),
        cmocka_unit_test(addresses_follow_the_policy),
        cmocka_unit_test(a_mapping_keeps_memory_alive_after_its_handle_is_released),
        cmocka_unit_test(mappings_obey_the_rules_of_the_driver),
        cmocka_unit_test(accessible_mappings_are_limited),
        cmocka_unit_test(a_pool_gives_memory_back_at_a_synchronisation),
        cmocka_unit_test(events_complete_in_stream_order_after_the_lag),
        cmocka_unit_test(a_capture_records_nodes_across_streams_with_their_dependencies),
        cmocka_unit_test(an_unsafe_call_invalidates_a_capture_unless_relaxed),
        cmocka_unit_test(ordered_failures_happen_at_the_ordered_calls),
        cmocka_unit_test(sizes_and_cards_are_parsed),
        cmocka_unit_test(a_child_forked_after_first_use_has_no_device),
        cmocka_unit_test(copies_from_the_device_read_zero_and_host_copies_are_real),
        cmocka_unit_test(calls_cost_simulated_time_when_asked),
        cmocka_unit_test(the_log_has_the_calls_in_order),
        cmocka_unit_test(a_sticky_error_stays),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("simgpu", tests, start, NULL);
}
