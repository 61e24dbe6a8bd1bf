/* SPDX-License-Identifier: Apache-2.0 */

/* The loop of the monitor: a timer, signals, and the parts in their order. See watch_int.h. */

#include "watch/watch_int.h"

#include "base/clock.h"
#include "base/num.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_LEAST (PLIM_SECOND_NS / 100)

#define PLIM__X(name) extern const struct plim_watch_part plim__watch_##name;
PLIM_WATCH_PART_MAP(PLIM__X)
#undef PLIM__X

static const struct plim_watch_part *const parts[] = {
#define PLIM__X(name) &plim__watch_##name,
    PLIM_WATCH_PART_MAP(PLIM__X)
#undef PLIM__X
        NULL};

struct loop {
    struct plim_watch watch;
    void *self[PLIM_COUNT_OF(parts)]; /* of each part; NULL: not wanted */
    size_t opened;                    /* parts whose open() was called and did not fail */
    int timer, signals;
    sigset_t before; /* mask of the caller */
};

void plim__watch_tell(const struct plim_watch *w, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    w->options->tell(w->options->tell_arg, text);
}

/* ---- one step ---- */

/* Host memory of this process; false: /proc does not say. */
static bool resident(uint64_t *bytes)
{
    char text[64];
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    bool good = file != NULL && fgets(text, sizeof(text), file) != NULL &&
                sscanf(text, "%*u %llu", &pages) == 1; // NOLINT(cert-err34-c): checked by 1
    if (file != NULL) {
        (void)fclose(file);
    }
    *bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return good;
}

/* The newest observation becomes what clients see, judged. */
static void publish(struct loop *l)
{
    struct plim_watch *w = &l->watch;
    struct plim_observation old = w->now;
    (void)pthread_mutex_lock(&w->lock);
    w->now = w->next;
    w->next = old;
    w->stats = *plim_collector_stats(w->collector);
    for (size_t i = 0; parts[i] != NULL; i++) {
        if (l->self[i] != NULL && parts[i]->judge != NULL) {
            parts[i]->judge(w, l->self[i]);
        }
    }
    w->steps++;
    plim__watch_texts_reset(w);
    (void)pthread_cond_broadcast(&w->stepped);
    (void)pthread_mutex_unlock(&w->lock);
}

static enum plim_status step(struct loop *l, struct plim_err *err)
{
    struct plim_watch *w = &l->watch;
    uint64_t bytes;
    PLIM_TRY(plim_collector_take(w->collector, &w->next, err));
    if (resident(&bytes)) {
        plim_health_set(&w->health, PLIM_HEALTH_RESIDENT, bytes);
    }
    publish(l);
    for (size_t i = 0; parts[i] != NULL; i++) {
        if (l->self[i] != NULL && parts[i]->step != NULL) {
            parts[i]->step(w, l->self[i]);
        }
    }
    return PLIM_OK;
}

/* ---- settings ---- */

static enum plim_status read_settings(const char *path, struct plim_settings **out,
                                      struct plim_err *err)
{
    static const struct plim_watch_options nothing = {0};
    struct plim_collect_options ignored = {0};
    struct plim_settings *settings = NULL;
    PLIM_TRY(plim_settings_read(path, &settings, err));
    enum plim_status st = plim__watch_sources(&nothing, settings, &ignored, err);
    for (size_t i = 0; st == PLIM_OK && parts[i] != NULL; i++) {
        st = parts[i]->check != NULL ? parts[i]->check(settings, err) : PLIM_OK;
    }
    if (st != PLIM_OK) {
        plim_settings_free(settings);
        return st;
    }
    *out = settings;
    return PLIM_OK;
}

enum plim_status plim_watch_check(const char *path, struct plim_err *err)
{
    struct plim_settings *settings = NULL;
    PLIM_TRY(read_settings(path, &settings, err));
    plim_settings_free(settings);
    return PLIM_OK;
}

void plim_watch_example(struct plim_buf *out)
{
    plim_settings_example(out);
}

static void reload_sources(struct plim_watch *w)
{
    struct plim_collect_options collect = {0};
    struct plim_err err = {0};
    char text[400];
    enum plim_status st = plim__watch_sources(w->options, w->settings, &collect, &err);
    st = st == PLIM_OK ? plim_collector_reload(w->collector, &collect, &err) : st;
    if (st != PLIM_OK) {
        (void)plim_err_format(&err, text, sizeof(text));
        plim__watch_tell(w, "engines and logs stay as they were: %s", text);
    }
}

/* Turn to what the file says now; when that is bad, say so and go on with what it said before. */
static void reload(struct loop *l)
{
    struct plim_watch *w = &l->watch;
    struct plim_settings *old = w->settings;
    struct plim_settings *fresh = NULL;
    struct plim_err err = {0};
    char text[400];
    if (read_settings(w->options->settings, &fresh, &err) != PLIM_OK) {
        (void)plim_err_format(&err, text, sizeof(text));
        plim__watch_tell(w, "the settings stay as they were: %s", text);
        return;
    }
    w->settings = fresh;
    reload_sources(w);
    for (size_t i = 0; parts[i] != NULL; i++) {
        if (l->self[i] != NULL && parts[i]->reload != NULL) {
            parts[i]->reload(w, l->self[i]);
        }
    }
    plim_settings_free(old);
    plim__watch_tell(w, "the settings were read again");
}

