/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates on threads. The work is a list fixed beforehand; a thread takes the next index and writes to
 * that entry only, so the outcome is the same with any number of threads.
 */

#include "replay/tune_int.h"

#include <pthread.h>
#include <stdatomic.h>

#define NEED_STEPS 7 /* of the bisection: within 1 % of the range */

struct crew {
    struct plim__tuner *t;
    const uint32_t *runs; /* indices, or NULL: from, from + 1, ... */
    size_t from;
    size_t n;
    bool needs; /* look for the need, else run */
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock;
    enum plim_status status; /* under lock, with err: of the first candidate that failed */
    size_t failed_at;
    struct plim_err err;
};

static void run_failed(struct crew *c, size_t i, enum plim_status st, const struct plim_err *err)
{
    pthread_mutex_lock(&c->lock);
    if (c->status == PLIM_OK || i < c->failed_at) {
        c->status = st;
        c->failed_at = i;
        c->err = *err;
    }
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->failed, true);
}

/* Least capacity that serves every request, between what is live at most and what is there. */
static enum plim_status find_need(struct plim__tuner *t, struct plim_tune_run *run,
                                  struct plim_err *err)
{
    struct plim_replay_setup setup = run->setup;
    struct plim_replay_result result;
    uint64_t top = plim_add_sat(run->result.peak.reserved, setup.external);
    uint64_t low = plim_add_sat(t->tune->bound.live, setup.external);
    uint64_t high = setup.capacity ? plim_min_u64(setup.capacity, top) : top;
    for (int i = 0; i < NEED_STEPS && low < high; i++) {
        setup.capacity = low + (high - low) / 2;
        PLIM_TRY(plim_replay(t->q, &setup, &result, err));
        if (result.failed || result.start_failed > 0) {
            low = setup.capacity + 1;
        } else {
            high = setup.capacity;
        }
    }
    run->need = high;
    return PLIM_OK;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    while (!atomic_load(&c->failed)) {
        size_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n) {
            break;
        }
        struct plim_tune_run *run = &c->t->tune->runs.items[c->runs ? c->runs[i] : c->from + i];
        struct plim_err err = {0};
        enum plim_status st = c->needs ? find_need(c->t, run, &err)
                                       : plim_replay(c->t->q, &run->setup, &run->result, &err);
        if (st != PLIM_OK) {
            run_failed(c, i, st, &err);
        }
    }
    return NULL;
}

static enum plim_status crew_run(struct crew *c, struct plim_err *err)
{
    pthread_t threads[16];
    unsigned started = 0;
    unsigned wanted = c->t->threads < c->n ? c->t->threads : (unsigned)c->n;
    pthread_mutex_init(&c->lock, NULL);
    while (started + 1 < wanted && started < PLIM_COUNT_OF(threads) &&
           pthread_create(&threads[started], NULL, work, c) == 0) {
        started++;
    }
    work(c); /* this thread works too: all is done even when none could be started */
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&c->lock);
    if (c->status != PLIM_OK && err) {
        *err = c->err;
    }
    return c->status;
}

enum plim_status plim__tune_run(struct plim__tuner *t, size_t from, struct plim_err *err)
{
    struct crew c = {.t = t, .from = from, .n = t->tune->runs.n - from};
    return crew_run(&c, err);
}

enum plim_status plim__tune_needs(struct plim__tuner *t, const uint32_t *runs, size_t n,
                                  struct plim_err *err)
{
    struct crew c = {.t = t, .runs = runs, .n = n, .needs = true};
    return crew_run(&c, err);
}
