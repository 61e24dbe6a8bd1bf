/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of one process as a snapshot; see trace_build.h. Each allocation becomes a segment with one block in it,
 * each release takes both away, so that the heap's invariants hold at every position. A release that
 * the driver refused is undone.
 */

#include "format/trace_build.h"

#include "base/num.h"
#include "format/trace_owners.h"
#include "heap/ranges.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_UNIT 512u /* a driver's allocations are at least so far apart */
#define DEVICES    17u  /* 0 to 15 and "not known", which counts as 0 */

struct live {
    uint64_t addr, size;
    uint64_t owner;
    uint32_t stack;
    bool expandable;
};

struct on_device {
    PLIM_VEC(struct live) lives;   /* entries of the ranges; ids stay, freed ones have size 0 */
    struct plim_ranges ranges;     /* address -> index in lives */
    uint64_t charged[PLIM_OWNERS]; /* wraps */
    uint64_t others;               /* wraps */
};

struct building {
    const struct plim_recording *r;
    struct plim_snapshot snap;
    struct plim_err *err;
    uint32_t process;
    uint32_t allocator;      /* bits of owners */
    struct plim_map stacks;  /* call, library, stack -> stack id */
    struct plim_map handles; /* handle -> owner, of physical memory */
    PLIM_VEC(uint8_t) final; /* [events]: a failure that was not served afterwards */
    struct on_device on[DEVICES];
    uint64_t overlaps; /* allocations at addresses that are taken */
};

/* -- failures ------------------------------------------------------------------------------------ */

/* Mark the failures that stayed: the same thread did not get those bytes by its next requests, which
 * are all that lie between the failure and an allocator's second try. */
static enum plim_status mark_failures(struct building *b)
{
    const struct plim_recording *r = b->r;
    struct plim_map open = {0}; /* thread -> its last failed event */
    enum plim_status st = plim_vec_reserve(&b->final, r->events.n + 1, b->err);
    if (st == PLIM_OK) {
        memset(b->final.items, 0, r->events.n + 1);
        b->final.n = r->events.n;
    }
    for (size_t i = 0; st == PLIM_OK && i < r->events.n; i++) {
        const struct plim_trace_event *t = &r->events.items[i];
        uint64_t before;
        if (t->process != b->process) {
            continue;
        }
        if (plim__event_failed(&t->e)) {
            if (plim_map_take(&open, t->e.thread, &before) &&
                r->events.items[before].e.size != t->e.size) {
                b->final.items[before] = 1; /* it went on to ask for something else */
            }
            st = plim_map_put(&open, t->e.thread, i, b->err);
        } else if (plim__event_served(&t->e) && plim_map_take(&open, t->e.thread, &before)) {
            b->final.items[before] = r->events.items[before].e.size != t->e.size;
        }
    }
    const struct plim_map_slot *slot;
    size_t cursor = 0;
    while ((slot = plim_map_next(&open, &cursor)) != NULL) {
        b->final.items[slot->value] = 1;
    }
    plim_map_fini(&open);
    return st;
}

/* -- stacks -------------------------------------------------------------------------------------- */

static struct plim_str base_of(struct plim_str path)
{
    size_t at = path.n;
    while (at > 0 && path.p[at - 1] != '/') {
        at--;
    }
    return plim_str_skip(path, at);
}

static enum plim_status push_frame(struct building *b, struct plim_str name, struct plim_str file,
                                   uint32_t *ids, size_t *n)
{
    struct plim_frame frame = {.line = 0};
    PLIM_TRY(plim_intern_put(&b->snap.strings, name, &frame.name, b->err));
    PLIM_TRY(plim_intern_put(&b->snap.strings, file, &frame.file, b->err));
    PLIM_TRY(plim_stacks_frame(&b->snap.stacks, frame, &ids[*n], b->err));
    (*n)++;
    return PLIM_OK;
}

