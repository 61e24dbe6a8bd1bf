/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a trace to requests, in one forward walk over its events with a map from block addresses to
 * slots. Hostile traces cannot break it: whatever does not fit is left out and counted as a doubt.
 */

#include "replay/requests_int.h"

#include "alloc/recorded.h"
#include "alloc/round.h"
#include "format/capture.h"
#include "heap/moment.h"

#define MOST_LOOKS 100000000u /* for the begin of reservations: a tenth of a second */

/* ---- appending --------------------------------------------------------------------------------- */

enum plim_status plim__request_push(struct plim__builder *b, enum plim_request_kind kind,
                                    uint64_t size, uint32_t slot, uint32_t lane,
                                    struct plim_err *err)
{
    uint32_t what = (uint32_t)kind | (lane << PLIM_REQUEST_LANE_SHIFT) |
                    (kind == PLIM_REQUEST_ALLOC ? PLIM_REQUEST_KEPT : 0);
    return plim_vec_push(&b->q->items, err, (struct plim_request){size, slot, what});
}

enum plim_status plim__request_lane(struct plim__builder *b, uint16_t stream, uint16_t pool,
                                    uint32_t *lane, struct plim_err *err)
{
    pool = pool == PLIM_NO_POOL ? 0 : pool;
    uint64_t key = (uint64_t)stream << 16 | pool;
    const uint64_t *found = plim_map_get(&b->lanes, key);
    if (found) {
        *lane = (uint32_t)*found;
        return PLIM_OK;
    }
    if (b->q->lanes.n >= (UINT32_MAX >> PLIM_REQUEST_LANE_SHIFT)) {
        return plim__fail(err, PLIM_E_BUDGET, "too many combinations of streams and pools");
    }
    PLIM_TRY(plim_map_put(&b->lanes, key, b->q->lanes.n, err));
    *lane = (uint32_t)b->q->lanes.n;
    return plim_vec_push(&b->q->lanes, err, (struct plim_lane){stream, pool});
}

/* ---- slots ------------------------------------------------------------------------------------- */

static uint64_t key_of(uint64_t addr)
{
    return addr == PLIM_MAP_NO_KEY ? 0 : addr;
}

static enum plim_status slot_take(struct plim__builder *b, uint32_t born, uint32_t *slot,
                                  struct plim_err *err)
{
    if (b->free_slots.n > 0) {
        *slot = b->free_slots.items[--b->free_slots.n];
        b->born.items[*slot] = born;
        return PLIM_OK;
    }
    PLIM_TRY(plim_vec_reserve(&b->free_slots, b->born.n + 1, err)); /* giving back cannot fail */
    *slot = (uint32_t)b->born.n;
    b->q->slots = *slot + 1;
    return plim_vec_push(&b->born, err, born);
}

static void slot_give(struct plim__builder *b, uint32_t slot)
{
    b->free_slots.items[b->free_slots.n++] = slot;
}

/* The block of this slot is let go: it was not kept to the end. */
static void mark_freed(struct plim__builder *b, uint32_t slot)
{
    if (b->born.items[slot] != PLIM_NO_ID) {
        b->q->items.items[b->born.items[slot]].what &= ~PLIM_REQUEST_KEPT;
    }
}

static enum plim_status free_now(struct plim__builder *b, uint64_t addr, uint32_t slot,
                                 enum plim_request_kind kind, struct plim_err *err)
{
    PLIM_TRY(plim__request_push(b, kind, 0, slot, 0, err));
    mark_freed(b, slot);
    plim_map_take(&b->live, key_of(addr), NULL);
    slot_give(b, slot);
    return PLIM_OK;
}

/* ---- one event --------------------------------------------------------------------------------- */

/* Before 2.12 events do not name the pool; the final segments do. */
static uint16_t pool_of(struct plim__builder *b, const struct plim_event *e)
{
    if (e->pool != PLIM_NO_POOL) {
        return e->pool;
    }
    if (b->q->snapshot->pools.n < 2) {
        return 0;
    }
    plim_vec_foreach (s, &b->q->device->heap.segments) {
        if (s->pool != 0 && e->addr >= s->addr && e->addr - s->addr < s->size) {
            b->q->doubts.guessed_pools++;
            return s->pool;
        }
    }
    return 0;
}

