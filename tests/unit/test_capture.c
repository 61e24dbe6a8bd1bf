/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot's maker adds: facts and tags from hostile JSON, and what a diagnosis makes of them. */

#include "diagnose/diagnose.h"
#include "fail_alloc.h"
#include "format/capture.h"
#include "replay/requests.h"
#include "snapshot_maker.h"
#include "unit.h"

#include <stdio.h>

static struct maker maker; /* large: not on the stack */

#define FACTS                                                                                      \
    "{\"schema\":\"plimsoll.drop/1\",\"kind\":\"oom\",\"pid\":1,\"time_ns\":2,\"device\":0,"       \
    "\"request_bytes\":8388608,\"limit_bytes\":1073741824,\"device_total_bytes\":4294967296,"      \
    "\"versions\":{\"torch\":\"2.14.1+cu130\"},\"tags\":{\"request_id\":\"r1\",\"batch\":8},"      \
    "\"devices\":[{\"index\":1,\"total_bytes\":17},{\"index\":\"x\"},7]}"

static void facts_are_read(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_capture c;
    plim_arena_init(&arena, 0);
    assert_ok(plim_capture_read(PLIM_STR(FACTS), &arena, &c, NULL));
    assert_true(c.failure);
    assert_int_equal(c.device, 0);
    assert_int_equal(c.limit, 1 << 30);
    assert_string_equal(c.torch, "2.14.1+cu130");
    assert_int_equal(c.tags.n, 2);
    assert_string_equal(c.tags.items[1].name, "batch");
    assert_string_equal(c.tags.items[1].text, "8");
    assert_true(c.tags.items[1].number);
    assert_int_equal(plim_capture_total(&c, 0), UINT64_C(4) << 30);
    assert_int_equal(plim_capture_total(&c, 1), 17);
    assert_int_equal(plim_capture_total(&c, 2), 0);
    plim_arena_fini(&arena);
}

static void what_is_no_capture_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",     "7", "[]", "{", "null", "{}", "{\"schema\":\"plimsoll.drop/2\"}", "{\"schema\":7}",
        "\xff",
    };
    struct plim_arena arena;
    struct plim_capture c = {.device = 99};
    plim_arena_init(&arena, 0);
    for (size_t i = 0; i < PLIM_COUNT_OF(texts); i++) {
        assert_int_equal(plim_capture_read(plim_str_from(texts[i]), &arena, &c, NULL), PLIM_E_DATA);
        assert_int_equal(c.device, 99);
    }
    plim_arena_fini(&arena);
}

static void facts_of_a_wrong_type_are_unknown(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_capture c;
    plim_arena_init(&arena, 0);
    assert_ok(plim_capture_read(
        PLIM_STR(
            "{\"schema\":\"plimsoll.drop/1\",\"kind\":\"oom\",\"device\":-1,\"limit_bytes\":1.5,"
            "\"versions\":[],\"tags\":[1],\"devices\":{},\"device_total_bytes\":\"4\"}"),
        &arena, &c, NULL));
    assert_false(c.failure);
    assert_int_equal(c.limit, 0);
    assert_null(c.torch);
    assert_int_equal(c.tags.n, 0);
    assert_int_equal(c.n_devices, 0);
    plim_arena_fini(&arena);
}

static void inner_members_are_tags_and_texts_are_bounded(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_tags tags;
    char text[2048];
    plim_arena_init(&arena, 0);
    assert_ok(plim_tags_read(
        PLIM_STR("{\"a\":\"x\\u0007y\",\"shape\":{\"b\":1,\"a\":2,\"in\":{\"c\":3}},\"l\":[1],"
                 "\"t\":true,\"f\":0.5,\"n\":null}"),
        &arena, &tags, NULL));
    assert_int_equal(tags.n, 4);
    assert_string_equal(tags.items[0].text, "x y");
    assert_string_equal(tags.items[1].name, "b");
    assert_string_equal(tags.items[2].text, "true");
    assert_string_equal(tags.items[3].text, "0.5");
    /* A character of two bytes lies across the limit. */
    memset(text, 'a', sizeof(text));
    memcpy(text, "{\"k\":\"", 6);
    memcpy(text + 6 + PLIM_TAG_BYTES - 1, "\xc3\xa9", 2);
    memcpy(text + 1000, "\"}", 3);
    assert_ok(plim_tags_read(plim_str_from(text), &arena, &tags, NULL));
    assert_int_equal(strlen(tags.items[0].text), PLIM_TAG_BYTES - 1);
    plim_arena_fini(&arena);
}

