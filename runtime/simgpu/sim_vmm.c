/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical handles, reservations, mappings.
 *
 * A handle counts references: its creator's, one for each retain, one for each mapping. Its bytes are
 * charged at creation and given back when no reference is left, so releasing a handle right after
 * mapping it frees nothing until the last unmap. A handle may be mapped several times. Mappings of
 * a device are a set of first pages, like ranges, so overlap and walks cost no search. Host memory
 * handles are accepted and cost no device memory.
 *
 * Rules checked (comments of cuda.h 13.0): sizes and addresses are multiples of the granularity, the
 * offset is 0, the range lies in one reservation and is not mapped, an unmap covers whole mappings,
 * and access can be given to mapped pages only. At most `max_mappings` accessible mappings exist in a
 * process: on an H100 with driver 580.82 about 520,000 were measured (public notes of the forkedkv
 * project), with "out of memory" from cuMemSetAccess beyond.
 */

#include "sim.h"
#include <sys/mman.h>

struct physical {
    uint64_t bytes;
    uint32_t refs; /* handle references and mappings */
    uint32_t self;
    uint32_t generation;
    int32_t device; /* -1: host memory */
};

struct mapping {
    uint64_t page, pages;
    struct physical *memory;
    struct sim_range *reserve;
    uint32_t self;
    bool accessible;
};

struct maps {
    struct sim_bits first;
    uint32_t *at;
    bool ready;
};

static struct sim_pool physicals = SIM_POOL(struct physical);
static struct sim_pool mappings = SIM_POOL(struct mapping);
static struct maps maps[SIM_MAX_DEVICES];
static uint64_t n_accessible;

