/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Texts that clients read: made at most once a step, shared, freed by whoever lets go last. They
 * are made under the lock, which the loop takes for a moment in each step: a client may wait for
 * the loop, and the loop for one text, never for a client's network.
 */

#include "watch/watch_int.h"

#include "base/clock.h"
#include "base/num.h"
#include "report/metrics.h"

typedef void (*render)(struct plim_buf *out, const struct plim_state *state);

static void status(struct plim_buf *out, const struct plim_state *state)
{
    plim_status_json(out, state, true);
}

static void view(struct plim_buf *out, const struct plim_state *state)
{
    static const struct plim_status_style style = {.width = 100};
    plim_status_view(out, state, &style);
}

static void findings(struct plim_buf *out, const struct plim_state *state)
{
    plim_findings_json(out, state, true);
}

static void metrics(struct plim_buf *out, const struct plim_state *state)
{
    plim_metrics_write(out, state, PLIM_METRICS_TEXT);
}

static void open_metrics(struct plim_buf *out, const struct plim_state *state)
{
    plim_metrics_write(out, state, PLIM_METRICS_OPENMETRICS);
}

static const render renders[PLIM_WATCH_TEXTS] = {[PLIM_WATCH_TEXT_STATUS] = status,
                                                 [PLIM_WATCH_TEXT_VIEW] = view,
                                                 [PLIM_WATCH_TEXT_FINDINGS] = findings,
                                                 [PLIM_WATCH_TEXT_METRICS] = metrics,
                                                 [PLIM_WATCH_TEXT_OPENMETRICS] = open_metrics};

struct plim_state plim__watch_state(const struct plim_watch *w)
{
    return (struct plim_state){.now = &w->now,
                               .stats = &w->stats,
                               .watched = w->judged,
                               .findings = w->findings,
                               .n_findings = w->n_findings,
                               .left = w->left.n == w->now.sample.devices.n ? w->left.items : NULL,
                               .health = &w->health,
                               .started_ns = w->started_ns,
                               .version = w->options->version,
                               .host = w->host};
}

static struct plim_watch_text *make(const struct plim_watch *w, enum plim_watch_text_kind kind)
{
    struct plim_buf out = {0};
    struct plim_state state = plim__watch_state(w);
    struct plim_watch_text *text = malloc(sizeof(*text));
    renders[kind](&out, &state);
    if (text == NULL || plim_buf_status(&out, NULL) != PLIM_OK) {
        plim_buf_fini(&out);
        free(text);
        return NULL;
    }
    *text = (struct plim_watch_text){.bytes = plim_buf_str(&out), .step = w->steps, .holders = 1};
    return text; /* the storage of `out` is now the text's */
}

struct plim_watch_text *plim__watch_text(struct plim_watch *w, enum plim_watch_text_kind kind)
{
    (void)pthread_mutex_lock(&w->lock);
    if (w->texts[kind] == NULL && w->steps > 0) {
        w->texts[kind] = make(w, kind);
    }
    struct plim_watch_text *text = w->texts[kind];
    if (text != NULL) {
        (void)__atomic_fetch_add(&text->holders, 1, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return text;
}

void plim__watch_text_drop(struct plim_watch_text *text)
{
    if (text != NULL && __atomic_sub_fetch(&text->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        free((void *)(uintptr_t)text->bytes.p);
        free(text);
    }
}

void plim__watch_texts_reset(struct plim_watch *w)
{
    for (size_t i = 0; i < PLIM_WATCH_TEXTS; i++) {
        plim__watch_text_drop(w->texts[i]);
        w->texts[i] = NULL;
    }
}

uint64_t plim__watch_wait(struct plim_watch *w, uint64_t seen, uint64_t timeout_ns)
{
    uint64_t until = plim_add_sat(plim_mono_ns(), timeout_ns);
    (void)pthread_mutex_lock(&w->lock);
    bool more = true;
    while (w->steps <= seen && !w->ending && more) {
        more = plim_cond_wait_until(&w->stepped, &w->lock, until);
    }
    uint64_t steps = w->steps;
    (void)pthread_mutex_unlock(&w->lock);
    return steps;
}
