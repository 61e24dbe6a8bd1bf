/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of traffic files: names of columns, whole numbers, times. */

#include "format/traffic_internal.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>

#define NS_PER_S 1000000000LL

enum plim__traffic_column plim__traffic_column(struct plim_str name, uint64_t *unit_ns)
{
    static const struct {
        enum plim__traffic_column column;
        const char *name;
        uint64_t unit_ns;
    } known[] = {
#define X(column, name, unit) {PLIM__TRAFFIC_##column, name, unit},
#include "format/traffic_columns.def"
#undef X
    };
    char key[32];
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        c = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        bool counts = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (counts && n + 1 >= sizeof key) {
            return PLIM__TRAFFIC_UNKNOWN;
        }
        key[n] = c;
        n += counts ? 1 : 0;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(known); i++) {
        if (plim_str_eq(plim_str_from(known[i].name), (struct plim_str){key, n})) {
            *unit_ns = known[i].unit_ns > 0 ? known[i].unit_ns : *unit_ns;
            return known[i].column;
        }
    }
    return PLIM__TRAFFIC_UNKNOWN;
}

/* ---- numbers --------------------------------------------------------------------------------------- */

/* Digits from *at on, at most `most` of them; false: none, or too large. */
static bool digits(struct plim_str s, size_t *at, size_t most, uint64_t *value)
{
    size_t from = *at;
    uint64_t v = 0;
    while (*at < s.n && *at - from < most && s.p[*at] >= '0' && s.p[*at] <= '9') {
        if (plim_mul_overflows(v, 10, &v) ||
            plim_add_overflows(v, (uint64_t)(s.p[*at] - '0'), &v)) {
            return false;
        }
        (*at)++;
    }
    *value = v;
    return *at > from;
}

/* What is behind a decimal point, in units of 1/10^9; digits beyond that are dropped. */
static bool fraction(struct plim_str s, size_t *at, uint64_t *billionths)
{
    uint64_t v = 0, scale = NS_PER_S;
    size_t from = *at;
    for (; *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9'; (*at)++) {
        scale /= 10;
        v += scale * (uint64_t)(s.p[*at] - '0');
    }
    *billionths = v;
    return *at > from;
}

/* Anything else that strtod() takes whole, such as 1.5e3. */
static bool real(struct plim_str s, double *value)
{
    char buf[64];
    char *end = NULL;
    if (s.n == 0 || s.n >= sizeof buf) {
        return false;
    }
    memcpy(buf, s.p, s.n);
    buf[s.n] = '\0';
    *value = strtod(buf, &end);
    return end == buf + s.n && isfinite(*value);
}

/* An optional sign; true for minus. */
static bool sign(struct plim_str s, size_t *at)
{
    bool minus = s.n > 0 && s.p[0] == '-';
    *at = s.n > 0 && (s.p[0] == '-' || s.p[0] == '+') ? 1 : 0;
    return minus;
}

bool plim__traffic_count(struct plim_str text, int64_t *count)
{
    struct plim_str s = plim_str_trim(text);
    size_t at;
    uint64_t whole = 0, rest = 0;
    double value = 0;
    bool minus = sign(s, &at);
    bool plain = digits(s, &at, SIZE_MAX, &whole) && at == s.n;
    if (plain && whole > INT64_MAX) {
        return false;
    }
    if (plain) {
        *count = minus ? -(int64_t)whole : (int64_t)whole;
        return true;
    }
    if (at < s.n && s.p[at] == '.' && whole <= INT64_MAX) {
        at++;
        if (fraction(s, &at, &rest) && at == s.n && rest == 0) {
            *count = minus ? -(int64_t)whole : (int64_t)whole;
            return true;
        }
    }
    if (real(s, &value) && fabs(value) < 9e15 && floor(value) == value) {
        *count = (int64_t)value;
        return true;
    }
    return false;
}

