/* SPDX-License-Identifier: Apache-2.0 */
/* Header values; see parse.h. */

#include "http/parse.h"

#include "base/base64.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <strings.h>

static bool same_word(struct plim_str s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

/* The text up to `at` of the list `*rest`, trimmed; *rest goes behind it. */
static struct plim_str next_item(struct plim_str *rest, char at)
{
    size_t n = 0;
    while (n < rest->n && rest->p[n] != at) {
        n++;
    }
    struct plim_str item = plim_str_trim((struct plim_str){rest->p, n});
    *rest = plim_str_skip(*rest, n + 1);
    return item;
}

/* ";q=0" and ";q=0.000" forbid; every other weight allows. */
static bool forbidden(struct plim_str parameters)
{
    while (parameters.n > 0) {
        struct plim_str p = next_item(&parameters, ';');
        if (p.n >= 3 && (p.p[0] == 'q' || p.p[0] == 'Q') && p.p[1] == '=') {
            size_t i = 2;
            while (i < p.n && (p.p[i] == '0' || p.p[i] == '.')) {
                i++;
            }
            return i == p.n;
        }
    }
    return false;
}

enum plim_encoding plim_http_choose_encoding(struct plim_str accept)
{
    enum said {
        UNSAID,
        YES,
        NO
    } gzip = UNSAID, zstd = UNSAID, any = UNSAID;
    while (accept.n > 0) {
        struct plim_str item = next_item(&accept, ',');
        struct plim_str name = next_item(&item, ';');
        enum said here = forbidden(item) ? NO : YES;
        if (same_word(name, "gzip") || same_word(name, "x-gzip")) {
            gzip = here;
        } else if (same_word(name, "zstd")) {
            zstd = here;
        } else if (same_word(name, "*")) {
            any = here;
        }
    }
    if (zstd == YES || (zstd == UNSAID && any == YES)) {
        return PLIM_ENCODING_ZSTD;
    }
    return gzip == YES || (gzip == UNSAID && any == YES) ? PLIM_ENCODING_GZIP
                                                         : PLIM_ENCODING_IDENTITY;
}

bool plim_http_has_etag(struct plim_str header, struct plim_str etag)
{
    while (header.n > 0) {
        struct plim_str item = next_item(&header, ',');
        if (plim_str_starts(item, PLIM_STR("W/"))) {
            item = plim_str_skip(item, 2);
        }
        if (plim_str_eq(item, PLIM_STR("*")) || plim_str_eq(item, etag)) {
            return true;
        }
    }
    return false;
}

bool plim_http_number(struct plim_str s, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9' || __builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    return s.n > 0;
}

enum plim_range plim_http_range(struct plim_str header, uint64_t size, uint64_t *from, uint64_t *to)
{
    uint64_t first, last;
    struct plim_str rest = plim_str_trim(header);
    if (!plim_str_starts(rest, PLIM_STR("bytes=")) || memchr(rest.p, ',', rest.n)) {
        return PLIM_RANGE_ALL;
    }
    rest = plim_str_skip(rest, 6);
    struct plim_str left = next_item(&rest, '-'), right = plim_str_trim(rest);
    if (left.n == 0) { /* "-500": the last 500 bytes */
        if (!plim_http_number(right, &last)) {
            return PLIM_RANGE_ALL;
        }
        *from = last < size ? size - last : 0;
        *to = size;
        return last == 0 || size == 0 ? PLIM_RANGE_BAD : PLIM_RANGE_PART;
    }
    if (!plim_http_number(left, &first) || (right.n > 0 && !plim_http_number(right, &last))) {
        return PLIM_RANGE_ALL;
    }
    if (right.n > 0 && last < first) {
        return PLIM_RANGE_ALL;
    }
    if (first >= size) {
        return PLIM_RANGE_BAD;
    }
    *from = first;
    *to = right.n > 0 && last < size ? last + 1 : size;
    return PLIM_RANGE_PART;
}

/* Decoded bytes of a base64 text into [n] room; false: it is none, or too long. */
static bool base64(struct plim_str text, char *room, size_t n, size_t *got)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t out = 0;
    while (text.n > 0 && text.p[text.n - 1] == '=') {
        text.n--;
    }
    for (size_t i = 0; i < text.n; i++) {
        int digit = plim_base64_digit(text.p[i]);
        if (digit < 0 || out >= n) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)digit) & 0xffffu;
        held += 6;
        if (held >= 8) {
            held -= 8;
            room[out++] = (char)(bits >> held & 0xffu);
        }
    }
    *got = out;
    return true;
}

