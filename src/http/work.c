/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers: a thread that runs the handlers of slow routes, one after another, so that scrapes
 * never wait for a query; and one for those that may take seconds. The first one also ends, once a
 * second, the connections that are late. They sleep while there are neither jobs nor connections.
 */

#include "http/http_int.h"

#include "base/clock.h"

#include <sys/socket.h>

bool plim__may_suspend(const struct plim__listener *listener, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    return !listener->http->stopping && info && info->daemon != listener->dying;
}

bool plim__job_add(struct plim__exchange *ex)
{
    struct plim_http *http = ex->http;
    bool takes_long = (ex->route->flags & PLIM_HTTP_LONG) != 0;
    struct plim__worker *worker = &http->workers[takes_long ? PLIM__LANE_LONG : PLIM__LANE_SLOW];
    (void)pthread_mutex_lock(&http->lock);
    bool room = worker->n_jobs < PLIM__HTTP_JOBS && plim__may_suspend(ex->listener, ex->connection);
    if (room) {
        struct plim__exchange **last = &worker->jobs;
        while (*last) {
            last = &(*last)->next;
        }
        *last = ex;
        worker->n_jobs++;
        MHD_suspend_connection(ex->connection);
        (void)pthread_cond_broadcast(&http->changed);
    }
    (void)pthread_mutex_unlock(&http->lock);
    return room;
}

static bool is_of(const struct plim__exchange *ex, const struct MHD_Daemon *daemon)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(ex->connection, MHD_CONNECTION_INFO_DAEMON);
    return info && info->daemon == daemon;
}

static bool has_job(const struct plim_http *http, const struct MHD_Daemon *daemon)
{
    bool found = false;
    for (size_t i = 0; i < PLIM__LANES; i++) {
        const struct plim__worker *worker = &http->workers[i];
        found = found || (worker->current && is_of(worker->current, daemon));
        for (const struct plim__exchange *ex = worker->jobs; ex && !found; ex = ex->next) {
            found = is_of(ex, daemon);
        }
    }
    return found;
}

void plim__jobs_drain(struct plim_http *http, const struct MHD_Daemon *daemon)
{
    while (has_job(http, daemon)) {
        (void)pthread_cond_wait(&http->changed, &http->lock);
    }
}

/* Take the oldest job, run it without the lock, and let its connection go on. */
static void run_job(struct plim__worker *worker)
{
    struct plim_http *http = worker->http;
    struct plim__exchange *ex = worker->jobs;
    worker->jobs = ex->next;
    worker->n_jobs--;
    worker->current = ex;
    (void)pthread_mutex_unlock(&http->lock);
    ex->made = plim__answer_make(ex);
    (void)pthread_mutex_lock(&http->lock);
    worker->current = NULL;
    MHD_resume_connection(ex->connection);
    (void)pthread_cond_broadcast(&http->changed);
}

/* The socket stays open until libmicrohttpd sees its end, so its number cannot be another's. */
static void end_late_ones(struct plim_http *http, uint64_t now)
{
    for (struct plim__connection *c = http->connections; c; c = c->next) {
        if (c->deadline && now >= c->deadline) {
            c->deadline = 0;
            (void)shutdown(c->fd, SHUT_RDWR);
            plim__http_add(http, PLIM_HTTP_TIMEOUTS, c->served ? 0 : 1);
        }
    }
}

/* Wait for a job, or, with connections to look after, for the next second. Under the lock. */
static void wait_for_work(struct plim__worker *worker, uint64_t now, uint64_t looked)
{
    struct plim_http *http = worker->http;
    if (worker->lane != PLIM__LANE_SLOW || !http->connections) {
        (void)pthread_cond_wait(&http->changed, &http->lock);
    } else if (now == looked) {
        (void)plim_cond_wait_until(&http->changed, &http->lock, (now + 1) * PLIM_SECOND_NS);
    }
}

static void *work(void *self)
{
    struct plim__worker *worker = self;
    struct plim_http *http = worker->http;
    uint64_t looked = 0;
    (void)pthread_mutex_lock(&http->lock);
    while (!http->stopping || worker->jobs) {
        uint64_t now = plim__http_seconds();
        if (worker->jobs) {
            run_job(worker);
        } else {
            wait_for_work(worker, now, looked);
        }
        if (worker->lane == PLIM__LANE_SLOW && now != looked) {
            looked = now;
            end_late_ones(http, now);
            plim__channel_beat(http);
        }
    }
    (void)pthread_mutex_unlock(&http->lock);
    return NULL;
}

enum plim_status plim__workers_start(struct plim_http *http, struct plim_err *err)
{
    bool wanted[PLIM__LANES] = {[PLIM__LANE_SLOW] = true};
    for (size_t i = 0; i < http->options.n_routes; i++) {
        wanted[PLIM__LANE_LONG] |= (http->options.routes[i].flags & PLIM_HTTP_LONG) != 0;
    }
    for (unsigned i = 0; i < PLIM__LANES; i++) {
        struct plim__worker *worker = &http->workers[i];
        worker->http = http;
        worker->lane = (enum plim__lane)i;
        int e = wanted[i] ? plim__http_thread(&worker->thread, work, worker) : 0;
        if (e != 0) {
            return plim__fail_errno(err, PLIM_E_OS, e, "cannot start a thread");
        }
        worker->runs = wanted[i];
    }
    return PLIM_OK;
}

void plim__workers_join(struct plim_http *http)
{
    for (size_t i = 0; i < PLIM__LANES; i++) {
        if (http->workers[i].runs) {
            (void)pthread_join(http->workers[i].thread, NULL);
        }
    }
}
