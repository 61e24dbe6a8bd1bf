/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes: nothing is lost in good times, the newest is kept in bad ones, and who measures never waits. */

#include "store/writer.h"
#include "store_disk.h"
#include "store_model.h"
#include "unit.h"

#include <sched.h>
#include <sqlite3.h>
#include <time.h>

static const struct plim_store_options options = {
    .figures = model_figures, .n_figures = MODEL_FIGURES, .vfs = "disk"};

static void send_seconds(struct plim_writer *writer, uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t < to; t++) {
        struct plim_batch *batch = plim_writer_batch(writer);
        assert_non_null(batch);
        model_batch(batch, 2, t);
        if (t % 10 == 0) {
            assert_ok(plim_batch_event(batch, batch->time_ns, "tenth", true, "{}", NULL));
        }
        plim_writer_send(writer);
    }
}

/* Wait for what the thread must come to; a minute is far more than it needs. */
static bool comes_to(struct plim_writer *writer, bool degraded, uint64_t waiting)
{
    struct plim_writer_state now;
    time_t begin = time(NULL);
    do {
        plim_writer_state(writer, &now);
        (void)sched_yield();
    } while ((now.degraded != degraded || now.waiting > waiting) && time(NULL) < begin + 60);
    return now.degraded == degraded && now.waiting <= waiting;
}

struct seen {
    uint64_t events, points, newest; /* newest: points of the last hundred seconds */
};

static bool see(void *self, const struct plim_store_event *event)
{
    (void)event;
    ((struct seen *)self)->events++;
    return true;
}

static struct seen look(uint64_t end)
{
    struct plim_store_options o = {.read_only = true};
    struct plim_store *store = NULL;
    struct plim_store_answer a = {0};
    struct seen seen = {0};
    struct plim_store_event_filter all = {.limit = 100000};
    struct plim_store_query q = {.subject = 1, .figure = "steady", .step_ns = NS};
    assert_ok(plim_store_open(model_path("h.db"), &o, &store, NULL));
    assert_ok(plim_store_query(store, &q, &a, NULL));
    plim_vec_foreach (bin, &a.bins) {
        seen.points += bin->n;
        seen.newest += bin->time_ns >= MODEL_START + (end - 100) * NS ? bin->n : 0;
    }
    assert_ok(plim_store_events(store, &all, see, &seen, NULL));
    plim_store_answer_fini(&a);
    plim_store_close(store);
    return seen;
}

static void everything_that_was_sent_is_there_after_the_end(void **state)
{
    (void)state;
    struct plim_writer *writer = NULL;
    disk_begin();
    model_folder();
    assert_ok(plim_writer_open(model_path("h.db"), &options, 0, &writer, NULL));
    send_seconds(writer, 0, 500);
    plim_writer_close(writer);
    struct seen seen = look(500);
    assert_int_equal(seen.points, 500);
    assert_int_equal(seen.events, 50);
    model_folder_remove();
}

static void while_the_disk_is_full_the_newest_stays_and_is_written_later(void **state)
{
    (void)state;
    struct plim_writer *writer = NULL;
    struct plim_writer_state now;
    uint64_t budget = 256 << 10;
    disk_begin();
    model_folder();
    assert_ok(plim_writer_open(model_path("h.db"), &options, budget, &writer, NULL));
    send_seconds(writer, 0, 100);
    assert_true(comes_to(writer, false, 0));
    disk.fail_code = SQLITE_FULL;
    disk.fail_for = UINT64_MAX;
    disk.fail_at = disk.operations;
    send_seconds(writer, 100, 101);
    assert_true(comes_to(writer, true, 1));
    for (uint64_t t = 101; t < 3000; t++) {
        send_seconds(writer, t, t + 1);
        plim_writer_state(writer, &now);
        assert_true(now.waiting_bytes <= budget + (16 << 10));
    }
    assert_true(now.degraded && now.lost > 0 && now.waiting > 100);
    assert_int_equal(now.store.fault, PLIM_STORE_FULL);
    disk.fail_at = UINT64_MAX;
    assert_true(comes_to(writer, false, 0));
    plim_writer_state(writer, &now);
    plim_writer_close(writer);
    struct seen seen = look(3000);
    assert_int_equal(seen.newest, 100);
    assert_true(seen.points < 3000 && seen.points > 200);
    assert_int_equal(seen.events, 300); /* events are not given up with their batches */
    model_folder_remove();
}

static void a_history_that_cannot_be_opened_is_opened_later(void **state)
{
    (void)state;
    struct plim_writer *writer = NULL;
    disk_begin();
    model_folder();
    disk.fail_code = SQLITE_FULL;
    disk.fail_for = UINT64_MAX;
    disk.fail_at = 0;
    assert_ok(plim_writer_open(model_path("h.db"), &options, 0, &writer, NULL));
    send_seconds(writer, 0, 50);
    assert_true(comes_to(writer, true, 50));
    disk.fail_at = UINT64_MAX;
    assert_true(comes_to(writer, false, 0));
    plim_writer_close(writer);
    assert_int_equal(look(150).points, 50);
    model_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_that_was_sent_is_there_after_the_end),
        cmocka_unit_test(while_the_disk_is_full_the_newest_stays_and_is_written_later),
        cmocka_unit_test(a_history_that_cannot_be_opened_is_opened_later),
    };
    return PLIM_RUN_TESTS("store writer", tests);
}
