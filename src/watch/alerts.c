/* SPDX-License-Identifier: Apache-2.0 */

/* The part that alerts: each step's observation and findings to the rules (alert.h). */

#include "store/writer.h"
#include "watch/watch_int.h"

#include <stdio.h>

#define STATE_NAME "alerts.json"

static void tell(void *arg, const char *text)
{
    const struct plim_watch *w = arg;
    plim__watch_tell(w, "%s", text);
}

static void count(void *arg, bool delivered)
{
    struct plim_watch *w = arg;
    plim_health_add(&w->health, delivered ? PLIM_HEALTH_ALERTS_SENT : PLIM_HEALTH_ALERTS_FAILED, 1);
}

/* Where the state is kept: as the settings say, else beside the history; "": nowhere, as is the history. */
static void state_path(const struct plim_watch_options *o, const struct plim_settings *settings,
                       char *out, size_t n)
{
    const struct plim_set_watch *set = &settings->watch.items[0];
    const char *db = o->db != NULL ? o->db : set->db;
    struct plim_arena arena;
    plim_arena_init(&arena, 0);
    db = db != NULL ? db : plim_store_default_path(&arena);
    out[0] = '\0';
    if (set->alert_state != NULL) {
        snprintf(out, n, "%s", set->alert_state);
    } else if (db != NULL && db[0] != '\0' && strcmp(db, "none") != 0) {
        const char *slash = strrchr(db, '/');
        int folder = slash != NULL ? (int)(slash - db) + 1 : 0;
        snprintf(out, n, "%.*s%s", folder, db, STATE_NAME);
    }
    plim_arena_fini(&arena);
}

static enum plim_status alerts_open(struct plim_watch *w, void **self, struct plim_err *err)
{
    char path[4096];
    state_path(w->options, w->settings, path, sizeof(path));
    struct plim_alerts_options options = {.settings = w->settings,
                                          .host = w->host,
                                          .state_path = path[0] != '\0' ? path : NULL,
                                          .version = w->options->version,
                                          .tell = tell,
                                          .tell_arg = w,
                                          .sent = count,
                                          .sent_arg = w};
    PLIM_TRY(plim_alerts_open(&options, &w->alerts, err));
    plim_health_add(&w->health, PLIM_HEALTH_ALERTS_SENT, 0);
    plim_health_add(&w->health, PLIM_HEALTH_ALERTS_FAILED, 0);
    *self = w->alerts;
    return PLIM_OK;
}

static void alerts_step(struct plim_watch *w, void *self)
{
    struct plim_alerts *alerts = self;
    plim_alerts_step(alerts, &w->now, w->findings, w->n_findings);
    plim_health_set(&w->health, PLIM_HEALTH_ALERTS_FIRING, plim_alerts_firing(alerts));
}

static void alerts_reload(struct plim_watch *w, void *self)
{
    struct plim_err err = {0};
    if (plim_alerts_reload(self, w->settings, &err) != PLIM_OK) {
        plim__watch_tell(w, "the rules of alerts stay as they were: %s", err.message);
    }
}

static void alerts_close(struct plim_watch *w, void *self)
{
    w->alerts = NULL;
    plim_alerts_close(self);
}

const struct plim_watch_part plim__watch_alerts = {.name = "alerts",
                                                   .open = alerts_open,
                                                   .step = alerts_step,
                                                   .check = plim_alerts_check,
                                                   .reload = alerts_reload,
                                                   .close = alerts_close};

enum plim_status plim_watch_test_alert(const struct plim_watch_options *o, const char *name,
                                       struct plim_err *err)
{
    struct plim_settings *settings = NULL;
    char host[256] = "";
    PLIM_TRY(plim_settings_read(o->settings, &settings, err));
    plim__watch_host(o, settings, host, sizeof(host));
    struct plim_alerts_options options = {
        .settings = settings, .host = host, .version = o->version, .tell = o->tell};
    enum plim_status st = plim_alerts_test(&options, name, err);
    plim_settings_free(settings);
    return st;
}
