/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_DOOR_H
#define PLIM_SERVING_DOOR_H

/*
 * A front door before a simulated paged engine: which requests it lets in, and what became of them.
 *
 *   door      a rule, with a limit where it has one
 *   good      a request that was served within the targets: its first token in time, and the further ones
 *             on average fast enough
 *   goodput   good requests for each second of traffic
 *   oracle    the gate's other guards, and memory judged with the length of each answer known beforehand: at no
 *             moment until all have ended may their blocks exceed the pool. What knowing the future would be worth
 *
 * Whoever is turned away does not come back: retries would be more traffic, the same for every door.
 * Threads: none of its own.
 */

#include "base/err.h"

#include <plimsoll/gate.h>

#define PLIM_DOOR_MAP(X)                                                                           \
    X(NONE, "none", "everything goes to the engine")                                               \
    X(LINE, "fixed concurrency",                                                                   \
      "so many in the engine; others wait in line for as long as a first token may take")          \
    X(REQUESTS, "max-num-queued-reqs", "vLLM: refused when so many wait or run")                   \
    X(TOKENS, "max-num-queued-tokens",                                                             \
      "vLLM: refused when so many prompt tokens wait for their first token")                       \
    X(GATE, "gate", "plimsoll/gate.h")

enum plim_door_kind {
#define PLIM__X(name, text, meaning) PLIM_DOOR_##name,
    PLIM_DOOR_MAP(PLIM__X)
#undef PLIM__X
    PLIM_DOOR_COUNT
};

const char *plim_door_text(enum plim_door_kind kind);

/* The targets, and what clients say. */
struct plim_door_terms {
    uint64_t first_ns;   /* to the first token */
    uint64_t token_ns;   /* for each further one, on average over a request */
    uint32_t max_tokens; /* that clients ask for; an answer is never longer than that */
};

struct plim_door_options {
    enum plim_door_kind kind;
    uint64_t limit;  /* LINE, REQUESTS: requests; TOKENS: tokens */
    uint32_t policy; /* GATE: enum plimsoll_gate_policy */
    bool oracle;     /* GATE: memory is judged by the lengths that answers will have */
    struct plim_door_terms terms;
};

struct plim_door_result {
    uint64_t asked; /* requests; those too long for the model are not asked for */
    uint64_t let_in;
    uint64_t turned_away; /* gave up in line too */
    uint64_t good;
    uint64_t good_prompt_tokens;
    uint64_t good_tokens;                    /* output tokens of good requests */
    uint64_t late_first;                     /* served, but not in time */
    uint64_t slow;                           /* served in time, but too slowly */
    uint64_t refused[PLIMSOLL_GATE_REASONS]; /* GATE: by reason */
    uint64_t preempted;                      /* requests that were, at least once */
    double worst_drift, mean_drift; /* GATE: of the ledger from the pool, shares of the pool */
    double span_s;                  /* of the traffic */
};

#endif
