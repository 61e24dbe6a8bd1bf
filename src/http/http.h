/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HTTP_HTTP_H
#define PLIM_HTTP_HTTP_H

/*
 * The server that the daemons share: routes, who may ask, published bodies, live channels.
 *
 *   listener   an address that is listened on: loopback, the network, or a Unix socket
 *   route      method and path pattern, what to call, who may
 *   body       a whole answer, immutable and counted: thousands of requests share one. It is
 *              compressed when somebody first asks for that, once
 *   slot       where the newest body of one kind lies
 *   channel    one event at a time to any number of readers (server-sent events). All share the
 *              encoded event; whoever reads too slowly misses events and gets the newest. A server
 *              has one channel
 *   local      a request over a Unix socket or from the loopback address that no proxy passed on
 *   known      a request with the token (Bearer, or as Basic's password), or the cookie that POST
 *              /login gave for it, or over a Unix socket by root or the daemon's own user
 *
 * Who may ask: routes that are OPEN, everybody; routes that MUTATE, only who is known, and from a
 * page of ours (Origin); all others, who is known, or local unless `auth_all`. A local request by
 * address must also name a loopback host (or one of `hosts`), so that no page of the web reads
 * answers by a name that it points here (DNS rebinding). Who may not gets 401 or 403.
 * Failures are {"error": {"status", "code", "message", "hint", ...}} with the status table's codes.
 *
 * Clients are hostile: headers fit into 32 KiB, bodies into what the route says, a request must
 * come whole within `patience_s`, connections are limited in all and for each address. Secrets are
 * compared in constant time and written nowhere.
 * Threads: each listener has a thread, on which handlers run, so they must answer at once; handlers
 * of SLOW routes run one after another on one more thread, those of LONG routes on another, which is
 * there when such a route is. Publishing is for any thread.
 */

#include "base/arena.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct plim_http;
struct plim_http_body;
struct plim_http_channel;

/* ---- published bodies ---- */

/* A Content-Security-Policy that allows nothing, which answers have unless they name another. */
#define PLIM_HTTP_CSP_NOTHING "default-src 'none'; frame-ancestors 'none'"

/**
 * plim_http_body_new() - publish a text.
 * @type: media type, static. @csp: static, NULL: nothing allowed.
 * @text: taken: empty afterwards, also on failure. Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_http_body_new(const char *type, const char *csp,
                                                  struct plim_buf *text,
                                                  struct plim_http_body **out,
                                                  struct plim_err *err);
struct plim_http_body *plim_http_body_ref(struct plim_http_body *body);
void plim_http_body_unref(struct plim_http_body *body); /* NULL is allowed */
struct plim_str plim_http_body_text(const struct plim_http_body *body);

struct plim_http_slot;
PLIM_MUST_USE enum plim_status plim_http_slot_new(struct plim_http_slot **out,
                                                  struct plim_err *err);
void plim_http_slot_free(struct plim_http_slot *slot);
void plim_http_slot_set(struct plim_http_slot *slot, struct plim_http_body *body); /* taken */
struct plim_http_body *plim_http_slot_get(struct plim_http_slot *slot); /* a reference, or NULL */

/* ---- requests and answers ---- */

struct plim_http_request {
    const char *method;        /* "GET" also for HEAD */
    struct plim_str path;      /* decoded */
    struct plim_str param[2];  /* what the pattern's {} stand for, borrowed */
    size_t n_params;           /* of these */
    struct plim_str body;      /* of a POST, whole */
    bool local, known, secure; /* see above; over TLS */
    void *connection;          /* the server library's */
};

/** plim_http_query() - the decoded value of ?name=, borrowed; false when it is missing. */
bool plim_http_query(const struct plim_http_request *request, const char *name,
                     struct plim_str *out);
/** plim_http_query_all() - the decoded values of a parameter that may be repeated, in their order, arena; with NULs in
 * them they end there. Errors: PLIM_E_RANGE more than `most`; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_http_query_all(const struct plim_http_request *request,
                                                   const char *name, struct plim_arena *arena,
                                                   size_t most, const char **out, size_t *n,
                                                   struct plim_err *err);
/** plim_http_query_u64() - the same as a whole number. @fallback: when it is missing.
 * Errors: PLIM_E_USAGE when it is something else. */
PLIM_MUST_USE enum plim_status plim_http_query_u64(const struct plim_http_request *request,
                                                   const char *name, uint64_t fallback,
                                                   uint64_t *out, struct plim_err *err);
/** plim_http_number() - a parameter of the path as a whole number; false: it is something else. */
bool plim_http_number(struct plim_str text, uint64_t *out);
/** plim_http_header() - value of a request header, borrowed, or NULL. */
const char *plim_http_header(const struct plim_http_request *request, const char *name);

#define PLIM_HTTP_HEADERS 4

/* What a handler fills; one of text, body, file, channel. The server owns what is put here. */
struct plim_http_answer {
    unsigned code;                     /* 0: 200, or what the failure's status says */
    const char *type;                  /* of text and file; NULL: application/json */
    const char *csp;                   /* of text and file; NULL: nothing allowed */
    struct plim_buf text;              /* an answer for this request only */
    struct plim_http_body *body;       /* a reference to a published one */
    int fd;                            /* a file, -1: none; closed by the server */
    uint64_t size;                     /* of the file, bytes */
    char filename[128];                /* to save it under; "": shown */
    char cookie[192];                  /* Set-Cookie; "": none */
    struct plim_http_channel *channel; /* borrowed: it outlives the server */
    struct {
        char name[32];
        char value[96];
    } header[PLIM_HTTP_HEADERS]; /* [n_headers] further ones, of text */
    size_t n_headers;
};

