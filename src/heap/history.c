/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass that pairs allocations with frees and adds up by stack. */

#include "heap/history.h"

#include "base/num.h"

struct reader {
    struct plim_history *history;
    const struct plim_trace *trace;
    size_t position;
    enum plim_action free_action; /* which of the two free events ends a life */
    bool releasing;               /* the last events gave segments back ... */
    uint32_t releaser;            /* ... in a call with this stack */
    int64_t live;                 /* bytes, against the start of the trace */
    uint32_t bin;                 /* of the last event */
    size_t next_bin;              /* first event of the bin behind it */
};

void plim_history_fini(struct plim_history *history)
{
    plim_vec_fini(&history->stacks);
    plim_map_fini(&history->births);
    plim_map_fini(&history->unknown_sizes);
}

static size_t slot_of(const struct plim_history *history, uint32_t stack)
{
    size_t last = history->stacks.n - 1;
    return stack < last ? stack : last;
}

const struct plim_stack_history *plim_history_of(const struct plim_history *history, uint32_t stack)
{
    return &history->stacks.items[slot_of(history, stack)];
}

static uint32_t lifetime_bucket(uint32_t lifetime)
{
    uint32_t bucket = lifetime ? 31u - (uint32_t)__builtin_clz(lifetime) : 0;
    return bucket < PLIM_LIFETIME_BUCKETS ? bucket : PLIM_LIFETIME_BUCKETS - 1;
}

static enum plim_status on_alloc(struct reader *r, size_t i, const struct plim_event *e,
                                 struct plim_err *err)
{
    struct plim_stack_history *s = &r->history->stacks.items[slot_of(r->history, e->stack)];
    s->allocs++;
    s->alloc_bytes = plim_add_sat(s->alloc_bytes, e->size);
    s->last_alloc = (uint32_t)i;
    r->history->allocs++;
    r->history->largest_request = plim_max_u64(r->history->largest_request, e->size);
    uint64_t *bin = &r->history->bin_bytes[plim_history_bin(i, r->position)];
    *bin = plim_add_sat(*bin, e->size);
    return e->addr == PLIM_MAP_NO_KEY ? PLIM_OK
                                      : plim_map_put(&r->history->births, e->addr, i, err);
}

/* A block from before the recording goes: by its size one may guess what replaces it. */
static enum plim_status on_unknown_free(struct reader *r, const struct plim_event *e,
                                        struct plim_err *err)
{
    const uint64_t *times = plim_map_get(&r->history->unknown_sizes, e->size);
    r->history->unknown_frees++;
    return e->size == PLIM_MAP_NO_KEY
               ? PLIM_OK
               : plim_map_put(&r->history->unknown_sizes, e->size, times ? *times + 1 : 1, err);
}

static enum plim_status on_free(struct reader *r, size_t i, const struct plim_event *e,
                                struct plim_err *err)
{
    uint64_t birth;
    if (!plim_map_take(&r->history->births, e->addr, &birth)) {
        return on_unknown_free(r, e, err);
    }
    const struct plim_event *alloc = &r->trace->events.items[birth];
    struct plim_stack_history *s = &r->history->stacks.items[slot_of(r->history, alloc->stack)];
    uint32_t lifetime = (uint32_t)(i - birth);
    s->frees++;
    s->freed_bytes = plim_add_sat(s->freed_bytes, alloc->size);
    s->max_lifetime = lifetime > s->max_lifetime ? lifetime : s->max_lifetime;
    s->lifetimes[lifetime_bucket(lifetime)]++;
    r->history->frees++;
    r->history->bin_frees[plim_history_bin(i, r->position)]++;
    return PLIM_OK;
}

static size_t first_of_bin(size_t bin, size_t position)
{
    return (bin * position + PLIM_HISTORY_BINS - 1) / PLIM_HISTORY_BINS;
}

