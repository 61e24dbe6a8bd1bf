/* SPDX-License-Identifier: Apache-2.0 */
/* What people hand in by mistake is told by its name; what is a snapshot is let through. */

#include "format/magic.h"
#include "unit.h"

#include <string.h>

struct row {
    const char *bytes;
    size_t n;
    const char *word; /* of the message */
};

#define ROW(bytes, word)                                                                           \
    {                                                                                              \
        bytes, sizeof(bytes) - 1, word                                                             \
    }

static void other_files_are_told_by_name(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ROW("", "empty"),
        ROW("PK\3\4\0\0\0\0\0\0archive/data.pkl", "model checkpoint"),
        ROW("PK\3\4\0\0\0\0\0\0photos/1.jpg", "zip archive"),
        ROW("\x80\x02\x8a\nl\xfc\x9c"
            "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
            "old format"),
        ROW("GGUF\3\0\0\0", "GGUF"),
        ROW("\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":", "safetensors"),
        ROW("\x89HDF\r\n\x1a\n", "HDF5"),
        ROW("\x93NUMPY\1\0", "NumPy"),
        ROW("\x7f"
            "ELF\2\1\1",
            "program"),
        ROW("BZh91AY", "bzip2"),
        ROW("SQLite format 3\0", "SQLite"),
        ROW("hello, world\n", "text"),
        ROW("(see the log)\n", "text"),
        ROW("(dunno what this is)\n", "text"),
        ROW("cold start\n", "text"),
        ROW("RuntimeError: CUDA out of memory.", "out-of-memory"),
        ROW("\x01\x02\x03\x04", "binary"),
        ROW("[\0\0\0", "binary"),
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct plim_err err;
        assert_int_equal(plim__magic((const uint8_t *)rows[i].bytes, rows[i].n, &err),
                         PLIM_CONTENT_OTHER);
        assert_int_equal(err.status, PLIM_E_DATA);
        assert_non_null(strstr(err.message, rows[i].word));
        assert_true(err.hint[0]);
    }
}

static void snapshots_in_every_wrapping_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        enum plim_content_kind kind;
    } rows[] = {
        {"\x80\x04\x95", 3, PLIM_CONTENT_PICKLE},
        {"(dp0\n", 5, PLIM_CONTENT_PICKLE},
        {"(lp0\n", 5, PLIM_CONTENT_PICKLE},
        {"}q\x00(", 4, PLIM_CONTENT_PICKLE},
        {"]q\x00(", 4, PLIM_CONTENT_PICKLE},
        {"cos\nsystem\n", 11, PLIM_CONTENT_PICKLE},
        {"\x1f\x8b\x08", 3, PLIM_CONTENT_GZIP},
        {"\x28\xb5\x2f\xfd", 4, PLIM_CONTENT_ZSTD},
        {"\xfd"
         "7zXZ\0",
         6, PLIM_CONTENT_XZ},
        {" \n{\"segments\"", 12, PLIM_CONTENT_JSON},
        {"[]", 2, PLIM_CONTENT_JSON},
        {"\xef\xbb\xbf[", 4, PLIM_CONTENT_JSON},
        {"<!DOCTYPE html>", 15, PLIM_CONTENT_HTML},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        assert_int_equal(plim__magic((const uint8_t *)rows[i].bytes, rows[i].n, NULL),
                         rows[i].kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_told_by_name),
        cmocka_unit_test(snapshots_in_every_wrapping_are_known),
    };
    return PLIM_RUN_TESTS("magic", tests);
}
