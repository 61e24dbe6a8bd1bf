/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_TEXT_H
#define PLIM_REPORT_TEXT_H

/*
 * Findings as text for a terminal: verdict first, the ledger as bars, what would have saved the
 * request, three pieces of evidence, what to do. Made to be read in a quarter of a minute in 80
 * columns. `explain`, `diagnose` and `watch` share it.
 *
 * The caller decides about colour, Unicode and width; nothing here looks at the terminal or at the
 * environment. Strings of the findings may come from hostile input: control characters are dropped.
 * Writers append to a plim_buf, whose failure is sticky. Threads: pure but for the buffer.
 */

#include "base/buf.h"
#include "diagnose/verdict.h"

struct plim_text_style {
    bool color;        /* ANSI colours */
    bool unicode;      /* block characters for bars; '#' and '.' otherwise */
    unsigned width;    /* columns; 0 = 80; at least 40 is used */
    unsigned evidence; /* pieces of evidence shown; 0 = 3 */
};

/** plim_text_finding() - the whole set, section by section; empty sections are left out. */
void plim_text_finding(struct plim_buf *out, const struct plim_finding_set *set,
                       const struct plim_text_style *style);

/* The sections, for callers that put something between them. Each ends with a newline. */
void plim_text_verdict(struct plim_buf *out, const struct plim_verdict *verdict,
                       const struct plim_text_style *style);
void plim_text_ledger(struct plim_buf *out, const struct plim_ledger *ledger,
                      const struct plim_text_style *style);
void plim_text_counterfactuals(struct plim_buf *out, const struct plim_finding_set *set,
                               const struct plim_text_style *style);
void plim_text_evidence(struct plim_buf *out, const struct plim_finding_set *set,
                        const struct plim_text_style *style);
void plim_text_advice(struct plim_buf *out, const struct plim_finding_set *set,
                      const struct plim_text_style *style);
void plim_text_unknowns(struct plim_buf *out, const struct plim_finding_set *set,
                        const struct plim_text_style *style);

/** plim_text_heading() - a blank line and a bold title line. */
void plim_text_heading(struct plim_buf *out, const char *title,
                       const struct plim_text_style *style);

/**
 * plim_text_wrap() - text broken at blanks to the width.
 * @first: what stands before the first line, e.g. "  1. "; later lines are indented by its width.
 */
void plim_text_wrap(struct plim_buf *out, const char *first, const char *text,
                    const struct plim_text_style *style);

/** plim_text_columns() - columns a UTF-8 text takes, counting each code point as one. */
size_t plim_text_columns(struct plim_str s);

#endif
