/* SPDX-License-Identifier: Apache-2.0 */
/* The reader on whole snapshots: damage, oddities that become findings, old layouts, memory that fails. */

#include "fail_alloc.h"
#include "heap/check.h"
#include "reading.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static struct plim_str load(const char *name)
{
    struct plim_str bytes;
    char path[512];
    snprintf(path, sizeof(path), "%s/tests/%s", PLIM_SOURCE_ROOT, name);
    assert_ok(plim_file_read(path, UINT64_C(16) << 20, &bytes, NULL));
    return bytes;
}

static void drop(struct plim_str bytes)
{
    free((void *)(uintptr_t)bytes.p);
}

/* -- damage -------------------------------------------------------------------------------------- */

static void every_truncation_of_a_snapshot_is_told(void **state)
{
    (void)state;
    static const char *const names[] = {
        "fuzz/corpus/pickle/protocol-0", "fuzz/corpus/pickle/protocol-2",
        "fuzz/corpus/pickle/protocol-4", "fuzz/corpus/snapshot/json",
        "fuzz/corpus/snapshot/gzip",     "fuzz/corpus/snapshot/xz"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        struct plim_str all = load(names[i]);
        struct plim_err err;
        assert_ok(status_of(all, &err));
        for (size_t n = 12; n < all.n; n++) { /* shorter ones are not known for what they are */
            char *part = malloc(n); /* of its own, so that a sanitizer sees a step too far */
            memcpy(part, all.p, n);
            assert_int_equal(status_of((struct plim_str){part, n}, &err), PLIM_E_TRUNCATED);
            assert_true(err.hint[0] && err.where[0]);
            free(part);
        }
        drop(all);
    }
}

static void flipped_bits_never_break_anything(void **state)
{
    (void)state;
    static const char *const names[] = {"fuzz/corpus/pickle/protocol-1",
                                        "fuzz/corpus/pickle/protocol-4",
                                        "fuzz/corpus/snapshot/json", "fuzz/corpus/snapshot/gzip"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        struct plim_str all = load(names[i]);
        char *bytes = (char *)(uintptr_t)all.p;
        for (size_t at = 0; at < all.n; at++) {
            struct plim_err err;
            bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
            enum plim_status st = status_of(all, &err);
            assert_true(st == PLIM_OK || err.message[0]);
            bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
        }
        drop(all);
    }
}

static void a_small_budget_is_kept(void **state)
{
    (void)state;
    struct plim_str all = load("data/snapshots/lm-windows-highwater-t211.pickle");
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, all);
    struct plim_read_limits limits = {.memory = 200 * PLIM_KIB};
    struct plim_snapshot s;
    struct plim_err err;
    assert_int_equal(plim_snapshot_read(&source, &limits, &s, &err), PLIM_E_BUDGET);
    assert_non_null(strstr(err.hint, "limit"));
    source = plim_source_bytes(&bytes, all);
    limits = (struct plim_read_limits){.memo = 1000};
    assert_int_equal(plim_snapshot_read(&source, &limits, &s, &err), PLIM_E_BUDGET);
    assert_non_null(strstr(err.message, "memo"));
    source = plim_source_bytes(&bytes, all);
    limits = (struct plim_read_limits){.string = 10};
    assert_int_equal(plim_snapshot_read(&source, &limits, &s, &err), PLIM_E_BUDGET);
    source = plim_source_bytes(&bytes, all);
    limits = (struct plim_read_limits){.nesting = 3};
    assert_int_equal(plim_snapshot_read(&source, &limits, &s, &err), PLIM_E_BUDGET);
    drop(all);
}

/* -- oddities ------------------------------------------------------------------------------------ */

#define SEGMENT(more)      "{\"device\":0,\"address\":1048576,\"total_size\":1024," more "\"blocks\":["
#define BLOCK(size, state) "{\"size\":" size ",\"state\":\"" state "\"}"
#define EVENTS(list)       PLIM_STR("{\"segments\":[],\"device_traces\":[[" list "]]}")

