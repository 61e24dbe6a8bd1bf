/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_MARKDOWN_H
#define PLIM_REPORT_MARKDOWN_H

/*
 * Findings as Markdown for an issue tracker (the GitHub dialect: tables). Same order as the text:
 * verdict, ledger, what would have fitted, evidence, advice, unknowns. Characters of the findings
 * that would become markup or HTML are escaped; backquotes are kept, they mark settings.
 */

#include "base/buf.h"
#include "diagnose/verdict.h"

/** plim_markdown_finding() - all sections. @title: heading text, NULL for none. */
void plim_markdown_finding(struct plim_buf *out, const char *title,
                           const struct plim_finding_set *set);

/** plim_markdown_escape() - text without live markup; newlines become blanks. */
void plim_markdown_escape(struct plim_buf *out, const char *text);

#endif
