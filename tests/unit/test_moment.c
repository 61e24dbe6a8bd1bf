/* SPDX-License-Identifier: Apache-2.0 */
/* The heap at earlier moments, its sums, and the peaks. */

#include "heap/history.h"
#include "heap/moment.h"
#include "heap/totals.h"
#include "snapshot_maker.h"
#include "unit.h"

static struct maker maker; /* large: not on the stack */

static struct plim_device *only_device(void)
{
    return &maker.snapshot.devices.items[0];
}

static void heap_at_the_end_is_the_heap_of_the_snapshot(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t s = maker_stack(&maker, "f", "user.py", 1);
    size_t a = maker_alloc(&maker, 300, s);
    maker_alloc(&maker, 4 * PLIM_MIB, s);
    maker_alloc(&maker, 700, s);
    maker_free(&maker, a);
    maker_finish(&maker);
    struct plim_device *d = only_device();
    struct plim_heap heap = {0};
    assert_ok(plim_heap_at(d, d->trace.events.n, NULL, &heap, NULL, NULL));
    assert_int_equal(heap.segments.n, d->heap.segments.n);
    assert_int_equal(heap.blocks.n, d->heap.blocks.n);
    for (size_t i = 0; i < heap.blocks.n; i++) {
        assert_int_equal(heap.blocks.items[i].addr, d->heap.blocks.items[i].addr);
        assert_int_equal(heap.blocks.items[i].size, d->heap.blocks.items[i].size);
        assert_int_equal(heap.blocks.items[i].state, d->heap.blocks.items[i].state);
    }
    plim_heap_fini(&heap);
    maker_fini(&maker);
}

static void going_back_undoes_frees_and_allocations(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t s = maker_stack(&maker, "f", "user.py", 1);
    size_t a = maker_alloc(&maker, 4 * PLIM_MIB, s); /* events 0, 1 */
    maker_free(&maker, a);                           /* events 2, 3 */
    maker_alloc(&maker, 8 * PLIM_MIB, s);            /* events 4, 5 */
    maker_finish(&maker);
    struct plim_heap heap = {0};
    assert_ok(plim_heap_at(only_device(), 2, NULL, &heap, NULL, NULL));
    struct plim_heap_totals t = plim_totals_of_heap(&heap);
    assert_int_equal(t.reserved, 4 * PLIM_MIB);
    assert_int_equal(t.allocated, 4 * PLIM_MIB);
    assert_int_equal(heap.blocks.items[0].alloc_event, 1);
    assert_int_equal(heap.blocks.items[0].stack, s);
    plim_heap_fini(&heap);
    assert_ok(plim_heap_at(only_device(), 3, NULL, &heap, NULL, NULL));
    t = plim_totals_of_heap(&heap);
    assert_int_equal(t.pending, 4 * PLIM_MIB);
    plim_heap_fini(&heap);
    assert_ok(plim_heap_at(only_device(), 0, NULL, &heap, NULL, NULL));
    assert_int_equal(heap.segments.n, 0);
    plim_heap_fini(&heap);
    maker_fini(&maker);
}

static void small_gap_behind_a_large_block_is_its_slack(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t s = maker_stack(&maker, "f", "user.py", 1);
    size_t a = maker_alloc_in(&maker, 20 * PLIM_MIB, 20 * PLIM_MIB - 600 * PLIM_KIB, s);
    maker_free(&maker, a);
    maker_finish(&maker);
    struct plim_heap heap = {0};
    assert_ok(plim_heap_at(only_device(), 2, NULL, &heap, NULL, NULL));
    assert_int_equal(heap.blocks.n, 1);
    assert_int_equal(heap.blocks.items[0].size, 20 * PLIM_MIB);
    assert_int_equal(heap.blocks.items[0].requested, 20 * PLIM_MIB - 600 * PLIM_KIB);
    plim_heap_fini(&heap);
    maker_fini(&maker);
}

static void position_behind_the_trace_is_refused(void **state)
{
    (void)state;
    struct plim_heap heap = {0};
    struct plim_err err;
    maker_init(&maker);
    maker_alloc(&maker, 100, PLIM_NO_STACK);
    maker_finish(&maker);
    assert_int_equal(plim_heap_at(only_device(), 99, NULL, &heap, NULL, &err), PLIM_E_RANGE);
    maker_fini(&maker);
}

