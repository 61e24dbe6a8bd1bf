/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: one thread that runs the handlers of slow routes, one after another, so that scrapes
 * never wait for a query; and once a second ends the connections that are late. It sleeps while
 * there are neither jobs nor connections.
 */

#include "http/http_int.h"

#include <sys/socket.h>
#include <time.h>

bool plim__may_suspend(const struct plim__listener *listener, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    return !listener->http->stopping && info && info->daemon != listener->dying;
}

bool plim__job_add(struct plim__exchange *ex)
{
    struct plim_http *http = ex->http;
    (void)pthread_mutex_lock(&http->lock);
    bool room = http->n_jobs < PLIM__HTTP_JOBS && plim__may_suspend(ex->listener, ex->connection);
    if (room) {
        struct plim__exchange **last = &http->jobs;
        while (*last) {
            last = &(*last)->next;
        }
        *last = ex;
        http->n_jobs++;
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
    return !daemon || (info && info->daemon == daemon);
}

static bool has_job(const struct plim_http *http, const struct MHD_Daemon *daemon)
{
    bool found = http->current && is_of(http->current, daemon);
    for (const struct plim__exchange *ex = http->jobs; ex && !found; ex = ex->next) {
        found = is_of(ex, daemon);
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
static void run_job(struct plim_http *http)
{
    struct plim__exchange *ex = http->jobs;
    http->jobs = ex->next;
    http->n_jobs--;
    http->current = ex;
    (void)pthread_mutex_unlock(&http->lock);
    ex->made = plim__answer_make(ex);
    (void)pthread_mutex_lock(&http->lock);
    http->current = NULL;
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

void *plim__worker(void *self)
{
    struct plim_http *http = self;
    uint64_t swept = 0;
    (void)pthread_mutex_lock(&http->lock);
    while (!http->stopping || http->jobs) {
        uint64_t now = plim__http_seconds();
        if (http->jobs) {
            run_job(http);
        } else if (!http->connections) {
            (void)pthread_cond_wait(&http->changed, &http->lock);
        } else if (now == swept) {
            struct timespec until = {.tv_sec = (time_t)now + 1};
            (void)pthread_cond_timedwait(&http->changed, &http->lock, &until);
        }
        if (now != swept) {
            swept = now;
            end_late_ones(http, now);
            plim__channel_beat(http);
        }
    }
    (void)pthread_mutex_unlock(&http->lock);
    return NULL;
}
