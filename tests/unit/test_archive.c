/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of incidents: what is written is read back, and what somebody else made with bad intent
 * is refused. */

#include "base/file.h"
#include "incident/archive.h"
#include "incident/bundle.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

struct made {
    char root[64];
    char path[128]; /* of an archive */
};

static int make(void **state)
{
    struct made *made = calloc(1, sizeof(*made));
    snprintf(made->root, sizeof(made->root), "/tmp/plimsoll-test-archive-XXXXXX");
    if (mkdtemp(made->root) == NULL) {
        return 1;
    }
    snprintf(made->path, sizeof(made->path), "%s/a.tar.zst", made->root);
    *state = made;
    return 0;
}

static int drop(void **state)
{
    struct made *made = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", made->root);
    free(made);
    return system(command) != 0;
}

/* ---- a tar file by hand ---- */

struct tar {
    char bytes[16384];
    size_t n;
};

static void seal(char *head)
{
    unsigned sum = 0;
    memset(head + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++) {
        sum += (unsigned char)head[i];
    }
    snprintf(head + 148, 8, "%06o", sum);
}

static char *add(struct tar *tar, const char *name, char type, const char *size,
                 const char *content)
{
    char *head = tar->bytes + tar->n;
    memset(head, 0, 512);
    snprintf(head, 101, "%s", name);
    memcpy(head + 124, size, strlen(size) < 12 ? strlen(size) : 12);
    head[156] = type;
    memcpy(head + 257, "ustar\00000", 8);
    seal(head);
    tar->n += 512;
    size_t n = strlen(content);
    memset(tar->bytes + tar->n, 0, (n + 511) / 512 * 512);
    memcpy(tar->bytes + tar->n, content, n);
    tar->n += (n + 511) / 512 * 512;
    return head;
}

/* Read everything of a packed tar: the status, and how many files came before it. */
static enum plim_status read_tar(const struct made *made, const struct tar *tar, size_t *files)
{
    char packed[20000], part[64];
    size_t n = ZSTD_compress(packed, sizeof(packed), tar->bytes, tar->n, 1);
    assert_false(ZSTD_isError(n));
    assert_ok(plim_file_replace(made->path, (struct plim_str){packed, n}, NULL));
    struct plim_archive archive;
    assert_ok(plim_archive_open(made->path, &archive, NULL));
    bool more = true;
    enum plim_status st = PLIM_OK;
    *files = 0;
    while (st == PLIM_OK && more) {
        size_t got = 0;
        st = plim_archive_next(&archive, &more, NULL);
        *files += st == PLIM_OK && more;
        if (st == PLIM_OK && more) {
            st = plim_archive_read(&archive, part, sizeof(part), &got, NULL);
        }
    }
    plim_archive_close(&archive);
    return st;
}

static void an_archive_of_one_folder_is_read(void **state)
{
    struct tar tar = {.n = 0};
    size_t files;
    add(&tar, "i/", '5', "00000000000", "");
    add(&tar, "i/a", '0', "00000000005", "hello");
    add(&tar, "i/b", '\0', "00000000000", "");
    memset(tar.bytes + tar.n, 0, 1024);
    tar.n += 1024;
    assert_ok(read_tar(*state, &tar, &files));
    assert_int_equal(files, 2);
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    static const char *const names[] = {"../x",   "/etc/passwd", "i/../x", "i/./x", "i/b/c",
                                        "i/.x",   "x",           "",       "i//x",  "i/",
                                        "i/a\nb", "i/-rf",       "i/a\\b", "./x"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        struct tar tar = {.n = 0};
        size_t files;
        add(&tar, names[i], '0', "00000000001", "x");
        assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_UNSAFE);
        assert_int_equal(files, 0);
    }
}

static void a_second_folder_and_a_second_file_of_a_name_are_refused(void **state)
{
    struct tar tar = {.n = 0};
    size_t files;
    add(&tar, "i/a", '0', "00000000001", "x");
    add(&tar, "j/b", '0', "00000000001", "x");
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_UNSAFE);
    tar.n = 1024;
    add(&tar, "i/a", '0', "00000000001", "y");
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_UNSAFE);
    assert_int_equal(files, 1);
}

static void links_devices_and_extensions_are_refused(void **state)
{
    static const char types[] = "1234678xgLKVS";
    for (size_t i = 0; i < sizeof(types) - 1; i++) {
        struct tar tar = {.n = 0};
        size_t files;
        add(&tar, "i/a", types[i], "00000000000", "");
        assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_UNSAFE);
    }
}

static void sizes_that_are_none_or_too_large_are_refused(void **state)
{
    struct tar tar = {.n = 0};
    size_t files;
    add(&tar, "i/a", '0', "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "");
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_DATA);
    tar.n = 0;
    add(&tar, "i/a", '0', "7777777777777", ""); /* 13 digits: cut to 12 */
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_BUDGET);
    tar.n = 0;
    add(&tar, "i/a", '0', "00000010000", "short"); /* more than there is */
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_TRUNCATED);
    tar.n = 0;
    add(&tar, "i/a", '0', "-0000000001", "x");
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_DATA);
}

