/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Delivery: one thread for each receiver, one that keeps the state file, and the lock between them and the loop.
 *
 * A receiver's thread looks which alerts it owes (plim__alert_due), waits a little for others to come along, copies
 * them, sends without the lock, and notes what was told. When that fails it tries again, after twice the time
 * each try, up to five minutes, with jitter, and then with whatever is owed by then.
 */

#include "watch/alert_deliver.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKOFF_MAX  (300 * PLIM_SECOND_NS)
#define KEEP_EACH    PLIM_SECOND_NS        /* the state file is written once in so long at most */
#define KEEP_RETRY   (10 * PLIM_SECOND_NS) /* after the state file could not be written */
#define WAIT_MAX     (60 * PLIM_SECOND_NS)
#define REFUSALS_MAX 5u /* then a message that is refused alone is dropped */
#define STATE_MAX    (UINT64_C(16) << 20)
#define STACK_BYTES  (256u << 10)

/* ---- log ---- */

static void tell(const struct plim_alerts *a, const char *what, const char *name, const char *why)
{
    char text[600];
    snprintf(text, sizeof(text), "%s %.200s%s%s", what, name, why[0] ? ": " : "", why);
    a->tell(a->tell_arg, text);
}

static void wait_until(struct plim_alerts *a, uint64_t mono)
{
    (void)plim_cond_wait_until(&a->changed, &a->lock, mono);
}

static bool stopping(const struct plim_alerts *a)
{
    return __atomic_load_n(&a->stopping, __ATOMIC_ACQUIRE);
}

/* ---- books ---- */

static struct plim_alert_book *take_book(struct plim_alerts *a)
{
    a->book->holders++;
    return a->book;
}

/* Under the lock. */
static void drop_book(struct plim_alert_book *book)
{
    if (--book->holders == 0) {
        plim__alert_book_free(book);
    }
}

/* ---- what a receiver is owed ---- */

static bool same_group(enum plim_alert_group group, const struct plim_alert *a,
                       const struct plim_alert *b)
{
    switch (group) {
    case PLIM_GROUP_ALL:
        return true;
    case PLIM_GROUP_RULE:
        return strcmp(a->rule, b->rule) == 0;
    case PLIM_GROUP_DEVICE:
        return strcmp(a->subject.device_uuid, b->subject.device_uuid) == 0;
    default:
        return false;
    }
}

/* Copies of the alerts that make the next message in `batch`; *next: when the next one will be due. */
static size_t collect(const struct plim_alerts *a, const struct plim_receiver *r, size_t most,
                      struct plim_alert *batch, uint64_t *next)
{
    uint64_t now = plim_wall_ns();
    size_t n = 0;
    *next = UINT64_MAX;
    plim_vec_foreach (alert, &a->list.alerts) {
        uint64_t due = plim__alert_due(&a->list, a->book, *alert, r, now);
        if (due > now) {
            *next = plim_min_u64(*next, due);
        } else if (n < most && (n == 0 || same_group(r->group, &batch[0], *alert))) {
            batch[n++] = **alert;
        }
    }
    return n;
}

static void note_told(struct plim_alerts *a, const struct plim_receiver *r,
                      const struct plim_alert *batch, size_t n)
{
    uint64_t now = plim_wall_ns();
    for (size_t i = 0; i < n; i++) {
        plim_vec_foreach (alert, &a->list.alerts) {
            if ((*alert)->fingerprint == batch[i].fingerprint) {
                plim__alert_tell(*alert, &batch[i], r->hash, now);
            }
        }
    }
    a->dirty = true;
    (void)pthread_cond_broadcast(&a->changed);
}

static uint64_t back_off(unsigned failures, uint64_t asked_ns)
{
    unsigned doublings = failures < 10 ? failures : 10;
    uint64_t ns = plim_min_u64(PLIM_SECOND_NS << (doublings > 0 ? doublings - 1 : 0), BACKOFF_MAX);
    ns = ns / 2 + plim_hash_u64(plim_mono_ns()) % ns; /* from half to one and a half */
    return plim_max_u64(ns, asked_ns);
}

