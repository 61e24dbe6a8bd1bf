/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_HTML_H
#define PLIM_REPORT_HTML_H

/*
 * A diagnosis as one self-contained HTML file: the findings as plain tables that need no script, and
 * behind them the columns (report/columns.h) that the views of web/ draw.
 *
 * The page loads nothing: its Content-Security-Policy forbids the network and names its one script and
 * one style sheet by hash. Each text from the snapshot is escaped. The file is at most
 * plim_html_options.limit bytes whatever the snapshot: when the columns are too large, they are made again
 * with half the rows, and the page says what was left out.
 * Threads: pure.
 */

#include "base/buf.h"
#include "report/detail.h"

#define PLIM_HTML_LIMIT (UINT64_C(5) * 1000 * 1000) /* bytes of a file */

struct plim_html_options {
    const char *source; /* name of the snapshot, for people; borrowed */
    uint64_t limit;     /* 0: PLIM_HTML_LIMIT */
    bool served;        /* by the local server: the page may ask it for detail */
};

/**
 * plim_html_report() - append the whole page.
 * Errors: PLIM_E_NOMEM; PLIM_E_RANGE for a trace of 2^32 events. Cost: O(events), some 300 ns each.
 */
PLIM_MUST_USE enum plim_status plim_html_report(struct plim_buf *out,
                                                const struct plim_snapshot *snapshot,
                                                const struct plim_diagnosis *diagnosis,
                                                const struct plim_html_options *options,
                                                struct plim_err *err);

/** plim_html_page() - the same with a detail that exists already. */
PLIM_MUST_USE enum plim_status plim_html_page(struct plim_buf *out, struct plim_detail *detail,
                                              const struct plim_html_options *options,
                                              struct plim_err *err);

/** plim_html_text() - text as HTML text or attribute value: no markup, no control characters. */
void plim_html_text(struct plim_buf *out, struct plim_str text);

/* ---- the parts, in files of their own ---- */

/* html_sections.c: verdict, ledger, counterfactuals, evidence, advice, unknowns. */
void plim__html_findings(struct plim_buf *out, const struct plim_diagnosis *d);

/* html_tables.c: blame, pinned segments, leak suspects, contradictions. */
void plim__html_tables(struct plim_buf *out, const struct plim_snapshot *snapshot,
                       const struct plim_diagnosis *d);

/* html_meta.c: what the views need besides columns, as JSON. */
void plim__html_meta(struct plim_buf *out, const struct plim_detail *detail,
                     const struct plim_detail_chosen *chosen,
                     const struct plim_html_options *options);

#endif
