/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces that contradict themselves: frees of unknown addresses, holes, sizes of nothing and of everything,
 * unknown entries, memory that runs out on the host. Whatever comes, the answer is an answer or an error;
 * and what was left out is counted. Then bounds on cases small enough to know the answer.
 */

#include "fail_alloc.h"
#include "unit.h"

#include "replay/bound.h"
#include "replay/selfcheck.h"
#include "replay/tune.h"

/* ---- traces by hand ------------------------------------------------------------------------------ */

static void begin(struct plim_snapshot *s)
{
    struct plim_device *device;
    uint16_t stream;
    assert_ok(plim_snapshot_init(s, NULL));
    assert_ok(plim_snapshot_stream(s, 0, &stream, NULL));
    assert_ok(plim_snapshot_device(s, 0, &device, NULL));
    s->has_traces = true;
    s->settings.known = true;
    s->settings.conf = PLIM_NO_ID;
}

static void add_on(struct plim_snapshot *s, int action, uint64_t addr, uint64_t size,
                   uint16_t stream)
{
    struct plim_trace *trace = &s->devices.items[0].trace;
    struct plim_event e = {.addr = addr,
                           .size = size,
                           .stack = PLIM_NO_STACK,
                           .note = PLIM_NO_ID,
                           .stream = stream,
                           .pool = PLIM_NO_POOL,
                           .action = (uint8_t)action};
    assert_ok(plim_vec_push(&trace->events, NULL, e));
    if (action < PLIM_ACTION_COUNT) {
        trace->by_action[action]++;
    }
}

static void add(struct plim_snapshot *s, int action, uint64_t addr, uint64_t size)
{
    add_on(s, action, addr, size, 0);
}

static struct plim_requests built(const struct plim_snapshot *s)
{
    struct plim_requests q;
    assert_ok(plim_requests_build(s, 0, NULL, &q, NULL));
    return q;
}

static void what_does_not_fit_is_left_out_and_counted(void **state)
{
    struct plim_snapshot s;
    (void)state;
    begin(&s);
    add(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x1000000, 2 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 512);
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x5000000, 512); /* unknown */
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x5000000, 512); /* its other half: counted once */
    add(&s, PLIM_ACTION_ALLOC, 0x1000200, 0);            /* of nothing */
    add(&s, PLIM_ACTION_ALLOC, 0x1000400, UINT64_MAX);   /* of everything */
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 1024);         /* again, without a free */
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x1000000, 1024);
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x1000000, 1024); /* twice */
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x1000000, 1024);
    add(&s, PLIM_ACTION_UNKNOWN, 1, 2);
    add(&s, 200, 1, 2);
    struct plim_requests q = built(&s);
    assert_true(q.complete);
    assert_int_equal(q.doubts.unknown_frees, 1);
    assert_int_equal(q.doubts.zero_sizes, 1);
    assert_int_equal(q.doubts.impossible_sizes, 1);
    assert_int_equal(q.doubts.lost_frees, 1);
    assert_int_equal(q.doubts.repeated_frees, 1);
    assert_int_equal(q.doubts.unknown_actions, 2);
    assert_int_equal(q.allocs, 2);
    assert_int_equal(q.slots, 1);
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

static void a_failure_in_the_middle_is_a_request_that_is_freed_at_once(void **state)
{
    struct plim_snapshot s;
    (void)state;
    begin(&s);
    add(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x1000000, 20 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 4 * PLIM_MIB);
    add(&s, PLIM_ACTION_OOM, 30 * PLIM_MIB, 64 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1400000, 4 * PLIM_MIB);
    add(&s, PLIM_ACTION_OOM, 30 * PLIM_MIB, 80 * PLIM_MIB);
    struct plim_requests q = built(&s);
    assert_int_equal(q.allocs, 4);
    assert_int_equal(q.doubts.caught_failures, 1);
    assert_true(q.recorded_failure);
    assert_int_equal(q.recorded_capacity, 50 * PLIM_MIB);
    assert_int_equal(q.items.n, 5); /* 4 allocations, 1 free */
    assert_int_equal(plim_request_kind(&q.items.items[2]), PLIM_REQUEST_FREE);
    assert_int_equal(plim_requests_event(&q, 1), 2);
    assert_int_equal(plim_requests_event(&q, 3), 4);
    assert_int_equal(plim_requests_event(&q, 4), PLIM_NO_EVENT);
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

static void a_recording_without_requests_of_frees_still_frees(void **state)
{
    struct plim_snapshot s;
    (void)state;
    begin(&s);
    add(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x1000000, 2 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 512);
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x1000000, 512);
    struct plim_requests q = built(&s);
    assert_int_equal(q.items.n, 2);
    assert_int_equal(plim_request_kind(&q.items.items[1]), PLIM_REQUEST_FREE);
    assert_false(plim_request_kept(&q.items.items[0]));
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

/* A recording that begins late may hold nothing but frees: then no request has a stream or a pool. */
static void a_recording_of_nothing_but_frees_replays_on_both_allocators(void **state)
{
    struct plim_snapshot s;
    struct plim_conf conf;
    struct plim_replay_result result;
    const struct plim_moving_options moving = {0};
    (void)state;
    begin(&s);
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x1000000, 512);
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x1000000, 512);
    struct plim_segment segment = {.addr = 0x1000000, .size = 2 * PLIM_MIB, .n_blocks = 1};
    struct plim_block block = {
        .addr = segment.addr, .size = segment.size, .state = PLIM_BLOCK_INACTIVE};
    struct plim_heap *heap = &s.devices.items[0].heap;
    assert_ok(plim_vec_push(&heap->segments, NULL, segment));
    assert_ok(plim_vec_push(&heap->blocks, NULL, block));
    struct plim_requests q = built(&s);
    assert_int_equal(q.lanes.n, 0);
    assert_true(q.items.n > 0);
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    struct plim_replay_setup setup = {.conf = &conf, .start = PLIM_START_ANEW};
    assert_ok(plim_replay(&q, &setup, &result, NULL));
    setup.moving = &moving;
    assert_ok(plim_replay(&q, &setup, &result, NULL));
    assert_int_equal(result.last.active, 0);
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

