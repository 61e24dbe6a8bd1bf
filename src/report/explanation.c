/* SPDX-License-Identifier: Apache-2.0 */
/* An explained text in three forms. See explanation.h. */

#include "report/explanation.h"

#include <stdio.h>

#define SHOWN 5 /* other failures listed in text and Markdown */

/* ---- text and Markdown ---- */

/* "line 1234, torch-cuda (PyTorch 2.1 to 2.2), rank 3, reported 8 times" */
static void add_origin(struct plim_buf *out, const struct plim_oom_event *event)
{
    plim_buf_printf(out, "line %llu, %s", (unsigned long long)event->line, event->format);
    if (event->versions) {
        plim_buf_printf(out, " (PyTorch %s)", event->versions);
    }
    if (event->rank >= 0) {
        plim_buf_printf(out, ", rank %lld", (long long)event->rank);
    }
    if (event->copies > 1) {
        plim_buf_printf(out, ", reported %u times", event->copies);
    }
}

static void add_other(struct plim_buf *out, const struct plim_oom_event *event,
                      const struct plim_finding_set *set)
{
    const char *sub = plim_subclass_text(set->verdict.subclass);
    add_origin(out, event);
    plim_buf_printf(out, ": %s%s%s", plim_class_text(set->verdict.cls), *sub ? "/" : "", sub);
}

/* What is said behind the verdict: where it stands, and what else there is. */
static void add_others(struct plim_buf *out, const struct plim_oom_scan *scan,
                       const struct plim_message *message, const char *mark)
{
    size_t shown = 0, n = scan->events.n;
    for (size_t i = 0; i < n && shown < SHOWN; i++) {
        if (i != message->primary) {
            plim_buf_text(out, mark);
            add_other(out, &scan->events.items[i], &message->sets.items[i]);
            plim_buf_char(out, '\n');
            shown++;
        }
    }
    uint64_t more = n - (message->primary == SIZE_MAX ? 0 : 1) - shown + scan->dropped;
    if (more > 0) {
        plim_buf_printf(out, "%s%llu more%s\n", mark, (unsigned long long)more,
                        scan->dropped ? "" : "; --format json lists all");
    }
}

void plim_text_explanation(struct plim_buf *out, const struct plim_oom_scan *scan,
                           const struct plim_message *message, const struct plim_text_style *style)
{
    if (message->primary == SIZE_MAX) {
        plim_text_verdict(out, &message->verdict, style);
        return;
    }
    plim_text_finding(out, &message->sets.items[message->primary], style);
    plim_buf_text(out, "\nFound in ");
    add_origin(out, &scan->events.items[message->primary]);
    plim_buf_char(out, '\n');
    if (scan->events.n + scan->dropped > 1) {
        plim_text_heading(out, "Also in this text", style);
        add_others(out, scan, message, "  - ");
    }
}

void plim_markdown_explanation(struct plim_buf *out, const struct plim_oom_scan *scan,
                               const struct plim_message *message)
{
    if (message->primary == SIZE_MAX) {
        struct plim_finding_set empty = {.verdict = message->verdict};
        plim_markdown_finding(out, NULL, &empty);
        return;
    }
    plim_markdown_finding(out, NULL, &message->sets.items[message->primary]);
    plim_buf_text(out, "\nFound in ");
    add_origin(out, &scan->events.items[message->primary]);
    plim_buf_text(out, ".\n");
    if (scan->events.n + scan->dropped > 1) {
        plim_buf_text(out, "\nAlso in this text\n\n");
        add_others(out, scan, message, "- ");
    }
}

/* ---- JSON ---- */

static void json_number(struct plim_jsonw *w, const char *key, int64_t v)
{
    if (v >= 0) {
        plim_jsonw_kv_i64(w, key, v);
    }
}

static void json_event(struct plim_jsonw *w, const struct plim_oom_event *event,
                       const struct plim_finding_set *set)
{
    const struct plim_oom_value *request = &event->facts.field[PLIM_OOM_REQUEST];
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "line", event->line);
    plim_jsonw_kv_u64(w, "last_line", event->last_line);
    plim_jsonw_kv_text(w, "format", event->format);
    plim_jsonw_kv_text(w, "versions", event->versions);
    plim_jsonw_kv_text(w, "excerpt", event->excerpt);
    plim_jsonw_key(w, "request_bytes");
    if (request->set) {
        plim_jsonw_u64(w, request->n);
    } else {
        plim_jsonw_null(w);
    }
    if (event->facts.field[PLIM_OOM_DEVICE].set) {
        plim_jsonw_kv_u64(w, "device", event->facts.field[PLIM_OOM_DEVICE].n);
    }
    json_number(w, "rank", event->rank);
    json_number(w, "pid", event->pid);
    if (event->time_ms != PLIM_OOM_NO_TIME) {
        plim_jsonw_kv_i64(w, "log_time_ms", event->time_ms);
    }
    plim_jsonw_kv_u64(w, "copies", event->copies);
    plim_jsonw_kv_u64(w, "ranks", event->ranks);
    plim_json_class(w, &set->verdict);
    plim_jsonw_kv_text(w, "summary", set->verdict.summary ? set->verdict.summary : "");
    plim_json_finding(w, set);
    plim_jsonw_end(w);
}

void plim_json_explanation(struct plim_jsonw *w, const struct plim_oom_scan *scan,
                           const struct plim_message *message)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.explain/1");
    plim_json_verdict(w, &message->verdict);
    plim_jsonw_key(w, "verdict_event");
    if (message->primary == SIZE_MAX) {
        plim_jsonw_null(w);
    } else {
        plim_jsonw_u64(w, message->primary);
    }
    plim_jsonw_key(w, "input");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "lines", scan->lines);
    plim_jsonw_kv_u64(w, "bytes", scan->bytes);
    plim_jsonw_kv_u64(w, "events_not_listed", scan->dropped);
    plim_jsonw_end(w);
    plim_jsonw_key(w, "events");
    plim_jsonw_array(w);
    for (size_t i = 0; i < scan->events.n; i++) {
        json_event(w, &scan->events.items[i], &message->sets.items[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
