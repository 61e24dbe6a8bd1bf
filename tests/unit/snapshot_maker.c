/* SPDX-License-Identifier: Apache-2.0 */
/* The toy allocator of snapshot_maker.h. Its own failures are asserted: it is test code. */

#include "snapshot_maker.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

static struct plim_device *device(struct maker *m)
{
    struct plim_device *d;
    assert_ok(plim_snapshot_device(&m->snapshot, 0, &d, NULL));
    return d;
}

static void emit(struct maker *m, enum plim_action action, uint64_t addr, uint64_t size,
                 uint32_t stack)
{
    struct plim_trace *trace = &device(m)->trace;
    struct plim_event e = {.addr = addr,
                           .size = size,
                           .time_us = m->time_us += 10,
                           .stack = stack,
                           .note = PLIM_NO_ID,
                           .pool = 0,
                           .action = (uint8_t)action};
    assert_ok(plim_vec_push(&trace->events, NULL, e));
    trace->by_action[action]++;
    trace->has_times = true;
}

void maker_init(struct maker *m)
{
    uint16_t stream;
    memset(m, 0, sizeof(*m));
    m->next_addr = UINT64_C(0x300000000000);
    m->time_us = 1000000;
    assert_ok(plim_snapshot_init(&m->snapshot, NULL));
    assert_ok(plim_snapshot_stream(&m->snapshot, 0, &stream, NULL));
}

void maker_fini(struct maker *m)
{
    plim_snapshot_fini(&m->snapshot);
}

uint32_t maker_stack(struct maker *m, const char *name, const char *file, uint32_t line)
{
    uint32_t ids[2], stack;
    struct plim_frame frame = {.line = line}, library = {.line = 7};
    assert_ok(plim_intern_put(&m->snapshot.strings, plim_str_from(name), &frame.name, NULL));
    assert_ok(plim_intern_put(&m->snapshot.strings, plim_str_from(file), &frame.file, NULL));
    assert_ok(plim_intern_put(&m->snapshot.strings, PLIM_STR("empty"), &library.name, NULL));
    assert_ok(plim_intern_put(&m->snapshot.strings, PLIM_STR("/lib/site-packages/torch/x.py"),
                              &library.file, NULL));
    assert_ok(plim_stacks_frame(&m->snapshot.stacks, library, &ids[0], NULL));
    assert_ok(plim_stacks_frame(&m->snapshot.stacks, frame, &ids[1], NULL));
    assert_ok(plim_stacks_stack(&m->snapshot.stacks, ids, 2, &stack, NULL));
    return stack;
}

uint32_t maker_deep_stack(struct maker *m, const struct maker_frame *frames, size_t n)
{
    uint32_t ids[16], stack;
    assert_true(n <= PLIM_COUNT_OF(ids));
    for (size_t i = 0; i < n; i++) {
        struct plim_frame f = {.line = frames[i].line};
        assert_ok(
            plim_intern_put(&m->snapshot.strings, plim_str_from(frames[i].name), &f.name, NULL));
        assert_ok(
            plim_intern_put(&m->snapshot.strings, plim_str_from(frames[i].file), &f.file, NULL));
        assert_ok(plim_stacks_frame(&m->snapshot.stacks, f, &ids[i], NULL));
    }
    assert_ok(plim_stacks_stack(&m->snapshot.stacks, ids, n, &stack, NULL));
    return stack;
}

static uint64_t new_segment(struct maker *m, uint64_t size, uint16_t pool, uint32_t stack)
{
    uint64_t addr = m->next_addr;
    m->next_addr += size + 2 * PLIM_MIB;
    m->segments[m->n_segments] = addr;
    m->segment_pools[m->n_segments] = pool;
    m->segment_sizes[m->n_segments++] = size;
    emit(m, PLIM_ACTION_SEGMENT_ALLOC, addr, size, stack);
    return addr;
}

static size_t add_block(struct maker *m, uint64_t addr, uint64_t size, uint32_t stack)
{
    size_t i = m->n_blocks++;
    assert_true(i < MAKER_BLOCKS);
    m->blocks[i].addr = addr;
    m->blocks[i].size = size;
    m->blocks[i].stack = stack;
    m->blocks[i].used = true;
    m->blocks[i].event = (uint32_t)device(m)->trace.events.n;
    emit(m, PLIM_ACTION_ALLOC, addr, size, stack);
    return i;
}

size_t maker_alloc_in(struct maker *m, uint64_t segment_size, uint64_t size, uint32_t stack)
{
    return add_block(m, new_segment(m, segment_size, 0, stack), size, stack);
}

