/* SPDX-License-Identifier: Apache-2.0 */
/* The model's life, its tables of blocks, streams and pools, routing, and the memory cap. */

#include "alloc/torch_int.h"

#include <math.h>

/* ---- blocks ------------------------------------------------------------------------------------ */

bool plim__blocks_room(struct plim_torch *t, uint32_t extra)
{
    if (t->blocks_cap - t->blocks_n >= extra) {
        return true;
    }
    uint32_t cap = t->blocks_cap < 64 ? 64 : t->blocks_cap;
    while (cap - t->blocks_n < extra) {
        if (cap >= UINT32_MAX / 2) {
            return false;
        }
        cap *= 2;
    }
    struct plim__block *blocks = realloc(t->blocks, (size_t)cap * sizeof *blocks);
    if (blocks) {
        t->blocks = blocks;
    }
    if (!blocks || !plim__chunks_homes(&t->chunks, cap)) {
        return false;
    }
    t->blocks_cap = cap;
    return true;
}

uint32_t plim__block_new(struct plim_torch *t)
{
    uint32_t i = t->blocks_free;
    if (i) {
        t->blocks_free = t->blocks[i].next;
        return i;
    }
    if (t->blocks_n == t->blocks_cap && !plim__blocks_room(t, 1)) {
        t->broken = true;
        return 0;
    }
    i = t->blocks_n++;
    t->blocks[i].serial = 0;
    return i;
}

void plim__block_drop(struct plim_torch *t, uint32_t block)
{
    t->blocks[block].state = PLIM__UNUSED;
    t->blocks[block].next = t->blocks_free;
    t->blocks_free = block;
}

bool plim__half_room(struct plim_torch *t, uint16_t half, uint16_t stream)
{
    struct plim__half *h = plim__half_at(t, half);
    if (stream < h->n) {
        return true;
    }
    uint32_t n = (uint32_t)stream + 1;
    struct plim__freeset *sets = realloc(h->free, n * sizeof *sets);
    if (!sets) {
        return false;
    }
    h->free = sets;
    sets = realloc(h->unmapped, n * sizeof *sets);
    if (!sets) {
        return false;
    }
    h->unmapped = sets;
    memset(&h->free[h->n], 0, (n - h->n) * sizeof *sets);
    memset(&h->unmapped[h->n], 0, (n - h->n) * sizeof *sets);
    h->n = n;
    return true;
}

enum plim_status plim__torch_status(const struct plim_torch *t, struct plim_err *err)
{
    if (t->broken) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the allocator model's tables");
    }
    return PLIM_OK;
}

/* ---- life -------------------------------------------------------------------------------------- */

static void cap_set(struct plim_torch *t, double fraction)
{
    double bytes = fraction * (double)t->device->config.total;
    if (fraction >= 1.0 && t->rules.full_fraction_no_cap) {
        t->cap = UINT64_MAX;
    } else {
        t->cap = (uint64_t)(t->rules.cap_nearest ? llround(bytes) : (long long)bytes);
    }
    t->count_lookups = t->cap != UINT64_MAX && t->conf.gc_threshold > 0;
}

void plim_torch_reconf(struct plim_torch *t, const struct plim_conf *conf)
{
    t->conf = *conf;
    t->count_lookups = t->cap != UINT64_MAX && t->conf.gc_threshold > 0;
}

const struct plim_conf *plim_torch_conf(const struct plim_torch *t)
{
    return &t->conf;
}

static enum plim_status pool_add(struct plim_torch *t, struct plim_pool_id id, uint16_t *index,
                                 struct plim_err *err)
{
    if (t->pools_n == t->pools_cap) {
        uint32_t cap = t->pools_cap ? t->pools_cap * 2 : 4;
        struct plim__pool *pools = realloc(t->pools, cap * sizeof *pools);
        if (!pools) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for a pool");
        }
        t->pools = pools;
        t->pools_cap = cap;
    }
    t->pools[t->pools_n] = (struct plim__pool){.id = id};
    *index = (uint16_t)t->pools_n++;
    return PLIM_OK;
}

enum plim_status plim_torch_new(const struct plim_torch_config *config, struct plim_torch **out,
                                struct plim_err *err)
{
    if (config->conf->backend != PLIM_CONF_NATIVE) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "backend:cudaMallocAsync is not served by the native allocator's model");
    }
    if (config->conf->expandable && config->conf->large_segment % PLIM_TORCH_SMALL_SEGMENT != 0) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "expandable segments map large_segment_size_mb at a time, and the driver "
                          "refuses what is no multiple of its 2 MiB pages (invalid argument)");
    }
    struct plim_torch *t = calloc(1, sizeof *t);
    if (!t) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for an allocator model");
    }
    t->conf = *config->conf;
    t->rules = plim_torch_rules_of(config->version);
    t->device = config->device;
    t->on_event = config->on_event;
    t->ctx = config->ctx;
    t->counter = -1;
    t->cap = UINT64_MAX;
    t->max_split_at_start = t->conf.max_split == UINT64_MAX ? -1 : (int64_t)t->conf.max_split;
    uint16_t index = 0;
    enum plim_status st = PLIM_OK;
    if (!plim__blocks_room(t, 64)) {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory for an allocator model");
        goto fail;
    }
    memset(&t->blocks[0], 0, sizeof t->blocks[0]);
    t->blocks_n = 1;
    PLIM_TRY_GOTO(st, plim_vec_push(&t->es, err, (struct plim__es){0}), fail);
    PLIM_TRY_GOTO(st, plim_vec_push(&t->uses, err, (struct plim__use){0}), fail);
    PLIM_TRY_GOTO(st, pool_add(t, (struct plim_pool_id){0, 0}, &index, err), fail);
    t->pools[0].alive = true;
    t->pools[0].uses = 1;
    PLIM_TRY_GOTO(st, plim_torch_stream(t, 0, plim_torch_stream_hash(0, 0), &index, err), fail);
    if (t->conf.memory_fraction < 1.0) {
        cap_set(t, t->conf.memory_fraction);
    }
    *out = t;
    return PLIM_OK;
