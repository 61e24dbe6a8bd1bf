/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RUN_NOTCH_H
#define PLIM_RUN_NOTCH_H

/*
 * Making a command ask for less memory: flags of it, one step at a time.
 *
 *   notch   "FLAG=STEP[:LIMIT]", for example "gpu-memory-utilization=-0.03:0.8", "max-model-len=/2:4096",
 *           "max-num-seqs=/2:8". STEP is -N (less N) or /N (divided by N); below LIMIT it does not go
 *   level   how many steps were taken, of all notches in turn
 *
 * A flag that the command does not have gives no step: what it is without it is not known. Whole
 * numbers stay whole. Both "--flag value" and "--flag=value" are understood, with one dash or two, "_" for "-", and values
 * as "32k" (32,000) and "32K" (32,768) as vLLM reads them (vllm 0.33.0 engine/arg_utils.py, human_readable_int); of several the last one counts.
 * Threads: pure.
 */

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

#define PLIM_NOTCHES 8

struct plim_notch {
    char flag[64];
    bool divides;
    double step, limit;
    unsigned taken;
};

struct plim_notches {
    struct plim_notch list[PLIM_NOTCHES];
    size_t n;
    size_t next; /* whose turn it is */
};

/** plim_notch_parse() - add one. Errors: PLIM_E_USAGE, PLIM_E_RANGE more than eight. */
PLIM_MUST_USE enum plim_status plim_notch_parse(struct plim_notches *notches, const char *text,
                                                struct plim_err *err);

/** plim_notch_useless() - why no step of it is possible with this command; NULL: one is. */
const char *plim_notch_useless(const struct plim_notch *notch, const char *const *command,
                               size_t n);

/** plim_notch_down() - take the next step that is possible with this command; its text is "max-model-len 8192
 * -> 4096". False: none is left. */
bool plim_notch_down(struct plim_notches *notches, const char *const *command, size_t n, char *what,
                     size_t room);

/** plim_notch_up() - take the last step back; false: none was taken. */
bool plim_notch_up(struct plim_notches *notches);

/** plim_notch_apply() - the command with all steps taken, [n], NULL-terminated, in the arena. */
PLIM_MUST_USE enum plim_status plim_notch_apply(const struct plim_notches *notches,
                                                const char *const *command, size_t n,
                                                struct plim_arena *arena, const char ***out,
                                                struct plim_err *err);

#endif
