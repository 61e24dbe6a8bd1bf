/* SPDX-License-Identifier: Apache-2.0 */
/* A model on its device, and the tables from the snapshot's numbers to the model's. */

#include "replay/replay_int.h"

static enum plim_status tables_new(struct plim__stage *s, struct plim_err *err)
{
    const struct plim_snapshot *snapshot = s->q->snapshot;
    s->n_streams = snapshot->streams.n;
    s->n_pools = snapshot->pools.n;
    s->streams = calloc(s->n_streams + 1, sizeof *s->streams);
    s->pools = calloc(s->n_pools + 1, sizeof *s->pools);
    s->pool_retained = calloc(s->n_pools + 1, sizeof *s->pool_retained);
    s->handles = calloc((size_t)s->q->slots + 1, sizeof *s->handles);
    if (!s->streams || !s->pools || !s->pool_retained || !s->handles) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a replay of %u live blocks",
                          s->q->slots);
    }
    return PLIM_OK;
}

static enum plim_status register_names(struct plim__stage *s, struct plim_err *err)
{
    const struct plim_snapshot *snapshot = s->q->snapshot;
    for (size_t i = 0; i < s->n_streams; i++) {
        int64_t handle = snapshot->streams.items[i];
        PLIM_TRY(plim_torch_stream(s->torch, handle, plim_torch_stream_hash(0, handle),
                                   &s->streams[i], err));
    }
    for (size_t i = 1; i < s->n_pools; i++) {
        PLIM_TRY(plim_torch_pool_retain(s->torch, snapshot->pools.items[i], 0, &s->pools[i], err));
        s->pool_retained[i] = true;
    }
    return PLIM_OK;
}

enum plim_status plim__stage_init(struct plim__stage *s, const struct plim_requests *q,
                                  const struct plim_conf *conf,
                                  const struct plim_devmodel_config *device,
                                  plim_torch_event_fn *on_event, void *ctx, struct plim_err *err)
{
    *s = (struct plim__stage){.q = q};
    PLIM_TRY(tables_new(s, err));
    PLIM_TRY(plim_devmodel_init(&s->device, device, err));
    s->device_ready = true;
    struct plim_torch_config config = {
        .version = conf->version,
        .conf = conf,
        .device = &s->device,
        .on_event = on_event,
        .ctx = ctx,
    };
    PLIM_TRY(plim_torch_new(&config, &s->torch, err));
    return register_names(s, err);
}

void plim__stage_fini(struct plim__stage *s)
{
    plim_torch_delete(s->torch);
    if (s->device_ready) {
        plim_devmodel_fini(&s->device);
    }
    free(s->streams);
    free(s->pools);
    free(s->pool_retained);
    free(s->handles);
}

enum plim_status plim__stage_restore(struct plim__stage *s, struct plim_err *err)
{
    const struct plim_heap *start = &s->q->start;
    if (start->blocks.n == 0) {
        return PLIM_OK;
    }
    uint64_t *blocks = calloc(start->blocks.n, sizeof *blocks);
    if (!blocks) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu blocks", start->blocks.n);
    }
    struct plim_torch_past past = {
        .order = s->q->start_order.n == start->segments.n ? s->q->start_order.items : NULL,
        .bases = s->q->start_bases.n == start->segments.n ? s->q->start_bases.items : NULL,
    };
    enum plim_status st =
        plim_torch_restore(s->torch, start, &past, s->streams, s->pools, blocks, err);
    for (size_t i = 0; st == PLIM_OK && i < start->blocks.n; i++) {
        if (s->q->start_slots.items[i] != PLIM_NO_ID) {
            s->handles[s->q->start_slots.items[i]] = blocks[i];
        }
    }
    free(blocks);
    return st;
}

static enum plim_status run_alloc(struct plim__stage *s, const struct plim_request *r,
                                  uint64_t size, bool *failed, struct plim_err *err)
{
    struct plim_lane lane = s->q->lanes.items[plim_request_lane(r)];
    uint16_t pool = lane.pool < s->n_pools ? lane.pool : 0;
    uint16_t stream = lane.stream < s->n_streams ? s->streams[lane.stream] : 0;
    if (pool != 0 && !s->pool_retained[pool]) {
        PLIM_TRY(plim_torch_pool_retain(s->torch, s->q->snapshot->pools.items[pool], 0,
                                        &s->pools[pool], err));
        s->pool_retained[pool] = true;
    }
    uint64_t *handle = &s->handles[r->slot];
    /* Pools (n, 0) are made by CUDA graph captures and used by them only. */
    bool captured = pool != 0 && s->q->snapshot->pools.items[pool].a != 0;
    if (captured) {
        plim_torch_capture(s->torch, stream, true);
    }
    enum plim_status st = plim_torch_alloc(s->torch, size, stream, s->pools[pool], handle, err);
    if (captured) {
        plim_torch_capture(s->torch, stream, false);
    }
    PLIM_TRY(st);
    *failed = *handle == PLIM_TORCH_NONE;
    return PLIM_OK;
}

static enum plim_status run_pool(struct plim__stage *s, const struct plim_request *r,
                                 struct plim_err *err)
{
    uint16_t pool = s->q->lanes.items[plim_request_lane(r)].pool;
    pool = pool < s->n_pools ? pool : 0;
    if (plim_request_kind(r) == PLIM_REQUEST_FLUSH) {
        return plim_torch_empty_cache(s->torch, s->pools[pool], err);
    }
    if (pool != 0 && s->pool_retained[pool]) {
        s->pool_retained[pool] = false;
        return plim_torch_pool_release(s->torch, s->pools[pool], err);
    }
    return PLIM_OK;
}

enum plim_status plim__stage_run(struct plim__stage *s, const struct plim_request *r, uint64_t size,
                                 bool *failed, struct plim_err *err)
{
    uint64_t handle = s->handles[r->slot];
    switch (plim_request_kind(r)) {
    case PLIM_REQUEST_ALLOC:
        return run_alloc(s, r, size, failed, err);
    case PLIM_REQUEST_FREE: /* no block: its request failed */
        return handle == PLIM_TORCH_NONE ? PLIM_OK : plim_torch_free(s->torch, handle, err);
    case PLIM_REQUEST_FREE_BEGIN:
        return handle == PLIM_TORCH_NONE ? PLIM_OK
                                         : plim_torch_free_deferred(s->torch, handle, err);
    case PLIM_REQUEST_FREE_END:
        return handle == PLIM_TORCH_NONE ? PLIM_OK : plim_torch_complete(s->torch, handle, err);
    case PLIM_REQUEST_FLUSH:
    case PLIM_REQUEST_POOL_DROP:
    default:
        return run_pool(s, r, err);
    }
}