fail:
    plim_torch_delete(t);
    return st;
}

void plim_torch_delete(struct plim_torch *t)
{
    if (!t) {
        return;
    }
    for (uint32_t p = 0; p < t->pools_n; p++) {
        for (unsigned s = 0; s < 2; s++) {
            struct plim__half *h = &t->pools[p].half[s];
            for (uint32_t i = 0; i < h->n; i++) {
                plim__freeset_fini(&h->free[i]);
                plim__freeset_fini(&h->unmapped[i]);
            }
            free(h->free);
            free(h->unmapped);
        }
    }
    for (uint32_t i = 0; i < t->streams_n; i++) {
        plim_vec_fini(&t->streams[i].queue.items);
    }
    plim__chunks_fini(&t->chunks);
    plim__ska_fini(&t->freeable);
    plim__ska_fini(&t->overflow);
    plim__ska_fini(&t->event_streams);
    plim_map_fini(&t->pool_index);
    plim_map_fini(&t->stream_index);
    plim_vec_fini(&t->deferred);
    plim_vec_fini(&t->captured);
    plim_vec_fini(&t->es);
    plim_vec_fini(&t->uses);
    plim_vec_fini(&t->routes);
    free(t->pools);
    free(t->streams);
    free(t->stream_order);
    free(t->blocks);
    free(t);
}

enum plim_status plim_torch_set_fraction(struct plim_torch *t, double fraction,
                                         struct plim_err *err)
{
    if (!(fraction >= 0.0 && fraction <= 1.0)) {
        return plim__fail(err, PLIM_E_USAGE, "invalid fraction:%g. Please set within [0, 1].",
                          fraction);
    }
    cap_set(t, fraction);
    return PLIM_OK;
}

/* ---- streams ----------------------------------------------------------------------------------- */

uint64_t plim_torch_stream_hash(uint8_t device, int64_t stream_id)
{
    /* device type CUDA (1), device index, low 48 bits of the stream id (c10/core/Stream.h) */
    return (UINT64_C(1) << 56) | ((uint64_t)device << 48) |
           ((uint64_t)stream_id & ((UINT64_C(1) << 48) - 1));
}

static bool streams_room(struct plim_torch *t)
{
    if (t->streams_n < t->streams_cap) {
        return true;
    }
    uint32_t cap = t->streams_cap ? t->streams_cap * 2 : 8;
    struct plim__stream *streams = realloc(t->streams, cap * sizeof *streams);
    if (!streams) {
        return false;
    }
    t->streams = streams;
    uint16_t *order = realloc(t->stream_order, cap * sizeof *order);
    if (!order) {
        return false;
    }
    t->stream_order = order;
    t->streams_cap = cap;
    return true;
}

enum plim_status plim_torch_stream(struct plim_torch *t, int64_t handle, uint64_t hash,
                                   uint16_t *index, struct plim_err *err)
{
    /* The map cannot hold one key; a stream handle of that value is no pointer anyway. */
    uint64_t key = (uint64_t)handle == PLIM_MAP_NO_KEY ? PLIM_MAP_NO_KEY - 1 : (uint64_t)handle;
    uint64_t *known = plim_map_get(&t->stream_index, key);
    if (known) {
        *index = (uint16_t)*known;
        return PLIM_OK;
    }
    if (t->streams_n >= UINT16_MAX - 1) {
        return plim__fail(err, PLIM_E_BUDGET, "more than %u streams", (unsigned)UINT16_MAX - 1);
    }
    if (!streams_room(t)) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a stream");
    }
    uint16_t i = (uint16_t)t->streams_n;
    PLIM_TRY(plim_map_put(&t->stream_index, key, i, err));
    t->streams[i] = (struct plim__stream){.handle = handle, .hash = hash};
    uint32_t at = t->streams_n;
    while (at > 0 && (uint64_t)t->streams[t->stream_order[at - 1]].handle > (uint64_t)handle) {
        t->stream_order[at] = t->stream_order[at - 1];
        at--;
    }
    t->stream_order[at] = i;
    t->streams_n++;
    *index = i;
    return PLIM_OK;
}

int64_t plim_torch_stream_handle(const struct plim_torch *t, uint16_t index)
{
    return index < t->streams_n ? t->streams[index].handle : 0;
}

