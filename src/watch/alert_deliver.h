/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_ALERT_DELIVER_H
#define PLIM_WATCH_ALERT_DELIVER_H

/* The alerts of a running monitor: what its threads share. See alert_deliver.c. */

#include "watch/alert_int.h"

#include <limits.h>

/* The thread of the receiver at `slot` of the book, and how it is doing. Under the lock. */
struct plim__alert_worker {
    struct plim_alerts *alerts;
    pthread_t thread;
    size_t slot;
    uint64_t receiver; /* hash of the one that the figures below are about */
    uint64_t sent, failed, dropped;
    unsigned failures, refusals; /* in a row */
    bool one_by_one;             /* a message was refused: find out which alert it is */
    uint64_t batch_mono;         /* since when something is due; 0: nothing */
    uint64_t next_try_mono;
    char error[160]; /* of the last try, "" it worked */
};

struct plim_alerts {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct plim_alert_list list;
    struct plim_alert_book *book; /* counted */
    bool stopping;                /* (atomic) */

    struct plim__alert_worker workers[PLIM_RECEIVERS_MAX];
    size_t n_workers;
    pthread_t keeper;
    bool keeps;         /* there is a keeper */
    bool dirty;         /* the list changed since it was written */
    bool keeping_fails; /* the last writing did not work */
    uint64_t keep_mono; /* not written before */

    char host[256];
    char version[40];
    char *state_path; /* owned, or NULL */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
    void (*sent)(void *arg, bool delivered);
    void *sent_arg;
};

/** plim__alerts_load() - the state file into the list. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__alerts_load(struct plim_alerts *alerts, struct plim_err *err);

/** plim__alerts_start() - threads that are missing for so many receivers. Errors: PLIM_E_OS. */
PLIM_MUST_USE enum plim_status plim__alerts_start(struct plim_alerts *alerts, size_t receivers,
                                                  struct plim_err *err);
void plim__alerts_stop(struct plim_alerts *alerts);
void plim__alert_worker_begin(struct plim__alert_worker *worker, uint64_t receiver);

#endif
