/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappings: gzip, zstd, xz and the viewer's page, whole, cut, damaged, joined, and one in another. */

#include "fail_alloc.h"
#include "format/content.h"
#include "format/decode.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#define CONTENT_BYTES 300000u

struct packed {
    const char *name;
    uint8_t *p;
    size_t n;
    enum plim_status (*decode)(struct plim_source *, struct plim_source *, struct plim_err *);
};

static uint8_t content[CONTENT_BYTES];

static void make_content(void)
{
    uint32_t x = 1;
    for (size_t i = 0; i < CONTENT_BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        content[i] = (uint8_t)(i % 7 ? x >> 30 : x >> 24); /* packs a little */
    }
    memcpy(content, "\x80\x04]", 3);
}

static struct packed pack_gzip(void)
{
    struct packed out = {"gzip", malloc(2 * CONTENT_BYTES), 0, plim__decode_gzip};
    z_stream z = {.next_in = content,
                  .avail_in = CONTENT_BYTES,
                  .next_out = out.p,
                  .avail_out = 2 * CONTENT_BYTES};
    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    deflateEnd(&z);
    return out;
}

static struct packed pack_zstd(void)
{
    struct packed out = {"zstd", malloc(2 * CONTENT_BYTES), 0, plim__decode_zstd};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    out.n = ZSTD_compress2(c, out.p, 2 * CONTENT_BYTES, content, CONTENT_BYTES);
    assert_false(ZSTD_isError(out.n));
    ZSTD_freeCCtx(c);
    return out;
}

static struct packed pack_xz(void)
{
    struct packed out = {"xz", malloc(2 * CONTENT_BYTES), 0, plim__decode_xz};
    assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, content, CONTENT_BYTES,
                                             out.p, &out.n, 2 * CONTENT_BYTES),
                     LZMA_OK);
    return out;
}

static struct packed pack_html(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct packed out = {"HTML", malloc(2 * CONTENT_BYTES), 0, plim__decode_html};
    out.n =
        (size_t)sprintf((char *)out.p, "<html>url(data:font/woff;base64,d09GRg) [{\"base64\": \"");
    for (size_t i = 0; i < CONTENT_BYTES; i += 3) {
        uint32_t v = (uint32_t)content[i] << 16 | (uint32_t)content[i + 1] << 8 | content[i + 2];
        for (int k = 3; k >= 0; k--) {
            out.p[out.n++] = (uint8_t)digits[v >> 6 * k & 63];
        }
    }
    out.n += (size_t)sprintf((char *)out.p + out.n, "\"}]</html>");
    return out;
}

/* Read all of a source in pieces of `step`; compares with content when `compare`. */
static enum plim_status drain(struct plim_source *s, size_t step, size_t *total, bool compare,
                              struct plim_err *err)
{
    static uint8_t part[70000];
    size_t got = 1;
    for (*total = 0; got > 0; *total += got) {
        enum plim_status st = s->read(s->self, part, step, &got, err);
        if (st != PLIM_OK) {
            return st;
        }
        if (compare) {
            assert_memory_equal(part, content + *total % CONTENT_BYTES,
                                got < CONTENT_BYTES - *total % CONTENT_BYTES
                                    ? got
                                    : CONTENT_BYTES - *total % CONTENT_BYTES);
        }
    }
    return PLIM_OK;
}

static enum plim_status unpack(const struct packed *packed, size_t n, size_t step, size_t *total,
                               bool compare, struct plim_err *err)
{
    struct plim_source_bytes state;
    struct plim_source below = plim_source_bytes(&state, (struct plim_str){(char *)packed->p, n});
    struct plim_source source;
    enum plim_status st = packed->decode(&below, &source, err);
    if (st == PLIM_OK) {
        st = drain(&source, step, total, compare, err);
        plim_source_close(&source);
    }
    return st;
}

static struct packed (*const packers[])(void) = {pack_gzip, pack_zstd, pack_xz, pack_html};

static void what_was_packed_comes_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(packers); i++) {
        struct packed packed = packers[i]();
        size_t total;
        for (size_t step = 1000; step <= 64000; step += 31500) {
            assert_ok(unpack(&packed, packed.n, step, &total, true, NULL));
            assert_int_equal(total, CONTENT_BYTES);
        }
        free(packed.p);
    }
}

