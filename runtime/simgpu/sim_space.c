/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses: one reserved stretch of the process's address space, cut up by device.
 *
 * The stretch is mapped without access, so it can collide with nothing, costs no memory, and a host
 * access to it faults. Each device gets the same number of pages. A range is found from any address
 * in it by the set of first pages and a table from page to range. Where new ranges go is a policy:
 *
 *   ascending   above everything handed out so far; freed addresses are not used again
 *   descending  below everything handed out so far; likewise
 *   first-fit   the lowest free place, as if the address space were tidy
 *
 * The first two fall back to freed addresses when the stretch is used up. Only then, and with first-fit,
 * is the set of freed ranges kept; it is made from the gaps between the ranges in use. Threads: sim_lock, but
 * sim_is_device and sim_device_of only read constants.
 */

#include "sim.h"
#include <sys/mman.h>

#define SPACE_HINT ((char *)0x200000000000) /* far below where the kernel puts mappings */
#define SPACE_MAX  ((uint64_t)1 << 46)      /* 64 TiB in all */
#define SPACE_MIN  ((uint64_t)1 << 40)
#define DEVICE_MAX ((uint64_t)1 << 44) /* 16 TiB for one device */

struct space {
    struct sim_bits first; /* first pages of ranges */
    struct sim_ranges freed;
    uint32_t *at;       /* page -> range index, valid for first pages */
    uint64_t low, high; /* pages between low and high were never handed out */
    uint64_t pages;
    bool tracked; /* `freed` is kept up to date */
};

static char *base;
static uint64_t device_bytes;
static int n_devices;
static struct space spaces[SIM_MAX_DEVICES];
static struct sim_pool ranges = SIM_POOL(struct sim_range);

