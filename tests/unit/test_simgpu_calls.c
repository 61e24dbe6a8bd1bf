/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated GPU in the order of its calls: events, captures, failures, costs, the log. */

#include "simgpu_world.h"

#include <string.h>

int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaMalloc(void **out, size_t bytes);

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

/* Whether a call that must take until `due` (real time) did; to be asked right after it. */
static bool waited_until(uint64_t due)
{
    return sim_real_ns() >= due;
}

/* Not ready, or so late by the test's own fault that it may be. */
static bool busy_or_late(int code, uint64_t due)
{
    return code == SIM_E_NOT_READY || sim_real_ns() >= due;
}

static void kernels_take_real_time_in_stream_order_when_asked(void **state)
{
    (void)state;
    const uint64_t each = 40000000;
    void *a, *b, *e, *f, *graph, *exec, *p;
    float ms;
    assert_int_equal(sim_set("kernel_time", "40ms"), SIM_OK);
    assert_int_equal(sim_call_stream_new(&a, 1, 0), SIM_OK);
    assert_int_equal(sim_call_stream_new(&b, 1, 0), SIM_OK);
    assert_int_equal(sim_call_event_new(&e, 0), SIM_OK);
    assert_int_equal(sim_call_event_new(&f, 0), SIM_OK);
    assert_int_equal(sim_call_event_record(e, a), SIM_OK);
    assert_int_equal(sim_call_event_query(e), SIM_OK); /* nothing ran yet */
    uint64_t start = sim_real_ns();
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_event_record(f, a), SIM_OK);
    assert_true(busy_or_late(sim_call_event_query(f), start + 2 * each));
    assert_true(busy_or_late(sim_call_stream_query(a), start + 2 * each));
    assert_true(busy_or_late(sim_call_event_elapsed(&ms, e, f), start + 2 * each));
    assert_int_equal(sim_call_event_query(e), SIM_OK); /* of before */
    assert_int_equal(sim_call_stream_query(b), SIM_OK);
    assert_int_equal(sim_call_stream_wait(b, f), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, b), SIM_OK); /* behind the two of a */
    assert_int_equal(sim_call_event_sync(f), SIM_OK);
    assert_true(waited_until(start + 2 * each));
    assert_int_equal(sim_call_event_elapsed(&ms, e, f), SIM_OK);
    assert_true(ms >= 80);
    assert_true(busy_or_late(sim_call_stream_query(b), start + 3 * each));
    assert_int_equal(sim_call_device_sync(), SIM_OK);
    assert_true(waited_until(start + 3 * each));
    assert_int_equal(sim_call_stream_query(b), SIM_OK);
    /* A graph takes what its kernels take, a blocking copy waits for its stream, another does not. */
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_OK);
    assert_int_equal(sim_call_capture_begin(a, NULL, 0), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_copy(p, &ms, sizeof ms, a, true), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_capture_end(a, &graph), SIM_OK);
    assert_int_equal(sim_call_graph_instantiate(&exec, graph), SIM_OK);
    assert_int_equal(sim_call_stream_query(a), SIM_OK);
    start = sim_real_ns();
    assert_int_equal(sim_call_graph_launch(exec, a), SIM_OK);
    assert_int_equal(sim_call_copy(&ms, p, sizeof ms, a, true), SIM_OK);
    assert_true(busy_or_late(sim_call_stream_query(a), start + 2 * each));
    assert_int_equal(sim_call_copy(&ms, p, sizeof ms, a, false), SIM_OK);
    assert_true(waited_until(start + 2 * each));
    assert_int_equal(sim_set("kernel_time", "0"), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, a), SIM_OK);
    assert_int_equal(sim_call_stream_query(a), SIM_OK);
    assert_int_equal(sim_call_graph_exec_destroy(exec), SIM_OK);
    assert_int_equal(sim_graph_destroy(graph), SIM_OK);
    assert_int_equal(sim_call_free(p), SIM_OK);
    assert_int_equal(sim_call_event_destroy(e), SIM_OK);
    assert_int_equal(sim_call_event_destroy(f), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(a), SIM_OK);
    assert_int_equal(sim_call_stream_destroy(b), SIM_OK);
}

static void times_are_parsed(void **state)
{
    (void)state;
    uint64_t ns = 7;
    assert_true(sim_parse_time("0", &ns) && ns == 0);
    assert_true(sim_parse_time("40000", &ns) && ns == 40000);
    assert_true(sim_parse_time("250us", &ns) && ns == 250000);
    assert_true(sim_parse_time("1.5ms", &ns) && ns == 1500000);
    assert_true(sim_parse_time("2s", &ns) && ns == 2000000000);
    static const char *const bad[] = {"", "ms", "-1ms", "1m", "1us ", "99999999999999999s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(sim_parse_time(bad[i], &ns));
    }
    assert_int_equal(sim_set("kernel_time", "61s"), SIM_E_VALUE);
    assert_int_equal(sim_set("kernel_time", "fast"), SIM_E_VALUE);
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

static void a_sticky_error_stays(void **state)
{
    (void)state;
    void *p;
    assert_int_equal(sim_set("fail", "cudaLaunchKernel@1=700"), SIM_OK);
    assert_int_equal(sim_call_launch(NULL, NULL), SIM_E_ADDRESS);
    assert_int_equal(sim_call_malloc(&p, 2 * MIB), SIM_E_ADDRESS);
    assert_int_equal(sim_call_device_sync(), SIM_E_ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_complete_in_stream_order_after_the_lag),
        cmocka_unit_test(kernels_take_real_time_in_stream_order_when_asked),
        cmocka_unit_test(times_are_parsed),
        cmocka_unit_test(a_capture_records_nodes_across_streams_with_their_dependencies),
        cmocka_unit_test(an_unsafe_call_invalidates_a_capture_unless_relaxed),
        cmocka_unit_test(ordered_failures_happen_at_the_ordered_calls),
        cmocka_unit_test(sizes_and_cards_are_parsed),
        cmocka_unit_test(copies_from_the_device_read_zero_and_host_copies_are_real),
        cmocka_unit_test(calls_cost_simulated_time_when_asked),
        cmocka_unit_test(the_log_has_the_calls_in_order),
        cmocka_unit_test(a_sticky_error_stays),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("simgpu calls", tests, start, NULL);
}
