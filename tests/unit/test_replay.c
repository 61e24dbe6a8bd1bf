/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays against direct runs. A random workload runs on the allocator's model under one setting and is
 * recorded as PyTorch would record it. Its replay under another setting must be what the same workload
 * does when it runs under that setting directly; its self-check must find no difference. Then: requests
 * out of traces that contradict themselves, bounds on cases small enough to know, and the search.
 */

#include "unit.h"

#include "alloc/torch.h"
#include "replay/bound.h"
#include "replay/repair.h"
#include "replay/selfcheck.h"
#include "replay/tune.h"

#include <stdio.h>

/* ---- a workload ---------------------------------------------------------------------------------- */

#define OPS     1500
#define SLOTS   96
#define STREAMS 3
#define POOLS   2 /* the default one and one private */

enum op_kind {
    OP_ALLOC,
    OP_FREE,
    OP_FREE_SHARED,
    OP_EMPTY,
    OP_DROP_POOL
};

struct op {
    enum op_kind kind;
    uint32_t slot;
    uint64_t size;
    uint16_t stream, pool;
    bool silent; /* OP_EMPTY: gave nothing back when it was recorded, so nobody knows of it */
};

static const int64_t handles[STREAMS] = {0, 4112, 4304};

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Sizes around all thresholds; multiples of 512, because a failure is recorded rounded. */
static uint64_t random_size(uint64_t *state)
{
    static const uint64_t sizes[] = {512,           4096,          700 * PLIM_KIB,
                                     PLIM_MIB,      3 * PLIM_MIB,  9 * PLIM_MIB,
                                     11 * PLIM_MIB, 20 * PLIM_MIB, 40 * PLIM_MIB};
    uint64_t size = sizes[random_next(state) % PLIM_COUNT_OF(sizes)];
    return size + random_next(state) % (size / 2 / 512 + 1) * 512;
}

/* Free what is left in the private pool, then drop it. Returns the index of the next operation. */
static size_t end_of_pool(struct op ops[OPS], size_t i, bool used[SLOTS], bool in_pool[SLOTS])
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (used[slot] && in_pool[slot]) {
            ops[i++] = (struct op){.kind = OP_FREE, .slot = slot};
            used[slot] = false;
        }
    }
    ops[i++] = (struct op){.kind = OP_DROP_POOL};
    return i;
}

static void workload(uint64_t seed, struct op ops[OPS])
{
    bool used[SLOTS] = {false}, in_pool[SLOTS] = {false}, pool_lives = true;
    uint64_t state = seed;
    for (size_t i = 0; i < OPS; i++) {
        uint32_t slot = (uint32_t)(random_next(&state) % SLOTS);
        uint64_t dice = random_next(&state) % 100;
        if (pool_lives && i > OPS / 2) {
            pool_lives = false;
            i = end_of_pool(ops, i, used, in_pool);
        }
        ops[i] = (struct op){.slot = slot};
        if (dice < 2) {
            ops[i].kind = OP_EMPTY;
        } else if (used[slot]) {
            ops[i].kind = dice < 20 ? OP_FREE_SHARED : OP_FREE;
            used[slot] = false;
        } else {
            ops[i].kind = OP_ALLOC;
            ops[i].size = random_size(&state);
            ops[i].stream =
                (uint16_t)(random_next(&state) % 10 < 7 ? 0 : random_next(&state) % STREAMS);
            ops[i].pool = random_next(&state) % 12 == 0 && pool_lives;
            in_pool[slot] = ops[i].pool;
            used[slot] = true;
        }
    }
}

/* ---- running it, and recording -------------------------------------------------------------------- */

struct recorder {
    struct plim_snapshot *snapshot; /* NULL: nothing is recorded */
    uint32_t stack;                 /* of the present operation, or PLIM_NO_STACK */
    uint64_t releases;
};

static void record(void *ctx, const struct plim_torch_event *e)
{
    struct recorder *r = ctx;
    r->releases += e->action == PLIM_ACTION_SEGMENT_FREE || e->action == PLIM_ACTION_SEGMENT_UNMAP;
    if (!r->snapshot) {
        return;
    }
    struct plim_trace *trace = &r->snapshot->devices.items[0].trace;
    struct plim_event event = {.addr = e->addr,
                               .size = e->size,
                               .stack = r->stack,
                               .note = PLIM_NO_ID,
                               .stream = e->stream,
                               .pool = e->pool,
                               .action = (uint8_t)e->action};
    assert_ok(plim_vec_push(&trace->events, NULL, event));
    trace->by_action[e->action]++;
}

