/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_REPLAYED_H
#define PLIM_DIAGNOSE_REPLAYED_H

/*
 * Replayed effects for the advice: which of the few settings that an advice may name would really have
 * saved the request that failed. Only asked when the verdict, or a counterfactual, is about bytes
 * that are free in the wrong place; then at most two settings, so that a diagnosis stays quick.
 */

#include "diagnose/diagnose.h"
#include "replay/effects.h"

/* X(name, settings) of the advice rules. */
#define PLIM_TRIAL_MAP(X)                                                                          \
    X(EXPANDABLE, "expandable_segments:True")                                                      \
    X(SPLIT, "max_split_size_mb:128")

enum plim_trial {
#define PLIM__X(name, conf) PLIM_TRIAL_##name,
    PLIM_TRIAL_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TRIAL_COUNT
};

struct plim_trials {
    bool asked;      /* replays were run */
    bool reproduced; /* the recorded settings fail at the same request */
    bool complete;   /* the history begins with an empty heap */
    struct plim_effect effects[PLIM_TRIAL_COUNT];
};

/** plim__replay_trials() - run them, when there is a question. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__replay_trials(const struct plim_snapshot *snapshot,
                                                   const struct plim_diagnose_options *options,
                                                   const struct plim_diagnosis *d,
                                                   struct plim_trials *out, struct plim_err *err);

#endif
