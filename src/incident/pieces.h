/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_PIECES_H
#define PLIM_INCIDENT_PIECES_H

/*
 * What an incident is made of, as it lies in the folder raw/: the facts of each drop (facts.json)
 * and of the owner (parts.json). Both are objects with the same keys; see docs/format/incident.md.
 * Reading is strict about what matters and deaf to what it does not know. Strings are arena-owned.
 */

#include "diagnose/verdict.h"
#include "incident/incident.h"

struct plim_pair {
    const char *name;
    const char *value;
    bool number; /* the value was written as a number */
};

struct plim_pairs {
    struct plim_pair *items; /* arena, [n] */
    size_t n;
};

struct plim_named_device {
    uint64_t index; /* as the program counts them */
    const char *name;
    struct plim_amount total;
};

struct plim_facts_file {
    enum plim_incident_kind kind;
    int owner;                    /* of a drop: the process that will finish it; 0: nobody */
    int pid, ppid;                /* 0 unknown */
    uint64_t time_ns, started_ns; /* 0 unknown */
    int64_t rank, local_rank, world_size, device; /* -1 unknown */
    struct plim_amount request, device_total, device_free;
    struct plim_pairs tags, versions, environment;
    const char *alloc_conf;               /* or NULL */
    const char *user, *home, *cwd, *host; /* or NULL */
    const char **argv;                    /* NULL-terminated, or NULL */
    int exit_status;                      /* -1 unknown */
    int signal;                           /* 0 none */
    const char *trace;                    /* path of a recording, or NULL */
    bool snapshot_incomplete;
    bool half;                         /* the drop was never completed */
    const char *folder;                /* of the drop; NULL for the owner's */
    struct plim_named_device *devices; /* arena, [n_devices] */
    size_t n_devices;
};

struct plim_pieces {
    struct plim_facts_file owner;           /* kind, pid and time are always there */
    PLIM_VEC(struct plim_facts_file) drops; /* by time */
    const char *raw;                        /* the folder */
};

/** plim__facts_read() - one facts.json or parts.json. Errors: PLIM_E_NOINPUT, PLIM_E_DATA,
 * PLIM_E_BUDGET more than 1 MiB, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__facts_read(const char *path, struct plim_arena *arena,
                                                struct plim_facts_file *out, struct plim_err *err);

/** plim__drop_is_ours() - whether this process may take a drop: it is the owner, or there is none
 * that lives. */
bool plim__drop_is_ours(const struct plim_facts_file *drop);

/** plim__pieces_read() - everything in `raw`. A drop without facts that can be read counts as
 * `half`.
 * Errors: as plim__facts_read() for parts.json. */
PLIM_MUST_USE enum plim_status plim__pieces_read(const char *raw, struct plim_arena *arena,
                                                 struct plim_pieces *out, struct plim_err *err);
void plim__pieces_fini(struct plim_pieces *pieces);

/** plim__parts_write() - parts.json of what the owner knows; `facts` is what a drop said, or NULL.
 * */
PLIM_MUST_USE enum plim_status plim__parts_write(const char *path,
                                                 const struct plim_incident_parts *parts,
                                                 const char *project, struct plim_err *err);

#endif
