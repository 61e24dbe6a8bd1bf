/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the gate's daemon: once a second the engine's figures, leases and the dead. */

#include "gate/gate_int.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/num.h"
#include "observe/engine_fetch.h"
#include "observe/engine_page.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FAREWELL_MS   2000 /* between readiness off and the end: balancers look that often */
#define DEFAULT_BLOCK 16u
#define BODY_LIMIT    4096u
#define REQUEST_LIMIT (UINT64_C(1) << 20) /* a request itself, or the lengths of 65536 prompts */

static const struct plim_http_route routes[] = {
    {"POST", "/v1/admit", plim__gate_admit, 0, REQUEST_LIMIT},
    {"POST", "/v1/poll", plim__gate_poll, 0, BODY_LIMIT},
    {"POST", "/v1/extend", plim__gate_extend, 0, BODY_LIMIT},
    {"POST", "/v1/release", plim__gate_release, 0, BODY_LIMIT},
    {"POST", "/v1/oom", plim__gate_oom, 0, REQUEST_LIMIT},
    {"POST", "/v1/worked", plim__gate_worked, 0, REQUEST_LIMIT},
    {"POST", "/v1/figures", plim__gate_figures, 0, BODY_LIMIT},
    {"POST", "/v1/drain", plim__gate_drain, PLIM_HTTP_MUTATES, BODY_LIMIT},
    {"POST", "/v1/classes", plim__gate_class_set, PLIM_HTTP_MUTATES, BODY_LIMIT},
    {"GET", "/v1/classes", plim__gate_classes, 0, 0},
    {"GET", "/v1/pressure", plim__gate_pressure, 0, 0},
    {"GET", "/metrics", plim__gate_scrape, 0, 0},
    {"GET", "/healthz", plim__gate_healthz, PLIM_HTTP_OPEN, 0},
    {"GET", "/readyz", plim__gate_readyz, PLIM_HTTP_OPEN, 0},
    {"GET", "/authz", plim__gate_authz, PLIM_HTTP_ANY_HOST, 0},
    {"POST", "/authz", plim__gate_authz, PLIM_HTTP_ANY_HOST, REQUEST_LIMIT},
    /* Envoy asks with the request's own method, path and host. */
    {"*", "/authz/{...}", plim__gate_authz, PLIM_HTTP_ANY_HOST, REQUEST_LIMIT},
};

void plim__gate_tell(const struct plim__gate *g, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    g->options->tell(g->options->tell_arg, text);
}

/* ---- the ledger ---- */

static uint32_t block_of(const struct plim_gate_options *o)
{
    return o->block_tokens ? o->block_tokens : DEFAULT_BLOCK;
}

static void fill_config(const struct plim_gate_options *o, uint64_t capacity_tokens,
                        uint32_t max_length, struct plimsoll_gate_config *c)
{
    uint32_t block = block_of(o);
    plimsoll_gate_defaults(c);
    c->capacity_units = plim_max_u64(capacity_tokens / block, 1);
    c->unit_bytes = 1;
    c->n_groups = 1;
    c->groups[0] = (struct plimsoll_gate_group){.block_tokens = block, .units_per_block = 1};
    c->max_length = max_length;
    c->max_requests = o->max_requests;
    c->policy = o->policy;
    c->first_token_ns = o->first_token_ns;
    c->token_ns = o->token_ns;
    c->work_token_bytes = o->work_token;
    c->work_image_bytes = o->work_image;
    c->work_row_bytes = o->work_row;
    c->work_limit_bytes = o->work_room;
    c->step_tokens = o->step_tokens;
    c->waiters = (uint32_t)plim_min_u64(o->waiters, PLIMSOLL_GATE_WAIT_MAX);
    c->stale_ns = o->n_engines > 0 ? 15 * PLIM_SECOND_NS : 0;
    if (o->lease_ns > 0) {
        c->lease_ns = o->lease_ns;
    }
}

static int open_in_memory(struct plim__gate *g, const struct plimsoll_gate_config *c)
{
    size_t bytes = plimsoll_gate_bytes(c);
    g->memory = bytes > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    return g->memory == NULL
               ? PLIMSOLL_GATE_BAD_CONFIG
               : plimsoll_gate_create(plim__gate_ledger(g), g->memory, bytes, c, plim_mono_ns());
}

