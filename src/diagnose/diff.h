/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_DIFF_H
#define PLIM_DIAGNOSE_DIFF_H

/*
 * Two snapshots of one program, `a` the earlier and `b` the later: what grew, by site, by category and by
 * segment. Sites are matched by the texts of their frames, segments by address and size (so segments are
 * only comparable within one process). Threads: pure.
 */

#include "diagnose/diagnose.h"

struct plim_diff_row {
    const char *site; /* arena-owned */
    enum plim_category category;
    uint64_t bytes_a;
    uint64_t bytes_b;
    uint32_t blocks_a;
    uint32_t blocks_b;
    uint32_t site_b; /* index into diff.b.sites; PLIM_NO_ID: nothing of it is live in b */
};

/** plim_diff_changed() - whether a place holds anything else than before. */
static inline bool plim_diff_changed(const struct plim_diff_row *row)
{
    return row->bytes_a != row->bytes_b || row->blocks_a != row->blocks_b;
}

/* Segments that are only in one of the two, or in both. */
struct plim_diff_segments {
    uint64_t kept_bytes, new_bytes, gone_bytes;
    uint32_t kept, new_, gone;
};

struct plim_diff {
    struct plim_arena arena;
    struct plim_diagnosis a;
    struct plim_diagnosis b;
    PLIM_VEC(struct plim_diff_row) rows; /* largest growth first, shrinking sites last */
    struct plim_diff_segments segments;
    const char *summary; /* arena-owned */
};

/**
 * plim_diff() - diagnose both and compare.
 * @options: for both; the moment should be the end. @out: owned, plim_diff_fini(); borrows the strings
 * of both snapshots. Errors: those of plim_diagnose(). Cost: that of two diagnoses.
 */
PLIM_MUST_USE enum plim_status plim_diff(const struct plim_snapshot *a,
                                         const struct plim_snapshot *b,
                                         const struct plim_diagnose_options *options,
                                         struct plim_diff *out, struct plim_err *err);
void plim_diff_fini(struct plim_diff *diff);

#endif
