/* SPDX-License-Identifier: Apache-2.0 */
/* The message reader's parts: numbers, patterns, search, line cleaning, and the scanner on streams. */

#include "fail_alloc.h"
#include "format/oomtext_internal.h"
#include "unit.h"

#include "base/buf.h"
#include "base/num.h"

#include <stdio.h>

/* ---- numbers ---- */

static void numbers_are_read_with_their_units_and_precision(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum plim__oom_type type;
        size_t used;
        uint64_t n, slop;
    } rows[] = {
        {"2.00 GiB)", PLIM__OOM_SIZE, 8, 2 * PLIM_GIB, 5368709},
        {"43.64GiB", PLIM__OOM_SIZE, 8, 46858093199, 5368709},
        {"512 bytes", PLIM__OOM_SIZE, 9, 512, 0},
        {"0 bytes free", PLIM__OOM_SIZE, 7, 0, 0},
        {"7.92G (85", PLIM__OOM_SIZE, 5, 8504035246, 5368709},
        {"123456kB,", PLIM__OOM_SIZE, 8, 123456 * PLIM_KIB, 512},
        {"1900,00 MiB", PLIM__OOM_SIZE, 11, 1900 * PLIM_MIB, 5243},
        {"1,024 MiB", PLIM__OOM_SIZE, 9, PLIM_GIB, 524288},
        {"17179869184.00 GiB", PLIM__OOM_SIZE, 18, UINT64_MAX, 5368709},
        {"4 GPUs", PLIM__OOM_SIZE, 0, 0, 0},
        {"4 of", PLIM__OOM_SIZE, 0, 0, 0},
        {"805,306,368 bytes", PLIM__OOM_BYTES, 11, 805306368, 0},
        {"99999999999999999999999", PLIM__OOM_BYTES, 23, UINT64_MAX, 0},
        {"12.5", PLIM__OOM_INT, 2, 12, 0},
        {"78.71/79.15", PLIM__OOM_GIB, 5, 84514218967, 5368709},
        {"", PLIM__OOM_SIZE, 0, 0, 0},
        {"x", PLIM__OOM_INT, 0, 0, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct plim_oom_value value = {0};
        size_t used = plim__oom_number(plim_str_from(rows[i].text), rows[i].type, &value);
        if (used != rows[i].used || value.n != rows[i].n || value.slop != rows[i].slop) {
            fail_msg("'%s': used %zu, n %llu, slop %llu", rows[i].text, used,
                     (unsigned long long)value.n, (unsigned long long)value.slop);
        }
    }
}

/* ---- patterns ---- */

static bool matches(const char *pattern, const char *text, struct plim__oom_match *match)
{
    struct plim_oom_row row = {"test", PLIM_OOM_FAMILY_ANY, PLIM_OOM_FAILURE,
                               PLIM_OOM_MEANS_NOTHING, pattern};
    struct plim__oom_grammar grammar;
    struct plim_str s = plim_str_from(text);
    assert_true(plim__oom_prepare(&row, &grammar));
    for (size_t at = 0; at < s.n; at++) {
        if (plim__oom_fold(s.p[at]) == grammar.anchor[0] &&
            plim__oom_match(&grammar, s, at, match)) {
            return true;
        }
    }
    return false;
}

static void patterns_capture_fields_and_skip_what_may_be_missing(void **state)
{
    (void)state;
    struct plim__oom_match m;
    assert_true(matches("Tried to allocate {request:size}", "TRIED  to\nallocate 2.0 MiB", &m));
    assert_int_equal(m.captures, 1);
    assert_int_equal(m.capture[0].value.n, 2 * PLIM_MIB);
    assert_true(matches("abc[ d {count:int}] end", "abc end", &m));
    assert_int_equal(m.captures, 0);
    assert_true(matches("abc[ d {count:int}] end", "abc d 7 end", &m));
    assert_int_equal(m.capture[0].value.n, 7);
    assert_true(matches("abc <x|yy|z {count:int}>!", "abc z 5!", &m));
    assert_false(matches("abc <x|yy>!", "abc z!", &m));
    assert_true(matches("abc*xyz", "abc 1 2 3 xyz", &m));
    assert_false(matches("abc*xyz", "abc 1 2 3 xy", &m));
    assert_true(matches("abc~{count:int}", "abc': \"12", &m));
    assert_true(matches("abc # d", "abc 123 d", &m));
    assert_true(matches("abc\\[d\\]", "abc[d]", &m));
}

