/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as snapshots: heap, failures, owners over time, several processes, hostile facts. */

#include "fail_alloc.h"
#include "format/snapshot_read.h"
#include "format/trace_build.h"
#include "heap/check.h"
#include "heap/moment.h"
#include "unit.h"

#define SECOND UINT64_C(1000000000)

struct maker {
    struct plim_buf file, facts;
    PLIM_VEC(struct plim_trace_event) events;
    uint64_t n_facts, time_ns;
};

static void maker_init(struct maker *m)
{
    uint8_t head[PLIM_TRACE_HEAD_BYTES];
    *m = (struct maker){.time_ns = 1000 * SECOND};
    plim__trace_head_put(head, 1);
    plim_buf_add(&m->file, (struct plim_str){(const char *)head, sizeof(head)});
    const char *names[] = {"python", "worker"};
    for (uint32_t i = 0; i < 2; i++) {
        struct plim_trace_process p = {.pid = 100 + i, .start_ns = 999 * SECOND};
        memcpy(p.name, names[i], 7);
        plim__fact_process(&m->facts, i, &p);
        plim__fact_call(&m->facts, i, 1, PLIM_STR("cudaMalloc"));
        struct plim_trace_library torch = {0x1000, 0x2000, PLIM_OWNER_TORCH,
                                           PLIM_STR("/x/lib/libc10_cuda.so")};
        plim__fact_library(&m->facts, i, 1, &torch);
        m->n_facts += 3;
    }
}

/* An event a second after the one before. */
static struct plim_gpu_event *add(struct maker *m, enum plim_event_kind kind,
                                  enum plim_gpu_owner owner, uint64_t addr, uint64_t size)
{
    m->time_ns += SECOND;
    struct plim_trace_event t = {.e = {.time_ns = m->time_ns,
                                       .addr = addr,
                                       .size = size,
                                       .thread = 7,
                                       .call = 1,
                                       .library = 1,
                                       .kind = (uint8_t)kind,
                                       .owner = (uint8_t)owner}};
    assert_ok(plim_vec_push(&m->events, NULL, t));
    return &m->events.items[m->events.n - 1].e;
}

/* The same of the second process. */
static struct plim_gpu_event *add_other(struct maker *m, enum plim_event_kind kind,
                                        enum plim_gpu_owner owner, uint64_t addr, uint64_t size)
{
    struct plim_gpu_event *e = add(m, kind, owner, addr, size);
    m->events.items[m->events.n - 1].process = 1;
    return e;
}

static struct plim_str finish_file(struct maker *m)
{
    struct plim_buf payload = {0};
    struct plim_trace_frame facts = {.kind = PLIM_FRAME_FACTS, .items = (uint32_t)m->n_facts};
    assert_ok(plim__frame_put(&m->file, &facts, plim_buf_str(&m->facts), NULL));
    struct plim_trace_frame events = {.kind = PLIM_FRAME_EVENTS, .items = (uint32_t)m->events.n};
    plim__events_put(&payload, m->events.items, m->events.n);
    assert_ok(plim__frame_put(&m->file, &events, plim_buf_str(&payload), NULL));
    plim_buf_fini(&payload);
    plim_buf_fini(&m->facts);
    plim_vec_fini(&m->events);
    return plim_buf_str(&m->file);
}

/* The file as a snapshot, by the door through which all snapshots come. */
static struct plim_snapshot read_all(struct maker *m)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, finish_file(m));
    struct plim_snapshot s;
    struct plim_err err = {0};
    enum plim_status st = plim_snapshot_read(&source, NULL, &s, &err);
    if (st != PLIM_OK) {
        print_message("%s\n", err.message);
    }
    assert_ok(st);
    plim_buf_fini(&m->file);
    plim_vec_foreach (device, &s.devices) {
        assert_null(plim_heap_trouble(&device->heap, NULL));
    }
    return s;
}

