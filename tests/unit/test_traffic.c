/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic files: layouts, exact times, what is repaired and what is refused. */

#include "format/traffic.h"

#include "fail_alloc.h"
#include "unit.h"

#include <string.h>

struct reading {
    struct plim_traffic traffic;
    struct plim_traffic_repairs repairs;
    enum plim_traffic_layout layout;
    struct plim_err err;
};

static enum plim_status read_text(const char *text, const struct plim_traffic_options *options,
                                  struct reading *out)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, plim_str_from(text));
    *out = (struct reading){0};
    return plim_traffic_collect(&source, options, &out->traffic, &out->repairs, &out->layout,
                                &out->err);
}

static void azure_times_are_exact_to_their_seventh_digit(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                        "2023-11-16 23:59:59.9799600,4808,10\r\n"
                        "2023-11-17 00:00:00.0319601,3180,8",
                        NULL, &r));
    assert_int_equal(r.layout, PLIM_TRAFFIC_AZURE);
    assert_int_equal(r.traffic.arrivals.n, 2);
    assert_int_equal(r.traffic.arrivals.items[0].at_ns, 0);
    assert_int_equal(r.traffic.arrivals.items[1].at_ns, 52000100);
    assert_int_equal(r.traffic.arrivals.items[1].prompt, 3180);
    assert_int_equal(r.traffic.arrivals.items[0].output, 10);
    assert_int_equal(r.traffic.arrivals.items[0].session, PLIM_NO_ID);
    assert_true(r.traffic.timed);
    plim_traffic_fini(&r.traffic);
}

static void mooncake_keeps_the_hashes_of_shared_prefixes(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text(
        "{\"timestamp\": 0, \"input_length\": 900, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
        "{\"timestamp\": 27, \"input_length\": 1300, \"output_length\": 6, \"hash_ids\": [0, 2, "
        "18446744073709551]}\n",
        NULL, &r));
    assert_int_equal(r.layout, PLIM_TRAFFIC_MOONCAKE);
    assert_int_equal(r.traffic.hash_block, 512);
    assert_int_equal(r.traffic.arrivals.items[1].at_ns, 27000000);
    assert_int_equal(r.traffic.arrivals.items[1].first_hash, 2);
    assert_int_equal(r.traffic.arrivals.items[1].n_hashes, 3);
    assert_int_equal(r.traffic.hashes.items[2], r.traffic.hashes.items[0]);
    assert_int_equal(r.traffic.hashes.items[4], UINT64_C(18446744073709551));
    plim_traffic_fini(&r.traffic);
}

static void a_bailian_chat_belongs_to_the_session_of_its_parent(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text(
        "{\"chat_id\": 7, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 40, "
        "\"output_length\": 9, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [1, 2, 3]}\n"
        "{\"chat_id\": 8, \"parent_chat_id\": -1, \"timestamp\": 62, \"input_length\": 30, "
        "\"output_length\": 9, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [4, 5]}\n"
        "{\"chat_id\": 9, \"parent_chat_id\": 7, \"timestamp\": 90.5, \"input_length\": 60, "
        "\"output_length\": 9, \"type\": \"text\", \"turn\": 2, \"hash_ids\": [1, 2, 3, 6]}\n",
        NULL, &r));
    const struct plim_arrival *a = r.traffic.arrivals.items;
    assert_int_equal(r.layout, PLIM_TRAFFIC_BAILIAN);
    assert_int_equal(r.traffic.hash_block, 16);
    assert_int_equal(a[2].session, a[0].session);
    assert_int_not_equal(a[1].session, a[0].session);
    assert_int_equal(r.traffic.sessions, 2);
    assert_int_equal(a[2].turn, 2);
    assert_int_equal(a[2].at_ns, 29386000000);
    plim_traffic_fini(&r.traffic);
}

