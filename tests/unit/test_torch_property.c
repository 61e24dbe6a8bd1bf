/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random workloads on the allocator's model under many settings, versions and address policies; the
 * structure checker runs after every step (torch_world.h), and at the end everything is freed and must
 * be back with the device. Also the sorted sets under the model, against a plain sorted array.
 */

#include "alloc/freeset.h"
#include "torch_world.h"

#define SLOTS 96

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct actor {
    struct world w;
    uint64_t rng;
    uint16_t stream[4];
    uint16_t pool[3];
    uint64_t block[SLOTS];
    bool deferred[SLOTS];
};

static uint64_t below(struct actor *a, uint64_t n)
{
    return random_next(&a->rng) % n;
}

static uint64_t some_size(struct actor *a)
{
    static const uint64_t edges[] = {512,      1 << 20,  2 << 20,   10 << 20,
                                     20 << 20, 64 << 20, 128 << 20, 200 << 20};
    uint64_t edge = edges[below(a, PLIM_COUNT_OF(edges))];
    switch (below(a, 3)) {
    case 0:
        return edge - 1 + below(a, 3);
    case 1:
        return 1 + below(a, edge);
    default:
        return UINT64_C(1) << below(a, 28);
    }
}

static void step_slot(struct actor *a)
{
    size_t i = below(a, SLOTS);
    struct plim_torch *t = a->w.t;
    if (a->deferred[i]) {
        assert_ok(plim_torch_complete(t, a->block[i], NULL));
        a->deferred[i] = false;
        a->block[i] = 0;
    } else if (!a->block[i]) {
        uint16_t pool = below(a, 5) ? PLIM_TORCH_POOL_DEFAULT : a->pool[below(a, 3)];
        assert_ok(
            plim_torch_alloc(t, some_size(a), a->stream[below(a, 4)], pool, &a->block[i], NULL));
    } else if (below(a, 6) == 0) {
        assert_ok(plim_torch_record_stream(t, a->block[i], a->stream[below(a, 4)], NULL));
    } else if (below(a, 8) == 0) {
        assert_ok(plim_torch_free_deferred(t, a->block[i], NULL));
        a->deferred[i] = true;
    } else {
        assert_ok(plim_torch_free(t, a->block[i], NULL));
        a->block[i] = 0;
    }
}

static void step(struct actor *a)
{
    struct plim_torch *t = a->w.t;
    switch (below(a, 64)) {
    case 0:
        assert_ok(plim_torch_empty_cache(t, PLIM_TORCH_POOL_DEFAULT, NULL));
        break;
    case 1:
        a->w.done[below(a, 4)] = a->w.device.tickets;
        break;
    case 2:
        plim_torch_capture(t, a->stream[3], below(a, 2) == 0);
        break;
    case 3:
        assert_ok(plim_torch_set_fraction(t, below(a, 2) ? 1.0 : 0.8, NULL));
        break;
    case 4:
        assert_ok(plim_torch_empty_cache(t, a->pool[below(a, 3)], NULL));
        break;
    default:
        step_slot(a);
    }
    world_check(&a->w);
}

static void actor_make(struct actor *a, const char *conf, unsigned minor,
                       enum plim_address_policy policy, uint64_t seed)
{
    *a = (struct actor){.rng = seed};
    world_make(&a->w, conf, minor, 2 * PLIM_GIB, policy);
    a->w.lagging = true;
    for (uint16_t i = 0; i < 4; i++) {
        assert_ok(plim_torch_stream(a->w.t, i * 16, plim_torch_stream_hash(0, i * 16),
                                    &a->stream[i], NULL));
    }
    for (uint64_t i = 0; i < 3; i++) {
        unsigned flags = i == 0 ? 0 : i == 1 ? PLIM_TORCH_POOL_OVERFLOW : PLIM_TORCH_POOL_NO_SPLIT;
        assert_ok(plim_torch_pool_retain(a->w.t, (struct plim_pool_id){0, i + 1}, flags,
                                         &a->pool[i], NULL));
    }
}

static void actor_end(struct actor *a)
{
    plim_torch_capture(a->w.t, a->stream[3], false);
    for (size_t i = 0; i < SLOTS; i++) {
        if (a->block[i] && !a->deferred[i]) {
            assert_ok(plim_torch_free(a->w.t, a->block[i], NULL));
        }
    }
    for (size_t i = 0; i < 3; i++) {
        assert_ok(plim_torch_pool_release(a->w.t, a->pool[i], NULL));
    }
    world_empty(&a->w);
    struct plim_torch_gauges g = plim_torch_gauges(a->w.t);
    assert_int_equal(g.active, 0);
    assert_int_equal(g.reserved, 0);
    assert_int_equal(a->w.device.used, 0);
    world_drop(&a->w);
}

