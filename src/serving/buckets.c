/* SPDX-License-Identifier: Apache-2.0 */
/* See buckets.h. */

#include "serving/buckets.h"

#include "base/num.h"

#include <math.h>

const char *plim_bucket_text(enum plim_bucket bucket)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_BUCKET_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)bucket < PLIM_COUNT_OF(texts) ? texts[bucket] : "unknown";
}

bool plim_bucket_suits(enum plim_bucket bucket, enum plim_workload workload)
{
    switch (bucket) {
    case PLIM_BUCKET_CAPTURE:
        return workload == PLIM_WORKLOAD_PAGED;
    case PLIM_BUCKET_SIDE:
        return workload == PLIM_WORKLOAD_PICTURES;
    default:
        return workload == PLIM_WORKLOAD_DYNAMIC;
    }
}

/* ---- least padding ----------------------------------------------------------------------------------- */

/* Sums over the first i sizes, for the padding of a run of sizes under one edge in O(1). */
struct sums {
    const uint32_t *sizes;
    double *count;  /* [n + 1] */
    double *weight; /* [n + 1]: count * size */
};

/* Padding of sizes [from, to) rounded up to the last of them. */
static double padding_of(const struct sums *s, size_t from, size_t to)
{
    return (double)s->sizes[to - 1] * (s->count[to] - s->count[from]) -
           (s->weight[to] - s->weight[from]);
}

/* best[j][i]: least padding of the first i sizes with j edges; from[j][i]: where its last run begins. */
static void solve(const struct sums *s, size_t n, uint32_t k, double *best, uint32_t *from)
{
    size_t row = n + 1;
    for (size_t i = 1; i <= n; i++) {
        best[row + i] = padding_of(s, 0, i);
        from[row + i] = 0;
    }
    for (uint32_t j = 2; j <= k; j++) {
        for (size_t i = j; i <= n; i++) {
            double *cell = &best[j * row + i];
            *cell = INFINITY;
            for (size_t f = j - 1; f < i; f++) {
                double p = best[(j - 1) * row + f] + padding_of(s, f, i);
                if (p < *cell) {
                    *cell = p;
                    from[j * row + i] = (uint32_t)f;
                }
            }
        }
    }
}

enum plim_status plim_edges_least_padding(const uint32_t *sizes, const uint64_t *counts, size_t n,
                                          uint32_t k, struct plim_edges *out, struct plim_err *err)
{
    size_t row = n + 1;
    k = (uint32_t)plim_min_u64(plim_min_u64(k, PLIM_EDGES_MAX), n);
    double *best = calloc((size_t)(k + 1) * row + 2 * row, sizeof *best);
    uint32_t *from = calloc((size_t)(k + 1) * row, sizeof *from);
    if (!best || !from) {
        free(best);
        free(from);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %u edges over %zu sizes", k, n);
    }
    struct sums s = {sizes, best + (size_t)(k + 1) * row, best + (size_t)(k + 2) * row};
    for (size_t i = 0; i < n; i++) {
        s.count[i + 1] = s.count[i] + (double)counts[i];
        s.weight[i + 1] = s.weight[i] + (double)counts[i] * sizes[i];
    }
    solve(&s, n, k, best, from);
    *out = (struct plim_edges){.n = k};
    for (size_t i = n, j = k; j > 0; j--) {
        out->edge[j - 1] = sizes[i - 1];
        i = from[j * row + i];
    }
    free(best);
    free(from);
    return PLIM_OK;
}

/* ---- sizes of today's run ----------------------------------------------------------------------------- */

#define SIZES_MAX 512u /* distinct ones that the search looks at */

struct sizes {
    PLIM_VEC(struct plim_soak_size) items; /* rising */
    uint32_t value[SIZES_MAX];
    uint64_t count[SIZES_MAX];
    size_t n;
};

static int by_size(const void *a, const void *b)
{
    uint32_t x = ((const struct plim_soak_size *)a)->size;
    uint32_t y = ((const struct plim_soak_size *)b)->size;
    return (x > y) - (x < y);
}

/* Sort, and join neighbours until there are few enough; a joint size is the largest of its sizes. */
static void condense(struct sizes *s, const struct plim_soak_sizes *seen)
{
    size_t per = (seen->items.n + SIZES_MAX - 1) / SIZES_MAX;
    qsort(seen->items.items, seen->items.n, sizeof *seen->items.items, by_size);
    s->n = 0;
    for (size_t i = 0; i < seen->items.n; i++) {
        if (i % per == 0) {
            s->count[s->n++] = 0;
        }
        s->value[s->n - 1] = seen->items.items[i].size;
        s->count[s->n - 1] += seen->items.items[i].count;
    }
}

