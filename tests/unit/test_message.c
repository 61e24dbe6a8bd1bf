/* SPDX-License-Identifier: Apache-2.0 */
/* The judge: arithmetic of the ledger, direction of advice, repetition, and what is never said. */

#include "diagnose/message.h"
#include "fail_alloc.h"
#include "unit.h"

#include "base/num.h"

#include <stdio.h>

#define OOM_OF(program, request, live, gap, own, free)                                             \
    program " out of memory. Tried to allocate " request                                           \
            ". GPU 0 has a total capacity of 23.64 GiB of which " free                             \
            " is free. Including non-PyTorch memory, this process has " own                        \
            " memory in use. Of the allocated memory " live " is allocated by PyTorch, and " gap   \
            " is reserved by PyTorch but unallocated."
#define OOM(request, live, gap, own, free)                                                         \
    "torch.OutOfMemoryError: " OOM_OF("CUDA", request, live, gap, own, free)
#define FRAGMENTED OOM("2.50 GiB", "16.60 GiB", "5.41 GiB", "22.51 GiB", "1.12 GiB")
#define FULL       OOM("2.50 GiB", "22.40 GiB", "90.00 MiB", "23.10 GiB", "500.00 MiB")

struct judged {
    struct plim_oom_scan scan;
    struct plim_message message;
};

static struct judged judge(const char *text)
{
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, plim_str_from(text));
    struct judged j;
    assert_ok(plim_oom_scan(&source, &j.scan, NULL));
    assert_ok(plim_message_judge(&j.scan, &j.message, NULL));
    return j;
}

static void done(struct judged *j)
{
    plim_message_fini(&j->message);
    plim_oom_scan_fini(&j->scan);
}

static const struct plim_finding_set *primary(const struct judged *j)
{
    assert_true(j->message.primary < j->message.sets.n);
    return &j->message.sets.items[j->message.primary];
}

static bool advises(const struct judged *j, const char *words)
{
    const struct plim_finding_set *set = primary(j);
    for (size_t i = 0; i < set->advice.n; i++) {
        if (strstr(set->advice.items[i].action, words)) {
            return true;
        }
    }
    return false;
}

static void class_is(const struct judged *j, enum plim_class cls)
{
    assert_string_equal(plim_class_text(j->message.verdict.cls), plim_class_text(cls));
}

static void the_ledger_adds_up_to_the_device(void **state)
{
    (void)state;
    struct judged j = judge(FRAGMENTED);
    const struct plim_ledger *ledger = &primary(&j)->ledger;
    uint64_t sum = 0;
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        sum += plim_known(ledger->owner[i]) ? ledger->owner[i].bytes : 0;
    }
    assert_int_equal(sum, ledger->total.bytes);
    assert_int_equal(ledger->owner[PLIM_OWNER_STRANDED].bytes, 5808943268);
    done(&j);
}

static void the_counterfactuals_show_what_would_have_fitted(void **state)
{
    (void)state;
    struct judged j = judge(FRAGMENTED);
    const struct plim_finding_set *set = primary(&j);
    bool stranded = false;
    for (size_t i = 0; i < set->counterfactuals.n; i++) {
        const struct plim_counterfactual *c = &set->counterfactuals.items[i];
        if (strcmp(c->name, "no_stranded") == 0) {
            stranded = true;
            assert_int_equal(c->fits, PLIM_FITS_YES);
            assert_non_null(strstr(c->text, "1.12 GiB free + 5.41 GiB = 6.53 GiB"));
        }
    }
    assert_true(stranded);
    done(&j);
}

static void expandable_segments_are_advised_where_they_exist(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *wanted;
        const char *unwanted;
    } rows[] = {
        {FRAGMENTED " try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid",
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "max_split"},
        {FRAGMENTED " try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid",
         "PYTORCH_ALLOC_CONF=expandable_segments:True", "max_split"},
        {OOM_OF("HIP", "2.50 GiB", "16.60 GiB", "5.41 GiB", "22.51 GiB", "1.12 GiB"),
         "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True", "max_split"},
        /* set already */
        {"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" FRAGMENTED, "shapes",
         "expandable_segments:True"},
        /* forbidden by sleep mode */
        {"enable_sleep_mode=True\n" FRAGMENTED, "max_split_size_mb", "expandable_segments:True"},
        /* not on Windows */
        {"File \"C:\\venv\\Lib\\site-packages\\torch\\x.py\"\n" FRAGMENTED, "max_split_size_mb",
         "expandable_segments:True"},
        /* not before 2.1 */
        {"CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB "
         "already allocated; 1.40 GiB free; 5.28 GiB reserved in total by PyTorch) If reserved "
         "memory "
         "is >> allocated memory try setting max_split_size_mb",
         "max_split_size_mb", "expandable_segments:True"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct judged j = judge(rows[i].text);
        class_is(&j, PLIM_CLASS_FRAGMENTATION);
        if (!advises(&j, rows[i].wanted) || advises(&j, rows[i].unwanted)) {
            fail_msg("row %zu: first advice is '%s'", i, primary(&j)->advice.items[0].action);
        }
        done(&j);
    }
}