static void peaks_are_found_where_they_were(void **state)
{
    (void)state;
    maker_init(&maker);
    size_t a = maker_alloc(&maker, 4 * PLIM_MIB, PLIM_NO_STACK);
    size_t b = maker_alloc(&maker, 8 * PLIM_MIB, PLIM_NO_STACK); /* events 2, 3: peak after 4 */
    maker_free(&maker, a);
    maker_free(&maker, b);
    maker_finish(&maker);
    struct plim_peaks peaks = plim_trace_peaks(only_device());
    assert_int_equal(peaks.allocated, 12 * PLIM_MIB);
    assert_int_equal(peaks.allocated_at, 4);
    assert_int_equal(peaks.reserved, 12 * PLIM_MIB);
    assert_int_equal(peaks.reserved_at_start, 0);
    maker_fini(&maker);
}

static void stranded_and_releasable_bytes_are_told_apart(void **state)
{
    (void)state;
    maker_init(&maker);
    size_t a = maker_alloc(&maker, 64 * PLIM_MIB, PLIM_NO_STACK);
    maker_strand(&maker, 100 * PLIM_MIB, 2 * PLIM_MIB, 0, PLIM_NO_STACK);
    maker_free(&maker, a);
    maker_finish(&maker);
    struct plim_heap_totals t = plim_totals_of_heap(&only_device()->heap);
    assert_int_equal(t.releasable, 64 * PLIM_MIB);
    assert_int_equal(t.stranded, 98 * PLIM_MIB);
    assert_int_equal(t.reserved, t.allocated + t.releasable + t.stranded);
    maker_fini(&maker);
}

static void history_pairs_allocations_with_frees(void **state)
{
    (void)state;
    struct plim_history h;
    maker_init(&maker);
    uint32_t kept = maker_stack(&maker, "keep", "user.py", 1);
    uint32_t freed = maker_stack(&maker, "work", "user.py", 2);
    for (int i = 0; i < 10; i++) {
        maker_alloc(&maker, 1000, kept);
        maker_free(&maker, maker_alloc(&maker, 2000, freed));
    }
    maker_finish(&maker);
    struct plim_trace *trace = &only_device()->trace;
    assert_ok(plim_history_read(&maker.snapshot, trace, trace->events.n, &h, NULL));
    assert_int_equal(plim_history_of(&h, kept)->frees, 0);
    assert_int_equal(plim_history_of(&h, kept)->allocs, 10);
    assert_int_equal(plim_history_of(&h, freed)->frees, 10);
    assert_int_equal(plim_history_of(&h, freed)->max_lifetime, 1);
    assert_int_equal(h.unknown_frees, 0);
    plim_history_fini(&h);
    maker_fini(&maker);
}

/* A segment goes back in a call with stack `from`, and the next one comes in a call with stack `to`. */
static uint32_t retries_seen(const char *from, const char *to)
{
    struct plim_history h;
    maker_init(&maker);
    uint32_t give = maker_stack(&maker, from, "user.py", 1);
    uint32_t take = maker_stack(&maker, to, "user.py", 1);
    maker_free(&maker, maker_alloc(&maker, 8 * PLIM_MIB, give));
    maker_finish(&maker);
    struct plim_trace *trace = &only_device()->trace;
    struct plim_event back = {.action = PLIM_ACTION_SEGMENT_FREE, .stack = give};
    struct plim_event more = {.action = PLIM_ACTION_SEGMENT_ALLOC, .stack = take};
    assert_ok(plim_vec_push(&trace->events, NULL, back));
    assert_ok(plim_vec_push(&trace->events, NULL, more));
    assert_ok(plim_history_read(&maker.snapshot, trace, trace->events.n, &h, NULL));
    uint32_t retries = h.retries;
    plim_history_fini(&h);
    maker_fini(&maker);
    return retries;
}

static void only_the_allocator_s_own_release_is_a_retry(void **state)
{
    (void)state;
    assert_int_equal(retries_seen("forward", "forward"), 1);
    assert_int_equal(retries_seen("empty_cache", "forward"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_at_the_end_is_the_heap_of_the_snapshot),
        cmocka_unit_test(going_back_undoes_frees_and_allocations),
        cmocka_unit_test(small_gap_behind_a_large_block_is_its_slack),
        cmocka_unit_test(position_behind_the_trace_is_refused),
        cmocka_unit_test(peaks_are_found_where_they_were),
        cmocka_unit_test(stranded_and_releasable_bytes_are_told_apart),
        cmocka_unit_test(history_pairs_allocations_with_frees),
        cmocka_unit_test(only_the_allocator_s_own_release_is_a_retry),
    };
    return PLIM_RUN_TESTS("moment", tests);
}
