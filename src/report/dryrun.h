/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_DRYRUN_H
#define PLIM_REPORT_DRYRUN_H

/* A dry run for people, and as JSON ("plimsoll.dryrun/1", docs/schema/dryrun.json). */

#include "dryrun/answer.h"
#include "report/json.h"
#include "report/text.h"

void plim_text_dryrun(struct plim_buf *out, const struct plim_dryrun_answer *answer,
                      const struct plim_text_style *style);
void plim_json_dryrun(struct plim_jsonw *w, const struct plim_dryrun_answer *answer);

/** plim_text_gpus() - the cards known by name, smallest first. */
void plim_text_gpus(struct plim_buf *out);

#endif
