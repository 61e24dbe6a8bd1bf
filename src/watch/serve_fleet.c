/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet: what other monitors say of their machines, asked by this one and given to its clients.
 * Browsers could not ask them: other origins, other tokens. All are asked at once when somebody
 * wants to know, and the answer serves everybody for two seconds.
 */

#include "watch/serve_int.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/jsonw.h"
#include "base/num.h"
#include "http/curl.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PEERS_MOST   256u
#define FRESH_NS     UINT64_C(2000000000)
#define ANSWER_MOST  (1u << 20) /* bytes of one peer's answer */
#define TIMEOUT_MS   3000L
#define SECRET_BYTES 4096u

struct peer {
    const char *name, *url, *token_file, *ca_file; /* arena; the last two may be NULL */
    uint64_t time_ns;    /* of the newest state that it told, by its clock */
    uint64_t changed_ns; /* when that was first seen, CLOCK_MONOTONIC: clocks of machines differ */
};

/* The peers of the settings, apart from them: the settings may be read again while peers are asked. */
struct plim__serve_peers {
    struct plim_arena arena;
    PLIM_VEC(struct peer) list;
};

struct call {
    struct peer *peer;
    CURL *easy;
    struct curl_slist *headers;
    struct plim_buf body;
    char error[200]; /* "" good */
};

/* ---- who they are ---- */

static void peers_free(struct plim__serve_peers *peers)
{
    if (peers) {
        plim_vec_fini(&peers->list);
        plim_arena_fini(&peers->arena);
        free(peers);
    }
}

