/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames and stacks, found again by a hash of their content. Both tables map a 64-bit hash to an id;
 * when another content already sits under a hash, the hash is hashed once more, and so on, which
 * ends because each step either finds the content or an empty place.
 */

#include "heap/stacks.h"

#include "base/num.h"

enum plim_status plim_stacks_init(struct plim_stacks *stacks, struct plim_err *err)
{
    uint32_t empty;
    *stacks = (struct plim_stacks){0};
    enum plim_status st = plim_stacks_stack(stacks, NULL, 0, &empty, err);
    if (st != PLIM_OK) {
        plim_stacks_fini(stacks);
    }
    return st;
}

void plim_stacks_fini(struct plim_stacks *stacks)
{
    plim_vec_fini(&stacks->frames);
    plim_vec_fini(&stacks->frame_ids);
    plim_vec_fini(&stacks->stacks);
    plim_map_fini(&stacks->frame_index);
    plim_map_fini(&stacks->stack_index);
}

/* The next place to look after `hash`; also keeps the map's one forbidden key out. */
static uint64_t next_hash(uint64_t hash)
{
    return plim_hash_u64(hash + 1) & ~UINT64_C(1);
}

static bool same_frame(struct plim_frame a, struct plim_frame b)
{
    return a.name == b.name && a.file == b.file && a.line == b.line;
}

enum plim_status plim_stacks_frame(struct plim_stacks *stacks, struct plim_frame frame,
                                   uint32_t *id, struct plim_err *err)
{
    uint64_t hash = plim_hash_u64(((uint64_t)frame.name << 32 | frame.file) ^
                                  plim_hash_u64((uint64_t)frame.line + 1));
    hash &= ~UINT64_C(1);
    for (uint64_t *at; (at = plim_map_get(&stacks->frame_index, hash)); hash = next_hash(hash)) {
        if (same_frame(stacks->frames.items[*at], frame)) {
            *id = (uint32_t)*at;
            return PLIM_OK;
        }
    }
    if (stacks->frames.n >= PLIM_NO_ID) {
        return plim__fail(err, PLIM_E_BUDGET, "more than 2^32-1 different frames");
    }
    uint32_t added = (uint32_t)stacks->frames.n;
    PLIM_TRY(plim_vec_reserve(&stacks->frames, 1, err));
    PLIM_TRY(plim_map_put(&stacks->frame_index, hash, added, err));
    stacks->frames.items[stacks->frames.n++] = frame;
    *id = added;
    return PLIM_OK;
}

static bool same_stack(const struct plim_stacks *stacks, uint64_t id, const uint32_t *ids, size_t n)
{
    struct plim_stack stack = stacks->stacks.items[id];
    return stack.n == n &&
           (n == 0 || memcmp(stacks->frame_ids.items + stack.first, ids, n * sizeof(*ids)) == 0);
}

enum plim_status plim_stacks_stack(struct plim_stacks *stacks, const uint32_t *frame_ids, size_t n,
                                   uint32_t *id, struct plim_err *err)
{
    uint64_t hash = plim_hash_bytes(n ? (const void *)frame_ids : "", n * sizeof(*frame_ids));
    hash &= ~UINT64_C(1);
    for (uint64_t *at; (at = plim_map_get(&stacks->stack_index, hash)); hash = next_hash(hash)) {
        if (same_stack(stacks, *at, frame_ids, n)) {
            *id = (uint32_t)*at;
            return PLIM_OK;
        }
    }
    if (stacks->stacks.n >= PLIM_NO_STACK || stacks->frame_ids.n + n > UINT32_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "more than 2^32-1 frames in different stacks");
    }
    uint32_t added = (uint32_t)stacks->stacks.n;
    struct plim_stack stack = {(uint32_t)stacks->frame_ids.n, (uint32_t)n};
    PLIM_TRY(plim_vec_reserve(&stacks->stacks, 1, err));
    PLIM_TRY(plim_vec_reserve(&stacks->frame_ids, n, err));
    PLIM_TRY(plim_map_put(&stacks->stack_index, hash, added, err));
    if (n > 0) {
        memcpy(stacks->frame_ids.items + stacks->frame_ids.n, frame_ids, n * sizeof(*frame_ids));
        stacks->frame_ids.n += n;
    }
    stacks->stacks.items[stacks->stacks.n++] = stack;
    *id = added;
    return PLIM_OK;
}

const uint32_t *plim_stacks_frames(const struct plim_stacks *stacks, uint32_t stack, size_t *n)
{
    if (stack >= stacks->stacks.n) {
        *n = 0;
        return NULL;
    }
    *n = stacks->stacks.items[stack].n;
    return *n > 0 ? stacks->frame_ids.items + stacks->stacks.items[stack].first : NULL;
}
