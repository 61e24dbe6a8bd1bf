/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, from its headers to its answer. libmicrohttpd calls plim__on_request() when the
 * headers are there, for each piece of a body, behind the body, and again when a job is done.
 */

#include "base/num.h"
#include "http/http_int.h"

#include <stdlib.h>

/* ---- what a handler may ask of its request ---- */

const char *plim_http_header(const struct plim_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

bool plim_http_query(const struct plim_http_request *request, const char *name,
                     struct plim_str *out)
{
    const char *value;
    size_t n;
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, &n) != MHD_YES) {
        return false;
    }
    *out = (struct plim_str){value ? value : "", value ? n : 0};
    return true;
}

struct collecting {
    const char *name;
    struct plim_arena *arena;
    size_t most;
    const char **out;
    size_t n;
    enum plim_status st;
    struct plim_err *err;
};

static enum MHD_Result collect(void *self, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    struct collecting *c = self;
    (void)kind;
    if (strcmp(name, c->name) != 0) {
        return MHD_YES;
    }
    struct plim_str copy;
    c->st = c->n < c->most
                ? plim_arena_str(c->arena, plim_str_from(value ? value : ""), &copy, c->err)
                : plim__fail(c->err, PLIM_E_RANGE, "%s may stand %zu times at most", name, c->most);
    if (c->st == PLIM_OK) {
        c->out[c->n++] = copy.p;
    }
    return c->st == PLIM_OK ? MHD_YES : MHD_NO;
}

enum plim_status plim_http_query_all(const struct plim_http_request *request, const char *name,
                                     struct plim_arena *arena, size_t most, const char **out,
                                     size_t *n, struct plim_err *err)
{
    struct collecting c = {name, arena, most, out, 0, PLIM_OK, err};
    (void)MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, collect, &c);
    *n = c.n;
    return c.st;
}

enum plim_status plim_http_query_u64(const struct plim_http_request *request, const char *name,
                                     uint64_t fallback, uint64_t *out, struct plim_err *err)
{
    struct plim_str text;
    if (!plim_http_query(request, name, &text)) {
        *out = fallback;
        return PLIM_OK;
    }
    if (!plim_http_number(text, out)) {
        return plim__fail(err, PLIM_E_USAGE, "%s is not a whole number", name);
    }
    return PLIM_OK;
}

/* ---- POST /login and POST /logout ---- */

static enum plim_status never(void *self, const struct plim_http_request *request,
                              struct plim_http_answer *answer, struct plim_err *err)
{
    (void)self;
    (void)request;
    (void)answer;
    return plim__fail(err, PLIM_E_INTERNAL, "this route has no handler");
}

static const struct plim_http_route own_routes[] = {
    {"POST", "/login", never, PLIM_HTTP_MUTATES, 0},
    {"POST", "/logout", never, PLIM_HTTP_MUTATES, 0},
};

static struct plim__made own_answer(struct plim__exchange *ex)
{
    struct plim_http_answer answer = {.fd = -1};
    if (ex->route == &own_routes[1]) {
        plim__logout(ex, &answer);
    } else if (plim__login(ex, &answer, NULL) != PLIM_OK) {
        return plim__answer_refusal(MHD_HTTP_INTERNAL_SERVER_ERROR, "no random bytes", NULL);
    }
    struct plim__made made = {.code = answer.code};
    made.response =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (made.response) {
        plim__answer_security(made.response, PLIM_HTTP_CSP_NOTHING);
        MHD_add_response_header(made.response, "Cache-Control", "no-store");
        MHD_add_response_header(made.response, "Set-Cookie", answer.cookie);
    }
    return made;
}

/* ---- routing ---- */

static const struct plim_http_route *find(const struct plim_http_route *routes, size_t n,
                                          struct plim_http_request *r, bool *path_known)
{
    for (size_t i = 0; i < n; i++) {
        if (!plim_http_match(routes[i].path, r->path, r->param, &r->n_params)) {
            continue;
        }
        *path_known = true;
        if (routes[i].method[0] == '*' || strcmp(routes[i].method, r->method) == 0) {
            return &routes[i];
        }
    }
    return NULL;
}

/* ---- answering ---- */

static enum MHD_Result queue(struct plim__exchange *ex, struct plim__made *made)
{
    enum plim_http_count count = made->code < 400 ? PLIM_HTTP_REQUESTS_OK
                                 : made->code == 401 || made->code == 403
                                     ? PLIM_HTTP_REQUESTS_REFUSED
                                 : made->code < 500 ? PLIM_HTTP_REQUESTS_BAD
                                                    : PLIM_HTTP_REQUESTS_FAILED;
    enum MHD_Result result = MHD_NO; /* closes the connection: no memory to say anything */
    if (made->response) {
        result = MHD_queue_response(ex->connection, made->code, made->response);
    }
    plim__http_add(ex->http, count, 1);
    plim__made_fini(made);
    return result;
}

static enum MHD_Result refuse(struct plim__exchange *ex, unsigned code, const char *why,
                              const char *hint)
{
    struct plim__made made = plim__answer_refusal(code, why, hint);
    return queue(ex, &made);
}

static void set_deadline(struct plim__exchange *ex, unsigned seconds)
{
    if (ex->conn) {
        (void)pthread_mutex_lock(&ex->http->lock);
        ex->conn->deadline = plim__http_seconds() + seconds;
        ex->conn->served = true;
        (void)pthread_mutex_unlock(&ex->http->lock);
    }
}

