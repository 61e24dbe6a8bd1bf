/* SPDX-License-Identifier: Apache-2.0 */

/* What receivers get: "plimsoll.alert/1", and the body that Alertmanager's API takes. */

#include "base/bytes.h"
#include "base/clock.h"
#include "base/num.h"
#include "base/scalar.h"
#include "report/status.h"
#include "watch/alert_int.h"

#include <inttypes.h>
#include <stdio.h>

#define AM_ENDS_NS (240 * PLIM_SECOND_NS) /* firing, unless it is sent again within this time */

/* ---- plimsoll.alert/1 ---- */

static void put_time(struct plim_jsonw *w, const char *key, uint64_t ns)
{
    char text[PLIM_TIME_TEXT];
    if (ns != 0) {
        plim_jsonw_kv_text(w, key, plim_time_format(text, ns));
    }
}

static void put_text(struct plim_jsonw *w, const char *key, const char *text)
{
    if (text[0] != '\0') {
        plim_jsonw_kv_text(w, key, text);
    }
}

static void put_subject(struct plim_jsonw *w, const struct plim_alert *a)
{
    plim_jsonw_key(w, "subject");
    plim_jsonw_object(w);
    if (a->subject.device_uuid[0] != '\0' || a->pci[0] != '\0') {
        plim_jsonw_key(w, "device");
        plim_jsonw_object(w);
        put_text(w, "uuid", a->subject.device_uuid);
        put_text(w, "name", a->device_name);
        put_text(w, "pci", a->pci);
        plim_jsonw_end(w);
    }
    if (a->subject.pid != 0) {
        plim_jsonw_key(w, "process");
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "pid", a->subject.pid);
        put_text(w, "name", a->subject.process);
        plim_jsonw_end(w);
    }
    put_text(w, "engine", a->engine);
    plim_jsonw_end(w);
}

static void put_evidence(struct plim_jsonw *w, const char *lines)
{
    plim_jsonw_key(w, "evidence");
    plim_jsonw_array(w);
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        plim_jsonw_str(w, (struct plim_str){lines, n});
        lines += n + (lines[n] == '\n');
    }
    plim_jsonw_end(w);
}

void plim__alert_put(struct plim_jsonw *w, const struct plim_alert *a, const char *url)
{
    char id[20];
    char link[300];
    snprintf(id, sizeof(id), "%016" PRIx64, a->fingerprint);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "fingerprint", id);
    plim_jsonw_kv_u64(w, "episode", a->episode);
    plim_jsonw_kv_text(w, "rule", a->rule);
    plim_jsonw_kv_text(w, "status", plim_alert_state_text(a->state));
    plim_jsonw_kv_text(w, "severity", plim_severity_text(a->severity));
    plim_jsonw_kv_text(w, "class", a->class);
    put_time(w, "began_at", a->began_ns);
    put_time(w, "fired_at", a->fired_ns);
    put_time(w, "resolved_at", a->resolved_ns);
    put_subject(w, a);
    plim_jsonw_kv_text(w, "summary", a->summary);
    put_evidence(w, a->evidence);
    put_text(w, "next_step", a->next_step);
    put_text(w, "runbook", a->runbook);
    if (a->figure[0] != '\0') {
        plim_jsonw_kv_text(w, "figure", a->figure);
        plim_jsonw_kv_real(w, "value", a->value);
        plim_jsonw_kv_real(w, "threshold", a->threshold);
    } else {
        plim_jsonw_kv_real(w, "confidence", a->confidence);
        plim_jsonw_kv_u64(w, "bytes", a->bytes);
        plim_estimate_json(w, "bytes_per_second", &a->slope);
        plim_estimate_json(w, "seconds_left", &a->seconds_left);
    }
    plim_jsonw_kv_bool(w, "acknowledged", a->acknowledged);
    plim_jsonw_kv_bool(w, "flapping", a->flapping);
    if (url != NULL) {
        snprintf(link, sizeof(link), "%.240s/#alert=%s", url, id);
        plim_jsonw_kv_text(w, "url", link);
    }
    plim_jsonw_end(w);
}

static const struct plim_alert *gravest(const struct plim_alert_message *m)
{
    const struct plim_alert *best = &m->alerts[0];
    for (size_t i = 1; i < m->n; i++) {
        const struct plim_alert *a = &m->alerts[i];
        bool fires = a->state == PLIM_ALERT_FIRING;
        bool best_fires = best->state == PLIM_ALERT_FIRING;
        if (fires > best_fires || (fires == best_fires && a->severity > best->severity)) {
            best = a;
        }
    }
    return best;
}

