/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF headers, and the geometry in their metadata. */

#include "fail_alloc.h"
#include "unit.h"

#include "format/gguf.h"
#include "serving/gguf_model.h"
#include "serving/kv.h"

#include <stdio.h>

/* A file being written. */
struct file {
    char bytes[8192];
    size_t n;
    uint32_t version;
};

static void put(struct file *f, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        f->bytes[f->n++] = (char)(v >> (8 * i));
    }
}

static void put_text(struct file *f, const char *text)
{
    put(f, strlen(text), f->version == 1 ? 4 : 8);
    memcpy(f->bytes + f->n, text, strlen(text));
    f->n += strlen(text);
}

static struct file begin(uint32_t version, uint64_t tensors, uint64_t keys)
{
    struct file f = {.version = version};
    memcpy(f.bytes, "GGUF", 4);
    f.n = 4;
    put(&f, version, 4);
    put(&f, tensors, version == 1 ? 4 : 8);
    put(&f, keys, version == 1 ? 4 : 8);
    return f;
}

static void put_u32(struct file *f, const char *key, uint32_t v)
{
    put_text(f, key);
    put(f, 4, 4);
    put(f, v, 4);
}

static void put_string(struct file *f, const char *key, const char *text)
{
    put_text(f, key);
    put(f, 8, 4);
    put_text(f, text);
}

static void put_u32s(struct file *f, const char *key, const uint32_t *v, size_t n)
{
    put_text(f, key);
    put(f, 9, 4);
    put(f, 4, 4);
    put(f, n, 8);
    for (size_t i = 0; i < n; i++) {
        put(f, v[i], 4);
    }
}

/* A model of so many layers, 64 elements wide, with room for more keys. */
static struct file begin_model(const char *architecture, uint32_t layers, uint64_t more)
{
    char key[64];
    struct file f = begin(3, 0, 3 + more);
    put_string(&f, "general.architecture", architecture);
    (void)snprintf(key, sizeof key, "%s.block_count", architecture);
    put_u32(&f, key, layers);
    (void)snprintf(key, sizeof key, "%s.embedding_length", architecture);
    put_u32(&f, key, 64);
    return f;
}

static void put_tensor(struct file *f, const char *name, uint64_t cols, uint64_t rows,
                       uint32_t type, uint64_t offset)
{
    put_text(f, name);
    put(f, 2, 4);
    put(f, cols, f->version == 1 ? 4 : 8);
    put(f, rows, f->version == 1 ? 4 : 8);
    put(f, type, 4);
    put(f, offset, 8);
}

static enum plim_status read_file(struct plim_arena *arena, const struct file *f,
                                  struct plim_gguf *out, struct plim_err *err)
{
    struct plim_source_bytes state = {{f->bytes, f->n}};
    struct plim_source source = plim_source_bytes(&state, state.rest);
    source.size = 0; /* only the header is there */
    return plim_gguf_read(arena, &source, out, err);
}

