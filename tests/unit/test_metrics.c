/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: every one of the table is written and documented, names keep the conventions, labels are
 * bounded, and the client's header decides the form. */

#include "fail_alloc.h"
#include "report/metrics.h"
#include "unit.h"

#include "base/file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct made {
    struct plim_observation now;
    struct plim_collect_stats stats;
    struct plim_finding finding[2];
    struct plim_estimate left;
    struct plim_health health;
    struct plim_state state;
    struct plim_buf out;
};

/* A state in which everything is known. */
static int make(void **state)
{
    struct made *m = calloc(1, sizeof(*m));
    struct plim_device_sample d = {.name = "card", .uuid = "GPU-1", .parent = PLIM_NO_PARENT};
    for (unsigned i = 0; i < PLIM_FIGURE_COUNT; i++) {
        plim_set_figure(&d, (enum plim_figure)i, i + 1);
    }
    plim_set_figure(&d, PLIM_FIGURE_USED, 30);
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, 100);
    assert_ok(plim_vec_push(&m->now.sample.devices, NULL, d));
    struct plim_process_use use = {.pid = 7, .bytes_valid = true, .bytes = 20, .counted = 20};
    struct plim_process_facts facts = {.pid = 7, .start_ticks = 1, .rss = 5, .name = "prog"};
    assert_ok(plim_vec_push(&m->now.sample.uses, NULL, use));
    assert_ok(plim_vec_push(&m->now.sample.processes, NULL, facts));
    struct plim_allocator_now a = {.pid = 7, .rank = 2, .valid = UINT64_MAX};
    a.figure[PLIM_ALLOCATOR_RESERVED] = 10;
    assert_ok(plim_vec_push(&m->now.allocators, NULL, a));
    struct plim_owner_now o = {.pid = 7, .owner = PLIM_OWNER_NCCL, .outside = true, .charged = 3};
    assert_ok(plim_vec_push(&m->now.owners, NULL, o));
    struct plim_engine_now e = {
        .name = "chat", .up = true, .valid = UINT64_MAX, .component_valid = UINT64_MAX};
    assert_ok(plim_vec_push(&m->now.engines, NULL, e));
    m->now.sample.time_ns = UINT64_C(1700000000123456789);
    m->now.sample.host_total = 64;
    m->left = (struct plim_estimate){true, 3600, 1800, 7200.5};
    m->finding[0] = (struct plim_finding){.active = true,
                                          .slope = m->left,
                                          .seconds_left = m->left,
                                          .subject = {.device_uuid = "GPU-1", .pid = 7}};
    m->finding[1] = m->finding[0]; /* the same again is no second row */
    m->stats.n_observers = 1;
    m->stats.observers[0].name = "driver";
    for (unsigned i = 0; i < PLIM_HEALTH_FIGURES; i++) {
        plim_health_set(&m->health, (enum plim_health_figure)i, 1);
    }
    m->state = (struct plim_state){.now = &m->now,
                                   .stats = &m->stats,
                                   .watched = true,
                                   .findings = m->finding,
                                   .n_findings = 2,
                                   .left = &m->left,
                                   .health = &m->health,
                                   .started_ns = 1,
                                   .version = "1.2.3",
                                   .host = "here"};
    *state = m;
    return 0;
}

static int drop(void **state)
{
    struct made *m = *state;
    plim_observation_fini(&m->now);
    plim_buf_fini(&m->out);
    free(m);
    return 0;
}

static const char *scrape(struct made *m, enum plim_metrics_form form)
{
    plim_buf_reset(&m->out);
    plim_metrics_write(&m->out, &m->state, form);
    assert_ok(plim_buf_status(&m->out, NULL));
    return m->out.p;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
        n++;
    }
    return n;
}

static void every_metric_of_the_table_is_written(void **state)
{
    static const char *const ends[] = {"", "_total", "_info"};
    struct made *m = *state;
    size_t n;
    const struct plim_metric *table = plim__metrics(&n);
    for (int form = 0; form < PLIM_METRICS_FORMS; form++) {
        const char *text = scrape(m, (enum plim_metrics_form)form);
        for (size_t i = 0; i < n; i++) {
            char row[128], head[128];
            bool open = form == PLIM_METRICS_OPENMETRICS;
            snprintf(row, sizeof(row), "\nplimsoll_%s%s%s", table[i].name, ends[table[i].type],
                     table[i].labels[0] != '\0' ? "{" : " ");
            snprintf(head, sizeof(head), "# TYPE plimsoll_%s%s ", table[i].name,
                     open ? "" : ends[table[i].type]);
            if (strstr(text, row) == NULL || count(text, head) != 1) {
                fail_msg("%s is not written once, with its labels, in form %d", row + 1, form);
            }
        }
    }
}

