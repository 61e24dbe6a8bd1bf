/* SPDX-License-Identifier: Apache-2.0 */
/* The "meta" column of the report: small facts as JSON. Keys are described in docs/format/report-data.md. */

#include "report/html.h"

#include "base/jsonw.h"

#include <stdio.h>

static void amount(struct plim_jsonw *w, const char *key, struct plim_amount a)
{
    if (plim_known(a)) {
        plim_jsonw_kv_u64(w, key, a.bytes);
    }
}

static void moments(struct plim_jsonw *w, const struct plim_detail *detail)
{
    static const char *const names[PLIM_DETAIL_NAMED] = {"judged",  "peak",        "peak_reserved",
                                                         "failure", "first_split", "end"};
    plim_jsonw_key(w, "moments");
    plim_jsonw_object(w);
    for (size_t i = 0; i < PLIM_DETAIL_NAMED; i++) {
        if (detail->named[i] != UINT32_MAX) {
            plim_jsonw_kv_u64(w, names[i], detail->named[i]);
        }
    }
    plim_jsonw_end(w);
}

static void tables(struct plim_jsonw *w, const struct plim_snapshot *s)
{
    plim_jsonw_key(w, "streams");
    plim_jsonw_array(w);
    plim_vec_foreach (handle, &s->streams) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%lld", (long long)*handle);
        plim_jsonw_text(w, text);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "pools");
    plim_jsonw_array(w);
    plim_vec_foreach (pool, &s->pools) {
        char text[48];
        (void)snprintf(text, sizeof(text), "%llu,%llu", (unsigned long long)pool->a,
                       (unsigned long long)pool->b);
        plim_jsonw_text(w, text);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "actions");
    plim_jsonw_array(w);
    for (int i = 0; i < PLIM_ACTION_COUNT; i++) {
        plim_jsonw_text(w, plim_action_text((enum plim_action)i));
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "categories");
    plim_jsonw_array(w);
    for (int i = 0; i < PLIM_CATEGORY_COUNT; i++) {
        plim_jsonw_text(w, plim_category_text((enum plim_category)i));
    }
    plim_jsonw_end(w);
}

#define MOST_NOTES       2000u /* compile contexts and user texts kept */
#define MOST_ANNOTATIONS 2000u
#define MOST_TEXT        200u /* bytes of each */

static void short_text(struct plim_jsonw *w, const char *key, const struct plim_snapshot *s,
                       uint32_t id)
{
    struct plim_str text = plim_intern_str(&s->strings, id);
    text.n = text.n > MOST_TEXT ? MOST_TEXT : text.n;
    plim_jsonw_kv_str(w, key, text);
}

static void notes(struct plim_jsonw *w, const struct plim_detail *detail)
{
    const struct plim_snapshot *s = detail->snapshot;
    plim_jsonw_key(w, "notes");
    plim_jsonw_array(w);
    for (size_t i = 0; i < s->notes.n && i < MOST_NOTES; i++) {
        plim_jsonw_object(w);
        short_text(w, "compile_context", s, s->notes.items[i].compile_context);
        short_text(w, "user_metadata", s, s->notes.items[i].user_metadata);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "annotations");
    plim_jsonw_array(w);
    const struct plim_trace *trace = &detail->device->trace;
    uint64_t first = trace->events.n > 0 ? trace->events.items[0].time_us : 0;
    for (size_t i = 0; i < s->annotations.n && i < MOST_ANNOTATIONS; i++) {
        const struct plim_annotation *a = &s->annotations.items[i];
        plim_jsonw_object(w);
        short_text(w, "name", s, a->name);
        plim_jsonw_kv_i64(w, "time", (int64_t)(a->time_us - first));
        plim_jsonw_kv_bool(w, "end", a->end);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void chosen_rows(struct plim_jsonw *w, const struct plim_detail_chosen *chosen)
{
    plim_jsonw_kv_bool(w, "all_blocks", chosen->all_blocks);
    plim_jsonw_kv_bool(w, "all_events", chosen->all_events);
    plim_jsonw_kv_u64(w, "blocks", chosen->blocks);
    plim_jsonw_kv_u64(w, "blocks_of", chosen->blocks_of);
    plim_jsonw_kv_u64(w, "merged", chosen->merged);
    plim_jsonw_kv_u64(w, "dropped", chosen->dropped);
    plim_jsonw_kv_u64(w, "keyframes", chosen->keyframes);
    plim_jsonw_kv_u64(w, "frames_cut", chosen->frames_cut);
}

static void external(struct plim_jsonw *w, const struct plim_ledger *l)
{
    amount(w, "total", l->total);
    amount(w, "capacity", l->capacity);
    amount(w, "request", l->request);
    amount(w, "process_other", l->owner[PLIM_OWNER_PROCESS_OTHER]);
    amount(w, "other_processes", l->owner[PLIM_OWNER_OTHER_PROCESSES]);
    amount(w, "driver_reserved", l->owner[PLIM_OWNER_DRIVER_RESERVED]);
}

void plim__html_meta(struct plim_buf *out, const struct plim_detail *detail,
                     const struct plim_detail_chosen *chosen,
                     const struct plim_html_options *options)
{
    const struct plim_diagnosis *d = detail->diagnosis;
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.report-data/1");
    plim_jsonw_kv_text(&w, "source", options->source);
    plim_jsonw_kv_bool(&w, "served", options->served);
    plim_jsonw_kv_u64(&w, "device", d->device);
    plim_jsonw_kv_u64(&w, "events", detail->device->trace.events.n);
    plim_jsonw_kv_bool(&w, "has_times", detail->device->trace.has_times);
    plim_jsonw_kv_bool(&w, "complete", d->complete);
    plim_jsonw_kv_text(&w, "moment", d->set.ledger.moment);
    if (options->before) {
        plim_jsonw_kv_text(&w, "before", options->before->source);
    }
    moments(&w, detail);
    chosen_rows(&w, chosen);
    external(&w, &d->set.ledger);
    tables(&w, detail->snapshot);
    notes(&w, detail);
    plim_jsonw_key(&w, "suspects");
    plim_jsonw_array(&w);
    plim_vec_foreach (suspect, &d->leaks.suspects) {
        plim_jsonw_u64(&w, suspect->site);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}
