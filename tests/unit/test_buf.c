/* SPDX-License-Identifier: Apache-2.0 */
/* Text buffer: growth, the NUL behind the text, and the sticky failure. */

#include "base/buf.h"
#include "fail_alloc.h"
#include "unit.h"

static void a_zeroed_buffer_is_empty_text(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    assert_true(plim_str_eq(plim_buf_str(&buf), PLIM_STR("")));
    assert_ok(plim_buf_status(&buf, NULL));
    plim_buf_fini(&buf);
}

static void writes_append_and_end_with_a_nul(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    plim_buf_text(&buf, "one");
    plim_buf_char(&buf, ' ');
    plim_buf_add(&buf, PLIM_STR("two"));
    plim_buf_printf(&buf, " %d%s", 3, "!");
    plim_buf_repeat(&buf, "=-", 3);
    assert_string_equal(buf.p, "one two 3!=-=-=-");
    assert_int_equal(buf.n, strlen(buf.p));
    plim_buf_fini(&buf);
}

static void a_printf_larger_than_the_room_is_whole(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    plim_buf_printf(&buf, "%0*d", 100000, 7);
    assert_int_equal(buf.n, 100000);
    assert_int_equal(buf.p[99999], '7');
    assert_int_equal(buf.p[100000], 0);
    plim_buf_fini(&buf);
}

static void bytes_of_any_value_are_kept(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    plim_buf_add(&buf, PLIM_STR("a\0\xff"));
    plim_buf_char(&buf, '\0');
    assert_int_equal(buf.n, 4);
    assert_memory_equal(buf.p, "a\0\xff\0", 5);
    plim_buf_fini(&buf);
}

static void reset_empties_but_keeps_the_storage(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    plim_buf_repeat(&buf, "x", 1000);
    size_t cap = buf.cap;
    plim_buf_reset(&buf);
    assert_int_equal(buf.n, 0);
    assert_int_equal(buf.cap, cap);
    assert_string_equal(buf.p, "");
    plim_buf_fini(&buf);
}

static void a_failure_sticks_until_reset(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    struct plim_err err;
    plim_buf_text(&buf, "kept");
    fail_alloc_at(1);
    plim_buf_repeat(&buf, "0123456789", 100);
    fail_alloc_at(0);
    plim_buf_text(&buf, "ignored");
    assert_int_equal(plim_buf_status(&buf, &err), PLIM_E_NOMEM);
    assert_int_equal(err.status, PLIM_E_NOMEM);
    assert_null(strstr(buf.p, "ignored"));
    plim_buf_reset(&buf);
    plim_buf_text(&buf, "again");
    assert_ok(plim_buf_status(&buf, NULL));
    assert_string_equal(buf.p, "again");
    plim_buf_fini(&buf);
}

/* A drain that counts what it is given, and refuses once it has had enough. */
struct drain {
    size_t got, most;
    unsigned calls;
    unsigned char sum; /* of all bytes: nothing is lost or repeated */
};

static bool take_bytes(void *self, struct plim_str bytes)
{
    struct drain *drain = self;
    drain->calls++;
    drain->got += bytes.n;
    for (size_t i = 0; i < bytes.n; i++) {
        drain->sum = (unsigned char)(drain->sum + (unsigned char)bytes.p[i]);
    }
    return drain->got <= drain->most;
}

static void a_buffer_with_a_drain_hands_on_what_is_full_and_stays_small(void **state)
{
    (void)state;
    struct drain drain = {.most = SIZE_MAX};
    struct plim_buf buf = {.drain = take_bytes, .self = &drain};
    unsigned char sum = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        plim_buf_text(&buf, "0123456789");
        sum = (unsigned char)(sum + 525); /* of the ten digits */
    }
    assert_true(drain.calls > 3);
    assert_true(buf.cap < 4 * PLIM_BUF_DRAIN);
    plim_buf_flush(&buf);
    assert_ok(plim_buf_status(&buf, NULL));
    assert_int_equal(drain.got, 10000000);
    assert_int_equal(drain.sum, sum);
    plim_buf_fini(&buf);
}

static void a_drain_that_refuses_is_a_failure_that_sticks(void **state)
{
    (void)state;
    struct drain drain = {.most = 2 * PLIM_BUF_DRAIN};
    struct plim_buf buf = {.drain = take_bytes, .self = &drain};
    plim_buf_repeat(&buf, "0123456789", 1000000);
    assert_int_not_equal(plim_buf_status(&buf, NULL), PLIM_OK);
    unsigned calls = drain.calls;
    plim_buf_text(&buf, "more");
    plim_buf_flush(&buf);
    assert_int_equal(drain.calls, calls);
    plim_buf_fini(&buf);
}

static enum plim_status write_much(void *arg)
{
    (void)arg;
    struct plim_buf buf = {0};
    for (int i = 0; i < 1000; i++) {
        plim_buf_printf(&buf, "line %d\n", i);
    }
    enum plim_status st = plim_buf_status(&buf, NULL);
    plim_buf_fini(&buf);
    return st;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(write_much, NULL, 100, false) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zeroed_buffer_is_empty_text),
        cmocka_unit_test(writes_append_and_end_with_a_nul),
        cmocka_unit_test(a_printf_larger_than_the_room_is_whole),
        cmocka_unit_test(bytes_of_any_value_are_kept),
        cmocka_unit_test(reset_empties_but_keeps_the_storage),
        cmocka_unit_test(a_failure_sticks_until_reset),
        cmocka_unit_test(a_buffer_with_a_drain_hands_on_what_is_full_and_stays_small),
        cmocka_unit_test(a_drain_that_refuses_is_a_failure_that_sticks),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return PLIM_RUN_TESTS("buf", tests);
}
