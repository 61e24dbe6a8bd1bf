/* SPDX-License-Identifier: Apache-2.0 */
/* Each invariant of a heap, broken once. */

#include "heap/check.h"
#include "unit.h"

#include <string.h>

#define BASE UINT64_C(0x1000000)

/* Two segments of 2 KiB with two blocks each. */
static struct plim_heap sound(void)
{
    struct plim_heap h = {0};
    for (uint32_t i = 0; i < 2; i++) {
        struct plim_segment s = {
            .addr = BASE + i * 4096, .size = 2048, .first_block = 2 * i, .n_blocks = 2};
        struct plim_block b = {.addr = s.addr,
                               .size = 512,
                               .requested = 500,
                               .segment = i,
                               .state = PLIM_BLOCK_ALLOCATED};
        assert_ok(plim_vec_push(&h.segments, NULL, s));
        assert_ok(plim_vec_push(&h.blocks, NULL, b));
        b = (struct plim_block){.addr = s.addr + 512, .size = 1536, .segment = i};
        assert_ok(plim_vec_push(&h.blocks, NULL, b));
    }
    return h;
}

static void a_sound_heap_has_no_trouble(void **state)
{
    (void)state;
    struct plim_heap h = sound();
    assert_null(plim_heap_trouble(&h, NULL));
    plim_heap_fini(&h);
    assert_null(plim_heap_trouble(&h, NULL));
}

#define BROKEN(change, word)                                                                       \
    do {                                                                                           \
        struct plim_heap h = sound();                                                              \
        size_t at = 99;                                                                            \
        change;                                                                                    \
        const char *trouble = plim_heap_trouble(&h, &at);                                          \
        assert_non_null(trouble);                                                                  \
        assert_non_null(strstr(trouble, word));                                                    \
        assert_int_equal(at, 1);                                                                   \
        plim_heap_fini(&h);                                                                        \
    } while (0)

static void every_broken_invariant_is_told(void **state)
{
    (void)state;
    BROKEN(h.segments.items[1].addr = BASE + 1024, "overlaps");
    BROKEN(h.segments.items[1].addr = BASE - 4096, "sorted");
    BROKEN(h.segments.items[1].size = 0, "size 0");
    BROKEN(h.segments.items[1].size = 4096, "add up");
    BROKEN(h.segments.items[1].n_blocks = 0, "no blocks");
    BROKEN(h.segments.items[1].n_blocks = 7, "outside");
    BROKEN(h.blocks.items[2].segment = 0, "another segment");
    BROKEN(h.blocks.items[2].size = 0, "size 0");
    BROKEN(h.blocks.items[2].size = 1024, "overlap");
    BROKEN(h.blocks.items[2].size = 511, "gap");
    BROKEN(h.blocks.items[2].requested = 513, "requested");
    BROKEN(h.blocks.items[3].size = UINT64_MAX, "address space");
}

static void findings_name_device_and_segment(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_device *device;
    assert_ok(plim_snapshot_init(&s, NULL));
    assert_ok(plim_snapshot_device(&s, 2, &device, NULL));
    device->heap = sound();
    device->heap.segments.items[1].size = 4096;
    plim_snapshot_check(&s);
    assert_int_equal(s.findings.n, 1);
    assert_int_equal(s.findings.items[0].device, 2);
    assert_string_equal(plim_intern_str(&s.strings, s.findings.items[0].where).p,
                        "device 2, segment 0x1001000");
    plim_snapshot_fini(&s);
}

static void findings_are_counted_beyond_what_is_kept(void **state)
{
    (void)state;
    struct plim_snapshot s;
    assert_ok(plim_snapshot_init(&s, NULL));
    for (int i = 0; i < 500; i++) {
        plim_snapshot_finding(&s, 0, "here", "number %d", i);
    }
    assert_int_equal(s.findings.n + s.findings_dropped, 500);
    assert_int_equal(s.findings.n, 200);
    plim_snapshot_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_heap_has_no_trouble),
        cmocka_unit_test(every_broken_invariant_is_told),
        cmocka_unit_test(findings_name_device_and_segment),
        cmocka_unit_test(findings_are_counted_beyond_what_is_kept),
    };
    return PLIM_RUN_TESTS("check", tests);
}
