/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's daemon without its server: what bodies say, what proxies and scrapers are told. */

#include "unit.h"

#include "gate/gate_int.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- bodies ---- */

static enum plim_status read_body(const char *text, bool with_bytes, struct plim__gate_asked *out)
{
    return plim__gate_read_request(plim_str_from(text), with_bytes, out, NULL);
}

static void every_key_of_a_request_is_read(void **state)
{
    struct plim__gate_asked a;
    (void)state;
    assert_ok(read_body("{\"prompt_tokens\": 1, \"max_tokens\": 2, \"cached_tokens\": 3, "
                        "\"shared_tokens\": 4, \"samples\": 5, \"image_tokens\": 6, "
                        "\"logprob_rows\": 7, \"known_output\": 8, \"priority\": -9, "
                        "\"class\": \"c\", \"lease_s\": 1.5, \"wait\": true, \"bytes\": 10}",
                        true, &a));
    const struct plimsoll_gate_request *r = &a.request;
    assert_int_equal(r->prompt_tokens, 1);
    assert_int_equal(r->max_tokens, 2);
    assert_int_equal(r->cached_tokens, 3);
    assert_int_equal(r->shared_tokens, 4);
    assert_int_equal(r->samples, 5);
    assert_int_equal(r->image_tokens, 6);
    assert_int_equal(r->logprob_rows, 7);
    assert_int_equal(r->known_output, 8);
    assert_int_equal(r->priority, -9);
    assert_int_equal(r->lease_ns, 1500000000);
    assert_int_equal(r->flags, PLIMSOLL_GATE_MAY_WAIT);
    assert_string_equal(a.class_name, "c");
    assert_int_equal(a.bytes, 10);
    assert_ok(read_body("{\"stream\": false, \"wait\": true}", false, &a));
    assert_int_equal(a.request.flags, PLIMSOLL_GATE_WHOLE | PLIMSOLL_GATE_MAY_WAIT);
    assert_ok(read_body("{\"wait\": false, \"stream\": true}", false, &a));
    assert_int_equal(a.request.flags, 0);
    assert_ok(read_body("{}", true, &a));
    assert_int_equal(a.request.prompt_tokens, 0);
    assert_true(a.bytes == UINT64_MAX);
}

static void a_batch_is_one_request_of_so_many_prompts(void **state)
{
    struct plim__gate_asked a;
    const struct plimsoll_gate_request *r = &a.request;
    (void)state;
    assert_ok(
        read_body("{\"samples\": 2, \"prompts\": [10, 300, 15], \"max_tokens\": 9}", false, &a));
    assert_int_equal(r->prompt_tokens, 109); /* 325 / 3, upwards */
    assert_int_equal(r->longest_tokens, 300);
    assert_int_equal(r->samples, 6);
    assert_int_equal(r->max_tokens, 9);
    assert_int_equal(r->flags, PLIMSOLL_GATE_APART);
    assert_ok(
        read_body("{\"prompts\": [10], \"samples\": 3}", false, &a)); /* a list of one is one */
    assert_int_equal(r->prompt_tokens, 10);
    assert_int_equal(r->samples, 3);
    assert_int_equal(r->flags, 0);
    assert_ok(read_body("{\"prompts\": [2147483647, 1], \"samples\": 2147483647}", false, &a));
    assert_int_equal(r->prompt_tokens, 1u << 30);
    assert_int_equal(r->samples, UINT32_MAX - 1);
    assert_int_equal(r->longest_tokens, 2147483647);
}

