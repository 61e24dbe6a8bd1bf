/* SPDX-License-Identifier: Apache-2.0 */

/* See generate.h. */

#include "detect/generate.h"

#include "detect/detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB      1048576.0
#define GIB      1073741824.0
#define TOTAL    (80 * GIB)
#define CONTEXT  (500 * MIB) /* of one process */
#define RESERVED (512 * MIB) /* of driver and firmware */
#define DAY      86400.0
#define ACTIVE   256u /* requests at once, at most */
#define CROWDED  8u   /* neighbours, at most */

struct request {
    double ends_s;
    double bytes;
};

struct neighbour {
    uint32_t pid;
    double bytes, ends_s;
};

struct gen {
    struct gen_options o;
    struct gen_truth truth;
    uint64_t random;
    double now_s, start_of_day_s;
    uint64_t mono_ns;
    uint32_t pid;
    double born_s; /* of the process */

    /* What the process is made of. */
    double base, load_s; /* bytes, seconds until they are there */
    double rate, burst,
        burst_ends_s; /* arrivals a second, on average; factor now, and until when */
    double diurnal;   /* 0: none; 1: nothing at night */
    double request_bytes, request_s;
    struct request requests[ACTIVE];
    unsigned running;
    double arrivals, tokens;
    double grown, garbage, step_bytes, owed; /* leaked; that a collector will free; ... */
    double cache, cache_full, cache_tau_s;
    double stranded, outside;
    double reserved;
    double retries;
    bool asleep;
    double residue, next_s; /* next_s: of the next event of that kind */
    struct neighbour others[CROWDED];
    uint32_t next_pid;
};

/* ---- chance ---- */

static double uniform(struct gen *g)
{
    g->random = g->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = g->random ^ g->random >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    return (double)(x >> 11) * 0x1p-53;
}

static double between(struct gen *g, double low, double high)
{
    return low + (high - low) * uniform(g);
}

static double exponential(struct gen *g, double mean)
{
    return -mean * log(1 - uniform(g));
}

static double normal(struct gen *g)
{
    return sqrt(-2 * log(1 - uniform(g))) * cos(2 * M_PI * uniform(g));
}

static bool happens(struct gen *g, double probability)
{
    return uniform(g) < probability;
}

/* ---- traffic ---- */

/* Arrivals relative to the mean at this time: a day's curve with its peak in the afternoon, bursts of
 * minutes. */
static double traffic(struct gen *g)
{
    double hour = fmod(g->start_of_day_s + g->now_s, DAY) / 3600;
    if (g->now_s >= g->burst_ends_s) {
        g->burst = happens(g, 0.3) ? between(g, 1.5, 4) : between(g, 0.5, 1.2);
        g->burst_ends_s = g->now_s + exponential(g, 600);
    }
    return g->burst * (1 - g->diurnal * cos((hour - 3) / 24 * 2 * M_PI));
}

static double serve(struct gen *g, double dt)
{
    double level = traffic(g), bytes = 0;
    unsigned kept = 0;
    for (double next = exponential(g, 1 / (g->rate * level + 1e-9)); next < dt;
         next += exponential(g, 1 / (g->rate * level + 1e-9))) {
        double size = g->request_bytes * exp(0.8 * normal(g) - 0.32);
        if (g->running < ACTIVE) {
            g->requests[g->running++] =
                (struct request){g->now_s + exponential(g, g->request_s), size};
        }
        g->arrivals++;
        g->tokens += size / 1e5;
        g->owed += g->o.kind == GEN_LEAK_STEPS && happens(g, 0.02) ? 1 : 0;
    }
    for (unsigned i = 0; i < g->running; i++) {
        if (g->requests[i].ends_s > g->now_s) {
            bytes += g->requests[i].bytes;
            g->requests[kept++] = g->requests[i];
        }
    }
    g->running = kept;
    return bytes;
}

/* ---- what grows ---- */

static void grow(struct gen *g, double dt)
{
    double due = g->now_s >= g->truth.onset_s ? g->o.bytes_per_hour / 3600 * dt : 0;
    double level = g->rate > 0 ? g->running / fmax(g->rate * g->request_s, 1e-9) : 1;
    switch (g->o.kind) {
    case GEN_LEAK_POOL:
    case GEN_LEAK_STEADY:
    case GEN_LEAK_TRAINING:
        g->grown += due;
        break;
    case GEN_LEAK_SAWTOOTH:
        g->grown += due;
        g->garbage += between(g, 0, 4 * MIB) * dt;
        g->garbage = g->garbage > 900 * MIB ? 0 : g->garbage;
        break;
    case GEN_LEAK_STEPS: /* 2 % of the requests leave something; together as much as asked for */
        g->grown += due > 0 ? g->owed * g->o.bytes_per_hour / (3600 * g->rate * 0.02) : 0;
        g->owed = 0;
        break;
    case GEN_LEAK_TRAFFIC:
        g->grown += due * fmin(level, 3);
        break;
    case GEN_FRAGMENTATION:
        g->stranded += due;
        break;
    case GEN_OUTSIDE:
        g->outside += due;
        break;
    default:
        break;
    }
}

