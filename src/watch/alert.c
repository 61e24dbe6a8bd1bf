/* SPDX-License-Identifier: Apache-2.0 */

/* Alerts as the rest of the monitor sees them: open, step, silence, show. See alert.h. */

#include "watch/alert.h"

#include "base/clock.h"
#include "base/num.h"
#include "watch/alert_deliver.h"

#include <stdio.h>
#include <stdlib.h>

static enum plim_status make(const struct plim_alerts_options *o, struct plim_alerts **out,
                             struct plim_err *err)
{
    struct plim_alerts *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the alerts");
    }
    enum plim_status st = plim__alert_book(o->settings, &a->book, err);
    if (st == PLIM_OK && o->state_path != NULL) {
        a->state_path = strdup(o->state_path);
        st = a->state_path != NULL ? PLIM_OK
                                   : plim__fail(err, PLIM_E_NOMEM, "no memory for the alerts");
    }
    if (st != PLIM_OK) {
        if (a->book != NULL) {
            plim__alert_book_free(a->book);
        }
        free(a);
        return st;
    }
    snprintf(a->host, sizeof(a->host), "%s", o->host);
    snprintf(a->version, sizeof(a->version), "%s", o->version);
    a->tell = o->tell;
    a->tell_arg = o->tell_arg;
    a->sent = o->sent;
    a->sent_arg = o->sent_arg;
    (void)pthread_mutex_init(&a->lock, NULL);
    plim_cond_init(&a->changed);
    *out = a;
    return PLIM_OK;
}

static void destroy(struct plim_alerts *a)
{
    plim__alert_list_fini(&a->list);
    plim__alert_book_free(a->book);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->state_path);
    free(a);
}

/* What a run before left is as old as this one, and how long it held is not known. */
static void set_ages(struct plim_alert_list *list)
{
    uint64_t now = plim_boot_ns();
    plim_vec_foreach (alert, &list->alerts) {
        (*alert)->age_mono = now;
    }
}

enum plim_status plim_alerts_open(const struct plim_alerts_options *options,
                                  struct plim_alerts **out, struct plim_err *err)
{
    struct plim_alerts *a = NULL;
    PLIM_TRY(make(options, &a, err));
    enum plim_status st = plim__alerts_load(a, err);
    set_ages(&a->list);
    if (st == PLIM_OK) {
        st = plim__alerts_start(a, a->book->receivers.n, err);
    }
    if (st != PLIM_OK) {
        plim_alerts_close(a);
        return st;
    }
    *out = a;
    return PLIM_OK;
}

void plim_alerts_close(struct plim_alerts *a)
{
    if (a != NULL) {
        plim__alerts_stop(a);
        destroy(a);
    }
}

enum plim_status plim_alerts_reload(struct plim_alerts *a, const struct plim_settings *settings,
                                    struct plim_err *err)
{
    struct plim_alert_book *fresh = NULL;
    PLIM_TRY(plim__alert_book(settings, &fresh, err));
    enum plim_status st = plim__alerts_start(a, fresh->receivers.n, err);
    if (st != PLIM_OK) {
        plim__alert_book_free(fresh);
        return st;
    }
    (void)pthread_mutex_lock(&a->lock);
    struct plim_alert_book *old = a->book;
    a->book = fresh;
    if (--old->holders == 0) {
        plim__alert_book_free(old);
    }
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
    return PLIM_OK;
}

/* What changed under the lock is to be kept and told. */
static void changed(struct plim_alerts *a)
{
    a->dirty = true;
    (void)pthread_cond_broadcast(&a->changed);
}

