/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The thread that asks engines.
 *
 * Its own: servers' transfers, the tree of processes, libcurl. Shared with the reader, under `lock`: each server's
 * `said`, the list of users, happenings, the end. What a page says is put together outside the lock and handed over
 * whole.
 */

#include "observe/engine_fetch.h"

#include "base/num.h"
#include "http/curl.h"
#include "observe/engine_page.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define SECOND       UINT64_C(1000000000)
#define INTERVAL_NS  (5 * SECOND)
#define LOOK_NS      (10 * SECOND)  /* between two looks for engines, while one may be starting: */
#define STARTING_NS  (300 * SECOND) /* so long after the users of devices have changed */
#define SETTLED_NS   (60 * SECOND)  /* between two looks afterwards */
#define BACK_OFF_NS  (60 * SECOND)  /* most between two questions to a server that is down */
#define BODY_LIMIT   (UINT64_C(16) << 20)
#define HAPPENINGS   128 /* most that wait for the reader */
#define USERS        256 /* most pids that are told to the thread */
#define WAIT_LONG_MS 1000

/* What a server said last. */
struct said {
    struct plim_engine_list engines; /* of the last whole page */
    bool asked;                      /* it answered, or failed to, at least once */
    bool up;
    uint64_t told_ns;
    uint32_t restarts;
    uint32_t pid;
    uint32_t workers, worker[PLIM_ENGINE_WORKERS];
};

struct server {
    struct plim_engine_address address;
    enum plim_engine_kind guess; /* from its command line */
    bool found;                  /* not configured: it goes when its process has gone */
    CURL *easy;                  /* NULL until it is asked first */
    bool flying;
    uint64_t next_ns; /* when to ask, by the monotonic clock */
    unsigned failures;
    size_t got, limit; /* bytes of the page so far, and at most */
    double process_start;
    struct plim_engine_page page;
    struct said said; /* under the lock */
};

struct plim_engine_fetch {
    struct plim_world world;
    bool discover;
    uint64_t interval_ns, timeout_ns;
    size_t body_limit;
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows, up to the next empty line */
    pthread_cond_t wake;
    bool stop;
    CURLM *multi; /* set once, when there is somebody to ask */
    bool no_curl; /* engines were found, and libcurl is not there */
    uint32_t users[USERS];
    size_t n_users;
    uint64_t changed_ns;                        /* when other processes began to use devices */
    struct server *server[PLIM_ENGINE_SERVERS]; /* owned; added and removed by the thread only */
    size_t n_servers;
    PLIM_VEC(struct plim_happening) happenings;

