/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device model: books of bytes, addresses, and what calls cost.
 *
 * Costs are estimates for comparing settings with each other, not predictions for a machine. Sources:
 * pytorch#122057 (H100, expandable segments: eight cuMemCreate of 20 MiB 137 us together, one
 * cuMemSetAccess over them 505 us); vAttention (arXiv 2405.04437) table 3 for an A100 with 2 MiB pages
 * (reserve 2, create 29, map 2, set access 38, unmap 34, release 23, address free 1 us); GMLake (arXiv
 * 2401.08156) table 1 for the growth with the number of pages. cudaMalloc, cudaFree, events and
 * cudaMemGetInfo are orders of magnitude known from profiles: 30 to 100 us for a small cudaMalloc, 0.3 to
 * 2 ms for 1 GiB; cudaFree 5 to 50 us besides the wait for outstanding work, which is not modelled.
 */

#include "alloc/devmodel.h"

#define ADOPTED (UINT64_C(1) << 63) /* in plim_devmodel.ranges: not from our own addresses */

static const struct plim_driver_cost default_costs[PLIM_DRIVER_CALL_COUNT] = {
    [PLIM_DRIVER_MALLOC] = {40000, 1200},    [PLIM_DRIVER_FREE] = {20000, 400},
    [PLIM_DRIVER_MEM_GET_INFO] = {10000, 0}, [PLIM_DRIVER_ADDRESS_RESERVE] = {2000, 0},
    [PLIM_DRIVER_ADDRESS_FREE] = {1000, 0},  [PLIM_DRIVER_CREATE] = {15000, 200},
    [PLIM_DRIVER_RELEASE] = {20000, 100},    [PLIM_DRIVER_MAP] = {2000, 0},
    [PLIM_DRIVER_UNMAP] = {32000, 100},      [PLIM_DRIVER_SET_ACCESS] = {32000, 6000},
    [PLIM_DRIVER_STREAM_SYNC] = {5000, 0},   [PLIM_DRIVER_DEVICE_SYNC] = {10000, 0},
    [PLIM_DRIVER_EVENT_RECORD] = {1000, 0},  [PLIM_DRIVER_EVENT_QUERY] = {1000, 0},
    [PLIM_DRIVER_EVENT_SYNC] = {2000, 0},    [PLIM_DRIVER_MALLOC_ASYNC] = {1000, 0},
    [PLIM_DRIVER_FREE_ASYNC] = {1000, 0},    [PLIM_DRIVER_POOL_TRIM] = {20000, 0},
};

const struct plim_driver_cost *plim_devmodel_default_costs(void)
{
    return default_costs;
}

const char *plim_driver_call_text(enum plim_driver_call call)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_DRIVER_CALL_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)call < PLIM_COUNT_OF(texts) ? texts[call] : "unknown";
}

/* Count, charge and log one call. */
static void note(struct plim_devmodel *d, enum plim_driver_call call, bool ok, uint64_t addr,
                 uint64_t size, int64_t stream)
{
    const struct plim_driver_cost *cost = &d->config.cost[call];
    uint64_t pages = (size + PLIM_DEVMODEL_PAGE - 1) / PLIM_DEVMODEL_PAGE;
    d->calls[call]++;
    d->stall_ns += cost->base_ns + cost->per_page_ns * pages;
    d->failed += !ok && call != PLIM_DRIVER_EVENT_QUERY ? 1 : 0;
    if (d->config.log) {
        struct plim_driver_event e = {call, ok, addr, size, stream};
        d->config.log(d->config.ctx, &e);
    }
}

