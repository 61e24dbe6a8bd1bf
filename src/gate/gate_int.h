/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_GATE_GATE_INT_H
#define PLIM_GATE_GATE_INT_H

/* What the daemon's files share. */

#include "base/jsonw.h"
#include "gate/gate.h"
#include "http/http.h"

#include <stdatomic.h>

/* X(NAME, key): what the daemon counts besides the ledger. */
#define PLIM_GATE_COUNT_MAP(X)                                                                     \
    X(ADMITS, "admit_requests")                                                                    \
    X(AUTHZ, "authz_requests")                                                                     \
    X(UNDECIDED, "undecided") /* no ledger yet, or busy */                                         \
    X(BAD, "bad_requests")                                                                         \
    X(AGENT, "agent_checks")

enum plim_gate_count {
#define PLIM__X(name, key) PLIM_GATE_COUNT_##name,
    PLIM_GATE_COUNT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_GATE_COUNTS
};

struct plim__agent;

struct plim__gate {
    const struct plim_gate_options *options;
    struct plimsoll_gate handle[2]; /* of the ledger that is asked, and of the one before it */
    _Atomic unsigned current;       /* of them */
    void *memory;                   /* of a ledger without a file */
    atomic_bool open;               /* the ledger can be asked; set once */
    atomic_bool stopping;           /* a signal came */
    atomic_bool engine_up;          /* it answered lately; true where none is asked */
    _Atomic uint64_t count[PLIM_GATE_COUNTS];
    struct plim_http *http;
    struct plim__agent *agent;
    bool told_wait;
};

/** plim__gate_ledger() - the one that is asked now: a server that is started with another configuration makes a new
 * one. Use it at once: it stays what it is until the next but one. */
static inline struct plimsoll_gate *plim__gate_ledger(struct plim__gate *g)
{
    return &g->handle[atomic_load(&g->current)];
}

void plim__gate_tell(const struct plim__gate *g, const char *fmt, ...) PLIM_PRINTF(2, 3);

/** plim__gate_ready() - whether new requests should come here; *why: a word when not. */
bool plim__gate_ready(struct plim__gate *g, const char **why);

/* ---- answers (json.c) ---- */

/* A request that somebody asks or tells about. */
struct plim__gate_asked {
    struct plimsoll_gate_request request;
    char class_name[PLIMSOLL_GATE_NAME]; /* "" when it has none */
    uint64_t bytes;                      /* of workspace; UINT64_MAX: not said */
};

/** plim__gate_read_request() - a body as of /v1/admit, of one prompt or of several. @with_bytes: it may have
 * the key "bytes" too. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim__gate_read_request(struct plim_str body, bool with_bytes,
                                                       struct plim__gate_asked *out,
                                                       struct plim_err *err);
/** plim__gate_read_figures() - what a monitor says: the body of /v1/figures. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim__gate_read_figures(struct plim_str body,
                                                       struct plimsoll_gate_figures *out,
                                                       struct plim_err *err);
void plim__gate_write_decision(struct plim_jsonw *w, const struct plimsoll_gate_decision *decision);
void plim__gate_write_state(struct plim_jsonw *w, const struct plim__gate *g,
                            const struct plimsoll_gate_state *state, bool ready, const char *why);

/** plim__gate_refuse() - a decision that is no admission, as OpenAI's error object and headers. */
void plim__gate_refuse(struct plim_http_answer *answer,
                       const struct plimsoll_gate_decision *decision);

/* ---- metrics (metrics.c) ---- */

void plim__gate_metrics(struct plim_buf *out, struct plim__gate *g, bool openmetrics);

/* ---- handlers (api.c, authz.c, classes.c) ---- */

#define PLIM__GATE_HANDLER(name)                                                                   \
    enum plim_status plim__gate_##name(void *self, const struct plim_http_request *request,        \
                                       struct plim_http_answer *answer, struct plim_err *err)
PLIM__GATE_HANDLER(admit);
PLIM__GATE_HANDLER(poll);
PLIM__GATE_HANDLER(extend);
PLIM__GATE_HANDLER(release);
PLIM__GATE_HANDLER(oom);
PLIM__GATE_HANDLER(worked);
PLIM__GATE_HANDLER(figures);
PLIM__GATE_HANDLER(pressure);
PLIM__GATE_HANDLER(drain);
PLIM__GATE_HANDLER(classes);
PLIM__GATE_HANDLER(class_set);
PLIM__GATE_HANDLER(scrape);
PLIM__GATE_HANDLER(healthz);
PLIM__GATE_HANDLER(readyz);
PLIM__GATE_HANDLER(authz);

/** plim__gate_check_open() - Errors: PLIM_E_OS there is no ledger yet. */
PLIM_MUST_USE enum plim_status plim__gate_check_open(struct plim__gate *g, struct plim_err *err);
/** plim__gate_read_class() - the body of /v1/classes: name and limits. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status
plim__gate_read_class(struct plim_str body, struct plimsoll_gate_class *out, struct plim_err *err);

/** plim__gate_judge() - ask the ledger, failing open or closed where it cannot be asked. */
void plim__gate_judge(struct plim__gate *g, const struct plimsoll_gate_request *request,
                      struct plimsoll_gate_decision *out);

/* ---- the agent (agent.c) ---- */

/** plim__agent_start() - listen for agent checks. Errors: PLIM_E_USAGE, PLIM_E_OS. */
PLIM_MUST_USE enum plim_status plim__agent_start(struct plim__gate *g, const char *address,
                                                 struct plim__agent **out, struct plim_err *err);
void plim__agent_stop(struct plim__agent *agent); /* NULL is allowed */
/** plim__agent_line() - what HAProxy is told, with its newline. */
void plim__agent_line(struct plim__gate *g, char *out, size_t room);

#endif
