/* SPDX-License-Identifier: Apache-2.0 */
/* The table with PyTorch's walking order: membership under random use, and one order worked out by hand.
 * That the order is PyTorch's own is shown by tests/oracle. */

#include "alloc/skatable.h"
#include "alloc/torch.h"
#include "unit.h"

static size_t walk(const struct plim__ska *table, uint32_t *out)
{
    size_t n = 0;
    for (uint32_t s = 0; s < plim__ska_end(table); s++) {
        if (table->slots[s].distance >= 0) {
            out[n++] = table->slots[s].value;
        }
    }
    return n;
}

static void entries_stand_in_the_order_of_their_fibonacci_hashes(void **state)
{
    (void)state;
    /* Upper three bits of hash * 11400714819323198485 (mod 2^64) for hashes 1, 2, 3: 4, 1, 6. */
    struct plim__ska table = {0};
    uint32_t order[3];
    assert_true(plim__ska_put(&table, 1, 10));
    assert_true(plim__ska_put(&table, 2, 20));
    assert_true(plim__ska_put(&table, 3, 30));
    assert_int_equal(table.size, 8); /* three entries need more than four slots */
    assert_int_equal(walk(&table, order), 3);
    assert_int_equal(order[0], 20);
    assert_int_equal(order[1], 10);
    assert_int_equal(order[2], 30);
    plim__ska_fini(&table);
}

static void members_are_those_put_and_not_removed(void **state)
{
    (void)state;
    struct plim__ska table = {0};
    bool in[64] = {false};
    uint32_t order[64];
    uint64_t rng = 1;
    for (int i = 0; i < 20000; i++) {
        rng = plim_hash_u64(rng + 1);
        uint32_t value = (uint32_t)(rng % 64);
        uint64_t hash = plim_torch_stream_hash(0, (int64_t)(value << 5 | 3));
        if (rng >> 32 & 1) {
            assert_true(plim__ska_put(&table, hash, value));
            in[value] = true;
        } else {
            plim__ska_remove(&table, value);
            in[value] = false;
        }
        size_t n = walk(&table, order);
        size_t want = 0;
        for (size_t k = 0; k < 64; k++) {
            want += in[k] ? 1 : 0;
        }
        assert_int_equal(n, want);
        assert_int_equal(n, table.n);
        for (size_t k = 0; k < n; k++) {
            assert_true(in[order[k]]);
        }
    }
    plim__ska_clear(&table);
    assert_int_equal(walk(&table, order), 0);
    plim__ska_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_stand_in_the_order_of_their_fibonacci_hashes),
        cmocka_unit_test(members_are_those_put_and_not_removed),
    };
    return PLIM_RUN_TESTS("skatable", tests);
}