/* Bytes used in a segment from its start up to its last live block. */
static uint64_t used_in(const struct maker *m, size_t segment)
{
    uint64_t from = m->segments[segment], end = from;
    for (size_t i = 0; i < m->n_blocks; i++) {
        uint64_t b = m->blocks[i].addr;
        if (m->blocks[i].used && b >= from && b < from + m->segment_sizes[segment]) {
            end = plim_max_u64(end, plim_round_up(b + m->blocks[i].size, 512));
        }
    }
    return end - from;
}

size_t maker_alloc(struct maker *m, uint64_t size, uint32_t stack)
{
    if (size >= PLIM_MIB) {
        return maker_alloc_in(m, plim_round_up(size, 2 * PLIM_MIB), size, stack);
    }
    for (size_t s = 0; s < m->n_segments; s++) {
        uint64_t used = m->segment_sizes[s] == 2 * PLIM_MIB ? used_in(m, s) : UINT64_MAX;
        if (used != UINT64_MAX && used + plim_round_up(size, 512) <= m->segment_sizes[s]) {
            return add_block(m, m->segments[s] + used, size, stack);
        }
    }
    return maker_alloc_in(m, 2 * PLIM_MIB, size, stack);
}

void maker_free(struct maker *m, size_t handle)
{
    assert_true(m->blocks[handle].used);
    m->blocks[handle].used = false;
    emit(m, PLIM_ACTION_FREE_REQUESTED, m->blocks[handle].addr, m->blocks[handle].size,
         m->blocks[handle].stack);
    emit(m, PLIM_ACTION_FREE_COMPLETED, m->blocks[handle].addr, m->blocks[handle].size,
         m->blocks[handle].stack);
}

size_t maker_strand(struct maker *m, uint64_t size, uint64_t live, uint16_t pool, uint32_t stack)
{
    return add_block(m, new_segment(m, size, pool, stack), live, stack);
}

void maker_oom(struct maker *m, uint64_t size, uint64_t device_free, uint32_t stack)
{
    emit(m, PLIM_ACTION_OOM, device_free, size, stack);
}

static int by_addr(const void *a, const void *b)
{
    const struct plim_block *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static void push(struct plim_heap *heap, struct plim_block block)
{
    assert_ok(plim_vec_push(&heap->blocks, NULL, block));
    heap->segments.items[heap->segments.n - 1].n_blocks++;
}

static void finish_segment(struct maker *m, size_t s, struct plim_heap *heap)
{
    struct plim_block live[MAKER_BLOCKS];
    size_t n = 0;
    uint64_t at = m->segments[s], end = at + m->segment_sizes[s];
    uint32_t index = (uint32_t)heap->segments.n;
    assert_ok(plim_vec_push(&heap->segments, NULL,
                            (struct plim_segment){.addr = at,
                                                  .size = end - at,
                                                  .stack = PLIM_NO_STACK,
                                                  .first_block = (uint32_t)heap->blocks.n,
                                                  .pool = m->segment_pools[s],
                                                  .small = end - at == 2 * PLIM_MIB}));
    for (size_t i = 0; i < m->n_blocks; i++) {
        if (m->blocks[i].used && m->blocks[i].addr >= at && m->blocks[i].addr < end) {
            live[n++] = (struct plim_block){.addr = m->blocks[i].addr,
                                            .size = plim_round_up(m->blocks[i].size, 512),
                                            .requested = m->blocks[i].size,
                                            .stack = m->blocks[i].stack,
                                            .segment = index,
                                            .alloc_event = PLIM_NO_EVENT,
                                            .state = PLIM_BLOCK_ALLOCATED};
        }
    }
    qsort(live, n, sizeof(live[0]), by_addr);
    struct plim_block hole = {
        .segment = index, .stack = PLIM_NO_STACK, .alloc_event = PLIM_NO_EVENT};
    for (size_t i = 0; i < n; i++) {
        hole.addr = at;
        hole.size = live[i].addr - at;
        if (hole.size > 0) {
            push(heap, hole);
        }
        push(heap, live[i]);
        at = live[i].addr + live[i].size;
    }
    hole.addr = at;
    hole.size = end - at;
    if (hole.size > 0) {
        push(heap, hole);
    }
}

void maker_finish(struct maker *m)
{
    for (size_t s = 0; s < m->n_segments; s++) {
        finish_segment(m, s, &device(m)->heap);
    }
    struct plim_trace *trace = &device(m)->trace;
    for (size_t i = 0; i < m->forget; i++) {
        trace->by_action[trace->events.items[i].action]--;
    }
    trace->events.n -= m->forget;
    memmove(trace->events.items, trace->events.items + m->forget,
            trace->events.n * sizeof(trace->events.items[0]));
}
