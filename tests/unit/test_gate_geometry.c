/* SPDX-License-Identifier: Apache-2.0 */
/* A model's layers as the gate prices them, against the engine's own count of blocks and the sums of kv.h. */

#include "unit.h"

#include "serving/gate_geometry.h"

#include <stdlib.h>

/* gpt-oss-20b as vLLM plans it: 12 full and 12 sliding layers, one pool. */
static struct plim_vllm_group groups[] = {
    {.kind = PLIM_KV_FULL, .layers = 12, .block_size = 16, .request_blocks = 8192},
    {.kind = PLIM_KV_SLIDING, .layers = 12, .block_size = 16, .window = 128},
};

static uint32_t price(const struct plimsoll_gate_config *c, uint32_t prompt, uint32_t told,
                      uint32_t *now)
{
    struct plimsoll_gate gate;
    struct plimsoll_gate_decision d;
    struct plimsoll_gate_state s;
    struct plimsoll_gate_request r = {.prompt_tokens = prompt, .max_tokens = 1000};
    size_t bytes = plimsoll_gate_bytes(c);
    void *memory = aligned_alloc(64, bytes);
    assert_int_equal(plimsoll_gate_create(&gate, memory, bytes, c, 1), 0);
    assert_int_equal(plimsoll_gate_admit(&gate, &r, &d, 1), 0);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(plimsoll_gate_extend(&gate, d.id, told, 2), 0);
    assert_int_equal(plimsoll_gate_read(&gate, &s, 2), 0);
    assert_null(plimsoll_gate_check(&gate));
    plimsoll_gate_close(&gate, 3);
    free(memory);
    *now = d.now_units;
    return (uint32_t)s.held_units;
}

static void windows_cost_a_step_while_the_prompt_is_computed_and_themselves_afterwards(void **state)
{
    (void)state;
    struct plim_vllm_start s = {.groups = groups,
                                .n_groups = 2,
                                .block_bytes = 12 * 16 * 2048,
                                .num_blocks = 50001,
                                .max_model_len = 131072,
                                .settings = {.in_flight_tokens = 16384, .at = {.dcp = 1}}};
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.slots = 16;
    assert_ok(plim_gate_from_vllm(&s, &c, NULL));
    assert_int_equal(c.capacity_units, 50000);
    assert_int_equal(c.n_groups, 2);
    uint32_t now;
    uint32_t held = price(&c, 100000, 1, &now);
    assert_int_equal(now, 6250 + 1032 + 1); /* 127 + 16384 tokens; the engine counts 1033 */
    assert_int_equal(held, 6251 + 8 + 1);
    held = price(&c, 100, 12, &now);
    assert_int_equal(now, 14);
    assert_int_equal(held, 14); /* 112 tokens lie within the window */
}

static void groups_alike_are_one_and_states_are_fixed(void **state)
{
    (void)state;
    struct plim_vllm_group many[] = {
        {.kind = PLIM_KV_FULL, .block_size = 544},
        {.kind = PLIM_KV_STATE, .block_size = 544, .request_blocks = 1},
        {.kind = PLIM_KV_STATE, .block_size = 544, .request_blocks = 1},
        {.kind = PLIM_KV_STATE, .block_size = 544, .request_blocks = 1},
        {.kind = PLIM_KV_FULL, .block_size = 544},
    };
    struct plim_vllm_start s = {.groups = many,
                                .n_groups = 5,
                                .num_blocks = 1000,
                                .max_model_len = 8192,
                                .settings = {.at = {.dcp = 2}}};
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    assert_ok(plim_gate_from_vllm(&s, &c, NULL));
    assert_int_equal(c.n_groups, 1);
    assert_int_equal(c.groups[0].units_per_block, 2);
    assert_int_equal(c.groups[0].block_tokens, 1088); /* over two devices */
    assert_int_equal(c.state_units, 3);
    s.refusal = PLIM_VLLM_NO_BLOCKS;
    assert_int_equal(plim_gate_from_vllm(&s, &c, NULL), PLIM_E_DATA);
}

static void bytes_follow_the_sums_of_the_layers(void **state)
{
    (void)state;
    struct plim_kv_layer layers[62];
    struct plim_kv_list list = {.items = layers, .n = 62};
    for (unsigned i = 0; i < 62; i++) { /* gemma-3-27b: every sixth layer keeps all */
        layers[i] = (struct plim_kv_layer){.kind = i % 6 == 5 ? PLIM_KV_FULL : PLIM_KV_SLIDING,
                                           .window = i % 6 == 5 ? 0 : 1024,
                                           .token_bytes = 8192};
    }
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.slots = 16;
    assert_ok(plim_gate_from_kv(&list, 1, 20 * PLIM_GIB, &c, NULL));
    assert_int_equal(c.n_groups, 2);
    for (uint32_t tokens = 50; tokens < 30000; tokens = tokens * 3 + 7) {
        uint32_t now;
        uint64_t held = price(&c, tokens, 1, &now) * c.unit_bytes;
        uint64_t want = plim_kv_sequence_bytes(&list, 1, tokens + 1);
        uint64_t block = 62 * 8192 * UINT64_C(8);
        assert_true(held >= want && held <= want + 2 * block + want / 200);
    }
    assert_int_equal(plim_gate_from_kv(&list, 1, 0, &c, NULL), PLIM_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            windows_cost_a_step_while_the_prompt_is_computed_and_themselves_afterwards),
        cmocka_unit_test(groups_alike_are_one_and_states_are_fixed),
        cmocka_unit_test(bytes_follow_the_sums_of_the_layers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
