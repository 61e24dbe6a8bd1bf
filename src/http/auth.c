/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks, and whether that one may; see http.h for the rules. */

#include "base/file.h"
#include "base/num.h"
#include "http/http_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN_LEAST     16u
#define TOKEN_MOST      4096u
#define PEM_MOST        (1u << 20)
#define SESSION_SECONDS (24u * 3600u)

/* ---- secrets ---- */

static void forget(struct plim_str *secret)
{
    if (secret->p) {
        explicit_bzero((void *)(uintptr_t)secret->p, secret->n);
        free((void *)(uintptr_t)secret->p);
    }
    *secret = (struct plim_str){0};
}

void plim__secrets_fini(struct plim__secrets *secrets)
{
    forget(&secrets->token);
    forget(&secrets->certificate);
    forget(&secrets->key);
}

/* A file as a text with a NUL behind it. */
static enum plim_status read_text(const char *path, struct plim_str *out, struct plim_err *err)
{
    struct plim_str bytes;
    PLIM_TRY(plim_file_read(path, PEM_MOST, &bytes, err));
    char *text = malloc(bytes.n + 1);
    if (text) {
        memcpy(text, bytes.p, bytes.n);
        text[bytes.n] = '\0';
    }
    size_t n = bytes.n;
    forget(&bytes);
    if (!text) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %s", path);
    }
    *out = (struct plim_str){text, n};
    return PLIM_OK;
}

static enum plim_status read_token(const char *path, struct plim_str *out, struct plim_err *err)
{
    struct plim_str text;
    PLIM_TRY(read_text(path, &text, err));
    struct plim_str token = plim_str_trim(text);
    bool one_word = true;
    for (size_t i = 0; i < token.n; i++) {
        one_word = one_word && token.p[i] > ' ' && token.p[i] < 127;
    }
    if (!one_word || token.n < TOKEN_LEAST || token.n > TOKEN_MOST) {
        forget(&text);
        plim__err_set(err, PLIM_E_DATA, "the token is not one word of %u to %u characters",
                      TOKEN_LEAST, TOKEN_MOST);
        plim__err_where(err, "%s", path);
        plim__err_hint(err, "head -c 24 /dev/urandom | base64 makes a good one");
        return PLIM_E_DATA;
    }
    memmove((void *)(uintptr_t)text.p, token.p, token.n);
    *out = (struct plim_str){text.p, token.n};
    return PLIM_OK;
}

enum plim_status plim__secrets_read(const struct plim_http_options *options,
                                    struct plim__secrets *out, struct plim_err *err)
{
    struct plim__secrets made = {0};
    enum plim_status st = PLIM_OK;
    if (!options->certificate != !options->key) {
        return plim__fail(err, PLIM_E_USAGE, "a certificate and its key go together");
    }
    if (options->token_file) {
        st = read_token(options->token_file, &made.token, err);
    }
    if (st == PLIM_OK && options->certificate) {
        st = read_text(options->certificate, &made.certificate, err);
    }
    if (st == PLIM_OK && options->key) {
        st = read_text(options->key, &made.key, err);
    }
    if (st != PLIM_OK) {
        plim__secrets_fini(&made);
        return st;
    }
    *out = made;
    return PLIM_OK;
}

/* ---- sessions ---- */

/* The living session of an id, compared in constant time. Under the lock. */
static struct plim__session *session_of(struct plim_http *http, struct plim_str id)
{
    struct plim__session *found = NULL;
    uint64_t now = plim__http_seconds();
    for (size_t i = 0; i < PLIM__HTTP_SESSIONS; i++) {
        struct plim__session *s = &http->sessions[i];
        if (s->id[0] && s->until > now && plim_http_same_secret(plim_str_from(s->id), id)) {
            found = s;
        }
    }
    return found;
}

static bool cookie_of(const struct plim__exchange *ex, struct plim_str *id)
{
    const char *cookies = plim_http_header(&ex->request, MHD_HTTP_HEADER_COOKIE);
    return cookies &&
           plim_http_cookie(plim_str_from(cookies), plim_str_from(ex->http->cookie_name), id);
}

static enum plim_status new_session(struct plim_http *http, char id[PLIM__SESSION_TEXT + 1],
                                    struct plim_err *err)
{
    unsigned char bytes[PLIM__SESSION_TEXT / 2];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "no random bytes");
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(&id[2 * i], 3, "%02x", bytes[i]);
    }
    (void)pthread_mutex_lock(&http->lock);
    struct plim__session *oldest = &http->sessions[0];
    for (size_t i = 1; i < PLIM__HTTP_SESSIONS; i++) {
        if (http->sessions[i].until < oldest->until) {
            oldest = &http->sessions[i];
        }
    }
    memcpy(oldest->id, id, PLIM__SESSION_TEXT + 1);
    oldest->until = plim__http_seconds() + SESSION_SECONDS;
    (void)pthread_mutex_unlock(&http->lock);
    return PLIM_OK;
}

static void set_cookie(const struct plim__exchange *ex, const char *id, unsigned seconds,
                       struct plim_http_answer *answer)
{
    (void)snprintf(answer->cookie, sizeof(answer->cookie),
                   "%s=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Strict%s", ex->http->cookie_name,
                   id, seconds, ex->request.secure ? "; Secure" : "");
}

