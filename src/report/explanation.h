/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_EXPLANATION_H
#define PLIM_REPORT_EXPLANATION_H

/*
 * An explained text as text, Markdown and JSON ("plimsoll.explain/1", described by
 * docs/schema/explain.json). Text and Markdown show the failure that gives the verdict in full and
 * the others in one line each; JSON has all of them.
 */

#include "diagnose/message.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/text.h"

/** plim_text_explanation() - verdict first; at most SHOWN other failures in one line each. */
void plim_text_explanation(struct plim_buf *out, const struct plim_oom_scan *scan,
                           const struct plim_message *message, const struct plim_text_style *style);

/** plim_markdown_explanation() - for an issue tracker. */
void plim_markdown_explanation(struct plim_buf *out, const struct plim_oom_scan *scan,
                               const struct plim_message *message);

/** plim_json_explanation() - the whole document. */
void plim_json_explanation(struct plim_jsonw *w, const struct plim_oom_scan *scan,
                           const struct plim_message *message);

#endif
