/* SPDX-License-Identifier: Apache-2.0 */
/* Searching and trimming of borrowed byte runs. */

#include "base/str.h"

size_t plim_str_find(struct plim_str s, struct plim_str needle)
{
    if (needle.n == 0) {
        return 0;
    }
    if (needle.n > s.n) {
        return SIZE_MAX;
    }
    const char *end = s.p + (s.n - needle.n) + 1;
    for (const char *at = s.p; at < end; at++) {
        at = memchr(at, needle.p[0], (size_t)(end - at));
        if (!at) {
            break;
        }
        if (memcmp(at, needle.p, needle.n) == 0) {
            return (size_t)(at - s.p);
        }
    }
    return SIZE_MAX;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct plim_str plim_str_trim(struct plim_str s)
{
    while (s.n > 0 && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}
