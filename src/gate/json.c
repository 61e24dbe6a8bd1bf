/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and decisions of the gate as JSON. */

#include "gate/gate_int.h"

#include "base/err.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#define PROMPTS_MAX 65536u /* of one request */

/* ---- what a front door asks ---- */

/* X(key, field): whole numbers of a request's body. */
#define REQUEST_NUMBERS(X)                                                                         \
    X("prompt_tokens", prompt_tokens)                                                              \
    X("max_tokens", max_tokens)                                                                    \
    X("cached_tokens", cached_tokens)                                                              \
    X("shared_tokens", shared_tokens)                                                              \
    X("samples", samples)                                                                          \
    X("image_tokens", image_tokens)                                                                \
    X("logprob_rows", logprob_rows)                                                                \
    X("known_output", known_output)

static bool number(const json_t *value, uint32_t *out)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || n > INT32_MAX) {
        return false;
    }
    *out = (uint32_t)n;
    return true;
}

/* Tokens of each prompt of a batch. They are priced by their mean, and the longest one must fit by itself. */
static bool prompts(const json_t *value, struct plimsoll_gate_request *out)
{
    size_t n = json_array_size(value); /* 0 when it is no array */
    uint64_t sum = 0;
    bool good = n > 0 && n <= PROMPTS_MAX;
    for (size_t i = 0; good && i < n; i++) {
        uint32_t tokens = 0;
        good = number(json_array_get(value, i), &tokens) && tokens > 0;
        sum += tokens;
        out->longest_tokens = tokens > out->longest_tokens ? tokens : out->longest_tokens;
    }
    if (good) {
        out->prompt_tokens = (uint32_t)((sum + n - 1) / n);
    }
    return good;
}

static enum plim_status read_key(const char *key, const json_t *value,
                                 struct plimsoll_gate_request *out,
                                 char class_name[PLIMSOLL_GATE_NAME], struct plim_err *err)
{
    bool good = false;
    if (strcmp(key, "priority") == 0 && json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        good = n >= INT32_MIN && n <= INT32_MAX;
        out->priority = good ? (int32_t)n : 0;
    } else if (strcmp(key, "wait") == 0 && json_is_boolean(value)) {
        out->flags |= json_is_true(value) ? PLIMSOLL_GATE_MAY_WAIT : 0;
        good = true;
    } else if (strcmp(key, "stream") == 0 && json_is_boolean(value)) {
        out->flags |= json_is_true(value) ? 0 : PLIMSOLL_GATE_WHOLE;
        good = true;
    } else if (strcmp(key, "lease_s") == 0 && json_is_number(value)) {
        double s = json_number_value(value);
        good = s > 0 && s <= 86400;
        out->lease_ns = good ? (uint64_t)(s * 1e9) : 0;
    } else if (strcmp(key, "class") == 0 && json_is_string(value)) {
        (void)snprintf(class_name, PLIMSOLL_GATE_NAME, "%s", json_string_value(value));
        good = true;
    } else if (strcmp(key, "prompts") == 0) {
        good = prompts(value, out);
    }
#define X(name, field)                                                                             \
    else if (strcmp(key, name) == 0)                                                               \
    {                                                                                              \
        good = number(value, &out->field);                                                         \
    }
    REQUEST_NUMBERS(X)
#undef X
    else
    {
        return plim__fail(err, PLIM_E_USAGE, "unknown key \"%.40s\"", key);
    }
    return good ? PLIM_OK
                : plim__fail(err, PLIM_E_USAGE, "\"%.40s\" has no value of its kind", key);
}

static enum plim_status read_bytes(const json_t *value, uint64_t *out, struct plim_err *err)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0) {
        return plim__fail(err, PLIM_E_USAGE, "bytes are a whole number");
    }
    *out = (uint64_t)n;
    return PLIM_OK;
}

/* What an object says of a request in all: of one prompt or of several. */
static enum plim_status finish_request(const json_t *root, struct plimsoll_gate_request *r,
                                       struct plim_err *err)
{
    size_t n = json_array_size(json_object_get(root, "prompts"));
    if (n == 0) {
        return PLIM_OK;
    }
    if (json_object_get(root, "prompt_tokens") != NULL) {
        return plim__fail(err, PLIM_E_USAGE, "either \"prompt_tokens\" or \"prompts\"");
    }
    uint64_t samples = (uint64_t)n * (r->samples > 0 ? r->samples : 1);
    r->samples = samples < UINT32_MAX ? (uint32_t)samples : UINT32_MAX;
    r->flags |= n > 1 ? PLIMSOLL_GATE_APART : 0;
    return PLIM_OK;
}

