/* SPDX-License-Identifier: Apache-2.0 */
/* See engine_device.h. */

#include "engine_device.h"

#include <string.h>

uint64_t engine_roll(struct device *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random;
}

static bool fails(struct device *d)
{
    return d->trouble && engine_roll(d) % d->trouble == 0;
}

/* ---- physical memory --------------------------------------------------------------------------- */

void engine_pieces(struct device *d, uint64_t addr, uint64_t size,
                   void (*see)(struct device *d, uint32_t handle, uint64_t from, uint64_t to,
                               void *ctx),
                   void *ctx)
{
    while (size > 0) {
        uint32_t mapped = d->slot[(addr - SPACE) / PAGE_MIN];
        assert_true(mapped > 0); /* memory behind every byte that is handed out */
        uint64_t at = d->handle[mapped - 1].at, end = at + d->handle[mapped - 1].size;
        uint64_t part = end - addr < size ? end - addr : size;
        see(d, mapped - 1, addr - at, addr - at + part, ctx);
        addr += part;
        size -= part;
    }
}

void engine_must_be_idle(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx)
{
    const struct reuse *reuse = ctx;
    for (unsigned i = 0; i < d->n_use; i++) {
        const struct use *u = &d->use[i];
        bool in_flight = d->completed[u->stream] < u->seq && u->stream != reuse->stream;
        assert_false(in_flight && u->handle == handle && u->from < to && from < u->to);
    }
}

void engine_put_in_flight(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx)
{
    unsigned stream = ((const struct reuse *)ctx)->stream;
    if (d->n_use == sizeof d->use / sizeof d->use[0]) { /* keep what matters */
        unsigned n = 0;
        for (unsigned i = 0; i < d->n_use; i++) {
            if (d->completed[d->use[i].stream] < d->use[i].seq) {
                d->use[n++] = d->use[i];
            }
        }
        d->n_use = n;
        assert_true(n < sizeof d->use / sizeof d->use[0]);
    }
    d->use[d->n_use++] = (struct use){handle, from, to, stream, d->submitted[stream]};
}

/* ---- the driver --------------------------------------------------------------------------------- */

static int drv_reserve(void *ctx, uint64_t size, uint64_t align, uint64_t *addr)
{
    struct device *d = ctx;
    *addr = (d->next + align - 1) & ~(align - 1);
    if (*addr + size > SPACE + SLOTS * PAGE_MIN || fails(d) ||
        (d->most_space && *addr + size > SPACE + d->most_space)) {
        return 2;
    }
    d->next = *addr + size;
    return 0;
}

static void drv_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
    struct device *d = ctx;
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        assert_int_equal(d->slot[(at - SPACE) / PAGE_MIN], 0);
    }
}

static int drv_create(void *ctx, uint64_t size, uint64_t *handle)
{
    struct device *d = ctx;
    d->calls++;
    d->creates++;
    d->refused = false;
    if (d->used + size > d->total || fails(d)) {
        return 2;
    }
    uint32_t i = 0;
    while (i < d->n_handles && d->handle[i].size) {
        i++;
    }
    assert_true(i < HANDLES);
    d->n_handles = i == d->n_handles ? i + 1 : d->n_handles;
    d->handle[i].size = size;
    d->handle[i].at = 0;
    d->used += size;
    *handle = i;
    return 0;
}

static void drv_release(void *ctx, uint64_t handle, uint64_t size)
{
    struct device *d = ctx;
    assert_int_equal(d->handle[handle].size, size);
    assert_int_equal(d->handle[handle].at, 0);
    d->handle[handle].size = 0;
    d->used -= size;
}

static int drv_map(void *ctx, uint64_t addr, uint64_t size, uint64_t handle)
{
    struct device *d = ctx;
    assert_int_equal(d->handle[handle].size, size);
    assert_int_equal(d->handle[handle].at, 0);
    assert_true(addr % PAGE_MIN == 0 && size % PAGE_MIN == 0);
    if (fails(d) || (d->most_mapped && d->mapped == d->most_mapped)) {
        return 2;
    }
    d->mapped++;
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        assert_int_equal(d->slot[(at - SPACE) / PAGE_MIN], 0);
        d->slot[(at - SPACE) / PAGE_MIN] = (uint32_t)handle + 1;
    }
    d->handle[handle].at = addr;
    return 0;
}

static int drv_access(void *ctx, uint64_t addr, uint64_t size)
{
    struct device *d = ctx;
    (void)addr;
    (void)size;
    d->refused = fails(d);
    return d->refused ? 2 : 0;
}

static void drv_unmap(void *ctx, uint64_t addr, uint64_t size)
{
    struct device *d = ctx;
    struct reuse nobody = {STREAMS};
    assert_true(!d->capturing || d->refused);
    d->unmaps++;
    for (unsigned i = 0; i < d->n_held; i++) {
        assert_false(d->held[i].addr < addr + size && addr < d->held[i].addr + d->held[i].size);
    }
    engine_pieces(d, addr, size, engine_must_be_idle, &nobody);
    for (uint64_t at = addr; at < addr + size; at += PAGE_MIN) {
        uint32_t mapped = d->slot[(at - SPACE) / PAGE_MIN];
        assert_true(mapped > 0);
        d->slot[(at - SPACE) / PAGE_MIN] = 0;
        uint64_t from = d->handle[mapped - 1].at, end = from + d->handle[mapped - 1].size;
        assert_true(from >= addr && end <= addr + size); /* nothing is unmapped in part */
        if (at + PAGE_MIN == end) {
            d->mapped--;
            d->handle[mapped - 1].at = 0;
        }
    }
}

