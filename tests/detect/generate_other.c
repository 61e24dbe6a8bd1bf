/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The second family of histories: the same kinds as generate.c, of other processes, written after the
 * detector's constants were fixed and never used to choose one.
 *
 *   requests   a queue with room for a random number of servers: arrivals in batches (negative binomial),
 *              sizes with a heavy tail (Pareto), service time that grows with size
 *   working set  a mean-reverting walk in its logarithm, on top of the requests
 *   day        a square day with a lunch dip, and a weekend
 *   leaks      compound Poisson with gamma jumps; or a share of each request; or in proportion to the walk
 *   caches     distinct keys of a Zipf stream (growth that slows like a power), or a pool that
 *              doubles until its limit
 *   allocator  2 MiB and 20 MiB segments and large ones; now and then it empties its cache
 */

#include "detect/detect.h"
#include "detect/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB     1048576.0
#define GIB     1073741824.0
#define TOTAL   (48 * GIB)
#define CONTEXT (430 * MIB)
#define DRIVER  (300 * MIB)
#define DAY     86400.0
#define SLOTS   64u
#define VISITS  24u

struct gen {
    struct gen_options o;
    struct gen_truth truth;
    uint64_t random;
    double now_s, clock_s; /* clock_s: since Monday, midnight */
    uint64_t mono_ns;
    uint32_t pid, next_pid;
    double born_s;
    double base, load_s, warm;
    double walk, walk_level, walk_pull, walk_noise; /* of the working set */
    double rate, size, seconds;
    double ends[SLOTS], bytes[SLOTS];
    unsigned servers, running, waiting;
    double tokens, grown, cache, cache_full, keys, stranded, outside, reserved, retries, next_s;
    double night; /* traffic at night against the day */
    bool asleep;
    double residue;
    uint32_t visitor[VISITS];
    double visit_bytes[VISITS], visit_ends[VISITS];
};

