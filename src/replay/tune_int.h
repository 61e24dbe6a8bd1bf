/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_TUNE_INT_H
#define PLIM_REPLAY_TUNE_INT_H

/* Inside tune: what the tune*.c files share. */

#include "replay/tune.h"

struct plim__tuner {
    const struct plim_requests *q;
    const struct plim_tune_options *options;
    struct plim_tune *tune; /* being built */
    struct plim_map seen;   /* hash of a settings text -> 1 */
    bool has_cap;           /* garbage collection can run */
    bool refining;          /* the search has begun: candidates are refined ones */
    unsigned threads;
    unsigned most;
};

/* Add a candidate unless it is known, excluded, or no settings of that release. */
PLIM_MUST_USE enum plim_status plim__tune_add(struct plim__tuner *t, struct plim_knobs knobs,
                                              struct plim_err *err);
/* Add one by its text; errors of the parser are errors. */
PLIM_MUST_USE enum plim_status plim__tune_add_text(struct plim__tuner *t, const char *conf,
                                                   bool recorded, struct plim_err *err);

/* tune_rules.c: why these knobs are not to be tried, or NULL. */
const struct plim_exclusion *plim__tune_excluded(const struct plim__tuner *t,
                                                 const struct plim_knobs *knobs);
PLIM_MUST_USE enum plim_status plim__tune_list_exclusions(struct plim__tuner *t,
                                                          struct plim_err *err);
/* What is to be said of the strongest knob of a candidate; NULL when nothing. */
const char *plim__tune_risk(const struct plim_knobs *knobs);
const char *plim__tune_applies_to(const struct plim_knobs *knobs);

/* tune_space.c */
PLIM_MUST_USE enum plim_status plim__tune_seeds(struct plim__tuner *t, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__tune_search(struct plim__tuner *t, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__tune_vary(struct plim__tuner *t, struct plim_err *err);
const char *plim__knobs_text(const struct plim_knobs *knobs, struct plim_arena *arena);

/* tune_run.c: run the candidates [from, end) on the threads. */
PLIM_MUST_USE enum plim_status plim__tune_run(struct plim__tuner *t, size_t from,
                                              struct plim_err *err);
/* Find the need of the given runs, on the threads. */
PLIM_MUST_USE enum plim_status plim__tune_needs(struct plim__tuner *t, const uint32_t *runs,
                                                size_t n, struct plim_err *err);

/* The setups point into the vector of runs, which moves: point them anew. */
void plim__tune_point(struct plim_tune *tune);

/* tune.c: < 0 when a is better. A total order. */
int plim__tune_compare(const struct plim_tune_run *a, const struct plim_tune_run *b);

#endif
