/* SPDX-License-Identifier: Apache-2.0 */
/* The model's side of the oracle: src/alloc on its device model, set up like the simulated device. */

#include "alloc/torch.h"
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>

static struct ow_config config;
static struct plim_devmodel device;
static struct plim_conf conf;
static struct plim_torch *torch;
static uint64_t blocks[OW_SLOTS];
static uint16_t streams[OW_STREAMS];
static uint16_t pools[OW_POOLS]; /* model's pool index of each workload pool */
static bool pool_named[OW_POOLS];
static uint64_t next_pool = 1;
static uint64_t tick;                   /* simulated time */
static uint64_t stream_due[OW_STREAMS]; /* when all work on a stream is complete */
static PLIM_VEC(uint64_t) due;          /* ticket -> when that event is complete */

static void must(enum plim_status st, const struct plim_err *err)
{
    if (st != PLIM_OK) {
        fprintf(stderr, "oracle_model: %s\n", err ? err->message : plim_status_text(st));
        exit(1);
    }
}

#define MUST(call)                                                                                 \
    do {                                                                                           \
        struct plim_err err = {0};                                                                 \
        must(call, &err);                                                                          \
    } while (0)

/* ---- time: the simulated device's manual clock ---------------------------------------------------- */

static unsigned stream_of(int64_t handle)
{
    return (unsigned)(handle / 16); /* side_open gives them such handles */
}

static bool event_ready(void *ctx, int64_t stream, uint64_t ticket)
{
    (void)ctx;
    (void)stream;
    return due.items[ticket] <= tick;
}

static void event_sync(void *ctx, int64_t stream, uint64_t ticket)
{
    (void)ctx;
    uint64_t until = ticket ? due.items[ticket] : stream_due[stream_of(stream)];
    tick = until > tick ? until : tick;
}

static void event_recorded(unsigned stream)
{
    uint64_t at = tick + config.lag;
    at = at > stream_due[stream] ? at : stream_due[stream];
    stream_due[stream] = at;
    MUST(plim_vec_push(&due, &err, at));
}

/* ---- logs ------------------------------------------------------------------------------------------ */

static void on_call(void *ctx, const struct plim_driver_event *e)
{
    static const int kinds[PLIM_DRIVER_CALL_COUNT] = {
        [PLIM_DRIVER_MALLOC] = OW_CALL_MALLOC,
        [PLIM_DRIVER_FREE] = OW_CALL_FREE,
        [PLIM_DRIVER_MEM_GET_INFO] = OW_CALL_MEM_GET_INFO,
        [PLIM_DRIVER_ADDRESS_RESERVE] = OW_CALL_RESERVE,
        [PLIM_DRIVER_ADDRESS_FREE] = OW_CALL_UNRESERVE,
        [PLIM_DRIVER_CREATE] = OW_CALL_CREATE,
        [PLIM_DRIVER_RELEASE] = OW_CALL_RELEASE,
        [PLIM_DRIVER_MAP] = OW_CALL_MAP,
        [PLIM_DRIVER_UNMAP] = OW_CALL_UNMAP,
        [PLIM_DRIVER_SET_ACCESS] = OW_CALL_ACCESS,
        [PLIM_DRIVER_STREAM_SYNC] = OW_CALL_STREAM_SYNC,
        [PLIM_DRIVER_EVENT_RECORD] = OW_CALL_EVENT_RECORD,
        [PLIM_DRIVER_EVENT_QUERY] = OW_CALL_EVENT_QUERY,
        [PLIM_DRIVER_EVENT_SYNC] = OW_CALL_EVENT_SYNC,
    };
    (void)ctx;
    uint64_t addr = ow_rel(e->addr);
    int kind = kinds[e->call];
    if (kind >= OW_CALL_STREAM_SYNC) {
        addr = stream_of(e->stream);
    }
    if (kind == OW_CALL_EVENT_RECORD) {
        event_recorded((unsigned)addr);
    }
    ow_put(OW_CALL, (uint64_t)kind, addr, e->size, e->ok ? 0 : 1);
}

static unsigned pool_of(uint16_t pool)
{
    for (unsigned i = 0; i < OW_POOLS; i++) {
        if (pool != 0 && pool_named[i] && pools[i] == pool) {
            return i + 1;
        }
    }
    return 0;
}

static void on_event(void *ctx, const struct plim_torch_event *e)
{
    (void)ctx;
    /* PLIM_ACTION_ALLOC is 1 where PyTorch's TraceEntry::ALLOC is 0; OOM and SNAPSHOT follow suit. */
    uint64_t addr = e->action == PLIM_ACTION_OOM ? e->addr : ow_rel(e->addr);
    ow_put(OW_EVENT, (uint64_t)e->action - PLIM_ACTION_ALLOC, addr, e->size,
           (uint64_t)(e->stream << 16 | pool_of(e->pool)));
}