static void fill_cache(struct gen *g, double dt)
{
    double age = g->now_s - g->born_s - g->load_s;
    if (age < 0) {
        return;
    }
    switch (g->o.kind) {
    case GEN_CACHE_EXPONENTIAL:
        g->cache = g->cache_full * (1 - exp(-age / g->cache_tau_s));
        break;
    case GEN_CACHE_STEPS:
        g->cache = fmin(floor(age / g->cache_tau_s) / 6, 1) * g->cache_full;
        break;
    case GEN_CACHE_LRU:
        g->cache = fmin(g->cache + g->cache_full / g->cache_tau_s * dt * between(g, 0.5, 1.5),
                        g->cache_full);
        break;
    case GEN_NEW_SHAPES: /* each hour brings fewer of them */
        if (g->now_s >= g->next_s && g->cache < g->cache_full) {
            g->cache += g->cache_full * between(g, 0.02, 0.08);
            g->next_s = g->now_s + exponential(g, 600) * exp(g->now_s / (4 * 3600));
        }
        break;
    default:
        break;
    }
}

/* ---- the process ---- */

/* A forward and backward pass each 20 s or so, and an evaluation for five minutes each hour. */
static double train(const struct gen *g)
{
    double phase = fmod(g->now_s, 17) / 17, hour = fmod(g->now_s, 3600);
    return (hour < 300 ? 6 * GIB : 0) + 12 * GIB * sin(M_PI * phase);
}

static void restart(struct gen *g)
{
    g->pid = g->next_pid++;
    g->born_s = g->now_s;
    g->reserved = g->grown = g->garbage = g->cache = g->stranded = g->outside = 0;
    g->running = 0;
    g->tokens = g->arrivals = 0;
}

static double live(struct gen *g, double dt)
{
    double age = g->now_s - g->born_s, loaded = fmin(age / fmax(g->load_s, 1), 1);
    double need = g->base * loaded;
    if (loaded < 1) {
        return need;
    }
    if (g->rate > 0) {
        double bytes = serve(g, dt);
        need += g->o.kind == GEN_FLAT || g->o.kind == GEN_LEAK_POOL ? 0 : bytes;
    }
    if (g->o.kind == GEN_TRAINING || g->o.kind == GEN_LEAK_TRAINING) {
        need += train(g);
    }
    grow(g, dt);
    fill_cache(g, dt);
    return need + g->grown + g->garbage + g->cache;
}

static void neighbours(struct gen *g)
{
    bool crowd = g->o.kind == GEN_CROWD;
    for (unsigned i = 0; i < CROWDED; i++) {
        if (g->others[i].pid != 0 && g->now_s >= g->others[i].ends_s) {
            g->others[i].pid = 0;
        }
        if (g->others[i].pid == 0 && g->now_s >= g->next_s &&
            (crowd || g->o.kind == GEN_NEIGHBOURS)) {
            double gap = crowd ? 1200 : 5400;
            g->others[i] = (struct neighbour){g->next_pid++, between(g, 0.3, 6) * GIB,
                                              g->now_s + exponential(g, 3600)};
            if (crowd) {
                g->others[i].bytes = g->o.bytes_per_hour * gap / 3600;
                g->others[i].ends_s = INFINITY;
            }
            g->next_s = g->now_s + (crowd ? gap : exponential(g, gap));
        }
    }
}

static void sleep_or_wake(struct gen *g)
{
    if ((g->o.kind == GEN_SLEEP || g->o.kind == GEN_RESIDUE) && g->now_s >= g->next_s) {
        g->asleep = !g->asleep;
        g->next_s = g->now_s + exponential(g, g->asleep ? 1800 : 5400) + 300;
        if (g->o.kind == GEN_RESIDUE && g->asleep) {
            g->residue = 5 * GIB + 0.3 * GIB * floor(g->now_s / 7200);
        }
    }
}

/* ---- observations ---- */

static double quantum(double bytes)
{
    return floor(bytes / (2 * MIB)) * 2 * MIB;
}

