/* SPDX-License-Identifier: Apache-2.0 */
/* The history as its callers see it, against a world whose every value can be computed. */

#include "store/store.h"
#include "store_disk.h"
#include "store_model.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SUBJECTS 3u

static const struct plim_store_level levels[] = {
    {NS, 7200 * NS * 2}, {10 * NS, 86400 * NS}, {60 * NS, 10 * 86400 * NS}};

static struct plim_store_options options(void)
{
    return (struct plim_store_options){.figures = model_figures,
                                       .n_figures = MODEL_FIGURES,
                                       .levels = levels,
                                       .vfs = "disk",
                                       .n_levels = 3};
}

static struct plim_store *open_store(bool read_only)
{
    struct plim_err err = {0};
    struct plim_store *store = NULL;
    struct plim_store_options o = options();
    o.read_only = read_only;
    if (plim_store_open(model_path("h.db"), &o, &store, &err) != PLIM_OK) {
        fail_msg("%s", err.message);
    }
    return store;
}

static void fill(struct plim_store *store, uint64_t from, uint64_t to)
{
    struct plim_batch batch = {0};
    struct plim_err err = {0};
    for (uint64_t t = from; t < to; t++) {
        model_batch(&batch, SUBJECTS, t);
        if (plim_store_put(store, &batch, &err) != PLIM_OK) {
            fail_msg("second %llu: %s", (unsigned long long)t, err.message);
        }
    }
    plim_batch_fini(&batch);
}

static uint64_t subject_of(struct plim_store *store, const char *key)
{
    struct plim_arena arena;
    struct plim_store_subjects subjects = {0};
    uint64_t id = 0;
    plim_arena_init(&arena, 0);
    assert_int_equal(plim_store_subjects(store, 0, 0, &arena, &subjects, NULL), PLIM_OK);
    plim_vec_foreach (s, &subjects.list) {
        if (strcmp(s->key, key) == 0) {
            id = s->id;
        }
    }
    plim_vec_fini(&subjects.list);
    plim_arena_fini(&arena);
    return id;
}

/* What the answer's bin must be: all values of [t, t + step). */
static void check_bin(const struct plim_store_bin *bin, unsigned s, unsigned f, uint64_t step,
                      uint64_t end)
{
    double min = INFINITY, max = -INFINITY, sum = 0, last = 0;
    uint64_t n = 0, begin = (bin->time_ns - MODEL_START) / NS;
    for (uint64_t t = begin; t < begin + step && t < end; t++) {
        double v = model_value(s, f, t);
        if (!isnan(v)) {
            min = fmin(min, v);
            max = fmax(max, v);
            sum += v;
            last = v;
            n++;
        }
    }
    assert_int_equal(bin->n, n);
    assert_true(bin->min == min && bin->max == max && bin->last == last);
    assert_true(fabs(bin->mean - sum / (double)n) <= 1e-9 * (fabs(bin->mean) + 1));
}

static size_t check_all(struct plim_store *store, uint64_t from, uint64_t to, uint32_t points,
                        uint64_t end)
{
    size_t bins = 0;
    for (unsigned s = 0; s < SUBJECTS; s++) {
        char key[16];
        snprintf(key, sizeof(key), "s%u", s);
        uint64_t id = subject_of(store, key);
        for (unsigned f = 0; f < MODEL_FIGURES; f++) {
            struct plim_store_answer a = {0};
            struct plim_store_query q = {.subject = id,
                                         .figure = model_figures[f],
                                         .from_ns = MODEL_START + from * NS,
                                         .to_ns = MODEL_START + to * NS,
                                         .max_points = points};
            assert_int_equal(plim_store_query(store, &q, &a, NULL), PLIM_OK);
            assert_true(a.bins.n <= points + 1);
            for (size_t i = 0; i < a.bins.n; i++) {
                assert_true(i == 0 ||
                            a.bins.items[i].time_ns >= a.bins.items[i - 1].time_ns + a.step_ns);
                check_bin(&a.bins.items[i], s, f, a.step_ns / NS, end);
            }
            bins += a.bins.n;
            plim_store_answer_fini(&a);
        }
    }
    return bins;
}

