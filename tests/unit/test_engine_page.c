/* SPDX-License-Identifier: Apache-2.0 */

/* Reading what engines say at /metrics, and what it means. */

#include "base/buf.h"
#include "observe/engine_page.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>

static struct plim_engine_page page;
static struct plim_engine_list engines;

/* Read a whole page, `step` bytes at a time. */
static void read_page(struct plim_str text, size_t step, bool whole)
{
    engines.n = 0;
    plim_engine_page_init(&page);
    while (text.n > 0) {
        size_t n = text.n < step ? text.n : step;
        plim_engine_page_feed(&page, (struct plim_str){text.p, n});
        text = plim_str_skip(text, n);
    }
    assert_int_equal(plim_engine_page_end(&page, whole, &engines, NULL), PLIM_OK);
}

static void read_text(const char *text)
{
    read_page(plim_str_from(text), 7, true);
}

static void assert_figure(size_t engine, enum plim_engine_figure figure, double value)
{
    assert_true(engine < engines.n);
    assert_true(plim_engine_has(&engines.items[engine], figure));
    assert_true(fabs(engines.items[engine].figure[figure] - value) < 1e-9);
}

static void assert_unknown(size_t engine, enum plim_engine_figure figure)
{
    assert_true(engine < engines.n);
    assert_false(plim_engine_has(&engines.items[engine], figure));
}

#define FIGURE(name)  PLIM_ENGINE_FIGURE_##name
#define KIND_IS(e, k) assert_int_equal(engines.items[e].kind, PLIM_ENGINE_KIND_##k)

static void vllm_of_today_tells_its_pool_and_sleep(void **state)
{
    (void)state;
    read_text(
        "# HELP vllm:num_requests_running Number of requests.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        "vllm:num_requests_running{engine=\"0\",model_name=\"m/a\"} 3.0\n"
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m/a\"} 2.0\n"
        "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m/a\",reason=\"deferred\"} "
        "1.0\n"
        "vllm:engine_sleep_state{engine=\"0\",model_name=\"m/a\",sleep_state=\"awake\"} 0.0\n"
        "vllm:engine_sleep_state{engine=\"0\",model_name=\"m/a\",sleep_state=\"discard_all\"} 1.0\n"
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m/a\"} 0.25\n"
        "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"m/a\"} 5.0\n"
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m/a\"} "
        "2.0\n"
        "vllm:cache_config_info{block_size=\"16\",engine=\"0\",kv_cache_size_tokens=\"1234\","
        "num_gpu_blocks=\"100\",sliding_window=\"None\"} 1.0\n");
    assert_int_equal(engines.n, 1);
    KIND_IS(0, VLLM);
    assert_string_equal(engines.items[0].model, "m/a");
    assert_string_equal(engines.items[0].rank, "0");
    assert_figure(0, FIGURE(RUNNING), 3);
    assert_figure(0, FIGURE(WAITING), 2);
    assert_figure(0, FIGURE(KV_USAGE), 0.25);
    assert_figure(0, FIGURE(KV_CAPACITY), 1234);
    assert_figure(0, FIGURE(REQUESTS), 7);
    assert_figure(0, FIGURE(ASLEEP), 1);
    assert_unknown(0, FIGURE(PREEMPTIONS));
}

static void the_longest_request_follows_from_what_vllm_says_of_its_cache(void **state)
{
    static const struct {
        const char *tokens, *concurrency;
        double length; /* 0: not told */
    } rows[] = {
        {"6416", "3.1328125", 2048},
        {"6365", "6.365079365079365", 1000}, /* 401 blocks, 63 for each */
        {"128", "1.0", 128},
        {"100", "0.5", 0}, /* not one fits: the fraction may be several tokens */
        {"6416", "None", 0},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text),
                       "vllm:cache_config_info{block_size=\"16\",kv_cache_max_concurrency=\"%s\","
                       "kv_cache_size_tokens=\"%s\"} 1\n",
                       rows[i].concurrency, rows[i].tokens);
        read_text(text);
        if (rows[i].length > 0) {
            assert_figure(0, FIGURE(MAX_CONTEXT), rows[i].length);
        } else {
            assert_unknown(0, FIGURE(MAX_CONTEXT));
        }
    }
}

