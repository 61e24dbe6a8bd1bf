/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on snapshots whose cause is known because the test made it. */

#include "diagnose/diagnose.h"
#include "snapshot_maker.h"
#include "unit.h"

static struct maker maker; /* large: not on the stack */

static const struct plim_diagnose_options defaults = {.device = PLIM_NO_ID};

static struct plim_diagnose_options with_total(uint64_t total)
{
    struct plim_diagnose_options options = defaults;
    options.facts.total = plim_amount(total, PLIM_HOW_GIVEN);
    return options;
}

static void assert_verdict(const struct plim_diagnose_options *options, enum plim_class cls,
                           enum plim_subclass subclass)
{
    struct plim_diagnosis d;
    struct plim_err err;
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, options, &d, &err));
    assert_string_equal(plim_class_text(d.set.verdict.cls), plim_class_text(cls));
    assert_string_equal(plim_subclass_text(d.set.verdict.subclass), plim_subclass_text(subclass));
    assert_true(d.set.verdict.confidence > 0 && d.set.verdict.confidence <= 1);
    assert_true(d.set.evidence.n > 0);
    struct plim_ledger *l = &d.set.ledger;
    if (plim_known(l->total) && plim_known(l->owner[PLIM_OWNER_FREE])) {
        uint64_t sum = 0;
        for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
            sum += plim_known(l->owner[i]) ? l->owner[i].bytes : 0;
        }
        assert_int_equal(sum, l->total.bytes);
    }
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void request_beyond_the_device_is_a_single_request(void **state)
{
    (void)state;
    maker_init(&maker);
    maker_alloc(&maker, 4 * PLIM_GIB, PLIM_NO_STACK);
    maker_oom(&maker, 30 * PLIM_GIB, 19 * PLIM_GIB, PLIM_NO_STACK);
    assert_verdict(&defaults, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST);
}

static void a_history_without_its_segments_decides_nothing(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    maker_init(&maker);
    for (int i = 0; i < 22; i++) {
        maker_alloc(&maker, PLIM_GIB, PLIM_NO_STACK);
    }
    maker_oom(&maker, 3 * PLIM_GIB, PLIM_GIB, PLIM_NO_STACK);
    maker_finish(&maker);
    struct plim_heap *heap = &maker.snapshot.devices.items[0].heap;
    heap->segments.n = heap->blocks.n = 0;
    assert_ok(plim_diagnose(&maker.snapshot, &options, &d, NULL));
    assert_int_equal(d.set.verdict.cls, PLIM_CLASS_UNKNOWN);
    assert_non_null(strstr(d.set.verdict.summary, "no segments"));
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void live_bytes_without_holes_are_a_working_set(void **state)
{
    (void)state;
    maker_init(&maker);
    for (int i = 0; i < 22; i++) {
        maker_alloc(&maker, PLIM_GIB, PLIM_NO_STACK);
    }
    maker_oom(&maker, 3 * PLIM_GIB, PLIM_GIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET);
}

static void holes_pinned_by_small_blocks_are_fragmentation(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t s = maker_stack(&maker, "keep", "user.py", 3);
    for (int i = 0; i < 40; i++) {
        maker_strand(&maker, 512 * PLIM_MIB, 128 * PLIM_MIB, 0, s);
    }
    maker_oom(&maker, 600 * PLIM_MIB, 100 * PLIM_MIB, s);
    struct plim_diagnose_options options = with_total(21 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED);
}

static void unused_private_pools_are_named(void **state)
{
    (void)state;
    uint16_t pool;
    maker_init(&maker);
    assert_ok(plim_snapshot_pool(&maker.snapshot, (struct plim_pool_id){0, 1}, &pool, NULL));
    maker_alloc(&maker, 8 * PLIM_GIB, PLIM_NO_STACK);
    for (int i = 0; i < 20; i++) {
        maker_strand(&maker, 512 * PLIM_MIB, 2 * PLIM_MIB, pool, PLIM_NO_STACK);
    }
    maker_oom(&maker, 2 * PLIM_GIB, PLIM_GIB / 2, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(20 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_PRIVATE_POOL);
}

static void neighbours_on_the_card_are_external(void **state)
{
    (void)state;
    maker_init(&maker);
    maker_alloc(&maker, 4 * PLIM_GIB, PLIM_NO_STACK);
    maker_oom(&maker, 2 * PLIM_GIB, PLIM_GIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS);
}

static void refusal_with_enough_free_is_a_cap(void **state)
{
    (void)state;
    maker_init(&maker);
    maker_alloc(&maker, 7 * PLIM_GIB, PLIM_NO_STACK);
    maker_oom(&maker, 600 * PLIM_MIB, 16 * PLIM_GIB, PLIM_NO_STACK);
    assert_verdict(&defaults, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_MEMORY_CAP);
}

/* `requests` rounds of work, each leaving `kept` bytes behind at one place. */
static void serve(int requests, uint64_t kept, int stop_keeping_after)
{
    uint32_t leak = maker_stack(&maker, "append", "user.py", 10);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    for (int i = 0; i < requests; i++) {
        if (i < stop_keeping_after) {
            maker_alloc(&maker, kept, leak);
        }
        for (int k = 0; k < 5; k++) {
            maker_free(&maker, maker_alloc_in(&maker, 2 * PLIM_MIB, 1000, work));
        }
    }
}

static void list_that_only_grows_is_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    serve(500, 20 * PLIM_MIB, 500);
    maker_oom(&maker, 20 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(16 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_LEAK, PLIM_SUBCLASS_GROWING_STACK);
}

static void cache_that_stopped_growing_is_not_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    serve(500, 20 * PLIM_MIB, 200);
    assert_verdict(&defaults, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_CACHED);
}

static void loading_without_work_between_is_not_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t s = maker_stack(&maker, "build", "user.py", 5);
    for (int i = 0; i < 230; i++) {
        maker_alloc(&maker, 100 * PLIM_MIB, s);
    }
    maker_oom(&maker, 200 * PLIM_MIB, 50 * PLIM_MIB, s);
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET);
}

