/* SPDX-License-Identifier: Apache-2.0 */
/* See soak.h. Here: a server's settings, and a run from the empty device to its figures. */

#include "serving/soak.h"

#include "base/num.h"
#include "serving/door_run.h"
#include "serving/kv.h"
#include "serving/weights.h"

#include <math.h>

const char *plim_workload_text(enum plim_workload workload)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_WORKLOAD_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)workload < PLIM_COUNT_OF(texts) ? texts[workload] : "unknown";
}

/* ---- edges ------------------------------------------------------------------------------------------- */

uint32_t plim_edges_up(const struct plim_edges *edges, uint32_t size)
{
    for (uint32_t i = 0; i < edges->n; i++) {
        if (edges->edge[i] >= size) {
            return edges->edge[i];
        }
    }
    return size;
}

enum plim_status plim_edges_parse(struct plim_str text, struct plim_edges *out,
                                  struct plim_err *err)
{
    struct plim_edges e = {0};
    uint64_t value = 0;
    bool digits = false;
    for (size_t i = 0; i <= text.n; i++) {
        char c = i < text.n ? text.p[i] : ',';
        if (c >= '0' && c <= '9' && value < UINT32_MAX / 10) {
            value = value * 10 + (uint64_t)(c - '0');
            digits = true;
            continue;
        }
        if (c == ' ') {
            continue;
        }
        bool rising = digits && value > 0 && (e.n == 0 || value > e.edge[e.n - 1]);
        if (c != ',' || !rising || e.n == PLIM_EDGES_MAX) {
            plim__fail(err, PLIM_E_USAGE, "edges are rising whole numbers, at most %u of them",
                       PLIM_EDGES_MAX);
            plim__err_at(err, i);
            return PLIM_E_USAGE;
        }
        e.edge[e.n++] = (uint32_t)value;
        value = 0;
        digits = false;
    }
    *out = e;
    return PLIM_OK;
}

/* ---- the server ---------------------------------------------------------------------------------------- */

void plim_server_defaults(struct plim_server *server, enum plim_workload workload,
                          const struct plim_geometry *g, uint64_t capacity)
{
    uint32_t longest = g && g->max_position > 0 ? g->max_position : 32768;
    *server = (struct plim_server){
        .workload = workload,
        .geometry = g,
        .max_seqs = workload == PLIM_WORKLOAD_DYNAMIC ? 8
                    : capacity >= 70 * PLIM_GIB       ? 1024
                                                      : 256,
        .step_tokens = capacity >= 70 * PLIM_GIB ? 8192 : 2048,
        .max_length = longest,
        .block_tokens = 16,
        .utilization = 0.92,
        .batch_wait_ns = 50000000,
        .steps = 28,
        .adapters_held = 8,
        .adapter_rank = 16,
    };
}

static enum plim_status count_weights(struct plim_server *s, struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_weight_sum sum;
    struct plim_placement whole = PLIM_PLACEMENT_WHOLE;
    if (!s->geometry) {
        s->parameters = s->parameters > 0 ? s->parameters : PLIM__DENOISER_PARAMETERS;
        s->weight_bytes = s->weight_bytes > 0 ? s->weight_bytes : 2 * s->parameters;
        return PLIM_OK;
    }
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_weights_sum(&arena, s->geometry, &whole, &sum, err);
    plim_arena_fini(&arena);
    if (st == PLIM_OK) {
        s->weight_bytes = s->weight_bytes > 0 ? s->weight_bytes : sum.bytes;
        s->parameters = s->parameters > 0 ? s->parameters : sum.active_parameters;
    }
    return st;
}

static enum plim_status wrong(struct plim_err *err, const char *field, const char *what)
{
    plim__fail(err, PLIM_E_USAGE, "%s", what);
    plim__err_where(err, "%s", field);
    return PLIM_E_USAGE;
}

#define SLOWEST 1e6 /* operations or bytes a second; 0 stands for the default */