static void every_bin_is_what_was_put(void **state)
{
    (void)state;
    model_folder();
    struct plim_store *store = open_store(false);
    fill(store, 0, 5000);
    assert_true(check_all(store, 0, 5000, 10000, 5000) > 4 * 5000);
    assert_true(check_all(store, 0, 5000, 100, 5000) > 4 * 80);
    assert_true(check_all(store, 4000, 4700, 1000, 5000) > 4 * 600);
    plim_store_close(store);
    model_folder_remove();
}

static void history_goes_on_after_a_restart_as_if_nothing_was(void **state)
{
    (void)state;
    model_folder();
    for (uint64_t t = 0; t < 1500; t += 100) {
        struct plim_store *store = open_store(false);
        fill(store, t, t + 100);
        plim_store_close(store);
    }
    struct plim_store *reader = open_store(true);
    assert_true(check_all(reader, 0, 1500, 2000, 1500) > 4 * 1500);
    plim_store_close(reader);
    model_folder_remove();
}

static void a_reader_follows_while_the_writer_writes(void **state)
{
    (void)state;
    model_folder();
    struct plim_store *writer = open_store(false);
    fill(writer, 0, 10);
    struct plim_store *reader = open_store(true);
    for (uint64_t t = 10; t < 1200; t += 70) {
        fill(writer, t, t + 70);
        assert_true(check_all(reader, t, t + 70, 1000, t + 70) >= 3 * 3 * 70);
    }
    plim_store_close(writer);
    plim_store_close(reader);
    model_folder_remove();
}

static void old_history_is_coarser_and_then_gone(void **state)
{
    (void)state;
    model_folder();
    struct plim_store *store = open_store(false);
    fill(store, 0, 30000);
    struct plim_store_state now;
    plim_store_state(store, &now);
    assert_true(now.level_from_ns[0] > MODEL_START + (30000 - 14400 - 800) * NS);
    assert_true(now.level_from_ns[1] < MODEL_START + 3600 * NS);
    assert_true(now.level_from_ns[2] < MODEL_START + 21600 * NS);
    struct plim_store_answer a = {0};
    struct plim_store_query q = {.subject = subject_of(store, "s0"),
                                 .figure = "used",
                                 .from_ns = MODEL_START,
                                 .to_ns = MODEL_START + 3000 * NS,
                                 .step_ns = NS};
    assert_int_equal(plim_store_query(store, &q, &a, NULL), PLIM_OK);
    assert_int_equal(a.step_ns, NS);
    assert_in_range(a.bins.n, 290, 301);
    assert_true(a.complete_from_ns > MODEL_START + 10000 * NS);
    for (size_t i = 1; i + 1 < a.bins.n; i++) {
        check_bin(&a.bins.items[i], 0, 0, 10, 30000);
    }
    plim_store_answer_fini(&a);
    assert_true(check_all(store, 0, 30000, 300, 30000) > 4 * 250);
    plim_store_close(store);
    model_folder_remove();
}

/* ---- clocks ---- */

static void put_at(struct plim_store *store, uint64_t wall, uint64_t mono, double value)
{
    struct plim_batch batch = {0};
    plim_batch_reset(&batch, wall, mono);
    assert_ok(plim_batch_subject(&batch, "thing", "s0", "{}", NULL));
    assert_ok(plim_batch_point(&batch, 0, value, NULL));
    assert_ok(plim_store_put(store, &batch, NULL));
    plim_batch_fini(&batch);
}

