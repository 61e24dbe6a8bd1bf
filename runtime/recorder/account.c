/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls do to the books: the table of live things, the totals in shared memory, the events.
 *
 * What a small allocation costs: the driver puts requests up to 1 MiB into slabs of one 2 MiB page, and
 * larger ones on whole pages. So an allocation charges its pages, and a small one charges its page only
 * when it is the first there, and gives it back when it is the last. The page belongs to the owner of
 * the first; the totals follow, and the event that gives the page back names that owner.
 *
 * Physical memory charges when it is created and gives back when its last reference and its last
 * mapping are gone, whichever call that is.
 *
 * Source of the rules: CUDA driver API reference 13.0 (memory and virtual memory management), and
 * addresses published in ROCm/hip issue 2257 for the slabs.
 */

#include "record.h"

#define PAGE_SHIFT 21
#define PAGE       ((uint64_t)1 << PAGE_SHIFT)
#define SMALL      ((uint64_t)1 << 20) /* largest request that shares a page */

/* ---- who, where, and the event */

unsigned plim__device(const struct plim__call *call)
{
    (void)call;
    uint32_t devices = __atomic_load_n(&plim__rec.devices, __ATOMIC_RELAXED);
    int device = 0, n = 0;
    if (devices == 0) {
        int (*count)(int *) = plim__helper(PLIM__HELP_cuDeviceGetCount);
        if (count != NULL && count(&n) == 0 && n > 0) {
            devices = (uint32_t)n;
            __atomic_store_n(&plim__rec.devices, devices, __ATOMIC_RELAXED);
        }
    }
    if (devices == 1) {
        return 0;
    }
    int (*current)(int *) = plim__helper(PLIM__HELP_cuCtxGetDevice);
    if (current == NULL || current(&device) != 0) {
        current = plim__helper(PLIM__HELP_cudaGetDevice);
        if (current == NULL || current(&device) != 0) {
            return PLIM_DEVICE_NONE;
        }
    }
    return device >= 0 && device < PLIM_SHM_DEVICES - 1 ? (unsigned)device : PLIM_DEVICE_NONE;
}

struct plim__who plim__who(const struct plim__call *call)
{
    struct plim__who who = {.device = plim__device(call)};
    who.library = plim__library(call->site, &who.owner);
    return who;
}

bool plim__skip(struct plim__call *call)
{
    if (call->level != PLIM__RUNTIME) {
        return false;
    }
    bool told = (plim__self.fired & ((uint64_t)1 << call->kind)) != 0;
    if (call->kind == PLIM_EVENT_ALLOC && call->result == 0) {
        __atomic_store_n(&plim__rec.below, told ? 1u : 2u, __ATOMIC_RELAXED);
    }
    return told;
}

void plim__tell(const struct plim__call *call, const struct plim__who *who, unsigned kind,
                uint64_t addr, uint64_t size, uint64_t aux, unsigned flags)
{
    bool release = call->gave || (flags & PLIM_EVENT_UNKNOWN) != 0;
    uint64_t now = release ? call->begin_ns : plim__now();
    uint64_t took = now - call->begin_ns;
    struct plim_gpu_event event = {
        .time_ns = now,
        .addr = addr,
        .size = size,
        .aux = aux,
        .duration_ns = release || took > UINT32_MAX ? PLIM_DURATION_NONE : (uint32_t)took,
        .thread = plim__self.id,
        .stack = plim__rec.stacks == PLIM__STACKS_NONE ? 0 : plim__stack(call),
        .result = call->result,
        .call = call->id,
        .library = (uint16_t)who->library,
        .kind = (uint8_t)kind,
        .device = (uint8_t)who->device,
        .owner = (uint8_t)who->owner,
        .flags = (uint8_t)(flags | (call->level == PLIM__RUNTIME ? PLIM_EVENT_RUNTIME : 0))};
    (void)plim__shm_write(&plim__rec.shm, &event);
}

/* ---- totals */

static void add(uint64_t *to, int64_t by)
{
    if (by != 0) {
        (void)__atomic_fetch_add(to, (uint64_t)by, __ATOMIC_RELAXED);
    }
}

