/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DRYRUN_ANSWER_H
#define PLIM_DRYRUN_ANSWER_H

/*
 * From runs to an answer: one run, several settings side by side, or the smallest card that fits.
 *
 * The snapshot that is judged is the one at the failure when memory ran out, else the last one of the
 * process with the highest peak, at its peak. With several runs it is that of the last one that did not
 * fit, or of the last. Threads: as dryrun.h.
 */

#include "diagnose/diagnose.h"
#include "dryrun/dryrun.h"

struct plim_dryrun_ask {
    struct plim_dryrun_setup setup; /* conf is ignored when n_confs > 0 */
    const char *const *confs;
    size_t n_confs;
    bool find_smallest;
    const char *snapshot; /* where to leave the judged snapshot, or NULL */
};

struct plim_dryrun_answer {
    struct plim_dryrun_ask ask;
    PLIM_VEC(struct plim_dryrun_run) runs;
    uint32_t judged; /* index of the run whose snapshot is judged; PLIM_NO_ID when there is none */
    uint32_t
        smallest;   /* find_smallest: index of the run on the smallest card that fits, or NO_ID */
    uint64_t floor; /* find_smallest: no card below this was tried: it cannot hold the peak */
    struct plim_snapshot snapshot;
    struct plim_diagnosis diagnosis; /* of `judged` */
};

/** plim_dryrun_answer() - do what is asked. Free with plim_dryrun_answer_fini().
 * Errors: those of plim_dryrun_run(); PLIM_E_CREATE for the snapshot's copy. A snapshot that cannot be
 * read leaves `judged` at PLIM_NO_ID. */
PLIM_MUST_USE enum plim_status plim_dryrun_answer(const struct plim_dryrun_ask *ask,
                                                  struct plim_arena *arena,
                                                  struct plim_dryrun_answer *out,
                                                  struct plim_err *err);
void plim_dryrun_answer_fini(struct plim_dryrun_answer *answer);

/** plim_dryrun_headroom() - bytes of the device that were never used in a run; 0 when it was full. */
uint64_t plim_dryrun_headroom(const struct plim_dryrun_run *run);

#endif