static enum plim_status keep_text(struct plim_arena *arena, const char *text, const char **out,
                                  struct plim_err *err)
{
    struct plim_str copy;
    if (!text) {
        *out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(plim_arena_str(arena, plim_str_from(text), &copy, err));
    *out = copy.p;
    return PLIM_OK;
}

static enum plim_status add_peer(struct plim__serve_peers *peers, const struct plim_set_peer *said,
                                 struct plim_err *err)
{
    struct peer peer = {0};
    PLIM_TRY(keep_text(&peers->arena, said->name, &peer.name, err));
    PLIM_TRY(keep_text(&peers->arena, said->url, &peer.url, err));
    PLIM_TRY(keep_text(&peers->arena, said->token_file, &peer.token_file, err));
    PLIM_TRY(keep_text(&peers->arena, said->ca_file, &peer.ca_file, err));
    return plim_vec_push(&peers->list, err, peer);
}

/* Those of the command line, by host and port, and those of the settings. */
static enum plim_status add_peers(const struct plim_watch *w, struct plim__serve_peers *peers)
{
    for (size_t i = 0; i < w->options->n_peers; i++) {
        const char *url = w->options->peers[i], *host = strstr(url, "://");
        struct plim_set_peer said = {.name = host ? host + 3 : url, .url = url};
        PLIM_TRY(add_peer(peers, &said, NULL));
    }
    plim_vec_foreach (peer, &w->settings->peer) {
        PLIM_TRY(add_peer(peers, peer, NULL));
    }
    return PLIM_OK;
}

static bool is_url(const char *url)
{
    return url && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
}

enum plim_status plim__serve_fleet_check(const struct plim_settings *settings, struct plim_err *err)
{
    if (settings->peer.n > PEERS_MOST) {
        return plim_settings_fail(settings, &settings->peer.items[PEERS_MOST], err,
                                  "%u peers at most", PEERS_MOST);
    }
    plim_vec_foreach (peer, &settings->peer) {
        if (!is_url(peer->url)) {
            return plim_settings_fail(settings, peer, err,
                                      "a peer's url begins with http:// or https://");
        }
    }
    return PLIM_OK;
}

enum plim_status plim__serve_fleet_options(const struct plim_watch_options *options,
                                           struct plim_err *err)
{
    for (size_t i = 0; i < options->n_peers; i++) {
        if (!is_url(options->peers[i])) {
            return plim__fail(err, PLIM_E_USAGE,
                              "--peer '%.150s' does not begin with http:// or https://",
                              options->peers[i]);
        }
    }
    return options->n_peers <= PEERS_MOST
               ? PLIM_OK
               : plim__fail(err, PLIM_E_RANGE, "%u peers at most", PEERS_MOST);
}

void plim__serve_fleet_learn(struct plim__serve *s)
{
    struct plim__serve_peers *peers = calloc(1, sizeof(*peers));
    enum plim_status st = peers ? PLIM_OK : PLIM_E_NOMEM;
    if (peers) {
        plim_arena_init(&peers->arena, 4u << 20);
    }
    st = st == PLIM_OK ? add_peers(s->watch, peers) : st;
    if (st != PLIM_OK) {
        plim__watch_tell(s->watch, "no memory for the peers");
        peers_free(peers);
        return;
    }
    peers_free(atomic_exchange(&s->fresh_peers, peers));
}

void plim__serve_fleet_close(struct plim__serve *s)
{
    peers_free(atomic_exchange(&s->fresh_peers, NULL));
    peers_free(s->peers);
    plim_http_body_unref(s->fleet);
}

/* ---- asking ---- */

static size_t take(char *bytes, size_t size, size_t n, void *self)
{
    struct call *call = self;
    if (size * n > ANSWER_MOST - call->body.n) {
        (void)snprintf(call->error, sizeof(call->error), "its answer is too long");
        return 0;
    }
    plim_buf_add(&call->body, (struct plim_str){bytes, size * n});
    return call->body.failed ? 0 : size * n;
}

/* The header with the token of a peer's file. */
static void add_token(const struct plim_curl *c, struct call *call)
{
    char header[SECRET_BYTES + 32];
    struct plim_str text;
    if (!call->peer->token_file) {
        return;
    }
    if (plim_file_read(call->peer->token_file, SECRET_BYTES, &text, NULL) != PLIM_OK) {
        (void)snprintf(call->error, sizeof(call->error), "its token file cannot be read");
        return;
    }
    struct plim_str token = plim_str_trim(text);
    (void)snprintf(header, sizeof(header), "Authorization: Bearer %.*s", PLIM_STR_ARG(token));
    call->headers = c->slist_append(NULL, header);
    explicit_bzero(header, sizeof(header));
    explicit_bzero((void *)(uintptr_t)text.p, text.n);
    free((void *)(uintptr_t)text.p);
}

static void begin(const struct plim_curl *c, CURLM *multi, struct call *call)
{
    char url[1024];
    size_t n = strlen(call->peer->url);
    bool slash = n > 0 && call->peer->url[n - 1] == '/';
    (void)snprintf(url, sizeof(url), "%s%sapi/v1/status", call->peer->url, slash ? "" : "/");
    add_token(c, call);
    call->easy = call->error[0] ? NULL : c->easy_init();
    if (!call->easy) {
        return;
    }
    bool ok = c->easy_setopt(call->easy, CURLOPT_URL, url) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_FAILONERROR, 1L) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_ACCEPT_ENCODING, "gzip") == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_USERAGENT, "plimsoll") == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_PRIVATE, call) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_WRITEDATA, call) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, take) == CURLE_OK &&
              c->easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK;
    if (call->peer->ca_file) {
        ok = ok && c->easy_setopt(call->easy, CURLOPT_CAINFO, call->peer->ca_file) == CURLE_OK;
    }
    if (!ok || c->multi_add_handle(multi, call->easy) != CURLM_OK) {
        (void)snprintf(call->error, sizeof(call->error), "it cannot be asked");
    }
}

static void take_results(const struct plim_curl *c, CURLM *multi)
{
    int left;
    CURLMsg *message;
    while ((message = c->multi_info_read(multi, &left)) != NULL) {
        struct call *call = NULL;
        if (message->msg == CURLMSG_DONE && message->data.result != CURLE_OK &&
            c->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call) == CURLE_OK &&
            call && !call->error[0]) {
            (void)snprintf(call->error, sizeof(call->error), "%s",
                           c->easy_strerror(message->data.result));
        }
    }
}

