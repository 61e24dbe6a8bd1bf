/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks and segments go into the report, and their columns.
 *
 * The trace is divided by GRID equal steps. level of a life: how coarse a subdivision by halves
 * still has a step inside the life; a life of level L is seen by every set of 2^(GRID_BITS - L)
 * keyframes and more. Counting lives by level gives, in one pass, the finest set of keyframes whose
 * blocks all fit.
 */

#include "report/detail.h"

#include "base/num.h"
#include "heap/totals.h"

#define GRID_BITS 10u
#define GRID      (1u << GRID_BITS)
#define ALWAYS    (GRID_BITS + 1u) /* level of what a named moment shows */
#define NEVER     0u               /* seen by no keyframe; others have level + 1 */
#define LEVELS    (GRID_BITS + 3u)
#define OCTAVES   256u /* sizes in quarters of an octave */

struct picker {
    struct plim_detail *detail;
    uint64_t n; /* events */
    uint64_t by_level[LEVELS];
    uint64_t by_size[OCTAVES]; /* of lives below the chosen level */
    uint32_t least_level;
    uint32_t least_octave; /* of lives below the level that are taken all the same */
    PLIM_VEC(struct plim_life) rows;
};

static bool named_shows(const struct plim_detail *d, const struct plim_life *life)
{
    for (size_t i = 0; i < PLIM_DETAIL_NAMED; i++) {
        if (d->named[i] != UINT32_MAX && plim_life_at(life, d->named[i])) {
            return true;
        }
    }
    return false;
}

/* First grid step at or behind a position. */
static uint64_t step_from(uint64_t position, uint64_t n)
{
    return position > n ? GRID + 1 : (position * GRID + n - 1) / plim_max_u64(n, 1);
}

static uint32_t level_of(const struct picker *p, const struct plim_life *life)
{
    if (named_shows(p->detail, life)) {
        return ALWAYS + 1;
    }
    uint64_t low = step_from(life->start, p->n), behind = step_from(life->end, p->n);
    if (low >= behind) {
        return NEVER;
    }
    if (low == 0) {
        return GRID_BITS + 1;
    }
    uint64_t differs = (low - 1) ^ (behind - 1);
    uint32_t level = 63u - (uint32_t)__builtin_clzll(differs);
    return (level > GRID_BITS ? GRID_BITS : level) + 1;
}

static uint32_t octave_of(uint64_t size)
{
    if (size < 4) {
        return (uint32_t)size;
    }
    uint32_t log = 63u - (uint32_t)__builtin_clzll(size);
    return log * 4 + (uint32_t)((size >> (log - 2)) & 3u);
}

/* What is done with each block: `event` is its allocation, or PLIM_NO_EVENT when it was there
 * before. */
typedef enum plim_status (*visitor)(struct picker *, const struct plim_life *span, uint32_t event,
                                    struct plim_err *);

/* Call `visit` for each block of the trace. Of blocks of the trace only the span is known: the whole life is worth
 * a look at another event, which is seldom in the cache. */