/* A try is over. */
static void settle(struct plim__alert_worker *w, const struct plim_receiver *r,
                   const struct plim_alert *batch, size_t n, enum plim_status st, uint64_t asked_ns,
                   const struct plim_err *err)
{
    struct plim_alerts *a = w->alerts;
    w->refusals = st == PLIM_E_DATA ? w->refusals + 1 : 0;
    bool drop = st == PLIM_E_DATA && n == 1 && w->refusals >= REFUSALS_MAX;
    if (st == PLIM_OK || drop) {
        note_told(a, r, batch, n);
    }
    if (st == PLIM_OK) {
        if (w->failures > 0) {
            tell(a, "alerts are delivered again to", r->name, "");
        }
        w->failures = 0;
        w->error[0] = '\0';
        w->sent++;
        w->one_by_one = false;
    } else {
        if (w->failures == 0 || drop) {
            tell(a,
                 drop ? "an alert is dropped, as it is refused by" : "alerts are not delivered to",
                 r->name, err->message);
        }
        snprintf(w->error, sizeof(w->error), "%.159s", err->message);
        w->failures++;
        w->failed++;
        w->dropped += drop;
        w->refusals = drop ? 0 : w->refusals;
        w->one_by_one = st == PLIM_E_DATA;
        w->next_try_mono = plim_mono_ns() + back_off(w->failures, asked_ns);
    }
    if (a->sent != NULL) {
        a->sent(a->sent_arg, st == PLIM_OK);
    }
}

/* Send one batch, without the lock. */
static void send_batch(struct plim__alert_worker *w, struct plim_alert_book *book,
                       const struct plim_receiver *r, const struct plim_alert *batch, size_t n)
{
    struct plim_alerts *a = w->alerts;
    struct plim_err err = {0};
    uint64_t asked_ns = 0;
    struct plim_alert_message m = {.receiver = r,
                                   .book = book,
                                   .host = a->host,
                                   .version = a->version,
                                   .time_ns = plim_wall_ns(),
                                   .alerts = batch,
                                   .n = n,
                                   .stopping = &a->stopping};
    (void)pthread_mutex_unlock(&a->lock);
    enum plim_status st = plim__alert_send(&m, &asked_ns, &err);
    (void)pthread_mutex_lock(&a->lock);
    settle(w, r, batch, n, st, asked_ns, &err);
}

enum plim_status plim__alert_send(const struct plim_alert_message *m, uint64_t *wait_ns,
                                  struct plim_err *err)
{
    const struct plim_receiver *r = m->receiver;
    if (r->kind == PLIM_RECEIVER_SCRIPT) {
        return plim__alert_script(m, err);
    }
    return r->kind == PLIM_RECEIVER_EMAIL ? plim__alert_sendmail(m, err)
                                          : plim__alert_post(m, wait_ns, err);
}

/* ---- a receiver's thread ---- */

static void worker_turn(struct plim__alert_worker *w, struct plim_alert *batch)
{
    struct plim_alerts *a = w->alerts;
    uint64_t mono = plim_mono_ns();
    if (w->slot >= a->book->receivers.n) {
        wait_until(a, mono + WAIT_MAX);
        return;
    }
    const struct plim_receiver *r = &a->book->receivers.items[w->slot];
    if (w->receiver != r->hash) {
        plim__alert_worker_begin(w, r->hash);
    }
    uint64_t next = UINT64_MAX;
    size_t most = w->one_by_one || r->group == PLIM_GROUP_NONE ? 1 : PLIM_ALERT_BATCH;
    size_t n = collect(a, r, most, batch, &next);
    if (n == 0) {
        uint64_t now = plim_wall_ns();
        w->batch_mono = 0;
        wait_until(a,
                   mono + plim_min_u64(next != UINT64_MAX ? plim_sub_sat(next, now) + 1 : WAIT_MAX,
                                       WAIT_MAX));
        return;
    }
    w->batch_mono = w->batch_mono != 0 ? w->batch_mono : mono;
    uint64_t start = plim_max_u64(w->batch_mono + r->group_wait_ns, w->next_try_mono);
    if (mono < start) {
        wait_until(a, start);
        return;
    }
    struct plim_alert_book *book = take_book(a);
    send_batch(w, book, r, batch, n);
    drop_book(book);
}

static void *worker_main(void *arg)
{
    struct plim__alert_worker *w = arg;
    struct plim_alerts *a = w->alerts;
    struct plim_alert *batch = calloc(PLIM_ALERT_BATCH, sizeof(*batch));
    (void)pthread_mutex_lock(&a->lock);
    if (batch == NULL) {
        a->tell(a->tell_arg, "no memory to send alerts");
    }
    while (batch != NULL && !stopping(a)) {
        worker_turn(w, batch);
    }
    (void)pthread_mutex_unlock(&a->lock);
    free(batch);
    return NULL;
}

/* ---- the state file ---- */