static enum plim_status ask_all(struct call *calls, size_t n, struct plim_err *err)
{
    struct plim_curl c;
    int running = 1;
    PLIM_TRY(plim_curl_open(&c, err));
    CURLM *multi = c.multi_init();
    if (!multi) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask peers");
    }
    for (size_t i = 0; i < n; i++) {
        begin(&c, multi, &calls[i]);
    }
    while (running > 0 && c.multi_perform(multi, &running) == CURLM_OK) {
        if (running > 0 && c.multi_poll(multi, NULL, 0, 500, NULL) != CURLM_OK) {
            break;
        }
    }
    take_results(&c, multi);
    for (size_t i = 0; i < n; i++) {
        if (calls[i].easy) {
            (void)c.multi_remove_handle(multi, calls[i].easy);
            c.easy_cleanup(calls[i].easy);
        }
        c.slist_free_all(calls[i].headers);
    }
    (void)c.multi_cleanup(multi);
    return PLIM_OK;
}

/* ---- telling ---- */

/* Whether a peer's answer is a state, and of when. What it says in it is the page's to distrust. */
static bool is_status(struct plim_str text, uint64_t *time_ns)
{
    const char *schema = NULL;
    json_int_t time = 0;
    json_t *root = json_loadb(text.p, text.n, 0, NULL);
    bool good = root && json_unpack(root, "{s:s, s:I}", "schema", &schema, "time_ns", &time) == 0 &&
                strcmp(schema, "plimsoll.status/1") == 0 && time >= 0;
    *time_ns = good ? (uint64_t)time : 0;
    json_decref(root);
    return good;
}

static void put_peer(struct plim_jsonw *w, struct call *call)
{
    struct plim_str text = plim_str_trim(plim_buf_str(&call->body));
    uint64_t then, now = plim_mono_ns();
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", call->peer->name);
    plim_jsonw_kv_text(w, "url", call->peer->url);
    if (!call->error[0] && !is_status(text, &then)) {
        (void)snprintf(call->error, sizeof(call->error), "it is no monitor");
    }
    if (call->error[0]) {
        plim_jsonw_kv_text(w, "error", call->error);
    } else {
        if (call->peer->time_ns != then || call->peer->changed_ns == 0) {
            call->peer->time_ns = then;
            call->peer->changed_ns = now;
        }
        plim_jsonw_kv_real(w, "age_seconds", (double)(now - call->peer->changed_ns) / 1e9);
        plim_jsonw_key(w, "status");
        plim_jsonw_raw(w, text);
    }
    plim_jsonw_end(w);
}

static enum plim_status write_fleet(struct plim__serve_peers *peers, struct plim_buf *out,
                                    struct plim_err *err)
{
    size_t n = peers->list.n;
    struct plim_jsonw w;
    struct call *calls = calloc(n + 1, sizeof(*calls));
    if (!calls) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask peers");
    }
    for (size_t i = 0; i < n; i++) {
        calls[i].peer = &peers->list.items[i];
    }
    enum plim_status st = n > 0 ? ask_all(calls, n, err) : PLIM_OK;
    plim_jsonw_init(&w, out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.fleet/1");
    plim_jsonw_key(&w, "peers");
    plim_jsonw_array(&w);
    for (size_t i = 0; i < n && st == PLIM_OK; i++) {
        put_peer(&w, &calls[i]);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
    for (size_t i = 0; i < n; i++) {
        plim_buf_fini(&calls[i].body);
    }
    free(calls);
    return st;
}

PLIM__HANDLER(fleet)
{
    struct plim__serve *s = self;
    struct plim__serve_peers *fresh = atomic_exchange(&s->fresh_peers, NULL);
    uint64_t now = plim_mono_ns();
    (void)request;
    if (fresh) {
        peers_free(s->peers);
        s->peers = fresh;
    }
    if (!s->fleet || fresh || now - s->fleet_ns > FRESH_NS) {
        struct plim_buf text = {0};
        struct plim_http_body *body;
        enum plim_status st = write_fleet(s->peers, &text, err);
        if (st != PLIM_OK) {
            plim_buf_fini(&text);
            return st;
        }
        PLIM_TRY(plim_http_body_new("application/json", NULL, &text, &body, err));
        plim_http_body_unref(s->fleet);
        s->fleet = body;
        s->fleet_ns = now;
    }
    answer->body = plim_http_body_ref(s->fleet);
    return PLIM_OK;
}