/* A ledger file that cannot be opened or made. */
static enum plim_status no_ledger(const char *path, int code, int os_errno, struct plim_err *err)
{
    bool other_file = code == PLIMSOLL_GATE_BAD_LEDGER;
    if (other_file) {
        (void)plim__fail(err, PLIM_E_USAGE, "%s is not a ledger, and is left as it is", path);
    } else {
        plim__err_set_errno(err, PLIM_E_NOINPUT, os_errno, "ledger %s", path);
    }
    plim__err_hint(err, !other_file && (os_errno == EPERM || os_errno == EACCES)
                            ? "a ledger is its user's: run the gate as the user of the server"
                            : "name a file in memory that is new or a ledger: /dev/shm/NAME");
    return other_file ? PLIM_E_USAGE : PLIM_E_NOINPUT;
}

/* What the gate waits for while it has no ledger, and why the file that is there is none. */
static void tell_wait(struct plim__gate *g, int code, int os_errno)
{
    if (g->told_wait) {
        return;
    }
    g->told_wait = true;
    const char *what = g->options->n_engines ? "the engine to say the size of its KV cache"
                                             : "a server to make the ledger";
    struct plim_err why = {0};
    if (g->options->ledger == NULL || (code == PLIMSOLL_GATE_NO_FILE && os_errno == ENOENT)) {
        plim__gate_tell(g, "waiting for %s", what);
    } else if (code != PLIMSOLL_GATE_NO_FILE) {
        plim__gate_tell(g, "waiting for %s: %s", what, plimsoll_gate_code_text(code));
    } else if (os_errno == EPERM || os_errno == EACCES) {
        plim__gate_tell(g, "waiting for %s: it is another user's: run the gate as the server's",
                        what);
    } else {
        plim__err_set_errno(&why, PLIM_E_NOINPUT, os_errno, "waiting for %s", what);
        plim__gate_tell(g, "%s", why.message);
    }
}

/* The ledger that is there, or a new one when the size of the pool is known. Not ready yet is no error. */
static enum plim_status try_open(struct plim__gate *g, uint64_t capacity_tokens,
                                 uint32_t max_length, struct plim_err *err)
{
    const struct plim_gate_options *o = g->options;
    struct plimsoll_gate_config c;
    int code = o->ledger != NULL
                   ? plimsoll_gate_open(plim__gate_ledger(g), o->ledger, NULL, plim_mono_ns())
                   : PLIMSOLL_GATE_NO_FILE;
    if (code != PLIMSOLL_GATE_OK && capacity_tokens > 0) {
        fill_config(o, capacity_tokens, max_length, &c);
        if (plimsoll_gate_wrong(&c) != NULL) {
            return plim__fail(err, PLIM_E_USAGE, "the ledger cannot be made: %s makes no sense",
                              plimsoll_gate_wrong(&c));
        }
        code = o->ledger == NULL
                   ? open_in_memory(g, &c)
                   : plimsoll_gate_open(plim__gate_ledger(g), o->ledger, &c, plim_mono_ns());
        if (code == PLIMSOLL_GATE_NO_FILE || code == PLIMSOLL_GATE_BAD_LEDGER) {
            return no_ledger(o->ledger, code, errno, err);
        }
    }
    int os_errno = errno;
    if (code == PLIMSOLL_GATE_OK) {
        plimsoll_gate_config(plim__gate_ledger(g), &c);
        atomic_store(&g->open, true);
        plim__gate_tell(g, "ledger %s: %llu units, policy %s", o->ledger ? o->ledger : "in memory",
                        (unsigned long long)c.capacity_units, plimsoll_gate_policy_text(c.policy));
    } else {
        tell_wait(g, code, os_errno);
    }
    return PLIM_OK;
}

/* A server that was started with another configuration has made another ledger: ask that one from now on. The old handle
 * stays open until the next change, for a handler that has just begun. */
static void follow(struct plim__gate *g)
{
    unsigned next = 1 - atomic_load(&g->current);
    const char *path = g->options->ledger;
    if (path == NULL || !plimsoll_gate_replaced(plim__gate_ledger(g), path)) {
        return;
    }
    plimsoll_gate_close(&g->handle[next], plim_mono_ns());
    if (plimsoll_gate_open(&g->handle[next], path, NULL, plim_mono_ns()) == PLIMSOLL_GATE_OK) {
        atomic_store(&g->current, next);
        plim__gate_tell(g, "ledger %s was made anew", path);
    }
}

