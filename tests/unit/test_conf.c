/* SPDX-License-Identifier: Apache-2.0 */
/* The settings parser and rounding: values, limits and error texts as PyTorch's. */

#include "alloc/conf.h"

#include "unit.h"

static struct plim_conf parsed(const char *text)
{
    struct plim_conf conf;
    struct plim_err err = {0};
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    if (plim_conf_parse(&conf, plim_str_from(text), &err) != PLIM_OK) {
        print_error("'%s': %s\n", text, err.message);
        fail();
    }
    return conf;
}

static struct plim_err refused_by(unsigned minor, const char *text)
{
    struct plim_conf conf;
    struct plim_err err = {0};
    plim_conf_init(&conf, (struct plim_torch_version){2, (uint16_t)minor});
    assert_int_equal(plim_conf_parse(&conf, plim_str_from(text), &err), PLIM_E_USAGE);
    return err;
}

static void an_empty_string_is_the_default(void **state)
{
    (void)state;
    struct plim_conf conf = parsed("");
    assert_int_equal(conf.large_segment, 20 * PLIM_MIB);
    assert_true(conf.max_split == UINT64_MAX);
    assert_int_equal(conf.max_non_split_rounding, 20 * PLIM_MIB);
    assert_false(conf.expandable);
    assert_true(conf.gc_threshold == 0.0);
    assert_int_equal(conf.roundup[7], 0);
}

static void every_key_is_read(void **state)
{
    (void)state;
    struct plim_conf conf =
        parsed("max_split_size_mb:64.7, garbage_collection_threshold:0.8,expandable_segments:True,"
               "max_non_split_rounding_mb:32,backend:native,release_lock_on_cudamalloc:True,"
               "pinned_num_register_threads:8,per_process_memory_fraction:0.5,"
               "throw_on_cudamalloc_oom:True,graph_capture_record_stream_reuse:True,");
    assert_int_equal(conf.max_split, 64 * PLIM_MIB);
    assert_true(conf.gc_threshold > 0.79 && conf.gc_threshold < 0.81);
    assert_true(conf.expandable);
    assert_int_equal(conf.max_non_split_rounding, 32 * PLIM_MIB);
    assert_true(conf.release_lock_on_malloc);
    assert_int_equal(conf.pinned_threads, 8);
    assert_true(conf.memory_fraction > 0.49 && conf.memory_fraction < 0.51);
    assert_true(conf.reject_early);
    assert_true(conf.capture_reuse);
}

static void minus_one_wraps_as_in_pytorch(void **state)
{
    (void)state;
    assert_true(parsed("max_split_size_mb:-1").max_split == UINT64_MAX - PLIM_MIB + 1);
}

static void the_large_segment_size_is_the_floor_wherever_it_stands(void **state)
{
    (void)state;
    struct plim_err err = refused_by(14, "max_non_split_rounding_mb:32,large_segment_size_mb:64");
    assert_string_equal(
        err.message, "CachingAllocator option max_non_split_rounding_mb too small, must be >= 64");
    assert_int_equal(parsed("large_segment_size_mb:64").max_non_split_rounding, 64 * PLIM_MIB);
    assert_int_equal(parsed("large_segment_size_mb:12,max_split_size_mb:12").max_split,
                     12 * PLIM_MIB);
}

static void parsing_again_resets_four_keys_and_keeps_the_rest(void **state)
{
    (void)state;
    struct plim_conf conf = parsed("max_split_size_mb:64,garbage_collection_threshold:0.5,"
                                   "roundup_power2_divisions:4,expandable_segments:True");
    assert_int_equal(plim_conf_parse(&conf, plim_str_from("backend:native"), NULL), PLIM_OK);
    assert_true(conf.max_split == UINT64_MAX);
    assert_true(conf.gc_threshold == 0.0);
    assert_int_equal(conf.roundup[0], 0);
    assert_true(conf.expandable);
}