static void a_leading_field_is_read_backwards_from_the_anchor(void **state)
{
    (void)state;
    struct plim__oom_match m;
    assert_true(matches("{total:size} total capacity", "(GPU 0; 11.17 GiB total capacity", &m));
    assert_int_equal(m.capture[0].value.n, 11993696174);
    assert_int_equal(m.start, 8);
    assert_false(matches("{total:size} total capacity", "(GPU 0; total capacity", &m));
    assert_true(matches("{device:int} has a total", "GPU 12 has a total", &m));
    assert_int_equal(m.capture[0].value.n, 12);
}

static void line_start_and_end_are_respected(void **state)
{
    (void)state;
    struct plim__oom_match m;
    assert_true(matches("^Killed$", "x\nKilled\ny", &m));
    assert_false(matches("^Killed$", "x Killed\ny", &m));
    assert_false(matches("^Killed$", "x\nKilled by\ny", &m));
}

static void a_hostile_text_cannot_make_a_match_expensive(void **state)
{
    (void)state;
    struct plim__oom_match m;
    struct plim_buf text = {0};
    for (int i = 0; i < 5000; i++) {
        plim_buf_text(&text, "abc");
    }
    assert_false(matches("abc*abc*abc*abc*x", text.p, &m));
    plim_buf_fini(&text);
}

static void every_row_of_the_table_is_well_formed(void **state)
{
    (void)state;
    size_t n;
    const struct plim_oom_row *rows = plim__oom_rows(&n);
    for (size_t i = 0; i < n; i++) {
        struct plim__oom_grammar grammar;
        int depth = 0;
        if (!plim__oom_prepare(&rows[i], &grammar)) {
            fail_msg("no anchor: %s", rows[i].pattern);
        }
        for (const char *p = rows[i].pattern; *p; p++) {
            p += *p == '\\' && p[1];
            depth += (*p == '[' || *p == '<' || *p == '{') && p[-(p > rows[i].pattern)] != '\\';
            depth -= (*p == ']' || *p == '>' || *p == '}') && p[-(p > rows[i].pattern)] != '\\';
        }
        if (depth != 0) {
            fail_msg("unbalanced: %s", rows[i].pattern);
        }
        /* Failures have an id, and clauses of one only when they name versions. */
        assert_true(rows[i].role != PLIM_OOM_FAILURE || rows[i].format);
    }
}

/* ---- search ---- */

static void the_search_finds_an_anchor_at_every_place(void **state)
{
    (void)state;
    struct plim__oom_finder *finder = plim__oom_finder_new(1U << PLIM_OOM_FAILURE, 7);
    char text[256];
    size_t at, n;
    assert_non_null(finder);
    for (size_t place = 0; place + 18 <= sizeof(text); place++) {
        memset(text, 'm', sizeof(text));
        memcpy(text + place, "CUDA out of memory", 18);
        assert_true(plim__oom_find(finder, (struct plim_str){text, sizeof(text)}, 0, &at, &n));
        assert_int_equal(at, place);
        assert_false(plim__oom_find(finder, (struct plim_str){text, place + 10}, 0, &at, &n));
    }
    plim__oom_finder_free(finder);
}

/* ---- lines ---- */