struct world {
    struct plim_devmodel device;
    struct plim_torch *torch;
    uint64_t blocks[SLOTS];
    struct recorder recorder;
};

/* Tight: with most settings the cache must be given back now and then, with some it is not enough. */
static const uint64_t capacity = UINT64_C(1400) * PLIM_MIB, external = 100 * PLIM_MIB;

static struct plim_conf conf_of(const char *text, struct plim_torch_version version)
{
    struct plim_conf conf;
    plim_conf_init(&conf, version);
    assert_ok(plim_conf_parse(&conf, plim_str_from(text), NULL));
    return conf;
}

static void world_init(struct world *w, const struct plim_conf *conf,
                       struct plim_snapshot *snapshot)
{
    struct plim_devmodel_config device = {.total = capacity, .external = external};
    *w = (struct world){.recorder = {snapshot, PLIM_NO_STACK, 0}};
    assert_ok(plim_devmodel_init(&w->device, &device, NULL));
    struct plim_torch_config config = {conf->version, conf, &w->device, record, &w->recorder};
    assert_ok(plim_torch_new(&config, &w->torch, NULL));
    for (uint16_t i = 0; i < STREAMS; i++) {
        uint16_t index;
        assert_ok(plim_torch_stream(w->torch, handles[i], plim_torch_stream_hash(0, handles[i]),
                                    &index, NULL));
        assert_int_equal(index, i);
    }
    uint16_t pool;
    assert_ok(plim_torch_pool_retain(w->torch, (struct plim_pool_id){0, 1}, 0, &pool, NULL));
    assert_int_equal(pool, 1);
}

static void world_fini(struct world *w)
{
    plim_torch_delete(w->torch);
    plim_devmodel_fini(&w->device);
}

/* False when the operation fails. */
static bool run_op(struct world *w, struct op *op)
{
    uint64_t *block = &w->blocks[op->slot];
    uint64_t before = w->recorder.releases;
    switch (op->kind) {
    case OP_ALLOC:
        assert_ok(plim_torch_alloc(w->torch, op->size, op->stream, op->pool, block, NULL));
        return *block != PLIM_TORCH_NONE;
    case OP_FREE_SHARED:
        assert_ok(plim_torch_record_stream(w->torch, *block, 1, NULL));
        assert_ok(plim_torch_record_stream(w->torch, *block, 2, NULL));
        assert_ok(plim_torch_free(w->torch, *block, NULL));
        return true;
    case OP_FREE:
        assert_ok(plim_torch_free(w->torch, *block, NULL));
        return true;
    case OP_EMPTY:
        assert_ok(plim_torch_empty_cache(w->torch, 0, NULL));
        op->silent = w->recorder.snapshot ? w->recorder.releases == before : op->silent;
        return true;
    case OP_DROP_POOL:
        assert_ok(plim_torch_pool_release(w->torch, 1, NULL));
        assert_ok(plim_torch_empty_cache(w->torch, 1, NULL));
        return true;
    }
    return false;
}

/* Number of operations run; the last one failed when it is below `n` or *failed says so. */
static size_t run_ops(struct world *w, struct op *ops, size_t n, uint32_t *stacks, bool *failed)
{
    *failed = false;
    for (size_t i = 0; i < n && !*failed; i++) {
        if (!w->recorder.snapshot && ops[i].kind == OP_EMPTY && ops[i].silent) {
            continue;
        }
        w->recorder.stack =
            stacks ? stacks[i % 2 + (ops[i].kind >= OP_EMPTY ? 2 : 0)] : PLIM_NO_STACK;
        *failed = !run_op(w, &ops[i]);
        n = *failed ? i + 1 : n;
    }
    return n;
}

static void snapshot_begin(struct plim_snapshot *s, const char *conf, uint32_t stacks[4])
{
    struct plim_device *device;
    uint16_t index;
    assert_ok(plim_snapshot_init(s, NULL));
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(plim_snapshot_stream(s, handles[i], &index, NULL));
    }
    assert_ok(plim_snapshot_pool(s, (struct plim_pool_id){0, 1}, &index, NULL));
    assert_ok(plim_snapshot_device(s, 0, &device, NULL));
    s->has_traces = true;
    s->settings.known = true;
    assert_ok(plim_intern_put(&s->strings, plim_str_from(conf), &s->settings.conf, NULL));
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t text, frame;
        assert_ok(plim_intern_put(&s->strings, PLIM_STR("workload.py"), &text, NULL));
        assert_ok(
            plim_stacks_frame(&s->stacks, (struct plim_frame){text, text, i + 1}, &frame, NULL));
        assert_ok(plim_stacks_stack(&s->stacks, &frame, 1, &stacks[i], NULL));
    }
}

