/* SPDX-License-Identifier: Apache-2.0 */
/* What front doors ask by HTTP. Each answer costs some microseconds: the ledger is in memory. */

#include "gate/gate_int.h"

#include "base/clock.h"
#include "base/err.h"
#include "report/metrics.h"

#include <jansson.h>

static void count(struct plim__gate *g, enum plim_gate_count which)
{
    (void)atomic_fetch_add_explicit(&g->count[which], 1, memory_order_relaxed);
}

/* A request that nobody can judge now. */
static void undecided(struct plim__gate *g, struct plimsoll_gate_decision *out)
{
    count(g, PLIM_GATE_COUNT_UNDECIDED);
    bool open = g->options->fail_open;
    *out = (struct plimsoll_gate_decision){
        .verdict = open ? PLIMSOLL_GATE_ADMIT : PLIMSOLL_GATE_LATER,
        .reason = open ? PLIMSOLL_GATE_WHY_FITS : PLIMSOLL_GATE_WHY_STALE,
        .http = open ? 200 : 503,
        .retry_after_ms = open ? 0 : 5000};
}

void plim__gate_judge(struct plim__gate *g, const struct plimsoll_gate_request *request,
                      struct plimsoll_gate_decision *out)
{
    if (!atomic_load(&g->open) || plimsoll_gate_admit(plim__gate_ledger(g), request, out,
                                                      plim_mono_ns()) != PLIMSOLL_GATE_OK) {
        undecided(g, out);
    }
}

/* A page of the web can have a browser send a form or a text here, but not JSON. */
static enum plim_status check_json(struct plim__gate *g, const struct plim_http_request *request,
                                   struct plim_err *err)
{
    const char *type = plim_http_header(request, "Content-Type");
    if (type == NULL || strncasecmp(type, "application/json", 16) != 0) {
        count(g, PLIM_GATE_COUNT_BAD);
        return plim__fail(err, PLIM_E_USAGE, "the body must be application/json");
    }
    return PLIM_OK;
}

static void say_decision(struct plim_http_answer *answer, const struct plimsoll_gate_decision *d)
{
    struct plim_jsonw w;
    if (d->http != 200) {
        plim__gate_refuse(answer, d);
        return;
    }
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim__gate_write_decision(&w, d);
    plim_jsonw_end(&w);
}

/* A body that tells of a request. */
static enum plim_status read_asked(struct plim__gate *g, const struct plim_http_request *request,
                                   bool with_bytes, struct plim__gate_asked *out,
                                   struct plim_err *err)
{
    PLIM_TRY(check_json(g, request, err));
    enum plim_status st = plim__gate_read_request(request->body, with_bytes, out, err);
    if (st != PLIM_OK) {
        count(g, PLIM_GATE_COUNT_BAD);
    }
    return st;
}

static enum plim_status need_prompt(struct plim__gate *g, const struct plim__gate_asked *asked,
                                    struct plim_err *err)
{
    if (asked->request.prompt_tokens == 0) {
        count(g, PLIM_GATE_COUNT_BAD);
        return plim__fail(err, PLIM_E_USAGE, "\"prompt_tokens\" or \"prompts\" is missing");
    }
    return PLIM_OK;
}

PLIM__GATE_HANDLER(admit)
{
    struct plim__gate *g = self;
    struct plim__gate_asked asked;
    struct plimsoll_gate_decision d;
    PLIM_TRY(read_asked(g, request, false, &asked, err));
    PLIM_TRY(need_prompt(g, &asked, err));
    count(g, PLIM_GATE_COUNT_ADMITS);
    asked.request.flags |= PLIMSOLL_GATE_BY_LEASE; /* it runs in the engine, not here */
    if (asked.class_name[0] != '\0' && atomic_load(&g->open)) {
        asked.request.class_id =
            plimsoll_gate_class(plim__gate_ledger(g), asked.class_name, plim_mono_ns());
    }
    plim__gate_judge(g, &asked.request, &d);
    say_decision(answer, &d);
    return PLIM_OK;
}

/* ---- about a reservation ---- */

struct about {
    uint64_t id;
    uint32_t generated;
    uint32_t outcome;
};

