/* SPDX-License-Identifier: Apache-2.0 */

/* What of the history is shown: subjects and figures by pattern, or events; and times as people write them. */

#include "report/history_int.h"

#include "base/scalar.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EVENTS_MAX 10000u

/* Figures that are shown when none are named. */
static const char *const telling[] = {"used_bytes", "process_bytes", "kv_usage_ratio",
                                      "requests_running"};

struct search {
    struct plim__history h;
    const struct plim__history_form *form;
    struct plim_store *store;
    struct plim_arena arena;
    struct plim_store_subjects subjects;
};

/* ---- what is meant ---- */

static bool word_of(const char *const *words, const char *word, unsigned *out)
{
    for (unsigned i = 0; word != NULL && words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

bool plim_history_what_of(const char *word, enum plim_history_what *out)
{
    static const char *const words[] = {"series", "subjects", "events", "findings", NULL};
    unsigned i = *out;
    bool known = word_of(words, word, &i);
    *out = (enum plim_history_what)i;
    return known;
}

bool plim_history_form_of(const char *word, enum plim_history_form *out)
{
    static const char *const words[] = {"text", "csv", "jsonl", "json", NULL};
    unsigned i = *out;
    bool known = word_of(words, word, &i);
    *out = (enum plim_history_form)i;
    return known;
}

static bool matches(const char *const *patterns, size_t n, const char *text)
{
    for (size_t i = 0; text != NULL && i < n; i++) {
        if (fnmatch(patterns[i], text, 0) == 0) {
            return true;
        }
    }
    return false;
}

static bool on_device(const struct plim_history_request *r, const json_t *labels)
{
    const json_t *device = json_object_get(labels, "device");
    return !r->has_device || (json_is_integer(device) && json_integer_value(device) >= 0 &&
                              (uint64_t)json_integer_value(device) == r->device);
}

static bool wanted_process(const struct plim_history_request *r, const json_t *labels)
{
    char pid[24];
    (void)snprintf(pid, sizeof(pid), "%lld",
                   (long long)json_integer_value(json_object_get(labels, "pid")));
    return matches(r->processes, r->n_processes,
                   json_string_value(json_object_get(labels, "name"))) ||
           matches(r->processes, r->n_processes, pid);
}

static bool wanted(const struct plim_history_request *r, const struct plim_store_subject *s)
{
    json_t *labels = json_loads(s->labels, 0, NULL);
    bool all = r->what != PLIM_HISTORY_SERIES;
    bool yes = false;
    if (strcmp(s->kind, "process") == 0) {
        yes = on_device(r, labels) &&
              (r->n_processes > 0 ? wanted_process(r, labels) : all && r->n_engines == 0);
    } else if (strcmp(s->kind, "engine") == 0) {
        yes = !r->has_device && (r->n_engines > 0 ? matches(r->engines, r->n_engines, s->key)
                                                  : all && r->n_processes == 0);
    } else if (r->n_processes == 0 && r->n_engines == 0) {
        yes = strcmp(s->kind, "device") == 0 ? on_device(r, labels) : !r->has_device;
    }
    json_decref(labels);
    return yes;
}

static bool wanted_figure(const struct plim_history_request *r, const char *name)
{
    return r->n_figures > 0 ? matches(r->figures, r->n_figures, name)
                            : matches(telling, sizeof(telling) / sizeof(*telling), name);
}

/* ---- series ---- */

static enum plim_status show_series(struct search *x, const struct plim_store_subject *s,
                                    const char *figure, struct plim_err *err)
{
    const struct plim_history_request *r = x->h.request;
    struct plim_store_answer answer = {0};
    struct plim_store_query query = {
        .subject = s->id,
        .figure = figure,
        .from_ns = r->from_ns,
        .to_ns = r->to_ns,
        .step_ns = r->step_ns,
        .max_points = r->step_ns != 0 ? 0 : r->points,
    };
    PLIM_TRY(plim_store_query(x->store, &query, &answer, err));
    if (answer.bins.n > 0) {
        x->form->series(&x->h, s, figure, &answer);
        x->h.pieces++;
    }
    plim_store_answer_fini(&answer);
    if (r->most != 0 && x->h.out->n > r->most) {
        (void)plim__fail(err, PLIM_E_BUDGET, "the answer has more than %zu MiB", r->most >> 20);
        plim__err_hint(err, "ask for less time, fewer points, or fewer figures");
        return PLIM_E_BUDGET;
    }
    return PLIM_OK;
}

static enum plim_status show_subject(struct search *x, const struct plim_store_subject *s,
                                     struct plim_err *err)
{
    struct plim_store_names names = {0};
    if (x->h.request->what == PLIM_HISTORY_SUBJECTS) {
        x->form->subject(&x->h, s);
        x->h.pieces++;
        return PLIM_OK;
    }
    enum plim_status st = plim_store_figures(x->store, s->id, x->h.request->from_ns,
                                             x->h.request->to_ns, &x->arena, &names, err);
    for (size_t i = 0; i < names.list.n && st == PLIM_OK; i++) {
        if (wanted_figure(x->h.request, names.list.items[i])) {
            st = show_series(x, s, names.list.items[i], err);
        }
    }
    plim_vec_fini(&names.list);
    return st;
}

/* ---- events ---- */

static const struct plim_store_subject *subject_of(const struct search *x, uint64_t id)
{
    plim_vec_foreach (s, &x->subjects.list) {
        if (s->id == id) {
            return s;
        }
    }
    return NULL;
}

static bool take_event(void *self, const struct plim_store_event *event)
{
    struct search *x = self;
    const struct plim_history_request *r = x->h.request;
    const struct plim_store_subject *s = subject_of(x, event->subject);
    bool finding = strncmp(event->kind, "finding", strlen("finding")) == 0;
    bool any = !r->has_device && r->n_processes == 0 && r->n_engines == 0;
    if ((finding || r->what == PLIM_HISTORY_EVENTS) && (s != NULL ? wanted(r, s) : any)) {
        x->form->event(&x->h, event, s);
        x->h.pieces++;
    }
    return true;
}

static enum plim_status show_all(struct search *x, struct plim_err *err)
{
    const struct plim_history_request *r = x->h.request;
    bool events = r->what == PLIM_HISTORY_EVENTS || r->what == PLIM_HISTORY_FINDINGS;
    struct plim_store_event_filter filter = {
        .from_ns = r->from_ns, .to_ns = r->to_ns, .limit = EVENTS_MAX};
    PLIM_TRY(plim_store_subjects(x->store, events ? 0 : r->from_ns, events ? 0 : r->to_ns,
                                 &x->arena, &x->subjects, err));
    if (events) {
        return plim_store_events(x->store, &filter, take_event, x, err);
    }
    plim_vec_foreach (s, &x->subjects.list) {
        if (wanted(r, s)) {
            PLIM_TRY(show_subject(x, s, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_history_write(struct plim_buf *out, struct plim_store *store,
                                    const struct plim_history_request *request,
                                    struct plim_err *err)
{
    static const struct plim__history_form *const forms[] = {
        [PLIM_HISTORY_TEXT] = &plim__history_text,
        [PLIM_HISTORY_CSV] = &plim__history_csv,
        [PLIM_HISTORY_JSONL] = &plim__history_jsonl,
        [PLIM_HISTORY_JSON] = &plim__history_json,
    };
    struct search x = {
        .h = {.out = out, .request = request}, .form = forms[request->form], .store = store};
    plim_arena_init(&x.arena, 0);
    x.form->begin(&x.h);
    enum plim_status st = show_all(&x, err);
    if (st == PLIM_OK) {
        x.form->end(&x.h);
        st = plim_buf_status(out, err);
    }
    plim_vec_fini(&x.subjects.list);
    plim_arena_fini(&x.arena);
    return st;
}

/* ---- times ---- */

bool plim_history_time(const char *text, uint64_t now_ns, uint64_t *ns)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S",
                                        "%Y-%m-%dT%H:%MZ", "%Y-%m-%d %H:%M", "%Y-%m-%d"};
    uint64_t v;
    if (text[0] == '@') {
        bool good = plim_count_parse(text + 1, &v) && v < UINT64_MAX / 2000000000;
        *ns = good ? v * 1000000000 : *ns;
        return good;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        time_t t = end != NULL && *end == '\0' ? timegm(&tm) : -1;
        if (t >= 0) {
            *ns = (uint64_t)t * 1000000000;
            return true;
        }
    }
    if (plim_duration_parse(text, &v)) {
        *ns = now_ns > v ? now_ns - v : 0;
        return true;
    }
    return false;
}