static void bodies_that_make_no_sense_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "null",
                                      "{\"prompt_tokens\": -1}",
                                      "{\"prompt_tokens\": 1.5}",
                                      "{\"prompt_tokens\": \"1\"}",
                                      "{\"prompt_tokens\": 2147483648}",
                                      "{\"prompt_tokens\": 1, \"prompt_tokens\": 2}",
                                      "{\"lease_s\": 0}",
                                      "{\"lease_s\": 86401}",
                                      "{\"wait\": 1}",
                                      "{\"stream\": 0}",
                                      "{\"priority\": 4294967296}",
                                      "{\"class\": 1}",
                                      "{\"prompts\": []}",
                                      "{\"prompts\": [0]}",
                                      "{\"prompts\": [1, -1]}",
                                      "{\"prompts\": [1, \"2\"]}",
                                      "{\"prompts\": 5}",
                                      "{\"prompts\": {\"a\": 1}}",
                                      "{\"prompts\": [5], \"prompt_tokens\": 5}",
                                      "{\"prompt_tokens\": 5, \"prompts\": [5, 6]}",
                                      "{\"bytes\": -1}",
                                      "{\"bytes\": 1.0}",
                                      "{\"more\": 1}"};
    struct plim__gate_asked a;
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(bad); i++) {
        assert_int_equal(read_body(bad[i], true, &a), PLIM_E_USAGE);
    }
    assert_int_equal(read_body("{\"bytes\": 1}", false, &a), PLIM_E_USAGE);
}

static void figures_of_a_monitor_are_read(void **state)
{
    struct plimsoll_gate_figures f;
    (void)state;
    assert_ok(plim__gate_read_figures(PLIM_STR("{\"headroom_bytes\": 5}"), &f, NULL));
    assert_int_equal(f.has, PLIMSOLL_GATE_HAS_HEADROOM);
    assert_int_equal(f.headroom_bytes, 5);
    assert_ok(plim__gate_read_figures(PLIM_STR("{\"stranded\": 0.25}"), &f, NULL));
    assert_int_equal(f.has, PLIMSOLL_GATE_HAS_STRANDED);
    assert_true(f.stranded == 0.25);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"stranded\": -1}",
                                      "{\"stranded\": true}",
                                      "{\"headroom_bytes\": -5}",
                                      "{\"usage\": 1}"};
    for (size_t i = 0; i < PLIM_COUNT_OF(bad); i++) {
        assert_int_equal(plim__gate_read_figures(plim_str_from(bad[i]), &f, NULL), PLIM_E_USAGE);
    }
}

static void limits_of_a_class_are_read(void **state)
{
    struct plimsoll_gate_class c;
    (void)state;
    assert_ok(plim__gate_read_class(
        PLIM_STR("{\"class\": \"a\", \"weight\": 2, \"budget\": 0.5, \"max_requests\": 3}"), &c,
        NULL));
    assert_string_equal(c.name, "a");
    assert_true(c.weight == 2 && c.budget == 0.5);
    assert_int_equal(c.max_requests, 3);
    assert_ok(plim__gate_read_class(PLIM_STR("{\"class\": \"\"}"), &c, NULL));
    assert_true(c.weight == 1 && c.budget == 0);
    static const char *const bad[] = {"", "{}", "{\"class\": 1}",
                                      "{\"class\": \"a\", \"weight\": 0}",
                                      "{\"class\": \"a\", \"max_requests\": -1}"};
    for (size_t i = 0; i < PLIM_COUNT_OF(bad); i++) {
        assert_int_equal(plim__gate_read_class(plim_str_from(bad[i]), &c, NULL), PLIM_E_USAGE);
    }
}

/* ---- a daemon with a ledger of its own ---- */

struct made {
    struct plim__gate gate;
    struct plim_gate_options options;
    void *memory;
};

static void make(struct made *m)
{
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = 100;
    c.n_groups = 1;
    c.groups[0] = (struct plimsoll_gate_group){.block_tokens = 16, .units_per_block = 1};
    c.slots = 64;
    c.policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE;
    size_t bytes = plimsoll_gate_bytes(&c);
    *m = (struct made){.memory = aligned_alloc(64, bytes)};
    assert_non_null(m->memory);
    m->gate.options = &m->options;
    atomic_store(&m->gate.engine_up, true);
    assert_int_equal(plimsoll_gate_create(&m->gate.handle[0], m->memory, bytes, &c, plim_mono_ns()),
                     0);
    atomic_store(&m->gate.open, true);
}

