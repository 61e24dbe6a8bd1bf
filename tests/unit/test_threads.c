/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the headers promise about threads: many readers of a map and an interner at once, and arenas that
 * belong to one thread each. ThreadSanitizer is the judge (suite "threads").
 */

#include "base/arena.h"
#include "base/intern.h"
#include "base/map.h"
#include "unit.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 4
#define KEYS    2000

struct shared {
    struct plim_map map;
    struct plim_intern names;
};

/* Returns NULL when everything was as it must be. */
static void *read_all(void *arg)
{
    struct shared *shared = arg;
    static const char wrong[] = "wrong";
    for (uint64_t k = 0; k < KEYS; k++) {
        char name[32];
        snprintf(name, sizeof(name), "name-%llu", (unsigned long long)k);
        uint64_t *v = plim_map_get(&shared->map, k * 512);
        uint32_t id = plim_intern_find(&shared->names, plim_str_from(name));
        if (v == NULL || *v != k || id != k ||
            !plim_str_eq(plim_intern_str(&shared->names, id), plim_str_from(name))) {
            return (void *)(uintptr_t)wrong;
        }
    }
    return NULL;
}

static void *own_arena(void *arg)
{
    struct plim_arena arena;
    enum plim_status st = PLIM_OK;
    plim_arena_init(&arena, 0);
    for (size_t i = 0; st == PLIM_OK && i < 1000; i++) {
        void *p;
        st = plim_arena_alloc(&arena, i, &p, NULL);
    }
    plim_arena_fini(&arena);
    return st == PLIM_OK ? NULL : arg;
}

static void run_threads(void *(*body)(void *), void *arg)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, body, arg), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = arg;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

static void many_threads_read_a_map_and_an_interner(void **state)
{
    (void)state;
    struct shared shared = {0};
    plim_intern_init(&shared.names, 0);
    for (uint64_t k = 0; k < KEYS; k++) {
        char name[32];
        uint32_t id;
        snprintf(name, sizeof(name), "name-%llu", (unsigned long long)k);
        assert_ok(plim_map_put(&shared.map, k * 512, k, NULL));
        assert_ok(plim_intern_put(&shared.names, plim_str_from(name), &id, NULL));
    }
    run_threads(read_all, &shared);
    plim_map_fini(&shared.map);
    plim_intern_fini(&shared.names);
}

static void each_thread_has_its_own_arena(void **state)
{
    (void)state;
    int marker = 0;
    run_threads(own_arena, &marker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_read_a_map_and_an_interner),
        cmocka_unit_test(each_thread_has_its_own_arena),
    };
    return PLIM_RUN_TESTS("threads", tests);
}