static uint64_t drv_record(void *ctx, uint64_t stream)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    if (fails(d)) {
        return 0;
    }
    d->events++;
    return d->submitted[stream] * STREAMS + stream + 1;
}

static bool drv_done(void *ctx, uint64_t event)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    return d->completed[(event - 1) % STREAMS] >= (event - 1) / STREAMS;
}

static void drv_wait(void *ctx, uint64_t event)
{
    struct device *d = ctx;
    assert_false(d->capturing);
    uint64_t seq = (event - 1) / STREAMS, *completed = &d->completed[(event - 1) % STREAMS];
    *completed = *completed < seq ? seq : *completed;
}

static void drv_forget(void *ctx, uint64_t event)
{
    (void)event;
    ((struct device *)ctx)->events--;
}

static const struct plim_engine_driver driver = {
    drv_reserve, drv_unreserve, drv_create, drv_release, drv_map,    drv_access,
    drv_unmap,   drv_record,    drv_done,   drv_wait,    drv_forget,
};

/* Every third workload rounds by eighths, every third to a list of sizes. */
static void some_mode(struct plim_engine_rounding *r, uint64_t seed)
{
    r->mode = (enum plim_engine_mode)(seed / 2 % PLIM_ENGINE_MODES);
    if (r->mode == PLIM_ENGINE_POOL) {
        assert_null(plim_engine_sizes_parse("3000 700, 66000,1000000\n2500000,9000000", r));
    }
}

struct plim_engine *engine_begin_planned(struct device *d, uint64_t seed, uint64_t total,
                                         const struct plim_seating *plan)
{
    memset(d, 0, sizeof *d);
    d->random = seed * 0x9e3779b97f4a7c15u + 1;
    d->total = total;
    d->next = SPACE;
    if (!plan) {
        some_mode(&d->rounding, seed);
    }
    struct plim_engine_config config = {
        .driver = &driver,
        .ctx = d,
        .rounding = &d->rounding,
        .plan = plan,
        .total = total,
        .aim = 8, /* pages of several sizes in little memory */
        .room = 1 + seed % 5,
        .floor = 4 * MIB,
        .large_page = seed % 6 == 0   ? 8 * MIB
                      : seed % 6 == 1 ? 4 * MIB
                      : seed % 6 == 2 ? 2 * MIB
                                      : 0,
    };
    struct plim_engine *e = plim_engine_new(&config);
    assert_non_null(e);
    return e;
}

struct plim_engine *engine_begin(struct device *d, uint64_t seed, uint64_t total)
{
    return engine_begin_planned(d, seed, total, NULL);
}

void engine_finish(struct device *d, struct plim_engine *e)
{
    d->trouble = 0;
    d->capturing = false;
    d->n_held = 0;
    memcpy(d->completed, d->submitted, sizeof d->completed);
    plim_engine_delete(e);
    assert_int_equal(d->used, 0);
    assert_int_equal(d->events, 0);
}

/* ---- blocks of a workload ----------------------------------------------------------------------- */

bool engine_hold(struct device *d, struct plim_engine *e, uint64_t size, unsigned stream,
                 uint64_t pool)
{
    uint64_t addr = 0;
    unsigned flags = d->capturing ? PLIM_ENGINE_CAPTURING : 0;
    enum plim_engine_code code = plim_engine_alloc(e, size, stream, pool, flags, &addr);
    if (code != PLIM_ENGINE_OK) {
        return false;
    }
    uint64_t bytes = plim_engine_round(&d->rounding, size), base, has;
    assert_int_equal(addr % 512, 0);
    assert_true(plim_engine_block(e, addr, &base, &has));
    assert_true(base == addr && has == bytes && has >= size);
    for (unsigned i = 0; i < d->n_held; i++) {
        assert_false(d->held[i].addr < addr + bytes && addr < d->held[i].addr + d->held[i].size);
    }
    struct reuse reuse = {stream};
    engine_pieces(d, addr, bytes, engine_must_be_idle, &reuse);
    d->submitted[stream]++;
    d->held[d->n_held++] = (struct held){addr, bytes, pool, stream, 0};
    return true;
}

void engine_drop(struct device *d, struct plim_engine *e, unsigned i)
{
    struct held h = d->held[i];
    d->held[i] = d->held[--d->n_held];
    for (unsigned s = 0; s < STREAMS; s++) {
        if (s == h.stream || (h.also >> s & 1)) {
            struct reuse on = {s};
            d->submitted[s]++;
            engine_pieces(d, h.addr, h.size, engine_put_in_flight, &on);
        }
    }
    unsigned flags = d->capturing ? PLIM_ENGINE_CAPTURING : 0;
    assert_int_equal(plim_engine_free(e, h.addr, flags), PLIM_ENGINE_OK);
    assert_int_equal(plim_engine_free(e, h.addr, flags), PLIM_ENGINE_UNKNOWN);
}

void engine_share(struct device *d, struct plim_engine *e)
{
    struct held *h = &d->held[engine_roll(d) % d->n_held];
    unsigned stream = (unsigned)(engine_roll(d) % STREAMS);
    assert_int_equal(plim_engine_record_stream(e, h->addr, stream), PLIM_ENGINE_OK);
    h->also |= 1u << stream;
}

void engine_check(const struct device *d, const struct plim_engine *e)
{
    const char *wrong = plim_engine_check(e);
    if (wrong) {
        fail_msg("%s", wrong);
    }
    struct plim_engine_stats s;
    plim_engine_stats(e, &s);
    assert_int_equal(s.reserved, d->used);
    assert_int_equal(s.blocks, d->n_held);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < d->n_held; i++) {
        bytes += d->held[i].size;
    }
    assert_true(s.live >= bytes); /* pending ones count too */
}
