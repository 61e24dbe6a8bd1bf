/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: traces that no allocator ever wrote. The input becomes a final heap and a trace: first a
 * byte with the number of segments, four bytes for each, then eight bytes for each entry. Whatever comes
 * of it, requests can be made of it, replayed, checked, corrected and bounded, a plan can be made of it and
 * followed, or an error says why not.
 */

#include "replay/bound.h"
#include "replay/effects.h"
#include "replay/repair.h"
#include "replay/seating.h"

#include <stddef.h>
#include <stdint.h>

#define SEGMENTS 15u
#define ENTRIES  600u
#define DEMAND(x)                                                                                  \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sizes that mean something: thresholds, nothing, everything. */
static uint64_t size_of(const uint8_t *p)
{
    static const uint64_t steps[] = {512,           PLIM_MIB, 2 * PLIM_MIB,      10 * PLIM_MIB,
                                     20 * PLIM_MIB, PLIM_GIB, UINT64_C(1) << 50, 1};
    uint64_t size = steps[p[0] & 7] * (1u + (p[0] >> 3));
    return p[1] == 255 ? UINT64_MAX : p[1] == 254 ? 0 : size + p[1] * UINT64_C(512);
}

static enum plim_status add_segment(struct plim_device *d, const uint8_t *p, struct plim_err *err)
{
    uint64_t at = d->heap.segments.n ? d->heap.segments.items[d->heap.segments.n - 1].addr +
                                           d->heap.segments.items[d->heap.segments.n - 1].size
                                     : PLIM_GIB;
    struct plim_segment s = {
        .addr = at + (p[0] & 3) * 2 * PLIM_MIB,
        .size = 20 * PLIM_MIB * (1u + (p[1] & 3)),
        .stack = PLIM_NO_STACK,
        .first_block = (uint32_t)d->heap.blocks.n,
        .n_blocks = 4,
        .stream = p[0] >> 7,
        .pool = p[1] >> 7,
        .small = p[0] >> 6 & 1,
        .expandable = p[0] >> 5 & 1,
    };
    for (uint32_t i = 0; i < s.n_blocks; i++) {
        struct plim_block b = {
            .addr = s.addr + s.size / 4 * i,
            .size = s.size / 4,
            .requested = s.size / 4 - (p[2] & 15) * 4096,
            .stack = PLIM_NO_STACK,
            .segment = (uint32_t)d->heap.segments.n,
            .alloc_event = PLIM_NO_EVENT,
            .state = (enum plim_block_state)(((p[3] >> (2 * i)) & 3) % 3),
        };
        PLIM_TRY(plim_vec_push(&d->heap.blocks, err, b));
    }
    return plim_vec_push(&d->heap.segments, err, s);
}

static enum plim_status add_entry(struct plim_device *d, const uint8_t *p, struct plim_err *err)
{
    struct plim_event e = {
        .addr = PLIM_GIB + (uint64_t)(p[4] | p[5] << 8) * (p[6] & 1 ? 512 : PLIM_MIB),
        .size = size_of(p + 2),
        .stack = p[1] & 8 ? PLIM_NO_STACK : p[1] & 1,
        .note = PLIM_NO_ID,
        .stream = p[1] >> 1 & 1,
        .pool = p[1] & 16 ? PLIM_NO_POOL : p[1] >> 2 & 1,
        .action = p[0] % (PLIM_ACTION_COUNT + 1),
    };
    if (e.action < PLIM_ACTION_COUNT) {
        d->trace.by_action[e.action]++;
    }
    return plim_vec_push(&d->trace.events, err, e);
}

