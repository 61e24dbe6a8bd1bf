/* SPDX-License-Identifier: Apache-2.0 */
/* Plimsoll's allocator on the device model, and replays on it. */

#include "unit.h"

#include "alloc/moving.h"
#include "replay/replay.h"

#define SLOTS 25

static void open_device(struct plim_devmodel *device, struct plim_moving *m, uint64_t total)
{
    struct plim_devmodel_config config = {.total = total};
    assert_ok(plim_devmodel_init(device, &config, NULL));
    assert_ok(plim_moving_init(m, device, NULL, NULL));
}

static void the_device_holds_what_the_allocator_reserves(void **state)
{
    (void)state;
    struct plim_devmodel device;
    struct plim_moving m;
    uint64_t addr[64] = {0};
    uint64_t random = 1;
    open_device(&device, &m, 512 * PLIM_MIB);
    for (unsigned i = 0; i < 4000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned slot = (unsigned)(random >> 58);
        if (addr[slot]) {
            assert_ok(plim_moving_free(&m, addr[slot], NULL));
            addr[slot] = 0;
        } else {
            uint64_t size = 1 + (random >> 20) % (12 * PLIM_MIB);
            assert_ok(plim_moving_alloc(&m, size, slot % 3, 0, &addr[slot], NULL));
        }
        struct plim_engine_stats s;
        plim_engine_stats(m.engine, &s);
        assert_int_equal(device.used, s.reserved);
        assert_true(s.reserved <= 512 * PLIM_MIB && s.live <= s.reserved);
    }
    assert_null(plim_engine_check(m.engine));
    assert_true(device.calls[PLIM_DRIVER_UNMAP] > 0); /* it came to moving */
    plim_moving_fini(&m);
    assert_int_equal(device.used, 0);
    plim_devmodel_fini(&device);
}

static void an_unknown_address_is_an_error(void **state)
{
    (void)state;
    struct plim_devmodel device;
    struct plim_moving m;
    uint64_t addr;
    open_device(&device, &m, 64 * PLIM_MIB);
    assert_int_equal(plim_moving_free(&m, 512, NULL), PLIM_E_NOTFOUND);
    assert_ok(plim_moving_alloc(&m, 1 << 20, 0, 0, &addr, NULL));
    assert_ok(plim_moving_free(&m, addr, NULL));
    assert_int_equal(plim_moving_free(&m, addr, NULL), PLIM_E_NOTFOUND);
    plim_moving_fini(&m);
    plim_devmodel_fini(&device);
}

/* 24 blocks of 10 MiB, every second one freed, then one of 110 MiB: requests without a snapshot's past. */
static void make_requests(struct plim_snapshot *snapshot, struct plim_requests *q)
{
    *snapshot = (struct plim_snapshot){0};
    *q = (struct plim_requests){.snapshot = snapshot, .slots = SLOTS, .complete = true};
    assert_ok(plim_vec_push(&snapshot->streams, NULL, 0));
    assert_ok(plim_vec_push(&snapshot->pools, NULL, (struct plim_pool_id){0}));
    assert_ok(plim_vec_push(&q->lanes, NULL, (struct plim_lane){0}));
    for (uint32_t i = 0; i < 24; i++) {
        struct plim_request r = {10 * PLIM_MIB, i, PLIM_REQUEST_ALLOC};
        assert_ok(plim_vec_push(&q->items, NULL, r));
    }
    for (uint32_t i = 0; i < 24; i += 2) {
        struct plim_request r = {0, i, PLIM_REQUEST_FREE};
        assert_ok(plim_vec_push(&q->items, NULL, r));
    }
    struct plim_request last = {110 * PLIM_MIB, 24, PLIM_REQUEST_ALLOC};
    assert_ok(plim_vec_push(&q->items, NULL, last));
    q->allocs = 25;
    plim_conf_init(&q->conf, (struct plim_torch_version){2, 14});
}

static void a_replay_on_it_serves_what_no_setting_does(void **state)
{
    (void)state;
    struct plim_snapshot snapshot;
    struct plim_requests q;
    make_requests(&snapshot, &q);
    struct plim_conf conf = q.conf;
    assert_ok(plim_conf_parse(&conf, plim_str_from("expandable_segments:True"), NULL));
    struct plim_replay_setup setup = {.conf = &conf, .capacity = 256 * PLIM_MIB};
    struct plim_replay_result r;
    assert_ok(plim_replay(&q, &setup, &r, NULL));
    assert_true(r.failed);
    assert_int_equal(r.first_oom.alloc_index, 24);
    setup.moving = &(struct plim_moving_options){0};
    assert_ok(plim_replay(&q, &setup, &r, NULL));
    assert_false(r.failed);
    assert_int_equal(r.allocs, 25);
    assert_int_equal(r.peak.allocated, 240 * PLIM_MIB);
    assert_true(r.peak.reserved <= 256 * PLIM_MIB && r.driver_calls > 0 && r.stall_ns > 0);
    setup.capacity = 128 * PLIM_MIB;
    assert_ok(plim_replay(&q, &setup, &r, NULL));
    assert_true(r.failed && r.first_oom.alloc_index == 12 && r.num_ooms == 1);
    plim_vec_fini(&q.items);
    plim_vec_fini(&q.lanes);
    plim_vec_fini(&snapshot.streams);
    plim_vec_fini(&snapshot.pools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_holds_what_the_allocator_reserves),
        cmocka_unit_test(an_unknown_address_is_an_error),
        cmocka_unit_test(a_replay_on_it_serves_what_no_setting_does),
    };
    return PLIM_RUN_TESTS("moving", tests);
}
