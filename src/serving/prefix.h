/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_PREFIX_H
#define PLIM_SERVING_PREFIX_H

/*
 * The prefix cache of a paged engine, by the hashes that traffic carries: a hash names a run of prompt tokens
 * with everything before it, so a request whose list begins with known hashes need not compute them.
 *
 *   entry   a hash whose keys and values are in the pool
 *   held    by so many running requests
 *   idle    held by none: its blocks count as free, and are taken back from the one used longest ago
 *
 * As in vLLM, blocks that are cached but not referenced are free blocks. An entry is made when its request
 * leaves; requests that compute the same prefix at the same time do so twice.
 * Threads: one at a time. Cost: O(1) for each hash.
 */

#include "base/map.h"
#include "base/vec.h"

struct plim__prefix_entry {
    uint64_t key;
    uint32_t held;
    uint32_t older, newer; /* among idle ones; PLIM__PREFIX_NONE at the ends */
};

#define PLIM__PREFIX_NONE UINT32_MAX

struct plim__prefix {
    struct plim_map index; /* key -> entry */
    PLIM_VEC(struct plim__prefix_entry) entries;
    PLIM_VEC(uint32_t) unused;
    uint32_t oldest, newest; /* idle */
    uint64_t idle;           /* entries */
    uint64_t held;           /* entries held by somebody */
};

/* The hashes of one request. */
struct plim__prefix_list {
    const uint64_t *hashes; /* borrowed from the traffic */
    uint64_t salt;
    uint32_t n;
};

void plim__prefix_init(struct plim__prefix *p);
void plim__prefix_fini(struct plim__prefix *p);

/** plim__prefix_hits() - how many of the list's first hashes are there, without a gap; *idle of them. */
uint32_t plim__prefix_hits(const struct plim__prefix *p, const struct plim__prefix_list *list,
                           uint32_t most, uint32_t *idle);

/** plim__prefix_hold()/drop() - one holder more or less for the first `n`, which are there. */
void plim__prefix_hold(struct plim__prefix *p, const struct plim__prefix_list *list, uint32_t n);
void plim__prefix_drop(struct plim__prefix *p, const struct plim__prefix_list *list, uint32_t n);

/** plim__prefix_keep() - entries from `from` to `to` of the list become idle ones; known ones stay as they are.
 * Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__prefix_keep(struct plim__prefix *p,
                                                 const struct plim__prefix_list *list,
                                                 uint32_t from, uint32_t to, struct plim_err *err);

/** plim__prefix_shrink() - forget idle entries, the oldest first, until at most `most` are left. */
void plim__prefix_shrink(struct plim__prefix *p, uint64_t most);

#endif