/* A cache of 100 entries at its limit: each request evicts the oldest for a new one. */
static void serve_with_bounded_cache(int requests)
{
    uint32_t cache = maker_stack(&maker, "put", "user.py", 30);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    size_t entries[100];
    for (int i = 0; i < requests; i++) {
        if (i >= 100) {
            maker_free(&maker, entries[i % 100]);
        }
        entries[i % 100] = maker_alloc(&maker, 30 * PLIM_MIB, cache);
        for (int k = 0; k < 4; k++) {
            maker_free(&maker, maker_alloc_in(&maker, 2 * PLIM_MIB, 1000, work));
        }
    }
}

static void bounded_cache_in_a_short_record_is_not_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    serve_with_bounded_cache(400);
    size_t n = maker.snapshot.devices.items[0].trace.events.n;
    maker.forget = n - n / 5; /* the record is shorter than an entry lives */
    assert_verdict(&defaults, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_CACHED);
}

/* Each fortieth request leaves eight blocks; the record shows only the last few such requests. */
static void bursts_in_a_short_record_are_a_leak_when_older_ones_are_there(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t keep = maker_stack(&maker, "abort", "user.py", 40);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    for (int i = 0; i < 1600; i++) {
        for (int k = 0; k < (i % 40 == 0 ? 8 : 0); k++) {
            maker_alloc(&maker, 24 * PLIM_MIB, keep);
        }
        maker_free(&maker, maker_alloc_in(&maker, 2 * PLIM_MIB, 1000, work));
    }
    maker_oom(&maker, 24 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    size_t n = maker.snapshot.devices.items[0].trace.events.n;
    maker.forget = n - n / 3;
    struct plim_diagnose_options options = with_total(11 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_LEAK, PLIM_SUBCLASS_GROWING_STACK);
}

static void leak_that_has_filled_the_card_is_still_one_after_more_failures(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    serve(300, 20 * PLIM_MIB, 300);
    for (int i = 0; i < 200; i++) {
        maker_oom(&maker, 20 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
        maker_free(&maker, maker_alloc_in(&maker, 2 * PLIM_MIB, 1000, work));
    }
    maker_oom(&maker, 20 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(10 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_LEAK, PLIM_SUBCLASS_GROWING_STACK);
}

static void small_leak_beside_one_large_block_a_round_is_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t leak = maker_stack(&maker, "append", "user.py", 10);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    maker_alloc(&maker, 60 * PLIM_MIB, PLIM_NO_STACK);
    for (int i = 0; i < 1500; i++) {
        maker_free(&maker, maker_alloc(&maker, 900 * PLIM_KIB, work));
        maker_alloc(&maker, 20 * PLIM_KIB, leak);
    }
    maker_oom(&maker, 2 * PLIM_MIB, PLIM_MIB, work);
    struct plim_diagnose_options options = with_total(110 * PLIM_MIB);
    assert_verdict(&options, PLIM_CLASS_LEAK, PLIM_SUBCLASS_GROWING_STACK);
}

static void conversion_of_weights_is_not_a_leak(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t keep = maker_stack(&maker, "convert", "user.py", 10);
    uint32_t read = maker_stack(&maker, "read", "user.py", 20);
    for (int i = 0; i < 700; i++) {
        size_t wide = maker_alloc(&maker, 900 * PLIM_KIB, read);
        maker_alloc(&maker, 100 * PLIM_KIB, keep);
        maker_free(&maker, wide);
    }
    maker_oom(&maker, 9 * PLIM_MIB, PLIM_MIB, read);
    maker_finish(&maker);
    struct plim_diagnosis d;
    assert_ok(plim_diagnose(&maker.snapshot, &defaults, &d, NULL));
    assert_int_equal(d.leaks.suspects.n, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void snapshot_from_after_the_failure_is_judged_by_the_message(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    maker_init(&maker);
    maker_free(&maker, maker_alloc(&maker, 20 * PLIM_GIB, PLIM_NO_STACK));
    maker_alloc(&maker, 64 * PLIM_MIB, PLIM_NO_STACK);
    maker_finish(&maker);
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    options.facts.request = plim_amount(PLIM_GIB, PLIM_HOW_MEASURED);
    options.facts.allocated = plim_amount(22 * PLIM_GIB, PLIM_HOW_MEASURED);
    options.facts.reserved = plim_amount(23 * PLIM_GIB, PLIM_HOW_MEASURED);
    options.facts.free = plim_amount(512 * PLIM_MIB, PLIM_HOW_MEASURED);
    assert_ok(plim_diagnose(&maker.snapshot, &options, &d, NULL));
    assert_true(d.too_late);
    assert_int_equal(d.set.ledger.allocated.bytes, 22 * PLIM_GIB);
    assert_int_equal(d.set.ledger.owner[PLIM_OWNER_STRANDED].bytes, PLIM_GIB);
    assert_int_equal(d.set.ledger.owner[PLIM_OWNER_RELEASABLE].bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void backward_nodes_name_the_memory_of_threads_without_python(void **state)
{
    (void)state;
    maker_init(&maker);
    const struct maker_frame frames[] = {
        {"at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "??", 0},
        {"torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", "??", 0},
        {"torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)", "??", 0},
        {"clone3", "x86_64/clone3.S", 81},
    };
    uint32_t stack = maker_deep_stack(&maker, frames, 4);
    maker_alloc(&maker, 100 * PLIM_MIB, stack);
    maker_finish(&maker);
    struct plim_diagnosis d;
    assert_ok(plim_diagnose(&maker.snapshot, &defaults, &d, NULL));
    assert_string_equal(d.blame.items[0].site, "AddmmBackward0");
    assert_int_equal(d.blame.items[0].category, PLIM_CATEGORY_GRADIENTS);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

/* What the table of holders says of 100 MiB from `stack` that `forget` events of the record came before. */
static void assert_holder_without_stack(const char *wanted, uint32_t stack, size_t forget,
                                        const char *file)
{
    struct plim_diagnosis d;
    maker_init(&maker);
    maker_alloc(&maker, 100 * PLIM_MIB, stack);
    maker_alloc(&maker, 30 * PLIM_MIB, maker_stack(&maker, "forward", file, 3));
    maker.forget = forget;
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, &defaults, &d, NULL));
    assert_string_equal(d.blame.items[0].site, wanted);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void why_a_block_has_no_stack_is_said_as_far_as_it_is_known(void **state)
{
    (void)state;
    assert_holder_without_stack("(no Python frame recorded, as on the threads of a backward pass)",
                                PLIM_STACK_EMPTY, 0, "model.py");
    assert_holder_without_stack("(no stack; older than the recorded events)", PLIM_NO_STACK, 2,
                                "model.py");
    /* With native frames a backward pass has a stack: nothing is known of what has none. */
    assert_holder_without_stack("(no stack recorded)", PLIM_STACK_EMPTY, 0, "??");
}

static void leak_without_any_stacks_is_seen_by_growth_amid_work(void **state)
{
    (void)state;
    maker_init(&maker);
    maker_alloc(&maker, 4 * PLIM_GIB, PLIM_NO_STACK);
    for (int i = 0; i < 600; i++) {
        maker_alloc(&maker, 12 * PLIM_MIB, PLIM_NO_STACK);
        for (int k = 0; k < 5; k++) {
            maker_free(&maker, maker_alloc_in(&maker, 2 * PLIM_MIB, 1000, PLIM_NO_STACK));
        }
    }
    maker_oom(&maker, 20 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(19 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_LEAK, PLIM_SUBCLASS_GROWING_STACK);
}

/* `holes` segments of 256 MiB, all but 4 MiB of each stranded, below 16 GiB of other live memory. */
static void fill_with_holes(int holes)
{
    uint32_t s = maker_stack(&maker, "keep", "user.py", 3);
    for (int i = 0; i < 16; i++) {
        maker_alloc(&maker, PLIM_GIB, s);
    }
    for (int i = 0; i < holes; i++) {
        maker_strand(&maker, 256 * PLIM_MIB, 4 * PLIM_MIB, 0, s);
    }
}

static void few_holes_are_the_usual_cost_of_caching(void **state)
{
    (void)state;
    maker_init(&maker);
    fill_with_holes(5);
    maker_oom(&maker, 20 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(18 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET);
}

static void the_same_holes_matter_to_a_large_request(void **state)
{
    (void)state;
    maker_init(&maker);
    fill_with_holes(5);
    maker_oom(&maker, 700 * PLIM_MIB, 10 * PLIM_MIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(18 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED);
}

static void holes_do_not_explain_a_pass_larger_than_all_before(void **state)
{
    (void)state;
    maker_init(&maker);
    uint32_t keep = maker_stack(&maker, "keep", "user.py", 3);
    uint32_t work = maker_stack(&maker, "work", "user.py", 20);
    maker_alloc(&maker, 4 * PLIM_GIB, keep);
    for (int i = 0; i < 20; i++) {
        maker_strand(&maker, 128 * PLIM_MIB, 4 * PLIM_MIB, 0, keep);
    }
    for (int i = 0; i < 200; i++) {
        maker_free(&maker, maker_alloc(&maker, 900 * PLIM_KIB, work));
    }
    for (int i = 0; i < 10; i++) {
        maker_alloc(&maker, PLIM_GIB, work);
    }
    maker_oom(&maker, 2 * PLIM_GIB, 100 * PLIM_MIB, work);
    struct plim_diagnose_options options = with_total(17 * PLIM_GIB);
    assert_verdict(&options, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET);
}

static void holes_under_a_cap_are_named_before_the_cap(void **state)
{
    (void)state;
    maker_init(&maker);
    for (int i = 0; i < 16; i++) {
        maker_strand(&maker, 512 * PLIM_MIB, 4 * PLIM_MIB, 0, PLIM_NO_STACK);
    }
    maker_oom(&maker, 2 * PLIM_GIB, 15 * PLIM_GIB, PLIM_NO_STACK);
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    options.facts.cap = plim_amount(9 * PLIM_GIB, PLIM_HOW_MEASURED);
    assert_verdict(&options, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED);
}

static void without_the_size_of_the_device_no_capacity_verdict_is_sure(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    maker_init(&maker);
    maker_alloc(&maker, 4 * PLIM_GIB, PLIM_NO_STACK);
    maker_oom(&maker, 2 * PLIM_GIB, PLIM_GIB, PLIM_NO_STACK);
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, &defaults, &d, NULL));
    assert_int_equal(d.set.verdict.cls, PLIM_CLASS_CAPACITY);
    assert_true(d.set.verdict.confidence <= 0.6);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_full_device_without_history_is_unknown(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct plim_diagnose_options options = with_total(24 * PLIM_GIB);
    maker_init(&maker);
    maker_alloc(&maker, 23 * PLIM_GIB, PLIM_NO_STACK);
    maker.forget = 2;
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, &options, &d, NULL));
    assert_int_equal(d.set.verdict.cls, PLIM_CLASS_UNKNOWN);
    assert_true(d.set.unknowns.n > 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_failure_with_nothing_free_is_measured_too(void **state)
{
    (void)state;
    struct plim_diagnosis d;
    struct plim_diagnose_options options = with_total(10 * PLIM_GIB);
    maker_init(&maker);
    maker_alloc(&maker, 9 * PLIM_GIB, PLIM_NO_STACK);
    maker_oom(&maker, 2 * PLIM_GIB, 0, PLIM_NO_STACK);
    maker_finish(&maker);
    assert_ok(plim_diagnose(&maker.snapshot, &options, &d, NULL));
    assert_int_equal(d.set.ledger.owner[PLIM_OWNER_FREE].how, PLIM_HOW_MEASURED);
    assert_int_equal(d.set.ledger.owner[PLIM_OWNER_FREE].bytes, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void a_snapshot_that_names_no_stream_is_judged(void **state)
{
    (void)state;
    maker_init(&maker);
    maker_alloc(&maker, 4 * PLIM_GIB, PLIM_NO_STACK);
    maker.snapshot.streams.n = 0;
    assert_verdict(&defaults, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK);
}

static void a_snapshot_without_devices_is_an_error(void **state)
{
    (void)state;
    struct plim_snapshot empty;
    struct plim_diagnosis d;
    struct plim_err err;
    assert_ok(plim_snapshot_init(&empty, NULL));
    assert_int_equal(plim_diagnose(&empty, &defaults, &d, &err), PLIM_E_DATA);
    assert_true(err.hint[0] != '\0');
    plim_snapshot_fini(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_beyond_the_device_is_a_single_request),
        cmocka_unit_test(a_history_without_its_segments_decides_nothing),
        cmocka_unit_test(live_bytes_without_holes_are_a_working_set),
        cmocka_unit_test(holes_pinned_by_small_blocks_are_fragmentation),
        cmocka_unit_test(unused_private_pools_are_named),
        cmocka_unit_test(neighbours_on_the_card_are_external),
        cmocka_unit_test(refusal_with_enough_free_is_a_cap),
        cmocka_unit_test(list_that_only_grows_is_a_leak),
        cmocka_unit_test(cache_that_stopped_growing_is_not_a_leak),
        cmocka_unit_test(loading_without_work_between_is_not_a_leak),
        cmocka_unit_test(bounded_cache_in_a_short_record_is_not_a_leak),
        cmocka_unit_test(bursts_in_a_short_record_are_a_leak_when_older_ones_are_there),
        cmocka_unit_test(leak_that_has_filled_the_card_is_still_one_after_more_failures),
        cmocka_unit_test(small_leak_beside_one_large_block_a_round_is_a_leak),
        cmocka_unit_test(conversion_of_weights_is_not_a_leak),
        cmocka_unit_test(snapshot_from_after_the_failure_is_judged_by_the_message),
        cmocka_unit_test(backward_nodes_name_the_memory_of_threads_without_python),
        cmocka_unit_test(why_a_block_has_no_stack_is_said_as_far_as_it_is_known),
        cmocka_unit_test(leak_without_any_stacks_is_seen_by_growth_amid_work),
        cmocka_unit_test(few_holes_are_the_usual_cost_of_caching),
        cmocka_unit_test(the_same_holes_matter_to_a_large_request),
        cmocka_unit_test(holes_do_not_explain_a_pass_larger_than_all_before),
        cmocka_unit_test(holes_under_a_cap_are_named_before_the_cap),
        cmocka_unit_test(without_the_size_of_the_device_no_capacity_verdict_is_sure),
        cmocka_unit_test(a_full_device_without_history_is_unknown),
        cmocka_unit_test(a_failure_with_nothing_free_is_measured_too),
        cmocka_unit_test(a_snapshot_that_names_no_stream_is_judged),
        cmocka_unit_test(a_snapshot_without_devices_is_an_error),
    };
    return PLIM_RUN_TESTS("diagnose", tests);
}