/* The engine's pool has another size than the ledger: it was started with other flags. */
static void resize(struct plim__gate *g, uint64_t capacity_tokens)
{
    struct plimsoll_gate_config c;
    struct plimsoll_gate_state s;
    plimsoll_gate_config(plim__gate_ledger(g), &c);
    uint64_t units = c.n_groups == 1 ? capacity_tokens / c.groups[0].block_tokens : 0;
    if (units > 0 &&
        plimsoll_gate_read(plim__gate_ledger(g), &s, plim_mono_ns()) == PLIMSOLL_GATE_OK &&
        s.capacity_units != units &&
        plimsoll_gate_resize(plim__gate_ledger(g), units, plim_mono_ns()) == PLIMSOLL_GATE_OK) {
        plim__gate_tell(g, "the engine's KV cache has %llu units now", (unsigned long long)units);
    }
}

/* ---- the engine ---- */

struct engine {
    struct plim_engine_fetch *fetch;
    struct plim_observation now;
};

static enum plim_status engine_open(const struct plim_gate_options *o, struct engine *e,
                                    struct plim_err *err)
{
    struct plim_place places[PLIM_ENGINE_SERVERS];
    struct plim_engine_fetch_options options = {.servers = places, .n_servers = o->n_engines};
    if (o->n_engines > PLIM_ENGINE_SERVERS) {
        return plim__fail(err, PLIM_E_RANGE, "at most %d engines are asked", PLIM_ENGINE_SERVERS);
    }
    for (size_t i = 0; i < o->n_engines; i++) {
        places[i] = (struct plim_place){.place = o->engines[i]};
    }
    return o->n_engines == 0 ? PLIM_OK : plim_engine_fetch_open(&options, &e->fetch, err);
}

static void engine_close(struct engine *e)
{
    plim_engine_fetch_close(e->fetch);
    plim_observation_fini(&e->now);
}

/* All ranks together: sums, and the mean of their usage. */
struct pool {
    bool up;
    uint64_t capacity_tokens, preempted;
    uint32_t max_length, ranks, with_usage, with_preempted;
    double usage;
};

/* vLLM keeps one block for itself (block_pool.py): requests can use the others, of which its usage is a share. */
static uint64_t usable_tokens(const struct plim_engine_now *e, uint32_t block)
{
    uint64_t tokens = (uint64_t)e->figure[PLIM_ENGINE_FIGURE_KV_CAPACITY];
    return e->kind == PLIM_ENGINE_KIND_VLLM ? plim_sub_sat(tokens, block) : tokens;
}

static struct pool pool_of(const struct plim_observation *o, uint32_t block)
{
    struct pool p = {0};
    for (size_t i = 0; i < o->engines.n; i++) {
        const struct plim_engine_now *e = &o->engines.items[i];
        p.up |= e->up;
        p.ranks += e->up;
        if (plim_engine_has(e, PLIM_ENGINE_FIGURE_KV_CAPACITY)) {
            p.capacity_tokens += usable_tokens(e, block);
        }
        if (plim_engine_has(e, PLIM_ENGINE_FIGURE_MAX_CONTEXT)) {
            double length = fmin(e->figure[PLIM_ENGINE_FIGURE_MAX_CONTEXT], 1e9);
            p.max_length = (uint32_t)plim_max_u64(p.max_length, (uint64_t)length);
        }
        if (plim_engine_has(e, PLIM_ENGINE_FIGURE_KV_USAGE)) {
            p.usage += e->figure[PLIM_ENGINE_FIGURE_KV_USAGE];
            p.with_usage++;
        }
        if (plim_engine_has(e, PLIM_ENGINE_FIGURE_PREEMPTIONS)) {
            p.preempted += (uint64_t)e->figure[PLIM_ENGINE_FIGURE_PREEMPTIONS];
            p.with_preempted++;
        }
    }
    return p;
}

static void observe(struct plim__gate *g, const struct pool *p)
{
    struct plimsoll_gate_figures f = {0};
    if (p->with_usage > 0) {
        f.has |= PLIMSOLL_GATE_HAS_USAGE;
        f.usage = p->usage / p->with_usage;
    }
    if (p->with_preempted > 0) {
        f.has |= PLIMSOLL_GATE_HAS_PREEMPTED;
        f.preempted = p->preempted;
    }
    if (f.has != 0) {
        (void)plimsoll_gate_observe(plim__gate_ledger(g), &f, plim_mono_ns());
    }
}

/* Of the ledger; else what one will be made with. */
static uint32_t block_now(struct plim__gate *g)
{
    struct plimsoll_gate_config c;
    if (!atomic_load(&g->open)) {
        return block_of(g->options);
    }
    plimsoll_gate_config(plim__gate_ledger(g), &c);
    return c.n_groups > 0 ? c.groups[0].block_tokens : block_of(g->options);
}