static void cleaning_takes_out_what_terminals_and_collectors_put_in(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"\033[1;31mred\033[0m", "red"},
        {"\033]0;title\007text", "text"},
        {"50%\rnew", "50%\nnew"},
        {"end\r", "end"},
        {"{\"log\":\"a\\nb \\\"c\\\"\"}", "{\"log\":\"a\nb \"c\"\"}"},
        {"\\u001b[31mred", "red"},
        {"no\xc2\xa0"
         "break",
         "no break"},
        {"C:\\dir", "C:\\dir"},
        {"\033", ""},
        {"\033[", ""},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        char out[128];
        uint64_t control = 0;
        size_t n = plim__oom_clean(plim_str_from(rows[i][0]), out, &control);
        assert_true(n < sizeof(out));
        out[n] = 0;
        assert_string_equal(out, rows[i][1]);
    }
}

static void prefixes_give_time_rank_and_process(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *body;
        int64_t rank, pid;
        bool timed;
    } rows[] = {
        {"2026-05-01 12:00:00,123 - app - ERROR - x out", "x out", -1, -1, true},
        {"2026-05-01T12:00:00.123456Z stderr F out", "out", -1, -1, true},
        {"(EngineCore_DP0 pid=42) ERROR 05-01 12:00:00 [core.py:708] out", "out", -1, 42, true},
        {"(VllmWorker rank=3 pid=42) INFO out", "out", 3, 42, false},
        {"[rank7]: out", "out", 7, -1, false},
        {"[default5]:out", "out", 5, -1, false},
        {"[2025-04-11 06:31:49 TP7] out", "out", 7, -1, true},
        {"E0501 12:00:00.123456 99 file.cc:1] out", "out", -1, -1, true},
        {"May  1 12:00:00 out", "out", -1, -1, true},
        {"web_1  | out", "out", -1, -1, false},
        {"12:00:00 out", "out", -1, -1, true},
        {"out of", "out of", -1, -1, false},
        {"   out", "   out", -1, -1, false},
        {"", "", -1, -1, false},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct plim__oom_prefix p = plim__oom_prefix(plim_str_from(rows[i].line));
        if (strcmp(rows[i].line + p.n, rows[i].body) != 0 || p.rank != rows[i].rank ||
            p.pid != rows[i].pid || (p.time_ms != PLIM_OOM_NO_TIME) != rows[i].timed) {
            fail_msg("'%s': body '%s' rank %lld pid %lld", rows[i].line, rows[i].line + p.n,
                     (long long)p.rank, (long long)p.pid);
        }
    }
}

static void time_stamps_are_counted_in_milliseconds(void **state)
{
    (void)state;
    struct plim__oom_prefix a = plim__oom_prefix(PLIM_STR("2024-02-28 23:59:59.500 x"));
    struct plim__oom_prefix b = plim__oom_prefix(PLIM_STR("2024-03-01 00:00:00 x"));
    assert_int_equal(b.time_ms - a.time_ms, 24 * 3600 * 1000 + 500);
}

/* ---- scanning ---- */

#define OOM(request, live, free)                                                                   \
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " request                       \
    ". GPU 0 has a total capacity of 23.64 GiB of which " free " is free. Including non-PyTorch "  \
    "memory, this process has 23.50 GiB memory in use. Of the allocated memory " live              \
    " is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated."

static struct plim_oom_scan scan_text(struct plim_str text)
{
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, text);
    struct plim_oom_scan scan;
    assert_ok(plim_oom_scan(&source, &scan, NULL));
    return scan;
}

static struct plim_oom_scan scan_z(const char *text)
{
    return scan_text(plim_str_from(text));
}

/* A source that hands out `step` bytes at a time. */
struct dribble {
    struct plim_str rest;
    size_t step;
};

static enum plim_status dribble_read(void *self, void *dst, size_t n, size_t *got,
                                     struct plim_err *err)
{
    struct dribble *d = self;
    (void)err;
    n = n < d->step ? n : d->step;
    *got = n < d->rest.n ? n : d->rest.n;
    memcpy(dst, d->rest.p, *got);
    d->rest = plim_str_skip(d->rest, *got);
    return PLIM_OK;
}

