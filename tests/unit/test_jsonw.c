/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer: exact numbers, escapes, repaired UTF-8, layout; jansson reads it back as the judge. */

#include "base/jsonw.h"
#include "fail_alloc.h"
#include "unit.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static void integers_are_exact_to_the_last_digit(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &out, true);
    plim_jsonw_array(&w);
    plim_jsonw_u64(&w, UINT64_MAX);
    plim_jsonw_u64(&w, UINT64_C(9007199254740993));
    plim_jsonw_i64(&w, INT64_MIN);
    plim_jsonw_i64(&w, -1);
    plim_jsonw_u64(&w, 0);
    plim_jsonw_end(&w);
    assert_string_equal(out.p,
                        "[18446744073709551615,9007199254740993,-9223372036854775808,-1,0]\n");
    plim_buf_fini(&out);
}

static const double reals[] = {0.0,     -0.0,    1.0,  0.1,        1.0 / 3.0, 1e-300,
                               DBL_MAX, DBL_MIN, 1e21, 123456.789, -2.5,      5e-324};

static void reals_read_back_bit_by_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(reals); i++) {
        struct plim_buf out = {0};
        struct plim_jsonw w;
        plim_jsonw_init(&w, &out, true);
        plim_jsonw_real(&w, reals[i]);
        assert_true(strtod(out.p, NULL) == reals[i]);
        plim_buf_fini(&out);
    }
}

static void reals_are_as_short_as_they_can_be(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &out, true);
    plim_jsonw_array(&w);
    plim_jsonw_real(&w, 0.1);
    plim_jsonw_real(&w, 2.5);
    plim_jsonw_real(&w, 100);
    plim_jsonw_real(&w, (double)NAN);
    plim_jsonw_real(&w, (double)INFINITY);
    plim_jsonw_end(&w);
    json_t *read = json_loads(out.p, 0, NULL);
    assert_non_null(read);
    json_decref(read);
    assert_string_equal(out.p, "[0.1,2.5,1e+02,null,null]\n");
    plim_buf_fini(&out);
}

static const struct {
    struct plim_str in;
    const char *out;
} strings[] = {
    {{"plain", 5}, "\"plain\""},
    {{"", 0}, "\"\""},
    {{NULL, 0}, "\"\""},
    {{"q\"b\\s/", 6}, "\"q\\\"b\\\\s/\""},
    {{"\b\f\n\r\t", 5}, "\"\\b\\f\\n\\r\\t\""},
    {{"\0\x01\x1f\x7f", 4}, "\"\\u0000\\u0001\\u001f\\u007f\""},
    {{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2", 9}, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2\""},
    {{"a\xff"
      "b",
      3},
     "\"a\xef\xbf\xbd"
     "b\""},
    {{"\xc0\xaf", 2}, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong "/" */
    {{"\xe0\x80\x80", 3}, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* overlong */
    {{"\xed\xa0\x80", 3}, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
    {{"\xe2\x82", 2}, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* cut short */
    {{"\xf4\x90\x80\x80", 4},
     "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* beyond U+10FFFF */
};

static void strings_are_escaped_and_always_valid_utf8(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(strings); i++) {
        struct plim_buf out = {0};
        struct plim_jsonw w;
        plim_jsonw_init(&w, &out, true);
        plim_jsonw_str(&w, strings[i].in);
        assert_string_equal(out.p, strings[i].out);
        plim_buf_fini(&out);
    }
}

static void every_pair_of_bytes_is_readable_json(void **state)
{
    (void)state;
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char bytes[2] = {(char)(pair >> 8), (char)pair};
        struct plim_buf out = {0};
        struct plim_jsonw w;
        plim_jsonw_init(&w, &out, true);
        plim_jsonw_array(&w);
        plim_jsonw_str(&w, (struct plim_str){bytes, 2});
        plim_jsonw_end(&w);
        json_t *read = json_loadb(out.p, out.n, JSON_ALLOW_NUL, NULL);
        if (read == NULL) {
            fail_msg("bytes %02x %02x give %s", pair >> 8, pair & 0xff, out.p);
        }
        json_decref(read);
        plim_buf_fini(&out);
    }
}

static void write_sample(struct plim_buf *out, bool compact)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, compact);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.sample/1");
    plim_jsonw_kv_text(&w, "none", NULL);
    plim_jsonw_kv_bool(&w, "yes", true);
    plim_jsonw_key(&w, "list");
    plim_jsonw_array(&w);
    plim_jsonw_u64(&w, 1);
    plim_jsonw_object(&w);
    plim_jsonw_kv_i64(&w, "n", -2);
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "empty");
    plim_jsonw_array(&w);
    plim_jsonw_end(&w);
    plim_jsonw_kv_real(&w, "r", 0.5);
    plim_jsonw_end(&w);
}

static void the_layout_is_two_blanks_for_each_level(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    write_sample(&out, false);
    assert_string_equal(out.p, "{\n"
                               "  \"schema\": \"plimsoll.sample/1\",\n"
                               "  \"none\": null,\n"
                               "  \"yes\": true,\n"
                               "  \"list\": [\n"
                               "    1,\n"
                               "    {\n"
                               "      \"n\": -2\n"
                               "    }\n"
                               "  ],\n"
                               "  \"empty\": [],\n"
                               "  \"r\": 0.5\n"
                               "}\n");
    plim_buf_fini(&out);
}

static void compact_is_one_line(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    write_sample(&out, true);
    assert_string_equal(out.p, "{\"schema\":\"plimsoll.sample/1\",\"none\":null,\"yes\":true,"
                               "\"list\":[1,{\"n\":-2}],\"empty\":[],\"r\":0.5}\n");
    plim_buf_fini(&out);
}

static enum plim_status write_json(void *arg)
{
    (void)arg;
    struct plim_buf out = {0};
    write_sample(&out, false);
    enum plim_status st = plim_buf_status(&out, NULL);
    plim_buf_fini(&out);
    return st;
}

static void a_failed_allocation_is_reported_at_the_end(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(write_json, NULL, 100, false) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_exact_to_the_last_digit),
        cmocka_unit_test(reals_read_back_bit_by_bit),
        cmocka_unit_test(reals_are_as_short_as_they_can_be),
        cmocka_unit_test(strings_are_escaped_and_always_valid_utf8),
        cmocka_unit_test(every_pair_of_bytes_is_readable_json),
        cmocka_unit_test(the_layout_is_two_blanks_for_each_level),
        cmocka_unit_test(compact_is_one_line),
        cmocka_unit_test(a_failed_allocation_is_reported_at_the_end),
    };
    return PLIM_RUN_TESTS("jsonw", tests);
}
