/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_GATE_STEPS_H
#define PLIM_TESTS_GATE_STEPS_H

/* The steps of a request at the gate, for tests of what it learns and of what it guards. */

#include "gate_bench.h"

/* Many long requests at once. */
static struct plimsoll_gate_config wide(uint64_t blocks)
{
    struct plimsoll_gate_config c = paged(blocks);
    c.max_length = 65536;
    c.slots = 12000;
    return c;
}

static void release(struct bench *b, uint64_t id, uint32_t generated, uint32_t outcome)
{
    assert_int_equal(plimsoll_gate_release(&b->gate, id, generated, outcome, b->now), 0);
}

static void figures(struct bench *b, struct plimsoll_gate_figures f)
{
    assert_int_equal(plimsoll_gate_observe(&b->gate, &f, b->now), 0);
}

#endif