static double uniform(struct gen *g)
{
    uint64_t z = g->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

static double normal(struct gen *g)
{
    return sqrt(-2 * log(uniform(g))) * sin(2 * M_PI * uniform(g));
}

static double wait_of(struct gen *g, double mean)
{
    return -mean * log(uniform(g));
}

static double pareto(struct gen *g, double least, double shape)
{
    return least * pow(uniform(g), -1 / shape);
}

static unsigned poisson(struct gen *g, double mean)
{
    unsigned n = 0;
    if (mean > 30) {
        return (unsigned)fmax(mean + sqrt(mean) * normal(g) + 0.5, 0);
    }
    for (double p = uniform(g), limit = exp(-mean); p > limit; p *= uniform(g)) {
        n++;
    }
    return n;
}

/* Traffic now against the mean of the day. */
static double level(const struct gen *g)
{
    double hour = fmod(g->clock_s, DAY) / 3600;
    bool weekend = fmod(g->clock_s, 7 * DAY) >= 5 * DAY;
    bool day = hour >= 8 && hour < 19 && !(hour >= 12 && hour < 13);
    return (day ? 1.6 : g->night) * (weekend ? 0.5 : 1);
}

static double serve(struct gen *g, double dt)
{
    double bytes = 0;
    unsigned kept = 0;
    g->waiting += poisson(g, g->rate * level(g) * dt * pareto(g, 0.4, 1.7));
    g->waiting = g->waiting > 500 ? 500 : g->waiting;
    while (g->waiting > 0 && g->running < g->servers) {
        double size = fmin(pareto(g, g->size / 3, 1.5), 20 * g->size);
        g->ends[g->running] = g->now_s + g->seconds * size / g->size * (0.5 + uniform(g));
        g->bytes[g->running++] = size;
        g->waiting--;
        g->tokens += size / 1e5;
        if (g->o.kind == GEN_LEAK_STEPS && g->now_s >= g->truth.onset_s) {
            g->grown += g->o.bytes_per_hour / 3600 / g->rate * size / g->size * 0.5;
        }
    }
    for (unsigned i = 0; i < g->running; i++) {
        if (g->ends[i] > g->now_s) {
            bytes += g->bytes[i];
            g->ends[kept] = g->ends[i];
            g->bytes[kept++] = g->bytes[i];
        }
    }
    g->running = kept;
    g->walk += dt * g->walk_pull * (g->walk_level - g->walk) + sqrt(dt) * g->walk_noise * normal(g);
    return bytes + exp(g->walk);
}

static void grow(struct gen *g, double dt)
{
    double due = g->now_s >= g->truth.onset_s ? g->o.bytes_per_hour / 3600 * dt : 0;
    switch (g->o.kind) {
    case GEN_LEAK_POOL:
    case GEN_LEAK_STEADY:
    case GEN_LEAK_SAWTOOTH:
    case GEN_LEAK_TRAINING: /* jumps of 3 MiB on average */
        for (unsigned n = poisson(g, due / (3 * MIB)); n > 0; n--) {
            g->grown += 1.5 * MIB * (wait_of(g, 1) + wait_of(g, 1));
        }
        break;
    case GEN_LEAK_TRAFFIC:
        g->grown += due * level(g);
        break;
    case GEN_FRAGMENTATION:
        g->stranded += due * 2 * uniform(g);
        break;
    case GEN_OUTSIDE:
        g->outside += due;
        break;
    case GEN_CACHE_EXPONENTIAL: /* keys of a Zipf stream: as many new ones as a power of the requests */
        g->keys += dt;
        g->cache = fmin(g->cache_full * pow(g->keys / (6 * 3600), 0.5), g->cache_full);
        break;
    case GEN_CACHE_STEPS: /* a pool that doubles */
        g->keys += dt;
        g->cache = fmin(g->cache_full, g->cache_full / 64 * exp2(floor(g->keys / 400)));
        break;
    case GEN_CACHE_LRU:
        g->cache =
            fmin(g->cache + g->running * g->cache_full * dt / (g->rate * g->seconds * 5 * 3600),
                 g->cache_full);
        break;
    case GEN_NEW_SHAPES:
        if (g->now_s >= g->next_s && g->cache < g->cache_full) {
            g->cache += pareto(g, 20 * MIB, 1.3);
            g->warm++;
            g->next_s = g->now_s + wait_of(g, 60 * g->warm);
        }
        break;
    default:
        break;
    }
}

static double train(const struct gen *g)
{
    double step = fmod(g->now_s, 7.3) / 7.3, epoch = fmod(g->now_s, 5400);
    double peak = step < 0.6 ? step / 0.6 : (1 - step) / 0.4;
    return peak * 9 * GIB + (epoch > 4800 ? 4 * GIB : 0);
}

static double need(struct gen *g, double dt)
{
    double loaded = fmin((g->now_s - g->born_s) / fmax(g->load_s, 1), 1), bytes = g->base * loaded;
    if (loaded < 1) {
        return bytes;
    }
    double served = g->rate > 0 ? serve(g, dt) : 0;
    bool pool = g->o.kind == GEN_FLAT || g->o.kind == GEN_LEAK_POOL || g->o.kind == GEN_OUTSIDE;
    bool training = g->o.kind == GEN_TRAINING || g->o.kind == GEN_LEAK_TRAINING;
    grow(g, dt);
    bytes += pool ? 0 : served;
    bytes += training ? train(g) : 0;
    bytes += g->o.kind == GEN_LEAK_SAWTOOTH ? fmod(g->now_s, 900) / 900 * 600 * MIB : 0;
    return bytes + g->grown + g->cache;
}

static void events(struct gen *g)
{
    if (g->o.kind == GEN_RESTARTS && g->now_s >= g->next_s) {
        g->pid = g->next_s > 0 ? g->next_pid++ : g->pid;
        g->born_s = g->now_s;
        g->reserved = g->grown = g->cache = g->keys = 0;
        g->running = 0;
        g->next_s = g->now_s + 3600 * pareto(g, 2, 1.2);
    }
    if ((g->o.kind == GEN_SLEEP || g->o.kind == GEN_RESIDUE) && g->now_s >= g->next_s) {
        g->asleep = !g->asleep;
        g->residue += g->asleep && g->o.kind == GEN_RESIDUE ? (g->residue > 0 ? 0.2 : 4) * GIB : 0;
        g->next_s = g->now_s + 600 + wait_of(g, 4000);
    }
    for (unsigned i = 0; i < VISITS; i++) {
        bool crowd = g->o.kind == GEN_CROWD, visited = g->o.kind == GEN_NEIGHBOURS || crowd;
        g->visitor[i] = g->now_s < g->visit_ends[i] ? g->visitor[i] : 0;
        if (visited && g->visitor[i] == 0 && g->now_s >= g->next_s) {
            g->visitor[i] = g->next_pid++;
            g->visit_bytes[i] = crowd ? g->o.bytes_per_hour * 0.75 : pareto(g, 0.4, 1.2) * GIB;
            g->visit_bytes[i] = fmin(g->visit_bytes[i], 8 * GIB);
            g->visit_ends[i] = crowd ? INFINITY : g->now_s + pareto(g, 600, 1.1);
            g->next_s = g->now_s + (crowd ? 2700 : wait_of(g, 4000));
        }
    }
}

/* Segments: what is small comes from 2 MiB and 20 MiB ones, so growth shows in such steps. */
static bool hold(struct gen *g, double live, double room, double *held)
{
    double most = room - CONTEXT - g->outside, unit = uniform(g) < 0.5 ? 2 * MIB : 20 * MIB;
    double want = g->reserved;
    while (want < live * 1.005 + g->stranded) {
        want += unit * ceil((live * 1.005 + g->stranded - want) / unit);
    }
    g->retries += want > most && live <= most;
    g->reserved = fmin(want, most);
    if (uniform(g) < g->o.period_s / (5 * 86400) && g->o.kind == GEN_DYNAMIC) {
        g->reserved = live + g->stranded; /* it empties its cache */
    }
    *held = CONTEXT + (g->asleep ? 500 * MIB + g->residue : g->outside + fmax(g->reserved, 0));
    return g->asleep || live <= g->reserved || live < MIB;
}

static void put_use(uint32_t pid, const char *name, double bytes, struct plim_observation *o)
{
    double whole = floor(bytes / (2 * MIB)) * 2 * MIB;
    struct plim_process_use use = {.pid = pid, .kinds = PLIM_USE_COMPUTE, .bytes_valid = true};
    struct plim_process_facts facts = {.pid = pid, .ppid = 1, .start_ticks = 50 + pid};
    use.gpu_instance = use.compute_instance = PLIM_NO_INSTANCE;
    use.bytes = use.counted = (uint64_t)whole;
    (void)snprintf(facts.name, sizeof(facts.name), "%s", name);
    (void)plim_vec_push(&o->sample.uses, NULL, use);
    (void)plim_vec_push(&o->sample.processes, NULL, facts);
}

static void put_rest(struct gen *g, double live, struct plim_observation *o)
{
    if (g->o.view <= GEN_VIEW_ALLOCATOR && !g->asleep) {
        struct plim_allocator_now a = {.pid = g->pid, .start_ticks = 50 + g->pid};
        double slack = fmax(g->reserved - live, 0);
        a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
                  1u << PLIM_ALLOCATOR_INACTIVE_SPLIT | 1u << PLIM_ALLOCATOR_RETRIES;
        a.figure[PLIM_ALLOCATOR_ALLOCATED] = (uint64_t)fmin(live, g->reserved);
        a.figure[PLIM_ALLOCATOR_RESERVED] = (uint64_t)g->reserved;
        a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = (uint64_t)fmin(
            slack, g->stranded + 0.5 * uniform(g) * (slack - fmin(slack, g->stranded)));
        a.figure[PLIM_ALLOCATOR_RETRIES] = (uint64_t)g->retries;
        (void)plim_vec_push(&o->allocators, NULL, a);
    }
    if (g->o.view == GEN_VIEW_ENGINE) {
        struct plim_engine_now e = {.kind = PLIM_ENGINE_KIND_SGLANG, .pid = g->pid, .up = true};
        e.valid = 1u << PLIM_ENGINE_FIGURE_RUNNING | 1u << PLIM_ENGINE_FIGURE_WAITING |
                  1u << PLIM_ENGINE_FIGURE_ASLEEP;
        e.figure[PLIM_ENGINE_FIGURE_RUNNING] = g->running;
        e.figure[PLIM_ENGINE_FIGURE_WAITING] = g->waiting;
        e.figure[PLIM_ENGINE_FIGURE_ASLEEP] = g->asleep;
        (void)plim_vec_push(&o->engines, NULL, e);
    }
}

static double pause_of(struct gen *g)
{
    double dt = g->o.period_s;
    if (g->o.kind == GEN_NOISY) {
        dt *= uniform(g) < 0.02 ? pareto(g, 2, 1) : 1;
        dt = fmin(dt, 12 * 3600);
    }
    return dt;
}

bool gen_next(struct gen *g, struct plim_observation *o)
{
    double dt = pause_of(g), visitors = 0, held, live;
    struct plim_device_sample d = {.uuid = "GPU-other", .parent = PLIM_NO_PARENT};
    plim_sample_reset(&o->sample);
    o->allocators.n = o->engines.n = 0;
    g->now_s += dt;
    g->clock_s += dt;
    g->mono_ns += (uint64_t)(dt * 1e9);
    o->mono_ns = g->mono_ns;
    o->sample.time_ns = UINT64_C(1600000000000000000) + g->mono_ns;
    events(g);
    for (unsigned i = 0; i < VISITS; i++) {
        visitors += g->visitor[i] != 0 ? g->visit_bytes[i] : 0;
    }
    live = need(g, dt);
    live += g->o.kind == GEN_NOISY && uniform(g) < 2e-3 ? pareto(g, 0.3 * GIB, 1.5) : 0;
    live = g->o.kind == GEN_NOISY ? fmin(live, 0.8 * TOTAL) : live;
    bool fits = hold(g, live, TOTAL - DRIVER - visitors, &held);
    double spilled = g->o.kind == GEN_SPILL && g->now_s > g->truth.onset_s ? 0.2 * g->reserved : 0;
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, (uint64_t)TOTAL);
    plim_set_figure(&d, PLIM_FIGURE_USED, (uint64_t)(held + visitors));
    plim_set_figure(&d, PLIM_FIGURE_RESERVED, (uint64_t)DRIVER);
    plim_set_figure(&d, PLIM_FIGURE_FREE, (uint64_t)fmax(TOTAL - DRIVER - held - visitors, 0));
    if (g->o.view != GEN_VIEW_DEVICE) {
        plim_set_figure(&d, PLIM_FIGURE_BUSY, (uint64_t)fmin(100, 100.0 * g->running / g->servers));
        put_use(g->pid, "python3", fmax(held - spilled, CONTEXT), o);
        for (unsigned i = 0; i < VISITS; i++) {
            if (g->visitor[i] != 0) {
                put_use(g->visitor[i], "jupyter", g->visit_bytes[i], o);
            }
        }
    }
    (void)plim_vec_push(&o->sample.devices, NULL, d);
    put_rest(g, live, o);
    g->truth.oom_s = fits ? g->truth.oom_s : g->now_s;
    return fits;
}