    struct plim_curl curl; /* the thread's own from here on */
    struct plim_engine_tree tree;
    uint64_t look_ns;
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- what happened ---- */

/* Under the lock. What nobody reads is dropped. */
static void happened(struct plim_engine_fetch *f, const struct server *s,
                     enum plim_happening_kind kind, const char *what)
{
    struct plim_happening h = {.kind = kind,
                               .time_ns = clock_ns(CLOCK_REALTIME),
                               .device = PLIM_NO_DEVICE,
                               .pid = s->said.pid};
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
static void compare(struct plim_engine_fetch *f, struct server *s,
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

static void failed(struct plim_engine_fetch *f, struct server *s, const char *why)
{
    char text[80];
    uint64_t wait = f->interval_ns << (s->failures < 6 ? s->failures : 6);
    wait = plim_max_u64(plim_min_u64(wait, BACK_OFF_NS), f->interval_ns);
    s->failures++;
    s->next_ns = clock_ns(CLOCK_MONOTONIC) + wait;
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
static void answered(struct plim_engine_fetch *f, struct server *s, bool whole)
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
    s->said.told_ns = clock_ns(CLOCK_REALTIME);
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
    struct server *s = (struct server *)(void *)self;
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
    struct server *s = arg;
    s->got = plim_add_sat(s->got, size * n);
    if (s->got > s->limit) {
        return 0;
    }
    plim_engine_page_feed(&s->page, (struct plim_str){bytes, size * n});
    return size * n;
}

static bool set_up(struct plim_engine_fetch *f, struct server *s)
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

static void ask(struct plim_engine_fetch *f, struct server *s, uint64_t now)
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

/* libcurl, when somebody is to be asked. Sets `multi` under the lock, as the closing thread looks at it. */
static enum plim_status load_curl(struct plim_engine_fetch *f, struct plim_err *err)
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

/* ---- servers ---- */

static enum plim_status add_server(struct plim_engine_fetch *f,
                                   const struct plim_engine_address *address, struct plim_err *err)
{
    struct server *s = f->n_servers < PLIM_ENGINE_SERVERS ? calloc(1, sizeof(*s)) : NULL;
    if (s == NULL) {
        return plim__fail(err, f->n_servers < PLIM_ENGINE_SERVERS ? PLIM_E_NOMEM : PLIM_E_RANGE,
                          "no room for more than %d engines", PLIM_ENGINE_SERVERS);
    }
    s->address = *address;
    s->limit = f->body_limit;
    (void)pthread_mutex_lock(&f->lock);
    f->server[f->n_servers++] = s;
    (void)pthread_mutex_unlock(&f->lock);
    return PLIM_OK;
}

static void free_server(struct plim_engine_fetch *f, struct server *s)
{
    if (s->flying) {
        (void)f->curl.multi_remove_handle(f->multi, s->easy);
    }
    if (s->easy != NULL) {
        f->curl.easy_cleanup(s->easy);
    }
    plim_engine_page_fini(&s->page);
    plim_vec_fini(&s->said.engines);
    free(s);
}

/* A found server whose process has gone: it is no longer anybody's. */
static void drop_server(struct plim_engine_fetch *f, size_t i)
{
    struct server *s = f->server[i];
    (void)pthread_mutex_lock(&f->lock);
    memmove(&f->server[i], &f->server[i + 1], (f->n_servers - i - 1) * sizeof(f->server[0]));
    f->n_servers--;
    (void)pthread_mutex_unlock(&f->lock);
    free_server(f, s);
}

static bool is_asked(const struct plim_engine_fetch *f, uint16_t port)
{
    for (size_t i = 0; i < f->n_servers; i++) {
        if (f->server[i]->address.local == port) {
            return true;
        }
    }
    return false;
}

static void find_servers(struct plim_engine_fetch *f)
{
    plim_vec_foreach (m, &f->tree.members) {
        const struct plim_engine_listener *l = plim_engine_place(&f->tree, m);
        char text[64];
        struct plim_engine_address address;
        if (l == NULL || is_asked(f, l->port)) {
            continue;
        }
        (void)snprintf(text, sizeof(text), "http://%s:%u%s", l->v6 ? "[::1]" : "127.0.0.1", l->port,
                       m->kind == PLIM_ENGINE_KIND_TRTLLM ? "/prometheus/metrics" : "");
        if (plim_engine_address_parse(&(struct plim_place){NULL, text}, &address, NULL) ==
                PLIM_OK &&
            add_server(f, &address, NULL) == PLIM_OK) {
            f->server[f->n_servers - 1]->guess = m->kind;
            f->server[f->n_servers - 1]->found = true;
        }
    }
}

/* Who answers at each server's port, and which of its processes use a device. */
static void tie_servers(struct plim_engine_fetch *f)
{
    for (size_t i = f->n_servers; i-- > 0;) {
        struct server *s = f->server[i];
        uint32_t worker[PLIM_ENGINE_WORKERS];
        uint32_t pid =
            s->address.local != 0 ? plim_engine_listening(&f->tree, s->address.local) : 0;
        uint32_t above = plim_engine_launcher(&f->tree, pid);
        uint32_t workers = pid != 0 ? plim_engine_workers(&f->tree, above, worker) : 0;
        (void)pthread_mutex_lock(&f->lock);
        s->said.pid = pid;
        s->said.workers = workers;
        memcpy(s->said.worker, worker, workers * sizeof(worker[0]));
        (void)pthread_mutex_unlock(&f->lock);
        if (s->found && pid == 0) {
            drop_server(f, i);
        }
    }
}

/* The ports of servers on this machine. */
static size_t local_ports(const struct plim_engine_fetch *f, uint16_t ports[PLIM_ENGINE_SERVERS])
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_servers; i++) {
        ports[n] = f->server[i]->address.local;
        n += ports[n] != 0;
    }
    return n;
}

/* Look for engines: often after other processes began to use devices, as a server listens only minutes later. */
static void look(struct plim_engine_fetch *f, uint64_t now)
{
    uint32_t users[USERS];
    uint16_t ports[PLIM_ENGINE_SERVERS];
    (void)pthread_mutex_lock(&f->lock);
    bool starting = plim_sub_sat(now, f->changed_ns) < STARTING_NS;
    size_t n = f->n_users;
    memcpy(users, f->users, n * sizeof(users[0]));
    (void)pthread_mutex_unlock(&f->lock);
    if (now < f->look_ns + (starting ? LOOK_NS : SETTLED_NS) ||
        (!f->discover && f->n_servers == 0) ||
        plim_engine_tree_read(&f->world, users, n, ports, local_ports(f, ports), &f->tree, NULL) !=
            PLIM_OK) {
        return;
    }
    f->look_ns = now;
    if (f->discover) {
        find_servers(f);
    }
    tie_servers(f);
}

/* ---- the thread ---- */

static void collect_answers(struct plim_engine_fetch *f)
{
    int running = 0, left = 0;
    (void)f->curl.multi_perform(f->multi, &running);
    for (CURLMsg *m; (m = f->curl.multi_info_read(f->multi, &left)) != NULL;) {
        if (m->msg == CURLMSG_DONE) {
            transfer_done(f, m->easy_handle, m->data.result);
        }
    }
}

/* Milliseconds until the next server is due, at most a second. */
static int next_due(const struct plim_engine_fetch *f, uint64_t now)
{
    uint64_t wait = WAIT_LONG_MS;
    for (size_t i = 0; i < f->n_servers; i++) {
        if (!f->server[i]->flying) {
            uint64_t left = plim_sub_sat(f->server[i]->next_ns, now) / 1000000;
            wait = plim_min_u64(wait, left);
        }
    }
    return (int)wait + 1;
}

/* Until it shall end, or some time has passed. */
static void doze(struct plim_engine_fetch *f)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_LONG_MS / 1000;
    (void)pthread_mutex_lock(&f->lock);
    if (!f->stop) {
        (void)pthread_cond_timedwait(&f->wake, &f->lock, &until);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static bool stopping(struct plim_engine_fetch *f)
{
    (void)pthread_mutex_lock(&f->lock);
    bool stop = f->stop;
    (void)pthread_mutex_unlock(&f->lock);
    return stop;
}

static void *run(void *arg)
{
    struct plim_engine_fetch *f = arg;
    while (!stopping(f)) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        look(f, now);
        if (f->n_servers > 0 && f->multi == NULL && !f->no_curl && load_curl(f, NULL) != PLIM_OK) {
            (void)pthread_mutex_lock(&f->lock);
            f->no_curl = true;
            (void)pthread_mutex_unlock(&f->lock);
        }
        if (f->multi == NULL) {
            doze(f);
            continue;
        }
        for (size_t i = 0; i < f->n_servers; i++) {
            if (!f->server[i]->flying && f->server[i]->next_ns <= now) {
                ask(f, f->server[i], now);
            }
        }
        collect_answers(f);
        (void)f->curl.multi_poll(f->multi, NULL, 0, next_due(f, clock_ns(CLOCK_MONOTONIC)), NULL);
    }
    return NULL;
}

/* ---- the other side ---- */

static enum plim_status add_configured(struct plim_engine_fetch *f,
                                       const struct plim_engine_fetch_options *options,
                                       struct plim_err *err)
{
    for (size_t i = 0; i < options->n_servers; i++) {
        struct plim_engine_address address;
        PLIM_TRY(plim_engine_address_parse(&options->servers[i], &address, err));
        PLIM_TRY(add_server(f, &address, err));
    }
    return options->n_servers > 0 ? load_curl(f, err) : PLIM_OK;
}

/* The thread takes no signals: they are for the loop. */
static enum plim_status start(struct plim_engine_fetch *f, struct plim_err *err)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&f->thread, NULL, run, f);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure == 0 ? PLIM_OK
                        : plim__fail_errno(err, PLIM_E_OS, failure, "no thread to ask engines");
}