static void put_engine(const struct gen *g, struct plim_observation *o)
{
    struct plim_engine_now e = {.kind = PLIM_ENGINE_KIND_VLLM, .name = "made:8000", .pid = g->pid};
    e.up = true;
    e.told_ns = o->sample.time_ns;
    e.figure[PLIM_ENGINE_FIGURE_RUNNING] = g->running;
    e.figure[PLIM_ENGINE_FIGURE_GENERATION_TOKENS] = g->tokens;
    e.figure[PLIM_ENGINE_FIGURE_ASLEEP] = g->asleep;
    e.valid = UINT64_C(1) << PLIM_ENGINE_FIGURE_RUNNING |
              UINT64_C(1) << PLIM_ENGINE_FIGURE_GENERATION_TOKENS |
              UINT64_C(1) << PLIM_ENGINE_FIGURE_ASLEEP;
    (void)plim_vec_push(&o->engines, NULL, e);
}

static void put_allocator(const struct gen *g, double live_bytes, struct plim_observation *o)
{
    struct plim_allocator_now a = {.pid = g->pid, .start_ticks = g->pid * 100u};
    const double slack = fmax(g->reserved - live_bytes, 0);
    a.told_ns = o->sample.time_ns;
    a.figure[PLIM_ALLOCATOR_ALLOCATED] = a.figure[PLIM_ALLOCATOR_ACTIVE] = (uint64_t)live_bytes;
    a.figure[PLIM_ALLOCATOR_RESERVED] = (uint64_t)fmax(g->reserved, live_bytes);
    a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] =
        (uint64_t)fmin(slack, g->stranded + 0.2 * (slack - fmin(slack, g->stranded)));
    a.figure[PLIM_ALLOCATOR_RETRIES] = (uint64_t)g->retries;
    a.valid = UINT64_C(1) << PLIM_ALLOCATOR_ALLOCATED | UINT64_C(1) << PLIM_ALLOCATOR_ACTIVE |
              UINT64_C(1) << PLIM_ALLOCATOR_RESERVED |
              UINT64_C(1) << PLIM_ALLOCATOR_INACTIVE_SPLIT | UINT64_C(1) << PLIM_ALLOCATOR_RETRIES;
    (void)plim_vec_push(&o->allocators, NULL, a);
}

static void put_process(uint32_t pid, const char *name, double bytes, struct plim_observation *o)
{
    struct plim_process_use use = {.pid = pid,
                                   .gpu_instance = PLIM_NO_INSTANCE,
                                   .compute_instance = PLIM_NO_INSTANCE,
                                   .kinds = PLIM_USE_COMPUTE,
                                   .bytes_valid = true,
                                   .bytes = (uint64_t)bytes,
                                   .counted = (uint64_t)bytes};
    struct plim_process_facts facts = {.pid = pid, .ppid = 1, .start_ticks = pid * 100u};
    (void)snprintf(facts.name, sizeof(facts.name), "%s", name);
    (void)plim_vec_push(&o->sample.uses, NULL, use);
    (void)plim_vec_push(&o->sample.processes, NULL, facts);
}

static void put_device(struct gen *g, double used, struct plim_observation *o)
{
    struct plim_device_sample d = {.uuid = "GPU-made", .parent = PLIM_NO_PARENT};
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, (uint64_t)TOTAL);
    plim_set_figure(&d, PLIM_FIGURE_USED, (uint64_t)used);
    plim_set_figure(&d, PLIM_FIGURE_RESERVED, (uint64_t)RESERVED);
    plim_set_figure(&d, PLIM_FIGURE_FREE, (uint64_t)(TOTAL - RESERVED - used));
    if (g->o.view != GEN_VIEW_DEVICE) {
        plim_set_figure(&d, PLIM_FIGURE_BUSY,
                        (uint64_t)fmin(100, g->running * 3.0 + between(g, 0, 5)));
    }
    (void)plim_vec_push(&o->sample.devices, NULL, d);
}

/* Bytes of the process on the device when `need` is live; false: there is no room for it. */
static bool reserve(struct gen *g, double need, double room, double *held)
{
    double want = ceil((need * 1.01 + g->stranded) / (20 * MIB)) * 20 * MIB;
    if (g->asleep) {
        *held = CONTEXT + 700 * MIB + g->residue;
        return true;
    }
    if (want > g->reserved) {
        g->retries += want > room - CONTEXT - g->outside && need <= room - CONTEXT - g->outside;
        g->reserved = fmin(want, room - CONTEXT - g->outside);
    }
    *held = CONTEXT + g->outside + fmax(g->reserved, 0);
    return need <= g->reserved || need < MIB;
}

