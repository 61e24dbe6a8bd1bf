/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several runs and one judgement. See answer.h.
 *
 * The search for the smallest card runs the program on the largest size first. What it allocated at its
 * peak and the context are a lower bound for every card; above it the sizes of real cards are bisected,
 * each by a run, since an allocator short of memory gives back what it cached and may fit all the same.
 */

#include "dryrun/answer.h"

#include "base/file.h"
#include "base/intern.h"
#include "base/num.h"
#include "format/snapshot_read.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Sizes in which cards are sold, GiB. CUDA reports about 1.5 % less (runtime/simgpu/cards.def). */
static const uint32_t sold[] = {4,  6,  8,  10, 11, 12, 16,  20,  24,
                                32, 40, 48, 64, 80, 96, 141, 180, 288};

static uint64_t usable(uint32_t gib)
{
    return ((uint64_t)gib * 1009) << 20; /* of 1024 MiB */
}

uint64_t plim_dryrun_headroom(const struct plim_dryrun_run *run)
{
    return run->total > run->device_peak ? run->total - run->device_peak : 0;
}

static const struct plim_dryrun_process *main_process(const struct plim_dryrun_run *run)
{
    return run->main == PLIM_NO_ID ? NULL : &run->processes.items[run->main];
}

/* The process whose failure ended the run, if any; else the one with the highest peak. */
static const struct plim_dryrun_process *failed_process(const struct plim_dryrun_run *run)
{
    for (uint32_t i = 0; i < run->processes.n; i++) {
        if (run->processes.items[i].oom_snapshot != NULL) {
            return &run->processes.items[i];
        }
    }
    return main_process(run);
}

/* ---- judging one run's snapshot */

static struct plim_amount measured(uint64_t bytes)
{
    return (struct plim_amount){bytes, PLIM_HOW_MEASURED};
}

static struct plim_diagnose_options options_for(const struct plim_dryrun_run *run,
                                                const struct plim_dryrun_process *p, bool oom)
{
    struct plim_diagnose_options o = {.device = PLIM_NO_ID,
                                      .moment = oom ? PLIM_MOMENT_AUTO : PLIM_MOMENT_PEAK};
    uint64_t free_bytes = oom ? p->oom_free : p->device_free;
    uint64_t reserved = oom ? p->oom_reserved : p->reserved;
    if (p->device_total == 0) {
        return o;
    }
    o.facts.total = measured(p->device_total);
    if (free_bytes + reserved <= p->device_total) {
        uint64_t outside = p->device_total - free_bytes - reserved;
        uint64_t others = plim_min_u64(run->external, outside);
        o.facts.external = measured(outside);
        o.facts.others = measured(others);
        o.facts.process_other = measured(outside - others);
    }
    if (oom) {
        o.facts.free = measured(p->oom_free);
    }
    return o;
}

static bool judge(struct plim_dryrun_answer *a, uint32_t index, const char **path)
{
    const struct plim_dryrun_run *run = &a->runs.items[index];
    bool oom = run->outcome == PLIM_DRYRUN_OUT_OF_MEMORY;
    const struct plim_dryrun_process *p = oom ? failed_process(run) : main_process(run);
    struct plim_read_limits limits = {0};
    *path = p == NULL ? NULL : oom && p->oom_snapshot != NULL ? p->oom_snapshot : p->snapshot;
    if (*path == NULL || plim_snapshot_read_file(*path, &limits, &a->snapshot, NULL) != PLIM_OK) {
        return false;
    }
    struct plim_diagnose_options o = options_for(run, p, oom && p->oom_snapshot != NULL);
    if (plim_diagnose(&a->snapshot, &o, &a->diagnosis, NULL) != PLIM_OK) {
        plim_snapshot_fini(&a->snapshot);
        return false;
    }
    return true;
}

static enum plim_status copy_file(const char *from, const char *to, struct plim_err *err)
{
    struct plim_mapping map;
    PLIM_TRY(plim_file_map(from, &map, err));
    enum plim_status st =
        plim_file_replace(to, (struct plim_str){map.p == NULL ? "" : map.p, map.n}, err);
    plim_file_unmap(&map);
    return st;
}

/* ---- runs */

static enum plim_status add_run(struct plim_dryrun_answer *a, const struct plim_dryrun_setup *setup,
                                struct plim_arena *arena, struct plim_err *err)
{
    struct plim_dryrun_run run;
    PLIM_TRY(plim_dryrun_run(setup, arena, &run, err));
    enum plim_status st = plim_vec_push(&a->runs, err, run);
    if (st != PLIM_OK) {
        plim_dryrun_clean(&run);
    }
    return st;
}

