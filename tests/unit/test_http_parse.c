/* SPDX-License-Identifier: Apache-2.0 */
/* Header values as strangers send them. */

#include "http/http.h"
#include "http/parse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct plim_str text(const char *z)
{
    return plim_str_from(z);
}

static void the_best_encoding_that_is_allowed_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        enum plim_encoding want;
    } cases[] = {
        {"", PLIM_ENCODING_IDENTITY},
        {"br, deflate", PLIM_ENCODING_IDENTITY},
        {"gzip", PLIM_ENCODING_GZIP},
        {"GZip , zstd;q=0", PLIM_ENCODING_GZIP},
        {"zstd;q=0.000", PLIM_ENCODING_IDENTITY},
        {"gzip;q=1.0, zstd;q=0.1", PLIM_ENCODING_ZSTD},
        {"*", PLIM_ENCODING_ZSTD},
        {"*, zstd;q=0", PLIM_ENCODING_GZIP},
        {"*;q=0, gzip", PLIM_ENCODING_GZIP},
        {"gzip;q=0.001", PLIM_ENCODING_GZIP},
        {",,;q=0,", PLIM_ENCODING_IDENTITY},
        {"gzipped", PLIM_ENCODING_IDENTITY},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        print_message("# %s\n", cases[i].accept);
        assert_int_equal(plim_http_choose_encoding(text(cases[i].accept)), cases[i].want);
    }
}

static void an_etag_is_found_in_a_list_weak_or_not(void **state)
{
    (void)state;
    assert_true(plim_http_has_etag(text("\"a\", W/\"b\""), text("\"b\"")));
    assert_true(plim_http_has_etag(text("*"), text("\"b\"")));
    assert_false(plim_http_has_etag(text("\"ab\""), text("\"b\"")));
    assert_false(plim_http_has_etag(text(""), text("\"b\"")));
}

static void ranges_follow_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        enum plim_range want;
        uint64_t from, to;
    } cases[] = {
        {"bytes=0-0", PLIM_RANGE_PART, 0, 1},
        {"bytes=10-", PLIM_RANGE_PART, 10, 100},
        {"bytes=-10", PLIM_RANGE_PART, 90, 100},
        {"bytes=-1000", PLIM_RANGE_PART, 0, 100},
        {"bytes=90-18446744073709551615", PLIM_RANGE_PART, 90, 100},
        {"bytes=100-", PLIM_RANGE_BAD, 0, 0},
        {"bytes=-0", PLIM_RANGE_BAD, 0, 0},
        {"bytes=5-4", PLIM_RANGE_ALL, 0, 0},
        {"bytes=0-1,5-6", PLIM_RANGE_ALL, 0, 0},
        {"bytes=99999999999999999999-", PLIM_RANGE_ALL, 0, 0},
        {"bytes=-", PLIM_RANGE_ALL, 0, 0},
        {"lines=1-2", PLIM_RANGE_ALL, 0, 0},
        {"", PLIM_RANGE_ALL, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t from = 0, to = 0;
        print_message("# %s\n", cases[i].header);
        assert_int_equal(plim_http_range(text(cases[i].header), 100, &from, &to), cases[i].want);
        if (cases[i].want == PLIM_RANGE_PART) {
            assert_int_equal(from, cases[i].from);
            assert_int_equal(to, cases[i].to);
        }
    }
}

static void a_file_without_bytes_has_no_range(void **state)
{
    (void)state;
    uint64_t from, to;
    assert_int_equal(plim_http_range(text("bytes=0-"), 0, &from, &to), PLIM_RANGE_BAD);
    assert_int_equal(plim_http_range(text("bytes=-1"), 0, &from, &to), PLIM_RANGE_BAD);
}

static bool secret_is(const char *header, const char *want)
{
    char room[16];
    struct plim_str got;
    return plim_http_credentials(text(header), room, sizeof(room), &got) &&
           plim_str_eq(got, text(want));
}

static void credentials_are_a_bearer_or_a_basic_password(void **state)
{
    (void)state;
    assert_true(secret_is("Bearer abc", "abc"));
    assert_true(secret_is("bearer   abc ", "abc"));
    assert_true(secret_is("Basic dTpw", "p"));       /* u:p */
    assert_true(secret_is("basic dTpwOnE=", "p:q")); /* u:p:q */
}

static void credentials_that_cannot_be_read_are_none(void **state)
{
    (void)state;
    char room[16];
    struct plim_str got;
    static const char *const bad[] = {"",
                                      "Bearer",
                                      "Bearer ",
                                      "Digest x",
                                      "Basic",
                                      "Basic !!!!",
                                      "Basic dXA=" /* "up" */,
                                      "Basic dTo=" /* "u:" */,
                                      "Basic QUFBQUFBQUFBQUFBQUFBQUFBQUFBOkI="};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        print_message("# %s\n", bad[i]);
        assert_false(plim_http_credentials(text(bad[i]), room, sizeof(room), &got));
    }
}

