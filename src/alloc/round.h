/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_ROUND_H
#define PLIM_ALLOC_ROUND_H

/*
 * From requested bytes to block bytes to driver bytes, as PyTorch's native allocator does it.
 *
 *   requested  what the caller asked for, >= 1
 *   rounded    block size: a multiple of 512, or of a fraction of a power of two when
 *              roundup_power2_divisions says so
 *   driver     bytes asked from the driver when no cached block fits
 *
 * Requests of 2^60 bytes and more never get here (the allocator refuses them first), so nothing below
 * overflows. All pure, O(1).
 * Source: torch 2.14.1 c10/core/AllocatorConfig.h (constants); behaviour observed on the library.
 */

#include "base/num.h"

#define PLIM_TORCH_MIN_BLOCK     UINT64_C(512)
#define PLIM_TORCH_SMALL_SIZE    PLIM_MIB            /* rounded sizes up to this are "small" */
#define PLIM_TORCH_SMALL_SEGMENT (2 * PLIM_MIB)      /* driver bytes for those; their page */
#define PLIM_TORCH_MIN_LARGE     (10 * PLIM_MIB)     /* from here on no shared segments */
#define PLIM_TORCH_ROUND_LARGE   (2 * PLIM_MIB)      /* unit of driver bytes from there on */
#define PLIM_TORCH_LARGE_SEGMENT (20 * PLIM_MIB)     /* default of large_segment_size_mb */
#define PLIM_TORCH_TOO_LARGE     (UINT64_C(1) << 60) /* refused: "more than 1EB memory" */
#define PLIM_ROUND_INTERVALS     16                  /* 1 MiB, 2 MiB ... 32 GiB and above */

/** plim_round_request() - block size for n requested bytes; divisions[i] is a power of two or 0. */
static inline uint64_t plim_round_request(uint64_t n,
                                          const uint64_t divisions[PLIM_ROUND_INTERVALS])
{
    if (n < PLIM_TORCH_MIN_BLOCK) {
        return PLIM_TORCH_MIN_BLOCK;
    }
    unsigned lg = 63u - (unsigned)__builtin_clzll(n);
    unsigned interval = lg < 20 ? 0 : lg - 20;
    uint64_t d = divisions[interval < 15 ? interval : 15];
    if (d > 1 && n > PLIM_TORCH_MIN_BLOCK * d) {
        uint64_t power = UINT64_C(1) << lg;
        uint64_t step = power >> (63u - (unsigned)__builtin_clzll(d));
        if (step == 0) { /* only for divisions so large that 512 * d wraps */
            return n == power ? n : 2 * power;
        }
        return (n + step - 1) & ~(step - 1);
    }
    return (n + PLIM_TORCH_MIN_BLOCK - 1) & ~(PLIM_TORCH_MIN_BLOCK - 1);
}

/** plim_round_segment() - driver bytes for a block of `rounded` bytes. */
static inline uint64_t plim_round_segment(uint64_t rounded, uint64_t large_segment)
{
    if (rounded <= PLIM_TORCH_SMALL_SIZE) {
        return PLIM_TORCH_SMALL_SEGMENT;
    }
    if (rounded < PLIM_TORCH_MIN_LARGE) {
        return large_segment;
    }
    return (rounded + PLIM_TORCH_ROUND_LARGE - 1) & ~(PLIM_TORCH_ROUND_LARGE - 1);
}

#endif