/* The sizes of every type in the reference table of the format. */
static void every_type_has_its_block(void **state)
{
    (void)state;
    static const uint32_t rows[][3] = {
        {0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
        {7, 32, 24},    {8, 32, 34},    {9, 32, 40},    {10, 256, 84},  {11, 256, 110},
        {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {15, 256, 292}, {16, 256, 66},
        {17, 256, 74},  {18, 256, 98},  {19, 256, 50},  {20, 32, 18},   {21, 256, 110},
        {22, 256, 82},  {23, 256, 136}, {24, 1, 1},     {25, 1, 2},     {26, 1, 4},
        {27, 1, 8},     {28, 1, 8},     {29, 256, 56},  {30, 1, 2},     {34, 256, 54},
        {35, 256, 66},  {39, 32, 17},   {40, 64, 36},   {41, 128, 18}};
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        uint32_t bytes = 0;
        enum plim_dtype dtype = plim_gguf_dtype(rows[i][0]);
        assert_int_not_equal(dtype, PLIM_DTYPE_UNKNOWN);
        assert_int_equal(plim_dtype_block(dtype, &bytes), rows[i][1]);
        assert_int_equal(bytes, rows[i][2]);
        assert_int_equal(plim_dtype_from(plim_str_from(plim_dtype_text(dtype))), dtype);
    }
    static const uint32_t retired[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, 1000};
    for (size_t i = 0; i < PLIM_COUNT_OF(retired); i++) {
        assert_int_equal(plim_gguf_dtype(retired[i]), PLIM_DTYPE_UNKNOWN);
    }
}

static struct file small_llama(uint32_t version)
{
    struct file f = begin(version, 2, 8);
    put_string(&f, "general.architecture", "llama");
    put_u32(&f, "llama.block_count", 4);
    put_u32(&f, "llama.embedding_length", 256);
    put_u32(&f, "llama.attention.head_count", 8);
    put_u32(&f, "llama.attention.head_count_kv", 2);
    put_u32(&f, "llama.feed_forward_length", 512);
    put_u32(&f, "llama.context_length", 4096);
    put_u32(&f, "general.alignment", 64);
    put_tensor(&f, "token_embd.weight", 256, 1000, 12, 0);
    put_tensor(&f, "output_norm.weight", 256, 1, 0, 144064);
    return f;
}

static void weights_are_the_sum_of_the_table(void **state)
{
    (void)state;
    for (uint32_t version = 1; version <= 3; version++) {
        struct plim_arena arena;
        struct plim_gguf g;
        struct file f = small_llama(version);
        plim_arena_init(&arena, 0);
        assert_ok(read_file(&arena, &f, &g, NULL));
        assert_int_equal(g.tensors.n, 2);
        assert_int_equal(g.tensors.items[0].bytes, 1000 * 144);
        assert_int_equal(g.tensors.bytes, 1000 * 144 + 1024);
        assert_int_equal(g.alignment, 64);
        assert_int_equal(g.tensors.header_bytes % 64, 0);
        plim_arena_fini(&arena);
    }
}

static uint64_t token_bytes(const struct plim_geometry *g, enum plim_kv_format k,
                            struct plim_arena *arena)
{
    struct plim_kv_list list;
    struct plim_kv_sum sum;
    struct plim_kv_options opts = {.k = k, .conv_dtype = PLIM_DTYPE_F32};
    assert_ok(plim_kv_layers(arena, g, &PLIM_PLACEMENT_WHOLE, &opts, &list, NULL));
    plim_kv_sum(&list, &sum);
    return sum.token_bytes + sum.state_bytes;
}

static void metadata_gives_the_bytes_of_a_token(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_gguf file;
    struct plim_geometry g;
    struct file f = small_llama(3);
    plim_arena_init(&arena, 0);
    assert_ok(read_file(&arena, &f, &file, NULL));
    assert_ok(plim_geometry_from_gguf(&arena, &file, &g, NULL));
    assert_int_equal(g.vocab, 1000);
    assert_int_equal(g.max_position, 4096);
    assert_int_equal(token_bytes(&g, PLIM_KV_FORMAT_F16, &arena), 4 * 2 * 2 * 32 * 2);
    assert_int_equal(token_bytes(&g, PLIM_KV_FORMAT_Q8_0, &arena), 4 * 2 * 2 * 34);
    plim_arena_fini(&arena);
}

static void layers_without_kv_heads_keep_a_state(void **state)
{
    (void)state;
    static const uint32_t kv[3] = {0, 2, 0};
    struct plim_arena arena;
    struct plim_gguf file;
    struct plim_geometry g;
    struct file f = begin_model("granitehybrid", 3, 7);
    put_u32(&f, "granitehybrid.attention.head_count", 4);
    put_u32s(&f, "granitehybrid.attention.head_count_kv", kv, 3);
    put_u32(&f, "granitehybrid.ssm.conv_kernel", 4);
    put_u32(&f, "granitehybrid.ssm.inner_size", 128);
    put_u32(&f, "granitehybrid.ssm.state_size", 16);
    put_u32(&f, "granitehybrid.ssm.group_count", 1);
    put_u32(&f, "granitehybrid.ssm.time_step_rank", 8);
    plim_arena_init(&arena, 0);
    assert_ok(read_file(&arena, &f, &file, NULL));
    assert_ok(plim_geometry_from_gguf(&arena, &file, &g, NULL));
    assert_int_equal(g.layers[0].mixer, PLIM_MIXER_MAMBA2);
    assert_int_equal(g.layers[1].mixer, PLIM_MIXER_FULL);
    /* llama.cpp keeps fp32: (4 - 1) * (128 + 2 * 16) and 128 * 16 */
    assert_int_equal(token_bytes(&g, PLIM_KV_FORMAT_F16, &arena),
                     2 * 2 * 16 * 2 + 2 * (3 * 160 * 4 + 128 * 16 * 4));
    plim_arena_fini(&arena);
}

static void sliding_layers_follow_the_architecture(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_gguf file;
    struct plim_geometry g;
    struct file f = begin_model("gemma3", 12, 3);
    put_u32(&f, "gemma3.attention.head_count", 4);
    put_u32(&f, "gemma3.attention.key_length", 32);
    put_u32(&f, "gemma3.attention.sliding_window", 1024);
    plim_arena_init(&arena, 0);
    assert_ok(read_file(&arena, &f, &file, NULL));
    assert_ok(plim_geometry_from_gguf(&arena, &file, &g, NULL));
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(g.layers[i].mixer, i % 6 == 5 ? PLIM_MIXER_FULL : PLIM_MIXER_SLIDING);
        assert_int_equal(g.layers[i].head_dim, 32);
        assert_int_equal(g.layers[i].v_head_dim, 16);
    }
    plim_arena_fini(&arena);
}