static void a_cut_file_is_told_from_a_damaged_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct packed packed = packers[i]();
        struct plim_err err;
        size_t total;
        for (size_t n = packed.n - 1; n > 4; n -= n / 5 + 1) {
            assert_int_equal(unpack(&packed, n, 50000, &total, true, &err), PLIM_E_TRUNCATED);
            assert_non_null(strstr(err.message, packed.name));
        }
        packed.p[packed.n / 2] ^= 0x10;
        assert_int_equal(unpack(&packed, packed.n, 50000, &total, false, &err), PLIM_E_DATA);
        assert_non_null(strstr(err.message, packed.name));
        free(packed.p);
    }
}

static void members_one_behind_the_other_are_one_content(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct packed packed = packers[i]();
        struct packed two = {packed.name, malloc(2 * packed.n + 3), 2 * packed.n, packed.decode};
        size_t total;
        memcpy(two.p, packed.p, packed.n);
        memcpy(two.p + packed.n, packed.p, packed.n);
        assert_ok(unpack(&two, two.n, 60000, &total, true, NULL));
        assert_int_equal(total, 2 * CONTENT_BYTES);
        free(two.p);
        free(packed.p);
    }
}

static void a_page_without_a_snapshot_says_so(void **state)
{
    (void)state;
    struct packed page = {"HTML", NULL, 0, plim__decode_html};
    char text[] = "<html>base64 base64, iVBORw0KGgo= base6base64:\"gA";
    struct plim_err err;
    size_t total;
    page.p = (uint8_t *)text;
    assert_int_equal(unpack(&page, sizeof(text) - 1, 1000, &total, false, &err), PLIM_E_DATA);
    assert_true(err.hint[0]);
}

static void wrappings_inside_wrappings_are_undone(void **state)
{
    (void)state;
    struct packed inner = pack_gzip();
    struct plim_content c;
    struct plim_source_bytes bytes;
    size_t total;
    uint8_t *outer = malloc(2 * CONTENT_BYTES);
    size_t n = ZSTD_compress(outer, 2 * CONTENT_BYTES, inner.p, inner.n, 1);
    struct plim_source raw = plim_source_bytes(&bytes, (struct plim_str){(char *)outer, n});
    assert_ok(plim__content_open(&c, &raw, NULL));
    assert_int_equal(c.kind, PLIM_CONTENT_PICKLE);
    assert_string_equal(c.names, "zstd, gzip, ");
    assert_ok(drain(c.source, 60000, &total, true, NULL));
    assert_int_equal(total, CONTENT_BYTES);
    plim__content_close(&c);
    free(outer);
    free(inner.p);
}

static void too_many_wrappings_are_refused(void **state)
{
    (void)state;
    uint8_t *a = malloc(2 * CONTENT_BYTES), *b = malloc(2 * CONTENT_BYTES);
    size_t n = ZSTD_compress(a, 2 * CONTENT_BYTES, content, 1000, 1);
    for (int i = 0; i < 6; i++) {
        n = ZSTD_compress(b, 2 * CONTENT_BYTES, a, n, 1);
        memcpy(a, b, n);
    }
    struct plim_content c;
    struct plim_source_bytes bytes;
    struct plim_err err;
    struct plim_source raw = plim_source_bytes(&bytes, (struct plim_str){(char *)a, n});
    assert_int_equal(plim__content_open(&c, &raw, &err), PLIM_E_UNSUPPORTED);
    free(a);
    free(b);
}

static enum plim_status unpack_body(void *arg)
{
    size_t total;
    const struct packed *packed = arg;
    return unpack(packed, packed->n, 60000, &total, true, NULL);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(packers); i++) {
        struct packed packed = packers[i]();
        assert_true(fail_alloc_sweep(unpack_body, &packed, 100, false) >= 1);
        free(packed.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_packed_comes_out),
        cmocka_unit_test(a_cut_file_is_told_from_a_damaged_one),
        cmocka_unit_test(members_one_behind_the_other_are_one_content),
        cmocka_unit_test(a_page_without_a_snapshot_says_so),
        cmocka_unit_test(wrappings_inside_wrappings_are_undone),
        cmocka_unit_test(too_many_wrappings_are_refused),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    make_content();
    return PLIM_RUN_TESTS("decode", tests);
}
