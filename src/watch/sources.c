/* SPDX-License-Identifier: Apache-2.0 */

/* What is looked at besides drivers: of the command line and of the settings file together. */

#include "incident/incident.h"
#include "observe/engine_fetch.h"
#include "watch/watch_int.h"

static enum plim_status places(size_t said, size_t more, struct plim_arena *arena,
                               struct plim_place **out, struct plim_err *err)
{
    void *memory = NULL;
    PLIM_TRY(plim_arena_array(arena, said + more, sizeof(**out), &memory, err));
    *out = memory;
    return PLIM_OK;
}

static enum plim_status engine_place(const struct plim_settings *s,
                                     const struct plim_set_engine *engine, struct plim_place *out,
                                     struct plim_err *err)
{
    struct plim_engine_address ignored;
    struct plim_err why = {0};
    *out = (struct plim_place){engine->name, engine->url};
    if (engine->url == NULL) {
        return plim_settings_fail(s, engine, err, "the engine has no url");
    }
    if (plim_engine_address_parse(out, &ignored, &why) != PLIM_OK) {
        return plim_settings_fail(s, engine, err, "%s", why.message);
    }
    return PLIM_OK;
}

enum plim_status plim__watch_sources(const struct plim_watch_options *o, struct plim_settings *s,
                                     struct plim_collect_options *out, struct plim_err *err)
{
    struct plim_place *engines = NULL, *logs = NULL;
    size_t n = 0, n_logs = 0;
    PLIM_TRY(places(o->n_engines, s->engine.n, &s->arena, &engines, err));
    for (size_t i = 0; i < o->n_engines; i++) {
        engines[n++] = (struct plim_place){NULL, o->engines[i]};
    }
    plim_vec_foreach (engine, &s->engine) {
        PLIM_TRY(engine_place(s, engine, &engines[n], err));
        n++;
    }
    PLIM_TRY(places(o->n_logs, s->log.n, &s->arena, &logs, err));
    for (size_t i = 0; i < o->n_logs; i++) {
        logs[n_logs++] = (struct plim_place){NULL, o->logs[i]};
    }
    plim_vec_foreach (log, &s->log) {
        if (log->path == NULL) {
            return plim_settings_fail(s, log, err, "the log has no path");
        }
        logs[n_logs++] = (struct plim_place){log->name, log->path};
    }
    out->script = o->samples;
    out->incidents = plim_incident_folder(s->watch.items[0].incidents);
    out->logs = logs;
    out->n_logs = n_logs;
    out->engines = engines;
    out->n_engines = n;
    out->discover_engines = s->watch.items[0].discover_engines && !o->no_discover;
    return PLIM_OK;
}
