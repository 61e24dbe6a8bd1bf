/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part that serves: metrics, state, history and the dashboard by HTTP. Routes are one table; who
 * may ask for what is http/http.h's. The loop only publishes: it never waits for a client.
 */

#include "watch/serve_int.h"

#include "base/num.h"
#include "incident/incident.h"

#include <stdio.h>
#include <stdlib.h>

static const struct plim_http_route routes[] = {
    {"GET", "/", plim__serve_page, PLIM_HTTP_OPEN, 0},
    {"GET", "/dashboard.js", plim__serve_page, PLIM_HTTP_OPEN, 0},
    {"GET", "/dashboard.css", plim__serve_page, PLIM_HTTP_OPEN, 0},
    {"GET", "/healthz", plim__serve_healthz, PLIM_HTTP_OPEN, 0},
    {"GET", "/readyz", plim__serve_readyz, PLIM_HTTP_OPEN, 0},
    {"GET", "/metrics", plim__serve_metrics, 0, 0},
    {"GET", "/api/v1/status", plim__serve_status, 0, 0},
    {"GET", "/api/v1/status.txt", plim__serve_status_text, 0, 0},
    {"GET", "/api/v1/live", plim__serve_live, 0, 0},
    {"GET", "/api/v1/findings", plim__serve_findings, 0, 0},
    {"GET", "/api/v1/subjects", plim__serve_subjects, PLIM_HTTP_SLOW, 0},
    {"GET", "/api/v1/series", plim__serve_series, PLIM_HTTP_SLOW, 0},
    {"GET", "/api/v1/events", plim__serve_events, PLIM_HTTP_SLOW, 0},
    {"GET", "/api/v1/history", plim__serve_history, PLIM_HTTP_SLOW, 0},
    {"GET", "/api/v1/alerts", plim__serve_alerts, PLIM_HTTP_SLOW, 0},
    {"POST", "/api/v1/alerts/{}/acknowledge", plim__serve_acknowledge, PLIM_HTTP_MUTATES, 64},
    {"POST", "/api/v1/silences", plim__serve_silence, PLIM_HTTP_MUTATES, 2048},
    {"POST", "/api/v1/silences/{}/end", plim__serve_unsilence, PLIM_HTTP_MUTATES, 64},
    {"GET", "/api/v1/incidents", plim__serve_incidents, PLIM_HTTP_SLOW, 0},
    {"GET", "/api/v1/incidents/{}/bundle", plim__serve_bundle, PLIM_HTTP_LONG, 0},
    {"GET", "/api/v1/incidents/{}/report", plim__serve_report, PLIM_HTTP_LONG, 0},
    {"GET", "/api/v1/fleet", plim__serve_fleet, PLIM_HTTP_LONG, 0},
};

/* ---- where to listen ---- */

#define DEFAULT_MOST 2u

struct addresses {
    const char *const *list;
    size_t n;
    const char *defaults[DEFAULT_MOST];
    char port[8];
    char socket[128];
};

/* The loopback, and a socket in the folder that the system or the session gives to this program. */
static void fill_defaults(struct addresses *a)
{
    const char *folder = getenv("RUNTIME_DIRECTORY"); // NOLINT(concurrency-mt-unsafe): not set
    const char *session = getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
    const char *in = folder && *folder ? folder : session;
    (void)snprintf(a->port, sizeof(a->port), "%d", PLIM_WATCH_PORT);
    a->defaults[0] = a->port;
    a->n = 1;
    if (in && *in) {
        int n = snprintf(a->socket, sizeof(a->socket), "unix:%s/" PLIM_WATCH_SOCKET, in);
        if (n > 0 && (size_t)n < sizeof(a->socket)) {
            a->defaults[a->n++] = a->socket;
        }
    }
    a->list = a->defaults;
}

static void choose_addresses(const struct plim_watch *w, struct addresses *a)
{
    const struct plim_set_words *said = &w->settings->watch.items[0].listen;
    *a = (struct addresses){.list = w->options->listen, .n = w->options->n_listen};
    if (a->n == 0 && said->n > 0) {
        a->list = said->items;
        a->n = said->n;
    }
    if (a->n == 0) {
        fill_defaults(a);
    }
    if (a->n == 1 && strcmp(a->list[0], "none") == 0) {
        a->n = 0;
    }
}

/* ---- the part ---- */

static void serve_close(struct plim_watch *w, void *self)
{
    struct plim__serve *s = self;
    (void)w;
    plim_http_stop(s->http);
    plim_http_channel_free(s->live);
    for (size_t i = 0; i < PLIM_WATCH_TEXTS; i++) {
        plim_http_body_unref(s->shared[i].body);
        (void)pthread_mutex_destroy(&s->shared[i].lock);
    }
    plim__serve_history_close(s);
    plim__serve_fleet_close(s);
    plim_arena_fini(&s->arena);
    plim__serve_pages_close(s);
    free(s);
}

static enum plim_status keep_text(struct plim__serve *s, const char *text, const char **out,
                                  struct plim_err *err)
{
    struct plim_str copy = {0};
    if (text) {
        PLIM_TRY(plim_arena_str(&s->arena, plim_str_from(text), &copy, err));
    }
    *out = copy.p;
    return PLIM_OK;
}