static void rounding_lists_fill_as_in_pytorch(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want[PLIM_ROUND_INTERVALS];
    } cases[] = {
        {"roundup_power2_divisions:4", {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
         {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}},
        {"roundup_power2_divisions:[2:4,8:2]", {4, 4, 0, 2}},
        {"roundup_power2_divisions:[>:4]", {0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_conf conf = parsed(cases[i].text);
        assert_memory_equal(conf.roundup, cases[i].want, sizeof conf.roundup);
    }
}

static void the_open_interval_overwrote_its_neighbour_before_2_8(void **state)
{
    (void)state;
    struct plim_conf conf;
    plim_conf_init(&conf, (struct plim_torch_version){2, 6});
    struct plim_str text = PLIM_STR("roundup_power2_divisions:[256:1,512:2,>:8]");
    assert_int_equal(plim_conf_parse(&conf, text, NULL), PLIM_OK);
    assert_int_equal(conf.roundup[8], 1);
    assert_int_equal(conf.roundup[9], 8);
}

static void errors_have_pytorchs_words(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"foo:1", "Unrecognized key 'foo' in Accelerator allocator config."},
        {"max_split_size_mb:19",
         "CachingAllocator option max_split_size_mb too small, must be >= 20"},
        {"large_segment_size_mb:10",
         "CachingAllocator option large_segment_size_mb must be > 10 MB"},
        {"expandable_segments:true",
         "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
        {"garbage_collection_threshold:1.0",
         "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
        {"per_process_memory_fraction:1.5",
         "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
        {"backend:foo", "Unknown allocator backend, options are native and cudaMallocAsync"},
        {"roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "},
        {"roundup_power2_divisions:[3:1]", "For roundups, the intervals have to be power of 2 "},
        {"pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3"},
        {"max_split_size_mb", "Index out of bounds in ConfigTokenizer"},
        {"max_split_size_mb:x", "stoull"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        assert_string_equal(refused_by(14, cases[i].text).message, cases[i].message);
    }
    assert_string_equal(refused_by(6, "foo:1").message,
                        "Unrecognized CachingAllocator option: foo");
}

static void an_unknown_key_is_answered_with_the_nearest_one(void **state)
{
    (void)state;
    struct plim_err err = refused_by(14, "backend:native,expandable_segment:True");
    assert_string_equal(err.hint, "did you mean expandable_segments?");
    assert_int_equal(err.pos, 15);
    assert_string_equal(refused_by(14, "zzz:1").hint, "");
}

static void a_key_of_a_later_release_is_named_as_such(void **state)
{
    (void)state;
    struct plim_err err = refused_by(9, "large_segment_size_mb:64");
    assert_string_equal(
        err.message, "Unrecognized key 'large_segment_size_mb' in Accelerator allocator config.");
    assert_non_null(strstr(err.hint, "since PyTorch 2.11"));
}

static void keys_before_an_error_stay_applied(void **state)
{
    (void)state;
    struct plim_conf conf;
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    assert_int_equal(plim_conf_parse(&conf, plim_str_from("max_split_size_mb:64,foo:1"), NULL),
                     PLIM_E_USAGE);
    assert_int_equal(conf.max_split, 64 * PLIM_MIB);
}

static void requests_are_rounded_as_in_pytorch(void **state)
{
    (void)state;
    static const uint64_t none[PLIM_ROUND_INTERVALS] = {0};
    static const uint64_t four[PLIM_ROUND_INTERVALS] = {4, 4, 4, 4, 4, 4, 4, 4,
                                                        4, 4, 4, 4, 4, 4, 4, 4};
    static const struct {
        uint64_t n;
        uint64_t plain;
        uint64_t quarters;
    } cases[] = {
        {1, 512, 512},
        {512, 512, 512},
        {513, 1024, 1024},
        {2048, 2048, 2048},
        {2049, 2560, 2560},
        {1200 * 1024, 1228800, 1310720},
        {1048576, 1048576, 1048576},
        {1048577, 1049088, 1310720},
        {10485759, 10485760, 10485760},
        {UINT64_C(5) << 30, UINT64_C(5) << 30, UINT64_C(5) << 30},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        assert_int_equal(plim_round_request(cases[i].n, none), cases[i].plain);
        assert_int_equal(plim_round_request(cases[i].n, four), cases[i].quarters);
    }
    assert_int_equal(plim_round_segment(10485760, 20 * PLIM_MIB), 10485760);
    assert_int_equal(plim_round_segment(10485759 & ~511u, 20 * PLIM_MIB), 20 * PLIM_MIB);
    assert_int_equal(plim_round_segment(10486272, 20 * PLIM_MIB), 12582912);
}

static void versions_are_read_from_what_pytorch_prints(void **state)
{
    (void)state;
    struct plim_torch_version v = {0};
    assert_int_equal(plim_torch_version_parse(PLIM_STR("2.14.1+cu130"), &v, NULL), PLIM_OK);
    assert_int_equal(v.minor, 14);
    assert_int_equal(plim_torch_version_parse(PLIM_STR("v2.6.0a0"), &v, NULL), PLIM_OK);
    assert_int_equal(v.minor, 6);
    assert_int_equal(plim_torch_version_parse(PLIM_STR("2"), &v, NULL), PLIM_E_USAGE);
    assert_int_equal(plim_torch_version_parse(PLIM_STR("2.x"), &v, NULL), PLIM_E_USAGE);
    assert_int_equal(plim_torch_version_parse(PLIM_STR("1.13"), &v, NULL), PLIM_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_string_is_the_default),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(minus_one_wraps_as_in_pytorch),
        cmocka_unit_test(the_large_segment_size_is_the_floor_wherever_it_stands),
        cmocka_unit_test(parsing_again_resets_four_keys_and_keeps_the_rest),
        cmocka_unit_test(rounding_lists_fill_as_in_pytorch),
        cmocka_unit_test(the_open_interval_overwrote_its_neighbour_before_2_8),
        cmocka_unit_test(errors_have_pytorchs_words),
        cmocka_unit_test(an_unknown_key_is_answered_with_the_nearest_one),
        cmocka_unit_test(a_key_of_a_later_release_is_named_as_such),
        cmocka_unit_test(keys_before_an_error_stay_applied),
        cmocka_unit_test(requests_are_rounded_as_in_pytorch),
        cmocka_unit_test(versions_are_read_from_what_pytorch_prints),
    };
    return PLIM_RUN_TESTS("conf", tests);
}