/* Labels that the table names are those that are written. */
static void labels_are_those_of_the_table(void **state)
{
    struct made *m = *state;
    size_t n;
    const struct plim_metric *table = plim__metrics(&n);
    char *text = strdup(scrape(m, PLIM_METRICS_TEXT)), *save;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        size_t length = strcspn(line, "{ "), i = 0;
        if (line[0] == '#' || line[length] != '{') {
            continue;
        }
        for (i = 0; i < n; i++) {
            size_t k = strlen(table[i].name);
            if (length >= 9 + k && memcmp(line + 9, table[i].name, k) == 0 &&
                (line[9 + k] == '{' || strncmp(line + 9 + k, "_total{", 7) == 0 ||
                 strncmp(line + 9 + k, "_info{", 6) == 0)) {
                break;
            }
        }
        assert_true(i < n);
        for (char *p = line + length; *p == '{' || *p == ',';) {
            char name[64];
            size_t k = strcspn(p + 1, "=");
            snprintf(name, sizeof(name), "%.*s", (int)k, p + 1);
            if (strstr(table[i].labels, name) == NULL) {
                fail_msg("%s has the label %s, which the table does not name", table[i].name, name);
            }
            p = strchr(p + k + 3, '"') + 1;
        }
    }
    free(text);
}

static void names_keep_the_conventions(void **state)
{
    (void)state;
    static const char *const kept[] = {"_total", "_info", "_created", "_bucket", "_count", "_sum"};
    size_t n;
    const struct plim_metric *table = plim__metrics(&n);
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(table[i].name);
        for (const char *p = table[i].name; *p != '\0'; p++) {
            assert_true(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '_');
        }
        for (size_t j = 0; j < PLIM_COUNT_OF(kept); j++) {
            size_t e = strlen(kept[j]);
            assert_false(k > e && strcmp(table[i].name + k - e, kept[j]) == 0);
        }
        assert_true(table[i].help[strlen(table[i].help) - 1] == '.');
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(table[i].name, table[j].name);
        }
    }
}

static void what_is_not_known_is_absent(void **state)
{
    struct made *m = *state;
    m->now.sample.devices.items[0].valid = 0;
    m->now.allocators.items[0].valid = 0;
    m->now.engines.items[0].valid = 0;
    m->now.sample.uses.items[0].bytes_valid = false;
    m->left.valid = false;
    m->state.health = NULL;
    const char *text = scrape(m, PLIM_METRICS_TEXT);
    assert_null(strstr(text, "plimsoll_device_memory"));
    assert_null(strstr(text, "plimsoll_allocator_allocated"));
    assert_null(strstr(text, "plimsoll_engine_requests"));
    assert_null(strstr(text, "plimsoll_process_memory_bytes"));
    assert_null(strstr(text, "plimsoll_device_full"));
    assert_null(strstr(text, "plimsoll_store"));
    assert_non_null(strstr(text, "plimsoll_device_up{uuid=\"GPU-1\"} 1\n"));
}

static void labels_are_escaped_cut_and_always_utf8(void **state)
{
    struct made *m = *state;
    struct plim_engine_now *e = &m->now.engines.items[0];
    snprintf(e->name, sizeof(e->name), "a\\b\"c\nd\xff\xc3\xa9\xed\xa0\x80");
    memset(e->model, 'm', sizeof(e->model));
    memcpy(e->model + 126, "\xc3", 1); /* cut in the middle of a character */
    e->model[127] = '\0';
    const char *text = scrape(m, PLIM_METRICS_TEXT);
    assert_non_null(strstr(text, "engine=\"a\\\\b\\\"c\\nd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"
                                 "\xef\xbf\xbd\xef\xbf\xbd\",kind=\"unknown\""));
    const char *model = strstr(text, "model=\"") + 7;
    assert_int_equal(strspn(model, "m"), 126);
    assert_true(strchr(model, '"') - model <= (long)PLIM_METRICS_LABEL);
}

static void a_metric_has_so_many_series_and_the_rest_is_counted(void **state)
{
    struct made *m = *state;
    struct plim_owner_now o = m->now.owners.items[0];
    for (uint32_t i = 1; i < PLIM_METRICS_ROWS + 5; i++) {
        o.ordinal = i;
        assert_ok(plim_vec_push(&m->now.owners, NULL, o));
    }
    const char *text = scrape(m, PLIM_METRICS_OPENMETRICS);
    assert_int_equal(count(text, "\nplimsoll_owner_memory_bytes{"), PLIM_METRICS_ROWS);
    assert_non_null(strstr(text, "\nplimsoll_series_dropped 15\n# EOF\n")); /* 5 of each of 3 */
}

