/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/data/oom/messages.txt: each message gets the class it means; also behind a logger's prefix, in
 * colour with carriage returns, and broken at a terminal's width; and nothing breaks wherever it is
 * cut. Every failure row of the grammar table has a message.
 */

#include "diagnose/message.h"
#include "format/oomtext_internal.h"
#include "unit.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/num.h"

#include <stdio.h>

struct message_case {
    struct plim_str name, cls, sub, format, request, text;
};

static struct plim_str file;
static struct message_case cases[512];
static size_t cases_n;

/* The next field of a header line, up to '|' or the end. */
static struct plim_str field(struct plim_str *rest, const char *separator)
{
    size_t n = plim_str_find(*rest, plim_str_from(separator));
    struct plim_str out = {rest->p, n == SIZE_MAX ? rest->n : n};
    *rest = plim_str_skip(*rest, out.n + strlen(separator));
    return plim_str_trim(out);
}

static void parse_cases(void)
{
    struct plim_str rest = file;
    (void)field(&rest, "\n@@ ");
    while (rest.n > 0) {
        struct plim_str body = field(&rest, "\n@@ ");
        struct plim_str head = field(&body, "\n");
        struct message_case *c = &cases[cases_n++];
        assert_true(cases_n < PLIM_COUNT_OF(cases));
        c->name = field(&head, " | ");
        struct plim_str cls = field(&head, " | ");
        c->format = field(&head, " | ");
        c->request = field(&head, " | ");
        c->cls = field(&cls, "/");
        c->sub = cls;
        c->text = body;
    }
}

/* What a text came to. */
struct result {
    const char *cls, *sub, *format;
    uint64_t request;
    bool has_request;
};

static struct result explain(struct plim_str text)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, text);
    struct plim_oom_scan scan;
    struct plim_message message;
    struct result r = {0};
    assert_ok(plim_oom_scan(&source, &scan, NULL));
    assert_ok(plim_message_judge(&scan, &message, NULL));
    r.cls = plim_class_text(message.verdict.cls);
    r.sub = plim_subclass_text(message.verdict.subclass);
    r.format = "-";
    if (message.primary != SIZE_MAX) {
        const struct plim_oom_event *event = &scan.events.items[message.primary];
        r.format = event->format;
        r.request = event->facts.field[PLIM_OOM_REQUEST].n;
        r.has_request = event->facts.field[PLIM_OOM_REQUEST].set;
        assert_true(message.sets.items[message.primary].evidence.n > 0);
    }
    plim_message_fini(&message);
    plim_oom_scan_fini(&scan);
    return r;
}

static bool is(const char *z, struct plim_str s)
{
    return plim_str_eq(plim_str_from(z), s);
}

static void each_message_gets_the_class_it_means(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < cases_n; i++) {
        const struct message_case *c = &cases[i];
        struct result r = explain(c->text);
        bool request =
            is("-", c->request) || (r.has_request && strtoull(c->request.p, NULL, 10) == r.request);
        if (!is(r.cls, c->cls) || !(is("-", c->sub) || is(r.sub, c->sub)) ||
            !is(r.format, c->format) || !request) {
            print_message("# %.*s: %s/%s %s %llu\n", PLIM_STR_ARG(c->name), r.cls, r.sub, r.format,
                          (unsigned long long)r.request);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(cases_n > 200);
}

/* Every line of the text between `before` and `after`. */
static void decorate(struct plim_buf *out, struct plim_str text, const char *before,
                     const char *after)
{
    plim_buf_reset(out);
    while (text.n > 0) {
        size_t n = plim_str_find(text, PLIM_STR("\n"));
        n = n == SIZE_MAX ? text.n : n;
        plim_buf_text(out, before);
        plim_buf_add(out, (struct plim_str){text.p, n});
        plim_buf_text(out, after);
        text = plim_str_skip(text, n + 1);
    }
}

static void a_loggers_prefix_changes_nothing(void **state)
{
    (void)state;
    static const char *const prefixes[] = {
        "(Worker pid=7) ERROR 05-01 12:00:00 [x.py:1] ",
        "2026-05-01T12:00:00.123456789Z stderr F ",
        "trainer-1  | 2026-05-01 12:00:00,123 - ERROR - ",
        "[rank3]: ",
        "May  1 12:00:00 ",
        "E0501 12:00:00.123456 1234 file.cc:12] ",
    };
    struct plim_buf text = {0};
    unsigned wrong = 0;
    for (size_t i = 0; i < cases_n; i++) {
        for (size_t p = 0; p < PLIM_COUNT_OF(prefixes); p++) {
            decorate(&text, cases[i].text, prefixes[p], "\n");
            struct result r = explain(plim_buf_str(&text));
            if (!is(r.cls, cases[i].cls)) {
                print_message("# %.*s: %s behind '%s'\n", PLIM_STR_ARG(cases[i].name), r.cls,
                              prefixes[p]);
                wrong++;
            }
        }
    }
    plim_buf_fini(&text);
    assert_int_equal(wrong, 0);
}

static void colours_and_carriage_returns_change_nothing(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    unsigned wrong = 0;
    for (size_t i = 0; i < cases_n; i++) {
        decorate(&text, cases[i].text, "\033[1;31m", "\033[0m\r\n");
        struct result r = explain(plim_buf_str(&text));
        plim_buf_reset(&text);
        plim_buf_text(&text, "10%|#    | \r");
        plim_buf_add(&text, cases[i].text);
        struct result bar = explain(plim_buf_str(&text));
        if (!is(r.cls, cases[i].cls) || !is(bar.cls, cases[i].cls)) {
            print_message("# %.*s: %s, %s\n", PLIM_STR_ARG(cases[i].name), r.cls, bar.cls);
            wrong++;
        }
    }
    plim_buf_fini(&text);
    assert_int_equal(wrong, 0);
}

/* Break lines after `width` bytes, as a terminal does, or at the blank before, as a mailer does. */
static void wrap(struct plim_buf *out, struct plim_str text, size_t width, bool at_blanks)
{
    size_t column = 0;
    plim_buf_reset(out);
    for (size_t i = 0; i < text.n; i++) {
        plim_buf_char(out, text.p[i]);
        column = text.p[i] == '\n' ? 0 : column + 1;
        bool full = column >= width && (!at_blanks || text.p[i] == ' ');
        if (full && i + 1 < text.n && text.p[i + 1] != '\n') {
            plim_buf_char(out, '\n');
            column = 0;
        }
    }
}

static void pytorch_messages_survive_wrapping(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    unsigned wrong = 0;
    for (size_t i = 0; i < cases_n; i++) {
        bool one_line = plim_str_find(plim_str_trim(cases[i].text), PLIM_STR("\n")) == SIZE_MAX;
        if (!plim_str_starts(cases[i].format, PLIM_STR("torch-")) || !one_line) {
            continue;
        }
        for (size_t width = 70; width <= 130; width += 5) {
            wrap(&text, cases[i].text, width, false);
            struct result hard = explain(plim_buf_str(&text));
            wrap(&text, cases[i].text, width, true);
            struct result soft = explain(plim_buf_str(&text));
            if (!is(hard.cls, cases[i].cls) || !is(soft.cls, cases[i].cls)) {
                print_message("# %.*s: width %zu: %s, %s\n", PLIM_STR_ARG(cases[i].name), width,
                              hard.cls, soft.cls);
                wrong++;
            }
        }
    }
    plim_buf_fini(&text);
    assert_int_equal(wrong, 0);
}

static void a_cut_anywhere_breaks_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < cases_n; i++) {
        for (size_t n = i % 7; n < cases[i].text.n; n += 7) {
            struct result r = explain((struct plim_str){cases[i].text.p, n});
            assert_non_null(r.cls);
        }
    }
}