enum plim_status plim__gate_read_request(struct plim_str body, bool with_bytes,
                                         struct plim__gate_asked *out, struct plim_err *err)
{
    json_error_t e = {0};
    json_t *root = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &e);
    enum plim_status st = json_is_object(root)
                              ? PLIM_OK
                              : plim__fail(err, PLIM_E_USAGE, "no JSON object: %s", e.text);
    struct plim__gate_asked asked = {.bytes = UINT64_MAX};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (st == PLIM_OK && with_bytes && strcmp(key, "bytes") == 0) {
            st = read_bytes(value, &asked.bytes, err);
        } else if (st == PLIM_OK) {
            st = read_key(key, value, &asked.request, asked.class_name, err);
        }
    }
    if (st == PLIM_OK) {
        st = finish_request(root, &asked.request, err);
    }
    json_decref(root);
    if (st == PLIM_OK) {
        *out = asked;
    }
    return st;
}

enum plim_status plim__gate_read_figures(struct plim_str body, struct plimsoll_gate_figures *out,
                                         struct plim_err *err)
{
    json_error_t e = {0};
    json_t *root = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &e);
    json_t *headroom = NULL;
    json_t *stranded = NULL;
    struct plimsoll_gate_figures f = {0};
    enum plim_status st = PLIM_OK;
    if (root == NULL || json_unpack_ex(root, &e, JSON_STRICT, "{s?o, s?o}", "headroom_bytes",
                                       &headroom, "stranded", &stranded) != 0) {
        st = plim__fail(err, PLIM_E_USAGE, "%s", e.text);
    }
    if (st == PLIM_OK && headroom != NULL) {
        f.has |= PLIMSOLL_GATE_HAS_HEADROOM;
        st = read_bytes(headroom, &f.headroom_bytes, err);
    }
    if (st == PLIM_OK && stranded != NULL) {
        f.has |= PLIMSOLL_GATE_HAS_STRANDED;
        f.stranded = json_number_value(stranded);
        if (!json_is_number(stranded) || f.stranded < 0 || f.stranded > 1) {
            st = plim__fail(err, PLIM_E_USAGE, "\"stranded\" is no share from 0 to 1");
        }
    }
    json_decref(root);
    if (st == PLIM_OK) {
        *out = f;
    }
    return st;
}

/* ---- what it is told ---- */

void plim__gate_write_decision(struct plim_jsonw *w, const struct plimsoll_gate_decision *d)
{
    plim_jsonw_kv_text(w, "verdict", plimsoll_gate_verdict_text(d->verdict));
    plim_jsonw_kv_text(w, "reason", plimsoll_gate_reason_text(d->reason));
    plim_jsonw_kv_u64(w, "id", d->id);
    if (d->verdict == PLIMSOLL_GATE_WAIT) {
        plim_jsonw_kv_u64(w, "position", d->position);
    }
    if (d->retry_after_ms > 0) {
        plim_jsonw_kv_u64(w, "retry_after_ms", d->retry_after_ms);
    }
    plim_jsonw_kv_u64(w, "now_units", d->now_units);
    plim_jsonw_kv_u64(w, "expected_units", d->expected_units);
    plim_jsonw_kv_u64(w, "peak_units", d->peak_units);
    plim_jsonw_kv_u64(w, "work_bytes", d->work_bytes);
    if (d->first_token_ns > 0) {
        plim_jsonw_kv_real(w, "first_token_s", (double)d->first_token_ns / 1e9);
    }
    plim_jsonw_kv_real(w, "pressure", d->pressure);
    plim_jsonw_kv_bool(w, "long", d->is_long != 0);
}

