/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_STR_H
#define PLIM_BASE_STR_H

/*
 * A borrowed run of bytes: never owned, not NUL-terminated, may hold any byte. The empty string has
 * n == 0; p may then be anything but is never dereferenced.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct plim_str {
    const char *p;
    size_t n; /* bytes */
};

/* A literal as plim_str, and the two arguments of a "%.*s". */
#define PLIM_STR(literal) ((struct plim_str){"" literal, sizeof(literal) - 1})
#define PLIM_STR_ARG(s)   ((int)((s).n > 1 << 20 ? 1 << 20 : (s).n)), (s).p

static inline struct plim_str plim_str_from(const char *z)
{
    return (struct plim_str){z, strlen(z)};
}

static inline bool plim_str_eq(struct plim_str a, struct plim_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool plim_str_starts(struct plim_str s, struct plim_str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

static inline bool plim_str_ends(struct plim_str s, struct plim_str suffix)
{
    return s.n >= suffix.n &&
           (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}

/* The same of two C strings. */
static inline bool plim_ends_with(const char *text, const char *suffix)
{
    return plim_str_ends(plim_str_from(text), plim_str_from(suffix));
}

static inline struct plim_str plim_str_skip(struct plim_str s, size_t n)
{
    n = n > s.n ? s.n : n;
    return (struct plim_str){s.p + n, s.n - n};
}

/* Offset of the first `needle` in `s`, or SIZE_MAX. An empty needle is found at 0. */
size_t plim_str_find(struct plim_str s, struct plim_str needle);

/* Without leading and trailing space, tab, CR, LF. */
struct plim_str plim_str_trim(struct plim_str s);

/* Length of the valid UTF-8 character at the start of s, or 0 (RFC 3629: no overlong forms, no surrogates). */
size_t plim_str_utf8(struct plim_str s);

#endif