static void blocks_without_addresses_follow_each_other(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(PLIM_STR("[" SEGMENT("") BLOCK("512", "active_allocated") "," BLOCK(
                                "512", "active_pending_free") "]}]"),
                            &s, &err));
    const struct plim_heap *heap = &s.devices.items[0].heap;
    assert_int_equal(heap->blocks.items[1].addr, 1048576 + 512);
    assert_int_equal(heap->blocks.items[1].state, PLIM_BLOCK_PENDING_FREE);
    assert_int_equal(heap->blocks.items[0].requested, 512);
    assert_null(plim_heap_trouble(heap, NULL));
    assert_int_equal(s.findings.n, 0);
    assert_false(s.has_traces);
    assert_false(s.settings.known);
    plim_snapshot_fini(&s);
}

static void blocks_that_do_not_add_up_are_a_finding(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("[" SEGMENT("\"allocated_size\":3,") BLOCK("512", "inactive") "]}]"), &s, &err));
    assert_int_equal(s.findings.n, 2);
    assert_non_null(strstr(finding_text(&s, 0), "allocated_size is 3"));
    assert_non_null(strstr(finding_text(&s, 1), "do not add up"));
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    plim_snapshot_fini(&s);
}

static void overlapping_segments_are_a_finding(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("[" SEGMENT("") BLOCK("1024", "inactive") "]},{\"address\":1049000,"
                                                           "\"total_size\":512,\"blocks\":[" BLOCK(
                                                               "512", "inactive") "]}]"),
        &s, &err));
    assert_int_equal(s.findings.n, 1);
    assert_non_null(strstr(finding_text(&s, 0), "overlaps"));
    plim_snapshot_fini(&s);
}

static void impossible_numbers_leave_only_what_makes_sense(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR(
            "[{\"address\":1,\"total_size\":-5,\"blocks\":[]},{\"address\":\"x\",\"total_size\":5},"
            "{\"address\":18446744073709551615,\"total_size\":512},7,"
            "{\"device\":99999,\"address\":1,\"total_size\":512}," SEGMENT("")
                BLOCK("-512", "inactive") "," BLOCK("4096", "inactive") "," BLOCK("1024",
                                                                                  "strange") "]}]"),
        &s, &err));
    assert_int_equal(s.devices.n, 1);
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    assert_int_equal(s.devices.items[0].heap.blocks.n, 1);
    assert_int_equal(s.findings.n, 8);
    assert_string_equal(finding_where(&s, 0), "segments[0]");
    plim_snapshot_fini(&s);
}

static void wrong_trace_entries_become_unknown_with_their_place(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(EVENTS("{\"action\":\"alloc\",\"addr\":5,\"size\":6},"
                                   "{\"action\":\"alloc\",\"addr\":5,\"size\":-6},"
                                   "{\"action\":\"alloc\",\"size\":6},"
                                   "{\"action\":\"oom\",\"size\":6},"
                                   "{\"action\":\"teleport\",\"addr\":5,\"size\":6},"
                                   "{\"action\":5,\"addr\":5,\"size\":6},"
                                   "{\"action\":\"alloc\",\"addr\":5,\"size\":1e3}"),
                            &s, &err));
    const struct plim_trace *t = &s.devices.items[0].trace;
    assert_int_equal(t->events.n, 7);
    assert_int_equal(t->by_action[PLIM_ACTION_ALLOC], 2);
    assert_int_equal(t->by_action[PLIM_ACTION_OOM], 1);
    assert_int_equal(t->by_action[PLIM_ACTION_UNKNOWN], 4);
    assert_int_equal(t->events.items[6].size, 1000);
    assert_int_equal(s.findings.n, 3);
    assert_string_equal(finding_where(&s, 0), "device_traces[0][1]");
    assert_string_equal(finding_where(&s, 2), "device_traces[0][5]");
    assert_int_equal(s.unknown_keys.n, 1); /* the action of a version to come */
    plim_snapshot_fini(&s);
}