void plim_devmodel_call(struct plim_devmodel *d, enum plim_driver_call call, int64_t stream,
                        bool ok)
{
    note(d, call, ok, 0, 0, stream);
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static bool bytes_take(struct plim_devmodel *d, uint64_t bytes)
{
    uint64_t used = 0;
    if (plim_add_overflows(d->used, bytes, &used) ||
        (!d->config.unlimited && used > d->config.total)) {
        return false;
    }
    d->used = used;
    d->peak_used = plim_max_u64(d->peak_used, used);
    return true;
}

static void bytes_give(struct plim_devmodel *d, uint64_t bytes)
{
    d->used -= bytes;
}

void plim_devmodel_set_external(struct plim_devmodel *d, uint64_t bytes)
{
    d->used = d->used - d->config.external + bytes;
    d->config.external = bytes;
    d->peak_used = plim_max_u64(d->peak_used, d->used);
}

/* ---- addresses --------------------------------------------------------------------------------- */

static bool bump_take(struct plim_devmodel *d, uint64_t size, uint64_t *addr)
{
    if (d->config.policy == PLIM_ADDRESS_ASCENDING) {
        if (d->config.limit - d->next < size) {
            return false;
        }
        *addr = d->next;
        d->next += size;
        return true;
    }
    if (d->next - d->config.base < size) {
        return false;
    }
    d->next -= size;
    *addr = d->next;
    return true;
}

/* Addresses of `size` bytes (a multiple of the granularity). */
static bool addr_take(struct plim_devmodel *d, uint64_t size, uint64_t *addr)
{
    bool down = d->config.policy == PLIM_ADDRESS_FIRST_FIT_DOWN;
    if (!down && d->config.policy != PLIM_ADDRESS_FIRST_FIT) {
        return bump_take(d, size, addr);
    }
    for (size_t k = 0; k < d->holes.n; k++) {
        size_t i = down ? d->holes.n - 1 - k : k;
        struct plim_range *hole = &d->holes.items[i];
        if (hole->hi - hole->lo < size) {
            continue;
        }
        *addr = down ? hole->hi - size : hole->lo;
        if (hole->hi - hole->lo == size) {
            d->holes.n--;
            memmove(hole, hole + 1, (d->holes.n - i) * sizeof *hole);
        } else if (down) {
            hole->hi -= size;
        } else {
            hole->lo += size;
        }
        return true;
    }
    return false;
}

/* Index of the first hole that starts at or above addr. */
static size_t hole_above(const struct plim_devmodel *d, uint64_t addr)
{
    size_t lo = 0;
    size_t hi = d->holes.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->holes.items[mid].lo < addr) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static enum plim_status addr_give(struct plim_devmodel *d, uint64_t addr, uint64_t size,
                                  struct plim_err *err)
{
    if (d->config.policy != PLIM_ADDRESS_FIRST_FIT &&
        d->config.policy != PLIM_ADDRESS_FIRST_FIT_DOWN) {
        return PLIM_OK;
    }
    size_t at = hole_above(d, addr);
    bool below = at > 0 && d->holes.items[at - 1].hi == addr;
    bool above = at < d->holes.n && d->holes.items[at].lo == addr + size;
    if (below && above) {
        d->holes.items[at - 1].hi = d->holes.items[at].hi;
        d->holes.n--;
        memmove(&d->holes.items[at], &d->holes.items[at + 1],
                (d->holes.n - at) * sizeof d->holes.items[0]);
    } else if (below) {
        d->holes.items[at - 1].hi += size;
    } else if (above) {
        d->holes.items[at].lo = addr;
    } else {
        PLIM_TRY(plim_vec_reserve(&d->holes, 1, err));
        memmove(&d->holes.items[at + 1], &d->holes.items[at],
                (d->holes.n - at) * sizeof d->holes.items[0]);
        d->holes.items[at] = (struct plim_range){addr, addr + size};
        d->holes.n++;
    }
    return PLIM_OK;
}

/* ---- life -------------------------------------------------------------------------------------- */

enum plim_status plim_devmodel_init(struct plim_devmodel *d,
                                    const struct plim_devmodel_config *config, struct plim_err *err)
{
    *d = (struct plim_devmodel){.config = *config};
    struct plim_devmodel_config *c = &d->config;
    c->granularity = c->granularity ? c->granularity : PLIM_DEVMODEL_PAGE;
    c->base = c->base ? c->base : PLIM_DEVMODEL_BASE;
    c->limit = c->limit ? c->limit : PLIM_DEVMODEL_LIMIT;
    c->cost = c->cost ? c->cost : default_costs;
    if (c->external > c->total && !c->unlimited) {
        return plim__fail(err, PLIM_E_RANGE, "%llu bytes in use by others on a device of %llu",
                          (unsigned long long)c->external, (unsigned long long)c->total);
    }
    if (c->total > PLIM_DEVMODEL_MOST) {
        return plim__fail(err, PLIM_E_RANGE, "a device of %llu bytes is beyond the model's 256 TiB",
                          (unsigned long long)c->total);
    }
    if (c->base >= c->limit || c->base % c->granularity || c->limit % c->granularity ||
        c->granularity % 512) {
        return plim__fail(err, PLIM_E_RANGE,
                          "address limits that are no multiple of the granularity");
    }
    if (c->policy == PLIM_ADDRESS_SCRIPTED && !c->script) {
        return plim__fail(err, PLIM_E_USAGE, "scripted addresses without a script");
    }
    d->used = d->peak_used = c->external;
    d->next = c->policy == PLIM_ADDRESS_DESCENDING ? c->limit : c->base;
    return plim_vec_push(&d->holes, err, (struct plim_range){c->base, c->limit});
}

void plim_devmodel_fini(struct plim_devmodel *d)
{
    plim_vec_fini(&d->holes);
    plim_map_fini(&d->ranges);
    plim_map_fini(&d->slabs);
}

/* ---- ranges ------------------------------------------------------------------------------------ */

static uint64_t whole(const struct plim_devmodel *d, uint64_t size)
{
    return plim_round_up(size, d->config.granularity);
}

/* An address for a call, by policy. *addr = 0 when there is none. */
static enum plim_status range_take(struct plim_devmodel *d, enum plim_driver_call call,
                                   uint64_t size, uint64_t *addr, struct plim_err *err)
{
    uint64_t at = 0;
    if (d->config.policy == PLIM_ADDRESS_SCRIPTED) {
        at = d->config.script(d->config.ctx, call, size, &at) ? at : 0;
        if (at % 512 || (at && plim_map_get(&d->ranges, at))) {
            return plim__fail(err, PLIM_E_DATA, "address %llx cannot be a new range",
                              (unsigned long long)at);
        }
    } else if (!addr_take(d, whole(d, size), &at)) {
        at = 0;
    }
    if (at) {
        PLIM_TRY(plim_map_put(&d->ranges, at, size, err));
    }
    *addr = at;
    return PLIM_OK;
}

static enum plim_status range_give(struct plim_devmodel *d, uint64_t addr, uint64_t *size,
                                   struct plim_err *err)
{
    if (!plim_map_take(&d->ranges, addr, size)) {
        return plim__fail(err, PLIM_E_NOTFOUND, "no range starts at %llx",
                          (unsigned long long)addr);
    }
    if (*size & ADOPTED) {
        *size &= ~ADOPTED;
        return PLIM_OK;
    }
    return addr_give(d, addr, whole(d, *size), err);
}

/* Take [lo, hi) out of the holes, as far as it is in them. */
static enum plim_status holes_cut(struct plim_devmodel *d, uint64_t lo, uint64_t hi,
                                  struct plim_err *err)
{
    for (size_t i = 0; i < d->holes.n; i++) {
        struct plim_range hole = d->holes.items[i];
        if (hole.hi <= lo || hole.lo >= hi) {
            continue;
        }
        if (hole.lo < lo && hole.hi > hi) {
            PLIM_TRY(plim_vec_reserve(&d->holes, 1, err));
            memmove(&d->holes.items[i + 1], &d->holes.items[i],
                    (d->holes.n - i) * sizeof d->holes.items[0]);
            d->holes.n++;
            d->holes.items[i].hi = lo;
            d->holes.items[i + 1].lo = hi;
            return PLIM_OK;
        }
        if (hole.lo < lo) {
            d->holes.items[i].hi = lo;
        } else if (hole.hi > hi) {
            d->holes.items[i].lo = hi;
        } else {
            d->holes.n--;
            memmove(&d->holes.items[i], &d->holes.items[i + 1],
                    (d->holes.n - i) * sizeof d->holes.items[0]);
            i--;
        }
    }
    return PLIM_OK;
}

enum plim_status plim_devmodel_adopt(struct plim_devmodel *d, uint64_t addr, uint64_t size,
                                     bool reservation, uint64_t backed, struct plim_err *err)
{
    uint64_t bytes = whole(d, reservation ? backed : size);
    uint64_t end = plim_add_sat(addr, whole(d, size));
    if (size == 0 || size >= ADOPTED || addr == 0 || plim_map_get(&d->ranges, addr)) {
        return plim__fail(err, PLIM_E_DATA, "no room for a range at %llx",
                          (unsigned long long)addr);
    }
    if (!bytes_take(d, bytes)) {
        return plim__fail(err, PLIM_E_RANGE, "the device has %llu bytes free, not %llu",
                          (unsigned long long)plim_devmodel_free_bytes(d),
                          (unsigned long long)bytes);
    }
    /* Bump policies go on beyond what exists. */
    if (d->config.policy == PLIM_ADDRESS_ASCENDING && end > d->next && end < d->config.limit) {
        d->next = plim_round_up(end, d->config.granularity);
    }
    if (d->config.policy == PLIM_ADDRESS_DESCENDING && addr < d->next && addr > d->config.base) {
        d->next = addr / d->config.granularity * d->config.granularity;
    }
    PLIM_TRY(plim_map_put(&d->ranges, addr, size | ADOPTED, err));
    return holes_cut(d, addr, end, err);
}

/* ---- cudaMalloc below the granularity: slabs shared by several pieces --------------------------- */

static enum plim_status slab_malloc(struct plim_devmodel *d, uint64_t size, uint64_t *addr,
                                    struct plim_err *err)
{
    uint64_t need = plim_round_up(size, 512);
    if (d->slab_at == 0 || d->config.granularity - d->slab_fill < need) {
        uint64_t at = 0;
        if (!bytes_take(d, d->config.granularity)) {
            *addr = 0;
            return PLIM_OK;
        }
        if (!addr_take(d, d->config.granularity, &at)) {
            bytes_give(d, d->config.granularity);
            *addr = 0;
            return PLIM_OK;
        }
        PLIM_TRY(plim_map_put(&d->slabs, at, 0, err));
        d->slab_at = at;
        d->slab_fill = 0;
    }
    *addr = d->slab_at + d->slab_fill;
    PLIM_TRY(plim_map_put(&d->ranges, *addr, size, err));
    d->slab_fill += need;
    ++*plim_map_get(&d->slabs, d->slab_at);
    return PLIM_OK;
}

static enum plim_status slab_free(struct plim_devmodel *d, uint64_t addr, struct plim_err *err)
{
    uint64_t offset = (addr - d->config.base) % d->config.granularity;
    uint64_t slab = addr - offset;
    uint64_t *live = plim_map_get(&d->slabs, slab);
    if (!live) {
        return plim__fail(err, PLIM_E_INTERNAL, "no slab at %llx", (unsigned long long)slab);
    }
    if (--*live > 0) {
        return PLIM_OK;
    }
    plim_map_take(&d->slabs, slab, NULL);
    d->slab_at = d->slab_at == slab ? 0 : d->slab_at;
    bytes_give(d, d->config.granularity);
    return addr_give(d, slab, d->config.granularity, err);
}

static bool is_shared(const struct plim_devmodel *d, uint64_t size)
{
    return size <= d->config.granularity / 2 && d->config.policy != PLIM_ADDRESS_SCRIPTED;
}

/* ---- the calls --------------------------------------------------------------------------------- */

enum plim_status plim_devmodel_malloc(struct plim_devmodel *d, uint64_t size, uint64_t *addr,
                                      struct plim_err *err)
{
    uint64_t at = 0;
    if (is_shared(d, size)) {
        PLIM_TRY(slab_malloc(d, size, &at, err));
    } else if (bytes_take(d, whole(d, size))) {
        enum plim_status st = range_take(d, PLIM_DRIVER_MALLOC, size, &at, err);
        if (st != PLIM_OK || at == 0) {
            bytes_give(d, whole(d, size));
            PLIM_TRY(st);
        }
    }
    note(d, PLIM_DRIVER_MALLOC, at != 0, at, size, 0);
    *addr = at;
    return PLIM_OK;
}

enum plim_status plim_devmodel_free(struct plim_devmodel *d, uint64_t addr, struct plim_err *err)
{
    uint64_t size = 0;
    uint64_t *known = plim_map_get(&d->ranges, addr);
    if (known && is_shared(d, *known)) { /* adopted ones never are: their flag makes them huge */
        plim_map_take(&d->ranges, addr, &size);
        PLIM_TRY(slab_free(d, addr, err));
    } else {
        PLIM_TRY(range_give(d, addr, &size, err));
        bytes_give(d, whole(d, size));
    }
    note(d, PLIM_DRIVER_FREE, true, addr, size, 0);
    return PLIM_OK;
}

enum plim_status plim_devmodel_reserve(struct plim_devmodel *d, uint64_t size, uint64_t *addr,
                                       struct plim_err *err)
{
    uint64_t at = 0;
    PLIM_TRY(range_take(d, PLIM_DRIVER_ADDRESS_RESERVE, size, &at, err));
    note(d, PLIM_DRIVER_ADDRESS_RESERVE, at != 0, at, size, 0);
    *addr = at;
    return PLIM_OK;
}

enum plim_status plim_devmodel_unreserve(struct plim_devmodel *d, uint64_t addr,
                                         struct plim_err *err)
{
    uint64_t size = 0;
    PLIM_TRY(range_give(d, addr, &size, err));
    note(d, PLIM_DRIVER_ADDRESS_FREE, true, addr, size, 0);
    return PLIM_OK;
}

bool plim_devmodel_map(struct plim_devmodel *d, uint64_t addr, uint64_t page, uint64_t pages,
                       bool ask_free)
{
    uint64_t real = whole(d, page);
    for (uint64_t i = 0; i < pages; i++) {
        bool ok = bytes_take(d, real);
        note(d, PLIM_DRIVER_CREATE, ok, 0, page, 0);
        if (!ok) {
            if (ask_free) {
                note(d, PLIM_DRIVER_MEM_GET_INFO, true, 0, 0, 0);
            }
            for (uint64_t k = 0; k < i; k++) {
                bytes_give(d, real);
                note(d, PLIM_DRIVER_RELEASE, true, 0, page, 0);
            }
            return false;
        }
    }
    for (uint64_t i = 0; i < pages; i++) {
        note(d, PLIM_DRIVER_MAP, true, addr + i * page, page, 0);
    }
    note(d, PLIM_DRIVER_SET_ACCESS, true, addr, page * pages, 0);
    return true;
}

void plim_devmodel_unmap(struct plim_devmodel *d, uint64_t addr, uint64_t page, uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++) {
        note(d, PLIM_DRIVER_UNMAP, true, addr + i * page, page, 0);
        bytes_give(d, whole(d, page));
        note(d, PLIM_DRIVER_RELEASE, true, 0, page, 0);
    }
}