static const int truths[GEN_KINDS] = {
#define PLIM_FINDING_NONE         (-1)
#define GEN__X(name, text, truth) PLIM_FINDING_##truth,
    GEN_KIND_MAP(GEN__X)
#undef GEN__X
};

bool gen_makes(enum gen_kind kind)
{
    return kind < GEN_KINDS;
}

struct gen *gen_new(const struct gen_options *options)
{
    struct gen *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        abort();
    }
    bool training = options->kind == GEN_TRAINING || options->kind == GEN_LEAK_TRAINING;
    bool early = options->kind == GEN_CROWD || options->kind == GEN_RESIDUE;
    g->o = *options;
    g->random = options->seed * 1000003 + (uint64_t)options->kind;
    g->mono_ns = UINT64_C(9000000000000);
    g->clock_s = uniform(g) * 7 * DAY;
    g->pid = 1000;
    g->next_pid = 2000;
    g->base = (3 + 15 * uniform(g)) * GIB;
    g->load_s = options->kind == GEN_LOADING ? 900 + 3600 * uniform(g) : 10 + wait_of(g, 100);
    g->base += options->kind == GEN_LOADING ? 15 * GIB : 0;
    g->rate = training || options->kind == GEN_LOADING ? 0 : 0.1 + uniform(g);
    g->size = (5 + 30 * uniform(g)) * MIB;
    g->seconds = 1 + 12 * uniform(g);
    g->servers = 4 + (unsigned)(uniform(g) * 28);
    g->night = 0.1 + 0.9 * uniform(g);
    g->walk = g->walk_level = log((50 + 400 * uniform(g)) * MIB);
    g->walk_pull = 1 / (300 + 6000 * uniform(g));
    g->walk_noise = (0.1 + 0.3 * uniform(g)) * sqrt(2 * g->walk_pull);
    g->cache_full = (0.5 + 6 * uniform(g)) * GIB;
    g->next_s = options->kind == GEN_RESTARTS ? 0 : 900 + wait_of(g, 2000);
    g->truth = (struct gen_truth){truths[options->kind], 0, options->bytes_per_hour, 0};
    g->truth.onset_s = early || uniform(g) < 0.4 ? g->load_s : 3600 * (0.5 + 40 * uniform(g));
    return g;
}

void gen_free(struct gen *g)
{
    free(g);
}

double gen_now(const struct gen *g)
{
    return g->now_s;
}

struct gen_truth gen_truth(const struct gen *g)
{
    return g->truth;
}