static void drop(struct made *m)
{
    plimsoll_gate_close(&m->gate.handle[0], plim_mono_ns());
    free(m->memory);
}

static void check_line(struct made *m, const char *expected)
{
    char line[96];
    plim__agent_line(&m->gate, line, sizeof(line));
    assert_string_equal(line, expected);
}

static void haproxy_is_told_the_room_that_is_left(void **state)
{
    struct made m;
    struct plimsoll_gate_decision d;
    const struct plimsoll_gate_request r = {.prompt_tokens = 1200, .max_tokens = 16};
    (void)state;
    make(&m);
    check_line(&m, "up ready 100%\n");
    plim__gate_judge(&m.gate, &r, &d);
    assert_int_equal(d.http, 200);
    check_line(&m, "up ready 48%\n"); /* 76 of 100 blocks */
    assert_int_equal(plimsoll_gate_drain(&m.gate.handle[0], true, plim_mono_ns()), 0);
    check_line(&m, "drain #draining\n");
    assert_int_equal(plimsoll_gate_drain(&m.gate.handle[0], false, plim_mono_ns()), 0);
    atomic_store(&m.gate.engine_up, false);
    check_line(&m, "down #the engine does not answer\n");
    atomic_store(&m.gate.stopping, true);
    check_line(&m, "drain #stopping\n");
    drop(&m);
}

static void without_a_ledger_it_is_open_or_closed_by_choice(void **state)
{
    struct made m;
    struct plimsoll_gate_decision d;
    const struct plimsoll_gate_request r = {.prompt_tokens = 1};
    (void)state;
    make(&m);
    atomic_store(&m.gate.open, false);
    plim__gate_judge(&m.gate, &r, &d);
    assert_int_equal(d.http, 503);
    m.options.fail_open = true;
    plim__gate_judge(&m.gate, &r, &d);
    assert_int_equal(d.http, 200);
    assert_int_equal(atomic_load(&m.gate.count[PLIM_GATE_COUNT_UNDECIDED]), 2);
    check_line(&m, "down #no ledger yet\n");
    drop(&m);
}

static void metrics_leave_out_what_is_not_known(void **state)
{
    struct made m;
    struct plim_buf text = {0};
    (void)state;
    make(&m);
    for (int form = 0; form < 2; form++) {
        plim_buf_reset(&text);
        plim__gate_metrics(&text, &m.gate, form == 1);
        plim_buf_char(&text, '\0');
        assert_non_null(strstr(text.p, "\nplimsoll_gate_capacity_units 100\n"));
        assert_non_null(strstr(text.p, "\nplimsoll_gate_admitted_total 0\n"));
        assert_non_null(strstr(text.p, "\nplimsoll_gate_refused_total{reason=\"memory\"} 0\n"));
        assert_null(strstr(text.p, "plimsoll_gate_used_units "));
        assert_null(strstr(text.p, "nan"));
        assert_int_equal(strstr(text.p, "# EOF\n") != NULL, form == 1);
    }
    plim_buf_fini(&text);
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_a_request_is_read),
        cmocka_unit_test(a_batch_is_one_request_of_so_many_prompts),
        cmocka_unit_test(bodies_that_make_no_sense_are_refused),
        cmocka_unit_test(figures_of_a_monitor_are_read),
        cmocka_unit_test(limits_of_a_class_are_read),
        cmocka_unit_test(haproxy_is_told_the_room_that_is_left),
        cmocka_unit_test(without_a_ledger_it_is_open_or_closed_by_choice),
        cmocka_unit_test(metrics_leave_out_what_is_not_known),
    };
    return PLIM_RUN_TESTS("gate doors", tests);
}
