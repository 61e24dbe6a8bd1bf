/* SPDX-License-Identifier: Apache-2.0 */
/* Strings in an arena, ids in an open-addressing table of 32-bit slots, at most half full. */

#include "base/intern.h"

#include "base/num.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t plim_hash_bytes(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

void plim_intern_init(struct plim_intern *in, uint64_t budget)
{
    *in = (struct plim_intern){0};
    plim_arena_init(&in->arena, budget);
}

void plim_intern_fini(struct plim_intern *in)
{
    plim_arena_fini(&in->arena);
    plim_vec_fini(&in->strs);
    plim_vec_fini(&in->hashes);
    free(in->slots);
    in->slots = NULL;
    in->mask = 0;
}

/* The slot that holds s, or the empty one where it would go. The table must exist. */
static uint32_t *probe(const struct plim_intern *in, struct plim_str s, uint64_t hash)
{
    for (size_t i = (size_t)hash & in->mask;; i = (i + 1) & in->mask) {
        uint32_t id = in->slots[i];
        if (id == PLIM_NO_ID ||
            (in->hashes.items[id] == hash && plim_str_eq(in->strs.items[id], s))) {
            return &in->slots[i];
        }
    }
}

static enum plim_status grow(struct plim_intern *in, struct plim_err *err)
{
    size_t slots = in->slots ? (in->mask + 1) * 2 : 256;
    uint64_t bytes;
    uint32_t *grown =
        plim_mul_overflows(slots, sizeof(uint32_t), &bytes) ? NULL : malloc((size_t)bytes);
    if (!grown) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a table of %zu strings", slots);
    }
    memset(grown, 0xff, (size_t)bytes); /* every slot PLIM_NO_ID */
    for (uint32_t id = 0; id < in->hashes.n; id++) {
        size_t i = (size_t)in->hashes.items[id] & (slots - 1);
        while (grown[i] != PLIM_NO_ID) {
            i = (i + 1) & (slots - 1);
        }
        grown[i] = id;
    }
    free(in->slots);
    in->slots = grown;
    in->mask = slots - 1;
    return PLIM_OK;
}

enum plim_status plim_intern_put(struct plim_intern *in, struct plim_str s, uint32_t *id,
                                 struct plim_err *err)
{
    if (!in->slots || in->strs.n >= in->mask / 2) {
        PLIM_TRY(grow(in, err));
    }
    uint64_t hash = plim_hash_bytes(s.n ? s.p : "", s.n);
    uint32_t *slot = probe(in, s, hash);
    if (*slot == PLIM_NO_ID) {
        struct plim_str copy;
        if (in->strs.n >= PLIM_NO_ID) {
            return plim__fail(err, PLIM_E_BUDGET, "more than 2^32-1 different strings");
        }
        PLIM_TRY(plim_vec_reserve(&in->strs, 1, err));
        PLIM_TRY(plim_vec_reserve(&in->hashes, 1, err));
        PLIM_TRY(plim_arena_str(&in->arena, s, &copy, err));
        *slot = (uint32_t)in->strs.n;
        in->strs.items[in->strs.n++] = copy;
        in->hashes.items[in->hashes.n++] = hash;
    }
    *id = *slot;
    return PLIM_OK;
}

uint32_t plim_intern_find(const struct plim_intern *in, struct plim_str s)
{
    return in->slots ? *probe(in, s, plim_hash_bytes(s.n ? s.p : "", s.n)) : PLIM_NO_ID;
}

struct plim_str plim_intern_str(const struct plim_intern *in, uint32_t id)
{
    return id < in->strs.n ? in->strs.items[id] : PLIM_STR("");
}