static void a_cut_message_never_turns_into_another_cause(void **state)
{
    (void)state;
    /* Cutting takes figures away: the answer may become weaker, but a card that is full with the
     * program's own data must not become somebody else's. */
    struct plim_str text = PLIM_STR(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14.75 "
        "GiB of which 5.06 MiB is free. Including non-PyTorch memory, this process has 14.74 "
        "GiB memory in use. Of the allocated memory 14.31 GiB is allocated by PyTorch, and "
        "71.50 MiB is reserved by PyTorch but unallocated.");
    for (size_t n = 0; n <= text.n; n++) {
        struct result r = explain((struct plim_str){text.p, n});
        assert_true(strcmp(r.cls, "capacity") == 0 || strcmp(r.cls, "unknown") == 0 ||
                    (n < 20 && strcmp(r.cls, "not_oom") == 0));
    }
}

static bool covered[1024];

static void cover(void *ctx, const struct plim_oom_row *row, const struct plim__oom_match *match)
{
    (void)match;
    covered[row - (const struct plim_oom_row *)ctx] = true;
}

static void every_failure_row_has_a_message(void **state)
{
    (void)state;
    size_t n;
    unsigned missing = 0;
    const struct plim_oom_row *rows = plim__oom_rows(&n);
    struct plim__oom_finder *finder = plim__oom_finder_new(1U << PLIM_OOM_FAILURE, 0);
    struct plim_buf text = {0};
    assert_non_null(finder);
    assert_true(n < PLIM_COUNT_OF(covered));
    for (size_t i = 0; i < cases_n; i++) {
        decorate(&text, cases[i].text, "\n", "\n");
        union {
            const struct plim_oom_row *row;
            void *ctx;
        } first = {rows};
        plim__oom_find_each(finder, plim_buf_str(&text), cover, first.ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i].role == PLIM_OOM_FAILURE && !covered[i]) {
            print_message("# no message for: %s\n", rows[i].pattern);
            missing++;
        }
    }
    plim_buf_fini(&text);
    plim__oom_finder_free(finder);
    assert_int_equal(missing, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_gets_the_class_it_means),
        cmocka_unit_test(a_loggers_prefix_changes_nothing),
        cmocka_unit_test(colours_and_carriage_returns_change_nothing),
        cmocka_unit_test(pytorch_messages_survive_wrapping),
        cmocka_unit_test(a_cut_anywhere_breaks_nothing),
        cmocka_unit_test(a_cut_message_never_turns_into_another_cause),
        cmocka_unit_test(every_failure_row_has_a_message),
    };
    struct plim_err err;
    if (argc != 2 || plim_file_read(argv[1], PLIM_MIB, &file, &err) != PLIM_OK) {
        fprintf(stderr, "usage: test_messages messages.txt\n");
        return 2;
    }
    parse_cases();
    int failed = PLIM_RUN_TESTS("messages", tests);
    free((void *)(uintptr_t)file.p);
    return failed;
}