static void failed_requests_of_burstgpt_are_left_out_and_counted(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
                        "Total tokens,Log Type\n"
                        "5,a,1.2,ChatGPT,472,18,490,Conversation log\n"
                        "45.5,\"b,\"\"2\",0.1,GPT-4,12,0,12,API log\n"
                        "60,a,0.4,ChatGPT,500,20,520,Conversation log\n",
                        NULL, &r));
    assert_int_equal(r.layout, PLIM_TRAFFIC_BURSTGPT);
    assert_int_equal(r.traffic.arrivals.n, 2);
    assert_int_equal(r.repairs.failed.n, 1);
    assert_int_equal(r.repairs.failed.first_line, 3);
    assert_int_equal(r.traffic.arrivals.items[1].at_ns, 55000000000);
    assert_int_equal(r.traffic.arrivals.items[0].session, r.traffic.arrivals.items[1].session);
    plim_traffic_fini(&r.traffic);
}

static void plain_files_say_their_unit_by_name_or_have_no_header(void **state)
{
    static const struct {
        const char *text;
        uint64_t second_ns;
    } cases[] = {
        {"time_ms;prompt;output\n1;2;3\n2.5;2;3\n", 1500000},
        {"{\"time_ns\": 5, \"prompt_tokens\": 1, \"completion_tokens\": 2}\n"
         "{\"time_ns\": 9, \"prompt_tokens\": 1, \"completion_tokens\": 2}\n",
         4},
        {"0.25,10,20\n1.5,10,20\n", 1250000000},
        {"\xef\xbb\xbftime,prompt,output\n1e3,1,1\n1001,1,1\n", 1000000000},
        {"time\tinput\toutput\n2026-01-01T00:00:00Z\t1\t1\n2026-01-01T01:00:01+01:00\t1\t1\n",
         1000000000},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct reading r;
        assert_ok(read_text(cases[i].text, NULL, &r));
        assert_int_equal(r.traffic.arrivals.n, 2);
        assert_int_equal(r.traffic.arrivals.items[1].at_ns, cases[i].second_ns);
        plim_traffic_fini(&r.traffic);
    }
}

static void lengths_without_times_are_all_at_zero(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
                        "3772,54,3826,69.85\n2015,156,2171,12.9\n",
                        NULL, &r));
    assert_false(r.traffic.timed);
    assert_int_equal(r.traffic.arrivals.items[1].prompt, 2015);
    assert_int_equal(plim_traffic_span(&r.traffic), 0);
    plim_traffic_fini(&r.traffic);
}

static void time_that_goes_back_is_counted_and_sorted_stably(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text("time,prompt,output\n10,1,1\n12,2,1\n3,3,1\n12,4,1\n3,5,1\n", NULL, &r));
    assert_int_equal(r.repairs.backwards.n, 2);
    assert_int_equal(r.repairs.backwards.first_line, 4);
    static const uint32_t order[] = {3, 5, 1, 2, 4};
    for (size_t i = 0; i < PLIM_COUNT_OF(order); i++) {
        assert_int_equal(r.traffic.arrivals.items[i].prompt, order[i]);
    }
    assert_int_equal(r.traffic.arrivals.items[0].at_ns, 0);
    assert_int_equal(plim_traffic_span(&r.traffic), 9000000000);
    plim_traffic_fini(&r.traffic);
}

static const char many_faults[] = "time,prompt,output\n"
                                  "1,0,5\n"
                                  "2,5,0\n"
                                  "3,-4,5\n"
                                  "4,nonsense,5\n"
                                  "5,7\n"
                                  "6,99999999999,5\n"
                                  "soon,1,1\n"
                                  "8,7,7,7\n"
                                  "9,\"8\",9.0\n"
                                  "10,-9223372036854775808,5\n";

static void faults_are_repaired_or_left_out_and_counted_by_kind(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(read_text(many_faults, NULL, &r));
    assert_int_equal(r.traffic.arrivals.n, 3);
    assert_int_equal(r.traffic.arrivals.items[0].prompt, 1);
    assert_int_equal(r.traffic.arrivals.items[1].output, 1);
    assert_int_equal(r.traffic.arrivals.items[2].prompt, 8);
    assert_int_equal(r.traffic.arrivals.items[2].output, 9);
    assert_int_equal(r.repairs.zero_prompts.n, 1);
    assert_int_equal(r.repairs.zero_outputs.first_line, 3);
    assert_int_equal(r.repairs.negative.first_line, 4);
    assert_int_equal(r.repairs.huge.first_line, 7);
    assert_int_equal(r.repairs.broken.n, 5);
    assert_int_equal(r.repairs.broken.first_line, 5);
    plim_traffic_fini(&r.traffic);
}