static struct maps *maps_of(int device)
{
    struct maps *m = &maps[device];
    if (!m->ready) {
        uint64_t pages = (sim_space_addr(1, 0) - sim_space_addr(0, 0)) / SIM_PAGE;
        m->at = mmap(NULL, pages * sizeof *m->at, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        m->ready = m->at != MAP_FAILED && sim_bits_init(&m->first, pages) == SIM_OK;
    }
    return m->ready ? m : NULL;
}

static struct mapping *mapping_at(const struct maps *m, uint64_t page)
{
    return sim_pool_at(&mappings, m->at[page]);
}

/* The generation makes a stale handle differ from the one that reuses its place. */
static struct physical *physical_of(uint64_t handle)
{
    uint32_t index = (uint32_t)handle;
    if (index == 0 || index > physicals.n) {
        return NULL;
    }
    struct physical *p = sim_pool_at(&physicals, index);
    return p->refs > 0 && p->generation == handle >> 32 ? p : NULL;
}

static uint64_t handle_of(const struct physical *p)
{
    return (uint64_t)p->generation << 32 | p->self;
}

static int create(int device, uint64_t bytes, uint64_t *handle)
{
    static uint32_t generation;
    uint32_t self;
    struct physical *p = sim_pool_take(&physicals, &self);
    if (p == NULL) {
        return SIM_E_NOMEM;
    }
    generation = generation == UINT32_MAX ? 1 : generation + 1;
    *p = (struct physical){
        .bytes = bytes, .refs = 1, .self = self, .generation = generation, .device = device};
    *handle = handle_of(p);
    return SIM_OK;
}

int sim_create(int device, uint64_t bytes, uint64_t *handle)
{
    if (bytes == 0 || bytes % SIM_PAGE != 0) {
        return SIM_E_VALUE;
    }
    int rc = sim_charge(device, bytes);
    if (rc == SIM_OK) {
        rc = create(device, bytes, handle);
        if (rc != SIM_OK) {
            sim_uncharge(device, bytes);
        }
    }
    return rc;
}

int sim_create_host(uint64_t bytes, uint64_t *handle)
{
    return bytes == 0 ? SIM_E_VALUE : create(-1, bytes, handle);
}

static void drop(struct physical *p)
{
    if (--p->refs == 0) {
        if (p->device >= 0) {
            sim_uncharge(p->device, p->bytes);
        }
        sim_pool_give(&physicals, p->self);
    }
}

int sim_release(uint64_t handle)
{
    struct physical *p = physical_of(handle);
    if (p == NULL) {
        return SIM_E_VALUE;
    }
    drop(p);
    return SIM_OK;
}

int sim_retain(uint64_t handle)
{
    struct physical *p = physical_of(handle);
    if (p == NULL) {
        return SIM_E_VALUE;
    }
    p->refs++;
    return SIM_OK;
}

int sim_handle_info(uint64_t handle, int *device, uint64_t *bytes)
{
    const struct physical *p = physical_of(handle);
    if (p == NULL) {
        return SIM_E_VALUE;
    }
    *device = p->device;
    *bytes = p->bytes;
    return SIM_OK;
}

int sim_reserve(int device, uint64_t bytes, uint64_t align, uint64_t *out)
{
    if (bytes == 0 || bytes % 4096 != 0 || (align & (align - 1)) != 0) {
        return SIM_E_VALUE;
    }
    uint64_t pages = (bytes + SIM_PAGE - 1) / SIM_PAGE;
    struct sim_range *range =
        sim_space_take(device, pages, align > SIM_PAGE ? align / SIM_PAGE : 1, SIM_KIND_RESERVE);
    if (range == NULL) {
        return SIM_E_NOMEM;
    }
    range->requested = bytes;
    *out = sim_space_addr(device, range->page);
    return SIM_OK;
}

int sim_unreserve(uint64_t addr, uint64_t bytes)
{
    int device;
    struct sim_range *range = sim_space_find((const void *)(uintptr_t)addr, &device);
    if (range == NULL || range->kind != SIM_KIND_RESERVE || range->requested != bytes ||
        sim_space_addr(device, range->page) != addr || range->live != 0) {
        return SIM_E_VALUE;
    }
    sim_space_give(device, range);
    return SIM_OK;
}

/* The reservation that holds [addr, addr + bytes), with the first page and the number of pages. */
static struct sim_range *within(uint64_t addr, uint64_t bytes, int *device, uint64_t *page)
{
    struct sim_range *range = sim_space_find((const void *)(uintptr_t)addr, device);
    if (range == NULL || range->kind != SIM_KIND_RESERVE || bytes == 0 || addr % SIM_PAGE != 0 ||
        bytes % SIM_PAGE != 0) {
        return NULL;
    }
    *page = (addr - sim_space_addr(*device, 0)) / SIM_PAGE;
    return *page + bytes / SIM_PAGE <= range->page + range->pages ? range : NULL;
}

/* The last mapping that starts at or before `page`, if it reaches beyond `from`. */
static struct mapping *covering(const struct maps *m, uint64_t page, uint64_t from)
{
    uint64_t first = sim_bits_prev(&m->first, page);
    if (first == SIM_NONE) {
        return NULL;
    }
    struct mapping *map = mapping_at(m, first);
    return map->page + map->pages > from ? map : NULL;
}

int sim_map(uint64_t addr, uint64_t bytes, uint64_t offset, uint64_t handle)
{
    int device;
    uint64_t page;
    uint32_t self;
    struct sim_range *reserve = within(addr, bytes, &device, &page);
    struct physical *p = physical_of(handle);
    struct maps *m = reserve == NULL ? NULL : maps_of(device);
    if (m == NULL || p == NULL || offset != 0 || bytes > p->bytes) {
        return SIM_E_VALUE;
    }
    uint64_t pages = bytes / SIM_PAGE;
    if (covering(m, page + pages - 1, page) != NULL) {
        return SIM_E_VALUE;
    }
    struct mapping *map = sim_pool_take(&mappings, &self);
    if (map == NULL) {
        return SIM_E_NOMEM;
    }
    *map = (struct mapping){
        .page = page, .pages = pages, .memory = p, .reserve = reserve, .self = self};
    m->at[page] = self;
    sim_bits_set(&m->first, page);
    p->refs++;
    reserve->live++;
    return SIM_OK;
}

/* Whether [page, page + pages) is made of whole mappings (unmap) or only fully mapped (access). */
static bool tiled(const struct maps *m, uint64_t page, uint64_t pages, bool whole)
{
    uint64_t end = page + pages, at = page;
    const struct mapping *map = covering(m, page, page);
    if (map != NULL && map->page != page && whole) {
        return false;
    }
    while (at < end) {
        map = covering(m, at, at);
        if (map == NULL) {
            return false;
        }
        at = map->page + map->pages;
    }
    return !whole || at == end;
}

int sim_unmap(uint64_t addr, uint64_t bytes)
{
    int device;
    uint64_t page;
    struct sim_range *reserve = within(addr, bytes, &device, &page);
    struct maps *m = reserve == NULL ? NULL : maps_of(device);
    uint64_t end = page + bytes / SIM_PAGE;
    if (m == NULL || !tiled(m, page, bytes / SIM_PAGE, true)) {
        return SIM_E_VALUE;
    }
    for (uint64_t at = page; at < end;) {
        struct mapping *map = mapping_at(m, at);
        at += map->pages;
        sim_bits_clear(&m->first, map->page);
        n_accessible -= map->accessible;
        map->reserve->live--;
        drop(map->memory);
        sim_pool_give(&mappings, map->self);
    }
    return SIM_OK;
}

int sim_access(uint64_t addr, uint64_t bytes, bool on)
{
    int device;
    uint64_t page;
    struct sim_range *reserve = within(addr, bytes, &device, &page);
    struct maps *m = reserve == NULL ? NULL : maps_of(device);
    uint64_t end = page + bytes / SIM_PAGE;
    if (m == NULL || !tiled(m, page, bytes / SIM_PAGE, false)) {
        return SIM_E_VALUE;
    }
    for (uint64_t at = page; at < end;) {
        struct mapping *map = covering(m, at, at);
        if (on && !map->accessible && n_accessible >= sim_config.max_mappings) {
            return SIM_E_NOMEM;
        }
        n_accessible += (uint64_t)on - map->accessible;
        map->accessible = on;
        at = map->page + map->pages;
    }
    return SIM_OK;
}

/* The mapping that holds p. */
static struct mapping *mapping_of(const void *p, int *device)
{
    *device = sim_device_of(p);
    struct maps *m = *device < 0 ? NULL : maps_of(*device);
    if (m == NULL) {
        return NULL;
    }
    uint64_t page = ((uint64_t)(uintptr_t)p - sim_space_addr(*device, 0)) / SIM_PAGE;
    return covering(m, page, page);
}

int sim_mapping_extent(const void *p, uint64_t *base, uint64_t *size)
{
    int device;
    const struct mapping *map = mapping_of(p, &device);
    if (map == NULL) {
        return SIM_E_NOT_FOUND;
    }
    *base = sim_space_addr(device, map->page);
    *size = map->pages * SIM_PAGE;
    return SIM_OK;
}

int sim_retain_at(uint64_t addr, uint64_t *handle)
{
    int device;
    struct mapping *map = mapping_of((const void *)(uintptr_t)addr, &device);
    if (map == NULL) {
        return SIM_E_VALUE;
    }
    map->memory->refs++;
    *handle = handle_of(map->memory);
    return SIM_OK;
}
