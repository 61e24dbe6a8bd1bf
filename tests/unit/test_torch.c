/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native allocator's model on worked examples. Every expected number was observed on torch 2.14.1
 * over a stub driver that hands out ascending 2 MiB-aligned addresses on a device of 1 GiB.
 */

#include "torch_world.h"

#define MIB PLIM_MIB

static void setup(struct world *w, const char *conf)
{
    world_make(w, conf, 14, PLIM_GIB, PLIM_ADDRESS_ASCENDING);
}

static struct plim_torch_stats stats(const struct world *w)
{
    struct plim_torch_stats s;
    plim_torch_stats(w->t, &s);
    return s;
}

#define CURRENT(s, name) ((uint64_t)(s).stat[PLIM_TORCH_STAT_##name][PLIM_TORCH_ALL].current)
#define PEAK(s, name)    ((uint64_t)(s).stat[PLIM_TORCH_STAT_##name][PLIM_TORCH_ALL].peak)

static uint64_t offset(const struct world *w, uint64_t block)
{
    return plim_torch_addr(w->t, block) - WORLD_BASE;
}

/* The sizes of the calls of one kind since `from`, compared with a list ended by 0. */
static void expect_calls(const struct world *w, size_t from, enum plim_driver_call call,
                         const uint64_t *want)
{
    for (size_t i = from; i < w->calls.n; i++) {
        if (w->calls.items[i].call == call) {
            assert_int_equal(w->calls.items[i].size, *want);
            want++;
        }
    }
    assert_int_equal(*want, 0);
}

static struct plim_block block_at(const struct world *w, uint64_t off)
{
    struct plim_heap heap = {0};
    struct plim_block found = {0};
    assert_int_equal(plim_torch_export(w->t, &heap, NULL), PLIM_OK);
    plim_vec_foreach (b, &heap.blocks) {
        found = b->addr == WORLD_BASE + off ? *b : found;
    }
    plim_vec_fini(&heap.segments);
    plim_vec_fini(&heap.blocks);
    assert_int_not_equal(found.size, 0);
    return found;
}

static void requests_around_the_thresholds(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 513, 1048576, 1048577, 10485759, 10485760, 10485761};
    static const uint64_t offsets[] = {0, 0x200, 0x600, 0x200000, 0x300200, 0x1600000, 0x2000000};
    static const uint64_t mallocs[] = {2097152, 20971520, 10485760, 12582912, 0};
    static const uint64_t frees[] = {10485760, 12582912, 20971520, 2097152, 0};
    struct world w;
    uint64_t blocks[7];
    setup(&w, "");
    for (size_t i = 0; i < 7; i++) {
        blocks[i] = world_alloc(&w, sizes[i]);
        assert_int_equal(offset(&w, blocks[i]), offsets[i]);
    }
    assert_int_equal(plim_torch_size(w.t, blocks[3]), 1049088);
    assert_int_equal(plim_torch_size(w.t, blocks[6]), 10486272);
    expect_calls(&w, 0, PLIM_DRIVER_MALLOC, mallocs);
    struct plim_torch_stats s = stats(&w);
    assert_int_equal(CURRENT(s, ALLOCATED_BYTES), 33556992);
    assert_int_equal(CURRENT(s, RESERVED_BYTES), 46137344);
    assert_int_equal(CURRENT(s, INACTIVE_SPLIT), 3);
    assert_int_equal(CURRENT(s, INACTIVE_SPLIT_BYTES), 12580352);
    assert_int_equal(CURRENT(s, SEGMENT), 4);
    assert_int_equal(CURRENT(s, REQUESTED_BYTES), 33554947);
    for (size_t i = 0; i < 7; i++) {
        world_free(&w, blocks[i]);
    }
    assert_int_equal(block_at(&w, 0).requested, 1048576);
    assert_int_equal(block_at(&w, 0x200000).requested, 10485759);
    assert_int_equal(block_at(&w, 0x1600000).requested, 10485760);
    assert_int_equal(block_at(&w, 0x2000000).requested, 10485761);
    size_t from = w.calls.n;
    world_empty(&w);
    expect_calls(&w, from, PLIM_DRIVER_FREE, frees);
    s = stats(&w);
    assert_int_equal(PEAK(s, INACTIVE_SPLIT), 4);
    assert_int_equal(PEAK(s, INACTIVE_SPLIT_BYTES), 20969472);
    assert_int_equal(CURRENT(s, RESERVED_BYTES), 0);
    world_drop(&w);
}