static void empty_cache_and_settings_are_not_advised_against_capacity(void **state)
{
    (void)state;
    struct judged j = judge(FULL);
    class_is(&j, PLIM_CLASS_CAPACITY);
    assert_false(advises(&j, "empty_cache"));
    assert_false(advises(&j, "ALLOC_CONF"));
    assert_true(advises(&j, "Need less at once, by at least 2.01 GiB"));
    done(&j);
}

static void advice_follows_the_phase_that_failed(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"  File \"x.py\", line 1, in from_pretrained\n" FULL, "quantize"},
        {"  File \"x.py\", line 1, in decode_first_stage\n" FULL, "tiles"},
        {"  File \"x.py\", line 1, in cross_entropy\n" FULL, "loss in chunks"},
        {"  optimizer.step()\n" FULL, "8-bit Adam"},
        {"  Variable._execution_engine.run_backward(\n" FULL, "Checkpoint activations"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct judged j = judge(rows[i][0]);
        if (!advises(&j, rows[i][1])) {
            fail_msg("no '%s'", rows[i][1]);
        }
        done(&j);
    }
    struct judged j = judge("torch/utils/checkpoint.py\n run_backward(\n" FULL);
    assert_false(advises(&j, "Checkpoint activations"));
    done(&j);
}

static void engine_advice_has_the_right_direction(void **state)
{
    (void)state;
    struct judged start = judge("RuntimeError: Not enough memory. Please try to increase "
                                "--mem-fraction-static.");
    class_is(&start, PLIM_CLASS_CONFIGURATION);
    assert_true(advises(&start, "Raise --mem-fraction-static"));
    done(&start);
    struct judged run =
        judge("server_args=ServerArgs(mem_fraction_static=0.88)\n"
              "[2025-06-01 10:00:00 TP0] Memory pool end. avail mem=1.20 GB\n" FULL);
    class_is(&run, PLIM_CLASS_CONFIGURATION);
    assert_true(advises(&run, "Lower --mem-fraction-static from 0.88"));
    assert_false(advises(&run, "Raise"));
    done(&run);
    struct judged vllm = judge("INFO [gpu_worker.py:1] Available KV cache memory: 9.41 GiB\n"
                               "INFO args: gpu_memory_utilization=0.95\n" FULL);
    class_is(&vllm, PLIM_CLASS_CONFIGURATION);
    assert_true(advises(&vllm, "Lower --gpu-memory-utilization from 0.95"));
    done(&vllm);
}

static void the_largest_stranger_is_named(void **state)
{
    (void)state;
    struct judged j = judge(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a "
        "total "
        "capacity of 79.15 GiB of which 101.25 MiB is free. Process 210456 has 61.42 GiB memory in "
        "use. "
        "Including non-PyTorch memory, this process has 17.62 GiB memory in use. Of the allocated "
        "memory 17.02 GiB is allocated by PyTorch, and 86.10 MiB is reserved by PyTorch but "
        "unallocated.");
    class_is(&j, PLIM_CLASS_EXTERNAL);
    assert_true(advises(&j, "process 210456"));
    done(&j);
}

static void grown_live_bytes_at_the_second_failure_are_a_leak(void **state)
{
    (void)state;
    struct judged j = judge("2026-05-01 12:00:00 ERROR " OOM(
        "1.50 GiB", "20.40 GiB", "90.00 MiB", "21.10 GiB",
        "0 bytes") "\n"
                   "2026-05-01 15:00:00 ERROR " OOM("1.50 GiB", "22.40 GiB", "80.00 MiB",
                                                    "23.10 GiB", "0 bytes"));
    class_is(&j, PLIM_CLASS_LEAK);
    assert_true(advises(&j, "_record_memory_history"));
    assert_int_equal(j.message.primary, 1);
    done(&j);
}

static void identical_live_bytes_at_the_second_failure_are_a_weak_sign_of_a_leak(void **state)
{
    (void)state;
    struct judged j =
        judge("CUDA out of memory. Tried to allocate 381.50 MiB (GPU 1; 7.92 GiB total capacity; "
              "7.16 GiB "
              "already allocated; 231.00 MiB free; 452.50 KiB cached)\nat iteration 0\n"
              "CUDA out of memory. Tried to allocate 381.50 MiB (GPU 1; 7.92 GiB total capacity; "
              "7.16 GiB "
              "already allocated; 230.00 MiB free; 452.50 KiB cached)\nat iteration 1\n");
    class_is(&j, PLIM_CLASS_LEAK);
    assert_true(j.message.verdict.confidence < 0.6);
    done(&j);
}