static void old_names_of_vllm_mean_the_same(void **state)
{
    (void)state;
    read_text("vllm:gpu_cache_usage_perc{model_name=\"a\"} 0.5\n"
              "vllm:num_requests_swapped{model_name=\"a\"} 4\n"
              "vllm:gpu_prefix_cache_hits_total{model_name=\"a\"} 9\n"
              "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n");
    assert_int_equal(engines.n, 1);
    assert_figure(0, FIGURE(KV_USAGE), 0.5);
    assert_figure(0, FIGURE(SWAPPED), 4);
    assert_figure(0, FIGURE(PREFIX_HITS), 9);
    assert_figure(0, FIGURE(KV_CAPACITY), 1600);
}

static void the_newer_name_wins_whatever_the_order(void **state)
{
    (void)state;
    read_text("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.75\n");
    assert_figure(0, FIGURE(KV_USAGE), 0.75);
    read_text("vllm:kv_cache_usage_perc 0.75\nvllm:gpu_cache_usage_perc 0.5\n");
    assert_figure(0, FIGURE(KV_USAGE), 0.75);
}

static void every_data_parallel_rank_is_an_engine(void **state)
{
    (void)state;
    read_text("vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 1\n"
              "vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 2\n"
              "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10\"} 1\n"
              "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"20\"} 1\n");
    assert_int_equal(engines.n, 2);
    assert_figure(0, FIGURE(RUNNING), 1);
    assert_figure(0, FIGURE(KV_CAPACITY), 160);
    assert_figure(1, FIGURE(RUNNING), 2);
    assert_figure(1, FIGURE(KV_CAPACITY), 320);
}

static void sglang_repeats_itself_on_every_tensor_parallel_rank(void **state)
{
    (void)state;
    read_text("sglang:num_running_reqs{engine_type=\"unified\",model_name=\"q\",pp_rank=\"0\",tp_"
              "rank=\"0\"} 5.0\n"
              "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"q\",pp_rank=\"0\",tp_"
              "rank=\"1\"} 5.0\n"
              "sglang:num_used_tokens{model_name=\"q\",tp_rank=\"0\"} 250\n"
              "sglang:kv_evictable_tokens{model_name=\"q\",tp_rank=\"0\"} 500\n"
              "sglang:max_total_num_tokens{model_name=\"q\",tp_rank=\"0\"} 1000\n"
              "sglang:num_retracted_reqs{model_name=\"q\",tp_rank=\"0\"} 1\n"
              "sglang:prompt_tokens_total{model_name=\"q\"} 77\n");
    assert_int_equal(engines.n, 1);
    KIND_IS(0, SGLANG);
    assert_figure(0, FIGURE(RUNNING), 5);
    assert_figure(0, FIGURE(KV_USAGE), 0.25);
    assert_figure(0, FIGURE(KV_CACHED), 0.5);
    assert_figure(0, FIGURE(PROMPT_TOKENS), 77);
    assert_unknown(0, FIGURE(PREEMPTIONS)); /* that gauge is of the last step only */
}

static void tgi_llama_and_triton_are_known(void **state)
{
    (void)state;
    read_text(
        "tgi_queue_size 4\ntgi_batch_current_size 8\ntgi_request_input_length_sum 640\n"
        "tgi_request_failure{err=\"overloaded\"} 3\ntgi_request_failure{err=\"validation\"} 9\n");
    KIND_IS(0, TGI);
    assert_figure(0, FIGURE(WAITING), 4);
    assert_figure(0, FIGURE(PROMPT_TOKENS), 640);
    assert_figure(0, FIGURE(REJECTED), 3);
    read_text("llamacpp:requests_processing 1\nllamacpp:kv_cache_usage_ratio 0.5\n"
              "llamacpp:tokens_predicted_total 42\n");
    KIND_IS(0, LLAMACPP);
    assert_figure(0, FIGURE(KV_USAGE), 0.5);
    assert_figure(0, FIGURE(GENERATION_TOKENS), 42);
    read_text("nv_inference_pending_request_count{model=\"bert\",version=\"1\"} 3\n"
              "nv_inference_pending_request_count{model=\"bert\",version=\"2\"} 1\n"
              "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"llm\","
              "version=\"1\"} 25\n"
              "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"llm\",version="
              "\"1\"} 100\n"
              "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"llm\","
              "version=\"1\"} 64\n");
    assert_int_equal(engines.n, 2);
    KIND_IS(0, TRITON);
    assert_figure(0, FIGURE(WAITING), 4);
    assert_figure(1, FIGURE(KV_USAGE), 0.25);
    assert_figure(1, FIGURE(KV_CAPACITY), 6400);
}