void plim__charge(unsigned device, unsigned owner, int64_t live, int64_t charged, int count)
{
    struct plim_shm_total *t = plim__shm_total(&plim__rec.shm, device, owner);
    add(&t->live, live);
    if (count != 0) {
        plim__count(count > 0 ? &t->allocs : &t->frees);
    }
    if (charged == 0) {
        return;
    }
    uint64_t now = __atomic_add_fetch(&t->charged, (uint64_t)charged, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&t->peak, __ATOMIC_RELAXED);
    while (charged > 0 && now > peak &&
           !__atomic_compare_exchange_n(&t->peak, &peak, now, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
}

uint64_t plim__charged(unsigned device)
{
    uint64_t sum = 0;
    for (unsigned owner = 0; owner < PLIM_OWNERS; owner++) {
        sum += __atomic_load_n(&plim__shm_total(&plim__rec.shm, device, owner)->charged,
                               __ATOMIC_RELAXED);
    }
    return sum;
}

void plim__failed(struct plim__call *call, const struct plim__who *who, uint64_t size)
{
    plim__count(&plim__shm_total(&plim__rec.shm, who->device, who->owner)->failures);
    plim__tell(call, who, call->kind, call->key, size, 0, call->gave ? PLIM_EVENT_UNKNOWN : 0);
}

/* ---- pages */

/* Device bytes that a new allocation costs. */
static uint64_t pages_in(const struct plim__live *live)
{
    if (live->size > SMALL) {
        return (live->size + PAGE - 1) & ~(PAGE - 1);
    }
    struct plim__live *page, first = {.key = live->key >> PAGE_SHIFT,
                                      .size = PAGE,
                                      .extra = 1,
                                      .cls = PLIM__PAGE,
                                      .owner = live->owner,
                                      .device = live->device};
    struct plim__shard *shard = plim__live_lock(PLIM__PAGE, first.key, &page);
    uint64_t cost = 0;
    if (page != NULL) {
        page->extra++;
    } else if (plim__live_add(shard, &first)) {
        cost = PAGE;
    }
    plim__live_unlock(shard);
    return cost;
}

/* Device bytes that the end of an allocation gives back, and whose they were. */
static uint64_t pages_out(const struct plim__live *live, unsigned *owner)
{
    *owner = live->owner;
    if (live->size > SMALL) {
        return (live->size + PAGE - 1) & ~(PAGE - 1);
    }
    struct plim__live *page;
    struct plim__shard *shard = plim__live_lock(PLIM__PAGE, live->key >> PAGE_SHIFT, &page);
    uint64_t cost = 0;
    if (page != NULL && --page->extra == 0) {
        cost = PAGE;
        *owner = page->owner;
        plim__live_remove(shard, page);
    }
    plim__live_unlock(shard);
    return cost;
}

/* ---- taking */

static bool by_pages(unsigned kind)
{
    return kind == PLIM_EVENT_ALLOC;
}

/* Bits of the kinds whose size counts: as device bytes, and as bytes that the owner asked for. */
#define BIT(kind) ((uint64_t)1 << PLIM_EVENT_##kind)
#define COUNTED                                                                                    \
    (BIT(ALLOC) | BIT(CREATE) | BIT(ARRAY_ALLOC) | BIT(CONTEXT) | BIT(MODULE) | BIT(GRAPH) |       \
     BIT(POOL_ALLOC) | BIT(MANAGED_ALLOC))
#define CHARGED ((COUNTED | BIT(POOL_GROW)) & ~(BIT(POOL_ALLOC) | BIT(MANAGED_ALLOC)))

static bool is(uint64_t kinds, unsigned kind)
{
    return ((kinds >> kind) & 1) != 0;
}

/* The books' side of something that comes (sign 1) or goes (-1), whose page costs `pages`. */
static uint64_t book(const struct plim__live *live, int sign, uint64_t pages, unsigned page_owner)
{
    uint64_t cost = by_pages(live->kind) ? pages : is(CHARGED, live->kind) ? live->size : 0;
    bool same = page_owner == live->owner, count = is(COUNTED, live->kind);
    if (count || cost != 0) {
        plim__charge(live->device, live->owner, count ? sign * (int64_t)live->size : 0,
                     same ? sign * (int64_t)cost : 0, count ? sign : 0);
    }
    if (!same && cost != 0) {
        plim__charge(live->device, page_owner, 0, sign * (int64_t)cost, 0);
    }
    if (live->kind == PLIM_EVENT_IMPORT) {
        add(&plim__shm_total(&plim__rec.shm, live->device, live->owner)->foreign,
            sign * (int64_t)live->size);
    }
    return cost;
}

/* Something comes. Returns the device bytes it costs. */
static uint64_t book_in(const struct plim__live *live)
{
    return book(live, 1, by_pages(live->kind) ? pages_in(live) : 0, live->owner);
}

/* Something goes. Returns the device bytes it gives back. */
static uint64_t book_out(const struct plim__live *live, unsigned *page_owner)
{
    *page_owner = live->owner;
    uint64_t pages = by_pages(live->kind) ? pages_out(live, page_owner) : 0;
    return book(live, -1, pages, *page_owner);
}

static struct plim__who who_of(const struct plim__live *live)
{
    return (struct plim__who){
        .library = live->library, .owner = live->owner, .device = live->device};
}

/* The event of something that goes, and of its page when that belonged to another owner. */
static void tell_gone(const struct plim__call *call, const struct plim__live *live, uint64_t cost,
                      unsigned page_owner, unsigned flags)
{
    struct plim__who who = who_of(live);
    bool same = page_owner == live->owner, pages = by_pages(live->kind);
    unsigned kind = live->kind + 1u;
    plim__tell(call, &who, kind, live->key, live->size, pages && same ? cost : 0,
               flags | (pages ? PLIM_EVENT_PAGES : 0));
    if (!same) {
        who.owner = page_owner;
        plim__tell(call, &who, kind, live->key, 0, cost,
                   flags | PLIM_EVENT_PAGES | PLIM_EVENT_TAIL);
    }
}

/* Put something into the table; what stood there under the same key has gone without our seeing it. */
static void remember(struct plim__call *call, const struct plim__live *live)
{
    struct plim__live *found, stale;
    struct plim__shard *shard = plim__live_lock(live->cls, live->key, &found);
    bool replaced = found != NULL, kept = true;
    if (replaced) {
        stale = *found;
        *found = *live;
    } else {
        kept = plim__live_add(shard, live);
    }
    plim__live_unlock(shard);
    if (!kept) {
        PLIM__COUNT(untracked);
    }
    if (replaced) {
        plim__drop(call, &stale, PLIM_EVENT_TAIL);
    }
}

void plim__take(struct plim__call *call, const struct plim__live *live, uint64_t aux,
                unsigned flags)
{
    struct plim__who who = who_of(live);
    remember(call, live);
    uint64_t cost = book_in(live);
    bool pages = by_pages(live->kind);
    plim__tell(call, &who, live->kind, live->key, live->size, pages ? cost : aux,
               flags | (pages ? PLIM_EVENT_PAGES : 0));
    plim__context_noticed(call, live->device);
}

void plim__drop(struct plim__call *call, const struct plim__live *live, unsigned flags)
{
    unsigned owner;
    uint64_t cost = book_out(live, &owner);
    tell_gone(call, live, cost, owner, flags);
}

/* The owner that a kind has whoever asks for it. */
static unsigned owner_of(unsigned kind, unsigned caller)
{
    return kind == PLIM_EVENT_CONTEXT  ? PLIM_OWNER_CONTEXT
           : kind == PLIM_EVENT_MODULE ? PLIM_OWNER_MODULE
           : kind == PLIM_EVENT_GRAPH  ? PLIM_OWNER_GRAPH
                                       : caller;
}

struct plim__live plim__fresh(const struct plim__who *who, unsigned cls, unsigned kind,
                              uint64_t key, uint64_t size, uint64_t extra)
{
    return (struct plim__live){.key = key,
                               .size = size,
                               .extra = extra,
                               .library = (uint16_t)who->library,
                               .cls = (uint8_t)cls,
                               .kind = (uint8_t)kind,
                               .owner = (uint8_t)owner_of(kind, who->owner),
                               .device = (uint8_t)who->device};
}

void plim__took(struct plim__call *call, unsigned cls, uint64_t key, uint64_t size, uint64_t extra)
{
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    if (call->result != 0) {
        plim__failed(call, &who, size);
    } else if (key != 0) {
        bool estimate =
            cls == PLIM__ARRAY || cls == PLIM__MODULE || cls == PLIM__GRAPH || cls == PLIM__CONTEXT;
        struct plim__live live = plim__fresh(&who, cls, call->kind, key, size, extra);
        plim__take(call, &live, 0, estimate ? PLIM_EVENT_ESTIMATE : 0);
    }
}

void plim__took_physical(struct plim__call *call, uint64_t handle, uint64_t bytes,
                         const struct plim__physical *props)
{
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    if (call->result != 0) {
        plim__failed(call, &who, bytes);
        return;
    }
    bool device = props->where.type == PLIM__ON_DEVICE;
    who.device = device ? (unsigned)props->where.id : PLIM_DEVICE_NONE;
    struct plim__live live = plim__fresh(
        &who, PLIM__HANDLE, device ? PLIM_EVENT_CREATE : PLIM_EVENT_HOST_ALLOC, handle, bytes, 1);
    plim__take(call, &live, 0, 0);
}

/* ---- giving */

/* A release of something that we do not know. */
static void gave_unknown(struct plim__call *call, uint64_t key, bool twice)
{
    struct plim__who who = plim__who(call);
    PLIM__COUNT(unknown_frees);
    call->key = key;
    if (twice) {
        PLIM__COUNT(double_frees);
    }
    plim__tell(call, &who, call->kind, key, 0, 0, PLIM_EVENT_UNKNOWN);
}

static void note_device(const struct plim__call *call, const struct plim__live *live)
{
    if (plim__rec.devices > 1 && live->device != PLIM_DEVICE_NONE &&
        plim__device(call) != live->device) {
        PLIM__COUNT(wrong_device);
    }
}

/* Take the key out of table and totals and tell it. call->gone is what went. */
static void give(struct plim__call *call, unsigned cls, uint64_t key)
{
    struct plim__live *found;
    struct plim__shard *shard = plim__live_lock(cls, key, &found);
    bool known = found != NULL, twice = !known && plim__live_freed(shard, cls, key);
    call->gone = (struct plim__live){0};
    if (known) {
        call->gone = *found;
        plim__live_remove(shard, found);
    }
    plim__live_unlock(shard);
    call->gave = true;
    if (!known) {
        gave_unknown(call, key, twice);
        return;
    }
    note_device(call, &call->gone);
    plim__drop(call, &call->gone, 0);
}

/* True when the release is to be recorded now; else it is kept for the end of the call. */
static bool give_now(struct plim__call *call, unsigned cls, uint64_t key)
{
    call->result = 0;
    if (call->level == PLIM__RUNTIME && __atomic_load_n(&plim__rec.below, __ATOMIC_RELAXED) != 2) {
        call->late_class = (uint8_t)cls;
        call->key = key;
        return false;
    }
    return true;
}

void plim__gives(struct plim__call *call, unsigned cls, uint64_t key)
{
    if (key == 0 ||
        (call->level == PLIM__DRIVER && plim__self.depth != 0 && plim__self.given == key)) {
        return; /* the runtime's level has recorded it */
    }
    if (give_now(call, cls, key)) {
        plim__self.given = call->level == PLIM__RUNTIME ? key : 0;
        give(call, cls, key);
    }
}

void plim__gives_handle(struct plim__call *call, uint64_t handle)
{
    struct plim__live *found;
    call->result = 0;
    struct plim__shard *shard = plim__live_lock(PLIM__HANDLE, handle, &found);
    uint64_t uses = found != NULL ? found->extra : 0;
    bool released = found != NULL && (uint32_t)uses == 0; /* only mappings keep it alive */
    bool more = !released && uses > 1;
    if (more) {
        found->extra--;
        call->gone = *found;
    }
    plim__live_unlock(shard);
    call->gave = true;
    if (released) {
        call->gone = (struct plim__live){0};
        gave_unknown(call, handle, true);
    } else if (more) {
        struct plim__who who = who_of(&call->gone);
        plim__tell(call, &who, call->gone.kind + 1u, handle, 0, 0, 0);
    } else {
        give(call, PLIM__HANDLE, handle);
    }
}

/* The driver refused a release that was recorded: it takes back what the event said. */
static void take_back(struct plim__call *call)
{
    struct plim__live *live = &call->gone, *found;
    PLIM__COUNT(failed_frees);
    if (live->cls == PLIM__HANDLE) {
        struct plim__shard *shard = plim__live_lock(PLIM__HANDLE, live->key, &found);
        bool counted_down = found != NULL;
        if (counted_down) {
            found->extra++;
        }
        plim__live_unlock(shard);
        if (counted_down) {
            struct plim__who who = who_of(live);
            plim__tell(call, &who, live->kind + 1u, live->key, 0, 0, 0);
            return;
        }
    }
    remember(call, live);
    uint64_t cost = book_in(live);
    tell_gone(call, live, cost, live->owner, 0);
}

void plim__settle(struct plim__call *call)
{
    int result = call->result;
    if (call->late_class != 0) {
        if (plim__skip(call)) {
            return;
        }
        if (result == 0) {
            call->begin_ns = plim__now();
            give(call, call->late_class, call->key);
            return;
        }
        call->gone = (struct plim__live){0};
        call->gave = true;
        gave_unknown(call, call->key, false);
        return;
    }
    if (result == 0) {
        return;
    }
    call->begin_ns = plim__now();
    if (call->gone.cls != 0) {
        take_back(call);
    } else {
        plim__may_fail(call, call->key, 0);
    }
}

/* ---- mappings */

void plim__retained(struct plim__call *call, uint64_t handle)
{
    struct plim__live *found;
    if (call->result != 0) {
        return;
    }
    struct plim__shard *shard = plim__live_lock(PLIM__HANDLE, handle, &found);
    if (found != NULL) {
        found->extra++;
    }
    plim__live_unlock(shard);
}

void plim__mapped(struct plim__call *call, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    struct plim__who who = plim__who(call);
    struct plim__live *found;
    if (call->result != 0) {
        plim__failed(call, &who, bytes);
        return;
    }
    struct plim__shard *shard = plim__live_lock(PLIM__HANDLE, handle, &found);
    if (found != NULL) {
        found->extra += (uint64_t)1 << 32;
        who = who_of(found);
    }
    plim__live_unlock(shard);
    struct plim__live live = plim__fresh(&who, PLIM__MAPPING, PLIM_EVENT_MAP, addr, bytes, handle);
    plim__take(call, &live, handle, 0);
}

/* A mapping of the handle ended; with its last use the memory goes. */
static void unuse(struct plim__call *call, uint64_t handle)
{
    struct plim__live *found, gone = {0};
    struct plim__shard *shard = plim__live_lock(PLIM__HANDLE, handle, &found);
    if (found != NULL) {
        found->extra -= (uint64_t)1 << 32;
        if (found->extra == 0) {
            gone = *found;
            plim__live_remove(shard, found);
        }
    }
    plim__live_unlock(shard);
    if (gone.cls != 0) {
        plim__drop(call, &gone, PLIM_EVENT_TAIL);
    }
}

void plim__unmapped(struct plim__call *call, uint64_t addr, uint64_t bytes)
{
    if (call->result != 0) {
        struct plim__who who = plim__who(call);
        plim__failed(call, &who, bytes);
        return;
    }
    for (uint64_t at = addr; at - addr < bytes;) {
        struct plim__live *found, gone = {0};
        struct plim__shard *shard = plim__live_lock(PLIM__MAPPING, at, &found);
        if (found != NULL) {
            gone = *found;
            plim__live_remove(shard, found);
        }
        plim__live_unlock(shard);
        if (gone.cls == 0 || gone.size == 0) {
            gave_unknown(call, at, false);
            return;
        }
        struct plim__who who = who_of(&gone);
        plim__tell(call, &who, PLIM_EVENT_UNMAP, at, gone.size, gone.extra,
                   at == addr ? 0 : PLIM_EVENT_TAIL);
        unuse(call, gone.extra);
        at += gone.size;
    }
}

/* ---- remarks */

void plim__may_fail(struct plim__call *call, uint64_t addr, uint64_t bytes)
{
    if (call->result != 0 && !plim__skip(call)) {
        struct plim__who who = plim__who(call);
        call->key = addr;
        plim__failed(call, &who, bytes);
    }
}

void plim__exported(struct plim__call *call, unsigned cls, uint64_t key)
{
    struct plim__live *found;
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    struct plim__shard *shard = plim__live_lock(cls, key, &found);
    uint64_t size = found != NULL ? found->size : 0;
    plim__live_unlock(shard);
    plim__tell(call, &who, PLIM_EVENT_EXPORT, key, size, 0, 0);
}

void plim__prefetched(struct plim__call *call, uint64_t addr, uint64_t bytes, int device)
{
    struct plim__who who = plim__who(call);
    plim__tell(call, &who, PLIM_EVENT_PREFETCH, addr, bytes,
               device < 0 ? UINT64_MAX : (uint64_t)device, 0);
}
