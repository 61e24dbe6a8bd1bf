/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_NUM_H
#define PLIM_BASE_NUM_H

/* Checked and saturating arithmetic on byte counts. All pure, all O(1). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return true when the exact result does not fit; *out is then untouched. */
static inline bool plim_add_overflows(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return true;
    }
    *out = r;
    return false;
}

static inline bool plim_mul_overflows(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return true;
    }
    *out = r;
    return false;
}

/* Saturate at 0 or UINT64_MAX instead of wrapping. */
static inline uint64_t plim_sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t plim_add_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline uint64_t plim_mul_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* The whole part of a number; what is no number, or below 0, is 0, and what is too large is `most`. */
static inline uint64_t plim_u64_of(double number, uint64_t most)
{
    return !(number > 0) ? 0 : number < (double)most ? (uint64_t)number : most;
}

/* n rounded up to a multiple of `unit` (a power of two or not, > 0); saturates at UINT64_MAX. */
static inline uint64_t plim_round_up(uint64_t n, uint64_t unit)
{
    uint64_t rem = n % unit;
    return rem == 0 ? n : plim_add_sat(n, unit - rem);
}

/* n / unit rounded up; unit > 0. */
static inline uint64_t plim_ceil_div(uint64_t n, uint64_t unit)
{
    return n / unit + (n % unit != 0);
}

static inline uint64_t plim_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t plim_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Finalizer of MurmurHash3 (public domain, Austin Appleby): no address pattern degenerates. */
static inline uint64_t plim_hash_u64(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x;
}

#define PLIM_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* 2^53: up to here every whole number is exact in a double. */
#define PLIM_EXACT_MAX 9007199254740992.0

/* Bytes that no machine holds. Amounts of an input that are larger are refused or cut to it, so that a few of
 * them can be added and subtracted in 64 bits with a sign. */
#define PLIM_AMOUNT_MAX (INT64_C(1) << 58)

#define PLIM_KIB (UINT64_C(1) << 10)
#define PLIM_MIB (UINT64_C(1) << 20)
#define PLIM_GIB (UINT64_C(1) << 30)

#endif