static void what_lives_at_the_end_is_the_heap(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_CONTEXT, PLIM_OWNER_CONTEXT, 1, 300 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_NCCL, 0x710000000000, 10 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x720000000000, 2 * PLIM_MIB);
    add(&m, PLIM_EVENT_FREE, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    struct plim_snapshot s = read_all(&m);
    assert_int_equal(s.level, PLIM_LEVEL_ALLOCATOR);
    assert_string_equal(s.layout, "trace of python, process 100");
    const struct plim_device *d = &s.devices.items[0];
    assert_int_equal(d->heap.segments.n, 1);
    assert_int_equal(d->heap.segments.items[0].addr, 0x720000000000);
    assert_int_equal(d->heap.blocks.items[0].requested, 2 * PLIM_MIB);
    assert_int_equal(d->trace.events.n, 2 + 2 + 3);
    assert_int_equal(plim_trace_peaks(d).reserved, 22 * PLIM_MIB);
    struct plim_outside_sums sums = plim_outside_at(&d->outside, d->trace.events.n);
    assert_int_equal(sums.bytes[PLIM_OWNER_CONTEXT], 300 * PLIM_MIB);
    assert_int_equal(sums.bytes[PLIM_OWNER_NCCL], 10 * PLIM_MIB);
    assert_int_equal(sums.allocator, 2 * PLIM_MIB);
    assert_int_equal(sums.outside, 310 * PLIM_MIB);
    sums = plim_outside_at(&d->outside, 2);
    assert_int_equal(sums.allocator, 20 * PLIM_MIB);
    plim_snapshot_fini(&s);
}

static void without_a_framework_the_program_is_the_heap(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_APPLICATION, 0x700000000000, 1000);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_CUBLAS, 0x700000001000, PLIM_MIB);
    struct plim_snapshot s = read_all(&m);
    assert_int_equal(s.level, PLIM_LEVEL_DRIVER);
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    assert_int_equal(s.devices.items[0].heap.blocks.items[0].size, 1024);
    plim_snapshot_fini(&s);
}

static void mapped_memory_is_of_the_owner_of_its_handle(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_CREATE, PLIM_OWNER_TORCH, 55, 2 * PLIM_MIB);
    add(&m, PLIM_EVENT_MAP, PLIM_OWNER_CUDA, 0x700000000000, 2 * PLIM_MIB)->aux = 55;
    add(&m, PLIM_EVENT_CREATE, PLIM_OWNER_NCCL, 56, 4 * PLIM_MIB);
    add(&m, PLIM_EVENT_MAP, PLIM_OWNER_CUDA, 0x710000000000, 4 * PLIM_MIB)->aux = 56;
    struct plim_snapshot s = read_all(&m);
    const struct plim_device *d = &s.devices.items[0];
    assert_int_equal(d->heap.segments.n, 1);
    assert_true(d->heap.segments.items[0].expandable);
    assert_int_equal(d->trace.by_action[PLIM_ACTION_SEGMENT_MAP], 1);
    plim_snapshot_fini(&s);
}

static void a_refused_request_that_is_served_on_asking_again_is_no_failure(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0, 40 * PLIM_MIB)->result = 2;
    add(&m, PLIM_EVENT_FREE, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x710000000000, 40 * PLIM_MIB);
    struct plim_snapshot s = read_all(&m);
    assert_int_equal(s.devices.items[0].trace.by_action[PLIM_ACTION_OOM], 0);
    plim_snapshot_fini(&s);
}

static void a_request_that_is_refused_twice_is_one_failure(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0, 40 * PLIM_MIB)->result = 2;
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0, 40 * PLIM_MIB)->result = 2;
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x710000000000, 2 * PLIM_MIB);
    struct plim_snapshot s = read_all(&m);
    const struct plim_trace *trace = &s.devices.items[0].trace;
    assert_int_equal(trace->by_action[PLIM_ACTION_OOM], 1);
    assert_int_equal(trace->events.items[2].action, PLIM_ACTION_OOM);
    assert_int_equal(trace->events.items[2].size, 40 * PLIM_MIB);
    plim_snapshot_fini(&s);
}

static void a_refused_release_takes_nothing_away(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_FREE, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_FREE, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB)->result = 700;
    struct plim_snapshot s = read_all(&m);
    const struct plim_device *d = &s.devices.items[0];
    assert_int_equal(d->heap.segments.n, 1);
    assert_int_equal(plim_outside_at(&d->outside, SIZE_MAX).allocator, 20 * PLIM_MIB);
    plim_snapshot_fini(&s);
}

static void the_process_that_failed_is_picked_and_the_others_are_counted(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 60 * PLIM_MIB);
    add_other(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add_other(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0, 40 * PLIM_MIB)->result = 2;
    struct plim_snapshot s = read_all(&m);
    assert_string_equal(s.layout, "trace of worker, process 101");
    const struct plim_device *d = &s.devices.items[0];
    assert_int_equal(d->heap.segments.items[0].size, 20 * PLIM_MIB);
    assert_int_equal(plim_outside_at(&d->outside, SIZE_MAX).others, 60 * PLIM_MIB);
    plim_snapshot_fini(&s);
}

