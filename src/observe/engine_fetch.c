/* SPDX-License-Identifier: Apache-2.0 */

/* The thread that asks engines, and the other side of it. See engine_fetch_int.h. */

#include "observe/engine_fetch_int.h"

#include "base/clock.h"
#include "base/num.h"

#include <signal.h>
#include <stdlib.h>

#define INTERVAL_NS  (5 * PLIM_SECOND_NS)
#define BODY_LIMIT   (UINT64_C(16) << 20)
#define WAIT_LONG_MS 1000

/* ---- the thread ---- */

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

/* Until it shall end or ask others, or some time has passed. */
static void doze(struct plim_engine_fetch *f)
{
    uint64_t until = plim_mono_ns() + WAIT_LONG_MS * UINT64_C(1000000);
    (void)pthread_mutex_lock(&f->lock);
    if (!f->stop && f->change == NULL) {
        (void)plim_cond_wait_until(&f->wake, &f->lock, until);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

/* Turn to what the other side wants; false: the end. */
static bool go_on(struct plim_engine_fetch *f)
{
    (void)pthread_mutex_lock(&f->lock);
    bool stop = f->stop;
    struct plim__engine_change *change = stop ? NULL : f->change;
    f->change = stop ? f->change : NULL;
    (void)pthread_mutex_unlock(&f->lock);
    if (change != NULL) {
        plim__engine_turn(f, change);
    }
    return !stop;
}

static void *run(void *arg)
{
    struct plim_engine_fetch *f = arg;
    while (go_on(f)) {
        uint64_t now = plim_mono_ns();
        plim__engine_look(f, now);
        if (f->n_servers > 0 && f->multi == NULL && !f->no_curl &&
            plim__engine_curl(f, NULL) != PLIM_OK) {
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
                plim__engine_ask(f, f->server[i], now);
            }
        }
        plim__engine_answers(f);
        (void)f->curl.multi_poll(f->multi, NULL, 0, next_due(f, plim_mono_ns()), NULL);
    }
    return NULL;
}

/* ---- the other side ---- */

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
    plim__engine_change_free(f, f->change);
    while (f->n_servers > 0) {
        plim__engine_server_free(f, f->server[--f->n_servers]);
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
    struct plim__engine_change *change = NULL;
    if (f == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask engines");
    }
    f->world = options->world != NULL ? *options->world : (struct plim_world){"", NULL};
    f->interval_ns = options->interval_ns > 0 ? options->interval_ns : INTERVAL_NS;
    f->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : 2 * PLIM_SECOND_NS;
    f->body_limit = options->body_limit > 0 ? options->body_limit : BODY_LIMIT;
    (void)pthread_mutex_init(&f->lock, NULL);
    plim_cond_init(&f->wake);
    enum plim_status st = plim__engine_change_new(f, options->servers, options->n_servers,
                                                  options->discover, &change, err);
    if (st == PLIM_OK) {
        plim__engine_turn(f, change);
        st = f->n_servers > 0 ? plim__engine_curl(f, err) : PLIM_OK;
    }
    st = st == PLIM_OK ? start(f, err) : st;
    if (st != PLIM_OK) {
        free_fetch(f);
        return st;
    }
    *out = f;
    return PLIM_OK;
}

/* Under the lock: have the thread look at what it shall do. */
static void wake(struct plim_engine_fetch *f)
{
    (void)pthread_cond_signal(&f->wake);
    if (f->multi != NULL) {
        (void)f->curl.multi_wakeup(f->multi);
    }
}

enum plim_status plim_engine_fetch_change(struct plim_engine_fetch *f,
                                          const struct plim_place *servers, size_t n, bool discover,
                                          struct plim_err *err)
{
    struct plim__engine_change *change = NULL;
    PLIM_TRY(plim__engine_change_new(f, servers, n, discover, &change, err));
    (void)pthread_mutex_lock(&f->lock);
    struct plim__engine_change *old = f->change; /* that the thread has not come to */
    f->change = change;
    wake(f);
    (void)pthread_mutex_unlock(&f->lock);
    plim__engine_change_free(f, old);
    return PLIM_OK;
}

void plim_engine_fetch_close(struct plim_engine_fetch *f)
{
    if (f == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&f->lock);
    f->stop = true;
    wake(f);
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
    free_fetch(f);
}

/* Under the lock: tell the thread who uses a device now. */
static void tell_users(struct plim_engine_fetch *f, const struct plim_observation *o)
{
    uint32_t users[PLIM__ENGINE_USERS] = {0};
    size_t n = 0;
    plim_vec_foreach (use, &o->sample.uses) {
        bool known = false;
        for (size_t i = 0; i < n && !known; i++) {
            known = users[i] == use->pid;
        }
        if (!known && n < PLIM__ENGINE_USERS) {
            users[n++] = use->pid;
        }
    }
    if (n != f->n_users || memcmp(users, f->users, n * sizeof(users[0])) != 0) {
        memcpy(f->users, users, n * sizeof(users[0]));
        f->n_users = n;
        f->changed_ns = plim_mono_ns();
    }
}

/* Under the lock. A server that is down keeps its engines, without figures. */
static enum plim_status read_server(const struct plim__engine_server *s,
                                    struct plim_observation *out, struct plim_err *err)
{
    const struct plim__engine_said *said = &s->said;
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