static uint64_t count_points(struct plim_store *store, uint64_t from, uint64_t to, double *last)
{
    struct plim_store_answer a = {0};
    struct plim_store_query q = {.subject = subject_of(store, "s0"),
                                 .figure = "used",
                                 .from_ns = from,
                                 .to_ns = to,
                                 .step_ns = NS};
    uint64_t n = 0;
    assert_ok(plim_store_query(store, &q, &a, NULL));
    plim_vec_foreach (bin, &a.bins) {
        n += bin->n;
        *last = bin->last;
    }
    plim_store_answer_fini(&a);
    return n;
}

static void a_clock_that_is_set_back_an_hour_has_that_hour_twice(void **state)
{
    (void)state;
    double last = 0;
    model_folder();
    struct plim_store *store = open_store(false);
    for (uint64_t t = 0; t < 4000; t++) {
        put_at(store, MODEL_START + t * NS, (1000 + t) * NS, (double)t);
    }
    for (uint64_t t = 4000; t < 8000; t++) { /* set back an hour */
        put_at(store, MODEL_START + (t - 3600) * NS, (1000 + t) * NS, (double)t);
    }
    assert_int_equal(count_points(store, MODEL_START, MODEL_START + 8000 * NS, &last), 8000);
    assert_int_equal(count_points(store, MODEL_START + 1000 * NS, MODEL_START + 1010 * NS, &last),
                     20);
    assert_true(last == 4609); /* the later of the two */
    plim_store_close(store);
    store = open_store(true);
    assert_int_equal(count_points(store, MODEL_START, MODEL_START + 8000 * NS, &last), 8000);
    plim_store_close(store);
    model_folder_remove();
}

static void a_clock_that_jumps_years_ahead_makes_nothing_old(void **state)
{
    (void)state;
    double last = 0;
    struct plim_store_state now;
    model_folder();
    struct plim_store *store = open_store(false);
    uint64_t years = UINT64_C(11) * 365 * 86400 * NS, t;
    for (t = 0; t < 1000; t++) {
        put_at(store, MODEL_START + t * NS, (1000 + t) * NS, (double)t);
    }
    for (; t < 1100; t++) {
        put_at(store, MODEL_START + years + t * NS, (1000 + t) * NS, (double)t);
    }
    for (; t < 3000; t++) {
        put_at(store, MODEL_START + t * NS, (1000 + t) * NS, (double)t);
    }
    assert_int_equal(count_points(store, MODEL_START, MODEL_START + 3000 * NS, &last), 2900);
    assert_int_equal(
        count_points(store, MODEL_START + years, MODEL_START + years + 2000 * NS, &last), 100);
    plim_store_state(store, &now);
    assert_true(now.first_ns < MODEL_START + 1000 * NS);
    plim_store_close(store);
    model_folder_remove();
}

static void a_small_step_back_keeps_the_order_and_loses_nothing(void **state)
{
    (void)state;
    double last = 0;
    model_folder();
    struct plim_store *store = open_store(false);
    for (uint64_t t = 0; t < 100; t++) {
        put_at(store, MODEL_START + (t < 50 ? t : t - 5) * NS, (1000 + t) * NS, (double)t);
    }
    assert_int_equal(count_points(store, MODEL_START, MODEL_START + 200 * NS, &last), 100);
    assert_true(last == 99);
    plim_store_close(store);
    model_folder_remove();
}

static void a_restart_with_the_clock_behind_goes_on_after_what_is_there(void **state)
{
    (void)state;
    double last = 0;
    model_folder();
    struct plim_store *store = open_store(false);
    for (uint64_t t = 5000; t < 5100; t++) {
        put_at(store, MODEL_START + t * NS, t * NS, (double)t);
    }
    plim_store_close(store);
    store = open_store(false);
    for (uint64_t t = 0; t < 100; t++) {
        put_at(store, MODEL_START + t * NS, (1 + t) * NS, (double)t);
    }
    assert_int_equal(count_points(store, MODEL_START, MODEL_START + 100 * NS, &last), 100);
    assert_int_equal(count_points(store, MODEL_START, 0, &last), 200);
    assert_true(last == 5099);
    plim_store_close(store);
    model_folder_remove();
}

