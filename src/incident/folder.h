/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_FOLDER_H
#define PLIM_INCIDENT_FOLDER_H

/*
 * Folders and files of incidents: names, locks, moving, removing, limits. Symbolic links are never
 * followed into: what is removed or counted is what lies inside the folder itself.
 * Threads: independent folders are independent.
 */

#include "base/arena.h"
#include "base/vec.h"
#include "incident/incident.h"

#define PLIM_INCIDENT_PREFIX "incident-"
#define PLIM_DROP_PREFIX     "drop-"
#define PLIM_PART_SUFFIX     ".part"
#define PLIM_PACK_SUFFIX     ".tar.zst"

struct plim_names {
    PLIM_VEC(const char *) list; /* arena, sorted */
};

/** plim__folder_make() - the folder and those above it, mode 0700. Errors: PLIM_E_CREATE. */
PLIM_MUST_USE enum plim_status plim__folder_make(const char *path, struct plim_err *err);

/** plim__folder_names() - names in a folder that begin so, sorted; none when the folder is not
 * there.
 * Errors: PLIM_E_NOMEM, PLIM_E_BUDGET beyond 100,000 names. */
PLIM_MUST_USE enum plim_status plim__folder_names(const char *path, const char *prefix,
                                                  struct plim_arena *arena, struct plim_names *out,
                                                  struct plim_err *err);

/** plim__folder_lock() - an open descriptor that holds the folder's lock, or -1 when somebody else
 * has it (without `wait`) or it is not there. Close it to unlock. */
int plim__folder_lock(const char *path, bool wait);

/** plim__folder_remove() - the folder or file and what is in it; what cannot be removed stays. */
void plim__folder_remove(const char *path);

/** plim__folder_bytes() - bytes of the files in a folder, or of a file. */
uint64_t plim__folder_bytes(const char *path);

/** plim__move_file() - by renaming, or by copying and removing when that is not possible.
 * Errors: PLIM_E_NOINPUT, PLIM_E_CREATE, PLIM_E_IO. */
PLIM_MUST_USE enum plim_status plim__move_file(const char *from, const char *to,
                                               struct plim_err *err);

/** plim__copy_file() - bytes and nothing else; a new file, mode 0600. Errors: as above. */
PLIM_MUST_USE enum plim_status plim__copy_file(const char *from, const char *to,
                                               struct plim_err *err);

/** plim__incident_name() - "incident-20261129T200512Z-oom-4711". */
const char *plim__incident_name(struct plim_arena *arena, enum plim_incident_kind kind, int pid,
                                uint64_t time_ns);

/** plim__time_text() - "2026-11-29T20:05:12Z", arena. */
const char *plim__time_text(struct plim_arena *arena, uint64_t time_ns);

/** plim__incident_limit() - remove the oldest finished incidents in `dir` until at most so many and
 * so many bytes are left; the newest one always stays. */
PLIM_MUST_USE enum plim_status plim__incident_limit(const char *dir, uint64_t max_count,
                                                    uint64_t max_bytes, struct plim_err *err);

/** plim__process_lives() - whether a process of this number is there. */
bool plim__process_lives(int pid);

#endif
