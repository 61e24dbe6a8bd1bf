/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The third family of histories: caches against leaks, both from a process's first minute, written after the rule
 * that tells them apart. Of its constants one was chosen with what this family says known: the end after half a day
 * (docs/design/detection.md). Only four kinds; the others are empty here.
 *
 *   cache    one of four laws: t / (t + half) of what it will be; a logistic curve; the logarithm of time, up to its
 *            limit; two exponentials, a fast one and a slow one
 *   leak     a share of each minute's requests, whose number walks
 *   noise    white, from sample to sample, and a square wave of some minutes: batches that come and go
 *   process  on a card of 24 GiB, seen through segments of 2 MiB
 */

#include "detect/detect.h"
#include "detect/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB     1048576.0
#define GIB     1073741824.0
#define TOTAL   (24 * GIB)
#define CONTEXT (380 * MIB)
#define DRIVER  (250 * MIB)
#define PID     3000u

struct gen {
    struct gen_options o;
    struct gen_truth truth;
    uint64_t random;
    double now_s;
    unsigned law;
    double base, full, half_s; /* bytes, bytes, seconds */
    double noise, wave, wave_s;
    double pace; /* of requests, 1 on average */
    double grown, reserved;
};

static double uniform(struct gen *g)
{
    g->random ^= g->random << 13;
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return (double)(g->random >> 11) * 0x1p-53;
}

static double between(struct gen *g, double low, double high)
{
    return low + (high - low) * uniform(g);
}

/* What the cache holds after so many seconds. */
static double cached(const struct gen *g)
{
    double x = g->now_s / g->half_s;
    switch (g->law) {
    case 0:
        return g->full * x / (1 + x);
    case 1:
        return g->full * (1 / (1 + exp(-2 * (x - 1))) - 1 / (1 + exp(2.0))) * 1.135;
    case 2:
        return g->full * fmin(log1p(x * 4) / log1p(40), 1);
    default:
        return g->full * (0.6 * (1 - exp(-x * 3)) + 0.4 * (1 - exp(-x / 3)));
    }
}

static double live(struct gen *g, double dt)
{
    bool busy = fmod(g->now_s, g->wave_s) < 0.4 * g->wave_s;
    double bytes = g->base;
    g->pace = fmin(fmax(g->pace + sqrt(dt) * 0.004 * between(g, -1, 1), 0.6), 1.4);
    if (g->o.kind == GEN_LEAK_POOL || g->o.kind == GEN_LEAK_STEADY) {
        g->grown += g->pace * g->o.bytes_per_hour / 3600 * dt;
    }
    if (g->o.kind == GEN_LEAK_STEADY || g->o.kind == GEN_CACHE_EXPONENTIAL) {
        bytes += g->noise * uniform(g) + (busy ? g->wave : 0);
    }
    return bytes + g->grown + (g->o.kind == GEN_CACHE_EXPONENTIAL ? cached(g) : 0);
}

static void put_allocator(const struct gen *g, double bytes, struct plim_observation *o)
{
    struct plim_allocator_now a = {.pid = PID, .start_ticks = PID};
    a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
              1u << PLIM_ALLOCATOR_INACTIVE_SPLIT;
    a.figure[PLIM_ALLOCATOR_ALLOCATED] = (uint64_t)bytes;
    a.figure[PLIM_ALLOCATOR_RESERVED] = (uint64_t)g->reserved;
    a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = (uint64_t)(0.3 * (g->reserved - bytes));
    (void)plim_vec_push(&o->allocators, NULL, a);
}

static void put_process(const struct gen *g, double held, struct plim_observation *o)
{
    struct plim_process_use use = {.pid = PID, .kinds = PLIM_USE_COMPUTE, .bytes_valid = true};
    struct plim_process_facts facts = {.pid = PID, .ppid = 1, .start_ticks = PID, .name = "worker"};
    use.gpu_instance = use.compute_instance = PLIM_NO_INSTANCE;
    use.bytes = use.counted = (uint64_t)held;
    (void)plim_vec_push(&o->sample.uses, NULL, use);
    (void)plim_vec_push(&o->sample.processes, NULL, facts);
    if (g->o.view == GEN_VIEW_ENGINE) {
        struct plim_engine_now e = {.kind = PLIM_ENGINE_KIND_TGI, .pid = PID, .up = true};
        e.valid = 1u << PLIM_ENGINE_FIGURE_RUNNING;
        e.figure[PLIM_ENGINE_FIGURE_RUNNING] = floor(8 * g->pace);
        (void)plim_vec_push(&o->engines, NULL, e);
    }
}

bool gen_next(struct gen *g, struct plim_observation *o)
{
    struct plim_device_sample d = {.uuid = "GPU-caches", .parent = PLIM_NO_PARENT};
    plim_sample_reset(&o->sample);
    o->allocators.n = o->engines.n = 0;
    g->now_s += g->o.period_s;
    o->mono_ns = UINT64_C(1000000000) + (uint64_t)(g->now_s * 1e9);
    o->sample.time_ns = UINT64_C(1650000000000000000) + o->mono_ns;
    double bytes = live(g, g->o.period_s);
    g->reserved = fmax(g->reserved, ceil(bytes / (2 * MIB)) * 2 * MIB);
    bool fits = g->reserved + CONTEXT <= TOTAL - DRIVER;
    double held = fmin(g->reserved + CONTEXT, TOTAL - DRIVER);
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, (uint64_t)TOTAL);
    plim_set_figure(&d, PLIM_FIGURE_RESERVED, (uint64_t)DRIVER);
    plim_set_figure(&d, PLIM_FIGURE_USED, (uint64_t)held);
    plim_set_figure(&d, PLIM_FIGURE_FREE, (uint64_t)(TOTAL - DRIVER - held));
    (void)plim_vec_push(&o->sample.devices, NULL, d);
    if (g->o.view <= GEN_VIEW_PROCESS) {
        put_process(g, held, o);
    }
    if (g->o.view <= GEN_VIEW_ALLOCATOR) {
        put_allocator(g, bytes, o);
    }
    g->truth.oom_s = fits ? 0 : g->now_s;
    return fits;
}

bool gen_makes(enum gen_kind kind)
{
    return kind == GEN_LEAK_POOL || kind == GEN_LEAK_STEADY || kind == GEN_FLAT ||
           kind == GEN_CACHE_EXPONENTIAL;
}

struct gen *gen_new(const struct gen_options *options)
{
    struct gen *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        abort();
    }
    bool leaks = options->kind == GEN_LEAK_POOL || options->kind == GEN_LEAK_STEADY;
    g->o = *options;
    g->random = options->seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)options->kind + 77;
    (void)uniform(g);
    g->law = (unsigned)(options->seed % 4);
    g->base = between(g, 2, 9) * GIB;
    g->full = between(g, 0.4, 9) * GIB;
    g->half_s = between(g, 0.1, 5) * 3600;
    g->noise = between(g, 10, 300) * MIB;
    g->wave = between(g, 50, 1000) * MIB;
    g->wave_s = between(g, 40, 1500);
    g->pace = 1;
    g->truth = (struct gen_truth){leaks ? PLIM_FINDING_LEAK : -1, 60, options->bytes_per_hour, 0};
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
