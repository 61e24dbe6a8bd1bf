/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_SERVE_INT_H
#define PLIM_WATCH_SERVE_INT_H

/*
 * Inside the part that serves: one table of routes (serve.c), handlers by subject in serve_*.c.
 * docs/schema/watch-api.json describes them for clients.
 *
 * Handlers get struct plim__serve as `self`. Those of SLOW and of LONG routes run on one thread each,
 * one after another, and may use what is marked theirs; the others run on the listeners' threads and
 * only read what has a lock of its own.
 */

#include "base/arena.h"
#include "http/http.h"
#include "watch/watch_int.h"

#include <stdatomic.h>

/* The newest text of one form as a body that all clients share. */
struct plim__serve_shared {
    pthread_mutex_t lock;
    struct plim_http_body *body; /* a handle, or NULL */
    uint64_t step;               /* that it shows */
};

struct plim__serve_page {
    const char *path; /* "/", "/dashboard.js" ... static */
    struct plim_http_body *body;
};

#define PLIM__SERVE_PAGES 3u

struct plim__serve_peers;

struct plim__serve {
    struct plim_watch *watch;
    struct plim_http *http;
    struct plim_http_channel *live;
    struct plim__serve_shared shared[PLIM_WATCH_TEXTS];
    struct plim__serve_page pages[PLIM__SERVE_PAGES];
    bool told_failure;        /* that the last event could not be made */
    struct plim_arena arena;  /* what the options of the server point to */
    const char *incidents;    /* folder */
    struct plim_store *store; /* slow worker: to read the history, NULL until it is asked for */
    _Atomic(struct plim__serve_peers *) fresh_peers; /* of settings just read, or NULL */
    struct plim__serve_peers *peers;                 /* long worker: those that it asks */
    struct plim_http_body *fleet;                    /* long worker: what they said ... */
    uint64_t fleet_ns;                               /* ... when, CLOCK_MONOTONIC */
};

/* Handlers; the table of routes says of what. */
#define PLIM__HANDLER(name)                                                                        \
    enum plim_status plim__serve_##name(void *self, const struct plim_http_request *request,       \
                                        struct plim_http_answer *answer, struct plim_err *err)

/* serve_state.c */
PLIM__HANDLER(metrics);
PLIM__HANDLER(status);
PLIM__HANDLER(status_text);
PLIM__HANDLER(live);
PLIM__HANDLER(findings);
PLIM__HANDLER(healthz);
PLIM__HANDLER(readyz);

/* serve_alerts.c */
PLIM__HANDLER(alerts);
PLIM__HANDLER(acknowledge);
PLIM__HANDLER(silence);
PLIM__HANDLER(unsilence);

/* serve_incidents.c: slow and long workers */
PLIM__HANDLER(incidents);
PLIM__HANDLER(bundle);
PLIM__HANDLER(report);

/* serve_fleet.c: long worker */
PLIM__HANDLER(fleet);
PLIM_MUST_USE enum plim_status plim__serve_fleet_check(const struct plim_settings *settings,
                                                       struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__serve_fleet_options(const struct plim_watch_options *options,
                                                         struct plim_err *err);
void plim__serve_fleet_learn(
    struct plim__serve *serve); /* the loop's thread: peers of the settings */
void plim__serve_fleet_close(struct plim__serve *serve);

/* serve_history.c: slow worker */
PLIM__HANDLER(subjects);
PLIM__HANDLER(series);
PLIM__HANDLER(events);
struct plim__serve_window {
    uint64_t from, to; /* nanoseconds since 1970 */
};
/* ?from&to. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim__serve_window(const struct plim_http_request *request,
                                                  struct plim__serve_window *out,
                                                  struct plim_err *err);
/* serve->store, opened when it is not. Errors: PLIM_E_NOTFOUND no history is kept; those of the store. */
PLIM_MUST_USE enum plim_status plim__serve_history_open(struct plim__serve *serve,
                                                        struct plim_err *err);
/* The same status; a store that failed is closed. */
enum plim_status plim__serve_history_checked(struct plim__serve *serve, enum plim_status st);
void plim__serve_history_close(struct plim__serve *serve);

/* serve_history_view.c: slow worker */
PLIM__HANDLER(history);

/* serve_page.c */
PLIM__HANDLER(page);
PLIM_MUST_USE enum plim_status plim__serve_pages_open(struct plim__serve *serve,
                                                      struct plim_err *err);
void plim__serve_pages_close(struct plim__serve *serve);

#endif