static void batches_faster_than_times_are_kept_are_left_out(void **state)
{
    (void)state;
    double last = 0;
    struct plim_store_state now;
    model_folder();
    struct plim_store *store = open_store(false);
    for (uint64_t t = 0; t < 1000; t++) { /* every 10 ms; times are kept to 100 ms */
        put_at(store, MODEL_START + t * (NS / 100), 1000 * NS + t * (NS / 100), (double)t);
    }
    uint64_t n = count_points(store, MODEL_START, MODEL_START + 60 * NS, &last);
    plim_store_state(store, &now);
    assert_in_range(n, 90, 210);
    assert_int_equal(n + now.skipped, 1000);
    assert_true(now.last_ns <= MODEL_START + 11 * NS);
    plim_store_close(store);
    model_folder_remove();
}

/* ---- bounds ---- */

static void the_file_stays_within_its_size_and_the_newest_stays(void **state)
{
    (void)state;
    struct plim_batch batch = {0};
    struct plim_store_options o = options();
    struct plim_store *store = NULL;
    struct plim_store_state now;
    uint64_t most = 0;
    model_folder();
    o.max_bytes = PLIM_STORE_MIN_BYTES;
    assert_ok(plim_store_open(model_path("h.db"), &o, &store, NULL));
    for (uint64_t t = 0; t < 20000; t++) {
        struct plim_err err = {0};
        model_batch(&batch, 80, t);
        if (plim_store_put(store, &batch, &err) != PLIM_OK) {
            fail_msg("second %llu: %s", (unsigned long long)t, err.message);
        }
        plim_store_counts(store, &now);
        most = now.bytes > most ? now.bytes : most;
    }
    assert_in_range(most, PLIM_STORE_MIN_BYTES / 2, PLIM_STORE_MIN_BYTES);
    plim_store_state(store, &now);
    assert_true(now.level_from_ns[0] > MODEL_START + 6000 * NS);  /* fine goes first */
    assert_true(now.level_from_ns[1] < MODEL_START + 12000 * NS); /* coarse stays */
    assert_true(check_all(store, 19000, 20000, 2000, 20000) > 3 * 3 * 990);
    assert_true(check_all(store, 0, 20000, 200, 20000) > 3 * 3 * 150);
    plim_batch_fini(&batch);
    plim_store_close(store);
    model_folder_remove();
}

static void thousands_of_short_lived_subjects_leave_no_trace_but_the_longest_lived(void **state)
{
    (void)state;
    struct plim_batch batch = {0};
    struct plim_store_options o = options();
    struct plim_store *store = NULL;
    struct plim_store_state now;
    struct plim_arena arena;
    struct plim_store_subjects subjects = {0};
    model_folder();
    plim_arena_init(&arena, 0);
    o.max_subjects = 50;
    assert_ok(plim_store_open(model_path("h.db"), &o, &store, NULL));
    for (uint64_t t = 0; t < 2 * 86400; t += 5) {
        model_batch(&batch, 2, t);
        char key[32];
        snprintf(key, sizeof(key), "short%llu", (unsigned long long)t / 20);
        assert_ok(plim_batch_subject(&batch, "process", key, "{}", NULL));
        assert_ok(plim_batch_point(&batch, 0, (double)t, NULL));
        assert_ok(plim_store_put(store, &batch, NULL));
    }
    plim_store_state(store, &now);
    assert_true(now.crowded > 1000);
    assert_ok(plim_store_subjects(store, 0, 0, &arena, &subjects, NULL));
    assert_in_range(subjects.list.n, 100,
                    7000); /* of 8640: those of the last day, and 50 of each span before */
    uint64_t id = subject_of(store, "s0");
    assert_int_not_equal(id, 0);
    plim_vec_fini(&subjects.list);
    plim_arena_fini(&arena);
    plim_batch_fini(&batch);
    plim_store_close(store);
    model_folder_remove();
}

