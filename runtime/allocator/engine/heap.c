/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and free lists. No driver calls, no decisions: what the lists mean is said in engine_int.h.
 *
 * Free lists are segregated by size in two steps (TLSF: Masmano et al., ECRTS 2004): the row is the power
 * of two, the column one of 32 equal parts of it, bitmaps say which have members. A search looks at a few
 * members of the request's own column and of the next one that has any, and takes the smallest that fits:
 * nearly best fit in constant time.
 */

#include "engine_int.h"

#include <sys/mman.h>

#define LOOK 16 /* members of a list that a search looks at */

/* ---- records ------------------------------------------------------------------------------------ */

void *plim__mv_space(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool plim__mv_table_open(struct table *t, size_t record, uint64_t room)
{
    for (; room >= 1024; room /= 4) { /* a process may have a limit on addresses */
        void *p = plim__mv_space(room * record);
        if (p) {
            *t = (struct table){.base = p, .room = room, .n = 1};
            return true;
        }
    }
    return false;
}

void plim__mv_table_close(struct table *t, size_t record)
{
    if (t->base) {
        munmap(t->base, t->room * record);
    }
    *t = (struct table){0};
}

bool plim__mv_blocks_spare(const struct plim_engine *e, unsigned n)
{
    uint64_t spare = e->blocks.room - e->blocks.n;
    for (uint32_t i = e->blocks.unused; i && spare < n; i = block_at(e, i)->forth) {
        spare++;
    }
    return spare >= n;
}

uint32_t plim__mv_block_new(struct plim_engine *e)
{
    uint32_t i = e->blocks.unused;
    if (i) {
        e->blocks.unused = block_at(e, i)->forth;
    } else {
        i = e->blocks.n++;
    }
    *block_at(e, i) = (struct block){0};
    return i;
}

void plim__mv_block_gone(struct plim_engine *e, uint32_t i)
{
    block_at(e, i)->forth = e->blocks.unused;
    block_at(e, i)->size = 0;
    e->blocks.unused = i;
}

uint32_t plim__mv_use_new(struct plim_engine *e)
{
    uint32_t i = e->uses.unused;
    if (i) {
        e->uses.unused = use_at(e, i)->next;
    } else if (e->uses.n < e->uses.room) {
        i = e->uses.n++;
    } else {
        return 0;
    }
    *use_at(e, i) = (struct use){0};
    return i;
}

void plim__mv_use_gone(struct plim_engine *e, uint32_t i)
{
    use_at(e, i)->next = e->uses.unused;
    e->uses.unused = i;
}

/* ---- free lists --------------------------------------------------------------------------------- */

static void list_put(struct plim_engine *e, uint32_t *head, uint32_t i)
{
    struct block *b = block_at(e, i);
    b->back = 0;
    b->forth = *head;
    if (b->forth) {
        block_at(e, b->forth)->back = i;
    }
    *head = i;
}

static void list_take(struct plim_engine *e, uint32_t *head, uint32_t i)
{
    const struct block *b = block_at(e, i);
    if (b->forth) {
        block_at(e, b->forth)->back = b->back;
    }
    if (b->back) {
        block_at(e, b->back)->forth = b->forth;
    } else {
        *head = b->forth;
    }
}

void plim__mv_cell(uint64_t size, unsigned *row, unsigned *col)
{
    uint64_t units = size / PLIM_ENGINE_UNIT;
    if (units < BIN_COLS) {
        *row = 0;
        *col = (unsigned)units;
        return;
    }
    unsigned log = 63u - (unsigned)__builtin_clzll(units);
    *row = log - 4;
    *col = (unsigned)(units >> (log - 5)) & (BIN_COLS - 1);
}

void plim__mv_whole_pages(const struct plim_engine *e, const struct arena *a, const struct block *b,
                          uint64_t *lo, uint64_t *hi)
{
    uint64_t end = b->addr + b->size;
    uint64_t first = page_from(e, a, b->addr), last = page_from(e, a, end - 1);
    *lo = first == b->addr ? first : first + page_bytes(e, a, first);
    *hi = last + page_bytes(e, a, last) == end ? end : last;
    if (*hi < *lo) {
        *hi = *lo;
    }
}

static uint64_t whole_bytes(const struct plim_engine *e, const struct arena *a,
                            const struct block *b)
{
    if (b->size < e->config.small_page) {
        return 0;
    }
    uint64_t lo, hi;
    plim__mv_whole_pages(e, a, b, &lo, &hi);
    return hi - lo;
}

void plim__mv_bin_put(struct plim_engine *e, struct arena *a, uint32_t i)
{
    struct block *b = block_at(e, i);
    unsigned row, col;
    plim__mv_cell(b->size, &row, &col);
    b->row = (uint8_t)row;
    b->col = (uint8_t)col;
    list_put(e, &a->bin[row][col], i);
    a->cols[row] |= UINT32_C(1) << col;
    a->rows |= UINT64_C(1) << row;
    uint64_t whole = whole_bytes(e, a, b);
    a->free_whole += whole;
    e->stats.releasable += a->paused ? 0 : whole;
}

void plim__mv_bin_take(struct plim_engine *e, struct arena *a, uint32_t i)
{
    const struct block *b = block_at(e, i);
    list_take(e, &a->bin[b->row][b->col], i);
    if (!a->bin[b->row][b->col]) {
        a->cols[b->row] &= ~(UINT32_C(1) << b->col);
        if (!a->cols[b->row]) {
            a->rows &= ~(UINT64_C(1) << b->row);
        }
    }
    uint64_t whole = whole_bytes(e, a, b);
    a->free_whole -= whole;
    e->stats.releasable -= a->paused ? 0 : whole;
}

/* The smallest of the first members of a list that has `size` bytes; 0: none of them. */
static uint32_t smallest(struct plim_engine *e, uint32_t i, uint64_t size)
{
    uint32_t found = 0;
    uint64_t least = UINT64_MAX;
    unsigned n = 0;
    for (; i && n < LOOK; i = block_at(e, i)->forth) {
        n++;
        uint64_t has = block_at(e, i)->size;
        if (has >= size && has < least) {
            found = i;
            least = has;
            if (has == size) {
                break;
            }
        }
    }
    e->stats.looked += n;
    return found;
}

uint32_t plim__mv_bin_find(struct plim_engine *e, const struct arena *a, uint64_t size)
{
    unsigned row, col;
    plim__mv_cell(size, &row, &col);
    uint32_t found = smallest(e, a->bin[row][col], size);
    if (found) {
        return found;
    }
    uint32_t cols = col + 1 < BIN_COLS ? a->cols[row] & (UINT32_MAX << (col + 1)) : 0;
    if (!cols) {
        uint64_t rows = row + 1 < 64 ? a->rows & (UINT64_MAX << (row + 1)) : 0;
        if (!rows) {
            return 0;
        }
        row = (unsigned)__builtin_ctzll(rows);
        cols = a->cols[row];
    }
    return smallest(e, a->bin[row][__builtin_ctz(cols)], size);
}

/* ---- blocks and their neighbours ---------------------------------------------------------------- */

void plim__mv_void_put(struct plim_engine *e, struct arena *a, uint32_t i)
{
    list_put(e, &a->voids, i);
}

void plim__mv_void_take(struct plim_engine *e, struct arena *a, uint32_t i)
{
    list_take(e, &a->voids, i);
}

uint32_t plim__mv_block_cut(struct plim_engine *e, uint32_t i, uint64_t size)
{
    uint32_t rest = plim__mv_block_new(e);
    struct block *b = block_at(e, i);
    *block_at(e, rest) = (struct block){
        .addr = b->addr + size,
        .size = b->size - size,
        .prev = i,
        .next = b->next,
        .fence = b->fence,
        .arena = b->arena,
        .state = b->state,
    };
    if (b->next) {
        block_at(e, b->next)->prev = rest;
    }
    b->next = rest;
    b->size = size;
    return rest;
}

void plim__mv_block_join(struct plim_engine *e, uint32_t i)
{
    struct block *b = block_at(e, i);
    uint32_t gone = b->next;
    const struct block *g = block_at(e, gone);
    b->size += g->size;
    b->fence = g->fence > b->fence ? g->fence : b->fence;
    b->next = g->next;
    if (b->next) {
        block_at(e, b->next)->prev = i;
    }
    plim__mv_block_gone(e, gone);
}

typedef void take_fn(struct plim_engine *e, struct arena *a, uint32_t i);

/* Block i, in no list, becomes one with the neighbours that are in the same state; they leave theirs. */
static uint32_t absorb(struct plim_engine *e, struct arena *a, uint32_t i, take_fn *take)
{
    const struct block *b = block_at(e, i);
    if (b->next && block_at(e, b->next)->state == b->state) {
        take(e, a, b->next);
        plim__mv_block_join(e, i);
    }
    if (b->prev && block_at(e, b->prev)->state == b->state) {
        i = b->prev;
        take(e, a, i);
        plim__mv_block_join(e, i);
    }
    return i;
}

uint32_t plim__mv_block_free(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t fence)
{
    struct block *b = block_at(e, i);
    b->state = PLIM_ENGINE_FREE;
    b->fence = fence;
    b->requested = 0;
    i = absorb(e, a, i, plim__mv_bin_take);
    plim__mv_bin_put(e, a, i);
    return i;
}

uint32_t plim__mv_block_carve(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t from,
                              uint64_t size)
{
    uint32_t left = block_at(e, i)->addr < from ? i : 0;
    if (left) {
        i = plim__mv_block_cut(e, left, from - block_at(e, left)->addr);
    }
    uint32_t right = block_at(e, i)->size > size ? plim__mv_block_cut(e, i, size) : 0;
    block_at(e, i)->state = PLIM_ENGINE_LIVE; /* nobody merges with it */
    if (left) {
        plim__mv_block_free(e, a, left, block_at(e, left)->fence);
    }
    if (right) {
        plim__mv_block_free(e, a, right, block_at(e, right)->fence);
    }
    return i;
}

void plim__mv_block_void(struct plim_engine *e, struct arena *a, uint32_t i)
{
    struct block *b = block_at(e, i);
    b->state = PLIM_ENGINE_VOID;
    b->requested = 0;
    b->fence = 0;
    i = absorb(e, a, i, plim__mv_void_take);
    plim__mv_void_put(e, a, i);
}
