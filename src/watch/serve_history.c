/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history: subjects, series in bins, events. Columns are arrays of their own: a thousand bins
 * are five arrays of a thousand numbers, which browsers parse fastest.
 * All of it runs on the worker, which has a store of its own to read from.
 */

#include "watch/serve_int.h"

#include "base/jsonw.h"
#include "base/num.h"
#include "store/store.h"

#define FIGURES_MOST 16u
#define POINTS_MOST  20000u
#define EVENTS_MOST  5000u

void plim__serve_history_close(struct plim__serve *s)
{
    plim_store_close(s->store);
    s->store = NULL;
}

enum plim_status plim__serve_history_open(struct plim__serve *s, struct plim_err *err)
{
    struct plim_store_options options = {.read_only = true};
    if (s->store) {
        return PLIM_OK;
    }
    if (!s->watch->history) {
        plim__err_set(err, PLIM_E_NOTFOUND, "no history is kept");
        plim__err_hint(err, "start the monitor with --db FILE");
        return PLIM_E_NOTFOUND;
    }
    return plim_store_open(s->watch->history, &options, &s->store, err);
}

/* A store that failed is opened anew for the next question: the file may have been replaced. */
enum plim_status plim__serve_history_checked(struct plim__serve *s, enum plim_status st)
{
    if (st == PLIM_E_IO || st == PLIM_E_DATA) {
        plim__serve_history_close(s);
    }
    return st;
}

enum plim_status plim__serve_window(const struct plim_http_request *request,
                                    struct plim__serve_window *out, struct plim_err *err)
{
    PLIM_TRY(plim_http_query_u64(request, "from", 0, &out->from, err));
    PLIM_TRY(plim_http_query_u64(request, "to", INT64_MAX, &out->to, err));
    out->to = plim_min_u64(out->to, INT64_MAX);
    return out->from < out->to ? PLIM_OK : plim__fail(err, PLIM_E_USAGE, "from is not before to");
}

/* ---- subjects ---- */

static void put_subject(struct plim_jsonw *w, const struct plim_store_subject *s)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "id", s->id);
    plim_jsonw_kv_text(w, "kind", s->kind);
    plim_jsonw_kv_text(w, "key", s->key);
    plim_jsonw_key(w, "labels");
    plim_jsonw_raw(w, s->labels && s->labels[0] ? plim_str_from(s->labels) : PLIM_STR("{}"));
    plim_jsonw_kv_u64(w, "first_ns", s->first_ns);
    plim_jsonw_kv_u64(w, "last_ns", s->last_ns);
    plim_jsonw_end(w);
}

static enum plim_status list_subjects(struct plim__serve *s,
                                      const struct plim__serve_window *window,
                                      struct plim_arena *arena, struct plim_jsonw *w,
                                      struct plim_err *err)
{
    struct plim_store_subjects subjects = {0};
    enum plim_status st =
        plim_store_subjects(s->store, window->from, window->to, arena, &subjects, err);
    if (st == PLIM_OK) {
        plim_jsonw_key(w, "subjects");
        plim_jsonw_array(w);
        plim_vec_foreach (subject, &subjects.list) {
            put_subject(w, subject);
        }
        plim_jsonw_end(w);
    }
    plim_vec_fini(&subjects.list);
    return st;
}

static enum plim_status list_figures(struct plim__serve *s, const struct plim__serve_window *window,
                                     uint64_t subject, struct plim_arena *arena,
                                     struct plim_jsonw *w, struct plim_err *err)
{
    struct plim_store_names names = {0};
    enum plim_status st =
        plim_store_figures(s->store, subject, window->from, window->to, arena, &names, err);
    if (st == PLIM_OK) {
        plim_jsonw_kv_u64(w, "subject", subject);
        plim_jsonw_key(w, "figures");
        plim_jsonw_array(w);
        plim_vec_foreach (name, &names.list) {
            plim_jsonw_text(w, *name);
        }
        plim_jsonw_end(w);
    }
    plim_vec_fini(&names.list);
    return st;
}

