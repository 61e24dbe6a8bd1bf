/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_CAPTURED_H
#define PLIM_DIAGNOSE_CAPTURED_H

/* From what the snapshot's maker knew besides, and from the notes of the program, to facts and to the work
 * that was being done when a request failed. */

#include "diagnose/diagnose.h"

/**
 * plim__captured_facts() - fill the facts that are still unknown from the snapshot's capture: the device's
 * size, a cap. Errors: PLIM_E_NOMEM. A capture that cannot be read counts as none.
 */
PLIM_MUST_USE enum plim_status plim__captured_facts(const struct plim_snapshot *snapshot,
                                                    struct plim_diagnosis *d, struct plim_err *err);

/**
 * plim__captured_work() - d->failure.tags, once the failure is known: those of the capture when it was taken at
 * that failure, else the note that PyTorch kept with the failing request. Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__captured_work(const struct plim_snapshot *snapshot,
                                                   struct plim_diagnosis *d, struct plim_err *err);

/** plim__work_text() - the tags as "request_id r1, batch 8", arena-owned; NULL when there are none. */
const char *plim__work_text(const struct plim_tags *tags, struct plim_arena *arena);

/** plim__name_work() - let the summary of the verdict name the work. */
void plim__name_work(struct plim_diagnosis *d);

#endif
