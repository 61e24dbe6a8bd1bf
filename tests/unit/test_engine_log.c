/* SPDX-License-Identifier: Apache-2.0 */

/* What engines' logs tell of memory, and following them. */

#include "base/buf.h"
#include "observe/engine_log.h"
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB_OF(x) ((uint64_t)((x) * (double)PLIM_GIB + 0.5))
#define MIB_OF(x) ((uint64_t)((x) * (double)PLIM_MIB + 0.5))

static struct plim_engine_log *read_log(const char *text, size_t step)
{
    struct plim_engine_log *log = plim_engine_log_new();
    struct plim_str rest = plim_str_from(text);
    assert_non_null(log);
    while (rest.n > 0) {
        size_t n = rest.n < step ? rest.n : step;
        assert_ok(plim_engine_log_feed(log, (struct plim_str){rest.p, n}, true, NULL));
        rest = plim_str_skip(rest, n);
    }
    return log;
}

static struct plim_engine_told told_by(const char *text)
{
    struct plim_engine_log *log = read_log(text, SIZE_MAX);
    struct plim_engine_told told = plim_engine_log_told(log), pieces;
    plim_engine_log_free(log);
    log = read_log(text, 5);
    pieces = plim_engine_log_told(log);
    assert_int_equal(told.component_valid, pieces.component_valid);
    assert_memory_equal(told.component, pieces.component, sizeof(told.component));
    plim_engine_log_free(log);
    return told;
}

static void assert_bytes(const struct plim_engine_told *told, enum plim_component component,
                         uint64_t bytes)
{
    assert_true((told->component_valid >> component & 1) != 0);
    assert_in_range(told->component[component], bytes - 1024, bytes + 1024);
}

static void vllm_of_today_tells_weights_cache_activations_and_graphs(void **state)
{
    (void)state;
    struct plim_engine_told t = told_by(
        "(APIServer pid=1) INFO 11-29 23:50:58 [utils.py:299] vLLM API server version 0.33.0\n"
        "(EngineCore pid=12) INFO 11-29 23:51:27 [gpu_model_runner.py:5088] Model loading took "
        "2.32 GiB memory "
        "and 2.359096 seconds\n"
        "(EngineCore pid=12) INFO 11-29 23:51:30 [gpu_model_runner.py:6410] Estimated CUDA graph "
        "memory: 0.50 "
        "GiB total\n"
        "(EngineCore pid=12) INFO 11-29 23:51:35 [gpu_worker.py:772] Available KV cache memory: "
        "67.0 GiB\n"
        "(EngineCore pid=12) INFO 11-29 23:51:35 [kv_cache_utils.py:1147] GPU KV cache size: "
        "2,195,424 tokens, "
        "Maximum concurrency for 8,192 tokens per request: 268.00x\n"
        "(EngineCore pid=12) INFO 11-29 23:51:36 [gpu_worker.py:1066] Free memory on device "
        "(78.59/79.11 GiB) on "
        "startup. Desired GPU memory utilization is (0.9, 71.2 GiB). Actual usage is 2.44 GiB for "
        "consumed memory "
        "(weights + non-torch), 1.76 GiB for peak activation, and 0.25 GiB for CUDAGraph memory. "
        "Replace\n");
    assert_int_equal(t.kind, PLIM_ENGINE_KIND_VLLM);
    assert_int_equal(t.pid, 12);
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, GIB_OF(2.32));
    assert_bytes(&t, PLIM_COMPONENT_KV_CACHE, GIB_OF(67.0));
    assert_bytes(&t, PLIM_COMPONENT_ACTIVATIONS, GIB_OF(1.26)); /* less what is kept for graphs */
    assert_bytes(&t, PLIM_COMPONENT_GRAPHS, GIB_OF(0.25));
    assert_int_equal(t.kv_tokens, 2195424);
    assert_int_equal(t.max_context, 8192);
}

