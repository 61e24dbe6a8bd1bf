/* SPDX-License-Identifier: Apache-2.0 */
/* The page as bytes: escaping, the limit on its size, and what happens when memory runs out. */

#include "report/html.h"
#include "unit.h"

#include "fail_alloc.h"
#include "snapshot_maker.h"

static struct maker maker; /* large: not on the stack */

static void make(unsigned blocks, unsigned rounds)
{
    size_t handles[64];
    maker_init(&maker);
    uint32_t stack = maker_stack(&maker, "<script>alert(1)</script>", "/a\"b'c&d.py", 3);
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < blocks; i++) {
            handles[i] = maker_alloc(&maker, (1 + (r * 7 + i) % 40) * PLIM_MIB, stack);
        }
        for (unsigned i = 0; i + 1 < blocks; i++) {
            maker_free(&maker, handles[i]);
        }
    }
    maker_finish(&maker);
}

static enum plim_status write_page(struct plim_buf *out, uint64_t limit)
{
    struct plim_diagnose_options options = {.device = PLIM_NO_ID, .no_replay = true};
    struct plim_html_options html = {.source = "a<b>.pickle", .limit = limit};
    struct plim_diagnosis diagnosis;
    PLIM_TRY(plim_diagnose(&maker.snapshot, &options, &diagnosis, NULL));
    enum plim_status st = plim_html_report(out, &maker.snapshot, &diagnosis, &html, NULL);
    plim_diagnosis_fini(&diagnosis);
    return st;
}

static void text_becomes_text(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    plim_html_text(&out, PLIM_STR("<a href=\"x\">&'\x01\n\x7f"));
    assert_string_equal(out.p, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;   ");
    plim_buf_fini(&out);
}

static void names_from_the_snapshot_are_escaped_everywhere(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    make(8, 10);
    assert_ok(write_page(&out, 0));
    assert_null(strstr(out.p, "<script>alert"));
    assert_null(strstr(out.p, "a<b>"));
    assert_non_null(strstr(out.p, "&lt;script&gt;alert(1)"));
    assert_non_null(strstr(out.p, "<title>"));
    assert_non_null(strstr(out.p, "default-src 'none'"));
    plim_buf_fini(&out);
    maker_fini(&maker);
}

static void a_small_limit_makes_a_smaller_page_with_fewer_rows(void **state)
{
    (void)state;
    struct plim_buf full = {0}, small = {0};
    make(40, 60);
    assert_ok(write_page(&full, 0));
    uint64_t limit = full.n - 20000 + 96 * 1024;
    assert_ok(write_page(&small, limit));
    assert_true(small.n < full.n);
    assert_true(small.n <= limit);
    plim_buf_fini(&full);
    plim_buf_fini(&small);
    maker_fini(&maker);
}

static void cells_hold_the_raw_number_beside_the_readable_one(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    plim_html_cell_bytes(&out, 3 * PLIM_MIB / 2);
    plim_html_cell_change(&out, 2 * PLIM_MIB, PLIM_MIB);
    plim_html_cell_change(&out, 0, PLIM_MIB);
    plim_html_cell_none(&out);
    plim_html_cell_text(&out, "a<b");
    assert_string_equal(out.p, "<td class=\"n\" data-v=\"1572864\">1.50 MiB</td>"
                               "<td class=\"n\" data-v=\"-1048576\">-1.00 MiB</td>"
                               "<td class=\"n\" data-v=\"1048576\">+1.00 MiB</td>"
                               "<td class=\"n\" data-v=\"\"></td><td>a&lt;b</td>");
    plim_buf_fini(&out);
}

static void a_chart_is_one_line_for_each_and_nothing_when_all_is_zero(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    const uint64_t x[] = {0, 10, 20}, y[] = {0, PLIM_MIB, 0}, flat[] = {0, 0, 0};
    const struct plim_html_line lines[] = {{"<one>", "line-now", x, y, 3},
                                           {"two", "line-best", x, flat, 3}};
    plim_html_chart(&out, "a chart", "step", &lines[1], 1);
    assert_int_equal(out.n, 0);
    plim_html_chart(&out, "a chart", "step", lines, 2);
    assert_non_null(strstr(out.p, "points=\"78.0,158.0 508.0,8.0 938.0,158.0\""));
    assert_non_null(strstr(out.p, "&lt;one&gt;"));
    plim_buf_fini(&out);
}

static void write_heading(struct plim_buf *out, const void *view)
{
    plim_html_section_open(out, "only", "Only this");
    plim_html_say(out, view);
    plim_html_section_close(out);
}

static void a_page_without_a_snapshot_has_its_part_and_no_columns(void **state)
{
    (void)state;
    struct plim_buf out = {0};
    const struct plim_html_part part = {write_heading, "<b>text</b>"};
    const struct plim_html_options options = {.source = "a&b", .part = &part};
    assert_ok(plim_html_plain(&out, "soak", &options, NULL));
    assert_non_null(strstr(out.p, "<title>soak: a&amp;b - Plimsoll</title>"));
    assert_non_null(strstr(out.p, "<h2 id=\"h-only\">Only this</h2>\n&lt;b&gt;text"));
    assert_null(strstr(out.p, "<script type="));
    assert_non_null(strstr(out.p, "default-src 'none'"));
    plim_buf_fini(&out);
}

static enum plim_status write_and_forget(void *arg)
{
    struct plim_buf out = {0};
    (void)arg;
    enum plim_status st = write_page(&out, 0);
    plim_buf_fini(&out);
    return st;
}

static void each_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    make(4, 3);
    assert_true(fail_alloc_sweep(write_and_forget, NULL, 20000, true) > 50);
    maker_fini(&maker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_text),
        cmocka_unit_test(names_from_the_snapshot_are_escaped_everywhere),
        cmocka_unit_test(a_small_limit_makes_a_smaller_page_with_fewer_rows),
        cmocka_unit_test(cells_hold_the_raw_number_beside_the_readable_one),
        cmocka_unit_test(a_chart_is_one_line_for_each_and_nothing_when_all_is_zero),
        cmocka_unit_test(a_page_without_a_snapshot_has_its_part_and_no_columns),
        cmocka_unit_test(each_failed_allocation_is_told_and_leaks_nothing),
    };
    return PLIM_RUN_TESTS("html", tests);
}