static void numbers_that_cannot_be_leave_their_figure_out(void **state)
{
    (void)state;
    read_text("vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n"
              "vllm:num_requests_swapped -1\nvllm:kv_cache_usage_perc 45\n"
              "vllm:prompt_tokens_total 1e3\nvllm:generation_tokens_total 0x10\n"
              "vllm:num_preemptions_total 1e19\n"
              "vllm:cache_config_info{block_size=\"9e9\",num_gpu_blocks=\"9e9\"} 1\n");
    assert_unknown(0, FIGURE(PREEMPTIONS));
    assert_unknown(0, FIGURE(KV_CAPACITY));
    assert_unknown(0, FIGURE(RUNNING));
    assert_unknown(0, FIGURE(WAITING));
    assert_unknown(0, FIGURE(SWAPPED));
    assert_unknown(0, FIGURE(KV_USAGE));
    assert_unknown(0, FIGURE(GENERATION_TOKENS));
    assert_figure(0, FIGURE(PROMPT_TOKENS), 1000);
}

static void the_same_sample_twice_counts_once(void **state)
{
    (void)state;
    read_text("vllm:request_success_total{finished_reason=\"stop\"} 5\n"
              "vllm:request_success_total{finished_reason=\"stop\"} 6\n");
    assert_figure(0, FIGURE(REQUESTS), 5);
    assert_int_equal(page.dropped, 1);
}

static void times_exemplars_quotes_and_escapes_are_read(void **state)
{
    (void)state;
    read_text("vllm:prompt_tokens_total{model_name=\"a\\\"b\\\\c\\nd}{,\"} 7 1700000000000\r\n"
              "vllm:generation_tokens_total{model_name=\"a\\\"b\\\\c\\nd}{,\",} 8 # {trace=\"x\"} "
              "0.5 1.5\n"
              "{\"vllm:num_requests_running\", model_name = \"a\\\"b\\\\c\\nd}{,\" }  9\n# EOF");
    assert_int_equal(engines.n, 1);
    assert_string_equal(engines.items[0].model, "a\"b\\c d}{,");
    assert_figure(0, FIGURE(PROMPT_TOKENS), 7);
    assert_figure(0, FIGURE(GENERATION_TOKENS), 8);
    assert_figure(0, FIGURE(RUNNING), 9);
}

static void a_last_line_counts_only_when_the_page_is_whole(void **state)
{
    (void)state;
    struct plim_str text = PLIM_STR("vllm:prompt_tokens_total 7\nvllm:num_requests_running 12");
    read_page(text, 5, true);
    assert_figure(0, FIGURE(RUNNING), 12);
    read_page(text, 5, false);
    assert_unknown(0, FIGURE(RUNNING));
    assert_figure(0, FIGURE(PROMPT_TOKENS), 7);
}

static void bad_lines_cost_only_themselves(void **state)
{
    (void)state;
    static const char *const bad[] = {"vllm:num_requests_running",
                                      "vllm:num_requests_running{a=\"b\" 3",
                                      "vllm:num_requests_running{a=b} 3",
                                      "vllm:num_requests_running{a=\"b} 3",
                                      "{} 3",
                                      "{\"\"} 3",
                                      "= 3",
                                      "vllm:num_requests_running three"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[200];
        (void)snprintf(text, sizeof(text), "%s\nvllm:prompt_tokens_total 7\n", bad[i]);
        read_text(text);
        assert_int_equal(page.text.bad, 1);
        assert_unknown(0, FIGURE(RUNNING));
        assert_figure(0, FIGURE(PROMPT_TOKENS), 7);
    }
}

