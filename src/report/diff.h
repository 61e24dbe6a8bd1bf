/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_DIFF_H
#define PLIM_REPORT_DIFF_H

/* What changed between two snapshots, as text, Markdown, HTML and JSON ("plimsoll.diff/1"). */

#include "diagnose/diff.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/text.h"

/** plim_text_diff()/plim_markdown_diff() - @rows: most sites shown; 0 = 15. */
void plim_text_diff(struct plim_buf *out, const struct plim_diff *diff, uint32_t rows,
                    const struct plim_text_style *style);
void plim_markdown_diff(struct plim_buf *out, const struct plim_diff *diff, uint32_t rows);

/** plim_json_diff() - all sites that changed. */
void plim_json_diff(struct plim_jsonw *w, const struct plim_diff *diff);

/** plim_html_diff() - the changes as a part of a page (report/html.h); @diff: struct plim_diff. */
void plim_html_diff(struct plim_buf *out, const void *diff);

#endif
