/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_PARSE_H
#define PLIM_CLI_PARSE_H

/*
 * From what the user typed, the environment and the config file to a verb's struct of option values.
 *
 * Grammar: `--name value`, `--name=value`, `-o value`, `-ovalue`, `-hf json` (letters of flags may be
 * joined), `--` ends the options, `-` is an argument (standard input). Options and arguments may be
 * mixed, but for verbs with PLIM_VERB_COMMAND, where the first argument ends the options. Flags take a
 * value only as `--name=yes|no`, so that a flag from the environment can be taken back. When an
 * option is given twice the last one counts, but for LIST, which collects.
 * A setting meant for all verbs (environment, first part of the config file) whose choice this verb does
 * not offer, but another verb does, is passed over: `format = markdown` does not break `version`.
 * No global state: the environment comes through a function.
 */

#include "base/arena.h"
#include "base/vec.h"
#include "cli/verbs.h"

/* One `key = value` of the config file. */
struct plim_config_entry {
    const char
        *section;      /* arena; "" before the first section: for every verb that has the option */
    const char *key;   /* arena */
    const char *value; /* arena */
    int line;
};

struct plim_config {
    const char *path; /* arena, or NULL when there is no config file */
    PLIM_VEC(struct plim_config_entry) entries;
};

/* Where values come from, besides the command line. */
struct plim_surroundings {
    const char *(*getenv)(const char *name);
    const struct plim_config *config; /* nullable */
};

/* What came out of the words: both arrays are arena-owned. */
struct plim_options {
    struct plim_arena *arena; /* in: where everything below lives */
    const void *values;       /* the verb's struct plim_opts_<verb> */
    const char *const *args;  /* [n_args] the arguments that are no options */
    size_t n_args;
};

/**
 * plim_options_parse() - the values and arguments of a verb from argv[0..argc).
 * @argv: what follows the verb's name; borrowed, and so are the strings in the result.
 * Missing or surplus arguments are errors unless --help was given.
 * Errors: PLIM_E_USAGE with the place ("--device", "PLIMSOLL_DEVICE", "config:3") and a suggestion;
 * PLIM_E_NOMEM, PLIM_E_BUDGET.
 */
PLIM_MUST_USE enum plim_status plim_options_parse(const struct plim_verb *verb, int argc,
                                                  char *const argv[],
                                                  const struct plim_surroundings *around,
                                                  struct plim_options *out, struct plim_err *err);

/**
 * plim_option_set() - convert `text` to the option's kind and store it in its field of `values`.
 * @origin: where the text came from, for the error. Errors: PLIM_E_USAGE, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_option_set(const struct plim_option *option, const char *text,
                                               const char *origin, struct plim_arena *arena,
                                               void *values, struct plim_err *err);

/**
 * plim_option_is_ambient() - whether the environment and the config file may set this option; false for
 * what concerns one run only: --help and --output.
 */
bool plim_option_is_ambient(const struct plim_option *option);

#define PLIM_ENV_NAME 64 /* room for any plim_option_env() result, NUL included */

/** plim_option_env() - "PLIMSOLL_DEVICE_MEMORY" for "device-memory"; returns buf. */
char *plim_option_env(const struct plim_option *option, char buf[PLIM_ENV_NAME]);

/**
 * plim_config_load() - read the config file: $PLIMSOLL_CONFIG, else $XDG_CONFIG_HOME/plimsoll/config, else
 * $HOME/.config/plimsoll/config. No file is no error, unless PLIMSOLL_CONFIG names it; an empty
 * PLIMSOLL_CONFIG means none. Free with plim_config_fini().
 * Errors: PLIM_E_USAGE (line, unknown section or key), PLIM_E_NOINPUT, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_config_load(const char *(*getenv)(const char *),
                                                struct plim_arena *arena, struct plim_config *out,
                                                struct plim_err *err);
void plim_config_fini(struct plim_config *config);

/** plim_config_find() - the value for this verb and option, its own section first, or NULL. */
const struct plim_config_entry *plim_config_find(const struct plim_config *config,
                                                 const struct plim_verb *verb,
                                                 const struct plim_option *option);

#endif