static void expect_refusal(const struct file *f, enum plim_status want, const char *words)
{
    struct plim_arena arena;
    struct plim_gguf file;
    struct plim_geometry g;
    struct plim_err err;
    plim_arena_init(&arena, UINT64_C(64) << 20);
    plim_err_clear(&err);
    enum plim_status st = read_file(&arena, f, &file, &err);
    if (st == PLIM_OK) {
        st = plim_geometry_from_gguf(&arena, &file, &g, &err);
    }
    if (st != want || strstr(err.message, words) == NULL) {
        fail_msg("%s, \"%s\" instead of \"%s\"", plim_status_name(st), err.message, words);
    }
    plim_arena_fini(&arena);
}

static void bad_files_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct file f = begin(3, 0, 0);
    f.bytes[0] = 'X';
    expect_refusal(&f, PLIM_E_DATA, "not a GGUF file");
    f = begin(0x03000000, 0, 0);
    expect_refusal(&f, PLIM_E_UNSUPPORTED, "big-endian");
    f = begin(4, 0, 0);
    expect_refusal(&f, PLIM_E_UNSUPPORTED, "version");
    f = begin(3, UINT64_C(1) << 40, 0);
    expect_refusal(&f, PLIM_E_RANGE, "more tensors");
    f = begin(3, 0, 1);
    put(&f, UINT64_C(1) << 60, 8);
    expect_refusal(&f, PLIM_E_RANGE, "longer than any");
    f = begin(3, 0, 1);
    put_text(&f, "k");
    put(&f, 77, 4);
    expect_refusal(&f, PLIM_E_DATA, "unknown type");
    f = begin(3, 0, 1);
    put_u32(&f, "general.alignment", 3);
    expect_refusal(&f, PLIM_E_DATA, "alignment");
    f = begin(3, 1, 0);
    put_tensor(&f, "w", 256, 2, 4, 0);
    expect_refusal(&f, PLIM_E_DATA, "retired");
    f = begin(3, 1, 0);
    put_tensor(&f, "w", 100, 2, 12, 0);
    expect_refusal(&f, PLIM_E_DATA, "blocks");
    f = begin(3, 1, 0);
    put_tensor(&f, "w", UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0);
    expect_refusal(&f, PLIM_E_RANGE, "64 bits");
    f = begin(3, 1, 0);
    put_tensor(&f, "w", 8, 1, 0, 8);
    expect_refusal(&f, PLIM_E_DATA, "aligned");
    f = begin(3, 2, 0);
    put_tensor(&f, "a", 64, 1, 0, 0);
    put_tensor(&f, "b", 64, 1, 0, 32);
    expect_refusal(&f, PLIM_E_DATA, "inside the one before it");
    f = begin(3, 0, 0);
    expect_refusal(&f, PLIM_E_DATA, "general.architecture");
    f = begin(3, 0, 1);
    put_string(&f, "general.architecture", "llama");
    expect_refusal(&f, PLIM_E_DATA, "embedding_length");
}

