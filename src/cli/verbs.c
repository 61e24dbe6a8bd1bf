/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tables of verbs and options, expanded from options.h, and look-ups in them. A name that is not there
 * gets a suggestion: the nearest one by the number of changed, missing, surplus or swapped letters.
 */

#include "cli/verbs.h"

#include "base/near.h"
#include "base/num.h"

#include <stddef.h>
#include <string.h>

#define PLIM__ROW(S, field, kind, name, letter, arg, initial, help)                                \
    {name, letter, PLIM_OPT_##kind, arg, initial, help, offsetof(struct S, field)},
#define PLIM__TABLE(name, ...)                                                                     \
    static const struct plim_option options_##name[] = {PLIM_OPTIONS_##name(                       \
        PLIM__ROW, plim_opts_##name) PLIM_OPTIONS_EVERY(PLIM__ROW, plim_opts_##name)};             \
    static enum plim_status run_##name(struct plim_cli *cli, const void *opts,                     \
                                       struct plim_err *err)                                       \
    {                                                                                              \
        return plim_cmd_##name(cli, opts, err);                                                    \
    }
PLIM_VERB_MAP(PLIM__TABLE)
#undef PLIM__TABLE
#undef PLIM__ROW

#define PLIM__VERB(name, args, fewest, most, flags, about)                                         \
    {#name,                                                                                        \
     args,                                                                                         \
     fewest,                                                                                       \
     most,                                                                                         \
     flags,                                                                                        \
     about,                                                                                        \
     options_##name,                                                                               \
     PLIM_COUNT_OF(options_##name),                                                                \
     sizeof(struct plim_opts_##name),                                                              \
     run_##name},
static const struct plim_verb verbs[] = {PLIM_VERB_MAP(PLIM__VERB)};
#undef PLIM__VERB

const struct plim_verb *plim_verbs(size_t *n)
{
    *n = PLIM_COUNT_OF(verbs);
    return verbs;
}

const struct plim_verb *plim_verb_find(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

const struct plim_option *plim_option_find(const struct plim_verb *verb, const char *name, size_t n)
{
    for (size_t i = 0; i < verb->n_options; i++) {
        if (strlen(verb->options[i].name) == n && memcmp(verb->options[i].name, name, n) == 0) {
            return &verb->options[i];
        }
    }
    return NULL;
}

const char *plim_verb_nearest(const char *word)
{
    const char *best = NULL;
    unsigned least = PLIM_NEAR_MAX;
    for (size_t i = 0; i < PLIM_COUNT_OF(verbs); i++) {
        unsigned d = plim_near(word, verbs[i].name);
        if (d < least) {
            least = d;
            best = verbs[i].name;
        }
    }
    return best;
}

const char *plim_option_nearest(const struct plim_verb *verb, const char *word)
{
    const char *best = NULL;
    unsigned least = PLIM_NEAR_MAX;
    for (size_t i = 0; i < verb->n_options; i++) {
        unsigned d = plim_near(word, verb->options[i].name);
        if (d < least) {
            least = d;
            best = verb->options[i].name;
        }
    }
    return best;
}
