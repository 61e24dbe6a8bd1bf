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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bin_is_what_was_put),
        cmocka_unit_test(history_goes_on_after_a_restart_as_if_nothing_was),
        cmocka_unit_test(a_reader_follows_while_the_writer_writes),
        cmocka_unit_test(old_history_is_coarser_and_then_gone),
    };
    disk_begin();
    return PLIM_RUN_TESTS("store", tests);
}
