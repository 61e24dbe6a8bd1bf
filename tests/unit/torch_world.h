/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_TORCH_WORLD_H
#define PLIM_TESTS_TORCH_WORLD_H

/*
 * A small world for tests of the allocator model: a device, a model on it, and logs of the driver calls
 * and of the allocator's events. The structure checker runs after every request.
 */

#include "alloc/torch.h"
#include "unit.h"

#define WORLD_BASE (UINT64_C(1) << 40) /* first address of ascending worlds */

struct world {
    struct plim_devmodel device;
    struct plim_torch *t;
    PLIM_VEC(struct plim_driver_event) calls;
    PLIM_VEC(struct plim_torch_event) events;
    uint64_t done[8]; /* per stream handle: events up to that ticket are complete */
    bool lagging;     /* events complete only by `done` */
};

static void world_call(void *ctx, const struct plim_driver_event *event)
{
    struct world *w = ctx;
    assert_int_equal(plim_vec_push(&w->calls, NULL, *event), PLIM_OK);
}

static void world_event(void *ctx, const struct plim_torch_event *event)
{
    struct world *w = ctx;
    assert_int_equal(plim_vec_push(&w->events, NULL, *event), PLIM_OK);
}

static bool world_ready(void *ctx, int64_t stream, uint64_t ticket)
{
    const struct world *w = ctx;
    return !w->lagging || ticket <= w->done[stream & 7];
}

static void world_make(struct world *w, const char *conf_text, unsigned minor, uint64_t total,
                       enum plim_address_policy policy)
{
    struct plim_conf conf;
    struct plim_torch_version version = {2, (uint16_t)minor};
    plim_conf_init(&conf, version);
    *w = (struct world){0};
    struct plim_devmodel_config dc = {
        .total = total,
        .policy = policy,
        .base = WORLD_BASE,
        .event_ready = world_ready,
        .log = world_call,
        .ctx = w,
    };
    assert_int_equal(plim_conf_parse(&conf, plim_str_from(conf_text), NULL), PLIM_OK);
    assert_int_equal(plim_devmodel_init(&w->device, &dc, NULL), PLIM_OK);
    struct plim_torch_config tc = {
        .version = version,
        .conf = &conf,
        .device = &w->device,
        .on_event = world_event,
        .ctx = w,
    };
    assert_int_equal(plim_torch_new(&tc, &w->t, NULL), PLIM_OK);
}

static void world_drop(struct world *w)
{
    plim_torch_delete(w->t);
    plim_devmodel_fini(&w->device);
    plim_vec_fini(&w->calls);
    plim_vec_fini(&w->events);
}

static void world_check(const struct world *w)
{
    struct plim_err err = {0};
    if (plim_torch_check(w->t, &err) != PLIM_OK) {
        print_error("%s\n", err.message);
        fail();
    }
}

static uint64_t world_alloc_on(struct world *w, uint64_t size, uint16_t stream, uint16_t pool)
{
    uint64_t block = 0;
    assert_int_equal(plim_torch_alloc(w->t, size, stream, pool, &block, NULL), PLIM_OK);
    world_check(w);
    return block;
}

static inline uint64_t world_alloc(struct world *w, uint64_t size)
{
    return world_alloc_on(w, size, 0, PLIM_TORCH_POOL_DEFAULT);
}

static inline void world_free(struct world *w, uint64_t block)
{
    assert_int_equal(plim_torch_free(w->t, block, NULL), PLIM_OK);
    world_check(w);
}

static void world_empty(struct world *w)
{
    assert_int_equal(plim_torch_empty_cache(w->t, PLIM_TORCH_POOL_DEFAULT, NULL), PLIM_OK);
    world_check(w);
}

#endif
