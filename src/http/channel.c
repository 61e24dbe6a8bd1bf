/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live channels: the newest event to every reader, encoded once (server-sent events, the HTML
 * standard's section 9.2). A reader that has all there is sleeps: its connection is suspended until
 * the next event. A reader that is still sending takes the newest when it is done, so that slow ones
 * skip and nothing piles up; their sockets' buffers are kept short for the same reason.
 */

#include "http/http_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define QUIET_SECONDS 10u         /* then a comment, so that both ends see a dead connection */
#define SOCKET_ROOM   (256 << 10) /* bytes that the system may hold for a reader */
#define BLOCK         (64u << 10)

struct plim__event {
    unsigned refs; /* under the channel's lock */
    size_t n;
    char text[];
};

struct plim_http_channel {
    pthread_mutex_t lock;
    struct plim__event *newest; /* a reference, or NULL before the first */
    uint64_t serial;            /* of the newest; the first is 1 */
    uint64_t id;                /* of the newest that is no comment */
    uint64_t told;              /* monotonic seconds of the newest or of the last comment */
    uint64_t beat;              /* comments so far */
    struct plim__reader *readers;
    unsigned n_readers;
    bool ended;                     /* all readers end */
    const struct MHD_Daemon *dying; /* its readers end */
};

enum plim_status plim_http_channel_new(struct plim_http_channel **out, struct plim_err *err)
{
    struct plim_http_channel *channel = calloc(1, sizeof(*channel));
    if (!channel) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a channel");
    }
    (void)pthread_mutex_init(&channel->lock, NULL);
    *out = channel;
    return PLIM_OK;
}

/* Under the lock. */
static void event_unref(struct plim__event *event)
{
    if (event && --event->refs == 0) {
        free(event);
    }
}

void plim_http_channel_free(struct plim_http_channel *channel)
{
    if (channel) {
        event_unref(channel->newest);
        (void)pthread_mutex_destroy(&channel->lock);
        free(channel);
    }
}

unsigned plim_http_channel_readers(const struct plim_http_channel *channel)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&channel->lock;
    (void)pthread_mutex_lock(lock);
    unsigned n = channel->n_readers;
    (void)pthread_mutex_unlock(lock);
    return n;
}

/* Under the lock. */
static void wake(struct plim_http_channel *channel)
{
    for (struct plim__reader *r = channel->readers; r; r = r->next) {
        if (r->suspended) {
            r->suspended = false;
            MHD_resume_connection(r->connection);
        }
    }
}

enum plim_status plim_http_channel_publish(struct plim_http_channel *channel, uint64_t id,
                                           const char *name, struct plim_str data,
                                           struct plim_err *err)
{
    char head[128];
    int n =
        snprintf(head, sizeof(head), "id: %llu\nevent: %s\ndata: ", (unsigned long long)id, name);
    size_t head_n = n > 0 && (size_t)n < sizeof(head) ? (size_t)n : 0;
    struct plim__event *event = malloc(sizeof(*event) + head_n + data.n + 2);
    if (!event) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for an event of %zu bytes", data.n);
    }
    event->refs = 1;
    event->n = head_n + data.n + 2;
    memcpy(event->text, head, head_n);
    memcpy(event->text + head_n, data.p, data.n);
    event->text[head_n + data.n] = event->text[head_n + data.n + 1] = '\n';
    (void)pthread_mutex_lock(&channel->lock);
    event_unref(channel->newest);
    channel->newest = event;
    channel->serial++;
    channel->id = id;
    channel->told = plim__http_seconds();
    wake(channel);
    (void)pthread_mutex_unlock(&channel->lock);
    return PLIM_OK;
}

/* ---- readers ---- */

static bool has_ended(const struct plim__reader *r)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_DAEMON);
    return r->channel->ended || !info || info->daemon == r->channel->dying;
}

/* Have something to send: an event, or a comment after a long silence. False: nothing. */
static bool take_next(struct plim__reader *r)
{
    struct plim_http_channel *c = r->channel;
    if (r->rest.n > 0) {
        return true;
    }
    event_unref(r->event);
    r->event = NULL;
    if (c->newest && r->serial != c->serial) {
        if (r->serial > 0) {
            plim__http_add(r->http, PLIM_HTTP_EVENTS_SKIPPED, (int64_t)(c->serial - r->serial - 1));
        }
        plim__http_add(r->http, PLIM_HTTP_EVENTS_SENT, 1);
        r->serial = c->serial;
        r->event = c->newest;
        r->event->refs++;
        r->rest = (struct plim_str){r->event->text, r->event->n};
    } else if (r->beat != c->beat) {
        r->rest = PLIM_STR(":\n\n");
    }
    r->beat = c->beat;
    return r->rest.n > 0;
}