static enum MHD_Result answer(struct plim__exchange *ex)
{
    if (ex->too_large) {
        return refuse(ex, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large", NULL);
    }
    if (plim_buf_status(&ex->body, NULL) != PLIM_OK) {
        return refuse(ex, 507, "no memory for the body", NULL);
    }
    ex->request.body = plim_buf_str(&ex->body);
    set_deadline(ex, PLIM__ANSWER_SECONDS);
    if (ex->route->flags & (PLIM_HTTP_SLOW | PLIM_HTTP_LONG)) {
        return plim__job_add(ex) ? MHD_YES
                                 : refuse(ex, MHD_HTTP_SERVICE_UNAVAILABLE,
                                          "too many requests wait", "try again in a second");
    }
    struct plim__made made = ex->route->handle == never ? own_answer(ex) : plim__answer_make(ex);
    return queue(ex, &made);
}

/* The headers are there: whatever speaks against the request is said before its body comes. */
static enum MHD_Result begin(struct plim__exchange *ex, const char *url, const char *method)
{
    const char *why, *hint;
    bool path_known = false;
    struct plim_http_request *r = &ex->request;
    r->method = strcmp(method, "HEAD") == 0 ? "GET" : method;
    r->path = plim_str_from(url);
    r->connection = ex->connection;
    ex->route = find(ex->http->options.routes, ex->http->options.n_routes, r, &path_known);
    if (!ex->route) {
        ex->route = find(own_routes, PLIM_COUNT_OF(own_routes), r, &path_known);
    }
    if (!ex->route) {
        return path_known ? refuse(ex, MHD_HTTP_METHOD_NOT_ALLOWED, "not with this method", NULL)
                          : refuse(ex, MHD_HTTP_NOT_FOUND, "there is nothing here", NULL);
    }
    plim__auth_learn(ex);
    unsigned code = plim__auth_refuses(ex, &why, &hint);
    if (code) {
        return refuse(ex, code, why, hint);
    }
    const char *length = plim_http_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t n;
    if (length && plim_http_number(plim_str_from(length), &n) && n > ex->route->body_limit) {
        return refuse(ex, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large", NULL);
    }
    return MHD_YES;
}

static struct plim__connection *connection_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd fixes the parameters */
enum MHD_Result plim__on_request(void *self, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_size, void **state)
{
    struct plim__listener *listener = self;
    struct plim__exchange *ex = *state;
    (void)version;
    if (!ex) {
        ex = calloc(1, sizeof(*ex));
        if (!ex) {
            return MHD_NO;
        }
        ex->http = listener->http;
        ex->listener = listener;
        ex->connection = connection;
        ex->conn = connection_of(connection);
        *state = ex;
        return begin(ex, url, method);
    }
    if (ex->made.code) {
        return queue(ex, &ex->made);
    }
    if (*upload_size > 0) {
        ex->too_large = ex->too_large || *upload_size > ex->route->body_limit - ex->body.n;
        if (!ex->too_large) {
            plim_buf_add(&ex->body, (struct plim_str){upload, *upload_size});
        }
        *upload_size = 0;
        return MHD_YES;
    }
    return answer(ex);
}

void plim__on_completed(void *self, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why)
{
    struct plim__exchange *ex = *state;
    (void)self;
    (void)connection;
    (void)why;
    if (ex) {
        set_deadline(ex, PLIM__IDLE_PATIENCES * ex->http->options.patience_s);
        plim__made_fini(&ex->made);
        plim_buf_fini(&ex->body);
        free(ex);
        *state = NULL;
    }
}

/* ---- connections ---- */

static void connection_begins(struct plim_http *http, struct MHD_Connection *connection,
                              void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct plim__connection *conn = calloc(1, sizeof(*conn));
    plim__http_add(http, PLIM_HTTP_CONNECTIONS, 1);
    plim__http_add(http, PLIM_HTTP_CONNECTIONS_TOTAL, 1);
    *context = conn;
    if (!conn) {
        return; /* such a connection has no deadline but the idle one of libmicrohttpd */
    }
    conn->fd = info ? info->connect_fd : -1;
    (void)pthread_mutex_lock(&http->lock);
    conn->deadline = plim__http_seconds() + http->options.patience_s;
    conn->next = http->connections;
    if (conn->next) {
        conn->next->prev = conn;
    }
    http->connections = conn;
    (void)pthread_cond_broadcast(&http->changed);
    (void)pthread_mutex_unlock(&http->lock);
}

static void connection_ends(struct plim_http *http, struct plim__connection *conn)
{
    plim__http_add(http, PLIM_HTTP_CONNECTIONS, -1);
    if (!conn) {
        return;
    }
    (void)pthread_mutex_lock(&http->lock);
    if (conn->prev) {
        conn->prev->next = conn->next;
    } else {
        http->connections = conn->next;
    }
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    (void)pthread_mutex_unlock(&http->lock);
    free(conn);
}

void plim__on_connection(void *self, struct MHD_Connection *connection, void **context,
                         enum MHD_ConnectionNotificationCode what)
{
    struct plim__listener *listener = self;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        connection_begins(listener->http, connection, context);
    } else {
        connection_ends(listener->http, *context);
        *context = NULL;
    }
}