/* ---- the side --------------------------------------------------------------------------------------- */

void side_open(const struct ow_config *c)
{
    config = *c;
    struct plim_devmodel_config dc = {
        .total = config.total,
        .external = config.context + config.external,
        .base = OW_ORIGIN + PLIM_DEVMODEL_PAGE, /* the simulated device leaves its first page out */
        .limit = OW_LIMIT,
        .policy = config.descending  ? PLIM_ADDRESS_DESCENDING
                  : config.first_fit ? PLIM_ADDRESS_FIRST_FIT
                                     : PLIM_ADDRESS_ASCENDING,
        .event_ready = event_ready,
        .event_sync = event_sync,
        .log = config.bench ? NULL : on_call,
    };
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    MUST(plim_conf_parse(&conf, plim_str_from(config.conf), &err));
    MUST(plim_devmodel_init(&device, &dc, &err));
    struct plim_torch_config tc = {
        .version = PLIM_TORCH_LATEST,
        .conf = &conf,
        .device = &device,
        .on_event = config.bench ? NULL : on_event,
    };
    MUST(plim_torch_new(&tc, &torch, &err));
    for (unsigned i = 0; i < config.streams; i++) {
        uint64_t hash = plim_torch_stream_hash(0, ow_stream_id(i));
        MUST(plim_torch_stream(torch, (int64_t)i * 16, hash, &streams[i], &err));
    }
    MUST(plim_vec_push(&due, &err, 0)); /* tickets count from 1 */
}

void side_close(void)
{
    MUST(plim_torch_check(torch, &err));
    plim_torch_delete(torch);
    plim_devmodel_fini(&device);
    plim_vec_fini(&due);
}

static void out_of_memory(void)
{
    struct plim_buf text = {0};
    struct plim_torch_process self = {
        .used = device.used - config.external,
        .self = true,
    };
    plim_torch_oom_message(plim_torch_failure(torch), PLIM_TORCH_LATEST, 0, conf.expandable, &self,
                           1, &text);
    ow_text(text.p);
    plim_buf_fini(&text);
}

bool side_alloc(unsigned slot, uint64_t size, unsigned stream, unsigned pool)
{
    uint16_t p = pool ? pools[pool - 1] : PLIM_TORCH_POOL_DEFAULT;
    if (config.bench) {
        return plim_torch_alloc(torch, size, 0, p, &blocks[slot], NULL) == PLIM_OK;
    }
    if (pool) {
        MUST(plim_torch_pool_retain(torch, plim_torch_pool_id(torch, p), 0, &p, &err));
        MUST(plim_torch_route_begin(torch, p, PLIM_TORCH_ANY_STREAM, &err));
    }
    MUST(plim_torch_alloc(torch, size, streams[stream], PLIM_TORCH_POOL_ROUTED, &blocks[slot],
                          &err));
    ow_put(OW_ALLOC, slot, ow_rel(plim_torch_addr(torch, blocks[slot])), 0, 0);
    if (blocks[slot] == PLIM_TORCH_NONE) {
        out_of_memory();
    }
    if (pool) {
        MUST(plim_torch_route_end(torch, p, &err));
        MUST(plim_torch_pool_release(torch, p, &err));
    }
    return blocks[slot] != PLIM_TORCH_NONE;
}

void side_free(unsigned slot)
{
    if (config.bench) {
        must(plim_torch_free(torch, blocks[slot], NULL), NULL);
        return;
    }
    MUST(plim_torch_free(torch, blocks[slot], &err));
}

void side_record(unsigned slot, unsigned stream)
{
    MUST(plim_torch_record_stream(torch, blocks[slot], streams[stream], &err));
}

void side_empty(unsigned pool)
{
    MUST(plim_torch_empty_cache(torch, pool ? pools[pool - 1] : PLIM_TORCH_POOL_DEFAULT, &err));
}

void side_fraction(double fraction)
{
    MUST(plim_torch_set_fraction(torch, fraction, &err));
}

void side_conf(const char *text)
{
    MUST(plim_conf_parse(&conf, plim_str_from(text), &err));
    plim_torch_reconf(torch, &conf);
}

void side_advance(uint64_t ticks)
{
    tick += ticks;
}