static enum plim_status on_alloc(struct plim__builder *b, const struct plim_event *e,
                                 struct plim_err *err)
{
    if (e->size == 0 || e->size >= PLIM_TORCH_TOO_LARGE) {
        *(e->size == 0 ? &b->q->doubts.zero_sizes : &b->q->doubts.impossible_sizes) += 1;
        return PLIM_OK;
    }
    const uint64_t *old = plim_map_get(&b->live, key_of(e->addr));
    if (old) {
        b->q->doubts.lost_frees++;
        enum plim_request_kind kind =
            *old & PLIM__PENDING_BIT ? PLIM_REQUEST_FREE_END : PLIM_REQUEST_FREE;
        PLIM_TRY(free_now(b, e->addr, (uint32_t)*old, kind, err));
    }
    uint32_t lane, slot;
    PLIM_TRY(plim__request_lane(b, e->stream, pool_of(b, e), &lane, err));
    PLIM_TRY(slot_take(b, (uint32_t)b->q->items.n, &slot, err));
    PLIM_TRY(plim_map_put(&b->live, key_of(e->addr), slot, err));
    b->q->allocs++;
    return plim__request_push(b, PLIM_REQUEST_ALLOC, e->size, slot, lane, err);
}

/* *skip: the next event is this free's completion and is dealt with. */
static enum plim_status on_free_requested(struct plim__builder *b, size_t i, bool *skip,
                                          struct plim_err *err)
{
    const struct plim_event *e = &b->trace->events.items[i];
    uint64_t *found = plim_map_get(&b->live, key_of(e->addr));
    bool done = i + 1 < b->trace->events.n && e[1].action == PLIM_ACTION_FREE_COMPLETED &&
                e[1].addr == e->addr;
    *skip = done;
    if (!found || *found & PLIM__PENDING_BIT) {
        *(found ? &b->q->doubts.repeated_frees : &b->q->doubts.unknown_frees) += 1;
        *skip = done && !found;
        return PLIM_OK;
    }
    if (done || !b->completions_recorded) {
        return free_now(b, e->addr, (uint32_t)*found, PLIM_REQUEST_FREE, err);
    }
    uint32_t slot = (uint32_t)*found;
    *found |= PLIM__PENDING_BIT;
    mark_freed(b, slot);
    return plim__request_push(b, PLIM_REQUEST_FREE_BEGIN, 0, slot, 0, err);
}

static enum plim_status on_free_completed(struct plim__builder *b, const struct plim_event *e,
                                          struct plim_err *err)
{
    const uint64_t *found = plim_map_get(&b->live, key_of(e->addr));
    if (!found) {
        b->q->doubts.unknown_frees++;
        return PLIM_OK;
    }
    enum plim_request_kind kind =
        *found & PLIM__PENDING_BIT ? PLIM_REQUEST_FREE_END : PLIM_REQUEST_FREE;
    return free_now(b, e->addr, (uint32_t)*found, kind, err);
}

static enum plim_status on_oom(struct plim__builder *b, size_t i, struct plim_err *err)
{
    const struct plim_event *e = &b->trace->events.items[i];
    uint32_t lane, slot;
    if (e->size == 0 || e->size >= PLIM_TORCH_TOO_LARGE) {
        b->q->doubts.impossible_sizes++;
        return PLIM_OK;
    }
    b->q->doubts.rounded_failures += b->rounds_up;
    PLIM_TRY(plim__request_lane(b, e->stream, e->pool, &lane, err));
    PLIM_TRY(slot_take(b, PLIM_NO_ID, &slot, err));
    PLIM_TRY(plim__request_push(b, PLIM_REQUEST_ALLOC, e->size, slot, lane, err));
    b->q->items.items[b->q->items.n - 1].what &= ~PLIM_REQUEST_KEPT;
    b->q->allocs++;
    if (b->last_alloc != SIZE_MAX && b->last_alloc > i) {
        b->q->doubts.caught_failures++;
        PLIM_TRY(plim__request_push(b, PLIM_REQUEST_FREE, 0, slot, 0, err));
        slot_give(b, slot);
    }
    return PLIM_OK;
}