/* A number of units with its fraction, exactly. */
static bool number_time(struct plim_str s, uint64_t unit_ns, int64_t *ns)
{
    size_t at;
    uint64_t whole = 0, part = 0;
    double value = 0;
    bool minus = sign(s, &at);
    bool plain = digits(s, &at, SIZE_MAX, &whole);
    if (plain && at < s.n && s.p[at] == '.') {
        at++;
        plain = fraction(s, &at, &part) || at == s.n;
    }
    if (!plain || at != s.n) {
        if (!real(s, &value) || fabs(value * (double)unit_ns) >= 9.2e18) {
            return false;
        }
        *ns = (int64_t)llround(value * (double)unit_ns);
        return true;
    }
    /* part < 10^9 and units are at most an hour or so: the product fits, or the time is refused. */
    uint64_t total = 0, small = 0;
    if (plim_mul_overflows(whole, unit_ns, &total) || plim_mul_overflows(part, unit_ns, &small) ||
        plim_add_overflows(total, small / NS_PER_S, &total) || total > INT64_MAX) {
        return false;
    }
    *ns = minus ? -(int64_t)total : (int64_t)total;
    return true;
}

/* ---- dates ----------------------------------------------------------------------------------------- */

/* Days from 1970-01-01 in the Gregorian calendar: years begin in March, so that the leap day is last. */
static int64_t days_from_civil(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2;
    int64_t era = y / 400; /* years are positive here */
    int64_t year = y - era * 400;
    int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
}

/* "Z", "+02:00", "-0530" or nothing behind the time of day, in seconds. */
static bool zone(struct plim_str s, size_t at, int64_t *offset)
{
    *offset = 0;
    if (at == s.n || (at + 1 == s.n && (s.p[at] == 'Z' || s.p[at] == 'z'))) {
        return true;
    }
    if (s.p[at] != '+' && s.p[at] != '-') {
        return false;
    }
    int64_t direction = s.p[at++] == '-' ? -1 : 1;
    uint64_t hours, minutes = 0;
    if (!digits(s, &at, 2, &hours)) {
        return false;
    }
    at += at < s.n && s.p[at] == ':' ? 1 : 0;
    if (at < s.n && !digits(s, &at, 2, &minutes)) {
        return false;
    }
    *offset = direction * (int64_t)(hours * 3600 + minutes * 60);
    return at == s.n && hours < 24 && minutes < 60;
}

/* The separator at *at, skipped. */
static bool skip(struct plim_str s, size_t *at, char c)
{
    bool there = *at < s.n && s.p[*at] == c;
    *at += there ? 1 : 0;
    return there;
}

/* "2023-11-16 18:15:46.6805900", with T for the blank, any fraction, and an optional zone. */
static bool date_time(struct plim_str s, int64_t *ns)
{
    size_t at = 0;
    uint64_t y, mo, d, h, mi, sec, part = 0;
    int64_t offset;
    if (!digits(s, &at, 4, &y) || !skip(s, &at, '-') || !digits(s, &at, 2, &mo) ||
        !skip(s, &at, '-') || !digits(s, &at, 2, &d) || !(skip(s, &at, ' ') || skip(s, &at, 'T')) ||
        !digits(s, &at, 2, &h) || !skip(s, &at, ':') || !digits(s, &at, 2, &mi) ||
        !skip(s, &at, ':') || !digits(s, &at, 2, &sec)) {
        return false;
    }
    if (skip(s, &at, '.') && !fraction(s, &at, &part)) {
        return false;
    }
    bool valid = y >= 1700 && y <= 2200 && mo >= 1 && mo <= 12 && d >= 1 && d <= 31 && h < 24 &&
                 mi < 60 && sec <= 60;
    if (!valid || !zone(s, at, &offset)) {
        return false;
    }
    int64_t days = days_from_civil((int64_t)y, (int64_t)mo, (int64_t)d);
    int64_t seconds = days * 86400 + (int64_t)(h * 3600 + mi * 60 + sec) - offset;
    *ns = seconds * NS_PER_S + (int64_t)part;
    return true;
}

bool plim__traffic_time(struct plim_str text, uint64_t unit_ns, int64_t *ns)
{
    struct plim_str s = plim_str_trim(text);
    return date_time(s, ns) || number_time(s, unit_ns, ns);
}
