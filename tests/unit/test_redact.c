/* SPDX-License-Identifier: Apache-2.0 */
/* What is private goes, what explains a failure stays. */

#include "incident/redact.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

struct made {
    struct plim_arena arena;
    struct plim_redactor redactor;
    struct plim_buf out;
};

static int make(void **state)
{
    struct made *made = calloc(1, sizeof(*made));
    plim_arena_init(&made->arena, 0);
    made->redactor = (struct plim_redactor){.arena = &made->arena,
                                            .identity = {.user = {"annika"},
                                                         .host = {"gpu17.corp.example", "gpu17"},
                                                         .home = "/home/annika",
                                                         .project = "/home/annika/proj"}};
    *state = made;
    return 0;
}

static int drop(void **state)
{
    struct made *made = *state;
    plim_redactor_fini(&made->redactor);
    plim_arena_fini(&made->arena);
    plim_buf_fini(&made->out);
    free(made);
    return 0;
}

static const char *clean(struct made *made, const char *text)
{
    plim_buf_reset(&made->out);
    plim_redact_text(&made->redactor, "f", plim_str_from(text), &made->out);
    return made->out.p;
}

static void what_is_private_is_replaced(void **state)
{
    static const struct {
        const char *text, *cleaned;
    } cases[] = {
        /* paths */
        {"File \"/home/annika/proj/train.py\", line 3", "File \"<project>/train.py\", line 3"},
        {"/srv/acme corp/x.py:7", "<path> corp/x.py:7"}, /* a blank ends a path without quotes */
        {"\"/srv/acme corp/x.py\"", "\"<path>/x.py\""},
        {"open('/data/customers/acme.bin')", "open('<path>')"},
        {"--dir=/data/acme", "--dir=<path>"},
        {"/home/annika/v/lib/python3.11/site-packages/torch/nn/m.py",
         "site-packages/torch/nn/m.py"},
        {"/opt/x/torch/nn/modules/module.py", "torch/nn/modules/module.py"},
        {"at ~/models/secret.gguf", "at <path>"},
        {"C:\\Users\\annika\\run.py", "<path>\\run.py"},
        {"/home/annika/projector/a.py", "<path>/a.py"}, /* not the project: a longer name */
        {"/usr/lib/../../home/bo/x.bin", "<path>"},
        /* secrets */
        {"HF_TOKEN=hf_abcdefghijklmnopqrstuv", "HF_TOKEN=<secret>"},
        {"using hf_abcdefghijklmnopqrstuv now", "using <secret> now"},
        {"eyJhbGciOiJIUzI1NiJ9.e30.a+b==", "<secret>"},
        {"{\"api_key\": \"abc def\"}", "{\"api_key\": \"<secret> def\"}"},
        {"password: 12345", "password: <secret>"},
        {"--auth-token s3cr3t --port 80", "--auth-token <secret> --port 80"},
        {"Authorization: Bearer abc.def.ghi", "Authorization: Bearer <secret>"},
        {"AKIAIOSFODNN7EXAMPLE", "<secret>"},
        {"k 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "k <secret>"},
        {"v wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY12 e", "v <secret> e"},
        /* the network */
        {"postgres://bob:pw@db.corp.example:5432/x", "postgres://<secret>"},
        {"https://bob:pw@github.com/a/b", "https://<secret>@github.com/a/b"},
        {"https://git.corp.example/a?b=c", "https://<host>"},
        {"see https://pytorch.org/docs", "see https://pytorch.org/docs"},
        {"https://huggingface.co/m?token=abc", "https://huggingface.co/m?<secret>"},
        {"tcp://10.2.3.4:29500", "tcp://<host>"},
        {"connect 10.2.3.4:29500", "connect <host>:29500"},
        {"http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"},
        {"from gpu17.corp.example", "from <host>"},
        {"[gpu17:4711] x", "[<host>:4711] x"},
        {"mail a.b@corp.example.", "mail <email>."},
        /* people and devices */
        {"user annika, Annika-laptop", "user <user>, <user>-laptop"},
        {"GPU-8f2c1a34-1111-2222-3333-0123456789ab", "<uuid>"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        assert_string_equal(clean(*state, cases[i].text), cases[i].cleaned);
    }
}

static void what_explains_a_failure_stays(void **state)
{
    static const char *const texts[] = {
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
        "total capacity of "
        "23.65 GiB of which 5.19 MiB is free. Process 4711 has 23.63 GiB memory in use.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
        "num_tokens=4096 max_model_len: 131072, token: 4096",
        "torch/csrc/cuda/Module.cpp and src/app/x.py",
        "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "driver 580.95.05, CUDA 13.0.96, 0x7f3c5a000000",
        "the monkey keyed keyboard=qwerty, passing",
        "and/or 1/2 I/O",
        "annikas", /* another word */
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "2026-11-29T20:05:12Z 12:05:07",
        "&lt;project&gt;/train.py",
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        assert_string_equal(clean(*state, texts[i]), texts[i]);
    }
}

static void cleaning_twice_changes_nothing_more(void **state)
{
    struct made *made = *state;
    char once[512];
    const char *text = "annika@gpu17:~/x$ HF_TOKEN=hf_abcdefghijklmnopqrstuv /srv/a/b.py "
                       "tcp://10.0.0.9:1 \"/x/y z\"";
    snprintf(once, sizeof(once), "%s", clean(made, text));
    assert_string_equal(clean(made, once), once);
    /* without the path's beginning, what is left of it does not make the word before it a token */
    const char *joined[] = {"hf_abcdrN=/deepspeed/x", "sk-ab+/site-packages/torchvision/ops"};
    for (size_t i = 0; i < PLIM_COUNT_OF(joined); i++) {
        snprintf(once, sizeof(once), "%s", clean(made, joined[i]));
        assert_string_equal(clean(made, once), once);
    }
}

static void removals_are_counted_by_file_and_kind(void **state)
{
    struct made *made = *state;
    struct plim_jsonw w;
    (void)clean(made, "annika annika 10.2.3.4");
    plim_buf_reset(&made->out);
    plim_jsonw_init(&w, &made->out, true);
    plim_redact_json(&made->redactor, &w);
    assert_string_equal(made->out.p,
                        "{\"schema\":\"plimsoll.removed/1\",\"redacted\":true,\"removed\":["
                        "{\"file\":\"f\",\"kind\":\"user\",\"count\":2},"
                        "{\"file\":\"f\",\"kind\":\"host\",\"count\":1}]}\n");
}

static void nothing_is_taken_when_it_is_switched_off(void **state)
{
    struct made *made = *state;
    made->redactor.off = true;
    assert_string_equal(clean(made, "annika /srv/x"), "annika /srv/x");
    assert_int_equal(made->redactor.removals.n, 0);
}

static void of_a_command_line_names_and_harmless_values_stay(void **state)
{
    struct made *made = *state;
    static const char *const argv[] = {"/home/annika/bin/python3",
                                       "train.py",
                                       "--batch-size",
                                       "8",
                                       "--dtype=bfloat16",
                                       "--model",
                                       "/srv/acme",
                                       "--api-key",
                                       "12345",
                                       "--name=acme",
                                       "-O",
                                       "extra",
                                       "--max-bytes",
                                       "24GiB",
                                       NULL};
    static const char *const wanted[] = {
        "python3", "<removed>", "--batch-size", "8",         "--dtype=bfloat16",
        "--model", "<removed>", "--api-key",    "<removed>", "--name=<removed>",
        "-O",      "<removed>", "--max-bytes",  "24GiB"};
    const char **out;
    size_t n;
    assert_ok(plim_redact_argv(&made->redactor, "f", argv, &out, &n, NULL));
    assert_int_equal(n, PLIM_COUNT_OF(wanted));
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(out[i], wanted[i]);
    }
}

static void variables_are_kept_by_a_list_and_never_with_a_secrets_name(void **state)
{
    (void)state;
    assert_true(plim_redact_keeps_variable("CUDA_VISIBLE_DEVICES", 20));
    assert_true(plim_redact_keeps_variable("RANK", 4));
    assert_false(plim_redact_keeps_variable("RANKED", 6));
    assert_false(plim_redact_keeps_variable("HOME", 4));
    assert_false(plim_redact_keeps_variable("VLLM_API_KEY", 12));
    assert_false(plim_redact_keeps_variable("NCCL_SECRET_X", 13));
}

/* ---- pickles ---- */

static void strings_of_a_pickle_are_masked_in_place(void **state)
{
    struct made *made = *state;
    /* {"filename": "/srv/acme/x.py", "n": 1.5} in protocol 4, with a number that looks like a path
     * */
    char pickle[] = "\x80\x04}(\x8c\x08"
                    "filename\x8c\x0e/srv/acme/x.py\x8c\x01"
                    "nG////////u.";
    const char wanted[] = "\x80\x04}(\x8c\x08"
                          "filename\x8c\x0e/xxx/xxxx/x.py\x8c\x01"
                          "nG////////u.";
    assert_ok(plim_redact_pickle(&made->redactor, "f", pickle, sizeof(pickle) - 1, NULL));
    assert_memory_equal(pickle, wanted, sizeof(wanted));
    assert_int_equal(made->redactor.removals.items[0].count, 1);
}

static void words_that_give_a_snapshot_its_structure_stay_even_when_they_are_a_name(void **state)
{
    struct made *made = *state;
    char pickle[] = "\x80\x04\x8c\x06"
                    "blocks\x8c\x06"
                    "blocky.";
    made->redactor.identity.user[0] = "blocks";
    made->redactor.identity.user[1] = "blocky";
    assert_ok(plim_redact_pickle(&made->redactor, "f", pickle, sizeof(pickle) - 1, NULL));
    assert_non_null(strstr(pickle, "blocks"));
    assert_null(strstr(pickle, "blocky"));
}

static void what_follows_a_pickle_is_blanked(void **state)
{
    struct made *made = *state;
    char pickle[] = "\x80\x04N.secret";
    assert_ok(plim_redact_pickle(&made->redactor, "f", pickle, sizeof(pickle) - 1, NULL));
    assert_int_equal(pickle[4], 0);
    assert_int_equal(pickle[9], 0);
}

static void what_is_no_pickle_of_data_is_refused(void **state)
{
    struct made *made = *state;
    static const struct {
        const char *bytes;
        size_t n;
        enum plim_status status;
    } cases[] = {
        {"", 0, PLIM_E_TRUNCATED},
        {"hello", 5, PLIM_E_DATA},
        {"\x80\x04", 2, PLIM_E_TRUNCATED},
        {"cos\nsystem\n.", 12, PLIM_E_DATA},         /* GLOBAL */
        {"\x8c\x50short.", 8, PLIM_E_TRUNCATED},     /* longer than there is */
        {"X\xff\xff\xff\xff.", 6, PLIM_E_TRUNCATED}, /* 4 GiB */
        {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", 10, PLIM_E_TRUNCATED},
        {"I123", 4, PLIM_E_TRUNCATED}, /* a line that does not end */
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        char copy[32];
        memcpy(copy, cases[i].bytes, cases[i].n);
        assert_int_equal(plim_redact_pickle(&made->redactor, "f", copy, cases[i].n, NULL),
                         cases[i].status);
    }
}

#define REDACT_TEST(f) cmocka_unit_test_setup_teardown(f, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDACT_TEST(what_is_private_is_replaced),
        REDACT_TEST(what_explains_a_failure_stays),
        REDACT_TEST(cleaning_twice_changes_nothing_more),
        REDACT_TEST(removals_are_counted_by_file_and_kind),
        REDACT_TEST(nothing_is_taken_when_it_is_switched_off),
        REDACT_TEST(of_a_command_line_names_and_harmless_values_stay),
        REDACT_TEST(variables_are_kept_by_a_list_and_never_with_a_secrets_name),
        REDACT_TEST(strings_of_a_pickle_are_masked_in_place),
        REDACT_TEST(words_that_give_a_snapshot_its_structure_stay_even_when_they_are_a_name),
        REDACT_TEST(what_follows_a_pickle_is_blanked),
        REDACT_TEST(what_is_no_pickle_of_data_is_refused),
    };
    return PLIM_RUN_TESTS("redact", tests);
}
