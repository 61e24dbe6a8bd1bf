/* SPDX-License-Identifier: Apache-2.0 */
/* See family.h. */

#include "serving/family.h"

#include "base/num.h"
#include "serving/geometry.h"

#define T(name) PLIM__T(name)

static const struct plim__family families[] = {
#include "serving/family_rows.def"
};

/* Is `word` one of the words of `list`? */
static bool has_word(const char *list, struct plim_str word)
{
    for (const char *at = list; *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (n == word.n && memcmp(at, word.p, n) == 0) {
            return true;
        }
        at += n + strspn(at + n, " ");
    }
    return false;
}

const struct plim__family *plim__family_of_class(const char *architecture)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(families); i++) {
        if (has_word(families[i].classes, plim_str_from(architecture))) {
            return &families[i];
        }
    }
    return NULL;
}

const struct plim__family *plim__family_of_type(const char *model_type)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(families); i++) {
        if (has_word(families[i].types, plim_str_from(model_type))) {
            return &families[i];
        }
    }
    return NULL;
}

/* Letters that two names share at their beginnings. */
static size_t common_start(const char *a, const char *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] != '\0' && (a[i] | 32) == (b[i] | 32)) {
        i++;
    }
    return i;
}

const char *plim__family_nearest(const char *name)
{
    const struct plim__family *best = &families[0];
    size_t most = 0;
    for (size_t i = 0; i < PLIM_COUNT_OF(families); i++) {
        const char *list = families[i].types;
        size_t same = common_start(name, list, strcspn(list, " "));
        if (same > most) {
            most = same;
            best = &families[i];
        }
    }
    return best->types;
}