bool plim__capturing(const struct plim_torch *t, uint16_t stream)
{
    if (t->rules.capture_is_real) {
        return t->captures > 0 && t->streams[stream].capturing;
    }
    return t->captures > 0 || t->routes.n > 0;
}

void plim_torch_capture(struct plim_torch *t, uint16_t stream, bool begin)
{
    if (stream >= t->streams_n || t->streams[stream].capturing == begin) {
        return;
    }
    t->streams[stream].capturing = begin;
    t->current_stream = stream;
    t->captures += begin ? 1 : UINT32_MAX;
}

/* ---- pools ------------------------------------------------------------------------------------- */

static uint64_t pool_hash(struct plim_pool_id id)
{
    return id.a != 0 ? id.a : id.b; /* MempoolIdHash in CUDACachingAllocator.h */
}

static bool pool_find(const struct plim_torch *t, struct plim_pool_id id, uint16_t *index)
{
    uint64_t *first = plim_map_get(&t->pool_index, plim_hash_u64(id.a * 31 + id.b) >> 1);
    for (uint32_t i = first ? (uint32_t)*first : 0; i < t->pools_n; i++) {
        if (t->pools[i].id.a == id.a && t->pools[i].id.b == id.b) {
            *index = (uint16_t)i;
            return first != NULL;
        }
    }
    return false;
}

enum plim_status plim_torch_pool_retain(struct plim_torch *t, struct plim_pool_id id,
                                        unsigned flags, uint16_t *index, struct plim_err *err)
{
    uint16_t i = 0;
    if (id.a == 0 && id.b == 0) {
        return plim__fail(err, PLIM_E_USAGE, "pool (0, 0) is the default pool");
    }
    if (!pool_find(t, id, &i)) {
        if (t->pools_n >= UINT16_MAX / 2) {
            return plim__fail(err, PLIM_E_BUDGET, "more than %u pools", (unsigned)UINT16_MAX / 2);
        }
        uint64_t key = plim_hash_u64(id.a * 31 + id.b) >> 1;
        if (!plim_map_get(&t->pool_index, key)) {
            PLIM_TRY(plim_map_put(&t->pool_index, key, t->pools_n, err));
        }
        PLIM_TRY(pool_add(t, id, &i, err));
    }
    struct plim__pool *pool = &t->pools[i];
    flags &= t->rules.overflow_pools ? ~0u : ~(unsigned)PLIM_TORCH_POOL_OVERFLOW;
    flags &= t->rules.no_split_pools ? ~0u : ~(unsigned)PLIM_TORCH_POOL_NO_SPLIT;
    if ((flags & PLIM_TORCH_POOL_OVERFLOW) && !plim__ska_put(&t->overflow, pool_hash(id), i)) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a pool");
    }
    if (pool->freeable) {
        plim__ska_remove(&t->freeable, i);
    }
    pool->flags |= flags;
    pool->alive = true;
    pool->freeable = false;
    pool->uses++;
    *index = i;
    return PLIM_OK;
}

enum plim_status plim_torch_pool_release(struct plim_torch *t, uint16_t pool, struct plim_err *err)
{
    if (pool == 0 || pool >= t->pools_n || t->pools[pool].uses == 0) {
        return plim__fail(err, PLIM_E_NOTFOUND, "pool %u is not in use", (unsigned)pool);
    }
    struct plim__pool *p = &t->pools[pool];
    if (--p->uses == 0) {
        if (!plim__ska_put(&t->freeable, pool_hash(p->id), pool)) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for a pool");
        }
        p->freeable = true;
        if (p->flags & PLIM_TORCH_POOL_OVERFLOW) {
            plim__ska_remove(&t->overflow, pool);
            p->flags &= ~(unsigned)PLIM_TORCH_POOL_OVERFLOW;
        }
    }
    return PLIM_OK;
}

struct plim_pool_id plim_torch_pool_id(const struct plim_torch *t, uint16_t pool)
{
    return pool < t->pools_n ? t->pools[pool].id : (struct plim_pool_id){0, 0};
}

enum plim_status plim_torch_route_begin(struct plim_torch *t, uint16_t pool, uint16_t stream,
                                        struct plim_err *err)
{
    if (pool == 0 || pool >= t->pools_n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "pool %u is unknown", (unsigned)pool);
    }
    plim_vec_foreach (route, &t->routes) {
        if (route->pool == pool) {
            return plim__fail(err, PLIM_E_USAGE,
                              "beginAllocateToPool: already recording to mempool_id");
        }
    }
    return plim_vec_push(&t->routes, err, (struct plim__route){pool, stream});
}

enum plim_status plim_torch_route_end(struct plim_torch *t, uint16_t pool, struct plim_err *err)
{
    for (size_t i = 0; i < t->routes.n; i++) {
        if (t->routes.items[i].pool == pool) {
            t->routes.n--;
            memmove(&t->routes.items[i], &t->routes.items[i + 1],
                    (t->routes.n - i) * sizeof t->routes.items[0]);
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_NOTFOUND,
                      "endAllocatePool: not currently recording to mempool_id");
}
