/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_JUDGE_INPUT_H
#define PLIM_CLI_JUDGE_INPUT_H

/* What diagnose and view begin with: read a snapshot, add what the user knows besides it, judge. */

#include "cli/verbs.h"
#include "diagnose/diagnose.h"

/* The options that say how; PLIM_OPTIONS_JUDGE in options.h declares them. */
struct plim_judge_words {
    const char *oom_text;
    const char *trace;
    const char *at;
    struct plim_opt_u64 device_memory, external, cap, device, rows;
    bool no_replay;
    struct plim_opt_u64 memory_budget, max_string, max_memo, max_nesting;
};

/* The words of any verb's options that have PLIM_OPTIONS_JUDGE and PLIM_OPTIONS_READING. */
#define PLIM_JUDGE_WORDS(o)                                                                        \
    {                                                                                              \
        .oom_text = (o)->oom_text, .trace = (o)->trace, .at = (o)->at,                             \
        .no_replay = (o)->no_replay, .device_memory = (o)->device_memory,                          \
        .external = (o)->external, .cap = (o)->cap, .device = (o)->device, .rows = (o)->rows,      \
        .memory_budget = (o)->memory_budget, .max_string = (o)->max_string,                        \
        .max_memo = (o)->max_memo, .max_nesting = (o)->max_nesting,                                \
    }

struct plim_judged {
    struct plim_snapshot snapshot;
    struct plim_diagnosis diagnosis;
    struct plim_diagnose_options other; /* for the devices that the message does not speak of */
};

/** plim_judge_input() - @out: owned, plim_judged_fini(); not to be moved. Errors: of reading and judging. */
PLIM_MUST_USE enum plim_status plim_judge_input(const char *path,
                                                const struct plim_judge_words *words,
                                                struct plim_judged *out, struct plim_err *err);
void plim_judged_fini(struct plim_judged *judged);

/** plim_base_name() - the part of a path behind the last slash, borrowed. */
const char *plim_base_name(const char *path);

#endif
