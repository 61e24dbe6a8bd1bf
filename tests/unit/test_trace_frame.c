/* SPDX-License-Identifier: Apache-2.0 */
/* The container of the trace format: frames survive cuts and damage at any byte, the index can be
 * rebuilt, varints and columns give back what was put in. */

#include "base/intern.h"
#include "format/trace_index.h"
#include "format/trace_scan.h"
#include "format/trace_write.h"
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAMES 40u

static uint64_t seed = 7;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 33;
}

/* The payload of frame i: compressible or not, empty once. */
static struct plim_str payload_of(unsigned i, char *room)
{
    size_t n = i == 5 ? 0 : 1 + i * 37 % 300;
    for (size_t k = 0; k < n; k++) {
        room[k] = i % 3 == 0 ? (char)((i * 7919 + k * 104729) >> 3) : (char)('a' + i % 20);
    }
    return (struct plim_str){room, n};
}

static struct plim_trace_frame frame_of(unsigned i)
{
    return (struct plim_trace_frame){.kind = i % 4 == 0 ? PLIM_FRAME_FACTS : PLIM_FRAME_EVENTS,
                                     .items = i == 5 ? 0 : 1,
                                     .first_ns = 1000000 * i,
                                     .span_us = 500};
}

static char *temporary(void)
{
    static char path[] = "/tmp/plimsoll-test-trace-XXXXXX";
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static void write_file(const char *path, bool seal)
{
    struct plim_trace_writer w;
    char room[400];
    assert_ok(plim_trace_create(path, 42, &w, NULL));
    for (unsigned i = 0; i < FRAMES; i++) {
        assert_ok(plim_trace_append(&w, frame_of(i), payload_of(i, room), NULL));
    }
    if (seal) {
        assert_ok(plim_trace_seal(&w, NULL));
    }
    plim_trace_close(&w);
}

static struct plim_str read_file(const char *path)
{
    struct plim_str s;
    assert_ok(plim_file_read(path, 1 << 24, &s, NULL));
    return s;
}

/* Scan the bytes; seen[i] is set when frame i came out whole. Returns how many frames did. */
static unsigned scan_bytes(struct plim_str bytes, bool seen[FRAMES], struct plim_trace_scan *last)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, bytes);
    struct plim_trace_scan scan;
    unsigned n = 0;
    bool more = true;
    memset(seen, 0, FRAMES * sizeof(bool));
    if (plim_trace_scan_open(&scan, &source, NULL) != PLIM_OK) {
        return 0;
    }
    while (more) {
        struct plim_trace_frame frame;
        struct plim_str payload;
        char room[400];
        assert_ok(plim_trace_scan_next(&scan, &more, &frame, &payload, NULL));
        if (more) {
            unsigned i = (unsigned)(frame.first_ns / 1000000);
            assert_true(i < FRAMES && plim_str_eq(payload, payload_of(i, room)));
            seen[i] = true;
            n++;
        }
    }
    *last = scan;
    plim_trace_scan_close(&scan);
    return n;
}

static void every_frame_comes_back(void **state)
{
    (void)state;
    char *path = temporary();
    bool seen[FRAMES];
    struct plim_trace_scan scan;
    write_file(path, true);
    struct plim_str bytes = read_file(path);
    assert_int_equal(scan_bytes(bytes, seen, &scan), FRAMES);
    assert_true(scan.sealed);
    assert_int_equal(scan.damaged + scan.torn, 0);
    assert_int_equal(scan.head.created_ns, 42);
    free((void *)bytes.p);
    unlink(path);
}

static void a_file_cut_at_any_byte_keeps_its_whole_frames(void **state)
{
    (void)state;
    char *path = temporary();
    bool seen[FRAMES];
    struct plim_trace_scan scan;
    write_file(path, false);
    struct plim_str bytes = read_file(path);
    unsigned before = 0;
    for (size_t cut = PLIM_TRACE_HEAD_BYTES; cut <= bytes.n; cut++) {
        unsigned n = scan_bytes((struct plim_str){bytes.p, cut}, seen, &scan);
        assert_true(n == before || n == before + 1);
        assert_true(n == 0 || seen[n - 1]);
        assert_int_equal(scan.damaged, 0);
        assert_false(scan.sealed);
        before = n;
    }
    assert_int_equal(before, FRAMES);
    free((void *)bytes.p);
    unlink(path);
}

