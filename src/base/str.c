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

size_t plim_str_utf8(struct plim_str s)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xc2 && c < 0xe0 ? 2
               : c >= 0xe0 && c < 0xf0 ? 3
               : c >= 0xf0 && c < 0xf5 ? 4
                                       : 0;
    if (n == 0 || n > s.n) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s.p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    unsigned char d = n > 1 ? (unsigned char)s.p[1] : 0;
    bool bad = (c == 0xe0 && d < 0xa0) || (c == 0xed && d >= 0xa0) || (c == 0xf0 && d < 0x90) ||
               (c == 0xf4 && d >= 0x90);
    return bad ? 0 : n;
}
