/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: the heap reconstructed backwards at any position of a trace equals the heap that the exact
 * allocator model had there. Random programs, ordinary and expandable segments, failures included.
 */

#include "model_program.h"

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
