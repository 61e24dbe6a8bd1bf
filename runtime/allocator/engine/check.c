/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of the engine, looked at from outside the code that keeps them. For tests. */

#include "engine_int.h"

struct seen {
    uint64_t live, requested, pending, mapped, whole, blocks, listed;
};

/* Pages follow each other without overlap, and their entries say where they begin. */
static bool table_is_sound(const struct plim_engine *e, const struct arena *a)
{
    uint64_t n = a->size >> e->page_shift;
    for (uint64_t i = 0; i < n;) {
        uint16_t units = a->pages[i];
        if (units & PAGE_REST || units > n - i) {
            return false;
        }
        for (uint16_t k = 1; k < units; k++) {
            if (a->pages[i + k] != (PAGE_REST | k)) {
                return false;
            }
        }
        i += units ? units : 1;
    }
    return true;
}

/* There are pages behind every byte of a block, or behind none of a VOID, which has whole ones. */
static bool pages_agree(const struct plim_engine *e, const struct arena *a, const struct block *b)
{
    uint64_t unit = e->config.small_page, end = b->addr + b->size;
    bool hole = b->state == PLIM_ENGINE_VOID;
    if (hole && (b->addr % unit || b->size % unit)) {
        return false;
    }
    for (uint64_t at = b->addr & ~(unit - 1); at < end; at += unit) {
        if ((*entry_at(e, a, at) == 0) != hole) {
            return false;
        }
    }
    return true;
}

static const char *check_block(const struct plim_engine *e, const struct arena *a, uint32_t i,
                               struct seen *seen)
{
    const struct block *b = block_at(e, i);
    uint32_t start = a->starts[(b->addr - a->base) >> a->shift];
    bool started = start && block_at(e, start)->addr == b->addr;
    if (b->size == 0 || b->size % PLIM_ENGINE_UNIT) {
        return "a block is empty or no multiple of a unit";
    }
    if (b->next && block_at(e, b->next)->prev != i) {
        return "neighbours do not know each other";
    }
    if (!pages_agree(e, a, b)) {
        return "there are pages where there should be none, or none where there should be";
    }
    seen->mapped += b->state == PLIM_ENGINE_VOID ? 0 : b->size;
    switch (b->state) {
    case PLIM_ENGINE_LIVE:
    case PLIM_ENGINE_PENDING:
        seen->live += b->size;
        seen->requested += b->requested;
        seen->pending += b->state == PLIM_ENGINE_PENDING ? b->size : 0;
        seen->blocks += b->state == PLIM_ENGINE_LIVE;
        if (b->planned && !plim__mv_follow_knows(e, i)) {
            return "a live block at its place is not in the table of places";
        }
        return start == i ? NULL : "a live block is not in the table of starts";
    case PLIM_ENGINE_FREE: {
        uint64_t lo, hi;
        plim__mv_whole_pages(e, a, b, &lo, &hi);
        seen->whole += hi - lo;
        seen->listed++;
        if (b->next && block_at(e, b->next)->state == PLIM_ENGINE_FREE) {
            return "two free blocks are neighbours";
        }
        return started ? "a free block is in the table of starts" : NULL;
    }
    default:
        if (b->next && block_at(e, b->next)->state == PLIM_ENGINE_VOID) {
            return "two voids are neighbours";
        }
        return NULL;
    }
}

static uint64_t count_lists(const struct plim_engine *e, const struct arena *a, const char **wrong)
{
    uint64_t n = 0;
    for (unsigned row = 0; row < BIN_ROWS; row++) {
        for (unsigned col = 0; col < BIN_COLS; col++) {
            bool marked = (a->cols[row] >> col & 1) && (a->rows >> row & 1);
            if (marked != (a->bin[row][col] != 0)) {
                *wrong = "a bitmap does not match its list";
            }
            for (uint32_t i = a->bin[row][col]; i && n <= e->blocks.n; i = block_at(e, i)->forth) {
                n++;
                if (block_at(e, i)->state != PLIM_ENGINE_FREE ||
                    arena_at(e, block_at(e, i)->arena) != a) {
                    *wrong = "a list has a member that does not belong there";
                }
            }
        }
    }
    return n;
}

static const char *check_arena(const struct plim_engine *e, const struct arena *a, struct seen *all)
{
    struct seen seen = {0};
    uint64_t at = a->base;
    const char *wrong = NULL;
    if (!table_is_sound(e, a)) {
        return "the table of pages is wrong";
    }
    for (uint32_t i = a->first; i; i = block_at(e, i)->next) {
        if (block_at(e, i)->addr != at) {
            return "the blocks of an arena leave a gap or overlap";
        }
        wrong = check_block(e, a, i, &seen);
        if (wrong) {
            return wrong;
        }
        at += block_at(e, i)->size;
    }
    if (at != a->base + a->size) {
        return "the blocks of an arena do not fill it";
    }
    if (count_lists(e, a, &wrong) != seen.listed) {
        return "free blocks are missing from the lists";
    }
    if (seen.whole != a->free_whole) {
        return "the count of free pages is wrong";
    }
    all->live += a->paused ? 0 : seen.live;
    all->requested += a->paused ? 0 : seen.requested;
    all->pending += a->paused ? 0 : seen.pending;
    all->blocks += seen.blocks;
    all->whole += a->paused ? 0 : seen.whole;
    all->mapped += a->paused ? 0 : seen.mapped;
    return wrong;
}

const char *plim_engine_check(const struct plim_engine *e)
{
    struct seen all = {0};
    for (uint32_t i = 1; i < e->arenas.n; i++) {
        const char *wrong = check_arena(e, arena_at(e, i), &all);
        if (wrong) {
            return wrong;
        }
    }
    const struct plim_engine_stats *s = &e->stats;
    if (all.live != s->live || all.requested != s->requested || all.pending != s->pending ||
        all.blocks != s->blocks) {
        return "the books of live bytes do not match the blocks";
    }
    if (all.mapped != s->reserved || all.whole != s->releasable) {
        return "the books of pages do not match the blocks";
    }
    return NULL;
}
