/* SPDX-License-Identifier: Apache-2.0 */
/* The local server of the report; see serve.h. */

#include "report/serve.h"

#include "base/num.h"
#include "http/http.h"
#include "http/parse.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#define TOKEN_BYTES 16u
#define TOKEN_TEXT  (2u * TOKEN_BYTES)
#define PAGE_CSP    "frame-ancestors 'none'" /* the page itself says the rest */

struct plim_server {
    struct plim_detail *details; /* [n], borrowed; the slow thread's while the server runs */
    size_t n;
    struct plim_buf page;
    struct plim_http *http;
    char token[TOKEN_TEXT + 1];
    char address[32];
    const char *listen[1]; /* the address */
    char url[80];
};

/* What is asked of the details. */
struct request {
    const struct plim_http_request *http;
    struct plim_detail *detail; /* of the device asked about */
};

/* A whole number from the query; false when it is missing or something else. */
static bool query_number(const struct request *r, const char *name, uint32_t *out)
{
    struct plim_str text;
    uint64_t value;
    if (!plim_http_query(r->http, name, &text) || !plim_http_number(text, &value) ||
        value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static enum plim_status fill_series(struct request *r, struct plim_columns *columns,
                                    struct plim_err *err)
{
    uint32_t from, to, bins;
    struct plim_detail_series series;
    if (!query_number(r, "from", &from) || !query_number(r, "to", &to) ||
        !query_number(r, "bins", &bins) || bins > PLIM_SERVE_BINS) {
        return plim__fail(err, PLIM_E_USAGE, "series wants from, to and bins");
    }
    PLIM_TRY(plim_detail_series_of(r->detail, from, to, bins, &series, err));
    plim_detail_put_series(r->detail, &series, "se", columns);
    plim_vec_fini(&series.bins);
    return PLIM_OK;
}

static enum plim_status fill_events(struct request *r, struct plim_columns *columns,
                                    struct plim_err *err)
{
    uint32_t from, to;
    struct plim_detail *detail = r->detail;
    size_t n = detail->device->trace.events.n;
    if (!query_number(r, "from", &from) || !query_number(r, "to", &to)) {
        return plim__fail(err, PLIM_E_USAGE, "events wants from and to");
    }
    to = (uint32_t)plim_min_u64(to, n);
    if (from > to || to - from > PLIM_SERVE_EVENTS) {
        return plim__fail(err, PLIM_E_RANGE, "%u events at most", PLIM_SERVE_EVENTS);
    }
    uint32_t *events = malloc((to - from + 1) * sizeof(*events));
    if (!events) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %u events", to - from);
    }
    for (uint32_t i = from; i < to; i++) {
        events[i - from] = i;
    }
    plim_detail_put_events(detail, events, to - from, columns);
    free(events);
    return PLIM_OK;
}

static enum plim_status fill_heap(struct request *r, struct plim_columns *columns,
                                  struct plim_err *err)
{
    uint32_t at;
    if (!query_number(r, "at", &at)) {
        return plim__fail(err, PLIM_E_USAGE, "heap wants at");
    }
    if (at > r->detail->device->trace.events.n) {
        return plim__fail(err, PLIM_E_RANGE, "the trace has fewer events");
    }
    return plim_detail_put_moment(r->detail, at, columns, err);
}

/* The device that a request is about: the first unless it names one. */
static enum plim_status choose_device(const struct plim_server *server, struct request *r,
                                      struct plim_err *err)
{
    uint32_t device;
    struct plim_str named;
    r->detail = &server->details[0];
    if (!plim_http_query(r->http, "device", &named)) {
        return PLIM_OK;
    }
    for (size_t i = 0; query_number(r, "device", &device) && i < server->n; i++) {
        if (server->details[i].diagnosis->device == device) {
            r->detail = &server->details[i];
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_RANGE, "there is no such device in the page");
}

/* Whoever does not know the token learns nothing, not even that it is wrong. */
static enum plim_status check_token(const struct plim_server *server,
                                    const struct plim_http_request *request, struct plim_err *err)
{
    struct plim_str token = {server->token, TOKEN_TEXT};
    return plim_http_same_secret(token, request->param[0])
               ? PLIM_OK
               : plim__fail(err, PLIM_E_NOTFOUND, "there is nothing at this address");
}

typedef enum plim_status (*filler)(struct request *, struct plim_columns *, struct plim_err *);

static enum plim_status answer_columns(const struct plim_server *server,
                                       const struct plim_http_request *request, filler fill,
                                       struct plim_http_answer *answer, struct plim_err *err)
{
    struct request r = {request, NULL};
    struct plim_columns columns;
    struct plim_detail_chosen chosen = {0};
    PLIM_TRY(check_token(server, request, err));
    PLIM_TRY(choose_device(server, &r, err));
    plim_columns_init(&columns);
    plim_detail_forget_stacks(r.detail);
    enum plim_status st = fill(&r, &columns, err);
    if (st == PLIM_OK) {
        st = plim_detail_put_stacks(r.detail, SIZE_MAX, &columns, &chosen, err);
    }
    if (st == PLIM_OK) {
        st = plim_columns_write(&columns, &answer->text, err);
    }
    answer->type = "application/octet-stream";
    plim_columns_fini(&columns);
    return st;
}

#define ANSWER(name)                                                                               \
    static enum plim_status answer_##name(void *self, const struct plim_http_request *request,     \
                                          struct plim_http_answer *answer, struct plim_err *err)   \
    {                                                                                              \
        return answer_columns(self, request, fill_##name, answer, err);                            \
    }
ANSWER(series)
ANSWER(events)
ANSWER(heap)

static enum plim_status answer_page(void *self, const struct plim_http_request *request,
                                    struct plim_http_answer *answer, struct plim_err *err)
{
    const struct plim_server *server = self;
    PLIM_TRY(check_token(server, request, err));
    answer->type = "text/html; charset=utf-8";
    answer->csp = PAGE_CSP;
    plim_buf_add(&answer->text, plim_buf_str(&server->page));
    return plim_buf_status(&answer->text, err);
}

static const struct plim_http_route routes[] = {
    {"GET", "/{}/", answer_page, 0, 0},
    {"GET", "/{}/series", answer_series, PLIM_HTTP_SLOW, 0},
    {"GET", "/{}/events", answer_events, PLIM_HTTP_SLOW, 0},
    {"GET", "/{}/heap", answer_heap, PLIM_HTTP_SLOW, 0},
};

static enum plim_status make_token(struct plim_server *server, struct plim_err *err)
{
    unsigned char bytes[TOKEN_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "no random bytes");
    }
    for (unsigned i = 0; i < TOKEN_BYTES; i++) {
        (void)snprintf(&server->token[2 * i], 3, "%02x", bytes[i]);
    }
    return PLIM_OK;
}

static enum plim_status start(struct plim_server *server, uint16_t port, struct plim_err *err)
{
    struct plim_http_options options = {.listen = server->listen,
                                        .n_listen = 1,
                                        .routes = routes,
                                        .n_routes = PLIM_COUNT_OF(routes),
                                        .self = server};
    server->listen[0] = server->address;
    (void)snprintf(server->address, sizeof(server->address), "127.0.0.1:%u", port);
    enum plim_status st = plim_http_start(&options, &server->http, err);
    if (st == PLIM_E_OS) {
        plim__err_hint(err, "another program may have the port; --port 0 takes a free one");
    }
    PLIM_TRY(st);
    (void)snprintf(server->url, sizeof(server->url), "%s%s/", plim_http_url(server->http, 0),
                   server->token);
    return PLIM_OK;
}

enum plim_status plim_server_start(struct plim_detail *details, size_t n, const char *source,
                                   uint16_t port, struct plim_server **out, struct plim_err *err)
{
    struct plim_html_options options = {.source = source, .served = true};
    struct plim_server *server = calloc(1, sizeof(*server));
    if (!server) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the server");
    }
    server->details = details;
    server->n = n;
    enum plim_status st = make_token(server, err);
    if (st == PLIM_OK) {
        st = plim_html_page(&server->page, details, n, &options, err);
    }
    if (st == PLIM_OK) {
        st = start(server, port, err);
    }
    if (st != PLIM_OK) {
        plim_server_stop(server);
        return st;
    }
    *out = server;
    return PLIM_OK;
}

void plim_server_stop(struct plim_server *server)
{
    if (server) {
        plim_http_stop(server->http);
        plim_buf_fini(&server->page);
        free(server);
    }
}

const char *plim_server_url(const struct plim_server *server)
{
    return server->url;
}
