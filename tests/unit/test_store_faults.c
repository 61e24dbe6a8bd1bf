/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The history when things go wrong: a disk that fails at any operation, power cuts, bytes that flip, files that are not
 * a history, clocks that are set, two writers. After each of these the file opens, what was committed is there, and
 * what is answered was put in.
 */

#include "store/store.h"
#include "store_disk.h"
#include "store_model.h"
#include "unit.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUBJECTS 2u

static const struct plim_store_level levels[] = {
    {NS, 7200 * NS * 2}, {10 * NS, 86400 * NS}, {60 * NS, 10 * 86400 * NS}};

static struct plim_store_options options(const char *vfs)
{
    return (struct plim_store_options){.figures = model_figures,
                                       .n_figures = MODEL_FIGURES,
                                       .levels = levels,
                                       .n_levels = 3,
                                       .vfs = vfs};
}

static enum plim_status open_at(const char *path, bool read_only, const char *vfs,
                                struct plim_store **store, struct plim_err *err)
{
    struct plim_store_options o = options(vfs);
    o.read_only = read_only;
    return plim_store_open(path, &o, store, err);
}

static enum plim_status put(struct plim_store *store, uint64_t t)
{
    struct plim_batch batch = {0};
    model_batch(&batch, SUBJECTS, t);
    enum plim_status st = plim_store_put(store, &batch, NULL);
    plim_batch_fini(&batch);
    return st;
}

/* Seconds of subject s0's figure "used" in the history, each checked against the model. At most the finest
 * bins of the last four hours are counted one by one; others must hold what they say. */
static uint64_t check(struct plim_store *store, uint64_t end)
{
    struct plim_arena arena;
    struct plim_store_subjects subjects = {0};
    uint64_t points = 0;
    plim_arena_init(&arena, 0);
    assert_ok(plim_store_subjects(store, 0, 0, &arena, &subjects, NULL));
    for (size_t i = 0; i < subjects.list.n; i++) {
        unsigned s = (unsigned)atoi(subjects.list.items[i].key + 1);
        struct plim_store_answer a = {0};
        struct plim_store_query q = {.subject = subjects.list.items[i].id,
                                     .figure = "used",
                                     .from_ns = MODEL_START - 60 * NS, /* the bin that it is in */
                                     .to_ns = MODEL_START + (end + 10) * NS,
                                     .step_ns = NS};
        assert_ok(plim_store_query(store, &q, &a, NULL));
        points = 0;
        plim_vec_foreach (bin, &a.bins) {
            points += bin->n;
            if (bin->n == 1) {
                uint64_t t = (bin->time_ns - MODEL_START) / NS;
                assert_true(bin->last == model_value(s, 0, t) && bin->min == bin->max);
            }
        }
        plim_store_answer_fini(&a);
    }
    plim_vec_fini(&subjects.list);
    plim_arena_fini(&arena);
    return points;
}

/* ---- a disk that fails ---- */

/* Put 760 seconds (two spans and a bit) while the disk fails from operation `at` on for `n`: every batch that was said to
 * be kept is there at the end. */
static bool survive(uint64_t at, uint64_t n, int code)
{
    struct plim_store *store = NULL;
    uint64_t kept = 0, tried = 0;
    disk_begin();
    model_folder();
    disk.fail_at = at;
    disk.fail_for = n;
    disk.fail_code = code;
    for (uint64_t t = 0; t < 760; t++) {
        if (store == NULL && open_at(model_path("h.db"), false, "disk", &store, NULL) != PLIM_OK) {
            store = NULL;
            continue;
        }
        tried++;
        kept += put(store, t) == PLIM_OK;
    }
    bool failed = disk.operations > at;
    assert_non_null(store);
    assert_int_equal(check(store, 760), kept);
    assert_true(kept + 3 * n + 3 >= tried);
    plim_store_close(store);
    assert_ok(open_at(model_path("h.db"), true, "disk", &store, NULL));
    assert_int_equal(check(store, 760), kept);
    plim_store_close(store);
    model_folder_remove();
    return failed;
}

static void every_write_and_sync_may_fail_once(void **state)
{
    (void)state;
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC};
    uint64_t at = 0;
    uint64_t step = getenv("PLIMSOLL_EXHAUSTIVE") != NULL ? 1 : 37;
    while (survive(at, 1, codes[at % 3])) {
        at += at < 100 ? 1 : step;
    }
    assert_true(at > 700);
}

static void a_disk_that_is_full_for_a_while_loses_that_while(void **state)
{
    (void)state;
    for (uint64_t at = 10; at < 1500; at += 370) {
        assert_true(survive(at, 40, SQLITE_FULL));
    }
}

/* ---- power cuts ---- */

