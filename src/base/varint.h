/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_VARINT_H
#define PLIM_BASE_VARINT_H

/*
 * Numbers of as few bytes as they need: seven bits a byte, the lowest first, the top bit set on all but the last
 * (LEB128). Signed numbers are folded first, so that small ones of either sign are short.
 * Threads: pure functions over the caller's buffers.
 */

#include "base/buf.h"

#define PLIM_VARINT_MAX 10 /* bytes of the longest */

void plim__varint_put(struct plim_buf *out, uint64_t v);

static inline uint64_t plim__zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0);
}

static inline int64_t plim__unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* A place in bytes that are being read. After the first failure `bad` stays set and values are 0. */
struct plim_cursor {
    const uint8_t *p;
    const uint8_t *end;
    bool bad;
};

static inline struct plim_cursor plim__cursor(struct plim_str s)
{
    const uint8_t *p = (const uint8_t *)s.p;
    return (struct plim_cursor){p, p + s.n, false};
}

uint64_t plim__varint_get(struct plim_cursor *c);

/* A text or other bytes with their length before them; borrowed. */
void plim__text_put(struct plim_buf *out, struct plim_str s);
struct plim_str plim__text_get(struct plim_cursor *c);

#endif