/* ---- the loop ---- */

/* Take the signals that came; true: end. */
static bool take_signals(struct loop *l)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        end |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
        if (info.ssi_signo == SIGHUP) {
            reload(l);
        }
    }
    return end;
}

static enum plim_status run(struct loop *l, struct plim_err *err)
{
    struct pollfd fds[] = {{.fd = l->timer, .events = POLLIN},
                           {.fd = l->signals, .events = POLLIN}};
    uint64_t most = l->watch.options->steps;
    for (uint64_t due = 1; most == 0 || l->watch.steps < most; due = 0) {
        if (due == 0 && poll(fds, PLIM_COUNT_OF(fds), -1) < 0 && errno != EINTR) {
            return plim__fail_errno(err, PLIM_E_OS, errno, "cannot wait");
        }
        if (take_signals(l)) {
            break;
        }
        if (due == 0 && read(l->timer, &due, sizeof(due)) != (ssize_t)sizeof(due)) {
            continue;
        }
        plim_health_add(&l->watch.health, PLIM_HEALTH_MISSED, due - 1);
        PLIM_TRY(step(l, err));
    }
    return PLIM_OK;
}

/* ---- beginning and end ---- */

static enum plim_status open_timer(struct loop *l, struct plim_err *err)
{
    struct itimerspec time = {.it_interval = plim_timespec(l->watch.interval_ns)};
    time.it_value = time.it_interval;
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (l->timer < 0 || timerfd_settime(l->timer, 0, &time, NULL) != 0) {
        return plim__fail_errno(err, PLIM_E_OS, errno, "cannot make a timer");
    }
    return PLIM_OK;
}

static enum plim_status open_signals(struct loop *l, struct plim_err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals >= 0 ? PLIM_OK
                           : plim__fail_errno(err, PLIM_E_OS, errno, "cannot take signals");
}

static void init(struct loop *l, const struct plim_watch_options *options)
{
    struct plim_watch *w = &l->watch;
    l->timer = l->signals = -1;
    w->options = options;
    w->started_ns = plim_wall_ns();
    (void)pthread_sigmask(SIG_BLOCK, NULL, &l->before);
    (void)pthread_mutex_init(&w->lock, NULL);
    plim_cond_init(&w->stepped);
}

void plim__watch_host(const struct plim_watch_options *o, const struct plim_settings *settings,
                      char *out, size_t n)
{
    const char *said = o->host != NULL ? o->host : settings->watch.items[0].host;
    out[0] = '\0';
    if (said != NULL) {
        (void)snprintf(out, n, "%s", said);
    } else if (gethostname(out, n) != 0) {
        out[0] = '\0';
    }
    out[n - 1] = '\0';
}

static enum plim_status open_settings(struct plim_watch *w, struct plim_err *err)
{
    PLIM_TRY(read_settings(w->options->settings, &w->settings, err));
    plim__watch_host(w->options, w->settings, w->host, sizeof(w->host));
    const struct plim_set_u64 *interval = &w->settings->watch.items[0].interval;
    w->interval_ns = interval->given ? interval->value : PLIM_SECOND_NS;
    w->interval_ns = w->options->interval_ns != 0 ? w->options->interval_ns : w->interval_ns;
    w->interval_ns = plim_max_u64(w->interval_ns, INTERVAL_LEAST);
    return PLIM_OK;
}

static enum plim_status open_parts(struct loop *l, struct plim_err *err)
{
    struct plim_watch *w = &l->watch;
    PLIM_TRY(open_settings(w, err));
    struct plim_collect_options collect = {0};
    PLIM_TRY(plim__watch_sources(w->options, w->settings, &collect, err));
    PLIM_TRY(open_signals(l, err));
    PLIM_TRY(plim_collector_open(&collect, &w->collector, err));
    for (; parts[l->opened] != NULL; l->opened++) {
        PLIM_TRY(parts[l->opened]->open(w, &l->self[l->opened], err));
    }
    return open_timer(l, err);
}

static void fini(struct loop *l)
{
    struct plim_watch *w = &l->watch;
    (void)pthread_mutex_lock(&w->lock);
    w->ending = true;
    (void)pthread_cond_broadcast(&w->stepped);
    (void)pthread_mutex_unlock(&w->lock);
    while (l->opened > 0) {
        const struct plim_watch_part *part = parts[--l->opened];
        if (part != NULL && l->self[l->opened] != NULL) {
            part->close(w, l->self[l->opened]);
        }
    }
    plim_collector_close(w->collector);
    plim__watch_texts_reset(w);
    plim_observation_fini(&w->now);
    plim_observation_fini(&w->next);
    plim_vec_fini(&w->left);
    plim_settings_free(w->settings);
    for (int i = 0; i < 2; i++) {
        int fd = i == 0 ? l->timer : l->signals;
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    (void)pthread_cond_destroy(&w->stepped);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_sigmask(SIG_SETMASK, &l->before, NULL);
}

enum plim_status plim_watch_run(const struct plim_watch_options *options, struct plim_err *err)
{
    struct loop *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the monitor");
    }
    init(l, options);
    enum plim_status st = open_parts(l, err);
    if (st == PLIM_OK) {
        st = run(l, err);
    }
    fini(l);
    free(l);
    return st;
}
