/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_STORE_DISK_H
#define PLIM_TESTS_STORE_DISK_H

/*
 * A disk for tests, as an SQLite VFS named "disk" in front of the system's: it syncs nothing, so that tests are fast, and
 * it can fail, fill up, or lose what was not synced. Only the first database that
 * is opened for writing after disk_begin() is counted and remembered. One per process; global state, one thread.
 *
 *   operation   a write, truncation or sync of the database or its log; counted from 0
 *   durable     what would be there after a power cut for sure: written before the file's last sync
 */

#include <stdbool.h>
#include <stdint.h>

struct disk {
    uint64_t operations; /* so far */
    uint64_t fail_at;    /* the operation that fails, UINT64_MAX none */
    uint64_t fail_for;   /* how many from there on fail */
    int fail_code;       /* SQLITE_FULL or SQLITE_IOERR_... */
    bool remember;       /* keep what disk_cut() needs */
    uint64_t cut_at;     /* the operation before which disk_cut() is called, UINT64_MAX none */
    const char *cut_folder, *cut_name;
    uint64_t cut_seed;
    bool cut; /* it was */
};

extern struct disk disk;

/* Register the VFS, once; reset counters. */
void disk_begin(void);

/* Forget what is remembered; before a new file. */
void disk_forget(void);

/* What a power cut now could leave: the durable bytes and a random choice of later sectors, written as `folder`/NAME for
 * the database and its log. @seed decides. */
void disk_cut(const char *folder, const char *name, uint64_t seed);

#endif
