/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tables of verbs and options, expanded from options.h, and look-ups in them. A name that is not there
 * gets a suggestion: the nearest one by the number of changed, missing, surplus or swapped letters.
 */

#include "cli/verbs.h"

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

#define NEAR_MAX 31 /* longer words are not compared */

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

/* Optimal string alignment distance; O(|a| |b|), at most NEAR_MAX letters each. */
static unsigned distance(const char *a, const char *b)
{
    size_t na = strlen(a);
    size_t nb = strlen(b);
    if (na > NEAR_MAX || nb > NEAR_MAX) {
        return NEAR_MAX;
    }
    unsigned d[NEAR_MAX + 1][NEAR_MAX + 1];
    for (size_t i = 0; i <= na; i++) {
        d[i][0] = (unsigned)i;
    }
    for (size_t j = 0; j <= nb; j++) {
        d[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            unsigned swap = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                swap = min3(swap, d[i - 2][j - 2] + 1, swap);
            }
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, swap);
        }
    }
    return d[na][nb];
}

/* Near enough to be worth saying: a third of the letters, or one is the beginning of the other. */
static unsigned unlikeness(const char *word, const char *name)
{
    size_t n = strlen(word);
    if (n >= 3 && strncmp(word, name, n) == 0) {
        return 0;
    }
    unsigned d = distance(word, name);
    return d <= 1 + n / 3 && d < n ? d : NEAR_MAX;
}

const char *plim_verb_nearest(const char *word)
{
    const char *best = NULL;
    unsigned least = NEAR_MAX;
    for (size_t i = 0; i < PLIM_COUNT_OF(verbs); i++) {
        unsigned d = unlikeness(word, verbs[i].name);
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
    unsigned least = NEAR_MAX;
    for (size_t i = 0; i < verb->n_options; i++) {
        unsigned d = unlikeness(word, verb->options[i].name);
        if (d < least) {
            least = d;
            best = verb->options[i].name;
        }
    }
    return best;
}
