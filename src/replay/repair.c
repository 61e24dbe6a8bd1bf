/* SPDX-License-Identifier: Apache-2.0 */
/* See repair.h. */

#include "replay/repair.h"

#include "alloc/round.h"
#include "replay/replay_int.h"

#define MOST_ENTRIES 20000000u /* replayed for corrections: about a second */
#define UNSPLIT      PLIM_MIB  /* a larger rest would have been split off */

struct repair {
    struct plim_requests *q;
    uint64_t recorded; /* address that was handed out or given back; 0: none was */
    uint64_t model;    /* address that the model takes instead; 0: none */
    uint64_t size;     /* rounded, of the request */
};

/* Index of the segment that holds addr, or PLIM_NO_ID. */
static uint32_t segment_at(const struct plim_heap *heap, uint64_t addr)
{
    size_t lo = 0, hi = heap->segments.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct plim_segment *s = &heap->segments.items[mid];
        if (addr >= s->addr && addr - s->addr < s->size) {
            return (uint32_t)mid;
        }
        if (s->addr > addr) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return PLIM_NO_ID;
}

/* The free block of the start that holds addr, behind a live one of the same segment; NULL when none. */
static struct plim_block *gap_at(struct plim_heap *heap, uint64_t addr)
{
    uint32_t k = segment_at(heap, addr);
    if (k == PLIM_NO_ID) {
        return NULL;
    }
    const struct plim_segment *s = &heap->segments.items[k];
    for (uint32_t i = 1; i < s->n_blocks && !s->small && !s->expandable; i++) {
        struct plim_block *b = &heap->blocks.items[s->first_block + i];
        bool holds = addr >= b->addr && addr - b->addr < b->size;
        if (holds && b->state == PLIM_BLOCK_INACTIVE && b[-1].state != PLIM_BLOCK_INACTIVE) {
            return b;
        }
    }
    return NULL;
}

/* Give the first `bytes` of a gap to the block before it. */
static bool extend_before(struct plim_block *gap, uint64_t bytes)
{
    struct plim_block *before = gap - 1;
    uint64_t rest = before->size - plim_min_u64(before->size, before->requested);
    bytes = plim_round_up(bytes, PLIM_TORCH_MIN_BLOCK);
    if (bytes == 0 || bytes >= gap->size || rest + bytes > UNSPLIT + PLIM_TORCH_MIN_BLOCK) {
        return false;
    }
    before->size += bytes;
    gap->addr += bytes;
    gap->size -= bytes;
    return true;
}

static enum plim_status order_make(struct plim_requests *q, struct plim_err *err)
{
    PLIM_TRY(plim_vec_reserve(&q->start_order, q->start.segments.n, err));
    for (size_t i = q->start_order.n; i < q->start.segments.n; i++) {
        q->start_order.items[q->start_order.n++] = (uint32_t)i;
    }
    return PLIM_OK;
}

/* Make segment `older` the one created just before `younger`; false when it was before it already. */
static bool reorder(struct plim_requests *q, uint32_t older, uint32_t younger)
{
    size_t from = SIZE_MAX, to = SIZE_MAX;
    for (size_t i = 0; i < q->start_order.n; i++) {
        from = q->start_order.items[i] == older ? i : from;
        to = q->start_order.items[i] == younger ? i : to;
    }
    if (from == SIZE_MAX || to == SIZE_MAX || from <= to ||
        q->start.segments.items[older].expandable || q->start.segments.items[younger].expandable) {
        return false;
    }
    memmove(&q->start_order.items[to + 1], &q->start_order.items[to],
            (from - to) * sizeof q->start_order.items[0]);
    q->start_order.items[to] = older;
    return true;
}

/* One correction for one difference; false when there is none to make. */
static bool correct(struct repair *r)
{
    struct plim_heap *start = &r->q->start;
    struct plim_block *gap = r->recorded ? gap_at(start, r->recorded) : NULL;
    if (gap && r->recorded > gap->addr && r->recorded - gap->addr <= UNSPLIT &&
        extend_before(gap, r->recorded - gap->addr)) {
        return true;
    }
    uint32_t older = r->recorded ? segment_at(start, r->recorded) : PLIM_NO_ID;
    uint32_t younger = r->model ? segment_at(start, r->model) : PLIM_NO_ID;
    if (older != PLIM_NO_ID && younger != PLIM_NO_ID && older != younger &&
        r->q->conf.version.minor >= 13 && reorder(r->q, older, younger)) {
        return true;
    }
    gap = r->model ? gap_at(start, r->model) : NULL;
    return gap && gap->addr == r->model && gap->size >= r->size &&
           extend_before(gap, gap->size - r->size + PLIM_TORCH_MIN_BLOCK);
}

/* What the difference says about the start. */
static struct repair question(struct plim_requests *q, const struct plim_selfcheck *check)
{
    struct repair r = {.q = q, .model = check->model_addr};
    const struct plim_event *e =
        check->event == PLIM_NO_EVENT ? NULL : &q->device->trace.events.items[check->event];
    if (e && (e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_SEGMENT_FREE)) {
        r.recorded = e->addr;
    }
    if (check->request < q->items.n) {
        uint64_t size = q->items.items[check->request].size;
        r.size = size ? plim_round_request(size, q->conf.roundup) : 0;
    }
    return r;
}

enum plim_status plim_requests_repair(struct plim_requests *requests, uint64_t capacity,
                                      uint64_t budget, struct plim_selfcheck *check,
                                      struct plim_err *err)
{
    struct plim_selfcheck at;
    uint64_t spent = 0;
    budget = budget ? budget
                    : plim_min_u64(400 * (uint64_t)requests->device->trace.events.n, MOST_ENTRIES);
    if (!requests->complete) {
        PLIM_TRY(order_make(requests, err));
    }
    PLIM_TRY(plim__selfcheck_once(requests, capacity, NULL, 0, &at, err));
    while (!requests->complete && at.differences > 0 && spent < budget) {
        struct repair r = question(requests, &at);
        if (!correct(&r)) {
            break;
        }
        requests->repairs++;
        PLIM_TRY(plim__selfcheck_once(requests, capacity, NULL, 0, &at, err));
        spent += at.compared + 100;
    }
    requests->start_verified = !requests->complete && at.differences == 0 && at.heap_equal;
    if (check) {
        *check = at;
    }
    return PLIM_OK;
}