/* GET /api/v1/subjects?from&to: all; with ?subject=ID the figures of one. */
PLIM__HANDLER(subjects)
{
    struct plim__serve *s = self;
    struct plim_arena arena;
    struct plim_jsonw w;
    struct plim__serve_window window;
    uint64_t subject;
    PLIM_TRY(plim__serve_window(request, &window, err));
    PLIM_TRY(plim_http_query_u64(request, "subject", 0, &subject, err));
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.subjects/1");
    if (!s->watch->history) { /* there are none to be listed, which is no failure */
        plim_jsonw_key(&w, subject ? "figures" : "subjects");
        plim_jsonw_array(&w);
        plim_jsonw_end(&w);
        plim_jsonw_end(&w);
        return PLIM_OK;
    }
    PLIM_TRY(plim__serve_history_open(s, err));
    plim_arena_init(&arena, UINT64_C(256) << 20);
    enum plim_status st = subject ? list_figures(s, &window, subject, &arena, &w, err)
                                  : list_subjects(s, &window, &arena, &w, err);
    if (st == PLIM_OK) {
        plim_jsonw_end(&w);
    }
    plim_arena_fini(&arena);
    return plim__serve_history_checked(s, st);
}

/* ---- series ---- */

#define COLUMN(w, key, bins, put, field)                                                           \
    do {                                                                                           \
        plim_jsonw_key(w, key);                                                                    \
        plim_jsonw_array(w);                                                                       \
        plim_vec_foreach (bin, bins) {                                                             \
            put(w, bin->field);                                                                    \
        }                                                                                          \
        plim_jsonw_end(w);                                                                         \
    } while (0)

static void put_series(struct plim_jsonw *w, const char *figure, struct plim_store_answer *a)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "figure", figure);
    plim_jsonw_kv_u64(w, "step_ns", a->step_ns);
    plim_jsonw_kv_u64(w, "complete_from_ns", a->complete_from_ns);
    COLUMN(w, "time_ns", &a->bins, plim_jsonw_u64, time_ns);
    COLUMN(w, "n", &a->bins, plim_jsonw_u64, n);
    COLUMN(w, "min", &a->bins, plim_jsonw_real, min);
    COLUMN(w, "mean", &a->bins, plim_jsonw_real, mean);
    COLUMN(w, "max", &a->bins, plim_jsonw_real, max);
    COLUMN(w, "last", &a->bins, plim_jsonw_real, last);
    plim_jsonw_end(w);
}

/* The names between the commas of `figures`, arena. */
static enum plim_status split_figures(struct plim_str text, struct plim_arena *arena,
                                      const char *out[FIGURES_MOST], size_t *n,
                                      struct plim_err *err)
{
    *n = 0;
    while (text.n > 0) {
        const char *comma = memchr(text.p, ',', text.n);
        struct plim_str name = {text.p, comma ? (size_t)(comma - text.p) : text.n}, copy;
        if (*n == FIGURES_MOST) {
            return plim__fail(err, PLIM_E_RANGE, "%u figures at most", FIGURES_MOST);
        }
        PLIM_TRY(plim_arena_str(arena, name, &copy, err));
        out[(*n)++] = copy.p;
        text = plim_str_skip(text, name.n + 1);
    }
    return *n > 0 ? PLIM_OK : plim__fail(err, PLIM_E_USAGE, "series wants figures");
}

static enum plim_status put_all_series(struct plim__serve *s, struct plim_store_query *query,
                                       const char *const *figures, size_t n, struct plim_jsonw *w,
                                       struct plim_err *err)
{
    plim_jsonw_key(w, "series");
    plim_jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        struct plim_store_answer found = {0};
        query->figure = figures[i];
        PLIM_TRY(plim_store_query(s->store, query, &found, err));
        put_series(w, figures[i], &found);
        plim_store_answer_fini(&found);
    }
    plim_jsonw_end(w);
    return PLIM_OK;
}

