/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_ASSEMBLY_H
#define PLIM_INCIDENT_ASSEMBLY_H

/*
 * One incident in the making: shared by the steps, each in a file of its own, in this order: pieces
 * read (pieces.c), cleaned copies made (clean.c), judged (judge.c), described (manifest.c), moved
 * to its final name (make.c). Everything made is written to the `.part` folder first.
 * Threads: one.
 */

#include "diagnose/verdict.h"
#include "incident/last_seconds.h"
#include "incident/pieces.h"
#include "incident/redact.h"

/* The snapshot of a drop. Texts arena-owned or static. */
struct plim_kept {
    size_t drop;             /* index into pieces.drops */
    const char *file;        /* name in the folder, or NULL: it is not kept */
    const char *judged_path; /* what is read for the diagnosis */
    bool judged;
    enum plim_class cls;
    enum plim_subclass subclass;
};

struct plim_assembly {
    struct plim_arena *arena; /* borrowed */
    const struct plim_incident_options *options;
    const char *part; /* the folder, `.part` at its end */
    const char *name; /* of the finished folder */
    struct plim_pieces pieces;
    struct plim_redactor redactor;
    struct plim_buf message; /* cleaned text of message.txt */
    PLIM_VEC(struct plim_kept) kept;
    PLIM_VEC(const char *) notes;     /* what is missing or cut short */
    struct plim_last_seconds seconds; /* samples before the failure */
    const char *trace;                /* what is read for the diagnosis of a trace, or NULL */
    struct plim_verdict verdict;      /* of the incident; texts arena-owned */
};

/** plim__assembly_note() - add a note; it goes through the redaction. */
PLIM_MUST_USE enum plim_status plim__assembly_note(struct plim_assembly *a, struct plim_err *err,
                                                   const char *fmt, ...) PLIM_PRINTF(3, 4);

/** plim__part_path() - arena: a file in the folder. */
const char *plim__part_path(const struct plim_assembly *a, const char *file);

/** plim__clean() - clean copies of snapshots, message, trace and samples. Errors: of writing,
 * PLIM_E_NOMEM; a piece that cannot be read or cleaned is left out and noted. */
PLIM_MUST_USE enum plim_status plim__clean(struct plim_assembly *a, struct plim_err *err);

/** plim__judge_incident() - diagnosis.md, diagnosis.json, a->verdict. Errors: the same. */
PLIM_MUST_USE enum plim_status plim__judge_incident(struct plim_assembly *a, struct plim_err *err);

/** plim__describe() - removed.json, and incident.json as the last file. Errors: of writing,
 * PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__describe(struct plim_assembly *a, struct plim_err *err);

/** plim__uptime_ns() - from the start of the failing process to the failure; 0 unknown. */
uint64_t plim__uptime_ns(const struct plim_assembly *a);

#endif
