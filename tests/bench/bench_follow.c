/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What following a plan costs: processor time of a request with its free on the moving allocator's engine, in
 * the second half of a recorded run, when no driver call is made any more. Modes stitch and plan take turns; the
 * best of nine runs counts.
 *
 * Usage: bench_follow SNAPSHOT (tests/data/training/lm-large-bf16.pickle.xz)
 */

#include "alloc/moving.h"
#include "format/snapshot_read.h"
#include "replay/seating.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define RUNS 9

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

struct answer {
    double ns; /* a request and its free */
    struct plim_engine_stats stats;
};

static enum plim_status play(struct plim_moving *m, const struct plim_requests *q, uint64_t *addr,
                             struct answer *out, struct plim_err *err)
{
    double start = 0;
    uint64_t timed = 0;
    for (size_t i = 0; i < q->items.n; i++) {
        const struct plim_request *r = &q->items.items[i];
        enum plim_request_kind kind = plim_request_kind(r);
        start = i == q->items.n / 2 ? now() : start;
        if (kind == PLIM_REQUEST_ALLOC) {
            uint16_t stream = q->lanes.items[plim_request_lane(r)].stream;
            PLIM_TRY(plim_moving_alloc(m, r->size, (uint64_t)q->snapshot->streams.items[stream], 0,
                                       &addr[r->slot], err));
            timed += i >= q->items.n / 2;
        } else if (kind == PLIM_REQUEST_FREE || kind == PLIM_REQUEST_FREE_END) {
            PLIM_TRY(plim_moving_free(m, addr[r->slot], err));
        }
    }
    double ns = (now() - start) / (double)(timed ? timed : 1);
    out->ns = ns < out->ns ? ns : out->ns;
    plim_engine_stats(m->engine, &out->stats);
    return PLIM_OK;
}

static enum plim_status measure(const struct plim_requests *q, const struct plim_seating *plan,
                                struct answer *out, struct plim_err *err)
{
    struct plim_devmodel device;
    struct plim_devmodel_config config = {.total = 80 * PLIM_GIB};
    struct plim_moving_options options = {.plan = plan};
    struct plim_moving m;
    options.rounding.mode = plan ? PLIM_ENGINE_PLAN : PLIM_ENGINE_STITCH;
    uint64_t *addr = calloc((size_t)q->slots + 1, sizeof *addr);
    enum plim_status st =
        addr ? plim_devmodel_init(&device, &config, err) : plim__fail(err, PLIM_E_NOMEM, "memory");
    if (st == PLIM_OK) {
        st = plim_moving_init(&m, &device, &options, err);
        if (st == PLIM_OK) {
            st = play(&m, q, addr, out, err);
            plim_moving_fini(&m);
        }
        plim_devmodel_fini(&device);
    }
    free(addr);
    return st;
}

static enum plim_status run(const char *path, struct plim_err *err)
{
    struct plim_snapshot snapshot;
    struct plim_requests q;
    struct plim_seating plan;
    struct plim_seating_facts facts;
    struct answer stitch = {.ns = 1e9}, planned = {.ns = 1e9};
    PLIM_TRY(plim_snapshot_read_file(path, NULL, &snapshot, err));
    PLIM_TRY(plim_requests_build(&snapshot, plim_requests_busiest(&snapshot), NULL, &q, err));
    PLIM_TRY(plim_seating_make(&q, &plan, &facts, err));
    for (int i = 0; i < RUNS; i++) {
        PLIM_TRY(measure(&q, NULL, &stitch, err));
        PLIM_TRY(measure(&q, &plan, &planned, err));
    }
    printf("stitch %.1f ns, plan %.1f ns for a request and its free; %" PRIu64 " of %" PRIu64
           " at their place\n",
           stitch.ns, planned.ns, planned.stats.placed, planned.stats.allocs);
    plim_seating_free(&plan);
    plim_requests_fini(&q);
    plim_snapshot_fini(&snapshot);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    struct plim_err err = {0};
    if (argc != 2 || run(argv[1], &err) != PLIM_OK) {
        fprintf(stderr, "bench_follow: %s\n",
                argc != 2 ? "usage: bench_follow SNAPSHOT" : err.message);
        return 1;
    }
    return 0;
}