static void the_size_of_reads_does_not_matter(void **state)
{
    (void)state;
    struct plim_str text =
        PLIM_STR("line one\nline two\n" OOM("2.50 GiB", "20.00 GiB", "100.00 MiB") "\n");
    static const size_t steps[] = {1, 2, 3, 7, 100, 4096};
    for (size_t i = 0; i < PLIM_COUNT_OF(steps); i++) {
        struct dribble dribble = {text, steps[i]};
        struct plim_source source = {.read = dribble_read, .self = &dribble};
        struct plim_oom_scan scan;
        assert_ok(plim_oom_scan(&source, &scan, NULL));
        assert_int_equal(scan.events.n, 1);
        assert_int_equal(scan.events.items[0].line, 3);
        assert_int_equal(scan.lines, 3);
        plim_oom_scan_fini(&scan);
    }
}

static void a_message_is_found_wherever_a_large_log_is_cut_into_buffers(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    static const char filler[] = "INFO 05-01 12:00:00 [loggers.py:1] all is well, thank you\n";
    for (size_t shift = 0; shift < 600; shift += 37) {
        plim_buf_reset(&text);
        uint64_t line = 1;
        for (size_t i = 0; i < shift; i++) {
            plim_buf_char(&text, '\n');
            line++;
        }
        while (text.n < (1 << 20) - 700) {
            plim_buf_text(&text, filler);
            line++;
        }
        plim_buf_text(&text, OOM("2.50 GiB", "20.00 GiB", "100.00 MiB") "\n");
        plim_buf_text(&text, filler);
        struct plim_oom_scan scan = scan_text(plim_buf_str(&text));
        assert_int_equal(scan.events.n, 1);
        assert_int_equal(scan.events.items[0].line, line);
        assert_int_equal(scan.lines, line + 1);
        assert_true(plim_oom_has(&scan.events.items[0].facts, PLIM_OOM_UNALLOCATED));
        plim_oom_scan_fini(&scan);
    }
    plim_buf_fini(&text);
}

static void a_message_inside_a_line_of_megabytes_is_found(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    plim_buf_repeat(&text, "{\"a\": 12345}, ", 400000);
    plim_buf_text(&text, OOM("2.50 GiB", "20.00 GiB", "100.00 MiB"));
    plim_buf_repeat(&text, "{\"a\": 12345}, ", 400000);
    struct plim_oom_scan scan = scan_text(plim_buf_str(&text));
    assert_int_equal(scan.events.n, 1);
    assert_int_equal(scan.events.items[0].line, 1);
    assert_true(plim_oom_has(&scan.events.items[0].facts, PLIM_OOM_ALLOCATED));
    plim_oom_scan_fini(&scan);
    plim_buf_fini(&text);
}

static void nuls_in_front_of_a_log_are_passed_over(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    for (int i = 0; i < 200000; i++) {
        plim_buf_char(&text, '\0');
    }
    plim_buf_text(&text, "\n" OOM("2.50 GiB", "20.00 GiB", "100.00 MiB"));
    struct plim_oom_scan scan = scan_text(plim_buf_str(&text));
    assert_int_equal(scan.events.n, 1);
    plim_oom_scan_fini(&scan);
    plim_buf_fini(&text);
}

static void utf16_text_is_read(void **state)
{
    (void)state;
    static const char text[] = OOM("2.50 GiB", "20.00 GiB", "100.00 MiB");
    char wide[2 + 2 * sizeof(text)] = {(char)0xff, (char)0xfe};
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        wide[2 + 2 * i] = text[i];
    }
    struct plim_oom_scan scan = scan_text((struct plim_str){wide, 2 * sizeof(text)});
    assert_int_equal(scan.events.n, 1);
    assert_true(plim_oom_has(&scan.events.items[0].facts, PLIM_OOM_UNALLOCATED));
    plim_oom_scan_fini(&scan);
}