static void a_changed_byte_costs_one_frame(void **state)
{
    (void)state;
    char *path = temporary();
    bool seen[FRAMES];
    struct plim_trace_scan scan;
    write_file(path, true);
    struct plim_str bytes = read_file(path);
    for (size_t at = PLIM_TRACE_HEAD_BYTES; at < bytes.n; at++) {
        char *p = (char *)bytes.p;
        p[at] = (char)(p[at] ^ (1 << (at % 8)));
        unsigned n = scan_bytes(bytes, seen, &scan);
        assert_true(n + 1 >= FRAMES);
        assert_true(scan.damaged > 0 || scan.torn > 0 || n == FRAMES);
        p[at] = (char)(p[at] ^ (1 << (at % 8)));
    }
    free((void *)bytes.p);
    unlink(path);
}

static void a_torn_frame_with_others_behind_it_costs_itself(void **state)
{
    (void)state;
    char *path = temporary();
    bool seen[FRAMES];
    struct plim_trace_scan scan;
    write_file(path, false);
    struct plim_str bytes = read_file(path);
    struct plim_buf twice = {0};
    plim_buf_add(&twice, (struct plim_str){bytes.p, bytes.n - 3}); /* the last frame is torn */
    plim_buf_add(&twice, plim_str_skip(bytes, PLIM_TRACE_HEAD_BYTES));
    assert_int_equal(scan_bytes(plim_buf_str(&twice), seen, &scan), 2 * FRAMES - 1);
    assert_true(scan.damaged > 0);
    plim_buf_fini(&twice);
    free((void *)bytes.p);
    unlink(path);
}

static struct plim_trace_index index_of(const char *path)
{
    struct plim_trace_index index;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_ok(plim_trace_index_read(fd, &index, NULL));
    close(fd);
    return index;
}

static void an_index_is_read_or_rebuilt_the_same(void **state)
{
    (void)state;
    char *path = temporary();
    write_file(path, true);
    struct plim_trace_index sealed = index_of(path);
    write_file(path, false);
    struct plim_trace_index rebuilt = index_of(path);
    assert_true(sealed.sealed && !rebuilt.sealed);
    assert_int_equal(sealed.places.n, FRAMES);
    assert_int_equal(rebuilt.places.n, FRAMES);
    for (size_t i = 0; i < FRAMES; i++) {
        const struct plim_trace_place *a = &sealed.places.items[i], *b = &rebuilt.places.items[i];
        assert_int_equal(a->at, b->at);
        assert_int_equal(a->frame.kind, b->frame.kind);
        assert_int_equal(a->frame.stored, b->frame.stored);
        assert_int_equal(a->frame.first_ns, b->frame.first_ns);
        assert_int_equal(a->frame.span_us, b->frame.span_us);
    }
    assert_int_equal(plim_trace_index_from(&sealed, 0), 1); /* frame 0 holds facts */
    assert_int_equal(plim_trace_index_from(&sealed, 9000000), 9);
    assert_int_equal(plim_trace_index_from(&sealed, 9500000), 9);
    assert_int_equal(plim_trace_index_from(&sealed, 9500001), 10);
    assert_int_equal(plim_trace_index_from(&sealed, UINT64_MAX), FRAMES);
    plim_trace_index_fini(&sealed);
    plim_trace_index_fini(&rebuilt);
    unlink(path);
}

static void an_index_is_rebuilt_past_damage(void **state)
{
    (void)state;
    char *path = temporary();
    write_file(path, false);
    struct plim_trace_index whole = index_of(path);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)whole.places.items[7].at), 1);
    assert_int_equal(ftruncate(fd, (off_t)whole.places.items[FRAMES - 1].at + 10), 0);
    close(fd);
    struct plim_trace_index index = index_of(path);
    assert_int_equal(index.places.n, FRAMES - 2);
    assert_int_equal(index.damaged, whole.places.items[8].at - whole.places.items[7].at + 10);
    plim_trace_index_fini(&index);
    plim_trace_index_fini(&whole);
    unlink(path);
}