static void every_step_keeps_the_structure_sound(void **state)
{
    (void)state;
    static const char *const confs[] = {
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "max_split_size_mb:32,expandable_segments:True",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.3",
        "garbage_collection_threshold:0.3,expandable_segments:True",
    };
    static const unsigned minors[] = {1, 6, 10, 14};
    static struct actor a;
    for (size_t c = 0; c < PLIM_COUNT_OF(confs); c++) {
        for (size_t m = 0; m < PLIM_COUNT_OF(minors); m++) {
            enum plim_address_policy policy = (enum plim_address_policy)((c + m) % 4);
            actor_make(&a, confs[c], minors[m], policy, c * 100 + m + 1);
            for (size_t i = 0; i < 1500; i++) {
                step(&a);
            }
            actor_end(&a);
        }
    }
}

static void gauges_agree_with_the_exported_heap(void **state)
{
    (void)state;
    static struct actor a;
    actor_make(&a, "", 14, PLIM_ADDRESS_FIRST_FIT, 7);
    for (size_t i = 0; i < 4000; i++) {
        step(&a);
        if (i % 97) {
            continue;
        }
        struct plim_heap heap = {0};
        struct plim_torch_gauges g = plim_torch_gauges(a.w.t);
        uint64_t reserved = 0;
        uint64_t active = 0;
        uint64_t releasable = 0;
        assert_ok(plim_torch_export(a.w.t, &heap, NULL));
        plim_vec_foreach (s, &heap.segments) {
            reserved += s->size;
            uint64_t live = 0;
            for (uint32_t k = 0; k < s->n_blocks; k++) {
                const struct plim_block *b = &heap.blocks.items[s->first_block + k];
                live += b->state == PLIM_BLOCK_INACTIVE ? 0 : b->size;
            }
            active += live;
            releasable += live == 0 ? s->size : 0;
        }
        assert_int_equal(reserved, g.reserved);
        assert_int_equal(active, g.active);
        assert_int_equal(releasable, g.releasable);
        plim_vec_fini(&heap.segments);
        plim_vec_fini(&heap.blocks);
    }
    actor_end(&a);
}

/* The fields that a snapshot has; the rest differs by construction. */
static void expect_same_heap(const struct plim_heap *x, const struct plim_heap *y)
{
    assert_int_equal(x->segments.n, y->segments.n);
    assert_int_equal(x->blocks.n, y->blocks.n);
    for (size_t i = 0; i < x->segments.n; i++) {
        assert_int_equal(x->segments.items[i].addr, y->segments.items[i].addr);
        assert_int_equal(x->segments.items[i].size, y->segments.items[i].size);
        assert_int_equal(x->segments.items[i].pool, y->segments.items[i].pool);
        assert_int_equal(x->segments.items[i].stream, y->segments.items[i].stream);
        assert_int_equal(x->segments.items[i].expandable, y->segments.items[i].expandable);
    }
    for (size_t i = 0; i < x->blocks.n; i++) {
        assert_int_equal(x->blocks.items[i].addr, y->blocks.items[i].addr);
        assert_int_equal(x->blocks.items[i].size, y->blocks.items[i].size);
        assert_int_equal(x->blocks.items[i].state, y->blocks.items[i].state);
    }
}

/* Take over a's heap in a fresh actor, compare, use it for a while and take it down again. */
static void restore_and_go_on(struct actor *a, const char *conf)
{
    static const uint16_t same[] = {0, 1, 2, 3};
    static struct actor b;
    struct plim_heap before = {0};
    struct plim_heap after = {0};
    uint64_t handles[4 * SLOTS];
    size_t used = 0;
    assert_ok(plim_torch_export(a->w.t, &before, NULL));
    actor_make(&b, conf, 14, PLIM_ADDRESS_FIRST_FIT, 11);
    assert_true(before.blocks.n <= PLIM_COUNT_OF(handles));
    assert_ok(plim_torch_restore(b.w.t, &before, NULL, same, same, handles, NULL));
    world_check(&b.w);
    assert_ok(plim_torch_export(b.w.t, &after, NULL));
    expect_same_heap(&before, &after);
    for (size_t i = 0; i < before.blocks.n; i++) {
        const struct plim_block *block = &before.blocks.items[i];
        assert_int_equal(handles[i] == PLIM_TORCH_NONE, block->state == PLIM_BLOCK_INACTIVE);
        if (block->state == PLIM_BLOCK_INACTIVE) {
            continue;
        }
        assert_int_equal(plim_torch_addr(b.w.t, handles[i]), block->addr);
        b.deferred[used] = block->state == PLIM_BLOCK_PENDING_FREE;
        b.block[used++] = handles[i];
        assert_true(used < SLOTS);
    }
    for (size_t i = 0; i < 500; i++) {
        step(&b);
    }
    actor_end(&b);
    plim_vec_fini(&before.segments);
    plim_vec_fini(&before.blocks);
    plim_vec_fini(&after.segments);
    plim_vec_fini(&after.blocks);
}

static void a_snapshot_can_be_taken_over_and_continued(void **state)
{
    (void)state;
    static struct actor a;
    static const char *const confs[] = {"", "expandable_segments:True"};
    for (size_t c = 0; c < 2; c++) {
        actor_make(&a, confs[c], 14, PLIM_ADDRESS_FIRST_FIT, 3 + c);
        for (size_t i = 0; i < 2000; i++) {
            step(&a);
            if (i % 250 == 249) {
                restore_and_go_on(&a, confs[c]);
            }
        }
        actor_end(&a);
    }
}