static enum plim_status step(struct plim__gate *g, struct engine *e, struct plim_err *err)
{
    const struct plim_gate_options *o = g->options;
    struct pool p = {.up = true};
    if (e->fetch != NULL) {
        plim_observation_reset(&e->now);
        PLIM_TRY(plim_engine_fetch_read(e->fetch, &e->now, err));
        p = pool_of(&e->now, block_now(g));
    }
    if (p.up != atomic_load(&g->engine_up)) {
        atomic_store(&g->engine_up, p.up);
        plim__gate_tell(g, p.up ? "the engine answers" : "the engine does not answer");
    }
    if (!atomic_load(&g->open)) {
        PLIM_TRY(try_open(g, o->capacity_tokens ? o->capacity_tokens : p.capacity_tokens,
                          o->max_length ? o->max_length : p.max_length, err));
    }
    if (atomic_load(&g->open)) {
        follow(g);
        if (o->capacity_tokens == 0 && p.capacity_tokens > 0) {
            resize(g, p.capacity_tokens);
        }
        observe(g, &p);
        (void)plimsoll_gate_tick(plim__gate_ledger(g), plim_mono_ns());
    }
    return PLIM_OK;
}

/* ---- the loop ---- */

static int catch_signals(sigset_t *before)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Wait for a signal, at most so long; its number, or 0. */
static int signal_within(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&p, 1, ms) > 0 && read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        return (int)info.ssi_signo;
    }
    return 0;
}

static enum plim_status loop(struct plim__gate *g, struct engine *e, int signals,
                             struct plim_err *err)
{
    const struct plim_gate_options *o = g->options;
    for (uint64_t steps = 1;; steps++) {
        PLIM_TRY(step(g, e, err));
        if (o->steps > 0 && steps >= o->steps) {
            return PLIM_OK;
        }
        int got = signal_within(signals, 1000);
        if (got == SIGHUP) {
            struct plim_err why = {0};
            if (plim_http_reload(g->http, &why) != PLIM_OK) {
                plim__gate_tell(g, "token and certificate stay as they were: %s", why.message);
            }
        } else if (got != 0) {
            atomic_store(&g->stopping, true);
            plim__gate_tell(g, "stopping: not ready from now on");
            (void)signal_within(signals, FAREWELL_MS);
            return PLIM_OK;
        }
    }
}

static enum plim_status serve(struct plim__gate *g, struct engine *e, int signals,
                              struct plim_err *err)
{
    const struct plim_gate_options *o = g->options;
    char port[8];
    const char *standard = port;
    (void)snprintf(port, sizeof(port), "%d", PLIM_GATE_PORT);
    struct plim_http_options http = {.listen = o->n_listen ? o->listen : &standard,
                                     .n_listen = o->n_listen ? o->n_listen : 1,
                                     .token_file = o->token_file,
                                     .routes = routes,
                                     .n_routes = PLIM_COUNT_OF(routes),
                                     .self = g};
    PLIM_TRY(engine_open(o, e, err));
    PLIM_TRY(step(g, e, err));
    if (o->agent != NULL) {
        PLIM_TRY(plim__agent_start(g, o->agent, &g->agent, err));
        plim__gate_tell(g, "agent checks at %s", o->agent);
    }
    PLIM_TRY(plim_http_start(&http, &g->http, err));
    for (size_t i = 0; plim_http_url(g->http, i) != NULL; i++) {
        plim__gate_tell(g, "gate at %s", plim_http_url(g->http, i));
    }
    return loop(g, e, signals, err);
}

enum plim_status plim_gate_run(const struct plim_gate_options *options, struct plim_err *err)
{
    struct plim__gate *g = calloc(1, sizeof(*g));
    struct engine engine = {0};
    sigset_t before;
    if (g == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the gate");
    }
    g->options = options;
    atomic_store(&g->engine_up, true);
    int signals = catch_signals(&before);
    enum plim_status st = signals >= 0 ? serve(g, &engine, signals, err)
                                       : plim__fail_errno(err, PLIM_E_OS, errno, "no signalfd");
    plim__agent_stop(g->agent);
    plim_http_stop(g->http);
    engine_close(&engine);
    for (unsigned i = 0; i < PLIM_COUNT_OF(g->handle); i++) {
        plimsoll_gate_close(&g->handle[i], plim_mono_ns()); /* one that is not open: nothing */
    }
    free(g->memory);
    if (signals >= 0) {
        (void)close(signals);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(g);
    return st;
}
