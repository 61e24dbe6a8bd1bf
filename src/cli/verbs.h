/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_VERBS_H
#define PLIM_CLI_VERBS_H

/*
 * Verbs: what `plimsoll NAME ...` runs. No logic lives in src/cli: a verb opens its input, calls the
 * library, and hands the result to src/report.
 *
 * To add a verb `weigh`:
 *   1. options.h: one row in PLIM_VERB_MAP and one list PLIM_OPTIONS_weigh(X, S).
 *   2. cmd_weigh.c: enum plim_status plim_cmd_weigh(struct plim_cli *cli,
 *          const struct plim_opts_weigh *opts, struct plim_err *err)   (declared by this header)
 *   3. src/cli/meson.build: cmd_weigh.c in the list of sources.
 *   4. docs/man/plimsoll-weigh.1.scd: the man page; the line @OPTIONS@ becomes the option table.
 *      The tests fail when it is missing, has no EXAMPLES, or its examples do not run.
 *
 * The struct plim_opts_weigh has one field for each row, in the type of the row's kind:
 *   FLAG      bool
 *   TEXT      const char *          NULL when absent
 *   CHOICE    const char *          one of the allowed words; ask with plim_cli_is()
 *   SIZE      struct plim_opt_u64   bytes, "24GiB"
 *   COUNT     struct plim_opt_u64   a whole number
 *   DURATION  struct plim_opt_u64   nanoseconds, "90s", "5m"; a bare number is seconds
 *   REAL      struct plim_opt_real
 *   LIST      struct plim_opt_list  the option may be repeated
 * `given` is false when nobody said anything and the row has no default: never test for 0.
 *
 * A verb writes its answer to cli->out (plim_buf or plim_jsonw over it) and returns PLIM_OK; main sends
 * it to standard output or to -o FILE. It returns an error to say what failed: main prints that to
 * standard error and exits with the status' code. For the other exits (`--check`: 1, `plan`: 2) it sets
 * cli->exit_code and returns PLIM_OK. Strings and arguments are borrowed for the call; cli->arena is
 * there for what the verb needs.
 * Threads: one.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/jsonw.h"
#include "cli/options.h"

struct plim_opt_u64 {
    uint64_t value;
    bool given;
};

struct plim_opt_real {
    double value;
    bool given;
};

struct plim_opt_list {
    const char **items; /* arena, [n] */
    size_t n;
};

/* What a verb works with besides its options. */
struct plim_cli {
    const struct plim_verb *verb;
    const char *const *args; /* borrowed, [n_args]: the arguments that are no options */
    size_t n_args;
    struct plim_buf out;     /* the answer; sent when the verb returns PLIM_OK */
    struct plim_arena arena; /* lives until the program ends */
    bool color;              /* the answer may use ANSI colours */
    unsigned width;          /* columns of the terminal, 80 when there is none */
    bool sent;               /* the verb sent its answer itself: `out` is not looked at */
    int exit_code;           /* of a verb that returned PLIM_OK; 0 unless it says otherwise */
};

enum plim_option_kind {
    PLIM_OPT_FLAG,
    PLIM_OPT_TEXT,
    PLIM_OPT_CHOICE,
    PLIM_OPT_SIZE,
    PLIM_OPT_COUNT,
    PLIM_OPT_DURATION,
    PLIM_OPT_REAL,
    PLIM_OPT_LIST,
};

struct plim_option {
    const char *name; /* long name without the dashes */
    char letter;      /* short name, or 0 */
    enum plim_option_kind kind;
    const char *arg;     /* name of the argument, or "a|b|c" of a CHOICE; NULL for a FLAG */
    const char *initial; /* default, as a user would type it, or NULL */
    const char *help;    /* one line, no capital, no full stop */
    size_t offset;       /* of the field in the verb's struct */
};

struct plim_verb {
    const char *name;
    const char *args; /* for the synopsis: "SNAPSHOT", "[FILE|-]" */
    size_t min_args;
    size_t max_args;
    unsigned flags; /* PLIM_VERB_* */
    const char *about;
    const struct plim_option *options; /* static, [n_options] */
    size_t n_options;
    size_t options_size; /* bytes of the verb's struct */
    enum plim_status (*run)(struct plim_cli *cli, const void *opts, struct plim_err *err);
};

#define PLIM__TYPE_FLAG     bool
#define PLIM__TYPE_TEXT     const char *
#define PLIM__TYPE_CHOICE   const char *
#define PLIM__TYPE_SIZE     struct plim_opt_u64
#define PLIM__TYPE_COUNT    struct plim_opt_u64
#define PLIM__TYPE_DURATION struct plim_opt_u64
#define PLIM__TYPE_REAL     struct plim_opt_real
#define PLIM__TYPE_LIST     struct plim_opt_list

#define PLIM__FIELD(S, field, kind, ...) PLIM__TYPE_##kind field;
#define PLIM__DECLARE(name, ...)                                                                   \
    struct plim_opts_##name {                                                                      \
        PLIM_OPTIONS_##name(PLIM__FIELD, _) PLIM_OPTIONS_EVERY(PLIM__FIELD, _)                     \
    };                                                                                             \
    PLIM_MUST_USE enum plim_status plim_cmd_##name(                                                \
        struct plim_cli *cli, const struct plim_opts_##name *opts, struct plim_err *err);
PLIM_VERB_MAP(PLIM__DECLARE)
#undef PLIM__DECLARE

/** plim_cli_is() - whether a CHOICE holds this word; false for NULL. */
static inline bool plim_cli_is(const char *value, const char *word)
{
    return value != NULL && strcmp(value, word) == 0;
}

/** plim_verbs() - all verbs in the order of the table; static. *n receives their number. */
const struct plim_verb *plim_verbs(size_t *n);

/** plim_verb_find() - by name, or NULL. */
const struct plim_verb *plim_verb_find(const char *name);

/** plim_option_find() - by long name without dashes (n bytes), or NULL. */
const struct plim_option *plim_option_find(const struct plim_verb *verb, const char *name,
                                           size_t n);

/** plim_verb_nearest()/plim_option_nearest() - what the user may have meant, or NULL when nothing is near. */
const char *plim_verb_nearest(const char *word);
const char *plim_option_nearest(const struct plim_verb *verb, const char *word);

#endif
