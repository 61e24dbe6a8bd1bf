/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's way to judge memory. All inside get one token a step, so the one with the fewest tokens left ends
 * first, and the pool is fullest just before one ends: those moments are looked at one by one. Prompts count
 * as computed; each request may waste a block. O(n log n) for a decision, which only a simulation can afford.
 */

#include "serving/door_run.h"

#include "base/num.h"

#include <stdlib.h>

static bool asked_for(const struct plim__engine *e)
{
    return e->setup->door && e->setup->door->oracle;
}

static uint32_t left(const struct plim__inside *i)
{
    return i->output > i->generated ? i->output - i->generated : 0;
}

static int longest_first(const void *a, const void *b)
{
    uint32_t x = left(a);
    uint32_t y = left(b);
    return (x < y) - (x > y);
}

/* The known ones are sorted anyway: their order means nothing. */
static uint64_t worst_blocks(struct plim__engine *e)
{
    struct plim__inside *all = e->door.known.items;
    size_t n = e->door.known.n;
    uint64_t worst = 0;
    uint64_t tokens = 0; /* now, of those that are there still when this one ends */
    qsort(all, n, sizeof *all, longest_first);
    for (size_t i = 0; i < n; i++) {
        tokens += (uint64_t)all[i].prompt + all[i].generated;
        uint64_t then = tokens + (i + 1) * (uint64_t)left(&all[i]);
        worst = plim_max_u64(worst, then / e->s->block_tokens + i + 1);
    }
    return worst;
}

void plim__oracle_note(struct plim__engine *e, const struct plim__ticket *t)
{
    struct plim__inside i = {.id = t->door_id, .prompt = t->a.prompt, .output = t->a.output};
    e->feed.status = plim_vec_push(&e->door.known, &e->feed.err, i);
}

static struct plim__inside *find(const struct plim__engine *e, const struct plim__ticket *t)
{
    for (size_t i = 0; asked_for(e) && i < e->door.known.n; i++) {
        if (e->door.known.items[i].id == t->door_id) {
            return &e->door.known.items[i];
        }
    }
    return NULL;
}

bool plim__oracle_fits(struct plim__engine *e, const struct plim__ticket *t)
{
    struct plim__ticket try = *t;
    try.door_id = UINT64_MAX;
    plim__oracle_note(e, &try);
    bool fits = e->feed.status == PLIM_OK && worst_blocks(e) <= e->door.blocks;
    plim__oracle_forget(e, &try);
    return fits;
}

void plim__oracle_grew(struct plim__engine *e, const struct plim__ticket *t)
{
    struct plim__inside *i = find(e, t);
    if (i) {
        i->generated = t->generated;
    }
}

void plim__oracle_forget(struct plim__engine *e, const struct plim__ticket *t)
{
    struct plim__inside *i = find(e, t);
    if (i) {
        *i = e->door.known.items[--e->door.known.n];
    }
}