static void vllm_before_v1_tells_all_on_one_line(void **state)
{
    (void)state;
    struct plim_engine_told t = told_by("INFO 01-02 03:04:05 worker.py:266] the current vLLM "
                                        "instance can use total_gpu_memory (23.64GiB) x "
                                        "gpu_memory_utilization (0.90) = 21.28GiB\n"
                                        "INFO 01-02 03:04:05 worker.py:266] model weights take "
                                        "14.99GiB; non_torch_memory takes 0.07GiB; PyTorch "
                                        "activation peak memory takes 1.23GiB; the rest of the "
                                        "memory reserved for KV Cache is 4.99GiB.\n");
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, GIB_OF(14.99));
    assert_bytes(&t, PLIM_COMPONENT_OTHER, GIB_OF(0.07));
    assert_bytes(&t, PLIM_COMPONENT_ACTIVATIONS, GIB_OF(1.23));
    assert_bytes(&t, PLIM_COMPONENT_KV_CACHE, GIB_OF(4.99));
}

static void of_several_ranks_the_fullest_counts(void **state)
{
    (void)state;
    struct plim_engine_told t =
        told_by("(Worker_TP0 pid=5) INFO x Model loading took 10.0 GiB and 1 seconds\n"
                "(Worker_TP1 pid=6) INFO x Model loading took 11.0 GiB and 1 seconds\n");
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, GIB_OF(11.0));
}

static void sglang_counts_keys_and_values_together(void **state)
{
    (void)state;
    struct plim_engine_told t =
        told_by("[2026-02-09 03:51:04 TP0] Load weight end. type=LlamaForCausalLM, "
                "dtype=torch.bfloat16, avail "
                "mem=63.48 GB, mem usage=15.11 GB.\n"
                "[2026-02-09 03:51:05 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: "
                "442750, K size: 27.02 "
                "GB, V size: 27.02 GB\n"
                "[2026-02-09 03:51:09 TP0] Capture cuda graph end. Time elapsed: 18.07 s. mem "
                "usage=0.11 GB. avail "
                "mem=0.83 GB.\n"
                "[2026-02-09 03:51:09 TP0] max_total_num_tokens=442750, chunked_prefill_size=8192, "
                "max_running_requests=2049, context_len=131072\n");
    assert_int_equal(t.kind, PLIM_ENGINE_KIND_SGLANG);
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, GIB_OF(15.11));
    assert_bytes(&t, PLIM_COMPONENT_KV_CACHE, GIB_OF(54.04));
    assert_bytes(&t, PLIM_COMPONENT_GRAPHS, GIB_OF(0.11));
    assert_int_equal(t.kv_tokens, 442750);
    assert_int_equal(t.max_context, 131072);
}

static void llama_adds_the_pieces_of_each_device_and_leaves_the_host_out(void **state)
{
    (void)state;
    struct plim_engine_told t =
        told_by("build: 6700 (abc) with cc\n"
                "load_tensors:   CPU_Mapped model buffer size =   682.03 MiB\n"
                "load_tensors:        CUDA0 model buffer size =  4000.00 MiB\n"
                "load_tensors:        CUDA1 model buffer size =  5000.00 MiB\n"
                "llama_context:  CUDA_Host  output buffer size =     0.95 MiB\n"
                "llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB\n"
                "llama_kv_cache:      CUDA0 KV buffer size =   256.00 MiB\n"
                "llama_kv_cache:        CPU KV buffer size =   999.00 MiB\n"
                "llama_kv_cache: size = 768.00 MiB (32768 cells, 16 layers, 1/1 seqs)\n"
                "sched_reserve:      CUDA0 compute buffer size =   162.00 MiB\n"
                "sched_reserve:  CUDA_Host compute buffer size =     9.01 MiB\n");
    assert_int_equal(t.kind, PLIM_ENGINE_KIND_LLAMACPP);
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, MIB_OF(5000));
    assert_bytes(&t, PLIM_COMPONENT_KV_CACHE, MIB_OF(768));
    assert_bytes(&t, PLIM_COMPONENT_ACTIVATIONS, MIB_OF(162));
    t = told_by("llm_load_tensors:      CUDA0 buffer size =  4095.05 MiB\n"
                "llm_load_tensors:        CPU buffer size =   102.54 MiB\n");
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, MIB_OF(4095.05));
}

