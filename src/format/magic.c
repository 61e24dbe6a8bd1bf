/* SPDX-License-Identifier: Apache-2.0 */
/* First bytes and what they mean. Things that people hand in by mistake are told by name. */

#include "format/magic.h"

#include "base/num.h"
#include "base/str.h"
#include "format/trace_frame.h"

#define HOW_TO_DUMP "a snapshot is written by torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")"
#define UNPACK      "unpack it first and name the snapshot inside"

static bool starts(const uint8_t *p, size_t n, const char *magic, size_t length)
{
    return n >= length && memcmp(p, magic, length) == 0;
}

static bool contains(const uint8_t *p, size_t n, struct plim_str needle)
{
    return plim_str_find((struct plim_str){(const char *)p, n}, needle) != SIZE_MAX;
}

/* Wrappings and pickles that have a magic number. */
static bool known_magic(const uint8_t *p, size_t n, enum plim_content_kind *kind)
{
    static const struct {
        const char *magic;
        size_t length;
        enum plim_content_kind kind;
    } rows[] = {
        {"\x1f\x8b", 2, PLIM_CONTENT_GZIP},
        {"\x28\xb5\x2f\xfd", 4, PLIM_CONTENT_ZSTD},
        {"\xfd"
         "7zXZ\0",
         6, PLIM_CONTENT_XZ},
        {"\x80", 1, PLIM_CONTENT_PICKLE},
        {PLIM_TRACE_MAGIC, sizeof(PLIM_TRACE_MAGIC) - 1, PLIM_CONTENT_TRACE},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (starts(p, n, rows[i].magic, rows[i].length)) {
            *kind = rows[i].kind;
            return true;
        }
    }
    return false;
}

/* Files that are no snapshots, by their magic number: what to call them and what to do. */
static const struct other {
    const char *magic;
    size_t length;
    const char *name;
    const char *hint;
} others[] = {
    /* The LONG1 with which torch.save() of PyTorch before 1.6 begins (torch/serialization.py). */
    {"\x80\x02\x8a\x0al\xfc\x9c"
     "F\xf9 j\xa8P\x19",
     14, "a model checkpoint (torch.save, old format)", HOW_TO_DUMP},
    {"GGUF", 4, "a GGUF model file", HOW_TO_DUMP},
    {"ggml", 4, "a GGML model file", HOW_TO_DUMP},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file (a Keras model?)", HOW_TO_DUMP},
    {"\x93NUMPY", 6, "a NumPy array", HOW_TO_DUMP},
    {"\x7f"
     "ELF",
     4, "a program or library", HOW_TO_DUMP},
    {"SQLite format 3", 15, "an SQLite database", HOW_TO_DUMP},
    {"BZh", 3, "compressed with bzip2", "decompress it first; gzip, zstd and xz are read directly"},
    {"7z\xbc\xaf\x27\x1c", 6, "a 7z archive", UNPACK},
    {"Rar!", 4, "a RAR archive", UNPACK},
    {"%PDF", 4, "a PDF document", HOW_TO_DUMP},
    {"\x89PNG", 4, "a picture", HOW_TO_DUMP},
};

static enum plim_content_kind refuse(struct plim_err *err, const char *name, const char *hint)
{
    plim__fail(err, PLIM_E_DATA, "this is %s, not a memory snapshot", name);
    plim__err_hint(err, "%s", hint);
    return PLIM_CONTENT_OTHER;
}

/* A safetensors file: the length of its header as 64 bits, then the header, a JSON object. */
static bool is_safetensors(const uint8_t *p, size_t n)
{
    return n >= 10 && p[8] == '{' && (p[9] == '"' || p[9] == '}') && p[4] == 0 && p[5] == 0 &&
           p[6] == 0 && p[7] == 0 && p[3] < 8;
}

static bool is_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t' && p[i] != 0x1b) {
            return false;
        }
    }
    return true;
}