static void strict_reading_names_the_line_of_the_first_fault(void **state)
{
    struct plim_traffic_options strict = {.strict = true};
    struct reading r;
    (void)state;
    assert_int_equal(read_text(many_faults, &strict, &r), PLIM_E_DATA);
    assert_int_equal(r.err.pos, 2);
    assert_string_equal(r.err.where, "line");
    assert_int_equal(read_text("time,prompt,output\n5,1,1\n4,1,1\n", &strict, &r), PLIM_E_DATA);
    assert_int_equal(r.err.pos, 3);
}

static void what_is_no_traffic_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "\n\n",
        "hello\n",
        "time,prompt\n1,2\n",
        "[1, 2]\n",
        "{\"a\": 1}\n",
        "{\"prompt\": 1",
        "time,prompt,output\n",
        "time,prompt,output\nx,y,z\n",
        "\"time,prompt,output\n",
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        struct reading r;
        assert_int_equal(read_text(texts[i], NULL, &r), PLIM_E_DATA);
        assert_true(r.err.message[0] != '\0');
    }
}

static void images_and_adapters_are_kept(void **state)
{
    struct reading r;
    (void)state;
    assert_ok(
        read_text("time,prompt,output,images,width,height,lora\n"
                  "0,20,1,2,1920,1080,sql\n1,20,1,0,0,0,\n2,20,1,1,64,64,law\n3,2,1,0,,,sql\n",
                  NULL, &r));
    const struct plim_arrival *a = r.traffic.arrivals.items;
    assert_int_equal(a[0].images, 2);
    assert_int_equal(a[0].height, 1080);
    assert_int_equal(a[0].adapter, 1);
    assert_int_equal(a[1].adapter, 0);
    assert_int_equal(a[2].adapter, 2);
    assert_int_equal(a[3].adapter, 1);
    plim_traffic_fini(&r.traffic);
}

static void a_limit_ends_the_reading_early(void **state)
{
    struct plim_traffic_options two = {.most = 2};
    struct reading r;
    (void)state;
    assert_ok(read_text("1,1,1\n2,1,1\n3,1,1\n", &two, &r));
    assert_int_equal(r.traffic.arrivals.n, 2);
    plim_traffic_fini(&r.traffic);
}

static enum plim_status read_and_drop(void *arg)
{
    struct reading r;
    enum plim_status st = read_text(arg, NULL, &r);
    if (st == PLIM_OK) {
        plim_traffic_fini(&r.traffic);
    }
    return st;
}

static void failing_allocations_are_reported_and_leak_nothing(void **state)
{
    static char csv[] = "time,prompt,output,session,lora\n2,1,1,\"a\",x\n1,1,1,b,y\n";
    (void)state;
    fail_alloc_sweep(read_and_drop, csv, 200, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(azure_times_are_exact_to_their_seventh_digit),
        cmocka_unit_test(mooncake_keeps_the_hashes_of_shared_prefixes),
        cmocka_unit_test(a_bailian_chat_belongs_to_the_session_of_its_parent),
        cmocka_unit_test(failed_requests_of_burstgpt_are_left_out_and_counted),
        cmocka_unit_test(plain_files_say_their_unit_by_name_or_have_no_header),
        cmocka_unit_test(lengths_without_times_are_all_at_zero),
        cmocka_unit_test(time_that_goes_back_is_counted_and_sorted_stably),
        cmocka_unit_test(faults_are_repaired_or_left_out_and_counted_by_kind),
        cmocka_unit_test(strict_reading_names_the_line_of_the_first_fault),
        cmocka_unit_test(what_is_no_traffic_is_refused),
        cmocka_unit_test(images_and_adapters_are_kept),
        cmocka_unit_test(a_limit_ends_the_reading_early),
        cmocka_unit_test(failing_allocations_are_reported_and_leak_nothing),
    };
    return PLIM_RUN_TESTS("traffic files", tests);
}