static void a_device_that_is_not_there_is_an_error(void **state)
{
    struct plim_snapshot s;
    struct plim_requests q;
    struct plim_err err;
    (void)state;
    begin(&s);
    assert_int_equal(plim_requests_build(&s, 3, NULL, &q, &err), PLIM_E_NOTFOUND);
    plim_snapshot_fini(&s);
}

/* ---- noise ---------------------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void noise(struct plim_snapshot *s, uint64_t seed, size_t n)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     512,
                                     PLIM_MIB,
                                     2 * PLIM_MIB,
                                     3000,
                                     PLIM_GIB,
                                     20 * PLIM_MIB,
                                     UINT64_MAX,
                                     UINT64_C(1) << 59,
                                     777,
                                     64 * PLIM_MIB};
    uint64_t state = seed;
    uint16_t stream, pool;
    begin(s);
    assert_ok(plim_snapshot_stream(s, 77, &stream, NULL));
    assert_ok(plim_snapshot_pool(s, (struct plim_pool_id){0, 9}, &pool, NULL));
    for (size_t i = 0; i < n; i++) {
        uint64_t addr = (random_next(&state) % 40) * PLIM_MIB;
        add_on(s, (int)(random_next(&state) % (PLIM_ACTION_COUNT + 1)), addr,
               sizes[random_next(&state) % PLIM_COUNT_OF(sizes)],
               random_next(&state) % 4 ? 0 : stream);
        s->devices.items[0].trace.events.items[i].pool =
            random_next(&state) % 3 ? PLIM_NO_POOL : pool;
    }
}

static void noise_gives_answers(void **state)
{
    static const char *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:20"};
    static const struct plim_moving_options moving;
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct plim_snapshot s;
        struct plim_selfcheck check;
        struct plim_bound bound;
        noise(&s, seed, 400);
        struct plim_requests q = built(&s);
        for (size_t i = 0; i < PLIM_COUNT_OF(confs); i++) {
            struct plim_conf conf;
            struct plim_replay_result result;
            plim_conf_init(&conf, PLIM_TORCH_LATEST);
            assert_ok(plim_conf_parse(&conf, plim_str_from(confs[i]), NULL));
            struct plim_replay_setup setup = {.conf = &conf,
                                              .capacity = 4 * PLIM_GIB,
                                              .scale = 1.5,
                                              .start = PLIM_START_ANEW,
                                              .go_on = true};
            assert_ok(plim_replay(&q, &setup, &result, NULL));
            setup.moving = &moving;
            assert_ok(plim_replay(&q, &setup, &result, NULL));
            setup.moving = NULL;
            setup.capacity = 0;
            assert_ok(plim_replay(&q, &setup, &result, NULL));
        }
        assert_ok(plim_selfcheck(&q, 0, &check, NULL));
        assert_ok(plim_bound_of(&q, 1, &bound, NULL));
        assert_true(bound.packed_all <= bound.packed);
        plim_requests_fini(&q);
        plim_snapshot_fini(&s);
    }
}

/* ---- bounds --------------------------------------------------------------------------------------- */

