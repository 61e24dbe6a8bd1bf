/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files: what is read, and what is refused with which words. */

#include "fail_alloc.h"
#include "unit.h"

#include "format/safetensors.h"

#include <stdio.h>

struct file {
    char bytes[4096];
    size_t n;
};

/* A file of a header text and `data` bytes of data; `claim` is the size written, or -1 for the true one. */
static struct file file_of(const char *header, size_t data, int64_t claim)
{
    struct file f = {.n = 8 + strlen(header) + data};
    uint64_t size = claim < 0 ? strlen(header) : (uint64_t)claim;
    for (int i = 0; i < 8; i++) {
        f.bytes[i] = (char)(size >> (8 * i));
    }
    memcpy(f.bytes + 8, header, strlen(header));
    return f;
}

static enum plim_status read_file(struct plim_arena *arena, const struct file *f, bool sized,
                                  struct plim_tensors *out, struct plim_err *err)
{
    struct plim_source_bytes state = {{f->bytes, f->n}};
    struct plim_source source = plim_source_bytes(&state, state.rest);
    source.size = sized ? f->n : 0;
    return plim_safetensors_read(arena, &source, out, err);
}

static void tensors_are_read_with_their_bytes(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_tensors t;
    struct file f = file_of(
        "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"{[\\\"\"},"
        "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"data_offsets\":[0,24]},"
        "\"scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[28,28]},"
        "\"q\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[28,32],\"more\":[1,{}]}}   ",
        32, -1);
    plim_arena_init(&arena, 0);
    assert_ok(read_file(&arena, &f, true, &t, NULL));
    assert_int_equal(t.n, 4);
    assert_int_equal(t.bytes, 32);
    assert_int_equal(t.header_bytes, f.n - 32);
    assert_string_equal(t.items[0].name.p, "a.weight");
    assert_int_equal(t.items[0].elements, 12);
    assert_int_equal(t.items[1].elements, 1);
    assert_int_equal(t.items[2].bytes, 0);
    assert_int_equal(t.items[3].bytes, 4);
    plim_arena_fini(&arena);
}

#define ONE(dtype, shape, ends)                                                                    \
    "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" ends "}}"

static const struct {
    const char *what;
    const char *header;
    size_t data;
    int64_t claim;
    enum plim_status status;
    const char *words; /* in the message */
} refused[] = {
    {"a header beyond the format's limit", "{}", 0, 100000001, PLIM_E_RANGE, "no safetensors file"},
    {"a header larger than the file", "{}", 0, 500, PLIM_E_TRUNCATED, "500 bytes"},
    {"a header that stops", "{\"w\":{\"dtype\":\"F32\"", 0, -1, PLIM_E_TRUNCATED, "does not end"},
    {"a name that stops", "{\"wei", 0, -1, PLIM_E_TRUNCATED, "does not end"},
    {"something else than an object", "[1]", 0, -1, PLIM_E_DATA, "no JSON object"},
    {"something behind the object", "{} x", 0, -1, PLIM_E_DATA, "follows"},
    {"an unknown type", ONE("F7", "[1]", "[0,4]"), 4, -1, PLIM_E_DATA, "unknown element type"},
    {"a negative size", ONE("F32", "[-1]", "[0,4]"), 4, -1, PLIM_E_DATA, "number"},
    {"a fraction", ONE("F32", "[1.5]", "[0,4]"), 4, -1, PLIM_E_DATA, "number"},
    {"a size beyond 64 bits", ONE("F32", "[99999999999999999999]", "[0,4]"), 4, -1, PLIM_E_DATA,
     "64 bits"},
    {"an absurd product", ONE("F32", "[4294967296,4294967296]", "[0,4]"), 4, -1, PLIM_E_RANGE,
     "64 bits"},
    {"offsets that contradict the shape", ONE("F32", "[2]", "[0,4]"), 4, -1, PLIM_E_DATA,
     "contradict"},
    {"offsets that go backwards", ONE("F32", "[1]", "[4,0]"), 4, -1, PLIM_E_DATA, "contradict"},
    {"half a block", ONE("F4", "[3]", "[0,1]"), 1, -1, PLIM_E_DATA, "blocks"},
    {"a missing key", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, -1, PLIM_E_DATA, "lacks"},
    {"data that is cut", ONE("F32", "[2]", "[0,8]"), 4, -1, PLIM_E_TRUNCATED, "beyond the file"},
    {"a hole", ONE("F32", "[1]", "[4,8]"), 8, -1, PLIM_E_DATA, "belong to none"},
    {"an overlap",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, -1, PLIM_E_DATA, "inside the one before it"},
    {"nesting without end", "{\"w\":{\"x\":[[[[[[[[[[[[[[[[[[[[[", 0, -1, PLIM_E_DATA, "deeply"},
};

static void bad_headers_are_refused_with_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(refused); i++) {
        struct plim_arena arena;
        struct plim_tensors t;
        struct plim_err err;
        struct file f = file_of(refused[i].header, refused[i].data, refused[i].claim);
        plim_arena_init(&arena, 0);
        plim_err_clear(&err);
        enum plim_status st = read_file(&arena, &f, true, &t, &err);
        if (st != refused[i].status || strstr(err.message, refused[i].words) == NULL) {
            fail_msg("%s: %s, \"%s\"", refused[i].what, plim_status_name(st), err.message);
        }
        plim_arena_fini(&arena);
    }
}

