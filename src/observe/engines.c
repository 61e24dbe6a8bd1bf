/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The observer of serving engines: what they say at /metrics, and what their logs say.
 *
 * A log belongs to the engine that has its name, or else to the one that has the process which the log names among
 * its own. A log that belongs to none is an engine by itself, known from its log alone.
 */

#include "base/num.h"
#include "observe/collect.h"
#include "observe/engine_fetch.h"
#include "observe/engine_log.h"
#include "observe/engine_page.h"

#include <stdio.h>
#include <stdlib.h>

struct engines {
    struct plim_engine_fetch *fetch;  /* owned; NULL: nobody is asked */
    struct plim_engine_follow **logs; /* owned, [n_logs] */
    size_t n_logs;
};

static void close_logs(struct plim_engine_follow **logs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        plim_engine_follow_close(logs[i]);
    }
    free(logs);
}

static void engines_close(void *self)
{
    struct engines *s = self;
    plim_engine_fetch_close(s->fetch);
    close_logs(s->logs, s->n_logs);
    free(s);
}

/* Whom to ask from now on. */
static enum plim_status ask(struct engines *s, const struct plim_collect_options *options,
                            struct plim_err *err)
{
    if (s->fetch != NULL) {
        return plim_engine_fetch_change(s->fetch, options->engines, options->n_engines,
                                        options->discover_engines, err);
    }
    struct plim_engine_fetch_options fetch = {.world = options->world,
                                              .servers = options->engines,
                                              .n_servers = options->n_engines,
                                              .discover = options->discover_engines};
    return options->n_engines > 0 || options->discover_engines
               ? plim_engine_fetch_open(&fetch, &s->fetch, err)
               : PLIM_OK;
}

/* The log that is followed at this place already; out of the list. */
static struct plim_engine_follow *take_same(struct engines *s, const struct plim_place *place)
{
    for (size_t i = 0; i < s->n_logs; i++) {
        struct plim_engine_follow *log = s->logs[i];
        if (plim_engine_follow_is(log, place)) {
            s->logs[i] = s->logs[--s->n_logs];
            return log;
        }
    }
    return NULL;
}

/* Which logs to follow from now on. Those that are followed already are read on from where they are. */
static enum plim_status follow(struct engines *s, const struct plim_collect_options *options,
                               struct plim_err *err)
{
    struct plim_engine_follow **logs =
        calloc(options->n_logs + 1, sizeof(struct plim_engine_follow *));
    enum plim_status st =
        logs != NULL ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory to follow logs");
    size_t n = 0;
    for (; st == PLIM_OK && n < options->n_logs; n++) {
        st = plim_engine_follow_open(&options->logs[n], &logs[n], err);
    }
    if (st != PLIM_OK) {
        close_logs(logs, n);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        struct plim_engine_follow *same = take_same(s, &options->logs[i]);
        if (same != NULL) {
            plim_engine_follow_close(logs[i]);
            logs[i] = same;
        }
    }
    close_logs(s->logs, s->n_logs);
    s->logs = logs;
    s->n_logs = n;
    return PLIM_OK;
}

static enum plim_status engines_open(const struct plim_collect_options *options, void **self,
                                     struct plim_err *err)
{
    struct engines *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to observe engines");
    }
    enum plim_status st = ask(s, options, err);
    st = st == PLIM_OK ? follow(s, options, err) : st;
    if (st != PLIM_OK) {
        engines_close(s);
        return st;
    }
    *self = s;
    return PLIM_OK;
}

/* Addresses may be wrong, logs only fail for want of memory: addresses first. */
static enum plim_status engines_reload(const struct plim_collect_options *options, void **self,
                                       struct plim_err *err)
{
    struct engines *s = *self;
    PLIM_TRY(ask(s, options, err));
    return follow(s, options, err);
}

/* ---- logs ---- */

static bool has_process(const struct plim_engine_now *e, uint32_t pid)
{
    bool found = pid != 0 && e->pid == pid;
    for (uint32_t i = 0; i < e->workers; i++) {
        found |= pid != 0 && e->worker[i] == pid;
    }
    return found;
}

