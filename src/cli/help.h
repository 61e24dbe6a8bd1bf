/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_HELP_H
#define PLIM_CLI_HELP_H

/* The table of verbs and options as text for people, as JSON, as man page parts and as completions. */

#include "cli/verbs.h"

/** plim_help_program() - what the program is, and its verbs, in lines of at most so many columns. */
void plim_help_program(struct plim_buf *out, unsigned columns);

/** plim_help_verb() - synopsis and options of one verb, in lines of at most so many columns. */
void plim_help_verb(struct plim_buf *out, const struct plim_verb *verb, unsigned columns);

/** plim_help_json() - everything, `{"schema": "plimsoll.help/1", "verbs": [...]}`. */
void plim_help_json(struct plim_buf *out);

/** plim_help_scdoc() - the OPTIONS block of a verb's man page, or of all verbs' list when verb is NULL. */
void plim_help_scdoc(struct plim_buf *out, const struct plim_verb *verb);

/** plim_completion() - the completion script for "bash", "zsh" or "fish"; false for another name. */
bool plim_completion(struct plim_buf *out, const char *shell);

#endif
