/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_BUNDLE_H
#define PLIM_INCIDENT_BUNDLE_H

/*
 * Reading a finished incident, folder or archive: its manifest and its files by name. It may come
 * from a stranger.
 * Threads: independent calls are independent.
 */

#include "base/arena.h"
#include "base/file.h"
#include "base/vec.h"

struct plim_bundle_file {
    const char *name; /* arena */
    uint64_t bytes;
};

/* What lists and heads show. Texts arena-owned; "" when the manifest does not say. */
struct plim_bundle {
    const char *path; /* borrowed */
    bool packed;
    const char *id, *kind, *time, *cls, *subclass, *summary;
    double confidence;
    uint64_t time_ns, uptime_ns; /* 0 unknown */
    int64_t pid;
    bool redacted;
    const char *snapshot;               /* name of the first one, or NULL */
    uint64_t device_total, device_free; /* of its device at the failure */
    bool device_known;                  /* the two above are known */
    const char *trace;                  /* name of the trace, or NULL */
    struct plim_str manifest;           /* the JSON text */
    PLIM_VEC(struct plim_bundle_file) files;
    PLIM_VEC(const char *) notes;
};

/** plim_bundle_is() - whether a path looks like an incident: a folder with incident.json in it, or
 * a zstd file with a tar archive inside. Reads a few bytes; says nothing about what else is in it.
 * */
bool plim_bundle_is(const char *path);

/**
 * plim_bundle_open() - read the manifest.
 * Errors: PLIM_E_NOINPUT; PLIM_E_DATA no manifest, or not one of an incident; those of the archive
 * (archive.h). Free with plim_bundle_fini().
 */
PLIM_MUST_USE enum plim_status plim_bundle_open(const char *path, struct plim_arena *arena,
                                                struct plim_bundle *out, struct plim_err *err);
void plim_bundle_fini(struct plim_bundle *bundle);

/**
 * plim_bundle_source() - a file of the incident as a source. @name: one without a slash.
 * Errors: PLIM_E_NOTFOUND; PLIM_E_UNSAFE a link or a name that leads elsewhere; those of the
 * archive.
 */
PLIM_MUST_USE enum plim_status plim_bundle_source(const char *path, const char *name,
                                                  struct plim_source *out, struct plim_err *err);

/** plim_bundle_text() - a whole file of at most `limit` bytes; arena, NUL behind. Errors: also
 * PLIM_E_BUDGET. */
PLIM_MUST_USE enum plim_status plim_bundle_text(const char *path, const char *name, uint64_t limit,
                                                struct plim_arena *arena, struct plim_str *out,
                                                struct plim_err *err);

#endif
