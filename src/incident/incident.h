/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_INCIDENT_H
#define PLIM_INCIDENT_INCIDENT_H

/*
 * Incident bundles: from the pieces that a failing program left behind to one folder with a
 * finished diagnosis and nothing private in it. The layout on disk, and who writes what, is
 * docs/format/incident.md.
 *
 *   drop       what one failing process wrote itself: a snapshot and facts.json
 *   parts      what the owner of the program knows besides: how it ended, what it said, a trace
 *   incident   the finished folder
 *
 * An owner (`plimsoll record`) calls plim_incident_make() at a failure; everybody else leaves drops
 * and runs `plimsoll incident --finish DIR`, which is plim_incident_finish(). Both are restartable:
 * the pieces go to disk first, and what is made of them can be made again. Nothing is printed.
 * Linux only. Threads: independent folders are independent; one folder is locked.
 */

#include "base/arena.h"
#include "base/vec.h"

/* X(name, text for JSON and for the folder's name, meaning) */
#define PLIM_INCIDENT_KIND_MAP(X)                                                                  \
    X(OOM, "oom", "device memory ran out")                                                         \
    X(CRASH, "crash", "the program ended itself by a fault or an abort")                           \
    X(SIGNAL, "signal", "somebody else's signal ended the program")                                \
    X(EXIT, "exit", "the program ended with a status that is not 0")                               \
    X(REQUEST, "request", "somebody asked for it")

enum plim_incident_kind {
#define PLIM__X(name, text, meaning) PLIM_INCIDENT_##name,
    PLIM_INCIDENT_KIND_MAP(PLIM__X)
#undef PLIM__X
    PLIM_INCIDENT_KIND_COUNT
};

const char *plim_incident_kind_text(enum plim_incident_kind kind);

/* In the environment of recorded programs. */
#define PLIM_INCIDENT_DIR_VARIABLE   "PLIMSOLL_INCIDENT_DIR"
#define PLIM_INCIDENT_OWNER_VARIABLE "PLIMSOLL_INCIDENT_OWNER" /* pid: it finishes the drops */
#define PLIM_INCIDENT_DIR_DEFAULT    "plimsoll-incidents"

/** plim_incident_folder() - the one that was named, else the one of the environment, else the
 * default. */
const char *plim_incident_folder(const char *named);

struct plim_incident_options {
    const char *dir;       /* incident folder; made when it is not there */
    bool keep_private;     /* leave everything as it is */
    bool pack;             /* a .tar.zst instead of a folder */
    const char *project;   /* paths below it are the project's; NULL: the working directory */
    uint64_t max_count;    /* incidents kept in `dir`, oldest removed first; 0: 20 */
    uint64_t max_bytes;    /* of all of them together; 0: 8 GiB */
    uint64_t max_snapshot; /* bytes of one snapshot; larger ones are judged, not kept; 0: 2 GiB */
};

/* What the owner knows. Unknown: NULL, 0 or -1 as said. All borrowed. */
struct plim_incident_parts {
    enum plim_incident_kind kind;
    uint64_t time_ns;         /* of the failure, since 1970 */
    uint64_t started_ns;      /* of the program, since 1970; 0 unknown */
    int pid;                  /* of the program */
    const char *const *argv;  /* NULL-terminated command line, or NULL */
    const char *const *env;   /* NULL-terminated "NAME=value" of the program, or NULL: environ */
    int exit_status;          /* -1: it runs, or a signal ended it */
    int signal;               /* that ended it, or 0 */
    struct plim_str log_tail; /* of its standard error */
    const char *trace;        /* path of the recording, which stays where it is; or NULL */
    const char *samples;      /* path of a samples.jsonl to move in, or NULL */
};

/**
 * plim_incident_make() - an incident of the parts and of every complete drop in options->dir.
 * @path: (arena) the finished folder or file.
 * Errors: PLIM_E_CREATE, PLIM_E_IO the folder cannot be written (a full disk: the pieces that were
 * written stay, as `.part`, for plim_incident_finish()); PLIM_E_NOMEM. A piece that cannot be read
 * is a note in the incident, not an error.
 * Cost: that of reading and judging the snapshots; seconds for millions of events.
 */
PLIM_MUST_USE enum plim_status plim_incident_make(const struct plim_incident_options *options,
                                                  const struct plim_incident_parts *parts,
                                                  struct plim_arena *arena, const char **path,
                                                  struct plim_err *err);

/**
 * plim_incident_prepare() - only what has to be done at once: the pieces go into a `.part` folder,
 * from which plim_incident_finish(), perhaps in another process, makes the incident. Errors: as
 * plim_incident_make().
 */
PLIM_MUST_USE enum plim_status plim_incident_prepare(const struct plim_incident_options *options,
                                                     const struct plim_incident_parts *parts,
                                                     struct plim_arena *arena,
                                                     struct plim_err *err);

/**
 * plim_incident_finish() - finish what lies in options->dir: `.part` folders that nobody works on,
 * and drops that no incident has taken yet, all of these together as one incident.
 * @paths: receives (arena) each incident that was finished.
 * Errors: as plim_incident_make(); one that cannot be finished does not keep others from being
 * finished.
 */
struct plim_incident_paths {
    PLIM_VEC(const char *) list;
};
PLIM_MUST_USE enum plim_status plim_incident_finish(const struct plim_incident_options *options,
                                                    struct plim_arena *arena,
                                                    struct plim_incident_paths *paths,
                                                    struct plim_err *err);

#endif