/* Handle the event at *i and move on to the next one that is not dealt with. */
static enum plim_status step(struct plim__builder *b, size_t *i, struct plim_err *err)
{
    const struct plim_event *e = &b->trace->events.items[*i];
    bool skip = false;
    enum plim_status st = PLIM_OK;
    switch ((enum plim_action)e->action) {
    case PLIM_ACTION_ALLOC:
        st = on_alloc(b, e, err);
        break;
    case PLIM_ACTION_FREE_REQUESTED:
        st = on_free_requested(b, *i, &skip, err);
        break;
    case PLIM_ACTION_FREE_COMPLETED:
        st = on_free_completed(b, e, err);
        break;
    case PLIM_ACTION_SEGMENT_ALLOC:
    case PLIM_ACTION_SEGMENT_MAP:
        b->reserved = plim_add_sat(b->reserved, e->size);
        break;
    case PLIM_ACTION_SEGMENT_FREE:
    case PLIM_ACTION_SEGMENT_UNMAP:
        return plim__request_burst(b, *i, i, err);
    case PLIM_ACTION_OOM:
        st = on_oom(b, *i, err);
        break;
    case PLIM_ACTION_SNAPSHOT:
    case PLIM_ACTION_ANNOTATE:
        break;
    case PLIM_ACTION_UNKNOWN:
    case PLIM_ACTION_COUNT:
    default:
        b->q->doubts.unknown_actions++;
        break;
    }
    *i += skip ? 2 : 1;
    return st;
}

/* ---- before the walk --------------------------------------------------------------------------- */

/* Take up to `bytes` from a gap; what is left of it. */
static uint64_t shrink(struct plim_block *gap, uint64_t bytes)
{
    bytes = plim_min_u64(bytes, gap->size);
    gap->addr += bytes;
    gap->size -= bytes;
    return bytes;
}

/*
 * The reconstructed heap knows rounding to 512 bytes. With roundup_power2_divisions blocks are larger, and
 * with max_split_size_mb large ones are not split: the rest is taken from the gap behind. Gaps that vanish
 * are dropped.
 */
static void apply_rounding(struct plim_requests *q)
{
    size_t kept = 0;
    plim_vec_foreach (s, &q->start.segments) {
        size_t first = s->first_block, n = s->n_blocks;
        s->first_block = (uint32_t)kept;
        for (size_t i = first; i < first + n; i++) {
            struct plim_block b = q->start.blocks.items[i];
            bool gap_behind = i + 1 < first + n && b.state != PLIM_BLOCK_INACTIVE &&
                              q->start.blocks.items[i + 1].state == PLIM_BLOCK_INACTIVE;
            if (gap_behind && b.requested > 0 && b.requested < PLIM_TORCH_TOO_LARGE) {
                uint64_t want = plim_round_request(b.requested, q->conf.roundup);
                struct plim_block *gap = &q->start.blocks.items[i + 1];
                if (want >= q->conf.max_split && gap->size < q->conf.max_non_split_rounding) {
                    want = b.size + gap->size; /* not split: the rest belongs to it */
                }
                b.size += shrink(gap, plim_sub_sat(want, b.size));
            }
            if (b.size > 0) {
                q->start.blocks.items[kept++] = b;
            }
        }
        s->n_blocks = (uint32_t)(kept - s->first_block);
    }
    q->start.blocks.n = kept;
}

/*
 * An expandable segment whose first pages are unmapped begins below its lowest run. Pages mapped there later,
 * on the same stream and for the same pool, with nothing of the starting heap in between, show where.
 */
static enum plim_status find_bases(struct plim_requests *q, struct plim_err *err)
{
    uint64_t ceiling = 0; /* end of the segment below */
    uint64_t looks = (uint64_t)q->start.segments.n * q->device->trace.events.n;
    bool quick = looks < MOST_LOOKS && q->device->trace.by_action[PLIM_ACTION_SEGMENT_MAP] > 0;
    PLIM_TRY(plim_vec_reserve(&q->start_bases, q->start.segments.n, err));
    plim_vec_foreach (s, &q->start.segments) {
        uint64_t base = s->addr;
        uint64_t page = s->small ? PLIM_TORCH_SMALL_SEGMENT : q->conf.large_segment;
        for (size_t i = 0; quick && s->expandable && i < q->device->trace.events.n; i++) {
            const struct plim_event *e = &q->device->trace.events.items[i];
            uint16_t pool = e->pool == PLIM_NO_POOL ? 0 : e->pool;
            if (e->action == PLIM_ACTION_SEGMENT_MAP && e->stream == s->stream && pool == s->pool &&
                e->addr < base && e->addr >= ceiling && (s->addr - e->addr) % page == 0 &&
                s->addr - e->addr <= q->recorded_peak_reserved) {
                base = e->addr;
            }
        }
        q->start_bases.items[q->start_bases.n++] = base;
        ceiling = plim_add_sat(s->addr, s->size);
    }
    return PLIM_OK;
}

