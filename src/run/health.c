/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the server whether it works, in a thread: it may take its time to say nothing. */

#include "run/run_int.h"

#include "base/buf.h"
#include "base/clock.h"
#include "http/get.h"

#define ANSWER_MOST (64u << 10)

static void ask(struct plim__health *h)
{
    struct plim_buf answer = {0};
    struct plim_http_get request = {
        .address = h->address, .path = h->path, .timeout_ns = h->timeout_ns, .most = ANSWER_MOST};
    struct plim_err err = {0};
    if (plim_http_get(&request, &answer, &err) == PLIM_OK) {
        atomic_store(&h->misses, 0);
        (void)atomic_fetch_add(&h->good, 1);
    } else {
        (void)atomic_fetch_add(&h->misses, 1);
    }
    plim_buf_fini(&answer);
}

/* Wait until the next question is due; false: stop. */
static bool wait_turn(struct plim__health *h)
{
    uint64_t until = plim_mono_ns() + h->every_ns;
    (void)pthread_mutex_lock(&h->lock);
    bool more = true;
    while (!h->stop && more) {
        more = plim_cond_wait_until(&h->wake, &h->lock, until);
    }
    bool go_on = !h->stop;
    (void)pthread_mutex_unlock(&h->lock);
    return go_on;
}

static void *work(void *arg)
{
    struct plim__health *h = arg;
    do {
        ask(h);
    } while (wait_turn(h));
    return NULL;
}

enum plim_status plim__health_start(struct plim__health *h, struct plim_err *err)
{
    atomic_store(&h->misses, 0);
    atomic_store(&h->good, 0);
    h->stop = false;
    (void)pthread_mutex_init(&h->lock, NULL);
    plim_cond_init(&h->wake);
    int code = pthread_create(&h->thread, NULL, work, h);
    if (code != 0) {
        return plim__fail_errno(err, PLIM_E_OS, code, "no thread to ask for health");
    }
    h->started = true;
    return PLIM_OK;
}

void plim__health_stop(struct plim__health *h)
{
    if (!h->started) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    h->stop = true;
    (void)pthread_cond_signal(&h->wake);
    (void)pthread_mutex_unlock(&h->lock);
    (void)pthread_join(h->thread, NULL);
    (void)pthread_cond_destroy(&h->wake);
    (void)pthread_mutex_destroy(&h->lock);
    h->started = false;
}
