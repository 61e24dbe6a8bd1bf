/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HTTP_HTTP_INT_H
#define PLIM_HTTP_HTTP_INT_H

/*
 * Inside the server.
 *
 *   listener    one address, one daemon of libmicrohttpd with its thread
 *   connection  its socket and until when it must have brought a whole request
 *   exchange    one request and its answer
 *   job         an exchange that waits for, or is on, a worker: its connection is suspended
 *   reader      one answer that follows a channel; suspended while there is nothing new
 *
 * The lock guards the lists, the secrets and the readers' states. A connection is suspended under the
 * lock and only while its listener lives, so that stopping may resume all and be sure.
 * Order of locks: http->lock, channel->lock, then libmicrohttpd's own.
 */

#include "base/vec.h"
#include "http/http.h"
#include "http/parse.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#define PLIM__HTTP_SESSIONS  64u
#define PLIM__SESSION_TEXT   32u /* hexadecimal digits: 128 random bits */
#define PLIM__HTTP_JOBS      64u /* that wait at most */
#define PLIM__HTTP_HEADERS   (32u << 10)
#define PLIM__IDLE_PATIENCES 4u   /* for the next request of a connection that brought one */
#define PLIM__ANSWER_SECONDS 600u /* for an answer to be taken, whatever its size */

enum plim__reach {
    PLIM__LOOPBACK,
    PLIM__NETWORK,
    PLIM__UNIX
};

struct plim__listener {
    struct plim_http *http;
    enum plim__reach reach;
    bool tls;
    int fd;                     /* bound; daemons have duplicates */
    struct MHD_Daemon *daemon;  /* that accepts */
    struct MHD_Daemon *retired; /* accepts no more: it has an older certificate */
    struct MHD_Daemon *dying;   /* is being stopped: nothing of it may be suspended */
    char path[108];             /* of a Unix socket, to be removed; "" none */
    char url[160];
};

struct plim__connection {
    struct plim__connection *next, *prev;
    int fd;
    bool served;       /* it brought a request before */
    uint64_t deadline; /* monotonic seconds; 0: none */
};

struct plim__session {
    char id[PLIM__SESSION_TEXT + 1]; /* "" free */
    uint64_t until;                  /* monotonic seconds */
};

struct plim__secrets {
    struct plim_str token;            /* owned; n == 0: none */
    struct plim_str certificate, key; /* owned, NUL behind */
};

struct plim__reader {
    struct plim__reader *next, *prev; /* of the channel */
    struct plim_http *http;
    struct MHD_Connection *connection;
    struct plim_http_channel *channel;
    struct plim__event *event; /* that `rest` is of, a reference, or NULL */
    struct plim_str rest;      /* to be sent */
    uint64_t serial;           /* of the newest event that it took */
    uint64_t beat;             /* comments that it knows of */
    bool suspended;
};

/* An answer that is ready to be queued. */
struct plim__made {
    struct MHD_Response *response; /* NULL: none yet, or no memory */
    struct plim_http_body *body;   /* whose the response is, a handle; NULL: it is ours */
    unsigned code;
};

struct plim__exchange {
    struct plim_http *http;
    struct plim__listener *listener;
    struct MHD_Connection *connection;
    struct plim__connection *conn;
    const struct plim_http_route *route;
    struct plim_http_request request;
    struct plim_buf body;
    bool too_large;
    bool by_cookie;              /* known by the cookie that browsers send along with anything */
    struct plim__made made;      /* by a job */
    struct plim__exchange *next; /* of the jobs */
};

enum plim__lane {
    PLIM__LANE_SLOW, /* also ends the connections that are late */
    PLIM__LANE_LONG,
    PLIM__LANES
};

struct plim__worker {
    struct plim_http *http;
    enum plim__lane lane;
    pthread_t thread;
    bool runs;
    struct plim__exchange *jobs, *current; /* waiting, oldest first; on it */
    size_t n_jobs;                         /* that wait */
};