/* Return addresses as "libfoo.so+0x1234". */
static enum plim_status push_native(struct building *b, const struct plim_trace_event *t,
                                    uint32_t *ids, size_t *n)
{
    size_t count;
    const uint64_t *frames = plim_recorded_stack(b->r, t, &count);
    for (size_t i = 0; i < count; i++) {
        const struct plim_recorded_library *library =
            plim_recorded_library_at(b->r, t->process, frames[i]);
        char text[160];
        struct plim_str path =
            plim_intern_str(&b->r->strings, library ? library->path : PLIM_NO_ID);
        struct plim_str base = base_of(path);
        int length = snprintf(text, sizeof(text), "%.*s+0x%llx", PLIM_STR_ARG(base),
                              (unsigned long long)(frames[i] - (library ? library->base : 0)));
        size_t used = plim_min_u64((uint64_t)length, sizeof(text) - 1);
        PLIM_TRY(push_frame(b, (struct plim_str){text, used}, path, ids, n));
    }
    return PLIM_OK;
}

/* What stands for the stack of an event: the library and the function that it called, then the callers. */
static enum plim_status stack_of(struct building *b, const struct plim_trace_event *t,
                                 uint32_t *out)
{
    uint64_t key = (uint64_t)t->e.call << 48 | (uint64_t)t->e.library << 32 | t->e.stack;
    uint64_t *known = plim_map_get(&b->stacks, key);
    if (known != NULL) {
        *out = (uint32_t)*known;
        return PLIM_OK;
    }
    uint32_t ids[PLIM_TRACE_FRAMES_MAX + 2];
    size_t n = 0;
    const struct plim_recorded_library *library = plim_recorded_library(b->r, t);
    struct plim_str path = plim_intern_str(&b->r->strings, library ? library->path : PLIM_NO_ID);
    struct plim_str name = plim_recorded_call(b->r, t);
    if (name.n == 0 && path.n == 0 && t->e.stack == 0) {
        *out = PLIM_NO_STACK;
        return PLIM_OK;
    }
    if (name.n > 0) {
        PLIM_TRY(push_frame(b, name, path, ids, &n));
    }
    if (path.n > 0) {
        PLIM_TRY(push_frame(b, base_of(path), path, ids, &n));
    }
    PLIM_TRY(push_native(b, t, ids, &n));
    PLIM_TRY(plim_stacks_stack(&b->snap.stacks, ids, n, out, b->err));
    return key == PLIM_MAP_NO_KEY ? PLIM_OK : plim_map_put(&b->stacks, key, *out, b->err);
}

/* -- events of the heap -------------------------------------------------------------------------- */

static uint64_t micros(const struct plim_trace_event *t)
{
    return t->e.time_ns / 1000;
}

static unsigned device_of(const struct plim_gpu_event *e)
{
    return e->device < DEVICES - 1 ? e->device : 0;
}

static enum plim_status push_event(struct building *b, const struct plim_trace_event *t,
                                   enum plim_action action, uint64_t addr, uint64_t size,
                                   uint32_t stack)
{
    struct plim_device *device;
    PLIM_TRY(plim_snapshot_device(&b->snap, device_of(&t->e), &device, b->err));
    struct plim_trace *trace = &device->trace;
    if (trace->events.n >= UINT32_MAX - 8) {
        return plim__fail(b->err, PLIM_E_BUDGET, "the trace has too many events");
    }
    trace->by_action[action]++;
    return plim_vec_push(&trace->events, b->err,
                         (struct plim_event){.addr = addr,
                                             .size = size,
                                             .time_us = micros(t),
                                             .stack = stack,
                                             .note = PLIM_NO_ID,
                                             .action = (uint8_t)action});
}

/* Bytes of address space that a block takes; 0 when that makes no sense. */
static uint64_t span_of(uint64_t addr, uint64_t size)
{
    uint64_t span = plim_round_up(size, BLOCK_UNIT), end;
    return plim_add_overflows(addr, span, &end) || span < size ? 0 : span;
}

