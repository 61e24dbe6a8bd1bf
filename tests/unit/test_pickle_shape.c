/* SPDX-License-Identifier: Apache-2.0 */
/* The short way for trace entries: the same result as the general way, and taken when it should be. */

#include "../fuzz/walk_snapshot.h"
#include "format/pickle.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

struct reading {
    enum plim_status st;
    uint64_t sum;    /* over everything */
    uint64_t events; /* of device 0 */
    uint64_t by_shape;
};

static struct reading read_pickle(struct plim_str bytes, bool no_shapes)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, bytes);
    struct plim_read_limits limits = {PLIM_GIB, PLIM_MIB, PLIM_GIB, 100};
    struct plim_window w;
    struct plim_build b;
    struct plim_snapshot s;
    struct plim_value root;
    struct reading out = {0};
    unsigned protocol;
    assert_ok(plim__window_init(&w, &source, NULL));
    assert_ok(plim__build_init(&b, &limits, 0, NULL));
    b.no_shapes = no_shapes;
    out.st = plim__pickle_run(&w, &b, &root, &protocol, NULL);
    out.by_shape = b.by_shape;
    out.st = out.st == PLIM_OK ? plim__build_finish(&b, root, &s, NULL) : out.st;
    if (out.st == PLIM_OK) {
        out.sum = walk_snapshot(&s);
        out.events = s.devices.n ? s.devices.items[0].trace.events.n : 0;
        plim_snapshot_fini(&s);
    }
    plim__build_fini(&b);
    plim__window_fini(&w);
    return out;
}

/* Both ways; how many entries went the short one. */
static struct reading both_ways(struct plim_str bytes)
{
    struct reading quick = read_pickle(bytes, false);
    struct reading general = read_pickle(bytes, true);
    assert_int_equal(quick.st, general.st);
    assert_int_equal(quick.sum, general.sum);
    assert_int_equal(general.by_shape, 0);
    return quick;
}

static void real_traces_take_the_short_way_to_the_same_result(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned
            percent; /* of the entries that must take it: a stack goes the general way when it is new */
    } rows[] = {
        {"lm-windows-highwater-t211.pickle", 70},
        {"lm-forward-bf16-cppstacks-t26.pickle", 90},
        {"simulated/huge_request.pickle", 95},
        {"mosaic-synthetic-expandable.pickle", 0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct plim_str bytes;
        char path[512];
        snprintf(path, sizeof(path), "%s/tests/data/snapshots/%s", PLIM_SOURCE_ROOT, rows[i].name);
        assert_ok(plim_file_read(path, 16 * PLIM_MIB, &bytes, NULL));
        struct reading r = both_ways(bytes);
        assert_ok(r.st);
        assert_true(r.by_shape * 100 >= r.events * rows[i].percent);
        free((void *)(uintptr_t)bytes.p);
    }
}

/* {'segments': [], 'device_traces': [[...]]} with the keys at memo 1 to 5 and the action at 6, entries given
 * as their bytes, NULs behind it. */
static struct reading trace_of(const char *entries, size_t n)
{
    static const char head[] = "\x80\x04}(\x8c\x06"
                               "action\x94"
                               "0\x8c\x04"
                               "addr\x94"
                               "0\x8c\x04size\x94"
                               "0\x8c\x07"
                               "time_us\x94"
                               "0"
                               "\x8c\x05"
                               "alloc\x94"
                               "0\x8c\x08segments]\x8c\x0d"
                               "device_traces]](";
    static const char tail[] = "eau.";
    size_t all = sizeof(head) - 1 + n + sizeof(tail) - 1;
    char *bytes = calloc(1, all + 4096);
    memcpy(bytes, head, sizeof(head) - 1);
    memcpy(bytes + sizeof(head) - 1, entries, n);
    memcpy(bytes + sizeof(head) - 1 + n, tail, sizeof(tail) - 1);
    struct reading r = both_ways((struct plim_str){bytes, all + 4096});
    free(bytes);
    return r;
}

#define ENTRY(addr, size) "}\x94(h\x00h\x04h\x01" addr "h\x02" size "u"
#define TRACE(entries)    trace_of(entries, sizeof(entries) - 1)

static void numbers_of_every_width_fit_one_shape(void **state)
{
    (void)state;
    struct reading r = TRACE(ENTRY("K\x01", "K\x02") ENTRY("M\x01\x02", "J\x01\0\0\x70")
                                 ENTRY("\x8a\x06\1\2\3\4\5\6", "\x8a\x08\1\2\3\4\5\6\7\x7f"));
    assert_ok(r.st);
    assert_int_equal(r.events, 3);
    assert_int_equal(r.by_shape, 2);
}

static void what_a_shape_cannot_hold_goes_the_general_way(void **state)
{
    (void)state;
    struct reading r = TRACE(ENTRY("K\x01", "K\x02") ENTRY("J\xff\xff\xff\xff", "K\x02")
                                 ENTRY("K\x01", "\x8a\x01\x80") ENTRY("K\x01", "N")
                                     ENTRY("\x8a\x09\0\0\0\0\0\0\0\x80\0", "K\x01"));
    assert_ok(r.st);
    assert_int_equal(r.events, 5);
    assert_int_equal(r.by_shape, 0);
}

static void shapes_are_forgotten_when_the_memo_changes_under_them(void **state)
{
    (void)state;
    /* memo 1, "addr", becomes what "size" was; the same bytes then mean another entry */
    struct reading r =
        TRACE(ENTRY("K\x01", "K\x02") ENTRY("K\x03", "K\x04") "h\x02q\x01"
                                                              "0" ENTRY("K\x05", "K\x06")
                                                                  ENTRY("K\x07", "K\x08"));
    assert_ok(r.st);
    assert_int_equal(r.events, 4);
}

static void a_cut_entry_is_not_read_beyond_its_end(void **state)
{
    (void)state;
    static const char entries[] = ENTRY("K\x01", "K\x02") ENTRY("K\x03", "K\x04");
    for (size_t n = 1; n < sizeof(entries) - 1; n++) {
        struct reading r = trace_of(entries, n);
        assert_true(n == sizeof(entries) / 2 - 1 || n == 1 || r.st != PLIM_OK || r.events < 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_traces_take_the_short_way_to_the_same_result),
        cmocka_unit_test(numbers_of_every_width_fit_one_shape),
        cmocka_unit_test(what_a_shape_cannot_hold_goes_the_general_way),
        cmocka_unit_test(shapes_are_forgotten_when_the_memo_changes_under_them),
        cmocka_unit_test(a_cut_entry_is_not_read_beyond_its_end),
    };
    return PLIM_RUN_TESTS("pickle_shape", tests);
}
