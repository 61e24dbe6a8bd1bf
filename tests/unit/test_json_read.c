/* SPDX-License-Identifier: Apache-2.0 */
/* JSON snapshots: escapes, numbers, structure, and errors with their place. */

#include "reading.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static void strings_with_escapes_are_what_they_mean(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("{\"segments\":[],\"external_annotations\":[{\"stage\":\"E\\u004eD\",\"name\":"
                 "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00\\ud83dx\\udc00\"}]}"),
        &s, &err));
    assert_int_equal(s.annotations.n, 1);
    assert_true(s.annotations.items[0].end);
    assert_string_equal(
        plim_intern_str(&s.strings, s.annotations.items[0].name).p,
        "\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd");
    plim_snapshot_fini(&s);
}

static void integers_are_exact_to_64_bits(void **state)
{
    (void)state;
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(
        PLIM_STR("{\"segments\":[],\"device_traces\":[["
                 "{\"action\":\"alloc\",\"addr\":18446744073709551615,"
                 "\"size\":9007199254740993,\"stream\":-9223372036854775808,"
                 "\"pool_id\":[3,4]},"
                 "{\"action\":\"alloc\",\"addr\":18446744073709551616,\"size\":1}]]}"),
        &s, &err));
    const struct plim_event *e = s.devices.items[0].trace.events.items;
    assert_int_equal(e[0].addr, UINT64_MAX);
    assert_int_equal(e[0].size, UINT64_C(9007199254740993));
    assert_int_equal(s.streams.items[e[0].stream], INT64_MIN);
    assert_int_equal(s.pools.items[e[0].pool].a, 3);
    assert_int_equal(s.pools.items[e[0].pool].b, 4);
    assert_int_equal(e[1].action, PLIM_ACTION_UNKNOWN);
    plim_snapshot_fini(&s);
}

static void broken_json_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t pos;
    } rows[] = {
        {"{\"segments\":[,]}", 13},
        {"{\"segments\" []}", 12},
        {"{\"segments\":[] \"x\":1}", 15},
        {"{segments:[]}", 1},
        {"[1 2]", 3},
        {"{\"a\":tru}", 5},
        {"{\"a\":1.2.3}", 5},
        {"{\"a\":+1}", 5},
        {"{\"a\":\"\\x\"}", 7},
        {"{\"a\":\"\\u12g4\"}", 12},
        {"[1,]", 3},
        {"{\"a\":1,}", 7},
        {"[}", 1},
        {"{]", 1},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct plim_err err;
        assert_int_equal(status_of(plim_str_from(rows[i].text), &err), PLIM_E_DATA);
        assert_int_equal(err.pos, rows[i].pos);
        assert_non_null(strstr(err.message, "JSON"));
    }
}

static void long_lists_and_strings_cross_the_window(void **state)
{
    (void)state;
    size_t n = 0, room = 9000000;
    char *text = malloc(room);
    struct plim_snapshot s;
    struct plim_err err;
    n += (size_t)sprintf(text, "{\"segments\":[],\"device_traces\":[[");
    for (int i = 0; i < 60000; i++) {
        n += (size_t)sprintf(text + n,
                             "%s{\"action\":\"alloc\",\"addr\":%d,\"size\":%d,\"frames\":"
                             "[{\"name\":\"f\\u0041%d\",\"filename\":\"x\",\"line\":%d}]}",
                             i ? "," : "", i * 512, i, i % 100, i % 10);
    }
    n += (size_t)sprintf(text + n, "]],\"long\":\"");
    memset(text + n, 'y', 600000);
    n += 600000;
    n += (size_t)sprintf(text + n, "\"}");
    assert_true(n < room);
    assert_ok(read_snapshot((struct plim_str){text, n}, &s, &err));
    const struct plim_trace *t = &s.devices.items[0].trace;
    assert_int_equal(t->events.n, 60000);
    for (size_t i = 0; i < 60000; i++) {
        assert_int_equal(t->events.items[i].addr, i * 512);
        assert_int_equal(t->events.items[i].size, i);
    }
    assert_int_equal(s.stacks.frames.n, 100);
    assert_int_equal(s.unknown_keys.n, 1);
    plim_snapshot_fini(&s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_with_escapes_are_what_they_mean),
        cmocka_unit_test(integers_are_exact_to_64_bits),
        cmocka_unit_test(broken_json_says_where),
        cmocka_unit_test(long_lists_and_strings_cross_the_window),
    };
    return PLIM_RUN_TESTS("json_read", tests);
}
