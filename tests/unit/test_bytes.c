/* SPDX-License-Identifier: Apache-2.0 */
/* Byte counts: tables of what is printed and what is read. */

#include "base/bytes.h"
#include "unit.h"

static const struct {
    uint64_t bytes;
    const char *text;
} formats[] = {
    {0, "0 B"},
    {1, "1 B"},
    {512, "512 B"},
    {1023, "1023 B"},
    {1024, "1.00 KiB"},
    {1536, "1.50 KiB"},
    {20971520, "20.0 MiB"},
    {104857600, "100 MiB"},
    {1048575, "1.00 MiB"}, /* never "1024 KiB" */
    {1073741823, "1.00 GiB"},
    {UINT64_C(1099511627775), "1.00 TiB"},
    {UINT64_C(25201483776), "23.47 GiB"},
    {UINT64_C(85520809984), "79.65 GiB"},
    {UINT64_C(154618822656), "144.0 GiB"},
    {UINT64_C(1319413953332), "1.20 TiB"},
    {UINT64_MAX, "16.00 EiB"},
};

static void sizes_print_in_iec_units_with_three_digits(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(formats); i++) {
        char buf[PLIM_BYTES_TEXT];
        assert_string_equal(plim_bytes_format(buf, formats[i].bytes), formats[i].text);
    }
}

static void every_power_of_two_prints_within_the_buffer(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int d = -1; d <= 1; d++) {
            char buf[PLIM_BYTES_TEXT];
            plim_bytes_format(buf, (UINT64_C(1) << shift) + (uint64_t)d);
            assert_true(strlen(buf) < PLIM_BYTES_TEXT);
            assert_null(strstr(buf, "1024"));
        }
    }
}

static const struct {
    const char *text;
    uint64_t bytes;
} parses[] = {
    {"0", 0},
    {"123456", 123456},
    {"24GiB", UINT64_C(24) << 30},
    {"24 GB", UINT64_C(24) << 30},
    {"24g", UINT64_C(24) << 30},
    {"24G", UINT64_C(24) << 30},
    {"1.5g", UINT64_C(3) << 29},
    {"81559MiB", UINT64_C(81559) << 20},
    {"512 B", 512},
    {"512 bytes", 512},
    {"2k", 2048},
    {"2KB", 2048},
    {"2kib", 2048},
    {"1T", UINT64_C(1) << 40},
    {"0.5 KiB", 512},
    {"79.11GiB", UINT64_C(84943715697)},
    {"18446744073709551615", UINT64_MAX},
};

static void people_s_and_programs_spellings_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(parses); i++) {
        uint64_t bytes = 1;
        enum plim_status st = plim_bytes_parse(plim_str_from(parses[i].text), &bytes, NULL, NULL);
        if (st != PLIM_OK) {
            fail_msg("'%s' was refused", parses[i].text);
        }
        if (bytes != parses[i].bytes) {
            fail_msg("'%s' gave %llu", parses[i].text, (unsigned long long)bytes);
        }
    }
}

static const struct {
    const char *text;
    enum plim_status status;
} refusals[] = {
    {"", PLIM_E_USAGE},
    {"GiB", PLIM_E_USAGE},
    {"-1", PLIM_E_USAGE},
    {"+1", PLIM_E_USAGE},
    {" 1", PLIM_E_USAGE},
    {"1 ", PLIM_E_USAGE},
    {"1  GiB", PLIM_E_USAGE},
    {"1.GiB", PLIM_E_USAGE},
    {"1.5.5", PLIM_E_USAGE},
    {"24GiBs", PLIM_E_USAGE},
    {"24 parsecs", PLIM_E_USAGE},
    {"0x10", PLIM_E_USAGE},
    {"18446744073709551616", PLIM_E_RANGE},
    {"16 EiB", PLIM_E_RANGE},
    {"99999999999999999999999 GiB", PLIM_E_RANGE},
    {"17179869184 GiB", PLIM_E_RANGE},
};

static void what_is_no_size_is_refused_and_nothing_is_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(refusals); i++) {
        uint64_t bytes = 42;
        struct plim_err err;
        enum plim_status st = plim_bytes_parse(plim_str_from(refusals[i].text), &bytes, NULL, &err);
        if (st != refusals[i].status) {
            fail_msg("'%s' gave %s", refusals[i].text, plim_status_name(st));
        }
        assert_int_equal(bytes, 42);
        assert_int_not_equal(err.message[0], 0);
    }
}

static void used_tells_where_the_size_ended(void **state)
{
    (void)state;
    uint64_t bytes;
    size_t used;
    assert_ok(plim_bytes_parse(PLIM_STR("2.50 GiB is free"), &bytes, &used, NULL));
    assert_int_equal(used, 8);
    assert_ok(plim_bytes_parse(PLIM_STR("20 of 30"), &bytes, &used, NULL));
    assert_int_equal(used, 2);
    assert_int_equal(bytes, 20);
}

static void what_is_printed_reads_back_within_a_half_percent(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < UINT64_C(1) << 61; n += n / 3 + 1) {
        char buf[PLIM_BYTES_TEXT];
        uint64_t back;
        plim_bytes_format(buf, n);
        assert_ok(plim_bytes_parse(plim_str_from(buf), &back, NULL, NULL));
        uint64_t off = back > n ? back - n : n - back;
        assert_true(off <= n / 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_print_in_iec_units_with_three_digits),
        cmocka_unit_test(every_power_of_two_prints_within_the_buffer),
        cmocka_unit_test(people_s_and_programs_spellings_are_read),
        cmocka_unit_test(what_is_no_size_is_refused_and_nothing_is_written),
        cmocka_unit_test(used_tells_where_the_size_ended),
        cmocka_unit_test(what_is_printed_reads_back_within_a_half_percent),
    };
    return PLIM_RUN_TESTS("bytes", tests);
}
