/* SPDX-License-Identifier: Apache-2.0 */
/* Decimal integers as values: exact in the range of int64_t and uint64_t, marked as too big beyond. */

#include "format/value.h"

#include "base/num.h"

bool plim__value_parse_int(struct plim_str s, struct plim_value *out)
{
    bool negative = s.n > 0 && s.p[0] == '-';
    bool big = false;
    uint64_t v = 0;
    s = plim_str_skip(s, s.n > 0 && (s.p[0] == '-' || s.p[0] == '+') ? 1 : 0);
    if (s.n == 0) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';
        if (digit > 9) {
            return false;
        }
        big = big || plim_mul_overflows(v, 10, &v) || plim_add_overflows(v, digit, &v);
    }
    if (big || (negative && v > UINT64_C(1) << 63)) {
        *out = plim__value(PLIM_V_BIG, negative);
    } else if (negative) {
        *out = plim__value(PLIM_V_INT, -v);
    } else {
        *out = plim__value_uint(v);
    }
    return true;
}

struct plim_value plim__value_long(const uint8_t *p, size_t n)
{
    bool negative = n > 0 && (p[n - 1] & 0x80);
    uint8_t fill = negative ? 0xff : 0;
    uint64_t v = negative ? UINT64_MAX : 0;
    while (n > 8 && p[n - 1] == fill && (n > 9 || !negative || (p[n - 2] & 0x80))) {
        n--; /* bytes that only repeat the sign; a ninth one tells 2^63 and above from below 0 */
    }
    if (n > 8) {
        return plim__value(PLIM_V_BIG, negative);
    }
    for (size_t i = n; i > 0; i--) {
        v = v << 8 | p[i - 1];
    }
    return negative ? plim__value(PLIM_V_INT, v) : plim__value_uint(v);
}
