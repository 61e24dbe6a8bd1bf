/* SPDX-License-Identifier: Apache-2.0 */

/* History as one document, "plimsoll.history/1", or as JSON lines, each a piece of it: docs/schema/history.json. */

#include "report/history_int.h"

/* Another document inside this one. Labels and data come from a file: what is no JSON becomes null. */
static void put_value(struct plim_jsonw *w, const json_t *v)
{
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_object(v)) {
        plim_jsonw_object(w);
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
        {
            plim_jsonw_key(w, key);
            put_value(w, member);
        }
        plim_jsonw_end(w);
    } else if (json_is_array(v)) {
        plim_jsonw_array(w);
        json_array_foreach(v, i, member)
        {
            put_value(w, member);
        }
        plim_jsonw_end(w);
    } else if (json_is_string(v)) {
        plim_jsonw_str(w, (struct plim_str){json_string_value(v), json_string_length(v)});
    } else if (json_is_integer(v)) {
        plim_jsonw_i64(w, json_integer_value(v));
    } else if (json_is_real(v)) {
        plim_jsonw_real(w, json_real_value(v));
    } else if (json_is_boolean(v)) {
        plim_jsonw_bool(w, json_is_true(v));
    } else {
        plim_jsonw_null(w);
    }
}

/* How deep a document nests; the writer below has room for so much. */
static unsigned depth(const json_t *v)
{
    const char *key;
    json_t *member;
    size_t i;
    unsigned most = 0, d;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
        {
            d = depth(member);
            most = d > most ? d : most;
        }
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, member)
        {
            d = depth(member);
            most = d > most ? d : most;
        }
    } else {
        return 0;
    }
    return most + 1;
}

static void put_document(struct plim_jsonw *w, const char *key, const char *text)
{
    json_t *v = json_loads(text, 0, NULL);
    plim_jsonw_key(w, key);
    if (v != NULL && depth(v) < PLIM_JSONW_DEPTH / 2) {
        put_value(w, v);
    } else {
        plim_jsonw_null(w);
    }
    json_decref(v);
}

static void put_subject(struct plim_jsonw *w, const struct plim_store_subject *s, bool labels)
{
    plim_jsonw_kv_text(w, "kind", s->kind);
    plim_jsonw_kv_text(w, "key", s->key);
    if (labels) {
        put_document(w, "labels", s->labels);
    }
}

static void put_bin(struct plim_jsonw *w, const struct plim_store_bin *bin)
{
    plim_jsonw_kv_u64(w, "time_ns", bin->time_ns);
    plim_jsonw_kv_u64(w, "n", bin->n);
    plim_jsonw_kv_real(w, "min", bin->min);
    plim_jsonw_kv_real(w, "mean", bin->mean);
    plim_jsonw_kv_real(w, "max", bin->max);
    plim_jsonw_kv_real(w, "last", bin->last);
}

static void put_lifetime(struct plim_jsonw *w, const struct plim_store_subject *s)
{
    put_subject(w, s, true);
    plim_jsonw_kv_u64(w, "first_ns", s->first_ns);
    plim_jsonw_kv_u64(w, "last_ns", s->last_ns);
}

static void put_event(struct plim_jsonw *w, const struct plim_store_event *event,
                      const struct plim_store_subject *s)
{
    plim_jsonw_kv_u64(w, "time_ns", event->time_ns);
    plim_jsonw_kv_text(w, "event", event->kind);
    if (s != NULL) {
        put_subject(w, s, false);
    }
    put_document(w, "data", event->json);
}

/* ---- one document ---- */

static void json_begin(struct plim__history *h)
{
    static const char *const lists[] = {"series", "subjects", "events", "events"};
    plim_jsonw_init(&h->w, h->out, false);
    plim_jsonw_object(&h->w);
    plim_jsonw_kv_text(&h->w, "schema", "plimsoll.history/1");
    plim_jsonw_kv_text(&h->w, "path", h->request->path);
    plim_jsonw_kv_u64(&h->w, "from_ns", h->request->from_ns);
    if (h->request->to_ns != 0) {
        plim_jsonw_kv_u64(&h->w, "to_ns", h->request->to_ns);
    }
    plim_jsonw_key(&h->w, lists[h->request->what]);
    plim_jsonw_array(&h->w);
}

static void json_series(struct plim__history *h, const struct plim_store_subject *s,
                        const char *figure, const struct plim_store_answer *a)
{
    plim_jsonw_object(&h->w);
    put_subject(&h->w, s, true);
    plim_jsonw_kv_text(&h->w, "figure", figure);
    plim_jsonw_kv_u64(&h->w, "step_ns", a->step_ns);
    plim_jsonw_kv_u64(&h->w, "complete_from_ns", a->complete_from_ns);
    plim_jsonw_key(&h->w, "bins");
    plim_jsonw_array(&h->w);
    plim_vec_foreach (bin, &a->bins) {
        plim_jsonw_object(&h->w);
        put_bin(&h->w, bin);
        plim_jsonw_end(&h->w);
    }
    plim_jsonw_end(&h->w);
    plim_jsonw_end(&h->w);
}

static void json_subject(struct plim__history *h, const struct plim_store_subject *s)
{
    plim_jsonw_object(&h->w);
    put_lifetime(&h->w, s);
    plim_jsonw_end(&h->w);
}

static void json_event(struct plim__history *h, const struct plim_store_event *event,
                       const struct plim_store_subject *s)
{
    plim_jsonw_object(&h->w);
    put_event(&h->w, event, s);
    plim_jsonw_end(&h->w);
}

static void json_end(struct plim__history *h)
{
    plim_jsonw_end(&h->w);
    plim_jsonw_end(&h->w);
}

const struct plim__history_form plim__history_json = {json_begin, json_subject, json_series,
                                                      json_event, json_end};

/* ---- a line for each piece ---- */

static void line_begin(struct plim__history *h)
{
    plim_jsonw_init(&h->w, h->out, true);
    plim_jsonw_object(&h->w);
    plim_jsonw_kv_text(&h->w, "schema", "plimsoll.history/1");
}

static void nothing(struct plim__history *h)
{
    (void)h;
}

static void line_series(struct plim__history *h, const struct plim_store_subject *s,
                        const char *figure, const struct plim_store_answer *a)
{
    plim_vec_foreach (bin, &a->bins) {
        line_begin(h);
        put_subject(&h->w, s, false);
        plim_jsonw_kv_text(&h->w, "figure", figure);
        put_bin(&h->w, bin);
        plim_jsonw_end(&h->w);
    }
}

static void line_subject(struct plim__history *h, const struct plim_store_subject *s)
{
    line_begin(h);
    put_lifetime(&h->w, s);
    plim_jsonw_end(&h->w);
}

static void line_event(struct plim__history *h, const struct plim_store_event *event,
                       const struct plim_store_subject *s)
{
    line_begin(h);
    put_event(&h->w, event, s);
    plim_jsonw_end(&h->w);
}

const struct plim__history_form plim__history_jsonl = {nothing, line_subject, line_series,
                                                       line_event, nothing};