static void an_inconsistent_heap_is_refused(void **state)
{
    (void)state;
    static const uint16_t zero[] = {0};
    struct plim_block blocks[2] = {{.addr = 1 << 21, .size = 1 << 20},
                                   {.addr = 3 << 20, .size = 1 << 20}};
    struct plim_segment segment = {.addr = 1 << 21, .size = 2 << 20, .n_blocks = 2};
    struct plim_heap heap = {.segments = {&segment, 1, 1}, .blocks = {blocks, 2, 2}};
    uint64_t handles[2];
    for (int kind = 0; kind < 5; kind++) {
        struct world w;
        struct plim_segment good = segment;
        world_make(&w, "", 14, PLIM_GIB, PLIM_ADDRESS_FIRST_FIT);
        blocks[1].size = kind == 1 ? 1 << 19 : 1 << 20;
        blocks[1].addr = kind == 2 ? (3 << 20) + 512 : 3 << 20;
        segment.n_blocks = kind == 3 ? 3 : 2;
        segment.size = kind == 4 ? UINT64_MAX - 5 : 2 << 20;
        assert_int_equal(plim_torch_restore(w.t, &heap, NULL, zero, zero, handles, NULL),
                         kind == 0 ? PLIM_OK : PLIM_E_DATA);
        segment = good;
        world_drop(&w);
    }
}

#define SET_MAX 3000

/* Where `key` is or belongs in a sorted array. */
static size_t array_lower(const plim__key *keys, size_t n, plim__key key)
{
    size_t i = 0;
    while (i < n && keys[i] < key) {
        i++;
    }
    return i;
}

static void sets_agree_with_a_sorted_array(void **state)
{
    (void)state;
    static plim__key keys[SET_MAX];
    static uint32_t ids[SET_MAX];
    struct plim__freeset set = {0};
    struct plim__chunks chunks = {0};
    uint64_t rng = 5;
    size_t n = 0;
    assert_true(plim__chunks_homes(&chunks, SET_MAX * 20));
    for (uint32_t i = 1; i < SET_MAX * 15; i++) {
        bool shrink = (i / SET_MAX) % 3 == 2;
        if (n < SET_MAX && (n == 0 || random_next(&rng) % 8 > (shrink ? 6u : 2u))) {
            plim__key key = plim__key_make((random_next(&rng) % 64) << 9, 3, (uint64_t)i << 9);
            size_t at = array_lower(keys, n, key);
            memmove(&keys[at + 1], &keys[at], (n - at) * sizeof keys[0]);
            memmove(&ids[at + 1], &ids[at], (n - at) * sizeof ids[0]);
            keys[at] = key;
            ids[at] = i;
            n++;
            assert_true(plim__freeset_insert(&set, &chunks, key, i));
        } else {
            size_t at = random_next(&rng) % n;
            if (i % 2) {
                plim__freeset_remove(&set, &chunks, ids[at]);
            } else {
                assert_true(plim__freeset_settle(&set, &chunks));
                plim__freeset_remove_at(&set, &chunks,
                                        plim__freeset_lower(&set, &chunks, keys[at]));
            }
            n--;
            memmove(&keys[at], &keys[at + 1], (n - at) * sizeof keys[0]);
            memmove(&ids[at], &ids[at + 1], (n - at) * sizeof ids[0]);
        }
        plim__key probe = plim__key_make((random_next(&rng) % 66) << 9, -1, 0);
        size_t want = array_lower(keys, n, probe);
        struct plim__pos pos;
        assert_int_equal(plim__freeset_best(&set, &chunks, probe, &pos), want < n ? ids[want] : 0);
        assert_int_equal(plim__freeset_count(&set), n);
        if (i % 3 == 0) { /* else the latest entry stays outside */
            continue;
        }
        assert_true(plim__freeset_settle(&set, &chunks));
        pos = plim__freeset_lower(&set, &chunks, probe);
        assert_int_equal(plim__freeset_at_end(&set, pos), want == n);
        if (want < n) {
            assert_int_equal(plim__freeset_id(&set, &chunks, pos), ids[want]);
        }
        assert_int_equal(plim__freeset_prev(&set, &chunks, &pos), want > 0);
        if (want > 0) {
            assert_int_equal(plim__freeset_id(&set, &chunks, pos), ids[want - 1]);
        }
        assert_true(i % 16 || plim__freeset_valid(&set, &chunks));
    }
    plim__freeset_fini(&set);
    plim__chunks_fini(&chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_keeps_the_structure_sound),
        cmocka_unit_test(gauges_agree_with_the_exported_heap),
        cmocka_unit_test(a_snapshot_can_be_taken_over_and_continued),
        cmocka_unit_test(an_inconsistent_heap_is_refused),
        cmocka_unit_test(sets_agree_with_a_sorted_array),
    };
    return PLIM_RUN_TESTS("torch property", tests);
}
