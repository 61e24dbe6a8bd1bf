/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_VLLM_FLAGS_H
#define PLIM_SERVING_VLLM_FLAGS_H

/*
 * A command line of vLLM, word by word as somebody would run it:
 *
 *   [NAME=VALUE ...] [vllm] [serve] [MODEL] [--flag value | --flag=value | --no-flag | -cc.key=value ...]
 *
 * Everything is kept: flags that the engine has (vllm_flags.def) with what they do to device memory, others as
 * unknown. Values are texts; the settings read them. Threads: pure; texts are borrowed from the words.
 */

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum plim_vllm_effect {
    PLIM_VLLM_EFFECT_MODELLED, /* the plan takes it into account */
    PLIM_VLLM_EFFECT_NONE,     /* nothing on device memory */
    PLIM_VLLM_EFFECT_SOME,     /* something that the plan does not know */
};

struct plim_vllm_flag {
    const char *name;  /* long name without dashes, static */
    const char *part;  /* behind a dot: "mode" of -cc.mode=0, or NULL */
    const char *value; /* NULL for a flag without one */
    bool on;           /* of a BOOL: false for --no-x or its opposite */
    enum plim_vllm_effect effect;
};

struct plim_vllm_flags {
    struct plim_vllm_flag *items; /* arena, [n], in order; the last of a name holds */
    size_t n;
    const char **unknown; /* arena, [n_unknown] as written */
    size_t n_unknown;
    const char **environment; /* arena, [n_environment] "NAME=VALUE" in front of the command */
    size_t n_environment;
    const char *model; /* named on the command line, or NULL */
    bool serve;        /* the words were a `vllm serve` command */
};

/**
 * plim_vllm_flags_read() - take a command line apart.
 * @words: [n] borrowed.
 * Errors: PLIM_E_USAGE a value is missing, or given to a flag that takes none (where = the word);
 * PLIM_E_BUDGET more than 4096 words; PLIM_E_NOMEM. Unknown flags are kept, not refused.
 */
PLIM_MUST_USE enum plim_status plim_vllm_flags_read(struct plim_arena *arena,
                                                    const char *const *words, size_t n,
                                                    struct plim_vllm_flags *out,
                                                    struct plim_err *err);

/** plim_vllm_flag() - the last one of that name without a dot; NULL when absent. */
const struct plim_vllm_flag *plim_vllm_flag(const struct plim_vllm_flags *flags, const char *name);

/** plim_vllm_flag_part() - the last `name.part`. */
const struct plim_vllm_flag *plim_vllm_flag_part(const struct plim_vllm_flags *flags,
                                                 const char *name, const char *part);

/** plim_vllm_environment() - the value of a variable in front of the command, or NULL. */
const char *plim_vllm_environment(const struct plim_vllm_flags *flags, const char *name);

/** plim_vllm_size() - whole numbers as the engine reads lengths: 1k is 1000, 1K is 1024, also m, M, g, G;
 * "auto" and "-1" give -1. false: not one. */
bool plim_vllm_size(const char *text, int64_t *out);

#endif