static void a_damaged_head_is_noticed(void **state)
{
    struct tar tar = {.n = 0};
    size_t files;
    char *head = add(&tar, "i/a", '0', "00000000001", "x");
    head[3] = 'b';
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_DATA);
    tar.n = 0;
    head = add(&tar, "i/a", '0', "00000000001", "x");
    head[345] = 'p'; /* a prefix makes another name */
    seal(head);
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_UNSAFE);
    tar.n = 300;
    assert_int_equal(read_tar(*state, &tar, &files), PLIM_E_TRUNCATED);
}

/* ---- folders ---- */

static void put(const struct made *made, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/in/%s", made->root, name);
    assert_ok(plim_file_replace(path, plim_str_from(text), NULL));
}

#define MANIFEST "{\"schema\":\"plimsoll.incident/1\",\"id\":\"in\",\"kind\":\"oom\",\"files\":[]}"

static void make_folder(const struct made *made)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/in", made->root);
    assert_int_equal(mkdir(path, 0700), 0);
    put(made, "incident.json", MANIFEST);
    put(made, "message.txt", "hello\n");
}

static void a_folder_and_its_archive_give_the_same(void **state)
{
    struct made *made = *state;
    char folder[128];
    struct plim_arena arena;
    make_folder(made);
    plim_arena_init(&arena, 0);
    snprintf(folder, sizeof(folder), "%s/in", made->root);
    assert_ok(plim_archive_write(folder, "in", made->path, NULL));
    const char *both[] = {folder, made->path};
    for (size_t i = 0; i < 2; i++) {
        struct plim_bundle bundle;
        struct plim_str text;
        assert_true(plim_bundle_is(both[i]));
        assert_ok(plim_bundle_open(both[i], &arena, &bundle, NULL));
        assert_string_equal(bundle.kind, "oom");
        assert_int_equal(bundle.packed, i == 1);
        plim_bundle_fini(&bundle);
        assert_ok(plim_bundle_text(both[i], "message.txt", 100, &arena, &text, NULL));
        assert_string_equal(text.p, "hello\n");
        assert_int_equal(plim_bundle_text(both[i], "message.txt", 3, &arena, &text, NULL),
                         PLIM_E_BUDGET);
        assert_int_equal(plim_bundle_text(both[i], "none", 3, &arena, &text, NULL),
                         PLIM_E_NOTFOUND);
        assert_int_equal(plim_bundle_text(both[i], "../x", 3, &arena, &text, NULL), PLIM_E_UNSAFE);
    }
    plim_arena_fini(&arena);
}

static void a_link_in_a_folder_is_not_followed(void **state)
{
    struct made *made = *state;
    char path[256], folder[128];
    struct plim_source source;
    make_folder(made);
    snprintf(folder, sizeof(folder), "%s/in", made->root);
    snprintf(path, sizeof(path), "%s/in/snapshot.pickle", made->root);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(plim_bundle_source(folder, "snapshot.pickle", &source, NULL), PLIM_E_UNSAFE);
}

static void manifests_of_something_else_are_refused(void **state)
{
    struct made *made = *state;
    struct plim_arena arena;
    struct plim_bundle bundle;
    char folder[128];
    static const struct {
        const char *text;
        enum plim_status status;
    } cases[] = {
        {"", PLIM_E_DATA},
        {"[]", PLIM_E_DATA},
        {"{\"schema\":\"plimsoll.diagnose/1\"}", PLIM_E_DATA},
        {"{\"schema\":\"plimsoll.incident/2\"}", PLIM_E_UNSUPPORTED},
        {"{\"schema\":1}", PLIM_E_DATA},
    };
    make_folder(made);
    plim_arena_init(&arena, 0);
    snprintf(folder, sizeof(folder), "%s/in", made->root);
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        put(made, "incident.json", cases[i].text);
        assert_int_equal(plim_bundle_open(folder, &arena, &bundle, NULL), cases[i].status);
    }
    plim_arena_fini(&arena);
}

#define ARCHIVE_TEST(f) cmocka_unit_test_setup_teardown(f, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ARCHIVE_TEST(an_archive_of_one_folder_is_read),
        ARCHIVE_TEST(names_that_lead_elsewhere_are_refused),
        ARCHIVE_TEST(a_second_folder_and_a_second_file_of_a_name_are_refused),
        ARCHIVE_TEST(links_devices_and_extensions_are_refused),
        ARCHIVE_TEST(sizes_that_are_none_or_too_large_are_refused),
        ARCHIVE_TEST(a_damaged_head_is_noticed),
        ARCHIVE_TEST(a_folder_and_its_archive_give_the_same),
        ARCHIVE_TEST(a_link_in_a_folder_is_not_followed),
        ARCHIVE_TEST(manifests_of_something_else_are_refused),
    };
    return PLIM_RUN_TESTS("archive", tests);
}
