/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "May this request go on?" as Envoy's ext_authz (HTTP service) and nginx' auth_request ask it: with
 * the headers of the request, and sometimes its body, and only the status of the answer counts.
 *
 * Prompt tokens: X-Plimsoll-Prompt-Tokens when somebody counted them, else by the bytes of the body,
 * or of its Content-Length, at 0.4 tokens a byte (English has 0.22, code 0.30, Chinese 0.4). That is a guess, and a picture's bytes are no text:
 * nobody is refused for ever by it, what looks too long counts as the longest that fits. Output:
 * X-Plimsoll-Max-Tokens, else what is expected of the class, X-Plimsoll-Class.
 * The reservation is a lease, renewed by nobody: see gate.h. nginx knows 401 and 403 only, so with
 * ?nginx refusals are 403, and the headers, which nginx can pass on, say the rest.
 *
 * What has another method than POST asks for no tokens and may always go on: Envoy's question has the method and path of
 * the request (/authz/v1/models), nginx' is a GET and has it in X-Original-Method.
 */

#include "gate/gate_int.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_OF_BYTES(n) ((n)*2 / 5 + 1)
#define LEASE_NS           UINT64_C(10000000000)

/* A header that is a whole number; 0: it is missing or something else. */
static uint32_t number(const struct plim_http_request *request, const char *name)
{
    const char *text = plim_http_header(request, name);
    char *end = NULL;
    unsigned long long n =
        text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return end == NULL || *end != '\0' || n > INT32_MAX ? 0 : (uint32_t)n;
}

/* Tokens of the longest prompt that can fit; UINT32_MAX: not known. */
static uint64_t longest(struct plim__gate *g)
{
    struct plimsoll_gate_config c = {0};
    if (!atomic_load(&g->open)) {
        return UINT32_MAX;
    }
    plimsoll_gate_config(plim__gate_ledger(g), &c);
    uint64_t most = c.max_length > 0 ? c.max_length : UINT32_MAX;
    if (c.n_groups == 1) {
        most = plim_min_u64(most, c.capacity_units * c.groups[0].block_tokens);
    }
    return most > 1 ? most - 1 : 1;
}

static bool asks_for_tokens(const struct plim_http_request *request)
{
    const char *method = plim_http_header(request, "X-Original-Method");
    if (method == NULL && plim_str_starts(request->path, PLIM_STR("/authz/"))) {
        method = request->method;
    }
    return method == NULL || strcmp(method, "POST") == 0;
}

static uint32_t prompt_tokens(struct plim__gate *g, const struct plim_http_request *request)
{
    uint32_t tokens = number(request, "X-Plimsoll-Prompt-Tokens");
    if (tokens > 0) {
        return tokens;
    }
    uint64_t bytes = request->body.n;
    if (bytes == 0) {
        bytes = number(request, "X-Original-Content-Length");
    }
    if (bytes == 0) {
        bytes = number(request, "Content-Length");
    }
    uint64_t guess = plim_min_u64(TOKENS_OF_BYTES(bytes), longest(g));
    return (uint32_t)plim_min_u64(guess, INT32_MAX);
}

PLIM__GATE_HANDLER(authz)
{
    struct plim__gate *g = self;
    struct plimsoll_gate_decision d;
    struct plim_str flag;
    (void)err;
    (void)atomic_fetch_add_explicit(&g->count[PLIM_GATE_COUNT_AUTHZ], 1, memory_order_relaxed);
    if (!asks_for_tokens(request)) {
        plim_buf_text(&answer->text, "{}\n");
        return PLIM_OK;
    }
    const char *class_name = plim_http_header(request, "X-Plimsoll-Class");
    struct plimsoll_gate_request wanted = {
        .prompt_tokens = prompt_tokens(g, request),
        .max_tokens = number(request, "X-Plimsoll-Max-Tokens"),
        .flags = PLIMSOLL_GATE_BY_LEASE | PLIMSOLL_GATE_WHOLE, /* nobody will tell of it */
        .lease_ns = g->options->authz_lease_ns ? g->options->authz_lease_ns : LEASE_NS};
    if (class_name != NULL && *class_name != '\0' && atomic_load(&g->open)) {
        wanted.class_id = plimsoll_gate_class(plim__gate_ledger(g), class_name, plim_mono_ns());
    }
    plim__gate_judge(g, &wanted, &d);
    if (d.http == 200) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)d.id);
        plim_http_answer_header(answer, "X-Plimsoll-Id", text);
        plim_buf_text(&answer->text, "{}\n");
        return PLIM_OK;
    }
    plim__gate_refuse(answer, &d);
    if (plim_http_query(request, "nginx", &flag)) {
        char text[8];
        (void)snprintf(text, sizeof(text), "%u", d.http);
        plim_http_answer_header(answer, "X-Plimsoll-Status", text);
        answer->code = 403;
    }
    return PLIM_OK;
}
