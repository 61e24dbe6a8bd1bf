/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_SAMPLE_LOG_H
#define PLIM_INCIDENT_SAMPLE_LOG_H

/*
 * The samples of the last seconds, kept in memory until something happens: what becomes
 * samples.jsonl.
 * Threads: one.
 */

#include "base/vec.h"
#include "device/sample.h"

#define PLIM_SAMPLE_LOG_KEEP_NS  UINT64_C(60000000000)
#define PLIM_SAMPLE_LOG_KEEP_MAX (UINT64_C(16) << 20) /* bytes of text */

struct plim_sample_line {
    uint64_t time_ns;
    char *text; /* owned */
    size_t n;
};

struct plim_sample_log {
    PLIM_VEC(struct plim_sample_line) lines; /* oldest first */
    uint64_t bytes;
};

/** plim_sample_log_add() - keep it, and drop what is older than KEEP_NS before it. Errors:
 * PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_sample_log_add(struct plim_sample_log *log,
                                                   const struct plim_sample *sample,
                                                   struct plim_err *err);

/** plim_sample_log_write() - the lines kept. Errors: PLIM_E_CREATE, PLIM_E_IO, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_sample_log_write(const struct plim_sample_log *log,
                                                     const char *path, struct plim_err *err);
void plim_sample_log_fini(struct plim_sample_log *log);

#endif