static bool read_outcome(const char *word, uint32_t *out)
{
    for (uint32_t i = 0; i <= PLIMSOLL_GATE_OOM; i++) {
        if (strcmp(word, plimsoll_gate_outcome_text(i)) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static enum plim_status read_about(struct plim__gate *g, const struct plim_http_request *request,
                                   struct about *out, struct plim_err *err)
{
    json_int_t id = 0, generated = 0;
    const char *word = "stopped";
    json_error_t e = {0};
    PLIM_TRY(check_json(g, request, err));
    json_t *root = json_loadb(request->body.p, request->body.n, JSON_REJECT_DUPLICATES, &e);
    bool good = root != NULL && json_unpack_ex(root, &e, JSON_STRICT, "{s:I, s?I, s?s}", "id", &id,
                                               "generated", &generated, "outcome", &word) == 0;
    enum plim_status st = PLIM_OK;
    if (!good) {
        st = plim__fail(err, PLIM_E_USAGE, "%s", e.text);
    } else if (id <= 0 || generated < 0 || generated > INT32_MAX) {
        st = plim__fail(err, PLIM_E_USAGE, "\"id\" or \"generated\" is not such a number");
    } else if (!read_outcome(word, &out->outcome)) {
        st = plim__fail(err, PLIM_E_USAGE, "no such outcome: \"%.40s\"", word);
        plim__err_hint(err, "one of stopped, length, cancelled, failed, oom");
    } else {
        out->id = (uint64_t)id;
        out->generated = (uint32_t)generated;
    }
    json_decref(root);
    if (st != PLIM_OK) {
        count(g, PLIM_GATE_COUNT_BAD);
    }
    return st;
}

static enum plim_status settled(int code, uint64_t id, struct plim_http_answer *answer,
                                struct plim_err *err)
{
    if (code == PLIMSOLL_GATE_UNKNOWN) {
        return plim__fail(err, PLIM_E_NOTFOUND, "there is no reservation %llu",
                          (unsigned long long)id);
    }
    if (code != PLIMSOLL_GATE_OK) {
        return plim__fail(err, PLIM_E_OS, "%s", plimsoll_gate_code_text(code));
    }
    answer->code = 204;
    return PLIM_OK;
}

enum plim_status plim__gate_check_open(struct plim__gate *g, struct plim_err *err)
{
    return atomic_load(&g->open) ? PLIM_OK : plim__fail(err, PLIM_E_OS, "there is no ledger yet");
}

PLIM__GATE_HANDLER(extend)
{
    struct plim__gate *g = self;
    struct about about;
    PLIM_TRY(read_about(g, request, &about, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    return settled(
        plimsoll_gate_extend(plim__gate_ledger(g), about.id, about.generated, plim_mono_ns()),
        about.id, answer, err);
}

PLIM__GATE_HANDLER(release)
{
    struct plim__gate *g = self;
    struct about about;
    PLIM_TRY(read_about(g, request, &about, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    return settled(plimsoll_gate_release(plim__gate_ledger(g), about.id, about.generated,
                                         about.outcome, plim_mono_ns()),
                   about.id, answer, err);
}

PLIM__GATE_HANDLER(poll)
{
    struct plim__gate *g = self;
    struct about about;
    struct plimsoll_gate_decision d;
    PLIM_TRY(read_about(g, request, &about, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    int code = plimsoll_gate_poll(plim__gate_ledger(g), about.id, &d, plim_mono_ns());
    if (code != PLIMSOLL_GATE_OK) {
        return settled(code, about.id, answer, err);
    }
    say_decision(answer, &d);
    return PLIM_OK;
}

/* ---- what teaches prices of workspace ---- */

PLIM__GATE_HANDLER(oom)
{
    struct plim__gate *g = self;
    struct plim__gate_asked failed;
    PLIM_TRY(read_asked(g, request, true, &failed, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    bool known = failed.request.prompt_tokens > 0;
    int code = plimsoll_gate_oom(plim__gate_ledger(g), known ? &failed.request : NULL,
                                 failed.bytes == UINT64_MAX ? 0 : failed.bytes, plim_mono_ns());
    return settled(code == PLIMSOLL_GATE_UNKNOWN ? PLIMSOLL_GATE_OK : code, 0, answer, err);
}

PLIM__GATE_HANDLER(worked)
{
    struct plim__gate *g = self;
    struct plim__gate_asked served;
    PLIM_TRY(read_asked(g, request, true, &served, err));
    PLIM_TRY(need_prompt(g, &served, err));
    if (served.bytes == UINT64_MAX) {
        count(g, PLIM_GATE_COUNT_BAD);
        return plim__fail(err, PLIM_E_USAGE, "\"bytes\" is missing");
    }
    PLIM_TRY(plim__gate_check_open(g, err));
    return settled(
        plimsoll_gate_worked(plim__gate_ledger(g), &served.request, served.bytes, plim_mono_ns()),
        0, answer, err);
}

PLIM__GATE_HANDLER(figures)
{
    struct plim__gate *g = self;
    struct plimsoll_gate_figures told;
    PLIM_TRY(check_json(g, request, err));
    PLIM_TRY(plim__gate_read_figures(request->body, &told, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    return settled(plimsoll_gate_observe(plim__gate_ledger(g), &told, plim_mono_ns()), 0, answer,
                   err);
}

/* ---- about the server ---- */

bool plim__gate_ready(struct plim__gate *g, const char **why)
{
    struct plimsoll_gate_state s;
    *why = "";
    if (atomic_load(&g->stopping)) {
        *why = "stopping";
    } else if (!atomic_load(&g->open)) {
        *why = "no ledger yet";
    } else if (!atomic_load(&g->engine_up)) {
        *why = "the engine does not answer";
    } else if (plimsoll_gate_read(plim__gate_ledger(g), &s, plim_mono_ns()) != PLIMSOLL_GATE_OK) {
        *why = "the ledger is locked";
    } else if (s.draining != 0) {
        *why = s.draining == 2 ? "ran out of memory repeatedly" : "draining";
    }
    return (*why)[0] == '\0';
}

PLIM__GATE_HANDLER(pressure)
{
    struct plim__gate *g = self;
    struct plimsoll_gate_state s = {0};
    struct plim_jsonw w;
    const char *why;
    (void)request;
    PLIM_TRY(plim__gate_check_open(g, err));
    if (plimsoll_gate_read(plim__gate_ledger(g), &s, plim_mono_ns()) != PLIMSOLL_GATE_OK) {
        return plim__fail(err, PLIM_E_OS, "the ledger is locked");
    }
    bool ready = plim__gate_ready(g, &why);
    plim_jsonw_init(&w, &answer->text, true);
    plim__gate_write_state(&w, g, &s, ready, why);
    return PLIM_OK;
}

PLIM__GATE_HANDLER(drain)
{
    struct plim__gate *g = self;
    json_error_t e = {0};
    int on = 1;
    PLIM_TRY(plim__gate_check_open(g, err));
    json_t *root = json_loadb(request->body.p, request->body.n, JSON_REJECT_DUPLICATES, &e);
    bool good = root != NULL && json_unpack_ex(root, &e, JSON_STRICT, "{s:b}", "on", &on) == 0;
    json_decref(root);
    if (!good) {
        return plim__fail(err, PLIM_E_USAGE, "the body is {\"on\": true} or {\"on\": false}");
    }
    return settled(plimsoll_gate_drain(plim__gate_ledger(g), on != 0, plim_mono_ns()), 0, answer,
                   err);
}

PLIM__GATE_HANDLER(healthz)
{
    (void)self;
    (void)request;
    (void)err;
    answer->type = "text/plain; charset=utf-8";
    plim_buf_text(&answer->text, "ok\n");
    return PLIM_OK;
}

PLIM__GATE_HANDLER(readyz)
{
    const char *why;
    bool ready = plim__gate_ready(self, &why);
    (void)request;
    (void)err;
    answer->type = "text/plain; charset=utf-8";
    answer->code = ready ? 200 : 503;
    plim_buf_printf(&answer->text, "%s\n", ready ? "ready" : why);
    return PLIM_OK;
}

PLIM__GATE_HANDLER(scrape)
{
    const char *accept = plim_http_header(request, "Accept");
    enum plim_metrics_form form = plim_metrics_choose(plim_str_from(accept ? accept : ""));
    (void)err;
    answer->type = plim_metrics_content_type(form);
    plim__gate_metrics(&answer->text, self, form == PLIM_METRICS_OPENMETRICS);
    return PLIM_OK;
}