static void failures_of_different_processes_are_no_growth(void **state)
{
    (void)state;
    struct judged j = judge("(W pid=1) 2026-05-01 12:00:00 " OOM(
        "2.50 GiB", "21.40 GiB", "90.00 MiB", "22.10 GiB",
        "0 bytes") "\n(W pid=2) 2026-05-01 15:00:00 " OOM("2.50 GiB", "22.40 GiB", "80.00 MiB",
                                                          "23.10 GiB", "0 bytes"));
    class_is(&j, PLIM_CLASS_CAPACITY);
    done(&j);
}

static void shrinking_live_bytes_are_no_leak(void **state)
{
    (void)state;
    struct judged j = judge("2026-05-01 12:00:00 " OOM(
        "4.50 GiB", "22.40 GiB", "90.00 MiB", "23.10 GiB",
        "0 bytes") "\n"
                   "2026-05-01 12:10:00 " OOM("2.50 GiB", "21.40 GiB", "80.00 MiB", "22.10 GiB",
                                              "0 bytes"));
    class_is(&j, PLIM_CLASS_CAPACITY);
    done(&j);
}

static void uptime_at_the_failure_is_evidence(void **state)
{
    (void)state;
    struct judged j = judge("2026-05-01 12:00:00 INFO start\n2026-05-02 00:00:00 ERROR " FULL);
    const struct plim_finding_set *set = primary(&j);
    bool said = false;
    for (size_t i = 0; i < set->evidence.n; i++) {
        said |= strstr(set->evidence.items[i].text, "12.0 hours") != NULL;
    }
    assert_true(said);
    done(&j);
}

static void a_definite_failure_outweighs_a_vague_one_and_a_warning(void **state)
{
    (void)state;
    struct judged j =
        judge("W Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.18GiB with "
              "freed_by_count=0. The caller indicates that this is not a failure, but may\n");
    class_is(&j, PLIM_CLASS_NOT_OOM);
    done(&j);
    j = judge("something: out of memory\n" FULL);
    class_is(&j, PLIM_CLASS_CAPACITY);
    done(&j);
}

static void unknown_comes_with_the_command_that_would_decide(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Error: llama runner process has terminated: cudaMalloc failed: out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2852 bytes.",
        "ggml_vulkan: Device memory allocation of size 4829741056 failed.",
        "Out of memory error on GPU 0. Cannot allocate 25.0MB memory on GPU 0, available memory is "
        "only "
        "15.1MB.",
        "fatal: out of memory",
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        struct judged j = judge(rows[i]);
        class_is(&j, PLIM_CLASS_UNKNOWN);
        if (primary(&j)->unknowns.n == 0) {
            fail_msg("nothing to collect for: %s", rows[i]);
        }
        done(&j);
    }
}

static enum plim_status judge_body(void *arg)
{
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, plim_str_from(arg));
    struct plim_oom_scan scan;
    struct plim_message message;
    enum plim_status st = plim_oom_scan(&source, &scan, NULL);
    if (st == PLIM_OK) {
        st = plim_message_judge(&scan, &message, NULL);
        plim_message_fini(&message);
    }
    plim_oom_scan_fini(&scan);
    return st;
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static char text[] =
        FRAGMENTED "\nError: llama runner process has terminated: signal: killed\n";
    assert_true(fail_alloc_sweep(judge_body, text, 200, false) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ledger_adds_up_to_the_device),
        cmocka_unit_test(the_counterfactuals_show_what_would_have_fitted),
        cmocka_unit_test(expandable_segments_are_advised_where_they_exist),
        cmocka_unit_test(empty_cache_and_settings_are_not_advised_against_capacity),
        cmocka_unit_test(advice_follows_the_phase_that_failed),
        cmocka_unit_test(engine_advice_has_the_right_direction),
        cmocka_unit_test(the_largest_stranger_is_named),
        cmocka_unit_test(grown_live_bytes_at_the_second_failure_are_a_leak),
        cmocka_unit_test(identical_live_bytes_at_the_second_failure_are_a_weak_sign_of_a_leak),
        cmocka_unit_test(failures_of_different_processes_are_no_growth),
        cmocka_unit_test(shrinking_live_bytes_are_no_leak),
        cmocka_unit_test(uptime_at_the_failure_is_evidence),
        cmocka_unit_test(a_definite_failure_outweighs_a_vague_one_and_a_warning),
        cmocka_unit_test(unknown_comes_with_the_command_that_would_decide),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return PLIM_RUN_TESTS("message", tests);
}