static enum plim_status check(const struct plim_server *s, struct plim_err *err)
{
    if (s->max_seqs == 0 || s->max_seqs > 65536) {
        return wrong(err, "max-seqs", "must be from 1 to 65536");
    }
    if (s->workload == PLIM_WORKLOAD_PAGED) {
        if (s->step_tokens < s->max_seqs || s->step_tokens > 1U << 24) {
            return wrong(err, "step-tokens", "must be from max-seqs to 16777216");
        }
        if (s->block_tokens == 0 || s->block_tokens > 65536) {
            return wrong(err, "block-tokens", "must be from 1 to 65536");
        }
        if (!(s->utilization > 0 && s->utilization <= 1)) {
            return wrong(err, "utilization", "must be above 0 and at most 1");
        }
    }
    if (!s->geometry && (s->workload != PLIM_WORKLOAD_PICTURES || s->adapters > 0)) {
        return wrong(err, "model", "this needs a model");
    }
    if (s->adapters > 0 && (s->adapters_held == 0 || s->adapters_held > 4096 ||
                            s->adapter_rank == 0 || s->adapter_rank > 1024)) {
        return wrong(err, "adapters", "held at once: 1 to 4096, of rank 1 to 1024");
    }
    bool slow =
        (s->flops > 0 && s->flops < SLOWEST) || (s->bandwidth > 0 && s->bandwidth < SLOWEST);
    if (!(s->flops >= 0) || !(s->bandwidth >= 0) || slow) {
        return wrong(err, "card", "speeds are at least a million a second");
    }
    return PLIM_OK;
}

static enum plim_status fill_in(struct plim__engine *e, struct plim_err *err)
{
    struct plim_server *s = &e->server;
    *s = *e->setup->server;
    PLIM_TRY(check(s, err));
    if (e->setup->door && s->workload != PLIM_WORKLOAD_PAGED) {
        return wrong(err, "door", "stands before a paged server only");
    }
    PLIM_TRY(count_weights(s, err));
    s->flops = s->flops > 0 ? s->flops : 400e12;
    s->bandwidth = s->bandwidth > 0 ? s->bandwidth : 2e12;
    s->step_ns = s->step_ns > 0 ? s->step_ns : 200000;
    e->s = s;
    return PLIM_OK;
}

static enum plim_status count_kv(struct plim__engine *e, struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_kv_list list;
    struct plim_kv_sum sum;
    struct plim_placement whole = PLIM_PLACEMENT_WHOLE;
    struct plim_kv_options options = {.no_window = true};
    if (e->s->workload == PLIM_WORKLOAD_PICTURES) {
        return PLIM_OK;
    }
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_kv_layers(&arena, e->s->geometry, &whole, &options, &list, err);
    if (st == PLIM_OK) {
        plim_kv_sum(&list, &sum);
        e->kv_token_bytes = sum.token_bytes;
    }
    plim_arena_fini(&arena);
    return st;
}

/* ---- a run --------------------------------------------------------------------------------------------- */

static enum plim_status open_allocator(struct plim__engine *e, struct plim_err *err)
{
    struct plim_torch_config tc = {
        .version = e->setup->conf->version, .conf = e->setup->conf, .device = &e->device};
    return e->setup->moving ? plim_moving_init(&e->moving, &e->device, e->setup->moving, err)
                            : plim_torch_new(&tc, &e->torch, err);
}

