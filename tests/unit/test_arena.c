/* SPDX-License-Identifier: Apache-2.0 */
/* Arena: alignment, zeroing, budget, mark and rewind, failure of the system's allocator. */

#include "base/arena.h"
#include "fail_alloc.h"
#include "unit.h"

static void memory_is_aligned_zeroed_and_distinct(void **state)
{
    (void)state;
    struct plim_arena arena;
    char *last = NULL;
    plim_arena_init(&arena, 0);
    for (size_t n = 0; n < 3000; n += 7) {
        void *p;
        assert_ok(plim_arena_alloc(&arena, n, &p, NULL));
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(((char *)p)[i], 0);
        }
        memset(p, 0xa5, n);
        assert_true(n <= 7 || p != last); /* none bytes may share a place */
        last = p;
    }
    plim_arena_fini(&arena);
}

static void an_allocation_larger_than_a_chunk_is_given(void **state)
{
    (void)state;
    struct plim_arena arena;
    void *p;
    plim_arena_init(&arena, 0);
    assert_ok(plim_arena_alloc(&arena, 64 << 20, &p, NULL));
    ((char *)p)[(64 << 20) - 1] = 1;
    plim_arena_fini(&arena);
    assert_int_equal(arena.used, 0);
}

static void the_budget_is_never_passed(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_err err;
    void *p;
    plim_arena_init(&arena, 1000);
    assert_ok(plim_arena_alloc(&arena, 500, &p, &err));
    assert_int_equal(plim_arena_alloc(&arena, 600, &p, &err), PLIM_E_BUDGET);
    assert_int_equal(err.status, PLIM_E_BUDGET);
    assert_non_null(strstr(err.message, "1000"));
    assert_true(arena.used <= 1000);
    plim_arena_fini(&arena);
}

static void a_refused_allocation_leaves_the_arena_usable(void **state)
{
    (void)state;
    struct plim_arena arena;
    void *p;
    plim_arena_init(&arena, 4096);
    assert_int_equal(plim_arena_alloc(&arena, 1 << 20, &p, NULL), PLIM_E_BUDGET);
    assert_ok(plim_arena_alloc(&arena, 100, &p, NULL));
    plim_arena_fini(&arena);
}

static void many_small_allocations_fill_the_budget_almost_whole(void **state)
{
    (void)state;
    struct plim_arena arena;
    uint64_t given = 0;
    void *p;
    plim_arena_init(&arena, 1 << 20);
    while (plim_arena_alloc(&arena, 1000, &p, NULL) == PLIM_OK) {
        given += 1000;
    }
    assert_true(arena.used <= 1 << 20);
    assert_true(given > (1 << 20) * 9 / 10);
    plim_arena_fini(&arena);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct plim_arena arena;
    void *p;
    plim_arena_init(&arena, 0);
    assert_int_equal(plim_arena_alloc(&arena, SIZE_MAX, &p, NULL), PLIM_E_NOMEM);
    assert_int_equal(plim_arena_alloc(&arena, PTRDIFF_MAX, &p, NULL), PLIM_E_NOMEM);
    assert_int_equal(plim_arena_array(&arena, SIZE_MAX / 2, 4, &p, NULL), PLIM_E_NOMEM);
    plim_arena_fini(&arena);
}

static void rewind_gives_back_what_came_after_the_mark(void **state)
{
    (void)state;
    struct plim_arena arena;
    void *kept, *p;
    plim_arena_init(&arena, 0);
    assert_ok(plim_arena_alloc(&arena, 100, &kept, NULL));
    memset(kept, 7, 100);
    struct plim_arena_mark mark = plim_arena_mark(&arena);
    uint64_t used = arena.used;
    for (int i = 0; i < 100; i++) {
        assert_ok(plim_arena_alloc(&arena, 100000, &p, NULL));
    }
    plim_arena_rewind(&arena, mark);
    assert_int_equal(arena.used, used);
    assert_int_equal(((char *)kept)[99], 7);
    assert_ok(plim_arena_alloc(&arena, 1000, &p, NULL));
    assert_int_equal(((char *)p)[999], 0);
    plim_arena_fini(&arena);
}

static void rewind_to_the_empty_arena_empties_it(void **state)
{
    (void)state;
    struct plim_arena arena;
    void *p;
    plim_arena_init(&arena, 0);
    struct plim_arena_mark mark = plim_arena_mark(&arena);
    assert_ok(plim_arena_alloc(&arena, 10, &p, NULL));
    plim_arena_rewind(&arena, mark);
    assert_int_equal(arena.used, 0);
    assert_null(arena.head);
}

static void strings_are_copied_with_a_nul_behind(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_str s;
    plim_arena_init(&arena, 0);
    assert_ok(plim_arena_str(&arena, PLIM_STR("a\0b"), &s, NULL));
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "a\0b", 4);
    assert_ok(plim_arena_str(&arena, (struct plim_str){NULL, 0}, &s, NULL));
    assert_int_equal(s.n, 0);
    assert_int_equal(s.p[0], 0);
    plim_arena_fini(&arena);
}

static enum plim_status use_arena(void *arg)
{
    (void)arg;
    struct plim_arena arena;
    enum plim_status st = PLIM_OK;
    plim_arena_init(&arena, 0);
    for (size_t i = 0; st == PLIM_OK && i < 20; i++) {
        void *p;
        st = plim_arena_array(&arena, i * 5000, 4, &p, NULL);
    }
    plim_arena_fini(&arena);
    return st;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    assert_true(fail_alloc_sweep(use_arena, NULL, 100, false) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_zeroed_and_distinct),
        cmocka_unit_test(an_allocation_larger_than_a_chunk_is_given),
        cmocka_unit_test(the_budget_is_never_passed),
        cmocka_unit_test(a_refused_allocation_leaves_the_arena_usable),
        cmocka_unit_test(many_small_allocations_fill_the_budget_almost_whole),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(rewind_gives_back_what_came_after_the_mark),
        cmocka_unit_test(rewind_to_the_empty_arena_empties_it),
        cmocka_unit_test(strings_are_copied_with_a_nul_behind),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return PLIM_RUN_TESTS("arena", tests);
}
