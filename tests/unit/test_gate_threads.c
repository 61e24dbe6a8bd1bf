/* SPDX-License-Identifier: Apache-2.0 */
/* One ledger, many threads: ThreadSanitizer runs this too. */

#include "unit.h"

#include <plimsoll/gate.h>

#include <pthread.h>
#include <stdlib.h>

#define SECOND  UINT64_C(1000000000)
#define THREADS 4
#define ROUNDS  5000

static struct plimsoll_gate gate;
static uint64_t released[THREADS];

static void *work(void *arg)
{
    uint64_t *done = arg;
    uint64_t random = (uint64_t)(done - released) + 1;
    uint64_t ids[32] = {0};
    for (unsigned i = 0; i < ROUNDS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned at = (unsigned)(random >> 59);
        uint64_t now = SECOND + i * 1000;
        struct plimsoll_gate_request r = {.prompt_tokens = 100 + at, .max_tokens = 200};
        struct plimsoll_gate_decision d;
        if (ids[at] == 0 && plimsoll_gate_admit(&gate, &r, &d, now) == 0) {
            ids[at] = d.id;
        } else if (random & 1) {
            (void)plimsoll_gate_extend(&gate, ids[at], (uint32_t)(random >> 33) % 200, now);
        } else if (plimsoll_gate_release(&gate, ids[at], 50, i % 3, now) == 0) {
            (*done)++;
            ids[at] = 0;
        }
        if (i % 512 == 0) {
            (void)plimsoll_gate_tick(&gate, now);
        }
    }
    for (unsigned at = 0; at < 32; at++) {
        while (ids[at] != 0 && plimsoll_gate_release(&gate, ids[at], 50, PLIMSOLL_GATE_STOPPED,
                                                     SECOND) == PLIMSOLL_GATE_BUSY) {
        }
        *done += ids[at] != 0;
    }
    return NULL;
}

static void threads_share_a_ledger(void **state)
{
    (void)state;
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = 2000;
    c.n_groups = 1;
    c.groups[0] = (struct plimsoll_gate_group){.block_tokens = 16, .units_per_block = 1};
    c.slots = 512;
    size_t bytes = plimsoll_gate_bytes(&c);
    void *memory = aligned_alloc(64, bytes);
    pthread_t threads[THREADS];
    assert_int_equal(plimsoll_gate_create(&gate, memory, bytes, &c, SECOND), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, &released[i]), 0);
    }
    uint64_t sum = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        sum += released[i];
    }
    struct plimsoll_gate_state s;
    assert_null(plimsoll_gate_check(&gate));
    assert_int_equal(plimsoll_gate_read(&gate, &s, SECOND), 0);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.held_units, 0);
    assert_int_equal(s.admitted, sum);
    assert_int_equal(s.repairs, 0);
    plimsoll_gate_close(&gate, SECOND);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_ledger)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