static bool overlaps(const struct on_device *on, uint64_t addr, uint64_t span)
{
    const struct plim_addr_range *low = plim_ranges_find(&on->ranges, addr);
    const struct plim_addr_range *high = plim_ranges_find(&on->ranges, addr + span - 1);
    return low != NULL || high != NULL;
}

static enum plim_status heap_add(struct building *b, const struct plim_trace_event *t,
                                 uint64_t owner, bool expandable)
{
    struct on_device *on = &b->on[device_of(&t->e)];
    uint64_t span = span_of(t->e.addr, t->e.size);
    uint32_t stack;
    if (span == 0 || t->e.size == 0) {
        return PLIM_OK;
    }
    if (overlaps(on, t->e.addr, span)) {
        b->overlaps++;
        return PLIM_OK;
    }
    PLIM_TRY(stack_of(b, t, &stack));
    struct live live = {t->e.addr, t->e.size, owner, stack, expandable};
    struct plim_addr_range range = {t->e.addr, span, on->lives.n};
    PLIM_TRY(plim_vec_push(&on->lives, b->err, live));
    PLIM_TRY(plim_ranges_put(&on->ranges, range, b->err));
    enum plim_action got = expandable ? PLIM_ACTION_SEGMENT_MAP : PLIM_ACTION_SEGMENT_ALLOC;
    PLIM_TRY(push_event(b, t, got, t->e.addr, span, stack));
    return push_event(b, t, PLIM_ACTION_ALLOC, t->e.addr, t->e.size, stack);
}

static enum plim_status heap_remove(struct building *b, const struct plim_trace_event *t)
{
    struct on_device *on = &b->on[device_of(&t->e)];
    struct plim_addr_range range;
    if (!plim_ranges_take(&on->ranges, t->e.addr, &range)) {
        return PLIM_OK; /* of another owner, or from before the recording */
    }
    struct live *live = &on->lives.items[range.id];
    struct live was = *live;
    live->size = 0;
    PLIM_TRY(push_event(b, t, PLIM_ACTION_FREE_REQUESTED, was.addr, was.size, was.stack));
    PLIM_TRY(push_event(b, t, PLIM_ACTION_FREE_COMPLETED, was.addr, was.size, was.stack));
    enum plim_action gone = was.expandable ? PLIM_ACTION_SEGMENT_UNMAP : PLIM_ACTION_SEGMENT_FREE;
    return push_event(b, t, gone, was.addr, range.size, was.stack);
}

static bool in_heap(const struct building *b, uint64_t owner)
{
    return owner < PLIM_OWNERS && (b->allocator >> owner & 1u) != 0;
}

/* The owner of the handle that a mapping is of. */
static uint64_t owner_of_handle(const struct building *b, const struct plim_gpu_event *e)
{
    uint64_t *owner = e->aux == PLIM_MAP_NO_KEY ? NULL : plim_map_get(&b->handles, e->aux);
    return owner ? *owner : e->owner;
}

/* What an event does to the heap. */
static enum plim_status to_heap(struct building *b, const struct plim_trace_event *t)
{
    const struct plim_gpu_event *e = &t->e;
    switch (e->kind) {
    case PLIM_EVENT_ALLOC:
    case PLIM_EVENT_POOL_ALLOC:
    case PLIM_EVENT_ARRAY_ALLOC:
        return e->result == 0 && in_heap(b, e->owner) ? heap_add(b, t, e->owner, false) : PLIM_OK;
    case PLIM_EVENT_FREE:
    case PLIM_EVENT_POOL_FREE:
    case PLIM_EVENT_ARRAY_FREE:
        /* refused: what was taken away a moment ago is there again */
        return e->result == 0         ? heap_remove(b, t)
               : in_heap(b, e->owner) ? heap_add(b, t, e->owner, false)
                                      : PLIM_OK;
    case PLIM_EVENT_CREATE:
        return e->result == 0 && e->addr != PLIM_MAP_NO_KEY
                   ? plim_map_put(&b->handles, e->addr, e->owner, b->err)
                   : PLIM_OK;
    case PLIM_EVENT_MAP:
        return e->result == 0 && in_heap(b, owner_of_handle(b, e))
                   ? heap_add(b, t, owner_of_handle(b, e), true)
                   : PLIM_OK;
    case PLIM_EVENT_UNMAP:
        return e->result == 0                      ? heap_remove(b, t)
               : in_heap(b, owner_of_handle(b, e)) ? heap_add(b, t, owner_of_handle(b, e), true)
                                                   : PLIM_OK;
    default:
        return PLIM_OK;
    }
}

