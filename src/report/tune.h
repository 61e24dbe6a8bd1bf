/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_TUNE_H
#define PLIM_REPORT_TUNE_H

/*
 * A search over settings as text, Markdown, HTML and JSON ("plimsoll.tune/1", described by
 * docs/schema/tune.json). Threads: pure but for the buffer.
 */

#include "replay/tune.h"
#include "report/replay.h"

struct plim_tune_view {
    const struct plim_requests *requests;
    const struct plim_tune_options *options;
    const struct plim_tune *tune;
    const char *capacity_by; /* "given", "computed", "estimated" or "unknown" */
    uint32_t rows;           /* of the table in text and Markdown; 0: 20 */
};

void plim_text_tune(struct plim_buf *out, const struct plim_tune_view *view,
                    const struct plim_text_style *style);
void plim_markdown_tune(struct plim_buf *out, const struct plim_tune_view *view);
void plim_json_tune(struct plim_jsonw *w, const struct plim_tune_view *view);

/** plim_tune_conf() - the settings of a run for people; borrowed. */
const char *plim_tune_conf(const struct plim_tune_run *run);

/** plim_html_tune() - the settings as a part of a page (report/html.h); @view: a struct
 * plim_tune_view. */
void plim_html_tune(struct plim_buf *out, const void *view);

#endif