/* Record the workload; *n becomes the number of operations run. */
static void record_run(struct plim_snapshot *s, const char *text, struct plim_torch_version version,
                       struct op *ops, size_t *n, bool with_stacks)
{
    uint32_t stacks[4];
    bool failed;
    struct world w;
    struct plim_conf conf = conf_of(text, version);
    snapshot_begin(s, text, stacks);
    world_init(&w, &conf, s);
    *n = run_ops(&w, ops, *n, with_stacks ? stacks : NULL, &failed);
    assert_ok(plim_torch_export(w.torch, &s->devices.items[0].heap, NULL));
    world_fini(&w);
}

/* ---- replay equals direct run ---------------------------------------------------------------------- */

static uint64_t peak_of(const struct plim_torch_stats *s, enum plim_torch_stat stat)
{
    return (uint64_t)s->stat[stat][PLIM_TORCH_ALL].peak;
}

static uint64_t total_of(const struct plim_torch_stats *s, enum plim_torch_stat stat)
{
    return (uint64_t)s->stat[stat][PLIM_TORCH_ALL].allocated;
}

/* True when all is equal; otherwise `why` says what is not. */
static bool same(const struct plim_replay_result *r, struct world *w, bool failed, char *why,
                 size_t n)
{
    struct plim_torch_stats s;
    plim_torch_stats(w->torch, &s);
    const struct {
        const char *name;
        uint64_t replay, run;
    } rows[] = {
        {"failed", r->failed, failed},
        {"size of the failed request", r->failed ? r->first_oom.request_bytes : 0,
         failed ? plim_torch_failure(w->torch)->rounded : 0},
        {"allocations", r->allocs, total_of(&s, PLIM_TORCH_STAT_ALLOCATION)},
        {"peak allocated", r->peak.allocated, peak_of(&s, PLIM_TORCH_STAT_ALLOCATED_BYTES)},
        {"peak active", r->peak.active, peak_of(&s, PLIM_TORCH_STAT_ACTIVE_BYTES)},
        {"peak reserved", r->peak.reserved, peak_of(&s, PLIM_TORCH_STAT_RESERVED_BYTES)},
        {"peak requested", r->peak.requested, peak_of(&s, PLIM_TORCH_STAT_REQUESTED_BYTES)},
        {"retries", r->num_alloc_retries, s.num_alloc_retries},
        {"failures", r->num_ooms, s.num_ooms},
        {"driver gains", r->num_device_alloc, s.num_device_alloc},
        {"driver releases", r->num_device_free, s.num_device_free},
        {"synchronisations", r->num_sync_all_streams, s.num_sync_all_streams},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (rows[i].replay != rows[i].run) {
            snprintf(why, n, "%s: replay %llu, run %llu", rows[i].name,
                     (unsigned long long)rows[i].replay, (unsigned long long)rows[i].run);
            return false;
        }
    }
    return true;
}

static const char *const confs[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64,max_non_split_rounding_mb:40",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "per_process_memory_fraction:0.7,garbage_collection_threshold:0.6",
    "large_segment_size_mb:64",
};

static bool replay_as(const struct plim_requests *q, const char *text,
                      struct plim_torch_version version, struct op *ops, size_t n, char *why,
                      size_t room)
{
    struct plim_conf conf = conf_of(text, version);
    struct plim_replay_setup setup = {.conf = &conf, .capacity = capacity, .external = external};
    struct plim_replay_result result;
    struct world w;
    bool failed;
    assert_ok(plim_replay(q, &setup, &result, NULL));
    world_init(&w, &conf, NULL);
    run_ops(&w, ops, n, NULL, &failed);
    bool equal = same(&result, &w, failed, why, room);
    world_fini(&w);
    return equal;
}

/* Record under confs[from], check, replay under all. The number of settings under which the replay was not
 * the run; with stacks that is none. */