uint64_t plim_devmodel_total_calls(const struct plim_devmodel *d)
{
    uint64_t total = 0;
    for (size_t i = 0; i < PLIM_DRIVER_CALL_COUNT; i++) {
        total += d->calls[i];
    }
    return total;
}

void plim_devmodel_forget_calls(struct plim_devmodel *d)
{
    d->stall_ns = 0;
    memset(d->calls, 0, sizeof d->calls);
}

bool plim_devmodel_create(struct plim_devmodel *d, uint64_t page)
{
    bool ok = bytes_take(d, whole(d, page));
    note(d, PLIM_DRIVER_CREATE, ok, 0, page, 0);
    return ok;
}

void plim_devmodel_release(struct plim_devmodel *d, uint64_t page)
{
    bytes_give(d, whole(d, page));
    note(d, PLIM_DRIVER_RELEASE, true, 0, page, 0);
}

void plim_devmodel_map_one(struct plim_devmodel *d, uint64_t addr, uint64_t page)
{
    note(d, PLIM_DRIVER_MAP, true, addr, page, 0);
}

void plim_devmodel_access(struct plim_devmodel *d, uint64_t addr, uint64_t size)
{
    note(d, PLIM_DRIVER_SET_ACCESS, true, addr, size, 0);
}

void plim_devmodel_unmap_run(struct plim_devmodel *d, uint64_t addr, uint64_t size)
{
    note(d, PLIM_DRIVER_UNMAP, true, addr, size, 0);
}

uint64_t plim_devmodel_event_record(struct plim_devmodel *d, int64_t stream)
{
    note(d, PLIM_DRIVER_EVENT_RECORD, true, 0, 0, stream);
    return ++d->tickets;
}

void plim_devmodel_event_sync(struct plim_devmodel *d, int64_t stream, uint64_t ticket)
{
    note(d, ticket ? PLIM_DRIVER_EVENT_SYNC : PLIM_DRIVER_STREAM_SYNC, true, 0, 0, stream);
    if (d->config.event_sync) {
        d->config.event_sync(d->config.ctx, stream, ticket);
    }
}

bool plim_devmodel_event_query(struct plim_devmodel *d, int64_t stream, uint64_t ticket)
{
    bool ready = !d->config.event_ready || d->config.event_ready(d->config.ctx, stream, ticket);
    note(d, PLIM_DRIVER_EVENT_QUERY, ready, 0, 0, stream);
    return ready;
}
