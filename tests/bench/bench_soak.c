/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast traffic is soaked.
 *
 *   bench_soak day CONFIG            24 hours of Azure conversation traffic through a paged engine: seconds of
 *                                    one processor
 *   bench_soak stream CONFIG FILE    two minutes through a Hugging Face server; its allocations and frees go
 *                                    to FILE as pairs of 8-byte numbers (piece, bytes; 0 bytes: a free), and
 *                                    the time that the same run takes without FILE is printed
 *
 * bench_soak.py plays FILE to the real PyTorch allocator and prints the ratio.
 */

#include "serving/model.h"
#include "serving/soak.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static double processor_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void write_entry(void *ctx, uint64_t piece, uint64_t bytes)
{
    uint64_t pair[2] = {piece, bytes};
    fwrite(pair, sizeof pair, 1, ctx);
}

static enum plim_status soak(const struct plim_geometry *g, bool day, FILE *file, double *took,
                             struct plim_soak_result *r, struct plim_err *err)
{
    struct plim_flow_source source;
    struct plim_server server;
    struct plim_conf conf;
    bool known;
    uint64_t capacity = day ? 80 * PLIM_GIB : 40 * PLIM_GIB;
    PLIM_TRY(plim_flow_parse(PLIM_STR("azure-conv"), &source, &known, err));
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    plim_server_defaults(&server, day ? PLIM_WORKLOAD_PAGED : PLIM_WORKLOAD_DYNAMIC, g, capacity);
    struct plim_flow_options flow = {
        .sources = &source, .n_sources = 1, .span_ns = UINT64_C(1000000000) * (day ? 86400 : 600)};
    struct plim_soak_setup setup = {.server = &server,
                                    .flow = &flow,
                                    .conf = &conf,
                                    .capacity = capacity,
                                    .external = 500 * PLIM_MIB,
                                    .budget_ns = day ? 0 : UINT64_C(120000000000),
                                    .log = file ? write_entry : NULL,
                                    .log_ctx = file};
    double start = processor_seconds();
    enum plim_status st = plim_soak_run(&setup, r, err);
    *took = processor_seconds() - start;
    return st;
}

static enum plim_status run(int argc, char **argv, struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_model model;
    struct plim_soak_result r;
    double took;
    bool day = strcmp(argv[1], "day") == 0;
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_model_open(&arena, argv[2], NULL, &model, err);
    if (st == PLIM_OK && argc == 4) {
        FILE *file = fopen(argv[3], "wb");
        st = file ? soak(&model.geometry, day, file, &took, &r, err)
                  : plim__fail(err, PLIM_E_CREATE, "cannot write %s", argv[3]);
        if (file && fclose(file) != 0 && st == PLIM_OK) {
            st = plim__fail(err, PLIM_E_IO, "cannot write %s", argv[3]);
        }
    }
    if (st == PLIM_OK) {
        st = soak(&model.geometry, day, NULL, &took, &r, err);
    }
    if (st == PLIM_OK) {
        printf("%.3f %" PRIu64 " %" PRIu64 " %" PRIu64 " %.1f\n", took, r.arrivals, r.steps,
               r.allocations, took * 1e9 / (double)(r.allocations - r.repeated + 1));
    }
    plim_arena_fini(&arena);
    return st;
}

int main(int argc, char **argv)
{
    struct plim_err err = {0};
    if (argc < 3 || argc > 4 || run(argc, argv, &err) != PLIM_OK) {
        fprintf(stderr, "bench_soak: %s\n",
                argc < 3 || argc > 4 ? "usage: bench_soak day|stream CONFIG [FILE]" : err.message);
        return 1;
    }
    return 0;
}
