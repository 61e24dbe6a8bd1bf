/* SPDX-License-Identifier: Apache-2.0 */
/* From raw columns to devices: heaps from segments and blocks, traces from runs of events. */

#include "format/build_internal.h"

#include "base/num.h"

#include <stdio.h>

#define MAX_DEVICES 4096u /* that plim_snapshot_device() takes */

/* -- heaps --------------------------------------------------------------------------------------- */

struct place {
    uint64_t device;
    uint64_t addr;
    uint32_t raw; /* index into plim_build.segments */
    uint32_t at;  /* its index in the source's list */
};

static int by_place(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->addr != b->addr) {
        return a->addr < b->addr ? -1 : 1;
    }
    return (a->at > b->at) - (a->at < b->at);
}

static int by_addr(const void *x, const void *y)
{
    const struct plim_block *a = x, *b = y;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

/* Why a segment cannot be used, or NULL. */
static const char *segment_trouble(const struct plim_raw_segment *s)
{
    if (s->has & PLIM_IS_TAKEN) {
        return "the same segment is listed twice; counted once";
    }
    if (!(s->has & PLIM_HAS_SIZE) || s->s.size == 0) {
        return "total_size is missing, zero, negative or no number; the segment is left out";
    }
    if (!(s->has & PLIM_HAS_ADDR) && (s->has & PLIM_IS_BAD)) {
        return "address is negative or no number; the segment is left out";
    }
    if (s->s.addr > UINT64_MAX - s->s.size) {
        return "address and size pass the end of the address space; the segment is left out";
    }
    return s->device >= MAX_DEVICES ? "device number is not plausible; the segment is left out"
                                    : NULL;
}

/* A finding about the segment at place `at` of the source's list. */
static void segment_finding(struct plim_build *b, uint64_t device, size_t at, const char *text)
{
    char where[48];
    snprintf(where, sizeof(where), "segments[%zu]", at);
    plim_snapshot_finding(&b->snap, (uint32_t)device, where, "%s", text);
}

/* The usable segments of the list, sorted by device and address. */
static void find_segments(struct plim_build *b, struct plim_value list, struct place *places,
                          size_t *n)
{
    size_t listed;
    *n = 0;
    plim__build_is_list(b, list, &listed);
    for (size_t i = 0; i < listed; i++) {
        uint32_t cell;
        struct plim_value v = plim__build_item(b, list, i, &cell);
        if (v.kind != PLIM_V_CELL || plim__cell_kind(cell) != PLIM_CELL_SEGMENT) {
            segment_finding(b, 0, i, "is not a segment; left out");
            continue;
        }
        struct plim_raw_segment *s = &b->segments.items[plim__cell_index(cell)];
        const char *trouble = segment_trouble(s);
        if (trouble) {
            segment_finding(b, 0, i, trouble);
            continue;
        }
        if (s->has & PLIM_IS_BAD) {
            segment_finding(b, s->device, i, "a field is negative or of a wrong type");
        }
        s->has |= PLIM_IS_TAKEN;
        places[(*n)++] = (struct place){s->device, s->s.addr, plim__cell_index(cell), (uint32_t)i};
    }
    qsort(places, *n, sizeof(*places), by_place);
}

/* Fill what a block did not say: its address from its neighbours, the rest from its history. */
static void complete_block(const struct plim_build *b, const struct plim_raw_block *raw,
                           uint64_t running, struct plim_block *out)
{
    const struct plim_past *past = raw->past != UINT32_MAX ? &b->pasts.items[raw->past] : NULL;
    *out = raw->b;
    if (!(raw->has & PLIM_HAS_ADDR)) {
        out->addr = running;
    }
    if (!(raw->has & PLIM_HAS_REQUESTED)) {
        out->requested = past && past->has_size ? past->real_size : out->size;
    }
    if (out->stack == PLIM_NO_STACK && past) {
        out->stack = past->stack;
    }
}

/* A finding about block i of the segment at p. */
static void block_finding(struct plim_build *b, const struct place *p, uint32_t i, const char *text)
{
    char where[64];
    snprintf(where, sizeof(where), "segments[%u].blocks[%u]", p->at, i);
    plim_snapshot_finding(&b->snap, (uint32_t)p->device, where, "%s", text);
}

/* Is the block usable? A finding when not, or when something about it is odd. */
static bool accept_block(struct plim_build *b, const struct place *p, uint32_t i,
                         const struct plim_raw_block *raw)
{
    uint64_t room = b->segments.items[p->raw].s.size;
    if (raw->has & PLIM_IS_TAKEN) {
        block_finding(b, p, i, "the block is listed twice; counted once");
        return false;
    }
    if (!(raw->has & PLIM_HAS_SIZE) || raw->b.size == 0 || raw->b.size > room) {
        block_finding(b, p, i,
                      "size is missing, zero, negative or larger than the segment; left out");
        return false;
    }
    if (raw->has & PLIM_IS_BAD) {
        block_finding(b, p, i, "a field is negative or of a wrong type");
    }
    return true;
}

static enum plim_status add_blocks(struct plim_build *b, struct plim_heap *heap,
                                   const struct place *p, struct plim_err *err)
{
    struct plim_segment *s = &b->segments.items[p->raw].s;
    uint32_t listed = s->n_blocks;
    struct plim_raw_block *blocks = listed > 0 ? b->blocks.items + s->first_block : NULL;
    uint64_t running = s->addr;
    bool sorted = true;
    s->first_block = (uint32_t)heap->blocks.n;
    s->n_blocks = 0;
    if (listed == 0) {
        return PLIM_OK;
    }
    if (blocks[0].has & PLIM_IS_TAKEN) {
        block_finding(b, p, 0, "the blocks are those of another segment; counted once");
        return PLIM_OK;
    }
    PLIM_TRY(plim_vec_reserve(&heap->blocks, listed, err));
    for (uint32_t i = 0; i < listed; i++) {
        struct plim_block *out = &heap->blocks.items[heap->blocks.n];
        if (!accept_block(b, p, i, &blocks[i])) {
            continue;
        }
        blocks[i].has |= PLIM_IS_TAKEN;
        complete_block(b, &blocks[i], running, out);
        out->segment = (uint32_t)heap->segments.n;
        sorted = sorted && out->addr >= running;
        running = plim_add_sat(out->addr, out->size);
        heap->blocks.n++;
        s->n_blocks++;
    }
    if (!sorted) {
        qsort(heap->blocks.items + s->first_block, s->n_blocks, sizeof(struct plim_block), by_addr);
    }
    return PLIM_OK;
}

static void compare_sum(struct plim_build *b, const struct place *p, const char *name,
                        uint64_t said, uint64_t sum)
{
    char text[128];
    if (said != sum) {
        snprintf(text, sizeof(text), "%s_size is %llu, but its %s blocks have %llu bytes", name,
                 (unsigned long long)said, name, (unsigned long long)sum);
        segment_finding(b, p->device, p->at, text);
    }
}

/* The sums that the segment itself gives against those of its blocks. */
static void compare_sums(struct plim_build *b, const struct plim_heap *heap, const struct place *p)
{
    const struct plim_raw_segment *s = &b->segments.items[p->raw];
    uint64_t allocated = 0, active = 0;
    for (uint32_t i = 0; i < s->s.n_blocks; i++) {
        const struct plim_block *k = &heap->blocks.items[s->s.first_block + i];
        allocated += k->state == PLIM_BLOCK_ALLOCATED ? k->size : 0;
        active += k->state != PLIM_BLOCK_INACTIVE ? k->size : 0;
    }
    compare_sum(b, p, "allocated", s->has & PLIM_HAS_ALLOCATED ? s->allocated : allocated,
                allocated);
    compare_sum(b, p, "active", s->has & PLIM_HAS_ACTIVE ? s->active : active, active);
}

static enum plim_status add_segments(struct plim_build *b, const struct place *places, size_t n,
                                     struct plim_err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct plim_device *device;
        PLIM_TRY(plim_snapshot_device(&b->snap, places[i].device, &device, err));
        PLIM_TRY(plim_vec_reserve(&device->heap.segments, 1, err));
        PLIM_TRY(add_blocks(b, &device->heap, &places[i], err));
        compare_sums(b, &device->heap, &places[i]);
        device->heap.segments.items[device->heap.segments.n++] = b->segments.items[places[i].raw].s;
    }
    return PLIM_OK;
}