static enum plim_status to_failure(struct building *b, const struct plim_trace_event *t)
{
    uint32_t stack;
    PLIM_TRY(stack_of(b, t, &stack));
    return push_event(b, t, PLIM_ACTION_OOM, PLIM_FREE_NOT_RECORDED, t->e.size, stack);
}

/* -- the outside --------------------------------------------------------------------------------- */

static uint64_t not_negative(uint64_t wrapping)
{
    return (int64_t)wrapping < 0 ? 0 : wrapping;
}

static enum plim_status to_outside(struct building *b, const struct plim_trace_event *t)
{
    const struct plim_gpu_event *e = &t->e;
    struct on_device *on = &b->on[device_of(e)];
    int64_t by = plim_event_charge(e);
    bool ours = t->process == b->process;
    struct plim_device *device;
    if (by == 0 && !(ours && e->kind == PLIM_EVENT_SAMPLE)) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_snapshot_device(&b->snap, device_of(e), &device, b->err));
    uint32_t position = (uint32_t)device->trace.events.n;
    if (e->kind == PLIM_EVENT_SAMPLE) {
        return plim_vec_push(
            &device->outside.samples, b->err,
            (struct plim_outside_sample){micros(t), e->addr, e->size, e->aux, position});
    }
    uint8_t owner = e->owner < PLIM_OWNERS ? e->owner : (uint8_t)PLIM_OWNER_UNKNOWN;
    uint64_t *sum = ours ? &on->charged[owner] : &on->others;
    *sum += (uint64_t)by;
    return plim_vec_push(&device->outside.changes, b->err,
                         (struct plim_outside_change){micros(t), not_negative(*sum), position,
                                                      ours ? owner : PLIM_OUTSIDE_OTHERS});
}

/* Events of a trace up to a time. */
static uint32_t position_at(const struct plim_trace *trace, uint64_t time_us)
{
    size_t low = 0, high = trace->events.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->events.items[middle].time_us <= time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint32_t)plim_min_u64(low, UINT32_MAX);
}

static int by_time(const void *a, const void *b)
{
    const struct plim_outside_sample *x = a, *y = b;
    return (x->time_us > y->time_us) - (x->time_us < y->time_us);
}

/* What the Python side was told of the device, among the recorder's own samples. */
static enum plim_status add_stats(struct building *b)
{
    plim_vec_foreach (row, &b->r->stats) {
        const struct plim_trace_stats *s = &row->stats;
        if (row->process != b->process || s->device >= b->snap.devices.n || s->device_total == 0 ||
            (s->device_free != UINT64_MAX && s->device_free > s->device_total)) {
            continue;
        }
        struct plim_device *device = &b->snap.devices.items[s->device];
        struct plim_outside_sample sample = {
            .time_us = s->time_ns / 1000,
            .used = s->device_free == UINT64_MAX ? UINT64_MAX : s->device_total - s->device_free,
            .total = s->device_total,
            .mine = UINT64_MAX,
            .position = position_at(&device->trace, s->time_ns / 1000),
        };
        PLIM_TRY(plim_vec_push(&device->outside.samples, b->err, sample));
    }
    plim_vec_foreach (device, &b->snap.devices) {
        if (device->outside.samples.n > 1) {
            qsort(device->outside.samples.items, device->outside.samples.n,
                  sizeof(device->outside.samples.items[0]), by_time);
        }
    }
    return PLIM_OK;
}

/* -- putting together ---------------------------------------------------------------------------- */

