/* SPDX-License-Identifier: Apache-2.0 */

/* See get.h. */

#include "http/get.h"

#include "base/num.h"
#include "http/curl.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>

#define UNIX "unix:"

struct answer {
    struct plim_buf *out;
    size_t room;
};

/* libcurl's writer: a number other than what it gave ends the transfer. */
static size_t take(char *bytes, size_t size, size_t n, void *self)
{
    struct answer *a = self;
    if (n > a->room) {
        return 0;
    }
    a->room -= n;
    plim_buf_add(a->out, (struct plim_str){bytes, size * n});
    return a->out->failed ? 0 : n;
}

/* An address names one of these protocols, or none. */
static bool speaks_http(const char *address)
{
    return strstr(address, "://") == NULL || strncmp(address, "http://", 7) == 0 ||
           strncmp(address, "https://", 8) == 0;
}

static CURLcode prepare(const struct plim_curl *curl, CURL *easy, const struct plim_http_get *r,
                        struct answer *answer, struct curl_slist *headers)
{
    struct plim_buf url = {0};
    bool local = strncmp(r->address, UNIX, strlen(UNIX)) == 0;
    bool whole = strstr(r->address, "://") != NULL;
    plim_buf_printf(&url, "%s%s%s", whole ? "" : "http://", local ? "localhost" : r->address,
                    r->path);
    CURLcode bad = url.failed ? CURLE_OUT_OF_MEMORY : curl->easy_setopt(easy, CURLOPT_URL, url.p);
    plim_buf_fini(&url); /* it was copied */
#define SET(option, value) bad = bad != CURLE_OK ? bad : curl->easy_setopt(easy, option, value)
    if (local) {
        SET(CURLOPT_UNIX_SOCKET_PATH, r->address + strlen(UNIX));
    }
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)(r->timeout_ns / 1000000));
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_WRITEFUNCTION, take);
    SET(CURLOPT_WRITEDATA, answer);
#undef SET
    return bad;
}

static enum plim_status add_header(const struct plim_curl *curl, struct curl_slist **headers,
                                   const char *name, const char *value, struct plim_err *err)
{
    char line[600];
    if (value == NULL) {
        return PLIM_OK;
    }
    (void)snprintf(line, sizeof(line), "%s%.500s", name, value);
    struct curl_slist *more = curl->slist_append(*headers, line);
    if (more == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a request");
    }
    *headers = more;
    return PLIM_OK;
}

/* Another status than 200, and what a plimsoll server says of it (answer.c). */
static void refused(const struct plim_http_get *r, long status, struct plim_str answer,
                    struct plim_err *err)
{
    json_t *root = json_loadb(answer.p, answer.n, 0, NULL);
    const char *message = "", *hint = NULL;
    (void)json_unpack(root, "{s:{s:s, s?s}}", "error", "message", &message, "hint", &hint);
    (void)plim__fail(err, PLIM_E_DATA, "%.100s answers %.*s with %ld%s%.200s", r->address,
                     (int)plim_min_u64(strcspn(r->path, "?"), 60), r->path, status,
                     *message != '\0' ? ": " : "", message);
    if (status == 401 || status == 403) {
        plim__err_hint(err, "it wants its token: --token-file FILE");
    } else if (hint != NULL) {
        plim__err_hint(err, "%.200s", hint);
    }
    json_decref(root);
}

static enum plim_status judge(const struct plim_curl *curl, CURL *easy, CURLcode code,
                              const struct plim_http_get *r, struct plim_str answer,
                              struct plim_err *err)
{
    long status = 0;
    (void)curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status == 200) {
        return PLIM_OK;
    }
    if (code != CURLE_OK && status == 0) {
        return plim__fail(err, PLIM_E_NOINPUT, "nobody answers at %.100s: %.120s", r->address,
                          curl->easy_strerror(code));
    }
    refused(r, status, answer, err);
    return PLIM_E_DATA;
}

void plim_http_query_put(struct plim_buf *path, const char *name, const char *value)
{
    bool first = path->n == 0 || memchr(path->p, '?', path->n) == NULL;
    plim_buf_printf(path, "%c%s=", first ? '?' : '&', name);
    for (const char *p = value; *p != '\0'; p++) {
        if (isalnum((unsigned char)*p) || strchr("-._~", *p) != NULL) {
            plim_buf_char(path, *p);
        } else {
            plim_buf_printf(path, "%%%02X", (unsigned char)*p);
        }
    }
}

enum plim_status plim_http_get(const struct plim_http_get *r, struct plim_buf *out,
                               struct plim_err *err)
{
    struct plim_curl curl;
    struct answer answer = {out, r->most};
    struct curl_slist *headers = NULL;
    PLIM_TRY(plim_curl_open(&curl, err));
    CURL *easy = curl.easy_init();
    enum plim_status st =
        easy != NULL ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory for a request");
    st = st == PLIM_OK ? add_header(&curl, &headers, "Accept: ", r->accept, err) : st;
    st = st == PLIM_OK ? add_header(&curl, &headers, "Authorization: Bearer ", r->token, err) : st;
    if (st == PLIM_OK && !speaks_http(r->address)) {
        st = plim__fail(err, PLIM_E_USAGE, "'%.100s' is neither http nor https", r->address);
    }
    if (st == PLIM_OK && prepare(&curl, easy, r, &answer, headers) != CURLE_OK) {
        st = plim__fail(err, PLIM_E_USAGE, "'%.100s' is no address", r->address);
    }
    if (st == PLIM_OK) {
        size_t before = out->n;
        CURLcode code = curl.easy_perform(easy);
        st = judge(&curl, easy, code, r, plim_str_skip(plim_buf_str(out), before), err);
    }
    if (st == PLIM_OK) {
        st = plim_buf_status(out, err);
    }
    if (easy != NULL) {
        curl.easy_cleanup(easy);
    }
    curl.slist_free_all(headers);
    return st;
}
