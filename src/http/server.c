/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, reloading and stopping; see http.h. */

#include "http/http_int.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONNECTIONS    2048u
#define PER_ADDRESS    128u
#define PATIENCE       15u
#define TLS_VERSIONS   "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
#define FILES_OF_OTHER 64u /* descriptors that the rest of the program needs */

uint64_t plim__http_seconds(void)
{
    return plim_mono_ns() / PLIM_SECOND_NS;
}

void plim__http_add(struct plim_http *http, enum plim_http_count count, int64_t by)
{
    atomic_fetch_add_explicit(&http->counts[count], (uint64_t)by, memory_order_relaxed);
}

uint64_t plim_http_count(const struct plim_http *http, enum plim_http_count count)
{
    return atomic_load_explicit(&http->counts[count], memory_order_relaxed);
}

const char *plim_http_url(const struct plim_http *http, size_t i)
{
    return i < http->listeners.n ? http->listeners.items[i].url : NULL;
}

/* What libmicrohttpd would print, it shall not. */
static void say_nothing(void *self, const char *format, va_list arguments)
{
    (void)self;
    (void)format;
    (void)arguments;
}

static struct MHD_Daemon *new_daemon(struct plim__listener *l, int fd)
{
    const struct plim_http_options *o = &l->http->options;
    const struct plim__secrets *s = &l->http->secrets;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     MHD_USE_ERROR_LOG | (l->tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)s->certificate.p},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)s->key.p},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_VERSIONS},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        flags, 0, NULL, NULL, plim__on_request, l, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, plim__on_completed, l,
        MHD_OPTION_NOTIFY_CONNECTION, plim__on_connection, l, MHD_OPTION_CONNECTION_LIMIT,
        o->connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        l->reach == PLIM__NETWORK ? o->per_address : 0, MHD_OPTION_CONNECTION_TIMEOUT,
        PLIM__IDLE_PATIENCES * o->patience_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)PLIM__HTTP_HEADERS, MHD_OPTION_ARRAY, l->tls ? tls : none, MHD_OPTION_END);
}

static void block_signals(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

int plim__http_thread(pthread_t *thread, void *(*run)(void *), void *self)
{
    sigset_t before;
    block_signals(&before);
    int e = pthread_create(thread, NULL, run, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

static enum plim_status start_daemon(struct plim__listener *l, struct plim_err *err)
{
    sigset_t before;
    int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "cannot listen on %s", l->url);
    }
    block_signals(&before);
    errno = 0;
    struct MHD_Daemon *daemon = new_daemon(l, fd);
    int e = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!daemon) {
        (void)close(fd);
        if (!l->tls) {
            return plim__fail_errno(err, PLIM_E_OS, e ? e : ENOMEM, "cannot serve %s", l->url);
        }
        plim__err_set(err, PLIM_E_DATA, "%s and %s are no certificate and its key",
                      l->http->options.certificate, l->http->options.key);
        plim__err_hint(err,
                       "or this program has no TLS, as that of the Python package: use a proxy");
        return PLIM_E_DATA;
    }
    l->daemon = daemon;
    return PLIM_OK;
}

/* Stop one daemon of a listener: end its readers, wait for its jobs; then nothing is suspended. */
static void stop_daemon(struct plim__listener *l, struct MHD_Daemon *daemon)
{
    struct plim_http *http = l->http;
    (void)pthread_mutex_lock(&http->lock);
    l->dying = daemon;
    struct plim_http_channel *channel = http->channel;
    plim__jobs_drain(http, daemon);
    (void)pthread_mutex_unlock(&http->lock);
    if (channel) {
        plim__readers_end(channel, daemon);
    }
    MHD_stop_daemon(daemon);
    if (channel) {
        plim__readers_spare(channel);
    }
    (void)pthread_mutex_lock(&http->lock);
    l->dying = NULL;
    (void)pthread_mutex_unlock(&http->lock);
}

static void fill_defaults(struct plim_http_options *o)
{
    struct rlimit files;
    o->unix_mode = o->unix_mode ? o->unix_mode : 0660;
    o->connections = o->connections ? o->connections : CONNECTIONS;
    o->per_address = o->per_address ? o->per_address : PER_ADDRESS;
    o->patience_s = o->patience_s ? o->patience_s : PATIENCE;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * FILES_OF_OTHER) {
        rlim_t most = (files.rlim_cur - FILES_OF_OTHER) / (o->n_listen ? o->n_listen : 1);
        o->connections = most < o->connections ? (unsigned)most : o->connections;
    }
}

