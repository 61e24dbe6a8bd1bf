/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's driver table over the device model. */

#include "alloc/moving.h"

static int drv_reserve(void *ctx, uint64_t size, uint64_t align, uint64_t *addr)
{
    struct plim_moving *m = ctx;
    /* The model's addresses are multiples of its page; larger alignment takes a larger range, of which
     * the head stays unused. */
    uint64_t more = align > PLIM_DEVMODEL_PAGE ? align : 0;
    enum plim_status st = plim_devmodel_reserve(m->device, size + more, addr, NULL);
    if (st != PLIM_OK) {
        m->status = m->status ? m->status : st;
        return 2;
    }
    if (*addr == 0) {
        return 2;
    }
    *addr = (*addr + align - 1) & ~(align - 1);
    return 0;
}

/* Ranges are given back with the device model itself. */
static void drv_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
    (void)ctx;
    (void)addr;
    (void)size;
}

static int drv_create(void *ctx, uint64_t size, uint64_t *handle)
{
    struct plim_moving *m = ctx;
    *handle = 1;
    return plim_devmodel_create(m->device, size) ? 0 : 2;
}

static void drv_release(void *ctx, uint64_t handle, uint64_t size)
{
    (void)handle;
    plim_devmodel_release(((struct plim_moving *)ctx)->device, size);
}

static int drv_map(void *ctx, uint64_t addr, uint64_t size, uint64_t handle)
{
    (void)handle;
    plim_devmodel_map_one(((struct plim_moving *)ctx)->device, addr, size);
    return 0;
}

static int drv_access(void *ctx, uint64_t addr, uint64_t size)
{
    plim_devmodel_access(((struct plim_moving *)ctx)->device, addr, size);
    return 0;
}

static void drv_unmap(void *ctx, uint64_t addr, uint64_t size)
{
    plim_devmodel_unmap_run(((struct plim_moving *)ctx)->device, addr, size);
}

static uint64_t drv_record(void *ctx, uint64_t stream)
{
    return plim_devmodel_event_record(((struct plim_moving *)ctx)->device, (int64_t)stream);
}

static bool drv_done(void *ctx, uint64_t event)
{
    return plim_devmodel_event_query(((struct plim_moving *)ctx)->device, 0, event);
}

static void drv_wait(void *ctx, uint64_t event)
{
    plim_devmodel_event_sync(((struct plim_moving *)ctx)->device, 0, event);
}

static void drv_forget(void *ctx, uint64_t event)
{
    (void)ctx;
    (void)event;
}

static const struct plim_engine_driver driver = {
    drv_reserve, drv_unreserve, drv_create, drv_release, drv_map,    drv_access,
    drv_unmap,   drv_record,    drv_done,   drv_wait,    drv_forget,
};

enum plim_status plim_moving_init(struct plim_moving *m, struct plim_devmodel *device,
                                  const struct plim_moving_options *options, struct plim_err *err)
{
    *m = (struct plim_moving){.device = device};
    struct plim_engine_config config = {.driver = &driver,
                                        .ctx = m,
                                        .rounding = options ? &options->rounding : NULL,
                                        .plan = options ? options->plan : NULL,
                                        .total = device->config.total};
    m->engine = plim_engine_new(&config);
    if (!m->engine) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the allocator's tables");
    }
    return PLIM_OK;
}

void plim_moving_fini(struct plim_moving *m)
{
    plim_engine_delete(m->engine);
    m->engine = NULL;
}

enum plim_status plim_moving_alloc(struct plim_moving *m, uint64_t size, uint64_t stream,
                                   uint64_t pool, uint64_t *addr, struct plim_err *err)
{
    *addr = 0;
    enum plim_engine_code code = plim_engine_alloc(m->engine, size, stream, pool, m->flags, addr);
    if (m->status || code == PLIM_ENGINE_NO_HOST) {
        return plim__fail(err, m->status ? m->status : PLIM_E_NOMEM,
                          "no memory for the allocator's tables");
    }
    return PLIM_OK;
}

static enum plim_status unknown(uint64_t addr, struct plim_err *err)
{
    return plim__fail(err, PLIM_E_NOTFOUND, "no live block starts at 0x%llx",
                      (unsigned long long)addr);
}

enum plim_status plim_moving_free(struct plim_moving *m, uint64_t addr, struct plim_err *err)
{
    return plim_engine_free(m->engine, addr, m->flags) == PLIM_ENGINE_OK ? PLIM_OK
                                                                         : unknown(addr, err);
}

enum plim_status plim_moving_record_stream(struct plim_moving *m, uint64_t addr, uint64_t stream,
                                           struct plim_err *err)
{
    enum plim_engine_code code = plim_engine_record_stream(m->engine, addr, stream);
    if (code == PLIM_ENGINE_NO_HOST) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the allocator's tables");
    }
    return code == PLIM_ENGINE_OK ? PLIM_OK : unknown(addr, err);
}
