/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: the heap reconstructed backwards at any position of a trace equals the heap that the exact
 * allocator model had there. Random programs, ordinary and expandable segments, failures included.
 */

#include "alloc/torch.h"
#include "heap/moment.h"
#include "unit.h"

#include <string.h>

#define STEPS    4000
#define SAMPLES  40
#define LIVE_MAX 300

struct program {
    struct plim_device device; /* trace and heap at the end */
    struct plim_torch *torch;
    struct plim_devmodel driver;
    uint64_t live[LIVE_MAX];
    size_t n_live;
    uint64_t random;
    size_t sample_at[SAMPLES];
    struct plim_heap sample[SAMPLES];
    size_t n_samples;
};

static uint64_t next_random(struct program *p)
{
    p->random += UINT64_C(0x9e3779b97f4a7c15);
    return plim_hash_u64(p->random);
}

static void record(void *ctx, const struct plim_torch_event *e)
{
    struct program *p = ctx;
    struct plim_event event = {.addr = e->addr,
                               .size = e->size,
                               .stack = PLIM_NO_STACK,
                               .note = PLIM_NO_ID,
                               .stream = e->stream,
                               .pool = e->pool,
                               .action = (uint8_t)e->action};
    assert_ok(plim_vec_push(&p->device.trace.events, NULL, event));
    p->device.trace.by_action[e->action]++;
}

static uint64_t random_size(struct program *p)
{
    static const uint64_t around[] = {1,        512,           100 * PLIM_KIB, PLIM_MIB,
                                      PLIM_MIB, 10 * PLIM_MIB, 20 * PLIM_MIB,  60 * PLIM_MIB};
    uint64_t size = around[next_random(p) % PLIM_COUNT_OF(around)];
    return size + next_random(p) % (size + 1);
}

static void step(struct program *p)
{
    uint64_t r = next_random(p) % 100;
    if (r < 1) {
        assert_ok(plim_torch_empty_cache(p->torch, PLIM_TORCH_POOL_DEFAULT, NULL));
    } else if (p->n_live == LIVE_MAX || (p->n_live > 0 && r < 48)) {
        size_t i = next_random(p) % p->n_live;
        assert_ok(plim_torch_free(p->torch, p->live[i], NULL));
        p->live[i] = p->live[--p->n_live];
    } else {
        uint64_t block;
        assert_ok(plim_torch_alloc(p->torch, random_size(p), 0, 0, &block, NULL));
        if (block != PLIM_TORCH_NONE) {
            p->live[p->n_live++] = block;
        }
    }
}

static void run_program(struct program *p, const char *settings, uint64_t seed)
{
    struct plim_conf conf;
    struct plim_devmodel_config driver = {.total = 4 * PLIM_GIB};
    memset(p, 0, sizeof(*p));
    p->random = seed;
    plim_conf_init(&conf, PLIM_TORCH_LATEST);
    assert_ok(plim_conf_parse(&conf, plim_str_from(settings), NULL));
    assert_ok(plim_devmodel_init(&p->driver, &driver, NULL));
    struct plim_torch_config config = {.version = PLIM_TORCH_LATEST,
                                       .conf = &conf,
                                       .device = &p->driver,
                                       .on_event = record,
                                       .ctx = p};
    assert_ok(plim_torch_new(&config, &p->torch, NULL));
    for (size_t i = 0; i < STEPS; i++) {
        step(p);
        if (i % (STEPS / SAMPLES) == 0) {
            p->sample_at[p->n_samples] = p->device.trace.events.n;
            assert_ok(plim_torch_export(p->torch, &p->sample[p->n_samples++], NULL));
        }
    }
    assert_ok(plim_torch_export(p->torch, &p->device.heap, NULL));
}

static void end_program(struct program *p)
{
    plim_torch_delete(p->torch);
    plim_devmodel_fini(&p->driver);
    for (size_t i = 0; i < p->n_samples; i++) {
        plim_heap_fini(&p->sample[i]);
    }
    plim_heap_fini(&p->device.heap);
    plim_vec_fini(&p->device.trace.events);
}

/* The next live block from *i on. */
static const struct plim_block *next_live(const struct plim_heap *heap, size_t *i)
{
    while (*i < heap->blocks.n && heap->blocks.items[*i].state == PLIM_BLOCK_INACTIVE) {
        (*i)++;
    }
    return *i < heap->blocks.n ? &heap->blocks.items[(*i)++] : NULL;
}

/* Same segments, same live blocks. A block's size may miss up to `slack` bytes that were not split off. */
static void assert_same_heap(const struct plim_heap *got, const struct plim_heap *want,
                             uint64_t slack)
{
    assert_int_equal(got->segments.n, want->segments.n);
    for (size_t i = 0; i < want->segments.n; i++) {
        assert_int_equal(got->segments.items[i].addr, want->segments.items[i].addr);
        assert_int_equal(got->segments.items[i].size, want->segments.items[i].size);
    }
    size_t at_got = 0, at_want = 0;
    for (const struct plim_block *w; (w = next_live(want, &at_want)) != NULL;) {
        const struct plim_block *g = next_live(got, &at_got);
        if (!g) {
            fail_msg("a live block is missing");
            return;
        }
        assert_int_equal(g->addr, w->addr);
        assert_int_equal(g->requested, w->requested);
        assert_int_equal(g->state, w->state);
        assert_true(g->size <= w->size && w->size - g->size <= slack);
    }
    assert_null(next_live(got, &at_got));
}

static void check_settings(const char *settings, uint64_t slack)
{
    static struct program p; /* large: not on the stack */
    for (uint64_t seed = 1; seed <= 5; seed++) {
        run_program(&p, settings, seed * 1000);
        for (size_t i = 0; i < p.n_samples; i++) {
            struct plim_heap heap = {0};
            struct plim_moment_gaps gaps;
            assert_ok(plim_heap_at(&p.device, p.sample_at[i], NULL, &heap, &gaps, NULL));
            assert_int_equal(gaps.outside + gaps.unknown_allocs + gaps.unknown_segments, 0);
            assert_same_heap(&heap, &p.sample[i], slack);
            plim_heap_fini(&heap);
        }
        end_program(&p);
    }
}

static void any_moment_of_an_ordinary_heap_is_exact_but_for_slack(void **state)
{
    (void)state;
    check_settings("", PLIM_MIB);
}

static void any_moment_of_an_expandable_heap_is_exact(void **state)
{
    (void)state;
    check_settings("expandable_segments:True", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_moment_of_an_ordinary_heap_is_exact_but_for_slack),
        cmocka_unit_test(any_moment_of_an_expandable_heap_is_exact),
    };
    return PLIM_RUN_TESTS("moment_model", tests);
}