static uint64_t runs(uint64_t otherwise)
{
    const char *said = getenv("PLIMSOLL_CUTS");
    return said != NULL ? strtoull(said, NULL, 10) : otherwise;
}

/* What a cut left behind: it opens, holds all but the last of `full` seconds, and can be written on. */
static uint64_t look_after_cut(const char *folder, uint64_t t)
{
    char path[400];
    struct plim_store *after = NULL;
    struct plim_err err = {0};
    struct plim_store_state now;
    snprintf(path, sizeof(path), "%s/h.db", folder);
    if (open_at(path, false, "disk", &after, &err) != PLIM_OK) {
        fail_msg("second %llu: %s", (unsigned long long)t, err.message);
    }
    plim_store_state(after, &now);
    assert_int_equal(now.set_aside, 0);
    uint64_t points = check(after, t + 1);
    assert_in_range(points, t, t + 1);
    assert_ok(put(after, t + 5));
    plim_store_close(after);
    return t + 1 - points;
}

static void after_a_power_cut_at_most_the_last_second_is_missing(void **state)
{
    (void)state;
    char folder[300], path[400];
    uint64_t cuts = 0, most = runs(300), lost = 0;
    static const char *const names[] = {"h.db", "h.db-wal", "h.db-shm", "h.db.lock"};
    struct plim_store *store = NULL;
    disk_begin();
    disk.remember = true;
    snprintf(folder, sizeof(folder), "%s.cut", model_folder());
    assert_int_equal(mkdir(folder, 0700), 0);
    disk.cut_folder = folder;
    disk.cut_name = "h.db";
    assert_ok(open_at(model_path("h.db"), false, "disk", &store, NULL));
    for (uint64_t t = 0, per_put = 0; cuts < most; t++) {
        uint64_t random = plim_hash_u64(t), before = disk.operations;
        bool packs = t % 360 == 0;
        disk.cut = false;
        /* in every packing, somewhere; and in some of the other seconds */
        disk.cut_at =
            packs || t % 7 == 0 ? before + random % (packs ? 60 : per_put + 1) : UINT64_MAX;
        disk.cut_seed = random;
        assert_ok(put(store, t));
        per_put = disk.operations - before;
        if (disk.cut) {
            lost += look_after_cut(folder, t);
            cuts++;
        }
    }
    plim_store_close(store);
    disk_forget();
    print_message("# %llu cuts, %llu of them cost a second\n", (unsigned long long)cuts,
                  (unsigned long long)lost);
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    model_folder_remove();
}

static void a_killed_writer_loses_at_most_the_last_second(void **state)
{
    (void)state;
    uint64_t kills = runs(100), next = 0;
    model_folder();
    disk_begin();
    for (uint64_t k = 0; k < kills; k++) {
        int to_us[2];
        uint64_t committed = next;
        assert_int_equal(pipe(to_us), 0);
        pid_t child = fork();
        if (child == 0) {
            struct plim_store *store = NULL;
            bool good = open_at(model_path("h.db"), false, "disk", &store, NULL) == PLIM_OK;
            for (uint64_t t = next; good; t++) {
                good = put(store, t) == PLIM_OK && write(to_us[1], &t, sizeof(t)) == sizeof(t);
            }
            _exit(good ? 0 : 1);
        }
        close(to_us[1]);
        uint64_t wait_for = 1 + plim_hash_u64(k) % 60, t;
        while (read(to_us[0], &t, sizeof(t)) == sizeof(t)) {
            committed = t + 1;
            if (committed - next == wait_for) {
                kill(child, SIGKILL);
            }
        }
        close(to_us[0]);
        waitpid(child, NULL, 0);
        struct plim_store *store = NULL;
        assert_ok(open_at(model_path("h.db"), false, "disk", &store, NULL));
        struct plim_store_state now;
        plim_store_state(store, &now);
        assert_int_equal(now.set_aside, 0);
        uint64_t last = (now.last_ns - MODEL_START) / NS + 1;
        assert_in_range(last, committed, committed + 1); /* one may be written and not yet told */
        plim_store_close(store);
        next = last;
    }
    model_folder_remove();
}

/* ---- damage ---- */

static void fill_file(uint64_t seconds)
{
    struct plim_store *store = NULL;
    assert_ok(open_at(model_path("h.db"), false, "disk", &store, NULL));
    for (uint64_t t = 0; t < seconds; t++) {
        assert_ok(put(store, t));
    }
    plim_store_close(store);
}

static uint8_t *read_whole(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(8 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 8 << 20, file);
    fclose(file);
    return bytes;
}