void side_pool_new(unsigned pool, bool overflow, bool no_split)
{
    unsigned flags =
        (overflow ? PLIM_TORCH_POOL_OVERFLOW : 0) | (no_split ? PLIM_TORCH_POOL_NO_SPLIT : 0);
    struct plim_pool_id id = {0, next_pool++};
    MUST(plim_torch_pool_retain(torch, id, flags, &pools[pool], &err));
    pool_named[pool] = true;
}

void side_pool_drop(unsigned pool)
{
    MUST(plim_torch_pool_release(torch, pools[pool], &err));
    MUST(plim_torch_empty_cache(torch, pools[pool], &err));
}

void side_capture(unsigned stream, unsigned pool, bool begin)
{
    (void)pool;
    plim_torch_capture(torch, streams[stream], begin);
}

void side_reset(bool peaks)
{
    if (peaks) {
        plim_torch_reset_peak(torch);
    } else {
        plim_torch_reset_accumulated(torch);
    }
}

static void put_stat(const struct plim_stat *s)
{
    ow_put(OW_STAT, (uint64_t)s->current, (uint64_t)s->peak, (uint64_t)s->allocated,
           (uint64_t)s->freed);
}

void side_stats(void)
{
    struct plim_torch_stats s;
    struct plim_stat pool[PLIM_TORCH_HALF_COUNT];
    plim_torch_stats(torch, &s);
    for (unsigned i = 0; i < PLIM_TORCH_STAT_COUNT; i++) {
        for (unsigned h = 0; h < PLIM_TORCH_HALF_COUNT; h++) {
            put_stat(&s.stat[i][h]);
        }
    }
    put_stat(&s.oversize_allocations);
    put_stat(&s.oversize_segments);
    uint64_t scalars[] = {s.num_alloc_retries,       s.num_ooms,         s.num_oom_rejections,
                          s.num_sync_all_streams,    s.num_device_alloc, s.num_device_free,
                          (uint64_t)s.max_split_size};
    for (uint64_t i = 0; i < PLIM_COUNT_OF(scalars); i++) {
        ow_put(OW_SCALAR, i, scalars[i], 0, 0);
    }
    for (unsigned i = 0; i < config.pools; i++) {
        if (plim_torch_pool_reserved(torch, pools[i], pool)) {
            for (unsigned h = 0; h < PLIM_TORCH_HALF_COUNT; h++) {
                put_stat(&pool[h]);
            }
        }
    }
}

void side_snapshot(void)
{
    struct plim_heap heap = {0};
    MUST(plim_torch_check(torch, &err));
    MUST(plim_torch_export(torch, &heap, &err));
    plim_vec_foreach (s, &heap.segments) {
        uint64_t flags = (s->small ? 1 : 0) | (s->expandable ? 2 : 0);
        ow_put(OW_SEGMENT, ow_rel(s->addr), s->size,
               (uint64_t)s->stream << 32 | pool_of(s->pool) << 8 | flags,
               (uint32_t)plim_torch_segment_counter(torch, s->addr));
        for (uint32_t i = 0; i < s->n_blocks; i++) {
            const struct plim_block *b = &heap.blocks.items[s->first_block + i];
            uint64_t state = b->state == PLIM_BLOCK_ALLOCATED      ? 3
                             : b->state == PLIM_BLOCK_PENDING_FREE ? 2
                                                                   : 0;
            ow_put(OW_BLOCK, b->size, b->requested, state, 0);
        }
    }
    plim_vec_fini(&heap.segments);
    plim_vec_fini(&heap.blocks);
}

void side_settings(const char *text)
{
    struct plim_err err = {0};
    if (plim_conf_parse(&conf, plim_str_from(text), &err) != PLIM_OK) {
        printf("%s\n", err.message);
        return;
    }
    printf("%llu %llu %llu %.17g %d %d %d %d %d %d %.17g %llu %llu %llu %llu %d",
           (unsigned long long)conf.large_segment, (unsigned long long)conf.max_split,
           (unsigned long long)conf.max_non_split_rounding, conf.gc_threshold, conf.expandable,
           conf.release_lock_on_malloc, conf.capture_reuse, conf.reject_early,
           conf.pinned_background, conf.pinned_host_register, conf.memory_fraction,
           (unsigned long long)conf.pinned_threads, (unsigned long long)conf.pinned_reserve_segment,
           (unsigned long long)conf.pinned_max_round, (unsigned long long)conf.pinned_max_cached,
           conf.pinned_catch_all);
    for (size_t i = 0; i < PLIM_ROUND_INTERVALS; i++) {
        printf(" %llu", (unsigned long long)conf.roundup[i]);
    }
    printf("\n");
}
