/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_HTML_FILE_H
#define PLIM_CLI_HTML_FILE_H

/* --html FILE, for the verbs that have PLIM_OPTIONS_HTML. */

#include "cli/verbs.h"
#include "report/html.h"

/**
 * plim_cli_html() - write the page of a judged snapshot; nothing when `path` is NULL.
 * @path: "-" puts the page into cli->out in place of what is there; any other file is replaced
 * whole or not at all.
 * Errors: those of plim_html_report() and of writing the file.
 */
PLIM_MUST_USE enum plim_status plim_cli_html(struct plim_cli *cli, const char *path,
                                             const struct plim_snapshot *snapshot,
                                             const struct plim_diagnosis *diagnosis,
                                             const struct plim_html_options *options,
                                             struct plim_err *err);

#endif
