/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The state file: {"schema": "plimsoll.alert-state/1"}, what of the alerts survives a restart. Alerts that fire or
 * were resolved lately, what each receiver was told of them, and silences. Pending alerts are left out: their time
 * begins anew. The file is replaced whole, so that a reader finds the old one or the new one.
 * Fingerprints and hashes are hexadecimal texts, since JSON readers elsewhere keep numbers as doubles.
 */

#include "base/num.h"
#include "detect/estimate.h"
#include "watch/alert_int.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define SCHEMA "plimsoll.alert-state/1"

/* X(KIND, field of struct plim_alert, "key") */
#define ALERT_FIELDS(X)                                                                            \
    X(TEXT, rule, "rule")                                                                          \
    X(TEXT, class, "class")                                                                        \
    X(TEXT, figure, "figure")                                                                      \
    X(TEXT, engine, "engine")                                                                      \
    X(TEXT, subject.device_uuid, "device_uuid")                                                    \
    X(TEXT, subject.process, "process")                                                            \
    X(TEXT, device_name, "device_name")                                                            \
    X(TEXT, pci, "pci")                                                                            \
    X(TEXT, summary, "summary")                                                                    \
    X(TEXT, evidence, "evidence")                                                                  \
    X(TEXT, next_step, "next_step")                                                                \
    X(TEXT, runbook, "runbook")                                                                    \
    X(HEX, fingerprint, "fingerprint")                                                             \
    X(NUMBER, subject.pid, "pid")                                                                  \
    X(NUMBER, subject.start_ticks, "start_ticks")                                                  \
    X(NUMBER, state, "state")                                                                      \
    X(NUMBER, severity, "severity")                                                                \
    X(NUMBER, episode, "episode")                                                                  \
    X(NUMBER, began_ns, "began_ns")                                                                \
    X(NUMBER, fired_ns, "fired_ns")                                                                \
    X(NUMBER, resolved_ns, "resolved_ns")                                                          \
    X(NUMBER, bytes, "bytes")                                                                      \
    X(NUMBER, clear_ns, "clear_ns")                                                                \
    X(REAL, value, "value")                                                                        \
    X(REAL, threshold, "threshold")                                                                \
    X(REAL, confidence, "confidence")                                                              \
    X(FLAG, acknowledged, "acknowledged")                                                          \
    X(FLAG, flapping, "flapping")

#define TOLD_FIELDS(X)                                                                             \
    X(HEX, receiver, "receiver")                                                                   \
    X(NUMBER, episode, "episode")                                                                  \
    X(NUMBER, state, "state")                                                                      \
    X(NUMBER, severity, "severity")                                                                \
    X(NUMBER, time_ns, "time_ns")

#define SILENCE_FIELDS(X)                                                                          \
    X(NUMBER, id, "id")                                                                            \
    X(NUMBER, until_ns, "until_ns")                                                                \
    X(TEXT, rule, "rule")                                                                          \
    X(TEXT, device, "device")                                                                      \
    X(TEXT, process, "process")                                                                    \
    X(TEXT, author, "author")                                                                      \
    X(TEXT, comment, "comment")

/* ---- writing ---- */

static void put_hex(struct plim_jsonw *w, const char *key, uint64_t value)
{
    char text[20];
    snprintf(text, sizeof(text), "%016" PRIx64, value);
    plim_jsonw_kv_text(w, key, text);
}

#define PUT_TEXT(from, field, key)   plim_jsonw_kv_text(w, key, (from)->field);
#define PUT_HEX(from, field, key)    put_hex(w, key, (from)->field);
#define PUT_NUMBER(from, field, key) plim_jsonw_kv_u64(w, key, (uint64_t)(from)->field);
#define PUT_REAL(from, field, key)   plim_jsonw_kv_real(w, key, (from)->field);
#define PUT_FLAG(from, field, key)   plim_jsonw_kv_bool(w, key, (from)->field);

