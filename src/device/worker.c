/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A thread that asks a driver, and that can be left behind. Worker and owner share one struct,
 * freed by whoever lets go of it last. The worker fills its own sample; the owner copies it when it
 * is done.
 */

#include "base/clock.h"
#include "base/num.h"
#include "device/sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum stage {
    IDLE,
    ASKED, /* or being answered */
    ANSWERED,
    ENDING
};

struct plim_worker {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    enum stage stage;
    bool late; /* the owner gave up on the present question */
    int holders;
    enum plim_status st;
    struct plim_sample answer; /* the worker's own while ASKED */
    /* Of the thread alone: */
    const struct plim_vendor *vendor;
    const struct plim_world *world;
    char *script; /* owned, or NULL */
    void *self;   /* NULL: not open */
};

static void let_go(struct plim_worker *w)
{
    (void)pthread_mutex_lock(&w->lock);
    bool last = --w->holders == 0;
    (void)pthread_mutex_unlock(&w->lock);
    if (last) {
        plim_sample_fini(&w->answer);
        free(w->script);
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->lock);
        free(w);
    }
}

static void answer(struct plim_worker *w)
{
    enum plim_status st = PLIM_OK;
    plim_sample_reset(&w->answer);
    if (w->self == NULL) {
        st = w->vendor->open(w->world, w->script, &w->self, NULL);
        w->self = st == PLIM_OK ? w->self : NULL;
    }
    w->st = st == PLIM_OK ? w->vendor->sample(w->self, &w->answer, NULL) : st;
}

static void *work(void *argument)
{
    struct plim_worker *w = argument;
    (void)pthread_mutex_lock(&w->lock);
    while (w->stage != ENDING) {
        if (w->stage != ASKED) {
            (void)pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&w->lock);
        answer(w);
        (void)pthread_mutex_lock(&w->lock);
        w->stage = w->stage == ASKED ? ANSWERED : w->stage;
        (void)pthread_cond_broadcast(&w->changed);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (w->self != NULL) {
        w->vendor->close(w->self);
    }
    let_go(w);
    return NULL;
}

/* A detached thread that takes no signals: they are for the program's own threads. */
static int start(struct plim_worker *w)
{
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&thread, NULL, work, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e != 0 ? e : pthread_detach(thread);
}

enum plim_status plim__worker_new(const struct plim_vendor *vendor, const struct plim_world *world,
                                  const char *script, struct plim_worker **out,
                                  struct plim_err *err)
{
    struct plim_worker *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a worker");
    }
    *w = (struct plim_worker){.vendor = vendor, .world = world, .holders = 2};
    (void)pthread_mutex_init(&w->lock, NULL);
    plim_cond_init(&w->changed);
    w->script = script != NULL ? strdup(script) : NULL;
    int e = script != NULL && w->script == NULL ? ENOMEM : start(w);
    if (e != 0) {
        w->holders = 1;
        let_go(w);
        return plim__fail_errno(err, PLIM_E_OS, e, "cannot start a thread for %s", vendor->name);
    }
    *out = w;
    return PLIM_OK;
}

/* Move what the worker found to the owner's sample: device indices shift by what is there already.
 * */
static enum plim_status append(struct plim_sample *out, const struct plim_sample *from)
{
    uint32_t base = (uint32_t)out->devices.n;
    for (size_t i = 0; i < from->devices.n; i++) {
        struct plim_device_sample d = from->devices.items[i];
        d.parent = d.parent == PLIM_NO_PARENT ? d.parent : d.parent + base;
        PLIM_TRY(plim_vec_push(&out->devices, NULL, d));
    }
    for (size_t i = 0; i < from->uses.n; i++) {
        struct plim_process_use use = from->uses.items[i];
        use.device += base;
        PLIM_TRY(plim_vec_push(&out->uses, NULL, use));
    }
    for (size_t i = 0; i < from->processes.n; i++) {
        PLIM_TRY(plim_vec_push(&out->processes, NULL, from->processes.items[i]));
    }
    out->time_ns = from->time_ns != 0 ? from->time_ns : out->time_ns;
    out->host_total = from->host_total != 0 ? from->host_total : out->host_total;
    out->host_available = from->host_total != 0 ? from->host_available : out->host_available;
    return PLIM_OK;
}

bool plim__worker_ask(struct plim_worker *w, uint64_t timeout_ns, struct plim_sample *out,
                      enum plim_status *st)
{
    (void)pthread_mutex_lock(&w->lock);
    if (w->late && w->stage == ANSWERED) {
        w->stage = IDLE; /* an answer that nobody waited for: what it says is old */
        w->late = false;
    }
    if (w->stage == IDLE) {
        uint64_t until = plim_add_sat(plim_mono_ns(), timeout_ns);
        w->stage = ASKED;
        (void)pthread_cond_broadcast(&w->changed);
        bool more = true;
        while (w->stage == ASKED && more) {
            more = plim_cond_wait_until(&w->changed, &w->lock, until);
        }
    }
    bool answered = w->stage == ANSWERED;
    if (answered) {
        *st = w->st == PLIM_OK ? append(out, &w->answer) : w->st;
        w->stage = IDLE;
    } else {
        w->late = true;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return answered;
}

void plim__worker_drop(struct plim_worker *w)
{
    if (w == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&w->lock);
    w->stage = ENDING;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    let_go(w);
}