static enum plim_status make(struct plim_snapshot *s, const uint8_t *data, size_t size,
                             struct plim_err *err)
{
    static const char *const confs[] = {"", "expandable_segments:True",
                                        "roundup_power2_divisions:4"};
    struct plim_device *d;
    uint16_t index;
    PLIM_TRY(plim_snapshot_stream(s, 0, &index, err));
    PLIM_TRY(plim_snapshot_stream(s, 77, &index, err));
    PLIM_TRY(plim_snapshot_pool(s, (struct plim_pool_id){0, 5}, &index, err));
    PLIM_TRY(plim_snapshot_device(s, 0, &d, err));
    s->has_traces = true;
    s->settings.known = size % 5 != 0;
    PLIM_TRY(plim_intern_put(&s->strings, plim_str_from(confs[size % 3]), &s->settings.conf, err));
    size_t n = size > 0 ? data[0] % (SEGMENTS + 1) : 0, at = 1;
    for (size_t i = 0; i < n && at + 4 <= size; i++, at += 4) {
        PLIM_TRY(add_segment(d, data + at, err));
    }
    for (size_t i = 0; i < ENTRIES && at + 8 <= size; i++, at += 8) {
        PLIM_TRY(add_entry(d, data + at, err));
    }
    return PLIM_OK;
}

static void replay_all(struct plim_requests *q)
{
    static const char *const confs[] = {"", "expandable_segments:True",
                                        "max_split_size_mb:20,roundup_power2_divisions:2"};
    struct plim_selfcheck check;
    struct plim_bound bound;
    struct plim_err err = {0};
    for (size_t i = 0; i < PLIM_COUNT_OF(confs); i++) {
        struct plim_conf conf;
        struct plim_replay_result r;
        plim_conf_init(&conf, PLIM_TORCH_LATEST);
        DEMAND(plim_conf_parse(&conf, plim_str_from(confs[i]), NULL) == PLIM_OK);
        struct plim_replay_setup setup = {.conf = &conf, .capacity = 3 * PLIM_GIB, .scale = 1.3};
        setup.go_on = i == 1;
        setup.start = i == 2 ? PLIM_START_ANEW : PLIM_START_AS_WAS;
        enum plim_status st = plim_replay(q, &setup, &r, &err);
        DEMAND(st == PLIM_OK ? r.allocs <= q->allocs : err.message[0] != '\0');
        DEMAND(st != PLIM_OK || r.peak.active <= 3 * PLIM_GIB);
    }
    DEMAND(plim_selfcheck(q, 0, &check, &err) == PLIM_OK);
    DEMAND(check.compared <= check.total);
    DEMAND(plim_requests_repair(q, 0, 20000, NULL, &err) == PLIM_OK);
    DEMAND(plim_bound_of(q, 1.3, &bound, &err) == PLIM_OK);
    DEMAND(bound.packed_all <= bound.packed);
}

/* Mode plan, on a device that may be too small for it. */
static void follow_own_plan(const struct plim_requests *q)
{
    struct plim_seating plan;
    struct plim_seating_facts facts;
    struct plim_replay_result r;
    struct plim_err err = {0};
    if (plim_seating_make(q, &plan, &facts, &err) != PLIM_OK) {
        DEMAND(err.message[0] != '\0');
        return;
    }
    DEMAND(plan.n > 0 && plan.repeat < plan.n && facts.placed <= plan.n);
    DEMAND(facts.places.height >= facts.places.bound);
    struct plim_moving_options moving = {.rounding.mode = PLIM_ENGINE_PLAN, .plan = &plan};
    struct plim_replay_setup setup = {
        .conf = &q->conf, .capacity = 3 * PLIM_GIB, .moving = &moving, .go_on = true};
    DEMAND(plim_replay(q, &setup, &r, &err) == PLIM_OK || err.message[0] != '\0');
    plim_seating_free(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_snapshot s;
    struct plim_requests q;
    struct plim_err err = {0};
    if (plim_snapshot_init(&s, &err) != PLIM_OK) {
        return 0;
    }
    if (make(&s, data, size, &err) == PLIM_OK &&
        plim_requests_build(&s, 0, NULL, &q, &err) == PLIM_OK) {
        follow_own_plan(&q);
        replay_all(&q);
        plim_requests_fini(&q);
    }
    plim_snapshot_fini(&s);
    return 0;
}