static uint32_t interned(const char *text)
{
    uint32_t id;
    assert_ok(plim_intern_put(&maker.snapshot.strings, plim_str_from(text), &id, NULL));
    return id;
}

/* A 3 GiB tensor, and a request that fails with 1 MiB free. */
static void make_failure(void)
{
    maker_init(&maker);
    uint32_t stack = maker_stack(&maker, "forward", "model.py", 7);
    maker_alloc(&maker, UINT64_C(3) << 30, stack);
    maker_oom(&maker, UINT64_C(512) << 20, 1 << 20, stack);
    maker_finish(&maker);
}

static struct plim_diagnosis judged(void)
{
    struct plim_diagnosis d;
    struct plim_diagnose_options options = {.device = PLIM_NO_ID};
    assert_ok(plim_diagnose(&maker.snapshot, &options, &d, NULL));
    return d;
}

static void a_diagnosis_knows_what_the_capture_knows(void **state)
{
    (void)state;
    make_failure();
    maker.snapshot.capture = interned(FACTS);
    struct plim_diagnosis d = judged();
    assert_int_equal(d.facts.total.bytes, UINT64_C(4) << 30);
    assert_int_equal(d.facts.total.how, PLIM_HOW_MEASURED);
    assert_int_equal(d.facts.cap.bytes, 1 << 30);
    assert_int_equal(d.failure.tags.n, 2);
    assert_non_null(strstr(d.set.verdict.summary, "at work on request_id r1, batch 8."));
    plim_diagnosis_fini(&d);
    maker.snapshot.capture = interned("nonsense");
    d = judged();
    assert_int_equal(d.facts.total.how, PLIM_HOW_UNKNOWN);
    assert_int_equal(d.failure.tags.n, 0);
    plim_diagnosis_fini(&d);
    maker_fini(&maker);
}

static void without_a_capture_the_note_of_the_request_counts(void **state)
{
    (void)state;
    static const struct {
        const char *note;
        uint32_t tags;
    } cases[] = {{"{\"request_id\":\"r2\"}", 1}, {"step 7", 0}, {"", 0}};
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        make_failure();
        struct plim_trace *trace = &maker.snapshot.devices.items[0].trace;
        struct plim_note note = {PLIM_NO_ID, interned(cases[i].note)};
        assert_ok(plim_vec_push(&maker.snapshot.notes, NULL, note));
        trace->events.items[trace->events.n - 1].note = (uint32_t)maker.snapshot.notes.n - 1;
        struct plim_diagnosis d = judged();
        assert_int_equal(d.failure.tags.n, cases[i].tags);
        plim_diagnosis_fini(&d);
        maker_fini(&maker);
    }
}

static void the_release_that_recorded_is_the_one_that_was_noted(void **state)
{
    (void)state;
    static const struct {
        const char *torch;
        unsigned minor;
    } cases[] = {
        {"2.10.0+cu128", 10}, {"1.13.1", 0}, {"nightly", 0}}; /* 0: none that is imitated */
    make_failure();
    unsigned guessed = plim_recorded_version(&maker.snapshot).minor;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        char text[100];
        snprintf(text, sizeof(text),
                 "{\"schema\":\"plimsoll.drop/1\",\"versions\":{\"torch\":\"%s\"}}",
                 cases[i].torch);
        maker.snapshot.capture = interned(text);
        assert_int_equal(plim_recorded_version(&maker.snapshot).minor,
                         cases[i].minor ? cases[i].minor : guessed);
    }
    maker_fini(&maker);
}

static enum plim_status read_once(void *arg)
{
    (void)arg;
    struct plim_arena arena;
    struct plim_capture c;
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_capture_read(PLIM_STR(FACTS), &arena, &c, NULL);
    plim_arena_fini(&arena);
    return st;
}

static void reading_survives_every_failing_allocation(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(read_once, NULL, 100, false) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_read),
        cmocka_unit_test(what_is_no_capture_is_refused),
        cmocka_unit_test(facts_of_a_wrong_type_are_unknown),
        cmocka_unit_test(inner_members_are_tags_and_texts_are_bounded),
        cmocka_unit_test(a_diagnosis_knows_what_the_capture_knows),
        cmocka_unit_test(without_a_capture_the_note_of_the_request_counts),
        cmocka_unit_test(the_release_that_recorded_is_the_one_that_was_noted),
        cmocka_unit_test(reading_survives_every_failing_allocation),
    };
    return PLIM_RUN_TESTS("capture", tests);
}
