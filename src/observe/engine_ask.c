/* SPDX-License-Identifier: Apache-2.0 */

/* Questions to engines by libcurl, and their answers. See engine_fetch_int.h. */

#include "observe/engine_fetch_int.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>

#define BACK_OFF_NS (60 * PLIM_SECOND_NS) /* most between two questions to a server that is down */
#define HAPPENINGS  128                   /* most that wait for the reader */

/* ---- what happened ---- */

/* Under the lock. What nobody reads is dropped. */
static void happened(struct plim_engine_fetch *f, const struct plim__engine_server *s,
                     enum plim_happening_kind kind, const char *what)
{
    struct plim_happening h = {
        .kind = kind, .time_ns = plim_wall_ns(), .device = PLIM_NO_DEVICE, .pid = s->said.pid};
    (void)snprintf(h.text, sizeof(h.text), "%s%s", s->address.name, what);
    if (f->happenings.n < HAPPENINGS) {
        enum plim_status st = plim_vec_push(&f->happenings, NULL, h);
        (void)st;
    }
}

static bool asleep(const struct plim_engine_now *e)
{
    return plim_engine_has(e, PLIM_ENGINE_FIGURE_ASLEEP) &&
           e->figure[PLIM_ENGINE_FIGURE_ASLEEP] > 0;
}

/* Compare a new page with the last one: the same ranks, totals that began anew, sleep. */
static void compare(struct plim_engine_fetch *f, struct plim__engine_server *s,
                    const struct plim_engine_list *now, bool restarted)
{
    for (size_t i = 0; i < now->n; i++) {
        plim_vec_foreach (before, &s->said.engines) {
            if (!plim_engine_same(before, &now->items[i])) {
                continue;
            }
            restarted |= plim_engine_restarted(before, &now->items[i]);
            if (asleep(before) != asleep(&now->items[i])) {
                happened(f, s, asleep(before) ? PLIM_HAPPENED_AWAKE : PLIM_HAPPENED_ASLEEP, "");
            }
        }
    }
    if (restarted) {
        s->said.restarts++;
        happened(f, s, PLIM_HAPPENED_ENGINE_UP, " (restarted: its totals began anew)");
    } else if (!s->said.up) {
        happened(f, s, PLIM_HAPPENED_ENGINE_UP, "");
    }
}

/* ---- answers ---- */

static void failed(struct plim_engine_fetch *f, struct plim__engine_server *s, const char *why)
{
    char text[80];
    uint64_t wait = f->interval_ns << (s->failures < 6 ? s->failures : 6);
    wait = plim_max_u64(plim_min_u64(wait, BACK_OFF_NS), f->interval_ns);
    s->failures++;
    s->next_ns = plim_mono_ns() + wait;
    (void)snprintf(text, sizeof(text), ": %.70s", why);
    (void)pthread_mutex_lock(&f->lock);
    if (s->said.up || !s->said.asked) {
        happened(f, s, PLIM_HAPPENED_ENGINE_DOWN, text);
    }
    s->said.up = false;
    s->said.asked = true;
    (void)pthread_mutex_unlock(&f->lock);
}

/* Every server's engine has its server's name, and those that the page did not name, its guess. */
static void answered(struct plim_engine_fetch *f, struct plim__engine_server *s, bool whole)
{
    struct plim_engine_list engines = {0};
    if (plim_engine_page_end(&s->page, whole, &engines, NULL) != PLIM_OK || engines.n == 0) {
        plim_vec_fini(&engines);
        failed(f, s, "what it says is no page of metrics");
        return;
    }
    double start = s->page.process_start;
    bool restarted = s->process_start > 0 && start > 0 && start != s->process_start;
    s->process_start = start > 0 ? start : s->process_start;
    s->failures = 0;
    for (size_t i = 0; i < engines.n; i++) {
        memcpy(engines.items[i].name, s->address.name, sizeof(engines.items[i].name));
        if (engines.items[i].kind == PLIM_ENGINE_KIND_UNKNOWN) {
            engines.items[i].kind = s->guess;
        }
    }
    (void)pthread_mutex_lock(&f->lock);
    compare(f, s, &engines, restarted);
    struct plim_engine_list old = s->said.engines;
    s->said.engines = engines;
    s->said.asked = s->said.up = true;
    s->said.told_ns = plim_wall_ns();
    (void)pthread_mutex_unlock(&f->lock);
    plim_vec_fini(&old);
}

