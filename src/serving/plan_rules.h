/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_PLAN_RULES_H
#define PLIM_SERVING_PLAN_RULES_H

/* Internal: the table of unsafe combinations. */

#include "serving/plan.h"

/** plim__plan_rules() - the rules that this plan meets, in the order of the table. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__plan_rules(struct plim_arena *arena, struct plim_plan *plan,
                                                struct plim_err *err);

#endif
