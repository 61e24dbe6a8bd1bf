/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of the moving allocator whose memory is given back for a time: addresses, books, other streams. */

#include "engine_device.h"

#include <stdlib.h>

static void a_paused_pool_gives_its_memory_back_and_keeps_its_addresses(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 3, 256 * MIB);
    uint64_t a, b, c, other, again, base, size;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 50 * MIB, 0, 7, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 1000, 0, 7, 0, &c), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 20 * MIB, 0, 0, 0, &other), PLIM_ENGINE_OK);
    uint64_t held = d->used, given = plim_engine_pause(e, 7);
    assert_true(given >= 80 * MIB);
    assert_int_equal(d->used, held - given);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_pause(e, 7), 0);
    assert_int_equal(plim_engine_alloc(e, MIB, 0, 7, 0, &again), PLIM_ENGINE_NO_MEMORY);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    assert_true(plim_engine_block(e, a, &base, &size));
    /* Others may have the memory meanwhile; then there is no way back. */
    assert_int_equal(plim_engine_alloc(e, 200 * MIB, 0, 0, 0, &again), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_NO_MEMORY);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_free(e, again, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    struct reuse nobody = {STREAMS};
    engine_pieces(d, a, 30 * MIB, engine_must_be_idle,
                  &nobody); /* there is memory behind each byte */
    engine_pieces(d, c, 512, engine_must_be_idle, &nobody);
    assert_int_equal(plim_engine_alloc(e, 50 * MIB, 0, 7, 0, &again), PLIM_ENGINE_OK);
    assert_int_equal(again, b);
    engine_finish(d, e);
    free(d);
}

static bool count_paused(void *ctx, const struct plim_engine_view *v)
{
    uint64_t *bytes = ctx;
    *bytes += v->paused && v->state == PLIM_ENGINE_LIVE ? v->size : 0;
    return true;
}

static void what_is_paused_is_neither_live_nor_reserved(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 3, 256 * MIB);
    struct plim_engine_stats before, s;
    uint64_t a, b, other, none, paused = 0;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 50 * MIB + 100, 0, 7, 0, &b), PLIM_ENGINE_OK);
    plim_engine_stats(e, &before);
    plim_engine_pause(e, 7);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.requested, 0);
    assert_int_equal(s.reserved, 0);
    assert_int_equal(s.blocks, 2);
    plim_engine_walk(e, count_paused, &paused);
    assert_int_equal(paused, before.live);
    /* Others have the memory meanwhile: that is no new peak. Nobody of the pool has, whatever the stream. */
    assert_int_equal(plim_engine_alloc(e, 80 * MIB, 0, 0, 0, &other), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, MIB, 1, 7, 0, &none), PLIM_ENGINE_NO_MEMORY);
    assert_int_equal(plim_engine_alloc(e, 512, 0, 7, 0, &none), PLIM_ENGINE_NO_MEMORY);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 80 * MIB);
    assert_int_equal(s.peak_live, before.live);
    assert_int_equal(plim_engine_free(e, b, 0), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, other, 0), PLIM_ENGINE_OK);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 30 * MIB);
    assert_int_equal(s.requested, 30 * MIB);
    assert_null(plim_engine_check(e));
    engine_finish(d, e);
    free(d);
}

static void what_waits_for_other_streams_is_told_apart(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 3, 256 * MIB);
    struct plim_engine_stats s;
    uint64_t a, b;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_alloc(e, 10 * MIB, 0, 7, 0, &b), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_record_stream(e, a, 1), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.live, 40 * MIB);
    assert_int_equal(s.pending, 30 * MIB);
    plim_engine_pause(e, 7); /* which says that the device is idle */
    plim_engine_stats(e, &s);
    assert_int_equal(s.pending, 0);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_resume(e, 7), PLIM_ENGINE_OK);
    plim_engine_stats(e, &s);
    assert_int_equal(s.pending, 30 * MIB);
    plim_engine_trim(e); /* waits */
    plim_engine_stats(e, &s);
    assert_int_equal(s.pending, 0);
    assert_int_equal(s.live, 10 * MIB);
    assert_null(plim_engine_check(e));
    engine_finish(d, e);
    free(d);
}

static void an_engine_with_a_paused_pool_can_be_deleted(void **state)
{
    (void)state;
    struct device *d = calloc(1, sizeof *d);
    struct plim_engine *e = engine_begin(d, 3, 256 * MIB);
    uint64_t a;
    assert_int_equal(plim_engine_alloc(e, 30 * MIB, 0, 7, 0, &a), PLIM_ENGINE_OK);
    plim_engine_pause(e, 7);
    plim_engine_drop_pool(e, 7);
    assert_null(plim_engine_check(e));
    assert_int_equal(plim_engine_free(e, a, 0), PLIM_ENGINE_OK);
    plim_engine_trim(e);
    assert_null(plim_engine_check(e));
    engine_finish(d, e);
    assert_int_equal(d->used, 0);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_paused_pool_gives_its_memory_back_and_keeps_its_addresses),
        cmocka_unit_test(what_is_paused_is_neither_live_nor_reserved),
        cmocka_unit_test(what_waits_for_other_streams_is_told_apart),
        cmocka_unit_test(an_engine_with_a_paused_pool_can_be_deleted),
    };
    return PLIM_RUN_TESTS("paused pools of the engine", tests);
}