/* Without a length and without chunks, the end of an old connection may be a cut. */
static bool is_whole(const struct plim_engine_fetch *f, CURL *easy)
{
    long version = 0;
    curl_off_t length = -1;
    (void)f->curl.easy_getinfo(easy, CURLINFO_HTTP_VERSION, &version);
    (void)f->curl.easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return length >= 0 || version != CURL_HTTP_VERSION_1_0;
}

static void transfer_done(struct plim_engine_fetch *f, CURL *easy, CURLcode code)
{
    char *self = NULL;
    long status = 0;
    (void)f->curl.easy_getinfo(easy, CURLINFO_PRIVATE, &self);
    (void)f->curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    struct plim__engine_server *s = (struct plim__engine_server *)(void *)self;
    s->flying = false;
    (void)f->curl.multi_remove_handle(f->multi, easy);
    if (s->got > s->limit) {
        failed(f, s, "its page is too long");
    } else if (code != CURLE_OK) {
        failed(f, s, f->curl.easy_strerror(code));
    } else if (status != 200) {
        char why[40];
        (void)snprintf(why, sizeof(why), "it answers with status %ld", status);
        failed(f, s, why);
    } else {
        answered(f, s, is_whole(f, easy));
    }
    plim_engine_page_fini(&s->page);
}

/* ---- questions ---- */

/* Bytes of a page. Taking less than all ends the transfer. */
static size_t take_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct plim__engine_server *s = arg;
    s->got = plim_add_sat(s->got, size * n);
    if (s->got > s->limit) {
        return 0;
    }
    plim_engine_page_feed(&s->page, (struct plim_str){bytes, size * n});
    return size * n;
}

static bool set_up(struct plim_engine_fetch *f, struct plim__engine_server *s)
{
    const struct plim_curl *c = &f->curl;
    s->easy = c->easy_init();
    if (s->easy == NULL) {
        return false;
    }
    long ms = (long)(f->timeout_ns / 1000000);
    bool ok = c->easy_setopt(s->easy, CURLOPT_URL, s->address.url) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_TIMEOUT_MS, ms) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, ms) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_USERAGENT, "plimsoll") == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_BUFFERSIZE, 65536L) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_PRIVATE, s) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_WRITEDATA, s) == CURLE_OK &&
              c->easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK;
    if (ok && s->address.socket[0] != '\0') {
        ok = c->easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, s->address.socket) == CURLE_OK;
    }
    if (!ok) {
        c->easy_cleanup(s->easy);
        s->easy = NULL;
    }
    return ok;
}

void plim__engine_ask(struct plim_engine_fetch *f, struct plim__engine_server *s, uint64_t now)
{
    s->next_ns = now + f->interval_ns;
    if (s->easy == NULL && !set_up(f, s)) {
        failed(f, s, "this libcurl cannot ask it");
        return;
    }
    plim_engine_page_init(&s->page);
    s->got = 0;
    s->flying = f->curl.multi_add_handle(f->multi, s->easy) == CURLM_OK;
}

/* Sets `multi` under the lock, as the closing thread looks at it. */
enum plim_status plim__engine_curl(struct plim_engine_fetch *f, struct plim_err *err)
{
    PLIM_TRY(plim_curl_open(&f->curl, err));
    CURLM *multi = f->curl.multi_init();
    if (multi == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask engines");
    }
    (void)pthread_mutex_lock(&f->lock);
    f->multi = multi;
    (void)pthread_mutex_unlock(&f->lock);
    return PLIM_OK;
}

void plim__engine_answers(struct plim_engine_fetch *f)
{
    int running = 0, left = 0;
    (void)f->curl.multi_perform(f->multi, &running);
    for (CURLMsg *m; (m = f->curl.multi_info_read(f->multi, &left)) != NULL;) {
        if (m->msg == CURLMSG_DONE) {
            transfer_done(f, m->easy_handle, m->data.result);
        }
    }
}