/* What a page does not say, the log may. */
static void set_missing(struct plim_engine_now *e, enum plim_engine_figure figure, uint64_t value)
{
    if (value > 0 && !plim_engine_has(e, figure) && e->up) {
        e->figure[figure] = (double)value;
        e->valid |= UINT64_C(1) << figure;
    }
}

static void attach(struct plim_engine_now *e, const struct plim_engine_told *told)
{
    e->kind = e->kind == PLIM_ENGINE_KIND_UNKNOWN ? told->kind : e->kind;
    e->component_valid = told->component_valid;
    memcpy(e->component, told->component, sizeof(e->component));
    set_missing(e, PLIM_ENGINE_FIGURE_KV_CAPACITY, told->kv_tokens);
    set_missing(e, PLIM_ENGINE_FIGURE_MAX_CONTEXT, told->max_context);
}

static enum plim_status take_told(struct plim_engine_follow *follow, struct plim_observation *out,
                                  struct plim_err *err)
{
    struct plim_engine_told told = plim_engine_log_told(plim_engine_follow_log(follow));
    const char *name = plim_engine_follow_name(follow);
    size_t found = 0;
    for (int by_name = 1; by_name >= 0 && found == 0; by_name--) {
        plim_vec_foreach (e, &out->engines) {
            if (by_name ? strcmp(e->name, name) == 0 : has_process(e, told.pid)) {
                attach(e, &told);
                found++;
            }
        }
    }
    if (found > 0 || told.component_valid == 0) {
        return PLIM_OK;
    }
    struct plim_engine_now alone = {.up = true, .pid = told.pid, .told_ns = out->sample.time_ns};
    (void)snprintf(alone.name, sizeof(alone.name), "%s", name);
    attach(&alone, &told);
    return plim_vec_push(&out->engines, err, alone);
}

/* One log: read on, then what it tells and what failed. Not being able to read is told last, so that one log that
 * is missing takes nothing from the others. */
static enum plim_status take_log(struct plim_engine_follow *follow, struct plim_observation *out,
                                 enum plim_status *worst, struct plim_err *err)
{
    struct plim_happening h;
    enum plim_status st = plim_engine_follow_step(follow, err);
    *worst = st != PLIM_OK ? st : *worst;
    if (st == PLIM_E_NOMEM) {
        return st;
    }
    PLIM_TRY(take_told(follow, out, err));
    while (plim_engine_log_take(plim_engine_follow_log(follow), &h)) {
        PLIM_TRY(plim_vec_push(&out->happenings, err, h));
    }
    return PLIM_OK;
}

/* What happened is in the order of time, and not later than the observation. */
static void put_in_order(struct plim_observation *out, size_t before)
{
    struct plim_happening *all = out->happenings.items;
    for (size_t i = before; i < out->happenings.n; i++) {
        struct plim_happening h = all[i];
        h.time_ns = plim_min_u64(h.time_ns, out->sample.time_ns);
        size_t at = i;
        for (; at > 0 && all[at - 1].time_ns > h.time_ns; at--) {
            all[at] = all[at - 1];
        }
        all[at] = h;
    }
}

static enum plim_status engines_take(void *self, struct plim_observation *out, struct plim_err *err)
{
    struct engines *s = self;
    size_t before = out->happenings.n;
    enum plim_status worst = PLIM_OK;
    if (s->fetch != NULL) {
        worst = plim_engine_fetch_read(s->fetch, out, err);
    }
    for (size_t i = 0; i < s->n_logs && worst != PLIM_E_NOMEM; i++) {
        enum plim_status st = take_log(s->logs[i], out, &worst, err);
        worst = st == PLIM_OK ? worst : st;
    }
    put_in_order(out, before);
    return worst;
}

const struct plim_observer plim__observer_engines = {.name = "engines",
                                                     .open = engines_open,
                                                     .take = engines_take,
                                                     .reload = engines_reload,
                                                     .close = engines_close};
