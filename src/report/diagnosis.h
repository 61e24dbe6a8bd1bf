/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_DIAGNOSIS_H
#define PLIM_REPORT_DIAGNOSIS_H

/*
 * A diagnosis of a snapshot as text, Markdown and JSON ("plimsoll.diagnose/1", described by
 * docs/schema/diagnose.schema.json). The parts that every verb shares come from text.h, markdown.h and
 * json.h; here are the tables that only a snapshot has: blame by site, pinned segments, pools, streams.
 */

#include "diagnose/diagnose.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/text.h"

/** plim_text_diagnosis() - readable in a quarter of a minute; the tables are cut to a few rows. */
void plim_text_diagnosis(struct plim_buf *out, const struct plim_snapshot *snapshot,
                         const struct plim_diagnosis *d, const struct plim_text_style *style);

/** plim_markdown_diagnosis() - for an issue tracker. */
void plim_markdown_diagnosis(struct plim_buf *out, const struct plim_snapshot *snapshot,
                             const struct plim_diagnosis *d);

/** plim_json_diagnosis() - the whole document. */
void plim_json_diagnosis(struct plim_jsonw *w, const struct plim_snapshot *snapshot,
                         const struct plim_diagnosis *d);

#endif
