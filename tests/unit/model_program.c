/* SPDX-License-Identifier: Apache-2.0 */
/* See model_program.h. */

#include "model_program.h"

#include <string.h>

static uint64_t next_random(struct program *p)
{
    p->random += UINT64_C(0x9e3779b97f4a7c15);
    return plim_hash_u64(p->random);
}

static void record(void *ctx, const struct plim_torch_event *e)
{
    struct program *p = ctx;
    struct plim_event event = {.addr = e->addr,
                               .size = e->size,
                               .stack = PLIM_NO_STACK,
                               .note = PLIM_NO_ID,
                               .stream = e->stream,
                               .pool = e->pool,
                               .action = (uint8_t)e->action};
    assert_ok(plim_vec_push(&p->device.trace.events, NULL, event));
    p->device.trace.by_action[e->action]++;
}

static uint64_t random_size(struct program *p)
{
    static const uint64_t around[] = {1,        512,           100 * PLIM_KIB, PLIM_MIB,
                                      PLIM_MIB, 10 * PLIM_MIB, 20 * PLIM_MIB,  60 * PLIM_MIB};
    uint64_t size = around[next_random(p) % PLIM_COUNT_OF(around)];
    return size + next_random(p) % (size + 1);
}

static void step(struct program *p)
{
    uint64_t r = next_random(p) % 100;
    if (r < 1) {
        assert_ok(plim_torch_empty_cache(p->torch, PLIM_TORCH_POOL_DEFAULT, NULL));
    } else if (p->n_live == LIVE_MAX || (p->n_live > 0 && r < 48)) {
        size_t i = next_random(p) % p->n_live;
        assert_ok(plim_torch_free(p->torch, p->live[i], NULL));
        p->live[i] = p->live[--p->n_live];
    } else {
        uint64_t block;
        assert_ok(plim_torch_alloc(p->torch, random_size(p), 0, 0, &block, NULL));
        if (block != PLIM_TORCH_NONE) {
            p->live[p->n_live++] = block;
        }
    }
}

void run_program(struct program *p, const char *settings, uint64_t seed)
{
    struct plim_conf conf;
    struct plim_devmodel_config driver = {.total = 4 * PLIM_GIB};
    memset(p, 0, sizeof(*p));
    p->random = seed;
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    assert_ok(plim_conf_parse(&conf, plim_str_from(settings), NULL));
    assert_ok(plim_devmodel_init(&p->driver, &driver, NULL));
    struct plim_torch_config config = {.version = PLIM_TORCH_LATEST,
                                       .conf = &conf,
                                       .device = &p->driver,
                                       .on_event = record,
                                       .ctx = p};
    assert_ok(plim_torch_new(&config, &p->torch, NULL));
    for (size_t i = 0; i < STEPS; i++) {
        step(p);
        if (i % (STEPS / SAMPLES) == 0) {
            p->sample_at[p->n_samples] = p->device.trace.events.n;
            assert_ok(plim_torch_export(p->torch, &p->sample[p->n_samples++], NULL));
        }
    }
    assert_ok(plim_torch_export(p->torch, &p->device.heap, NULL));
}

void end_program(struct program *p)
{
    plim_torch_delete(p->torch);
    plim_devmodel_fini(&p->driver);
    for (size_t i = 0; i < p->n_samples; i++) {
        plim_heap_fini(&p->sample[i]);
    }
    plim_heap_fini(&p->device.heap);
    plim_vec_fini(&p->device.trace.events);
}