static enum plim_status start_heap(struct plim__builder *b, struct plim_err *err)
{
    struct plim_requests *q = b->q;
    struct plim_moment_gaps gaps = {0};
    PLIM_TRY(plim_heap_at(q->device, 0, NULL, &q->start, &gaps, err));
    q->doubts.start_gaps = gaps.outside + gaps.unknown_allocs + gaps.unknown_segments;
    if (b->rounds_up || q->conf.max_split != UINT64_MAX) {
        apply_rounding(q);
    }
    PLIM_TRY(plim_vec_reserve(&q->start_slots, q->start.blocks.n, err));
    plim_vec_foreach (block, &q->start.blocks) {
        uint32_t slot = PLIM_NO_ID;
        if (block->state != PLIM_BLOCK_INACTIVE) {
            PLIM_TRY(slot_take(b, PLIM_NO_ID, &slot, err));
            uint64_t pending = block->state == PLIM_BLOCK_PENDING_FREE ? PLIM__PENDING_BIT : 0;
            PLIM_TRY(plim_map_put(&b->live, key_of(block->addr), slot | pending, err));
        }
        q->start_slots.items[q->start_slots.n++] = slot;
    }
    return find_bases(q, err);
}

/* What a failure in the recording says about the room there was. */
static void learn_capacity(struct plim__builder *b, uint64_t reserved)
{
    struct plim_requests *q = b->q;
    b->last_alloc = SIZE_MAX;
    for (size_t i = 0; i < b->trace->events.n; i++) {
        const struct plim_event *e = &b->trace->events.items[i];
        if (e->action == PLIM_ACTION_SEGMENT_ALLOC || e->action == PLIM_ACTION_SEGMENT_MAP) {
            reserved = plim_add_sat(reserved, e->size);
        } else if (e->action == PLIM_ACTION_SEGMENT_FREE ||
                   e->action == PLIM_ACTION_SEGMENT_UNMAP) {
            reserved = plim_sub_sat(reserved, e->size);
        } else if (e->action == PLIM_ACTION_ALLOC) {
            b->last_alloc = i;
        } else if (e->action == PLIM_ACTION_OOM && !q->recorded_failure &&
                   e->size < PLIM_TORCH_TOO_LARGE) {
            q->recorded_failure = true;
            q->failure_event = (uint32_t)i;
            /* Growing an expandable segment may take up to a page more than the request. */
            uint64_t need = plim_round_segment(e->size, q->conf.large_segment) +
                            (q->conf.expandable ? 2 * q->conf.large_segment : 0);
            q->recorded_capacity = plim_add_sat(reserved, e->addr);
            q->cap_seen = e->addr >= need;
        }
    }
}

static void learn_conf(struct plim_requests *q, const struct plim_requests_options *options)
{
    struct plim_torch_version version = options->version;
    if (version.major == 0) {
        version = plim_recorded_version(q->snapshot);
    }
    q->conf_known = plim_recorded_conf(q->snapshot, version, &q->conf);
}

static enum plim_status build(struct plim__builder *b, const struct plim_requests_options *options,
                              struct plim_err *err)
{
    struct plim_requests *q = b->q;
    struct plim_peaks peaks = plim_trace_peaks(q->device);
    size_t n = b->trace->events.n;
    if (n >= UINT32_MAX / 4) {
        return plim__fail(err, PLIM_E_BUDGET, "a trace of %zu events is too long to replay", n);
    }
    learn_conf(q, options);
    q->recorded_peak_reserved = peaks.reserved;
    q->complete = peaks.reserved_at_start == 0 && n > 0;
    b->reserved = peaks.reserved_at_start;
    b->completions_recorded = b->trace->by_action[PLIM_ACTION_FREE_COMPLETED] > 0;
    learn_capacity(b, b->reserved);
    b->cap = UINT64_MAX;
    if (options->device_total > 0 && q->conf.memory_fraction < 1.0) {
        b->cap = (uint64_t)(q->conf.memory_fraction * (double)options->device_total);
        b->gc_limit = (uint64_t)(q->conf.gc_threshold * (double)b->cap);
    }
    for (size_t i = 0; i < PLIM_ROUND_INTERVALS; i++) {
        b->rounds_up = b->rounds_up || q->conf.roundup[i] > 1;
    }
    b->limit = options->device_total > 0
                   ? plim_sub_sat(options->device_total, options->external)
                   : plim_max_u64(peaks.reserved, q->cap_seen ? 0 : q->recorded_capacity);
    if (!q->complete) {
        PLIM_TRY(start_heap(b, err));
    }
    PLIM_TRY(plim_vec_reserve(&q->items, n / 3 * 2 + 16, err));
    for (size_t i = 0; i < n;) {
        PLIM_TRY(step(b, &i, err));
    }
    if (q->recorded_capacity == 0 && q->own_bursts > 0) {
        q->recorded_capacity = peaks.reserved;
    }
    return PLIM_OK;
}