/* Three layers of which the second attends because the interval says so; head counts as given, NULL: none. */
static struct file every_second_attends(const uint32_t *heads, const uint32_t *kv_heads)
{
    struct file f = begin_model("qwen3next", 3, 4u + (heads != NULL) + (kv_heads != NULL));
    put_u32(&f, "qwen3next.full_attention_interval", 2);
    put_u32(&f, "qwen3next.ssm.conv_kernel", 4);
    put_u32(&f, "qwen3next.ssm.inner_size", 128);
    put_u32(&f, "qwen3next.ssm.state_size", 16);
    if (heads != NULL) {
        put_u32s(&f, "qwen3next.attention.head_count", heads, 3);
    }
    if (kv_heads != NULL) {
        put_u32s(&f, "qwen3next.attention.head_count_kv", kv_heads, 3);
    }
    return f;
}

static void a_layer_that_attends_without_heads_is_refused(void **state)
{
    (void)state;
    static const uint32_t none[3] = {0, 0, 0};
    static const uint32_t second[3] = {0, 4, 0};
    struct file f = every_second_attends(NULL, NULL);
    expect_refusal(&f, PLIM_E_DATA, "attention.head_count is missing, and layers attend");
    f = every_second_attends(none, second);
    expect_refusal(&f, PLIM_E_DATA, "attention.head_count is 0 for a layer that attends");
    f = every_second_attends(second, none);
    expect_refusal(&f, PLIM_E_DATA, "attention.head_count_kv is 0 for a layer that attends");
    f = every_second_attends(second, NULL);
    expect_refusal(&f, PLIM_OK, "");
}

static void a_model_of_attention_alone_has_to_state_its_heads(void **state)
{
    (void)state;
    struct file f = begin_model("llama", 2, 0);
    expect_refusal(&f, PLIM_E_DATA, "attention.head_count is missing, and layers attend");
    f = begin_model("llama", 2, 1);
    put_u32(&f, "llama.attention.head_count", 65);
    expect_refusal(&f, PLIM_E_DATA, "attention.head_count is more than embedding_length");
    f = begin_model("rwkv6", 2, 1);
    put_u32(&f, "rwkv6.attention.head_count", 0);
    expect_refusal(&f, PLIM_OK, "");
}

static void channels_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct file f = begin_model("mamba2", 1, 5);
    put_u32(&f, "mamba2.attention.head_count", 0);
    put_u32(&f, "mamba2.ssm.conv_kernel", 4);
    put_u32(&f, "mamba2.ssm.inner_size", 128);
    put_u32(&f, "mamba2.ssm.state_size", 1U << 16);
    put_u32(&f, "mamba2.ssm.group_count", 1U << 15); /* twice the product is 0 in 32 bits */
    expect_refusal(&f, PLIM_E_RANGE, "more channels than any model has");
}

static void every_cut_is_truncated(void **state)
{
    (void)state;
    struct file f = small_llama(3);
    size_t whole = f.n;
    for (size_t n = 0; n < whole; n++) {
        struct plim_arena arena;
        struct plim_gguf file;
        plim_arena_init(&arena, 0);
        f.n = n;
        assert_int_equal(read_file(&arena, &f, &file, NULL), PLIM_E_TRUNCATED);
        plim_arena_fini(&arena);
    }
}

static enum plim_status read_body(void *arg)
{
    struct plim_arena arena;
    struct plim_gguf file;
    struct plim_geometry g;
    plim_arena_init(&arena, 0);
    enum plim_status st = read_file(&arena, arg, &file, NULL);
    if (st == PLIM_OK) {
        st = plim_geometry_from_gguf(&arena, &file, &g, NULL);
    }
    plim_arena_fini(&arena);
    return st;
}

static void reading_survives_every_failing_allocation(void **state)
{
    (void)state;
    struct file f = small_llama(3);
    assert_true(fail_alloc_sweep(read_body, &f, 100, false) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_block),
        cmocka_unit_test(weights_are_the_sum_of_the_table),
        cmocka_unit_test(metadata_gives_the_bytes_of_a_token),
        cmocka_unit_test(layers_without_kv_heads_keep_a_state),
        cmocka_unit_test(sliding_layers_follow_the_architecture),
        cmocka_unit_test(bad_files_are_refused_with_a_reason),
        cmocka_unit_test(a_layer_that_attends_without_heads_is_refused),
        cmocka_unit_test(a_model_of_attention_alone_has_to_state_its_heads),
        cmocka_unit_test(channels_that_do_not_fit_are_refused),
        cmocka_unit_test(every_cut_is_truncated),
        cmocka_unit_test(reading_survives_every_failing_allocation),
    };
    return PLIM_RUN_TESTS("gguf", tests);
}
