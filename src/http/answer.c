/* SPDX-License-Identifier: Apache-2.0 */
/* From what a handler filled, or from a failure, to a response of libmicrohttpd. */

#include "base/jsonw.h"
#include "http/http_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL 1024u /* bytes that are not worth compressing */
#define JSON  "application/json"

void plim__answer_security(struct MHD_Response *response, const char *csp)
{
    MHD_add_response_header(response, "Content-Security-Policy", csp);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
}

void plim__made_fini(struct plim__made *made)
{
    if (made->response && !made->body) {
        MHD_destroy_response(made->response);
    }
    plim_http_body_unref(made->body);
    *made = (struct plim__made){0};
}

/* A response over the text, which is taken. */
static struct MHD_Response *text_response(struct plim_buf *text, const char *type, const char *csp)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->n, text->n ? text->p : (void *)(uintptr_t) "",
                                        text->n ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response || text->n == 0) {
        plim_buf_fini(text);
    }
    *text = (struct plim_buf){0};
    if (response) {
        plim__answer_security(response, csp ? csp : PLIM_HTTP_CSP_NOTHING);
        MHD_add_response_header(response, "Content-Type", type ? type : JSON);
        MHD_add_response_header(response, "Cache-Control", "no-store");
    }
    return response;
}

static struct plim__made failure(unsigned code, const struct plim_err *err)
{
    struct plim_buf text = {0};
    struct plim_jsonw w;
    struct plim__made made = {.code = code};
    plim_jsonw_init(&w, &text, true);
    plim_jsonw_object(&w);
    plim_jsonw_key(&w, "error");
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "status", plim_status_name(err->status));
    plim_jsonw_kv_u64(&w, "code", code);
    plim_jsonw_kv_text(&w, "message", err->message);
    if (err->where[0]) {
        plim_jsonw_kv_text(&w, "where", err->where);
    }
    if (err->hint[0]) {
        plim_jsonw_kv_text(&w, "hint", err->hint);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
    if (text.failed) {
        plim_buf_fini(&text);
        return made;
    }
    made.response = text_response(&text, NULL, NULL);
    if (made.response && code == MHD_HTTP_UNAUTHORIZED) {
        MHD_add_response_header(made.response, "WWW-Authenticate", "Bearer realm=\"plimsoll\"");
    }
    return made;
}

struct plim__made plim__answer_refusal(unsigned code, const char *why, const char *hint)
{
    struct plim_err err = {.status = code == MHD_HTTP_NOT_FOUND               ? PLIM_E_NOTFOUND
                                     : code == MHD_HTTP_CONTENT_TOO_LARGE     ? PLIM_E_BUDGET
                                     : code == MHD_HTTP_INTERNAL_SERVER_ERROR ? PLIM_E_INTERNAL
                                     : code == MHD_HTTP_SERVICE_UNAVAILABLE   ? PLIM_E_OS
                                                                              : PLIM_E_USAGE};
    (void)snprintf(err.message, sizeof(err.message), "%s", why);
    (void)snprintf(err.hint, sizeof(err.hint), "%s", hint ? hint : "");
    return failure(code, &err);
}

static struct plim_str header_of(const struct plim__exchange *ex, const char *name)
{
    const char *value = plim_http_header(&ex->request, name);
    return value ? plim_str_from(value) : PLIM_STR("");
}

void plim_http_answer_header(struct plim_http_answer *answer, const char *name, const char *value)
{
    if (answer->n_headers == PLIM_HTTP_HEADERS) {
        return;
    }
    char *to = answer->header[answer->n_headers].value;
    (void)snprintf(answer->header[answer->n_headers].name, sizeof(answer->header[0].name), "%s",
                   name);
    (void)snprintf(to, sizeof(answer->header[0].value), "%s", value);
    for (; *to; to++) {
        *to = (unsigned char)*to < ' ' || *to == 0x7f ? ' ' : *to;
    }
    answer->n_headers++;
}

