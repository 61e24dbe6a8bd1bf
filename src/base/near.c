/* SPDX-License-Identifier: Apache-2.0 */
/* Nearness of words: see near.h. */

#include "base/near.h"

#include <stddef.h>
#include <string.h>

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

static unsigned distance(const char *a, const char *b)
{
    size_t na = strlen(a);
    size_t nb = strlen(b);
    if (na > PLIM_NEAR_MAX || nb > PLIM_NEAR_MAX) {
        return PLIM_NEAR_MAX;
    }
    unsigned d[PLIM_NEAR_MAX + 1][PLIM_NEAR_MAX + 1];
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

unsigned plim_near(const char *word, const char *name)
{
    size_t n = strlen(word);
    if (n >= 3 && strncmp(word, name, n) == 0) {
        return 0;
    }
    unsigned d = distance(word, name);
    return d <= 1 + n / 3 && d < n ? d : PLIM_NEAR_MAX;
}