static enum plim_content_kind refuse_zip(const uint8_t *p, size_t n, struct plim_err *err)
{
    if (contains(p, n, PLIM_STR("data.pkl")) || contains(p, n, PLIM_STR("constants.pkl"))) {
        return refuse(err, "a model checkpoint (torch.save)", HOW_TO_DUMP);
    }
    return refuse(err, "a zip archive (a model checkpoint, if torch.save wrote it)", UNPACK);
}

static enum plim_content_kind refuse_rest(const uint8_t *p, size_t n, struct plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(others); i++) {
        if (starts(p, n, others[i].magic, others[i].length)) {
            return refuse(err, others[i].name, others[i].hint);
        }
    }
    if (starts(p, n, "PK\3\4", 4)) {
        return refuse_zip(p, n, err);
    }
    if (n > 262 && memcmp(p + 257, "ustar", 5) == 0) {
        return refuse(err, "a tar archive", UNPACK);
    }
    if (is_safetensors(p, n)) {
        return refuse(err, "a model file (safetensors)", HOW_TO_DUMP);
    }
    if (!is_text(p, n)) {
        return refuse(err, "binary data of an unknown kind", HOW_TO_DUMP);
    }
    bool oom = contains(p, n, PLIM_STR("out of memory")) || contains(p, n, PLIM_STR("OutOfMemory"));
    return refuse(err, oom ? "text with an out-of-memory message" : "text",
                  oom ? "`plimsoll explain` reads messages and logs" : HOW_TO_DUMP);
}

/* GLOBAL: the letter c and two lines with dotted names. */
static bool is_global(const uint8_t *p, size_t n)
{
    unsigned lines = 0;
    if (n == 0 || p[0] != 'c') {
        return false;
    }
    for (size_t i = 1; i < n && lines < 2; i++) {
        bool name = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
                    (p[i] >= '0' && p[i] <= '9') || p[i] == '_' || p[i] == '.';
        if (p[i] != '\n' && !name) {
            return false;
        }
        lines += p[i] == '\n';
    }
    return lines == 2;
}

/* Protocols 0 and 1 have no magic number, but their containers begin in few ways. */
static bool is_old_pickle(const uint8_t *p, size_t n)
{
    size_t mark = n > 0 && p[0] == '(';
    if (is_global(p + mark, n - mark)) {
        return true; /* refused later, with the name of the opcode */
    }
    if (n >= 3 && mark && (p[1] == 'd' || p[1] == 'l') && p[2] && strchr("pqr.(]}SVXI", p[2])) {
        return true; /* MARK DICT or MARK LIST */
    }
    if (n >= 3 && mark && p[1] == 'S' && (p[2] == '\'' || p[2] == '"')) {
        return true;
    }
    return n >= 2 && (p[0] == '}' || p[0] == ']') && (p[1] == 'q' || p[1] == '.' || p[1] == '(');
}

enum plim_content_kind plim__magic(const uint8_t *p, size_t n, struct plim_err *err)
{
    enum plim_content_kind kind;
    if (n == 0) {
        plim__fail(err, PLIM_E_DATA, "the input is empty");
        plim__err_hint(err, HOW_TO_DUMP);
        return PLIM_CONTENT_OTHER;
    }
    if (starts(p, n, others[0].magic, others[0].length)) {
        return refuse(err, others[0].name, others[0].hint);
    }
    if (known_magic(p, n, &kind)) {
        return kind;
    }
    if (is_old_pickle(p, n)) {
        return PLIM_CONTENT_PICKLE;
    }
    size_t i = starts(p, n, "\xef\xbb\xbf", 3) ? 3 : 0; /* byte order mark */
    while (i < n && (p[i] == ' ' || p[i] == '\n' || p[i] == '\r' || p[i] == '\t')) {
        i++;
    }
    if (i < n && p[i] == '<') {
        return PLIM_CONTENT_HTML;
    }
    if (i < n && (p[i] == '{' || p[i] == '[') && is_text(p + i, n - i)) {
        return PLIM_CONTENT_JSON;
    }
    return refuse_rest(p, n, err);
}