/* ---- policies ------------------------------------------------------------------------------------------ */

struct plim_edges *plim_bucket_edges(struct plim_server *server, enum plim_bucket bucket)
{
    switch (bucket) {
    case PLIM_BUCKET_BATCH:
        return &server->batches;
    case PLIM_BUCKET_CAPTURE:
        return &server->captures;
    case PLIM_BUCKET_SIDE:
        return &server->sides;
    default:
        return &server->prompts;
    }
}

static double cost_of(const struct plim_bucket_choice *c, const struct plim_policy *p,
                      uint64_t capacity)
{
    double today = (double)c->policies[0].result.latency.first_p99;
    double wait = today > 0 ? (double)p->result.latency.first_p99 / today : 1;
    double lost = p->result.arrivals > 0 ? (double)p->result.lost / (double)p->result.arrivals : 0;
    if (!p->result.started) {
        return INFINITY;
    }
    return p->padding * c->weights.padding +
           (double)p->result.peak.reserved / (double)capacity * c->weights.memory +
           wait * c->weights.wait + 100 * lost;
}

/* Replay one policy; one that equals another is left out. */
static enum plim_status try_policy(const struct plim_soak_setup *setup,
                                   struct plim_bucket_choice *c, const char *name,
                                   const struct plim_edges *edges, struct plim_soak_sizes *sizes,
                                   struct plim_err *err)
{
    struct plim_server server = *setup->server;
    struct plim_soak_setup own = *setup;
    for (uint32_t i = 0; i < c->n; i++) {
        if (memcmp(&c->policies[i].edges, edges, sizeof *edges) == 0) {
            return PLIM_OK;
        }
    }
    if (c->n == PLIM_POLICIES_MAX) {
        return PLIM_OK;
    }
    struct plim_policy *p = &c->policies[c->n];
    *p = (struct plim_policy){.name = name, .edges = *edges};
    *plim_bucket_edges(&server, c->bucket) = *edges;
    own.server = &server;
    own.sizes = sizes;
    own.sizes_of = (unsigned)c->bucket;
    PLIM_TRY(plim_soak_run(&own, &p->result, err));
    double real = (double)(p->result.prompt_tokens + p->result.output_tokens);
    double padded = (double)p->result.padding_tokens;
    p->padding = real + padded > 0 ? padded / (real + padded) : 0;
    c->n++;
    p->cost = cost_of(c, p, setup->capacity);
    return PLIM_OK;
}

static bool beats(const struct plim_policy *a, const struct plim_policy *b)
{
    bool no_worse = a->result.lost <= b->result.lost && a->padding <= b->padding &&
                    a->result.peak.reserved <= b->result.peak.reserved &&
                    a->result.latency.first_p99 <= b->result.latency.first_p99;
    bool better = a->result.lost < b->result.lost || a->padding < b->padding ||
                  a->result.peak.reserved < b->result.peak.reserved ||
                  a->result.latency.first_p99 < b->result.latency.first_p99;
    return no_worse && better;
}

static void rank(struct plim_bucket_choice *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        c->policies[i].front = c->policies[i].result.started;
        for (uint32_t k = 0; k < c->n; k++) {
            c->policies[i].front = c->policies[i].front && !beats(&c->policies[k], &c->policies[i]);
        }
        if (c->policies[i].cost < c->policies[c->proposed].cost) {
            c->proposed = i;
        }
    }
}

static enum plim_status try_all(const struct plim_soak_setup *setup, struct plim_bucket_choice *c,
                                const struct sizes *s, struct plim_err *err)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    struct plim_edges e = {0};
    if (c->bucket != PLIM_BUCKET_CAPTURE) { /* no captured size is no graph: another question */
        PLIM_TRY(try_policy(setup, c, "none", &e, NULL, err));
    }
    uint32_t most = s->value[s->n - 1];
    for (uint32_t size = c->bucket == PLIM_BUCKET_PROMPT || c->bucket == PLIM_BUCKET_SIDE ? 64 : 1;
         e.n < 32; size *= 2) {
        e.edge[e.n++] = size;
        if (size >= most) {
            break;
        }
    }
    PLIM_TRY(try_policy(setup, c, "powers of two", &e, NULL, err));
    for (size_t i = 0; i < PLIM_COUNT_OF(counts); i++) {
        PLIM_TRY(plim_edges_least_padding(s->value, s->count, s->n, counts[i], &e, err));
        PLIM_TRY(try_policy(setup, c, "least padding", &e, NULL, err));
    }
    return PLIM_OK;
}