/* ---- events ---- */

struct seen {
    size_t n;
    char kinds[200];
};

static bool see(void *self, const struct plim_store_event *event)
{
    struct seen *seen = self;
    seen->n++;
    strncat(seen->kinds, event->kind, sizeof(seen->kinds) - strlen(seen->kinds) - 2);
    strcat(seen->kinds, event->subject != 0 ? "+ " : " ");
    return true;
}

static void events_come_in_the_order_of_time_and_by_kind_and_subject(void **state)
{
    (void)state;
    struct plim_batch batch = {0};
    struct seen seen = {0};
    model_folder();
    struct plim_store *store = open_store(false);
    for (uint64_t t = 0; t < 3; t++) {
        plim_batch_reset(&batch, MODEL_START + t * NS, (t + 1) * NS);
        assert_ok(plim_batch_event(&batch, batch.time_ns, "deployed", false, "{}", NULL));
        assert_ok(plim_batch_subject(&batch, "thing", "s0", "{}", NULL));
        assert_ok(plim_batch_event(&batch, batch.time_ns, "oom", true, "{\"n\":1}", NULL));
        assert_ok(plim_store_put(store, &batch, NULL));
    }
    struct plim_store_event_filter all = {0};
    assert_ok(plim_store_events(store, &all, see, &seen, NULL));
    assert_int_equal(seen.n, 6);
    struct plim_store_event_filter some = {.kind = "oom", .from_ns = MODEL_START + NS};
    seen = (struct seen){0};
    assert_ok(plim_store_events(store, &some, see, &seen, NULL));
    assert_string_equal(seen.kinds, "oom+ oom+ ");
    struct plim_store_event_filter newest = {.limit = 1};
    seen = (struct seen){0};
    assert_ok(plim_store_events(store, &newest, see, &seen, NULL));
    assert_int_equal(seen.n, 1);
    plim_batch_fini(&batch);
    plim_store_close(store);
    model_folder_remove();
}

static void figures_of_a_subject_are_listed(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_store_names names = {0};
    model_folder();
    plim_arena_init(&arena, 0);
    struct plim_store *store = open_store(false);
    fill(store, 0, 800);
    assert_ok(plim_store_figures(store, subject_of(store, "s1"), 0, 0, &arena, &names, NULL));
    assert_int_equal(names.list.n, MODEL_FIGURES);
    plim_vec_fini(&names.list);
    plim_arena_fini(&arena);
    plim_store_close(store);
    model_folder_remove();
}

static void a_subject_that_came_and_went_in_between_is_found_with_its_figures(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_batch batch = {0};
    struct plim_store_names names = {0};
    struct plim_store_answer a = {0};
    model_folder();
    plim_arena_init(&arena, 0);
    struct plim_store *store = open_store(false);
    for (uint64_t t = 0; t < 30000; t++) {
        model_batch(&batch, 1, t);
        if (t >= 3000 && t < 3100) {
            assert_ok(plim_batch_subject(&batch, "process", "guest", "{}", NULL));
            assert_ok(plim_batch_point(&batch, 1, (double)t, NULL));
        }
        assert_ok(plim_store_put(store, &batch, NULL));
    }
    struct plim_store_query q = {.subject = subject_of(store, "guest"), .figure = "steady"};
    assert_ok(plim_store_figures(store, q.subject, 0, 0, &arena, &names, NULL));
    assert_int_equal(names.list.n, 1);
    assert_ok(plim_store_query(store, &q, &a, NULL));
    uint64_t points = 0;
    plim_vec_foreach (bin, &a.bins) {
        points += bin->n;
    }
    assert_int_equal(points, 100);
    plim_store_answer_fini(&a);
    plim_vec_fini(&names.list);
    plim_arena_fini(&arena);
    plim_batch_fini(&batch);
    plim_store_close(store);
    model_folder_remove();
}

/* ---- files of earlier versions ---- */

