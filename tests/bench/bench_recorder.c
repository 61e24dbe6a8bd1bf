/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the recorder adds to a call: pairs of an allocation and its release on the simulated device, the
 * same loop with and without the preload (bench_recorder.py starts both). Prints one line for each kind
 * of call: name, calls, nanoseconds for each.
 *
 *     bench_recorder [ROUNDS [LIVE]]     of 100 pairs; LIVE allocations exist meanwhile (1000)
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAIRS 100

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *p);
int cuMemAlloc_v2(uint64_t *out, size_t bytes);
int cuMemFree_v2(uint64_t addr);
int cudaMallocHost(void **out, size_t bytes);
int cudaFreeHost(void *p);

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void runtime_pair(size_t bytes)
{
    void *p;
    if (cudaMalloc(&p, bytes) == 0) {
        (void)cudaFree(p);
    }
}

static void driver_pair(size_t bytes)
{
    uint64_t p;
    if (cuMemAlloc_v2(&p, bytes) == 0) {
        (void)cuMemFree_v2(p);
    }
}

/* The best of many short rounds: what others do on the machine only makes a round slower. */
static void measure(const char *name, void (*pair)(size_t), size_t bytes, unsigned rounds)
{
    double best = 1e30;
    for (unsigned round = 0; round < rounds; round++) {
        double start = now();
        for (unsigned i = 0; i < PAIRS; i++) {
            pair(bytes);
        }
        double each = (now() - start) / PAIRS / 2;
        best = each < best ? each : best;
    }
    printf("%s %u %.1f\n", name, rounds * PAIRS * 2, best);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    unsigned live = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    for (unsigned i = 0; i < live; i++) {
        void *p;
        if (cudaMalloc(&p, (size_t)2 << 20) != 0) {
            return 1;
        }
    }
    measure("runtime_large", runtime_pair, (size_t)20 << 20, rounds);
    measure("runtime_small", runtime_pair, 4096, rounds);
    measure("driver_large", driver_pair, (size_t)20 << 20, rounds);
    return 0;
}