/** plim_http_answer_header() - add one. Control characters become spaces; what is too long is cut; behind the
 * fourth nothing is added. */
void plim_http_answer_header(struct plim_http_answer *answer, const char *name, const char *value);

/** A failure is answered as JSON with the status' code; then the answer's content is dropped. */
typedef enum plim_status (*plim_http_handler)(void *self, const struct plim_http_request *request,
                                              struct plim_http_answer *answer,
                                              struct plim_err *err);

#define PLIM_HTTP_OPEN    1u /* everybody may: it tells nothing about the machine */
#define PLIM_HTTP_MUTATES 2u
#define PLIM_HTTP_SLOW    4u /* may take longer than a millisecond */
#define PLIM_HTTP_LONG    8u /* may take seconds: a program is run, another machine is asked */
#define PLIM_HTTP_ANY_HOST                                                                         \
    16u /* asked by a proxy on this machine, with the name that its client asked for */

struct plim_http_route {
    const char *method; /* "GET" (answers HEAD too), "POST"; "*": any */
    const char *
        path; /* "/api/v1/incidents/{}/report": {} is one segment, not empty; "{...}" at the end: all others, not none */
    plim_http_handler handle;
    unsigned flags;
    size_t body_limit; /* bytes */
};

/* ---- the server ---- */

struct plim_http_options {
    const char *const *listen; /* [n_listen] "HOST:PORT", "[::1]:PORT", ":PORT" (all), "PORT"
                                  (loopback), "unix:PATH"; PORT 0: any */
    size_t n_listen;
    mode_t unix_mode;         /* of Unix sockets; 0: 0660 */
    const char *certificate;  /* PEM file with the chain; NULL: no TLS */
    const char *key;          /* PEM file */
    const char *token_file;   /* the token, 16 characters at least; NULL: nobody can log in */
    bool auth_all;            /* local requests need the token too */
    const char *const *hosts; /* [n_hosts] further names that local requests may ask for */
    size_t n_hosts;           /* of these */
    unsigned connections;     /* at most, in all; 0: 2048, less when files are limited */
    unsigned per_address;     /* of one network address; 0: 128 */
    unsigned patience_s;      /* for a request to come whole; 0: 15 */
    const struct plim_http_route *routes; /* [n_routes], static; POST /login and /logout are own */
    size_t n_routes;
    void *self; /* of the handlers */
};

/**
 * plim_http_start() - begin to answer. The options' texts are borrowed until plim_http_stop().
 * Errors: PLIM_E_USAGE (an address that is none; one that others reach, and no token),
 * PLIM_E_NOINPUT and PLIM_E_DATA (token, certificate), PLIM_E_OS (an address that is taken).
 */
PLIM_MUST_USE enum plim_status plim_http_start(const struct plim_http_options *options,
                                               struct plim_http **out, struct plim_err *err);
void plim_http_stop(struct plim_http *http); /* NULL is allowed */

/** plim_http_reload() - read token, certificate and key again. Connections that are open keep what
 * they have. Errors: as of start; then all is as before. */
PLIM_MUST_USE enum plim_status plim_http_reload(struct plim_http *http, struct plim_err *err);

/** plim_http_url() - of listener `i`: "http://127.0.0.1:9460/", "unix:/run/..."; NULL behind the last. */
const char *plim_http_url(const struct plim_http *http, size_t i);

/* X(NAME, key): what a server counts about itself. TOTAL since it started, the rest now. */
#define PLIM_HTTP_COUNT_MAP(X)                                                                     \
    X(REQUESTS_OK, "requests_ok_total")           /* answered with 2xx and 3xx */                  \
    X(REQUESTS_REFUSED, "requests_refused_total") /* 401 and 403 */                                \
    X(REQUESTS_BAD, "requests_bad_total")         /* other 4xx */                                  \
    X(REQUESTS_FAILED, "requests_failed_total")   /* 5xx */                                        \
    X(CONNECTIONS_TOTAL, "connections_total")                                                      \
    X(TIMEOUTS, "timeouts_total") /* connections that brought no whole request in time */          \
    X(EVENTS_SENT, "events_sent_total")                                                            \
    X(EVENTS_SKIPPED, "events_skipped_total") /* of readers that were too slow */                  \
    X(CONNECTIONS, "connections")                                                                  \
    X(READERS, "readers") /* of channels */

enum plim_http_count {
#define PLIM__X(name, key) PLIM_HTTP_##name,
    PLIM_HTTP_COUNT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_HTTP_COUNTS
};

uint64_t plim_http_count(const struct plim_http *http, enum plim_http_count count);

/* ---- live channels ---- */

PLIM_MUST_USE enum plim_status plim_http_channel_new(struct plim_http_channel **out,
                                                     struct plim_err *err);
void plim_http_channel_free(struct plim_http_channel *channel); /* after plim_http_stop() */

/**
 * plim_http_channel_publish() - the newest event, for all readers.
 * @id: greater than the one before, also of an earlier run of the daemon. @name: of the event.
 * @data: one line. Errors: PLIM_E_NOMEM; readers then keep what they have.
 */
PLIM_MUST_USE enum plim_status plim_http_channel_publish(struct plim_http_channel *channel,
                                                         uint64_t id, const char *name,
                                                         struct plim_str data,
                                                         struct plim_err *err);
/** plim_http_channel_readers() - how many there are: without any nothing need be encoded. */
unsigned plim_http_channel_readers(const struct plim_http_channel *channel);

#endif