static void a_reprint_of_the_same_failure_is_one_event(void **state)
{
    (void)state;
    struct plim_oom_scan scan = scan_z("INFO start\n" OOM(
        "2.50 GiB", "20.00 GiB",
        "100.00 MiB") "\n"
                      "During handling of the above exception, another exception occurred:\n"
                      "Traceback (most recent call last):\n" OOM("2.50 GiB", "20.00 GiB",
                                                                 "100.00 MiB"));
    assert_int_equal(scan.events.n, 1);
    assert_int_equal(scan.events.items[0].copies, 2);
    assert_int_equal(scan.events.items[0].ranks, 1);
    plim_oom_scan_fini(&scan);
}

static void reports_of_several_ranks_are_one_event(void **state)
{
    (void)state;
    struct plim_oom_scan scan = scan_z("[rank0]: " OOM(
        "2.50 GiB", "20.00 GiB",
        "100.00 MiB") "\n"
                      "[rank1]: " OOM("2.50 GiB", "20.10 GiB",
                                      "90.00 MiB") "\n"
                                                   "[rank2]: " OOM("2.50 GiB", "19.95 GiB",
                                                                   "95.00 MiB") "\n");
    assert_int_equal(scan.events.n, 1);
    assert_int_equal(scan.events.items[0].ranks, 3);
    assert_int_equal(scan.events.items[0].rank, 0);
    plim_oom_scan_fini(&scan);
}

static void a_later_failure_with_other_figures_is_another_event(void **state)
{
    (void)state;
    struct plim_oom_scan scan = scan_z("2026-05-01 12:00:00 ERROR " OOM(
        "2.50 GiB", "20.00 GiB",
        "100.00 MiB") "\n"
                      "2026-05-01 13:30:00 ERROR " OOM("2.50 GiB", "21.00 GiB", "80.00 MiB") "\n");
    assert_int_equal(scan.events.n, 2);
    assert_int_equal(scan.events.items[1].time_ms - scan.events.items[0].time_ms, 5400000);
    plim_oom_scan_fini(&scan);
}

static void more_failures_than_are_kept_are_counted(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    for (int i = 0; i < 400; i++) {
        plim_buf_printf(&text,
                        "CUDA out of memory. Tried to allocate %d.00 MiB (GPU 0; 8.00 GiB total "
                        "capacity; %d.00 MiB already allocated)\n",
                        20 + i, 1000 + 7 * i);
    }
    struct plim_oom_scan scan = scan_text(plim_buf_str(&text));
    assert_int_equal(scan.events.n, PLIM_OOM_EVENTS);
    assert_int_equal(scan.dropped, 400 - PLIM_OOM_EVENTS);
    plim_oom_scan_fini(&scan);
    plim_buf_fini(&text);
}

static void pasted_tables_add_facts(void **state)
{
    (void)state;
    struct plim_oom_scan scan =
        scan_z("RuntimeError: CUDA out of memory.\n"
               "|===========================================================================|\n"
               "|                  PyTorch CUDA memory summary, device ID 0                 |\n"
               "|            CUDA OOMs: 1            |        cudaMalloc retries: 3         |\n"
               "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n"
               "| Allocated memory      |    1062 MiB |    4877 MiB |   89299 MiB |   88237 MiB |\n"
               "| GPU reserved memory   |   12420 MiB |   12420 MiB |   16924 MiB |    4504 MiB |\n"
               "+----------------------------------------------------------------------------------"
               "-------+\n"
               "| NVIDIA-SMI 550.54.14              Driver Version: 550.54.14      CUDA Version: "
               "12.4     |\n"
               "| 30%   45C    P2             120W / 350W |   22011MiB / 24576MiB |     98%      "
               "Default |\n"
               "|    0   N/A  N/A      4242      C   python3                                   "
               "12900MiB |\n"
               "|    0   N/A  N/A      5151    C+G   /usr/bin/other                              "
               "8100MiB |\n");
    assert_int_equal(scan.events.n, 1);
    const struct plim_oom_facts *facts = &scan.events.items[0].facts;
    assert_int_equal(facts->field[PLIM_OOM_STAT_RETRIES].n, 3);
    assert_int_equal(facts->field[PLIM_OOM_STAT_ALLOCATED].n, 1062 * PLIM_MIB);
    assert_int_equal(facts->field[PLIM_OOM_STAT_PEAK].n, 4877 * PLIM_MIB);
    assert_int_equal(facts->field[PLIM_OOM_STAT_RESERVED].n, 12420 * PLIM_MIB);
    assert_int_equal(facts->field[PLIM_OOM_SMI_TOTAL].n, 24576 * PLIM_MIB);
    assert_int_equal(facts->processes, 2);
    assert_int_equal(facts->process[1].pid, 5151);
    assert_int_equal(facts->process[1].bytes, 8100 * PLIM_MIB);
    plim_oom_scan_fini(&scan);
}