/* Copies of what the server keeps pointing to: the settings go when they are read again. */
static enum plim_status keep_options(struct plim__serve *s, struct plim_http_options *o,
                                     struct plim_err *err)
{
    const struct plim_set_watch *said = &s->watch->settings->watch.items[0];
    void *hosts;
    PLIM_TRY(keep_text(s, said->token_file, &o->token_file, err));
    PLIM_TRY(keep_text(s, said->certificate, &o->certificate, err));
    PLIM_TRY(keep_text(s, said->key, &o->key, err));
    PLIM_TRY(keep_text(s, plim_incident_folder(said->incidents), &s->incidents, err));
    PLIM_TRY(plim_arena_array(&s->arena, said->hosts.n, sizeof(char *), &hosts, err));
    const char **copies = hosts;
    for (size_t i = 0; i < said->hosts.n; i++) {
        PLIM_TRY(keep_text(s, said->hosts.items[i], &copies[i], err));
    }
    o->hosts = copies;
    o->n_hosts = said->hosts.n;
    return PLIM_OK;
}

static enum plim_status start(struct plim__serve *s, const struct addresses *a,
                              struct plim_err *err)
{
    struct plim_http_options options = {.listen = a->list,
                                        .n_listen = a->n,
                                        .auth_all = s->watch->settings->watch.items[0].token_always,
                                        .routes = routes,
                                        .n_routes = PLIM_COUNT_OF(routes),
                                        .self = s};
    PLIM_TRY(keep_options(s, &options, err));
    plim__serve_fleet_learn(s);
    PLIM_TRY(plim_http_channel_new(&s->live, err));
    PLIM_TRY(plim__serve_pages_open(s, err));
    PLIM_TRY(plim_http_start(&options, &s->http, err));
    for (size_t i = 0; plim_http_url(s->http, i); i++) {
        plim__watch_tell(s->watch, "serving at %s", plim_http_url(s->http, i));
    }
    return PLIM_OK;
}

static enum plim_status serve_open(struct plim_watch *w, void **self, struct plim_err *err)
{
    struct addresses addresses;
    PLIM_TRY(plim__serve_fleet_options(w->options, err));
    choose_addresses(w, &addresses);
    if (addresses.n == 0) {
        return PLIM_OK;
    }
    struct plim__serve *s = calloc(1, sizeof(*s));
    if (!s) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the server");
    }
    s->watch = w;
    plim_arena_init(&s->arena, 1u << 20);
    for (size_t i = 0; i < PLIM_WATCH_TEXTS; i++) {
        (void)pthread_mutex_init(&s->shared[i].lock, NULL);
    }
    enum plim_status st = start(s, &addresses, err);
    if (st != PLIM_OK) {
        serve_close(w, s);
        return st;
    }
    *self = s;
    return PLIM_OK;
}

static void tell_health(struct plim__serve *s)
{
    struct plim_health *h = &s->watch->health;
    uint64_t n[PLIM_HTTP_COUNTS];
    for (unsigned i = 0; i < PLIM_HTTP_COUNTS; i++) {
        n[i] = plim_http_count(s->http, (enum plim_http_count)i);
    }
    plim_health_set(h, PLIM_HEALTH_HTTP_REQUESTS,
                    n[PLIM_HTTP_REQUESTS_OK] + n[PLIM_HTTP_REQUESTS_BAD] +
                        n[PLIM_HTTP_REQUESTS_FAILED]);
    plim_health_set(h, PLIM_HEALTH_HTTP_REFUSED,
                    n[PLIM_HTTP_REQUESTS_REFUSED] + n[PLIM_HTTP_TIMEOUTS]);
    plim_health_set(h, PLIM_HEALTH_HTTP_CLIENTS, n[PLIM_HTTP_CONNECTIONS]);
    plim_health_set(h, PLIM_HEALTH_HTTP_STREAMS, n[PLIM_HTTP_READERS]);
}

/* The state as the newest event, when somebody follows. */
static void serve_step(struct plim_watch *w, void *self)
{
    struct plim__serve *s = self;
    tell_health(s);
    if (plim_http_channel_readers(s->live) == 0) {
        return;
    }
    struct plim_watch_text *text = plim__watch_text(w, PLIM_WATCH_TEXT_STATUS);
    enum plim_status st = PLIM_E_NOMEM;
    if (text) {
        st = plim_http_channel_publish(s->live, w->now.sample.time_ns, "status",
                                       plim_str_trim(text->bytes), NULL);
    }
    plim__watch_text_drop(text);
    if (st != PLIM_OK && !s->told_failure) {
        plim__watch_tell(w, "no memory for the dashboard's events");
    }
    s->told_failure = st != PLIM_OK;
}

/* Token, certificate and key anew, and the peers. Addresses and names of files stay: changing those
 * takes a restart. */
static void serve_reload(struct plim_watch *w, void *self)
{
    struct plim__serve *s = self;
    struct plim_err err = {0};
    char text[400];
    plim__serve_fleet_learn(s);
    if (plim_http_reload(s->http, &err) != PLIM_OK) {
        (void)plim_err_format(&err, text, sizeof(text));
        plim__watch_tell(w, "token and certificate stay as they were: %s", text);
    }
}

const struct plim_watch_part plim__watch_serve = {.name = "serve",
                                                  .open = serve_open,
                                                  .step = serve_step,
                                                  .check = plim__serve_fleet_check,
                                                  .reload = serve_reload,
                                                  .close = serve_close};