static void put_alert(struct plim_jsonw *w, const struct plim_alert *a)
{
#define X(kind, field, key) PUT_##kind(a, field, key)
    plim_jsonw_object(w);
    ALERT_FIELDS(X)
#undef X
    plim_estimate_save(w, "slope", &a->slope);
    plim_estimate_save(w, "seconds_left", &a->seconds_left);
    plim_jsonw_key(w, "told");
    plim_jsonw_array(w);
    for (size_t i = 0; i < PLIM_RECEIVERS_MAX; i++) {
        const struct plim_told *t = &a->told[i];
        if (t->receiver == 0) {
            continue;
        }
#define X(kind, field, key) PUT_##kind(t, field, key)
        plim_jsonw_object(w);
        TOLD_FIELDS(X)
        plim_jsonw_end(w);
#undef X
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

void plim__alert_state_write(const struct plim_alert_list *list, struct plim_buf *out)
{
    struct plim_jsonw writer;
    struct plim_jsonw *w = &writer;
    plim_jsonw_init(w, out, false);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", SCHEMA);
    plim_jsonw_kv_u64(w, "last_silence", list->last_silence);
    plim_jsonw_key(w, "alerts");
    plim_jsonw_array(w);
    plim_vec_foreach (alert, &list->alerts) {
        if ((*alert)->episode > 0) {
            put_alert(w, *alert);
        }
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "silences");
    plim_jsonw_array(w);
    for (size_t i = 0; i < list->n_silences; i++) {
        const struct plim_silence *s = &list->silences[i];
#define X(kind, field, key) PUT_##kind(s, field, key)
        plim_jsonw_object(w);
        SILENCE_FIELDS(X)
        plim_jsonw_end(w);
#undef X
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

/* ---- reading: what is missing or odd is as if it was not written ---- */

static void get_text(const json_t *object, const char *key, char *out, size_t n)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, n, "%s", text != NULL ? text : "");
}

static uint64_t get_number(const json_t *object, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(object, key));
    return v > 0 ? (uint64_t)v : 0;
}

static uint64_t get_hex(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

#define GET_TEXT(to, field, key)   get_text(o, key, (to)->field, sizeof((to)->field));
#define GET_HEX(to, field, key)    (to)->field = get_hex(o, key);
#define GET_NUMBER(to, field, key) (to)->field = (__typeof__((to)->field))get_number(o, key);
#define GET_REAL(to, field, key)   (to)->field = json_number_value(json_object_get(o, key));
#define GET_FLAG(to, field, key)   (to)->field = json_is_true(json_object_get(o, key));

static bool get_alert(const json_t *o, struct plim_alert *a)
{
#define X(kind, field, key) GET_##kind(a, field, key)
    ALERT_FIELDS(X)
#undef X
    a->slope = plim_estimate_load(o, "slope");
    a->seconds_left = plim_estimate_load(o, "seconds_left");
    a->subject.device = PLIM_NO_DEVICE;
    const json_t *told = json_object_get(o, "told");
    for (size_t i = 0; i < json_array_size(told) && i < PLIM_RECEIVERS_MAX; i++) {
        struct plim_told *t = &a->told[i];
        o = json_array_get(told, i);
#define X(kind, field, key) GET_##kind(t, field, key)
        TOLD_FIELDS(X)
#undef X
        if (t->state >= PLIM_ALERT_STATES || t->severity >= PLIM_SEVERITIES) {
            return false;
        }
    }
    if (a->state == PLIM_ALERT_PENDING) { /* of an alert that came back */
        a->state = PLIM_ALERT_RESOLVED;
    }
    return a->fingerprint != 0 && a->episode > 0 && a->state < PLIM_ALERT_STATES &&
           a->severity < PLIM_SEVERITIES && a->rule[0] != '\0';
}

static enum plim_status get_alerts(const json_t *array, struct plim_alert_list *list,
                                   struct plim_err *err)
{
    for (size_t i = 0; i < json_array_size(array) && i < PLIM_ALERTS_MAX; i++) {
        struct plim_alert *a = calloc(1, sizeof(*a));
        if (a == NULL) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for an alert");
        }
        bool good = get_alert(json_array_get(array, i), a);
        enum plim_status st = good ? plim_vec_push(&list->alerts, err, a) : PLIM_OK;
        if (!good || st != PLIM_OK) {
            free(a);
        }
        PLIM_TRY(st);
    }
    return PLIM_OK;
}

static void get_silences(const json_t *array, struct plim_alert_list *list)
{
    for (size_t i = 0; i < json_array_size(array) && i < PLIM_SILENCES_MAX; i++) {
        const json_t *o = json_array_get(array, i);
        struct plim_silence *s = &list->silences[list->n_silences];
#define X(kind, field, key) GET_##kind(s, field, key)
        SILENCE_FIELDS(X)
#undef X
        list->n_silences += s->id != 0;
    }
}

enum plim_status plim__alert_state_read(struct plim_str text, struct plim_alert_list *list,
                                        struct plim_err *err)
{
    json_error_t fault;
    json_t *root = json_loadb(text.p, text.n, 0, &fault);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (schema == NULL || strcmp(schema, SCHEMA) != 0) {
        json_decref(root);
        return plim__fail(err, PLIM_E_DATA, "this is no state of alerts: %.80s",
                          root == NULL ? fault.text : "another schema");
    }
    *list = (struct plim_alert_list){.last_silence = get_number(root, "last_silence")};
    enum plim_status st = get_alerts(json_object_get(root, "alerts"), list, err);
    get_silences(json_object_get(root, "silences"), list);
    json_decref(root);
    if (st != PLIM_OK) {
        plim__alert_list_fini(list);
        *list = (struct plim_alert_list){0};
    }
    return st;
}