static void every_cut_of_a_file_of_unknown_size_is_truncated(void **state)
{
    (void)state;
    struct file f = file_of(ONE("F32", "[2]", "[0,8]"), 0, -1);
    size_t whole = f.n;
    for (size_t n = 0; n < whole; n++) {
        struct plim_arena arena;
        struct plim_tensors t;
        plim_arena_init(&arena, 0);
        f.n = n;
        assert_int_equal(read_file(&arena, &f, false, &t, NULL), PLIM_E_TRUNCATED);
        plim_arena_fini(&arena);
    }
}

static void an_index_names_each_file_once(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_safetensors_index index;
    plim_arena_init(&arena, 0);
    assert_ok(plim_safetensors_index_read(
        &arena,
        PLIM_STR("{\"metadata\":{\"total_size\":16060522496.0},\"weight_map\":{\"a\":\"m-1."
                 "safetensors\","
                 "\"b\":\"m-2.safetensors\",\"c\":\"m-1.safetensors\"}}"),
        &index, NULL));
    assert_int_equal(index.n_shards, 2);
    assert_int_equal(index.n_tensors, 3);
    assert_string_equal(index.shards[1], "m-2.safetensors");
    assert_int_equal(index.total_size, UINT64_C(16060522496));
    plim_arena_fini(&arena);
}

static void an_index_that_leaves_its_folder_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
                                        "{\"weight_map\":{\"a\":\"../x\"}}",
                                        "{\"weight_map\":{\"a\":7}}",
                                        "{\"weight_map\":[]}",
                                        "{}",
                                        "nothing"};
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        struct plim_arena arena;
        struct plim_safetensors_index index;
        struct plim_err err;
        plim_arena_init(&arena, 0);
        assert_int_equal(plim_safetensors_index_read(&arena, plim_str_from(texts[i]), &index, &err),
                         PLIM_E_DATA);
        assert_true(err.message[0] != '\0');
        plim_arena_fini(&arena);
    }
}

static enum plim_status read_body(void *arg)
{
    struct plim_arena arena;
    struct plim_tensors t;
    plim_arena_init(&arena, 0);
    enum plim_status st = read_file(&arena, arg, true, &t, NULL);
    plim_arena_fini(&arena);
    return st;
}

static void reading_survives_every_failing_allocation(void **state)
{
    (void)state;
    struct file f = file_of(ONE("F32", "[2]", "[0,8]"), 8, -1);
    assert_true(fail_alloc_sweep(read_body, &f, 50, false) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read_with_their_bytes),
        cmocka_unit_test(bad_headers_are_refused_with_a_reason),
        cmocka_unit_test(every_cut_of_a_file_of_unknown_size_is_truncated),
        cmocka_unit_test(an_index_names_each_file_once),
        cmocka_unit_test(an_index_that_leaves_its_folder_is_refused),
        cmocka_unit_test(reading_survives_every_failing_allocation),
    };
    return PLIM_RUN_TESTS("safetensors", tests);
}
