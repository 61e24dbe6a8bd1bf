/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_JSON_H
#define PLIM_REPORT_JSON_H

/*
 * Findings as JSON: the part of every schema ("plimsoll.explain/1", "plimsoll.diagnose/1" ...) that
 * is the same for all of them. Each function writes keys into the object that is open in the writer.
 * An amount is {"bytes": exact integer, "how": "measured" ...}; an unknown amount is an absent key.
 */

#include "base/jsonw.h"
#include "diagnose/verdict.h"

/** plim_json_amount() - "key": {"bytes", "how"}; nothing when the amount is unknown. */
void plim_json_amount(struct plim_jsonw *w, const char *key, struct plim_amount amount);

/** plim_json_verdict() - "verdict": {class, subclass, confidence, summary}. */
void plim_json_verdict(struct plim_jsonw *w, const struct plim_verdict *verdict);

/** plim_json_class() - the keys class, subclass (null when none) and confidence, without an object. */
void plim_json_class(struct plim_jsonw *w, const struct plim_verdict *verdict);

/** plim_json_ledger() - "ledger": {moment, total, capacity, allocated, reserved, request, owners}. */
void plim_json_ledger(struct plim_jsonw *w, const struct plim_ledger *ledger);

/** plim_json_finding() - ledger, counterfactuals[], evidence[], advice[], unknowns[]; no verdict. */
void plim_json_finding(struct plim_jsonw *w, const struct plim_finding_set *set);

#endif