static unsigned record_and_replay(uint64_t seed, size_t from, size_t n, bool with_stacks)
{
    unsigned wrong = 0;
    struct op ops[OPS];
    struct plim_snapshot s;
    struct plim_requests q;
    struct plim_selfcheck check;
    struct plim_torch_version version = PLIM_TORCH_LATEST;
    struct plim_requests_options options = {version, capacity, external};
    workload(seed, ops);
    record_run(&s, confs[from], version, ops, &n, with_stacks);
    assert_ok(plim_requests_build(&s, 0, &options, &q, NULL));
    assert_true(q.complete);
    assert_int_equal(q.doubts.unknown_frees + q.doubts.lost_frees + q.doubts.repeated_frees, 0);
    assert_ok(plim_selfcheck(&q, capacity, &check, NULL));
    if (check.differences || !check.heap_equal) {
        fail_msg("seed %llu, '%s': %s %s", (unsigned long long)seed, confs[from], check.difference,
                 check.heap_difference);
    }
    assert_int_equal(check.compared, check.total);
    if (q.doubts.rounded_failures) { /* the failed request is known as rounded: leave it out */
        q.items.n--;
        q.allocs--;
        n--;
    }
    for (size_t to = 0; to < PLIM_COUNT_OF(confs); to++) {
        char why[160] = "";
        bool equal = replay_as(&q, confs[to], version, ops, n, why, sizeof why);
        wrong += !equal;
        if (!equal && with_stacks) {
            fail_msg("seed %llu, '%s' as '%s': %s", (unsigned long long)seed, confs[from],
                     confs[to], why);
        }
    }
    plim_requests_fini(&q);
    plim_snapshot_fini(&s);
    return wrong;
}

static void a_replay_under_any_setting_is_a_direct_run_under_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        for (size_t from = 0; from < PLIM_COUNT_OF(confs); from++) {
            record_and_replay(seed, from, OPS, true);
        }
    }
}

static void without_stacks_releases_are_told_apart_by_what_would_have_fitted(void **state)
{
    unsigned wrong = 0, all = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        for (size_t from = 0; from < PLIM_COUNT_OF(confs); from++) {
            wrong += record_and_replay(seed, from, OPS, false) > 0;
            all++;
        }
    }
    print_message("# %u of %u recordings without stacks are replayed otherwise\n", wrong, all);
    assert_true(wrong * 5 <=
                all); /* a full device and a request that fits neither way: no one knows */
}

/* Keep the last `keep` entries of the trace, as a full ring buffer does. */
static void forget_the_beginning(struct plim_snapshot *s, size_t keep)
{
    struct plim_trace *trace = &s->devices.items[0].trace;
    size_t drop = trace->events.n > keep ? trace->events.n - keep : 0;
    for (size_t i = 0; i < drop; i++) {
        trace->by_action[trace->events.items[i].action]--;
    }
    trace->events.n -= drop;
    memmove(trace->events.items, trace->events.items + drop,
            trace->events.n * sizeof trace->events.items[0]);
}

/* How many of the ring-buffer recordings are reproduced to their end. */
static void a_recording_that_begins_in_the_middle_corrects_its_start(void **state)
{
    unsigned verified = 0, all = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        for (size_t from = 0; from < PLIM_COUNT_OF(confs); from++) {
            struct op ops[OPS];
            struct plim_snapshot s;
            struct plim_requests q;
            struct plim_selfcheck check;
            struct plim_requests_options options = {PLIM_TORCH_LATEST, capacity, external};
            size_t n = OPS;
            workload(seed, ops);
            record_run(&s, confs[from], PLIM_TORCH_LATEST, ops, &n, true);
            forget_the_beginning(&s, 1200);
            assert_ok(plim_requests_build(&s, 0, &options, &q, NULL));
            assert_ok(plim_requests_repair(&q, capacity, 0, &check, NULL));
            assert_true(check.compared <= check.total);
            verified += q.start_verified || q.complete;
            all++;
            plim_requests_fini(&q);
            plim_snapshot_fini(&s);
        }
    }
    print_message("# %u of %u recordings reproduced from the middle on\n", verified, all);
    assert_true(verified * 10 >= all * 9);
}

static void short_recordings_are_reproduced_too(void **state)
{
    (void)state;
    for (size_t n = 1; n < 60; n++) {
        record_and_replay(n, n % PLIM_COUNT_OF(confs), n, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_under_any_setting_is_a_direct_run_under_it),
        cmocka_unit_test(without_stacks_releases_are_told_apart_by_what_would_have_fitted),
        cmocka_unit_test(a_recording_that_begins_in_the_middle_corrects_its_start),
        cmocka_unit_test(short_recordings_are_reproduced_too),
    };
    return PLIM_RUN_TESTS("replay", tests);
}