struct plim_http {
    struct plim_http_options options;
    PLIM_VEC(struct plim__listener) listeners;
    struct plim__secrets secrets;
    char cookie_name[20];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* jobs, connections, stopping */
    struct plim__worker workers[PLIM__LANES];
    bool stopping;
    struct plim__connection *connections;
    struct plim__session sessions[PLIM__HTTP_SESSIONS];
    struct plim_http_channel *channel; /* that has had readers here, or NULL */
    _Atomic uint64_t counts[PLIM_HTTP_COUNTS];
};

/* ---- server.c ---- */
uint64_t plim__http_seconds(void); /* monotonic */
/* Start a thread that takes no signals: those are for the program's loop. Returns an errno. */
int plim__http_thread(pthread_t *thread, void *(*run)(void *), void *self);
void plim__http_add(struct plim_http *http, enum plim_http_count count, int64_t by);

/* ---- listen.c ---- */
PLIM_MUST_USE enum plim_status plim__listen(struct plim_http *http, const char *address,
                                            struct plim__listener *out, struct plim_err *err);
void plim__unlisten(struct plim__listener *listener);

/* ---- auth.c ---- */
PLIM_MUST_USE enum plim_status plim__secrets_read(const struct plim_http_options *options,
                                                  struct plim__secrets *out, struct plim_err *err);
void plim__secrets_fini(struct plim__secrets *secrets);
void plim__auth_learn(struct plim__exchange *ex); /* sets local, known, secure, by_cookie */
/* 0, or the HTTP code to refuse with and why. */
unsigned plim__auth_refuses(const struct plim__exchange *ex, const char **why, const char **hint);
enum plim_status plim__login(struct plim__exchange *ex, struct plim_http_answer *answer,
                             struct plim_err *err);
void plim__logout(struct plim__exchange *ex, struct plim_http_answer *answer);

/* ---- exchange.c: libmicrohttpd's callbacks ---- */
enum MHD_Result plim__on_request(void *self, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_size, void **state);
void plim__on_completed(void *self, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why);
void plim__on_connection(void *self, struct MHD_Connection *connection, void **context,
                         enum MHD_ConnectionNotificationCode what);

/* ---- work.c: the workers, which run jobs and end connections that are late ---- */
PLIM_MUST_USE enum plim_status plim__workers_start(struct plim_http *http, struct plim_err *err);
void plim__workers_join(struct plim_http *http); /* `stopping` is set: they finish what waits */
/* Give the exchange to its worker and suspend its connection; false: too many wait. */
bool plim__job_add(struct plim__exchange *ex);
/* Wait until no job of that daemon waits or runs. Under the lock. */
void plim__jobs_drain(struct plim_http *http, const struct MHD_Daemon *daemon);
/* Whether a connection of this daemon may be suspended. Under the lock. */
bool plim__may_suspend(const struct plim__listener *listener, struct MHD_Connection *connection);

/* ---- answer.c ---- */
/* Run the route's handler and make the response. */
struct plim__made plim__answer_make(struct plim__exchange *ex);
struct plim__made plim__answer_refusal(unsigned code, const char *why, const char *hint);
void plim__made_fini(struct plim__made *made);
void plim__answer_security(struct MHD_Response *response, const char *csp);

/* ---- body.c ---- */
/* The variant for this request, borrowed from the body; *code is 200 or 304. */
struct MHD_Response *plim__body_response(struct plim_http_body *body, struct plim_str accept,
                                         struct plim_str none_match, unsigned *code);
PLIM_MUST_USE enum plim_status plim__compress(struct plim_str text, enum plim_encoding encoding,
                                              struct plim_buf *out, struct plim_err *err);
const char *plim__encoding_text(enum plim_encoding encoding);

/* ---- channel.c ---- */
struct MHD_Response *plim__reader_response(struct plim__exchange *ex,
                                           struct plim_http_channel *channel);
/* End the readers whose connections belong to `daemon` (NULL: all, for good), also new ones, until
 * plim__readers_spare(): a new daemon may have the address of one that is gone. */
void plim__readers_end(struct plim_http_channel *channel, const struct MHD_Daemon *daemon);
void plim__readers_spare(struct plim_http_channel *channel);
void plim__channel_beat(struct plim_http *http); /* once a second, under the lock */

#endif
