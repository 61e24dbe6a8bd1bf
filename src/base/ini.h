/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_INI_H
#define PLIM_BASE_INI_H

/*
 * Settings files: `key = value` lines under `[section]` lines, comments behind # or ; at the start of a line
 * and behind " ;". Read with libinih, and each error names its line.
 */

#include "base/err.h"

#define PLIM_INI_LIMIT (1u << 20) /* bytes; a longer file is no settings file */
#define PLIM_INI_LINE  197u       /* bytes of a line: libinih's limit; longer ones are errors */

/* Takes one entry; strings are borrowed for the call. What it returns ends the reading unless it is OK. */
typedef enum plim_status (*plim_ini_entry)(void *user, const char *section, const char *key,
                                           const char *value, int line, struct plim_err *err);

/**
 * plim_ini_read() - the entries of the file `path`, in its order.
 * Errors: PLIM_E_NOINPUT no such file; PLIM_E_BUDGET too long; PLIM_E_USAGE a line that is neither an entry
 * nor a section, or too long; what `entry` returns. err.where is "path:line".
 */
PLIM_MUST_USE enum plim_status plim_ini_read(const char *path, plim_ini_entry entry, void *user,
                                             struct plim_err *err);

#endif
