/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_GATE_GATE_H
#define PLIM_GATE_GATE_H

/*
 * The gate as a daemon: the ledger of plimsoll/gate.h for front doors that speak HTTP, so that an
 * existing proxy does the proxying.
 *
 *   ledger     shared with middlewares inside API servers, or this daemon's own
 *   engine     asked for its figures once a second; they correct the ledger
 *   front door whoever asks: /v1/admit before a request, /v1/extend while it runs, /v1/release after
 *   authz      the same question in the form of Envoy's ext_authz and nginx' auth_request, which do
 *              not say when a request ends: its reservation is a short lease, and by the time that
 *              is over the engine's own figures show it
 *   agent      HAProxy's agent-check: one line for each connection
 *
 * Figures that are not known yet (an engine that loads) make the daemon not ready; what happens to
 * requests meanwhile is `fail_open`. A daemon that is killed loses nothing: the ledger is in its
 * file. Addresses, tokens and limits of connections are http/http.h's.
 * Threads: the loop, and the server's.
 */

#include "base/err.h"
#include "base/str.h"

#include <plimsoll/gate.h>

#define PLIM_GATE_PORT 9755

struct plim_gate_options {
    const char *const *listen; /* [n_listen]; none: loopback, PLIM_GATE_PORT */
    size_t n_listen;
    const char *agent;          /* HOST:PORT, or PORT on loopback, for agent checks; NULL: none */
    const char *token_file;     /* NULL: nobody from afar */
    const char *ledger;         /* file; NULL: memory of this process */
    const char *const *engines; /* [n_engines] addresses of metrics, as of plimsoll watch; together
                                   they are the pool */
    size_t n_engines;
    uint64_t capacity_tokens; /* of the KV pool; 0: the engine's, or the ledger's that is there */
    uint32_t block_tokens;    /* 0: 16 */
    uint32_t max_length;      /* tokens of a request; 0: the engine's, or no limit */
    uint32_t max_requests;    /* at once; 0: no limit */
    enum plimsoll_gate_policy policy;
    uint64_t first_token_ns, token_ns; /* targets; 0: not guarded */
    uint64_t lease_ns;                 /* 0: a minute */
    uint64_t authz_lease_ns;           /* 0: ten seconds */
    uint64_t work_token, work_image,
        work_row; /* workspace: bytes for each prompt token of a step, token
                                                  of a picture, prompt token with log-probability */
    uint64_t
        work_room; /* memory for it while nobody tells what the device has free; 0: not judged */
    uint32_t step_tokens; /* prompt tokens of a step at most; 0: whole prompts */
    uint32_t waiters;     /* requests that may wait; 0: none */
    bool fail_open;
    uint64_t steps;                            /* end after so many seconds; 0: never. For tests */
    void (*tell)(void *arg, const char *text); /* a line for the log; not NULL */
    void *tell_arg;
};

/**
 * plim_gate_run() - serve until SIGTERM or SIGINT; then readiness goes off at once and requests get
 * 503 until the end, which is two seconds later, or at the second signal.
 * Errors: PLIM_E_USAGE (addresses, options that contradict each other), PLIM_E_NOINPUT and
 * PLIM_E_DATA (ledger, token), PLIM_E_OS.
 */
PLIM_MUST_USE enum plim_status plim_gate_run(const struct plim_gate_options *options,
                                             struct plim_err *err);

#endif