static void free_fetch(struct plim_engine_fetch *f)
{
    while (f->n_servers > 0) {
        free_server(f, f->server[--f->n_servers]);
    }
    if (f->multi != NULL) {
        (void)f->curl.multi_cleanup(f->multi);
    }
    plim_engine_tree_fini(&f->tree);
    plim_vec_fini(&f->happenings);
    (void)pthread_cond_destroy(&f->wake);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

enum plim_status plim_engine_fetch_open(const struct plim_engine_fetch_options *options,
                                        struct plim_engine_fetch **out, struct plim_err *err)
{
    struct plim_engine_fetch *f = calloc(1, sizeof(*f));
    pthread_condattr_t attributes;
    if (f == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask engines");
    }
    f->world = options->world != NULL ? *options->world : (struct plim_world){"", NULL};
    f->discover = options->discover;
    f->interval_ns = options->interval_ns > 0 ? options->interval_ns : INTERVAL_NS;
    f->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : 2 * SECOND;
    f->body_limit = options->body_limit > 0 ? options->body_limit : BODY_LIMIT;
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&f->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    enum plim_status st = add_configured(f, options, err);
    st = st == PLIM_OK ? start(f, err) : st;
    if (st != PLIM_OK) {
        free_fetch(f);
        return st;
    }
    *out = f;
    return PLIM_OK;
}

void plim_engine_fetch_close(struct plim_engine_fetch *f)
{
    if (f == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&f->lock);
    f->stop = true;
    (void)pthread_cond_signal(&f->wake);
    if (f->multi != NULL) {
        (void)f->curl.multi_wakeup(f->multi);
    }
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
    free_fetch(f);
}

/* Under the lock: tell the thread who uses a device now. */
static void tell_users(struct plim_engine_fetch *f, const struct plim_observation *o)
{
    uint32_t users[USERS] = {0};
    size_t n = 0;
    plim_vec_foreach (use, &o->sample.uses) {
        bool known = false;
        for (size_t i = 0; i < n && !known; i++) {
            known = users[i] == use->pid;
        }
        if (!known && n < USERS) {
            users[n++] = use->pid;
        }
    }
    if (n != f->n_users || memcmp(users, f->users, n * sizeof(users[0])) != 0) {
        memcpy(f->users, users, n * sizeof(users[0]));
        f->n_users = n;
        f->changed_ns = clock_ns(CLOCK_MONOTONIC);
    }
}

/* Under the lock. A server that is down keeps its engines, without figures. */
static enum plim_status read_server(const struct server *s, struct plim_observation *out,
                                    struct plim_err *err)
{
    const struct said *said = &s->said;
    if (!said->asked) {
        return PLIM_OK;
    }
    struct plim_engine_now nothing = {.kind = s->guess};
    memcpy(nothing.name, s->address.name, sizeof(nothing.name));
    size_t n = said->engines.n > 0 ? said->engines.n : 1;
    PLIM_TRY(plim_vec_reserve(&out->engines, n, err));
    for (size_t i = 0; i < n; i++) {
        struct plim_engine_now *e = &out->engines.items[out->engines.n++];
        *e = said->engines.n > 0 ? said->engines.items[i] : nothing;
        e->up = said->up;
        e->valid = said->up ? e->valid : 0;
        e->told_ns = said->told_ns;
        e->restarts = said->restarts;
        e->pid = said->pid;
        e->workers = said->workers;
        memcpy(e->worker, said->worker, sizeof(e->worker));
    }
    return PLIM_OK;
}

enum plim_status plim_engine_fetch_read(struct plim_engine_fetch *f, struct plim_observation *out,
                                        struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    (void)pthread_mutex_lock(&f->lock);
    tell_users(f, out);
    for (size_t i = 0; st == PLIM_OK && i < f->n_servers; i++) {
        st = read_server(f->server[i], out, err);
    }
    if (st == PLIM_OK) {
        st = plim_vec_reserve(&out->happenings, f->happenings.n, err);
    }
    plim_vec_foreach (h, &f->happenings) {
        if (st == PLIM_OK) {
            out->happenings.items[out->happenings.n++] = *h;
        }
    }
    f->happenings.n = 0;
    bool no_curl = f->no_curl;
    (void)pthread_mutex_unlock(&f->lock);
    if (st == PLIM_OK && no_curl) {
        st = plim__fail(err, PLIM_E_UNSUPPORTED,
                        "engines run here and cannot be asked: libcurl is not installed");
    }
    return st;
}
