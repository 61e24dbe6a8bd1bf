/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RECORD_DRAIN_WRITE_H
#define PLIM_RECORD_DRAIN_WRITE_H

/* Between drain.c, which reads rings, and drain_write.c, which makes frames of what they hold. */

#include "record/record.h"

/** plim__drain_batch() - facts and events that wait, into the trace. A full disk is no error: it is told and
 * counted. plim__drain_facts(): only the facts. plim__drain_seal(): both, and the end of the trace. */
PLIM_MUST_USE enum plim_status plim__drain_batch(struct plim_drain *d, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__drain_facts(struct plim_drain *d, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__drain_seal(struct plim_drain *d, struct plim_err *err);

/** plim__drain_added() - a fact was appended to d->facts. */
PLIM_MUST_USE enum plim_status plim__drain_added(struct plim_drain *d, struct plim_err *err);

/** plim__drain_tables() - the names and stacks that an event leads to, unless they are in the trace. */
PLIM_MUST_USE enum plim_status plim__drain_tables(struct plim_drain *d, struct plim_source_file *s,
                                                  const struct plim_gpu_event *e,
                                                  struct plim_err *err);

/* What is said once of a process: at its start its name, at its end its sums and how it ended. */
PLIM_MUST_USE enum plim_status
plim__drain_process(struct plim_drain *d, const struct plim_source_file *s, struct plim_err *err);
PLIM_MUST_USE enum plim_status
plim__drain_totals(struct plim_drain *d, const struct plim_source_file *s, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__drain_end(struct plim_drain *d,
                                               const struct plim_source_file *s, bool alive,
                                               struct plim_err *err);

/** plim__drain_stats() - what PyTorch's allocator says of itself, when it has changed. */
PLIM_MUST_USE enum plim_status
plim__drain_stats(struct plim_drain *d, const struct plim_source_file *s, struct plim_err *err);

/** plim__drain_tell() - say a text, the first time. */
void plim__drain_tell(struct plim_drain *d, bool *told, const char *text);

#endif