static void keep(struct plim_alerts *a)
{
    struct plim_buf text = {0};
    struct plim_err err = {0};
    a->dirty = false;
    plim__alert_state_write(&a->list, &text);
    (void)pthread_mutex_unlock(&a->lock);
    enum plim_status st = plim_buf_status(&text, &err);
    if (st == PLIM_OK) {
        st = plim_file_replace(a->state_path, plim_buf_str(&text), &err);
    }
    plim_buf_fini(&text);
    (void)pthread_mutex_lock(&a->lock);
    if (st != PLIM_OK && !a->keeping_fails) {
        tell(a, "the alerts' state is not kept in", a->state_path, err.message);
    } else if (st == PLIM_OK && a->keeping_fails) {
        tell(a, "the alerts' state is kept again in", a->state_path, "");
    }
    a->dirty = a->dirty || st != PLIM_OK;
    a->keeping_fails = st != PLIM_OK;
}

static void *keeper_main(void *arg)
{
    struct plim_alerts *a = arg;
    (void)pthread_mutex_lock(&a->lock);
    while (!stopping(a)) {
        if (a->dirty && plim_mono_ns() >= a->keep_mono) {
            keep(a);
            a->keep_mono = plim_mono_ns() + (a->keeping_fails ? KEEP_RETRY : KEEP_EACH);
        } else {
            wait_until(a, a->dirty ? a->keep_mono : plim_mono_ns() + WAIT_MAX);
        }
    }
    if (a->dirty) {
        keep(a);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* The state that a run before left; what cannot be read is set aside. */
static enum plim_status load(struct plim_alerts *a, struct plim_err *err)
{
    struct plim_str text = {0};
    struct plim_err why = {0};
    char aside[PATH_MAX + 8];
    enum plim_status st = plim_file_read(a->state_path, STATE_MAX, &text, &why);
    if (st == PLIM_E_NOINPUT && access(a->state_path, F_OK) != 0) {
        return PLIM_OK;
    }
    if (st == PLIM_OK) {
        st = plim__alert_state_read(text, &a->list, &why);
        free((void *)(uintptr_t)text.p);
    }
    if (st == PLIM_E_NOMEM) {
        return plim__fail(err, st, "%s", why.message);
    }
    if (st != PLIM_OK) {
        snprintf(aside, sizeof(aside), "%s.bad", a->state_path);
        bool moved = rename(a->state_path, aside) == 0;
        tell(a,
             moved ? "the alerts' state is set aside as .bad:" : "the alerts' state is left out:",
             a->state_path, why.message);
    }
    return PLIM_OK;
}

/* ---- threads ---- */

void plim__alert_worker_begin(struct plim__alert_worker *w, uint64_t receiver)
{
    w->receiver = receiver;
    w->sent = w->failed = w->dropped = w->batch_mono = w->next_try_mono = 0;
    w->failures = w->refusals = 0;
    w->one_by_one = false;
    w->error[0] = '\0';
}

static bool start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;
    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool good = pthread_create(thread, &attr, body, arg) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return good;
}

enum plim_status plim__alerts_start(struct plim_alerts *a, size_t receivers, struct plim_err *err)
{
    if (a->state_path != NULL && !a->keeps) {
        a->keeps = start(&a->keeper, keeper_main, a);
        if (!a->keeps) {
            return plim__fail(err, PLIM_E_OS, "no thread for the state of alerts");
        }
    }
    while (a->n_workers < receivers) {
        struct plim__alert_worker *w = &a->workers[a->n_workers];
        *w = (struct plim__alert_worker){.alerts = a, .slot = a->n_workers};
        if (!start(&w->thread, worker_main, w)) {
            return plim__fail(err, PLIM_E_OS, "no thread for a receiver of alerts");
        }
        a->n_workers++;
    }
    return PLIM_OK;
}

enum plim_status plim__alerts_load(struct plim_alerts *a, struct plim_err *err)
{
    return a->state_path != NULL ? load(a, err) : PLIM_OK;
}

/* The receivers first, so that the keeper writes what the last of them told. */
void plim__alerts_stop(struct plim_alerts *a)
{
    (void)pthread_mutex_lock(&a->lock);
    __atomic_store_n(&a->stopping, true, __ATOMIC_RELEASE);
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
    for (size_t i = 0; i < a->n_workers; i++) {
        (void)pthread_join(a->workers[i].thread, NULL);
    }
    if (a->keeps) {
        (void)pthread_join(a->keeper, NULL);
        (void)pthread_mutex_lock(&a->lock);
        if (a->dirty) {
            keep(a);
        }
        (void)pthread_mutex_unlock(&a->lock);
    }
}
