/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_PLAN_H
#define PLIM_REPORT_PLAN_H

/*
 * A plan as text and JSON ("plimsoll.plan/1", described by docs/schema/plan.json), the list of cards, and
 * what a calibration compared. Threads: pure but for the buffer.
 */

#include "base/jsonw.h"
#include "report/text.h"
#include "serving/plan.h"

/* Planned against what an engine's log says. */
struct plim_plan_compared {
    const char *path; /* of the log; NULL: nothing was compared */
    struct plim_engine_log log;
    struct plim_plan planned; /* without what was learned before */
    int64_t learned_bytes;    /* taken outside the allocator, more than planned */
    bool stored;              /* kept for this host */
};

void plim_text_plan(struct plim_buf *out, const struct plim_plan *plan,
                    const struct plim_plan_compared *compared, const struct plim_text_style *style);
void plim_json_plan(struct plim_jsonw *w, const struct plim_plan *plan,
                    const struct plim_plan_compared *compared);

/** plim_text_cards() - the cards known by name, smallest first. */
void plim_text_cards(struct plim_buf *out);

/** plim_plan_predicted() - of a field of PLIM_ENGINE_LOG_MAP, by number: what was planned, or
 * PLIM_ENGINE_UNKNOWN. */
double plim_plan_predicted(const struct plim_plan *plan, size_t field);

#endif
