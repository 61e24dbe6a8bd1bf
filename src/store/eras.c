/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The ledger's clock. Chunks and levels need a time that never goes back, and ages that a wrong wall clock does not
 * change: a clock that jumps to 2037 for a minute must not make a quarter of history "too old". The ledger therefore
 * goes on by what CLOCK_BOOTTIME says when the wall clock moved otherwise, and notes the difference as an era. A shift
 * is a whole number of the coarsest steps, so that bins begin at whole minutes and hours of the wall clock too.
 */

#include "store/store_int.h"

#define STEP_TOLERANCE 10000 /* ms: a clock that is slewed or set by less is followed, see below */

static int64_t ceil_to(int64_t t, int64_t unit)
{
    return -plim__floor_to(-t, unit);
}

/* Where the ledger is now if no time was lost or won; INT64_MIN: unknown. */
static int64_t expected_time(const struct plim_store *store, uint64_t mono_ns)
{
    if (store->last == INT64_MIN || store->last_mono_ns == 0 || mono_ns < store->last_mono_ns) {
        return INT64_MIN;
    }
    return store->last + (int64_t)((mono_ns - store->last_mono_ns) / 1000000);
}

struct plim__moment plim__ledger_moment(const struct plim_store *store, uint64_t time_ns,
                                        uint64_t mono_ns)
{
    int64_t wall = (int64_t)(time_ns / 1000000), tick = plim__tick(store);
    int64_t expected = expected_time(store, mono_ns);
    struct plim__moment m = {.new_era = store->eras.n == 0};
    m.shift = m.new_era ? 0 : store->eras.items[store->eras.n - 1].shift;
    m.time = wall + m.shift;
    if (expected != INT64_MIN && (expected < store->last + tick / 2 ||
                                  (expected < store->last + tick && m.time < store->last))) {
        m.time = INT64_MIN; /* faster than times are kept */
        return m;
    }
    bool stepped = expected != INT64_MIN
                       ? m.time - expected > STEP_TOLERANCE || expected - m.time > STEP_TOLERANCE
                       : store->last != INT64_MIN && store->last - m.time > STEP_TOLERANCE;
    if (stepped) {
        int64_t least = expected != INT64_MIN ? expected : store->last + tick;
        int64_t shift = ceil_to(least - wall, store->level[store->n_levels - 1].step);
        m.new_era = m.new_era || shift != m.shift;
        m.shift = shift;
        m.time = wall + shift;
    }
    m.time = plim__floor_to(m.time, tick);
    if (store->last != INT64_MIN && m.time <= store->last) {
        m.time =
            store->last + tick; /* set back a little: caught up, as a tick is less than a step */
    }
    return m;
}

int64_t plim__shift_at(const struct plim_store *store, int64_t time)
{
    int64_t shift = store->eras.n > 0 ? store->eras.items[0].shift : 0;
    for (size_t i = 1; i < store->eras.n && store->eras.items[i].start <= time; i++) {
        shift = store->eras.items[i].shift;
    }
    return shift;
}

uint64_t plim__wall_ns(const struct plim_store *store, int64_t time)
{
    int64_t wall = time - plim__shift_at(store, time);
    return wall > 0 ? (uint64_t)wall * 1000000 : 0;
}

bool plim__era_range(const struct plim_store *store, size_t i, int64_t from, int64_t to,
                     int64_t *ledger_from, int64_t *ledger_to)
{
    const struct plim__era *era = &store->eras.items[i];
    int64_t begin = i > 0 ? era->start : INT64_MIN / 4;
    int64_t end = i + 1 < store->eras.n ? era[1].start : INT64_MAX / 4;
    int64_t a = from + era->shift, b = to + era->shift;
    *ledger_from = a > begin ? a : begin;
    *ledger_to = b < end ? b : end;
    return *ledger_from < *ledger_to;
}