static enum plim_status walk(struct building *b)
{
    for (size_t i = 0; i < b->r->events.n; i++) {
        const struct plim_trace_event *t = &b->r->events.items[i];
        if (t->process == b->process) {
            PLIM_TRY(b->final.items[i] ? to_failure(b, t) : to_heap(b, t));
        }
        PLIM_TRY(to_outside(b, t));
    }
    return PLIM_OK;
}

/* The heap at the end: what is still there, by address. */
static enum plim_status finish_heap(struct building *b, unsigned index)
{
    struct on_device *on = &b->on[index];
    struct plim_device *device;
    if (on->ranges.n == 0) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_snapshot_device(&b->snap, index, &device, b->err));
    struct plim_heap *heap = &device->heap;
    plim_vec_foreach (chunk, &on->ranges.chunks) {
        for (uint32_t i = 0; i < (*chunk)->n; i++) {
            const struct plim_addr_range *range = &(*chunk)->items[i];
            const struct live *live = &on->lives.items[range->id];
            uint32_t at = (uint32_t)heap->segments.n;
            struct plim_segment segment = {.addr = range->addr,
                                           .size = range->size,
                                           .stack = live->stack,
                                           .first_block = at,
                                           .n_blocks = 1,
                                           .expandable = live->expandable};
            struct plim_block block = {.addr = range->addr,
                                       .size = range->size,
                                       .requested = live->size,
                                       .stack = live->stack,
                                       .segment = at,
                                       .alloc_event = PLIM_NO_EVENT,
                                       .state = PLIM_BLOCK_ALLOCATED};
            PLIM_TRY(plim_vec_push(&heap->segments, b->err, segment));
            PLIM_TRY(plim_vec_push(&heap->blocks, b->err, block));
        }
    }
    return PLIM_OK;
}

static void say_findings(struct building *b)
{
    const struct plim_recording *r = b->r;
    const struct plim_recorded_process *p = &r->processes.items[b->process];
    uint64_t lost = plim_max_u64(p->lost, p->end.lost);
    if (lost > 0) {
        plim_snapshot_finding(&b->snap, 0, "trace", "%llu events were lost: the ring was full",
                              (unsigned long long)lost);
    }
    if (r->run.unwritten > 0) {
        plim_snapshot_finding(&b->snap, 0, "trace", "%llu events were lost: the disk was full",
                              (unsigned long long)r->run.unwritten);
    }
    if (r->damaged > 0 || r->nonsense > 0) {
        plim_snapshot_finding(&b->snap, 0, "trace",
                              "%llu bytes are damaged, %llu frames make no sense",
                              (unsigned long long)r->damaged, (unsigned long long)r->nonsense);
    }
    if (b->overlaps > 0) {
        plim_snapshot_finding(&b->snap, 0, "trace",
                              "%llu allocations lie where another one is still live; left out",
                              (unsigned long long)b->overlaps);
    }
}

static void say_source(struct building *b)
{
    const struct plim_recorded_process *p = &b->r->processes.items[b->process];
    snprintf(b->snap.layout, sizeof(b->snap.layout), "trace of %.16s, process %llu", p->about.name,
             (unsigned long long)p->about.pid);
    snprintf(b->snap.container, sizeof(b->snap.container), "trace %u.%u, %zu process%s%s",
             b->r->head.major, b->r->head.minor, b->r->processes.n,
             b->r->processes.n == 1 ? "" : "es", b->r->sealed ? "" : ", not ended");
    b->snap.source_bytes = b->r->source_bytes;
}

static enum plim_status finish(struct building *b)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        PLIM_TRY(finish_heap(b, i));
    }
    PLIM_TRY(add_stats(b));
    const struct plim_recorded_process *p = &b->r->processes.items[b->process];
    plim_vec_foreach (device, &b->snap.devices) {
        device->trace.has_times = true;
        device->outside.known = true;
        device->outside.allocator = b->allocator;
        device->outside.lost = plim_max_u64(p->lost, p->end.lost) + b->r->run.unwritten;
    }
    b->snap.has_traces = true;
    say_source(b);
    say_findings(b);
    return PLIM_OK;
}