/* Two pairs that alternate: 3 and 2 MiB live, then 2 freed and 4 wanted; at most 7 MiB at once. */
static void bounds_of_a_small_case_are_exact(void **state)
{
    struct plim_snapshot s;
    struct plim_bound bound;
    (void)state;
    begin(&s);
    add(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x1000000, 20 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 2 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1200000, 3 * PLIM_MIB);
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x1000000, 2 * PLIM_MIB);
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x1000000, 2 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1500000, 4 * PLIM_MIB);
    struct plim_requests q = built(&s);
    assert_ok(plim_bound_of(&q, 1, &bound, NULL));
    assert_int_equal(bound.live, 7 * PLIM_MIB);
    assert_int_equal(bound.packed_all, 7 * PLIM_MIB); /* in the order of time it would be 9 */
    assert_int_equal(bound.lanes, 1);
    assert_ok(plim_bound_of(&q, 2, &bound, NULL)); /* only the block that is freed grows */
    assert_int_equal(bound.live, 7 * PLIM_MIB);
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

static void a_block_on_another_stream_needs_room_of_its_own(void **state)
{
    struct plim_snapshot s;
    struct plim_bound bound;
    uint16_t other;
    (void)state;
    begin(&s);
    assert_ok(plim_snapshot_stream(&s, 5, &other, NULL));
    add(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x1000000, 20 * PLIM_MIB);
    add(&s, PLIM_ACTION_ALLOC, 0x1000000, 8 * PLIM_MIB);
    add(&s, PLIM_ACTION_FREE_REQUESTED, 0x1000000, 8 * PLIM_MIB);
    add(&s, PLIM_ACTION_FREE_COMPLETED, 0x1000000, 8 * PLIM_MIB);
    add_on(&s, PLIM_ACTION_SEGMENT_ALLOC, 0x4000000, 20 * PLIM_MIB, other);
    add_on(&s, PLIM_ACTION_ALLOC, 0x4000000, 8 * PLIM_MIB, other);
    struct plim_requests q = built(&s);
    assert_ok(plim_bound_of(&q, 1, &bound, NULL));
    assert_int_equal(bound.live, 8 * PLIM_MIB);
    assert_int_equal(bound.packed_all, 8 * PLIM_MIB);
    assert_int_equal(bound.packed, 16 * PLIM_MIB);
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

/* ---- the search, and the host's memory ------------------------------------------------------------- */

static void a_search_over_nothing_keeps_what_there_is(void **state)
{
    struct plim_snapshot s;
    struct plim_tune tune;
    struct plim_tune_options options = {.version = PLIM_TORCH_LATEST, .threads = 2};
    (void)state;
    begin(&s);
    struct plim_requests q = built(&s);
    assert_ok(plim_tune(&q, &options, &tune, NULL));
    assert_int_equal(tune.recommended, PLIM_NO_ID);
    assert_int_not_equal(tune.recorded, PLIM_NO_ID);
    assert_true(tune.runs.n >= 64);
    plim_tune_fini(&tune);
    options.vary = "roundup_power2_divisons";
    struct plim_err err;
    assert_int_equal(plim_tune(&q, &options, &tune, &err), PLIM_E_USAGE);
    assert_non_null(strstr(err.hint, "roundup_power2_divisions"));
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
}

static enum plim_status build_and_replay(void *arg)
{
    const struct plim_snapshot *s = arg;
    struct plim_requests q;
    struct plim_conf conf;
    struct plim_bound bound;
    struct plim_replay_result result;
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    struct plim_replay_setup setup = {.conf = &conf, .capacity = PLIM_GIB, .go_on = true};
    PLIM_TRY(plim_requests_build(s, 0, NULL, &q, NULL));
    enum plim_status st = plim_replay(&q, &setup, &result, NULL);
    if (st == PLIM_OK) {
        st = plim_bound_of(&q, 1, &bound, NULL);
    }
    plim_requests_fini(&q);
    return st;
}

static void a_host_without_memory_is_an_error(void **state)
{
    struct plim_snapshot s;
    (void)state;
    begin(&s);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t addr = 0x10000000 + i * 32 * PLIM_MIB;
        add(&s, PLIM_ACTION_SEGMENT_ALLOC, addr, 20 * PLIM_MIB);
        add(&s, PLIM_ACTION_ALLOC, addr, 4 * PLIM_MIB);
    }
    fail_alloc_sweep(build_and_replay, &s, 2000, false);
    plim_snapshot_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_left_out_and_counted),
        cmocka_unit_test(a_failure_in_the_middle_is_a_request_that_is_freed_at_once),
        cmocka_unit_test(a_recording_without_requests_of_frees_still_frees),
        cmocka_unit_test(a_recording_of_nothing_but_frees_replays_on_both_allocators),
        cmocka_unit_test(a_device_that_is_not_there_is_an_error),
        cmocka_unit_test(noise_gives_answers),
        cmocka_unit_test(bounds_of_a_small_case_are_exact),
        cmocka_unit_test(a_block_on_another_stream_needs_room_of_its_own),
        cmocka_unit_test(a_search_over_nothing_keeps_what_there_is),
        cmocka_unit_test(a_host_without_memory_is_an_error),
    };
    return PLIM_RUN_TESTS("replay of hostile traces", tests);
}
