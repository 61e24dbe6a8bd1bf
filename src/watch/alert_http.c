/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Alerts by HTTP: webhooks and Alertmanager. The receiver may be slow, lie or attack: the time is limited, redirects
 * are not followed, only http and https are spoken, and of what it answers only the status and Retry-After count.
 * Secrets are read from their files for each message, so that they may be changed at any time, and are in no
 * error: libcurl's own texts of an error, which name hosts and paths, are not used.
 */

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "base/sha256.h"
#include "http/curl.h"
#include "watch/alert_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SECRET_MAX  4096u  /* bytes of a secret */
#define ANSWER_MAX  65536u /* bytes of an answer; a longer one is cut off */
#define RETRY_MAX_S 3600   /* that a receiver may have us wait */

struct post {
    const struct plim_alert_message *m;
    struct plim_curl curl;
    struct curl_slist *headers; /* owned */
    char url[SECRET_MAX];
    struct plim_buf body;
    size_t answered;   /* bytes of the answer */
    uint64_t end_mono; /* of a sending that is hurried; 0: not yet */
};

/* ---- secrets ---- */

static void wipe(struct plim_str text)
{
    if (text.p != NULL) {
        explicit_bzero((void *)(uintptr_t)text.p, text.n);
        free((void *)(uintptr_t)text.p);
    }
}

/* The file's content without blanks around it, in out (NUL-terminated). */
static enum plim_status read_secret(const char *path, char out[SECRET_MAX], struct plim_err *err)
{
    struct plim_str text = {0};
    if (plim_file_read(path, SECRET_MAX - 1, &text, err) != PLIM_OK) {
        return PLIM_E_IO;
    }
    struct plim_str s = plim_str_trim(text);
    bool good = s.n > 0;
    for (size_t i = 0; i < s.n; i++) {
        good = good && (unsigned char)s.p[i] > ' ' && s.p[i] != 0x7f;
    }
    if (good) {
        memcpy(out, s.p, s.n);
        out[s.n] = '\0';
    }
    wipe(text);
    return good ? PLIM_OK : plim__fail(err, PLIM_E_IO, "%.100s holds no secret of one word", path);
}

/* ---- the request ---- */

static enum plim_status add_header(struct post *p, const char *name, const char *value,
                                   struct plim_err *err)
{
    char line[SECRET_MAX + 64];
    snprintf(line, sizeof(line), "%s: %s", name, value);
    struct curl_slist *more = p->curl.slist_append(p->headers, line);
    explicit_bzero(line, sizeof(line));
    if (more == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a header");
    }
    p->headers = more;
    return PLIM_OK;
}

static enum plim_status sign(struct post *p, struct plim_err *err)
{
    char key[SECRET_MAX];
    char text[PLIM_SHA256_HEX + 8] = "sha256=";
    uint8_t digest[PLIM_SHA256_BYTES];
    PLIM_TRY(read_secret(p->m->receiver->hmac_file, key, err));
    plim_hmac_sha256(plim_str_from(key), plim_buf_str(&p->body), digest);
    explicit_bzero(key, sizeof(key));
    (void)plim_sha256_hex(text + 7, digest);
    return add_header(p, "X-Plimsoll-Signature", text, err);
}

static enum plim_status make_headers(struct post *p, struct plim_err *err)
{
    const struct plim_receiver *r = p->m->receiver;
    char text[SECRET_MAX + 16];
    PLIM_TRY(add_header(p, "Content-Type", "application/json", err));
    PLIM_TRY(add_header(p, "Expect", "", err));
    snprintf(text, sizeof(text), "plimsoll/%s", p->m->version);
    PLIM_TRY(add_header(p, "User-Agent", text, err));
    snprintf(text, sizeof(text), "%016" PRIx64, plim__alert_id(p->m));
    PLIM_TRY(add_header(p, "Idempotency-Key", text, err));
    if (r->hmac_file != NULL) {
        PLIM_TRY(sign(p, err));
    }
    if (r->token_file != NULL) {
        snprintf(text, sizeof(text), "Bearer ");
        PLIM_TRY(read_secret(r->token_file, text + 7, err));
        enum plim_status st = add_header(p, "Authorization", text, err);
        explicit_bzero(text, sizeof(text));
        PLIM_TRY(st);
    }
    return PLIM_OK;
}