static enum plim_status each_block(struct picker *p, visitor visit, struct plim_err *err)
{
    const struct plim_lives *lives = &p->detail->lives;
    plim_vec_foreach (life, &lives->before) {
        PLIM_TRY(visit(p, life, PLIM_NO_EVENT, err));
    }
    for (uint32_t i = 0; i < lives->trace->events.n; i++) {
        if (lives->trace->events.items[i].action == PLIM_ACTION_ALLOC) {
            struct plim_life span = plim_lives_span(lives, i);
            PLIM_TRY(visit(p, &span, i, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status count_level(struct picker *p, const struct plim_life *span, uint32_t event,
                                    struct plim_err *err)
{
    (void)event;
    (void)err;
    p->by_level[level_of(p, span)]++;
    return PLIM_OK;
}

static enum plim_status count_size(struct picker *p, const struct plim_life *span, uint32_t event,
                                   struct plim_err *err)
{
    (void)event;
    (void)err;
    if (level_of(p, span) < p->least_level) {
        p->by_size[octave_of(span->requested)]++;
    }
    return PLIM_OK;
}

static enum plim_status take(struct picker *p, const struct plim_life *span, uint32_t event,
                             struct plim_err *err)
{
    if (level_of(p, span) >= p->least_level || octave_of(span->requested) >= p->least_octave) {
        return plim_vec_push(
            &p->rows, err,
            event == PLIM_NO_EVENT ? *span : plim_lives_of_event(&p->detail->lives, event));
    }
    return PLIM_OK;
}

/* The finest level whose lives fit into `most` rows; LEVELS when not even the named moments fit. */
static uint32_t fitting_level(const struct picker *p, uint64_t most)
{
    uint64_t sum = 0;
    uint32_t level = LEVELS;
    while (level > 0 && sum + p->by_level[level - 1] <= most) {
        sum += p->by_level[--level];
    }
    return level;
}

static uint32_t fitting_octave(const struct picker *p, uint64_t most)
{
    uint64_t sum = 0;
    uint32_t octave = OCTAVES;
    while (octave > 0 && sum + p->by_size[octave - 1] <= most) {
        sum += p->by_size[--octave];
    }
    return octave;
}

/* Octave of the size from which on the judged heap's live blocks fit. */
static uint32_t judged_octave(struct picker *p, const struct plim_heap *heap, uint64_t most)
{
    memset(p->by_size, 0, sizeof(p->by_size));
    plim_vec_foreach (b, &heap->blocks) {
        if (plim_block_is_live(b)) {
            p->by_size[octave_of(b->size)]++;
        }
    }
    return fitting_octave(p, most);
}

/* Small live blocks that follow each other without a gap, to be drawn as one. */
struct run {
    uint64_t behind; /* address behind it; 0: none is open */
    uint32_t stack;
};

/* Lengthen the open run by a small block when that is possible. */
static bool join_run(struct picker *p, struct run *run, const struct plim_block *b, bool any_stack)
{
    if (run->behind != b->addr || p->rows.n == 0 || (!any_stack && run->stack != b->stack)) {
        return false;
    }
    struct plim_life *life = &p->rows.items[p->rows.n - 1];
    life->size += b->size;
    life->requested += b->requested;
    life->stack = run->stack == b->stack ? life->stack : PLIM_NO_STACK;
    run->behind += b->size;
    return true;
}

static struct plim_life life_now(const struct plim_diagnosis *d, const struct plim_block *b)
{
    const struct plim_segment *s = &d->heap.segments.items[b->segment];
    return (struct plim_life){.addr = b->addr,
                              .size = b->size,
                              .requested = b->requested,
                              .start = (uint32_t)d->position,
                              .freed = (uint32_t)d->position + 1,
                              .end = (uint32_t)d->position + 1,
                              .stack = b->stack,
                              .stream = s->stream,
                              .pool = s->pool};
}

/*
 * Too many blocks even for one moment: the judged heap, small neighbours joined to runs. Runs of
 * one stack first; when those are too many, runs of any stack, which lose it.
 */
static enum plim_status take_judged(struct picker *p, uint64_t most, bool any_stack,
                                    struct plim_detail_chosen *chosen, struct plim_err *err)
{
    const struct plim_diagnosis *d = p->detail->diagnosis;
    uint32_t least = judged_octave(p, &d->heap, most / 2);
    struct run run = {0};
    p->rows.n = 0;
    chosen->merged = chosen->dropped = 0;
    plim_vec_foreach (b, &d->heap.blocks) {
        bool small = octave_of(b->size) < least;
        if (!plim_block_is_live(b)) {
            continue;
        }
        chosen->merged += small;
        if (small && join_run(p, &run, b, any_stack)) {
            continue;
        }
        if (small && p->rows.n >= most) {
            chosen->dropped++;
            continue;
        }
        PLIM_TRY(plim_vec_push(&p->rows, err, life_now(d, b)));
        run = (struct run){small ? b->addr + b->size : 0, b->stack};
    }
    return PLIM_OK;
}

static enum plim_status choose(struct picker *p, uint64_t most, struct plim_detail_chosen *chosen,
                               struct plim_err *err)
{
    PLIM_TRY(each_block(p, count_level, err));
    p->least_level = fitting_level(p, most - most / 8);
    if (p->least_level >= ALWAYS + 1) {
        p->least_level = fitting_level(p, most); /* without room for the largest others */
    }
    for (uint32_t i = 0; i < LEVELS; i++) {
        chosen->blocks_of += p->by_level[i];
    }
    if (p->least_level == LEVELS) {
        PLIM_TRY(take_judged(p, 2 * most, false, chosen, err));
        return chosen->dropped > 0 ? take_judged(p, 2 * most, true, chosen, err) : PLIM_OK;
    }
    p->least_octave = OCTAVES;
    if (p->least_level > 0) {
        PLIM_TRY(each_block(p, count_size, err));
        p->least_octave = fitting_octave(p, most / 8);
    }
    chosen->all_blocks = p->least_level == 0;
    chosen->keyframes = p->least_level > GRID_BITS + 1
                            ? 0
                            : 1u << (GRID_BITS + 1 - plim_max_u64(p->least_level, 1));
    return each_block(p, take, err);
}

static void put_lives(struct plim_detail *detail, const char *prefix, const struct plim_life *rows,
                      size_t n, struct plim_columns *c)
{
    double *addr = plim_columns_f64(c, prefix, "addr", n);
    double *size = plim_columns_f64(c, prefix, "size", n);
    double *requested = plim_columns_f64(c, prefix, "requested", n);
    uint32_t *start = plim_columns_u32(c, prefix, "start", n);
    uint32_t *freed = plim_columns_u32(c, prefix, "freed", n);
    uint32_t *end = plim_columns_u32(c, prefix, "end", n);
    uint32_t *stack = plim_columns_u32(c, prefix, "stack", n);
    uint16_t *stream = plim_columns_u16(c, prefix, "stream", n);
    uint16_t *pool = plim_columns_u16(c, prefix, "pool", n);
    uint8_t *flags = plim_columns_u8(c, prefix, "flags", n);
    if (!addr || !size || !requested || !start || !freed || !end || !stack || !stream || !pool ||
        !flags) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        addr[i] = (double)rows[i].addr;
        size[i] = (double)rows[i].size;
        requested[i] = (double)rows[i].requested;
        start[i] = rows[i].start;
        freed[i] = rows[i].freed;
        end[i] = rows[i].end;
        stack[i] = rows[i].stack;
        stream[i] = rows[i].stream;
        pool[i] = rows[i].pool;
        flags[i] = (uint8_t)((rows[i].small ? 1u : 0u) | (rows[i].expandable ? 2u : 0u));
        if (rows[i].stack < detail->snapshot->stacks.stacks.n) {
            detail->used_stacks[rows[i].stack] = 1;
        }
    }
}

/* Segments: all of them, or those that a named moment shows and then the first ones. */
static enum plim_status put_segments(struct plim_detail *detail, size_t most,
                                     struct plim_columns *columns, struct plim_err *err)
{
    const struct plim_lives *lives = &detail->lives;
    PLIM_VEC(struct plim_life) rows = {0};
    enum plim_status st = PLIM_OK;
    if (lives->segments.n <= most) {
        put_lives(detail, "sg", lives->segments.items, lives->segments.n, columns);
        return PLIM_OK;
    }
    plim_vec_foreach (life, &lives->segments) {
        bool wanted = named_shows(detail, life);
        if (st == PLIM_OK && wanted && rows.n < most) {
            st = plim_vec_push(&rows, err, *life);
        }
    }
    if (st == PLIM_OK) {
        put_lives(detail, "sg", rows.items, rows.n, columns);
    }
    plim_vec_fini(&rows);
    return st;
}

enum plim_status plim_detail_put_rows(struct plim_detail *detail,
                                      const struct plim_detail_budget *budget,
                                      struct plim_columns *columns,
                                      struct plim_detail_chosen *chosen, struct plim_err *err)
{
    struct picker p = {.detail = detail, .n = detail->device->trace.events.n};
    enum plim_status st = choose(&p, budget->blocks, chosen, err);
    if (st == PLIM_OK) {
        chosen->blocks = p.rows.n;
        put_lives(detail, "bl", p.rows.items, p.rows.n, columns);
        st = put_segments(detail, budget->blocks, columns, err);
    }
    plim_vec_fini(&p.rows);
    return st;
}

/* ---- one moment, all of it ---- */

static enum plim_status lives_at(struct plim_detail *detail, uint32_t position, struct picker *p,
                                 struct plim_err *err)
{
    const struct plim_lives *lives = &detail->lives;
    const struct plim_event *events = detail->device->trace.events.items;
    plim_vec_foreach (life, &lives->before) {
        if (plim_life_at(life, position)) {
            PLIM_TRY(plim_vec_push(&p->rows, err, *life));
        }
    }
    for (uint32_t i = 0; i < position && i < detail->device->trace.events.n; i++) {
        uint32_t end = lives->link[i];
        if (events[i].action == PLIM_ACTION_ALLOC && (end == 0 || end > position)) {
            PLIM_TRY(plim_vec_push(&p->rows, err, plim_lives_of_event(lives, i)));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_detail_put_moment(struct plim_detail *detail, uint32_t position,
                                        struct plim_columns *columns, struct plim_err *err)
{
    struct picker p = {.detail = detail};
    enum plim_status st = lives_at(detail, position, &p, err);
    if (st == PLIM_OK) {
        put_lives(detail, "bl", p.rows.items, p.rows.n, columns);
        p.rows.n = 0;
        plim_vec_foreach (life, &detail->lives.segments) {
            if (st == PLIM_OK && plim_life_at(life, position)) {
                st = plim_vec_push(&p.rows, err, *life);
            }
        }
    }
    if (st == PLIM_OK) {
        put_lives(detail, "sg", p.rows.items, p.rows.n, columns);
    }
    plim_vec_fini(&p.rows);
    return st;
}

/* ---- events worth keeping ---- */

#define AROUND_ONE 16u /* 1/16 of the events on each side of each named moment */

static void mark(uint8_t *wanted, uint64_t from, uint64_t to, uint64_t n)
{
    for (uint64_t i = from; i < to && i < n; i++) {
        wanted[i] = 1;
    }
}

static void mark_all(const struct plim_detail *d, size_t most, uint8_t *wanted)
{
    uint64_t n = d->device->trace.events.n, around = most / AROUND_ONE / 2, segments = 0;
    for (size_t i = 0; i < PLIM_DETAIL_NAMED; i++) {
        uint64_t at = d->named[i];
        if (at != UINT32_MAX) {
            mark(wanted, plim_sub_sat(at, around), at + around, n);
        }
    }
    plim_vec_foreach (bin, &d->base.bins) {
        if (bin->largest != PLIM_NO_EVENT) {
            mark(wanted, bin->largest, (uint64_t)bin->largest + 1, n);
        }
    }
    for (uint64_t i = n; i-- > 0 && segments < most / 8;) {
        uint8_t action = d->device->trace.events.items[i].action;
        bool rare = action != PLIM_ACTION_ALLOC && action != PLIM_ACTION_FREE_REQUESTED &&
                    action != PLIM_ACTION_FREE_COMPLETED;
        segments += rare;
        wanted[i] = wanted[i] || rare;
    }
}

enum plim_status plim_detail_events_of_interest(const struct plim_detail *detail, size_t most,
                                                uint32_t **out, size_t *n, struct plim_err *err)
{
    size_t all = detail->device->trace.events.n, k = 0;
    uint8_t *wanted = calloc(all + 1, 1);
    uint32_t *events = malloc((plim_min_u64(all, most) + 1) * sizeof(*events));
    if (!wanted || !events) {
        free(wanted);
        free(events);
        return plim__fail(err, PLIM_E_NOMEM, "no memory to choose among %zu events", all);
    }
    if (all <= most) {
        mark(wanted, 0, all, all);
    } else {
        mark_all(detail, most, wanted);
    }
    for (size_t i = 0; i < all && k < most; i++) {
        if (wanted[i]) {
            events[k++] = (uint32_t)i;
        }
    }
    free(wanted);
    *out = events;
    *n = k;
    return PLIM_OK;
}