/* Bytes that an event makes live; sizes beyond all memory count as none. */
static int64_t live_change(const struct reader *r, const struct plim_event *e)
{
    int64_t size = e->size <= (UINT64_C(1) << 50) ? (int64_t)e->size : 0;
    return e->action == PLIM_ACTION_ALLOC ? size : e->action == r->free_action ? -size : 0;
}

/* Keep the levels of each bin; a bin starts at the level where the one before ended. */
static void note_level(struct reader *r, size_t i, const struct plim_event *e)
{
    int64_t *floor = r->history->bin_floor, *peak = r->history->bin_peak;
    while (i >= r->next_bin) {
        floor[++r->bin] = r->live;
        peak[r->bin] = r->live;
        r->next_bin = first_of_bin(r->bin + 1, r->position);
    }
    r->live += live_change(r, e);
    floor[r->bin] = r->live < floor[r->bin] ? r->live : floor[r->bin];
    peak[r->bin] = r->live > peak[r->bin] ? r->live : peak[r->bin];
    r->history->live_end = r->live;
}

/* A new record in segment size: near the last one it lengthens the row, else it starts one. */
static void on_segment(struct plim_history *h, uint64_t size)
{
    if (size <= h->largest_segment) {
        return;
    }
    bool near =
        h->largest_segment > 20 * PLIM_MIB && size - h->largest_segment <= h->largest_segment / 8;
    h->growing_from = near ? h->growing_from : size;
    h->growing_segments = near ? h->growing_segments + 1 : 1;
    h->largest_segment = size;
}

static enum plim_status read_event(struct reader *r, size_t i, struct plim_err *err)
{
    const struct plim_event *e = &r->trace->events.items[i];
    enum plim_action action = (enum plim_action)e->action;
    bool gives_back = action == PLIM_ACTION_SEGMENT_FREE || action == PLIM_ACTION_SEGMENT_UNMAP;
    bool asks = action == PLIM_ACTION_SEGMENT_ALLOC || action == PLIM_ACTION_SEGMENT_MAP ||
                action == PLIM_ACTION_OOM;
    /* empty_cache() gives segments back too, but from a call of its own. */
    r->history->retries += asks && r->releasing && e->stack == r->releaser;
    r->releasing = gives_back;
    r->releaser = gives_back ? e->stack : PLIM_NO_STACK;
    note_level(r, i, e);
    if (action == PLIM_ACTION_ALLOC) {
        return on_alloc(r, i, e, err);
    }
    if (action == r->free_action) {
        return on_free(r, i, e, err);
    }
    if (action == PLIM_ACTION_SEGMENT_ALLOC) {
        on_segment(r->history, e->size);
    } else if (action == PLIM_ACTION_OOM) {
        r->history->ooms++;
        r->history->last_oom = (uint32_t)i;
    }
    return PLIM_OK;
}

enum plim_status plim_history_read(const struct plim_snapshot *snapshot,
                                   const struct plim_trace *trace, size_t position,
                                   struct plim_history *out, struct plim_err *err)
{
    struct plim_history history = {.last_oom = PLIM_NO_EVENT};
    struct reader r = {
        .history = &history,
        .trace = trace,
        .position = plim_min_u64(position, trace->events.n),
        .free_action = trace->by_action[PLIM_ACTION_FREE_REQUESTED] ? PLIM_ACTION_FREE_REQUESTED
                                                                    : PLIM_ACTION_FREE_COMPLETED,
    };
    r.next_bin = first_of_bin(1, r.position);
    size_t slots = snapshot->stacks.stacks.n + 1; /* the last one: events without a stack */
    PLIM_TRY(plim_vec_reserve(&history.stacks, slots, err));
    memset(history.stacks.items, 0, slots * sizeof(history.stacks.items[0]));
    history.stacks.n = slots;
    enum plim_status st = PLIM_OK;
    for (size_t i = 0; st == PLIM_OK && i < r.position; i++) {
        st = read_event(&r, i, err);
    }
    if (st != PLIM_OK) {
        plim_history_fini(&history);
        return st;
    }
    *out = history;
    return PLIM_OK;
}