static ssize_t read_some(void *self, uint64_t at, char *to, size_t most)
{
    struct plim__reader *r = self;
    ssize_t got = 0;
    (void)at;
    (void)pthread_mutex_lock(&r->channel->lock);
    if (has_ended(r)) {
        got = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (take_next(r)) {
        size_t n = r->rest.n < most ? r->rest.n : most;
        memcpy(to, r->rest.p, n);
        r->rest = plim_str_skip(r->rest, n);
        got = (ssize_t)n;
    } else {
        r->suspended = true;
        MHD_suspend_connection(r->connection);
    }
    (void)pthread_mutex_unlock(&r->channel->lock);
    return got;
}

static void reader_free(void *self)
{
    struct plim__reader *r = self;
    struct plim_http_channel *c = r->channel;
    (void)pthread_mutex_lock(&c->lock);
    if (r->prev) {
        r->prev->next = r->next;
    } else {
        c->readers = r->next;
    }
    if (r->next) {
        r->next->prev = r->prev;
    }
    c->n_readers--;
    event_unref(r->event);
    (void)pthread_mutex_unlock(&c->lock);
    plim__http_add(r->http, PLIM_HTTP_READERS, -1);
    free(r);
}

/* A reader that comes back with the id of the newest event has it. */
static void add_reader(struct plim_http_channel *c, struct plim__reader *r, const char *last_id)
{
    uint64_t id;
    (void)pthread_mutex_lock(&c->lock);
    if (c->serial > 0 && last_id && plim_http_number(plim_str_from(last_id), &id) && id == c->id) {
        r->serial = c->serial;
    }
    r->beat = c->beat;
    r->next = c->readers;
    if (r->next) {
        r->next->prev = r;
    }
    c->readers = r;
    c->n_readers++;
    (void)pthread_mutex_unlock(&c->lock);
    plim__http_add(r->http, PLIM_HTTP_READERS, 1);
}

struct MHD_Response *plim__reader_response(struct plim__exchange *ex,
                                           struct plim_http_channel *channel)
{
    int room = SOCKET_ROOM;
    struct plim__reader *r = calloc(1, sizeof(*r));
    if (!r) {
        return NULL;
    }
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_some, r, reader_free);
    if (!response) {
        free(r);
        return NULL;
    }
    r->http = ex->http;
    r->connection = ex->connection;
    r->channel = channel;
    r->rest = PLIM_STR("retry: 2000\n\n");
    (void)pthread_mutex_lock(&ex->http->lock);
    ex->http->channel = channel;
    if (ex->conn) {
        ex->conn->deadline = 0;
        (void)setsockopt(ex->conn->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }
    (void)pthread_mutex_unlock(&ex->http->lock);
    add_reader(channel, r, plim_http_header(&ex->request, "Last-Event-ID"));
    plim__answer_security(response, PLIM_HTTP_CSP_NOTHING);
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* proxies pass it on at once */
    return response;
}

void plim__readers_end(struct plim_http_channel *channel, const struct MHD_Daemon *daemon)
{
    (void)pthread_mutex_lock(&channel->lock);
    channel->ended = channel->ended || !daemon;
    channel->dying = daemon;
    wake(channel);
    (void)pthread_mutex_unlock(&channel->lock);
}

void plim__readers_spare(struct plim_http_channel *channel)
{
    (void)pthread_mutex_lock(&channel->lock);
    channel->dying = NULL;
    (void)pthread_mutex_unlock(&channel->lock);
}

void plim__channel_beat(struct plim_http *http)
{
    struct plim_http_channel *c = http->channel;
    uint64_t now = plim__http_seconds();
    if (!c) {
        return;
    }
    (void)pthread_mutex_lock(&c->lock);
    if (c->n_readers > 0 && now >= c->told + QUIET_SECONDS) {
        c->told = now;
        c->beat++;
        wake(c);
    }
    (void)pthread_mutex_unlock(&c->lock);
}