static void write_whole(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static void remove_asides(void)
{
    char command[700];
    snprintf(command, sizeof(command), "rm -f '%s'*", model_path("h.db"));
    assert_int_equal(system(command), 0);
}

/* The damaged file is opened, read and written on: all that may happen is that it is set aside. */
static void go_on_with(const uint8_t *bytes, size_t n, const char *what, size_t at)
{
    struct plim_store *store = NULL;
    struct plim_err err = {0};
    remove_asides();
    write_whole(model_path("h.db"), bytes, n);
    if (open_at(model_path("h.db"), false, "disk", &store, &err) != PLIM_OK) {
        if (err.status == PLIM_E_UNSAFE || err.status == PLIM_E_UNSUPPORTED) {
            return; /* the flip made it another program's, or a later version's: refused, untouched */
        }
        fail_msg("%s at %zu: %s", what, at, err.message);
    }
    struct plim_store_answer a = {0};
    struct plim_store_query q = {.subject = 1, .figure = "used", .max_points = 500};
    if (plim_store_query(store, &q, &a, NULL) == PLIM_OK) {
        plim_store_answer_fini(&a);
    }
    for (uint64_t t = 5000; t < 5003; t++) {
        if (put(store, t) != PLIM_OK) {
            fail_msg("%s at %zu: cannot go on", what, at);
        }
    }
    q.from_ns = MODEL_START + 4990 * NS;
    plim_store_close(store);
}

static void truncated_files_and_flipped_bits_are_survived(void **state)
{
    (void)state;
    size_t n;
    disk_begin();
    model_folder();
    fill_file(760);
    uint8_t *bytes = read_whole(model_path("h.db"), &n);
    for (size_t at = 0; at < n; at += 4096) {
        go_on_with(bytes, at, "truncation", at);
    }
    uint64_t flips = runs(300);
    for (uint64_t i = 0; i < flips; i++) {
        size_t at = i < 120 ? (size_t)i : (size_t)(plim_hash_u64(i) % n);
        bytes[at] ^= (uint8_t)(1u << i % 8);
        go_on_with(bytes, n, "flip", at);
        bytes[at] ^= (uint8_t)(1u << i % 8);
    }
    free(bytes);
    remove_asides();
    model_folder_remove();
}

static void what_is_no_history_is_set_aside_or_refused(void **state)
{
    (void)state;
    struct plim_store *store = NULL;
    struct plim_store_state now;
    struct plim_err err = {0};
    disk_begin();
    model_folder();
    static const char letter[] = "this is a letter to my mother, not a database";
    write_whole(model_path("h.db"), (const uint8_t *)letter, sizeof letter);
    assert_int_equal(open_at(model_path("h.db"), false, "disk", &store, &err), PLIM_E_UNSAFE);
    size_t n;
    uint8_t *kept = read_whole(model_path("h.db"), &n);
    assert_int_equal(n, sizeof letter);
    assert_memory_equal(kept, letter, n);
    free(kept);
    remove_asides();

    static const uint8_t zeros[8192]; /* as a power cut may leave a file */
    write_whole(model_path("h.db"), zeros, sizeof zeros);
    assert_ok(open_at(model_path("h.db"), false, "disk", &store, NULL));
    plim_store_state(store, &now);
    assert_int_equal(now.set_aside, 1);
    assert_int_equal(access(now.aside, F_OK), 0);
    plim_store_close(store);
    remove_asides();

    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(model_path("h.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE bookmarks(url)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(open_at(model_path("h.db"), false, "disk", &store, &err), PLIM_E_UNSAFE);
    remove_asides();

    fill_file(3);
    assert_int_equal(sqlite3_open(model_path("h.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 9999", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(open_at(model_path("h.db"), false, "disk", &store, &err), PLIM_E_UNSUPPORTED);
    remove_asides();
    model_folder_remove();
}

static void a_second_writer_is_refused_with_the_number_of_the_first(void **state)
{
    (void)state;
    struct plim_store *first = NULL, *second = NULL;
    struct plim_err err = {0};
    char pid[24];
    disk_begin();
    model_folder();
    assert_ok(open_at(model_path("h.db"), false, "disk", &first, NULL));
    assert_int_equal(open_at(model_path("h.db"), false, "disk", &second, &err), PLIM_E_OS);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_non_null(strstr(err.message, pid));
    plim_store_close(first);
    model_folder_remove();
}

static void a_database_locked_by_another_program_is_written_later(void **state)
{
    (void)state;
    struct plim_store *store = NULL;
    struct plim_store_state now;
    sqlite3 *other = NULL;
    disk_begin();
    model_folder();
    assert_ok(open_at(model_path("h.db"), false, NULL, &store, NULL));
    assert_ok(put(store, 0));
    assert_int_equal(sqlite3_open(model_path("h.db"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(put(store, 1), PLIM_E_IO);
    plim_store_state(store, &now);
    assert_int_equal(now.fault, PLIM_STORE_LOCKED);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    assert_ok(put(store, 2));
    plim_store_state(store, &now);
    assert_int_equal(now.fault, PLIM_STORE_NONE);
    assert_int_equal(check(store, 3), 2);
    plim_store_close(store);
    model_folder_remove();
}

/* ---- bounds ---- */

static uint64_t bytes_of(struct plim_store *store)
{
    struct plim_store_state now;
    plim_store_counts(store, &now);
    return now.bytes;
}

static struct plim_store *open_sized(uint64_t max_bytes)
{
    struct plim_store *store = NULL;
    struct plim_store_options o = options("disk");
    o.max_bytes = max_bytes;
    assert_ok(plim_store_open(model_path("h.db"), &o, &store, NULL));
    return store;
}

static enum plim_status put_many(struct plim_store *store, uint64_t t)
{
    static struct plim_batch batch; /* keeps its storage */
    model_batch(&batch, 100, t);
    return plim_store_put(store, &batch, NULL);
}

static void a_lowered_limit_makes_the_file_smaller(void **state)
{
    (void)state;
    disk_begin();
    model_folder();
    struct plim_store *store = open_sized(64 << 20);
    for (uint64_t t = 0; t < 12000; t++) {
        assert_ok(put_many(store, t));
    }
    assert_true(bytes_of(store) > 18 << 20);
    plim_store_close(store);
    store = open_sized(16 << 20);
    for (uint64_t t = 12000; t < 13000; t++) {
        assert_ok(put_many(store, t));
    }
    assert_true(bytes_of(store) <= 16 << 20);
    plim_store_close(store);
    model_folder_remove();
}

static void a_limit_that_changes_while_it_is_written_is_kept(void **state)
{
    (void)state;
    struct plim_store_state now;
    disk_begin();
    model_folder();
    struct plim_store *store = open_sized(16 << 20);
    uint64_t t = 0;
    assert_ok(plim_store_limit(store, 64 << 20, NULL));
    for (; t < 12000; t++) {
        assert_ok(put_many(store, t));
    }
    assert_true(bytes_of(store) > 18 << 20);
    assert_int_equal(plim_store_limit(store, 15 << 20, NULL), PLIM_E_USAGE);
    assert_true(bytes_of(store) > 18 << 20);
    assert_ok(plim_store_limit(store, 16 << 20, NULL));
    for (; t < 12400; t++) {
        assert_ok(put_many(store, t));
    }
    assert_true(bytes_of(store) <= 16 << 20);
    plim_store_state(store, &now);
    assert_int_equal(now.max_bytes, 16 << 20);
    assert_int_equal(now.set_aside, 0);
    plim_store_close(store);
    model_folder_remove();
}

static void a_reader_that_never_ends_stops_the_log_at_its_limit(void **state)
{
    (void)state;
    sqlite3 *reader = NULL;
    struct plim_store_state now;
    uint64_t t = 1;
    disk_begin();
    model_folder();
    struct plim_store *store = open_sized(16 << 20);
    assert_ok(put_many(store, 0));
    assert_int_equal(sqlite3_open(model_path("h.db"), &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM second", NULL, NULL, NULL),
                     SQLITE_OK);
    while (put_many(store, t) == PLIM_OK) {
        assert_true(t < 20000);
        t++;
        assert_true(bytes_of(store) <= 16 << 20);
    }
    plim_store_state(store, &now);
    assert_int_equal(now.fault, PLIM_STORE_BLOCKED);
    sqlite3_close(reader);
    assert_ok(put_many(store, t + 1));
    plim_store_state(store, &now);
    assert_int_equal(now.fault, PLIM_STORE_NONE);
    plim_store_close(store);
    model_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write_and_sync_may_fail_once),
        cmocka_unit_test(a_disk_that_is_full_for_a_while_loses_that_while),
        cmocka_unit_test(after_a_power_cut_at_most_the_last_second_is_missing),
        cmocka_unit_test(a_killed_writer_loses_at_most_the_last_second),
        cmocka_unit_test(truncated_files_and_flipped_bits_are_survived),
        cmocka_unit_test(what_is_no_history_is_set_aside_or_refused),
        cmocka_unit_test(a_second_writer_is_refused_with_the_number_of_the_first),
        cmocka_unit_test(a_database_locked_by_another_program_is_written_later),
        cmocka_unit_test(a_lowered_limit_makes_the_file_smaller),
        cmocka_unit_test(a_limit_that_changes_while_it_is_written_is_kept),
        cmocka_unit_test(a_reader_that_never_ends_stops_the_log_at_its_limit),
    };
    return PLIM_RUN_TESTS("store faults", tests);
}
