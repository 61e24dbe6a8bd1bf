/* SPDX-License-Identifier: Apache-2.0 */
/* Places for blocks on a circle of time: never two at the same place and time, and as few addresses as can
 * be, compared with every order of few blocks and with the bound of many. */

#include "unit.h"

#include "alloc/places.h"

#include <stdlib.h>

#define FEW 6

static uint64_t roll(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

struct time {
    uint32_t once, period;
};

/* Is the block there at a moment? */
static bool is_there(const struct plim_stay *s, uint32_t moment, const struct time *t)
{
    if (moment < s->start) {
        return false;
    }
    uint32_t since = moment - s->start;
    return (s->start < t->once ? since : since % t->period) < s->length;
}

/* Moment by moment, independent of how the code compares. */
static bool meet(const struct plim_stay *a, const struct plim_stay *b, const struct time *t)
{
    for (uint32_t i = 0; i < t->once + 3 * t->period; i++) {
        if (is_there(a, i, t) && is_there(b, i, t)) {
            return true;
        }
    }
    return false;
}

static void must_be_apart(const struct plim_stay *s, uint32_t n, const struct time *t,
                          uint64_t height)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_true(s[i].place + s[i].size <= height);
        for (uint32_t k = 0; k < i; k++) {
            bool overlap =
                s[i].place < s[k].place + s[k].size && s[k].place < s[i].place + s[i].size;
            assert_false(overlap && meet(&s[i], &s[k], t));
        }
    }
}

struct puzzle {
    const struct plim_stay *all;
    uint32_t n;
    struct time time;
    struct plim_stay down[FEW]; /* placed so far */
    bool used[FEW];
};

/* The least height there is. In the best solution blocks can be sunk in the order of their places until each
 * stands on another or on the ground: so some order, each block as low as it goes, gives it. */
static uint64_t least_height(struct puzzle *p, uint32_t n_down, uint64_t height, uint64_t best)
{
    if (height >= best || n_down == p->n) {
        return height < best ? height : best;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->used[i]) {
            continue;
        }
        struct plim_stay s = p->all[i];
        s.place = 0;
        for (uint32_t k = 0; k < n_down;) { /* up past each that is in the way, until none is */
            const struct plim_stay *other = &p->down[k];
            bool in_way = s.place < other->place + other->size && other->place < s.place + s.size &&
                          meet(&s, other, &p->time);
            s.place = in_way ? other->place + other->size : s.place;
            k = in_way ? 0 : k + 1;
        }
        p->down[n_down] = s;
        p->used[i] = true;
        uint64_t top = s.place + s.size > height ? s.place + s.size : height;
        best = least_height(p, n_down + 1, top, best);
        p->used[i] = false;
    }
    return best;
}

static struct plim_stay some_stay(uint64_t *random, const struct time *t)
{
    uint32_t start = (uint32_t)(roll(random) % (t->once + t->period));
    uint32_t most = start < t->once ? t->once + 2 * t->period : t->period;
    bool forever = start < t->once && roll(random) % 3 == 0;
    return (struct plim_stay){.size = 512 * (1 + roll(random) % 9),
                              .start = start,
                              .length = forever ? PLIM_STAY_FOREVER
                                                : 1 + (uint32_t)(roll(random) % most)};
}

static void few_blocks_get_the_least_height_there_is(void **state)
{
    (void)state;
    uint64_t random = 7;
    unsigned above = 0;
    for (unsigned round = 0; round < 600; round++) {
        uint32_t n = 2 + (uint32_t)(roll(&random) % (FEW - 1));
        struct puzzle p = {.n = n, .time.period = 2 + (uint32_t)(roll(&random) % 9)};
        p.time.once = round % 2 ? (uint32_t)(roll(&random) % 9) : 0;
        struct plim_stay stays[FEW], copy[FEW];
        for (uint32_t i = 0; i < n; i++) {
            stays[i] = copy[i] = some_stay(&random, &p.time);
        }
        p.all = copy;
        struct plim_places found;
        assert_int_equal(plim_places_find(stays, n, p.time.once, p.time.period, &found, NULL),
                         PLIM_OK);
        must_be_apart(stays, n, &p.time, found.height);
        assert_int_equal(found.height, least_height(&p, 0, 0, UINT64_MAX));
        above += found.height > found.bound;
    }
    assert_true(above > 5); /* there were some in which the bound cannot be had */
}

static void many_blocks_come_close_to_the_bound(void **state)
{
    (void)state;
    uint64_t random = 99;
    for (unsigned round = 0; round < 2; round++) {
        uint32_t n = 300, period = 300;
        struct plim_stay stays[300];
        for (uint32_t i = 0; i < n; i++) {
            uint64_t size = roll(&random) % 3 ? 1 + roll(&random) % 16 : 64 + roll(&random) % 512;
            stays[i] = (struct plim_stay){size * 512, i, 1 + (uint32_t)(roll(&random) % 80), 0};
        }
        struct plim_places found;
        assert_int_equal(plim_places_find(stays, n, 0, period, &found, NULL), PLIM_OK);
        must_be_apart(stays, n, &(struct time){0, period}, found.height);
        assert_true(found.height <= found.bound + found.bound / 12);
    }
}

/* Forward: each layer leaves a block; backward: they are taken in turn, beside a temporary one. */
static void a_stack_of_layers_needs_no_more_than_the_bound(void **state)
{
    (void)state;
    struct plim_stay stays[128];
    for (uint32_t i = 0; i < 64; i++) {
        stays[i] = (struct plim_stay){(1 + i % 5) * UINT64_C(1048576), i, 127 - 2 * i, 0};
        stays[64 + i] = (struct plim_stay){UINT64_C(3145728), 64 + i, 1, 0};
    }
    struct plim_places found;
    assert_int_equal(plim_places_find(stays, 128, 0, 128, &found, NULL), PLIM_OK);
    must_be_apart(stays, 128, &(struct time){0, 128}, found.height);
    assert_int_equal(found.height, found.bound);
}

static void what_lives_for_a_whole_period_has_its_place_alone(void **state)
{
    (void)state;
    struct plim_stay stays[3] = {{1024, 0, 4, 0}, {512, 1, 1, 0}, {512, 2, 1, 0}};
    struct plim_places found;
    assert_int_equal(plim_places_find(stays, 3, 0, 4, &found, NULL), PLIM_OK);
    must_be_apart(stays, 3, &(struct time){0, 4}, found.height);
    assert_int_equal(found.height, 1536);
    assert_int_equal(plim_places_find(stays, 0, 0, 4, &found, NULL), PLIM_OK);
    assert_int_equal(found.height, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_blocks_get_the_least_height_there_is),
        cmocka_unit_test(many_blocks_come_close_to_the_bound),
        cmocka_unit_test(a_stack_of_layers_needs_no_more_than_the_bound),
        cmocka_unit_test(what_lives_for_a_whole_period_has_its_place_alone),
    };
    return PLIM_RUN_TESTS("places", tests);
}