static enum plim_status run_confs(struct plim_dryrun_answer *a, struct plim_arena *arena,
                                  struct plim_err *err)
{
    struct plim_dryrun_setup setup = a->ask.setup;
    for (size_t i = 0; i < a->ask.n_confs; i++) {
        setup.conf = a->ask.confs[i];
        PLIM_TRY(add_run(a, &setup, arena, err));
    }
    return a->ask.n_confs == 0 ? add_run(a, &setup, arena, err) : PLIM_OK;
}

/* Run on the i-th size sold; the properties are those of the card that was asked for. */
static enum plim_status run_size(struct plim_dryrun_answer *a, uint32_t i, struct plim_arena *arena,
                                 bool *fits, struct plim_err *err)
{
    struct plim_dryrun_setup setup = a->ask.setup;
    const char *end = strchr(setup.gpu, '@');
    int n = (int)(end == NULL ? strlen(setup.gpu) : (size_t)(end - setup.gpu));
    bool named = plim_dryrun_is_card(setup.gpu, (size_t)n);
    setup.gpu = plim_arena_sayf(arena, "%.*s%s%lluMiB", named ? n : 0, setup.gpu, named ? "@" : "",
                                (unsigned long long)(usable(sold[i]) >> 20));
    PLIM_TRY(add_run(a, &setup, arena, err));
    struct plim_dryrun_run *run = &a->runs.items[a->runs.n - 1];
    run->nominal_gib = sold[i];
    *fits = plim_dryrun_fits(run);
    if (*fits) {
        a->smallest = (uint32_t)a->runs.n - 1;
    }
    return PLIM_OK;
}

static enum plim_status find_smallest(struct plim_dryrun_answer *a, struct plim_arena *arena,
                                      struct plim_err *err)
{
    uint32_t low = 0, high = PLIM_COUNT_OF(sold) - 1;
    bool fits;
    PLIM_TRY(run_size(a, high, arena, &fits, err));
    if (!fits) {
        return PLIM_OK;
    }
    const struct plim_dryrun_run *first = &a->runs.items[0];
    const struct plim_dryrun_process *p = main_process(first);
    a->floor = first->context + first->external + (p == NULL ? 0 : p->peak_allocated);
    while (low < high && usable(sold[low]) < a->floor) {
        low++;
    }
    while (low < high) { /* sizes from `high` on fit */
        uint32_t middle = low + (high - low) / 2;
        PLIM_TRY(run_size(a, middle, arena, &fits, err));
        if (fits) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return PLIM_OK;
}

/* The run worth explaining: the last that did not fit, or the last. */
static uint32_t interesting(const struct plim_dryrun_answer *a)
{
    if (a->ask.find_smallest && a->smallest != PLIM_NO_ID) {
        return a->smallest;
    }
    for (uint32_t i = (uint32_t)a->runs.n; i-- > 0;) {
        if (a->runs.items[i].outcome == PLIM_DRYRUN_OUT_OF_MEMORY) {
            return i;
        }
    }
    return (uint32_t)a->runs.n - 1;
}

enum plim_status plim_dryrun_answer(const struct plim_dryrun_ask *ask, struct plim_arena *arena,
                                    struct plim_dryrun_answer *out, struct plim_err *err)
{
    const char *path = NULL;
    *out = (struct plim_dryrun_answer){.ask = *ask, .judged = PLIM_NO_ID, .smallest = PLIM_NO_ID};
    enum plim_status st =
        ask->find_smallest ? find_smallest(out, arena, err) : run_confs(out, arena, err);
    if (st == PLIM_OK) {
        uint32_t index = interesting(out);
        out->judged = judge(out, index, &path) ? index : PLIM_NO_ID;
        if (path != NULL && ask->snapshot != NULL) {
            st = copy_file(path, ask->snapshot, err);
        }
    }
    for (uint32_t i = 0; i < out->runs.n; i++) {
        out->runs.items[i].has_snapshot =
            path != NULL && ask->snapshot != NULL && i == interesting(out);
    }
    if (st != PLIM_OK) {
        plim_dryrun_answer_fini(out);
    }
    return st;
}

void plim_dryrun_answer_fini(struct plim_dryrun_answer *a)
{
    for (uint32_t i = 0; i < a->runs.n; i++) {
        plim_dryrun_clean(&a->runs.items[i]);
    }
    plim_vec_fini(&a->runs);
    if (a->judged != PLIM_NO_ID) {
        plim_diagnosis_fini(&a->diagnosis);
        plim_snapshot_fini(&a->snapshot);
        a->judged = PLIM_NO_ID;
    }
}
