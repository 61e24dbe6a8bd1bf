/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the allocator model serves requests: nanoseconds for each call (an allocation or a free).
 *
 *   repeat  allocate and free one size, over and over
 *   mix     2,000 live blocks, sizes log-uniform from 512 bytes to 16 MiB; free a random one, allocate
 *   small   the same with sizes up to 1 MiB
 *
 * The operation list is made before the clock starts. tests/oracle/bench_real.py runs the same three
 * lists on the real allocator and prints the ratio. Usage: bench_alloc [operations]
 */

#include "alloc/torch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

struct op {
    uint32_t slot; /* block to free (when it is live) and to allocate anew */
    uint64_t size;
};

struct load {
    const char *name;
    uint32_t slots;
    double low_bits;
    double high_bits;
};

static const struct load loads[] = {
    {"repeat", 1, 22, 22},
    {"mix", 2000, 9, 24},
    {"small", 2000, 9, 20},
};

/* SplitMix64 (public domain, Sebastiano Vigna), as in tests/oracle/bench_real.cpp. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void ops_fill(const struct load *load, struct op *ops, size_t n)
{
    uint64_t state = 42;
    for (size_t i = 0; i < n; i++) {
        double u = (double)(random_next(&state) >> 11) * 0x1p-53;
        ops[i].slot = (uint32_t)(random_next(&state) % load->slots);
        ops[i].size = (uint64_t)exp2(load->low_bits + u * (load->high_bits - load->low_bits));
    }
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static enum plim_status run(struct plim_torch *t, const struct op *ops, size_t n, uint64_t *blocks,
                            uint64_t *calls, struct plim_err *err)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t *block = &blocks[ops[i].slot];
        if (*block != PLIM_TORCH_NONE) {
            PLIM_TRY(plim_torch_free(t, *block, err));
            ++*calls;
        }
        PLIM_TRY(plim_torch_alloc(t, ops[i].size, 0, PLIM_TORCH_POOL_DEFAULT, block, err));
        ++*calls;
    }
    return PLIM_OK;
}

static enum plim_status measure(const struct load *load, size_t n, struct plim_err *err)
{
    static uint64_t blocks[2000];
    struct plim_conf conf;
    struct plim_devmodel device;
    struct plim_torch *t = NULL;
    struct op *ops = malloc(n * sizeof *ops);
    struct plim_devmodel_config dc = {.total = 80 * PLIM_GIB};
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    struct plim_torch_config tc = {.version = PLIM_TORCH_LATEST, .conf = &conf, .device = &device};
    memset(blocks, 0, sizeof blocks);
    if (!ops) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu operations", n);
    }
    ops_fill(load, ops, n);
    PLIM_TRY(plim_devmodel_init(&device, &dc, err));
    PLIM_TRY(plim_torch_new(&tc, &t, err));
    uint64_t calls = 0;
    PLIM_TRY(run(t, ops, n / 4, blocks, &calls, err)); /* fill the heap */
    calls = 0;
    double start = seconds();
    PLIM_TRY(run(t, ops + n / 4, n - n / 4, blocks, &calls, err));
    double ns = (seconds() - start) * 1e9;
    printf("%-8s %8.1f ns/call  (%" PRIu64 " calls, %.1f MiB reserved)\n", load->name,
           ns / (double)calls, calls, (double)plim_torch_gauges(t).reserved / (double)PLIM_MIB);
    plim_torch_delete(t);
    plim_devmodel_fini(&device);
    free(ops);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 2000000;
    for (size_t i = 0; i < PLIM_COUNT_OF(loads); i++) {
        struct plim_err err = {0};
        if (measure(&loads[i], n, &err) != PLIM_OK) {
            fprintf(stderr, "bench_alloc: %s\n", err.message);
            return 1;
        }
    }
    return 0;
}