static void a_cookie_is_found_by_its_whole_name(void **state)
{
    (void)state;
    struct plim_str got;
    assert_true(plim_http_cookie(text("a=1; plimsoll=x=y ;b"), text("plimsoll"), &got));
    assert_true(plim_str_eq(got, text("x=y")));
    assert_false(plim_http_cookie(text("xplimsoll=1; plimsoll2=3"), text("plimsoll"), &got));
    assert_true(plim_http_cookie(text("plimsoll"), text("plimsoll"), &got));
    assert_int_equal(got.n, 0);
}

static void names_of_this_machine_are_told_from_others(void **state)
{
    (void)state;
    static const char *const ours[] = {"localhost", "LOCALHOST:80", "127.0.0.1:9", "127.9.9.9",
                                       "[::1]",     "[::1]:80",     " localhost "};
    static const char *const others[] = {"",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "[::2]",
                                         "::1",
                                         "10.0.0.1",
                                         "0177.0.0.1",
                                         "[::1"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        print_message("# %s\n", ours[i]);
        assert_true(plim_http_is_loopback_name(plim_http_host_name(text(ours[i]))));
    }
    for (size_t i = 0; i + 1 < sizeof(others) / sizeof(others[0]); i++) {
        print_message("# %s\n", others[i]);
        assert_false(plim_http_is_loopback_name(plim_http_host_name(text(others[i]))));
    }
}

static void an_origin_is_ours_when_it_is_the_host_that_was_asked(void **state)
{
    (void)state;
    assert_true(plim_http_same_origin(text("http://Gpu7:9754"), text("gpu7:9754")));
    assert_true(plim_http_same_origin(text("https://[::1]:1"), text("[::1]:1")));
    assert_false(plim_http_same_origin(text("http://gpu7:9755"), text("gpu7:9754")));
    assert_false(plim_http_same_origin(text("http://gpu7:9754.evil.example"), text("gpu7:9754")));
    assert_false(plim_http_same_origin(text("null"), text("null")));
    assert_false(plim_http_same_origin(text("http://"), text("")));
}

static void patterns_take_whole_segments(void **state)
{
    (void)state;
    struct plim_str p[2];
    size_t n;
    assert_true(plim_http_match("/a/{}/b/{}", text("/a/x/b/y"), p, &n));
    assert_int_equal(n, 2);
    assert_true(plim_str_eq(p[0], text("x")) && plim_str_eq(p[1], text("y")));
    assert_false(plim_http_match("/a/{}", text("/a/"), p, &n));
    assert_true(plim_http_match("/a/{...}", text("/a/x"), p, &n));
    assert_true(plim_http_match("/a/{...}", text("/a/x/y/z/"), p, &n));
    assert_false(plim_http_match("/a/{...}", text("/a/"), p, &n));
    assert_false(plim_http_match("/a/{...}", text("/b/x"), p, &n));
    assert_false(plim_http_match("/a/{}", text("/a/x/"), p, &n));
    assert_false(plim_http_match("/a", text("/ab"), p, &n));
    assert_false(plim_http_match("/ab", text("/a"), p, &n));
    assert_true(plim_http_match("/", text("/"), p, &n));
}

static void secrets_are_the_same_only_when_all_of_them_is(void **state)
{
    (void)state;
    assert_true(plim_http_same_secret(text("abc"), text("abc")));
    assert_false(plim_http_same_secret(text("abc"), text("abcabc")));
    assert_false(plim_http_same_secret(text("abc"), text("ab")));
    assert_false(plim_http_same_secret(text("abc"), text("")));
    assert_false(plim_http_same_secret(text(""), text("")));
}

static void numbers_are_digits_that_fit(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(plim_http_number(text("18446744073709551615"), &v));
    assert_true(v == UINT64_MAX);
    assert_false(plim_http_number(text("18446744073709551616"), &v));
    assert_false(plim_http_number(text(""), &v));
    assert_false(plim_http_number(text("+1"), &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_encoding_that_is_allowed_is_chosen),
        cmocka_unit_test(an_etag_is_found_in_a_list_weak_or_not),
        cmocka_unit_test(ranges_follow_the_standard),
        cmocka_unit_test(a_file_without_bytes_has_no_range),
        cmocka_unit_test(credentials_are_a_bearer_or_a_basic_password),
        cmocka_unit_test(credentials_that_cannot_be_read_are_none),
        cmocka_unit_test(a_cookie_is_found_by_its_whole_name),
        cmocka_unit_test(names_of_this_machine_are_told_from_others),
        cmocka_unit_test(an_origin_is_ours_when_it_is_the_host_that_was_asked),
        cmocka_unit_test(patterns_take_whole_segments),
        cmocka_unit_test(secrets_are_the_same_only_when_all_of_them_is),
        cmocka_unit_test(numbers_are_digits_that_fit),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
}
