/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_ARCHIVE_H
#define PLIM_INCIDENT_ARCHIVE_H

/*
 * The archive form of an incident: POSIX ustar inside one zstd frame, one folder with regular files
 * in it.
 *
 * Reading treats it as hostile: anything but regular files in one folder is refused, as are names
 * that lead elsewhere, names that stand twice, damaged heads, and more than the limits below.
 * Nothing is ever unpacked to disk: members are read as a stream.
 * Threads: a reader belongs to one thread.
 */

#include "base/file.h"
#include "base/map.h"

#define PLIM_ARCHIVE_MEMBERS 4096u                     /* files in one archive */
#define PLIM_ARCHIVE_BYTES   (UINT64_C(1) << 36)       /* all of them together, unpacked */
#define PLIM_ARCHIVE_FILE    ((UINT64_C(1) << 33) - 1) /* one of them: what a ustar head can say */
#define PLIM_ARCHIVE_NAME    100u                      /* bytes of "FOLDER/FILE", NUL included */

/**
 * plim_archive_write() - the regular files of `folder` as TOP/name into `path`, replaced whole or
 * not at all. Owners are not recorded. Errors: PLIM_E_NOINPUT, PLIM_E_CREATE, PLIM_E_IO,
 * PLIM_E_RANGE a file or a name is too long, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_archive_write(const char *folder, const char *top,
                                                  const char *path, struct plim_err *err);

struct plim_archive {
    struct plim_source bytes;     /* the unpacked tar; owned */
    struct plim_source file;      /* what it is unpacked from; owned */
    uint64_t position;            /* in the tar */
    uint64_t left;                /* bytes of the current member that were not read */
    uint64_t padding;             /* behind it */
    uint64_t size;                /* of the current member */
    char name[PLIM_ARCHIVE_NAME]; /* of the current member, without the folder */
    char top[PLIM_ARCHIVE_NAME];  /* the folder */
    struct plim_map seen;         /* hashes of the names */
    bool ended;
};

/** plim_archive_open() - Errors: PLIM_E_NOINPUT, PLIM_E_NOMEM; PLIM_E_DATA it is no zstd file. */
PLIM_MUST_USE enum plim_status plim_archive_open(const char *path, struct plim_archive *out,
                                                 struct plim_err *err);

/** plim_archive_from() - the same from a source, which the archive then owns (closed also on
 * error). */
PLIM_MUST_USE enum plim_status plim_archive_from(struct plim_source file, struct plim_archive *out,
                                                 struct plim_err *err);
void plim_archive_close(struct plim_archive *archive);

/** plim_archive_next() - go to the next file; `*more` is false behind the last one.
 * Errors: PLIM_E_UNSAFE, PLIM_E_DATA, PLIM_E_TRUNCATED, PLIM_E_BUDGET, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_archive_next(struct plim_archive *archive, bool *more,
                                                 struct plim_err *err);

/** plim_archive_read() - the next bytes of the current file; *got == 0 at its end. */
PLIM_MUST_USE enum plim_status plim_archive_read(struct plim_archive *archive, void *dst, size_t n,
                                                 size_t *got, struct plim_err *err);

#endif
