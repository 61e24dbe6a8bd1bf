/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call costs on the simulated GPU: bench_simgpu LIBRARY. Each line is one pattern, in ns for each
 * call, best of five rounds; the peer is glibc's malloc and free under the same pattern with sizes a 4096th.
 *
 *   pair      one allocation and its free, 2 MiB, nothing else live
 *   mix       2,000 live allocations of 2 to 20 MiB, a random one replaced each time
 *   small     2,000 live allocations of 512 B to 64 KiB, likewise
 *   first fit the mix with the lowest free address, which a tree finds
 *   handles   create, map, give access, unmap, release: five calls
 *   events    record and query
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIVE   2000
#define ROUNDS 5
#define STEPS  200000
#define MIB    ((size_t)1 << 20)

static int (*cuda_malloc)(void **, size_t);
static int (*cuda_free)(void *);
static int (*mem_reserve)(uint64_t *, size_t, size_t, uint64_t, uint64_t);
static int (*mem_create)(uint64_t *, size_t, const void *, uint64_t);
static int (*mem_map)(uint64_t, size_t, size_t, uint64_t, uint64_t);
static int (*mem_access)(uint64_t, size_t, const void *, size_t);
static int (*mem_unmap)(uint64_t, size_t);
static int (*mem_release)(uint64_t);
static int (*event_create)(void **);
static int (*event_record)(void *, void *);
static int (*event_query)(void *);
static int (*sim_set)(const char *, const char *);

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* a busy machine does not count */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_simgpu: %s\n", what);
    exit(1);
}

static int peer_malloc(void **out, size_t bytes)
{
    *out = malloc(bytes / 4096 + 1);
    return *out == NULL;
}

static int peer_free(void *p)
{
    free(p);
    return 0;
}

/* ns for each call of a malloc and free under one pattern. */
static double pattern(int (*get)(void **, size_t), int (*put)(void *), size_t least, size_t most,
                      unsigned live)
{
    static void *at[LIVE];
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t seed = 7;
        memset(at, 0, sizeof at);
        for (unsigned i = 0; i < live; i++) {
            if (get(&at[i], least + (most - least) / 1000 * draw(&seed, 1000)) != 0) {
                fail("out of memory");
            }
        }
        double start = now();
        for (int step = 0; step < STEPS; step++) {
            unsigned i = draw(&seed, live);
            (void)put(at[i]);
            if (get(&at[i], least + (most - least) / 1000 * draw(&seed, 1000)) != 0) {
                fail("out of memory");
            }
        }
        double ns = (now() - start) / (2.0 * STEPS);
        best = ns < best ? ns : best;
        for (unsigned i = 0; i < live; i++) {
            (void)put(at[i]);
        }
    }
    return best;
}

static double handles(void)
{
    struct {
        int type, handles, where, id;
        void *win32;
        unsigned char rest[8];
    } prop = {.type = 1, .where = 1};
    int access[3] = {1, 0, 3};
    uint64_t addr, handle;
    double best = 1e18;
    if (mem_reserve(&addr, 1024 * MIB, 0, 0, 0) != 0) {
        fail("no address space");
    }
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (unsigned step = 0; step < STEPS / 5; step++) {
            uint64_t p = addr + step % 50 * 20 * MIB;
            if (mem_create(&handle, 20 * MIB, &prop, 0) != 0 ||
                mem_map(p, 20 * MIB, 0, handle, 0) != 0 ||
                mem_access(p, 20 * MIB, access, 1) != 0 || mem_unmap(p, 20 * MIB) != 0 ||
                mem_release(handle) != 0) {
                fail("a handle call failed");
            }
        }
        double ns = (now() - start) / STEPS;
        best = ns < best ? ns : best;
    }
    return best;
}

static double events(void)
{
    void *event;
    double best = 1e18;
    (void)event_create(&event);
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int step = 0; step < STEPS; step++) {
            (void)event_record(event, NULL);
            (void)event_query(event);
        }
        double ns = (now() - start) / (2.0 * STEPS);
        best = ns < best ? ns : best;
    }
    return best;
}

static void *entry(void *library, const char *name)
{
    void *p = dlsym(library, name);
    if (p == NULL) {
        fail(name);
    }
    return p;
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fail(dlerror());
    }
    const struct {
        const char *name;
        void *slot;
    } wanted[] = {{"cudaMalloc", &cuda_malloc},
                  {"cudaFree", &cuda_free},
                  {"cuMemAddressReserve", &mem_reserve},
                  {"cuMemCreate", &mem_create},
                  {"cuMemMap", &mem_map},
                  {"cuMemSetAccess", &mem_access},
                  {"cuMemUnmap", &mem_unmap},
                  {"cuMemRelease", &mem_release},
                  {"cudaEventCreate", &event_create},
                  {"cudaEventRecord", &event_record},
                  {"cudaEventQuery", &event_query},
                  {"plimsoll_sim_set", &sim_set}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *p = entry(library, wanted[i].name);
        memcpy(wanted[i].slot, &p, sizeof p);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fail("usage: bench_simgpu LIBRARY");
    }
    (void)setenv("PLIMSOLL_SIM_GPU", "1TiB", 1);
    load(argv[1]);
    static const struct {
        const char *name;
        size_t least, most;
        unsigned live;
    } patterns[] = {{"pair", 2 * MIB, 2 * MIB, 1},
                    {"mix", 2 * MIB, 20 * MIB, LIVE},
                    {"small", 512, 65536, LIVE},
                    {"first fit", 2 * MIB, 20 * MIB, LIVE}};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        double ours =
            pattern(cuda_malloc, cuda_free, patterns[i].least, patterns[i].most, patterns[i].live);
        double peer =
            pattern(peer_malloc, peer_free, patterns[i].least, patterns[i].most, patterns[i].live);
        printf("%-9s %7.1f ns a call; glibc malloc %6.1f ns; ratio %.2f\n", patterns[i].name, ours,
               peer, ours / peer);
    }
    printf("%-9s %7.1f ns a call\n", "handles", handles());
    printf("%-9s %7.1f ns a call\n", "events", events());
    return 0;
}