static void a_pasted_dictionary_of_statistics_adds_facts(void **state)
{
    (void)state;
    struct plim_oom_scan scan =
        scan_z("RuntimeError: CUDA out of memory.\n"
               "OrderedDict([('allocated_bytes.all.current', 1113587712), ('num_ooms', 2),\n"
               "{\"reserved_bytes.all.current\": 13023313920, \"num_alloc_retries\": 5}\n");
    const struct plim_oom_facts *facts = &scan.events.items[0].facts;
    assert_int_equal(facts->field[PLIM_OOM_STAT_ALLOCATED].n, 1113587712);
    assert_int_equal(facts->field[PLIM_OOM_STAT_RESERVED].n, 13023313920);
    assert_int_equal(facts->field[PLIM_OOM_STAT_OOMS].n, 2);
    assert_int_equal(facts->field[PLIM_OOM_STAT_RETRIES].n, 5);
    plim_oom_scan_fini(&scan);
}

static enum plim_status scan_body(void *arg)
{
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, plim_str_from(arg));
    struct plim_oom_scan scan;
    enum plim_status st = plim_oom_scan(&source, &scan, NULL);
    plim_oom_scan_fini(&scan);
    return st;
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static char text[] = "x\n" OOM("2.50 GiB", "20.00 GiB", "100.00 MiB") "\n";
    assert_true(fail_alloc_sweep(scan_body, text, 100, false) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_with_their_units_and_precision),
        cmocka_unit_test(patterns_capture_fields_and_skip_what_may_be_missing),
        cmocka_unit_test(a_leading_field_is_read_backwards_from_the_anchor),
        cmocka_unit_test(line_start_and_end_are_respected),
        cmocka_unit_test(a_hostile_text_cannot_make_a_match_expensive),
        cmocka_unit_test(every_row_of_the_table_is_well_formed),
        cmocka_unit_test(the_search_finds_an_anchor_at_every_place),
        cmocka_unit_test(cleaning_takes_out_what_terminals_and_collectors_put_in),
        cmocka_unit_test(prefixes_give_time_rank_and_process),
        cmocka_unit_test(time_stamps_are_counted_in_milliseconds),
        cmocka_unit_test(the_size_of_reads_does_not_matter),
        cmocka_unit_test(a_message_is_found_wherever_a_large_log_is_cut_into_buffers),
        cmocka_unit_test(a_message_inside_a_line_of_megabytes_is_found),
        cmocka_unit_test(nuls_in_front_of_a_log_are_passed_over),
        cmocka_unit_test(utf16_text_is_read),
        cmocka_unit_test(a_reprint_of_the_same_failure_is_one_event),
        cmocka_unit_test(reports_of_several_ranks_are_one_event),
        cmocka_unit_test(a_later_failure_with_other_figures_is_another_event),
        cmocka_unit_test(more_failures_than_are_kept_are_counted),
        cmocka_unit_test(pasted_tables_add_facts),
        cmocka_unit_test(a_pasted_dictionary_of_statistics_adds_facts),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return PLIM_RUN_TESTS("oomtext", tests);
}