static void varints_give_back_every_number(void **state)
{
    (void)state;
    struct plim_buf buf = {0};
    uint64_t edge[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX >> 1, UINT64_MAX};
    for (size_t i = 0; i < PLIM_COUNT_OF(edge); i++) {
        plim__varint_put(&buf, edge[i]);
        plim__varint_put(&buf, plim__zigzag(-(int64_t)(edge[i] >> 1)));
    }
    struct plim_cursor c = plim__cursor(plim_buf_str(&buf));
    for (size_t i = 0; i < PLIM_COUNT_OF(edge); i++) {
        assert_int_equal(plim__varint_get(&c), edge[i]);
        assert_int_equal(plim__unzigzag(plim__varint_get(&c)), -(int64_t)(edge[i] >> 1));
    }
    assert_false(c.bad);
    assert_int_equal(plim__varint_get(&c), 0);
    assert_true(c.bad);
    c = plim__cursor(PLIM_STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"));
    (void)plim__varint_get(&c);
    assert_true(c.bad);
    plim_buf_fini(&buf);
}

static void columns_give_back_their_values_and_refuse_others(void **state)
{
    (void)state;
    uint64_t in[100][2], out[100][2];
    for (unsigned i = 0; i < 100; i++) {
        in[i][0] = next_random() << (i % 34);
        in[i][1] = 0;
    }
    for (int coding = 0; coding < 2; coding++) {
        struct plim_buf buf = {0};
        plim__column_put(&buf, 9, (enum plim_column_coding)coding, in[0], 100, sizeof(in[0]));
        struct plim_cursor c = plim__cursor(plim_buf_str(&buf));
        assert_int_equal(*c.p++, 9);
        struct plim_str column = plim__text_get(&c);
        assert_false(c.bad);
        assert_true(
            plim__column_get(column, (enum plim_column_coding)coding, out[0], 100, sizeof(out[0])));
        for (unsigned i = 0; i < 100; i++) {
            assert_int_equal(in[i][0], out[i][0]);
        }
        assert_false(
            plim__column_get(column, (enum plim_column_coding)coding, out[0], 99, sizeof(out[0])));
        column.n--;
        assert_false(
            plim__column_get(column, (enum plim_column_coding)coding, out[0], 100, sizeof(out[0])));
        plim_buf_fini(&buf);
    }
}

static void a_full_disk_leaves_whole_frames(void **state)
{
    (void)state;
    struct plim_trace_writer w = {.fd = open("/dev/full", O_WRONLY)};
    struct plim_err err;
    assert_true(w.fd >= 0);
    assert_int_equal(plim_trace_append(&w, frame_of(1), PLIM_STR("x"), &err), PLIM_E_IO);
    assert_int_equal(err.os_errno, 28);
    assert_int_equal(w.size, 0);
    assert_int_equal(w.places.n, 0);
    plim_trace_close(&w);
}

static void a_newer_major_version_is_refused_by_name(void **state)
{
    (void)state;
    uint8_t head[PLIM_TRACE_HEAD_BYTES];
    struct plim_trace_head out;
    struct plim_err err;
    plim__trace_head_put(head, 1);
    assert_ok(plim__trace_head_get(head, sizeof(head), &out, NULL));
    assert_int_equal(plim__trace_head_get(head, 20, &out, NULL), PLIM_E_TRUNCATED);
    head[8]++;
    assert_int_equal(plim__trace_head_get(head, sizeof(head), &out, NULL), PLIM_E_DATA);
    uint64_t check = plim_hash_bytes(head, 24);
    memcpy(head + 24, &check, 8);
    assert_int_equal(plim__trace_head_get(head, sizeof(head), &out, &err), PLIM_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "version 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_frame_comes_back),
        cmocka_unit_test(a_file_cut_at_any_byte_keeps_its_whole_frames),
        cmocka_unit_test(a_changed_byte_costs_one_frame),
        cmocka_unit_test(a_torn_frame_with_others_behind_it_costs_itself),
        cmocka_unit_test(an_index_is_read_or_rebuilt_the_same),
        cmocka_unit_test(an_index_is_rebuilt_past_damage),
        cmocka_unit_test(varints_give_back_every_number),
        cmocka_unit_test(columns_give_back_their_values_and_refuse_others),
        cmocka_unit_test(a_full_disk_leaves_whole_frames),
        cmocka_unit_test(a_newer_major_version_is_refused_by_name),
    };
    return PLIM_RUN_TESTS("trace_frame", tests);
}