static void a_snapshot_gets_the_outside_of_the_process_it_is_of(void **state)
{
    (void)state;
    struct maker a, b;
    maker_init(&a);
    add(&a, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 60 * PLIM_MIB);
    struct plim_snapshot s = read_all(&a); /* stands for the snapshot of one process */
    maker_init(&b);
    add(&b, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add_other(&b, PLIM_EVENT_CONTEXT, PLIM_OWNER_CONTEXT, 1, 300 * PLIM_MIB);
    add_other(&b, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 60 * PLIM_MIB);
    struct plim_source_bytes bytes;
    struct plim_source source = plim_source_bytes(&bytes, finish_file(&b));
    struct plim_recording r;
    assert_ok(plim_recording_read(&source, NULL, &r, NULL));
    assert_ok(plim_trace_beside(&r, &s, NULL));
    struct plim_outside_sums sums = plim_outside_at(&s.devices.items[0].outside, SIZE_MAX);
    assert_int_equal(sums.allocator, 60 * PLIM_MIB);
    assert_int_equal(sums.bytes[PLIM_OWNER_CONTEXT], 300 * PLIM_MIB);
    assert_int_equal(sums.others, 20 * PLIM_MIB);
    plim_recording_fini(&r);
    plim_buf_fini(&b.file);
    plim_snapshot_fini(&s);
}

static void losses_become_findings(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, PLIM_EVENT_LOST, PLIM_OWNER_UNKNOWN, 0, 123);
    struct plim_snapshot s = read_all(&m);
    assert_int_equal(s.devices.items[0].outside.lost, 123);
    assert_int_equal(s.findings.n, 1);
    struct plim_str text = plim_intern_str(&s.strings, s.findings.items[0].text);
    assert_true(plim_str_starts(text, PLIM_STR("123 events were lost")));
    plim_snapshot_fini(&s);
}

static void events_and_facts_of_a_newer_version_are_skipped(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    plim__varint_put(&m.facts, 77); /* a kind of fact that nobody knows */
    plim__varint_put(&m.facts, 0);
    plim__text_put(&m.facts, PLIM_STR("whatever"));
    m.n_facts++;
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add(&m, (enum plim_event_kind)200, (enum plim_gpu_owner)250, 1, 2);
    struct plim_snapshot s = read_all(&m);
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    plim_snapshot_fini(&s);
}

static void an_empty_trace_is_said_to_be_empty(void **state)
{
    (void)state;
    struct plim_buf file = {0};
    uint8_t head[PLIM_TRACE_HEAD_BYTES];
    plim__trace_head_put(head, 1);
    plim_buf_add(&file, (struct plim_str){(const char *)head, sizeof(head)});
    struct plim_source_bytes state2;
    struct plim_source source = plim_source_bytes(&state2, plim_buf_str(&file));
    struct plim_snapshot s;
    struct plim_err err = {0};
    assert_int_equal(plim_snapshot_read(&source, NULL, &s, &err), PLIM_E_DATA);
    assert_non_null(strstr(err.message, "no process"));
    plim_buf_fini(&file);
}

static enum plim_status read_and_forget(void *arg)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, *(const struct plim_str *)arg);
    struct plim_snapshot s;
    enum plim_status st = plim_snapshot_read(&source, NULL, &s, NULL);
    if (st == PLIM_OK) {
        plim_snapshot_fini(&s);
    }
    return st;
}

static void memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    struct maker m;
    maker_init(&m);
    add(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    add_other(&m, PLIM_EVENT_ALLOC, PLIM_OWNER_TORCH, 0x700000000000, 20 * PLIM_MIB);
    struct plim_str bytes = finish_file(&m);
    (void)fail_alloc_sweep(read_and_forget, &bytes, 10000, true);
    plim_buf_fini(&m.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lives_at_the_end_is_the_heap),
        cmocka_unit_test(without_a_framework_the_program_is_the_heap),
        cmocka_unit_test(mapped_memory_is_of_the_owner_of_its_handle),
        cmocka_unit_test(a_refused_request_that_is_served_on_asking_again_is_no_failure),
        cmocka_unit_test(a_request_that_is_refused_twice_is_one_failure),
        cmocka_unit_test(a_refused_release_takes_nothing_away),
        cmocka_unit_test(the_process_that_failed_is_picked_and_the_others_are_counted),
        cmocka_unit_test(a_snapshot_gets_the_outside_of_the_process_it_is_of),
        cmocka_unit_test(losses_become_findings),
        cmocka_unit_test(events_and_facts_of_a_newer_version_are_skipped),
        cmocka_unit_test(an_empty_trace_is_said_to_be_empty),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return PLIM_RUN_TESTS("trace_build", tests);
}