enum plim_status plim__login(struct plim__exchange *ex, struct plim_http_answer *answer,
                             struct plim_err *err)
{
    char id[PLIM__SESSION_TEXT + 1];
    PLIM_TRY(new_session(ex->http, id, err));
    set_cookie(ex, id, SESSION_SECONDS, answer);
    answer->code = MHD_HTTP_NO_CONTENT;
    return PLIM_OK;
}

void plim__logout(struct plim__exchange *ex, struct plim_http_answer *answer)
{
    struct plim_str id;
    if (cookie_of(ex, &id)) {
        (void)pthread_mutex_lock(&ex->http->lock);
        struct plim__session *s = session_of(ex->http, id);
        if (s) {
            *s = (struct plim__session){0};
        }
        (void)pthread_mutex_unlock(&ex->http->lock);
    }
    set_cookie(ex, "", 0, answer);
    answer->code = MHD_HTTP_NO_CONTENT;
}

/* ---- who asks ---- */

static bool has_token(const struct plim__exchange *ex)
{
    char room[TOKEN_MOST + 256];
    struct plim_str given;
    const char *header = plim_http_header(&ex->request, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!header || !plim_http_credentials(plim_str_from(header), room, sizeof(room), &given)) {
        return false;
    }
    (void)pthread_mutex_lock(&ex->http->lock);
    bool same = plim_http_same_secret(ex->http->secrets.token, given);
    (void)pthread_mutex_unlock(&ex->http->lock);
    explicit_bzero(room, sizeof(room));
    return same;
}

static bool has_session(const struct plim__exchange *ex)
{
    struct plim_str id;
    if (!cookie_of(ex, &id)) {
        return false;
    }
    (void)pthread_mutex_lock(&ex->http->lock);
    bool found = session_of(ex->http, id) != NULL;
    (void)pthread_mutex_unlock(&ex->http->lock);
    return found;
}

/* Over the Unix socket: root, or the user that runs the daemon. */
static bool is_owner(const struct plim__exchange *ex)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    return ex->listener->reach == PLIM__UNIX && ex->conn &&
           getsockopt(ex->conn->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

void plim__auth_learn(struct plim__exchange *ex)
{
    struct plim_http_request *r = &ex->request;
    const char *scheme = plim_http_header(r, "X-Forwarded-Proto");
    bool passed_on = plim_http_header(r, "Forwarded") || plim_http_header(r, "X-Forwarded-For");
    r->secure = ex->listener->tls || (scheme && strcasecmp(scheme, "https") == 0);
    r->local = ex->listener->reach != PLIM__NETWORK && !passed_on;
    r->known = has_token(ex) || (!passed_on && is_owner(ex));
    if (!r->known && has_session(ex)) {
        r->known = ex->by_cookie = true;
    }
}

/* A local request by address must name this machine, or its page may be anybody's. */
static bool host_is_ours(const struct plim__exchange *ex)
{
    const char *host = plim_http_header(&ex->request, MHD_HTTP_HEADER_HOST);
    const struct plim_http_options *o = &ex->http->options;
    if (ex->listener->reach == PLIM__UNIX) {
        return true;
    }
    if (!host) {
        return false;
    }
    struct plim_str name = plim_http_host_name(plim_str_from(host));
    for (size_t i = 0; i < o->n_hosts; i++) {
        if (strlen(o->hosts[i]) == name.n && strncasecmp(o->hosts[i], name.p, name.n) == 0) {
            return true;
        }
    }
    return plim_http_is_loopback_name(name);
}

/* Whether a change is asked for by a page of ours, or by a program. */
static bool origin_is_ours(const struct plim__exchange *ex)
{
    const char *origin = plim_http_header(&ex->request, MHD_HTTP_HEADER_ORIGIN);
    const char *host = plim_http_header(&ex->request, MHD_HTTP_HEADER_HOST);
    const char *site = plim_http_header(&ex->request, "Sec-Fetch-Site");
    if (origin) {
        return host && plim_http_same_origin(plim_str_from(origin), plim_str_from(host));
    }
    return !ex->by_cookie || (site && strcmp(site, "same-origin") == 0);
}

unsigned plim__auth_refuses(const struct plim__exchange *ex, const char **why, const char **hint)
{
    const struct plim_http_request *r = &ex->request;
    unsigned flags = ex->route->flags;
    *hint = "ask by a Unix socket, or send the token of --token-file as Authorization: Bearer (on "
            "a dashboard: log in)";
    if (!r->known && r->local && !(flags & PLIM_HTTP_ANY_HOST) && !host_is_ours(ex)) {
        *why = "this name is not one of this server's";
        *hint = "ask for 127.0.0.1 or localhost, or allow the name";
        return MHD_HTTP_FORBIDDEN;
    }
    if (flags & PLIM_HTTP_OPEN) {
        return 0;
    }
    if (flags & PLIM_HTTP_MUTATES) {
        if (!r->known) {
            *why = "whoever changes something must have the token";
            return MHD_HTTP_UNAUTHORIZED;
        }
        *why = "the request comes from a page of another server";
        *hint = NULL;
        return origin_is_ours(ex) ? 0 : MHD_HTTP_FORBIDDEN;
    }
    if (!r->known && (!r->local || ex->http->options.auth_all)) {
        *why = "whoever is not on this machine must have the token";
        return MHD_HTTP_UNAUTHORIZED;
    }
    return 0;
}
