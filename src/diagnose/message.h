/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_MESSAGE_H
#define PLIM_DIAGNOSE_MESSAGE_H

/*
 * What out-of-memory text means: from the facts of format/oomtext.h to ledger, counterfactuals,
 * evidence, advice and verdict for each failure, and one verdict for the whole text.
 *
 * Rules follow from what the figures mean, in the order of docs/design/explain.md: impossible sizes,
 * explicit caps, contradictions between figures, sheer capacity, free memory that was refused,
 * fragmentation, memory of others, an engine's budget, growth. Where a text cannot decide, the class
 * is `unknown` and `unknowns` names the command that would decide.
 * Threads: pure.
 */

#include "diagnose/verdict.h"
#include "format/oomtext.h"

struct plim_message {
    struct plim_arena arena;                /* owns all strings */
    PLIM_VEC(struct plim_finding_set) sets; /* one for each event of the scan, same order */
    size_t primary;              /* the event that gives the verdict, SIZE_MAX when none */
    struct plim_verdict verdict; /* of the whole text */
};

/**
 * plim_message_judge() - judge every event of a scan.
 * Errors: PLIM_E_NOMEM. Free with plim_message_fini(), also after an error. Cost: O(events).
 */
PLIM_MUST_USE enum plim_status plim_message_judge(const struct plim_oom_scan *scan,
                                                  struct plim_message *out, struct plim_err *err);

void plim_message_fini(struct plim_message *message);

#endif
