/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast and how small replays are.
 *
 *   replay   nanoseconds of processor time for each trace entry of a recorded workload
 *   tune     seconds for the whole search over it on one thread and on two, by the clock and of processor
 *            time (the machine may be busy with other things)
 *   memory   bytes that a replay takes beyond the requests, for a workload of 2,000 live blocks and for
 *            one that is eight times as long: the ratio should be near 1
 *
 * Usage: bench_replay SNAPSHOT (tests/data/tune/kv-growth.pickle.xz)
 */

#include "format/snapshot_read.h"
#include "replay/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIVE 2000u

static double clock_of(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static enum plim_status time_replay(const struct plim_requests *q, const char *text,
                                    struct plim_err *err)
{
    struct plim_conf conf;
    struct plim_replay_result r = {0};
    double best = 1e9;
    plim_conf_init(&conf, q->conf.version);
    PLIM_TRY(plim_conf_parse(&conf, plim_str_from(text), err));
    struct plim_replay_setup setup = {
        .conf = &conf, .capacity = 24 * PLIM_GIB, .external = 500 * PLIM_MIB};
    for (int i = 0; i < 9; i++) {
        double start = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        PLIM_TRY(plim_replay(q, &setup, &r, err));
        double took = clock_of(CLOCK_PROCESS_CPUTIME_ID) - start;
        best = took < best ? took : best;
    }
    printf("replay  %-28s %6.1f ns for each of %" PRIu64 " entries\n", text[0] ? text : "(default)",
           best * 1e9 / (double)r.events, r.events);
    return PLIM_OK;
}

static enum plim_status time_tune(const struct plim_requests *q, struct plim_err *err)
{
    double took[2], cpu[2];
    size_t runs = 0;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct plim_tune_options options = {.version = q->conf.version,
                                            .capacity = 24 * PLIM_GIB,
                                            .external = 500 * PLIM_MIB,
                                            .threads = threads};
        struct plim_tune tune;
        double start = clock_of(CLOCK_MONOTONIC);
        double start_cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        PLIM_TRY(plim_tune(q, &options, &tune, err));
        took[threads - 1] = clock_of(CLOCK_MONOTONIC) - start;
        cpu[threads - 1] = clock_of(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
        runs = tune.runs.n;
        plim_tune_fini(&tune);
    }
    printf("tune    %zu settings: %.3f s on one thread (%.3f of processor time), %.3f s on two "
           "(%.3f); "
           "%.1f ms of a processor for each\n",
           runs, took[0], cpu[0], took[1], cpu[1], cpu[1] * 1e3 / (double)runs);
    return PLIM_OK;
}

/* SplitMix64 (public domain, Sebastiano Vigna). */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* n requests that keep LIVE blocks alive, as plim_requests_build() would make them. */
static enum plim_status steady(struct plim_requests *q, const struct plim_snapshot *s, size_t n,
                               struct plim_err *err)
{
    uint64_t state = 7;
    *q = (struct plim_requests){.snapshot = s, .slots = LIVE, .complete = true};
    plim_conf_init(&q->conf, PLIM_TORCH_LATEST);
    PLIM_TRY(plim_vec_push(&q->lanes, err, (struct plim_lane){0, 0}));
    PLIM_TRY(plim_vec_reserve(&q->items, n + LIVE + 2, err));
    while (q->items.n < n + LIVE) {
        uint32_t slot = (uint32_t)(q->allocs < LIVE ? q->allocs : random_next(&state) % LIVE);
        if (q->allocs >= LIVE) {
            q->items.items[q->items.n++] = (struct plim_request){0, slot, PLIM_REQUEST_FREE};
        }
        uint64_t size = UINT64_C(512) << random_next(&state) % 15;
        q->items.items[q->items.n++] = (struct plim_request){size, slot, PLIM_REQUEST_ALLOC};
        q->allocs++;
    }
    return PLIM_OK;
}

/* Peak resident KiB of a child that makes the requests, and replays them when told to. */
static long child_peak(const struct plim_snapshot *s, size_t n, bool replay)
{
    struct rusage usage = {0};
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct plim_requests q;
        struct plim_replay_result r;
        int bad = steady(&q, s, n, NULL) != PLIM_OK;
        struct plim_replay_setup setup = {.conf = &q.conf};
        bad = bad || (replay && plim_replay(&q, &setup, &r, NULL) != PLIM_OK);
        _exit(bad);
    }
    return pid > 0 && wait4(pid, NULL, 0, &usage) == pid ? usage.ru_maxrss : -1;
}

static void measure_memory(const struct plim_snapshot *s)
{
    long took[2];
    for (int i = 0; i < 2; i++) {
        size_t n = i == 0 ? 200000 : 1600000;
        took[i] = child_peak(s, n, true) - child_peak(s, n, false);
    }
    printf(
        "memory  %ld KiB for 200,000 requests, %ld KiB for 1,600,000, with %u live blocks each\n",
        took[0], took[1], LIVE);
}

static enum plim_status run(const char *path, struct plim_err *err)
{
    struct plim_snapshot snapshot;
    struct plim_requests q;
    PLIM_TRY(plim_snapshot_read_file(path, NULL, &snapshot, err));
    measure_memory(&snapshot);
    enum plim_status st =
        plim_requests_build(&snapshot, plim_requests_busiest(&snapshot), NULL, &q, err);
    if (st == PLIM_OK) {
        st = time_replay(&q, "", err);
        st = st == PLIM_OK ? time_replay(&q, "expandable_segments:True", err) : st;
        st = st == PLIM_OK ? time_replay(&q, "max_split_size_mb:64", err) : st;
        st = st == PLIM_OK ? time_tune(&q, err) : st;
        plim_requests_fini(&q);
    }
    plim_snapshot_fini(&snapshot);
    return st;
}

int main(int argc, char **argv)
{
    struct plim_err err = {0};
    if (argc != 2 || run(argv[1], &err) != PLIM_OK) {
        fprintf(stderr, "bench_replay: %s\n",
                argc != 2 ? "usage: bench_replay SNAPSHOT" : err.message);
        return 1;
    }
    return 0;
}
