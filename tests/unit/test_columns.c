/* SPDX-License-Identifier: Apache-2.0 */
/* The column container byte by byte, its compressed form, and base64. */

#include "report/columns.h"
#include "unit.h"

#include "fail_alloc.h"

#include <zlib.h>

static uint32_t u32_at(const struct plim_buf *buf, size_t at)
{
    uint32_t v;
    memcpy(&v, buf->p + at, sizeof(v)); /* tests run on little-endian machines */
    return v;
}

static void fill(struct plim_columns *c)
{
    uint32_t *numbers = plim_columns_u32(c, "a", "numbers", 3);
    double *reals = plim_columns_f64(c, "a", "reals", 1);
    if (numbers && reals) {
        numbers[0] = 1;
        numbers[2] = 0xdeadbeef;
        reals[0] = 2.5;
    }
    plim_columns_bytes(c, "b", "text", PLIM_STR("hello"));
}

static void the_layout_is_the_documented_one(void **state)
{
    (void)state;
    struct plim_columns c;
    struct plim_buf out = {0};
    plim_columns_init(&c);
    fill(&c);
    assert_ok(plim_columns_write(&c, &out, NULL));
    assert_memory_equal(out.p, "PLIMRPT1", 8);
    assert_int_equal(u32_at(&out, 8), 3);
    assert_string_equal(out.p + 16, "a.numbers");
    assert_int_equal(u32_at(&out, 16 + 20), PLIM_COLUMN_U32);
    assert_int_equal(u32_at(&out, 16 + 24), 3);
    uint32_t at = u32_at(&out, 16 + 28);
    assert_int_equal(at % 8, 0);
    assert_int_equal(u32_at(&out, at), 1);
    assert_int_equal(u32_at(&out, at + 8), 0xdeadbeef);
    double real;
    memcpy(&real, out.p + u32_at(&out, 16 + 40 + 28), sizeof(real));
    assert_true(real == 2.5);
    assert_memory_equal(out.p + u32_at(&out, 16 + 80 + 28), "hello\0\0\0", 8);
    assert_int_equal(out.n % 8, 0);
    plim_buf_fini(&out);
    plim_columns_fini(&c);
}

static void the_compressed_form_unpacks_to_the_same_bytes(void **state)
{
    (void)state;
    struct plim_columns c;
    struct plim_buf plain = {0}, packed = {0};
    unsigned char back[4096];
    uLongf n = sizeof(back);
    plim_columns_init(&c);
    fill(&c);
    assert_ok(plim_columns_write(&c, &plain, NULL));
    assert_ok(plim_columns_deflate(&c, &packed, NULL));
    assert_int_equal(uncompress(back, &n, (const Bytef *)packed.p, packed.n), Z_OK);
    assert_int_equal(n, plain.n);
    assert_memory_equal(back, plain.p, n);
    plim_buf_fini(&plain);
    plim_buf_fini(&packed);
    plim_columns_fini(&c);
}

static void base64_follows_rfc_4648(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"fooba", "Zm9vYmE="},
                 {"foobar", "Zm9vYmFy"},
                 {"\xff\xfe\xfd", "//79"}};
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_buf out = {0};
        plim_base64(&out, plim_str_from(cases[i].in));
        assert_string_equal(out.p ? out.p : "", cases[i].out);
        plim_buf_fini(&out);
    }
}

static enum plim_status write_once(void *arg)
{
    struct plim_columns c;
    struct plim_buf out = {0};
    (void)arg;
    plim_columns_init(&c);
    fill(&c);
    enum plim_status st = plim_columns_deflate(&c, &out, NULL);
    plim_buf_fini(&out);
    plim_columns_fini(&c);
    return st;
}

static void a_failed_allocation_is_told_at_the_end(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(write_once, NULL, 100, false) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_is_the_documented_one),
        cmocka_unit_test(the_compressed_form_unpacks_to_the_same_bytes),
        cmocka_unit_test(base64_follows_rfc_4648),
        cmocka_unit_test(a_failed_allocation_is_told_at_the_end),
    };
    return PLIM_RUN_TESTS("columns", tests);
}