static struct plim__made from_text(struct plim__exchange *ex, struct plim_http_answer *answer)
{
    struct plim__made made = {.code = answer->code ? answer->code : MHD_HTTP_OK};
    struct plim_buf packed = {0};
    enum plim_encoding encoding = PLIM_ENCODING_IDENTITY;
    if (answer->text.failed) {
        return made;
    }
    if (answer->text.n > SMALL) {
        encoding = plim_http_choose_encoding(header_of(ex, "Accept-Encoding"));
    }
    if (encoding != PLIM_ENCODING_IDENTITY &&
        plim__compress(plim_buf_str(&answer->text), encoding, &packed, NULL) == PLIM_OK) {
        plim_buf_fini(&answer->text);
        answer->text = packed;
    } else {
        encoding = PLIM_ENCODING_IDENTITY;
    }
    made.response = text_response(&answer->text, answer->type, answer->csp);
    if (made.response && encoding != PLIM_ENCODING_IDENTITY) {
        MHD_add_response_header(made.response, "Content-Encoding", plim__encoding_text(encoding));
    }
    if (made.response) {
        MHD_add_response_header(made.response, "Vary", "Accept-Encoding");
    }
    for (size_t i = 0; made.response && i < answer->n_headers; i++) {
        MHD_add_response_header(made.response, answer->header[i].name, answer->header[i].value);
    }
    return made;
}

/* The file or the part of it that was asked for. The descriptor is the response's from then on. */
static struct plim__made from_file(struct plim__exchange *ex, struct plim_http_answer *answer)
{
    uint64_t from = 0, to = answer->size;
    char text[96];
    enum plim_range range =
        plim_http_range(header_of(ex, MHD_HTTP_HEADER_RANGE), answer->size, &from, &to);
    if (range == PLIM_RANGE_BAD) {
        struct plim__made bad = plim__answer_refusal(416, "the file has no such bytes", NULL);
        (void)snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)answer->size);
        if (bad.response) {
            MHD_add_response_header(bad.response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
        }
        return bad;
    }
    struct plim__made made = {.code = range == PLIM_RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT
                                                               : MHD_HTTP_OK};
    made.response = MHD_create_response_from_fd_at_offset64(to - from, answer->fd, from);
    if (!made.response) {
        return made;
    }
    answer->fd = -1;
    plim__answer_security(made.response, answer->csp ? answer->csp : PLIM_HTTP_CSP_NOTHING);
    MHD_add_response_header(made.response, "Content-Type", answer->type ? answer->type : JSON);
    MHD_add_response_header(made.response, "Accept-Ranges", "bytes");
    MHD_add_response_header(made.response, "Cache-Control", "no-store");
    if (range == PLIM_RANGE_PART) {
        (void)snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from,
                       (unsigned long long)to - 1, (unsigned long long)answer->size);
        MHD_add_response_header(made.response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
    }
    return made;
}

/* A name that is safe inside quotes; letters, digits and a few signs of it. */
static void add_filename(struct MHD_Response *response, const char *name)
{
    char text[192];
    int n = snprintf(text, sizeof(text), "attachment; filename=\"%s\"", name);
    for (int i = 22; i < n - 1 && i < (int)sizeof(text) - 1; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '.' || c == '-' || c == '_';
        text[i] = plain ? (char)c : '_';
    }
    MHD_add_response_header(response, "Content-Disposition", text);
}

static struct plim__made from_answer(struct plim__exchange *ex, struct plim_http_answer *answer)
{
    struct plim__made made = {.code = MHD_HTTP_OK};
    if (answer->channel) {
        made.response = plim__reader_response(ex, answer->channel);
        return made;
    }
    if (answer->body) {
        made.response =
            plim__body_response(answer->body, header_of(ex, "Accept-Encoding"),
                                header_of(ex, MHD_HTTP_HEADER_IF_NONE_MATCH), &made.code);
        made.body = answer->body;
        answer->body = NULL;
        return made;
    }
    made = answer->fd >= 0 ? from_file(ex, answer) : from_text(ex, answer);
    if (made.response && answer->filename[0]) {
        add_filename(made.response, answer->filename);
    }
    if (made.response && answer->cookie[0]) {
        MHD_add_response_header(made.response, "Set-Cookie", answer->cookie);
    }
    return made;
}

struct plim__made plim__answer_make(struct plim__exchange *ex)
{
    struct plim_http_answer answer = {.fd = -1};
    struct plim_err err = {0};
    enum plim_status st = ex->route->handle(ex->http->options.self, &ex->request, &answer, &err);
    struct plim__made made =
        st == PLIM_OK
            ? from_answer(ex, &answer)
            : failure(answer.code >= 400 ? answer.code : (unsigned)plim_status_http(st), &err);
    plim_buf_fini(&answer.text);
    plim_http_body_unref(answer.body);
    if (answer.fd >= 0) {
        (void)close(answer.fd);
    }
    return made;
}
