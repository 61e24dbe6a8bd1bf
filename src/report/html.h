/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_HTML_H
#define PLIM_REPORT_HTML_H

/*
 * A diagnosis as one self-contained HTML file: the findings as plain tables that need no script,
 * and behind them the columns (report/columns.h) that the views of web/ draw.
 *
 *   part      what another verb puts ahead of the verdict, written with the pieces of html_parts.h
 *   device    a page shows one at a time. The others are in <template> elements, which take no part in
 *             the document until web/main.js puts one in place of the first (#device=N)
 *   before    an earlier snapshot, of which only the live bytes by stack are there, to compare with
 *
 * The page loads nothing: its Content-Security-Policy forbids the network and names its one script
 * and one style sheet by hash. Each text from the snapshot is escaped. The file is at most
 * plim_html_options.limit bytes whatever the snapshot: when the columns are too large, they are
 * made again with half the rows, and the page says what was left out.
 * Threads: pure.
 */

#include "report/detail.h"
#include "report/html_parts.h"

#define PLIM_HTML_LIMIT   (UINT64_C(5) * 1000 * 1000) /* bytes of a file */
#define PLIM_HTML_DEVICES 16u                         /* most devices of one page */

/* What a verb adds to its page: `write` is called once, with `view`. */
struct plim_html_part {
    void (*write)(struct plim_buf *out, const void *view);
    const void *view; /* borrowed */
};

struct plim_html_options {
    const char *source;                /* name of the snapshot, for people; borrowed */
    uint64_t limit;                    /* 0: PLIM_HTML_LIMIT */
    bool served;                       /* by the local server: the page may ask it for detail */
    const struct plim_html_part *part; /* NULL: nothing */
    const struct plim_detail_before *before; /* NULL: nothing to compare with */
    const struct plim_diagnose_options
        *other; /* how to judge the other devices; NULL: leave them out */
};

/**
 * plim_html_report() - append the whole page.
 * @diagnosis: of the device that is shown first.
 * Errors: PLIM_E_NOMEM; PLIM_E_RANGE for a trace of 2^32 events; those of plim_diagnose() with
 * `other`.
 * Cost: O(events), some 300 ns each.
 */
PLIM_MUST_USE enum plim_status plim_html_report(struct plim_buf *out,
                                                const struct plim_snapshot *snapshot,
                                                const struct plim_diagnosis *diagnosis,
                                                const struct plim_html_options *options,
                                                struct plim_err *err);

/** plim_html_page() - the same with details that exist already, [n], that of the first device
 * first. */
PLIM_MUST_USE enum plim_status plim_html_page(struct plim_buf *out, struct plim_detail *details,
                                              size_t n, const struct plim_html_options *options,
                                              struct plim_err *err);

/**
 * plim_html_plain() - a page of options->part alone, without a snapshot: its tables can be sorted
 * and copied, and there are no views. @title: a literal. Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_html_plain(struct plim_buf *out, const char *title,
                                               const struct plim_html_options *options,
                                               struct plim_err *err);

/** plim_html_devices() - the devices worth a page, `first` ahead: index into the snapshot's;
 * returns how many. */
size_t plim_html_devices(const struct plim_snapshot *snapshot, uint32_t first,
                         uint32_t out[PLIM_HTML_DEVICES]);

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