static void tensorrt_and_tgi_are_known(void **state)
{
    (void)state;
    struct plim_engine_told t = told_by(
        "[TensorRT-LLM][INFO] Loaded engine size: 7038 MiB\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 718.09 MiB for execution context memory.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV "
        "cache (263008)\n");
    assert_int_equal(t.kind, PLIM_ENGINE_KIND_TRTLLM);
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, MIB_OF(7038));
    assert_bytes(&t, PLIM_COMPONENT_ACTIVATIONS, MIB_OF(718.09));
    assert_bytes(&t, PLIM_COMPONENT_KV_CACHE, GIB_OF(16.05));
    assert_int_equal(t.kv_tokens, 263008);
    t = told_by("2026-01-01T00:00:00Z  INFO text_generation_router: Setting max batch total tokens "
                "to 126928\n");
    assert_int_equal(t.kind, PLIM_ENGINE_KIND_TGI);
    assert_int_equal(t.kv_tokens, 126928);
}

static void a_new_start_voids_what_was_told_before(void **state)
{
    (void)state;
    struct plim_engine_told t = told_by(
        "INFO Model loading took 10.0 GiB\nINFO Available KV cache memory: 5.0 GiB\n"
        "INFO 1 [x.py:1] vLLM API server version 0.34.0\nINFO Model loading took 3.0 GiB\n");
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, GIB_OF(3.0));
    assert_false((t.component_valid >> PLIM_COMPONENT_KV_CACHE & 1) != 0);
}

static const char oom[] = "(EngineCore pid=77) ERROR torch.OutOfMemoryError: CUDA out of memory. "
                          "Tried to allocate 2.00 GiB. GPU 0 has a "
                          "total capacity of 79.11 GiB of which 1.00 GiB is free.\n";

static void a_failure_is_told_once_with_its_size(void **state)
{
    (void)state;
    struct plim_buf text = {0};
    struct plim_happening h;
    plim_buf_text(&text, "INFO all is well\n");
    plim_buf_text(&text, oom);
    plim_buf_text(&text, oom);
    plim_buf_text(&text, "(APIServer pid=1) ERROR EngineDeadError\n");
    struct plim_engine_log *log = read_log(text.p, SIZE_MAX);
    assert_true(plim_engine_log_take(log, &h));
    assert_int_equal(h.kind, PLIM_HAPPENED_OOM);
    assert_int_equal(h.value, GIB_OF(2.0));
    assert_false(plim_engine_log_take(log, &h));
    plim_engine_log_free(log);
    plim_buf_fini(&text);
}

static void what_only_reads_like_a_failure_is_none(void **state)
{
    (void)state;
    struct plim_happening h;
    struct plim_engine_log *log = read_log(
        "Warning: Ran out of memory when regular VAE decoding, retrying with tiled VAE decoding.\n"
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "OSError: No space left on device\n",
        SIZE_MAX);
    assert_false(plim_engine_log_take(log, &h));
    plim_engine_log_free(log);
}

static void bytes_that_are_no_text_and_endless_lines_do_no_harm(void **state)
{
    (void)state;
    struct plim_engine_log *log = plim_engine_log_new();
    static char junk[100000];
    for (size_t i = 0; i < sizeof(junk); i++) {
        junk[i] = (char)(i * 7919 % 251 + 11);
    }
    assert_ok(plim_engine_log_feed(log, (struct plim_str){junk, sizeof(junk)}, true, NULL));
    assert_ok(
        plim_engine_log_feed(log, PLIM_STR("\n\xff\xfe Model loading took 1.0 GiB\n"), true, NULL));
    struct plim_engine_told t = plim_engine_log_told(log);
    assert_bytes(&t, PLIM_COMPONENT_WEIGHTS, PLIM_GIB);
    plim_engine_log_free(log);
}

/* ---- following ---- */

static char folder[64], path[96], other[96];

