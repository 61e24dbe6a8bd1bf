/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: a ledger whose memory somebody else wrote into. A good one with some reservations gets the
 * bytes laid over it at a place that they name; then everything is done with it that front doors do. It may
 * say anything but must touch nothing outside. The bytes are also tried as a configuration.
 */

#include <plimsoll/gate.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS 24u
#define HEAD  4u /* bytes: where the rest goes, and whether the lock is touched */

static struct plimsoll_gate_config small(void)
{
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = 1000;
    c.n_groups = 2;
    c.groups[0] = (struct plimsoll_gate_group){.block_tokens = 16, .units_per_block = 1};
    c.groups[1] = (struct plimsoll_gate_group){
        .block_tokens = 16, .cap_tokens = 128, .units_per_block = 2, .extra_blocks = 1};
    c.slots = SLOTS;
    c.waiters = 8;
    c.first_token_ns = 1000000000;
    c.token_ns = 50000000;
    return c;
}

static void use(struct plimsoll_gate *gate, uint64_t now)
{
    struct plimsoll_gate_decision d;
    struct plimsoll_gate_state s;
    struct plimsoll_gate_class class;
    struct plimsoll_gate_figures f = {.has = 31, .usage = 0.5, .preempted = 3, .stranded = 0.2};
    struct plimsoll_gate_request r = {
        .prompt_tokens = 90, .max_tokens = 50, .samples = 2, .shared_tokens = 32, .flags = 1};
    for (uint32_t i = 0; i < 12; i++) {
        r.class_id = plimsoll_gate_class(gate, i % 2 ? "a" : "b", now);
        (void)plimsoll_gate_admit(gate, &r, &d, now + i);
        (void)plimsoll_gate_extend(gate, d.id, 20, now + i);
    }
    for (uint64_t slot = 0; slot < SLOTS; slot++) { /* whatever is there, by its likely ids */
        for (uint64_t used = 1; used < 3; used++) {
            uint64_t id = used << 20 | slot;
            (void)plimsoll_gate_poll(gate, id, &d, now);
            (void)plimsoll_gate_correct(gate, id, 200, now);
            (void)plimsoll_gate_extend(gate, id, 30, now);
            (void)plimsoll_gate_release(gate, id, 40, (uint32_t)(slot % 5), now);
        }
    }
    (void)plimsoll_gate_observe(gate, &f, now);
    (void)plimsoll_gate_oom(gate, &r, 1 << 20, now);
    (void)plimsoll_gate_worked(gate, &r, 1 << 20, now);
    (void)plimsoll_gate_tick(gate, now + 1);
    (void)plimsoll_gate_read(gate, &s, now);
    (void)plimsoll_gate_class_read(gate, 1, &class, now);
    (void)plimsoll_gate_class_set(gate, 1, &class, now);
    (void)plimsoll_gate_check(gate);
}

static void overlay(const uint8_t *data, size_t size)
{
    struct plimsoll_gate_config c = small();
    size_t bytes = plimsoll_gate_bytes(&c);
    uint8_t *memory = aligned_alloc(64, bytes);
    struct plimsoll_gate gate;
    if (!memory || plimsoll_gate_create(&gate, memory, bytes, &c, 1000) != 0) {
        abort();
    }
    use(&gate, 2000);
    size_t at = (size_t)(data[0] | data[1] << 8 | data[2] << 16) % bytes;
    size_t n = size - HEAD < bytes - at ? size - HEAD : bytes - at;
    memcpy(memory + at, data + HEAD, n);
    if (plimsoll_gate_attach(&gate, memory, bytes, 3000) == 0) {
        use(&gate, 4000);
        plimsoll_gate_close(&gate, 5000);
    }
    free(memory);
}

static void configure(const uint8_t *data, size_t size)
{
    struct plimsoll_gate_config c = small();
    memcpy(&c, data, size < sizeof c ? size : sizeof c);
    c.size = sizeof c;
    c.slots = c.slots % 64;
    size_t bytes = plimsoll_gate_bytes(&c);
    void *memory = bytes > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    struct plimsoll_gate gate;
    if (memory && plimsoll_gate_create(&gate, memory, bytes, &c, 1000) == 0) {
        use(&gate, 2000);
        if (plimsoll_gate_check(&gate)) { /* nobody wrote into this one */
            abort();
        }
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > HEAD) {
        overlay(data, size);
        configure(data, size);
    }
    return 0;
}
