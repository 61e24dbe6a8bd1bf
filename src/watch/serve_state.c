/* SPDX-License-Identifier: Apache-2.0 */
/* What is known now: metrics, the state as JSON, its events, whether the monitor lives. */

#include "base/clock.h"
#include "base/jsonw.h"
#include "report/metrics.h"
#include "watch/serve_int.h"

#define LIVE_SECONDS 60u /* without a step: the loop hangs */

/* The newest text of a form as a body, made once a step. */
static enum plim_status newest(struct plim__serve *s, enum plim_watch_text_kind kind,
                               const char *type, struct plim_http_answer *answer,
                               struct plim_err *err)
{
    struct plim__serve_shared *shared = &s->shared[kind];
    struct plim_buf copy = {0};
    enum plim_status st = PLIM_OK;
    struct plim_watch_text *text = plim__watch_text(s->watch, kind);
    if (!text) {
        answer->code = 503;
        return plim__fail(err, PLIM_E_OS, "nothing was observed yet");
    }
    (void)pthread_mutex_lock(&shared->lock);
    if (!shared->body || shared->step != text->step) {
        struct plim_http_body *body;
        plim_buf_add(&copy, text->bytes);
        st = plim_http_body_new(type, NULL, &copy, &body, err);
        if (st == PLIM_OK) {
            plim_http_body_unref(shared->body);
            shared->body = body;
            shared->step = text->step;
        }
    }
    if (st == PLIM_OK) {
        answer->body = plim_http_body_ref(shared->body);
    }
    (void)pthread_mutex_unlock(&shared->lock);
    plim__watch_text_drop(text);
    return st;
}

PLIM__HANDLER(metrics)
{
    const char *accept = plim_http_header(request, "Accept");
    enum plim_metrics_form form = plim_metrics_choose(plim_str_from(accept ? accept : ""));
    return newest(self,
                  form == PLIM_METRICS_OPENMETRICS ? PLIM_WATCH_TEXT_OPENMETRICS
                                                   : PLIM_WATCH_TEXT_METRICS,
                  plim_metrics_content_type(form), answer, err);
}

PLIM__HANDLER(status)
{
    (void)request;
    return newest(self, PLIM_WATCH_TEXT_STATUS, "application/json", answer, err);
}

PLIM__HANDLER(status_text)
{
    (void)request;
    return newest(self, PLIM_WATCH_TEXT_VIEW, "text/plain; charset=utf-8", answer, err);
}

PLIM__HANDLER(findings)
{
    (void)request;
    return newest(self, PLIM_WATCH_TEXT_FINDINGS, "application/json", answer, err);
}

PLIM__HANDLER(live)
{
    struct plim__serve *s = self;
    (void)request;
    (void)err;
    answer->channel = s->live;
    return PLIM_OK;
}

/* Seconds since the newest observation; false: there was none. */
static bool age(struct plim_watch *w, uint64_t *seconds)
{
    uint64_t now = plim_boot_ns() / PLIM_SECOND_NS;
    (void)pthread_mutex_lock(&w->lock);
    uint64_t then = w->now.mono_ns / PLIM_SECOND_NS;
    bool known = w->steps > 0;
    (void)pthread_mutex_unlock(&w->lock);
    *seconds = now > then ? now - then : 0;
    return known;
}

static enum plim_status say(struct plim_http_answer *answer, bool good, const char *what)
{
    answer->code = good ? 200 : 503;
    answer->type = "text/plain; charset=utf-8";
    plim_buf_printf(&answer->text, "%s\n", what);
    return PLIM_OK;
}

PLIM__HANDLER(healthz)
{
    struct plim__serve *s = self;
    uint64_t seconds;
    (void)request;
    (void)err;
    bool stuck =
        age(s->watch, &seconds) && seconds > LIVE_SECONDS + s->watch->interval_ns / 500000000;
    return say(answer, !stuck, stuck ? "the monitor does not observe any more" : "ok");
}

PLIM__HANDLER(readyz)
{
    struct plim__serve *s = self;
    uint64_t seconds;
    (void)request;
    (void)err;
    bool ready = age(s->watch, &seconds) && seconds <= 5 + s->watch->interval_ns / 333333333;
    return say(answer, ready, ready ? "ok" : "nothing was observed lately");
}