static void settings_are_read_as_far_as_known(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("{\"segments\":[],\"allocator_settings\":{\"PYTORCH_CUDA_ALLOC_CONF\":\"a:b\","
                 "\"max_split_size\":-1,\"garbage_collection_threshold\":0.5,\"expandable_"
                 "segments\":true,"
                 "\"roundup_power2_divisions\":{\"1\":4,\"32768\":8,\"x\":1},\"new\":1}}"),
        &s, &err));
    assert_true(s.settings.known && s.settings.expandable_segments && s.settings.has_roundup);
    assert_int_equal(s.settings.max_split_size, UINT64_MAX);
    assert_true(s.settings.gc_threshold == 0.5);
    assert_int_equal(s.settings.roundup[0], 4);
    assert_int_equal(s.settings.roundup[15], 8);
    assert_string_equal(plim_intern_str(&s.strings, s.settings.conf).p, "a:b");
    assert_int_equal(s.unknown_keys.n, 1);
    plim_snapshot_fini(&s);
}

static void pinned_host_memory_is_summed(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(
        read_snapshot(PLIM_STR("{\"segments\":[],\"host_segments\":[{\"address\":1,\"size\":4096,"
                               "\"allocated\":true},{\"size\":100,\"allocated\":40}],"
                               "\"host_traces\":[]}"),
                      &s, &err));
    assert_true(s.host.known);
    assert_int_equal(s.host.segments, 2);
    assert_int_equal(s.host.reserved, 4196);
    assert_int_equal(s.host.allocated, 4136);
    plim_snapshot_fini(&s);
}

static void python_and_cpp_frames_of_old_versions_are_one_stack(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    size_t n;
    assert_ok(read_snapshot(
        EVENTS("{\"action\":\"alloc\",\"addr\":5,\"size\":6,\"frames\":[{\"name\":\"py\","
               "\"filename\":\"a\","
               "\"line\":1}],\"cpp_frames\":[{\"name\":\"cc\",\"filename\":\"b\",\"line\":2}]}"),
        &s, &err));
    const uint32_t *ids =
        plim_stacks_frames(&s.stacks, s.devices.items[0].trace.events.items[0].stack, &n);
    assert_int_equal(n, 2);
    assert_string_equal(plim_intern_str(&s.strings, s.stacks.frames.items[ids[0]].name).p, "cc");
    assert_string_equal(plim_intern_str(&s.strings, s.stacks.frames.items[ids[1]].name).p, "py");
    plim_snapshot_fini(&s);
}

static void no_frames_differ_from_an_empty_list_of_frames(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(EVENTS("{\"action\":\"alloc\",\"addr\":5,\"size\":6},"
                                   "{\"action\":\"alloc\",\"addr\":5,\"size\":6,\"frames\":[]}"),
                            &s, &err));
    const struct plim_event *e = s.devices.items[0].trace.events.items;
    assert_int_equal(e[0].stack, PLIM_NO_STACK);
    assert_int_equal(e[1].stack, PLIM_STACK_EMPTY);
    assert_int_equal(e[0].pool, PLIM_NO_POOL);
    assert_false(s.devices.items[0].trace.has_times);
    plim_snapshot_fini(&s);
}

#define ALLOC(addr) "{\"action\":\"alloc\",\"addr\":" addr ",\"size\":1}"

static void traces_of_the_host_are_kept_apart_from_those_of_devices(void **state)
{
    (void)state;
    static const char *const orders[] = {
        "{\"segments\":[],\"host_traces\":[" ALLOC("1") "],\"device_traces\":[[" ALLOC(
            "2") "," ALLOC("3") "],[" ALLOC("4") "]]}",
        "{\"segments\":[],\"device_traces\":[[" ALLOC("2") "," ALLOC("3") "],[" ALLOC(
            "4") "]],\"host_traces\":[" ALLOC("1") "]}",
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(orders); i++) {
        struct plim_snapshot s;
        struct plim_err err;
        assert_ok(read_snapshot(plim_str_from(orders[i]), &s, &err));
        assert_int_equal(s.devices.n, 2);
        assert_int_equal(s.devices.items[0].trace.events.n, 2);
        assert_int_equal(s.devices.items[0].trace.events.items[1].addr, 3);
        assert_int_equal(s.devices.items[0].trace.by_action[PLIM_ACTION_ALLOC], 2);
        assert_int_equal(s.devices.items[1].trace.events.n, 1);
        assert_int_equal(s.devices.items[1].trace.events.items[0].addr, 4);
        plim_snapshot_fini(&s);
    }
}

