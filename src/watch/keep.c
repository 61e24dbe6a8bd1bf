/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part that keeps: each observation goes into the history (keep_fill.c says as what). Another thread writes
 * (store/writer.h), so that a slow disk delays nothing here.
 */

#include "store/writer.h"
#include "watch/keep_int.h"

#include "base/scalar.h"

#include <stdio.h>
#include <sys/stat.h>

struct keep {
    struct plim_arena arena; /* the path: settings go when they are read again */
    const char *path;
    struct plim_writer *writer;
    struct plim__kept kept;
    bool degraded;      /* as it was last told */
    uint64_t set_aside; /* likewise */
    struct plim_store_level levels[PLIM_STORE_LEVELS];
};

/* What the history says of itself, to the health and, when it changes, to the log. */
static void say_state(struct keep *k, struct plim_watch *w)
{
    struct plim_writer_state s;
    plim_writer_state(k->writer, &s);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_BYTES, s.store.bytes);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_LIMIT, s.store.max_bytes);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_DEGRADED, s.degraded);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_SERIES, s.store.series);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_WRITTEN, s.store.points);
    plim_health_set(&w->health, PLIM_HEALTH_STORE_LOST, s.lost);
    if (s.store.set_aside > k->set_aside) {
        plim__watch_tell(w, "the history was damaged: it is now '%s', and a new one was begun",
                         s.store.aside);
    }
    if (s.degraded && !k->degraded) {
        plim__watch_tell(w, "the history cannot be written and is kept in memory: %s: %s",
                         plim_store_fault_text(s.store.fault), s.store.why);
    } else if (!s.degraded && k->degraded) {
        plim__watch_tell(w, "the history is written again");
    }
    k->degraded = s.degraded;
    k->set_aside = s.store.set_aside;
}

static void keep_step(struct plim_watch *w, void *self)
{
    struct keep *k = self;
    struct plim_err err = {0};
    struct plim_batch *batch = plim_writer_batch(k->writer);
    if (batch == NULL) {
        plim__watch_tell(w, "a sample is not kept: no memory");
        return;
    }
    if (plim__keep_fill(&k->kept, batch, w, &err) == PLIM_OK) {
        plim_writer_send(k->writer);
    } else {
        plim__watch_tell(w, "a sample is not kept: %s", err.message);
    }
    say_state(k, w);
}

/* Make the folders above a file; what cannot be made shows when the file is opened. */
static void make_folders(const char *path)
{
    char part[4096];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        if (n < sizeof(part)) {
            memcpy(part, path, n);
            part[n] = '\0';
            (void)mkdir(part, 0755);
        }
    }
}

/* NULL: nothing is kept. */
static const char *history_path(struct keep *k, const struct plim_watch *w)
{
    const char *said = w->options->db != NULL ? w->options->db : w->settings->watch.items[0].db;
    if (said != NULL) {
        return said[0] == '\0' || strcmp(said, "none") == 0
                   ? NULL
                   : plim_arena_sayf(&k->arena, "%s", said);
    }
    const char *path = plim_store_default_path(&k->arena);
    if (path != NULL) {
        make_folders(path);
    }
    return path;
}

/* "1s:1d" for each resolution: its step, and for how long it is kept. */
static enum plim_status read_levels(const struct plim_settings *settings,
                                    struct plim_store_level *levels, size_t *n,
                                    struct plim_err *err)
{
    const struct plim_set_watch *watch = &settings->watch.items[0];
    *n = watch->history_levels.n;
    for (size_t i = 0; i < *n; i++) {
        char step[32];
        const char *word = watch->history_levels.items[i], *keep = strchr(word, ':');
        if (i == PLIM_STORE_LEVELS || keep == NULL || (size_t)(keep - word) >= sizeof(step)) {
            return plim_settings_fail(settings, watch, err,
                                      "'%.60s' is no resolution of the history: say STEP:KEEP, at "
                                      "most six of them",
                                      word);
        }
        (void)snprintf(step, sizeof(step), "%.*s", (int)(keep - word), word);
        if (!plim_duration_parse(step, &levels[i].step_ns) ||
            !plim_duration_parse(keep + 1, &levels[i].keep_ns)) {
            return plim_settings_fail(settings, watch, err,
                                      "'%.60s' is no resolution of the history: say STEP:KEEP, as "
                                      "in 10s:7d",
                                      word);
        }
    }
    return PLIM_OK;
}

/* Most bytes of the history; 0: nobody said. */
static uint64_t max_bytes(const struct plim_watch *w)
{
    const struct plim_set_u64 *said = &w->settings->watch.items[0].max_bytes;
    return w->options->max_bytes != 0 ? w->options->max_bytes : said->given ? said->value : 0;
}

static void keep_reload(struct plim_watch *w, void *self)
{
    struct keep *k = self;
    struct plim_err err = {0};
    if (plim_writer_limit(k->writer, max_bytes(w), &err) != PLIM_OK) {
        plim__watch_tell(w, "the size of the history stays as it was: %s", err.message);
    }
}

static enum plim_status keep_check(const struct plim_settings *settings, struct plim_err *err)
{
    struct plim_store_level levels[PLIM_STORE_LEVELS];
    struct plim_err why = {0};
    size_t n;
    const struct plim_set_u64 *most = &settings->watch.items[0].max_bytes;
    if (most->given && plim_store_limit_check(most->value, &why) != PLIM_OK) {
        return plim_settings_fail(settings, &settings->watch.items[0], err, "%s", why.message);
    }
    PLIM_TRY(read_levels(settings, levels, &n, err));
    if (n > 0 && plim_store_levels_check(levels, n, &why) != PLIM_OK) {
        return plim_settings_fail(settings, &settings->watch.items[0], err, "%s", why.message);
    }
    return PLIM_OK;
}

static void keep_close(struct plim_watch *w, void *self)
{
    struct keep *k = self;
    w->history = NULL;
    plim_writer_close(k->writer);
    plim__kept_fini(&k->kept);
    plim_arena_fini(&k->arena);
    free(k);
}

static enum plim_status keep_open(struct plim_watch *w, void **self, struct plim_err *err)
{
    struct keep *k = calloc(1, sizeof(*k));
    if (k == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the history");
    }
    struct plim_store_options options = {.max_bytes = max_bytes(w)};
    options.figures = plim__keep_figures(&options.n_figures);
    plim_arena_init(&k->arena, 0);
    enum plim_status st = read_levels(w->settings, k->levels, &options.n_levels, err);
    options.levels = options.n_levels > 0 ? k->levels : NULL;
    k->path = history_path(k, w);
    if (st == PLIM_OK && k->path != NULL) {
        st = plim_writer_open(k->path, &options, 0, &k->writer, err);
    }
    if (k->writer == NULL) {
        keep_close(w, k);
        return st;
    }
    w->history = k->path;
    *self = k;
    return PLIM_OK;
}

const struct plim_watch_part plim__watch_keep = {.name = "keep",
                                                 .check = keep_check,
                                                 .open = keep_open,
                                                 .step = keep_step,
                                                 .reload = keep_reload,
                                                 .close = keep_close};
