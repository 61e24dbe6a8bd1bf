/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a step of the detector costs for one subject, and how much memory: 8 devices with 25 processes
 * each, six hours of seconds. Beside it, on the same samples in the same run, an ordinary least-squares
 * line over a ring of one hour for each process, made anew each minute: what a rule with deriv(x[1h])
 * computes.
 */

#include "detect/detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEVICES   8u
#define PROCESSES 200u
#define STEPS     (6 * 3600u)
#define RING      3600u

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Resident bytes of this process. */
static long resident(void)
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f != NULL) {
        if (fscanf(f, "%ld %ld", &all, &pages) != 2) { /* NOLINT(cert-err34-c): the kernel's */
            pages = 0;
        }
        (void)fclose(f);
    }
    return pages * 4096;
}

static void make(struct plim_observation *o)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        struct plim_device_sample d = {.parent = PLIM_NO_PARENT};
        (void)snprintf(d.uuid, sizeof(d.uuid), "GPU-00000000-0000-0000-0000-%012u", i);
        plim_set_figure(&d, PLIM_FIGURE_TOTAL, UINT64_C(80) << 30);
        plim_set_figure(&d, PLIM_FIGURE_USED, UINT64_C(50) << 30);
        plim_set_figure(&d, PLIM_FIGURE_FREE, UINT64_C(30) << 30);
        plim_set_figure(&d, PLIM_FIGURE_BUSY, 50);
        (void)plim_vec_push(&o->sample.devices, NULL, d);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct plim_process_use use = {.device = i % DEVICES, .pid = 1000 + i, .bytes_valid = true};
        struct plim_process_facts facts = {.pid = 1000 + i, .start_ticks = i + 1, .name = "server"};
        struct plim_allocator_now a = {
            .pid = 1000 + i, .start_ticks = i + 1, .device = i % DEVICES};
        a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
                  1u << PLIM_ALLOCATOR_INACTIVE_SPLIT;
        (void)plim_vec_push(&o->sample.uses, NULL, use);
        (void)plim_vec_push(&o->sample.processes, NULL, facts);
        (void)plim_vec_push(&o->allocators, NULL, a);
    }
}

static void move(struct plim_observation *o, unsigned step, uint64_t *random)
{
    o->mono_ns += UINT64_C(1000000000);
    o->sample.time_ns += UINT64_C(1000000000);
    for (unsigned i = 0; i < PROCESSES; i++) {
        *random = *random * UINT64_C(6364136223846793005) + 1;
        uint64_t noise = *random >> 36, leak = i % 10 == 0 ? step * UINT64_C(30000) : 0;
        o->sample.uses.items[i].bytes = (UINT64_C(2) << 30) + noise + leak;
        o->allocators.items[i].figure[PLIM_ALLOCATOR_ALLOCATED] =
            (UINT64_C(1) << 30) + noise + leak;
        o->allocators.items[i].figure[PLIM_ALLOCATOR_RESERVED] = (UINT64_C(3) << 29) + noise + leak;
        o->allocators.items[i].figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = noise / 4;
    }
}

static double line(const float *y, unsigned n)
{
    double st = 0, sy = 0, stt = 0, sty = 0;
    for (unsigned i = 0; i < n; i++) {
        st += i;
        sy += (double)y[i];
        stt += (double)i * i;
        sty += i * (double)y[i];
    }
    return n > 1 ? (n * sty - st * sy) / (n * stt - st * st) : 0;
}

int main(void)
{
    struct plim_observation o = {0};
    struct plim_detector *d;
    float(*rings)[RING] = calloc(PROCESSES, sizeof(*rings));
    uint64_t random = 1;
    double detector = 0, peer = 0, sink = 0, worst = 0;
    size_t findings;
    make(&o);
    if (rings == NULL || plim_detector_new(NULL, &d, NULL) != PLIM_OK) {
        return 1;
    }
    for (unsigned i = 0; i < PROCESSES * RING; i++) { /* so that it is resident before */
        rings[i / RING][i % RING] = 1;
    }
    long before = resident();
    for (unsigned step = 0; step < STEPS; step++) {
        move(&o, step, &random);
        double begin = seconds();
        if (plim_detector_step(d, &o, NULL) != PLIM_OK) {
            return 1;
        }
        double took = seconds() - begin;
        detector += took;
        worst = took > worst ? took : worst;
        for (unsigned i = 0; i < PROCESSES; i++) {
            rings[i][step % RING] = (float)o.sample.uses.items[i].bytes;
        }
        if (step % 60 == 0) { /* as often as rules are evaluated */
            begin = seconds();
            for (unsigned i = 0; i < PROCESSES; i++) {
                sink += line(rings[i], step < RING ? step + 1 : RING);
            }
            peer += seconds() - begin;
        }
    }
    long after = resident();
    (void)plim_detector_findings(d, &findings);
    unsigned subjects = DEVICES + PROCESSES;
    printf("detector: %.0f ns for each subject and step (4 figures each), worst step %.2f ms, "
           "%.3f %% of a core at one step a second\n",
           1e9 * detector / STEPS / subjects, 1e3 * worst, 100 * detector / STEPS);
    printf("least squares over an hour, once a minute, 1 figure: %.0f ns for each process and "
           "second\n",
           1e9 * peer / STEPS / PROCESSES);
    printf("memory: %.1f KiB a subject for 4 figures and all histories to a week (the ring of an "
           "hour: "
           "%.1f KiB a figure); %zu findings; %d\n",
           (double)(after - before) / 1024 / subjects, sizeof(rings[0]) / 1024.0, findings,
           sink > 0);
    plim_detector_free(d);
    plim_sample_fini(&o.sample);
    plim_vec_fini(&o.allocators);
    free(rings);
    return 0;
}
