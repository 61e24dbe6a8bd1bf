/* SPDX-License-Identifier: Apache-2.0 */
/* Files: sources, mapping, whole reads, and replacement that is all or nothing. */

#include "base/file.h"
#include "fail_alloc.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int make_folder(void **state)
{
    static char path[] = "/tmp/plimsoll-test-file-XXXXXX";
    snprintf(path, sizeof(path), "/tmp/plimsoll-test-file-XXXXXX");
    *state = mkdtemp(path);
    return *state == NULL || chdir(path) != 0;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", (const char *)*state);
    return chdir("/") != 0 || system(command) != 0;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void assert_file_holds(const char *path, const char *text)
{
    struct plim_str got;
    assert_ok(plim_file_read(path, 1 << 20, &got, NULL));
    assert_true(plim_str_eq(got, plim_str_from(text)));
    free((void *)(uintptr_t)got.p);
}

static int files_here(void)
{
    DIR *dir = opendir(".");
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static void a_whole_file_is_read_and_the_limit_holds(void **state)
{
    (void)state;
    struct plim_str got = PLIM_STR("untouched");
    struct plim_err err;
    put("f", "0123456789");
    assert_file_holds("f", "0123456789");
    assert_int_equal(plim_file_read("f", 9, &got, &err), PLIM_E_BUDGET);
    assert_true(plim_str_eq(got, PLIM_STR("untouched")));
    put("empty", "");
    assert_file_holds("empty", "");
}

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct plim_source source;
    struct plim_mapping map;
    struct plim_err err;
    assert_int_equal(plim_source_open("missing", &source, &err), PLIM_E_NOINPUT);
    assert_int_equal(err.os_errno, ENOENT);
    assert_non_null(strstr(err.message, "missing"));
    assert_int_not_equal(err.hint[0], 0);
    assert_int_equal(mkdir("folder", 0755), 0);
    assert_int_equal(plim_source_open("folder", &source, &err), PLIM_E_NOINPUT);
    assert_non_null(strstr(err.message, "directory"));
    assert_int_equal(plim_file_map("folder", &map, &err), PLIM_E_NOINPUT);
    assert_int_equal(plim_file_map("/dev/null", &map, &err), PLIM_E_NOINPUT);
}

static void a_mapping_shows_the_bytes(void **state)
{
    (void)state;
    struct plim_mapping map;
    put("f", "mapped");
    assert_ok(plim_file_map("f", &map, NULL));
    assert_int_equal(map.n, 6);
    assert_memory_equal(map.p, "mapped", 6);
    plim_file_unmap(&map);
    assert_null(map.p);
    put("empty", "");
    assert_ok(plim_file_map("empty", &map, NULL));
    assert_null(map.p);
    assert_int_equal(map.n, 0);
    plim_file_unmap(&map);
}

static void a_source_over_bytes_ends_where_they_end(void **state)
{
    (void)state;
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, PLIM_STR("abcde"));
    char buf[4];
    size_t got;
    assert_int_equal(source.size, 5);
    assert_ok(source.read(source.self, buf, sizeof(buf), &got, NULL));
    assert_int_equal(got, 4);
    assert_ok(source.read(source.self, buf, sizeof(buf), &got, NULL));
    assert_int_equal(got, 1);
    assert_int_equal(buf[0], 'e');
    assert_ok(source.read(source.self, buf, sizeof(buf), &got, NULL));
    assert_int_equal(got, 0);
    plim_source_close(&source);
}

static void a_source_knows_its_size_and_the_end_of_its_name(void **state)
{
    (void)state;
    struct plim_source source;
    char path[200];
    memset(path, 'p', sizeof(path));
    memcpy(path + 190, ".pickle", 8);
    put("s", "12345");
    assert_ok(plim_source_open("s", &source, NULL));
    assert_int_equal(source.size, 5);
    assert_string_equal(source.name, "s");
    plim_source_close(&source);
    put(path, "");
    assert_ok(plim_source_open(path, &source, NULL));
    assert_true(strlen(source.name) < sizeof(source.name));
    assert_string_equal(source.name + strlen(source.name) - 7, ".pickle");
    plim_source_close(&source);
}