#define FIXTURE_SECONDS 1000u

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0) {
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    }
    assert_int_equal(fclose(in), 0);
    assert_int_equal(fclose(out), 0);
}

/* tests/data/history/version-N.db was made by the program of its time: PLIMSOLL_FIXTURE=FILE makes one of this version. */
static void files_of_every_earlier_version_are_read_and_written_on(void **state)
{
    (void)state;
    static const char *const files[] = {"version-1.db"};
    for (size_t i = 0; i < PLIM_COUNT_OF(files); i++) {
        char from[600];
        snprintf(from, sizeof(from), PLIM_SOURCE_ROOT "/tests/data/history/%s", files[i]);
        model_folder();
        copy_file(from, model_path("h.db"));
        struct plim_store *store = open_store(false);
        assert_true(check_all(store, 0, FIXTURE_SECONDS, 2000, FIXTURE_SECONDS) >
                    9 * FIXTURE_SECONDS);
        fill(store, FIXTURE_SECONDS, FIXTURE_SECONDS + 800);
        assert_true(check_all(store, 0, 1800, 2000, 1800) > 9 * 1800);
        plim_store_close(store);
        model_folder_remove();
    }
}

static void write_fixture(const char *path)
{
    model_folder();
    struct plim_store *store = open_store(false);
    fill(store, 0, FIXTURE_SECONDS);
    plim_store_close(store); /* takes the log into the file */
    copy_file(model_path("h.db"), path);
    model_folder_remove();
}

static void impossible_levels_are_refused(void **state)
{
    (void)state;
    static const struct plim_store_level backwards[] = {{10 * NS, 86400 * NS}, {NS, 86400 * NS}};
    static const struct plim_store_level uneven[] = {{2 * NS, 86400 * NS}, {3 * NS, 86400 * NS}};
    static const struct plim_store_level brief[] = {{NS, 60 * NS}, {10 * NS, 86400 * NS}};
    assert_int_equal(plim_store_levels_check(backwards, 2, NULL), PLIM_E_USAGE);
    assert_int_equal(plim_store_levels_check(uneven, 2, NULL), PLIM_E_USAGE);
    assert_int_equal(plim_store_levels_check(brief, 2, NULL), PLIM_E_USAGE);
    assert_ok(plim_store_levels_check(levels, 3, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bin_is_what_was_put),
        cmocka_unit_test(history_goes_on_after_a_restart_as_if_nothing_was),
        cmocka_unit_test(a_reader_follows_while_the_writer_writes),
        cmocka_unit_test(old_history_is_coarser_and_then_gone),
        cmocka_unit_test(a_clock_that_is_set_back_an_hour_has_that_hour_twice),
        cmocka_unit_test(a_clock_that_jumps_years_ahead_makes_nothing_old),
        cmocka_unit_test(a_small_step_back_keeps_the_order_and_loses_nothing),
        cmocka_unit_test(a_restart_with_the_clock_behind_goes_on_after_what_is_there),
        cmocka_unit_test(batches_faster_than_times_are_kept_are_left_out),
        cmocka_unit_test(the_file_stays_within_its_size_and_the_newest_stays),
        cmocka_unit_test(thousands_of_short_lived_subjects_leave_no_trace_but_the_longest_lived),
        cmocka_unit_test(events_come_in_the_order_of_time_and_by_kind_and_subject),
        cmocka_unit_test(figures_of_a_subject_are_listed),
        cmocka_unit_test(a_subject_that_came_and_went_in_between_is_found_with_its_figures),
        cmocka_unit_test(files_of_every_earlier_version_are_read_and_written_on),
        cmocka_unit_test(impossible_levels_are_refused),
    };
    disk_begin();
    if (getenv("PLIMSOLL_FIXTURE") != NULL) {
        write_fixture(getenv("PLIMSOLL_FIXTURE"));
        return 0;
    }
    return PLIM_RUN_TESTS("store", tests);
}