uint64_t plim__alert_id(const struct plim_alert_message *m)
{
    uint64_t h = m->receiver->hash;
    for (size_t i = 0; i < m->n; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%" PRIx64 "/%u/%u/%u", m->alerts[i].fingerprint,
                 m->alerts[i].episode, (unsigned)m->alerts[i].state,
                 (unsigned)m->alerts[i].severity);
        h = plim__alert_hash(h, text);
    }
    return h;
}

char *plim__alert_title(const struct plim_alert_message *m, char *text, size_t n)
{
    const struct plim_alert *a = gravest(m);
    const char *state =
        a->state == PLIM_ALERT_FIRING ? plim_severity_text(a->severity) : "resolved";
    if (m->n == 1) {
        snprintf(text, n, "[%s] %s: %s", state, m->host, a->summary);
    } else {
        snprintf(text, n, "[%s] %s: %zu alerts, first: %s", state, m->host, m->n, a->summary);
    }
    return text;
}

void plim__alert_message_json(const struct plim_alert_message *m, struct plim_buf *out)
{
    struct plim_jsonw w;
    char id[20];
    char title[320];
    snprintf(id, sizeof(id), "%016" PRIx64, plim__alert_id(m));
    plim_jsonw_init(&w, out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.alert/1");
    plim_jsonw_kv_text(&w, "version", m->version);
    plim_jsonw_kv_text(&w, "message", id);
    plim_jsonw_kv_text(&w, "host", m->host);
    plim_jsonw_kv_text(&w, "receiver", m->receiver->name);
    plim_jsonw_kv_bool(&w, "test", m->alerts[0].test);
    put_time(&w, "sent_at", m->time_ns);
    plim_jsonw_kv_text(&w, "status", plim_alert_state_text(gravest(m)->state));
    plim_jsonw_kv_text(&w, "severity", plim_severity_text(gravest(m)->severity));
    plim_jsonw_kv_text(&w, "summary", plim__alert_title(m, title, sizeof(title)));
    if (m->book->url != NULL) {
        plim_jsonw_kv_text(&w, "dashboard", m->book->url);
    }
    plim_jsonw_key(&w, "alerts");
    plim_jsonw_array(&w);
    for (size_t i = 0; i < m->n; i++) {
        plim__alert_put(&w, &m->alerts[i], m->book->url);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}

/* ---- Alertmanager, API v2: openapi.yaml of release 0.25, postableAlert ---- */

static void put_am_alert(const struct plim_alert_message *m, const struct plim_alert *a,
                         struct plim_jsonw *w)
{
    char pid[16];
    char left[PLIM_DURATION_TEXT];
    snprintf(pid, sizeof(pid), "%u", a->subject.pid);
    plim_jsonw_object(w);
    plim_jsonw_key(w, "labels"); /* its identity: nothing that changes while it lasts */
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "alertname", a->rule);
    plim_jsonw_kv_text(w, "instance", m->host);
    plim_jsonw_kv_text(w, "job", "plimsoll");
    plim_jsonw_kv_text(w, "class", a->class);
    plim_jsonw_kv_text(w, "severity", plim_severity_text(a->severity));
    put_text(w, "uuid", a->subject.device_uuid);
    put_text(w, "process", a->subject.process);
    put_text(w, "pid", a->subject.pid != 0 ? pid : "");
    put_text(w, "engine", a->engine);
    plim_jsonw_end(w);
    plim_jsonw_key(w, "annotations");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "summary", a->summary);
    put_text(w, "description", a->evidence);
    put_text(w, "next_step", a->next_step);
    put_text(w, "runbook_url", a->runbook);
    put_text(w, "device", a->device_name);
    if (a->seconds_left.valid) {
        plim_jsonw_kv_text(w, "time_left", plim_duration_format(left, a->seconds_left.value));
    }
    plim_jsonw_end(w);
    bool ended = a->state == PLIM_ALERT_RESOLVED;
    put_time(w, "startsAt", a->fired_ns);
    put_time(w, "endsAt", ended ? a->resolved_ns : m->time_ns + AM_ENDS_NS);
    if (m->book->url != NULL) {
        plim_jsonw_kv_text(w, "generatorURL", m->book->url);
    }
    plim_jsonw_end(w);
}

void plim__alert_message_am(const struct plim_alert_message *m, struct plim_buf *out)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, true);
    plim_jsonw_array(&w);
    for (size_t i = 0; i < m->n; i++) {
        put_am_alert(m, &m->alerts[i], &w);
    }
    plim_jsonw_end(&w);
}
