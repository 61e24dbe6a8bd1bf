/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as programs print them in messages: "2.26 GiB", "43.64GiB", "805,306,368", "6.25 MB".
 * All units are binary (programs of this field write MB and mean MiB). The last printed digit tells
 * how far the true number can be from the printed one (`slop`).
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#include <math.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* digits[,digits][.digits]: value, the place value of the last digit, and exact integer part. */
struct number {
    uint64_t whole; /* saturating */
    double real;
    double last; /* 1, 0.1, 0.01 ... */
    size_t n;    /* bytes */
};

/* A comma separates thousands when three digits follow, and is a decimal comma otherwise. */
static bool groups_at(struct plim_str s, size_t comma)
{
    size_t digits = 0;
    while (comma + 1 + digits < s.n && is_digit(s.p[comma + 1 + digits])) {
        digits++;
    }
    return digits == 3;
}

static struct number read_number(struct plim_str s, bool fraction)
{
    struct number num = {.last = 1};
    size_t i = 0;
    for (; i < s.n && (is_digit(s.p[i]) || (i > 0 && s.p[i] == ',' && groups_at(s, i))); i++) {
        if (s.p[i] != ',') {
            uint64_t digit = (uint64_t)(s.p[i] - '0');
            num.whole = num.whole > (UINT64_MAX - digit) / 10 ? UINT64_MAX : num.whole * 10 + digit;
            num.real = num.real * 10 + (double)digit;
        }
    }
    if (fraction && i > 0 && i + 1 < s.n && (s.p[i] == '.' || s.p[i] == ',') &&
        is_digit(s.p[i + 1])) {
        for (i++; i < s.n && is_digit(s.p[i]); i++) {
            num.last /= 10;
            num.real += (s.p[i] - '0') * num.last;
        }
    }
    num.n = i;
    return num;
}

/* "GiB", "GB", "G", "bytes" ... at the start of s: its power of two; *used == 0 when there is none. */
static unsigned read_unit(struct plim_str s, size_t *used)
{
    static const char letters[] = "kmgtpe";
    *used = 0;
    if (s.n == 0 || !is_letter(s.p[0])) {
        return 0;
    }
    unsigned shift = 0;
    size_t n = 0;
    char c = plim__oom_fold(s.p[0]);
    const char *at = strchr(letters, c);
    if (at) {
        shift = 10 * (unsigned)(at - letters + 1);
        n = 1;
        n += n < s.n && s.p[n] == 'i';
        n += n < s.n && (s.p[n] == 'B' || s.p[n] == 'b');
    } else if (s.n >= 5 && plim__oom_fold(s.p[1]) == 'y' && c == 'b') {
        n = s.p[4] == 's' ? 5 : 4;
    } else if (c == 'b') {
        n = 1;
    } else {
        return 0;
    }
    if (n < s.n && is_letter(s.p[n])) {
        return 0; /* a word that only begins like a unit */
    }
    *used = n;
    return shift;
}

static uint64_t saturate(double bytes)
{
    return bytes >= 18446744073709551615.0 ? UINT64_MAX : (uint64_t)(bytes + 0.5);
}

static void scaled(const struct number *num, unsigned shift, struct plim_oom_value *out)
{
    double unit = ldexp(1.0, (int)shift);
    bool whole = num->last >= 1;
    out->n = whole && shift == 0 ? num->whole : saturate(num->real * unit);
    out->slop = shift == 0 ? 0 : saturate(num->last * unit / 2);
}

static size_t read_size(struct plim_str s, struct plim_oom_value *out)
{
    struct number num = read_number(s, true);
    size_t i = num.n, used;
    if (i == 0) {
        return 0;
    }
    while (i < s.n && is_blank(s.p[i])) {
        i++;
    }
    unsigned shift = read_unit(plim_str_skip(s, i), &used);
    if (used == 0) {
        return 0;
    }
    scaled(&num, shift, out);
    out->real = num.real;
    return i + used;
}

/* Bytes of an element by the name that TensorFlow prints (framework/types.cc); 0 for unknown ones. */
static unsigned element_bytes(struct plim_str name)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {
        {"float", 4}, {"half", 2},   {"bfloat16", 2}, {"double", 8},    {"bool", 1},
        {"int8", 1},  {"uint8", 1},  {"int16", 2},    {"uint16", 2},    {"int32", 4},
        {"int64", 8}, {"uint32", 4}, {"uint64", 8},   {"complex64", 8}, {"complex128", 16},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(types); i++) {
        if (plim_str_eq(name, plim_str_from(types[i].name))) {
            return types[i].bytes;
        }
    }
    return 0;
}

/* "[2,3,4] and type float": the tensor's bytes. A size beyond 2^64, or a negative one, is none. */
static size_t read_shape(struct plim_str s, struct plim_oom_value *out)
{
    static const struct plim_str between = {"] and type ", 11};
    uint64_t elements = 1;
    size_t i = 0;
    do {
        uint64_t extent = 0;
        size_t digits = 0;
        for (i++; i < s.n && is_digit(s.p[i]) && digits < 18; i++, digits++) {
            extent = extent * 10 + (uint64_t)(s.p[i] - '0');
        }
        if (digits == 0 || plim_mul_overflows(elements, extent, &elements)) {
            return 0;
        }
    } while (i < s.n && s.p[i] == ',');
    if (s.p[0] != '[' || !plim_str_starts(plim_str_skip(s, i), between)) {
        return 0;
    }
    size_t name = i += between.n;
    while (i < s.n && (is_letter(s.p[i]) || is_digit(s.p[i]))) {
        i++;
    }
    unsigned bytes = element_bytes((struct plim_str){s.p + name, i - name});
    if (bytes == 0 || elements == 0 || plim_mul_overflows(elements, bytes, &out->n)) {
        return 0;
    }
    out->real = (double)elements;
    return i;
}

size_t plim__oom_number(struct plim_str s, enum plim__oom_type type, struct plim_oom_value *out)
{
    struct plim_oom_value value = {.set = true};
    size_t n;
    if (type == PLIM__OOM_SIZE) {
        n = read_size(s, &value);
    } else if (type == PLIM__OOM_SHAPE) {
        n = s.n > 0 ? read_shape(s, &value) : 0;
    } else {
        bool fraction = type == PLIM__OOM_REAL || type == PLIM__OOM_MIB || type == PLIM__OOM_GIB;
        struct number num = read_number(s, fraction);
        n = num.n;
        scaled(&num, type == PLIM__OOM_MIB ? 20 : type == PLIM__OOM_GIB ? 30 : 0, &value);
        value.real = num.real;
    }
    if (n > 0) {
        *out = value;
    }
    return n;
}