/* ---- public ------------------------------------------------------------------------------------ */

enum plim_status plim_requests_build(const struct plim_snapshot *snapshot, uint32_t device,
                                     const struct plim_requests_options *options,
                                     struct plim_requests *out, struct plim_err *err)
{
    static const struct plim_requests_options defaults;
    if (device >= snapshot->devices.n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "the snapshot has no device %u", device);
    }
    struct plim_requests q = {.snapshot = snapshot, .device = &snapshot->devices.items[device]};
    struct plim__builder b = {.q = &q, .trace = &q.device->trace};
    enum plim_status st = build(&b, options ? options : &defaults, err);
    plim_map_fini(&b.live);
    plim_map_fini(&b.lanes);
    plim_vec_fini(&b.free_slots);
    plim_vec_fini(&b.born);
    if (st == PLIM_OK) {
        *out = q;
    } else {
        plim_requests_fini(&q);
    }
    return st;
}

void plim_requests_fini(struct plim_requests *requests)
{
    plim_vec_fini(&requests->items);
    plim_vec_fini(&requests->lanes);
    plim_vec_fini(&requests->start_slots);
    plim_vec_fini(&requests->start_order);
    plim_vec_fini(&requests->start_bases);
    plim_heap_fini(&requests->start);
}

uint32_t plim_requests_event(const struct plim_requests *requests, uint64_t alloc_index)
{
    const struct plim_trace *trace = &requests->device->trace;
    for (size_t i = 0; i < trace->events.n; i++) {
        const struct plim_event *e = &trace->events.items[i];
        if ((e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_OOM) && e->size > 0 &&
            e->size < PLIM_TORCH_TOO_LARGE && alloc_index-- == 0) {
            return (uint32_t)i;
        }
    }
    return PLIM_NO_EVENT;
}

uint32_t plim_requests_busiest(const struct plim_snapshot *snapshot)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < snapshot->devices.n; i++) {
        const struct plim_device *d = &snapshot->devices.items[i];
        const struct plim_device *b = &snapshot->devices.items[best];
        if (d->trace.events.n > b->trace.events.n ||
            (d->trace.events.n == b->trace.events.n && d->heap.segments.n > b->heap.segments.n)) {
            best = i;
        }
    }
    return best;
}

/* As the maker of the snapshot says; false when it does not, or names a release that is not imitated. */
static bool captured_version(const struct plim_snapshot *snapshot, struct plim_torch_version *out)
{
    struct plim_arena arena;
    struct plim_capture capture;
    struct plim_str text = plim_intern_str(&snapshot->strings, snapshot->capture);
    plim_arena_init(&arena, 0);
    bool known = snapshot->capture != PLIM_NO_ID &&
                 plim_capture_read(text, &arena, &capture, NULL) == PLIM_OK &&
                 capture.torch != NULL &&
                 plim_torch_version_parse(plim_str_from(capture.torch), out, NULL) == PLIM_OK;
    plim_arena_fini(&arena);
    return known;
}

/* As it was noted, else by keys that a release introduced: host_segments 2.14, pool_id 2.12. Else one before
 * the order of equal blocks changed. */
struct plim_torch_version plim_recorded_version(const struct plim_snapshot *snapshot)
{
    struct plim_torch_version version;
    if (captured_version(snapshot, &version)) {
        return version;
    }
    if (snapshot->host.known) {
        return PLIM_TORCH_LATEST;
    }
    plim_vec_foreach (device, &snapshot->devices) {
        if (device->trace.events.n > 0 && device->trace.events.items[0].pool != PLIM_NO_POOL) {
            return (struct plim_torch_version){2, 12};
        }
    }
    return (struct plim_torch_version){2, 8};
}