enum plim_status plim__build_heaps(struct plim_build *b, struct plim_value segments,
                                   struct plim_err *err)
{
    size_t n;
    if (segments.kind == PLIM_V_NONE) {
        return PLIM_OK;
    }
    if (!plim__build_is_list(b, segments, &n)) {
        plim_snapshot_finding(&b->snap, 0, "segments", "is %s, not a list of segments",
                              plim__build_describe(b, segments));
        return PLIM_OK;
    }
    struct place *places = malloc((n + 1) * sizeof(*places));
    if (!places) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu segments", n);
    }
    find_segments(b, segments, places, &n);
    enum plim_status st = add_segments(b, places, n, err);
    free(places);
    return st;
}

/* -- traces -------------------------------------------------------------------------------------- */

/* Count what a trace holds, when it is not simply all events. */
static void count_trace(struct plim_trace *trace)
{
    plim_vec_foreach (e, &trace->events) {
        trace->by_action[e->action]++;
        trace->has_times |= e->time_us != 0;
    }
}

/* One device's entries are somewhere in the file's order: copy them one by one. */
static enum plim_status copy_boxed(struct plim_build *b, struct plim_value list, size_t at,
                                   struct plim_trace *trace, struct plim_err *err)
{
    size_t n, left_out = 0;
    char where[48];
    plim__build_is_list(b, list, &n);
    PLIM_TRY(plim_vec_reserve(&trace->events, n, err));
    for (size_t i = 0; i < n; i++) {
        uint32_t cell;
        struct plim_value v = plim__build_item(b, list, i, &cell);
        if (v.kind == PLIM_V_CELL && plim__cell_kind(cell) == PLIM_CELL_EVENT) {
            if (b->events.items[plim__cell_index(cell)].pad[0] != 0) {
                PLIM_TRY(plim__build_doubt(b, plim__cell_index(cell), err));
            }
            trace->events.items[trace->events.n++] = b->events.items[plim__cell_index(cell)];
        } else {
            left_out++;
        }
    }
    count_trace(trace);
    if (left_out > 0) {
        snprintf(where, sizeof(where), "device_traces[%zu]", at);
        plim_snapshot_finding(&b->snap, (uint32_t)at, where,
                              "%zu of %zu items are no trace entries", left_out, n);
    }
    return PLIM_OK;
}