static void a_remainder_shows_the_size_of_its_past(void **state)
{
    (void)state;
    struct world w;
    setup(&w, "");
    world_free(&w, world_alloc(&w, 600 * MIB));
    world_alloc(&w, 300 * MIB);
    assert_int_equal(block_at(&w, 300 * MIB).requested, 629145600);
    assert_int_equal(block_at(&w, 300 * MIB).state, PLIM_BLOCK_INACTIVE);
    world_drop(&w);
}

static void message(const struct world *w, struct plim_buf *out)
{
    plim_buf_reset(out);
    plim_torch_oom_message(plim_torch_failure(w->t), PLIM_TORCH_LATEST, 0,
                           plim_torch_conf(w->t)->expandable, NULL, 0, out);
}

static void the_error_text_is_pytorchs(void **state)
{
    (void)state;
    struct world w;
    struct plim_buf text = {0};
    setup(&w, "");
    world_alloc(&w, 600 * MIB);
    assert_int_equal(world_alloc(&w, 500 * MIB), PLIM_TORCH_NONE);
    message(&w, &text);
    assert_string_equal(
        text.p,
        "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 1024.00 "
        "MiB "
        "of which 424.00 MiB is free. Of the allocated memory 600.00 MiB is allocated by PyTorch, "
        "and "
        "0 bytes is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
        "large "
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
        "documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
        "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)");
    assert_int_equal(plim_torch_set_fraction(w.t, 0.7, NULL), PLIM_OK);
    assert_int_equal(world_alloc(&w, 500 * MIB), PLIM_TORCH_NONE);
    message(&w, &text);
    assert_non_null(strstr(text.p, "is free. 716.80 MiB allowed; Of the allocated"));
    assert_int_equal(world_alloc(&w, UINT64_C(1) << 60), PLIM_TORCH_NONE);
    message(&w, &text);
    assert_string_equal(text.p, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    plim_buf_fini(&text);
    world_drop(&w);
}

static void private_pools_are_named_in_the_error_text(void **state)
{
    (void)state;
    struct world w;
    struct plim_buf text = {0};
    uint16_t pool = 0;
    setup(&w, "");
    assert_int_equal(plim_torch_pool_retain(w.t, (struct plim_pool_id){0, 1}, 0, &pool, NULL),
                     PLIM_OK);
    world_free(&w, world_alloc(&w, 600 * MIB));
    world_alloc(&w, 300 * MIB);
    world_alloc(&w, 3 * MIB);
    world_alloc_on(&w, 30 * MIB, 0, pool);
    uint64_t a = world_alloc_on(&w, 20 * MIB, 0, pool);
    world_alloc_on(&w, 20 * MIB, 0, pool);
    world_free(&w, a);
    assert_int_equal(world_alloc(&w, 500 * MIB), PLIM_TORCH_NONE);
    message(&w, &text);
    assert_non_null(strstr(text.p,
                           "Of the allocated memory 373.00 MiB is allocated by PyTorch, with "
                           "20.00 MiB allocated in private pools (e.g., CUDA Graphs), and "
                           "297.00 MiB is reserved"));
    plim_buf_fini(&text);
    world_drop(&w);
}

static void expandable_segments_grow_and_shrink_by_pages(void **state)
{
    (void)state;
    static const uint64_t reserves[] = {1207959552, 1216348160, 0};
    struct world w;
    setup(&w, "expandable_segments:True");
    uint64_t small = world_alloc(&w, 1000);
    uint64_t five = world_alloc(&w, 5 * MIB);
    uint64_t base = plim_torch_addr(w.t, five);
    uint64_t r = base - WORLD_BASE;
    uint64_t eighteen = world_alloc(&w, 18 * MIB);
    uint64_t fifty = world_alloc(&w, 50 * MIB);
    expect_calls(&w, 0, PLIM_DRIVER_ADDRESS_RESERVE, reserves);
    assert_int_equal(plim_torch_addr(w.t, eighteen) - base, 0x500000);
    assert_int_equal(plim_torch_addr(w.t, fifty) - base, 0x1700000);
    assert_int_equal(plim_torch_gauges(w.t).reserved, 85983232);
    assert_int_equal(CURRENT(stats(&w), SEGMENT), 0);
    assert_int_equal(block_at(&w, r + 0x1700000 + 50 * MIB).size, 7340032);
    world_free(&w, five);
    world_free(&w, eighteen);
    size_t from = w.calls.n;
    world_empty(&w);
    static const uint64_t unmaps[] = {20971520, 0};
    expect_calls(&w, from, PLIM_DRIVER_UNMAP, unmaps);
    assert_int_equal(block_at(&w, r + 0x1400000).size, 3145728);
    assert_int_equal(block_at(&w, r + 0x1400000).requested, 0);
    uint64_t thirty = world_alloc(&w, 30 * MIB);
    assert_int_equal(plim_torch_addr(w.t, thirty) - base, 0x4900000);
    world_free(&w, small);
    world_free(&w, fifty);
    world_free(&w, thirty);
    from = w.calls.n;
    world_empty(&w);
    static const uint64_t releases[] = {1216348160, 1207959552, 0};
    expect_calls(&w, from, PLIM_DRIVER_ADDRESS_FREE, releases);
    assert_int_equal(w.device.used, 0);
    world_drop(&w);
}

static void frees_on_other_streams_wait_for_a_later_request(void **state)
{
    (void)state;
    struct world w;
    uint16_t s1 = 0;
    uint16_t s2 = 0;
    setup(&w, "");
    w.lagging = true;
    assert_int_equal(plim_torch_stream(w.t, 1, 1, &s1, NULL), PLIM_OK);
    assert_int_equal(plim_torch_stream(w.t, 2, 2, &s2, NULL), PLIM_OK);
    uint64_t a = world_alloc(&w, 4 * MIB);
    uint64_t addr = plim_torch_addr(w.t, a);
    assert_int_equal(plim_torch_record_stream(w.t, a, s1, NULL), PLIM_OK);
    assert_int_equal(plim_torch_record_stream(w.t, a, s2, NULL), PLIM_OK);
    assert_int_equal(plim_torch_record_stream(w.t, a, s1, NULL), PLIM_OK);
    world_free(&w, a);
    assert_int_equal(plim_torch_gauges(w.t).allocated, 0);
    assert_int_equal(plim_torch_gauges(w.t).active, 4 * MIB);
    assert_int_equal(block_at(&w, 0).state, PLIM_BLOCK_PENDING_FREE);
    uint64_t b = world_alloc(&w, 4 * MIB);
    assert_int_equal(plim_torch_addr(w.t, b), addr + 4 * MIB);
    assert_int_equal(w.device.calls[PLIM_DRIVER_EVENT_QUERY], 2);
    w.lagging = false;
    uint64_t c = world_alloc(&w, 4 * MIB);
    assert_int_equal(plim_torch_addr(w.t, c), addr);
    assert_int_equal(w.events.items[w.events.n - 2].action, PLIM_ACTION_FREE_COMPLETED);
    assert_int_equal(plim_torch_record_stream(w.t, c, s1, NULL), PLIM_OK);
    w.lagging = true;
    world_free(&w, c);
    world_empty(&w);
    assert_int_equal(w.device.calls[PLIM_DRIVER_EVENT_SYNC], 1);
    assert_int_equal(stats(&w).num_sync_all_streams, 1);
    assert_int_equal(plim_torch_gauges(w.t).reserved, 20 * MIB);
    world_drop(&w);
}

static void garbage_collection_takes_the_older_half(void **state)
{
    (void)state;
    struct world w;
    uint64_t blocks[4];
    setup(&w, "garbage_collection_threshold:0.4");
    assert_int_equal(plim_torch_set_fraction(w.t, 0.9, NULL), PLIM_OK);
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = world_alloc(&w, 100 * MIB);
    }
    for (size_t i = 0; i < 4; i++) {
        world_free(&w, blocks[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        uint64_t b = world_alloc(&w, (20 + 2 * i) * MIB);
        assert_int_equal(offset(&w, b), 0);
        world_free(&w, b);
    }
    size_t from = w.calls.n;
    world_alloc(&w, 110 * MIB);
    static const uint64_t frees[] = {104857600, 104857600, 104857600, 0};
    expect_calls(&w, from, PLIM_DRIVER_FREE, frees);
    assert_int_equal(block_at(&w, 0).size, 100 * MIB);
    world_drop(&w);
}

static void max_split_keeps_large_blocks_whole(void **state)
{
    (void)state;
    struct world w;
    uint64_t b[3];
    setup(&w, "max_split_size_mb:64");
    b[0] = world_alloc(&w, 100 * MIB);
    b[1] = world_alloc(&w, 80 * MIB);
    b[2] = world_alloc(&w, 70 * MIB);
    for (size_t i = 0; i < 3; i++) {
        world_free(&w, b[i]);
    }
    uint64_t sixty = world_alloc(&w, 60 * MIB);
    assert_int_equal(offset(&w, sixty), 250 * MIB);
    uint64_t seventyfive = world_alloc(&w, 75 * MIB);
    assert_int_equal(plim_torch_size(w.t, seventyfive), 80 * MIB);
    uint64_t sixtyfour = world_alloc(&w, 64 * MIB);
    assert_int_equal(plim_torch_size(w.t, sixtyfour), 70 * MIB);
    world_free(&w, seventyfive);
    world_free(&w, sixtyfour);
    size_t from = w.calls.n;
    assert_int_not_equal(world_alloc(&w, 900 * MIB), PLIM_TORCH_NONE);
    static const uint64_t frees[] = {100 * MIB, 80 * MIB, 70 * MIB, 0};
    expect_calls(&w, from, PLIM_DRIVER_FREE, frees);
    assert_int_equal(stats(&w).num_alloc_retries, 1);
    world_drop(&w);
}

static void no_split_pools_hand_out_whole_segments(void **state)
{
    (void)state;
    struct world w;
    uint16_t pool = 0;
    setup(&w, "");
    assert_int_equal(plim_torch_pool_retain(w.t, (struct plim_pool_id){0, 1},
                                            PLIM_TORCH_POOL_NO_SPLIT, &pool, NULL),
                     PLIM_OK);
    assert_int_equal(plim_torch_size(w.t, world_alloc_on(&w, 3 * MIB, 0, pool)), 20 * MIB);
    assert_int_equal(plim_torch_size(w.t, world_alloc_on(&w, 1000, 0, pool)), 2 * MIB);
    assert_int_equal(plim_torch_size(w.t, world_alloc_on(&w, 2000, 0, pool)), 2 * MIB);
    world_drop(&w);
}

static void overflow_pools_lend_before_anything_is_released(void **state)
{
    (void)state;
    struct world w;
    uint16_t pool = 0;
    setup(&w, "");
    assert_int_equal(plim_torch_pool_retain(w.t, (struct plim_pool_id){0, 1},
                                            PLIM_TORCH_POOL_OVERFLOW, &pool, NULL),
                     PLIM_OK);
    uint64_t lent = world_alloc_on(&w, 300 * MIB, 0, pool);
    uint64_t at = plim_torch_addr(w.t, lent);
    world_free(&w, lent);
    world_alloc(&w, 650 * MIB);
    uint64_t b = world_alloc(&w, 250 * MIB);
    assert_int_equal(plim_torch_addr(w.t, b), at);
    assert_int_equal(plim_torch_size(w.t, b), 250 * MIB);
    assert_int_equal(block_at(&w, at - WORLD_BASE + 250 * MIB).requested, 314572800);
    assert_int_equal(w.device.calls[PLIM_DRIVER_FREE], 0);
    assert_int_equal(stats(&w).num_alloc_retries, 0);
    world_drop(&w);
}

static void a_failing_pool_request_releases_the_default_pool_only(void **state)
{
    (void)state;
    struct world w;
    uint16_t pool = 0;
    uint16_t s1 = 0;
    setup(&w, "");
    assert_int_equal(plim_torch_stream(w.t, 1, 1, &s1, NULL), PLIM_OK);
    assert_int_equal(plim_torch_pool_retain(w.t, (struct plim_pool_id){0, 1}, 0, &pool, NULL),
                     PLIM_OK);
    uint64_t a = world_alloc(&w, 200 * MIB);
    uint64_t b = world_alloc(&w, 30 * MIB);
    uint64_t c = world_alloc(&w, 40 * MIB);
    uint64_t d = world_alloc_on(&w, 50 * MIB, s1, PLIM_TORCH_POOL_DEFAULT);
    uint64_t e = world_alloc(&w, 1000);
    uint64_t f = world_alloc_on(&w, 100 * MIB, 0, pool);
    assert_int_equal(plim_torch_record_stream(w.t, c, s1, NULL), PLIM_OK);
    w.lagging = true;
    world_free(&w, a);
    world_free(&w, b);
    world_free(&w, c);
    world_free(&w, d);
    world_free(&w, e);
    world_free(&w, f);
    size_t from = w.calls.n;
    assert_int_not_equal(world_alloc_on(&w, 800 * MIB, 0, pool), PLIM_TORCH_NONE);
    static const uint64_t frees[] = {30 * MIB, 40 * MIB, 200 * MIB, 50 * MIB, 2 * MIB, 0};
    expect_calls(&w, from, PLIM_DRIVER_FREE, frees);
    assert_int_equal(w.device.calls[PLIM_DRIVER_EVENT_SYNC], 1);
    assert_int_equal(plim_torch_gauges(w.t).reserved, 900 * MIB);
    world_drop(&w);
}

static void equal_blocks_come_oldest_first_or_lowest_first_by_version(void **state)
{
    (void)state;
    static const unsigned minors[] = {14, 11};
    for (size_t k = 0; k < 2; k++) {
        struct world w;
        uint64_t addr[3];
        uint64_t block[3];
        world_make(&w, "", minors[k], PLIM_GIB, PLIM_ADDRESS_DESCENDING);
        for (size_t i = 0; i < 3; i++) {
            block[i] = world_alloc(&w, 12 * MIB);
            addr[i] = plim_torch_addr(w.t, block[i]);
        }
        world_free(&w, block[1]);
        world_free(&w, block[2]);
        world_free(&w, block[0]);
        for (size_t i = 0; i < 3; i++) {
            uint64_t b = world_alloc(&w, 12 * MIB);
            assert_int_equal(plim_torch_addr(w.t, b), minors[k] == 14 ? addr[i] : addr[2 - i]);
        }
        world_drop(&w);
    }
}

static void a_hopeless_request_makes_five_calls(void **state)
{
    (void)state;
    static const enum plim_driver_call want[] = {PLIM_DRIVER_MALLOC, PLIM_DRIVER_MEM_GET_INFO,
                                                 PLIM_DRIVER_MALLOC, PLIM_DRIVER_MEM_GET_INFO,
                                                 PLIM_DRIVER_MEM_GET_INFO};
    struct world w;
    setup(&w, "");
    assert_int_equal(world_alloc(&w, 2 * PLIM_GIB), PLIM_TORCH_NONE);
    assert_int_equal(w.calls.n, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(w.calls.items[i].call, want[i]);
    }
    struct plim_torch_stats s = stats(&w);
    assert_int_equal(s.num_alloc_retries, 1);
    assert_int_equal(s.num_ooms, 1);
    assert_int_equal(s.num_sync_all_streams, 1);
    assert_int_equal(w.events.items[0].action, PLIM_ACTION_OOM);
    assert_int_equal(w.events.items[0].size, 2 * PLIM_GIB);
    world_drop(&w);
}

static void early_rejection_counts_separately(void **state)
{
    (void)state;
    struct world w;
    struct plim_buf text = {0};
    setup(&w, "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True");
    assert_int_equal(plim_torch_set_fraction(w.t, 1.0, NULL), PLIM_OK);
    assert_int_equal(world_alloc(&w, 600 * MIB), PLIM_TORCH_NONE);
    assert_int_equal(stats(&w).num_oom_rejections, 1);
    assert_int_equal(stats(&w).num_ooms, 0);
    assert_int_equal(w.events.n, 0);
    message(&w, &text);
    assert_string_equal(text.p,
                        "CUDA out of memory. Allocation was preemptively rejected because it would "
                        "exceed per_process_memory_fraction limit. Requested size: 600.00 MiB");
    plim_buf_fini(&text);
    world_drop(&w);
}

static void requests_beyond_every_device_find_nothing(void **state)
{
    (void)state;
    struct world w;
    setup(&w, "");
    world_free(&w, world_alloc(&w, 100));
    for (unsigned bit = 40; bit < 60; bit++) {
        assert_int_equal(world_alloc(&w, UINT64_C(1) << bit), PLIM_TORCH_NONE);
        assert_int_equal(world_alloc(&w, (UINT64_C(1) << bit) + 5), PLIM_TORCH_NONE);
    }
    world_drop(&w);
}

static void wrong_handles_are_refused(void **state)
{
    (void)state;
    struct world w;
    struct plim_err err = {0};
    setup(&w, "");
    uint64_t a = world_alloc(&w, 100);
    world_free(&w, a);
    assert_int_equal(plim_torch_free(w.t, a, &err), PLIM_E_NOTFOUND);
    assert_non_null(strstr(err.message, "invalid device pointer"));
    uint64_t b = world_alloc(&w, 100);
    assert_int_not_equal(a, b);
    assert_int_equal(plim_torch_free(w.t, a, &err), PLIM_E_NOTFOUND);
    assert_int_equal(plim_torch_free(w.t, UINT64_MAX, &err), PLIM_E_NOTFOUND);
    assert_int_equal(plim_torch_record_stream(w.t, b, 99, &err), PLIM_E_NOTFOUND);
    assert_int_equal(plim_torch_alloc(w.t, 1, 9, 0, &a, &err), PLIM_E_NOTFOUND);
    assert_int_equal(plim_torch_alloc(w.t, 0, 0, 0, &a, &err), PLIM_OK);
    assert_int_equal(a, PLIM_TORCH_NONE);
    world_drop(&w);
}

static void a_deferred_free_completes_when_told_or_when_all_is_flushed(void **state)
{
    (void)state;
    struct world w;
    setup(&w, "");
    uint64_t a = world_alloc(&w, 30 * MIB);
    uint64_t b = world_alloc(&w, 40 * MIB);
    assert_int_equal(plim_torch_free_deferred(w.t, a, NULL), PLIM_OK);
    assert_int_equal(plim_torch_free_deferred(w.t, b, NULL), PLIM_OK);
    world_check(&w);
    assert_int_equal(plim_torch_gauges(w.t).active, 70 * MIB);
    assert_int_equal(plim_torch_complete(w.t, a, NULL), PLIM_OK);
    assert_int_equal(plim_torch_gauges(w.t).active, 40 * MIB);
    world_empty(&w);
    assert_int_equal(plim_torch_gauges(w.t).reserved, 0);
    assert_int_equal(plim_torch_complete(w.t, b, NULL), PLIM_OK);
    world_check(&w);
    world_drop(&w);
}

static void captures_defer_frees_and_keep_the_cache(void **state)
{
    (void)state;
    struct world w;
    uint16_t s1 = 0;
    uint16_t pool = 0;
    setup(&w, "");
    assert_int_equal(plim_torch_stream(w.t, 1, 1, &s1, NULL), PLIM_OK);
    assert_int_equal(plim_torch_pool_retain(w.t, (struct plim_pool_id){1, 0}, 0, &pool, NULL),
                     PLIM_OK);
    world_free(&w, world_alloc(&w, 500 * MIB));
    plim_torch_capture(w.t, s1, true);
    assert_int_equal(plim_torch_route_begin(w.t, pool, s1, NULL), PLIM_OK);
    assert_int_equal(plim_torch_route_begin(w.t, pool, s1, NULL), PLIM_E_USAGE);
    uint64_t a = world_alloc_on(&w, 4 * MIB, s1, PLIM_TORCH_POOL_ROUTED);
    assert_int_equal(plim_torch_record_stream(w.t, a, 0, NULL), PLIM_OK);
    world_free(&w, a);
    assert_int_equal(world_alloc_on(&w, 800 * MIB, s1, PLIM_TORCH_POOL_ROUTED), PLIM_TORCH_NONE);
    assert_int_equal(plim_torch_gauges(w.t).reserved, 520 * MIB);
    assert_int_equal(plim_torch_gauges(w.t).active, 4 * MIB);
    assert_int_equal(plim_torch_route_end(w.t, pool, NULL), PLIM_OK);
    plim_torch_capture(w.t, s1, false);
    world_alloc_on(&w, 100, s1, PLIM_TORCH_POOL_DEFAULT);
    assert_int_equal(plim_torch_gauges(w.t).active, 512);
    world_drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_around_the_thresholds),
        cmocka_unit_test(a_remainder_shows_the_size_of_its_past),
        cmocka_unit_test(the_error_text_is_pytorchs),
        cmocka_unit_test(private_pools_are_named_in_the_error_text),
        cmocka_unit_test(expandable_segments_grow_and_shrink_by_pages),
        cmocka_unit_test(frees_on_other_streams_wait_for_a_later_request),
        cmocka_unit_test(garbage_collection_takes_the_older_half),
        cmocka_unit_test(max_split_keeps_large_blocks_whole),
        cmocka_unit_test(no_split_pools_hand_out_whole_segments),
        cmocka_unit_test(overflow_pools_lend_before_anything_is_released),
        cmocka_unit_test(a_failing_pool_request_releases_the_default_pool_only),
        cmocka_unit_test(equal_blocks_come_oldest_first_or_lowest_first_by_version),
        cmocka_unit_test(a_hopeless_request_makes_five_calls),
        cmocka_unit_test(early_rejection_counts_separately),
        cmocka_unit_test(requests_beyond_every_device_find_nothing),
        cmocka_unit_test(wrong_handles_are_refused),
        cmocka_unit_test(a_deferred_free_completes_when_told_or_when_all_is_flushed),
        cmocka_unit_test(captures_defer_frees_and_keep_the_cache),
    };
    return PLIM_RUN_TESTS("torch", tests);
}
