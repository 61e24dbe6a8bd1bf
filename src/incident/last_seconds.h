/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_LAST_SECONDS_H
#define PLIM_INCIDENT_LAST_SECONDS_H

/*
 * The samples of an incident: the first and the last one before the failure, and what they tell.
 * Threads: one.
 */

#include "base/buf.h"
#include "device/sample.h"

struct plim_assembly;

struct plim_last_seconds {
    size_t n;                       /* samples up to the failure; 0: none */
    struct plim_sample first, last; /* balanced; `last` is empty when n < 2 */
};

/** plim__last_seconds_read() - of a samples.jsonl. None is no error, nor is a line that is none.
 * @until_ns: of the failure; later samples do not count, unless there are no others. */
PLIM_MUST_USE enum plim_status plim__last_seconds_read(const char *path, uint64_t until_ns,
                                                       struct plim_last_seconds *out,
                                                       struct plim_err *err);
void plim__last_seconds_fini(struct plim_last_seconds *seconds);

/** plim__last_sample() - the last one, or NULL. */
const struct plim_sample *plim__last_sample(const struct plim_last_seconds *seconds);

/* Who holds a device: the program and its children, other listed processes, nobody that is listed.
 * */
struct plim_holders {
    uint64_t ours, others, unknown;
    bool known;
};
struct plim_holders plim__holders(const struct plim_assembly *a, const struct plim_sample *sample,
                                  uint32_t device);

/** plim__last_seconds_markdown() - a table for diagnosis.md; nothing without samples. */
void plim__last_seconds_markdown(const struct plim_assembly *a, struct plim_buf *out,
                                 const struct plim_last_seconds *seconds);

#endif