static void a_flat_list_of_entries_is_the_trace_of_device_0(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(
        read_snapshot(PLIM_STR("{\"device_traces\":[" ALLOC("1") "," ALLOC("2") "]}"), &s, &err));
    assert_int_equal(s.devices.n, 1);
    assert_int_equal(s.devices.items[0].trace.events.n, 2);
    assert_true(s.has_traces);
    plim_snapshot_fini(&s);
}

static void a_trace_named_for_two_devices_counts_once(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("(dS'device_traces'\n(l(l(dS'action'\nS'alloc'\nsS'addr'\nI1\nsS'size'\nI1\n"
                 "sap7\nag7\nas."),
        &s, &err));
    assert_int_equal(s.devices.items[0].trace.events.n, 1);
    assert_int_equal(s.devices.items[1].trace.events.n, 0);
    assert_int_equal(s.findings.n, 1);
    assert_non_null(strstr(finding_text(&s, 0), "same list"));
    plim_snapshot_fini(&s);
}

static void segments_named_twice_count_once(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    /* [S, S], the second from the memo */
    assert_ok(
        read_snapshot(PLIM_STR("\x80\x04](}\x94(\x8c\ntotal_sizeK\x64\x8c\x07"
                               "addressK\x00\x8c\x06"
                               "blocks]}(\x8c\x04sizeK\x64\x8c\x05state\x8c\x08inactiveuauh\x00"
                               "e."),
                      &s, &err));
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    assert_int_equal(s.findings.n, 1);
    assert_non_null(strstr(finding_text(&s, 0), "twice"));
    plim_snapshot_fini(&s);
}

/* -- memory that fails --------------------------------------------------------------------------- */

static enum plim_status read_all(void *arg)
{
    struct plim_err err;
    return status_of(*(const struct plim_str *)arg, &err);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static const char *const names[] = {
        "fuzz/corpus/pickle/protocol-0", "fuzz/corpus/pickle/protocol-4",
        "fuzz/corpus/pickle/history", "fuzz/corpus/snapshot/json", "fuzz/corpus/snapshot/html"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        struct plim_str all = load(names[i]);
        assert_true(fail_alloc_sweep(read_all, &all, 2000, true) > 20);
        drop(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_of_a_snapshot_is_told),
        cmocka_unit_test(flipped_bits_never_break_anything),
        cmocka_unit_test(a_small_budget_is_kept),
        cmocka_unit_test(blocks_without_addresses_follow_each_other),
        cmocka_unit_test(blocks_that_do_not_add_up_are_a_finding),
        cmocka_unit_test(overlapping_segments_are_a_finding),
        cmocka_unit_test(impossible_numbers_leave_only_what_makes_sense),
        cmocka_unit_test(wrong_trace_entries_become_unknown_with_their_place),
        cmocka_unit_test(settings_are_read_as_far_as_known),
        cmocka_unit_test(pinned_host_memory_is_summed),
        cmocka_unit_test(python_and_cpp_frames_of_old_versions_are_one_stack),
        cmocka_unit_test(no_frames_differ_from_an_empty_list_of_frames),
        cmocka_unit_test(traces_of_the_host_are_kept_apart_from_those_of_devices),
        cmocka_unit_test(a_flat_list_of_entries_is_the_trace_of_device_0),
        cmocka_unit_test(a_trace_named_for_two_devices_counts_once),
        cmocka_unit_test(segments_named_twice_count_once),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return PLIM_RUN_TESTS("snapshot_read", tests);
}
