/* SPDX-License-Identifier: Apache-2.0 */
/* IEC sizes: printing, and tolerant reading. */

#include "base/bytes.h"

#include "base/num.h"

#include <stdio.h>
#include <strings.h>

char *plim_bytes_format(char buf[PLIM_BYTES_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t u = 0;
    double v = (double)bytes;
    /* Step up where rounding to the decimals below would print "1024". */
    while (v >= (u >= 3 ? 1023.95 : 1023.5) && u + 1 < PLIM_COUNT_OF(units)) {
        v /= 1024;
        u++;
    }
    int decimals = u == 0 ? 0 : v < 100 ? (u >= 3 || v < 10 ? 2 : 1) : (u >= 3 ? 1 : 0);
    snprintf(buf, PLIM_BYTES_TEXT, "%.*f %s", decimals, v, units[u]);
    return buf;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Power of two of a unit at the start of s, and the bytes it takes; 0 used when there is no unit. */
static unsigned unit_shift(struct plim_str s, size_t *used)
{
    static const char letters[] = "kmgtpe";
    *used = 0;
    if (s.n == 0) {
        return 0;
    }
    char c = lower(s.p[0]);
    if (c == 'b') {
        size_t word = s.n >= 5 && strncasecmp(s.p, "bytes", 5) == 0 ? 5 : 1;
        *used = word;
        return 0;
    }
    const char *at = strchr(letters, c);
    if (!at || c == '\0') {
        return 0;
    }
    size_t n = 1;
    n += n < s.n && lower(s.p[n]) == 'i';
    n += n < s.n && lower(s.p[n]) == 'b';
    *used = n;
    return 10 * (unsigned)(at - letters + 1);
}

/* whole.fraction * 2^shift, exact up to rounding to the nearest byte. */
static bool scale(uint64_t whole, uint64_t fraction, uint64_t fraction_unit, unsigned shift,
                  uint64_t *out)
{
    uint64_t high;
    if (shift >= 64 || plim_mul_overflows(whole, UINT64_C(1) << shift, &high)) {
        return false;
    }
    double low = (double)fraction / (double)fraction_unit * (double)(UINT64_C(1) << shift);
    return !plim_add_overflows(high, (uint64_t)(low + 0.5), out);
}

enum plim_status plim_bytes_parse(struct plim_str s, uint64_t *bytes, size_t *used,
                                  struct plim_err *err)
{
    size_t i = 0;
    uint64_t whole = 0, fraction = 0, fraction_unit = 1;
    for (; i < s.n && is_digit(s.p[i]); i++) {
        if (plim_mul_overflows(whole, 10, &whole) ||
            plim_add_overflows(whole, (uint64_t)(s.p[i] - '0'), &whole)) {
            return plim__fail(err, PLIM_E_RANGE, "size beyond 2^64: '%.*s'", PLIM_STR_ARG(s));
        }
    }
    if (i == 0) {
        return plim__fail(err, PLIM_E_USAGE, "not a size: '%.*s'", PLIM_STR_ARG(s));
    }
    if (i + 1 < s.n && s.p[i] == '.' && is_digit(s.p[i + 1])) {
        for (i++; i < s.n && is_digit(s.p[i]); i++) {
            if (fraction_unit < UINT64_C(1000000000000)) {
                fraction = fraction * 10 + (uint64_t)(s.p[i] - '0');
                fraction_unit *= 10;
            }
        }
    }
    size_t blank = i < s.n && s.p[i] == ' ', unit;
    unsigned shift = unit_shift(plim_str_skip(s, i + blank), &unit);
    size_t end = unit ? i + blank + unit : i;
    if (!used && end != s.n) {
        return plim__fail(err, PLIM_E_USAGE, "not a size: '%.*s' (write 24GiB, 81559MiB or bytes)",
                          PLIM_STR_ARG(s));
    }
    if (!scale(whole, fraction, fraction_unit, shift, bytes)) {
        return plim__fail(err, PLIM_E_RANGE, "size beyond 2^64: '%.*s'", PLIM_STR_ARG(s));
    }
    if (used) {
        *used = end;
    }
    return PLIM_OK;
}
