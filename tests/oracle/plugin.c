/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side of libplimsoll_alloc.so, for its speed only: requests and frees through the functions that
 * PyTorch would call, on the simulated device. Whether it does the right thing is tested elsewhere
 * (tests/unit/test_engine.c, tests/integration/test_alloc.py). PLIMSOLL_ALLOC_LIBRARY names the library.
 */

#include "workload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *(*serve)(size_t size, int device, void *stream);
static void (*give)(void *ptr, size_t size, int device, void *stream);
static void *blocks[OW_SLOTS];
static size_t sizes[OW_SLOTS];

static void *find(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

void side_open(const struct ow_config *config)
{
    const char *path = getenv("PLIMSOLL_ALLOC_LIBRARY");
    void *library = dlopen(path ? path : "libplimsoll_alloc.so", RTLD_NOW);
    void *found = find(library, "plimsoll_pool_alloc");
    memcpy(&serve, &found, sizeof found);
    found = find(library, "plimsoll_free");
    memcpy(&give, &found, sizeof found);
    if (!config->bench) {
        fprintf(stderr, "this side has no logs: bench=1\n");
        exit(64);
    }
}

void side_close(void)
{
    fflush(stdout);
    _Exit(0);
}

bool side_alloc(unsigned slot, uint64_t size, unsigned stream, unsigned pool)
{
    (void)stream;
    (void)pool;
    sizes[slot] = size;
    blocks[slot] = serve(size, 0, NULL);
    return blocks[slot] != NULL;
}

void side_free(unsigned slot)
{
    give(blocks[slot], sizes[slot], 0, NULL);
}

/* Operations that a bench does not have. */
void side_record(unsigned slot, unsigned stream)
{
    (void)slot, (void)stream;
}
void side_empty(unsigned pool)
{
    (void)pool;
}
void side_fraction(double fraction)
{
    (void)fraction;
}
void side_conf(const char *text)
{
    (void)text;
}
void side_advance(uint64_t ticks)
{
    (void)ticks;
}
void side_pool_new(unsigned pool, bool overflow, bool no_split)
{
    (void)pool, (void)overflow, (void)no_split;
}
void side_pool_drop(unsigned pool)
{
    (void)pool;
}
void side_capture(unsigned stream, unsigned pool, bool begin)
{
    (void)stream, (void)pool, (void)begin;
}
void side_reset(bool peaks)
{
    (void)peaks;
}
void side_stats(void)
{
}
void side_snapshot(void)
{
}
void side_settings(const char *text)
{
    (void)text;
}