enum plim_status plim_buckets_choose(const struct plim_soak_setup *setup, enum plim_bucket bucket,
                                     const struct plim_bucket_weights *weights,
                                     struct plim_bucket_choice *out, struct plim_err *err)
{
    struct plim_soak_sizes seen = {0};
    struct plim_server today = *setup->server;
    if (!plim_bucket_suits(bucket, setup->server->workload)) {
        return plim__fail(err, PLIM_E_USAGE, "a %s server has no %s edges",
                          plim_workload_text(setup->server->workload), plim_bucket_text(bucket));
    }
    *out = (struct plim_bucket_choice){.bucket = bucket, .weights = *weights};
    if (!(weights->padding > 0 || weights->memory > 0 || weights->wait > 0)) {
        out->weights = (struct plim_bucket_weights){1, 1, 0.1};
    }
    struct sizes *s = calloc(1, sizeof *s);
    enum plim_status st = s ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory for sizes");
    if (st == PLIM_OK) {
        st = try_policy(setup, out, "today", plim_bucket_edges(&today, bucket), &seen, err);
    }
    if (st == PLIM_OK && seen.items.n > 0) {
        condense(s, &seen);
        st = try_all(setup, out, s, err);
    }
    rank(out);
    free(s);
    plim_soak_sizes_fini(&seen);
    return st;
}

/* ---- routing ------------------------------------------------------------------------------------------- */

static enum plim_status try_route(const struct plim_soak_setup *setup, struct plim_route *r,
                                  struct plim_err *err)
{
    for (uint32_t pool = 0; pool < 2; pool++) {
        struct plim_flow_options flow = *setup->flow;
        struct plim_soak_setup own = *setup;
        if (r->split == 0) {
            flow.every = 2;
            flow.phase = pool;
        } else if (pool == 0) {
            flow.prompt_below = r->split;
        } else {
            flow.prompt_from = r->split;
        }
        own.flow = &flow;
        PLIM_TRY(plim_soak_run(&own, &r->pool[pool], err));
        r->wait_ns = plim_max_u64(r->wait_ns, r->pool[pool].latency.first_p99);
        r->lost += r->pool[pool].lost;
        r->preemptions += r->pool[pool].preemptions;
    }
    return PLIM_OK;
}

static bool better_route(const struct plim_route *a, const struct plim_route *b)
{
    return a->lost != b->lost                 ? a->lost < b->lost
           : a->preemptions != b->preemptions ? a->preemptions < b->preemptions
                                              : a->wait_ns < b->wait_ns;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Prompt lengths of the flow, sorted. */
static enum plim_status all_prompts(const struct plim_flow_options *options, uint32_t **out,
                                    size_t *n, struct plim_err *err)
{
    PLIM_VEC(uint32_t) prompts = {0};
    struct plim_flow *flow;
    struct plim_arrival a;
    enum plim_status st = plim_flow_new(options, &flow, err);
    while (st == PLIM_OK && plim_flow_next(flow, &a)) {
        st = plim_vec_reserve(&prompts, 1, err);
        if (st == PLIM_OK) {
            prompts.items[prompts.n++] = a.prompt;
        }
    }
    if (st == PLIM_OK) {
        qsort(prompts.items, prompts.n, sizeof *prompts.items, by_value);
    } else {
        plim_vec_fini(&prompts);
    }
    *out = prompts.items;
    *n = prompts.n;
    if (st == PLIM_OK) {
        plim_flow_delete(flow);
    }
    return st;
}

enum plim_status plim_route_choose(const struct plim_soak_setup *setup,
                                   struct plim_route_choice *out, struct plim_err *err)
{
    static const double shares[] = {0.5, 0.75, 0.9, 0.95, 0.98, 0.99};
    uint32_t *prompts;
    size_t n;
    PLIM_TRY(all_prompts(setup->flow, &prompts, &n, err));
    *out = (struct plim_route_choice){.n = 1};
    enum plim_status st = try_route(setup, &out->routes[0], err);
    for (size_t i = 0; st == PLIM_OK && n > 1 && i < PLIM_COUNT_OF(shares); i++) {
        uint32_t split = prompts[(size_t)(shares[i] * (double)(n - 1))];
        if (split == out->routes[out->n - 1].split || split <= prompts[0]) {
            continue;
        }
        struct plim_route *r = &out->routes[out->n++];
        *r = (struct plim_route){.split = split};
        st = try_route(setup, r, err);
        out->proposed = better_route(r, &out->routes[out->proposed]) ? out->n - 1 : out->proposed;
    }
    free(prompts);
    return st;
}