static void a_line_that_is_too_long_is_skipped(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    plim_buf_text(&text, "vllm:num_requests_running{x=\"");
    plim_buf_repeat(&text, "y", PLIM_ENGINE_TEXT_LINE);
    plim_buf_text(&text, "\"} 3\nvllm:num_requests_waiting{x=\"");
    plim_buf_repeat(&text, "y", PLIM_ENGINE_TEXT_LINE - 40);
    plim_buf_text(&text, "\"} 4\n");
    for (size_t step = 1; step < 40000; step = step * 7 + 1) {
        read_page(plim_buf_str(&text), step, true);
        assert_unknown(0, FIGURE(RUNNING));
        assert_figure(0, FIGURE(WAITING), 4);
        assert_int_equal(page.text.bad, 1);
    }
    plim_buf_fini(&text);
}

static void more_ranks_than_the_budget_are_dropped(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    for (int i = 0; i < 1000; i++) {
        plim_buf_printf(&text, "vllm:num_requests_running{engine=\"%d\"} %d\n", i, i);
    }
    read_page(plim_buf_str(&text), 4096, true);
    assert_int_equal(engines.n, PLIM_ENGINE_PAGE_SLOTS);
    assert_int_equal(page.dropped, 1000 - PLIM_ENGINE_PAGE_SLOTS);
    plim_buf_fini(&text);
}

static void pages_of_others_are_of_no_known_engine(void **state)
{
    (void)state;
    read_text("go_goroutines 12\nprocess_start_time_seconds 1.7e9\n");
    assert_int_equal(engines.n, 1);
    KIND_IS(0, UNKNOWN);
    assert_true(page.process_start == 1.7e9);
    read_text("<html><body>404</body></html>\n");
    assert_int_equal(engines.n, 0);
}

static void totals_that_shrink_tell_of_a_restart(void **state)
{
    (void)state;
    read_text("vllm:num_requests_running 3\nvllm:prompt_tokens_total 7\n");
    struct plim_engine_now before = engines.items[0];
    read_text("vllm:num_requests_running 1\nvllm:prompt_tokens_total 7\n");
    assert_true(plim_engine_same(&before, &engines.items[0]));
    assert_false(plim_engine_restarted(&before, &engines.items[0]));
    read_text("vllm:num_requests_running 3\nvllm:prompt_tokens_total 6\n");
    assert_true(plim_engine_restarted(&before, &engines.items[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_of_today_tells_its_pool_and_sleep),
        cmocka_unit_test(the_longest_request_follows_from_what_vllm_says_of_its_cache),
        cmocka_unit_test(old_names_of_vllm_mean_the_same),
        cmocka_unit_test(the_newer_name_wins_whatever_the_order),
        cmocka_unit_test(every_data_parallel_rank_is_an_engine),
        cmocka_unit_test(sglang_repeats_itself_on_every_tensor_parallel_rank),
        cmocka_unit_test(tgi_llama_and_triton_are_known),
        cmocka_unit_test(numbers_that_cannot_be_leave_their_figure_out),
        cmocka_unit_test(the_same_sample_twice_counts_once),
        cmocka_unit_test(times_exemplars_quotes_and_escapes_are_read),
        cmocka_unit_test(a_last_line_counts_only_when_the_page_is_whole),
        cmocka_unit_test(bad_lines_cost_only_themselves),
        cmocka_unit_test(a_line_that_is_too_long_is_skipped),
        cmocka_unit_test(more_ranks_than_the_budget_are_dropped),
        cmocka_unit_test(pages_of_others_are_of_no_known_engine),
        cmocka_unit_test(totals_that_shrink_tell_of_a_restart),
    };
    int failed = PLIM_RUN_TESTS("engine_page", tests);
    plim_engine_page_fini(&page);
    plim_vec_fini(&engines);
    return failed;
}