static enum plim_status make_request(struct post *p, struct plim_err *err)
{
    const struct plim_receiver *r = p->m->receiver;
    bool am = r->kind == PLIM_RECEIVER_ALERTMANAGER;
    if (r->url_file != NULL) {
        PLIM_TRY(read_secret(r->url_file, p->url, err));
        if (!plim__alert_is_url(p->url)) {
            return plim__fail(err, PLIM_E_IO, "%.100s holds no http:// or https:// address",
                              r->url_file);
        }
    } else {
        snprintf(p->url, sizeof(p->url), "%s", r->url);
    }
    if (am) {
        size_t n = strlen(p->url);
        n -= n > 0 && p->url[n - 1] == '/';
        snprintf(p->url + n, sizeof(p->url) - n, "/api/v2/alerts");
        plim__alert_message_am(p->m, &p->body);
    } else {
        plim__alert_message_json(p->m, &p->body);
    }
    PLIM_TRY(plim_buf_status(&p->body, err));
    return make_headers(p, err);
}

/* ---- sending ---- */

static size_t take_answer(char *bytes, size_t size, size_t n, void *user)
{
    struct post *p = user;
    (void)bytes;
    p->answered += size * n;
    return p->answered <= ANSWER_MAX ? size * n : 0;
}

/* libcurl asks now and then whether to go on: two seconds when the monitor ends. */
static int progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct post *p = user;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    if (p->m->stopping == NULL || !__atomic_load_n(p->m->stopping, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    uint64_t now = plim_mono_ns();
    p->end_mono = p->end_mono != 0 ? p->end_mono : now + 2 * PLIM_SECOND_NS;
    return now >= p->end_mono;
}

static bool set_up(struct post *p, CURL *easy)
{
    const struct plim_receiver *r = p->m->receiver;
    long ms = (long)plim_min_u64(r->timeout_ns / 1000000, 3600000);
    CURLcode bad = CURLE_OK;
#define SET(option, value) bad = bad != CURLE_OK ? bad : p->curl.easy_setopt(easy, option, value)
    SET(CURLOPT_URL, p->url);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDS, plim_buf_str(&p->body).p);
    SET(CURLOPT_POSTFIELDSIZE, (long)p->body.n);
    SET(CURLOPT_HTTPHEADER, p->headers);
    SET(CURLOPT_TIMEOUT_MS, ms);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_WRITEFUNCTION, take_answer);
    SET(CURLOPT_WRITEDATA, p);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, progress);
    SET(CURLOPT_XFERINFODATA, p);
    if (r->ca_file != NULL) {
        SET(CURLOPT_CAINFO, r->ca_file);
    }
#undef SET
    return bad == CURLE_OK;
}

static enum plim_status judge(struct post *p, CURL *easy, CURLcode code, uint64_t *wait_ns,
                              struct plim_err *err)
{
    long status = 0;
    curl_off_t wait = 0;
    (void)p->curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    bool cut = code == CURLE_WRITE_ERROR && p->answered > ANSWER_MAX; /* it has answered */
    if (code != CURLE_OK && !cut) {
        return plim__fail(err, PLIM_E_IO, "not delivered: %.120s", p->curl.easy_strerror(code));
    }
    if (status >= 200 && status < 300) {
        return PLIM_OK;
    }
    if (p->curl.easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0) {
        *wait_ns = (uint64_t)(wait < RETRY_MAX_S ? wait : RETRY_MAX_S) * PLIM_SECOND_NS;
    }
    bool refused = status == 400 || status == 413 || status == 422;
    return plim__fail(err, refused ? PLIM_E_DATA : PLIM_E_IO,
                      "the receiver answered with status %ld", status);
}

enum plim_status plim__alert_post(const struct plim_alert_message *m, uint64_t *wait_ns,
                                  struct plim_err *err)
{
    struct post *p = calloc(1, sizeof(*p));
    CURL *easy = NULL;
    enum plim_status st;
    if (p == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a message");
    }
    p->m = m;
    PLIM_TRY_GOTO(st, plim_curl_open(&p->curl, err), out);
    PLIM_TRY_GOTO(st, make_request(p, err), out);
    easy = p->curl.easy_init();
    if (easy == NULL || !set_up(p, easy)) {
        st = plim__fail(err, PLIM_E_IO, "libcurl takes no request to this address");
        goto out;
    }
    st = judge(p, easy, p->curl.easy_perform(easy), wait_ns, err);
out:
    if (easy != NULL) {
        p->curl.easy_cleanup(easy);
    }
    if (p->headers != NULL) {
        p->curl.slist_free_all(p->headers);
    }
    plim_buf_fini(&p->body);
    explicit_bzero(p->url, sizeof(p->url));
    free(p);
    return st;
}