static void append(const char *to, const char *text, const char *mode)
{
    FILE *f = fopen(to, mode);
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/plimsoll-log-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/engine.log", folder);
    (void)snprintf(other, sizeof(other), "%s/engine.log.1", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(other);
    return rmdir(folder);
}

static uint64_t weights(struct plim_engine_follow *f)
{
    return plim_engine_log_told(plim_engine_follow_log(f)).component[PLIM_COMPONENT_WEIGHTS];
}

static void a_file_is_followed_through_growth_truncation_and_replacement(void **state)
{
    (void)state;
    struct plim_engine_follow *f = NULL;
    struct plim_place place = {"main", path};
    struct plim_happening h;
    assert_ok(plim_engine_follow_open(&place, &f, NULL));
    assert_string_equal(plim_engine_follow_name(f), "main");
    assert_int_equal(plim_engine_follow_step(f, NULL), PLIM_E_NOINPUT);
    append(path, "INFO Model loading", "we");
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_int_equal(weights(f), 0);
    append(path, " took 2.0 GiB\n", "ae");
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_int_equal(weights(f), 2 * PLIM_GIB);
    append(path, "INFO Model loading took 3.0 GiB\n", "we"); /* truncated, as copytruncate does */
    assert_ok(plim_engine_follow_step(f, NULL));
    append(path, "INFO Model loading took 4.0 GiB\n", "ae");
    assert_int_equal(rename(path, other), 0);
    append(path, "INFO Model loading took 5.0 GiB\n", "we");
    append(other, "INFO Model loading took 4.5 GiB\n", "ae"); /* still written by somebody */
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_int_equal(weights(f), 5 * PLIM_GIB);
    append(path, oom, "ae");
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_true(plim_engine_log_take(plim_engine_follow_log(f), &h));
    plim_engine_follow_close(f);
}

static void failures_that_were_there_before_are_history(void **state)
{
    (void)state;
    struct plim_engine_follow *f = NULL;
    struct plim_place place = {NULL, path};
    struct plim_happening h;
    append(path, oom, "we");
    assert_ok(plim_engine_follow_open(&place, &f, NULL));
    assert_string_equal(plim_engine_follow_name(f), "engine.log");
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_false(plim_engine_log_take(plim_engine_follow_log(f), &h));
    append(path, oom, "ae");
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_true(plim_engine_log_take(plim_engine_follow_log(f), &h));
    plim_engine_follow_close(f);
}

static void a_pipe_is_followed_without_waiting(void **state)
{
    (void)state;
    struct plim_engine_follow *f = NULL;
    struct plim_place place = {NULL, path};
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_ok(plim_engine_follow_open(&place, &f, NULL));
    assert_ok(plim_engine_follow_step(f, NULL));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok(plim_engine_follow_step(f, NULL)); /* a writer that says nothing */
    static const char line[] = "INFO Model loading took 2.0 GiB\n";
    assert_int_equal(write(fd, line, sizeof(line) - 1), sizeof(line) - 1);
    assert_ok(plim_engine_follow_step(f, NULL));
    assert_int_equal(weights(f), 2 * PLIM_GIB);
    (void)close(fd);
    assert_ok(plim_engine_follow_step(f, NULL));
    plim_engine_follow_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_of_today_tells_weights_cache_activations_and_graphs),
        cmocka_unit_test(vllm_before_v1_tells_all_on_one_line),
        cmocka_unit_test(of_several_ranks_the_fullest_counts),
        cmocka_unit_test(sglang_counts_keys_and_values_together),
        cmocka_unit_test(llama_adds_the_pieces_of_each_device_and_leaves_the_host_out),
        cmocka_unit_test(tensorrt_and_tgi_are_known),
        cmocka_unit_test(a_new_start_voids_what_was_told_before),
        cmocka_unit_test(a_failure_is_told_once_with_its_size),
        cmocka_unit_test(what_only_reads_like_a_failure_is_none),
        cmocka_unit_test(bytes_that_are_no_text_and_endless_lines_do_no_harm),
        cmocka_unit_test(a_file_is_followed_through_growth_truncation_and_replacement),
        cmocka_unit_test(failures_that_were_there_before_are_history),
        cmocka_unit_test(a_pipe_is_followed_without_waiting),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("engine_log", tests, make_folder, remove_folder);
}
