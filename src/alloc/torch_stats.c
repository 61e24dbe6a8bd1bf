/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics as torch.cuda.memory_stats() gives them, and the gauges. */

#include "alloc/torch_int.h"

static struct plim_stat stat_of(const struct plim__cell *c)
{
    return (struct plim_stat){c->current, c->peak, c->current - c->base + c->freed, c->freed};
}

static struct plim_stat stat_both(const struct plim__cell *two, int64_t peak)
{
    struct plim_stat a = stat_of(&two[0]);
    struct plim_stat b = stat_of(&two[1]);
    return (struct plim_stat){a.current + b.current, peak, a.allocated + b.allocated,
                              a.freed + b.freed};
}

void plim_torch_stats(const struct plim_torch *t, struct plim_torch_stats *out)
{
    for (unsigned s = 0; s < PLIM_TORCH_STAT_COUNT; s++) {
        out->stat[s][PLIM_TORCH_ALL] = stat_both(t->stat[s], t->stat_peak[s]);
        out->stat[s][PLIM_TORCH_LARGE] = stat_of(&t->stat[s][0]);
        out->stat[s][PLIM_TORCH_SMALL] = stat_of(&t->stat[s][1]);
    }
    out->oversize_allocations = stat_of(&t->oversize_allocations);
    out->oversize_segments = stat_of(&t->oversize_segments);
    out->num_alloc_retries = t->num_alloc_retries;
    out->num_ooms = t->num_ooms;
    out->num_oom_rejections = t->num_oom_rejections;
    out->num_sync_all_streams = t->num_sync_all_streams;
    out->num_device_alloc = t->num_device_alloc;
    out->num_device_free = t->num_device_free;
    out->max_split_size = t->max_split_at_start;
}

bool plim_torch_pool_reserved(const struct plim_torch *t, uint16_t pool,
                              struct plim_stat out[PLIM_TORCH_HALF_COUNT])
{
    if (pool == 0 || pool >= t->pools_n || !t->pools[pool].had_memory) {
        return false;
    }
    const struct plim__pool *p = &t->pools[pool];
    out[PLIM_TORCH_ALL] = stat_both(p->reserved, p->reserved_peak);
    out[PLIM_TORCH_LARGE] = stat_of(&p->reserved[0]);
    out[PLIM_TORCH_SMALL] = stat_of(&p->reserved[1]);
    return true;
}

/* Every cell of the model, one after the other; NULL behind the last. */
static struct plim__cell *cell_at(struct plim_torch *t, size_t i)
{
    if (i < (size_t)PLIM_TORCH_STAT_COUNT * 2) {
        return &t->stat[i / 2][i % 2];
    }
    i -= (size_t)PLIM_TORCH_STAT_COUNT * 2;
    if (i < 2) {
        return i == 0 ? &t->oversize_allocations : &t->oversize_segments;
    }
    i -= 2;
    return i / 2 < t->pools_n ? &t->pools[i / 2].reserved[i % 2] : NULL;
}

void plim_torch_reset_peak(struct plim_torch *t)
{
    struct plim__cell *cell = NULL;
    for (size_t i = 0; (cell = cell_at(t, i)) != NULL; i++) {
        cell->peak = cell->current;
    }
    for (unsigned s = 0; s < PLIM_TORCH_STAT_COUNT; s++) {
        t->stat_peak[s] = t->stat[s][0].current + t->stat[s][1].current;
    }
    for (uint32_t p = 0; p < t->pools_n; p++) {
        t->pools[p].reserved_peak =
            t->pools[p].reserved[0].current + t->pools[p].reserved[1].current;
    }
}

void plim_torch_reset_accumulated(struct plim_torch *t)
{
    struct plim__cell *cell = NULL;
    for (size_t i = 0; (cell = cell_at(t, i)) != NULL; i++) {
        cell->base = cell->current;
        cell->freed = 0;
    }
    t->num_alloc_retries = 0;
    t->num_ooms = 0;
    t->num_oom_rejections = 0;
    t->num_sync_all_streams = 0;
    t->num_device_alloc = 0;
    t->num_device_free = 0;
}

static uint64_t now(const struct plim_torch *t, enum plim_torch_stat stat)
{
    return (uint64_t)(t->stat[stat][0].current + t->stat[stat][1].current);
}

struct plim_torch_gauges plim_torch_gauges(const struct plim_torch *t)
{
    struct plim_torch_gauges g = {
        .allocated = now(t, PLIM_TORCH_STAT_ALLOCATED_BYTES),
        .active = now(t, PLIM_TORCH_STAT_ACTIVE_BYTES),
        .requested = now(t, PLIM_TORCH_STAT_REQUESTED_BYTES),
        .reserved = now(t, PLIM_TORCH_STAT_RESERVED_BYTES),
    };
    for (uint32_t p = 0; p < t->pools_n; p++) {
        g.releasable += t->pools[p].half[0].releasable + t->pools[p].half[1].releasable;
    }
    return g;
}

const struct plim_torch_failure *plim_torch_failure(const struct plim_torch *t)
{
    return &t->failure;
}

const char *plim_torch_stat_text(enum plim_torch_stat stat)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_TORCH_STAT_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)stat < PLIM_COUNT_OF(texts) ? texts[stat] : "unknown";
}