/* A device whose trace is a run of events. */
struct span {
    struct plim_run run;
    size_t device;
};

static int by_first_down(const void *x, const void *y)
{
    const struct span *a = x, *b = y;
    return (a->run.first < b->run.first) - (a->run.first > b->run.first);
}

/* Findings about entries can be placed now. */
static void place_findings(struct plim_build *b, const struct span *spans, size_t n)
{
    char where[64];
    plim_vec_foreach (f, &b->event_findings) {
        for (size_t i = 0; i < n; i++) {
            if (f->event >= spans[i].run.first && f->event - spans[i].run.first < spans[i].run.n) {
                snprintf(where, sizeof(where), "device_traces[%zu][%u]", spans[i].device,
                         f->event - spans[i].run.first);
                plim_snapshot_finding(&b->snap, (uint32_t)spans[i].device, where, "%s", f->text);
                break;
            }
        }
    }
    b->event_findings.n = 0;
}

/* Copy the last span's events away and give their room back, so that little is held twice. */
static enum plim_status copy_span(struct plim_build *b, const struct span *spans, size_t i,
                                  size_t n, struct plim_err *err)
{
    struct plim_trace *trace = &b->snap.devices.items[spans[i].device].trace;
    struct plim_run run = spans[i].run;
    PLIM_TRY(plim_vec_reserve(&trace->events, run.n, err));
    memcpy(trace->events.items, b->events.items + run.first, run.n * sizeof(*b->events.items));
    trace->events.n = run.n;
    count_trace(trace);
    for (size_t k = i + 1; k < n; k++) {
        if ((uint64_t)spans[k].run.first + spans[k].run.n > run.first) {
            return PLIM_OK; /* shared with another device: keep */
        }
    }
    b->events.n = run.first;
    plim_vec_shrink(&b->events);
    return PLIM_OK;
}