void plim_alerts_step(struct plim_alerts *a, const struct plim_observation *now,
                      const struct plim_finding *findings, size_t n)
{
    (void)pthread_mutex_lock(&a->lock);
    if (plim__alerts_judge(&a->list, a->book, now, plim_wall_ns(), findings, n)) {
        changed(a);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

size_t plim_alerts_firing(struct plim_alerts *a)
{
    size_t n = 0;
    (void)pthread_mutex_lock(&a->lock);
    plim_vec_foreach (alert, &a->list.alerts) {
        n += (*alert)->state == PLIM_ALERT_FIRING;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return n;
}

/* ---- silences ---- */

enum plim_status plim_alerts_silence(struct plim_alerts *a, const struct plim_silence *silence,
                                     uint64_t *id, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    (void)pthread_mutex_lock(&a->lock);
    if (a->list.n_silences >= PLIM_SILENCES_MAX) {
        st = plim__fail(err, PLIM_E_BUDGET, "there are %d silences already", PLIM_SILENCES_MAX);
    } else {
        struct plim_silence *s = &a->list.silences[a->list.n_silences++];
        *s = *silence;
        *id = s->id = ++a->list.last_silence;
        changed(a);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return st;
}

enum plim_status plim_alerts_unsilence(struct plim_alerts *a, uint64_t id, struct plim_err *err)
{
    enum plim_status st = PLIM_E_NOTFOUND;
    (void)pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->list.n_silences && st != PLIM_OK; i++) {
        if (a->list.silences[i].id == id) {
            a->list.silences[i] = a->list.silences[--a->list.n_silences];
            changed(a);
            st = PLIM_OK;
        }
    }
    (void)pthread_mutex_unlock(&a->lock);
    return st == PLIM_OK ? st
                         : plim__fail(err, st, "there is no silence %llu", (unsigned long long)id);
}

enum plim_status plim_alerts_acknowledge(struct plim_alerts *a, uint64_t fingerprint,
                                         struct plim_err *err)
{
    enum plim_status st = PLIM_E_NOTFOUND;
    (void)pthread_mutex_lock(&a->lock);
    plim_vec_foreach (alert, &a->list.alerts) {
        if ((*alert)->fingerprint == fingerprint && (*alert)->state == PLIM_ALERT_FIRING) {
            (*alert)->acknowledged = true;
            changed(a);
            st = PLIM_OK;
        }
    }
    (void)pthread_mutex_unlock(&a->lock);
    return st == PLIM_OK
               ? st
               : plim__fail(err, st, "no alert %016llx fires", (unsigned long long)fingerprint);
}

/* ---- showing ---- */

static void put_silence(struct plim_jsonw *w, const struct plim_silence *s)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "id", s->id);
    plim_jsonw_kv_u64(w, "until_ns", s->until_ns);
    plim_jsonw_kv_text(w, "rule", s->rule);
    plim_jsonw_kv_text(w, "device", s->device);
    plim_jsonw_kv_text(w, "process", s->process);
    plim_jsonw_kv_text(w, "author", s->author);
    plim_jsonw_kv_text(w, "comment", s->comment);
    plim_jsonw_end(w);
}

static void put_receiver(const struct plim_alerts *a, size_t slot, struct plim_jsonw *w)
{
    const struct plim_receiver *r = &a->book->receivers.items[slot];
    const struct plim__alert_worker *worker = &a->workers[slot];
    uint64_t now = plim_wall_ns();
    size_t owed = 0;
    plim_vec_foreach (alert, &a->list.alerts) {
        owed += plim__alert_due(&a->list, a->book, *alert, r, now) <= now;
    }
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", r->name);
    plim_jsonw_kv_u64(w, "owed", owed);
    plim_jsonw_kv_u64(w, "sent", worker->sent);
    plim_jsonw_kv_u64(w, "failed", worker->failed);
    plim_jsonw_kv_u64(w, "dropped", worker->dropped);
    plim_jsonw_kv_bool(w, "failing", worker->failures > 0);
    if (worker->error[0] != '\0') {
        plim_jsonw_kv_text(w, "error", worker->error);
    }
    plim_jsonw_end(w);
}

void plim_alerts_json(struct plim_alerts *a, struct plim_jsonw *w)
{
    (void)pthread_mutex_lock(&a->lock);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.alerts/1");
    plim_jsonw_key(w, "alerts");
    plim_jsonw_array(w);
    plim_vec_foreach (alert, &a->list.alerts) {
        plim__alert_put(w, *alert, a->book->url);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "silences");
    plim_jsonw_array(w);
    for (size_t i = 0; i < a->list.n_silences; i++) {
        put_silence(w, &a->list.silences[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "receivers");
    plim_jsonw_array(w);
    for (size_t i = 0; i < a->book->receivers.n; i++) {
        put_receiver(a, i, w);
    }
    plim_jsonw_end(w);
    plim_jsonw_kv_bool(w, "state_kept", a->state_path != NULL && !a->keeping_fails);
    plim_jsonw_kv_u64(w, "lost", a->list.lost);
    plim_jsonw_end(w);
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- a sample ---- */

enum plim_status plim_alerts_test(const struct plim_alerts_options *options, const char *name,
                                  struct plim_err *err)
{
    struct plim_alert sample;
    struct plim_alerts *a = NULL;
    uint64_t wait_ns = 0;
    enum plim_status st = PLIM_E_NOTFOUND;
    PLIM_TRY(make(options, &a, err));
    plim__alert_sample(&sample, plim_wall_ns());
    plim__err_set(err, st, "there is no [notify %.40s] in the settings", name);
    plim_vec_foreach (r, &a->book->receivers) {
        struct plim_alert_message m = {.receiver = r,
                                       .book = a->book,
                                       .host = a->host,
                                       .version = a->version,
                                       .time_ns = sample.fired_ns,
                                       .alerts = &sample,
                                       .n = 1};
        if (strcmp(r->name, name) == 0) {
            st = plim__alert_send(&m, &wait_ns, err);
        }
    }
    destroy(a);
    return st;
}