static enum plim_status open_engine(struct plim__engine *e, struct plim_err *err)
{
    struct plim_devmodel_config dc = {.total = e->setup->capacity, .external = e->setup->external};
    PLIM_TRY(fill_in(e, err));
    PLIM_TRY(count_kv(e, err));
    PLIM_TRY(plim_devmodel_init(&e->device, &dc, err));
    e->device_ready = true;
    PLIM_TRY(open_allocator(e, err));
    e->feed = (struct plim_feed){.torch = e->torch,
                                 .moving = e->setup->moving ? &e->moving : NULL,
                                 .device = &e->device,
                                 .no_repeat = e->setup->no_repeat,
                                 .log = e->setup->log,
                                 .ctx = e->setup->log_ctx};
    uint64_t element = 2; /* of activations; packed weights are computed with in 16 bits */
    const struct plim_geometry *g = e->s->geometry;
    if (!g || !plim_dtype_bytes(g->dtype, 1, &element) || element < 2 || element > 4) {
        element = 2;
    }
    e->forward = (struct plim_forward){.geometry = g, .element = (uint32_t)element};
    PLIM_TRY(plim_flow_new(e->setup->flow, &e->flow, err));
    e->have_next = plim_flow_next(e->flow, &e->next);
    uint64_t span = e->setup->flow->span_ns;
    e->sample_every = plim_max_u64(span / PLIM_SOAK_SAMPLES, 1);
    e->r.least_headroom = UINT64_MAX;
    e->during = "start";
    PLIM_TRY(plim__engine_weights(e, err));
    return e->s->adapters > 0 ? plim__adapters_new(e, err) : PLIM_OK;
}

static void close_engine(struct plim__engine *e)
{
    plim__adapters_delete(e);
    plim__door_close(e);
    plim_feed_fini(&e->feed);
    plim_torch_delete(e->torch);
    plim_moving_fini(&e->moving);
    if (e->device_ready) {
        plim_devmodel_fini(&e->device);
    }
    plim_flow_delete(e->flow);
    plim_vec_fini(&e->waiting);
}

static void finish(struct plim__engine *e)
{
    struct plim_soak_result *r = &e->r;
    struct plim_feed_books books = plim_feed_books(&e->feed);
    double seconds = (double)e->now_ns / 1e9;
    r->simulated_ns = e->now_ns;
    r->door.span_s = (double)e->setup->flow->span_ns / 1e9;
    if (seconds > 0) {
        r->mean_active = (uint64_t)(e->active_time / seconds);
        r->mean_reserved = (uint64_t)(e->reserved_time / seconds);
        r->mean_stranded = (uint64_t)(e->stranded_time / seconds);
        r->mean_fragmentation = e->fragmentation_time / seconds;
        r->kv_mean = e->kv_time / seconds;
    }
    r->allocations = e->feed.gets;
    r->repeated = e->feed.skipped;
    r->most_active = books.peak_active;
    r->most_reserved = books.peak_reserved;
    r->num_alloc_retries = books.retries;
    r->num_ooms = books.ooms;
    r->num_device_alloc = books.device_allocs;
    r->num_device_free = books.device_frees;
    r->driver_calls = plim_devmodel_total_calls(&e->device);
    r->late_allocations = e->half_gets > 0 ? r->allocations - e->half_gets : 0;
    r->late_driver_calls = e->half_gets > 0 ? r->driver_calls - e->half_calls : 0;
    r->stall_ns = e->device.stall_ns;
    plim__engine_latencies(e);
}

static enum plim_status run(struct plim__engine *e, struct plim_err *err)
{
    static enum plim_status (*const workloads[])(struct plim__engine *, struct plim_err *) = {
        [PLIM_WORKLOAD_PAGED] = plim__workload_paged,
        [PLIM_WORKLOAD_DYNAMIC] = plim__workload_dynamic,
        [PLIM_WORKLOAD_PICTURES] = plim__workload_pictures,
    };
    PLIM_TRY(open_engine(e, err));
    PLIM_TRY(workloads[e->s->workload](e, err));
    if (e->feed.status != PLIM_OK) {
        if (err) {
            *err = e->feed.err;
        }
        return e->feed.status;
    }
    finish(e);
    return PLIM_OK;
}

enum plim_status plim_soak_run(const struct plim_soak_setup *setup, struct plim_soak_result *out,
                               struct plim_err *err)
{
    struct plim__engine *e = calloc(1, sizeof *e);
    if (!e) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a simulation");
    }
    e->setup = setup;
    enum plim_status st = run(e, err);
    if (st == PLIM_OK) {
        *out = e->r;
    }
    close_engine(e);
    free(e);
    return st;
}