static double step_time(struct gen *g)
{
    double dt = g->o.period_s;
    if (g->o.kind == GEN_NOISY) {
        dt *= happens(g, 0.01) ? between(g, 2, 90) : between(g, 0.8, 1.2);
        dt += happens(g, 2e-5) ? between(g, 3600, 4 * 3600) : 0;
    }
    return dt;
}

static void events(struct gen *g)
{
    if (g->o.kind == GEN_RESTARTS && g->now_s >= g->next_s) {
        if (g->next_s > 0) {
            restart(g);
            g->base *= between(g, 0.9, 1.1);
        }
        g->next_s = g->now_s + exponential(g, 8 * 3600);
    }
    sleep_or_wake(g);
    neighbours(g);
}

bool gen_next(struct gen *g, struct plim_observation *o)
{
    double dt = step_time(g), others = 0, held, crowd = 0;
    plim_sample_reset(&o->sample);
    o->allocators.n = o->owners.n = o->engines.n = o->happenings.n = 0;
    g->now_s += dt;
    g->mono_ns += (uint64_t)(dt * 1e9);
    o->mono_ns = g->mono_ns;
    o->sample.time_ns = UINT64_C(1700000000000000000) + g->mono_ns;
    events(g);
    for (unsigned i = 0; i < CROWDED; i++) {
        crowd += g->others[i].pid != 0 ? g->others[i].bytes : 0;
    }
    others = 0.2 * GIB + crowd;
    double need = live(g, dt);
    if (g->o.kind == GEN_NOISY && happens(g, 1e-3)) {
        need += between(g, 0, 6) * GIB;
    }
    bool fits = reserve(g, need, TOTAL - RESERVED - others, &held);
    double spilled = g->o.kind == GEN_SPILL && g->now_s > g->truth.onset_s ? 6 * GIB : 0;
    put_device(g, fmin(others + held, TOTAL - RESERVED), o);
    if (g->o.view != GEN_VIEW_DEVICE) {
        put_process(g->pid, "server", quantum(fmax(held - spilled, CONTEXT)), o);
        for (unsigned i = 0; i < CROWDED; i++) {
            if (g->others[i].pid != 0) {
                put_process(g->others[i].pid, "notebook", quantum(g->others[i].bytes), o);
            }
        }
    }
    if (g->o.view <= GEN_VIEW_ALLOCATOR && !g->asleep) {
        put_allocator(g, need, o);
    }
    if (g->o.view == GEN_VIEW_ENGINE) {
        put_engine(g, o);
    }
    if (!fits) {
        g->truth.oom_s = g->now_s;
    }
    return fits;
}

/* ---- the table of kinds ---- */

static void choose_traffic(struct gen *g)
{
    bool training = g->o.kind == GEN_TRAINING || g->o.kind == GEN_LEAK_TRAINING;
    g->rate = training || g->o.kind == GEN_LOADING ? 0 : between(g, 0.2, 2);
    g->request_s = between(g, 2, 15);
    g->request_bytes = between(g, 8, 60) * MIB;
    g->diurnal = happens(g, 0.7) ? between(g, 0.3, 0.9) : 0;
    g->burst = 1;
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
    g->o = *options;
    g->random = options->seed * 7919 + (uint64_t)options->kind * 104729 + 12345;
    (void)uniform(g);
    g->pid = 1000;
    g->next_pid = 1001;
    g->mono_ns = UINT64_C(5000000000000);
    g->start_of_day_s = between(g, 0, DAY);
    g->base = between(g, 4, 24) * GIB;
    g->load_s = between(g, 20, 300);
    choose_traffic(g);
    if (options->kind == GEN_LOADING) {
        g->base = between(g, 20, 60) * GIB;
        g->load_s = between(g, 1200, 4500);
    }
    g->cache_full = between(g, 1, 12) * GIB;
    g->cache_tau_s = options->kind == GEN_CACHE_STEPS ? between(g, 120, 1500)
                     : options->kind == GEN_CACHE_LRU ? between(g, 1, 8) * 3600
                                                      : between(g, 300, 7200);
    g->next_s = options->kind == GEN_RESTARTS ? 0 : between(g, 600, 5400);
    g->truth = (struct gen_truth){truths[options->kind], 0, options->bytes_per_hour, 0};
    bool early = happens(g, 0.5) || options->kind == GEN_CROWD || options->kind == GEN_RESIDUE;
    g->truth.onset_s = early ? g->load_s : between(g, 1, 30) * 3600;
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
