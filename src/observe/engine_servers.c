/* SPDX-License-Identifier: Apache-2.0 */

/* Whom the thread asks: servers that are configured, and those that are found. See engine_fetch_int.h. */

#include "observe/engine_fetch_int.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOK_NS                                                                                    \
    (10 * PLIM_SECOND_NS) /* between two looks for engines, while one may be starting: */
#define STARTING_NS (300 * PLIM_SECOND_NS) /* so long after the users of devices have changed */
#define SETTLED_NS  (60 * PLIM_SECOND_NS)  /* between two looks afterwards */

static enum plim_status new_server(const struct plim_engine_fetch *f,
                                   const struct plim_engine_address *address,
                                   struct plim__engine_server **out, struct plim_err *err)
{
    struct plim__engine_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for an engine");
    }
    s->address = *address;
    s->limit = f->body_limit;
    *out = s;
    return PLIM_OK;
}

void plim__engine_server_free(struct plim_engine_fetch *f, struct plim__engine_server *s)
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
    struct plim__engine_server *s = f->server[i];
    (void)pthread_mutex_lock(&f->lock);
    memmove(&f->server[i], &f->server[i + 1], (f->n_servers - i - 1) * sizeof(f->server[0]));
    f->n_servers--;
    (void)pthread_mutex_unlock(&f->lock);
    plim__engine_server_free(f, s);
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

static void find_server(struct plim_engine_fetch *f, const struct plim_engine_listener *l,
                        enum plim_engine_kind kind)
{
    char text[64];
    struct plim_engine_address address;
    struct plim__engine_server *s = NULL;
    (void)snprintf(text, sizeof(text), "http://%s:%u%s", l->v6 ? "[::1]" : "127.0.0.1", l->port,
                   kind == PLIM_ENGINE_KIND_TRTLLM ? "/prometheus/metrics" : "");
    if (plim_engine_address_parse(&(struct plim_place){NULL, text}, &address, NULL) != PLIM_OK ||
        new_server(f, &address, &s, NULL) != PLIM_OK) {
        return;
    }
    s->guess = kind;
    s->found = true;
    (void)pthread_mutex_lock(&f->lock);
    f->server[f->n_servers++] = s;
    (void)pthread_mutex_unlock(&f->lock);
}

static void find_servers(struct plim_engine_fetch *f)
{
    plim_vec_foreach (m, &f->tree.members) {
        const struct plim_engine_listener *l = plim_engine_place(&f->tree, m);
        if (l != NULL && !is_asked(f, l->port) && f->n_servers < PLIM_ENGINE_SERVERS) {
            find_server(f, l, m->kind);
        }
    }
}

/* Who answers at each server's port, and which of its processes use a device. */
static void tie_servers(struct plim_engine_fetch *f)
{
    for (size_t i = f->n_servers; i-- > 0;) {
        struct plim__engine_server *s = f->server[i];
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

/* Often after other processes began to use devices, as a server listens only minutes later. */
void plim__engine_look(struct plim_engine_fetch *f, uint64_t now)
{
    uint32_t users[PLIM__ENGINE_USERS];
    uint16_t ports[PLIM_ENGINE_SERVERS];
    (void)pthread_mutex_lock(&f->lock);
    bool starting = plim_sub_sat(now, f->changed_ns) < STARTING_NS;
    size_t n = f->n_users;
    memcpy(users, f->users, n * sizeof(users[0]));
    (void)pthread_mutex_unlock(&f->lock);
    if ((f->look_ns != 0 && now < f->look_ns + (starting ? LOOK_NS : SETTLED_NS)) ||
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

/* ---- changes ---- */

void plim__engine_change_free(struct plim_engine_fetch *f, struct plim__engine_change *c)
{
    for (size_t i = 0; c != NULL && i < c->n; i++) {
        plim__engine_server_free(f, c->server[i]);
    }
    free(c);
}

enum plim_status plim__engine_change_new(struct plim_engine_fetch *f,
                                         const struct plim_place *servers, size_t n, bool discover,
                                         struct plim__engine_change **out, struct plim_err *err)
{
    if (n > PLIM_ENGINE_SERVERS) {
        return plim__fail(err, PLIM_E_RANGE, "no room for more than %d engines",
                          PLIM_ENGINE_SERVERS);
    }
    struct plim__engine_change *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for engines");
    }
    enum plim_status st = PLIM_OK;
    c->discover = discover;
    for (size_t i = 0; st == PLIM_OK && i < n; i++) {
        struct plim_engine_address address;
        st = plim_engine_address_parse(&servers[i], &address, err);
        st = st == PLIM_OK ? new_server(f, &address, &c->server[i], err) : st;
        c->n += st == PLIM_OK;
    }
    if (st != PLIM_OK) {
        plim__engine_change_free(f, c);
        return st;
    }
    *out = c;
    return PLIM_OK;
}

/* Take out of the list the server that is asked at this address under this name; NULL: there is none. */
static struct plim__engine_server *take_same(struct plim__engine_server **list, size_t *n,
                                             const struct plim_engine_address *address)
{
    for (size_t i = 0; i < *n; i++) {
        struct plim__engine_server *s = list[i];
        if (strcmp(s->address.url, address->url) == 0 &&
            strcmp(s->address.socket, address->socket) == 0 &&
            strcmp(s->address.name, address->name) == 0) {
            memmove(&list[i], &list[i + 1], (--*n - i) * sizeof(list[0]));
            return s;
        }
    }
    return NULL;
}

void plim__engine_turn(struct plim_engine_fetch *f, struct plim__engine_change *c)
{
    struct plim__engine_server *before[PLIM_ENGINE_SERVERS];
    size_t n = f->n_servers, gone = 0;
    memcpy(before, f->server, sizeof(before));
    for (size_t i = 0; i < c->n; i++) {
        struct plim__engine_server *same = take_same(before, &n, &c->server[i]->address);
        if (same != NULL) {
            plim__engine_server_free(f, c->server[i]);
            c->server[i] = same;
            same->found = false;
        }
    }
    (void)pthread_mutex_lock(&f->lock);
    memcpy(f->server, c->server, c->n * sizeof(f->server[0]));
    f->n_servers = c->n;
    for (size_t i = 0; i < n; i++) {
        bool stays = before[i]->found && c->discover && !is_asked(f, before[i]->address.local) &&
                     f->n_servers < PLIM_ENGINE_SERVERS;
        if (stays) {
            f->server[f->n_servers++] = before[i];
        } else {
            before[gone++] = before[i];
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
    while (gone > 0) {
        plim__engine_server_free(f, before[--gone]);
    }
    f->discover = c->discover;
    f->look_ns = 0;
    free(c);
}