bool plim_http_credentials(struct plim_str header, char *room, size_t n, struct plim_str *out)
{
    struct plim_str rest = plim_str_trim(header);
    struct plim_str scheme = next_item(&rest, ' ');
    size_t got;
    rest = plim_str_trim(rest);
    if (same_word(scheme, "Bearer")) {
        *out = rest;
        return rest.n > 0;
    }
    if (!same_word(scheme, "Basic") || !base64(rest, room, n, &got)) {
        return false;
    }
    const char *colon = memchr(room, ':', got);
    if (!colon) {
        return false;
    }
    *out = plim_str_skip((struct plim_str){room, got}, (size_t)(colon - room) + 1);
    return out->n > 0;
}

bool plim_http_cookie(struct plim_str header, struct plim_str name, struct plim_str *out)
{
    while (header.n > 0) {
        struct plim_str value = next_item(&header, ';');
        struct plim_str key = next_item(&value, '=');
        if (plim_str_eq(key, name)) {
            *out = plim_str_trim(value);
            return true;
        }
    }
    return false;
}

struct plim_str plim_http_host_name(struct plim_str host)
{
    host = plim_str_trim(host);
    if (host.n > 0 && host.p[0] == '[') {
        host = plim_str_skip(host, 1);
        return next_item(&host, ']');
    }
    return next_item(&host, ':');
}

bool plim_http_is_loopback_name(struct plim_str name)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (same_word(name, "localhost")) {
        return true;
    }
    if (name.n == 0 || name.n >= sizeof(text)) {
        return false;
    }
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    if (inet_pton(AF_INET, text, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool plim_http_same_origin(struct plim_str origin, struct plim_str host)
{
    size_t at = plim_str_find(origin, PLIM_STR("://"));
    if (at == SIZE_MAX) {
        return false; /* "null" too */
    }
    struct plim_str page = plim_str_skip(origin, at + 3);
    host = plim_str_trim(host);
    return page.n > 0 && page.n == host.n && strncasecmp(page.p, host.p, page.n) == 0;
}

bool plim_http_match(const char *pattern, struct plim_str path, struct plim_str param[2], size_t *n)
{
    struct plim_str rest = plim_str_from(pattern);
    *n = 0;
    while (rest.n > 0) {
        if (plim_str_starts(rest, PLIM_STR("{...}"))) {
            return path.n > 0;
        }
        if (plim_str_starts(rest, PLIM_STR("{}"))) {
            size_t k = 0;
            while (k < path.n && path.p[k] != '/') {
                k++;
            }
            if (k == 0 || *n == 2) {
                return false;
            }
            param[(*n)++] = (struct plim_str){path.p, k};
            rest = plim_str_skip(rest, 2);
            path = plim_str_skip(path, k);
        } else if (path.n > 0 && path.p[0] == rest.p[0]) {
            rest = plim_str_skip(rest, 1);
            path = plim_str_skip(path, 1);
        } else {
            return false;
        }
    }
    return path.n == 0;
}

bool plim_http_same_secret(struct plim_str secret, struct plim_str given)
{
    volatile unsigned char differs = secret.n == given.n && secret.n > 0 ? 0 : 1;
    for (size_t i = 0; i < given.n; i++) {
        unsigned char ours = secret.n > 0 ? (unsigned char)secret.p[i % secret.n] : 0;
        differs = (unsigned char)(differs | (ours ^ (unsigned char)given.p[i]));
    }
    return differs == 0;
}
