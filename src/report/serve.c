/* SPDX-License-Identifier: Apache-2.0 */
/* The local server of the report; see serve.h. */

#include "report/serve.h"

#include "base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <sys/random.h>

#define TOKEN_BYTES 16u
#define TOKEN_TEXT  (2u * TOKEN_BYTES)
#define CONNECTIONS 64u
#define PATIENCE    30u /* seconds that an idle connection is kept */

struct plim_server {
    struct plim_detail *details; /* [n], borrowed */
    size_t n;
    struct plim_buf page;
    struct MHD_Daemon *daemon;
    uint16_t port;
    char token[TOKEN_TEXT + 1];
    char url[80];
};

struct request {
    struct plim_server *server;
    struct MHD_Connection *connection;
    struct plim_detail *detail; /* of the device asked about */
};

static enum MHD_Result answer(struct request *r, unsigned status, const char *type,
                              struct plim_str body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.n, (void *)(uintptr_t)body.p, MHD_RESPMEM_MUST_COPY);
    if (!response) {
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    enum MHD_Result result = MHD_queue_response(r->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct request *r, unsigned status, const char *why)
{
    return answer(r, status, "text/plain; charset=utf-8", plim_str_from(why));
}

/* A whole number from the query; false when it is missing or something else. */
static bool query_number(struct request *r, const char *name, uint32_t *out)
{
    const char *text = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
    uint64_t value = 0;
    if (!text || !*text) {
        return false;
    }
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || value > UINT32_MAX) {
            return false;
        }
        value = value * 10 + (uint64_t)(*p - '0');
    }
    *out = (uint32_t)plim_min_u64(value, UINT32_MAX);
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
static enum plim_status choose_device(struct request *r, struct plim_err *err)
{
    uint32_t device;
    r->detail = &r->server->details[0];
    if (!MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, "device")) {
        return PLIM_OK;
    }
    for (size_t i = 0; query_number(r, "device", &device) && i < r->server->n; i++) {
        if (r->server->details[i].diagnosis->device == device) {
            r->detail = &r->server->details[i];
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_RANGE, "there is no such device in the page");
}

typedef enum plim_status (*filler)(struct request *, struct plim_columns *, struct plim_err *);

static enum MHD_Result answer_columns(struct request *r, filler fill)
{
    struct plim_columns columns;
    struct plim_detail_chosen chosen = {0};
    struct plim_buf out = {0};
    struct plim_err err = {0};
    plim_columns_init(&columns);
    enum plim_status st = choose_device(r, &err);
    if (st == PLIM_OK) {
        plim_detail_forget_stacks(r->detail);
        st = fill(r, &columns, &err);
    }
    if (st == PLIM_OK) {
        st = plim_detail_put_stacks(r->detail, SIZE_MAX, &columns, &chosen, &err);
    }
    if (st == PLIM_OK) {
        st = plim_columns_write(&columns, &out, &err);
    }
    enum MHD_Result result =
        st == PLIM_OK ? answer(r, MHD_HTTP_OK, "application/octet-stream", plim_buf_str(&out))
                      : refuse(r, (unsigned)plim_status_http(st), err.message);
    plim_buf_fini(&out);
    plim_columns_fini(&columns);
    return result;
}

/* Compare without telling by time how much was right. */
static bool token_is(const struct plim_server *server, const char *text)
{
    unsigned differs = 0;
    if (strnlen(text, TOKEN_TEXT) < TOKEN_TEXT) {
        return false;
    }
    for (unsigned i = 0; i < TOKEN_TEXT; i++) {
        differs |= (unsigned char)text[i] ^ (unsigned char)server->token[i];
    }
    return differs == 0;
}

static bool host_is_ours(struct request *r)
{
    const char *host =
        MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    char number[32], name[32];
    (void)snprintf(number, sizeof(number), "127.0.0.1:%u", r->server->port);
    (void)snprintf(name, sizeof(name), "localhost:%u", r->server->port);
    return host && (strcmp(host, number) == 0 || strcmp(host, name) == 0);
}

static enum MHD_Result route(struct request *r, const char *path)
{
    static const struct {
        const char *name;
        filler fill;
    } answers[] = {{"series", fill_series}, {"events", fill_events}, {"heap", fill_heap}};
    if (path[0] != '/' || !token_is(r->server, path + 1) || path[1 + TOKEN_TEXT] != '/') {
        return refuse(r, MHD_HTTP_NOT_FOUND, "not found\n");
    }
    path += TOKEN_TEXT + 2;
    if (*path == '\0') {
        return answer(r, MHD_HTTP_OK, "text/html; charset=utf-8", plim_buf_str(&r->server->page));
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(answers); i++) {
        if (strcmp(path, answers[i].name) == 0) {
            return answer_columns(r, answers[i].fill);
        }
    }
    return refuse(r, MHD_HTTP_NOT_FOUND, "not found\n");
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd fixes the parameters */
static enum MHD_Result on_request(void *self, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    struct request r = {self, connection, NULL};
    (void)version;
    (void)upload;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return *upload_size > 0 ? MHD_NO : refuse(&r, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    }
    if (!host_is_ours(&r)) {
        return refuse(&r, MHD_HTTP_FORBIDDEN, "wrong host\n");
    }
    return route(&r, url);
}

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

static enum plim_status start_daemon(struct plim_server *server, uint16_t port,
                                     struct plim_err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    errno = 0;
    server->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, port, NULL,
                                      NULL, on_request, server, MHD_OPTION_SOCK_ADDR, &address,
                                      MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
                                      MHD_OPTION_CONNECTION_TIMEOUT, PATIENCE, MHD_OPTION_END);
    if (!server->daemon) {
        int e = errno ? errno : EADDRINUSE;
        enum plim_status st =
            plim__fail_errno(err, PLIM_E_OS, e, "cannot listen on 127.0.0.1:%u", port);
        plim__err_hint(err, "another program may have the port; --port 0 takes a free one");
        return st;
    }
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    server->port = info ? info->port : port;
    (void)snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%u/%s/", server->port,
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
        st = start_daemon(server, port, err);
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
        if (server->daemon) {
            MHD_stop_daemon(server->daemon);
        }
        plim_buf_fini(&server->page);
        free(server);
    }
}

const char *plim_server_url(const struct plim_server *server)
{
    return server->url;
}