static enum plim_status assign_spans(struct plim_build *b, struct span *spans, size_t n,
                                     struct plim_err *err)
{
    qsort(spans, n, sizeof(*spans), by_first_down);
    place_findings(b, spans, n);
    for (size_t i = 0; i + 1 < n; i++) {
        PLIM_TRY(copy_span(b, spans, i, n, err));
    }
    if (n == 0) {
        return PLIM_OK;
    }
    const struct span *last = &spans[n - 1];
    if (last->run.first != 0) {
        return copy_span(b, spans, n - 1, n, err);
    }
    struct plim_trace *trace = &b->snap.devices.items[last->device].trace;
    bool all = last->run.n == b->events.n && n == 1;
    trace->events.items = b->events.items;
    trace->events.cap = b->events.cap;
    trace->events.n = last->run.n;
    plim_vec_shrink(&trace->events);
    b->events.items = NULL;
    b->events.n = b->events.cap = 0;
    if (all) {
        memcpy(trace->by_action, b->by_action, sizeof(b->by_action));
        trace->has_times = b->has_times;
    } else {
        count_trace(trace);
    }
    return PLIM_OK;
}

/* Sort one item of device_traces into `spans` (a run) or straight into its device (scattered). */
static enum plim_status take_trace(struct plim_build *b, struct plim_value v, size_t at,
                                   struct span *spans, size_t *n, struct plim_err *err)
{
    struct plim_device *device;
    char where[48];
    size_t listed;
    PLIM_TRY(plim_snapshot_device(&b->snap, at, &device, err));
    snprintf(where, sizeof(where), "device_traces[%zu]", at);
    if (v.u == UINT64_MAX || !plim__build_is_list(b, v, &listed)) {
        plim_snapshot_finding(&b->snap, (uint32_t)at, where, "is not a list of trace entries");
        return PLIM_OK;
    }
    uint32_t cell = plim__cell_of(b, v);
    if (listed == 0) {
        return PLIM_OK;
    }
    if (cell & PLIM_CELL_USED) {
        plim_snapshot_finding(&b->snap, (uint32_t)at, where,
                              "is the same list as another device's; counted once");
        return PLIM_OK;
    }
    b->cells.items[v.u] |= PLIM_CELL_USED;
    if (plim__cell_kind(cell) == PLIM_CELL_RUN &&
        b->runs.items[plim__cell_index(cell)].kind == PLIM_CELL_EVENT) {
        spans[(*n)++] = (struct span){b->runs.items[plim__cell_index(cell)], at};
        return PLIM_OK;
    }
    return copy_boxed(b, v, at, &device->trace, err);
}

enum plim_status plim__build_traces(struct plim_build *b, struct plim_value traces,
                                    struct plim_err *err)
{
    size_t n, n_spans = 0;
    enum plim_status st = PLIM_OK;
    if (!plim__build_is_list(b, traces, &n)) {
        if (traces.kind != PLIM_V_NONE) {
            plim_snapshot_finding(&b->snap, 0, "device_traces", "is %s, not a list",
                                  plim__build_describe(b, traces));
        }
        return PLIM_OK;
    }
    b->snap.has_traces = true;
    struct span *spans = malloc((n + 1) * sizeof(*spans));
    if (!spans) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu traces", n);
    }
    uint32_t cell = plim__cell_of(b, traces);
    bool flat = plim__cell_kind(cell) == PLIM_CELL_RUN;
    if (!flat && n > MAX_DEVICES) {
        plim_snapshot_finding(&b->snap, 0, "device_traces", "has %zu lists; only %u are read", n,
                              MAX_DEVICES);
        n = MAX_DEVICES;
    }
    if (flat) { /* one flat list: a single device's trace */
        st = take_trace(b, traces, 0, spans, &n_spans, err);
    } else {
        for (size_t i = 0; i < n && st == PLIM_OK; i++) {
            st = take_trace(b, plim__build_item(b, traces, i, NULL), i, spans, &n_spans, err);
        }
    }
    if (st == PLIM_OK) {
        st = assign_spans(b, spans, n_spans, err);
    }
    free(spans);
    return st;
}