/* Bins are for the time that there is history of, not for all that was asked about. */
static void cut_to_history(struct plim_store *store, struct plim_store_query *query)
{
    struct plim_store_state state;
    plim_store_state(store, &state);
    uint64_t from = plim_max_u64(query->from_ns, state.first_ns);
    uint64_t to = plim_min_u64(query->to_ns, state.last_ns + 1);
    if (from < to) {
        query->from_ns = from;
        query->to_ns = to;
    }
}

/* GET /api/v1/series?subject=ID&figures=A,B&from&to&points|step: bins of the same width. */
PLIM__HANDLER(series)
{
    struct plim__serve *s = self;
    struct plim_arena arena;
    struct plim_jsonw w;
    struct plim__serve_window window;
    struct plim_str names = {0};
    const char *figures[FIGURES_MOST];
    uint64_t points;
    size_t n;
    struct plim_store_query query = {0};
    PLIM_TRY(plim__serve_window(request, &window, err));
    PLIM_TRY(plim_http_query_u64(request, "subject", 0, &query.subject, err));
    PLIM_TRY(plim_http_query_u64(request, "points", 1000, &points, err));
    PLIM_TRY(plim_http_query_u64(request, "step", 0, &query.step_ns, err));
    (void)plim_http_query(request, "figures", &names);
    PLIM_TRY(plim__serve_history_open(s, err));
    query.from_ns = window.from;
    query.to_ns = window.to;
    cut_to_history(s->store, &query);
    query.max_points = (uint32_t)plim_max_u64(1, plim_min_u64(points, POINTS_MOST));
    plim_arena_init(&arena, 1u << 20);
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.series/1");
    plim_jsonw_kv_u64(&w, "subject", query.subject);
    enum plim_status st = split_figures(names, &arena, figures, &n, err);
    if (st == PLIM_OK) {
        st = put_all_series(s, &query, figures, n, &w, err);
    }
    if (st == PLIM_OK) {
        plim_jsonw_end(&w);
    }
    plim_arena_fini(&arena);
    return plim__serve_history_checked(s, st);
}

/* ---- events ---- */

static bool put_event(void *self, const struct plim_store_event *event)
{
    struct plim_jsonw *w = self;
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "id", event->id);
    plim_jsonw_kv_u64(w, "time_ns", event->time_ns);
    plim_jsonw_kv_text(w, "kind", event->kind);
    if (event->subject) {
        plim_jsonw_kv_u64(w, "subject", event->subject);
    }
    plim_jsonw_key(w, "detail");
    plim_jsonw_raw(w, event->json && event->json[0] ? plim_str_from(event->json) : PLIM_STR("{}"));
    plim_jsonw_end(w);
    return true;
}

/* GET /api/v1/events?from&to&kind&subject&after&limit: the newest `limit` of them, in order of time. */
PLIM__HANDLER(events)
{
    struct plim__serve *s = self;
    struct plim_jsonw w;
    struct plim__serve_window window;
    struct plim_str kind = {0};
    char kind_text[64] = "";
    uint64_t limit;
    struct plim_store_event_filter filter = {0};
    PLIM_TRY(plim__serve_window(request, &window, err));
    PLIM_TRY(plim_http_query_u64(request, "subject", 0, &filter.subject, err));
    PLIM_TRY(plim_http_query_u64(request, "after", 0, &filter.after, err));
    PLIM_TRY(plim_http_query_u64(request, "limit", 1000, &limit, err));
    if (plim_http_query(request, "kind", &kind) && kind.n > 0 && kind.n < sizeof(kind_text)) {
        memcpy(kind_text, kind.p, kind.n);
        filter.kind = kind_text;
    }
    PLIM_TRY(plim__serve_history_open(s, err));
    filter.from_ns = window.from;
    filter.to_ns = window.to;
    filter.limit = (uint32_t)plim_max_u64(1, plim_min_u64(limit, EVENTS_MOST));
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.events/1");
    plim_jsonw_key(&w, "events");
    plim_jsonw_array(&w);
    enum plim_status st = plim_store_events(s->store, &filter, put_event, &w, err);
    if (st == PLIM_OK) {
        plim_jsonw_end(&w);
        plim_jsonw_end(&w);
    }
    return plim__serve_history_checked(s, st);
}
