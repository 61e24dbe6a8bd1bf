/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_FACTS_H
#define PLIM_DIAGNOSE_FACTS_H

/* From a judged out-of-memory message to the facts that a snapshot lacks. */

#include "diagnose/diagnose.h"
#include "diagnose/message.h"

/**
 * plim_facts_add_message() - fill the facts that are still unknown from the message's ledger.
 * @scan, @message: of one text; its primary event is taken. Facts already known (given by the user) stay.
 * Errors: PLIM_E_DATA when the text tells of no failure. Cost: O(1).
 */
PLIM_MUST_USE enum plim_status plim_facts_add_message(struct plim_facts *facts,
                                                      const struct plim_oom_scan *scan,
                                                      const struct plim_message *message,
                                                      struct plim_err *err);

#endif
