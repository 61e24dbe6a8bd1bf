/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_ARENA_H
#define PLIM_BASE_ARENA_H

/*
 * Arena: memory that dies together. Chained chunks, bump allocation, an optional byte budget so that
 * hostile input cannot take the machine. Nothing is freed singly. Unused space is poisoned under
 * AddressSanitizer.
 * Invariants: used <= budget when a budget is set; each returned pointer is 16-byte aligned.
 * Threads: one thread at a time.
 */

#include "base/err.h"
#include "base/str.h"

struct plim_arena_chunk;

struct plim_arena {
    struct plim_arena_chunk *head; /* owned, newest first */
    uint64_t used;                 /* bytes obtained from the system, chunk headers included */
    uint64_t budget;               /* most bytes `used` may reach; UINT64_MAX = none */
    bool starved;                  /* a plim_arena_sayf() found no room */
};

/* A point to go back to. Valid until an earlier mark of the same arena is rewound. */
struct plim_arena_mark {
    struct plim_arena_chunk *head;
    size_t fill; /* bytes used in `head` */
};

/** plim_arena_init() - an empty arena; takes no memory yet. budget 0 means none. */
void plim_arena_init(struct plim_arena *arena, uint64_t budget);

/** plim_arena_fini() - give everything back; the arena is empty and usable again. */
void plim_arena_fini(struct plim_arena *arena);

/**
 * plim_arena_alloc() - n zeroed bytes, 16-byte aligned, arena-owned.
 * n == 0 gives a valid pointer. Errors: PLIM_E_NOMEM, PLIM_E_BUDGET. Cost: O(1), O(n) to zero.
 */
PLIM_MUST_USE enum plim_status plim_arena_alloc(struct plim_arena *arena, size_t n, void **out,
                                                struct plim_err *err);

/** plim_arena_array() - n zeroed elements of `size` bytes, with the product checked. */
PLIM_MUST_USE enum plim_status plim_arena_array(struct plim_arena *arena, size_t n, size_t size,
                                                void **out, struct plim_err *err);

/** plim_arena_str() - an arena-owned copy of s with a NUL behind it (not counted in n). */
PLIM_MUST_USE enum plim_status plim_arena_str(struct plim_arena *arena, struct plim_str s,
                                              struct plim_str *out, struct plim_err *err);

/** plim_arena_text() - the same of a NUL-terminated text. */
PLIM_MUST_USE enum plim_status plim_arena_text(struct plim_arena *arena, const char *z,
                                               const char **out, struct plim_err *err);

/**
 * plim_arena_sayf() - a formatted, NUL-terminated, arena-owned text, for sentences that are built by the
 * dozen. Never NULL: when there is no room it returns "" and the arena is `starved`; ask once at the end
 * with plim_arena_status().
 */
const char *plim_arena_sayf(struct plim_arena *arena, const char *fmt, ...) PLIM_PRINTF(2, 3);
PLIM_MUST_USE enum plim_status plim_arena_status(const struct plim_arena *arena,
                                                 struct plim_err *err);

/** plim_arena_mark()/plim_arena_rewind() - drop everything allocated since the mark. */
struct plim_arena_mark plim_arena_mark(const struct plim_arena *arena);
void plim_arena_rewind(struct plim_arena *arena, struct plim_arena_mark mark);

#endif