int sim_space_init(int devices)
{
    uint64_t bytes = DEVICE_MAX * (uint64_t)devices;
    void *p = MAP_FAILED;
    bytes = bytes > SPACE_MAX ? SPACE_MAX : bytes;
    for (; bytes >= SPACE_MIN && p == MAP_FAILED; bytes /= 2) {
        p = mmap(SPACE_HINT, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) {
            break;
        }
    }
    if (p == MAP_FAILED) {
        return SIM_E_NOMEM;
    }
    device_bytes = (bytes / (uint64_t)devices) & ~(SIM_PAGE - 1);
    for (int d = 0; d < devices; d++) {
        struct space *s = &spaces[d];
        uint64_t pages = device_bytes / SIM_PAGE;
        int rc = sim_bits_init(&s->first, pages);
        s->at = mmap(NULL, pages * sizeof *s->at, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (rc != SIM_OK || s->at == MAP_FAILED) {
            return SIM_E_NOMEM;
        }
        s->low = 1; /* an address of the first page would look like the base itself */
        s->high = s->pages = pages;
        s->freed.seed = 1;
    }
    n_devices = devices;
    base = p;
    return SIM_OK;
}

int sim_device_of(const void *p)
{
    uint64_t off = (uint64_t)((const char *)p - base);
    return base != NULL && off < device_bytes * (uint64_t)n_devices ? (int)(off / device_bytes)
                                                                    : -1;
}

bool sim_is_device(const void *p)
{
    return sim_device_of(p) >= 0;
}

uint64_t sim_space_addr(int device, uint64_t page)
{
    return (uint64_t)(uintptr_t)base + (uint64_t)device * device_bytes + page * SIM_PAGE;
}

static uint64_t up(uint64_t x, uint64_t align)
{
    return (x + align - 1) / align * align;
}

static void freed(struct space *s, uint64_t page, uint64_t pages)
{
    if (s->tracked) {
        (void)sim_ranges_add(&s->freed, page, pages);
    }
}

static uint64_t take_high(struct space *s, uint64_t pages, uint64_t align)
{
    if (s->high - s->low < pages) {
        return SIM_NONE;
    }
    uint64_t page = (s->high - pages) / align * align;
    if (page < s->low) {
        return SIM_NONE;
    }
    freed(s, page + pages, s->high - page - pages);
    s->high = page;
    return page;
}

static uint64_t take_low(struct space *s, uint64_t pages, uint64_t align)
{
    uint64_t page = up(s->low, align);
    if (page + pages > s->high) {
        return SIM_NONE;
    }
    freed(s, s->low, page - s->low);
    s->low = page + pages;
    return page;
}

/* Start keeping the freed ranges: all gaps between ranges in use, but for the untouched middle. */
static void track(struct space *s)
{
    uint64_t at = 1;
    s->tracked = true;
    for (uint64_t first = sim_bits_next(&s->first, 1); at < s->pages;) {
        uint64_t end = first == SIM_NONE ? s->pages : first;
        if (at < s->low) {
            (void)sim_ranges_add(&s->freed, at, (end < s->low ? end : s->low) - at);
        }
        uint64_t from = at > s->high ? at : s->high;
        if (from < end) {
            (void)sim_ranges_add(&s->freed, from, end - from);
        }
        if (first == SIM_NONE) {
            return;
        }
        const struct sim_range *range = sim_pool_at(&ranges, s->at[first]);
        at = range->page + range->pages;
        first = sim_bits_next(&s->first, at);
    }
}

/* A freed place; what alignment leaves over goes back. */
static uint64_t take_freed(struct space *s, uint64_t pages, uint64_t align)
{
    if (!s->tracked) {
        track(s);
    }
    uint64_t got = sim_ranges_take(&s->freed, pages + align - 1);
    if (got == SIM_NONE) {
        return SIM_NONE;
    }
    uint64_t page = up(got, align);
    (void)sim_ranges_add(&s->freed, got, page - got);
    (void)sim_ranges_add(&s->freed, page + pages, got + align - 1 - page);
    return page;
}

static uint64_t place(struct space *s, uint64_t pages, uint64_t align)
{
    int policy = atomic_load_explicit(&sim_config.policy, memory_order_relaxed);
    uint64_t page = SIM_NONE;
    if (policy == SIM_FIRST_FIT) {
        page = take_freed(s, pages, align);
    }
    if (page == SIM_NONE) {
        page = policy == SIM_DESCENDING ? take_high(s, pages, align) : take_low(s, pages, align);
    }
    return page == SIM_NONE ? take_freed(s, pages, align) : page;
}

struct sim_range *sim_space_take(int device, uint64_t pages, uint64_t align, enum sim_kind kind)
{
    struct space *s = &spaces[device];
    uint64_t page = pages == 0 ? SIM_NONE : place(s, pages, align == 0 ? 1 : align);
    if (page == SIM_NONE) {
        return NULL;
    }
    uint32_t self;
    struct sim_range *range = sim_pool_take(&ranges, &self);
    if (range == NULL) {
        freed(s, page, pages);
        return NULL;
    }
    range->page = page;
    range->pages = pages;
    range->self = self;
    range->kind = (uint8_t)kind;
    s->at[page] = self;
    sim_bits_set(&s->first, page);
    return range;
}

void sim_space_give(int device, struct sim_range *range)
{
    struct space *s = &spaces[device];
    sim_bits_clear(&s->first, range->page);
    freed(s, range->page, range->pages);
    sim_pool_give(&ranges, range->self);
}

struct sim_range *sim_space_find(const void *p, int *device)
{
    int d = sim_device_of(p);
    if (d < 0) {
        return NULL;
    }
    uint64_t page = ((uint64_t)(uintptr_t)p - sim_space_addr(d, 0)) / SIM_PAGE;
    uint64_t first = sim_bits_prev(&spaces[d].first, page);
    if (first == SIM_NONE) {
        return NULL;
    }
    struct sim_range *range = sim_pool_at(&ranges, spaces[d].at[first]);
    if (page >= range->page + range->pages) {
        return NULL;
    }
    if (device != NULL) {
        *device = d;
    }
    return range;
}