/* Whether a framework's allocator asked for anything. */
static bool has_framework(const struct building *b)
{
    plim_vec_foreach (t, &b->r->events) {
        if (t->process == b->process && plim__is_framework(t->e.owner) &&
            (plim__event_served(&t->e) || plim__event_failed(&t->e))) {
            return true;
        }
    }
    return false;
}

static void fini(struct building *b)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        plim_vec_fini(&b->on[i].lives);
        plim_ranges_fini(&b->on[i].ranges);
    }
    plim_map_fini(&b->stacks);
    plim_map_fini(&b->handles);
    plim_vec_fini(&b->final);
}

static enum plim_status run(struct building *b)
{
    uint16_t stream;
    PLIM_TRY(plim_snapshot_stream(&b->snap, 0, &stream, b->err));
    bool framework = has_framework(b);
    b->snap.level = framework ? PLIM_LEVEL_ALLOCATOR : PLIM_LEVEL_DRIVER;
    b->allocator = framework ? PLIM__FRAMEWORK_OWNERS : PLIM__PROGRAM_OWNERS;
    PLIM_TRY(mark_failures(b));
    PLIM_TRY(walk(b));
    return finish(b);
}

enum plim_status plim_trace_build(const struct plim_recording *r,
                                  const struct plim_trace_pick *pick, struct plim_snapshot *out,
                                  struct plim_err *err)
{
    struct building b = {.r = r, .err = err};
    PLIM_TRY(plim_trace_process(r, pick, &b.process, err));
    PLIM_TRY(plim_snapshot_init(&b.snap, err));
    enum plim_status st = run(&b);
    fini(&b);
    if (st != PLIM_OK) {
        plim_snapshot_fini(&b.snap);
        return st;
    }
    *out = b.snap;
    return PLIM_OK;
}

enum plim_status plim_trace_read(struct plim_source *source, const struct plim_read_limits *limits,
                                 const struct plim_trace_pick *pick, struct plim_snapshot *out,
                                 struct plim_err *err)
{
    struct plim_recording r;
    PLIM_TRY(plim_recording_read(source, limits, &r, err));
    enum plim_status st = plim_trace_build(&r, pick, out, err);
    plim_recording_fini(&r);
    return st;
}

/* -- beside a snapshot --------------------------------------------------------------------------- */

static void match_positions(struct plim_outside *outside, const struct plim_trace *trace)
{
    plim_vec_foreach (c, &outside->changes) {
        c->position = trace->has_times ? position_at(trace, c->time_us) : 0;
    }
    plim_vec_foreach (s, &outside->samples) {
        s->position = trace->has_times ? position_at(trace, s->time_us) : 0;
    }
}

enum plim_status plim_trace_beside(const struct plim_recording *r, struct plim_snapshot *snapshot,
                                   struct plim_err *err)
{
    struct plim_trace_pick pick = {.of = snapshot};
    struct plim_snapshot trace;
    PLIM_TRY(plim_trace_build(r, &pick, &trace, err));
    for (size_t i = 0; i < trace.devices.n && i < snapshot->devices.n; i++) {
        struct plim_outside *from = &trace.devices.items[i].outside;
        struct plim_device *to = &snapshot->devices.items[i];
        plim_outside_fini(&to->outside);
        to->outside = *from;
        *from = (struct plim_outside){0};
        match_positions(&to->outside, &to->trace);
    }
    plim_snapshot_fini(&trace);
    return PLIM_OK;
}

enum plim_status plim_trace_read_beside(struct plim_source *source,
                                        const struct plim_read_limits *limits,
                                        struct plim_snapshot *snapshot, struct plim_err *err)
{
    struct plim_recording r;
    PLIM_TRY(plim_recording_read(source, limits, &r, err));
    enum plim_status st = plim_trace_beside(&r, snapshot, err);
    plim_recording_fini(&r);
    return st;
}