static void replace_makes_a_new_file_or_changes_the_old_one(void **state)
{
    (void)state;
    assert_ok(plim_file_replace("out", PLIM_STR("first"), NULL));
    assert_file_holds("out", "first");
    assert_int_equal(chmod("out", 0600), 0);
    assert_ok(plim_file_replace("out", PLIM_STR("2"), NULL));
    assert_file_holds("out", "2");
    struct stat info;
    assert_int_equal(stat("out", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void a_target_is_seen_when_it_is_committed_and_never_when_it_is_aborted(void **state)
{
    (void)state;
    struct plim_target target;
    put("target", "old");
    assert_ok(plim_target_open("target", &target, NULL));
    assert_ok(plim_target_write(&target, PLIM_STR("new "), NULL));
    assert_file_holds("target", "old");
    assert_ok(plim_target_write(&target, PLIM_STR("text"), NULL));
    assert_ok(plim_target_commit(&target, NULL));
    assert_file_holds("target", "new text");
    assert_ok(plim_target_open("target", &target, NULL));
    assert_ok(plim_target_write(&target, PLIM_STR("never"), NULL));
    plim_target_abort(&target);
    assert_file_holds("target", "new text");
    assert_int_equal(access(target.temporary, F_OK), -1);
}

static void a_new_file_respects_the_umask(void **state)
{
    (void)state;
    struct stat info;
    mode_t old = umask(077);
    assert_ok(plim_file_replace("private", PLIM_STR("x"), NULL));
    umask(old);
    assert_int_equal(stat("private", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void a_file_in_a_missing_folder_cannot_be_created(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(plim_file_replace("nowhere/out", PLIM_STR("x"), &err), PLIM_E_CREATE);
    assert_int_equal(err.os_errno, ENOENT);
    assert_int_equal(mkdir("folder", 0755), 0);
    assert_int_equal(plim_file_replace("folder", PLIM_STR("x"), &err), PLIM_E_CREATE);
    assert_int_equal(files_here(), 1);
}

/* In a child, so that the file size limit ends with it. */
static void a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(void **state)
{
    (void)state;
    static char big[100000];
    memset(big, 'b', sizeof(big));
    put("out", "old");
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {50000, 50000};
        struct plim_err err;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        enum plim_status st = plim_file_replace("out", (struct plim_str){big, sizeof(big)}, &err);
        _exit(st != PLIM_OK && err.os_errno == EFBIG ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_file_holds("out", "old");
    assert_int_equal(files_here(), 1);
}

static void a_device_is_written_to_and_stays_a_device(void **state)
{
    (void)state;
    struct stat info;
    assert_ok(plim_file_replace("/dev/null", PLIM_STR("x"), NULL));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static enum plim_status read_f(void *arg)
{
    (void)arg;
    struct plim_str got;
    PLIM_TRY(plim_file_read("f", 1 << 20, &got, NULL));
    free((void *)(uintptr_t)got.p);
    return PLIM_OK;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    put("f", text);
    assert_true(fail_alloc_sweep(read_f, NULL, 100, false) >= 1);
}

#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_whole_file_is_read_and_the_limit_holds),
        FILE_TEST(what_cannot_be_opened_says_why),
        FILE_TEST(a_mapping_shows_the_bytes),
        FILE_TEST(a_source_over_bytes_ends_where_they_end),
        FILE_TEST(a_source_knows_its_size_and_the_end_of_its_name),
        FILE_TEST(replace_makes_a_new_file_or_changes_the_old_one),
        FILE_TEST(a_target_is_seen_when_it_is_committed_and_never_when_it_is_aborted),
        FILE_TEST(a_new_file_respects_the_umask),
        FILE_TEST(a_file_in_a_missing_folder_cannot_be_created),
        FILE_TEST(a_failed_write_keeps_the_old_file_and_leaves_nothing_behind),
        FILE_TEST(a_device_is_written_to_and_stays_a_device),
        FILE_TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return PLIM_RUN_TESTS("file", tests);
}