static void numbers_are_exact(void **state)
{
    struct made *m = *state;
    plim_set_figure(&m->now.sample.devices.items[0], PLIM_FIGURE_TOTAL, UINT64_MAX);
    plim_set_figure(&m->now.sample.devices.items[0], PLIM_FIGURE_POWER, 412345);
    const char *text = scrape(m, PLIM_METRICS_TEXT);
    assert_non_null(strstr(text, "size_bytes{uuid=\"GPU-1\"} 18446744073709551615\n"));
    assert_non_null(strstr(text, "power_watts{uuid=\"GPU-1\"} 412.345\n"));
    assert_non_null(strstr(text, "sample_timestamp_seconds 1700000000.123456\n"));
    assert_non_null(strstr(text, "full_in_seconds{uuid=\"GPU-1\",bound=\"high\"} 7200.5\n"));
}

static void openmetrics_ends_and_names_families_without_suffix(void **state)
{
    struct made *m = *state;
    const char *text = scrape(m, PLIM_METRICS_OPENMETRICS);
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    assert_non_null(strstr(text, "# TYPE plimsoll_samples counter\nplimsoll_samples_total "));
    assert_non_null(strstr(text, "# TYPE plimsoll_device info\nplimsoll_device_info{"));
    assert_non_null(strstr(text, "# UNIT plimsoll_host_memory_size_bytes bytes\n"));
    text = scrape(m, PLIM_METRICS_TEXT);
    assert_null(strstr(text, "# EOF"));
    assert_non_null(strstr(text, "# TYPE plimsoll_samples_total counter\n"));
    assert_non_null(strstr(text, "# TYPE plimsoll_device_info gauge\n"));
}

static void the_header_decides_the_form(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool open;
    } cases[] = {
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
         true},
        {"text/plain;q=0.5, application/openmetrics-text; version=\"1.0.0\"; q=0.4", false},
        {"application/openmetrics-text;q=0.4,*/*;q=0.9", false},
        {"application/openmetrics-text;q=0.9,text/*;q=0.5", true},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;version=2.0.0", false},
        {"APPLICATION/OpenMetrics-Text;Q=1", true},
        {"application/openmetrics-text;q=1.5", false}, /* no weight */
        {"application/openmetrics-text;q=x,,;,", false},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        enum plim_metrics_form form = plim_metrics_choose(plim_str_from(cases[i].accept));
        if ((form == PLIM_METRICS_OPENMETRICS) != cases[i].open) {
            fail_msg("'%s' chose form %d", cases[i].accept, form);
        }
    }
}

/* Run with PLIMSOLL_REFRESH=1 to write the table anew. */
static void the_table_in_the_documentation_is_this_one(void **state)
{
    static const char path[] = PLIM_SOURCE_ROOT "/docs/metrics.md";
    static const char mark[] = "| metric | type | labels | meaning |\n";
    struct made *m = *state;
    struct plim_str file;
    plim_metrics_document(&m->out);
    assert_ok(plim_file_read(path, 1 << 20, &file, NULL));
    size_t at = plim_str_find(file, (struct plim_str){mark, sizeof(mark) - 1});
    assert_true(at != SIZE_MAX);
    if (getenv("PLIMSOLL_REFRESH") != NULL) {
        struct plim_buf fresh = {0};
        plim_buf_add(&fresh, (struct plim_str){file.p, at});
        plim_buf_add(&fresh, plim_buf_str(&m->out));
        assert_ok(plim_file_replace(path, plim_buf_str(&fresh), NULL));
        plim_buf_fini(&fresh);
    } else {
        assert_true(plim_str_eq(plim_str_skip(file, at), plim_buf_str(&m->out)));
    }
    free((void *)(uintptr_t)file.p);
}

static void a_lack_of_memory_is_told(void **state)
{
    struct made *m = *state;
    struct plim_buf out = {0};
    fail_alloc_at(2);
    plim_metrics_write(&out, &m->state, PLIM_METRICS_TEXT);
    fail_alloc_at(0);
    assert_int_equal(plim_buf_status(&out, NULL), PLIM_E_NOMEM);
    plim_buf_fini(&out);
}

#define METRICS_TEST(f) cmocka_unit_test_setup_teardown(f, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        METRICS_TEST(every_metric_of_the_table_is_written),
        METRICS_TEST(labels_are_those_of_the_table),
        METRICS_TEST(names_keep_the_conventions),
        METRICS_TEST(what_is_not_known_is_absent),
        METRICS_TEST(labels_are_escaped_cut_and_always_utf8),
        METRICS_TEST(a_metric_has_so_many_series_and_the_rest_is_counted),
        METRICS_TEST(numbers_are_exact),
        METRICS_TEST(openmetrics_ends_and_names_families_without_suffix),
        METRICS_TEST(the_header_decides_the_form),
        METRICS_TEST(the_table_in_the_documentation_is_this_one),
        METRICS_TEST(a_lack_of_memory_is_told),
    };
    return PLIM_RUN_TESTS("metrics", tests);
}
