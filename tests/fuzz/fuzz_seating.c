/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the plan of mode plan, and the allocator that follows it. Whatever the text holds, it is read
 * into a seating that keeps its invariants and that writes and reads back the same, or refused with a reason.
 * Then the requests it lists are made, twice, with some left out and sizes changed, the blocks freed as the
 * bytes of the text say: the engine's structures stay sound whatever the places.
 */

#include "alloc/moving.h"
#include "format/seating.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS    8
#define REQUESTS 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void sound(const struct plim_seating *p)
{
    must(p->n > 0 && p->repeat < p->n && p->lanes > 0 && p->lanes <= PLIM_SEATING_LANES);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct plim_seating_request *r = &p->requests[i];
        bool large = r->size > PLIM_ENGINE_SMALL;
        must(r->size > 0 && r->size % PLIM_ENGINE_UNIT == 0 && r->lane < p->lanes);
        must(p->by_gram[i] < p->n);
        must(r->place == PLIM_SEATING_NONE || (r->place + r->size <= p->height[r->lane][large] &&
                                               r->rank < p->ranks[r->lane][large]));
    }
}

static void writes_and_reads_back(const struct plim_seating *p)
{
    struct plim_buf text = {0};
    struct plim_seating again;
    struct plim_seating_fault fault;
    plim_seating_write(p, &text);
    must(plim_buf_status(&text, NULL) == PLIM_OK);
    must(plim_seating_parse(text.p, text.n, &again, &fault));
    must(again.n == p->n && again.repeat == p->repeat && again.lanes == p->lanes);
    must(memcmp(again.requests, p->requests, p->n * sizeof *p->requests) == 0);
    plim_seating_free(&again);
    plim_buf_fini(&text);
}

/* A check of the structure goes through every page of the plan: so many take seconds, each time. */
static bool vast(const struct plim_seating *p)
{
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < p->lanes; lane++) {
        for (int large = 0; large < 2; large++) {
            sum = plim_add_sat(sum, p->height[lane][large]);
        }
    }
    return sum > 64 * PLIM_GIB;
}

static void follow(struct plim_moving *m, const struct plim_seating *p, const uint8_t *data,
                   size_t size)
{
    uint64_t addr[SLOTS] = {0};
    uint32_t at = 0;
    bool far = vast(p);
    for (uint32_t k = 0; k < REQUESTS && k < 2 * p->n; k++) {
        uint8_t byte = data[(k * 7u) % size];
        uint64_t *slot = &addr[byte % SLOTS];
        const struct plim_seating_request *r = &p->requests[at];
        if (*slot) {
            must(plim_moving_free(m, *slot, NULL) == PLIM_OK);
        }
        uint64_t asked = byte == '3' ? r->size / 2 + 1 : r->size;
        must(plim_moving_alloc(m, asked, r->lane, 0, slot, NULL) == PLIM_OK);
        must(far || plim_engine_check(m->engine) == NULL);
        at += byte == '7' ? 2 : 1;
        at = at < p->n ? at : p->repeat;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_seating p;
    struct plim_seating_fault fault;
    if (!plim_seating_parse((const char *)data, size, &p, &fault)) {
        must(fault.what != NULL);
        return 0;
    }
    sound(&p);
    writes_and_reads_back(&p);
    struct plim_devmodel device;
    struct plim_devmodel_config config = {.total = UINT64_C(1) << 30};
    struct plim_moving_options options = {.rounding.mode = PLIM_ENGINE_PLAN, .plan = &p};
    struct plim_moving m;
    if (plim_devmodel_init(&device, &config, NULL) == PLIM_OK) {
        if (plim_moving_init(&m, &device, &options, NULL) == PLIM_OK) {
            follow(&m, &p, data, size);
            plim_moving_fini(&m);
        }
        plim_devmodel_fini(&device);
    }
    plim_seating_free(&p);
    return 0;
}
