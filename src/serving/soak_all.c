/* SPDX-License-Identifier: Apache-2.0 */
/* Many runs over a few threads; runs share nothing but what they only read. */

#include "base/num.h"
#include "serving/soak.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct crew {
    const struct plim_soak_plan *plan;
    struct plim_soak_result *out;
    size_t n;
    atomic_size_t next;
    pthread_mutex_t lock;
    enum plim_status status; /* under lock, with err: of the first run that failed */
    size_t failed_at;
    struct plim_err err;
};

static void run_one(struct crew *c, size_t i)
{
    struct plim_soak_setup setup = c->plan->setup;
    struct plim_flow_options flow = *setup.flow;
    struct plim_err err = {0};
    setup.conf = &c->plan->confs[i / c->plan->n_seeds];
    setup.moving = i / c->plan->n_seeds + 1 == c->plan->n_confs ? c->plan->moving : NULL;
    flow.seed = c->plan->first_seed + i % c->plan->n_seeds;
    setup.flow = &flow;
    enum plim_status st = plim_soak_run(&setup, &c->out[i], &err);
    if (st == PLIM_OK) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (c->status == PLIM_OK || i < c->failed_at) {
        c->status = st;
        c->failed_at = i;
        c->err = err;
    }
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->next, c->n);
}

static void *work(void *arg)
{
    struct crew *c = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n) {
            return NULL;
        }
        run_one(c, i);
    }
}

static unsigned wanted_threads(const struct crew *c)
{
    long machine = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned wanted = c->plan->threads;
    if (wanted == 0) {
        wanted = machine > 8 ? 8 : machine > 0 ? (unsigned)machine : 1;
    }
    return wanted < c->n ? wanted : (unsigned)c->n;
}

enum plim_status plim_soak_all(const struct plim_soak_plan *plan, struct plim_soak_result *out,
                               struct plim_err *err)
{
    struct crew c = {.plan = plan, .out = out, .n = plan->n_confs * plan->n_seeds};
    pthread_t threads[64];
    unsigned started = 0, wanted = wanted_threads(&c);
    pthread_mutex_init(&c.lock, NULL);
    while (started + 1 < wanted && started < PLIM_COUNT_OF(threads) &&
           pthread_create(&threads[started], NULL, work, &c) == 0) {
        started++;
    }
    work(&c); /* this thread works too: all is done even when none could be started */
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&c.lock);
    if (c.status != PLIM_OK && err) {
        *err = c.err;
    }
    return c.status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct plim_spread plim_spread_of(double *values, size_t n)
{
    if (n == 0) {
        return (struct plim_spread){0, 0, 0};
    }
    qsort(values, n, sizeof *values, by_value);
    double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (struct plim_spread){values[0], median, values[n - 1]};
}