static enum plim_status open_listeners(struct plim_http *http, struct plim_err *err)
{
    const struct plim_http_options *o = &http->options;
    PLIM_TRY(plim_vec_reserve(&http->listeners, o->n_listen, err)); /* they must not move */
    for (size_t i = 0; i < o->n_listen; i++) {
        struct plim__listener l;
        PLIM_TRY(plim__listen(http, o->listen[i], &l, err));
        http->listeners.items[http->listeners.n++] = l;
        if ((l.reach == PLIM__NETWORK || o->auth_all) && http->secrets.token.n == 0) {
            plim__err_set(err, PLIM_E_USAGE, "%s needs a token: others can reach it", l.url);
            plim__err_hint(
                err, "name a file with one: --token-file, or token-file in the settings; or listen "
                     "on loopback or unix:PATH");
            return PLIM_E_USAGE;
        }
    }
    return PLIM_OK;
}

static enum plim_status start_all(struct plim_http *http, struct plim_err *err)
{
    unsigned char bytes[4];
    PLIM_TRY(plim__secrets_read(&http->options, &http->secrets, err));
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "no random bytes");
    }
    /* cookies do not know ports: each server has a name of its own */
    (void)snprintf(http->cookie_name, sizeof(http->cookie_name), "plimsoll_%02x%02x%02x%02x",
                   bytes[0], bytes[1], bytes[2], bytes[3]);
    PLIM_TRY(open_listeners(http, err));
    PLIM_TRY(plim__workers_start(http, err));
    plim_vec_foreach (l, &http->listeners) {
        PLIM_TRY(start_daemon(l, err));
    }
    return PLIM_OK;
}

enum plim_status plim_http_start(const struct plim_http_options *options, struct plim_http **out,
                                 struct plim_err *err)
{
    struct plim_http *http = calloc(1, sizeof(*http));
    if (!http) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the server");
    }
    http->options = *options;
    fill_defaults(&http->options);
    (void)pthread_mutex_init(&http->lock, NULL);
    plim_cond_init(&http->changed);
    enum plim_status st = start_all(http, err);
    if (st != PLIM_OK) {
        plim_http_stop(http);
        return st;
    }
    *out = http;
    return PLIM_OK;
}

void plim_http_stop(struct plim_http *http)
{
    if (!http) {
        return;
    }
    (void)pthread_mutex_lock(&http->lock);
    http->stopping = true;
    struct plim_http_channel *channel = http->channel;
    (void)pthread_cond_broadcast(&http->changed);
    (void)pthread_mutex_unlock(&http->lock);
    plim__workers_join(http);
    if (channel) {
        plim__readers_end(channel, NULL);
    }
    plim_vec_foreach (l, &http->listeners) {
        if (l->retired) {
            MHD_stop_daemon(l->retired);
        }
        if (l->daemon) {
            MHD_stop_daemon(l->daemon);
        }
        plim__unlisten(l);
    }
    plim_vec_fini(&http->listeners);
    plim__secrets_fini(&http->secrets);
    (void)pthread_cond_destroy(&http->changed);
    (void)pthread_mutex_destroy(&http->lock);
    free(http);
}

/* A daemon with the new certificate takes over; the old one keeps the connections that it has. */
static enum plim_status renew(struct plim__listener *l, struct plim_err *err)
{
    struct MHD_Daemon *old = l->daemon;
    PLIM_TRY(start_daemon(l, err));
    int fd = MHD_quiesce_daemon(old);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (l->retired) {
        stop_daemon(l, l->retired);
    }
    l->retired = old;
    return PLIM_OK;
}

static void swap_secrets(struct plim_http *http, struct plim__secrets *secrets)
{
    (void)pthread_mutex_lock(&http->lock);
    struct plim__secrets old = http->secrets;
    http->secrets = *secrets;
    *secrets = old;
    (void)pthread_mutex_unlock(&http->lock);
}

enum plim_status plim_http_reload(struct plim_http *http, struct plim_err *err)
{
    struct plim__secrets secrets;
    enum plim_status st = PLIM_OK;
    PLIM_TRY(plim__secrets_read(&http->options, &secrets, err));
    swap_secrets(http, &secrets);
    for (size_t i = 0; i < http->listeners.n && st == PLIM_OK; i++) {
        if (http->listeners.items[i].tls) {
            st = renew(&http->listeners.items[i], err);
        }
    }
    if (st != PLIM_OK) {
        swap_secrets(http, &secrets);
    } else if (!plim_str_eq(secrets.token, http->secrets.token)) {
        (void)pthread_mutex_lock(
            &http->lock); /* who logged in with the old token did not with this */
        memset(http->sessions, 0, sizeof(http->sessions));
        (void)pthread_mutex_unlock(&http->lock);
    }
    plim__secrets_fini(&secrets);
    return st;
}
