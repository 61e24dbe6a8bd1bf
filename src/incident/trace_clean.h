/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_TRACE_CLEAN_H
#define PLIM_INCIDENT_TRACE_CLEAN_H

/* A trace without its private strings, and without what is too old. */

#include "incident/redact.h"

/**
 * plim__trace_clean() - copy a trace; it may still be written by somebody else. Names of processes
 * and paths of libraries are cleaned, events stay as they are. Facts that this version does not
 * know are left out. `file` is what it will be called.
 * @since_ns: leave out frames of events that all happened before; 0: none.
 * @cut: set when some were.
 * Errors: of reading (PLIM_E_NOINPUT, PLIM_E_DATA ...) and of writing (PLIM_E_CREATE, PLIM_E_IO);
 * PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__trace_clean(struct plim_redactor *r, const char *from,
                                                 const char *to, const char *file,
                                                 uint64_t since_ns, bool *cut,
                                                 struct plim_err *err);

#endif
