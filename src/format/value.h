/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_VALUE_H
#define PLIM_FORMAT_VALUE_H

/*
 * What stands for a Python or JSON value while a snapshot is read: 16 bytes, no pointers.
 *
 * Numbers are held in place, strings as interned ids, a tuple of two integers (a pool id) as the index
 * of a pair. A dict or list is a cell: a number that leads to what the container has become (see
 * build.h), so that every reference to it sees the same thing, also when it grows later.
 * Pure data; threads: one at a time.
 */

#include "base/num.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum plim_value_kind {
    PLIM_V_NONE, /* None, null */
    PLIM_V_BOOL, /* u: 0 or 1 */
    PLIM_V_INT,  /* u: an int64_t */
    PLIM_V_UINT, /* u: a uint64_t above INT64_MAX */
    PLIM_V_BIG,  /* an integer beyond both; u: 1 when negative */
    PLIM_V_REAL, /* u: the bits of a double */
    PLIM_V_STR,  /* u: interned id; bytes are held like text */
    PLIM_V_PAIR, /* u: index of a tuple of two integers */
    PLIM_V_CELL, /* u: number of a cell: dict, list, any other tuple */
    PLIM_V_KINDS
};

struct plim_value {
    uint64_t u;
    uint64_t kind; /* enum plim_value_kind */
};

static inline struct plim_value plim__value(enum plim_value_kind kind, uint64_t u)
{
    return (struct plim_value){u, kind};
}

static inline struct plim_value plim__value_int(int64_t v)
{
    return (struct plim_value){(uint64_t)v, PLIM_V_INT};
}

static inline struct plim_value plim__value_uint(uint64_t v)
{
    return (struct plim_value){v, v > INT64_MAX ? PLIM_V_UINT : PLIM_V_INT};
}

static inline struct plim_value plim__value_real(double v)
{
    struct plim_value out = {0, PLIM_V_REAL};
    __builtin_memcpy(&out.u, &v, sizeof(v));
    return out;
}

static inline double plim__value_as_real(struct plim_value v)
{
    double d;
    __builtin_memcpy(&d, &v.u, sizeof(d));
    return d;
}

/** plim__value_u64() - a count, size, address or time: true when v is an integer of 0 to 2^64-1 (also
 * written as a whole real number, as some JSON writers do). */
static inline bool plim__value_u64(struct plim_value v, uint64_t *out)
{
    if (v.kind == PLIM_V_INT || v.kind == PLIM_V_BOOL) {
        *out = v.u;
        return (int64_t)v.u >= 0;
    }
    if (v.kind == PLIM_V_REAL) {
        double d = plim__value_as_real(v);
        if (!(d >= 0 && d < PLIM_EXACT_MAX) || d != (double)(uint64_t)d) {
            return false;
        }
        *out = (uint64_t)d;
        return true;
    }
    *out = v.u;
    return v.kind == PLIM_V_UINT;
}

/** plim__value_parse_int() - decimal digits with an optional sign; false when s is anything else. */
bool plim__value_parse_int(struct plim_str s, struct plim_value *out);

/** plim__value_long() - n bytes of little-endian two's complement; no bytes are 0. */
struct plim_value plim__value_long(const uint8_t *p, size_t n);

/* One word for a value in the memo: 4 bits of kind, 28 of payload; PLIM_PACKED_WIDE leads to a table
 * for payloads that are longer. */
#define PLIM_PACKED_BITS 28u
#define PLIM_PACKED_MAX  ((UINT64_C(1) << PLIM_PACKED_BITS) - 1)
#define PLIM_PACKED_WIDE 15u        /* not a value kind */
#define PLIM_PACKED_NONE UINT32_MAX /* an empty place in the memo */

static inline uint32_t plim__pack(struct plim_value v)
{
    return (uint32_t)(v.kind << PLIM_PACKED_BITS | v.u);
}

static inline struct plim_value plim__unpack(uint32_t packed)
{
    return (struct plim_value){packed & PLIM_PACKED_MAX, packed >> PLIM_PACKED_BITS};
}

#endif