void plim__gate_refuse(struct plim_http_answer *answer, const struct plimsoll_gate_decision *d)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_key(&w, "error");
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "message", plimsoll_gate_reason_message(d->reason));
    plim_jsonw_kv_text(&w, "type",
                       d->http == 400   ? "invalid_request_error"
                       : d->http == 503 ? "service_unavailable"
                                        : "rate_limit_exceeded");
    plim_jsonw_key(&w, "param");
    plim_jsonw_null(&w);
    plim_jsonw_kv_text(
        &w, "code", d->http == 503 ? "service_unavailable" : plimsoll_gate_reason_code(d->reason));
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "decision");
    plim_jsonw_object(&w);
    plim__gate_write_decision(&w, d);
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
    answer->code = d->http;
    plim_http_answer_header(answer, "X-Plimsoll-Reason", plimsoll_gate_reason_text(d->reason));
    if (d->http == 400) {
        plim_http_answer_header(answer, "X-Should-Retry", "false");
    } else {
        char text[16];
        uint32_t ms = d->retry_after_ms < 1000 ? 1000 : d->retry_after_ms;
        (void)snprintf(text, sizeof(text), "%u", (ms + 999) / 1000);
        plim_http_answer_header(answer, "Retry-After", text);
        (void)snprintf(text, sizeof(text), "%u", ms);
        plim_http_answer_header(answer, "Retry-After-Ms", text);
    }
}

/* X(key, field, kind): figures of the state. U64_MAX and 0 s that mean "not known" are left out. */
#define STATE_FIGURES(X)                                                                           \
    X("capacity_units", capacity_units, u64)                                                       \
    X("held_units", held_units, u64)                                                               \
    X("expected_units", expected_units, u64)                                                       \
    X("peak_units", peak_units, u64)                                                               \
    X("used_units", used_units, u64)                                                               \
    X("foreign_units", foreign_units, u64)                                                         \
    X("queued_tokens", queued_tokens, u64)                                                         \
    X("work_bytes", work_bytes, u64)                                                               \
    X("headroom_bytes", headroom_bytes, u64)                                                       \
    X("admitted", admitted, u64)                                                                   \
    X("finished", finished, u64)                                                                   \
    X("cancelled", cancelled, u64)                                                                 \
    X("failed", failed, u64)                                                                       \
    X("expired", expired, u64)                                                                     \
    X("reclaimed", reclaimed, u64)                                                                 \
    X("unknown_ids", unknown_ids, u64)                                                             \
    X("preempted", preempted, u64)                                                                 \
    X("ooms", ooms, u64)                                                                           \
    X("repairs", repairs, u64)                                                                     \
    X("live", live, u64)                                                                           \
    X("begun", begun, u64)                                                                         \
    X("waiting", waiting, u64)                                                                     \
    X("processes", processes, u64)                                                                 \
    X("pressure", pressure, real)                                                                  \
    X("drift", drift, real)                                                                        \
    X("sharing", sharing, real)                                                                    \
    X("margin", margin, real)                                                                      \
    X("share", share, real)                                                                        \
    X("prefill_tokens_s", prefill_tokens_s, real)                                                  \
    X("first_token_s", first_token_s, real)                                                        \
    X("token_s", token_s, real)                                                                    \
    X("drain_units_s", drain_units_s, real)

static void put_u64(struct plim_jsonw *w, const char *key, uint64_t value)
{
    if (value != UINT64_MAX) {
        plim_jsonw_kv_u64(w, key, value);
    }
}

static void put_real(struct plim_jsonw *w, const char *key, double value)
{
    if (isfinite(value)) {
        plim_jsonw_kv_real(w, key, value);
    }
}

void plim__gate_write_state(struct plim_jsonw *w, const struct plim__gate *g,
                            const struct plimsoll_gate_state *s, bool ready, const char *why)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.gate/1");
    plim_jsonw_kv_bool(w, "ready", ready);
    if (!ready) {
        plim_jsonw_kv_text(w, "why", why);
    }
    plim_jsonw_kv_text(w, "ledger", g->options->ledger);
    plim_jsonw_kv_bool(w, "full", s->full != 0);
    plim_jsonw_kv_bool(w, "draining", s->draining != 0);
    plim_jsonw_kv_bool(w, "breaker", s->draining == 2);
    plim_jsonw_kv_bool(w, "stale", s->stale != 0);
    if (s->figures_age_ns != UINT64_MAX) {
        plim_jsonw_kv_real(w, "figures_age_s", (double)s->figures_age_ns / 1e9);
    }
#define X(key, field, kind) put_##kind(w, key, s->field);
    STATE_FIGURES(X)
#undef X
    plim_jsonw_key(w, "refused");
    plim_jsonw_object(w);
    for (uint32_t i = 0; i < PLIMSOLL_GATE_REASONS; i++) {
        if (s->refused[i] > 0) {
            plim_jsonw_kv_u64(w, plimsoll_gate_reason_text(i), s->refused[i]);
        }
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
