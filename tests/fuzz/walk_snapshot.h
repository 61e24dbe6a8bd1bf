/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FUZZ_WALK_SNAPSHOT_H
#define PLIM_FUZZ_WALK_SNAPSHOT_H

/* Touch everything that a snapshot holds and stop the program where an index leads out of its table. */

#include "heap/snapshot.h"

#include <stdlib.h>

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline void walk_id(const struct plim_snapshot *s, uint32_t id)
{
    DEMAND(id == PLIM_NO_ID || id < s->strings.strs.n);
}

static inline void walk_stack(const struct plim_snapshot *s, uint32_t stack)
{
    DEMAND(stack == PLIM_NO_STACK || stack < s->stacks.stacks.n);
}

static inline uint64_t walk_trace(const struct plim_snapshot *s, const struct plim_trace *t)
{
    uint64_t sum = 0, counted = 0;
    for (size_t i = 0; i < t->events.n; i++) {
        const struct plim_event *e = &t->events.items[i];
        walk_stack(s, e->stack);
        DEMAND(e->action < PLIM_ACTION_COUNT);
        DEMAND(e->note == PLIM_NO_ID || e->note < s->notes.n);
        DEMAND(e->pool == PLIM_NO_POOL || e->pool < s->pools.n);
        DEMAND(e->stream == 0 || e->stream < s->streams.n);
        sum = sum * 31 + e->addr + e->size * 7 + e->time_us * 3 + e->stack + e->note * 5 +
              e->action + e->pool * 11 + e->stream * 13;
    }
    for (unsigned a = 0; a < PLIM_ACTION_COUNT; a++) {
        counted += t->by_action[a];
    }
    DEMAND(counted == t->events.n);
    return sum;
}

static inline uint64_t walk_heap(const struct plim_snapshot *s, const struct plim_heap *h)
{
    uint64_t sum = 0, blocks = 0;
    for (size_t i = 0; i < h->segments.n; i++) {
        const struct plim_segment *g = &h->segments.items[i];
        walk_stack(s, g->stack);
        DEMAND(g->pool < s->pools.n && (g->stream == 0 || g->stream < s->streams.n));
        DEMAND((uint64_t)g->first_block + g->n_blocks <= h->blocks.n);
        DEMAND(i == 0 || h->segments.items[i - 1].addr <= g->addr);
        blocks += g->n_blocks;
        sum = sum * 31 + g->addr + g->size;
        for (uint32_t k = 0; k < g->n_blocks; k++) {
            const struct plim_block *b = &h->blocks.items[g->first_block + k];
            walk_stack(s, b->stack);
            DEMAND(b->segment == i && b->size <= g->size);
            sum = sum * 31 + b->addr + b->size * 7 + b->requested * 3 + b->state;
        }
    }
    DEMAND(blocks == h->blocks.n);
    return sum;
}

/* A sum over all of it, so that two readings can be compared. */
static inline uint64_t walk_snapshot(const struct plim_snapshot *s)
{
    uint64_t sum = s->strings.strs.n * 17 + s->settings.max_split_size;
    for (size_t d = 0; d < s->devices.n; d++) {
        sum = sum * 31 + walk_heap(s, &s->devices.items[d].heap) +
              walk_trace(s, &s->devices.items[d].trace);
    }
    for (size_t i = 0; i < s->stacks.frames.n; i++) {
        walk_id(s, s->stacks.frames.items[i].name);
        walk_id(s, s->stacks.frames.items[i].file);
    }
    for (size_t i = 0; i < s->stacks.frame_ids.n; i++) {
        DEMAND(s->stacks.frame_ids.items[i] < s->stacks.frames.n);
    }
    for (size_t i = 0; i < s->notes.n; i++) {
        walk_id(s, s->notes.items[i].compile_context);
        walk_id(s, s->notes.items[i].user_metadata);
    }
    for (size_t i = 0; i < s->annotations.n; i++) {
        walk_id(s, s->annotations.items[i].name);
        sum = sum * 31 + s->annotations.items[i].time_us;
    }
    for (size_t i = 0; i < s->findings.n; i++) {
        walk_id(s, s->findings.items[i].where);
        walk_id(s, s->findings.items[i].text);
    }
    walk_id(s, s->settings.conf);
    return sum;
}

#endif
