/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_GATE_BENCH_H
#define PLIM_TESTS_GATE_BENCH_H

/* A ledger in memory with a clock that the test moves: for tests of the gate in one thread. */

#include "unit.h"

#include <plimsoll/gate.h>

#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* A paged engine of `blocks` blocks of 16 tokens. */
static inline struct plimsoll_gate_config paged(uint64_t blocks)
{
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = blocks;
    c.unit_bytes = 1 << 20;
    c.n_groups = 1;
    c.groups[0] = (struct plimsoll_gate_group){.block_tokens = 16, .units_per_block = 1};
    c.max_length = 8192;
    c.slots = 2048;
    return c;
}

struct bench {
    struct plimsoll_gate gate;
    struct plimsoll_gate_config config;
    void *memory;
    uint64_t now;
};

/* What was in the memory before must not matter. */
static inline void begin(struct bench *b, const struct plimsoll_gate_config *c)
{
    size_t bytes = plimsoll_gate_bytes(c);
    assert_null(plimsoll_gate_wrong(c));
    assert_true(bytes > 0);
    b->config = *c;
    b->now = SECOND;
    b->memory = aligned_alloc(64, bytes);
    assert_non_null(b->memory);
    memset(b->memory, 0xa5, bytes);
    assert_int_equal(plimsoll_gate_create(&b->gate, b->memory, bytes, c, b->now), 0);
}

static inline void end(struct bench *b)
{
    assert_null(plimsoll_gate_check(&b->gate));
    plimsoll_gate_close(&b->gate, b->now);
    free(b->memory);
}

static inline struct plimsoll_gate_state state_of(struct bench *b)
{
    struct plimsoll_gate_state s;
    assert_int_equal(plimsoll_gate_read(&b->gate, &s, b->now), 0);
    return s;
}

static inline struct plimsoll_gate_decision ask(struct bench *b, struct plimsoll_gate_request r)
{
    struct plimsoll_gate_decision d;
    assert_int_equal(plimsoll_gate_admit(&b->gate, &r, &d, b->now), 0);
    return d;
}

#endif
