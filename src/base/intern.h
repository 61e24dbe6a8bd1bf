/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_INTERN_H
#define PLIM_BASE_INTERN_H

/*
 * String interner: equal bytes get equal 32-bit ids, 0, 1, 2 ... in order of first appearance.
 * Real snapshots repeat the same file names a million times. The bytes are copied once and stay
 * where they are until fini. Threads: one writer or many readers.
 */

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"

#define PLIM_NO_ID UINT32_MAX /* "absent" wherever an interned id may be missing */

struct plim_intern {
    struct plim_arena arena;        /* the bytes */
    PLIM_VEC(struct plim_str) strs; /* id -> string, borrowed from the arena, NUL behind each */
    PLIM_VEC(uint64_t) hashes;      /* id -> hash */
    uint32_t *slots;                /* owned, [mask + 1]: id or PLIM_NO_ID */
    size_t mask;
};

/** plim_intern_init() - budget: most bytes of string storage, 0 = none. */
void plim_intern_init(struct plim_intern *in, uint64_t budget);
void plim_intern_fini(struct plim_intern *in);

/** plim_intern_put() - id of s, added when new. Errors: PLIM_E_NOMEM, PLIM_E_BUDGET. */
PLIM_MUST_USE enum plim_status plim_intern_put(struct plim_intern *in, struct plim_str s,
                                               uint32_t *id, struct plim_err *err);

/** plim_intern_find() - id of s, or PLIM_NO_ID when it was never put. */
uint32_t plim_intern_find(const struct plim_intern *in, struct plim_str s);

/** plim_intern_str() - the string of an id, borrowed; empty for PLIM_NO_ID or an unknown id. */
struct plim_str plim_intern_str(const struct plim_intern *in, uint32_t id);

/** plim_hash_bytes() - XXH3 64-bit hash of n bytes. */
uint64_t plim_hash_bytes(const void *p, size_t n);

#endif
