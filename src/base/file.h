/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_FILE_H
#define PLIM_BASE_FILE_H

/*
 * Files through one seam: reading as a stream of bytes, mapping, and replacing atomically.
 * A source (struct plim_source) is a pull interface, so that a file, standard input, a decompressor
 * or a test's byte array feed the same parser.
 */

#include "base/err.h"
#include "base/str.h"

/* Where bytes come from. read() fills up to n bytes; *got == 0 means the end. */
struct plim_source {
    enum plim_status (*read)(void *self, void *dst, size_t n, size_t *got, struct plim_err *err);
    void (*close)(void *self); /* NULL when there is nothing to close */
    void *self;
    uint64_t size; /* total bytes when known, else 0 */
    char name[64]; /* for messages: the end of the path, or "standard input" */
};

/**
 * plim_source_open() - open `path` ("-" is standard input) for reading.
 * Errors: PLIM_E_NOINPUT (missing, a directory, no permission), PLIM_E_NOMEM. Close with
 * plim_source_close().
 */
PLIM_MUST_USE enum plim_status plim_source_open(const char *path, struct plim_source *out,
                                                struct plim_err *err);

/** plim_source_bytes() - a source over borrowed bytes; `self` storage is the caller's struct. */
struct plim_source_bytes {
    struct plim_str rest;
};
struct plim_source plim_source_bytes(struct plim_source_bytes *state, struct plim_str bytes);

void plim_source_close(struct plim_source *source);

/** plim_file_read() - a whole file into owned memory (free()), at most `limit` bytes
 * (PLIM_E_BUDGET). */
PLIM_MUST_USE enum plim_status plim_file_read(const char *path, uint64_t limit,
                                              struct plim_str *out, struct plim_err *err);

/* A read-only mapping of a whole regular file. */
struct plim_mapping {
    const char *p; /* NULL for an empty file */
    size_t n;
};
PLIM_MUST_USE enum plim_status plim_file_map(const char *path, struct plim_mapping *out,
                                             struct plim_err *err);
void plim_file_unmap(struct plim_mapping *map);

/*
 * A file that is being written: it appears at its path whole, by plim_target_commit(), or not at
 * all. Standard output ("-") and whatever is no regular file (/dev/null, a pipe) are written to
 * directly.
 */
struct plim_target {
    int fd;
    const char *path;     /* borrowed */
    char temporary[4096]; /* beside `path`; empty: written directly */
};

/**
 * plim_target_open() - begin. Then write any number of times, and commit or abort.
 * Errors of the four: PLIM_E_CREATE, PLIM_E_IO (with errno); the old file is intact, and the target
 * is closed after commit and abort.
 */
PLIM_MUST_USE enum plim_status plim_target_open(const char *path, struct plim_target *out,
                                                struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_target_write(struct plim_target *target, struct plim_str bytes,
                                                 struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_target_commit(struct plim_target *target, struct plim_err *err);
void plim_target_abort(struct plim_target *target);

/**
 * plim_file_replace() - write `bytes` to `path` so that readers see the old file or the new one,
 * never a part: temporary file in the same folder, fsync, rename. "-" writes to standard output.
 * Errors: PLIM_E_CREATE, PLIM_E_IO (with errno); on error the old file is intact.
 */
PLIM_MUST_USE enum plim_status plim_file_replace(const char *path, struct plim_str bytes,
                                                 struct plim_err *err);

#endif
